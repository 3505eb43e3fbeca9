//! A session of `stream`: a client's connection, or its datagrams, and the server that they are passed to. Nothing in
//! them is looked at but the first message of a TLS handshake. Like every session it has one place in its worker, one
//! deadline at a time and one ending.
//!
//! ```text
//! ProxyHeader ─► Handshake ─► Preread ─► Connecting ─► Relaying ─► closed
//!                                │                        ▲
//!                                └──► Answering ──────────┴──────► closed
//! ```

mod client;
mod phases;
mod pipe;
mod pump;
mod silence;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::{Level, ListenAddress, StreamSettings};
use sekisho_handler::limits::ConnectionPermit;
use sekisho_handler::upstream::ServerSide;
use sekisho_http::{Fields, Head, Status};
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Manner, Moment};
use sekisho_route::{ConnectionFacts, Request, RequestIdSeed, RouteState, Sent};

use crate::activity::Activity;
use crate::admission::{Admitted, TooMany};
use crate::protocol::ProtocolKind;
use crate::query::Running;
use crate::session::{Key, SessionSlot, ShutdownRequest, Token};
use crate::transport::Stream;
use crate::wake::SessionWaker;
use crate::work::WorkerContext;
use crate::worker::{BoundSite, ListenerContext, Worker};
pub(crate) use client::{Client, DatagramClient, DatagramSessions, Inbox};
pub(crate) use pipe::Pipes;
use pump::Direction;
pub(crate) use silence::SilentServers;
use silence::{Silence, UNANSWERED_TIMEOUT};

/// Where a session stands.
#[derive(Debug)]
enum Stage {
    /// The header of a balancer is to come.
    ProxyHeader,
    /// Keys are being agreed on with the client.
    Handshake,
    /// The first message of a handshake that is passed on is to come.
    Preread,
    /// A value is sent, and nothing else (`return`).
    Answering,
    /// A server is being connected to.
    Connecting,
    /// Bytes or datagrams pass in both directions.
    Relaying,
}

/// How a session ends.
#[derive(Clone, Copy, Debug)]
struct Over {
    /// `$status`
    status: Status,
    reason: CloseReason,
}

impl Over {
    const fn new(status: Status, reason: CloseReason) -> Self {
        Self { status, reason }
    }

    /// As it should.
    const fn well() -> Self {
        Self::new(Status::OK, CloseReason::PeerClosed)
    }
}

/// A session of `stream`.
#[derive(Debug)]
pub(crate) struct StreamSession {
    client: Client,
    worker: Rc<Worker>,
    listener_context: Rc<ListenerContext>,
    /// The configuration that it began with holds to its end.
    bound_site: Rc<BoundSite>,
    listen: usize,
    key: Key,
    facts: ConnectionFacts,
    /// Counts the session out when it is dropped.
    _admitted: Option<Admitted>,
    is_one_too_many: bool,
    activity: Activity,
    request_id: RequestIdSeed,
    route: RouteState,
    /// What the server of the session says.
    settings: Arc<StreamSettings>,
    permits: Vec<ConnectionPermit>,
    stage: Stage,
    /// Until when the stage may last.
    stage_deadline: Option<Deadline>,
    server: Option<Box<ServerSide>>,
    /// From the client to the server.
    up: Direction,
    /// From the server to the client.
    down: Direction,
    /// Datagrams of the client and of the server.
    requests: u64,
    responses: u64,
    /// How long the server of a client that sends datagrams has been silent.
    silence: Option<Silence>,
    /// When anything last passed.
    active: Moment,
    is_cancelled: bool,
    /// Held for as long as the session is there: servers wake it.
    pub(crate) session_waker: Option<SessionWaker>,
}

impl StreamSession {
    /// A connection that has just been accepted.
    pub(crate) fn of_stream(
        worker: Rc<Worker>,
        listener_context: Rc<ListenerContext>,
        transport: Stream,
        remote: Option<SocketAddr>,
        local: Option<IpAddr>,
    ) -> Self {
        Self::new(worker, listener_context, Client::Stream(transport), remote, local)
    }

    /// The first datagram of a client.
    pub(crate) fn of_datagrams(
        worker: Rc<Worker>,
        listener_context: Rc<ListenerContext>,
        client: DatagramClient,
    ) -> Self {
        let (remote, local) = (client.remote, client.local);
        let client = Client::Datagrams(client);
        Self::new(worker, listener_context, client, Some(remote), local)
    }

    fn new(
        worker: Rc<Worker>,
        listener_context: Rc<ListenerContext>,
        client: Client,
        remote: Option<SocketAddr>,
        local: Option<IpAddr>,
    ) -> Self {
        let bound_site = listener_context.bound_site();
        let listen = bound_site.listen(local);
        let main = &bound_site.site.config().main;
        let awaits_header = client.awaits_proxy_header();
        let address = remote.filter(|_| !awaits_header).map(|remote| remote.ip());
        let admitted = worker.shared.admission.admit(main, address);
        let is_one_too_many = matches!(admitted, Err(TooMany));
        let now = worker.clock.now();
        let id = worker.next_connection();
        let shutdown = worker.shutdown.get().max(listener_context.shutdown.get());
        let slot = SessionSlot::new(id, listener_context.id, now, remote, shutdown);
        let key = worker.sessions.borrow_mut().enter(slot);
        let port = match &listener_context.address {
            ListenAddress::Tcp(address) | ListenAddress::Udp(address) => address.port(),
            ListenAddress::Unix(_) => 0,
        };
        let facts = ConnectionFacts {
            id,
            remote,
            local: local.map(|ip| SocketAddr::new(ip, port)),
            requests: 1,
            since: now,
            is_udp: matches!(client, Client::Datagrams(_)),
            ..ConnectionFacts::default()
        };
        let activity = worker.shared.counters.activities.enter();
        let request_id = RequestIdSeed(worker.next_request_id());
        let silence = match &client {
            Client::Datagrams(datagrams) => {
                let token = Token::new(key, id);
                Some(worker.silent_servers.enter(token, &datagrams.inbox, id, now))
            }
            Client::Stream(_) => None,
        };
        Self {
            client,
            worker,
            listener_context,
            bound_site,
            listen,
            key,
            facts,
            _admitted: admitted.ok().flatten(),
            is_one_too_many,
            activity,
            request_id,
            route: RouteState::default(),
            settings: Arc::default(),
            permits: Vec::new(),
            stage: Stage::ProxyHeader,
            stage_deadline: None,
            server: None,
            up: Direction::new(now),
            down: Direction::new(now),
            requests: 0,
            responses: 0,
            silence,
            active: now,
            is_cancelled: false,
            session_waker: None,
        }
    }

    /// Its place among the sessions of the worker.
    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// How the kernel and other threads know it.
    pub(crate) const fn token(&self) -> Token {
        Token::new(self.key, self.facts.id)
    }

    /// What it holds in memory beside its buffers; and its buffers.
    pub(crate) fn memory_bytes(&self) -> (usize, usize) {
        let own = size_of::<Self>() + self.client.memory_bytes();
        (own, self.up.memory_bytes() + self.down.memory_bytes())
    }

    const fn protocol(&self) -> ProtocolKind {
        if self.facts.is_udp { ProtocolKind::Udp } else { ProtocolKind::Tcp }
    }

    /// The first turn: the session is admitted, or is over.
    pub(crate) fn begin(&mut self) {
        self.worker.shared.counters.requests.count(self.protocol());
        let mut sessions = self.worker.sessions.borrow_mut();
        sessions.after(self.key, Fact::RequestReceived);
        let manner = sessions.shutdown(self.key).manner();
        if let Some(manner) = manner {
            sessions.after(self.key, Fact::ShutdownAsked(manner));
        }
    }

    /// A turn: does what there is to do. `Ready` is the end of the session.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.worker.clock.now();
        let orders = self.worker.sessions.borrow_mut().orders(self.key);
        self.client.note(orders.ready);
        if orders.has_command {
            self.run_command(now);
        }
        if self.is_cancelled {
            return self.close(Over::new(Status::OK, CloseReason::BrokenOff), now);
        }
        match orders.shutdown {
            ShutdownRequest::Continue => {}
            // Datagrams have no end: nobody would ever be told that they are the last ones.
            ShutdownRequest::Drain if self.facts.is_udp => {
                return self.close(Over::new(Status::OK, CloseReason::Draining), now);
            }
            ShutdownRequest::Drain => self.note_draining(),
            ShutdownRequest::Force => {
                self.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
                return self.close(Over::new(Status::OK, CloseReason::Forced), now);
            }
        }
        if std::mem::take(&mut self.is_one_too_many) || self.client.is_evicted() {
            let over = Over::new(Status::SERVICE_UNAVAILABLE, CloseReason::TooMany);
            return self.close(over, now);
        }
        if let Poll::Ready(over) = self.turn(cx, now) {
            return self.close(over, now);
        }
        // What came in the same turn has won (T3).
        let deadline = self.next_deadline();
        if let Some(deadline) = deadline.filter(|deadline| deadline.at.is_due(now)) {
            if let Some(over) = self.expire(deadline.kind, now) {
                return self.close(over, now);
            }
            // A pause is over, or a server did not come up in time.
            if let Poll::Ready(over) = self.turn(cx, now) {
                return self.close(over, now);
            }
        }
        self.rest(now)
    }

    fn note_draining(&self) {
        let mut sessions = self.worker.sessions.borrow_mut();
        if sessions.slot(self.key).session().running() > 0 {
            sessions.after(self.key, Fact::ShutdownAsked(Manner::Graceful));
        }
    }

    /// The earliest deadline in effect.
    fn next_deadline(&self) -> Option<Deadline> {
        let server = self.server.as_ref().and_then(|server| server.next_deadline());
        let idle = match self.stage {
            Stage::Relaying | Stage::Answering => self.idle_timeout().map(|timeout| Deadline {
                at: self.active + timeout,
                kind: DeadlineKind::UpstreamRead,
            }),
            _ => self.stage_deadline,
        };
        let pauses = [&self.up, &self.down].into_iter().filter_map(|direction| direction.resumes);
        let pauses = pauses.map(|at| Deadline { at, kind: DeadlineKind::Rate });
        server.into_iter().chain(idle).chain(pauses).min_by_key(|deadline| deadline.at)
    }

    /// `proxy_timeout`; shorter for datagrams that no server has answered.
    fn idle_timeout(&self) -> Option<Duration> {
        let timeout = self.settings.timeout;
        if self.silence.is_none() || self.responses > 0 {
            return timeout;
        }
        Some(timeout.map_or(UNANSWERED_TIMEOUT, |timeout| timeout.min(UNANSWERED_TIMEOUT)))
    }

    /// A deadline has fallen: how the session ends, if it does.
    fn expire(&mut self, kind: DeadlineKind, now: Moment) -> Option<Over> {
        if kind == DeadlineKind::Rate {
            return None;
        }
        if kind == DeadlineKind::UpstreamConnect {
            // The server's side knows what follows.
            return None;
        }
        self.worker.shared.counters.expire(kind);
        let reason = CloseReason::Expired(kind);
        if matches!(self.stage, Stage::Relaying) {
            return Some(self.expire_relaying(reason, now));
        }
        self.report(Level::Info, format_args!("client timed out (110: Connection timed out)"), now);
        Some(Over::new(Status::OK, reason))
    }

    /// The turn is over: what is waited for is noted.
    fn rest(&mut self, now: Moment) -> Poll<()> {
        let token = self.token();
        let worker = Rc::clone(&self.worker);
        if self.client.watch(&worker.scheduler, token).is_err() {
            return self.close(Over::new(Status::OK, CloseReason::TransportLost), now);
        }
        self.give_back_pipes();
        let deadline = self.next_deadline();
        let mut sessions = worker.sessions.borrow_mut();
        let slot = sessions.slot_mut(self.key);
        slot.moved = (self.up.bytes, self.down.bytes);
        slot.requests = 1;
        slot.protocol = Some(self.protocol());
        let is_first = sessions.arm(self.key, deadline, None, self.client.is_full());
        drop(sessions);
        if is_first {
            worker.wake_timer();
        }
        Poll::Pending
    }

    /// The session as variables see it.
    fn with_request<T>(
        &mut self,
        now: Moment,
        work: impl FnOnce(&BoundSite, &Request<'_>, &mut RouteState) -> T,
    ) -> T {
        let head = Head::default();
        let request = Request {
            wall: self.worker.clock.wall(now),
            since: self.facts.since,
            now,
            ..Request::new(
                &head,
                self.listen,
                &self.facts,
                sekisho_route::WallTime::default(),
                self.request_id,
            )
        };
        work(&self.bound_site, &request, &mut self.route)
    }

    /// Writes a line about the session into its error log.
    fn report(&self, level: Level, message: std::fmt::Arguments<'_>, now: Moment) {
        let logger = self.bound_site.site.error_logger(self.route.location);
        if !logger.wants(level) {
            return;
        }
        let client = crate::error_context::Client(self.route.client(&self.facts));
        let kind = if self.facts.is_udp { "udp " } else { "" };
        let server = crate::listen::Shown(&self.listener_context.address);
        let stamp = self.worker.clock.stamp(now);
        let message = format_args!("{message}, {kind}{client}, server: {server}");
        logger.write(level, stamp, Some(self.facts.id), message);
    }

    fn context(&self) -> Rc<WorkerContext> {
        Rc::new(WorkerContext {
            worker: Rc::clone(&self.worker),
            bound_site: Rc::clone(&self.bound_site),
            location: self.route.location,
            connection: self.facts.id,
            remote: self.route.client(&self.facts),
            request_id: self.request_id,
            head: None,
        })
    }

    /// Does what was asked of it alone.
    fn run_command(&mut self, now: Moment) {
        let command = self.worker.sessions.borrow_mut().take_command(self.key);
        for (number, answer) in command.cancels {
            let is_meant = number.is_none_or(|number| number == 1);
            if is_meant && !std::mem::replace(&mut self.is_cancelled, true) {
                self.worker.shared.counters.cancelled.fetch_add(1, Ordering::Relaxed);
            }
            // A caller that does not wait gets no answer.
            let _ = answer.send(Some(is_meant));
        }
        if command.is_asked {
            let running = vec![self.running(now)];
            self.worker.sessions.borrow_mut().answer_command(self.key, running);
        }
    }

    fn running(&self, now: Moment) -> Running {
        let deadline = self.next_deadline();
        let view = self.server.as_ref().and_then(|server| server.view(deadline, now));
        let name = self.route.client_hello.as_ref().map(|hello| &*hello.server_name);
        Running {
            subrequests: Vec::new(),
            number: 1,
            request_id: self.request_id.0,
            method: if self.facts.is_udp { "UDP" } else { "TCP" }.to_owned(),
            target: name.unwrap_or_default().escape_ascii().to_string(),
            handler: "stream",
            age: now.since(self.facts.since),
            status: None,
            is_cancelled: self.is_cancelled,
            upstream: view.map(|view| {
                let left = view.deadline.map_or(Duration::ZERO, |deadline| deadline.at.since(now));
                (view, left)
            }),
        }
    }

    /// Ends the session: it is logged, and its slot is free again.
    fn close(&mut self, over: Over, now: Moment) -> Poll<()> {
        if let Some(server) = &mut self.server {
            server.end(now);
            server.describe(&mut self.route.upstream);
        }
        self.client.end(over.reason);
        self.log(over.status, now);
        let worker = &self.worker;
        let mut sessions = worker.sessions.borrow_mut();
        if sessions.slot(self.key).session().running() > 0 {
            sessions.after(self.key, Fact::ResponseSent);
        }
        let is_lost = over.reason == CloseReason::TransportLost;
        let manner = if is_lost { Manner::Forceful } else { Manner::Graceful };
        sessions.after(self.key, Fact::ShutdownAsked(manner));
        drop(sessions);
        let counters = &worker.shared.counters;
        counters.close(over.reason);
        counters.received_bytes.fetch_add(self.up.bytes, Ordering::Relaxed);
        counters.sent_bytes.fetch_add(self.down.bytes, Ordering::Relaxed);
        self.report(Level::Debug, format_args!("closed: {}", over.reason.tag()), now);
        Poll::Ready(())
    }

    /// Writes its line into the access log.
    fn log(&mut self, status: Status, now: Moment) {
        let (received, sent_bytes) = (self.up.bytes, self.down.bytes);
        let worker = Rc::clone(&self.worker);
        worker.stats.borrow_mut().add(status, now.since(self.facts.since));
        self.with_request(now, |bound_site, request, route| {
            let fields = Fields::default();
            let sent = Sent {
                status: Some(status),
                bytes: sent_bytes,
                body_bytes: sent_bytes,
                fields: &fields,
                trailers: None,
                request_bytes: received,
                plain_bytes: None,
                completed: true,
                framing: None,
            };
            worker.access_log.write(&bound_site.site, request, route, &sent);
        });
    }

    /// Its turn has panicked: it is told and counted.
    pub(crate) fn give_up_after_panic(&mut self) {
        let counters = &self.worker.shared.counters;
        counters.panics.fetch_add(1, Ordering::Relaxed);
        counters.close(CloseReason::Panicked);
        self.client.end(CloseReason::Panicked);
        let said = crate::panic_report::take().unwrap_or_default();
        let now = self.worker.clock.now();
        self.report(Level::Alert, format_args!("panic, the connection ends: {said}"), now);
    }
}

impl Drop for StreamSession {
    fn drop(&mut self) {
        self.give_back_pipes();
        self.client.leave(&self.listener_context, self.token());
        let worker = &self.worker;
        if let Some(silence) = self.silence {
            worker.silent_servers.leave(silence);
        }
        worker.shared.counters.activities.leave(self.activity);
        worker.sessions.borrow_mut().leave(self.key);
        worker.vacated.notify_waiters();
    }
}
