//! The server's side of one session: the real engine, driven as `endpoint/connection.rs` drives it, with
//! services that follow their scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use sekisho_lifecycle::{Cause, CloseReason, DeadlineKind, Engine, Manner, Moment, Session, Stage};
use sekisho_native::{Event, Scratch, Server};

use super::plan::{Act, Plan, PlannedClient};
use super::timeline::{Frames, Timeline};
use super::work::{Done, Work, record};
use super::{Actor, Link, Sim};
use crate::network::Read;
use crate::{Fault, RunStats};

/// What one read takes at the most.
const INPUT_BYTES: usize = 8 * 1024;
/// What [`Fault::ExpiryEarly`] and [`Fault::ExpiryLate`] are wrong by.
const WRONG_BY: Duration = Duration::from_millis(1);

/// One session, seen from the server.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct ServerSession {
    client: usize,
    server: Server,
    out: Scratch,
    input: Vec<u8>,
    pieces: Vec<u8>,
    works: Vec<Work>,
    /// What became of each request that came in, by its number with the client.
    pub(super) done: BTreeMap<usize, Done>,
    timeline: Timeline,
    outgoing: Frames,
    is_shut: bool,
    is_admitted: bool,
    /// Requests that were cancelled from outside.
    cancelled_outside: Vec<usize>,
    /// The transport is gone, for this reason.
    pub(super) reason: Option<CloseReason>,
    /// A forced end was asked for, or the peer was lost.
    pub(super) is_forced: bool,
    is_reclaimed: bool,
    was_lost: bool,
}

impl ServerSession {
    /// A peer that has just connected.
    pub(super) fn new(client: usize, plan: &Plan, stats: &mut RunStats, now: Moment) -> Self {
        stats.sessions += 1;
        Self {
            client,
            server: Server::new(plan.policy.clone(), now),
            out: Scratch::default(),
            input: Vec::new(),
            pieces: Vec::new(),
            works: Vec::new(),
            done: BTreeMap::new(),
            timeline: Timeline::new(plan.policy.clone(), now),
            outgoing: Frames::default(),
            is_shut: false,
            is_admitted: false,
            cancelled_outside: Vec::new(),
            reason: None,
            is_forced: false,
            is_reclaimed: false,
            was_lost: false,
        }
    }

    /// The client has asked for a longer life.
    pub(super) fn expect_extension(&mut self, length: Duration) {
        self.timeline.expect_extension(length);
    }

    /// The server acts on the session.
    pub(super) fn act(&mut self, act: Act, sim: &mut Sim) {
        let now = sim.now;
        match act {
            Act::ShutDownFromOutside(manner) => {
                sim.say(|| format!("server {} is to end: {manner:?}", self.client));
                if sim.has(Fault::GraceCancels) && manner == Manner::Graceful {
                    for work in &self.works {
                        self.server.cancel(work.id, Cause::Shutdown, now);
                    }
                }
                self.server.shut_down(manner, now);
            }
            Act::CancelFromOutside(ask) => {
                if let Some(work) =
                    self.works.iter().find(|work| work.ask == ask && !work.is_gone())
                {
                    self.cancelled_outside.push(ask);
                    self.server.cancel(work.id, Cause::Operator, now);
                }
            }
            _ => {}
        }
    }

    /// Goes on as far as bytes, services and deadlines allow.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        planned: &PlannedClient,
        stats: &mut RunStats,
        sim: &mut Sim,
    ) {
        let bound = sim.steps + 3000 + 8 * link.up.unread() as u64;
        loop {
            sim.steps += 1;
            if sim.steps > bound {
                return sim.violate(|| "a turn does not come to its end".into());
            }
            let mut has_moved = self.feed(planned, stats, sim);
            has_moved |= self.work(sim);
            has_moved |= self.flush(link, sim);
            self.follow_stage(link, sim);
            if has_moved || self.read(link, planned, stats, sim) {
                continue;
            }
            self.rest(sim);
            if !self.expire(planned, stats, sim) {
                break;
            }
        }
        self.agree(sim);
        let mut next = self.server.next_deadline().map(|deadline| deadline.at);
        if sim.has(Fault::ExpiryLate) {
            next = next.map(|at| at + WRONG_BY);
        }
        if sim.has(Fault::ExpiryEarly) {
            next = next.map(|at| Moment::from_nanos(at.as_nanos().saturating_sub(1_000_000)));
        }
        let works = self.works.iter().filter_map(Work::next_wake).min();
        for at in [next, works, link.up.next_arrival()].into_iter().flatten() {
            sim.wake(Actor::ServerSession(self.client), at);
        }
    }

    fn feed(&mut self, planned: &PlannedClient, stats: &mut RunStats, sim: &mut Sim) -> bool {
        let mut happened = false;
        loop {
            sim.steps += 1;
            let now = sim.now;
            let before = self.out.out.len();
            let step = self.server.receive(&self.input, &mut self.out, now);
            self.note_output(before, now);
            if step.is_rest() {
                return happened;
            }
            happened = true;
            self.timeline.took(step.taken, now);
            if let Some(
                Event::Piece(range)
                | Event::Request { body: range, .. }
                | Event::Data { body: range, .. },
            ) = &step.event
            {
                self.pieces.extend_from_slice(&self.input[range.clone()]);
            }
            self.input.drain(..step.taken);
            self.see(step.event, planned, stats, sim);
        }
    }

    fn note_output(&mut self, before: usize, now: Moment) {
        let after = self.out.out.len();
        if self.server.stay().asked() == Some(Manner::Forceful) {
            self.timeline.is_forced();
        }
        if after > before {
            self.outgoing.see(&self.out.out[before..after]);
            if self.outgoing.has_bye {
                self.timeline.over();
            }
            self.timeline.puts(now);
        }
    }

    fn see(
        &mut self,
        event: Option<Event>,
        planned: &PlannedClient,
        stats: &mut RunStats,
        sim: &mut Sim,
    ) {
        let Some(event) = event else { return };
        let (client, now) = (self.client, sim.now);
        sim.say(|| format!("server {client}: {event:?}"));
        match event {
            Event::Hello(_) => {
                let before = self.out.out.len();
                self.server.admit(client as u64 + 1, &mut self.out, now);
                self.is_admitted = true;
                self.timeline.admitted(now);
                self.note_output(before, now);
            }
            Event::Piece(_) | Event::Bug(..) => {}
            Event::Request { id, .. } => {
                stats.requests += 1;
                let body = std::mem::take(&mut self.pieces);
                let name = body.first_chunk().map(|name| u64::from_le_bytes(*name) as usize);
                let ask = name.and_then(|name| Some((name, planned.asks.get(name)?)));
                let Some((name, ask)) = ask.filter(|(name, ask)| {
                    body.len() == ask.bytes && body[8..].iter().all(|byte| *byte == *name as u8)
                }) else {
                    return sim.violate(|| format!("a request that no client made: {body:?}"));
                };
                let is_new = self.done.insert(name, Done::default()).is_none();
                sim.demand(is_new, || format!("request {name} came a second time"));
                self.works.push(Work::new(id, name, ask.script, now));
            }
            Event::Refused(_) | Event::Discarded => self.pieces.clear(),
            Event::Data { id, .. } => {
                let part = std::mem::take(&mut self.pieces);
                let Some(ask) = self.works.iter().find(|work| work.id == id).map(|work| work.ask)
                else {
                    return sim.violate(|| format!("{id} has a body, and no task works on it"));
                };
                let before = self.out.out.len();
                self.server.body_taken(id, part.len(), &mut self.out, now);
                self.note_output(before, now);
                let done = self.done.entry(ask).or_default();
                let count = done.parts;
                let is_right = part == record(ask, count, part.len());
                sim.demand(is_right && !done.is_body_complete, || {
                    format!("part {count} of request {ask} is another")
                });
                done.parts += 1;
            }
            Event::DataEnded(id) => {
                let Some(ask) = self.works.iter().find(|work| work.id == id).map(|work| work.ask)
                else {
                    return;
                };
                let planned = planned.asks.get(ask).and_then(|ask| ask.upload);
                let done = self.done.entry(ask).or_default();
                let is_all = planned.is_some_and(|(count, ..)| count == done.parts);
                let is_first = !std::mem::replace(&mut done.is_body_complete, true);
                sim.demand(is_all && is_first, || {
                    format!("the body of request {ask} is complete, and is not: {planned:?}")
                });
            }
            Event::Cancelled(id, cause) => {
                if sim.has(Fault::CancelLost) {
                    return;
                }
                let Some(work) = self.works.iter_mut().find(|work| work.id == id) else {
                    return sim
                        .violate(|| format!("{id} is told to cancel, and no task works on it"));
                };
                let (ask, is_second) = (work.ask, work.is_cancelled);
                work.cancel(now);
                stats.cancels += 1;
                if let Some(done) = self.done.get_mut(&ask) {
                    done.is_cancelled = true;
                }
                sim.demand(!is_second, || format!("request {ask} is told to cancel twice"));
                let is_forced = self.server.stay().asked() == Some(Manner::Forceful);
                let has_cause = match cause {
                    Cause::ClientAsked => {
                        planned.acts.iter().any(|(_, act)| *act == Act::Cancel(ask))
                    }
                    Cause::Operator => self.cancelled_outside.contains(&ask),
                    Cause::Shutdown | Cause::ClientLost | Cause::Deadline => is_forced,
                };
                sim.demand(has_cause, || {
                    format!("request {ask} was cancelled: {cause:?}, without a cause")
                });
            }
            Event::ChannelMoved(id) => {
                if let Some(work) = self.works.iter_mut().find(|work| work.id == id) {
                    work.channel_moved(now);
                }
            }
        }
    }

    fn work(&mut self, sim: &mut Sim) -> bool {
        let mut happened = false;
        for at in 0..self.works.len() {
            let before = self.out.out.len();
            let work = &mut self.works[at];
            if let Some(done) = self.done.get_mut(&work.ask) {
                let records = done.records;
                happened |= work.poll(&mut self.server, &mut self.out, done, sim);
                let drains = self.server.stay().asked() == Some(Manner::Graceful);
                if done.records > records && drains {
                    self.timeline.record(work.record_bytes(), sim.now);
                }
            }
            self.note_output(before, sim.now);
        }
        self.works.retain(|work| !work.is_gone());
        happened
    }

    fn flush(&mut self, link: &mut Link, sim: &mut Sim) -> bool {
        let (mut happened, now) = (false, sim.now);
        loop {
            if self.server.stage() != Stage::Open || self.reason.is_some() {
                self.out.out.clear();
                return happened;
            }
            if self.out.out.is_empty() {
                // The server, which lost it, believes that it was sent.
                if sim.has(Fault::ResultLost) || sim.has(Fault::RecordLost) {
                    self.server.transmitted(0, false, now);
                    self.timeline.sent(0, false, now);
                }
                return happened;
            }
            if link.up.is_reset() {
                self.server.transport_lost(CloseReason::TransportLost, now);
                self.timeline.over();
                return true;
            }
            let Some(moved) = link.down.send(&self.out.out, now, &mut sim.rng) else {
                self.server.transmitted(0, true, now);
                self.timeline.sent(0, true, now);
                return happened;
            };
            sim.wake(Actor::Client(self.client), link.down.next_arrival().unwrap_or(now));
            happened = true;
            self.out.out.drain(..moved);
            let is_pending = !self.out.out.is_empty();
            self.timeline.sent(moved as u64, is_pending, now);
            self.server.transmitted(moved as u64, is_pending, now);
        }
    }

    fn read(
        &mut self,
        link: &mut Link,
        planned: &PlannedClient,
        stats: &mut RunStats,
        sim: &mut Sim,
    ) -> bool {
        if self.reason.is_some() || !self.server.wants_input() {
            return false;
        }
        let before = self.input.len();
        match link.up.read(INPUT_BYTES, &mut self.input) {
            Read::Nothing => false,
            Read::Bytes(count) => {
                sim.say(|| format!("server {} reads {count} bytes", self.client));
                self.timeline.read(&self.input[before..]);
                if link.up.has_room_for_sender() {
                    sim.wake(Actor::Client(self.client), sim.now + link.down.latency_min());
                }
                true
            }
            Read::End => {
                let event = self.server.input_ended(sim.now);
                self.see(event, planned, stats, sim);
                true
            }
            Read::Reset => {
                self.server.transport_lost(CloseReason::TransportLost, sim.now);
                true
            }
        }
    }

    fn follow_stage(&mut self, link: &mut Link, sim: &mut Sim) {
        let now = sim.now;
        self.was_lost |= self.server.stay().is_lost();
        self.is_forced |= self.server.stay().asked() == Some(Manner::Forceful);
        match self.server.stage() {
            Stage::Open => {}
            Stage::Lingering => {
                self.timeline.lingers(now);
                if !std::mem::replace(&mut self.is_shut, true) {
                    link.down.end(now, &mut sim.rng);
                }
            }
            Stage::Closed(reason) => {
                self.timeline.over();
                if self.reason.is_none() {
                    sim.say(|| format!("server {} closes: {reason:?}", self.client));
                    self.reason = Some(reason);
                    let has_lost = link.up.close_reader();
                    if reason.wants_reset() || has_lost {
                        link.down.reset(now, &mut sim.rng);
                    } else {
                        link.down.end(now, &mut sim.rng);
                    }
                }
            }
        }
        sim.wake(Actor::Client(self.client), link.down.next_arrival().unwrap_or(now).max(now));
    }

    fn rest(&mut self, sim: &mut Sim) {
        let stage = self.server.stage();
        let is_full = stage == Stage::Open && !self.server.wants_input();
        let stay = self.server.stay();
        let running = stay.running();
        let waiting = self.works.iter().filter(|work| work.waits_for_client()).count();
        let waits = stage == Stage::Open
            && stay.asked() == Some(Manner::Graceful)
            && (stay.is_waiting_for_channels() || (running > 0 && waiting >= running));
        self.timeline.rests(is_full, waits, sim.now);
        for work in &self.works {
            let is_untold =
                self.server.is_cancelled(work.id) && !work.is_cancelled && !work.is_gone();
            let has_answer = self.done.get(&work.ask).is_some_and(|done| done.answer.is_some());
            sim.demand(!is_untold || has_answer, || {
                format!("request {} is cancelled, and its service does not know", work.ask)
            });
        }
    }

    fn expire(&mut self, planned: &PlannedClient, stats: &mut RunStats, sim: &mut Sim) -> bool {
        let mut now = sim.now;
        if sim.has(Fault::ExpiryEarly) {
            now = now + WRONG_BY;
        }
        let late = sim.has(Fault::ExpiryLate);
        let is_due = |at: Moment| if late { (at + WRONG_BY).is_due(now) } else { at.is_due(now) };
        let Some(deadline) = self.server.next_deadline().filter(|deadline| is_due(deadline.at))
        else {
            return false;
        };
        stats.deadlines += 1;
        let (right, really) = (self.timeline.next(), sim.now);
        sim.say(|| format!("server {}: {:?} falls", self.client, deadline.kind));
        sim.demand(right == Some((really, deadline.kind)), || {
            format!("{:?} fell at {really:?}, and was due at {right:?}", deadline.kind)
        });
        let event = self.server.expire(now);
        if deadline.kind == DeadlineKind::Frame || deadline.kind == DeadlineKind::Handshake {
            self.timeline.over();
        }
        if deadline.kind == DeadlineKind::Session {
            self.timeline.life_is_over();
        }
        self.see(event, planned, stats, sim);
        true
    }

    /// At rest the engine has the deadline that the timeline has.
    fn agree(&self, sim: &mut Sim) {
        let engine = self.server.next_deadline().map(|deadline| deadline.at);
        let right = if self.reason.is_some() { None } else { self.timeline.next() };
        sim.demand(engine == right.map(|(at, _)| at), || {
            let is = self.server.next_deadline();
            format!("server {}: the deadline should be {right:?} and is {is:?}", self.client)
        });
        let lanes = self.server.lanes().len();
        sim.demand(lanes <= self.works.len() + self.done.len(), || format!("{lanes} lanes"));
    }

    /// Whether its peer was lost, or broke the protocol: what it was owed is thrown away.
    pub(super) fn was_lost(&self) -> bool {
        self.server.stay().is_lost() || self.was_lost
    }

    /// The listener's side comes round.
    pub(super) fn reclaim(&mut self, sim: &Sim) {
        if !(sim.has(Fault::NotReclaimed) && self.reason == Some(CloseReason::TransportLost)) {
            self.is_reclaimed |= self.server.reclaim(sim.now);
        }
    }

    /// What must hold when all is over.
    pub(super) fn settle(&self, sim: &mut Sim) {
        let state = self.server.stay().session();
        let (client, works, lanes) = (self.client, self.works.len(), self.server.lanes().len());
        let is_empty = works == 0 && lanes == 0 && state == Session::Vacant;
        sim.demand(self.reason.is_some() && is_empty && self.is_reclaimed, || {
            format!(
                "session {client} was not released: {:?}, {state}, {works} works, {lanes} lanes",
                self.reason
            )
        });
    }
}
