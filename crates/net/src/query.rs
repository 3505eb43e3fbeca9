//! Queries to a worker from outside: its sessions (L34), and a command for one of them (E9). A worker shares
//! nothing, so a query comes through its order channel and is answered through a channel of the caller.
//!
//! What a session is doing is known to its connection alone. It is not written down for every request: a
//! session that is asked about is woken, and writes it into its slot.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sekisho_handler::{SubrequestView, UpstreamView};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment, Session};
use sekisho_route::RequestIdSeed;
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::memory_usage::MemoryUsage;
use crate::native::NativeQuery;
use crate::protocol::{Protocol, ProtocolKind};
use crate::request_stats::RequestStats;
use crate::session::{SessionSlot, ShutdownRequest};
use crate::transport::ClientTransport;
use crate::worker::Worker;

/// The longest target that is shown.
const TARGET_BYTES_MAX: usize = 1024;
/// How many turns of the worker a session that was asked may take to answer.
const TURNS: u32 = 3;

/// What is asked.
#[derive(Debug)]
pub enum WorkerQuery {
    /// Lists the sessions.
    Sessions(SessionFilter, oneshot::Sender<Vec<SessionView>>),
    /// The running request of this session, if it is that one, shall be cancelled (L31). The answer is
    /// whether it is here and runs; `None` where the session is not here.
    Cancel(u64, Option<u64>, oneshot::Sender<Option<bool>>),
    /// This session shall end. The answer is whether it is here.
    ShutDown(u64, ShutdownRequest, oneshot::Sender<bool>),
    /// About native sessions.
    Native(NativeQuery),
    /// What happened so far?
    Measure(oneshot::Sender<WorkerMetrics>),
    /// What is held in memory?
    MeasureMemory(oneshot::Sender<Vec<MemoryUsage>>),
}

/// Which sessions are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter {
    /// All of them.
    All,
    /// The one with this number.
    One(u64),
}

/// The peer of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A client with an address.
    Address(SocketAddr),
    /// A client at a Unix socket.
    Unix,
    /// The service `http`, on behalf of the native session with this number.
    Within(u64),
}

/// A session as it can be seen from outside (L34).
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its number.
    pub id: u64,
    /// What it speaks, once that is known.
    pub protocol: Option<ProtocolKind>,
    /// The peer.
    pub peer: Peer,
    /// How long it has been here.
    pub age: Duration,
    /// Where it stands.
    pub state: Session,
    /// The shutdown that was requested of it.
    pub shutdown: ShutdownRequest,
    /// Its next deadline, and how long until then.
    pub deadline: Option<(Deadline, Duration)>,
    /// Bytes that came from it and that it took, up to its last turn.
    pub moved: (u64, u64),
    /// How many requests it has made.
    pub requests: u64,
    /// Those that run.
    pub running: Vec<Running>,
}

/// A running request as it can be seen from outside (L34).
#[derive(Clone, Debug)]
pub struct Running {
    /// Its number in the session.
    pub number: u64,
    /// Its id in the logs.
    pub request_id: u128,
    /// Its method.
    pub method: String,
    /// What it asks for.
    pub target: String,
    /// The handler that works on it.
    pub handler: &'static str,
    /// How long ago its first byte came.
    pub age: Duration,
    /// The status of its answer, once that has begun.
    pub status: Option<u16>,
    /// Whether an operator wants it cancelled.
    pub is_cancelled: bool,
    /// The server that it was passed to, and how long until that one's deadline.
    pub upstream: Option<(UpstreamView, Duration)>,
    /// The requests within it that run, outer ones before those within them.
    pub subrequests: Vec<SubrequestView>,
}

/// What a worker has counted.
#[derive(Clone, Debug, Default)]
pub struct WorkerMetrics {
    /// Of all requests so far.
    pub stats: RequestStats,
    /// Sessions of each protocol that are idle, that work, and that end.
    pub sessions: [[u64; 3]; ProtocolKind::ALL.len()],
    /// Bytes received from and sent to the sessions that are open.
    pub moved: (u64, u64),
    /// Programs that go on without their client.
    pub programs_alone: usize,
    /// What native sessions counted.
    pub native: sekisho_endpoint::Counters,
    /// Native sessions that are idle, that work, and that end.
    pub native_sessions: [u64; 3],
}

impl Worker {
    /// Answers what is asked.
    pub(crate) fn attend(self: &Rc<Self>, query: WorkerQuery) {
        // A caller that no longer waits has dropped its end; the failed send does not matter.
        match query {
            WorkerQuery::Sessions(filter, answer) => {
                let worker = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    let _ = answer.send(worker.look(filter).await);
                });
            }
            WorkerQuery::Cancel(id, request, answer) => {
                // The session answers in its turn.
                self.sessions.borrow_mut().cancel(id, request, answer);
            }
            WorkerQuery::ShutDown(id, shutdown, answer) => {
                let mut sessions = self.sessions.borrow_mut();
                let is_here = sessions.iter().any(|slot| slot.id == id);
                sessions.request_shutdown_where(shutdown, |slot| slot.id == id);
                let _ = answer.send(is_here);
            }
            WorkerQuery::Native(query) => self.attend_native(query),
            WorkerQuery::Measure(answer) => {
                let _ = answer.send(self.measure());
            }
            WorkerQuery::MeasureMemory(answer) => {
                let _ = answer.send(self.memory_usage());
            }
        }
    }

    async fn look(&self, filter: SessionFilter) -> Vec<SessionView> {
        let is_meant = |slot: &SessionSlot| match filter {
            SessionFilter::All => true,
            SessionFilter::One(id) => slot.id == id,
        };
        self.sessions.borrow_mut().ask_where(|slot| is_meant(slot) && is_running(slot));
        for _ in 0..TURNS {
            // The sessions that were woken are polled before this task runs again.
            tokio::task::yield_now().await;
            if !self.sessions.borrow().iter().any(SessionSlot::is_asked) {
                break;
            }
        }
        let now = self.clock.now();
        let mut sessions = self.sessions.borrow_mut();
        let mut views: Vec<_> =
            sessions.iter_mut().filter(|slot| is_meant(slot)).map(|slot| view(slot, now)).collect();
        drop(sessions);
        self.copies.each_view(|id, peer, copy| add_copy(&mut views, filter, (id, peer), copy), now);
        views
    }

    fn measure(&self) -> WorkerMetrics {
        let mut measured = WorkerMetrics {
            stats: self.stats.borrow().clone(),
            programs_alone: self.runs.alone(),
            native: self.native.counters(),
            ..WorkerMetrics::default()
        };
        let place = |session| match session {
            Session::Vacant | Session::Idle => 0,
            Session::Processing(_) => 1,
            Session::Closing(..) | Session::Shutdown => 2,
        };
        for info in self.native.list() {
            measured.native_sessions[place(info.state)] += 1;
        }
        for slot in self.sessions.borrow().iter() {
            // HTTP/1 until the client says otherwise.
            let protocol = slot.protocol.unwrap_or(ProtocolKind::Http1);
            measured.sessions[protocol as usize][place(slot.session())] += 1;
            measured.moved.0 += slot.moved.0;
            measured.moved.1 += slot.moved.1;
        }
        measured
    }
}

impl<T: ClientTransport> Connection<T> {
    /// Does what was asked of it alone.
    pub(crate) fn run_command(&mut self, now: Moment) {
        let command = self.link.worker.sessions.borrow_mut().take_command(self.link.key);
        for (number, answer) in command.cancels {
            let _ = answer.send(Some(self.cancel(number, now)));
        }
        if command.is_asked {
            let protocol = &self.link.protocol;
            let shown = |exchange: &Exchange| exchange.running(protocol, now);
            let running = self.exchanges.iter().filter_map(shown);
            let running = running.collect();
            self.link.worker.sessions.borrow_mut().answer_command(self.link.key, running);
        }
    }

    /// An operator wants running requests to end. A task gives its one answer (L31); an answer that is on its way
    /// already is broken off. Whether there was any.
    fn cancel(&mut self, number: Option<u64>, now: Moment) -> bool {
        let mut is_any = false;
        for at in self.exchanges.places().rev() {
            let Self { link, exchanges, .. } = self;
            let Some(exchange) = exchanges.get_mut(at) else { continue };
            if number.is_some_and(|number| number != link.protocol.number(exchange.id)) {
                continue;
            }
            is_any = true;
            if !std::mem::replace(&mut exchange.is_cancelled, true) {
                link.worker.shared.counters.cancelled.fetch_add(1, Ordering::Relaxed);
                if !exchange.cancel_task(Cause::Operator, now) {
                    exchange.break_off(link, now);
                }
            }
            self.settle(at);
        }
        is_any
    }

    /// It was made for the service `http`.
    pub(crate) fn came_from_within(&self, on_behalf_of: u64) {
        let mut sessions = self.link.worker.sessions.borrow_mut();
        sessions.slot_mut(self.link.key).within = NonZeroU64::new(on_behalf_of);
    }

    /// Notes in its slot what can be seen of it without a query.
    pub(crate) fn note_moved(&self, slot: &mut SessionSlot) {
        slot.moved = (self.received, self.sent_bytes());
        slot.requests = self.link.protocol.requests();
        slot.protocol = Some(self.link.protocol.kind());
    }
}

impl Exchange {
    fn running(&self, protocol: &Protocol, now: Moment) -> Option<Running> {
        let accepted = self.accepted.as_ref()?;
        let shown = |bytes: &[u8]| {
            let end = bytes.len().min(TARGET_BYTES_MAX);
            bytes[..end].escape_ascii().to_string()
        };
        let RequestIdSeed(request_id) = accepted.request_id;
        let mut subrequests = Vec::new();
        if let Some(task) = &self.task {
            task.describe_subrequests(&mut subrequests, now);
        }
        Some(Running {
            subrequests,
            number: protocol.number(self.id),
            request_id,
            method: shown(self.head.method_name()),
            target: shown(self.head.target()),
            handler: self.handler(),
            age: now.since(self.arrival.since),
            status: (self.head_bytes > 0).then(|| self.status.code()),
            is_cancelled: self.is_cancelled,
            upstream: self.task.as_ref().and_then(|task| task.upstream_view(now)).map(|view| {
                let left = view.deadline.map_or(Duration::ZERO, |deadline| deadline.at.since(now));
                (view, left)
            }),
        })
    }
}

/// Adds a copy of a request (`mirror`) to the session that made it, or to what is left of that.
fn add_copy(
    views: &mut Vec<SessionView>,
    filter: SessionFilter,
    (id, peer): (u64, Peer),
    copy: Running,
) {
    if let Some(session) = views.iter_mut().find(|session| session.id == id) {
        return session.running.push(copy);
    }
    if filter == SessionFilter::All || filter == SessionFilter::One(id) {
        views.push(SessionView {
            id,
            protocol: None,
            peer,
            age: copy.age,
            state: Session::Shutdown,
            shutdown: ShutdownRequest::default(),
            deadline: None,
            moved: (0, 0),
            requests: 0,
            running: vec![copy],
        });
    }
}

fn is_running(slot: &SessionSlot) -> bool {
    slot.session().running() > 0
}

fn view(slot: &mut SessionSlot, now: Moment) -> SessionView {
    SessionView {
        id: slot.id,
        protocol: slot.protocol,
        peer: match (slot.within, slot.remote()) {
            (Some(session), _) => Peer::Within(session.get()),
            (None, Some(address)) => Peer::Address(address),
            (None, None) => Peer::Unix,
        },
        age: now.since(slot.since),
        state: slot.session(),
        shutdown: slot.shutdown(),
        deadline: slot.deadline().map(|deadline| (deadline, deadline.at.since(now))),
        moved: slot.moved,
        requests: slot.requests,
        running: slot.take_running(),
    }
}
