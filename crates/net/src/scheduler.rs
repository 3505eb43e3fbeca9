//! One task of the runtime gives all sessions of a worker their turns: when their socket
//! is ready, their deadline due, something ordered, or a waker called by their tasks.
//!
//! The sockets are watched by an epoll of our own, which the runtime in turn waits for: a session then needs
//! neither a task nor a registration of the runtime's, which would be larger than all that it holds itself
//! (ADR 0019).

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use sekisho_handler::memory;
use sekisho_transport::Reactor;
use tokio::net::unix::pipe::Receiver;

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::panic_report::{self, Vital};
use crate::session::{Key, Token};
use crate::stream_session::StreamSession;
use crate::transport::{Ready, Transport};
use crate::wake::{SessionWaker, WakeQueue};
use crate::worker::Worker;

/// How many events are taken from epoll at once, before other tasks run.
const EVENTS_MAX: usize = 256;
/// So many connections are worth the time that it takes to give their memory back.
const MANY: usize = 1024;
/// What has the turns of a session.
#[derive(Debug)]
pub(crate) enum Driven {
    /// Requests of HTTP.
    Http(Box<Connection>),
    /// A session of `stream`.
    Stream(Box<StreamSession>),
}

impl Driven {
    /// The connection, where it is one of HTTP.
    #[cfg(feature = "simulation")]
    pub(crate) fn http(&self) -> Option<&Connection> {
        match self {
            Self::Http(connection) => Some(connection),
            Self::Stream(_) => None,
        }
    }

    /// The waker that it has kept for as long as somebody may wake it.
    fn kept_waker(&mut self) -> Option<&mut Option<SessionWaker>> {
        match self {
            Self::Http(connection) => {
                connection.link.buffers.as_mut().map(|buffers| &mut buffers.session_waker)
            }
            Self::Stream(session) => Some(&mut session.session_waker),
        }
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Http(connection) => connection.go_on(cx),
            Self::Stream(session) => session.go_on(cx),
        }
    }

    fn give_up_after_panic(&mut self) {
        match self {
            Self::Http(connection) => connection.give_up_after_panic(),
            Self::Stream(session) => session.give_up_after_panic(),
        }
    }

    fn abandon(self) {
        match self {
            Self::Http(connection) => connection.abandon(),
            Self::Stream(session) => drop(session),
        }
    }
}

/// The sessions' connections, and what calls them.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// The epoll of the worker's sockets: of sessions, and of connections to servers.
    pub(crate) reactor: Rc<Reactor>,
    /// That epoll in the runtime's type for pipes, through which any descriptor can be waited for.
    epoll: Receiver,
    wake_queue: Arc<WakeQueue>,
    /// By place; `None` for one that has its turn, too.
    pub(crate) connections: RefCell<Vec<Option<Driven>>>,
    /// A waker that no session uses.
    spare: RefCell<Option<SessionWaker>>,
}

impl Scheduler {
    /// Within the runtime that shall wait for it.
    pub(crate) fn new() -> io::Result<Self> {
        let reactor = Reactor::new()?;
        let epoll = reactor.as_fd().try_clone_to_owned()?;
        Ok(Self {
            epoll: Receiver::from_owned_fd_unchecked(epoll)?,
            reactor,
            wake_queue: Arc::default(),
            connections: RefCell::default(),
            spare: RefCell::default(),
        })
    }

    /// Registers a transport with epoll: from now on its changes wake the session.
    pub(crate) fn watch<T: Transport>(&self, transport: &mut T, token: Token) -> io::Result<()> {
        transport.watch(self.reactor.as_fd(), token.bits())
    }

    /// What the connections hold in memory, without their buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let connections = self.connections.borrow();
        let own = connections.capacity() * size_of::<Option<Driven>>();
        let each = |driven: &Driven| {
            let connection = match driven {
                Driven::Http(connection) => connection,
                Driven::Stream(session) => return session.memory_bytes().0,
            };
            let beside =
                connection.link.protocol.memory_bytes() + connection.transport.memory_bytes();
            size_of::<Connection>() + beside
        };
        own + connections.iter().flatten().map(each).sum::<usize>()
    }

    /// How many connections have buffers, and what these hold in memory.
    pub(crate) fn buffer_memory_usage(&self) -> (usize, usize) {
        let connections = self.connections.borrow();
        let all = connections.iter().flatten();
        all.fold((0, 0), |(count, bytes), driven| {
            let connection = match driven {
                Driven::Http(connection) => connection,
                Driven::Stream(session) => {
                    let (_, held) = session.memory_bytes();
                    return (count + usize::from(held > 0), bytes + held);
                }
            };
            let buffers = connection.link.buffers.as_ref().map_or(0, |it| it.memory_bytes());
            let exchanges = connection.exchanges.iter().map(Exchange::memory_bytes).sum::<usize>();
            let held = buffers + exchanges;
            (count + usize::from(held > 0), bytes + held)
        })
    }

    /// All sessions have ended: if they were many, their memory goes back to the system.
    fn give_back_memory(&self) {
        let mut connections = self.connections.borrow_mut();
        if connections.capacity() >= MANY {
            *connections = Vec::new();
            sekisho_sys::give_back_memory();
        }
    }

    fn session_waker(&self) -> SessionWaker {
        self.spare.take().unwrap_or_else(|| SessionWaker::new(&self.wake_queue))
    }

    fn put(&self, key: Key, connection: Driven) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= key.index() {
            connections.resize_with(key.index() + 1, || None);
        }
        connections[key.index()] = Some(connection);
    }

    fn take(&self, key: Key) -> Option<Driven> {
        self.connections.borrow_mut().get_mut(key.index())?.take()
    }

    /// Drops the connections that are left of a worker that has ended.
    pub(crate) fn drop_all(&self) {
        let left = std::mem::take(&mut *self.connections.borrow_mut());
        for connection in left.into_iter().flatten() {
            // What a panic has left behind may panic again when it is dropped.
            drop(std::panic::catch_unwind(AssertUnwindSafe(|| connection.abandon())));
        }
    }

    /// Moves the sockets that have changed to `events`; whether there may be more.
    fn look(&self, cx: &mut Context<'_>, events: &mut Vec<Event>) -> bool {
        events.clear();
        let look = || {
            let into = rustix::buffer::spare_capacity(events);
            epoll::wait(&self.epoll, into, Some(&Timespec::default()))?;
            // Fewer than there is room for: that was all, and the next event is waited for.
            if events.len() < EVENTS_MAX { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        // Where the runtime knows of no event, nothing is called.
        let has_more = self.epoll.try_io(look).is_ok();
        // Asks to be woken for what changes from here on; the runtime may know of something already. An error is the
        // end of the runtime.
        has_more || matches!(self.epoll.poll_read_ready(cx), Poll::Ready(Ok(())))
    }
}

impl Worker {
    /// Gives the sessions their turns, for as long as the worker is there.
    pub(crate) async fn run_scheduler(self: Rc<Self>) {
        let _vital = Vital(Rc::clone(&self));
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut due = Vec::new();
        // Sessions see for themselves that others have their turn; the runtime need not count.
        tokio::task::unconstrained(poll_fn(|cx| self.round(cx, &mut events, &mut due))).await;
    }

    fn round(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        events: &mut Vec<Event>,
        due: &mut Vec<Token>,
    ) -> Poll<()> {
        self.heartbeat.turn();
        let is_more = self.scheduler.look(cx, events);
        self.collect_due(cx.waker(), events, due);
        for token in due.drain(..) {
            self.give_due_turn(token);
        }
        if is_more {
            cx.waker().wake_by_ref();
        }
        self.access_log.hand_over();
        self.shed_connections();
        if self.sessions.borrow().is_empty() {
            self.scheduler.give_back_memory();
        }
        Poll::Pending
    }

    /// Finds the sessions that are due: their sockets have changed, or they were woken.
    pub(crate) fn collect_due(&self, loop_waker: &Waker, events: &[Event], due: &mut Vec<Token>) {
        let Scheduler { reactor, wake_queue, .. } = &self.scheduler;
        let mut sessions = self.sessions.borrow_mut();
        // Before the woken sessions are collected: those that a server's socket wakes have their turn in this round.
        wake_queue.begin_look();
        for event in events {
            let (token, ready) = (event.data.u64(), Ready::from_kernel(event.flags));
            if Reactor::is_slot(token) {
                reactor.handle(token, ready);
            } else {
                sessions.note_ready(Token::from_bits(token), ready);
            }
        }
        wake_queue.collect(loop_waker, due);
        if !events.is_empty() || !due.is_empty() {
            self.heap.note_activity();
        }
        for token in due.drain(..) {
            sessions.call(token);
        }
        sessions.take_due(loop_waker, due);
    }

    /// Where memory is nearly used up, ends connections that have no request in work (O9): handshakes first, then idle ones,
    /// then those with a part of a header block. Each look that finds it so takes the older half of one rank.
    pub(crate) fn shed_connections(&self) {
        let looks = memory::critical_looks();
        if self.critical_looks.replace(looks) == looks {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        let connections = self.scheduler.connections.borrow();
        let mut found = Vec::new();
        for driven in connections.iter().flatten() {
            if let Driven::Http(connection) = driven
                && let Some(rank) = connection.shed_rank()
            {
                let key = connection.link.key;
                found.push((rank, sessions.slot(key).since, key));
            }
        }
        let Some(first) = found.iter().map(|(rank, ..)| *rank).min() else { return };
        found.retain(|(rank, ..)| *rank == first);
        found.sort_unstable_by_key(|(_, since, _)| *since);
        found.truncate(found.len().div_ceil(2));
        sessions.shed(found.into_iter().map(|(.., key)| key));
    }

    /// Gives a session its turn, if it is still there.
    pub(crate) fn give_due_turn(&self, token: Token) {
        if self.sessions.borrow_mut().begin_turn(token)
            && let Some(connection) = self.scheduler.take(token.key())
        {
            self.give_turn(connection, token);
        }
    }

    /// Lets a connection have its first turn. One that has its answer and its end in it never takes a place.
    pub(crate) fn begin(self: &Rc<Self>, connection: Connection) {
        self.heartbeat.turn();
        self.heap.note_activity();
        let token = self.sessions.borrow().token(connection.link.key);
        self.give_turn(Driven::Http(Box::new(connection)), token);
        // It may have been answered already, and no round need follow.
        self.access_log.hand_over();
    }

    /// The same for a request from within, in the middle of the turn of the session that makes it.
    pub(crate) fn begin_visit(self: &Rc<Self>, connection: Connection, token: Token) {
        self.give_turn(Driven::Http(Box::new(connection)), token);
        // The lines of all requests of that turn are handed over together.
        if !self.access_log.is_empty() && !self.is_log_due.replace(true) {
            let worker = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::task::yield_now().await;
                worker.is_log_due.set(false);
                worker.access_log.hand_over();
            });
        }
    }

    /// The same for a session of `stream`.
    pub(crate) fn begin_stream(self: &Rc<Self>, mut session: StreamSession) {
        self.heartbeat.turn();
        self.heap.note_activity();
        let token = self.sessions.borrow().token(session.key());
        session.begin();
        self.give_turn(Driven::Stream(Box::new(session)), token);
        self.access_log.hand_over();
    }

    /// One turn of a connection, up to where it must wait, or to its end.
    fn give_turn(&self, mut connection: Driven, token: Token) {
        let held = connection.kept_waker().and_then(Option::take);
        let session_waker = held.unwrap_or_else(|| self.scheduler.session_waker());
        session_waker.hold(token);
        let mut cx = Context::from_waker(session_waker.waker());
        let turn = || connection.go_on(&mut cx).is_ready();
        panic_report::note_turn(true);
        // A panic ends this connection, and no other.
        let is_over = std::panic::catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|_| {
            connection.give_up_after_panic();
            true
        });
        panic_report::note_turn(false);
        match connection.kept_waker() {
            Some(place) if !is_over => *place = Some(session_waker),
            _ => *self.scheduler.spare.borrow_mut() = Some(session_waker),
        }
        if !is_over {
            self.scheduler.put(token.key(), connection);
        }
    }
}
