//! CGI: runs a program for a request. The machine that decides (`gateway::cgi::Program`) is pure; here are
//! its process, its pipes and its process slot.
//!
//! A run is a [`Task`] of its connection. If the answer is over before the process is (or the client is
//! gone), the run goes on by itself until the process has ended and its group is killed: no process stays
//! behind (C6).

mod orphans;
mod process_slots;
mod run;
mod slots;
mod spawn;
mod stderr;
mod stdin;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Cgi, Level};
use sekisho_gateway::cgi::{
    Authenticated, Cause, Ending, Environment, Fact, Facts, Invocation, Length, Program,
    ProgramOrders, Rules, environment, invocation,
};
use sekisho_http::{Fields, Status};
use sekisho_lifecycle::{Deadline, DeadlineKind, Moment, cancel};
use sekisho_route::{Request, RouteState, Table};

use crate::memory;
use crate::request_body::{Gathered, RequestBody};
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, Work};
use crate::without;
pub use process_slots::ProcessSlots;
use process_slots::Ticket;
use run::Run;
pub use run::{AloneGuard, Runs};
use slots::{Claim, Standing};
use spawn::Input;

/// What a run needs of the worker around it.
pub trait HandlerContext: fmt::Debug {
    /// The time.
    fn now(&self) -> Moment;
    /// The same on the wall clock, in Unix seconds.
    fn wall_secs(&self) -> i64;
    /// Writes a line about the request into its error log.
    fn report(&self, level: Level, message: fmt::Arguments<'_>);
    /// The same about what became of it at another server, which is named.
    fn report_upstream(
        &self,
        level: Level,
        message: fmt::Arguments<'_>,
        upstream: fmt::Arguments<'_>,
    ) {
        self.report(level, format_args!("{message}, upstream: \"{upstream}\""));
    }
    /// What an operator needs to know beside this error of the system.
    fn denial_hint(&self, errno: rustix::io::Errno) -> String;
    /// The runs of this worker that go on by themselves.
    fn runs(&self) -> &Runs;
    /// The places for programs, of the whole server.
    fn process_slots(&self) -> &Arc<ProcessSlots>;
    /// The routing table, for work beside the event loop.
    fn table(&self) -> Arc<Table>;
    /// A run that went on by itself has ended.
    fn ended_alone(&self);
    /// A program, or the wait for one, has met its deadline (T10).
    fn expired(&self, kind: DeadlineKind);
}

/// What a program is started for.
#[derive(Debug)]
pub struct Call<'a> {
    /// The routing table.
    pub table: &'a Table,
    /// The request.
    pub request: &'a Request<'a>,
    /// What was decided.
    pub route_state: &'a RouteState,
    /// Whether body bytes follow, and how many, if that is known.
    pub has_body: bool,
    /// The declared length of the body.
    pub body_bytes: Option<u64>,
    /// The body, where all of it was read before.
    pub gathered: Option<&'a RefCell<Option<Gathered>>>,
    /// `SERVER_SOFTWARE`
    pub software: &'a str,
}

/// Starts a program; an error is the status to answer with, and its fields have been appended to `fields`.
pub fn start(
    call: &Call<'_>,
    context: Rc<dyn HandlerContext>,
    fields: &mut Fields,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let Call { table, request, route_state, .. } = *call;
    let settings = &table.location(route_state.location).settings;
    let Some(cgi) = settings.cgi.clone() else { return Err(Status::INTERNAL_SERVER_ERROR) };
    // A program has memory of its own, of the same control group (X8).
    if memory::is_short() {
        context.report(Level::Info, format_args!("cgi: not started: memory is short"));
        fields.push("Retry-After", "1");
        return Err(Status::SERVICE_UNAVAILABLE);
    }
    let refuse = |cause: Cause| {
        let file = route_state.file.escape_ascii();
        context.report(Level::Error, format_args!("cgi \"{file}\": {cause}"));
        cause.status()
    };
    let invocation = invocation(table, request, route_state).map_err(refuse)?;
    if !invocation.is_interpreted && !spawn::is_executable(&route_state.file) {
        return Err(refuse(Cause::NotExecutable));
    }
    let facts = Facts {
        table,
        request,
        route_state,
        has_body: call.has_body,
        body_bytes: call.body_bytes,
        software: call.software,
        user: route_state.verified_user().map(|user| Authenticated { scheme: "Basic", user }),
    };
    let mut variables = Environment::with_room();
    environment(&facts, &mut variables);
    let rules = Rules::new(&cgi, route_state.method);
    let claim = Claim {
        max: cgi.max_processes,
        max_per_address: cgi.max_per_address,
        reserved: cgi.reserved,
        queue_max: cgi.queue,
        address: route_state.client(request.connection).map(|remote| remote.ip().into()),
        location: route_state.location.0,
    };
    let job = Job { cgi, invocation, environment: variables, rules, claim };
    let mut task = CgiTask {
        stage: CgiStage::Ended,
        context,
        file: route_state.file.clone(),
        status: route_state.status,
        head: None,
        body: Vec::new(),
        ending: None,
        has_body_ended: !call.has_body || call.gathered.is_some(),
        is_held: false,
    };
    let gathered = call.gathered.and_then(RefCell::take);
    if !call.has_body {
        task.queue(job, Input::Nothing, now);
    } else if let Some(gathered) = gathered {
        task.queue(job, gathered.into(), now);
    } else if !job.cgi.request_buffering && call.body_bytes.is_some() {
        task.queue(job, Input::Pipe, now);
    } else if task.context.process_slots().is_full(&job.claim) {
        task.fail(Cause::QueueFull);
    } else {
        // A slow client holds no program, and the program knows the length before it starts (C7).
        let body = RequestBody::of(settings, call.body_bytes);
        task.stage = CgiStage::Gathering { job, body };
    }
    match task.ending {
        // It has failed already: the client need not send its body first (H6).
        Some(Ending::Fail(cause)) => {
            push_retry_after(cause, fields);
            Err(cause.status())
        }
        _ => Ok(Box::new(task)),
    }
}

/// When it may be worth trying again (C12).
fn push_retry_after(cause: Cause, fields: &mut Fields) {
    if let Some(after) = cause.retry_after() {
        fields.push_number("Retry-After", after.as_secs());
    }
}

/// What is to be run, and how.
#[derive(Debug)]
struct Job {
    cgi: Arc<Cgi>,
    invocation: Invocation,
    environment: Environment,
    rules: Rules,
    claim: Claim,
}

/// A program at work on a request.
#[derive(Debug)]
struct CgiTask {
    stage: CgiStage,
    context: Rc<dyn HandlerContext>,
    /// The script, for the log.
    file: Vec<u8>,
    /// The status that an `error_page` wants.
    status: Option<Status>,
    /// What has been made and not been taken yet, in this order.
    head: Option<(Status, Option<u64>, Fields)>,
    body: Vec<u8>,
    ending: Option<Ending>,
    has_body_ended: bool,
    /// The client does not take the answer.
    is_held: bool,
}

impl From<Gathered> for Input {
    fn from(gathered: Gathered) -> Self {
        match gathered {
            Gathered::Memory(bytes, _) if bytes.is_empty() => Self::Nothing,
            Gathered::Memory(bytes, _) => Self::Memory(bytes),
            Gathered::File(file) => Self::File(file),
        }
    }
}

#[derive(Debug)]
enum CgiStage {
    /// The body is gathered; there is no program yet, and no place for one is taken.
    Gathering { job: Job, body: RequestBody },
    /// Waits for a place.
    Queued { job: Job, input: Input, ticket: Ticket, until: Option<Moment> },
    /// Runs.
    Running(Box<Run>),
    /// Has given its answer, or failed before there was a process.
    Ended,
}

impl CgiTask {
    fn queue(&mut self, job: Job, input: Input, now: Moment) {
        match self.context.process_slots().take(job.claim) {
            Some(ticket) if ticket.standing() == Standing::Granted => {
                self.spawn(job, input, ticket, now);
            }
            Some(ticket) => {
                let until = job.cgi.queue_timeout.map(|length| now + length);
                self.stage = CgiStage::Queued { job, input, ticket, until };
            }
            None => self.fail(Cause::QueueFull),
        }
    }

    fn spawn(&mut self, mut job: Job, input: Input, ticket: Ticket, now: Moment) {
        let orphans = &ticket.process_slots().orphans;
        let id = (!job.cgi.leaves_daemons).then(|| orphans.begin());
        if let Some(id) = id {
            job.environment.add(orphans::VARIABLE, id.value().as_bytes());
        }
        let (stderr, limits) = (&job.cgi.stderr, job.cgi.limits);
        let starting = ticket.process_slots().start();
        match spawn::spawn(&job.invocation, &job.environment, input, stderr, limits) {
            Ok(pipes) => {
                let program = Program::new(job.rules, now);
                let context = Rc::clone(&self.context);
                let mut run = Run::new(program, pipes, id, (ticket, starting), context, now);
                if self.has_body_ended {
                    run.end_input();
                }
                self.stage = CgiStage::Running(Box::new(run));
            }
            Err((cause, error)) => {
                if let Some(id) = id {
                    orphans.end(id);
                }
                let program = job.invocation.program.escape_ascii();
                self.context
                    .report(Level::Error, format_args!("cgi \"{program}\": {cause}: {error}"));
                self.stage = CgiStage::Ended;
                self.ending = Some(Ending::Fail(cause));
            }
        }
    }

    fn fail(&mut self, cause: Cause) {
        self.note(cause);
        self.stage = CgiStage::Ended;
        self.ending = Some(Ending::Fail(cause));
    }

    fn fail_to_keep(&mut self, error: &std::io::Error) {
        let file = self.file.escape_ascii();
        self.context.report(
            Level::Crit,
            format_args!("cgi \"{file}\": cannot store the request body: {error}"),
        );
        self.stage = CgiStage::Ended;
        self.ending = Some(Ending::Fail(Cause::NoResources));
    }

    fn note(&self, cause: Cause) {
        let file = self.file.escape_ascii();
        self.context.report(Level::Error, format_args!("cgi \"{file}\": {cause}"));
        let expired = match cause {
            Cause::ReadTimeout => DeadlineKind::Silence,
            Cause::RunTimeout => DeadlineKind::Program,
            Cause::QueueTimeout => DeadlineKind::Wait,
            _ => return,
        };
        self.context.expired(expired);
    }

    /// Keeps what the machine orders until the connection takes it.
    fn apply(&mut self, orders: ProgramOrders, output: &[u8]) {
        if let Some(release) = orders.head {
            let mut head = release.head;
            if !head.has_content_type && release.length != Length::Empty {
                head.fields.push("Content-Type", "text/plain");
            }
            let length = match release.length {
                Length::Empty => Some(0),
                Length::Known(length) => Some(length),
                Length::Unknown => None,
            };
            self.head = Some((self.status.unwrap_or(head.status), length, head.fields));
        }
        self.body.extend_from_slice(&output[orders.body]);
        if let Some(ending) = orders.ending {
            if let Ending::Fail(cause) | Ending::Break(cause) = &ending {
                self.note(*cause);
            }
            self.ending = Some(ending);
        }
    }

    /// What can be taken now.
    fn next(&mut self, out: &mut Outbox) -> Option<Progress> {
        if let Some((status, length, mut fields)) = self.head.take() {
            out.fields.append(&mut fields);
            return Some(Progress::Head(status, length));
        }
        if !self.body.is_empty() {
            std::mem::swap(&mut self.body, &mut out.body);
            return Some(Progress::Body);
        }
        Some(match self.ending.take()? {
            Ending::Finish => Progress::Done,
            Ending::Fail(cause) => {
                push_retry_after(cause, &mut out.fields);
                Progress::Fail(cause.status())
            }
            Ending::Break(_) | Ending::Lost => Progress::Break,
            Ending::Redirect(target) => Progress::Redirect(target),
            Ending::Accel(target) => Progress::HandOver(target),
        })
    }

    /// Whether silence is the client's fault: its body has not come, or it does not take the answer.
    fn tell_who_is_awaited(&mut self, now: Moment) {
        let is_body_awaited = !self.has_body_ended;
        if let CgiStage::Running(run) = &mut self.stage {
            run.hold(self.is_held);
            run.await_client(self.is_held || (is_body_awaited && run.has_taken_all()), now);
        }
    }
}

impl Work for CgiTask {
    without!(absorb, narrow, is_service, conclude);

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            if let Some(progress) = self.next(out) {
                return Poll::Ready(progress);
            }
            match std::mem::replace(&mut self.stage, CgiStage::Ended) {
                CgiStage::Running(mut run) => {
                    let stepped = run.step(cx, now);
                    let is_pending = stepped.is_none();
                    if let Some((orders, length)) = stepped {
                        self.apply(orders, &run.output()[..length]);
                    }
                    self.stage = CgiStage::Running(run);
                    if is_pending {
                        return Poll::Pending;
                    }
                }
                CgiStage::Gathering { mut job, mut body } => match body.poll_gathered(cx) {
                    Poll::Ready(Ok(gathered)) => {
                        job.environment.set_content_length(gathered.len());
                        self.queue(job, Input::from(gathered), now);
                    }
                    Poll::Ready(Err(error)) => self.fail_to_keep(&error),
                    Poll::Pending => {
                        self.stage = CgiStage::Gathering { job, body };
                        return Poll::Pending;
                    }
                },
                CgiStage::Queued { job, input, ticket, until } => {
                    // Before the look: what happens in between is not missed.
                    ticket.wake(cx.waker());
                    match ticket.standing() {
                        Standing::Granted => self.spawn(job, input, ticket, now),
                        Standing::Refused => self.fail(Cause::QueueFull),
                        Standing::Waiting if until.is_some_and(|at| at.is_due(now)) => {
                            self.fail(Cause::QueueTimeout);
                        }
                        Standing::Waiting => {
                            self.stage = CgiStage::Queued { job, input, ticket, until };
                            return Poll::Pending;
                        }
                    }
                }
                CgiStage::Ended => return Poll::Pending,
            }
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        self.is_held = is_held;
        self.tell_who_is_awaited(now);
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let (at, kind) = match &self.stage {
            CgiStage::Running(run) if run.awaits_output() => {
                (run.next_deadline(), DeadlineKind::Silence)
            }
            CgiStage::Running(run) => (run.next_deadline(), DeadlineKind::Program),
            CgiStage::Queued { until, .. } => (*until, DeadlineKind::Wait),
            // The client's own deadlines run while its body is awaited.
            CgiStage::Gathering { .. } | CgiStage::Ended => return None,
        };
        at.map(|at| Deadline { at, kind })
    }

    fn cancel(&mut self, cause: cancel::Cause, now: Moment) {
        let fact =
            if cause == cancel::Cause::ClientLost { Fact::ClientLost } else { Fact::Cancelled };
        match &mut self.stage {
            CgiStage::Running(run) => {
                let orders = run.tell(fact, now);
                self.apply(orders, &[]);
            }
            CgiStage::Gathering { .. } | CgiStage::Queued { .. } => self.fail(Cause::Cancelled),
            CgiStage::Ended => {}
        }
    }
}

impl BodyIn for CgiTask {
    without!(body_sink, direct_bytes_done, return_body);

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8], now: Moment) -> usize {
        let taken = match &mut self.stage {
            CgiStage::Gathering { body, .. } => match body.take(cx, bytes) {
                Ok(taken) => taken,
                Err(error) => {
                    self.fail_to_keep(&error);
                    bytes.len()
                }
            },
            CgiStage::Queued { .. } => 0,
            CgiStage::Running(run) => run.write(cx, bytes, now),
            CgiStage::Ended => bytes.len(),
        };
        self.tell_who_is_awaited(now);
        taken
    }

    fn end_body(&mut self, _cx: &mut Context<'_>, now: Moment) {
        self.has_body_ended = true;
        match &mut self.stage {
            CgiStage::Gathering { body, .. } => body.end(),
            CgiStage::Running(run) => run.end_input(),
            CgiStage::Queued { .. } | CgiStage::Ended => {}
        }
        self.tell_who_is_awaited(now);
    }
}

impl Describe for CgiTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "cgi"
    }
}

impl Drop for CgiTask {
    fn drop(&mut self) {
        if let CgiStage::Running(run) = std::mem::replace(&mut self.stage, CgiStage::Ended) {
            run.go_on_alone();
        }
    }
}
