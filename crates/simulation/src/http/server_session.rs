//! One session of the model server: the real engine, driven as `net/drive.rs` drives it. One turn flushes,
//! feeds, lets the task work and reads; only then do deadlines act (T3).

use std::sync::Arc;
use std::time::Duration;

use sekisho_http1::{Event, Http1, Scratch};
use sekisho_lifecycle::drain;
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{
    CloseReason, Deadline, DeadlineKind, Engine, Manner, Moment, Session, Stage,
};

use super::model_server::{ModelServer, ModelShutdown};
use super::plan::PlannedClient;
use super::record::Record;
use super::timeline::Timeline;
use super::work::Task;
use super::{Actor, Link, Sim};
use crate::Fault;
use crate::network::Read;

/// What one read takes at the most.
const INPUT_BYTES: usize = 16 * 1024;
/// Answers of a batch are written together up to about this size.
const BATCH_BYTES: usize = 4096;
/// A client that was here so shortly ago may have sent its next request before it can know that we drain.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long an answer may take to leave when the end is forced.
const FORCE_PATIENCE: Duration = Duration::from_secs(1);
/// The instants of the engine and of the timeline may differ by the rounding of a rate.
const ROUNDING_NANOS: u64 = 1000;
/// What [`Fault::DeadlineEarly`] and [`Fault::DeadlineLate`] are wrong by.
const WRONG_BY: Duration = Duration::from_millis(1);
/// What [`Fault::DripExtends`] gives for each byte.
const EXTENDED_BY: Duration = Duration::from_millis(200);

/// What a session has while there is something to do.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// What was read and not taken.
    pub(super) input: Vec<u8>,
    /// As the engine wants it.
    pub(super) scratch: Scratch,
    /// What is left of a file that leaves behind the output.
    pub(super) file: Option<File>,
    /// Who works on the request.
    pub(super) task: Option<Task>,
    /// What it has not taken of the body.
    pub(super) body: Vec<u8>,
    /// The body is complete.
    pub(super) has_body_ended: bool,
    pub(super) is_task_held: bool,
    /// Where the last whole answer in the output begins.
    pub(super) last_answer: Option<usize>,
}

/// A file on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// One session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct ServerSession {
    pub(super) client: usize,
    pub(super) engine: Http1,
    pub(super) busy: Option<Box<Busy>>,
    session: Session,
    pub(super) timeline: Timeline,
    active: Moment,
    is_shut: bool,
    is_one_too_many: bool,
    /// When a task of it last ended.
    pub(super) worked_at: Option<Moment>,
    has_input_ended: bool,
    /// The request in work.
    pub(super) current: Option<usize>,
    /// The handler wants its body, up to this byte of the stream.
    pub(super) is_body_taken: bool,
    pub(super) over_at: Option<usize>,
    /// Some of its body has not been taken by the engine.
    pub(super) has_more_body: bool,
    /// Its response has begun, and is complete.
    pub(super) is_answered: bool,
    pub(super) is_finished: bool,
    /// How many bytes the engine has taken.
    pub(super) taken: usize,
    /// What became of it.
    pub(super) record: Record,
}

impl ServerSession {
    /// A connection that was just accepted.
    pub(super) fn new(client: usize, server: &mut ModelServer, sim: &mut Sim) -> Self {
        let policy = Arc::clone(server.policy(0));
        server.stats.sessions += 1;
        let is_one_too_many = server.drain.left() >= server.sessions_max as u64;
        server.tell(drain::Fact::Began, sim);
        let mut server_session = Self {
            client,
            engine: Http1::new(Arc::clone(&policy), sim.now),
            busy: None,
            session: Session::Vacant,
            timeline: Timeline::new(policy, sim.now),
            active: sim.now,
            is_shut: false,
            has_input_ended: false,
            current: None,
            is_body_taken: false,
            over_at: None,
            has_more_body: false,
            is_answered: false,
            is_finished: false,
            taken: 0,
            is_one_too_many,
            worked_at: None,
            record: Record::default(),
        };
        server_session.tell(Fact::Connected, sim);
        server_session
    }

    /// Whether it has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.record.reason.is_some()
    }

    /// Whether nothing is in work and nothing is to be sent.
    pub(super) const fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// Goes on as far as bytes, answers and deadlines allow.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        planned: &PlannedClient,
        server: &mut ModelServer,
        sim: &mut Sim,
    ) {
        let shutdown = server.shutdown;
        match shutdown {
            ModelShutdown::Continue => {}
            ModelShutdown::Drain if sim.has(Fault::IdleForgotten) && self.engine.is_idle() => {}
            ModelShutdown::Drain => self.drain(sim),
            ModelShutdown::Force if self.cancel_task(server, sim) => self.drain(sim),
            ModelShutdown::Force if sim.has(Fault::ForceWaits) => self.drain(sim),
            ModelShutdown::Force => return self.close(CloseReason::Forced, link, server, sim),
        }
        if std::mem::take(&mut self.is_one_too_many) {
            // Told once; from here on it is an ordinary connection that closes.
            self.record.was_one_too_many = true;
            let event = self.engine.refuse_connection();
            self.see(Some(&event), planned, server, sim);
        }
        loop {
            if let Some(reason) = self.turn(link, planned, server, sim) {
                return self.close(reason, link, server, sim);
            }
            if !self.expire(planned, server, sim) {
                break;
            }
        }
        let has_all = self.engine.stage() == Stage::Lingering || self.engine.is_idle();
        if shutdown == ModelShutdown::Force && has_all {
            return self.close(CloseReason::Forced, link, server, sim);
        }
        if self.busy.as_ref().is_some_and(|busy| self.is_done(busy)) {
            self.give_back(server, sim);
        }
        let is_idle_and_holds =
            self.engine.is_idle() && self.busy.as_ref().is_some_and(|busy| busy.input.is_empty());
        let idle_since = self.record.idle_since.unwrap_or(sim.now);
        self.record.idle_since = self.engine.is_idle().then_some(idle_since);
        sim.demand(!is_idle_and_holds, || "an idle session holds buffers".into());
        self.agree_on_deadline(sim);
        let mut next = self.engine.next_deadline().map(|deadline| deadline.at);
        if sim.has(Fault::DeadlineLate) {
            next = next.map(|at| at + WRONG_BY);
        }
        if sim.has(Fault::DripExtends) && self.engine.next_deadline().is_some_and(is_of_head) {
            next = next.map(|at| at.max(self.active + EXTENDED_BY));
        }
        if sim.has(Fault::DeadlineEarly) {
            next = next.map(|at| Moment::from_nanos(at.as_nanos().saturating_sub(1_000_000)));
        }
        if shutdown == ModelShutdown::Drain
            && self.engine.is_idle()
            && !sim.has(Fault::IdleForgotten)
        {
            let quiet_at = self.active + DRAIN_QUIET;
            if quiet_at.is_due(sim.now) {
                self.engine.shut_down_gracefully(sim.now);
                return self.close(CloseReason::Draining, link, server, sim);
            }
            next = next.filter(|at| *at < quiet_at).or(Some(quiet_at));
        }
        if shutdown == ModelShutdown::Force {
            let last = sim.now + FORCE_PATIENCE;
            next = next.filter(|at| *at < last).or(Some(last));
        }
        if sim.has(Fault::BusyLoop) && self.engine.is_idle() {
            next = Some(sim.now);
        }
        let has_leftover = self.busy.as_ref().is_some_and(|busy| !busy.body.is_empty());
        let task = self.busy.as_ref().and_then(|busy| busy.task.as_ref());
        let task = task.and_then(|task| {
            // A task whose answer is not taken goes on at its deadline only.
            let is_held = self.busy.as_ref().is_some_and(|busy| busy.is_task_held);
            if is_held { task.next_deadline() } else { task.next_wake(has_leftover) }
        });
        for at in [next, task, link.up.next_arrival()].into_iter().flatten() {
            sim.wake(Actor::ServerSession(self.client), at);
        }
    }

    /// An operator cancels what runs.
    pub(super) fn cancel_task(&mut self, server: &mut ModelServer, sim: &mut Sim) -> bool {
        let task = self.busy.as_mut().and_then(|busy| busy.task.as_mut());
        let is_there = task.is_some();
        if let Some(task) = task {
            task.cancel(server, sim);
        }
        is_there
    }

    /// One turn, as far as bytes and answers go without waiting. `Some` is the end.
    fn turn(
        &mut self,
        link: &mut Link,
        planned: &PlannedClient,
        server: &mut ModelServer,
        sim: &mut Sim,
    ) -> Option<CloseReason> {
        let bound = sim.steps + 2000 + 8 * (planned.bytes() as u64 + link.up.unread() as u64);
        loop {
            sim.steps += 1;
            if sim.steps > bound {
                sim.violate(|| "a turn does not come to its end".into());
                return Some(CloseReason::TransportLost);
            }
            let is_flushed = match self.flush(link, sim) {
                Ok(is_flushed) => is_flushed,
                Err(reason) => return Some(reason),
            };
            self.observe(sim.now);
            if !is_flushed {
                self.hold_task(true, server, sim);
                if let Stage::Closed(reason) = self.engine.stage() {
                    return Some(reason);
                }
                return None;
            }
            match self.engine.stage() {
                Stage::Closed(reason) => return Some(reason),
                Stage::Lingering if sim.has(Fault::NoLinger) => {
                    return Some(CloseReason::OutOfSync);
                }
                Stage::Lingering if !self.is_shut => {
                    link.down.end(sim.now, &mut sim.rng);
                    sim.wake(
                        Actor::Client(self.client),
                        link.down.next_arrival().unwrap_or(sim.now),
                    );
                    self.is_shut = true;
                }
                Stage::Lingering | Stage::Open => {}
            }
            if self.feed(planned, server, sim) || self.work(server, sim) {
                continue;
            }
            let watches = self
                .busy
                .as_ref()
                .is_some_and(|busy| busy.task.is_some() && busy.input.len() < INPUT_BYTES);
            if self.has_input_ended || !(self.engine.wants_input() || watches) {
                // What is not read is still seen when it is a reset.
                if link.up.is_reset() && link.up.unread() == 0 && !self.has_input_ended {
                    return Some(CloseReason::TransportLost);
                }
                return None;
            }
            if self.busy.is_none() {
                server.buffers += 1;
            }
            let busy = self.busy.get_or_insert_default();
            let room = INPUT_BYTES.max(busy.input.len() * 2) - busy.input.len();
            match link.up.read(room, &mut busy.input) {
                Read::Nothing => return None,
                Read::Reset => return Some(CloseReason::TransportLost),
                Read::End => {
                    self.has_input_ended = true;
                    let event = self.engine.input_ended(sim.now);
                    self.timeline.body_is_over();
                    if self.current.is_none() {
                        self.timeline.is_deaf();
                    }
                    self.record.has_seen_fin = true;
                    self.see(event.as_ref(), planned, server, sim);
                }
                Read::Bytes(count) => {
                    sim.say(|| format!("server {} reads {count} bytes", self.client));
                    self.active = sim.now;
                    if link.up.has_room_for_sender() {
                        sim.wake(Actor::Client(self.client), sim.now + link.down.latency_min());
                    }
                }
            }
        }
    }

    /// Sends all there is; whether nothing is left.
    fn flush(&mut self, link: &mut Link, sim: &mut Sim) -> Result<bool, CloseReason> {
        let now = sim.now;
        loop {
            let Some(busy) = &mut self.busy else { return Ok(true) };
            let has_file = busy.file.is_some();
            if busy.scratch.out.is_empty() && !has_file {
                return Ok(true);
            }
            if link.up.is_reset() {
                return Err(CloseReason::TransportLost);
            }
            let from_file;
            let bytes = if busy.scratch.out.is_empty() {
                let Some(file) = &busy.file else { return Ok(true) };
                let token = super::planned_request::Token {
                    client: self.client,
                    ask: self.current.unwrap_or(0),
                };
                from_file = (file.at..file.len)
                    .map(|at| super::planned_request::Script::byte(token, at))
                    .collect::<Vec<u8>>();
                &from_file
            } else {
                &busy.scratch.out
            };
            let is_file = busy.scratch.out.is_empty();
            let Some(moved) = link.down.send(bytes, now, &mut sim.rng) else {
                self.engine.transmitted(0, true, now);
                self.timeline.sent(0, true, now);
                return Ok(false);
            };
            sim.wake(Actor::Client(self.client), link.down.next_arrival().unwrap_or(now));
            self.active = now;
            if is_file {
                let Some(file) = &mut busy.file else { return Ok(true) };
                file.at += moved;
                let is_done = file.at == file.len;
                self.engine.file_sent(moved as u64);
                self.engine.transmitted(moved as u64, true, now);
                self.timeline.sent(moved as u64, true, now);
                if is_done {
                    busy.file = None;
                    self.finish(sim);
                    let pending =
                        self.busy.as_ref().is_some_and(|busy| !busy.scratch.out.is_empty());
                    self.engine.transmitted(0, pending, now);
                    self.timeline.sent(0, pending, now);
                }
            } else {
                busy.scratch.out.drain(..moved);
                busy.last_answer = None;
                let pending = has_file || !busy.scratch.out.is_empty();
                self.engine.transmitted(moved as u64, pending, now);
                self.timeline.sent(moved as u64, pending, now);
            }
            self.observe(now);
        }
    }

    /// Offers the engine what was read until it rests; whether anything happened.
    fn feed(&mut self, planned: &PlannedClient, server: &mut ModelServer, sim: &mut Sim) -> bool {
        let mut happened = false;
        loop {
            let now = sim.now;
            let Some(busy) = &mut self.busy else { return happened };
            if busy.file.is_some() || busy.scratch.out.len() > BATCH_BYTES {
                return happened;
            }
            sim.steps += 1;
            if self.current.is_none() {
                let asked = self.record.asked;
                let blank = planned.asks.get(asked).map_or(0, |ask| ask.blank);
                let first = planned.starts.get(asked).map_or(usize::MAX, |start| start + blank);
                if self.taken + busy.input.len() > first {
                    self.timeline.begins(now);
                }
            }
            let step = self.engine.receive(&busy.input, &mut busy.scratch, now);
            if step.is_rest() {
                return happened;
            }
            happened = true;
            self.taken += step.taken;
            if self.over_at.is_some_and(|over| self.taken > over) {
                self.is_body_taken = false;
            }
            let in_body = self.current.is_some() && self.timeline.is_body_awaited();
            if in_body && step.taken > 0 {
                self.timeline.body_came(step.taken, now);
                // Its end cannot be found, or is too far away: nobody looks for it any longer.
                let is_given_up =
                    self.is_answered && !self.is_body_taken && self.engine.will_close();
                if is_given_up || self.current.is_some_and(|ask| self.taken >= planned.end(ask)) {
                    self.has_more_body = false;
                    self.timeline.body_is_over();
                }
            } else if self.engine.stage() == Stage::Lingering && step.taken > 0 {
                self.timeline.lingers(true, now);
            }
            let mut gone = step.taken;
            let mut bytes = Vec::new();
            if let Some(Event::Body(range)) = &step.event {
                bytes.extend_from_slice(&busy.input[range.clone()]);
                gone -= usize::from(sim.has(Fault::ByteLeftBehind));
            }
            busy.input.drain(..gone);
            match &step.event {
                Some(Event::Body(_)) => self.offer_body(&bytes, server, sim),
                Some(Event::BodyEnd) => self.end_body(server, sim),
                event => self.see(event.as_ref(), planned, server, sim),
            }
            self.observe(now);
        }
    }

    /// Lets deadlines that are due act; whether any did.
    fn expire(&mut self, planned: &PlannedClient, server: &mut ModelServer, sim: &mut Sim) -> bool {
        let mut now = sim.now;
        let task = self.busy.as_ref().and_then(|busy| busy.task.as_ref()?.next_deadline());
        let due = self.engine.next_deadline();
        if task.is_some_and(|at| at.is_due(now) && due.is_none_or(|due| at <= due.at)) {
            return self.expire_task(server, sim);
        }
        if sim.has(Fault::DeadlineEarly) {
            now = now + WRONG_BY;
        }
        let is_postponed = |deadline: Deadline| {
            let extends = sim.has(Fault::DripExtends) && is_of_head(deadline);
            let late = sim.has(Fault::DeadlineLate);
            (late && !(deadline.at + WRONG_BY).is_due(now))
                || (extends && !(self.active + EXTENDED_BY).is_due(now))
        };
        let Some(deadline) = due.filter(|due| due.at.is_due(now) && !is_postponed(*due)) else {
            return false;
        };
        server.stats.deadlines += 1;
        let (right, really) = (self.timeline.next(), sim.now);
        sim.say(|| format!("server {}: {:?} falls", self.client, deadline.kind));
        sim.demand(right.is_some_and(|(at, _)| is_about(at, really)), || {
            format!("{:?} fell at {really:?}, and was due at {right:?}", deadline.kind)
        });
        let would_close = self.engine.will_close();
        let event = self.engine.expire(now);
        match deadline.kind {
            DeadlineKind::Header => {
                self.timeline.is_late();
            }
            DeadlineKind::Body => {
                self.timeline.body_is_over();
                if event.is_some() || !would_close {
                    self.timeline.is_late();
                }
            }
            DeadlineKind::Linger => self.record.has_linger_expired = true,
            _ => {}
        }
        self.see(event.as_ref(), planned, server, sim);
        true
    }

    /// At rest the engine has the deadline that the timeline has.
    fn agree_on_deadline(&self, sim: &mut Sim) {
        let engine = self.engine.next_deadline();
        let right = self.timeline.next();
        let is_agreed = match (engine, right) {
            (None, None) => true,
            (Some(engine), Some((at, _))) => is_about(engine.at, at),
            _ => false,
        };
        sim.demand(is_agreed, || {
            format!(
                "server {}: the deadline should be {right:?} and is {engine:?}, {:?}",
                self.client, self.timeline
            )
        });
    }

    /// What the timeline learns from where the exchange stands.
    pub(super) fn observe(&mut self, now: Moment) {
        match self.engine.stage() {
            Stage::Lingering => self.timeline.lingers(false, now),
            Stage::Open if self.is_finished && !self.timeline.is_body_awaited() => {
                if self.engine.will_close() {
                    self.timeline.is_deaf();
                } else {
                    self.current = None;
                    (self.is_answered, self.is_finished) = (false, false);
                    self.is_body_taken = false;
                    self.timeline.exchange_is_over(now);
                }
            }
            _ => {}
        }
    }

    fn is_done(&self, busy: &Busy) -> bool {
        busy.input.is_empty()
            && busy.scratch.out.is_empty()
            && busy.file.is_none()
            && busy.task.is_none()
            && (self.current.is_none() || self.is_finished)
    }

    fn give_back(&mut self, server: &mut ModelServer, sim: &mut Sim) {
        if self.busy.take().is_some() {
            server.buffers = server.buffers.saturating_sub(1);
            if sim.has(Fault::BuffersForgotten)
                && self.record.reason == Some(CloseReason::TransportLost)
            {
                server.buffers += 1;
            }
        }
    }

    fn drain(&mut self, sim: &mut Sim) {
        self.engine.close_after_next();
        if self.engine.will_close() && self.session.running() > 0 {
            self.tell(Fact::ShutdownAsked(Manner::Graceful), sim);
        }
    }

    /// Tells the session's table what happened.
    pub(super) fn tell(&mut self, fact: Fact, sim: &mut Sim) {
        match self.session.after(fact) {
            Ok((session, _)) => self.session = session,
            Err(illegal) => sim.violate(|| illegal.to_string()),
        }
    }

    /// The request that was admitted, if one was, is over.
    pub(super) fn release(&mut self, sim: &mut Sim) {
        if self.session.running() > 0 {
            self.tell(Fact::ResponseSent, sim);
        }
    }

    /// The end of the session.
    pub(super) fn close(
        &mut self,
        reason: CloseReason,
        link: &mut Link,
        server: &mut ModelServer,
        sim: &mut Sim,
    ) {
        let client = self.client;
        sim.say(|| format!("server {client} closes: {reason:?}"));
        sim.demand(self.record.reason.is_none(), || "a session has ended twice".into());
        let is_cut = self.engine.stage() == Stage::Open && !self.engine.is_idle();
        if reason == CloseReason::Forced && is_cut {
            server.tell(drain::Fact::CutShort, sim);
        }
        let unread = link.up.unread() + self.busy.as_ref().map_or(0, |busy| busy.input.len());
        let is_quiet = !matches!(reason, CloseReason::Expired(DeadlineKind::KeepAlive));
        sim.demand(is_quiet || unread == 0, || {
            format!("{reason:?}, and {unread} bytes of the next request were there (T3)")
        });
        let is_asked = server.shutdown >= ModelShutdown::Drain;
        sim.demand(
            is_asked || !matches!(reason, CloseReason::Draining | CloseReason::Forced),
            || format!("{reason:?}, and nobody asked for an end"),
        );
        self.record.reason = Some(reason);
        let idle_since = self.record.idle_since;
        let since = server.ends_since.zip(idle_since);
        let by = since.map(|(ends, idle)| ends.max(idle).max(self.active) + DRAIN_QUIET);
        sim.demand(by.is_none_or(|by| sim.now <= by), || {
            format!("an idle session was to end at {by:?}, and goes on")
        });
        let deadline = self.engine.next_deadline();
        let is_armed = matches!(self.engine.stage(), Stage::Closed(_)) && deadline.is_some();
        sim.demand(!is_armed, || format!("a closed engine has a deadline: {deadline:?}"));
        self.record.was_answering = self.is_answered && !self.is_finished;
        self.drop_task(false, server, sim);
        self.release(sim);
        let manner =
            if reason == CloseReason::TransportLost { Manner::Forceful } else { Manner::Graceful };
        self.tell(Fact::ShutdownAsked(manner), sim);
        self.tell(Fact::Reclaimed, sim);
        self.give_back(server, sim);
        let has_lost = link.up.close_reader();
        self.record.has_reset = reason.wants_reset() || self.engine.is_cut() || has_lost;
        if !self.is_shut || self.record.has_reset {
            if self.record.has_reset {
                link.down.reset(sim.now, &mut sim.rng);
            } else {
                link.down.end(sim.now, &mut sim.rng);
            }
        }
        sim.wake(Actor::Client(client), link.down.next_arrival().unwrap_or(sim.now));
        server.tell(drain::Fact::Ended, sim);
    }

    /// The process ends under it: nothing is said any more.
    pub(super) fn abandon(&mut self, link: &mut Link, server: &mut ModelServer, sim: &mut Sim) {
        let has_task = self.busy.as_ref().is_some_and(|busy| busy.task.is_some());
        // One that did not heed the word may have ended just now, with its answer still on the way.
        let is_late = self.worked_at.is_some_and(|at| !(at + FORCE_PATIENCE).is_due(sim.now));
        // And a second word of force waits for nobody.
        let since = server.forced_since.unwrap_or(sim.now);
        let is_hurried = !(since + drain::FORCE_TIMEOUT).is_due(sim.now);
        sim.demand(has_task || is_late || is_hurried, || {
            format!("session {} did not end by force, and nobody works for it", self.client)
        });
        self.engine.abort(CloseReason::Forced);
        self.close(CloseReason::Forced, link, server, sim);
    }
}

fn is_of_head(deadline: Deadline) -> bool {
    deadline.kind == DeadlineKind::Header
}

fn is_about(one: Moment, other: Moment) -> bool {
    one.as_nanos().abs_diff(other.as_nanos()) <= ROUNDING_NANOS
}
