//! A task at work on a request: its input is the request's body, its output the response.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sekisho_config::{Level, LocationId};
use sekisho_handler::cgi::{Runs, Seats, Surroundings};
use sekisho_handler::password::Question;
use sekisho_handler::task::Way;
use sekisho_handler::wait::{Asking, Delay};
use sekisho_handler::{Progress, Task, cgi, deed, status};
use sekisho_http::{Method, Status};
use sekisho_http1::{BodyLength, Response};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, DeadlineKind, Engine, Moment};
use sekisho_route::{
    Action, Exchange, Handover, Request, RequestIdSeed, Table, Wait, added_fields,
};

use crate::compress::Asked;
use crate::drive::Connection;
use crate::serve::{Ask, Client};
use crate::site;
use crate::worker::{Placed, Worker};

/// What a program's run needs of the worker, and whose request it is for.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) worker: Rc<Worker>,
    pub(crate) placed: Rc<Placed>,
    pub(crate) location: LocationId,
    pub(crate) connection: u64,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) request_id: RequestIdSeed,
}

impl Surroundings for Around {
    fn now(&self) -> Moment {
        self.worker.clock.now()
    }

    fn report(&self, level: Level, message: std::fmt::Arguments<'_>) {
        let stamp = self.worker.clock.stamp(self.now());
        let RequestIdSeed(id) = self.request_id;
        let client = Client(self.remote);
        let message = format_args!("{message}, {client}, request id: {id:032x}");
        let logger = self.placed.site.error_logger(self.location);
        logger.write(level, stamp, Some(self.connection), message);
    }

    fn denial_hint(&self, errno: rustix::io::Errno) -> String {
        self.worker.denial_hint(errno)
    }

    fn runs(&self) -> &Runs {
        &self.worker.runs
    }

    fn seats(&self) -> &Arc<Seats> {
        &self.worker.shared.seats
    }

    fn table(&self) -> Arc<Table> {
        self.placed.site.shared_table()
    }

    fn ended_alone(&self) {
        self.worker.vacated.notify_waiters();
    }

    fn expired(&self, kind: DeadlineKind) {
        self.worker.shared.counters.expire(kind);
    }
}

/// What a task is started for.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) table: &'a Table,
    pub(crate) request: &'a Request<'a>,
    pub(crate) exchange: &'a Exchange,
    /// Whether this is what the client asked for, and not what an error or a program leads to.
    pub(crate) is_first: bool,
    /// Whether body bytes follow, and how many, if that is known.
    pub(crate) body: (bool, Option<u64>),
}

impl Job<'_> {
    /// Starts whoever works on this action.
    pub(crate) fn start<F>(
        &self,
        action: &Action<F>,
        around: Around,
        fields: &mut Vec<u8>,
        now: Moment,
    ) -> Result<Box<dyn Task>, Status> {
        let Self { table, request, exchange, is_first, body } = *self;
        match action {
            Action::Cgi => {
                // The body belongs to whoever was asked: what is answered instead is a plain GET, and an
                // error page comes when the body has gone elsewhere.
                let is_asked = is_first && exchange.method == request.head.method();
                let call = cgi::Call {
                    table,
                    request,
                    exchange,
                    has_body: is_asked && body.0,
                    body_bytes: body.1.filter(|_| is_asked),
                    software: site::PRODUCT,
                };
                cgi::start(&call, Rc::new(around), fields, now)
            }
            // Only what was asked for is done.
            Action::Deed(deed) if is_first => {
                let (has_body, body_bytes) = body;
                let call = deed::Call { table, request, exchange, deed, has_body, body_bytes };
                deed::start(&call, Rc::new(around), fields)
            }
            Action::Status(form) => {
                let is_head = exchange.method == Method::Head;
                status::start(around.worker.shared.status.get(), *form, is_head, now)
            }
            _ => Err(Status::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Connection {
    /// Begins with a task, or with the status that stands for its failure.
    pub(crate) fn begin(&mut self, started: Result<Box<dyn Task>, Status>, now: Moment) {
        let task = match started {
            Ok(task) => task,
            Err(status) => return self.answer(&Ask::Failed(status), now),
        };
        let Some(busy) = &mut self.busy else { return };
        let Some(current) = &busy.serving.current else { return };
        let settings = &current.placed.site.location(busy.serving.exchange.location).settings;
        let taken = self.engine.take_body(settings.client_max_body_size, &mut busy.scratch, now);
        if let Err(refusal) = taken {
            return self.answer(&Ask::Refused(refusal), now);
        }
        busy.task = Some(task);
    }

    /// Waits for what the decision needs. The body stays where it is: nobody knows yet whose it is.
    pub(crate) fn wait(&mut self, wait: Wait, question: Option<Question>, now: Moment) {
        let remote = self.facts().remote;
        let Some(busy) = &mut self.busy else { return };
        let Some(current) = &busy.serving.current else { return };
        let started = match (wait, question) {
            (Wait::For(length), _) => Ok(Delay::until(now + length)),
            (Wait::Password, Some(question)) => {
                let around = Around {
                    worker: Rc::clone(&self.worker),
                    placed: Rc::clone(&current.placed),
                    location: busy.serving.exchange.location,
                    connection: self.id,
                    remote,
                    request_id: current.request_id,
                };
                Asking::start(&self.worker.shared.hashers, question, Rc::new(around), now)
            }
            (Wait::Password, None) => Err(Status::INTERNAL_SERVER_ERROR),
        };
        match started {
            Ok(task) => busy.task = Some(task),
            Err(status) => self.answer(&Ask::Failed(status), now),
        }
    }

    /// Hands body bytes (a range of the input) to the task; what it does not take waits, and holds the
    /// client back.
    pub(crate) fn offer_body(
        &mut self,
        cx: &mut Context<'_>,
        range: std::ops::Range<usize>,
        now: Moment,
    ) {
        let Some(busy) = &mut self.busy else { return };
        let Some(task) = &mut busy.task else { return };
        let bytes = &busy.input[range];
        let taken = if busy.body.is_empty() { task.take(cx, bytes, now) } else { 0 };
        if taken < bytes.len() {
            busy.body.extend_from_slice(&bytes[taken..]);
            self.engine.hold_body(true, now);
        }
    }

    /// The request body is complete; the task is told when it has taken all of it.
    pub(crate) fn end_body(&mut self, cx: &mut Context<'_>, now: Moment) {
        let Some(busy) = &mut self.busy else { return };
        busy.has_body_ended = true;
        if let Some(task) = busy.task.as_mut().filter(|_| busy.body.is_empty()) {
            task.end_body(cx, now);
        }
    }

    /// The task's own deadline is due: it acts, whether or not there is room for what it makes. Whether
    /// anything happened.
    pub(crate) fn expire_task(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let Some(busy) = &mut self.busy else { return false };
        let Some(task) = &mut busy.task else { return false };
        match task.poll(cx, &mut busy.outbox, now) {
            Poll::Pending => false,
            Poll::Ready(progress) => {
                self.progress(progress, now);
                true
            }
        }
    }

    /// Tells the task whether the client takes what it makes.
    pub(crate) fn hold_task(&mut self, is_held: bool, now: Moment) {
        if let Some(busy) = &mut self.busy
            && busy.is_task_held != is_held
            && let Some(task) = &mut busy.task
        {
            busy.is_task_held = is_held;
            task.hold(is_held, now);
        }
    }

    /// Lets the task go on as far as it can; whether anything happened.
    pub(crate) fn work(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let mut happened = false;
        if self.busy.as_ref().is_none_or(|busy| busy.task.is_none()) {
            return false;
        }
        self.hold_task(false, now);
        while self.has_room() {
            happened |= self.drain_body(cx, now);
            let Some(busy) = &mut self.busy else { return happened };
            let Some(task) = &mut busy.task else { return happened };
            match task.poll(cx, &mut busy.outbox, now) {
                Poll::Pending => return happened,
                Poll::Ready(progress) => self.progress(progress, now),
            }
            happened = true;
        }
        happened
    }

    /// Offers the task what it could not take before, or lets it have more where there is room again.
    fn drain_body(&mut self, cx: &mut Context<'_>, now: Moment) -> bool {
        let Some(busy) = &mut self.busy else { return false };
        let Some(task) = &mut busy.task else { return false };
        if busy.awaits_room && !matches!(task.way(cx), Way::Memory([])) {
            busy.awaits_room = false;
            self.engine.hold_body(false, now);
            return true;
        }
        if busy.body.is_empty() {
            return false;
        }
        let taken = task.take(cx, &busy.body, now);
        busy.body.drain(..taken);
        if busy.body.is_empty() {
            self.engine.hold_body(false, now);
            if busy.has_body_ended {
                task.end_body(cx, now);
            }
        }
        taken > 0
    }

    fn progress(&mut self, progress: Progress, now: Moment) {
        match progress {
            Progress::Head(status, length) => self.send_head(status, length, now),
            Progress::Body => {
                let Some(busy) = &mut self.busy else { return };
                self.engine.body(&busy.outbox.body, &mut busy.scratch);
                if let Some(current) = &mut busy.serving.current {
                    current.body_bytes += busy.outbox.body.len() as u64;
                }
                busy.outbox.body.clear();
            }
            Progress::Done => {
                self.note_plain_bytes();
                self.drop_task();
                self.finish(now);
            }
            Progress::Break => {
                self.drop_task();
                self.break_off(now);
            }
            Progress::Fail(status) => {
                self.drop_task();
                self.answer(&Ask::Failed(status), now);
            }
            Progress::Redirect(target) => {
                self.drop_task();
                self.answer(&Ask::Instead(Handover::Location, target), now);
            }
            Progress::Again => {
                self.drop_task();
                self.answer(&Ask::Again, now);
            }
            Progress::HandOver(target) => {
                self.drop_task();
                self.answer(&Ask::Instead(Handover::Accel, target), now);
            }
        }
    }

    fn send_head(&mut self, status: Status, length: Option<u64>, now: Moment) {
        let facts = self.facts();
        let Some(busy) = &mut self.busy else { return };
        let Some(mut current) = busy.serving.current.take() else { return };
        busy.serving.begin_fields(&current.placed, &self.worker.clock, now);
        busy.serving.fields.append(&mut busy.outbox.fields);
        let request = Request {
            head: &busy.scratch.head,
            listen: current.placed.listen(self.local),
            connection: &facts,
            wall: self.worker.clock.wall(now),
            request_id: current.request_id,
        };
        let serving = &mut busy.serving;
        let table = current.placed.site.table();
        added_fields(table, &request, &serving.exchange, status, None, &mut serving.fields);
        let asked = Asked { table, request: &request, exchange: &serving.exchange };
        let is_pressed = asked.press_task(status, length, &mut busy.task, &mut serving.fields);
        let length = match length.filter(|_| !is_pressed) {
            Some(0) => BodyLength::Empty,
            Some(length) => BodyLength::Known(length),
            None => BodyLength::Unknown,
        };
        let before = busy.scratch.out.len();
        let response = Response { status, fields: &serving.fields, length };
        self.engine.respond(&response, &mut busy.scratch, now);
        current.status = status;
        current.head_bytes = (busy.scratch.out.len() - before) as u64;
        busy.serving.current = Some(current);
        busy.begin_pace(now);
    }

    /// Somebody wants the running request to end: its task is told, and still gives one answer (L31).
    /// Whether there was one to tell.
    pub(crate) fn cancel_task(&mut self, cause: Cause, now: Moment) -> bool {
        let task = self.busy.as_mut().and_then(|busy| busy.task.as_mut());
        let is_there = task.is_some();
        if let Some(task) = task {
            task.cancel(cause, now);
        }
        is_there
    }

    /// The log wants to know what the task has compressed.
    fn note_plain_bytes(&mut self) {
        if let Some(busy) = &mut self.busy
            && let (Some(current), Some(task)) = (&mut busy.serving.current, &busy.task)
        {
            current.plain_bytes = task.plain_bytes();
        }
    }

    /// Lets the task go; if it is not done, that cancels it.
    pub(crate) fn drop_task(&mut self) {
        if let Some(busy) = &mut self.busy {
            busy.task = None;
            busy.sluice = None;
            busy.body.clear();
            busy.outbox.body.clear();
            busy.has_body_ended = false;
            busy.awaits_room = false;
            busy.is_task_held = false;
        }
    }

    /// The earliest deadline, the task's included.
    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        let task = self.busy.as_ref().and_then(|busy| busy.task.as_ref()?.next_deadline());
        let engine = self.engine.next_deadline();
        [engine, task].into_iter().flatten().min_by_key(|deadline| deadline.at)
    }
}
