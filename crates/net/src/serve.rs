//! One request's answer: the router decides, a handler makes the reply, the engine frames it, and the
//! access log gets its line.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use sekisho_config::{Level, ListenAddress};
use sekisho_handler::limits::Place;
use sekisho_handler::listing::Listed;
use sekisho_handler::password::Question;
use sekisho_handler::{OpenFile, Piece, Reply, View, answer, deed, file_cache, static_file};
use sekisho_http::{Head, Known, Status};
use sekisho_http1::{BodyLength, Event, Http1, Refusal, Response, Sends};
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Moment};
use sekisho_route::{
    Action, ConnectionFacts, Exchange, Handover, Request, RequestIdSeed, Sent, added_fields,
    log_line, media_type, wants_line,
};

use crate::clock::Clock;
use crate::compress::{Asked, Outgoing};
use crate::drive::Connection;
use crate::gates::Witness;
use crate::list::list;
use crate::session::{Key, Wish};
use crate::work::{Around, Job};
use crate::worker::{Placed, Worker};
use crate::{site, trial};

/// How many lines about missing files a worker writes in a second.
const NOT_FOUND_LINES: u32 = 20;

/// The request that is being answered, and the buffers for it.
#[derive(Debug, Default)]
pub struct Serving {
    pub(crate) exchange: Exchange,
    /// The response's field lines.
    pub(crate) fields: Vec<u8>,
    /// Where `Date` stands among them.
    pub(crate) date: Range<usize>,
    line: Vec<u8>,
    /// How many changes the server had made to files before the decision looked at any.
    pub(crate) changes: u64,
    /// The first path that came to nothing.
    failed_path: Vec<u8>,
    /// When the first byte of this request was seen, and how many have been taken.
    since: Moment,
    received: u64,
    /// The places of `limit_conn` that it has taken, until it is over.
    places: Vec<Place>,
    /// What was asked before the decision had to wait.
    waited: Waited,
    pub(crate) current: Option<Current>,
}

/// What was asked before a decision had to wait.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    /// What the client asked for, so that the body is meant.
    is_request: bool,
    /// What a failed handler left, whose fields belong to the answer.
    has_failed: bool,
}

/// What is known about the request that is being answered.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) placed: Rc<Placed>,
    pub(crate) request_id: RequestIdSeed,
    pub(crate) status: Status,
    pub(crate) head_bytes: u64,
    pub(crate) body_bytes: u64,
    /// How long the body was before it was compressed.
    pub(crate) plain_bytes: Option<u64>,
}

/// Keeps lines about missing files few: someone who probes for files must not fill the log.
#[derive(Debug, Default)]
pub struct NotFoundLines {
    second: i64,
    written: u32,
    left_out: u64,
}

impl NotFoundLines {
    /// Whether a line may be written now, and how many were left out since the last one.
    fn admit(&mut self, second: i64) -> Option<u64> {
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= NOT_FOUND_LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }

    /// Leaves a line out, if there have been enough of them.
    pub(crate) fn pass_over(&mut self, second: i64) -> bool {
        let is_enough = self.second == second && self.written >= NOT_FOUND_LINES;
        self.left_out += u64::from(is_enough);
        is_enough
    }
}

impl Serving {
    /// The field lines that every answer begins with.
    pub(crate) fn begin_fields(&mut self, placed: &Placed, clock: &Clock, now: Moment) {
        let settings = &placed.site.location(self.exchange.location).settings;
        self.fields.clear();
        self.fields.extend_from_slice(b"Server: ");
        self.fields.extend_from_slice(site::product(settings).as_bytes());
        self.fields.extend_from_slice(b"\r\n");
        let start = self.fields.len();
        clock.write_date_field(now, &mut self.fields);
        self.date = start..self.fields.len();
    }

    /// A new request may begin with the bytes that come now.
    pub fn begin(&mut self, now: Moment) {
        self.since = now;
        self.received = 0;
    }

    /// So many bytes of the request have been taken.
    pub fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// When the first byte of this request was seen.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// What it had of `limit_conn` is for others.
    pub(crate) fn leave_places(&mut self) {
        self.places.clear();
    }

    /// Whether a request is being answered.
    pub fn is_answering(&self) -> bool {
        self.current.is_some()
    }

    /// Makes it ready for another session; `false` when it is not worth keeping.
    pub fn tidy(&mut self, keep_bytes: usize) -> bool {
        self.current = None;
        self.places.clear();
        self.begin(Moment::ZERO);
        self.fields.capacity() <= keep_bytes && self.line.capacity() <= keep_bytes
    }
}

/// What is to be answered.
#[derive(Debug)]
pub(crate) enum Ask {
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

/// What the router said.
struct Decided {
    action: Action<Rc<OpenFile>>,
    /// Why the first look at a file came to nothing.
    looked: Option<rustix::io::Errno>,
    /// What a password waits for.
    question: Option<Question>,
    /// Until when all that was looked at may be taken for true.
    trusted_until: Moment,
}

impl Ask {
    /// Asks the router.
    fn decide(
        &self,
        worker: &Rc<Worker>,
        placed: &Placed,
        request: &Request<'_>,
        serving: &mut Serving,
        now: Moment,
    ) -> Decided {
        let (table, exchange) = (placed.site.table(), &mut serving.exchange);
        let mut files = worker.files.borrow_mut();
        files.begin();
        serving.changes = file_cache::changes();
        serving.failed_path.clear();
        let mut view = Witness {
            view: View { cache: &mut files, now, wall_secs: request.wall.unix_secs },
            errno: None,
            path: &mut serving.failed_path,
            worker,
            placed,
            request,
            places: &mut serving.places,
            question: None,
        };
        let action = match self {
            Self::Request => table.decide(request, exchange, &mut view),
            Self::Again => table.resume(request, exchange, &mut view),
            Self::Refused(Refusal { status, .. }) | Self::Failed(status) => {
                table.decide_error(*status, request, exchange, &mut view)
            }
            Self::Instead(how, target) => {
                table.redirect_internally(*how, target, request, exchange, &mut view)
            }
        };
        let (looked, question) = (view.errno, view.question.take());
        let trusted_until = files.trusted_until();
        if !files.is_empty() {
            worker.sweep_files_later();
        }
        Decided { action, looked, question, trusted_until }
    }

    /// The same, seen from before the decision had to wait.
    fn seen(&self, waited: Waited) -> Waited {
        match self {
            Self::Request => Waited { is_request: true, has_failed: false },
            Self::Failed(_) => Waited { is_request: false, has_failed: true },
            Self::Refused(_) | Self::Instead(..) => Waited::default(),
            Self::Again => waited,
        }
    }
}

impl Connection {
    /// Acts on what the engine says.
    pub(crate) fn handle(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Request => {
                admit(&self.worker, self.key, &mut self.engine, now);
                trial::strike(self);
                self.answer(&Ask::Request, now);
            }
            Event::Refused(refusal) => {
                self.drop_task();
                self.answer(&Ask::Refused(*refusal), now);
            }
            // Body bytes are handed over where they are received; see `Connection::offer_body`.
            Event::Body(_) | Event::BodyEnd => {}
            Event::ClientLost => {
                self.drop_task();
                self.engine.abort(CloseReason::PeerClosedEarly);
            }
        }
    }

    /// The request that was admitted, if one was, is over (L5, L9).
    pub(crate) fn release(&mut self) {
        let mut sessions = self.worker.sessions.borrow_mut();
        if sessions.seat(self.key).session().running() > 0 {
            sessions.after(self.key, Fact::ResponseSent);
        }
    }

    /// Finds the answer and begins to give it.
    pub(crate) fn answer(&mut self, ask: &Ask, now: Moment) {
        let worker = Rc::clone(&self.worker);
        let facts = self.facts();
        let busy = self.busy.get_or_insert_with(|| worker.borrow_buffers());
        let serving = &mut busy.serving;
        // A second answer to the same request (a handler failed) goes on where the first one stood.
        let (placed, request_id) = match serving.current.take() {
            Some(current) => (current.placed, current.request_id),
            None => (self.door.placed(), RequestIdSeed(worker.next_request_id())),
        };
        let wall = worker.clock.wall(now);
        let listen = placed.listen(self.local);
        placed.site.table().drop_fields(listen, &mut busy.scratch.head);
        let request =
            Request { head: &busy.scratch.head, listen, connection: &facts, wall, request_id };
        let table = placed.site.table();
        let asked = ask.seen(serving.waited);
        let Decided { action, looked, question, trusted_until } =
            ask.decide(&worker, &placed, &request, serving, now);
        write_remarks(&worker, &placed, &request, &mut serving.exchange, now);
        self.engine.set_policy(placed.site.policy(serving.exchange.location));
        serving.begin_fields(&placed, &worker.clock, now);
        let (exchange, fields) = (&serving.exchange, &mut serving.fields);
        if let Action::Wait(wait) = action {
            serving.waited = asked;
            serving.current = Some(Current::new(placed, request_id, None));
            return self.wait(wait, question, now);
        }
        if let Action::Close = action {
            // nginx's number for a connection that was closed without an answer.
            serving.current = Some(Current::new(placed, request_id, Status::new(444)));
            self.engine.abort(CloseReason::ByConfiguration);
            return self.log(now, false);
        }
        let max = placed.site.location(exchange.location).settings.client_max_body_size;
        let is_over = max.is_some_and(|max| self.engine.body_length().is_some_and(|n| n > max));
        if is_over && asked.is_request {
            serving.current = Some(Current::new(placed, request_id, None));
            return self.refuse_body(max, now);
        }
        let connection = self.id;
        let around = || Around {
            worker: Rc::clone(&worker),
            placed: Rc::clone(&placed),
            location: exchange.location,
            connection,
            remote: facts.remote,
            request_id,
        };
        if matches!(action, Action::Cgi | Action::Deed(_) | Action::Status(_)) {
            let is_first = asked.is_request;
            let body = (self.engine.request_has_body(), self.engine.body_length());
            let job = Job { table, request: &request, exchange, is_first, body };
            let started = job.start(&action, around(), &mut busy.outbox.fields, now);
            serving.current = Some(Current::new(placed, request_id, None));
            return self.begin(started, now);
        }
        if asked.has_failed {
            fields.append(&mut busy.outbox.fields);
        }
        let is_file_or_error = matches!(action, Action::File(_) | Action::Error(_));
        let file_bytes = if let Action::File(file) = &action { Some(file.size()) } else { None };
        let reply = if let Action::Listing = action {
            match list(around(), &request, exchange, fields, now) {
                Listed::Reply(reply) => reply,
                Listed::Task(task) => {
                    serving.current = Some(Current::new(placed, request_id, None));
                    return self.begin(Ok(task), now);
                }
            }
        } else {
            make(action, &request, exchange, &placed, fields)
        };
        let status = reply.status;
        added_fields(table, &request, exchange, status, reply.modified(), fields);
        let outgoing =
            Asked { table, request: &request, exchange }.press(reply, file_bytes, fields);
        let looked = looked.map(|errno| (errno, serving.failed_path.as_slice()));
        let is_noted = note_trouble(&worker, &placed, &request, exchange, status, ask, looked, now);
        serving.current = Some(Current::new(placed, request_id, Some(status)));
        let may_repeat = matches!(outgoing, Outgoing::Whole(..))
            && (is_file_or_error && matches!(ask, Ask::Request) && !trusted_until.is_due(now));
        let known = may_repeat.then(|| self.repeatable(status, trusted_until, is_noted)).flatten();
        self.let_go(outgoing, now);
        if let Some(known) = known {
            self.keep_for_repeats(known);
        }
    }

    /// A body that is too large is refused when it has been thrown away, or at once (H6).
    fn refuse_body(&mut self, max: Option<u64>, now: Moment) {
        let Some(busy) = &mut self.busy else { return };
        if let Err(refusal) = self.engine.take_body(max, &mut busy.scratch, now) {
            self.answer(&Ask::Refused(refusal), now);
        }
    }

    /// Frames a reply; what is in memory goes into the batch, the rest waits its turn behind it.
    pub(crate) fn send(&mut self, reply: Reply, plain_bytes: Option<u64>, now: Moment) {
        let Some(busy) = &mut self.busy else { return };
        let length = match reply.len() {
            0 => BodyLength::Empty,
            length => BodyLength::Known(length),
        };
        busy.begin_pace(now);
        let before = busy.scratch.out.len();
        let response = Response { status: reply.status, fields: &busy.serving.fields, length };
        let sends = self.engine.respond(&response, &mut busy.scratch, now);
        if let Some(current) = &mut busy.serving.current {
            current.head_bytes = (busy.scratch.out.len() - before) as u64;
            current.plain_bytes = plain_bytes;
            current.body_bytes = match sends {
                Sends::Exactly(length) => length,
                Sends::Nothing | Sends::Stream => 0,
            };
        }
        if !matches!(sends, Sends::Nothing) {
            for piece in reply.piece.into_iter().chain(reply.body) {
                match piece.in_memory() {
                    Some(bytes) if busy.pieces.is_empty() => {
                        self.engine.body(bytes, &mut busy.scratch);
                    }
                    _ => busy.pieces.push_back(piece),
                }
            }
        }
        if busy.pieces.is_empty() {
            self.finish(now);
        }
    }

    /// The response is complete as far as we are concerned.
    pub(crate) fn finish(&mut self, now: Moment) {
        let Some(busy) = &mut self.busy else { return };
        self.engine.finish(&mut busy.scratch, now);
        self.log(now, true);
    }

    /// The response cannot be completed.
    pub(crate) fn break_off(&mut self, now: Moment) {
        if self.worker.sessions.borrow().wish(self.key) == Wish::Force {
            self.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
        }
        self.engine.abort(CloseReason::BrokenOff);
        self.log(now, false);
        if let Some(busy) = &mut self.busy {
            busy.pieces.clear();
        }
    }

    /// The session ends: a request that was being answered gets its line all the same.
    pub(crate) fn cut_short(&mut self, now: Moment) {
        self.log(now, false);
    }

    /// Writes the access log's line for the current request, once.
    fn log(&mut self, now: Moment, is_complete: bool) {
        self.release();
        let facts = self.facts();
        let Some(busy) = &mut self.busy else { return };
        if !busy.is_paced() {
            busy.serving.leave_places();
        }
        let Some(current) = busy.serving.current.take() else { return };
        if current.status == Status::FORBIDDEN {
            self.worker.shared.doubt.notify_one();
        }
        let serving = &mut busy.serving;
        self.worker.tally.borrow_mut().add(current.status, now.since(serving.since));
        let site = &current.placed.site;
        let settings = &site.location(serving.exchange.location).settings;
        if settings.access_logs.is_empty() && !serving.exchange.has_remarks() {
            return;
        }
        let left: u64 = busy.pieces.iter().map(Piece::len).sum();
        let body_bytes = current.body_bytes.saturating_sub(left);
        let request = Request {
            head: &busy.scratch.head,
            listen: current.placed.listen(self.local),
            connection: &facts,
            wall: self.worker.clock.wall(now),
            request_id: current.request_id,
        };
        let sent = Sent {
            status: Some(current.status),
            bytes: current.head_bytes + body_bytes,
            body_bytes,
            fields: &serving.fields,
            request_nanos: now.since(serving.since).as_nanos() as u64,
            request_bytes: serving.received,
            plain_bytes: current.plain_bytes,
            completed: is_complete,
            is_pipelined: false,
        };
        let sinks = site.access_sinks(serving.exchange.location);
        for (log, sink) in settings.access_logs.iter().zip(sinks) {
            let (table, exchange) = (site.table(), &serving.exchange);
            if let Some(condition) = &log.condition
                && !wants_line(condition, table, &request, exchange, Some(&sent))
            {
                continue;
            }
            let line = &mut serving.line;
            line.clear();
            log_line(&log.format, table, &request, exchange, Some(&sent), line);
            line.push(b'\n');
            sink.line(line);
        }
        // Fields and lines have variables too.
        write_remarks(&self.worker, &current.placed, &request, &mut serving.exchange, now);
    }

    pub(crate) fn facts(&self) -> ConnectionFacts {
        let port = match &self.door.address {
            ListenAddress::Tcp(address) => address.port(),
            ListenAddress::Unix(_) => 0,
        };
        ConnectionFacts {
            id: self.id,
            remote: self.worker.sessions.borrow().seat(self.key).remote(),
            local: self.local.map(|ip| SocketAddr::new(ip, port)),
            requests: self.engine.requests(),
            is_tls: false,
        }
    }
}

/// A request begins (L2). Where the session is wished to end, this is its last one.
pub(crate) fn admit(worker: &Worker, key: Key, engine: &mut Http1, now: Moment) {
    worker.shared.counters.requests.fetch_add(1, Ordering::Relaxed);
    let mut sessions = worker.sessions.borrow_mut();
    sessions.after(key, Fact::RequestReceived);
    if let Some(manner) = sessions.wish(key).manner() {
        sessions.after(key, Fact::ShutdownAsked(manner));
        engine.shut_down_gracefully(now);
    }
}

impl Current {
    fn new(placed: Rc<Placed>, request_id: RequestIdSeed, status: Option<Status>) -> Self {
        // nginx's number for a client that left before it had an answer.
        let closed = Status::new(499).unwrap_or(Status::BAD_REQUEST);
        Self {
            placed,
            request_id,
            status: status.unwrap_or(closed),
            head_bytes: 0,
            body_bytes: 0,
            plain_bytes: None,
        }
    }
}

/// Lets the handler of an action do its work.
fn make(
    action: Action<Rc<OpenFile>>,
    request: &Request<'_>,
    exchange: &Exchange,
    placed: &Placed,
    fields: &mut Vec<u8>,
) -> Reply {
    let table = placed.site.table();
    let settings = &placed.site.location(exchange.location).settings;
    let product = site::product(settings);
    match action {
        Action::File(file) => {
            let media_type = media_type(table, exchange);
            let media_type = media_type.as_bytes();
            static_file::reply(
                &file,
                request.head,
                settings,
                media_type,
                static_file::Role { fixed: exchange.status, coding: exchange.coding },
                product,
                fields,
            )
        }
        Action::Redirect(status) => answer::redirect(status, &exchange.text, product, fields),
        Action::Text(status) => {
            let media_type = media_type(table, exchange);
            answer::text(status, &exchange.text, media_type.as_bytes(), settings, fields)
        }
        Action::Error(status) => {
            if status == Status::METHOD_NOT_ALLOWED {
                allow_field(exchange, fields);
            }
            answer::page(status, product, fields)
        }
        Action::Options => {
            allow_field(exchange, fields);
            Reply::empty(deed::options(settings, fields))
        }
        // The caller has dealt with these already.
        Action::Close
        | Action::Cgi
        | Action::Deed(_)
        | Action::Status(_)
        | Action::Listing
        | Action::Wait(_) => Reply::empty(Status::NO_CONTENT),
    }
}

fn allow_field(exchange: &Exchange, fields: &mut Vec<u8>) {
    if exchange.allow.is_empty() {
        // `return 405`: what else would be taken is not known.
        return;
    }
    fields.extend_from_slice(b"Allow: ");
    fields.extend_from_slice(&exchange.allow);
    fields.extend_from_slice(b"\r\n");
}

/// Writes into the error log what the decision had to say (`rewrite_log` and the like).
fn write_remarks(
    worker: &Worker,
    placed: &Placed,
    request: &Request<'_>,
    exchange: &mut Exchange,
    now: Moment,
) {
    if !exchange.has_remarks() {
        return;
    }
    let remarks = exchange.take_remarks();
    let logger = placed.site.error_logger(exchange.location);
    let stamp = worker.clock.stamp(now);
    let client = Client(request.connection.remote);
    let line = RequestLine(request.head, request.request_id);
    for remark in remarks.iter().filter(|remark| logger.wants(remark.level)) {
        let message = format_args!("{}, {client}{line}", remark.text);
        logger.write(remark.level, stamp, Some(request.connection.id), message);
    }
}

/// Writes into the error log what an operator wants to know about an answer that went wrong. Whether there
/// was anything to write, even if it was left out because there are enough such lines.
#[expect(clippy::too_many_arguments, reason = "it gathers what the log line tells")]
fn note_trouble(
    worker: &Worker,
    placed: &Placed,
    request: &Request<'_>,
    exchange: &Exchange,
    status: Status,
    ask: &Ask,
    looked: Option<(rustix::io::Errno, &[u8])>,
    now: Moment,
) -> bool {
    let refusal = match ask {
        Ask::Refused(refusal) => Some(refusal),
        // Whoever failed has said why.
        Ask::Failed(_) => return false,
        Ask::Request | Ask::Again | Ask::Instead(..) => None,
    };
    if refusal.is_none() && !status.is_error() {
        return false;
    }
    let logger = placed.site.error_logger(exchange.location);
    let level = if refusal.is_some() { Level::Info } else { Level::Error };
    if !logger.wants(level) {
        return false;
    }
    let stamp = worker.clock.stamp(now);
    let facts = request.connection;
    let client = Client(facts.remote);
    let line = RequestLine(request.head, request.request_id);
    if let Some(refusal) = refusal {
        let cause = refusal.cause.message();
        let message = format_args!("refused with {status}: {cause}, {client}{line}");
        logger.write(level, stamp, Some(facts.id), message);
        return true;
    }
    let (Some((errno, file)), true) = (looked, matches!(status.code(), 403 | 404 | 500)) else {
        return false;
    };
    let settings = &placed.site.location(exchange.location).settings;
    if status == Status::NOT_FOUND && !settings.log_not_found {
        return false;
    }
    let Some(left_out) = worker.not_found.borrow_mut().admit(stamp.unix_secs) else { return true };
    if left_out > 0 {
        let message = format_args!("{left_out} lines like the next were left out");
        logger.write(level, stamp, None, message);
    }
    let file = file.escape_ascii();
    if status == Status::FORBIDDEN && errno == rustix::io::Errno::NOENT {
        // An index file is what was not there.
        let message = format_args!("no index for \"{file}\" and no listing, {client}{line}");
        logger.write(level, stamp, Some(facts.id), message);
        return true;
    }
    let why = std::io::Error::from(errno);
    let hint = worker.denial_hint(errno);
    let message = format_args!("open() \"{file}\" failed: {why}{hint}, {client}{line}");
    logger.write(level, stamp, Some(facts.id), message);
    true
}

pub(crate) struct Client(pub(crate) Option<SocketAddr>);

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(address) => write!(f, "client: {}", address.ip()),
            None => f.write_str("client: unix:"),
        }
    }
}

pub(crate) struct RequestLine<'a>(pub(crate) &'a Head, pub(crate) RequestIdSeed);

impl std::fmt::Display for RequestLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RequestIdSeed(id) = self.1;
        write!(f, ", request id: {id:032x}")?;
        if self.0.method_name().is_empty() {
            return Ok(());
        }
        let (method, target) =
            (self.0.method_name().escape_ascii(), self.0.target().escape_ascii());
        write!(f, ", request: \"{method} {target} {}\"", self.0.version().as_str())?;
        if let Some(host) = self.0.known(Known::Host) {
            write!(f, ", host: \"{}\"", host.escape_ascii())?;
        }
        Ok(())
    }
}
