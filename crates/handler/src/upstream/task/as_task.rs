//! The request to a group as its connection sees it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sekisho_config::Family;
use sekisho_http::Status;
use sekisho_http::upstream::{Failure, Phase};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment};
use sekisho_route::body_facts::BodyFacts;
use sekisho_route::upstream_facts::{UpstreamFacts, UpstreamTry};
use sekisho_upstream::request::Order;

use super::{Advanced, Ending, Parts, Stage, UpstreamTask};
use crate::task::{BodyIn, Describe, Outbox, Progress, ReturnedBody, UpstreamView, Work};
use crate::upstream::body::Body;
use crate::upstream::engine::engine;
use crate::upstream::exchange::Exchange;
use crate::upstream::spool::Room;
use crate::upstream::stream::{ConnectError, Stream};
use crate::without;

impl UpstreamTask {
    /// Goes on as far as that is possible without waiting.
    pub(in crate::upstream) fn advance(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        now: Moment,
    ) -> Poll<Advanced> {
        let is_due = |deadline: Deadline| deadline.at.is_due(now);
        if self.is_held && self.next_deadline().is_some_and(is_due) {
            // The server is late, and nothing can be given to the client now.
            self.absorb(cx, now);
            return Poll::Pending;
        }
        if !self.spool.is_empty() {
            let taken = self.spool.poll_take(cx, &mut out.body);
            self.report_spool();
            match taken {
                Poll::Pending => return Poll::Pending,
                // What waits comes before what is read now.
                Poll::Ready(Ok(())) if !self.spool.is_empty() => {
                    return Poll::Ready(Advanced::Progress(Progress::Body));
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.spool_failed(&error, now),
            }
        }
        loop {
            let is_more = matches!(self.parts.stage, Stage::Exchanging(..))
                && self.head.is_none()
                && !Self::is_enough(out.body.len())
                && self.ending.is_none();
            if !is_more && let Some(advanced) = self.next(out) {
                return Poll::Ready(advanced);
            }
            match self.step(cx, out, now) {
                Poll::Ready(Order::Nothing) => {}
                Poll::Ready(order) => self.carry_out(order, out, now),
                Poll::Pending => {
                    return self.next(out).map_or(Poll::Pending, Poll::Ready);
                }
            }
        }
    }

    /// One step of the present stage, and what is to be done then.
    fn step(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Order> {
        match &mut self.parts.stage {
            Stage::Exchanging(..) => {
                let room = Self::hand_on_bytes().saturating_sub(out.body.len());
                return self.exchange_step(cx, out, room, now);
            }
            Stage::Gathering(body) => match ready!(body.poll_gathered(cx)) {
                Ok(gathered) => self.gathered(gathered),
                Err(error) => self.gathering_failed(&error),
            },
            Stage::Ready if self.parts.resolving.is_some() => ready!(self.resolve(cx, now)),
            Stage::Ready => {
                let Parts { group, machine, pools, .. } = &mut self.parts;
                return Poll::Ready(machine.start(&group.balancer, now, || pools.random()));
            }
            Stage::Connecting(peer, connecting) => {
                let peer = *peer;
                let connected = match connecting.as_mut().poll(cx) {
                    Poll::Ready(connected) => connected,
                    Poll::Pending => {
                        let deadline = self.parts.machine.next_deadline();
                        if !deadline.is_some_and(|deadline| deadline.at.is_due(now)) {
                            return Poll::Pending;
                        }
                        let late = self.fail(Failure::ConnectTimeout, Phase::Connecting, now);
                        return Poll::Ready(late);
                    }
                };
                return Poll::Ready(self.connected(peer, connected, cx, now));
            }
            Stage::Ended => {
                if !self.is_storing() {
                    return Poll::Pending;
                }
                ready!(self.poll_stored(cx, now));
            }
        }
        Poll::Ready(Order::Nothing)
    }

    /// The attempt to connect is over.
    fn connected(
        &mut self,
        peer: usize,
        connected: Result<Stream, ConnectError>,
        cx: &Context<'_>,
        now: Moment,
    ) -> Order {
        match connected {
            Ok(stream) => {
                let Parts { pass, pools, .. } = &self.parts;
                let engine = engine(pass.family, &pass.forward, self.parts.secure.is_some());
                let exchange = Exchange::connected(stream, engine, pools.borrow_work(), now);
                self.exchange(peer, exchange, false, now);
                if std::mem::take(&mut self.awaits_room) {
                    cx.waker().wake_by_ref();
                }
                Order::Nothing
            }
            Err(error) => self.connect_failed(peer, error, now),
        }
    }
}

impl Work for UpstreamTask {
    without!(narrow, is_service, conclude);

    fn stops_with_client(&self) -> bool {
        // What a client said before it ended its side of a tunnel still arrives.
        !self.is_tunnel
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        match ready!(self.advance(cx, out, now)) {
            Advanced::Progress(progress) => Poll::Ready(progress),
            // Only a request for a cache has a stored response, and its task asks for it.
            Advanced::ServeStored(_) => Poll::Ready(Progress::Break),
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        self.is_held = is_held;
        if is_held {
            self.give_back_input();
        }
        if !is_held || !self.buffers() {
            self.hold_engine(is_held, now);
        }
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        if !self.buffers() {
            return;
        }
        let forward = &self.parts.pass.forward;
        let room = Room { memory: forward.buffers_bytes, file: forward.temp_file_bytes_max };
        while matches!(self.parts.stage, Stage::Exchanging(..)) && self.head.is_none() {
            let bytes_max = self.spool.room(cx, room);
            self.report_spool();
            if bytes_max == 0 {
                self.give_back_input();
                return self.hold_engine(true, now);
            }
            self.hold_engine(false, now);
            let mut made = Outbox::default();
            std::mem::swap(&mut made.body, self.spool.end());
            let step = self.exchange_step(cx, &mut made, bytes_max, now);
            if let Poll::Ready(order) = step {
                self.carry_out(order, &mut made, now);
            }
            std::mem::swap(&mut made.body, self.spool.end());
            if step.is_pending() {
                return;
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        match &self.parts.stage {
            Stage::Connecting(..) => self.parts.machine.next_deadline(),
            Stage::Exchanging(_, exchange) => {
                let pause = self.resumes.map(|at| Deadline { at, kind: DeadlineKind::Rate });
                pause.or_else(|| exchange.next_deadline())
            }
            Stage::Ready => {
                let (_, since) = self.parts.resolving.as_ref()?;
                let names = self.parts.group.names.as_ref()?;
                let at = *since + names.timeout();
                Some(Deadline { at, kind: DeadlineKind::UpstreamConnect })
            }
            // The client's own deadlines run while its body is awaited.
            Stage::Gathering(_) | Stage::Ended => None,
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.parts.machine.abandoned(&self.parts.group.balancer, now);
        if cause == Cause::ClientLost {
            return self.end(Ending::Break);
        }
        let ending = if self.is_head_given {
            Ending::Break
        } else {
            Ending::Fail(Status::SERVICE_UNAVAILABLE)
        };
        self.end(ending);
    }
}

impl BodyIn for UpstreamTask {
    without!(body_sink, direct_bytes_done);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        match &mut self.parts.stage {
            Stage::Gathering(body) => match body.take(cx, bytes) {
                Ok(taken) => taken,
                Err(error) => {
                    self.gathering_failed(&error);
                    bytes.len()
                }
            },
            Stage::Exchanging(..) if self.replayed < self.streamed.bytes().len() => {
                self.awaits_room = true;
                0
            }
            Stage::Exchanging(_, exchange)
                if self.is_tunnel || matches!(self.parts.body, Body::Stream(_)) =>
            {
                let taken = exchange.take(bytes, now);
                if !self.is_tunnel {
                    self.remember(&bytes[..taken]);
                }
                self.awaits_room = taken < bytes.len();
                // It leaves with the next poll.
                cx.waker().wake_by_ref();
                taken
            }
            Stage::Ready | Stage::Connecting(..) if matches!(self.parts.body, Body::Stream(_)) => {
                self.awaits_room = true;
                0
            }
            // The body is not needed.
            _ => bytes.len(),
        }
    }

    fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.parts.has_body_ended = true;
        if self.is_tunnel {
            self.is_tunnel_ending = true;
            cx.waker().wake_by_ref();
            return;
        }
        match &mut self.parts.stage {
            Stage::Gathering(body) => body.end(),
            Stage::Exchanging(_, exchange) if !exchange.is_request_framed() => {
                if self.replayed >= self.streamed.bytes().len() {
                    let _ = exchange.end_body(now);
                }
                cx.waker().wake_by_ref();
            }
            _ => {}
        }
    }

    fn return_body(&mut self) -> ReturnedBody {
        let is_passed = self.passes_body();
        let Parts { body, unsent, .. } = &mut self.parts;
        let body = std::mem::take(if is_passed { body } else { unsent });
        body.give_back(&mut self.streamed)
    }
}

impl Describe for UpstreamTask {
    without!(plain_bytes, describe_subrequests);

    fn name(&self) -> &'static str {
        match self.parts.pass.family {
            Family::Proxy => "proxy",
            family => family.name(),
        }
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        let Parts { group, machine, .. } = &self.parts;
        let (server, since) = match &self.parts.stage {
            Stage::Connecting(peer, _) | Stage::Exchanging(peer, _) => {
                (&group.addresses.get(*peer)?.1, machine.tries().last()?.started)
            }
            Stage::Ready => (&group.name, self.parts.resolving.as_ref()?.1),
            Stage::Gathering(_) | Stage::Ended => return None,
        };
        Some(UpstreamView {
            server: Arc::clone(server),
            attempt: machine.tries().len(),
            age: now.since(since),
            deadline: self.next_deadline(),
        })
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        let Parts { group, machine, .. } = &self.parts;
        let before = facts.settled;
        facts.tries.truncate(before);
        for (at, one) in machine.tries().iter().enumerate() {
            let peer = one.peer.and_then(|peer| group.addresses.get(peer));
            let mut counts = self.past_counts.get(at).copied().unwrap_or(self.counts);
            if at + 1 == machine.tries().len()
                && let Stage::Exchanging(_, exchange) = &self.parts.stage
            {
                (counts.received, counts.sent) = (exchange.received, exchange.sent);
            }
            facts.tries.push(UpstreamTry {
                name: Arc::clone(peer.map_or(&group.name, |(_, name)| name)),
                status: one.status,
                connect_time: one.connect_time,
                header_time: one.header_time,
                response_time: one.response_time,
                received: counts.received,
                body: counts.body,
                sent: counts.sent,
                is_elsewhere: before > 0 && facts.tries.len() == before,
            });
        }
        if !self.trailers.is_empty() {
            facts.trailers.clone_from(&self.trailers);
        }
        if let Stage::Exchanging(_, exchange) = &self.parts.stage {
            facts.fields.clear();
            facts.fields.extend_from(&exchange.work.scratch.head.fields);
        } else if !self.answered.is_empty() {
            facts.fields.clone_from(&self.answered);
        }
    }

    fn describe_body(&self, facts: &mut BodyFacts) {
        if let Some(bytes) = self.streamed.whole().filter(|_| self.parts.has_body_ended) {
            facts.bytes = Some(Arc::new(bytes.to_vec()));
        } else if self.received != BodyFacts::default() {
            facts.clone_from(&self.received);
        }
    }
}
