//! A client's connection: a transport, a protocol engine and the requests in work. Between its turns (see
//! `scheduler.rs`) it is a record of known size; buffers and exchanges are borrowed from the worker while there is
//! something to do.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_config::{Level, RealIpSource};
use sekisho_handler::memory::{self, Class};
use sekisho_http::{ProxyHeader, Scratch};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{
    CloseReason, Deadline, DeadlineKind, Manner, Moment, RequestId, Share, Stage,
};

use crate::admission::TooMany;
use crate::dispatch::RouteInput;
use crate::error_context::Client;
use crate::exchange::{Arrival, Exchange, Exchanges};
use crate::fault_injection;
use crate::link::{Link, Origin};
use crate::observe;
use crate::pace::Pace;
use crate::protocol::{Event, Protocol};
use crate::session::{SessionSlot, ShutdownRequest, Token};
use crate::tls::Chooser;
use crate::transport::{ClientTransport, Secured, Stream};
use crate::worker::{ListenerContext, Worker};

/// A client that was here so shortly ago may have sent its next request before it can know that we drain.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// The same for one that has connected by TLS and has not asked yet: what it sends meanwhile is no request.
const HANDSHAKE_QUIET: Duration = Duration::from_secs(1);
/// How long an answer may take to leave when the end is forced.
const FORCE_PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which the acknowledgements of a client are looked at while it takes nothing: `send_timeout` counts
/// from the last one, and the kernel does not report when it came (T4).
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// With many such clients the interval grows by this for each of them, so that the looks take at most about 5 % of a
/// core.
const LOOK_INTERVAL_EACH: Duration = Duration::from_micros(80);

/// The number of streams that a connection may have where the share of responses is used up.
const STREAMS_MIN: usize = 8;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection<T = Stream> {
    pub(crate) transport: T,
    pub(crate) link: Link,
    pub(crate) exchanges: Exchanges,
    /// How many bytes have come, and how many have left.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// While the client takes nothing: what it has acknowledged.
    stall: Option<Box<Stall>>,
    /// The memory that it holds while it waits, if that is much.
    share: Option<Share>,
    /// When bytes last moved.
    pub(crate) active: Moment,
    /// How much of files the client has been sent.
    pub(crate) file_sent: u64,
    pub(crate) flags: Flags,
}

/// The acknowledgements of a client that takes nothing.
#[derive(Debug)]
struct Stall {
    /// How many of the bytes sent it had acknowledged at the last look, and when that was.
    acknowledged: u64,
    looked: Moment,
}

/// Facts about a connection's transport.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub(crate) struct Flags {
    /// The connection limit is reached; the error for this client has not been sent yet.
    is_one_too_many: bool,
    /// Before them comes the header of a balancer.
    pub(crate) awaits_proxy_header: bool,
    /// Its first bytes will show whether it is HTTP/1 or HTTP/2.
    pub(crate) is_undecided: bool,
    /// Its first turn comes at once: the time is known.
    pub(crate) is_fresh: bool,
    /// Our side has ended.
    pub(crate) is_shut: bool,
    /// The client's side has ended.
    pub(crate) has_input_ended: bool,
    /// A long file is being sent.
    pub(crate) is_corked: bool,
    /// Small segments wait (`tcp_nodelay off`).
    pub(crate) is_delayed: bool,
}

/// Connections that are shed when memory is nearly used up, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ShedRank {
    /// Its handshake is not over.
    Handshake,
    /// It is between requests.
    Idle,
    /// A part of a header block has come.
    HeaderBlock,
}

/// The owner of a deadline: the part that acts when it expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// The protocol engine.
    Protocol,
    /// A request in work: its task, or its pace.
    Exchange(RequestId),
    /// The session: it drains and waits for a quiet moment.
    Drain,
    /// The session: its end is forced.
    Force,
}

impl<T: ClientTransport> Connection<T> {
    /// A connection that has just been accepted.
    pub(crate) fn new(
        worker: Rc<Worker>,
        listener_context: Rc<ListenerContext>,
        transport: T,
        remote: Option<SocketAddr>,
        local: Option<IpAddr>,
    ) -> Self {
        let bound_site = listener_context.bound_site();
        let listen = bound_site.listen(local);
        let is_secured = !matches!(transport.secured(), Secured::No);
        let is_undecided = is_secured || bound_site.site.speaks_http2(listen);
        let main = &bound_site.site.config().main;
        let awaits_proxy_header = transport.awaits_proxy_header();
        // Behind a load balancer the client's address is known only when the PROXY header has come.
        let address = remote.filter(|_| !awaits_proxy_header).map(|remote| remote.ip());
        let admitted = worker.shared.admission.admit(main, address);
        let now = worker.clock.now();
        let protocol = Protocol::http1(bound_site.site.first_policy(listen), now);
        let id = worker.next_connection();
        let slot = SessionSlot::new(
            id,
            listener_context.id,
            now,
            remote,
            worker.shutdown.get().max(listener_context.shutdown.get()),
        );
        let key = worker.sessions.borrow_mut().enter(slot);
        let activity = worker.shared.counters.activities.enter();
        let is_one_too_many = matches!(admitted, Err(TooMany));
        let admitted = admitted.ok().flatten();
        let origin = admitted.map(|it| Box::new(Origin { admitted: Some(it), proxied: None }));
        Self {
            transport,
            link: Link {
                protocol,
                buffers: None,
                worker,
                listener_context,
                id,
                key,
                local,
                no_delay: true,
                origin,
                tls: None,
                is_clear_by_mistake: false,
                activity,
            },
            exchanges: Exchanges::default(),
            received: 0,
            sent: 0,
            stall: None,
            share: None,
            active: now,
            file_sent: 0,
            flags: Flags { is_one_too_many, awaits_proxy_header, is_undecided, ..Flags::default() },
        }
    }

    /// A turn: does what there is to do. `Ready` is the end of the session.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_fresh = std::mem::take(&mut self.flags.is_fresh);
        let now = if is_fresh { self.active } else { self.link.worker.clock.now() };
        let orders = self.link.worker.sessions.borrow_mut().orders(self.link.key);
        self.transport.note(orders.ready);
        if let Some(datagrams) = self.transport.datagrams() {
            datagrams.advance(now);
        }
        if orders.has_command {
            self.run_command(now);
        }
        let shutdown = orders.shutdown;
        match shutdown {
            ShutdownRequest::Continue => {}
            ShutdownRequest::Drain => self.drain(now),
            // A task can still give its answer; everything else ends here (O4).
            ShutdownRequest::Force if self.cancel_tasks(Cause::Shutdown, now) => self.drain(now),
            ShutdownRequest::Force => {
                // A client that has its answer and lingers loses nothing.
                let is_open = self.link.protocol.stage() == Stage::Open;
                if is_open && !self.link.protocol.is_idle() {
                    self.link.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
                }
                return self.close(CloseReason::Forced, now);
            }
        }
        let is_critical = (orders.ready.may_read() || is_fresh) && memory::is_critical();
        if std::mem::take(&mut self.flags.is_one_too_many) {
            self.refuse(is_critical, now);
        } else if (is_critical || orders.is_shed) && self.may_be_shed() {
            // With next to no memory left, no request begins, and no half head goes on (X8).
            if !is_critical && self.shed_rank() == Some(ShedRank::Idle) {
                self.link.shut_down_gracefully(now);
            } else {
                self.refuse(true, now);
            }
        }
        loop {
            if let Poll::Ready(reason) = self.turn(cx, now) {
                return self.close(reason, now);
            }
            // Data that came in the same turn has won (T3).
            if !self.expire(cx, shutdown, now) {
                break;
            }
        }
        if !self.account() && self.may_be_shed() {
            self.refuse(true, now);
            if let Poll::Ready(reason) = self.turn(cx, now) {
                return self.close(reason, now);
            }
            self.account();
        }
        self.rest(shutdown, now)
    }

    /// Refuses the connection. Where memory is used up, a handshake is not finished for it.
    fn refuse(&mut self, is_at_once: bool, now: Moment) {
        let is_open =
            !matches!(self.transport.secured(), Secured::NotYet) && !self.flags.awaits_proxy_header;
        if is_at_once && !is_open {
            return self.link.protocol.abort(CloseReason::TooMany);
        }
        // The error is sent once; from here on it is an ordinary connection that closes.
        if let Some(event) = self.link.protocol.refuse_connection() {
            self.handle(&event, now);
        }
    }

    /// Gives back what is not needed until the next turn, and counts the rest in the budget (O9). Returns whether that
    /// is within the share of its class.
    fn account(&mut self) -> bool {
        let is_unused = self.link.buffers.as_ref().is_some_and(|buffers| buffers.is_done());
        if self.exchanges.is_empty()
            && is_unused
            && let Some(buffers) = self.link.buffers.take()
        {
            self.link.worker.give_back_buffers(buffers);
            self.link.protocol.shrink();
        }
        let mut bytes = self.transport.buffer_bytes();
        if let Some(buffers) = &mut self.link.buffers {
            let is_full = memory::is_full(Class::Responses);
            buffers.give_back_room(is_full);
            let exchanges = self.exchanges.iter_mut().map(|it| it.hold(is_full)).sum::<usize>();
            bytes += buffers.memory_bytes() + exchanges;
        }
        if self.link.protocol.is_multiplexed() && !self.link.protocol.is_idle() {
            bytes += self.link.protocol.memory_bytes();
        }
        if bytes == 0 && self.share.is_none() {
            return true;
        }
        let class = match self.transport.secured() {
            Secured::NotYet => Class::Handshakes,
            _ if self.exchanges.is_empty() => Class::HeaderBlocks,
            _ => Class::Responses,
        };
        memory::hold(&mut self.share, class, bytes)
    }

    /// What is lost if the connection is shed; `None` where a request is in work.
    pub(crate) fn shed_rank(&self) -> Option<ShedRank> {
        if matches!(self.transport.secured(), Secured::NotYet) {
            Some(ShedRank::Handshake)
        } else if self.link.protocol.is_idle() && self.exchanges.is_empty() {
            Some(ShedRank::Idle)
        } else {
            self.may_be_shed().then_some(ShedRank::HeaderBlock)
        }
    }

    /// Whether a new request is refused for lack of memory. A connection that requests share is not shed; nothing is kept of
    /// a stream that is refused (O9).
    fn is_stream_refused(&self) -> bool {
        let is_one_of_many = self.exchanges.len() >= STREAMS_MIN;
        memory::was_critical() || (is_one_of_many && memory::is_full(Class::Responses))
    }

    /// Whether no request is in work, so that it can be refused.
    fn may_be_shed(&self) -> bool {
        let protocol = &self.link.protocol;
        protocol.stage() == Stage::Open && protocol.wants_input() && self.exchanges.is_empty()
    }

    /// Lets the deadline that is due act, if one is; whether anything happened.
    fn expire(&mut self, cx: &mut Context<'_>, shutdown: ShutdownRequest, now: Moment) -> bool {
        let due = self.next_deadline(shutdown).filter(|(deadline, _)| deadline.at.is_due(now));
        let Some((Deadline { kind, .. }, owner)) = due else { return false };
        match owner {
            Owner::Exchange(id) => {
                let Some(at) = self.exchanges.find(id) else { return false };
                let Self { link, exchanges, .. } = self;
                let Some(exchange) = exchanges.get_mut(at) else { return false };
                if kind == DeadlineKind::Rate {
                    // From here on a window may hold it back, and nothing else.
                    exchange.pace.as_mut().map(Pace::resume);
                    link.protocol.set_ready(id, true, now);
                    return true;
                }
                let happened = exchange.expire(cx, link, now);
                self.settle(at);
                happened
            }
            Owner::Protocol => {
                // Bytes that wait in the kernel may have been acknowledged all the same (T4).
                if kind == DeadlineKind::Send && self.note_acknowledged(now) {
                    return true;
                }
                self.link.worker.shared.counters.expire(kind);
                let awaits_header = self.flags.awaits_proxy_header;
                if awaits_header || matches!(self.transport.secured(), Secured::NotYet) {
                    // No answer could be read by the client yet (S2).
                    self.link.protocol.abort(CloseReason::Expired(kind));
                    return true;
                }
                if kind == DeadlineKind::Send {
                    self.tell_send_timeout(now);
                }
                #[cfg(feature = "simulation")]
                let would_close = self.link.protocol.will_close();
                let event = self.link.protocol.expire(now);
                #[cfg(feature = "simulation")]
                {
                    let is_refused = event.is_some();
                    let fact = observe::Fact::Expired { kind, is_refused, would_close };
                    self.link.tell(RequestId(0), || fact, now);
                }
                if let Some(event) = event {
                    self.handle(&event, now);
                }
                true
            }
            // These are acted on where the turn ends.
            Owner::Drain | Owner::Force => false,
        }
    }

    /// Looks whether the client has acknowledged bytes since the last look. If so, its send deadline starts anew.
    fn note_acknowledged(&mut self, now: Moment) -> bool {
        let sent = self.sent_bytes();
        let (Some(left), Some(stall)) = (self.transport.unacknowledged(), &mut self.stall) else {
            return false;
        };
        stall.looked = now;
        let acknowledged = sent.saturating_sub(left);
        let before = std::mem::replace(&mut stall.acknowledged, acknowledged);
        if acknowledged <= before {
            return false;
        }
        self.link.protocol.acknowledged(now);
        self.link.tell(RequestId(0), || observe::Fact::Acknowledged, now);
        true
    }

    /// While the transport takes nothing, looks at the acknowledgements from time to time. When the next look is due.
    fn watch_acknowledgements(&mut self, now: Moment) -> Option<Moment> {
        let stalled = &self.link.worker.stalled;
        if !self.transport.is_full() || !self.link.protocol.has_unsent() {
            if self.stall.take().is_some() {
                stalled.set(stalled.get() - 1);
            }
            return None;
        }
        let interval = LOOK_INTERVAL.max(LOOK_INTERVAL_EACH * (stalled.get() + 1));
        let Some(stall) = &self.stall else {
            let left = self.transport.unacknowledged()?;
            stalled.set(stalled.get() + 1);
            let acknowledged = self.sent_bytes().saturating_sub(left);
            self.stall = Some(Box::new(Stall { acknowledged, looked: now }));
            self.link.tell(RequestId(0), || observe::Fact::Stalled, now);
            return Some(now + interval);
        };
        let next = stall.looked + interval;
        if !next.is_due(now) {
            return Some(next);
        }
        self.note_acknowledged(now);
        Some(now + interval)
    }

    /// Logs that a client is cut off in the middle of an answer: nothing else would show it.
    fn tell_send_timeout(&self, now: Moment) {
        let site = &self.link.listener_context.bound_site().site;
        if site.log.wants(Level::Info) {
            let client = Client(self.link.facts().remote);
            let sent = self.sent_bytes();
            let message = format_args!(
                "client timed out (send_timeout): it acknowledged nothing, {sent} bytes were sent, {client}"
            );
            let stamp = self.link.worker.clock.stamp(now);
            site.log.write(Level::Info, stamp, Some(self.link.id), message);
        }
    }

    /// The PROXY header has come: now the client's address is known.
    #[inline(never)]
    pub(crate) fn note_proxied(&mut self, header: ProxyHeader, now: Moment) {
        self.flags.awaits_proxy_header = false;
        let origin = self.link.origin.get_or_insert_default();
        let addresses = header.addresses;
        origin.proxied = Some(Arc::new(header));
        let Some(admitted) = &mut origin.admitted else { return };
        let peer = self.link.worker.sessions.borrow().slot(self.link.key).remote();
        let peer = peer.map(|peer| peer.ip());
        let bound_site = self.link.listener_context.bound_site();
        let real_ip = bound_site.site.first_real_ip(bound_site.listen(self.link.local));
        let is_believed = real_ip.is_some_and(|real_ip| {
            real_ip.source == RealIpSource::ProxyHeader && real_ip.trusts(peer)
        });
        let said = addresses.filter(|_| is_believed).map(|it| it.source.ip());
        let main = &bound_site.site.config().main;
        if let Some(address) = said.or(peer)
            && admitted.name(main, address).is_err()
            && let Some(event) = self.link.protocol.refuse_connection()
        {
            self.handle(&event, now);
        }
    }

    /// The transport has failed: why the session ends.
    pub(crate) fn lose_transport(&self, error: &std::io::Error, now: Moment) -> CloseReason {
        if self.flags.awaits_proxy_header {
            self.tell_bad_proxy(error, now);
            return CloseReason::NotAdmitted;
        }
        if !matches!(self.transport.secured(), Secured::NotYet) {
            return CloseReason::TransportLost;
        }
        let site = &self.link.listener_context.bound_site().site;
        if site.log.wants(Level::Info) {
            let client = Client(self.link.facts().remote);
            let stamp = self.link.worker.clock.stamp(now);
            let message = format_args!("TLS handshake failed: {error}, {client}");
            site.log.write(Level::Info, stamp, Some(self.link.id), message);
        }
        CloseReason::NotAdmitted
    }

    /// Logs an invalid PROXY header: the operator must fix the balancer, or its absence.
    fn tell_bad_proxy(&self, error: &std::io::Error, now: Moment) {
        let site = &self.link.listener_context.bound_site().site;
        let is_gone = error.kind() == std::io::ErrorKind::UnexpectedEof;
        let level = if is_gone { Level::Info } else { Level::Error };
        if site.log.wants(level) {
            let client = Client(self.link.facts().remote);
            let stamp = self.link.worker.clock.stamp(now);
            let message = format_args!("no PROXY header: {error}, {client}");
            site.log.write(level, stamp, Some(self.link.id), message);
        }
    }

    /// The peer broke a rule of the protocol; the engine has dealt with it.
    fn tell_violation(&self, what: &str, now: Moment) {
        let site = &self.link.listener_context.bound_site().site;
        if site.log.wants(Level::Info) {
            let client = Client(self.link.facts().remote);
            let stamp = self.link.worker.clock.stamp(now);
            let message = format_args!("client violated the protocol: {what}, {client}");
            site.log.write(Level::Info, stamp, Some(self.link.id), message);
        }
    }

    /// From now on it speaks HTTP/2; its deadlines run from when it was accepted.
    pub(crate) fn speak_http2(&mut self) {
        let bound_site = self.link.listener_context.bound_site();
        let listen = bound_site.listen(self.link.local);
        // The handshake may have said for which server; a request will say it again.
        let name = self.link.tls.as_ref().map(|facts| facts.server_name.as_str());
        let policies = bound_site.site.policy_before_head(listen, name);
        let accepted = self.link.worker.sessions.borrow().slot(self.link.key).since;
        self.link.protocol = Protocol::http2(policies, accepted);
    }

    /// The turn is over: notes what is waited for.
    fn rest(&mut self, shutdown: ShutdownRequest, now: Moment) -> Poll<()> {
        self.note_activity();
        let protocol = &self.link.protocol;
        let has_all = protocol.stage() == Stage::Lingering || protocol.is_idle();
        if shutdown == ShutdownRequest::Force && has_all {
            // Its answer has been sent; whether the client reads it is not waited for.
            return self.close(CloseReason::Forced, now);
        }
        let mut look = self.watch_acknowledgements(now);
        if let Some(datagrams) = self.transport.datagrams() {
            let timer = datagrams.next_timer(!self.exchanges.is_empty());
            look = look.into_iter().chain(timer).min();
        }
        let mut next = self.next_deadline(shutdown);
        if let Some((deadline, Owner::Drain)) = next
            && deadline.at.is_due(now)
        {
            self.link.shut_down_gracefully(now);
            return self.close(CloseReason::Draining, now);
        }
        if shutdown == ShutdownRequest::Force {
            // Its answer is on the way; a client that does not take it is not waited for.
            let last = Deadline { at: now + FORCE_PATIENCE, kind: DeadlineKind::Shutdown };
            let earlier = next.filter(|(deadline, _)| deadline.at < last.at);
            next = earlier.or(Some((last, Owner::Force)));
        }
        let token = Token::new(self.link.key, self.link.id);
        let worker = Rc::clone(&self.link.worker);
        if worker.scheduler.watch(&mut self.transport, token).is_err() {
            // Without epoll the session would never be woken.
            return self.close(CloseReason::TransportLost, now);
        }
        self.count_datagrams();
        let mut sessions = worker.sessions.borrow_mut();
        if let Some(datagrams) = self.transport.datagrams() {
            sessions.slot_mut(self.link.key).set_remote(datagrams.remote());
        }
        self.note_moved(sessions.slot_mut(self.link.key));
        let deadline = next.map(|(deadline, _)| deadline);
        let is_first = sessions.arm(self.link.key, deadline, look, self.transport.is_full());
        drop(sessions);
        if is_first {
            worker.wake_timer();
        }
        Poll::Pending
    }

    /// The earliest deadline in effect and its owner: the one table of deadlines.
    fn next_deadline(&self, shutdown: ShutdownRequest) -> Option<(Deadline, Owner)> {
        let mut next = self.link.protocol.next_deadline().map(|it| (it, Owner::Protocol));
        let mut offer = |deadline: Deadline, owner| {
            if next.is_none_or(|(known, _)| deadline.at < known.at) {
                next = Some((deadline, owner));
            }
        };
        for exchange in self.exchanges.iter() {
            let Some(deadline) = exchange.next_deadline() else { continue };
            // A pause of ours ends only if the transport would take the bytes.
            if deadline.kind != DeadlineKind::Rate || !self.transport.is_full() {
                offer(deadline, Owner::Exchange(exchange.id));
            }
        }
        let protocol = &self.link.protocol;
        if shutdown == ShutdownRequest::Drain && protocol.closes_when_quiet() && protocol.is_idle()
        {
            // A session that drains and is idle ends at once, unless its client was here a moment ago: then
            // the next request may be on its way, and a close would reset it.
            let is_shaking_hands = match self.transport.secured() {
                Secured::No => false,
                Secured::NotYet => true,
                Secured::By(_) | Secured::NotThoughItShould => self.flags.is_undecided,
            };
            let quiet = if is_shaking_hands { HANDSHAKE_QUIET } else { DRAIN_QUIET };
            let at = self.active + quiet;
            offer(Deadline { at, kind: DeadlineKind::Shutdown }, Owner::Drain);
        }
        next
    }

    /// Acts on what the engine says. Body bytes are handed over where they are received.
    pub(crate) fn handle(&mut self, event: &Event, now: Moment) {
        let (id, input) = match *event {
            Event::Request(id) => {
                if self.link.protocol.is_multiplexed() && self.is_stream_refused() {
                    return self.link.break_off(id, CloseReason::TooMany, now);
                }
                self.judge_again();
                self.link.admit(now);
                (id, RouteInput::Request)
            }
            Event::Refused(id, refusal) => (id, RouteInput::Refused(refusal)),
            Event::ClientLost(id) => return self.lose_client(id, now),
            Event::Violation(what) => return self.tell_violation(what, now),
            Event::Body(..) | Event::Stored(..) | Event::BodyEnd(_) => return,
        };
        let at = self.exchange_at(id);
        let Self { link, exchanges, .. } = self;
        let Some(exchange) = exchanges.get_mut(at) else { return };
        if matches!(input, RouteInput::Request) {
            fault_injection::inject(link, &exchange.head);
        }
        exchange.drop_task();
        exchange.answer(link, input, now);
        self.settle(at);
    }

    /// A client's certificate is judged by the present configuration, not by an earlier one (S4).
    fn judge_again(&mut self) {
        let Some(facts) = &self.link.tls else { return };
        if facts.is_early
            && let Secured::By(now) = self.transport.secured()
        {
            // The handshake may be over by now.
            self.link.tls = Some(Arc::clone(now));
        }
        let Some(facts) = &self.link.tls else { return };
        let bound_site = self.link.listener_context.bound_site();
        if facts.judged_under == bound_site.site.serial() {
            return;
        }
        let listen = bound_site.listen(self.link.local);
        self.transport.judge_again(&Chooser { site: Arc::clone(&bound_site.site), listen });
        if let Secured::By(facts) = self.transport.secured() {
            self.link.tls = Some(Arc::clone(facts));
        }
    }

    /// The client of a request is lost: the task that works on it is told (L12).
    fn lose_client(&mut self, id: RequestId, now: Moment) {
        let Self { link, exchanges, .. } = self;
        match exchanges.find(id) {
            Some(at) => {
                if let Some(exchange) = exchanges.get_mut(at) {
                    exchange.lose_client(link, now);
                }
                self.settle(at);
            }
            None => link.break_off(id, CloseReason::PeerClosedEarly, now),
        }
    }

    /// The client has ended its side: what is of no use without it ends, unless `half_close` (H11, C6).
    pub(crate) fn lose_programs(&mut self, now: Moment) {
        let protocol = &self.link.protocol;
        let useless = |exchange: &&Exchange| {
            exchange.stops_with_client() && protocol.ends_with_input(exchange.id)
        };
        let lost: Vec<_> = self.exchanges.iter().filter(useless).map(|it| it.id).collect();
        for id in lost {
            self.lose_client(id, now);
        }
    }

    /// The index of this request's exchange; a new one for a new request.
    fn exchange_at(&mut self, id: RequestId) -> usize {
        if let Some(at) = self.exchanges.find(id) {
            return at;
        }
        let mut exchange = self.link.worker.borrow_exchange();
        let (_, buffers) = self.link.parts();
        exchange.id = id;
        std::mem::swap(Rc::make_mut(&mut exchange.head), &mut buffers.scratch.head);
        exchange.arrival = Arrival { since: buffers.since, is_pipelined: buffers.is_pipelined };
        exchange.received = std::mem::take(&mut buffers.received);
        self.exchanges.add(exchange)
    }

    /// Gives the exchange at this index back if it is over.
    pub(crate) fn settle(&mut self, at: usize) {
        if self.exchanges.get(at).is_some_and(|exchange| exchange.is_over)
            && let Some(exchange) = self.exchanges.remove(at)
        {
            self.link.worker.give_back_exchange(exchange);
        }
    }

    /// How many bytes the client took.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent.saturating_add(self.file_sent)
    }

    /// A graceful shutdown was requested: the answer that comes next says that it is the last.
    fn drain(&mut self, now: Moment) {
        // A response whose head has promised to go on is not the last one.
        let is_last = if self.link.protocol.is_multiplexed() {
            let (protocol, buffers) = self.link.parts();
            protocol.close_after_next(&mut buffers.scratch, now)
        } else {
            self.link.protocol.close_after_next(&mut Scratch::default(), now)
        };
        let mut sessions = self.link.worker.sessions.borrow_mut();
        if is_last && sessions.slot(self.link.key).session().running() > 0 {
            sessions.after(self.link.key, Fact::ShutdownAsked(Manner::Graceful));
        }
    }

    /// Tells every task to end; whether there was one.
    fn cancel_tasks(&mut self, cause: Cause, now: Moment) -> bool {
        let tell = |is_any, exchange: &mut Exchange| exchange.cancel_task(cause, now) || is_any;
        self.exchanges.iter_mut().fold(false, tell)
    }

    /// Takes over what a transport of datagrams has counted.
    fn count_datagrams(&mut self) {
        if let Some(datagrams) = self.transport.datagrams() {
            (self.received, self.sent) = datagrams.moved();
        }
    }

    /// Ends the session: the log says why, and its slot is free again.
    fn close(&mut self, reason: CloseReason, now: Moment) -> Poll<()> {
        self.count_datagrams();
        if self.wants_reset(reason) {
            self.transport.reset_on_close();
        } else if self.exchanges.is_empty() && !self.link.protocol.is_broken_off() {
            self.transport.end();
        }
        self.end_exchanges(now);
        // A transport that is lost unasked is a forceful shutdown (L12).
        let fact = Fact::ShutdownAsked(if reason == CloseReason::TransportLost {
            Manner::Forceful
        } else {
            Manner::Graceful
        });
        let worker = &self.link.worker;
        worker.sessions.borrow_mut().after(self.link.key, fact);
        self.link.tell(RequestId(0), || observe::Fact::Closed(reason), now);
        let counters = &worker.shared.counters;
        counters.close(reason);
        counters.received_bytes.fetch_add(self.received, Ordering::Relaxed);
        counters.sent_bytes.fetch_add(self.sent_bytes(), Ordering::Relaxed);
        let bound_site = self.link.listener_context.bound_site();
        if bound_site.site.log.wants(Level::Debug) {
            let message = format_args!("closed: {}", reason.tag());
            let stamp = worker.clock.stamp(now);
            bound_site.site.log.write(Level::Debug, stamp, Some(self.link.id), message);
        }
        Poll::Ready(())
    }

    /// The worker ends and leaves it behind: what is cut must not look complete (C5).
    pub(crate) fn abandon(mut self) {
        if self.link.protocol.is_cut() {
            self.transport.reset_on_close();
        }
    }

    /// Whether the coming close must be a reset: what is cut must not look complete (C5).
    fn wants_reset(&self, reason: CloseReason) -> bool {
        let is_late = matches!(reason, CloseReason::Expired(_));
        let resets_late = || {
            let bound_site = self.link.listener_context.bound_site();
            let location = self.exchanges.iter().next().map(|exchange| exchange.route.location);
            let location = location.unwrap_or_else(|| {
                let http = &bound_site.site.config().http;
                let server = http.listens[bound_site.listen(self.link.local)].default_server;
                http.servers[server.0 as usize].root
            });
            bound_site.site.location(location).settings.reset_timedout_connection
        };
        reason.wants_reset() || self.link.protocol.is_cut() || (is_late && resets_late())
    }

    /// The session ends: a request that was being answered gets its line all the same.
    pub(crate) fn end_exchanges(&mut self, now: Moment) {
        let Self { link, exchanges, .. } = self;
        for exchange in exchanges.iter_mut() {
            exchange.end(link, false, now);
        }
    }
}

impl<T> Drop for Connection<T> {
    fn drop(&mut self) {
        let worker = &self.link.worker;
        while let Some(at) = self.exchanges.places().next() {
            let Some(exchange) = self.exchanges.remove(at) else { break };
            worker.give_back_exchange(exchange);
        }
        if let Some(buffers) = self.link.buffers.take() {
            worker.give_back_buffers(buffers);
        }
        if self.stall.is_some() {
            worker.stalled.set(worker.stalled.get() - 1);
        }
        worker.shared.counters.activities.leave(self.link.activity);
        worker.sessions.borrow_mut().leave(self.link.key);
        worker.vacated.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        let (connection, slot) = (size_of::<Connection>(), size_of::<SessionSlot>());
        println!("connection {connection}, protocol {}, seat {slot}", size_of::<Protocol>());
        assert!(connection + slot <= 448);
    }
}
