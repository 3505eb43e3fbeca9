//! The task: one request to a group of servers, from the choice of the first to its one ending.

mod as_task;
mod ending;
mod keeping;
mod replay;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{ErrorPage, Family, Level, Pass};
use sekisho_http::upstream::{Event, Failure, HeadFault, Phase, Request, is_hop_by_hop};
use sekisho_http::{Fields, Status, Version};
use sekisho_lifecycle::{DeadlineKind, Moment};
use sekisho_route::body_facts::BodyFacts;
use sekisho_upstream::balance::Change;
use sekisho_upstream::fields::Accel;
use sekisho_upstream::request::{Order, UpstreamRequest};

use super::Key;
use super::answer::{Answer, Changes, EXHAUSTED, Reading};
use super::body::{Body, Streamed};
use super::cache::{Instead, Keeping};
use super::circle::Cause;
use super::dns::NoAddress;
use super::exchange::{Exchange, Happened};
use super::group::Group;
use super::own::before_signature;
use super::plan::Plan;
use super::pool::{Permit, Pools};
use super::resolve::Known;
use super::spool::Spool;
use super::sticky::Binding;
use super::stream::{ConnectError, Connecting, Options, connect};
use super::tls::Secure;
use super::words::Words;
use crate::cgi::HandlerContext;
use crate::disk;
use crate::memory::{self, Class, RESPONSE_BYTES_MIN};
use crate::request_body::{Gathered, RequestBody};
use crate::task::{Outbox, Progress};
use keeping::report_unkept;

/// Maximum length of a line of the error log for a FastCGI application, as in nginx.
const STDERR_LINE_BYTES_MAX: usize = 2048;
/// Maximum number of bytes that one request may have its application write to the error log.
const STDERR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response that are collected before they are handed on, unless memory is used up (O9).
const HAND_ON_BYTES: usize = 128 * 1024;

/// The stage of a request.
///
/// ```text
/// Gathering ─► Ready (names are looked up) ─► Connecting ─► Exchanging ─► Ended
///                           ▲  another server  │
///                           └──────────────────┘
/// ```
pub(super) enum Stage {
    /// The body is gathered; no server is asked yet.
    Gathering(Box<RequestBody>),
    /// No server has been asked.
    Ready,
    /// A connection is being made.
    Connecting(usize, Connecting),
    /// A server has the request, or a part of it.
    Exchanging(usize, Exchange),
    /// It has had its ending.
    Ended,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gathering(_) => "Gathering",
            Self::Ready => "Ready",
            Self::Connecting(..) => "Connecting",
            Self::Exchanging(..) => "Exchanging",
            Self::Ended => "Ended",
        })
    }
}

/// What a task is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) context: Rc<dyn HandlerContext>,
    pub(super) pools: Rc<Pools>,
    /// Its memory; one that the server makes by itself goes on without, too.
    #[expect(dead_code, reason = "held until the task is dropped")]
    pub(super) permit: Option<Permit>,
    pub(super) group: Arc<Group>,
    /// The address that connections come from.
    pub(super) bind: Option<SocketAddr>,
    /// Who causes connections.
    pub(super) cause: Cause,
    /// By what connections differ that are not for the same use.
    pub(super) manner: u64,
    /// How connections are encrypted.
    pub(super) secure: Option<Secure>,
    pub(super) pass: Arc<Pass>,
    pub(super) plan: Plan,
    pub(super) machine: UpstreamRequest,
    pub(super) body: Body,
    /// The client's body, where servers do not get it.
    pub(super) unsent: Body,
    /// `client_body_buffer_size`
    pub(super) body_memory: usize,
    pub(super) changes: Option<Rc<Changes>>,
    pub(super) error_pages: Arc<[ErrorPage]>,
    /// The status that an `error_page` wants.
    pub(super) status: Option<Status>,
    pub(super) is_head: bool,
    /// Servers of the group are names that are to be looked up first: by what one is chosen then, and since when.
    pub(super) resolving: Option<(Key, Moment)>,
    /// What binds the client to a server (`sticky`).
    pub(super) binding: Option<Rc<Binding>>,
    pub(super) stage: Stage,
    pub(super) has_body_ended: bool,
    /// What is done for the cache of the location.
    pub(super) keeping: Option<Box<Keeping>>,
}

/// What comes before the body.
#[derive(Debug)]
enum Head {
    Final(Status, Option<u64>),
    Informational(Status),
    Upgrade(Vec<u8>),
}

/// How it ends.
#[derive(Debug)]
enum Ending {
    Done,
    Fail(Status),
    /// The disk that the request's body goes to does not respond.
    Busy,
    Break,
    HandOver(Vec<u8>),
    /// The stored response is given instead.
    ServeStored(Box<Instead>),
}

/// The result of a poll.
#[derive(Debug)]
pub(super) enum Advanced {
    Progress(Progress),
    /// The stored response is to be given instead; the request is over.
    ServeStored(Box<Instead>),
}

/// A request to a group of servers.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(super) struct UpstreamTask {
    parts: Parts,
    /// The head, until it is taken; its fields are in the outbox.
    head: Option<Head>,
    is_head_given: bool,
    ending: Option<Ending>,
    /// What the present server was sent and has sent, for the logs; and those before it.
    counts: Counts,
    past_counts: Vec<Counts>,
    /// The fields of the last answer, if they are needed.
    accel: Accel,
    /// The fields of an answer that is replaced by another one.
    answered: Fields,
    /// What the client has sent, and how much of it may be remembered.
    received: BodyFacts,
    streamed: Streamed,
    /// How much of that the present server was sent.
    replayed: usize,
    is_held: bool,
    /// What the client has not taken yet.
    spool: Spool,
    /// Another protocol is spoken in both directions.
    is_tunnel: bool,
    /// The client has ended its side of it.
    is_tunnel_ending: bool,
    /// The client is to be woken when more of its body can be taken.
    awaits_room: bool,
    /// When reading may go on (`proxy_limit_rate`), and since when and how much was read.
    resumes: Option<Moment>,
    reading_since: Option<Moment>,
    /// What followed the body.
    trailers: Fields,
    /// How much the application has sent for the error log.
    stderr_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    received: u64,
    sent: u64,
    body: u64,
}

impl UpstreamTask {
    pub(super) fn new(mut parts: Parts) -> Self {
        parts.machine.reuse(std::mem::take(&mut parts.plan.tries));
        let spool = Spool::new(parts.pass.forward.temp_path.clone());
        Self {
            parts,
            head: None,
            is_head_given: false,
            ending: None,
            counts: Counts::default(),
            past_counts: Vec::new(),
            accel: Accel::default(),
            answered: Fields::default(),
            received: BodyFacts::default(),
            streamed: Streamed::default(),
            replayed: 0,
            is_held: false,
            spool,
            is_tunnel: false,
            is_tunnel_ending: false,
            awaits_room: false,
            resumes: None,
            reading_since: None,
            trailers: Fields::default(),
            stderr_bytes: 0,
        }
    }

    /// The answer is for a client that wants no body, whatever the server is asked for.
    pub(super) fn set_head_only(&mut self, is_head: bool) {
        self.parts.is_head = is_head;
    }

    pub(super) fn now(&self) -> Moment {
        self.parts.context.now()
    }

    /// Whether all of the request is here, so that it can be asked without its client.
    pub(super) const fn has_request(&self) -> bool {
        match self.parts.stage {
            Stage::Gathering(_) | Stage::Ended => false,
            Stage::Ready | Stage::Connecting(..) | Stage::Exchanging(..) => {
                self.parts.has_body_ended && !self.is_tunnel
            }
        }
    }

    fn report(&self, level: Level, peer: Option<usize>, what: fmt::Arguments<'_>) {
        let Parts { group, pass, plan, context, .. } = &self.parts;
        let name = peer.and_then(|peer| group.addresses.get(peer)).map_or(&group.name, |it| &it.1);
        let target = match pass.storage {
            Some(_) => before_signature(&plan.target),
            None => &plan.target,
        };
        let target = target.escape_ascii().to_string();
        let (scheme, target) = match pass.family {
            Family::Proxy if plan.is_tls => ("https", target),
            Family::Proxy => ("http", target),
            Family::Grpc if plan.is_tls => ("grpcs", target),
            Family::Grpc => ("grpc", target),
            family => (family.name(), String::new()),
        };
        context.report_upstream(level, what, format_args!("{scheme}://{name}{target}"));
    }

    /// Waits for the addresses of a group whose servers are names; `Ready` when it can be asked, or has failed.
    fn resolve(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<()> {
        let Some((key, since)) = &self.parts.resolving else { return Poll::Ready(()) };
        let Some(names) = &self.parts.group.names else { return Poll::Ready(()) };
        let known = match names.poll(cx, now) {
            Poll::Ready(known) => known,
            Poll::Pending if !(*since + names.timeout()).is_due(now) => return Poll::Pending,
            Poll::Pending => Known::Nothing(self.parts.group.name.to_string(), NoAddress::TimedOut),
        };
        match known {
            Known::Group(group) => {
                self.parts.machine.choose_from(key.select(&group));
                self.parts.group = group;
            }
            Known::Nothing(name, why) => {
                self.report(
                    Level::Error,
                    None,
                    format_args!("{name} could not be resolved ({why})"),
                );
                self.end(Ending::Fail(Status::BAD_GATEWAY));
            }
        }
        self.parts.resolving = None;
        Poll::Ready(())
    }

    /// Carries out what the machine orders: the only place that does.
    fn carry_out(&mut self, order: Order, out: &mut Outbox, now: Moment) {
        if let Some((peer, Change::Disabled)) = self.parts.machine.take_change() {
            let what = format_args!("upstream server temporarily disabled");
            self.report(Level::Warn, Some(peer), what);
        }
        if let Order::Fail(Failure::NoLive) | Order::ServeStale(Some(Failure::NoLive)) = order {
            let words = Words(Failure::NoLive, Phase::Connecting);
            self.report(Level::Error, None, format_args!("{words}"));
        }
        match order {
            Order::Nothing => {}
            Order::Connect { peer, may_be_kept } => self.connect(peer, may_be_kept, now),
            Order::Forward => self.forward(out),
            Order::ServeRevalidated => self.serve_revalidated(),
            Order::ServeStale(_) => self.serve_stale(),
            Order::Fail(failure) => self.end(Ending::Fail(failure.status())),
            Order::Cut(_) => self.end(Ending::Break),
        }
    }

    fn connect(&mut self, peer: usize, may_be_kept: bool, now: Moment) {
        self.leave();
        if self.parts.machine.tries().len() > 1 {
            self.past_counts.push(std::mem::take(&mut self.counts));
        }
        let Parts { group, pools, pass, .. } = &self.parts;
        let forward = Arc::clone(&pass.forward);
        let kept = if may_be_kept { pools.take(group, self.parts.manner, peer, now) } else { None };
        if let Some(connection) = kept {
            let exchange = Exchange::kept(connection, &forward, pools.borrow_work());
            return self.exchange(peer, exchange, true, now);
        }
        let Some((address, _)) = group.addresses.get(peer) else {
            return self.end(Ending::Fail(Status::INTERNAL_SERVER_ERROR));
        };
        let options = Options {
            bind: self.parts.bind,
            keepalive: forward.socket_keepalive,
            secure: self.parts.secure.clone(),
            cause: self.parts.cause,
            ..Options::default()
        };
        self.parts.stage =
            Stage::Connecting(peer, connect(&pools.reactor, address.clone(), options));
    }

    /// There is no connection.
    fn connect_failed(&mut self, peer: usize, error: ConnectError, now: Moment) -> Order {
        let failure = match error {
            ConnectError::Io(error) => Failure::NotConnected(error.raw_os_error()),
            ConnectError::Circle(why) => {
                self.report(Level::Error, Some(peer), format_args!("{why}"));
                Failure::NotConnected(None)
            }
            ConnectError::Tls(why) => {
                let what = format_args!("upstream SSL certificate or handshake: {why}");
                self.report(Level::Error, Some(peer), what);
                Failure::NotSecured
            }
        };
        self.fail(failure, Phase::Connecting, now)
    }

    /// A connection is there: the request is framed.
    fn exchange(&mut self, peer: usize, mut exchange: Exchange, is_kept: bool, now: Moment) {
        let Parts { group, pass, plan, machine, body, .. } = &mut self.parts;
        machine.connected(is_kept, now);
        let keeps_alive = group.keepalive.connections > 0
            && (matches!(pass.family, Family::Proxy | Family::Grpc) || pass.forward.keep_conn);
        let request = Request {
            method: &plan.method,
            target: &plan.target,
            version: plan.version.unwrap_or(Version::Http11),
            pairs: &plan.pairs,
            body: body.length(),
            keeps_alive,
        };
        match exchange.start(&request, now) {
            Ok(()) => {
                self.parts.stage = Stage::Exchanging(peer, exchange);
                self.replayed = 0;
                self.replay(now);
            }
            Err(fault) => {
                let message = fault.message();
                self.report(Level::Error, Some(peer), format_args!("request not sent: {message}"));
                self.parts.machine.abandoned(&self.parts.group.balancer, now);
                self.end(Ending::Fail(Status::INTERNAL_SERVER_ERROR));
            }
        }
    }

    /// The present try has failed. What is to be done about it.
    fn fail(&mut self, failure: Failure, phase: Phase, now: Moment) -> Order {
        let (peer, is_answered) = match &self.parts.stage {
            Stage::Exchanging(peer, exchange) => {
                (*peer, exchange.connection.engine.get().is_answered())
            }
            Stage::Connecting(peer, _) => (*peer, false),
            _ => return Order::Nothing,
        };
        let kind = match failure {
            Failure::ConnectTimeout => Some(DeadlineKind::UpstreamConnect),
            Failure::SendTimeout => Some(DeadlineKind::UpstreamSend),
            Failure::ReadTimeout => Some(DeadlineKind::UpstreamRead),
            _ => None,
        };
        if let Some(kind) = kind {
            self.parts.context.expired(kind);
        }
        let Parts { group, machine, pools, .. } = &mut self.parts;
        let was_kept = machine.tries().last().is_some_and(|one| one.is_kept);
        let order = machine.failed(failure, is_answered, &group.balancer, now, || pools.random());
        // A kept connection that was closed while it was idle is no trouble.
        let is_again = was_kept && matches!(order, Order::Connect { may_be_kept: false, .. });
        if !is_again {
            self.report(Level::Error, Some(peer), format_args!("{}", Words(failure, phase)));
        }
        order
    }

    fn lose(&mut self, error: &io::Error, now: Moment) -> Order {
        let Stage::Exchanging(_, exchange) = &mut self.parts.stage else { return Order::Nothing };
        let engine = exchange.connection.engine.get_mut();
        let phase = engine.phase();
        let failure = match engine.lost(error.raw_os_error(), now) {
            Some(Event::Failed(failure)) => failure,
            _ => Failure::Lost(error.raw_os_error()),
        };
        self.fail(failure, phase, now)
    }

    /// The head of the answer is for the client.
    fn forward(&mut self, out: &mut Outbox) {
        let Stage::Exchanging(peer, exchange) = &self.parts.stage else { return };
        let reading = Reading {
            pass: &self.parts.pass,
            origin: &self.parts.plan.origin,
            changes: self.parts.changes.as_deref(),
            error_pages: &self.parts.error_pages,
            is_head: self.parts.is_head,
        };
        let head = &exchange.work.scratch.head;
        match reading.read(head, &mut out.fields, &mut self.accel) {
            Answer::Given(status, length) => {
                if let Some(keeping) = &mut self.parts.keeping {
                    keeping.begin(head, self.parts.context.wall_secs());
                    out.is_kept = keeping.is_storing();
                }
                let Parts { group, context, binding, .. } = &self.parts;
                if let (Some(sticky), Some(binding)) = (&group.sticky, binding)
                    && let Some(peer) = group.balancer.peers().get(*peer)
                {
                    let times = (context.now(), context.wall_secs());
                    sticky.answered(binding, peer, head, &mut out.fields, times);
                }
                let status = self.parts.status.unwrap_or(status);
                self.expect_trailers(out);
                out.limit_rate = self.accel.limit_rate;
                out.charset = self.accel.charset.take();
                self.head = Some(Head::Final(status, length));
            }
            Answer::HandOver(target) => {
                self.answered.clone_from(&head.fields);
                out.limit_rate = self.accel.limit_rate;
                self.finish_early(Ending::HandOver(target));
            }
            Answer::Intercepted(status) => {
                self.answered.clone_from(&head.fields);
                self.finish_early(Ending::Fail(status));
            }
            Answer::Undecided => {
                out.fields.clear();
                self.parts.context.report(Level::Error, format_args!("{EXHAUSTED}"));
                self.finish_early(Ending::Fail(Status::INTERNAL_SERVER_ERROR));
            }
        }
    }

    /// What can be taken now.
    fn next(&mut self, out: &mut Outbox) -> Option<Advanced> {
        if let Some(head) = self.head.take() {
            self.is_head_given |= !matches!(head, Head::Informational(_));
            return Some(Advanced::Progress(match head {
                Head::Informational(status) => Progress::Informational(status),
                Head::Final(status, length) => Progress::Head(status, length),
                Head::Upgrade(protocol) => Progress::Upgrade(protocol),
            }));
        }
        // A client that has all of an answer finds it in the cache when it asks again.
        if self.is_storing() {
            return None;
        }
        if !out.body.is_empty() && self.is_head_given {
            return Some(Advanced::Progress(Progress::Body));
        }
        if !self.spool.is_empty() {
            return None;
        }
        Some(Advanced::Progress(match self.ending.take()? {
            Ending::Done => {
                if out.trailers.is_some() {
                    out.trailers = Some(self.passed_trailers());
                }
                Progress::Done
            }
            Ending::Fail(status) => Progress::Fail(status),
            Ending::Busy => {
                out.fields.push("Retry-After", disk::RETRY_AFTER);
                Progress::Fail(Status::SERVICE_UNAVAILABLE)
            }
            Ending::Break => Progress::Break,
            Ending::HandOver(target) => Progress::HandOver(target),
            Ending::ServeStored(instead) => return Some(Advanced::ServeStored(instead)),
        }))
    }

    /// Moves bytes, at most `bytes_max` of them at once to where they belong; `Ready` when something is to be looked at or
    /// done.
    fn exchange_step(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        bytes_max: usize,
        now: Moment,
    ) -> Poll<Order> {
        if self.is_replaying() {
            self.replay(now);
        }
        let Stage::Exchanging(_, exchange) = &mut self.parts.stage else {
            return Poll::Ready(Order::Nothing);
        };
        match exchange.send(cx, &self.parts.body, now) {
            Ok(is_moved) => {
                if is_moved {
                    self.parts.machine.sent();
                    if std::mem::take(&mut self.awaits_room) {
                        cx.waker().wake_by_ref();
                    }
                }
            }
            // A server may answer and close before it has read all: its answer counts.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && exchange.sent > 0 => {}
            Err(error) => return Poll::Ready(self.lose(&error, now)),
        }
        if self.is_tunnel_ending && exchange.is_all_sent() {
            self.finish_early(Ending::Done);
            return Poll::Ready(Order::Nothing);
        }
        if let Some(at) = self.resumes
            && !at.is_due(now)
        {
            return Poll::Pending;
        }
        self.resumes = None;
        if let Some(keeping) = &mut self.parts.keeping {
            match keeping.poll_room(cx) {
                Poll::Pending => {
                    // It is not the server that is late, but the disk.
                    exchange.hold(true, now);
                    return Poll::Pending;
                }
                Poll::Ready(stored) => {
                    if !self.is_held {
                        exchange.hold(false, now);
                    }
                    if let Err(error) = stored {
                        report_unkept(&*self.parts.context, &error);
                    }
                }
            }
        }
        self.receive(cx, out, bytes_max, now)
    }

    /// Takes what the server has sent, as far as nothing else is to be done meanwhile.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        bytes_max: usize,
        now: Moment,
    ) -> Poll<Order> {
        let is_paced = self.parts.pass.forward.read_rate > 0;
        let end = if is_paced { 0 } else { out.body.len().saturating_add(bytes_max) };
        loop {
            let Stage::Exchanging(_, exchange) = &mut self.parts.stage else {
                return Poll::Ready(Order::Nothing);
            };
            let phase = exchange.connection.engine.get().phase();
            let given = out.body.len();
            let pools = &self.parts.pools;
            let direct_max = end.saturating_sub(given);
            match exchange.receive(cx, pools, (&mut out.body, direct_max), now) {
                Poll::Ready(Ok(happened)) => {
                    // The server may take more than before (HTTP/2: its window is open again).
                    if std::mem::take(&mut self.awaits_room) {
                        cx.waker().wake_by_ref();
                    }
                    let (before, is_all_sent) = (exchange.received, exchange.is_all_sent());
                    let order = self.handle(happened, phase, out, now);
                    if let Some(keeping) = &mut self.parts.keeping {
                        keeping.push(&out.body[given.min(out.body.len())..]);
                    } else if matches!(happened, Happened::Event(Event::Body(_)))
                        && is_all_sent
                        && !is_paced
                        && out.body.len() < end
                        && !Self::is_enough(out.body.len())
                    {
                        continue;
                    }
                    if is_paced {
                        self.pace(before, now);
                    }
                    return Poll::Ready(order);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(self.lose(&error, now)),
                Poll::Pending => {
                    // What came in the same turn wins (T3): only now the deadline acts.
                    let is_due =
                        exchange.next_deadline().is_some_and(|deadline| deadline.at.is_due(now));
                    if !is_due {
                        return Poll::Pending;
                    }
                    return match exchange.connection.engine.get_mut().expire(now) {
                        Some(Event::Failed(failure)) => Poll::Ready(self.fail(failure, phase, now)),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }

    /// `proxy_limit_rate`
    fn pace(&mut self, received: u64, now: Moment) {
        let rate = self.parts.pass.forward.read_rate;
        let since = *self.reading_since.get_or_insert(now);
        let earned = u128::from(rate) * (now.since(since).as_millis() + 1000) / 1000;
        let ahead = u128::from(received).saturating_sub(earned);
        if ahead > 0 {
            let millis = ahead * 1000 / u128::from(rate) + 1;
            let pause = u64::try_from(millis).unwrap_or(u64::MAX);
            self.resumes = Some(now + std::time::Duration::from_millis(pause));
        }
    }

    /// Takes what the server has sent. What is to be done about it.
    fn handle(&mut self, happened: Happened, phase: Phase, out: &mut Outbox, now: Moment) -> Order {
        let event = match happened {
            Happened::Moved => return Order::Nothing,
            Happened::Direct(count) => {
                self.count_body(count);
                return Order::Nothing;
            }
            Happened::Event(event) => event,
        };
        let Stage::Exchanging(peer, exchange) = &mut self.parts.stage else {
            return Order::Nothing;
        };
        match event {
            // Expectations are met by this server itself (H7).
            Event::Informational => {
                let head = &exchange.work.scratch.head;
                if head.status.code() > 101 {
                    out.fields.extend_from(&head.fields);
                    self.head = Some(Head::Informational(head.status));
                }
            }
            Event::Head => {
                let status = exchange.work.scratch.head.status;
                let Parts { group, machine, pools, .. } = &mut self.parts;
                return machine.answered(status, &group.balancer, now, || pools.random());
            }
            Event::Body(span) => {
                let bytes = exchange.span(span);
                out.body.extend_from_slice(bytes);
                let count = bytes.len();
                self.count_body(count);
            }
            Event::Stderr(span) => {
                let peer = *peer;
                let bytes = exchange.span(span);
                let caught = &self.parts.pass.forward.caught;
                let is_caught =
                    caught.iter().any(|text| memchr::memmem::find(bytes, text).is_some());
                let shown = &bytes[..bytes.len().min(STDERR_LINE_BYTES_MAX)];
                let text = String::from_utf8_lossy(shown).trim_end().to_owned();
                let count = bytes.len();
                self.report_stderr(peer, &text, count, phase);
                if is_caught {
                    return self.fail(Failure::BadHead(HeadFault::Caught), phase, now);
                }
            }
            Event::End => self.finish(now),
            Event::Upgraded => self.upgrade(out, now),
            Event::Failed(failure) => return self.fail(failure, phase, now),
        }
        Order::Nothing
    }

    /// Logs what the application says about the request, within limits.
    fn report_stderr(&mut self, peer: usize, text: &str, count: usize, phase: Phase) {
        let before = self.stderr_bytes;
        self.stderr_bytes += count;
        if before >= STDERR_BYTES_MAX {
            return;
        }
        let (text, words) = (text.escape_debug(), phase.words());
        let what = format_args!("FastCGI sent in stderr: \"{text}\" while {words}");
        self.report(Level::Error, Some(peer), what);
        if self.stderr_bytes >= STDERR_BYTES_MAX {
            let what = format_args!(
                "FastCGI sent more than {STDERR_BYTES_MAX} bytes in stderr: the rest is not logged"
            );
            self.report(Level::Error, Some(peer), what);
        }
    }

    /// The server switches to the protocol that the client asked for.
    fn upgrade(&mut self, out: &mut Outbox, now: Moment) {
        let Stage::Exchanging(_, exchange) = &self.parts.stage else { return };
        let head = &exchange.work.scratch.head;
        let (status, visible) = (head.status, &self.parts.pass.forward.visible);
        for (name, value) in head.fields.iter() {
            // The engine says what is about the connection.
            if visible.has(name) && !is_hop_by_hop(name) {
                out.fields.push(name, value);
            }
        }
        let Parts { group, machine, pools, plan, .. } = &mut self.parts;
        machine.answered(status, &group.balancer, now, || pools.random());
        let protocol = plan.pairs.get("upgrade").unwrap_or_default().to_vec();
        self.head = Some(Head::Upgrade(protocol));
        self.is_tunnel = true;
        if let Some(keeping) = &mut self.parts.keeping {
            keeping.abandon();
        }
    }

    fn count_body(&mut self, bytes: usize) {
        self.counts.body += bytes as u64;
    }

    /// How much is gathered before it is handed on.
    fn hand_on_bytes() -> usize {
        let is_full = memory::is_full(Class::Responses) || memory::is_full(Class::Filters);
        if is_full { RESPONSE_BYTES_MIN } else { HAND_ON_BYTES }
    }

    /// Whether this many bytes of a response are handed on before more are read. The budget is asked only for more than
    /// its minimum.
    fn is_enough(bytes: usize) -> bool {
        bytes >= RESPONSE_BYTES_MIN && bytes >= Self::hand_on_bytes()
    }

    /// Whether the answer is read though the client does not take it.
    fn buffers(&self) -> bool {
        let is_on = self.accel.buffering.unwrap_or(self.parts.pass.forward.buffering);
        is_on && self.is_head_given && !self.is_tunnel
    }

    fn give_back_input(&mut self) {
        if let Stage::Exchanging(_, exchange) = &mut self.parts.stage {
            exchange.give_back_input(&self.parts.pools);
        }
    }

    fn hold_engine(&mut self, is_held: bool, now: Moment) {
        if let Stage::Exchanging(_, exchange) = &mut self.parts.stage {
            exchange.hold(is_held, now);
        }
    }

    /// The spool goes on in memory alone; the operator must know why.
    fn report_spool(&mut self) {
        if let Some(error) = self.spool.take_write_error() {
            let what = format_args!("cannot write a response to a temporary file: {error}");
            self.parts.context.report(Level::Crit, what);
        }
    }

    fn spool_failed(&mut self, error: &io::Error, now: Moment) {
        self.parts.context.report(Level::Crit, format_args!("cannot buffer a response: {error}"));
        self.spool = Spool::default();
        self.parts.machine.abandoned(&self.parts.group.balancer, now);
        self.end(Ending::Break);
    }

    /// The body is complete: servers can be asked.
    fn gathered(&mut self, gathered: Gathered) {
        let body = Body::from(gathered);
        self.received = body.facts();
        let place = if self.passes_body() { &mut self.parts.body } else { &mut self.parts.unsent };
        *place = body;
        self.parts.stage = Stage::Ready;
    }

    /// Whether servers get the client's body.
    fn passes_body(&self) -> bool {
        let forward = &self.parts.pass.forward;
        forward.pass_request_body && forward.set_body.is_none()
    }

    fn gathering_failed(&mut self, error: &io::Error) {
        self.parts
            .context
            .report(Level::Crit, format_args!("cannot buffer a request body: {error}"));
        let failed = Ending::Fail(Status::INTERNAL_SERVER_ERROR);
        self.end(if disk::is_busy(error) { Ending::Busy } else { failed });
    }
}

impl Drop for UpstreamTask {
    fn drop(&mut self) {
        // The client is gone, or something else answers: no server is to blame.
        if !self.parts.machine.is_over() {
            let now = self.parts.context.now();
            self.parts.machine.abandoned(&self.parts.group.balancer, now);
        }
        self.leave();
        let mut plan = std::mem::take(&mut self.parts.plan);
        plan.tries = self.parts.machine.take_memory();
        self.parts.pools.give_back_plan(plan);
    }
}
