//! The loop: send what is to be sent, feed the engine, let handlers work, read, as far as that goes without
//! waiting. Generic over the transport; requests are told apart by their ids.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sekisho_config::Level;
use sekisho_handler::task::{BodySink, rest};
use sekisho_http::Scratch;
use sekisho_lifecycle::{CloseReason, Moment, RequestId, Stage};

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::observe::Fact;
use crate::panic_report;
use crate::protocol::{Event, PREFACE};
use crate::tls::ALPN_HTTP2;
use crate::tls::acme::ALPN_ACME;
use crate::transport::{ClientTransport, Secured};

/// So much of files is sent before other sessions get their turn.
const FILE_TURN_BYTES: u64 = 2 << 20;
/// So many pipelined requests are answered before other sessions get their turn.
const TURN_REQUESTS: u32 = 128;

/// So long may services compute in one turn before other sessions get theirs (E4). What runs when it is over is not
/// interrupted.
const SERVICE_TURN_TIME: Duration = Duration::from_micros(500);

/// So many bytes of the preface of HTTP/2 are enough to tell it from a request line.
const PREFACE_ENOUGH: usize = 14;

/// What one turn may do before others have theirs.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) requests: u32,
    pub(crate) file_bytes: u64,
    /// Services may begin work until then.
    services_until: Moment,
    /// Some tasks did not have their turn.
    is_cut_short: bool,
    /// The transport takes nothing: what is answered now waits.
    is_blocked: bool,
}

impl<T: ClientTransport> Connection<T> {
    /// One turn: does all that needs no waiting. `Ready` is the end of the session.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<CloseReason> {
        if self.flags.awaits_proxy_header && self.link.protocol.stage() == Stage::Open {
            match ready!(self.transport.read_proxy_header()) {
                Ok(header) => self.note_proxied(header, now),
                Err(error) => return Poll::Ready(self.lose_transport(&error, now)),
            }
        }
        if self.flags.is_undecided
            && let Some(datagrams) = self.transport.datagrams()
            && let Some(error) = datagrams.handshake_error()
        {
            return Poll::Ready(self.lose_transport(&error, now));
        }
        let (requests, file_bytes) = (TURN_REQUESTS, FILE_TURN_BYTES);
        let services_until = now + SERVICE_TURN_TIME;
        let mut budget =
            Budget { requests, file_bytes, services_until, is_cut_short: false, is_blocked: false };
        loop {
            match self.write_out(now, &mut budget) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(self.lose_transport(&error, now)),
                // Where requests share the connection, input is taken before other sessions have their turn: a transport
                // that is never full would keep a new request from being read at all.
                Poll::Pending if budget.file_bytes == 0 => {
                    if self.link.protocol.is_multiplexed()
                        && let Some(reason) = self.take_meanwhile(cx, now, &mut budget)
                    {
                        return Poll::Ready(reason);
                    }
                    return rest(cx);
                }
                // A pause of `limit_rate` need not be waited out for a client that has reset the connection.
                Poll::Pending
                    if self.transport.is_lost() || self.link.protocol.has_lost_caller() =>
                {
                    return Poll::Ready(CloseReason::TransportLost);
                }
                Poll::Pending => {
                    if self.link.protocol.is_multiplexed()
                        && let Some(reason) = self.take_meanwhile(cx, now, &mut budget)
                    {
                        return Poll::Ready(reason);
                    }
                    return self.wait_to_send(cx, now);
                }
            }
            match self.link.protocol.stage() {
                Stage::Closed(reason) => return Poll::Ready(reason),
                Stage::Lingering if !self.flags.is_shut => {
                    self.transport.shut_down_write(!self.link.protocol.is_broken_off());
                    self.flags.is_shut = true;
                }
                Stage::Lingering | Stage::Open => {}
            }
            let is_fed = self.feed(cx, now, &mut budget);
            let happened = (is_fed && !self.has_task_begun()) || self.work(cx, now, &mut budget);
            if budget.requests == 0 {
                // Also where nothing came of it but that a service took its time: input that is here is not fed then.
                budget.requests = TURN_REQUESTS;
                // The answers so far leave first; then the others have their turn.
                if self.write_out(now, &mut budget).is_ready() {
                    return rest(cx);
                }
                continue;
            }
            if happened {
                continue;
            }
            if self.flags.has_input_ended {
                return Poll::Pending;
            }
            if let Some(reason) = ready!(self.take_input(cx, now)) {
                return Poll::Ready(reason);
            }
        }
    }

    /// Whether all that has come of the input is a task, which can go on at once: nothing is to be sent before.
    fn has_task_begun(&self) -> bool {
        let is_idle = |exchange: &Exchange| exchange.task.is_some() && exchange.pieces.is_empty();
        !self.link.protocol.is_multiplexed()
            && self.link.protocol.stage() == Stage::Open
            && self.link.buffers.as_ref().is_some_and(|buffers| buffers.unsent().is_empty())
            && self.exchanges.iter().any(is_idle)
    }

    /// The transport takes no more. What comes is taken all the same where requests share the connection: windows that
    /// open, resets and other requests must not wait for one that is read slowly, and no deadline may fall for what
    /// we have not read. The engine bounds what waits to be answered. `Some` is the end of the session.
    fn take_meanwhile(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        budget: &mut Budget,
    ) -> Option<CloseReason> {
        budget.is_blocked = true;
        while self.link.protocol.stage() == Stage::Open {
            if self.feed(cx, now, budget) || self.work(cx, now, budget) {
                if budget.is_cut_short {
                    // The others have their turn before these go on.
                    cx.waker().wake_by_ref();
                    return None;
                }
                continue;
            }
            let has_room = self.link.has_room(true);
            if self.flags.has_input_ended || budget.requests == 0 || !has_room {
                return None;
            }
            match self.take_input(cx, now) {
                Poll::Ready(None) => {}
                Poll::Ready(reason) => return reason,
                Poll::Pending => return None,
            }
        }
        None
    }

    /// The transport takes no more: handlers are held back until it does.
    fn wait_to_send(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<CloseReason> {
        let is_shared = self.link.protocol.is_multiplexed();
        for exchange in self.exchanges.iter_mut() {
            // One whose own answer does not wait has gone on as far as it can.
            exchange.hold_task(!is_shared || !exchange.pieces.is_empty(), now);
            exchange.absorb(cx, now);
        }
        match self.link.protocol.stage() {
            Stage::Closed(reason) => Poll::Ready(reason),
            Stage::Open | Stage::Lingering => Poll::Pending,
        }
    }

    /// Offers the engine what has been read, and acts on what comes of it, until it rests, a batch is full or
    /// something must be sent before it can go on. Whether anything happened.
    fn feed(&mut self, cx: &mut Context<'_>, now: Moment, budget: &mut Budget) -> bool {
        let mut happened = false;
        loop {
            if self.link.buffers.is_none() && self.link.protocol.has_work() {
                self.link.parts();
            }
            let Some(buffers) = &mut self.link.buffers else { return happened };
            if budget.requests == 0 || !buffers.has_room(budget.is_blocked) {
                return happened;
            }
            if self.flags.is_undecided && !self.choose_protocol() {
                return happened;
            }
            let Some(buffers) = &mut self.link.buffers else { return happened };
            if self.link.protocol.awaits_request() {
                if buffers.unread().is_empty() {
                    return happened;
                }
                (buffers.since, buffers.received) = (now, 0);
                buffers.is_pipelined = buffers.taken > 0;
            }
            let offered = buffers.unread().len();
            self.link.tell(RequestId(0), || Fact::Offered(offered), now);
            let Some(buffers) = &mut self.link.buffers else { return happened };
            let input = &buffers.input[buffers.taken..buffers.filled];
            let framed = buffers.scratch.out.len();
            let step = self.link.protocol.receive(input, &mut buffers.scratch, now);
            if step.is_rest() {
                // Frames that the engine made by itself, as at a deadline, leave in this turn (T4).
                let is_more = buffers.scratch.out.len() > framed;
                return self.link.protocol.may_send_more() || happened || is_more;
            }
            happened = true;
            let offered = buffers.taken;
            buffers.taken += step.taken;
            if self.exchanges.is_empty() {
                buffers.received += step.taken as u64;
            }
            let is_request = matches!(step.event, Some(Event::Request(_)));
            if is_request && self.link.protocol.is_multiplexed() {
                (buffers.since, buffers.received) = (now, step.taken as u64);
            }
            self.link.tell(RequestId(0), || Fact::Taken(step.taken), now);
            match step.event {
                // Bytes between events belong to the one request in work: framing of its body.
                None if self.link.protocol.is_multiplexed() => {}
                None => {
                    if let Some(exchange) = self.exchanges.iter_mut().next() {
                        exchange.received += step.taken as u64;
                    }
                }
                Some(Event::Body(id, range)) => {
                    let range = offered + range.start..offered + range.end;
                    self.offer_body(cx, id, step.taken, Some(range), &[], now);
                }
                Some(Event::Stored(id, bytes)) => {
                    self.offer_body(cx, id, step.taken, None, &bytes, now);
                }
                Some(Event::BodyEnd(id)) => {
                    if let Some(exchange) =
                        self.exchanges.find(id).and_then(|at| self.exchanges.get_mut(at))
                    {
                        exchange.received += step.taken as u64;
                        exchange.end_body(cx, now);
                    }
                }
                Some(event) => {
                    if is_request {
                        budget.requests -= 1;
                    }
                    self.handle(&event, now);
                }
            }
            self.note_services(budget);
        }
    }

    /// If services were at work, looks at the clock: whether their time in this turn is over.
    fn note_services(&self, budget: &mut Budget) -> bool {
        let worker = &self.link.worker;
        if !worker.native.has_service_worked.take() {
            return false;
        }
        let now = worker.clock.now();
        if let Some(said) = panic_report::take() {
            // Its caller has an answer; its author wants to know.
            let site = &self.link.listener_context.bound_site().site;
            let message = format_args!("a service panicked: {said}");
            site.log.write(Level::Error, worker.clock.stamp(now), Some(self.link.id), message);
        }
        if !budget.services_until.is_due(now) {
            return false;
        }
        budget.services_until = now + SERVICE_TURN_TIME;
        budget.requests = 0;
        true
    }

    /// Hands body bytes to the exchange that they belong to: a range of the input, or bytes that were kept.
    fn offer_body(
        &mut self,
        cx: &mut Context<'_>,
        id: RequestId,
        taken: usize,
        range: Option<std::ops::Range<usize>>,
        kept: &[u8],
        now: Moment,
    ) {
        let Self { link, exchanges, .. } = self;
        let Some(exchange) = exchanges.find(id).and_then(|at| exchanges.get_mut(at)) else {
            return;
        };
        exchange.received += taken as u64;
        let (protocol, buffers) = link.parts();
        let bytes = range.map_or(kept, |range| &buffers.input[range]);
        let used = exchange.offer_body(cx, bytes, now);
        if used < bytes.len() {
            protocol.hold_body(id, true, now);
        }
        protocol.consumed(id, used, &mut buffers.scratch, now);
    }

    /// Chooses the protocol by the first bytes; returns whether it is known now.
    fn choose_protocol(&mut self) -> bool {
        let Some(buffers) = &self.link.buffers else { return false };
        let said = buffers.unread();
        match self.transport.secured() {
            Secured::No => {}
            Secured::NotYet => return false,
            Secured::By(facts) => {
                // The handshake has chosen, before the first byte.
                self.flags.is_undecided = false;
                self.link.tls = Some(Arc::clone(facts));
                if facts.alpn == ALPN_ACME {
                    // No requests follow such a handshake (RFC 8737 §3).
                    self.link.protocol.abort(CloseReason::NotAdmitted);
                    return true;
                }
                if facts.alpn == ALPN_HTTP2 {
                    self.speak_http2();
                }
                return true;
            }
            Secured::NotThoughItShould => {
                self.flags.is_undecided = false;
                self.link.is_clear_by_mistake = true;
                // One request is answered; then the connection closes.
                self.link.protocol.close_after_next(&mut Scratch::default(), Moment::ZERO);
                return true;
            }
        }
        let common = said.len().min(PREFACE.len());
        if said.is_empty() {
            return false;
        }
        if said[..common] != PREFACE[..common] {
            self.flags.is_undecided = false;
            return true;
        }
        // A request line cannot begin with so much of it.
        if common < PREFACE_ENOUGH {
            return false;
        }
        self.flags.is_undecided = false;
        self.speak_http2();
        true
    }

    /// Lets the tasks go on as far as they can; whether anything happened. Where services take too long, those that did
    /// not have their turn come first the next time.
    fn work(&mut self, cx: &mut Context<'_>, now: Moment, budget: &mut Budget) -> bool {
        let places = self.exchanges.places();
        let mut happened = false;
        for at in places.clone().rev() {
            let Self { link, exchanges, .. } = self;
            let Some(exchange) = exchanges.get_mut(at) else { continue };
            happened |= exchange.work(cx, link, budget.is_blocked, now);
            self.settle(at);
            if self.note_services(budget) && at > places.start {
                self.exchanges.turn_round(at);
                budget.is_cut_short = true;
                return true;
            }
        }
        happened
    }

    /// Reads, if anything may come of it. `Ready(Some)` is the end of the session.
    fn take_input(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<CloseReason>> {
        let has_task = self.exchanges.iter().any(|exchange| exchange.task.is_some());
        let is_direct = has_task && self.is_body_in_memory(cx);
        let is_watched = has_task && !is_direct && self.may_watch();
        if !(self.link.protocol.wants_input() || is_watched) {
            let gone = if has_task { self.client_gone(is_direct) } else { None };
            return gone.map_or(Poll::Pending, |reason| Poll::Ready(Some(reason)));
        }
        if has_task {
            match ready!(self.take_direct_body(cx, now)) {
                Ok(Some(_)) => return Poll::Ready(None),
                Ok(None) => {}
                Err(_) => return Poll::Ready(Some(CloseReason::TransportLost)),
            }
        }
        match ready!(self.read()) {
            Ok(0) => {
                self.flags.has_input_ended = true;
                if let Some(event) = self.link.protocol.input_ended(now) {
                    self.handle(&event, now);
                }
                self.lose_programs(now);
            }
            Ok(count) => {
                self.active = now;
                self.received += count as u64;
            }
            Err(error) => return Poll::Ready(Some(self.lose_transport(&error, now))),
        }
        Poll::Ready(None)
    }

    /// While a task works the client is watched: if it goes, the task must know at once (L12). What the client
    /// sends meanwhile waits in the buffer, as far as that reaches; what more there is, in the transport, where
    /// [`Self::client_gone`] watches over it.
    fn may_watch(&self) -> bool {
        self.link.buffers.as_ref().is_none_or(|buffers| buffers.has_input_room())
    }

    /// Whether a task takes its body into memory, from where it is on its way to the disk. What more there is
    /// waits in the transport, and so does the end behind it: it says nothing about a body that is all there.
    #[inline(never)]
    fn is_body_in_memory(&mut self, cx: &mut Context<'_>) -> bool {
        self.exchanges
            .iter_mut()
            .filter_map(|exchange| exchange.task.as_mut())
            .any(|task| matches!(task.body_sink(cx), BodySink::Memory(_)))
    }

    /// How the client of a task has gone, if it has, although what it sent cannot be read to its end now (L12).
    fn client_gone(&self, is_direct: bool) -> Option<CloseReason> {
        if self.transport.is_lost() {
            return Some(CloseReason::TransportLost);
        }
        let protocol = &self.link.protocol;
        let ends = |exchange: &Exchange| {
            protocol.loses_by_fin(exchange.id)
                || (exchange.stops_with_client() && protocol.ends_with_input(exchange.id))
        };
        let is_lost_by_fin =
            self.transport.has_ended() && !is_direct && self.exchanges.iter().any(ends);
        is_lost_by_fin.then_some(CloseReason::PeerClosedEarly)
    }

    fn read(&mut self) -> Poll<io::Result<usize>> {
        let (_, buffers) = self.link.parts();
        let read = ready!(self.transport.read(buffers.room()))?;
        buffers.filled += read;
        Poll::Ready(Ok(read))
    }
}
