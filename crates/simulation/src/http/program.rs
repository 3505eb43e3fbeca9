//! A program behind the server: the real machine that decides about it, and a model of its process that
//! prints, ends, and heeds signals or does not.

use sekisho_gateway::cgi::{Cause, Ending, Exit, Fact, HeadRules, Length, Program, Rules, Signal};
use sekisho_lifecycle::Moment;

use std::collections::VecDeque;
use std::time::Duration;

use super::Sim;
use super::planned_request::{Run, Said, Token};
use super::process::Process;

/// From TERM to KILL.
const KILL_GRACE: Duration = Duration::from_millis(400);

/// What it has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Made {
    /// A head.
    Head(u16, Said),
    /// Body bytes.
    Body(Vec<u8>),
    /// Its end, if that is one.
    Done,
    /// A failure, before its head.
    Fail(u16),
    /// A failure, behind it.
    Break,
}

/// One run.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one run, each independent")]
pub(super) struct Runner {
    token: Token,
    machine: Program,
    run: Run,
    started: Moment,
    printed: usize,
    /// When it will end, and how.
    ends: Option<(Moment, Exit)>,
    has_exited: bool,
    has_output_ended: bool,
    is_awaited: bool,
    is_held: bool,
    wants_body: bool,
    active_at: Moment,
    signals: [u32; 3],
    made: VecDeque<Made>,
}

impl Runner {
    /// Starts one.
    pub(super) fn start(
        token: Token,
        run: &Run,
        is_head: bool,
        has_body: bool,
        now: Moment,
    ) -> Self {
        let rules = Rules {
            read_timeout: run.read_timeout,
            run_timeout: run.total_timeout,
            run_kill: KILL_GRACE,
            kill_grace: KILL_GRACE,
            head: Some(HeadRules { bytes_max: 8192, is_strict: true, takes_accel: false }),
            is_head,
        };
        Self {
            token,
            machine: Program::new(rules, now),
            run: run.clone(),
            started: now,
            printed: 0,
            ends: run.exit.map(|(after, exit)| (now + after, exit)),
            has_exited: false,
            has_output_ended: false,
            is_awaited: false,
            is_held: false,
            wants_body: has_body,
            active_at: now,
            signals: [0; 3],
            made: VecDeque::new(),
        }
    }

    /// Whether nothing is left of it.
    pub(super) const fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    /// It takes body bytes.
    pub(super) fn takes(&mut self, server: &mut Process, sim: &mut Sim) {
        self.active_at = sim.now;
        self.tell(Fact::InputTaken, server, sim);
    }

    /// It has the whole body.
    pub(super) fn has_body(&mut self, server: &mut Process, sim: &mut Sim) {
        self.wants_body = false;
        self.look_who_is_awaited(server, sim);
    }

    /// The client takes what it prints, or does not.
    pub(super) fn hold(&mut self, is_held: bool, server: &mut Process, sim: &mut Sim) {
        self.is_held = is_held;
        self.look_who_is_awaited(server, sim);
    }

    /// It is cancelled.
    pub(super) fn cancel(&mut self, server: &mut Process, sim: &mut Sim) {
        self.tell(Fact::Cancelled, server, sim);
    }

    /// Its client is gone.
    pub(super) fn lose(&mut self, server: &mut Process, sim: &mut Sim) {
        self.tell(Fact::ClientLost, server, sim);
        self.made.clear();
    }

    /// What it has made, one at a time.
    pub(super) fn next(&mut self) -> Option<Made> {
        self.made.pop_front()
    }

    /// Lets happen what is due: output first, then its end, then deadlines (T3).
    pub(super) fn turn(&mut self, server: &mut Process, sim: &mut Sim) {
        let now = sim.now;
        self.look_who_is_awaited(server, sim);
        for _ in 0..64 {
            if self.is_over() {
                return;
            }
            let ended_at = self.ends.map(|(at, _)| at).filter(|at| at.is_due(now));
            // Output that is not read stays in its pipe, unless the answer is over.
            let reads = !self.is_held || self.machine.is_answered();
            if let Some((after, bytes)) = self.run.output.get(self.printed)
                && reads
                && (self.started + *after).is_due(now)
                && ended_at.is_none_or(|at| self.started + *after <= at)
            {
                let bytes = bytes.clone();
                self.printed += 1;
                self.active_at = now;
                self.tell(Fact::Output(&bytes), server, sim);
            } else if let Some((_, exit)) = self.ends.filter(|(at, _)| at.is_due(now))
                && !self.has_exited
            {
                self.has_exited = true;
                sim.say(|| format!("program {:?} ends: {exit:?}", self.token));
                self.tell(Fact::Exited(exit), server, sim);
            } else if self.has_exited && !self.run.has_child && !self.has_output_ended && reads {
                self.has_output_ended = true;
                self.tell(Fact::OutputEnded, server, sim);
            } else if self.machine.next_deadline().is_some_and(|at| at.is_due(now)) {
                server.stats.deadlines += 1;
                let orders = self.machine.expire(now);
                self.check_time(orders.ending.as_ref(), sim);
                self.obey(&orders, &[], server, sim);
            } else {
                break;
            }
        }
        if !self.is_over() && !self.machine.is_answered() && !self.is_awaited && !self.has_exited {
            let by = self.run.read_timeout.map(|timeout| self.active_at + timeout);
            let armed = self.machine.next_deadline();
            let is_armed = by.is_none_or(|by| armed.is_some_and(|at| at <= by));
            sim.demand(is_armed || self.has_output_ended, || {
                format!("a silent program has no deadline at {by:?}, but {armed:?}")
            });
        }
    }

    /// When something is due.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.machine.next_deadline().filter(|_| !self.is_over())
    }

    /// When it does something next, or something is due.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        if self.is_over() {
            return None;
        }
        let reads = !self.is_held || self.machine.is_answered();
        let ends = self.ends.map(|(at, _)| at);
        let output = self.run.output.get(self.printed).map(|(after, _)| self.started + *after);
        let output = output.filter(|at| reads && ends.is_none_or(|end| *at <= end));
        let exit = ends.filter(|_| !self.has_exited);
        [output, exit, self.machine.next_deadline()].into_iter().flatten().min()
    }

    /// T9: silence counts only where it is the program's own.
    fn look_who_is_awaited(&mut self, server: &mut Process, sim: &mut Sim) {
        let is_awaited = self.is_held || self.wants_body;
        if is_awaited != self.is_awaited {
            self.is_awaited = is_awaited;
            if !is_awaited {
                self.active_at = sim.now;
            }
            self.tell(Fact::ClientAwaited(is_awaited), server, sim);
        }
    }

    fn tell(&mut self, fact: Fact<'_>, server: &mut Process, sim: &mut Sim) {
        let orders = self.machine.after(fact, sim.now);
        let bytes = if let Fact::Output(bytes) = fact { bytes } else { &[] };
        self.obey(&orders, bytes, server, sim);
    }

    fn obey(
        &mut self,
        orders: &sekisho_gateway::cgi::ProgramOrders,
        bytes: &[u8],
        server: &mut Process,
        sim: &mut Sim,
    ) {
        if let Some(release) = &orders.head {
            let said = match release.length {
                Length::Empty => Said::Length(0),
                Length::Known(length) => Said::Length(length as usize),
                Length::Unknown => Said::Unknown,
            };
            self.made.push_back(Made::Head(release.head.status.code(), said));
        }
        if !orders.body.is_empty() {
            self.made.push_back(Made::Body(bytes[orders.body.clone()].to_vec()));
        }
        match &orders.ending {
            Some(Ending::Finish) => self.made.push_back(Made::Done),
            Some(Ending::Fail(cause)) => self.made.push_back(Made::Fail(cause.status().code())),
            Some(Ending::Break(_)) => self.made.push_back(Made::Break),
            Some(Ending::Lost) | None => {}
            Some(other) => sim.violate(|| format!("a program was understood as {other:?}")),
        }
        if let Some(signal) = orders.signal {
            self.heed(signal, server, sim);
        }
    }

    fn heed(&mut self, signal: Signal, server: &mut Process, sim: &mut Sim) {
        let now = sim.now;
        sim.say(|| format!("program {:?} gets {signal:?}", self.token));
        let (row, ends) = match signal {
            Signal::Terminate => (0, self.run.term.map(|after| (now + after, Exit::Signal(15)))),
            Signal::Kill => (1, Some((now, Exit::Signal(9)))),
            Signal::Sweep => {
                server.runs_swept += 1;
                sim.demand(self.has_exited, || "a program was swept that has not ended".into());
                (2, None)
            }
        };
        self.signals[row] += 1;
        let count = self.signals[row];
        sim.demand(count == 1, || format!("{signal:?} was given {count} times"));
        if let Some((at, exit)) = ends
            && !self.has_exited
            && self.ends.is_none_or(|(old, _)| at < old)
        {
            self.ends = Some((at, exit));
        }
    }

    /// Never early and never late: the end that a deadline made.
    fn check_time(&self, ending: Option<&Ending>, sim: &mut Sim) {
        let (Some(Ending::Fail(cause) | Ending::Break(cause)), now) = (ending, sim.now) else {
            return;
        };
        let due = match cause {
            Cause::ReadTimeout => self.run.read_timeout.map(|timeout| self.active_at + timeout),
            Cause::RunTimeout => self.run.total_timeout.map(|timeout| self.started + timeout),
            _ => return,
        };
        sim.demand(due == Some(now), || {
            format!("{cause:?} was due at {due:?} and fell at {now:?}")
        });
    }
}
