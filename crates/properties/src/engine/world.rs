//! A peer, a transport, a handler and a clock around one engine, in the order that a script says. They keep
//! to the engine's contract (output is reported, files are sent after their head), and otherwise do anything:
//! answer twice, answer without a request, write before the head, stall.

use std::sync::Arc;
use std::time::Duration;

use sekisho_http::{Known, Method, Status, Version};
use sekisho_http1::{BodyLength, Event, Http1, Policy, Response, Scratch, Sends};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage};

use super::policies;
use super::wire::{self, Answer};

/// How many deadlines may fall at one moment, one after another.
const EXPIRIES_MAX: usize = 4;
/// A 408 leaves within this, whatever `send_timeout` says (T6).
const LATE_SEND_MAX: Duration = Duration::from_secs(5);

/// Where the exchange in work stands, as the shell sees it.
#[expect(clippy::struct_excessive_bools, reason = "facts about one exchange, each independent")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct RequestRecord {
    is_open: bool,
    is_answered: bool,
    is_finished: bool,
    is_refused: bool,
    is_lost: bool,
    is_head: bool,
    /// The body was asked for, and so much of it may come.
    body_max: Option<u64>,
    body_bytes: u64,
    has_body_ended: bool,
    /// How much of the response body is missing; `None` when that is not known.
    left: Option<u64>,
    sends_body: bool,
}

struct World {
    engine: Http1,
    scratch: Scratch,
    policies: [Arc<Policy>; 2],
    now: Moment,
    inbox: Vec<u8>,
    wire: Vec<u8>,
    record: RequestRecord,
    answers: Vec<Answer>,
    continues: usize,
    stage: Stage,
    /// Output when the session was over: it must not grow.
    last_output: Option<usize>,
    is_held: bool,
    /// The transport has reported since the last output.
    is_told: bool,
}

/// Plays the script, then lets the session come to its end.
pub fn check(mut stream: &[u8], script: &[u8]) {
    let mut script = script.iter().copied();
    let mut world = World::new(script.next().unwrap_or(0));
    while let Some(op) = script.next() {
        let arg = script.next().unwrap_or(0);
        world.play(op, arg, &mut stream);
        world.look();
    }
    world.come_to_an_end(stream);
    let World { mut wire, scratch, answers, continues, .. } = world;
    wire.extend_from_slice(&scratch.out);
    wire::check(&wire, &answers, continues);
}

impl World {
    fn new(bits: u8) -> Self {
        let policies = policies(bits);
        Self {
            engine: Http1::new(Arc::clone(&policies[0]), Moment::ZERO),
            scratch: Scratch::default(),
            policies,
            now: Moment::ZERO,
            inbox: Vec::new(),
            wire: Vec::new(),
            record: RequestRecord::default(),
            answers: Vec::new(),
            continues: 0,
            stage: Stage::Open,
            last_output: None,
            is_held: false,
            is_told: true,
        }
    }

    fn play(&mut self, op: u8, arg: u8, stream: &mut &[u8]) {
        match op % 20 {
            0..=2 => {
                let (piece, rest) = stream.split_at(usize::from(arg).min(stream.len()));
                self.inbox.extend_from_slice(piece);
                *stream = rest;
                self.receive(if op % 20 == 0 { 1 } else { usize::MAX });
            }
            3 => self.receive(1),
            4 => self.transmit(usize::from(arg)),
            5 => self.transmit(usize::MAX),
            6 => self.now = self.now + Duration::from_millis(u64::from(arg) * 40),
            7 => {
                if let Some(deadline) = self.engine.next_deadline() {
                    self.now = self.now.max(deadline.at);
                }
                self.expire();
            }
            8 => self.expire(),
            9 => self.respond(arg),
            10 => self.body(usize::from(arg)),
            11 => self.send_file(u64::from(arg)),
            12 => self.finish(),
            13 => self.take_body(if arg & 1 == 0 { None } else { Some(u64::from(arg)) }),
            14 => self.hold(arg & 1 == 1),
            15 => {
                if let Some(event) = self.engine.input_ended(self.now) {
                    self.see(&event, 0, false);
                }
            }
            16 => self.engine.shut_down_gracefully(self.now),
            17 if arg & 3 == 0 => self.engine.abort(CloseReason::Forced),
            17 if self.record.is_open && !self.record.is_answered => {
                let policy = Arc::clone(&self.policies[usize::from(arg & 1)]);
                self.engine.set_policy(&policy);
            }
            17 => {}
            18 => self.answer(),
            _ => {
                self.answer();
                self.transmit(usize::MAX);
                self.receive(usize::MAX);
            }
        }
    }

    /// Offers what there is until the engine rests, or for one step.
    fn receive(&mut self, steps_max: usize) {
        let mut bound = 4 + 3 * self.inbox.len();
        for _ in 0..steps_max {
            bound = bound.checked_sub(1).expect("the engine comes to rest");
            let before = (self.engine.next_deadline(), self.engine.requests());
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            assert!(step.taken <= self.inbox.len(), "more was taken than offered");
            if step.event.is_none() && before.1 == self.engine.requests() {
                self.header_deadline_stands(before.0);
            }
            let is_rest = step.is_rest();
            if let Some(event) = &step.event {
                self.see(event, step.taken, false);
            }
            self.inbox.drain(..step.taken);
            if is_rest {
                self.wanted_body_comes();
                // What must be kept for the next time is never more than a head.
                if self.engine.wants_input() {
                    let max = self.policies[0].head_bytes_max;
                    assert!(self.inbox.len() <= max, "{} bytes wait", self.inbox.len());
                }
                break;
            }
        }
    }

    /// A body that was asked for and is not held back is taken as far as it is there.
    fn wanted_body_comes(&self) {
        let RequestRecord { is_answered, is_refused, is_lost, has_body_ended, body_max, .. } =
            self.record;
        let is_over = is_answered || is_refused || is_lost || has_body_ended;
        if body_max.is_some() && !is_over && !self.is_held && self.engine.stage() == Stage::Open {
            assert!(self.inbox.is_empty(), "the body does not come");
        }
    }

    /// T4: bytes do not extend the header deadline.
    fn header_deadline_stands(&self, before: Option<Deadline>) {
        let (Some(before), Some(after)) = (before, self.engine.next_deadline()) else { return };
        if before.kind == DeadlineKind::Header && after.kind == DeadlineKind::Header {
            assert_eq!(before.at, after.at, "bytes moved the header deadline");
        }
    }

    fn see(&mut self, event: &Event, taken: usize, is_expiry: bool) {
        let record = &mut self.record;
        assert!(!record.is_lost, "{event:?} after the client was lost");
        match event {
            Event::Request => {
                assert!(!record.is_open || record.is_finished, "a request within another");
                let head = &self.scratch.head;
                let waits =
                    head.version() == Version::Http11 && head.known(Known::Expect).is_some();
                self.continues += usize::from(waits);
                let is_head = head.method() == Method::Head;
                *record = RequestRecord { is_open: true, is_head, ..RequestRecord::default() };
                // What was held back of the last body is no business of this one.
                self.is_held = false;
            }
            Event::Refused(refusal) => {
                assert!(refusal.status.is_error());
                if !record.is_open || record.is_finished {
                    let is_head = !is_expiry && self.scratch.head.method() == Method::Head;
                    *record = RequestRecord { is_open: true, is_head, ..RequestRecord::default() };
                }
                assert!(!record.is_answered, "refused after an answer (T7)");
                assert!(!record.is_refused, "refused twice");
                record.is_refused = true;
            }
            Event::Body(range) => {
                assert!(range.start < range.end && range.end <= taken);
                record.body_bytes += range.len() as u64;
                let max = record.body_max.expect("only a body that was asked for comes");
                assert!(record.body_bytes <= max, "more body than asked for");
                assert!(!record.is_refused && !record.has_body_ended && !record.is_finished);
                assert!(!self.is_held, "body bytes while they were held back");
            }
            Event::BodyEnd => {
                assert!(record.body_max.is_some() && !record.is_refused);
                assert!(!record.has_body_ended, "the body ended twice");
                record.has_body_ended = true;
            }
            Event::ClientLost => {
                assert!(record.is_open && !record.is_finished, "no request for the event");
                record.is_lost = true;
            }
        }
    }

    fn transmit(&mut self, max: usize) {
        if matches!(self.stage, Stage::Closed(_)) {
            return;
        }
        let moved = max.min(self.scratch.out.len());
        self.wire.extend(self.scratch.out.drain(..moved));
        let before = self.engine.next_deadline();
        self.engine.transmitted(moved as u64, !self.scratch.out.is_empty(), self.now);
        self.is_told = true;
        // T5: to try again is not to have moved.
        let was_waiting = before.is_some_and(|before| before.kind == DeadlineKind::Send);
        if was_waiting && moved == 0 && !self.scratch.out.is_empty() {
            assert_eq!(self.engine.next_deadline(), before, "a stall moved the send deadline");
        }
    }

    /// As the driver does: one deadline after another, until none is due.
    fn expire(&mut self) {
        for _ in 0..EXPIRIES_MAX {
            match self.engine.next_deadline() {
                Some(deadline) if deadline.at.is_due(self.now) => {
                    if let Some(event) = self.engine.expire(self.now) {
                        self.see(&event, 0, true);
                    }
                }
                _ => break,
            }
        }
        let next = self.engine.next_deadline();
        assert!(next.is_none_or(|next| !next.at.is_due(self.now)), "{next:?} is due for ever");
        assert_eq!(self.engine.expire(self.now), None, "nothing expires early");
    }

    fn respond(&mut self, arg: u8) {
        let statuses = [200, 404, 204, 304, 500, 206, 100, 999];
        let status = Status::new(statuses[usize::from(arg & 7)]).unwrap_or(Status::OK);
        let length = match arg >> 3 & 3 {
            0 => BodyLength::Empty,
            1 => BodyLength::Unknown,
            _ => BodyLength::Known(u64::from(arg >> 5) * 3),
        };
        let is_wanted = self.stage == Stage::Open
            && self.record.is_open
            && !self.record.is_answered
            && !self.record.is_lost;
        let before = self.scratch.out.len();
        let fields = [("S", "s")].into_iter().collect();
        let response = Response { status, fields: &fields, length };
        let sends = self.engine.respond(&response, &mut self.scratch, self.now);
        let has_written = self.scratch.out.len() > before;
        assert_eq!(has_written, is_wanted, "exactly one answer for each request");
        if !has_written {
            assert_eq!(sends, Sends::Nothing);
            return;
        }
        let status = if status.code() < 200 { 500 } else { status.code() };
        self.record.is_answered = true;
        (self.record.sends_body, self.record.left) = match sends {
            Sends::Nothing => (false, Some(0)),
            Sends::Exactly(length) => (true, Some(length)),
            Sends::Stream => (true, None),
        };
        let is_head = self.record.is_head;
        self.answers.push(Answer { status, is_head, ..Answer::default() });
    }

    fn is_sending(&self) -> bool {
        let RequestRecord { is_answered, is_finished, is_lost, sends_body, .. } = self.record;
        is_answered && !is_finished && !is_lost && sends_body && self.stage == Stage::Open
    }

    fn body(&mut self, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|at| b"0\r\n\r\nHTTP/1.1 "[at % 14]).collect();
        let before = self.scratch.out.len();
        self.engine.body(&bytes, &mut self.scratch);
        if !self.is_sending() {
            assert_eq!(self.scratch.out.len(), before, "body bytes without a request");
            return;
        }
        let len = self.record.left.map_or(len, |left| len.min(left as usize));
        self.sent(&bytes[..len]);
        self.is_told &= len == 0;
    }

    fn sent(&mut self, bytes: &[u8]) {
        if let Some(left) = &mut self.record.left {
            *left -= bytes.len() as u64;
        }
        self.answers.last_mut().expect("an answer").body.extend_from_slice(bytes);
    }

    /// The transport sends a part of a file itself, behind all that was written.
    fn send_file(&mut self, len: u64) {
        let Some(left) = self.record.left else { return };
        let len = len.min(left);
        if len == 0 || !self.is_sending() || !self.scratch.out.is_empty() {
            return;
        }
        let bytes = vec![b'F'; len as usize];
        self.wire.extend_from_slice(&bytes);
        self.sent(&bytes);
        self.engine.file_sent(len);
        self.engine.transmitted(len, true, self.now);
        self.engine.transmitted(0, false, self.now);
        self.is_told = true;
    }

    fn finish(&mut self) {
        let RequestRecord { is_answered, is_finished, is_lost, left, .. } = self.record;
        let before = self.scratch.out.len();
        self.engine.finish(&mut self.scratch, self.now);
        if self.stage != Stage::Open || !is_answered || is_finished || is_lost {
            assert_eq!(self.scratch.out.len(), before, "the end of no answer");
            return;
        }
        if left.is_some_and(|left| left > 0) {
            // It must not look complete.
            assert!(self.engine.will_close(), "an answer that is cut short ends the connection");
            self.record.is_lost = true;
            return;
        }
        self.record.is_finished = true;
        self.answers.last_mut().expect("an answer").is_finished = true;
    }

    fn take_body(&mut self, max: Option<u64>) {
        let RequestRecord { is_open, is_answered, is_refused, is_lost, body_max, .. } = self.record;
        if !is_open || is_answered || is_refused || is_lost || body_max.is_some() {
            return;
        }
        self.record.body_max = Some(max.unwrap_or(u64::MAX));
        if self.engine.take_body(max, &mut self.scratch, self.now).is_err() {
            self.record.body_max = None;
            self.record.is_refused = true;
            self.answer();
        }
    }

    fn hold(&mut self, held: bool) {
        if self.record.is_open && !self.record.is_finished {
            self.is_held = held;
            self.engine.hold_body(held, self.now);
        }
    }

    /// A complete small answer for a waiting request, or the rest of one that has begun.
    fn answer(&mut self) {
        if !self.record.is_answered {
            self.respond(0b0111_0000);
        }
        self.body(self.record.left.unwrap_or(5) as usize);
        self.finish();
    }

    /// What is true after every step.
    fn look(&mut self) {
        let stage = self.engine.stage();
        match (self.stage, stage) {
            (Stage::Closed(_), _) => assert_eq!(self.stage, stage, "a session ends once"),
            (Stage::Lingering, Stage::Open) => panic!("from lingering there is no way back"),
            _ => {}
        }
        // What was answered has left before the session ends in good order.
        let is_orderly = match stage {
            Stage::Open => false,
            Stage::Lingering => true,
            Stage::Closed(reason) => matches!(
                reason,
                CloseReason::PeerClosed
                    | CloseReason::ClientAsked
                    | CloseReason::CloseDelimited
                    | CloseReason::RequestsUsedUp
                    | CloseReason::TimeUsedUp
                    | CloseReason::KeepAliveOff
                    | CloseReason::Draining
                    | CloseReason::Expired(DeadlineKind::Header | DeadlineKind::KeepAlive)
            ),
        };
        if is_orderly && self.stage != stage {
            assert!(self.scratch.out.is_empty(), "{stage:?} before the output has left");
        }
        self.stage = stage;
        let output = self.wire.len() + self.scratch.out.len();
        if stage != Stage::Open {
            let last = *self.last_output.get_or_insert(output);
            assert_eq!(last, output, "output after the end");
        }
        let next = self.engine.next_deadline();
        if let Stage::Closed(_) = stage {
            assert_eq!(next, None, "a session that is over waits for nothing");
            assert!(!self.engine.wants_input() && !self.engine.is_idle());
            return;
        }
        if let Some(deadline) = next {
            let latest = self.now + self.longest(deadline.kind);
            assert!(deadline.at <= latest, "{deadline:?} lies beyond its timeout");
        }
        // A side that is waited for has a deadline.
        if self.engine.wants_input() && self.scratch.out.is_empty() && self.is_told {
            assert!(next.is_some(), "waits for the client for ever: {:?}", self.engine);
        }
        if self.is_told && !self.scratch.out.is_empty() {
            assert!(next.is_some(), "output waits for ever: {:?}", self.engine);
        }
        if self.engine.is_idle() {
            assert!(!self.record.is_open || self.record.is_finished);
        }
    }

    fn longest(&self, kind: DeadlineKind) -> Duration {
        let of = |policy: &Policy| match kind {
            DeadlineKind::Header => policy.header_timeout,
            DeadlineKind::Body => policy.body_timeout,
            DeadlineKind::KeepAlive => policy.keepalive_timeout,
            DeadlineKind::Send => policy.send_timeout.max(Some(LATE_SEND_MAX)),
            DeadlineKind::Linger => policy.lingering_timeout,
            // Others are not this engine's to arm.
            #[allow(unreachable_patterns)]
            _ => None,
        };
        self.policies.iter().filter_map(|policy| of(policy)).max().unwrap_or_default()
    }

    /// The handler answers, the transport takes everything, the peer says nothing more: the session ends.
    fn come_to_an_end(&mut self, stream: &[u8]) {
        self.inbox.extend_from_slice(stream);
        let mut turns = 16 + self.inbox.len();
        while !matches!(self.engine.stage(), Stage::Closed(_)) {
            turns = turns.checked_sub(1).expect("the session ends");
            self.hold(false);
            let before = (self.inbox.len(), self.record);
            self.receive(usize::MAX);
            self.look();
            self.answer();
            self.look();
            self.transmit(usize::MAX);
            self.look();
            if before != (self.inbox.len(), self.record) {
                continue;
            }
            if let Some(deadline) = self.engine.next_deadline() {
                self.now = self.now.max(deadline.at);
                self.expire();
                self.look();
            }
        }
    }
}
