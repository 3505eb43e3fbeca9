//! What is known of one session from outside: what its transport took and gave, what its handlers were asked,
//! and what the driver reports about it. From that the armed deadline is computed, and the result of the
//! session is recorded.

use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::{CloseReason, DeadlineKind, Moment, Stage, drain};
use sekisho_net::session::{ShutdownRequest, Token};
use sekisho_net::simulation::{Asked, EngineView, Fact, SessionView};

use super::plan::PlannedClient;
use super::planned_request::BAIT;
use super::process::Process;
use super::record::Record;
use super::timeline::Timeline;
use super::{Link, Sim};

/// A client that was here so shortly ago may have sent its next request before it can know that we drain.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// How long an answer may take to leave when the end is forced.
const FORCE_PATIENCE: Duration = Duration::from_secs(1);
/// The instants of the engine and of the timeline may differ by the rounding of a rate.
const ROUNDING_NANOS: u64 = 1000;

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtWork {
    /// Its own deadline.
    pub(super) deadline: Option<Moment>,
}

/// One session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct Watch {
    pub(super) client: usize,
    /// By which number and token the driver knows it.
    pub(super) id: u64,
    pub(super) token: Token,
    pub(super) timeline: Timeline,
    /// When bytes last moved.
    pub(super) active: Moment,
    /// The task at work, with its deadline.
    pub(super) task: Option<AtWork>,
    /// When a task of it last ended.
    pub(super) worked_at: Option<Moment>,
    /// The request in work.
    pub(super) current: Option<usize>,
    /// The handler wants its body, up to this byte of the stream.
    is_body_taken: bool,
    over_at: Option<usize>,
    /// Some of its body has not been taken by the engine.
    has_more_body: bool,
    /// Its response has begun, and is complete.
    is_answered: bool,
    is_finished: bool,
    /// How many bytes were read, and how many of them the engine has taken.
    read: usize,
    taken: usize,
    /// A byte was given twice.
    has_left_behind: bool,
    sent: u64,
    acknowledged: u64,
    /// Changes of its transport are reported, and what was reported: bytes, the end, the loss, room.
    pub(super) is_told_of_changes: bool,
    pub(super) told: (u64, bool, bool),
    pub(super) is_full: bool,
    /// What became of it.
    pub(super) record: Record,
}

impl Watch {
    /// A connection that was just accepted.
    pub(super) fn new(
        client: usize,
        (id, token): (u64, Token),
        was_one_too_many: bool,
        server: &mut Process,
        sim: &mut Sim,
    ) -> Self {
        let policy = Arc::clone(server.policy(0));
        server.stats.sessions += 1;
        server.tell(drain::Fact::Began, sim);
        Self {
            client,
            id,
            token,
            timeline: Timeline::new(policy, sim.now),
            active: sim.now,
            task: None,
            worked_at: None,
            current: None,
            is_body_taken: false,
            over_at: None,
            has_more_body: false,
            is_answered: false,
            is_finished: false,
            read: 0,
            taken: 0,
            has_left_behind: false,
            sent: 0,
            acknowledged: 0,
            is_told_of_changes: false,
            told: (0, false, false),
            is_full: false,
            record: Record { was_one_too_many, ..Record::default() },
        }
    }

    /// Whether it has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.record.reason.is_some()
    }

    /// The driver has read so many bytes.
    pub(super) fn read(&mut self, count: usize, now: Moment) {
        self.read += count;
        self.active = now;
    }

    /// The driver has seen the end of the stream.
    pub(super) fn read_end(&mut self) {
        self.timeline.body_is_over();
        if self.current.is_none() {
            self.timeline.is_deaf();
        }
        self.record.has_seen_fin = true;
    }

    /// The transport took so many of these bytes.
    pub(super) fn sent(&mut self, moved: usize, of: usize, now: Moment) {
        if moved > 0 {
            self.active = now;
            self.sent += moved as u64;
        }
        self.is_full = moved < of;
        self.timeline.sent(moved as u64, moved < of, now);
    }

    /// The server has ended its side.
    pub(super) fn shut(&mut self, now: Moment) {
        self.timeline.lingers(false, now);
    }

    /// A byte of a body that a faulty server has not removed from the stream.
    pub(super) fn left_behind(&mut self, planned: &PlannedClient) -> Option<u8> {
        let ask = self.current.and_then(|ask| planned.asks.get(ask))?;
        let end = planned.end(self.current?);
        let is_due = self.read >= end && ask.plain.is_some_and(|bytes| bytes > 0);
        let is_first = is_due && !std::mem::replace(&mut self.has_left_behind, true);
        is_first.then_some(BAIT[0])
    }

    /// The driver reports something.
    pub(super) fn tell(
        &mut self,
        fact: Fact<'_>,
        engine: EngineView,
        link: &Link,
        planned: &PlannedClient,
        server: &mut Process,
        sim: &mut Sim,
    ) {
        let now = sim.now;
        if !matches!(fact, Fact::Offered(_) | Fact::Taken(_)) {
            sim.say(|| format!("server {}: {fact:?}", self.client));
        }
        match fact {
            Fact::Offered(bytes) => self.offered(bytes, planned, now),
            Fact::Taken(bytes) => self.took(bytes, engine, planned, now),
            Fact::Asked(Asked::Request, target) => self.asked(target, planned, server, sim),
            Fact::Asked(Asked::Refused(status), _) => self.refused(status.code(), server),
            Fact::BodyWanted { is_continued } => self.body_wanted(is_continued, planned, now),
            Fact::Responded => {
                sim.demand(!self.is_answered, || "an answer without a request".into());
                self.is_answered = true;
                self.timeline.puts(now);
                if !self.is_body_taken {
                    self.give_up_body(engine, now);
                }
            }
            Fact::BrokenOff => {
                self.record.has_broken_off = true;
                self.timeline.is_broken_off();
            }
            Fact::ClientLost => self.record.is_client_lost = true,
            Fact::Ended { is_complete: true } => self.finished(engine, now),
            Fact::Asked(Asked::Failed(_) | Asked::Instead, _)
            | Fact::Ended { is_complete: false } => {}
            Fact::Expired { kind, is_refused, would_close } => {
                let is_heard = kind == DeadlineKind::Send && self.acknowledges(link, planned);
                sim.demand(!is_heard, || "a client that acknowledges is called silent".into());
                self.expired(kind, is_refused || !would_close, server, sim);
            }
            Fact::Stalled => {
                self.acknowledges(link, planned);
            }
            Fact::Acknowledged => {
                let is_heard = self.acknowledges(link, planned);
                sim.demand(is_heard, || "a client that acknowledges nothing is waited for".into());
                self.timeline.acknowledged(now);
            }
            Fact::Closed(reason) => self.closed(reason, link.up.unread(), server, sim),
        }
    }

    fn offered(&mut self, bytes: usize, planned: &PlannedClient, now: Moment) {
        if self.current.is_none() {
            let asked = self.record.asked;
            let blank = planned.asks.get(asked).map_or(0, |ask| ask.blank);
            let first = planned.starts.get(asked).map_or(usize::MAX, |start| start + blank);
            if self.taken + bytes > first {
                self.timeline.begins(now);
            }
        }
    }

    fn took(&mut self, bytes: usize, engine: EngineView, planned: &PlannedClient, now: Moment) {
        self.taken += bytes;
        if self.over_at.is_some_and(|over| self.taken > over) {
            self.is_body_taken = false;
        }
        let in_body = self.current.is_some() && self.timeline.is_body_awaited();
        if in_body && bytes > 0 {
            self.timeline.body_came(bytes, now);
            // Its end cannot be found, or is too far away: it is no longer looked for.
            let is_given_up = self.is_answered && !self.is_body_taken && engine.will_close;
            if is_given_up || self.current.is_some_and(|ask| self.taken >= planned.end(ask)) {
                self.has_more_body = false;
                self.timeline.body_is_over();
            }
        } else if engine.stage == Stage::Lingering && bytes > 0 {
            self.timeline.lingers(true, now);
        }
        self.observe(engine, now);
    }

    /// A request has come: it must be the next one that its client sent.
    fn asked(
        &mut self,
        target: &[u8],
        planned: &PlannedClient,
        server: &mut Process,
        sim: &mut Sim,
    ) {
        let asked = self.record.asked;
        let ask = planned.asks.get(asked);
        let right = ask.map(|ask| format!("/m{}/c{}/r{asked}", ask.script.body_max, self.client));
        let is_right = right.is_some_and(|right| target == right.as_bytes())
            && self.taken >= planned.head_end(asked);
        sim.demand(is_right, || {
            format!(
                "a request that no client sent, instead of request {asked}: {}",
                target.escape_ascii()
            )
        });
        let Some(ask) = ask.filter(|_| is_right) else { return };
        let is_next = self.current.is_none();
        sim.demand(is_next, || format!("request {asked} comes before the last one is answered"));
        self.record.asked += 1;
        self.record.heads += 1;
        server.stats.requests += 1;
        self.current = Some(asked);
        (self.is_answered, self.is_finished, self.is_body_taken) = (false, false, false);
        self.timeline.head_is_over();
        self.has_more_body = !ask.body.is_empty() && self.taken < planned.end(asked);
        sim.say(|| {
            format!(
                "server {}: request {asked}: {:?}, {:?} of body, {:?}",
                self.client, ask.script, ask.plain, ask.bad
            )
        });
        let policy = server.policy(ask.host);
        self.timeline.chooses(policy);
        self.record.half_close = policy.half_close;
    }

    fn body_wanted(&mut self, is_continued: bool, planned: &PlannedClient, now: Moment) {
        let Some(asked) = self.current else { return };
        let over_at = planned.asks[asked].over_at;
        self.over_at = over_at.map(|over| planned.head_end(asked) + over);
        // What is too long by its head is thrown away from the start (H6).
        self.is_body_taken = over_at != Some(0);
        if is_continued {
            self.record.continues += 1;
            self.timeline.puts(now);
        }
        if self.has_more_body {
            self.timeline.awaits_body(now);
        }
    }

    /// The request in work is refused, or the one that would have come.
    fn refused(&mut self, status: u16, server: &mut Process) {
        let ask = match self.current {
            Some(ask) if !self.is_answered => ask,
            _ => {
                let ask = self.record.asked;
                self.record.asked += 1;
                server.stats.requests += 1;
                self.current = Some(ask);
                (self.is_answered, self.is_finished) = (false, false);
                self.has_more_body = false;
                self.timeline.head_is_over();
                // What was refused before it was understood is for the first server of the day.
                self.timeline.chooses(server.policy(0));
                ask
            }
        };
        self.timeline.body_is_over();
        self.record.refused.insert(ask, status);
    }

    /// A body that is not wanted is thrown away while the answer is sent, unless this is the end.
    fn give_up_body(&mut self, engine: EngineView, now: Moment) {
        if engine.will_close || !self.has_more_body {
            self.timeline.body_is_over();
        } else {
            self.timeline.discards(now);
        }
    }

    fn finished(&mut self, engine: EngineView, now: Moment) {
        self.is_finished = true;
        self.record.finished += 1;
        self.timeline.has_output();
        if self.is_body_taken && self.timeline.is_body_awaited() {
            if engine.will_close {
                self.timeline.body_is_over();
            } else {
                self.timeline.discards(now);
            }
        }
        self.observe(engine, now);
    }

    fn expired(&mut self, kind: DeadlineKind, is_late: bool, server: &mut Process, sim: &mut Sim) {
        server.stats.deadlines += 1;
        let (right, now) = (self.timeline.next(), sim.now);
        sim.demand(right.is_some_and(|(at, _)| is_about(at, now)), || {
            format!("{kind:?} fell at {now:?}, and was due at {right:?}")
        });
        match kind {
            DeadlineKind::Header => self.timeline.is_late(),
            DeadlineKind::Body => {
                self.timeline.body_is_over();
                if is_late {
                    self.timeline.is_late();
                }
            }
            DeadlineKind::Linger => self.record.has_linger_expired = true,
            _ => {}
        }
    }

    /// What the timeline learns from where the exchange stands.
    fn observe(&mut self, engine: EngineView, now: Moment) {
        if engine.stage == Stage::Open && self.is_finished && !self.timeline.is_body_awaited() {
            if engine.will_close {
                self.timeline.is_deaf();
            } else {
                self.current = None;
                (self.is_answered, self.is_finished) = (false, false);
                self.is_body_taken = false;
                self.timeline.exchange_is_over(now);
            }
        }
    }

    /// A turn begins: no deadline may have passed without it.
    pub(super) fn begin_turn(&self, sim: &mut Sim) {
        let (due, now) = (self.timeline.next(), sim.now);
        let is_late = |at: Moment| at.as_nanos() + ROUNDING_NANOS < now.as_nanos();
        sim.demand(due.is_none_or(|(at, _)| !is_late(at)), || {
            format!("server {}: {due:?} has passed", self.client)
        });
    }

    /// Between turns it has the deadline that is reckoned here, and no buffers when it is idle.
    pub(super) fn rest(&mut self, view: &SessionView, server: &Process, sim: &mut Sim) {
        if !self.is_full {
            self.timeline.sent(0, false, sim.now);
        }
        self.observe(view.engine, sim.now);
        let (now, client) = (sim.now, self.client);
        let idle_since = self.record.idle_since.unwrap_or(now);
        self.record.idle_since = view.is_idle.then_some(idle_since);
        let forgotten = view.forgotten_bytes;
        sim.demand(forgotten == 0, || format!("server {client} forgets to send {forgotten} bytes"));
        let is_idle_and_holds = view.is_idle && view.has_buffers && view.unread_bytes == 0;
        sim.demand(!is_idle_and_holds, || "an idle session holds buffers".into());
        let drain = (server.shutdown == ShutdownRequest::Drain && view.is_idle)
            .then(|| self.active + DRAIN_QUIET);
        let force = (server.shutdown == ShutdownRequest::Force).then(|| now + FORCE_PATIENCE);
        let task = self.task.and_then(|task| task.deadline);
        let own = self.timeline.next().map(|(at, _)| at);
        let right = [own, task, drain, force].into_iter().flatten().min();
        let is_agreed = match (view.deadline, right) {
            (None, None) => true,
            (Some(armed), Some(at)) => is_about(armed.at, at),
            _ => false,
        };
        sim.demand(is_agreed, || {
            format!(
                "server {client}: the deadline should be {right:?} and is {:?}, {:?}",
                view.deadline, self.timeline
            )
        });
    }

    fn closed(&mut self, reason: CloseReason, unread: usize, server: &mut Process, sim: &mut Sim) {
        sim.demand(self.record.reason.is_none(), || "a session has ended twice".into());
        let unread = unread + self.read.saturating_sub(self.taken);
        let is_quiet = !matches!(reason, CloseReason::Expired(DeadlineKind::KeepAlive));
        sim.demand(is_quiet || unread == 0, || {
            format!("{reason:?}, and {unread} bytes of the next request were there (T3)")
        });
        let is_asked = server.shutdown >= ShutdownRequest::Drain;
        sim.demand(
            is_asked || !matches!(reason, CloseReason::Draining | CloseReason::Forced),
            || format!("{reason:?}, and no end was asked for"),
        );
        let since = server.ends_since.zip(self.record.idle_since);
        let by = since.map(|(ends, idle)| ends.max(idle).max(self.active) + DRAIN_QUIET);
        sim.demand(by.is_none_or(|by| sim.now <= by), || {
            format!("an idle session was to end at {by:?}, and goes on")
        });
        self.end(reason, server, sim);
    }

    fn end(&mut self, reason: CloseReason, server: &mut Process, sim: &mut Sim) {
        self.record.reason = Some(reason);
        self.record.was_answering = self.is_answered && !self.is_finished;
        server.tell(drain::Fact::Ended, sim);
    }

    /// The process ends under it: nothing more is sent.
    pub(super) fn abandon(&mut self, server: &mut Process, sim: &mut Sim) {
        // One that did not heed the word may have ended just now, with its answer still on the way.
        let is_late = self.worked_at.is_some_and(|at| !(at + FORCE_PATIENCE).is_due(sim.now));
        // A second request for a forced end waits for no session.
        let since = server.forced_since.unwrap_or(sim.now);
        let is_hurried = !(since + drain::FORCE_TIMEOUT).is_due(sim.now);
        sim.demand(self.task.is_some() || is_late || is_hurried, || {
            format!("session {} did not end by force, and no task works for it", self.client)
        });
        self.record.was_abandoned = true;
        self.end(CloseReason::Forced, server, sim);
    }

    /// Whether the client has acknowledged bytes since this was asked last (T4).
    fn acknowledges(&mut self, link: &Link, planned: &PlannedClient) -> bool {
        if !planned.is_counted {
            return false;
        }
        let acknowledged = self.sent.saturating_sub(link.down.bytes_on_the_way());
        let before = std::mem::replace(&mut self.acknowledged, acknowledged);
        acknowledged > before
    }
}

fn is_about(one: Moment, other: Moment) -> bool {
    one.as_nanos().abs_diff(other.as_nanos()) <= ROUNDING_NANOS
}
