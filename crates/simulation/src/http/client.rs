//! A client: it sends what it planned, at its pace, reads as it likes, and knows what it must see. Each
//! answer is held against the request that it must answer; nothing may come that was not asked for.

use sekisho_lifecycle::{CloseReason, DeadlineKind, Moment};

use super::answer::{Answer, Reader};
use super::plan::{Leaves, PlannedClient, Reads};
use super::planned_request::{Bad, End, How, PlannedRequest, Said, Script, Token};
use super::record::Record;
use super::{Actor, Link, Sim};
use crate::RunStats;
use crate::network::Read;

/// How a client's connection ended for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Saw {
    Nothing,
    Fin,
    Reset,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    planned: PlannedClient,
    stream: Vec<u8>,
    sent: usize,
    next_send_at: Moment,
    next_read_at: Moment,
    read: usize,
    reader: Reader,
    /// How many answers came whole.
    answers: usize,
    continues: usize,
    /// Which request a 100 came for last.
    continued: Option<usize>,
    /// For how many of its requests it need not wait for a 100 any longer, and since when it waits.
    unlocked: usize,
    waits_since: Option<(usize, Moment)>,
    is_told_to_close: bool,
    has_fin: bool,
    has_reset: bool,
    saw: Saw,
}

impl Client {
    /// One that has not come yet.
    pub(super) fn new(index: usize, planned: PlannedClient) -> Self {
        let mut stream: Vec<u8> =
            planned.asks.iter().flat_map(|ask| [ask.head.as_slice(), &ask.body].concat()).collect();
        stream.truncate(planned.stops_after);
        Self {
            index,
            planned,
            stream,
            sent: 0,
            next_send_at: Moment::ZERO,
            next_read_at: Moment::ZERO,
            read: 0,
            reader: Reader::default(),
            answers: 0,
            continues: 0,
            continued: None,
            unlocked: 0,
            waits_since: None,
            is_told_to_close: false,
            has_fin: false,
            has_reset: false,
            saw: Saw::Nothing,
        }
    }

    /// Its plan.
    pub(super) const fn planned(&self) -> &PlannedClient {
        &self.planned
    }

    /// Does what it can.
    pub(super) fn poll(&mut self, link: &mut Link, stats: &mut RunStats, sim: &mut Sim) {
        let who = Actor::Client(self.index);
        if self.has_reset {
            return;
        }
        if self.planned.resets.is_some_and(|at| at.is_due(sim.now)) {
            sim.say(|| format!("client {} resets", self.index));
            self.has_reset = true;
            link.down.close_reader();
            link.up.reset(sim.now, &mut sim.rng);
            return sim
                .wake(Actor::ServerEnd(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
        self.read(link, stats, sim);
        self.send(link, sim);
        self.leave(link, sim);
        if link.down.is_reset() && link.down.unread() == 0 {
            return;
        }
        for at in [link.down.next_arrival(), self.planned.resets].into_iter().flatten() {
            sim.wake(who, at);
        }
    }

    fn read(&mut self, link: &mut Link, stats: &mut RunStats, sim: &mut Sim) {
        while self.saw == Saw::Nothing {
            let most = match self.planned.reads {
                Reads::Promptly => usize::MAX,
                Reads::Until(all) => all.saturating_sub(self.read),
                Reads::Slowly(..) if !self.next_read_at.is_due(sim.now) => 0,
                Reads::Slowly(most, _) => most,
            };
            // A client that does not read sees no end either, but its sends fail after a reset.
            if most == 0 {
                if link.down.is_reset() && link.down.unread() == 0 {
                    self.saw = Saw::Reset;
                } else if let Reads::Slowly(..) = self.planned.reads {
                    sim.wake(Actor::Client(self.index), self.next_read_at);
                }
                return;
            }
            match link.down.read(most, self.reader.input()) {
                Read::Nothing => return,
                Read::End => self.saw = Saw::Fin,
                Read::Reset => self.saw = Saw::Reset,
                Read::Bytes(count) => {
                    self.read += count;
                    if let Reads::Slowly(_, gap) = self.planned.reads {
                        self.next_read_at = sim.now + gap;
                    }
                    if link.down.has_room_for_sender() {
                        sim.wake(Actor::ServerEnd(self.index), sim.now + link.up.latency_min());
                    }
                    self.take_answers(stats, sim);
                }
            }
        }
        if self.saw == Saw::Fin
            && let Some(answer) = self.reader.end()
        {
            self.check(&answer, sim);
            self.count(&answer, stats, sim);
        }
        if self.saw != Saw::Nothing {
            sim.say(|| format!("client {} sees the end: {:?}", self.index, self.saw));
        }
    }

    fn take_answers(&mut self, stats: &mut RunStats, sim: &mut Sim) {
        loop {
            let is_head = self.planned.asks.get(self.answers).is_some_and(|ask| ask.is_head);
            match self.reader.next(is_head) {
                Ok(None) => return,
                Err(what) => return sim.violate(|| format!("client {}: {what}", self.index)),
                Ok(Some(answer)) if answer.status == 100 => {
                    self.continues += 1;
                    let ask = self.answers;
                    let expects = self.planned.asks.get(ask).is_some_and(|ask| ask.expects);
                    let is_first = self.continued.replace(ask) != Some(ask);
                    sim.demand(expects && is_first, || {
                        format!("client {}: a 100 without an expectation", self.index)
                    });
                    self.unlocked = self.unlocked.max(ask + 1);
                }
                Ok(Some(answer)) => {
                    self.check(&answer, sim);
                    self.count(&answer, stats, sim);
                }
            }
        }
    }

    fn count(&mut self, answer: &Answer, stats: &mut RunStats, sim: &mut Sim) {
        sim.say(|| {
            let Self { index, answers, .. } = self;
            format!(
                "client {index} has answer {answers}: {} of {} bytes",
                answer.status,
                answer.body.len()
            )
        });
        stats.answers += 1;
        self.answers += 1;
        self.unlocked = self.unlocked.max(self.answers);
        self.is_told_to_close |= answer.closes;
    }

    /// An answer has come whole: is it the right one?
    fn check(&self, answer: &Answer, sim: &mut Sim) {
        let (client, k) = (self.index, self.answers);
        let wrong = |what: &str| format!("client {client}, answer {k}: {what}: {answer:?}");
        sim.demand(!self.is_told_to_close, || wrong("one more after the last"));
        let Some(ask) = self.planned.asks.get(k) else {
            return sim.violate(|| wrong("there was no request for it"));
        };
        let is_begun = self.sent > self.planned.starts[k];
        let Some(token) = answer.token else {
            sim.demand(ask.may_be_refused(answer.status, is_begun), || {
                wrong("a refusal without a cause")
            });
            return sim
                .demand(answer.body == b"no!" || answer.body.is_empty(), || wrong("not its body"));
        };
        sim.demand(token == (client, k), || wrong("of another request"));
        let is_whole_request =
            self.sent >= self.planned.head_end(k) && ask.bad.is_none_or(|bad| bad == Bad::Body);
        sim.demand(is_whole_request, || wrong("to a request that was not sent"));
        sim.demand(ask.script.may_give(answer.status), || wrong("not what the handler gave"));
        let token = Token { client, ask: k };
        let is_own = answer.status == ask.script.status;
        let has_none = ask.is_head || matches!(answer.status, 204 | 304);
        let is_right = match (has_none, is_own) {
            (true, _) => answer.body.is_empty(),
            (false, true) => {
                answer.body.len() == ask.script.body_bytes
                    && answer
                        .body
                        .iter()
                        .enumerate()
                        .all(|(at, byte)| *byte == Script::byte(token, at))
            }
            (false, false) => answer.body == b"err",
        };
        // What a handler broke off is never whole, even if nothing of its body is missing.
        let is_broken =
            ask.script.end == End::Break && ask.script.said == Said::Unknown && is_own && !has_none;
        sim.demand(is_right && !is_broken, || wrong("not its body"));
    }

    /// How far it may send.
    fn allowed(&mut self, sim: &mut Sim) -> usize {
        let mut allowed = self.stream.len();
        if self.is_told_to_close && !self.planned.is_rude {
            return self.sent;
        }
        if !self.planned.pipelines && self.answers < self.planned.asks.len() {
            allowed = allowed.min(self.planned.end(self.answers));
        }
        for (at, ask) in self.planned.asks.iter().enumerate().skip(self.unlocked) {
            let head_end = self.planned.head_end(at);
            if !ask.expects || self.sent < head_end {
                if head_end >= allowed {
                    break;
                }
                if ask.expects {
                    allowed = allowed.min(head_end);
                }
                continue;
            }
            // The head has left: it waits, but not for ever.
            let (_, since) =
                *self.waits_since.get_or_insert((at, sim.now)).max(&mut (at, Moment::ZERO));
            if (since + self.planned.patience).is_due(sim.now) {
                self.unlocked = at + 1;
                self.waits_since = None;
                continue;
            }
            sim.wake(Actor::Client(self.index), since + self.planned.patience);
            return allowed.min(head_end);
        }
        allowed
    }

    fn send(&mut self, link: &mut Link, sim: &mut Sim) {
        let (most, gap) = self.planned.drip;
        while self.saw == Saw::Nothing && !self.has_fin {
            let allowed = self.allowed(sim);
            if self.sent >= allowed {
                return;
            }
            if !self.next_send_at.is_due(sim.now) {
                return sim.wake(Actor::Client(self.index), self.next_send_at);
            }
            let until = allowed.min(self.sent.saturating_add(most));
            let Some(count) = link.up.send(&self.stream[self.sent..until], sim.now, &mut sim.rng)
            else {
                return;
            };
            self.sent += count;
            self.next_send_at = sim.now + gap;
            sim.say(|| format!("client {} sends {count}, {} in all", self.index, self.sent));
            sim.wake(Actor::ServerEnd(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
    }

    fn leave(&mut self, link: &mut Link, sim: &mut Sim) {
        if self.has_fin {
            return;
        }
        let has_sent = self.sent == self.stream.len();
        let has_all = self.answers >= self.planned.asks.len() || self.is_told_to_close;
        let goes = match self.planned.leaves {
            _ if self.saw != Saw::Nothing => true,
            Leaves::Closes => has_sent && has_all,
            Leaves::Halves => has_sent,
            Leaves::Waits => false,
        };
        if goes {
            sim.say(|| format!("client {} closes its side", self.index));
            self.has_fin = true;
            link.up.end(sim.now, &mut sim.rng);
            sim.wake(Actor::ServerEnd(self.index), link.up.next_arrival().unwrap_or(sim.now));
        }
    }

    /// The world is over: has this client got what it was owed, or a reason why not?
    pub(super) fn settle(&self, record: &Record, stats: &mut RunStats, sim: &mut Sim) {
        let Self { index, answers, saw, .. } = self;
        let Some(reason) = record.reason else {
            return sim.violate(|| format!("session {index} has not ended"));
        };
        let wrong = |what: &str| {
            format!(
                "client {index} has {answers} answers and saw {saw:?}: {what} ({reason:?}, {record:?})"
            )
        };
        sim.demand(*answers <= record.asked, || wrong("more answers than requests"));
        sim.demand(self.continues <= record.continues, || wrong("more 100s than were given"));
        let is_too_many = record.refused.values().any(|status| *status == 503);
        sim.demand(is_too_many == record.was_one_too_many, || wrong("refused for no reason"));
        if let Some(begun) = self.reader.begun() {
            stats.cut += 1;
            let is_plain = begun.is_until_close() && self.saw == Saw::Fin;
            sim.demand(!is_plain, || wrong("a cut answer that looks whole"));
        }
        if !self.planned.is_kind() {
            return;
        }
        let (is_between, is_announced) = (self.reader.is_between(), self.is_told_to_close);
        if is_between && is_announced {
            return;
        }
        let ask = self.planned.asks.get(*answers);
        let was_seen = record.asked > *answers;
        let is_excused = match reason {
            // These deadlines are watched elsewhere.
            CloseReason::Forced | CloseReason::Expired(DeadlineKind::Send | DeadlineKind::Body) => {
                true
            }
            CloseReason::Expired(DeadlineKind::KeepAlive) | CloseReason::Draining => {
                is_between && !was_seen
            }
            // What had not left before it went with it.
            CloseReason::BrokenOff => {
                let broken = self.planned.asks.get(record.asked.saturating_sub(1));
                record.was_cancelled || broken.is_some_and(|ask| ask.script.may_break())
            }
            CloseReason::PeerClosed => is_between && !was_seen && record.has_seen_fin,
            CloseReason::PeerClosedEarly => {
                // H11: a client that half-closes is answered if the answer is ready, or if that is allowed.
                let is_whole = ask.is_some() && self.sent >= self.planned.end(*answers);
                let is_ready =
                    ask.is_some_and(PlannedRequest::is_ready_at_once) && !record.is_client_lost;
                let is_allowed = was_seen && record.half_close && !record.was_answering;
                record.has_seen_fin && !(is_whole && (is_ready || is_allowed))
            }
            // A client that asks for the end and sends on loses what it sends.
            CloseReason::ClientAsked | CloseReason::CloseDelimited => {
                self.sent > self.planned.end((*answers).min(self.planned.asks.len() - 1))
            }
            CloseReason::OutOfSync => {
                let last = self.planned.asks.get(answers.saturating_sub(1));
                (is_between && !was_seen && last.is_some_and(|ask| ask.plain.is_some()))
                    || record.has_linger_expired
                    || (record.was_answering && ask.is_some_and(|ask| ask.plain.is_some()))
            }
            _ => record.has_linger_expired,
        };
        sim.demand(is_excused, || wrong("it was owed more"));
    }
}

impl PlannedRequest {
    /// Whether a refusal with this status has a cause; `is_begun`: some of the request was sent.
    fn may_be_refused(&self, status: u16, is_begun: bool) -> bool {
        match (status, self.bad) {
            (408 | 503, _) => true,
            _ if !is_begun => false,
            (413, _) => self.plain.is_some_and(|bytes| bytes as u64 > self.script.body_max),
            (400, Some(Bad::Body)) | (417, Some(Bad::Expectation)) => true,
            (status, Some(Bad::Head(right))) => status == right,
            _ => false,
        }
    }

    /// Whether the answer is ready at once.
    fn is_ready_at_once(&self) -> bool {
        matches!(self.script.how, How::Ready | How::File)
    }
}
