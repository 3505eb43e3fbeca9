//! A worker without sockets, runtime and clock of its own, for `sekisho-simulation`: the same connections, sessions,
//! turns and deadlines, over a transport that the simulation makes, at times that it sets, with handlers that it
//! decides on. The server never comes here.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use sekisho_config::ListenAddress;
use sekisho_handler::memory::HeapWatch;
use sekisho_handler::{FileCache, OpenFile, Reply, Task, View};
use sekisho_http::Fields;
use sekisho_lifecycle::{Deadline, Moment, RequestId, Session};
use sekisho_route::{Files, Look};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::connection::Connection;
pub use crate::observe::{Asked, EngineView, Fact};
use crate::session::{SessionSlot, ShutdownRequest, Token};
use crate::site::Site;
use crate::transport::{ClientTransport, Ready, Stream, Transport};
use crate::worker::{BoundSite, ListenerContext, Shared, Worker};

/// What a simulation decides, and what is reported to it.
pub trait Script: std::fmt::Debug {
    /// Makes the answer to what the router has decided on. Fields of a reply go to `fields`.
    fn start(&self, session: u64, asked: Asked, target: &[u8], fields: &mut Fields) -> Start;

    /// Something has happened in a session.
    fn tell(&self, session: u64, id: RequestId, fact: Fact<'_>, engine: EngineView, now: Moment);
}

/// What a simulated handler makes.
#[derive(Debug)]
pub enum Start {
    /// The answer is there.
    Reply(Reply),
    /// It takes time.
    Task(Box<dyn Task>),
}

/// Where the simulation is joined to the driver.
#[derive(Debug)]
pub(crate) struct Seam {
    pub(crate) script: Rc<dyn Script>,
    /// How many buffers are lent to connections.
    pub(crate) buffers_lent: Cell<usize>,
}

/// What can be seen of a session between its turns.
#[derive(Clone, Copy, Debug)]
pub struct SessionView {
    /// The deadline that it has armed.
    pub deadline: Option<Deadline>,
    /// Its state in the session table.
    pub session: Session,
    /// Where its protocol stands.
    pub engine: EngineView,
    /// Whether it is between requests, with everything sent.
    pub is_idle: bool,
    /// Whether it holds buffers.
    pub has_buffers: bool,
    /// What was read and the engine has not taken.
    pub unread_bytes: usize,
    /// What was framed and has not left, though the transport has not said that it is full.
    pub forgotten_bytes: usize,
    /// How many requests are in work.
    pub requests: usize,
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A worker whose events and clock are set by the caller.
#[derive(Debug)]
pub struct SimulatedWorker {
    worker: Rc<Worker>,
    listener: Rc<ListenerContext>,
    /// The event loop, and the timer, have something to do.
    loop_flag: (Arc<Flag>, Waker),
    timer_flag: (Arc<Flag>, Waker),
    /// For when the timer is set.
    timer: Cell<Option<Moment>>,
    due: RefCell<Vec<Token>>,
    /// Never run: the scheduler's epoll wants one.
    _runtime: Runtime,
}

impl SimulatedWorker {
    /// A worker that serves the first address of a site.
    pub fn new(site: &Arc<Site>, script: Rc<dyn Script>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let within = runtime.enter();
        let clock = Clock::new(Clock::machine_now());
        clock.set(Moment::ZERO);
        let mut worker = Worker::new(clock, Arc::new(Shared::default()), Arc::default())?;
        worker.heap = HeapWatch::never();
        let worker = Rc::new(worker);
        drop(within);
        let seam = Seam { script, buffers_lent: Cell::new(0) };
        // It is the first one.
        let _ = worker.simulation.set(seam);
        let address = first_address(site)?;
        let bound = bound_site(site, &address)?;
        let listener = Rc::new(ListenerContext {
            id: 1,
            address,
            shutdown: Cell::new(ShutdownRequest::Continue),
            bound_site: RefCell::new(bound),
            datagram_sessions: RefCell::default(),
        });
        let flag = || {
            let flag = Arc::new(Flag::default());
            (Arc::clone(&flag), Waker::from(flag))
        };
        let (loop_flag, timer_flag) = (flag(), flag());
        worker.timer.replace(Some(timer_flag.1.clone()));
        let it = Self {
            worker,
            listener,
            loop_flag,
            timer_flag,
            timer: Cell::new(None),
            due: RefCell::default(),
            _runtime: runtime,
        };
        // So that the queues have the wakers to call.
        it.collect();
        Ok(it)
    }

    /// Sets the time.
    pub fn set_now(&self, now: Moment) {
        self.worker.clock.set(now);
    }

    /// Another configuration comes into effect.
    pub fn serve(&self, site: &Arc<Site>) -> io::Result<()> {
        *self.listener.bound_site.borrow_mut() = bound_site(site, &self.listener.address)?;
        Ok(())
    }

    /// A client connects, and its session has a first turn. Returns the session's number and token.
    pub fn connect(
        &self,
        transport: Box<dyn ClientTransport>,
        remote: SocketAddr,
        note: impl FnOnce(u64, Token),
    ) {
        let local = match &self.listener.address {
            ListenAddress::Tcp(address) | ListenAddress::Udp(address) => Some(address.ip()),
            ListenAddress::Unix(_) => None,
        };
        let connection = Connection::new(
            Rc::clone(&self.worker),
            Rc::clone(&self.listener),
            Stream::Simulated(Box::new(transport)),
            Some(remote),
            local,
        );
        let (id, key) = (connection.link.id, connection.link.key);
        note(id, Token::new(key, id));
        self.worker.begin(connection);
    }

    /// The transport of a session has become ready.
    pub fn note_ready(&self, token: Token, ready: Ready) {
        self.worker.sessions.borrow_mut().note_ready(token, ready);
        // As the kernel does.
        self.loop_flag.0.0.store(true, Ordering::Relaxed);
    }

    /// Gives a session a turn, though nothing has happened to it.
    pub fn call(&self, token: Token) {
        self.worker.sessions.borrow_mut().call(token);
        self.loop_flag.0.0.store(true, Ordering::Relaxed);
    }

    /// Whether the event loop has something to do.
    pub fn is_woken(&self) -> bool {
        self.loop_flag.0.0.load(Ordering::Relaxed)
    }

    /// Lets the timer see what is due, if it was woken or its time has come; when that will be next.
    pub fn keep_time(&self, now: Moment) -> Option<Moment> {
        let is_due = self.timer.get().is_some_and(|at| at.is_due(now));
        if self.timer_flag.0.0.swap(false, Ordering::Relaxed) || is_due {
            let next = self.worker.sessions.borrow_mut().wake_due(now);
            self.timer.set(next);
            self.worker.timer.replace(Some(self.timer_flag.1.clone()));
        }
        self.timer.get()
    }

    /// Starts a round of the event loop: returns the sessions that are due, in their order.
    pub fn begin_round(&self) -> Vec<Token> {
        self.loop_flag.0.0.store(false, Ordering::Relaxed);
        self.collect();
        std::mem::take(&mut *self.due.borrow_mut())
    }

    fn collect(&self) {
        self.worker.collect_due(&self.loop_flag.1, &[], &mut self.due.borrow_mut());
    }

    /// Gives a session its turn.
    pub fn give_turn(&self, token: Token) {
        self.worker.give_due_turn(token);
        self.worker.access_log.hand_over();
    }

    /// Asks sessions to end; if all are asked, later sessions are asked as well.
    pub fn request_shutdown(&self, shutdown: ShutdownRequest) {
        self.worker.request_shutdown_of_all(shutdown);
    }

    /// Asks some sessions to end.
    pub fn request_shutdown_where(
        &self,
        shutdown: ShutdownRequest,
        is_meant: impl Fn(&SessionSlot) -> bool,
    ) {
        self.worker.sessions.borrow_mut().request_shutdown_where(shutdown, is_meant);
    }

    /// An operator cancels what a session runs.
    pub fn cancel(&self, session: u64) {
        let (answer, _) = oneshot::channel();
        self.worker.sessions.borrow_mut().cancel(session, None, answer);
    }

    /// What can be seen of a session; `None` if it has ended.
    pub fn session(&self, token: Token) -> Option<SessionView> {
        let connections = self.worker.scheduler.connections.borrow();
        let connection = connections.get(token.key().index())?.as_ref()?;
        let connection = connection.http()?;
        let link = &connection.link;
        if Token::new(link.key, link.id) != token {
            return None;
        }
        let sessions = self.worker.sessions.borrow();
        let slot = sessions.slot(link.key);
        Some(SessionView {
            deadline: slot.deadline(),
            session: slot.session(),
            engine: link.engine_view(),
            is_idle: link.protocol.is_idle(),
            has_buffers: link.buffers.is_some(),
            unread_bytes: link.buffers.as_ref().map_or(0, |buffers| buffers.unread().len()),
            forgotten_bytes: link
                .buffers
                .as_ref()
                .filter(|_| !connection.transport.is_full())
                .map_or(0, |buffers| buffers.unsent().len()),
            requests: connection.exchanges.iter().count(),
        })
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.worker.sessions.borrow().len()
    }

    /// How many buffers are lent to connections.
    pub fn buffers_lent(&self) -> usize {
        self.worker.simulation.get().map_or(0, |seam| seam.buffers_lent.get())
    }

    /// Borrows buffers and drops them, as a leak would.
    pub fn lose_buffers(&self) {
        drop(self.worker.borrow_buffers());
    }

    /// How many connections a panic has ended.
    pub fn panics(&self) -> u64 {
        self.worker.shared.counters.panics.load(Ordering::Relaxed)
    }

    /// How many sessions were cut short by force.
    pub fn cut_short(&self) -> u64 {
        self.worker.shared.counters.forced.load(Ordering::Relaxed)
    }

    /// The process ends: what is left of its connections goes.
    pub fn drop_all(&self) {
        self.worker.scheduler.drop_all();
    }
}

impl Drop for SimulatedWorker {
    fn drop(&mut self) {
        // Each of them holds the worker.
        self.worker.scheduler.drop_all();
    }
}

fn first_address(site: &Site) -> io::Result<ListenAddress> {
    let first = site.config().http.listens.first();
    first.map(|listen| listen.address.clone()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn bound_site(site: &Arc<Site>, address: &ListenAddress) -> io::Result<Rc<BoundSite>> {
    let bound = BoundSite::new(site, address).map(Rc::new);
    bound.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Reads from a file, as the kernel does when it sends one.
pub fn read_at(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, into, offset)?)
}

/// A file with this content that has no name, opened as the server opens files.
pub fn memory_file(site: &Site, content: &[u8]) -> io::Result<Rc<OpenFile>> {
    let file = rustix::fs::memfd_create("sekisho-simulation", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, content)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let settings = &site.config().http.locations[0].settings;
    let mut cache = FileCache::default();
    let mut view = View { cache: &mut cache, now: Moment::ZERO, wall_secs: 0 };
    match view.look(path.as_bytes(), 0, settings) {
        Look::File(file) => Ok(file),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
