//! The endpoint of one thread: its services, its sessions, and the means to see and control them. Other
//! endpoints share with it at the most the [`SessionSlots`] that are counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use sekisho_lifecycle::stay::Bug;
use sekisho_lifecycle::{Budget, Cause, CloseReason, Manner, RequestId, Share};
use sekisho_native::{Code, Greeting, Policy, Server};
use sekisho_service::{AddressKey, Caller, DuplicateService, ServiceAccess, Services};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Notify;

use crate::admission::{
    Admission, Applicant, Authenticator, Decision, Evidence, OwnUser, Rank, SessionSlots,
};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::control;
use crate::control::service::EndpointControl;
use crate::greetings::{GreetingPlace, Greetings};
use crate::ipc;
use crate::observer::{Observer, Silent};
use crate::session::{Session, SessionInfo};
use crate::stream::Stream;
use crate::watchdog::Heartbeat;

/// Without descriptors, accepting pauses this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A TCP peer that has been silent for so long is asked by the kernel whether it is there, and asked again in this
/// interval; when it has not answered so often, it is lost.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 3;

/// What one read takes at the most.
const INPUT_BYTES: usize = 64 * 1024;
/// The same for a peer that is not admitted yet, and where the budget has no more: a control message fits.
const SMALL_INPUT_BYTES: usize = 8 * 1024;
/// So many idle buffers are kept.
const BUFFERS_MAX: usize = 16;
/// What all sessions may hold by default, and what one may.
const BUDGET_BYTES: usize = 256 << 20;
const SESSION_BYTES_MAX: usize = 8 << 20;

/// The settings of an endpoint.
#[derive(Clone)]
pub struct Config {
    /// Limits and deadlines of each session.
    pub policy: Arc<Policy>,
    /// How many sessions there may be; shared where several endpoints are one to the world.
    pub slots: Arc<SessionSlots>,
    /// What all sessions may hold in memory: bodies of requests, what services keep, what waits to leave. Shared
    /// where several endpoints are one to the world.
    pub budget: Arc<Budget>,
    /// What one of them may hold of it.
    pub session_bytes_max: usize,
    /// Finds out who a peer is, and whether it is admitted.
    pub authenticator: Rc<dyn Authenticator>,
    /// What callers may do, and how much of it at once.
    pub access: ServiceAccess,
    /// Gets reports of what happens.
    pub observer: Rc<dyn Observer>,
    /// The number of the last session; each one gets the next. Shared where several endpoints are one to
    /// the world.
    pub ids: Arc<AtomicU64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Arc::new(Policy::default()),
            slots: SessionSlots::new(1024, 1, 256),
            budget: Budget::new(BUDGET_BYTES),
            session_bytes_max: SESSION_BYTES_MAX,
            authenticator: Rc::new(OwnUser),
            access: ServiceAccess::default(),
            observer: Rc::new(Silent),
            ids: Arc::default(),
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Peers that connected.
    pub connected: u64,
    /// Sessions that were admitted.
    pub admitted: u64,
    /// Peers and requests that were refused.
    pub refused: u64,
    /// Requests that their callers might not make, or not then: permissions and limits of identities.
    pub denied: u64,
    /// Sessions that ended because what they were admitted for was withdrawn.
    pub withdrawn: u64,
    /// Requests that were admitted.
    pub requests: u64,
    /// Handlers that answered while their channel was open.
    pub answered_with_open_channel: u64,
    /// Handlers that went without an answer.
    pub dropped_unanswered: u64,
    /// Services that panicked; each of these is counted above as well, unless it had answered.
    pub panicked: u64,
    /// Deadlines that fell.
    pub expired: u64,
}

impl Counters {
    /// What happened here and there.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            connected: self.connected + other.connected,
            admitted: self.admitted + other.admitted,
            refused: self.refused + other.refused,
            denied: self.denied + other.denied,
            withdrawn: self.withdrawn + other.withdrawn,
            requests: self.requests + other.requests,
            answered_with_open_channel: self.answered_with_open_channel
                + other.answered_with_open_channel,
            dropped_unanswered: self.dropped_unanswered + other.dropped_unanswered,
            panicked: self.panicked + other.panicked,
            expired: self.expired + other.expired,
        }
    }
}

/// Services and sessions of one thread.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) services: Services,
    pub(crate) clock: Clock,
    /// Whether its turns come to an end, as a watchdog sees it.
    pub(crate) heartbeat: Arc<Heartbeat>,
    sessions: RefCell<BTreeMap<u64, Rc<Session>>>,
    /// The places of peers that came through no listener of ours.
    greetings: Rc<Greetings>,
    /// Sessions whose connection is gone.
    over: RefCell<Vec<u64>>,
    /// Input buffers that are not in use: an idle session has none.
    buffers: RefCell<Vec<Vec<u8>>>,
    counters: Cell<Counters>,
    closing: Cell<Option<Manner>>,
    /// Connections that are at work, admitted or not.
    pub(crate) connections: Cell<usize>,
    pub(crate) changed: Notify,
}

/// Why no session was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FindError {
    /// There is none.
    None,
    /// Several sessions have this label.
    Ambiguous(Vec<u64>),
}

impl Endpoint {
    /// An endpoint without sessions.
    pub fn new(config: Config, services: Services) -> Rc<Self> {
        Rc::new(Self::made(config, services))
    }

    /// The same with the service [`control`](crate::control), for sessions with an admin slot.
    pub fn with_control(
        config: Config,
        mut services: Services,
    ) -> Result<Rc<Self>, DuplicateService> {
        let mut added = Ok(());
        let endpoint = Rc::new_cyclic(|endpoint| {
            let service = Rc::new(EndpointControl(Weak::clone(endpoint)));
            added = services.add(control::NUMBER, "control", service);
            Self::made(config, services)
        });
        added.map(|()| endpoint)
    }

    fn made(config: Config, services: Services) -> Self {
        Self {
            greetings: Greetings::new(config.slots.greetings()),
            config,
            services,
            clock: Clock::new(),
            heartbeat: Arc::default(),
            sessions: RefCell::default(),
            over: RefCell::default(),
            buffers: RefCell::default(),
            counters: Cell::default(),
            closing: Cell::new(None),
            connections: Cell::new(0),
            changed: Notify::new(),
        }
    }

    /// Serves one connected transport. The future is the whole session; dropping it ends the session.
    pub fn serve<S: Stream>(self: &Rc<Self>, stream: S) -> Connection<S> {
        self.serve_from(stream, Rc::clone(&self.greetings))
    }

    /// The same for a transport that came through a listener, which has these places.
    fn serve_from<S: Stream>(
        self: &Rc<Self>,
        stream: S,
        greetings: Rc<Greetings>,
    ) -> Connection<S> {
        let engine = Server::new(Arc::clone(&self.config.policy), self.clock.now());
        self.count(|counters| counters.connected += 1);
        let id = self.config.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session::new(self, id, engine, stream.peer());
        self.sessions.borrow_mut().insert(id, Rc::clone(&session));
        Connection::new(Rc::clone(self), session, stream, greetings, self.closing.get())
    }

    /// A peer was read from and has not sent its greeting: it takes a place, for which another may have to
    /// go.
    pub(crate) fn wait_for_greeting(
        &self,
        session: &Session,
        greetings: &Rc<Greetings>,
    ) -> GreetingPlace {
        let (place, leaves) = greetings.take(session.id, AddressKey::of(&session.peer));
        if let Some(leaves) = leaves.and_then(|id| self.session(id)) {
            let text = "too many connections are in their handshake";
            self.refuse(&leaves, Code::ResourceLimitReached, text);
            let at_once = greetings.leave(leaves.id).and_then(|id| self.session(id));
            if let Some(at_once) = at_once {
                at_once.command(|engine, _, now| {
                    engine.transport_lost(CloseReason::TooMany, now);
                });
            }
        }
        place
    }

    fn refuse(&self, session: &Session, code: Code, text: &str) {
        self.note_refusal(session, code, text);
        session.command(|engine, _, _| engine.refuse(code, text));
    }

    /// A peer is not admitted.
    pub(crate) fn note_refusal(&self, session: &Session, code: Code, text: &str) {
        self.count(|counters| counters.refused += 1);
        self.config.observer.refused(session.id, &session.peer, code, text);
    }

    /// Accepts and serves TCP connections, each as a local task, until the endpoint is shut down.
    pub async fn listen_tcp(self: Rc<Self>, listener: TcpListener) {
        self.listen_tcp_through(listener, |stream| stream).await;
    }

    /// The same for connections that something goes around, such as TLS.
    pub async fn listen_tcp_through<S: Stream + 'static>(
        self: Rc<Self>,
        listener: TcpListener,
        wrap: impl Fn(TcpStream) -> S,
    ) {
        let greetings = Greetings::new(self.config.slots.greetings());
        while let Some(accepted) = self.accept(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    // Answers are sent at once, and a peer that vanishes without closing is noticed; if that
                    // fails the connection is about to fail as well.
                    let _ = stream.set_nodelay(true);
                    let _ = keep_alive(&stream);
                    let stream = wrap(stream);
                    tokio::task::spawn_local(self.serve_from(stream, Rc::clone(&greetings)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// The same for a Unix stream socket.
    pub async fn listen_unix(self: Rc<Self>, listener: UnixListener) {
        let greetings = Greetings::new(self.config.slots.greetings());
        while let Some(accepted) = self.accept(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    tokio::task::spawn_local(self.serve_from(stream, Rc::clone(&greetings)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Accepts connections on a Unix socket and serves them through shared memory.
    pub async fn listen_ipc(self: Rc<Self>, listener: UnixListener, config: ipc::Config) {
        let greetings = Greetings::new(self.config.slots.greetings());
        while let Some(accepted) = self.accept(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    let stream = ipc::Stream::accept(stream, &config);
                    tokio::task::spawn_local(self.serve_from(stream, Rc::clone(&greetings)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Its settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What a [`crate::Watchdog`] looks at.
    pub fn heartbeat(&self) -> Arc<Heartbeat> {
        Arc::clone(&self.heartbeat)
    }

    /// The services.
    pub const fn services(&self) -> &Services {
        &self.services
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// How many connections are at work: sessions whose task and transport are there, and peers
    /// that are not admitted yet. A session that is over may be listed longer than that.
    pub const fn connections(&self) -> usize {
        self.connections.get()
    }

    /// How many sessions there are, and what they hold in memory.
    pub fn memory_usage(&self) -> (usize, usize) {
        let sessions = self.sessions.borrow();
        let bytes = sessions.values().map(|session| session.memory_bytes());
        (sessions.len(), bytes.sum())
    }

    /// How many input buffers are kept for later, and how many bytes they have.
    pub fn buffer_memory_usage(&self) -> (usize, usize) {
        let buffers = self.buffers.borrow();
        (buffers.len(), buffers.iter().map(Vec::capacity).sum())
    }

    /// All sessions, in the order of their numbers.
    pub fn list(&self) -> Vec<SessionInfo> {
        self.reclaim();
        self.sessions.borrow().values().filter_map(|session| session.info(self)).collect()
    }

    /// Gives back the memory that idle sessions keep for their next request: to be called now and then by a program that
    /// has many sessions.
    pub fn trim(&self) {
        for session in self.sessions.borrow().values() {
            session.trim();
        }
    }

    /// One session.
    pub fn show(&self, id: u64) -> Option<SessionInfo> {
        let session = self.session(id)?;
        session.info(self)
    }

    /// The session that is meant by `:id` or by a label; a label that several have means none of them.
    pub fn find(&self, reference: &str) -> Result<u64, FindError> {
        self.reclaim();
        if let Some(number) = reference.strip_prefix(':') {
            let id = number.parse().map_err(|_| FindError::None)?;
            return self.show(id).map(|_| id).ok_or(FindError::None);
        }
        let sessions = self.sessions.borrow();
        let has_label = |session: &Session| {
            session.state.borrow().member.as_ref().is_some_and(|member| member.label == reference)
        };
        let found = sessions.iter().filter(|(_, session)| has_label(session)).map(|(id, _)| *id);
        let found: Vec<u64> = found.collect();
        match found[..] {
            [] => Err(FindError::None),
            [id] => Ok(id),
            _ => Err(FindError::Ambiguous(found)),
        }
    }

    /// Cancels a request; returns whether there is one that was not cancelled before.
    pub fn cancel(&self, session: u64, request: RequestId) -> bool {
        self.session(session).is_some_and(|session| {
            session.command(|engine, _, now| engine.cancel(request, Cause::Operator, now))
        })
    }

    /// Shuts a session down; returns whether there is one.
    pub fn shut_down(&self, session: u64, manner: Manner) -> bool {
        let Some(session) = self.session(session) else { return false };
        session.command(|engine, _, now| engine.shut_down(manner, now));
        true
    }

    /// Shuts those sessions down whose callers are meant.
    pub fn shut_down_those(&self, is_meant: impl Fn(&Caller) -> bool, manner: Manner) {
        let callers: Vec<Rc<Caller>> = {
            let sessions = self.sessions.borrow();
            let caller = |session: &Rc<Session>| session.admitted_caller();
            sessions.values().filter_map(caller).collect()
        };
        for caller in callers.iter().filter(|caller| is_meant(caller)) {
            self.shut_down(caller.session, manner);
        }
    }

    /// What the sessions were admitted for, where it may be withdrawn.
    pub fn evidence(&self) -> Vec<(Rc<Caller>, Evidence)> {
        self.sessions.borrow().values().filter_map(|session| session.evidence()).collect()
    }

    /// What a session was admitted for has been withdrawn: it ends gracefully, its client is told `text`, and the
    /// observer `why`.
    pub fn withdraw(&self, session: u64, text: &'static str, why: &str) {
        let Some(session) = self.session(session) else { return };
        // It may have ended since it was looked at.
        let Some((caller, _)) = session.evidence() else { return };
        self.count(|counters| counters.withdrawn += 1);
        self.config.observer.withdrawn(&caller, why);
        session.command(|engine, _, now| engine.withdraw(text, now));
    }

    /// Shuts every session down, admits no new one, and returns when the last one is gone.
    pub async fn shut_down_all(&self, manner: Manner) {
        self.closing.set(self.closing.get().max(Some(manner)));
        self.changed.notify_waiters();
        let all: Vec<u64> = self.sessions.borrow().keys().copied().collect();
        for id in all {
            self.shut_down(id, manner);
        }
        loop {
            let changed = self.changed.notified();
            if self.connections.get() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Drops sessions that are over and that have no handles left.
    pub fn reclaim(&self) {
        let now = self.clock.now();
        let mut over = std::mem::take(&mut *self.over.borrow_mut());
        over.retain(|id| {
            let Some(session) = self.session(*id) else { return false };
            if !session.state.borrow_mut().engine.reclaim(now) {
                return true;
            }
            self.sessions.borrow_mut().remove(id);
            false
        });
        self.over.borrow_mut().append(&mut over);
    }

    /// A handler did something wrong.
    pub(crate) fn bug(&self, session: u64, request: RequestId, bug: Bug) {
        self.count(|counters| match bug {
            Bug::AnsweredWithOpenChannel => counters.answered_with_open_channel += 1,
            Bug::DroppedUnanswered => counters.dropped_unanswered += 1,
        });
        self.config.observer.bug(session, request, bug);
    }

    /// The connection of a session is gone.
    pub(crate) fn ended(&self, session: &Session, reason: CloseReason) {
        self.config.observer.closed(session.id, &session.peer, reason);
        self.over.borrow_mut().push(session.id);
        self.reclaim();
        self.connections.set(self.connections.get().saturating_sub(1));
        self.changed.notify_waiters();
    }

    /// A buffer to read into: a small one for a peer that is not admitted yet, and where the budget is spent.
    pub(crate) fn borrow_buffer(&self, is_admitted: bool) -> (Vec<u8>, Option<Share>) {
        match self.config.budget.take(INPUT_BYTES).filter(|_| is_admitted) {
            Some(share) => {
                let kept = self.buffers.borrow_mut().pop();
                (kept.unwrap_or_else(|| vec![0; INPUT_BYTES]), Some(share))
            }
            None => (vec![0; SMALL_INPUT_BYTES], None),
        }
    }

    pub(crate) fn give_back_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffer.len() == INPUT_BYTES && buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
    }

    /// Decides on a peer that has sent its greeting.
    pub(crate) fn decide(&self, applicant: &Applicant<'_>) -> Decision {
        if self.closing.get().is_some() {
            let text = "the endpoint is being shut down".to_owned();
            return Decision::Now(Err((Code::SessionClosed, text)));
        }
        self.config.authenticator.decide(applicant)
    }

    /// A peer was decided on: if it is admitted, it takes a slot.
    pub(crate) fn admit(
        &self,
        session: &Rc<Session>,
        greeting: Greeting,
        decision: Admission,
    ) -> Result<(), (Code, String)> {
        let admitted = decision?;
        self.reclaim();
        let rank = if greeting.wants_admin { Rank::Admin } else { Rank::Session };
        let peer = &session.peer;
        let slot = self.config.slots.take(rank, peer, &admitted.identity);
        let slot = slot.map_err(|full| (Code::ResourceLimitReached, full.text().to_owned()))?;
        let counter = self.config.access.limits.counter(peer, &admitted.identity);
        let label = greeting.label.clone();
        session.become_member(greeting, admitted, counter, slot, self.clock.now());
        self.config.observer.opened(&label, &session.caller().0);
        self.count(|counters| counters.admitted += 1);
        Ok(())
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    pub(crate) fn session(&self, id: u64) -> Option<Rc<Session>> {
        self.sessions.borrow().get(&id).cloned()
    }

    /// The next connection, or nothing when the endpoint is being shut down.
    async fn accept<T>(&self, next: impl Future<Output = io::Result<T>>) -> Option<io::Result<T>> {
        let mut next = std::pin::pin!(next);
        loop {
            let changed = self.changed.notified();
            if self.closing.get().is_some() {
                return None;
            }
            tokio::select! {
                accepted = &mut next => return Some(accepted),
                () = changed => {}
            }
        }
    }
}

/// Has the kernel look after a connection on which nothing moves.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Endpoint")
            .field("services", &self.services)
            .field("sessions", &self.sessions.borrow().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Config")
            .field("policy", &self.policy)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for FindError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("there is no such session"),
            Self::Ambiguous(ids) => {
                out.write_str("several sessions have this label:")?;
                ids.iter().try_for_each(|id| write!(out, " :{id}"))
            }
        }
    }
}

impl std::error::Error for FindError {}
