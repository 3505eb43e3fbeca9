//! One request's way from its head to its answer: the router decides, the handler of the action that was
//! decided on gives a reply, or starts a task, or has the decision wait.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{Level, LocationId, Settings, StatusForm};
use sekisho_handler::limits::ConnectionPermit;
use sekisho_handler::listing::Listed;
use sekisho_handler::password::PasswordQuery;
use sekisho_handler::request_body::Gathered;
use sekisho_handler::wait::{Delay, PasswordTask};
use sekisho_handler::{
    OpenFile, Reply, Task, View, answer, cgi, file_op, service, static_file, status as status_page,
    storage, upstream,
};
use sekisho_http::{Fields, Head, Method, Refusal, Status};
use sekisho_lifecycle::{CloseReason, Moment};
use sekisho_route::{
    Action, Census, ConnectionFacts, FileOp, Handover, Request, RouteState, Table, Wait,
    if_range_replaced, media_type,
};

use sekisho_service::{Caller, RequestCounter};

use crate::debug_log::note_decision;
use crate::exchange::{Accepted, Exchange, Waited};
use crate::link::{Link, request_view};
use crate::list::{self, list};
use crate::observe::{Asked, Fact};
use crate::request_log::{Trouble, write_entries};
use crate::route_view::RouteView;
use crate::site;
use crate::subrequest::RequestTree;
use crate::subrequest::auth::AuthTask;
use crate::subrequest::body_first::BodyFirstTask;
use crate::subrequest::mirror::{self, MirroredTask};
use crate::subrequest::random_file::RandomFileTask;
use crate::user_agent;
use crate::work::WorkerContext;
use crate::worker::{BoundSite, Worker};

/// What is to be answered.
#[derive(Debug)]
pub(crate) enum RouteInput {
    /// What the client asked for.
    Request,
    /// The engine refuses.
    Refused(Refusal),
    /// A handler could not do it.
    Failed(Status),
    /// A handler wants this answered instead.
    Instead(Handover, Vec<u8>),
    /// What the decision waited for is over.
    Again,
}

impl RouteInput {
    /// The same for observers.
    fn told(&self) -> Asked {
        match self {
            Self::Request => Asked::Request,
            Self::Refused(refusal) => Asked::Refused(refusal.status),
            Self::Failed(status) => Asked::Failed(*status),
            Self::Instead(..) | Self::Again => Asked::Instead,
        }
    }

    /// The status where no handler can answer.
    const fn failure(&self) -> Status {
        match self {
            Self::Failed(status) => *status,
            _ => Status::BAD_GATEWAY,
        }
    }

    /// The same, seen from before the decision had to wait.
    pub(crate) fn seen(&self, waited: Waited) -> Waited {
        match self {
            Self::Request => Waited { is_request: true, has_failed: false },
            Self::Failed(_) => Waited { is_request: false, has_failed: true },
            Self::Refused(_) | Self::Instead(..) => Waited::default(),
            Self::Again => waited,
        }
    }
}

/// What the router said.
pub(crate) struct Decided {
    pub(crate) action: Action<Rc<OpenFile>>,
    /// Why the first look at a file came to nothing.
    pub(crate) looked: Option<rustix::io::Errno>,
    /// What a password waits for.
    pub(crate) question: Option<PasswordQuery>,
}

/// What the router is asked with.
pub(crate) struct Deciding<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) bound_site: &'a Rc<BoundSite>,
    pub(crate) request: &'a Request<'a>,
    pub(crate) route: &'a mut RouteState,
    pub(crate) failed_path: &'a mut Vec<u8>,
    pub(crate) permits: &'a mut Vec<ConnectionPermit>,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) now: Moment,
}

impl Deciding<'_> {
    /// Asks the router about this.
    pub(crate) fn decide(self, input: &RouteInput) -> Decided {
        self.ask(|table, request, route, view| match input {
            RouteInput::Request => table.decide(request, route, view),
            RouteInput::Again => table.resume(request, route, view),
            RouteInput::Refused(Refusal { status, .. }) | RouteInput::Failed(status) => {
                table.decide_error(*status, request, route, view)
            }
            RouteInput::Instead(how, target) => {
                table.redirect_internally(*how, target, request, route, view)
            }
        })
    }

    /// Asks the router, with the view of files that it needs.
    pub(crate) fn ask(
        self,
        ask: impl FnOnce(
            &Table,
            &Request<'_>,
            &mut RouteState,
            &mut RouteView<'_>,
        ) -> Action<Rc<OpenFile>>,
    ) -> Decided {
        let Self { worker, bound_site, request, route, failed_path, permits, client, now } = self;
        let mut files = worker.files.borrow_mut();
        failed_path.clear();
        let mut view = RouteView {
            view: View { cache: &mut files, now, wall_secs: request.wall.unix_secs },
            errno: None,
            path: failed_path,
            worker,
            bound_site,
            request,
            permits,
            question: None,
            client,
        };
        let action = ask(bound_site.site.table(), request, route, &mut view);
        let (looked, question) = (view.errno, view.question.take());
        if !files.is_empty() {
            worker.sweep_files_later();
        }
        drop(files);
        write_entries(worker, bound_site, request, route, now);
        note_decision(worker, bound_site, request, route, &action, now);
        Decided { action, looked, question }
    }
}

/// What the handler of an action has made of it.
pub(crate) enum Started {
    /// The answer is there; and how long the file is that it is about.
    Reply(Reply, Option<u64>),
    /// A handler works on it, and takes the request's body.
    Task(Box<dyn Task>),
    /// The decision has to wait; which handler takes the body is not known yet.
    Wait(Box<dyn Task>),
    /// The connection is closed without an answer.
    Close,
    /// It could not be started.
    Failed(Status),
}

/// What the handlers are started with.
pub(crate) struct Starting<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) accepted: &'a Accepted,
    pub(crate) request: &'a Request<'a>,
    /// The head of that request.
    pub(crate) head: &'a Rc<Head>,
    pub(crate) route: &'a RouteState,
    pub(crate) asked: Waited,
    /// Whether body bytes follow, and how many, if that is known.
    pub(crate) body: (bool, Option<u64>),
    /// The body, where all of it was read before.
    pub(crate) gathered: Option<&'a RefCell<Option<Gathered>>>,
    pub(crate) question: Option<PasswordQuery>,
    /// Who makes it, where it comes from within the process.
    pub(crate) within: Option<Rc<Caller>>,
    pub(crate) now: Moment,
}

/// A success would open a tunnel that leads nowhere.
fn without_tunnel(started: Started, head: &Head) -> Started {
    match started {
        Started::Reply(reply, _) if reply.status.is_success() && head.asks_tunnel() => {
            Started::Failed(Status::NOT_IMPLEMENTED)
        }
        other => other,
    }
}

impl Exchange {
    /// Finds the answer and begins to give it.
    pub(crate) fn answer(&mut self, link: &mut Link, input: RouteInput, now: Moment) {
        self.outbox.trailers = None;
        self.outbox.is_kept = false;
        let mut next = Some(input);
        // What could not be started or taken is answered in turn; the router bounds how often.
        while let Some(input) = next {
            next = self.answer_once(link, &input, now);
        }
    }

    fn answer_once(
        &mut self,
        link: &mut Link,
        input: &RouteInput,
        now: Moment,
    ) -> Option<RouteInput> {
        // A second answer to the same request (a handler failed) keeps the configuration of the first.
        let accepted = self.accepted.get_or_insert_with(|| link.accept()).clone();
        let bound_site = &accepted.bound_site;
        self.drop_fields(bound_site, link);
        let facts = link.facts();
        let asked = input.seen(self.waited);
        link.tell(self.id, || Fact::Asked(input.told(), self.head.target()), now);
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let deciding = Deciding {
            worker: &link.worker,
            bound_site,
            request: &request,
            route: &mut self.route,
            failed_path: &mut self.failed_path,
            permits: &mut self.permits,
            client: facts.remote,
            now,
        };
        let Decided { action, looked, question } = deciding.decide(input);
        let location = self.route.location;
        link.protocol.set_policy(self.id, bound_site.site.policy(location));
        let not_kept = bound_site.site.location(location).settings.keepalive_disable;
        if user_agent::ends_connection(&self.head, not_kept) {
            link.protocol.keep_alive_off();
        }
        let told = link.protocol.request_body(self.id);
        self.client_body.declare(told, input);
        let max = bound_site.site.location(location).settings.client_max_body_size;
        let is_over = max.is_some_and(|max| told.1.is_some_and(|bytes| bytes > max));
        let is_answer = !matches!(action, Action::Wait(_) | Action::Close);
        if is_over && asked.is_request && is_answer {
            return self.take_body(link, max, now).err().map(RouteInput::Refused);
        }
        let is_missed = self.client_body.is_missed(asked, &action, &self.head, &self.route);
        let action = if is_missed { Action::Error(input.failure()) } else { action };
        self.begin_fields_for(&action, bound_site, link, now);
        if asked.has_failed && is_answer && !is_task(&action) {
            self.fields.append(&mut self.outbox.fields);
        }
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let (accepted, route, worker) = (&accepted, &self.route, &link.worker);
        let within = link.protocol.caller().filter(|_| matches!(action, Action::Service));
        let starting = Starting {
            worker,
            accepted,
            request: &request,
            head: &self.head,
            route,
            asked,
            body: self.client_body.given(),
            gathered: self.client_body.gathered(),
            question,
            within,
            now,
        };
        #[cfg(feature = "simulation")]
        let started = starting.simulate(input, action, &mut self.fields, &mut self.outbox.fields);
        #[cfg(not(feature = "simulation"))]
        let started = starting.start(action, &mut self.fields, &mut self.outbox.fields);
        match without_tunnel(started, &self.head) {
            Started::Reply(reply, file_bytes) => {
                if matches!(input, RouteInput::Instead(..)) {
                    let is_error = reply.status.code() >= 300 || self.route.status.is_some();
                    keep_fields(&mut self.outbox.fields, &mut self.fields, is_error);
                }
                let status = reply.status;
                let looked = looked.map(|errno| (errno, self.failed_path.as_slice()));
                let trouble = Trouble { worker, accepted, request: &request, route: &self.route };
                trouble.note(status, input, looked, now);
                if !self.route.mirrored.is_empty() {
                    self.start_copies(link, &facts, now);
                }
                self.drop_body(link, now);
                self.send_reply(link, &facts, reply, file_bytes, now);
                None
            }
            Started::Task(task) => {
                if matches!(input, RouteInput::Instead(..)) {
                    self.outbox.fields.clear();
                }
                if let Err(refusal) = self.take_body(link, max, now) {
                    return Some(RouteInput::Refused(refusal));
                }
                self.task = Some(self.mirrored(task, link, &facts, now));
                self.hand_out_body(link, now);
                None
            }
            Started::Wait(task) => {
                self.waited = asked;
                self.task = Some(task);
                None
            }
            Started::Close => {
                self.status = Status::NO_RESPONSE;
                link.break_off(self.id, CloseReason::ByConfiguration, now);
                self.end(link, false, now);
                None
            }
            Started::Failed(status) => Some(RouteInput::Failed(status)),
        }
    }

    /// The fields that the answer begins with. Those of a response that is passed on begin when its head has come.
    fn begin_fields_for(
        &mut self,
        action: &Action<Rc<OpenFile>>,
        bound_site: &BoundSite,
        link: &Link,
        now: Moment,
    ) {
        if matches!(action, Action::Pass) {
            self.fields.clear();
        } else {
            self.begin_fields(bound_site, link, now);
        }
    }

    /// Removes the fields that the configuration does not let in.
    fn drop_fields(&mut self, bound_site: &BoundSite, link: &Link) {
        let (listen, head) = (bound_site.listen(link.local), Rc::make_mut(&mut self.head));
        bound_site.site.table().drop_fields(listen, head);
    }

    /// Starts the copies of this request that `mirror` asks for: at once, or when the handler has its body.
    fn mirrored(
        &mut self,
        task: Box<dyn Task>,
        link: &Link,
        facts: &ConnectionFacts,
        now: Moment,
    ) -> Box<dyn Task> {
        if self.route.mirrored.is_empty() {
            return task;
        }
        let (has_body, body_bytes) = link.protocol.request_body(self.id);
        let Some(accepted) = &self.accepted else { return task };
        let site = Arc::clone(&accepted.bound_site.site);
        let wants_body = |id: &LocationId| {
            site.location(*id).settings.mirrors.as_ref().is_some_and(|mirrors| mirrors.with_body)
        };
        if !has_body || !self.route.mirrored.iter().any(wants_body) {
            self.start_copies(link, facts, now);
            return task;
        }
        let Some(tree) = self.tree(link, facts, now) else { return task };
        let locations = std::mem::take(&mut self.route.mirrored);
        let settings = &site.location(self.route.location).settings;
        Box::new(MirroredTask::new(task, settings, body_bytes, tree, &self.route, locations))
    }

    fn start_copies(&mut self, link: &Link, facts: &ConnectionFacts, now: Moment) {
        let locations = std::mem::take(&mut self.route.mirrored);
        if let Some(tree) = self.tree(link, facts, now) {
            mirror::start(&tree, &self.route, &locations);
        }
    }

    /// What this request shares with those within it.
    pub(crate) fn tree(
        &mut self,
        link: &Link,
        facts: &ConnectionFacts,
        now: Moment,
    ) -> Option<Rc<RequestTree>> {
        if self.tree.is_none() {
            let accepted = self.accepted.as_ref()?;
            let request = request_view(&self.head, accepted, self.arrival, facts, link, now);
            self.tree = Some(RequestTree::new(&link.worker, accepted, &request, &self.head));
        }
        self.tree.clone()
    }

    /// The body is wanted, or at least its end (H6).
    fn take_body(&self, link: &mut Link, max: Option<u64>, now: Moment) -> Result<(), Refusal> {
        let (protocol, buffers) = link.parts();
        let before = buffers.scratch.out.len();
        let taken = protocol.take_body(self.id, max, &mut buffers.scratch, now);
        let is_continued = buffers.scratch.out.len() > before;
        if taken.is_ok() {
            link.tell(self.id, || Fact::BodyWanted { is_continued }, now);
        }
        taken
    }
}

/// Whether a task takes its time over this.
const fn is_task<F>(action: &Action<F>) -> bool {
    match action {
        Action::Status(form) => matches!(form, StatusForm::Page | StatusForm::Prometheus),
        other => matches!(other, Action::Cgi | Action::Pass | Action::FileOp(_) | Action::Service),
    }
}

/// What the answer before wants kept (`X-Accel-Redirect`) goes before what was made in its place.
fn keep_fields(kept: &mut Fields, made: &mut Fields, is_error: bool) {
    let is_multipart = made.get("content-type").is_some_and(|kind| kind.starts_with(b"multipart/"));
    // What it says of its content is not said of an error page, nor of a 304.
    kept.retain(|name, _| {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let is_about_body = is("content-type") || is("accept-ranges");
        !(is_about_body && is_error || is("content-type") && is_multipart)
    });
    for (name, _) in kept.iter() {
        made.retain(|own, _| !own.eq_ignore_ascii_case(name));
    }
    made.append(kept);
}

impl Starting<'_> {
    /// Where a simulation decides what handlers make, it is asked in their place.
    #[cfg(feature = "simulation")]
    fn simulate(
        self,
        input: &RouteInput,
        action: Action<Rc<OpenFile>>,
        fields: &mut Fields,
        task_fields: &mut Fields,
    ) -> Started {
        use crate::simulation::Start;
        let Some(seam) = self.worker.simulation.get() else {
            return self.start(action, fields, task_fields);
        };
        let target = self.request.head.target();
        match seam.script.start(self.request.connection.id, input.told(), target, fields) {
            Start::Reply(reply) => Started::Reply(reply, None),
            Start::Task(task) => Started::Task(task),
        }
    }

    /// Hands the action to its handler: the one place that maps actions to handlers. Fields of a reply go to
    /// `fields`, those that a task or its failure gives to `task_fields`.
    pub(crate) fn start(
        mut self,
        action: Action<Rc<OpenFile>>,
        fields: &mut Fields,
        task_fields: &mut Fields,
    ) -> Started {
        let Self { request, route, now, .. } = self;
        let bound_site: &BoundSite = &self.accepted.bound_site;
        let table = bound_site.site.table();
        let settings = &bound_site.site.location(route.location).settings;
        let product = site::product(settings);
        let reply = |reply| Started::Reply(reply, None);
        match action {
            Action::File(file) => {
                let size = file.size();
                let media_type = media_type(table, route);
                let if_range = if_range_replaced(table, request, route);
                let media_type = media_type.as_bytes();
                let filters = settings.filters.as_deref();
                let role = static_file::Role {
                    // Conditions and ranges are those of the client's own request. They hold for a page that is
                    // given as a 200 in place of an error, too.
                    fixed: match route.status {
                        None | Some(Status::OK) => route.is_subrequest.then_some(Status::OK),
                        status => status,
                    },
                    coding: route.coding,
                    if_range,
                    is_filtered: filters
                        .is_some_and(|filters| filters.change(media_type, size > 0)),
                };
                let head = request.head;
                let made =
                    static_file::reply(&file, head, settings, media_type, role, product, fields);
                Started::Reply(made, Some(size))
            }
            Action::Redirect(status) => {
                reply(answer::redirect(status, &route.text, product, fields))
            }
            Action::Text(status) => {
                let media_type = media_type(table, route);
                reply(answer::text(status, &route.text, media_type.as_bytes(), settings, fields))
            }
            Action::Error(status) => {
                if status == Status::METHOD_NOT_ALLOWED {
                    allow_field(route, fields);
                }
                if self.request.connection.is_clear_by_mistake && status == Status::BAD_REQUEST {
                    // nginx's words.
                    let why = "The plain HTTP request was sent to an HTTPS port";
                    return reply(answer::page_about(status, why, product, fields));
                }
                reply(answer::page(status, product, fields))
            }
            Action::Options => {
                allow_field(route, fields);
                reply(Reply::empty(file_op::options(settings, fields)))
            }
            Action::Listing if settings.path_mapping.is_storage() => started(self.list_objects()),
            Action::Listing => match list(self.context(), request, route, fields, now) {
                Listed::Reply(made) => reply(made),
                Listed::Task(task) => Started::Task(task),
            },
            Action::Cgi | Action::Pass if self.reads_body_first(settings) => {
                let is_program = matches!(action, Action::Cgi);
                Started::Task(BodyFirstTask::start(&self, is_program, settings))
            }
            Action::Cgi => started(self.cgi(task_fields)),
            Action::Pass => started(self.pass(task_fields)),
            Action::FileOp(file_op) => started(self.file_operation(&file_op, task_fields)),
            Action::Status(StatusForm::Counts) => {
                let counters = &self.worker.shared.counters;
                let text = status_page::counts(
                    request.census.map(Census::connections).unwrap_or_default(),
                    counters.accepted.sum(),
                    counters.requests.sum(),
                );
                reply(status_page::counts_reply(text, fields))
            }
            Action::Status(form @ (StatusForm::Ready | StatusForm::Live)) => {
                let is_ready = form == StatusForm::Live || self.worker.is_ready();
                reply(status_page::health_reply(is_ready, fields))
            }
            Action::Status(StatusForm::Pixel) => {
                let status = route.status;
                reply(static_file::pixel(request.head, settings, status, product, fields))
            }
            Action::Status(form) => {
                let is_head = route.method == Method::Head;
                let asked = self.worker.shared.status.get();
                started(status_page::start(asked, form, is_head, now))
            }
            Action::Service => started(self.service()),
            Action::Wait(wait) => self.wait(wait),
            Action::Close => Started::Close,
        }
    }

    fn context(&self) -> WorkerContext {
        WorkerContext {
            worker: Rc::clone(self.worker),
            bound_site: Rc::clone(&self.accepted.bound_site),
            location: self.route.location,
            connection: self.request.connection.id,
            remote: self.route.client(self.request.connection),
            request_id: self.accepted.request_id,
            head: Some(Rc::clone(self.head)),
        }
    }

    /// Whether what the handler is given depends on a body that has not been read.
    fn reads_body_first(&self, settings: &Settings) -> bool {
        settings.reads_body_first && self.body.0 && self.gathered.is_none()
    }

    pub(crate) fn cgi(&self, fields: &mut Fields) -> Result<Box<dyn Task>, Status> {
        let Self { request, route, .. } = *self;
        // The body belongs to the method that was asked for: an error page is a plain GET.
        let is_asked = route.method == request.head.method();
        let call = cgi::Call {
            table: self.accepted.bound_site.site.table(),
            request,
            route_state: route,
            has_body: is_asked && self.body.0,
            body_bytes: self.body.1.filter(|_| is_asked),
            gathered: self.gathered,
            software: site::PRODUCT,
        };
        cgi::start(&call, Rc::new(self.context()), fields, self.now)
    }

    fn service(&self) -> Result<Box<dyn Task>, Status> {
        let Self { request, route, .. } = *self;
        let settings = &self.accepted.bound_site.site.location(route.location).settings;
        let name = settings.service.as_deref().ok_or(Status::INTERNAL_SERVER_ERROR)?;
        // Only what was asked for is called.
        if !self.asked.is_request {
            return Err(Status::INTERNAL_SERVER_ERROR);
        }
        let services = self.worker.services();
        let caller = self.within.clone().unwrap_or_else(|| {
            let client = route.client(request.connection);
            Rc::new(service::caller_of(request.connection, route.verified_user(), client))
        });
        let access = &self.accepted.bound_site.site.access;
        // A call that came by `http` of a native session was counted there.
        let counter = match self.within {
            Some(_) => RequestCounter::default(),
            None => access.limits.counter(&caller.peer, &caller.identity),
        };
        let admitted = access.admit(name, &caller, &counter);
        if let Err((code, text)) = &admitted {
            self.worker.native.count_denied();
            let message = format_args!("service \"{name}\" denied: {code}, {text}");
            cgi::HandlerContext::report(&self.context(), Level::Warn, message);
        }
        let has_body = self.body.0;
        let (caller, now) = (&caller, self.now);
        let call = service::Call { services: &services, name, request, has_body, caller, now };
        self.worker.native.has_service_worked.set(true);
        service::start(&call, admitted)
    }

    pub(crate) fn pass(&self, fields: &mut Fields) -> Result<Box<dyn Task>, Status> {
        let (call, context) = (self.upstream_call(), Rc::new(self.context()));
        let settings = &self.accepted.bound_site.site.location(self.route.location).settings;
        if settings.pass.as_deref().is_some_and(|pass| pass.storage.is_some()) {
            return storage::read(&call, context, self.now);
        }
        let task = upstream::start(&call, context, fields, self.now)?;
        // What is sent to the server may lack a variable.
        if self.route.is_undecided() { Err(Status::INTERNAL_SERVER_ERROR) } else { Ok(task) }
    }

    fn upstream_call(&self) -> upstream::Call<'_> {
        let Self { request, route, .. } = *self;
        upstream::Call {
            table: self.accepted.bound_site.site.table(),
            request,
            route_state: route,
            groups: self.accepted.bound_site.site.groups(),
            caches: self.accepted.bound_site.site.caches(),
            tls: self.accepted.bound_site.site.upstream_tls(),
            pools: &self.worker.upstreams,
            has_body: self.body.0,
            body_bytes: self.body.1,
            gathered: self.gathered,
            credentials: self.accepted.bound_site.site.credentials(),
        }
    }

    fn list_objects(&self) -> Result<Box<dyn Task>, Status> {
        let bound_site = &self.accepted.bound_site;
        let listing = list::call(self.context(), bound_site, self.request, self.route, self.now);
        storage::list(&self.upstream_call(), &listing, Rc::new(self.context()), self.now)
    }

    fn file_operation(
        &self,
        file_op: &FileOp,
        fields: &mut Fields,
    ) -> Result<Box<dyn Task>, Status> {
        // Only what was asked for is done.
        if !self.asked.is_request {
            return Err(Status::INTERNAL_SERVER_ERROR);
        }
        let settings = &self.accepted.bound_site.site.location(self.route.location).settings;
        let is_stored = matches!(file_op, FileOp::Store(_) | FileOp::Resume(_));
        let is_in_storage = match &settings.file_ops {
            Some(file_ops) if is_stored => file_ops.storage.is_some(),
            _ => settings.path_mapping.is_storage(),
        };
        if is_in_storage {
            let call = upstream::Call {
                has_body: self.body.0,
                body_bytes: self.body.1,
                ..self.upstream_call()
            };
            return storage::operate(&call, file_op, Rc::new(self.context()));
        }
        let (has_body, body_bytes) = self.body;
        let (table, request) = (self.accepted.bound_site.site.table(), self.request);
        let call = file_op::Call {
            table,
            request,
            route_state: self.route,
            now: self.now,
            file_op,
            has_body,
            body_bytes,
        };
        file_op::start(&call, Rc::new(self.context()), fields)
    }

    /// Waits for what the decision needs.
    fn wait(&mut self, wait: Wait) -> Started {
        let started = match (wait, self.question.take()) {
            (Wait::For(length), _) => Ok(Delay::until(self.now + length)),
            (Wait::Password, Some(question)) => {
                let remote = self.request.connection.remote.map(|remote| remote.ip());
                let (hashers, context) = (&self.worker.shared.hashers, Rc::new(self.context()));
                PasswordTask::start(hashers, question, remote, context, self.now)
            }
            (Wait::Password, None) => Err(Status::INTERNAL_SERVER_ERROR),
            (Wait::Auth, _) => self.ask_for_permission(),
            (Wait::RandomFile, _) => {
                Ok(RandomFileTask::start(self.route, self.accepted.request_id.0))
            }
            (Wait::Object, _) => {
                let call = self.upstream_call();
                storage::look(&call, Rc::new(self.context()), self.now)
            }
        };
        started.map_or_else(Started::Failed, Started::Wait)
    }
}

impl Starting<'_> {
    fn ask_for_permission(&self) -> Result<Box<dyn Task>, Status> {
        let settings = &self.accepted.bound_site.site.location(self.route.location).settings;
        let access = match settings.limit_except.as_deref() {
            Some(limit) if !limit.methods.contains(&self.route.method) => limit.access.as_deref(),
            _ => settings.access.as_deref(),
        };
        let rule = access.and_then(|access| access.auth_request.as_ref());
        let rule = rule.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let tree = RequestTree::new(self.worker, self.accepted, self.request, self.head);
        AuthTask::start(&tree, self.route, rule)
    }
}

fn started(task: Result<Box<dyn Task>, Status>) -> Started {
    task.map_or_else(Started::Failed, Started::Task)
}

fn allow_field(route: &RouteState, fields: &mut Fields) {
    if route.allow.is_empty() {
        // `return 405`: what else would be taken is not known.
        return;
    }
    fields.push("Allow", &route.allow);
}
