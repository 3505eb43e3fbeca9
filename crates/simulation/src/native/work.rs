//! A service at work on a request: it does what its script says, when there is credit, and heeds a cancel if
//! it is one of those.

use sekisho_lifecycle::{Moment, RequestId};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::server::{WriteError, Written};
use sekisho_native::{Code, Scratch, Server};

use super::Sim;
use super::plan::{Given, Script};
use crate::Fault;

/// A request in work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: RequestId,
    /// Which of the client's requests it is.
    pub(super) ask: usize,
    script: Script,
    next_at: Option<Moment>,
    step: Step,
    pub(super) is_cancelled: bool,
    cancel_at: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Begin,
    Write(usize),
    Answer,
    Drop,
    Gone,
}

/// What became of a request on the server's side.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Done {
    /// The parts of its body that came after it, and whether they are all.
    pub(super) parts: usize,
    pub(super) is_body_complete: bool,
    /// Its one answer.
    pub(super) answer: Option<Result<Vec<u8>, Code>>,
    /// How many records were put on their way.
    pub(super) records: usize,
    /// It was told to cancel.
    pub(super) is_cancelled: bool,
}

/// What record number `at` of a request is.
pub(super) fn record(ask: usize, at: usize, bytes: usize) -> Vec<u8> {
    let mut record = vec![(ask * 31 + at) as u8; bytes.max(9)];
    record[..8].copy_from_slice(&((ask as u64) << 32 | at as u64).to_le_bytes());
    record
}

impl Work {
    /// A request that has just come in.
    pub(super) fn new(id: RequestId, ask: usize, script: Script, now: Moment) -> Self {
        Self {
            id,
            ask,
            script,
            next_at: Some(now + script.first),
            step: Step::Begin,
            is_cancelled: false,
            cancel_at: None,
        }
    }

    /// Whether its handle is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.step == Step::Gone
    }

    /// It is cancelled.
    pub(super) fn cancel(&mut self, now: Moment) {
        self.is_cancelled = true;
        self.cancel_at = self.script.heeds.map(|after| now + after);
    }

    /// There is more credit, or the client reads no more.
    pub(super) fn channel_moved(&mut self, now: Moment) {
        if matches!(self.step, Step::Write(_)) && self.next_at.is_none() {
            self.next_at = Some(now);
        }
    }

    /// Whether it waits for its client, to send a record.
    pub(super) fn waits_for_client(&self) -> bool {
        matches!(self.step, Step::Write(_)) && self.next_at.is_none()
    }

    /// How long its records are.
    pub(super) fn record_bytes(&self) -> usize {
        self.script.channel.map_or(0, |(_, bytes, _)| record(self.ask, 0, bytes).len())
    }

    /// When it goes on.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        let heeds = self.cancel_at.filter(|_| !matches!(self.step, Step::Drop | Step::Gone));
        [self.next_at, heeds].into_iter().flatten().min()
    }

    /// Does what is due; whether anything happened.
    pub(super) fn poll(
        &mut self,
        server: &mut Server,
        out: &mut Scratch,
        done: &mut Done,
        sim: &mut Sim,
    ) -> bool {
        let now = sim.now;
        let heeds = self.cancel_at.is_some_and(|at| at.is_due(now));
        if heeds && !matches!(self.step, Step::Drop | Step::Gone) {
            server.release_channel(self.id, out, now);
            let given = server.error(self.id, Code::OperationCancelled, "as was asked", out, now);
            sim.demand(given.is_ok(), || "a first answer was not taken".into());
            done.answer = Some(Err(Code::OperationCancelled));
            self.go(Step::Drop, now + self.script.stays);
            return true;
        }
        if !self.next_at.is_some_and(|at| at.is_due(now)) {
            return false;
        }
        match self.step {
            Step::Begin => {
                let is_open = self.script.channel.is_some()
                    && server.acquire_channel(self.id, out, now).is_ok();
                self.go(if is_open { Step::Write(0) } else { Step::Answer }, now);
            }
            Step::Write(at) => self.write(at, server, out, done, sim),
            Step::Answer => self.answer(server, out, done, sim),
            Step::Drop => {
                if !sim.has(Fault::HandleForgotten) {
                    server.handle_dropped(self.id, out, now);
                }
                done.answer.get_or_insert(Err(Code::Unknown));
                self.step = Step::Gone;
                self.next_at = None;
            }
            Step::Gone => return false,
        }
        true
    }

    fn write(
        &mut self,
        at: usize,
        server: &mut Server,
        out: &mut Scratch,
        done: &mut Done,
        sim: &mut Sim,
    ) {
        let now = sim.now;
        let Some((count, bytes, gap)) = self.script.channel else { return };
        if at == count {
            if !self.script.forgets_release {
                server.release_channel(self.id, out, now);
            }
            return self.go(Step::Answer, now);
        }
        let before = out.out.len();
        let record = record(self.ask, at, bytes);
        match server.write(self.id, 0, &record, out, now) {
            Ok(Written::Sent) => {
                done.records += 1;
                if sim.has(Fault::RecordTwice) {
                    out.out.extend_from_within(before..);
                }
                if sim.has(Fault::RecordLost) && at == 1 {
                    out.out.truncate(before);
                }
                self.go(Step::Write(at + 1), now + gap);
            }
            // It neither blocks nor fails its request (L28).
            Err(WriteError::Unwanted) => self.go(Step::Write(at + 1), now + gap),
            Ok(Written::Full) if sim.has(Fault::CreditIgnored) => {
                let slot =
                    server.lanes().iter().find(|lane| lane.id == self.id).map(|lane| lane.slot);
                if let Some(slot) = slot {
                    frame::write(&mut out.out, Head::of_slot(Kind::Record, slot), &record);
                }
                self.go(Step::Write(at + 1), now + gap);
            }
            Ok(Written::Full) => self.next_at = None,
            Err(error) => sim.violate(|| format!("a record was not taken: {error}")),
        }
    }

    fn answer(&mut self, server: &mut Server, out: &mut Scratch, done: &mut Done, sim: &mut Sim) {
        let now = sim.now;
        let before = out.out.len();
        let given = match self.script.answer {
            Given::Result(bytes) => {
                let body = record(self.ask, usize::from(u16::MAX), bytes);
                done.answer = Some(Ok(body.clone()));
                server.result(self.id, &body[..bytes.max(9).min(body.len())], out, now)
            }
            Given::Error => {
                done.answer = Some(Err(Code::IoError));
                server.error(self.id, Code::IoError, "no", out, now)
            }
            Given::Nothing => Ok(()),
        };
        sim.demand(given.is_ok(), || format!("a first answer was not taken: {given:?}"));
        if before < out.out.len() {
            if sim.has(Fault::ResultTwice) {
                out.out.extend_from_within(before..);
            }
            if sim.has(Fault::ResultLost) {
                out.out.truncate(before);
            }
        }
        self.go(Step::Drop, now + self.script.stays);
    }

    fn go(&mut self, step: Step, at: Moment) {
        self.step = step;
        self.next_at = Some(at);
    }
}
