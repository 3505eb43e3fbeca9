//! Handlers that take time, as the plan wants them: they take a body, are polled for progress, have a deadline of
//! their own, can be held back and told to cancel.

use sekisho_lifecycle::Moment;

use super::Sim;
use super::planned_request::{BAIT, End, How, Pace, PlannedRequest, Script, Token};
use super::process::Process;
use super::program::{Made, Runner};
use crate::Fault;

/// A handler at work on a request.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) id: u64,
    token: Token,
    script: Script,
    body: Option<usize>,
    body_seen: usize,
    has_body_ended: bool,
    is_cancelled: bool,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Plain(Plain),
    Program(Box<Runner>),
}

/// A handler that only waits.
#[derive(Debug)]
struct Plain {
    pace: Pace,
    started: Moment,
    /// When it goes on.
    next_at: Moment,
    /// When it takes more of the body.
    hungry_at: Moment,
    cancel_at: Option<Moment>,
    has_head: bool,
    made: usize,
    is_over: bool,
}

impl Handler {
    /// Starts the handler of a request.
    pub(super) fn start(
        token: Token,
        ask: &PlannedRequest,
        server: &mut Process,
        sim: &mut Sim,
    ) -> Option<Self> {
        let now = sim.now;
        let work = match &ask.script.how {
            How::Ready | How::File => return None,
            How::Task(pace) => Work::Plain(Plain {
                pace: *pace,
                started: now,
                next_at: now + pace.first,
                hungry_at: now,
                cancel_at: None,
                has_head: false,
                made: 0,
                is_over: false,
            }),
            How::Program(run) => {
                server.runs_started += 1;
                let has_body = ask.plain.is_some_and(|bytes| bytes > 0);
                Work::Program(Box::new(Runner::start(token, run, ask.is_head, has_body, now)))
            }
        };
        Some(Self {
            id: server.begin_task(),
            token,
            script: ask.script.clone(),
            body: ask.plain,
            body_seen: 0,
            has_body_ended: false,
            is_cancelled: false,
            work,
        })
    }

    /// Takes body bytes; how many.
    pub(super) fn take(&mut self, bytes: &[u8], server: &mut Process, sim: &mut Sim) -> usize {
        let now = sim.now;
        let taken = match &mut self.work {
            Work::Plain(Plain {
                pace: Pace { appetite: Some((most, gap)), .. },
                hungry_at,
                ..
            }) => {
                if !hungry_at.is_due(now) {
                    return 0;
                }
                *hungry_at = now + *gap;
                bytes.len().min(*most)
            }
            Work::Plain(_) => bytes.len(),
            Work::Program(runner) => {
                runner.takes(server, sim);
                bytes.len()
            }
        };
        let bait = BAIT;
        let is_right = bytes[..taken]
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == bait[(self.body_seen + at) % bait.len()]);
        self.body_seen += taken;
        let (seen, body) = (self.body_seen, self.body);
        sim.demand(is_right && body.is_some_and(|all| seen <= all), || {
            format!(
                "{:?}: the handler got another body than was sent ({seen} of {body:?})",
                self.token
            )
        });
        taken
    }

    /// It has all of the body.
    pub(super) fn end_body(&mut self, server: &mut Process, sim: &mut Sim) {
        let (seen, body) = (self.body_seen, self.body.unwrap_or(0));
        sim.demand(seen == body && !self.has_body_ended, || {
            format!("{:?}: the body has ended after {seen} of {body} bytes", self.token)
        });
        self.has_body_ended = true;
        if let Work::Program(runner) = &mut self.work {
            runner.has_body(server, sim);
        }
    }

    /// The client does not take its answer, or does again.
    pub(super) fn hold(&mut self, is_held: bool, server: &mut Process, sim: &mut Sim) {
        if let Work::Program(runner) = &mut self.work {
            runner.hold(is_held, server, sim);
        }
    }

    /// It is cancelled. The driver may say so several times, the handler gets it once (L31).
    pub(super) fn cancel(&mut self, server: &mut Process, sim: &mut Sim) {
        if std::mem::replace(&mut self.is_cancelled, true) && !sim.has(Fault::CancelTwice) {
            return;
        }
        let is_new = server.cancelled.insert(self.id);
        sim.demand(is_new, || format!("{:?} is told to cancel a second time", self.token));
        server.stats.cancels += 1;
        sim.say(|| format!("{:?} is told to cancel", self.token));
        match &mut self.work {
            Work::Plain(plain) => {
                plain.cancel_at = plain.pace.cancel.map(|after| sim.now + after);
            }
            Work::Program(runner) => runner.cancel(server, sim),
        }
    }

    /// What it has made, if anything.
    pub(super) fn poll(&mut self, server: &mut Process, sim: &mut Sim) -> Option<Made> {
        match &mut self.work {
            Work::Plain(plain) => {
                let made = plain.poll(&self.script, self.token, self.has_body_ended, sim.now);
                if let Some((_, true)) = made {
                    server.stats.deadlines += 1;
                    let due = plain.pace.timeout.map(|timeout| plain.started + timeout);
                    let now = sim.now;
                    sim.demand(due == Some(now), || {
                        format!("a handler's deadline was due at {due:?} and fell at {now:?}")
                    });
                }
                made.map(|(made, _)| made)
            }
            Work::Program(runner) => {
                runner.turn(server, sim);
                runner.next()
            }
        }
    }

    /// Its deadline: it acts then, whether or not there is room for what it makes.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        match &self.work {
            Work::Plain(plain) if !plain.is_over => {
                let deadline = plain.pace.timeout.map(|timeout| plain.started + timeout);
                [deadline, plain.cancel_at].into_iter().flatten().min()
            }
            Work::Plain(_) => None,
            Work::Program(runner) => runner.next_deadline(),
        }
    }

    /// When it can go on.
    pub(super) fn next_wake(&self, has_leftover_body: bool) -> Option<Moment> {
        match &self.work {
            Work::Plain(plain) => {
                let waits = plain.pace.needs_body && !self.has_body_ended && !plain.has_head;
                let hangs = plain.hangs(&self.script);
                let next = Some(plain.next_at).filter(|_| !plain.is_over && !waits && !hangs);
                let hungry = Some(plain.hungry_at).filter(|_| has_leftover_body);
                [next, hungry, self.next_deadline()].into_iter().flatten().min()
            }
            Work::Program(runner) => runner.next_wake(),
        }
    }

    /// The task goes, done or not; a program that is not swept goes on alone.
    pub(super) fn go(self, is_done: bool, server: &mut Process, sim: &mut Sim) {
        server.end_task(self.id, sim);
        if let Work::Program(mut runner) = self.work {
            if !is_done {
                runner.lose(server, sim);
            }
            if !runner.is_over() {
                server.leave_alone(self.id, *runner, sim);
            }
        }
    }
}

impl Plain {
    /// Whether it has done all that it ever will.
    fn hangs(&self, script: &Script) -> bool {
        script.end == End::Hang && self.has_head && self.made >= script.body_bytes / 2
    }

    /// What it makes next, and whether its deadline made it.
    fn poll(
        &mut self,
        script: &Script,
        token: Token,
        has_body_ended: bool,
        now: Moment,
    ) -> Option<(Made, bool)> {
        if self.is_over {
            return None;
        }
        let waits = self.pace.needs_body && !has_body_ended && !self.has_head;
        if !waits && !self.hangs(script) && self.next_at.is_due(now) {
            return Some((self.go_on(script, token, now), false));
        }
        let by_deadline =
            self.pace.timeout.is_some_and(|timeout| (self.started + timeout).is_due(now));
        let is_cancelled = self.cancel_at.is_some_and(|at| at.is_due(now));
        if !by_deadline && !is_cancelled {
            return None;
        }
        self.is_over = true;
        let status = if by_deadline { 504 } else { 503 };
        Some((if self.has_head { Made::Break } else { Made::Fail(status) }, by_deadline))
    }

    fn go_on(&mut self, script: &Script, token: Token, now: Moment) -> Made {
        if !self.has_head {
            if let End::Fail(status) = script.end {
                self.is_over = true;
                return Made::Fail(status);
            }
            self.has_head = true;
            self.next_at = now + self.pace.gap;
            return Made::Head(script.status, script.said);
        }
        let all = if script.end == End::Done { script.body_bytes } else { script.body_bytes / 2 };
        if self.made >= all {
            self.is_over = true;
            return if script.end == End::Done { Made::Done } else { Made::Break };
        }
        let until = (self.made + self.pace.piece).min(all);
        let bytes = (self.made..until).map(|at| Script::byte(token, at)).collect();
        self.made = until;
        self.next_at = now + self.pace.gap;
        Made::Body(bytes)
    }
}
