//! One run of a program, from its start to its end: when its head may leave (C3), when its answer is
//! complete or has failed (C1, C5), and when it must end (C6, T4, T9). It owns no process and no pipe:
//! facts come in, orders go out, and the time is an argument.

use std::ops::Range;
use std::time::Duration;

use sekisho_config::Cgi;
use sekisho_http::Method;
use sekisho_lifecycle::Moment;

use super::cause::Cause;
use super::head::{Fed, HeadReader, HeadRules, Kind, ResponseHead};

/// How long the end of the output and the exit of the program may lie apart.
const EXIT_GRACE: Duration = Duration::from_millis(100);
/// What may lie in the pipe when a program exits (the most that Linux gives one).
const PIPE_BYTES_MAX: usize = 1 << 20;
/// How long a program may go on after its answer where `cgi_read_timeout` is off.
const LINGER: Duration = Duration::from_secs(10);

/// What holds for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `cgi_read_timeout`
    pub read_timeout: Option<Duration>,
    /// `cgi_timeout`
    pub run_timeout: Option<Duration>,
    /// From TERM to KILL when `cgi_timeout` has passed.
    pub run_kill: Duration,
    /// From TERM to KILL otherwise: `cgi_kill_grace`.
    pub kill_grace: Duration,
    /// How the head is read; `None` for `cgi_body_only`.
    pub head: Option<HeadRules>,
    /// Whether the request is a HEAD: no body leaves.
    pub is_head: bool,
}

impl Rules {
    /// What the configuration says, for a request of this method.
    pub fn new(cgi: &Cgi, method: Method) -> Self {
        let head = HeadRules {
            bytes_max: cgi.head_bytes_max,
            is_strict: cgi.strict,
            takes_accel: cgi.x_accel_redirect,
        };
        Self {
            read_timeout: cgi.read_timeout,
            run_timeout: cgi.timeout,
            run_kill: cgi.timeout_kill.unwrap_or(cgi.kill_grace),
            kill_grace: cgi.kill_grace,
            head: (!cgi.body_only).then_some(head),
            is_head: method == Method::Head,
        }
    }
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact<'a> {
    /// The program has printed this.
    Output(&'a [u8]),
    /// Its output has ended: no process holds the other end of the pipe.
    OutputEnded,
    /// Its output cannot be read any more, and what it was going to be is not known.
    OutputLost,
    /// It has ended. It is not reaped yet: its group is still its own.
    Exited(Exit),
    /// It has taken bytes of the request's body.
    InputTaken,
    /// Whether everything now waits for the client: its body has not come, or it does not take the
    /// answer, so that the program's output is not being read. Silence is not the program's fault then.
    ClientAwaited(bool),
    /// The client is gone.
    ClientLost,
    /// The server stops by force.
    Cancelled,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What to do: the parts in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProgramOrders {
    /// Send this head.
    pub head: Option<Release>,
    /// Send these bytes of the output just offered.
    pub body: Range<usize>,
    /// The answer is over. Given at most once in a run.
    pub ending: Option<Ending>,
    /// For the process.
    pub signal: Option<Signal>,
}

/// A head that may leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The head.
    pub head: ResponseHead,
    /// How long the body is.
    pub length: Length,
}

/// How long a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// There is none.
    Empty,
    /// So long.
    Known(u64),
    /// Not known before its end.
    Unknown,
}

/// How an answer is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It is complete.
    Finish,
    /// Nothing of it has left: answer with the cause's status.
    Fail(Cause),
    /// Some of it has left: break off, visibly (C5).
    Break(Cause),
    /// Nothing has left: go on with another target, by `Handover::Location`.
    Redirect(Vec<u8>),
    /// Nothing has left: go on with another target, by `Handover::Accel`.
    Accel(Vec<u8>),
    /// The client is gone.
    Lost,
}

/// The signal for the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// TERM to its group.
    Terminate,
    /// KILL to its group.
    Kill,
    /// It has exited: KILL to what is left of its group, then reap it. The run is over.
    Sweep,
}

/// One run of a program.
///
/// ```text
/// answer   Head ──head──▶ Held ──first body byte──▶ Body ──▶ Over
///            └─ no body comes, redirect, failure ────────────▲
/// process  Running ──TERM──▶ Terminated ──KILL──▶ Killed ──exit──▶ Exited ──sweep──▶ Swept
///            └──────────────exit, from each of them ──────────────▲
/// ```
///
/// Output is read and offered until the run is over, also when the answer is: a program is not stopped by a
/// pipe that is not read, but by its deadlines. Offer all that can be read before deadlines act (T3), and
/// read on after the exit: what the program left in the pipe belongs to its answer.
#[derive(Debug)]
pub struct Program {
    rules: Rules,
    answer: Answer,
    process: Process,
    is_output_open: bool,
    is_client_awaited: bool,
    /// `cgi_timeout`
    run_until: Option<Moment>,
    /// When bytes last moved, or silence began to count.
    active_at: Moment,
    /// When the output ended or, once the answer is over, when it was.
    ended_at: Moment,
    /// Output that came after the exit.
    late_bytes: usize,
}

#[derive(Debug)]
enum Answer {
    Head(Box<HeadReader>),
    /// The head is complete and no byte of the body has come.
    Held(Box<ResponseHead>),
    /// The head has left; so many bytes are still to come, if that is known.
    Body(Option<u64>),
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Process {
    Running,
    Terminated {
        kill_at: Moment,
    },
    Killed,
    /// The leader is gone. What its group still prints is waited for until then.
    Exited {
        exit: Exit,
        sweep_at: Moment,
    },
    Swept,
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Sweep,
    Kill,
    Exit,
    Run,
    Read,
    Linger,
}

impl Program {
    /// A program that has been started just now.
    pub fn new(rules: Rules, now: Moment) -> Self {
        let answer = match rules.head {
            Some(head) => Answer::Head(Box::new(HeadReader::new(head))),
            None => Answer::Held(Box::new(ResponseHead::body_only())),
        };
        Self {
            rules,
            answer,
            process: Process::Running,
            is_output_open: true,
            is_client_awaited: false,
            run_until: rules.run_timeout.map(|length| now + length),
            active_at: now,
            ended_at: now,
            late_bytes: 0,
        }
    }

    /// Whether the answer is over: what is still printed goes nowhere.
    pub const fn is_answered(&self) -> bool {
        matches!(self.answer, Answer::Over)
    }

    /// Whether the run is over.
    pub const fn is_over(&self) -> bool {
        matches!(self.process, Process::Swept)
    }

    /// Takes a fact.
    pub fn after(&mut self, fact: Fact<'_>, now: Moment) -> ProgramOrders {
        let mut orders = ProgramOrders::default();
        if self.is_over() {
            return orders;
        }
        match fact {
            Fact::Output(bytes) => self.output(bytes, now, &mut orders),
            Fact::OutputEnded => self.output_ended(now, &mut orders),
            Fact::OutputLost => {
                // What has come must not look complete (C5).
                self.fail(Cause::OutputLost, now, &mut orders);
                self.output_ended(now, &mut orders);
            }
            Fact::Exited(exit) => self.exited(exit, now, &mut orders),
            Fact::InputTaken => self.active_at = now,
            Fact::ClientAwaited(is_awaited) => self.await_client(is_awaited, now),
            Fact::ClientLost => {
                if !self.is_answered() {
                    self.end(Ending::Lost, now, &mut orders);
                    self.terminate(self.rules.kill_grace, now, &mut orders);
                }
            }
            Fact::Cancelled => {
                self.fail(Cause::Cancelled, now, &mut orders);
                self.terminate(self.rules.kill_grace, now, &mut orders);
            }
        }
        orders
    }

    /// When [`Program::expire`] has something to do next.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.next_due().map(|(at, _)| at)
    }

    /// Whether the next deadline is for the program's silence.
    pub fn awaits_output(&self) -> bool {
        matches!(self.next_due(), Some((_, Due::Read)))
    }

    /// Acts on one deadline that has passed; another may have, too.
    pub fn expire(&mut self, now: Moment) -> ProgramOrders {
        let mut orders = ProgramOrders::default();
        let Some((_, due)) = self.next_due().filter(|(at, _)| at.is_due(now)) else {
            return orders;
        };
        let Rules { run_kill, kill_grace, .. } = self.rules;
        match due {
            Due::Kill => {
                self.process = Process::Killed;
                orders.signal = Some(Signal::Kill);
            }
            Due::Run => {
                self.fail(Cause::RunTimeout, now, &mut orders);
                self.terminate(run_kill, now, &mut orders);
            }
            Due::Read => {
                self.fail(Cause::ReadTimeout, now, &mut orders);
                self.terminate(kill_grace, now, &mut orders);
            }
            Due::Linger => self.terminate(kill_grace, now, &mut orders),
            Due::Exit => {
                self.conclude(None, now, &mut orders);
                if matches!(orders.ending, Some(Ending::Fail(_))) {
                    self.terminate(kill_grace, now, &mut orders);
                }
            }
            // A child of the program keeps its output open: it is not waited for.
            Due::Sweep => self.output_ended(now, &mut orders),
        }
        orders
    }

    /// The one place that says which deadline is armed (T2).
    fn next_due(&self) -> Option<(Moment, Due)> {
        let is_answered = self.is_answered();
        let first = |one: Option<(Moment, Due)>, other: Option<(Moment, Due)>| match (one, other) {
            (Some(one), Some(other)) if other.0 < one.0 => Some(other),
            (one, other) => one.or(other),
        };
        match self.process {
            Process::Swept | Process::Killed => None,
            Process::Terminated { kill_at } => Some((kill_at, Due::Kill)),
            // What the program left in the pipe is not lost because the client is slow.
            Process::Exited { .. } if self.is_client_awaited && !is_answered => None,
            Process::Exited { sweep_at, .. } => Some((sweep_at, Due::Sweep)),
            Process::Running => {
                let run = self.run_until.map(|at| (at, Due::Run));
                let own = if is_answered {
                    let length = self.rules.read_timeout.unwrap_or(LINGER);
                    Some((self.ended_at + length, Due::Linger))
                } else if !self.is_output_open {
                    Some((self.ended_at + EXIT_GRACE, Due::Exit))
                } else if self.is_client_awaited {
                    None
                } else {
                    self.rules.read_timeout.map(|length| (self.active_at + length, Due::Read))
                };
                first(run, own)
            }
        }
    }

    fn output(&mut self, bytes: &[u8], now: Moment, orders: &mut ProgramOrders) {
        if bytes.is_empty() {
            return;
        }
        // Any output is a sign of life, even if it is thrown away (C4).
        self.active_at = now;
        if matches!(self.process, Process::Exited { .. }) {
            self.late_bytes = self.late_bytes.saturating_add(bytes.len());
        }
        match &mut self.answer {
            Answer::Head(reader) => match reader.feed(bytes) {
                Ok(Fed::More) => {}
                Ok(Fed::Head { head, taken }) => {
                    self.take_head(head, taken..bytes.len(), now, orders);
                }
                Err(error) => {
                    self.fail(Cause::BadHead(error), now, orders);
                    self.terminate(self.rules.kill_grace, now, orders);
                }
            },
            Answer::Held(head) => {
                let head = std::mem::replace(&mut **head, ResponseHead::body_only());
                self.release(head, 0..bytes.len(), now, orders);
            }
            Answer::Body(_) => self.send(0..bytes.len(), now, orders),
            Answer::Over => {}
        }
    }

    /// The head is complete; `rest` is what came behind it.
    fn take_head(
        &mut self,
        mut head: ResponseHead,
        rest: Range<usize>,
        now: Moment,
        orders: &mut ProgramOrders,
    ) {
        match std::mem::replace(&mut head.kind, Kind::Document) {
            Kind::LocalRedirect(target) => return self.end(Ending::Redirect(target), now, orders),
            Kind::Accel(target) => return self.end(Ending::Accel(target), now, orders),
            kind @ (Kind::Document | Kind::ClientRedirect) => head.kind = kind,
        }
        if self.rules.is_head || head.is_without_body() || !rest.is_empty() {
            self.release(head, rest, now, orders);
        } else {
            self.answer = Answer::Held(Box::new(head));
        }
    }

    /// The head leaves (C3).
    fn release(
        &mut self,
        head: ResponseHead,
        rest: Range<usize>,
        now: Moment,
        orders: &mut ProgramOrders,
    ) {
        let is_without_body = head.is_without_body();
        let length = match head.content_length {
            _ if is_without_body => Length::Empty,
            Some(length) => Length::Known(length),
            None => Length::Unknown,
        };
        self.answer = Answer::Body(head.content_length);
        orders.head = Some(Release { head, length });
        if is_without_body || self.rules.is_head {
            self.end(Ending::Finish, now, orders);
        } else {
            self.send(rest, now, orders);
        }
    }

    /// Body bytes leave, but no more than `Content-Length` says (C9).
    fn send(&mut self, mut bytes: Range<usize>, now: Moment, orders: &mut ProgramOrders) {
        let Answer::Body(Some(left)) = &mut self.answer else {
            orders.body = bytes;
            return;
        };
        let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
        bytes.end = bytes.start + wanted;
        *left -= wanted as u64;
        let is_complete = *left == 0;
        orders.body = bytes;
        if is_complete {
            self.end(Ending::Finish, now, orders);
        }
    }

    fn output_ended(&mut self, now: Moment, orders: &mut ProgramOrders) {
        if !std::mem::replace(&mut self.is_output_open, false) {
            return;
        }
        let exit = match self.process {
            Process::Exited { exit, .. } => Some(exit),
            _ => None,
        };
        let is_short = match &self.answer {
            Answer::Body(Some(_)) => true,
            Answer::Held(head) => head.content_length.is_some(),
            _ => false,
        };
        match &self.answer {
            Answer::Over => {}
            _ if is_short && !matches!(exit, Some(Exit::Signal(_))) => {
                self.fail(Cause::BodyTooShort, now, orders);
            }
            // How it ended is not known yet (C5): that will not take long.
            _ if exit.is_none() => self.ended_at = now,
            _ => self.conclude(exit, now, orders),
        }
        if exit.is_some() {
            self.sweep(orders);
        } else if matches!(orders.ending, Some(Ending::Fail(_) | Ending::Break(_))) {
            self.terminate(self.rules.kill_grace, now, orders);
        }
    }

    fn exited(&mut self, exit: Exit, now: Moment, orders: &mut ProgramOrders) {
        let sweep_at = match self.process {
            Process::Running | Process::Killed => now + EXIT_GRACE,
            // The rest of the group has been asked to end, and has its time.
            Process::Terminated { kill_at } => kill_at.max(now + EXIT_GRACE),
            Process::Exited { .. } | Process::Swept => return,
        };
        self.process = Process::Exited { exit, sweep_at };
        if !self.is_output_open {
            self.conclude(Some(exit), now, orders);
            self.sweep(orders);
        }
    }

    /// There is no more output: the answer is what there is, unless the program was killed.
    fn conclude(&mut self, exit: Option<Exit>, now: Moment, orders: &mut ProgramOrders) {
        let code = match exit {
            Some(Exit::Signal(signal)) => return self.fail(Cause::Died(signal), now, orders),
            Some(Exit::Code(code)) => Some(code),
            None => None,
        };
        match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Over => {}
            Answer::Head(_) => self.end(Ending::Fail(Cause::ClosedEarly(code)), now, orders),
            Answer::Held(head) => {
                orders.head = Some(Release { head: *head, length: Length::Empty });
                self.end(Ending::Finish, now, orders);
            }
            Answer::Body(_) => self.end(Ending::Finish, now, orders),
        }
    }

    /// The answer will not be complete, if it is not already over.
    fn fail(&mut self, cause: Cause, now: Moment, orders: &mut ProgramOrders) {
        match self.answer {
            Answer::Over => {}
            Answer::Head(_) | Answer::Held(_) => self.end(Ending::Fail(cause), now, orders),
            Answer::Body(_) => self.end(Ending::Break(cause), now, orders),
        }
    }

    fn end(&mut self, ending: Ending, now: Moment, orders: &mut ProgramOrders) {
        self.answer = Answer::Over;
        self.ended_at = now;
        orders.ending = Some(ending);
    }

    fn terminate(&mut self, grace: Duration, now: Moment, orders: &mut ProgramOrders) {
        if matches!(self.process, Process::Running) {
            self.process = Process::Terminated { kill_at: now + grace };
            orders.signal = Some(Signal::Terminate);
        }
    }

    fn sweep(&mut self, orders: &mut ProgramOrders) {
        self.process = Process::Swept;
        orders.signal = Some(Signal::Sweep);
    }

    fn await_client(&mut self, is_awaited: bool, now: Moment) {
        if self.is_client_awaited && !is_awaited {
            // Silence counts from here on.
            self.active_at = now;
            if let Process::Exited { sweep_at, .. } = &mut self.process
                && self.late_bytes <= PIPE_BYTES_MAX
            {
                *sweep_at = (*sweep_at).max(now + EXIT_GRACE);
            }
        }
        self.is_client_awaited = is_awaited;
    }
}
