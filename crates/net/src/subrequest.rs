//! Requests within a request: for permission (`auth_request`), for parts of a page (`ssi`, `add_after_body`), for the
//! next slice of a response, or a copy that nobody waits for (`mirror`).
//!
//! Each is a task with its own route state, deadline and exactly one ending. It is routed as any request is, and its
//! handler is that of its location; its answer is what the task around it makes of it. Dropping it cancels it: so
//! it ends with its parent, unless it was started to go on alone.

pub(crate) mod auth;
pub(crate) mod body_first;
pub(crate) mod mirror;
pub(crate) mod random_file;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use sekisho_config::Level;
use sekisho_filter::ssi::Shared;
use sekisho_filter::time_format::{self, Zone};
use sekisho_handler::filter::{Requests, Wish};
use sekisho_handler::limits::ConnectionPermit;
use sekisho_handler::{
    BodyIn, Describe, FileTask, Outbox, Progress, SubrequestView, Task, Work, Wrapper, forward,
    without,
};
use sekisho_http::{Fields, Head, Status};
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;
use sekisho_route::{
    Action, Census, ConnectionCounts, ConnectionFacts, Handover, Request, RouteState, Sent,
    SubrequestTarget, named_variable,
};

use crate::activity::Activity;
use crate::dispatch::{Deciding, RouteInput, Started, Starting};
use crate::error_context::{ErrorContext, RequestText};
use crate::exchange::{Accepted, Arrival, Waited};
use crate::filter::{Body, Filtering};
use crate::request_log::{Trouble, write_entries};
use crate::worker::Worker;
use mirror::MirrorBody;

/// How deep requests may stand in each other (nginx's bound), and how many one request of a client may have in all.
const DEPTH_MAX: u8 = 50;
const COUNT_MAX: u32 = 10_000;

/// What a client's request and those within it share.
#[derive(Debug)]
pub(crate) struct RequestTree {
    pub(crate) worker: Rc<Worker>,
    pub(crate) accepted: Accepted,
    facts: ConnectionFacts,
    arrival: Arrival,
    head: Rc<Head>,
    listen: usize,
    ssi: RefCell<Shared>,
    started: Cell<u32>,
}

impl RequestTree {
    /// Of a client's request.
    pub(crate) fn new(
        worker: &Rc<Worker>,
        accepted: &Accepted,
        request: &Request<'_>,
        head: &Rc<Head>,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            accepted: accepted.clone(),
            facts: request.connection.clone(),
            arrival: Arrival { since: request.since, is_pipelined: request.is_pipelined },
            head: Rc::clone(head),
            listen: request.listen,
            ssi: RefCell::default(),
            started: Cell::new(0),
        })
    }

    /// The client's request as decisions and variables see it.
    pub(crate) fn view(&self, now: Moment) -> Request<'_> {
        Request {
            head: &self.head,
            listen: self.listen,
            connection: &self.facts,
            wall: self.worker.clock.wall(now),
            request_id: self.accepted.request_id,
            since: self.arrival.since,
            now,
            is_pipelined: self.arrival.is_pipelined,
            census: Some(self),
        }
    }

    fn report(&self, route: &RouteState, level: Level, message: fmt::Arguments<'_>) {
        let logger = self.accepted.bound_site.site.error_logger(route.location);
        if logger.wants(level) {
            let stamp = self.worker.clock.stamp(self.worker.clock.now());
            let bound_site = &self.accepted.bound_site;
            let table = bound_site.site.table();
            let about = ErrorContext {
                client: route.client(&self.facts),
                server: table.server(table.location(route.location).server),
                request: RequestText::of(&self.head),
                upstream: None,
                id: Some(self.accepted.request_id),
            };
            let message = format_args!("{message}, {about}");
            logger.write(level, stamp, Some(self.facts.id), message);
        }
    }
}

impl Census for RequestTree {
    fn connections(&self) -> ConnectionCounts {
        self.worker.shared.counters.activities.counts_with_request(Activity::Writing)
    }
}

/// A request, as the filters of its body see it.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) tree: Rc<RequestTree>,
    /// As it was when its answer began.
    pub(crate) route: Rc<RouteState>,
    pub(crate) depth: u8,
}

impl Requests for Requester {
    fn start(&self, wish: Wish) -> Option<Box<dyn Task>> {
        Subrequest::start(&self.tree, &self.route, self.depth, wish)
            .map(|subrequest| -> Box<dyn Task> { Box::new(subrequest) })
    }

    fn path(&self) -> &[u8] {
        &self.route.path
    }

    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        let request = self.tree.view(self.tree.worker.clock.now());
        let table = self.tree.accepted.bound_site.site.table();
        named_variable(name, table, &request, &self.route, None)
    }

    fn date(&self, format: &[u8], is_local: bool) -> Vec<u8> {
        let wall = self.tree.worker.clock.wall(self.tree.worker.clock.now());
        let zone = if is_local { Zone::Local(wall.utc_offset_secs) } else { Zone::Gmt };
        let mut text = Vec::new();
        time_format::write(wall.unix_secs, zone, format, &mut text);
        text
    }

    fn shared(&self) -> &RefCell<Shared> {
        &self.tree.ssi
    }

    fn report(&self, level: Level, message: fmt::Arguments<'_>) {
        self.tree.report(&self.route, level, message);
    }
}

/// A request within a request.
///
/// ```text
/// New ──decided──▶ Working ⇄ decided again ──head──▶ Answering ──last byte──▶ Over
///   └──────────────── answered at once ────────────────┘   └──cut, dropped──▶ Over
/// ```
#[derive(Debug)]
pub(crate) struct Subrequest {
    tree: Rc<RequestTree>,
    /// The request around it.
    outer: Rc<RouteState>,
    target: SubrequestTarget,
    hides_errors: bool,
    depth: u8,
    since: Moment,
    pub(crate) route: RouteState,
    stage: Stage,
    /// Who works on it, or gives its body.
    task: Option<Box<dyn Task>>,
    body: Option<MirrorBody>,
    fields: Fields,
    failed_path: Vec<u8>,
    permits: Vec<ConnectionPermit>,
    waited: Waited,
    status: Status,
    body_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    /// No head has been given.
    Working,
    Answering,
    Over,
}

impl Subrequest {
    /// A request within that of `outer`, which stands in `depth` others itself. `None` where there may be no more.
    pub(crate) fn start(
        tree: &Rc<RequestTree>,
        outer: &Rc<RouteState>,
        depth: u8,
        wish: Wish,
    ) -> Option<Self> {
        let count = tree.started.get();
        if depth >= DEPTH_MAX || count >= COUNT_MAX {
            let path = wish.target.path.escape_ascii();
            let what =
                if depth >= DEPTH_MAX { "subrequests cycle" } else { "too many subrequests" };
            tree.report(outer, Level::Error, format_args!("{what} while processing \"{path}\""));
            return None;
        }
        tree.started.set(count + 1);
        let Wish { target, hides_errors } = wish;
        Some(Self {
            tree: Rc::clone(tree),
            outer: Rc::clone(outer),
            target,
            hides_errors,
            depth: depth + 1,
            since: tree.worker.clock.now(),
            route: RouteState::default(),
            stage: Stage::New,
            task: None,
            body: None,
            fields: Fields::new(),
            failed_path: Vec::new(),
            permits: Vec::new(),
            waited: Waited::default(),
            status: Status::CLIENT_CLOSED_REQUEST,
            body_bytes: 0,
        })
    }

    /// The same with a body.
    pub(crate) fn with_body(mut self, body: Option<MirrorBody>) -> Self {
        self.body = body;
        self
    }

    /// Finds the answer and begins to give it: what the task around it is told, where that is known at once.
    fn answer(&mut self, input: RouteInput, out: &mut Outbox, now: Moment) -> Option<Progress> {
        let mut next = input;
        // The router bounds how often what could not be started is answered in turn.
        loop {
            match self.answer_once(&next, out, now) {
                Ok(progress) => return progress,
                Err(status) => next = RouteInput::Failed(status),
            }
        }
    }

    fn answer_once(
        &mut self,
        input: &RouteInput,
        out: &mut Outbox,
        now: Moment,
    ) -> Result<Option<Progress>, Status> {
        let tree = Rc::clone(&self.tree);
        let request = tree.view(now);
        let asked = input.seen(self.waited);
        let Self { route, failed_path, permits, outer, target, .. } = self;
        let bound_site = &tree.accepted.bound_site;
        let client = request.connection.remote;
        let worker = &tree.worker;
        let deciding = Deciding {
            worker,
            bound_site,
            request: &request,
            route,
            failed_path,
            permits,
            client,
            now,
        };
        let decided = match input {
            RouteInput::Request => deciding.ask(|table, request, route, view| {
                table.decide_subrequest(target, outer, request, route, view)
            }),
            other => deciding.decide(other),
        };
        self.fields.clear();
        out.fields.clear();
        let is_own_error = matches!(decided.action, Action::Error(_));
        let is_answer = !matches!(decided.action, Action::Wait(_));
        let body = self.body.as_ref().map_or((false, None), |body| (true, Some(body.len())));
        let starting = Starting {
            worker,
            accepted: &tree.accepted,
            request: &request,
            head: &tree.head,
            route: &self.route,
            asked,
            body,
            gathered: None,
            question: decided.question,
            within: None, // Services are called by requests alone.
            now,
        };
        match starting.start(decided.action, &mut self.fields, &mut out.fields) {
            Started::Reply(mut reply, _) => {
                out.fields.clear();
                let looked = decided.looked.map(|errno| (errno, self.failed_path.as_slice()));
                let (accepted, route) = (&tree.accepted, &self.route);
                let trouble = Trouble { worker, accepted, request: &request, route };
                trouble.note(reply.status, input, looked, now);
                if is_own_error && self.hides_errors {
                    reply.piece = None;
                    reply.body.clear();
                }
                let length = reply.len();
                let task = FileTask::new(reply.piece.into_iter().chain(reply.body));
                self.task = Some(Box::new(task));
                std::mem::swap(&mut out.fields, &mut self.fields);
                Ok(Some(self.begin(reply.status, Some(length), out, now)))
            }
            Started::Task(task) => {
                if is_answer {
                    self.feed_anew();
                }
                self.task = Some(task);
                Ok(None)
            }
            Started::Wait(task) => {
                self.waited = asked;
                self.task = Some(task);
                Ok(None)
            }
            // A request within another one has no connection of its own to close.
            Started::Close => Err(Status::INTERNAL_SERVER_ERROR),
            Started::Failed(status) => Err(status),
        }
    }

    fn feed_anew(&mut self) {
        if let Some(body) = &mut self.body {
            body.rewind();
        }
    }

    /// The head is there, with its fields in `out`: filters are put around the body.
    fn begin(
        &mut self,
        status: Status,
        length: Option<u64>,
        out: &mut Outbox,
        now: Moment,
    ) -> Progress {
        self.stage = Stage::Answering;
        self.status = status;
        self.note_facts();
        let tree = Rc::clone(&self.tree);
        let request = tree.view(now);
        let table = tree.accepted.bound_site.site.table();
        let filtering = Filtering { table, request: &request, route: &self.route };
        let mut body = Body { task: self.task.take(), length };
        if let Some(filters) = filtering.wanted(status, length, &mut out.fields) {
            let requester = || -> Rc<dyn Requests> {
                Rc::new(Requester {
                    tree: Rc::clone(&tree),
                    route: Rc::new(self.route.clone()),
                    depth: self.depth,
                })
            };
            filtering.apply(filters, &mut body, &mut out.fields, None, requester);
        }
        self.task = body.task;
        self.fields.clone_from(&out.fields);
        Progress::Head(status, body.length)
    }

    fn note_facts(&mut self) {
        if let Some(task) = &self.task {
            task.describe_upstream(&mut self.route.upstream);
            task.describe_body(&mut self.route.body);
        }
    }

    fn drop_task(&mut self) {
        self.note_facts();
        self.task = None;
        self.route.upstream.settled = self.route.upstream.tries.len();
    }

    /// A progress of the task before its head.
    fn progress(&mut self, progress: Progress, out: &mut Outbox, now: Moment) -> Option<Progress> {
        let input = match progress {
            Progress::Head(status, length) => {
                (out.limit_rate, out.charset) = (None, None);
                return Some(self.begin(status, length, out, now));
            }
            Progress::Informational(_) => {
                out.fields.clear();
                return None;
            }
            Progress::Upgrade(_) => RouteInput::Failed(Status::BAD_GATEWAY),
            // No task gives a body, or an end, before its head.
            Progress::Body | Progress::Done | Progress::Break => {
                out.body.clear();
                RouteInput::Failed(Status::INTERNAL_SERVER_ERROR)
            }
            Progress::Fail(status) => RouteInput::Failed(status),
            Progress::Redirect(target) => RouteInput::Instead(Handover::Location, target),
            Progress::HandOver(target) => RouteInput::Instead(Handover::Accel, target),
            Progress::Again => {
                if let Some(task) = &mut self.task {
                    task.conclude(&mut self.route);
                }
                RouteInput::Again
            }
        };
        self.drop_task();
        self.answer(input, out, now)
    }

    /// Its one ending.
    fn end(&mut self, is_complete: bool) {
        if self.stage == Stage::Over {
            return;
        }
        self.drop_task();
        self.permits.clear();
        let has_begun = self.stage != Stage::New;
        self.stage = Stage::Over;
        let site = &self.tree.accepted.bound_site.site;
        if !has_begun || !site.location(self.route.location).settings.log_subrequest {
            return;
        }
        let now = self.tree.worker.clock.now();
        let request = self.tree.view(now);
        let sent = Sent {
            status: Some(self.status),
            bytes: self.body_bytes,
            body_bytes: self.body_bytes,
            fields: &self.fields,
            completed: is_complete,
            ..Sent::default()
        };
        self.tree.worker.access_log.write(site, &request, &self.route, &sent);
        let bound_site = &self.tree.accepted.bound_site;
        write_entries(&self.tree.worker, bound_site, &request, &mut self.route, now);
    }
}

impl Drop for Subrequest {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Wrapper for Subrequest {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        self.task.as_deref()
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        self.task.as_deref_mut()
    }
}

impl Work for Subrequest {
    forward!(next_deadline, hold, absorb, is_service);
    without!(narrow, conclude);

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            match self.stage {
                Stage::New => {
                    self.stage = Stage::Working;
                    if let Some(progress) = self.answer(RouteInput::Request, out, now) {
                        return Poll::Ready(progress);
                    }
                }
                Stage::Working => {
                    let Some(task) = &mut self.task else { return Poll::Ready(Progress::Break) };
                    if let Some(body) = &mut self.body {
                        body.feed(&mut **task, cx, now);
                    }
                    let Poll::Ready(progress) = task.poll(cx, out, now) else {
                        return Poll::Pending;
                    };
                    if let Some(progress) = self.progress(progress, out, now) {
                        return Poll::Ready(progress);
                    }
                }
                Stage::Answering => {
                    let Some(task) = &mut self.task else { return Poll::Ready(Progress::Break) };
                    if let Some(body) = &mut self.body {
                        body.feed(&mut **task, cx, now);
                    }
                    let Poll::Ready(progress) = task.poll(cx, out, now) else {
                        return Poll::Pending;
                    };
                    match progress {
                        Progress::Body => {
                            self.body_bytes += out.body.len() as u64;
                            return Poll::Ready(Progress::Body);
                        }
                        Progress::Done => {
                            self.end(true);
                            return Poll::Ready(Progress::Done);
                        }
                        _ => {
                            self.end(false);
                            return Poll::Ready(Progress::Break);
                        }
                    }
                }
                Stage::Over => return Poll::Ready(Progress::Break),
            }
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        match &mut self.task {
            Some(task) => task.cancel(cause, now),
            None => self.end(false),
        }
    }
}

impl BodyIn for Subrequest {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for Subrequest {
    forward!(upstream_view);
    without!(plain_bytes, describe_upstream, describe_body);

    fn name(&self) -> &'static str {
        self.task.as_ref().map_or("subrequest", |task| task.name())
    }

    fn describe_subrequests(&self, views: &mut Vec<SubrequestView>, now: Moment) {
        views.push(SubrequestView {
            path: self.target.path.escape_ascii().to_string(),
            handler: self.name(),
            age: now.since(self.since),
            status: (self.stage == Stage::Answering).then(|| self.status.code()),
            depth: self.depth,
        });
        if let Some(task) = &self.task {
            task.describe_subrequests(views, now);
        }
    }
}

/// What handlers need of the worker, for a request within another one.
impl Subrequest {
    /// The fields of its answer, and its status.
    pub(crate) fn answered(&self) -> (Status, &Fields) {
        (self.status, &self.fields)
    }

    pub(crate) fn tree(&self) -> &Rc<RequestTree> {
        &self.tree
    }
}
