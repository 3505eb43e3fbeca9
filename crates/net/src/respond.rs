//! The answer of one request on its way out: its fields, its head, its body in pieces, and its one ending.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sekisho_config::{Bytes, Forward, Level, Recode, Settings};
use sekisho_handler::filter::{FilterTask, Part, Requests, SliceTask};
use sekisho_handler::memory::{self, Class};
use sekisho_handler::{FileTask, Piece, Reply, Task, answer, static_file};
use sekisho_http::fields::is_field_value;
use sekisho_http::{BodyLength, Known, Method, Response, Sends, Status};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{CloseReason, Moment};
use sekisho_route::{
    ConnectionFacts, Sent, SentFraming, SubrequestTarget, added_fields, added_trailers,
    computed_charset, expand, has_trailers, name_charset,
};

use crate::compress::{Compression, Outgoing};
use crate::dispatch::RouteInput;
use crate::exchange::{Accepted, Exchange};
use crate::filter::{self, Body, Filtering, Selected};
use crate::link::{Link, request_view};
use crate::observe::Fact;
use crate::pace::Pace;
use crate::recode::{self, Recoded};
use crate::site;
use crate::subrequest::{RequestTree, Requester};
use crate::worker::BoundSite;

impl Exchange {
    /// The fields that every answer begins with.
    pub(crate) fn begin_fields(&mut self, bound_site: &BoundSite, link: &Link, now: Moment) {
        let settings = &bound_site.site.location(self.route.location).settings;
        self.fields.clear();
        self.fields.push("Server", site::product(settings));
        link.worker.clock.push_date(now, &mut self.fields);
        if link.announces_http3()
            && let Some(announced) = bound_site.site.alt_svc(self.route.location)
        {
            self.fields.push("Alt-Svc", announced);
        }
    }

    /// The same, and those of a task, which may have a `Server` and a `Date` of its own (`proxy_pass_header`).
    fn begin_task_fields(&mut self, bound_site: &BoundSite, link: &Link, now: Moment) {
        self.begin_fields(bound_site, link, now);
        let own = &self.outbox.fields;
        if ["server", "date", "alt-svc"].iter().any(|name| own.has(name)) {
            self.fields.retain(|name, _| own.all(name).next().is_none());
        }
        self.fields.append(&mut self.outbox.fields);
    }

    /// Sends a reply; `file_bytes` is how long the file is that it is about.
    pub(crate) fn send_reply(
        &mut self,
        link: &mut Link,
        facts: &ConnectionFacts,
        reply: Reply,
        file_bytes: Option<u64>,
        now: Moment,
    ) {
        let Some(accepted) = &self.accepted else { return };
        let request = request_view(&self.head, accepted, self.arrival, facts, link, now);
        let table = accepted.bound_site.site.table();
        let (status, modified) = (reply.status, reply.modified());
        added_fields(table, &request, &self.route, status, modified, &mut self.fields);
        let compression = Compression { table, request: &request, route: &self.route };
        let settings = &table.location(self.route.location).settings;
        let filtering = Filtering { table, request: &request, route: &self.route };
        let recode = match computed_charset(table, &request, &self.route) {
            Some(name) => {
                let (charsets, name) =
                    (&accepted.bound_site.site.config().http.charsets, Some(&*name));
                let fields = &mut self.fields;
                name_charset(charsets, settings, status, None, name, fields, &self.route)
            }
            None => recode::wanted(settings, &self.fields).cloned(),
        };
        if settings.filters.is_some()
            && filtering.wanted(reply.status, Some(reply.len()), &mut self.fields).is_some()
        {
            return self.send_filtered(link, facts, reply, recode.as_ref(), now);
        }
        let reply = match recode::apply(reply, recode.as_ref(), &self.fields) {
            Recoded::Reply(reply) => reply,
            Recoded::Stream(status, task) => {
                let mut task = Some(task);
                compression.apply_to_task(status, None, &mut task, &mut self.fields);
                let task = task.filter(|_| request.head.method() != Method::Head);
                return self.send_stream(link, status, task, now);
            }
            Recoded::Short => {
                let product = site::product(settings);
                answer::page(Status::SERVICE_UNAVAILABLE, product, &mut self.fields)
            }
        };
        match compression.apply(reply, file_bytes, &mut self.fields) {
            Outgoing::Reply(reply, plain_bytes) => {
                self.plain_bytes = plain_bytes;
                self.send_pieces(link, reply, now);
            }
            Outgoing::Stream(status, task) => self.send_stream(link, status, task, now),
        }
    }

    /// The same for a reply whose body goes through filters.
    fn send_filtered(
        &mut self,
        link: &mut Link,
        facts: &ConnectionFacts,
        reply: Reply,
        recode: Option<&Arc<Recode>>,
        now: Moment,
    ) {
        let (status, length) = (reply.status, Some(reply.len()));
        let task: Box<dyn Task> =
            Box::new(FileTask::new(reply.piece.into_iter().chain(reply.body)));
        self.task = Some(task);
        self.filter(link, facts, status, length, recode, now);
        let task = self.task.take().filter(|_| self.head.method() != Method::Head);
        self.send_stream(link, status, task, now);
    }

    /// Puts filters and compression around the body that the task makes, of which only the head has come; whether
    /// it is changed, and so of no known length.
    fn filter(
        &mut self,
        link: &Link,
        facts: &ConnectionFacts,
        status: Status,
        length: Option<u64>,
        recode: Option<&Arc<Recode>>,
        now: Moment,
    ) -> bool {
        let tree = self.tree(link, facts, now);
        let (Some(accepted), Some(tree)) = (self.accepted.clone(), tree) else { return false };
        let table = accepted.bound_site.site.table();
        let request = request_view(&self.head, &accepted, self.arrival, facts, link, now);
        let filtering = Filtering { table, request: &request, route: &self.route };
        // Where only the head is wanted, nothing is put around the task that gives it.
        let is_head = self.head.method() == Method::Head;
        let mut own = self.task.take();
        let mut body = Body { task: if is_head { None } else { own.take() }, length };
        let mut is_changed = false;
        if let Some(wanted) = filtering.wanted(status, length, &mut self.fields) {
            let requester = || -> Rc<dyn Requests> {
                let route = Rc::new(self.route.clone());
                Rc::new(Requester { tree: Rc::clone(&tree), route, depth: 0 })
            };
            filtering.apply(wanted, &mut body, &mut self.fields, recode, requester);
            is_changed = true;
        } else if let Some(recode) = recode {
            is_changed = Filtering::recode(recode, &mut body, &mut self.fields);
        }
        let compression = Compression { table, request: &request, route: &self.route };
        let Body { mut task, length } = body;
        is_changed |= compression.apply_to_task(status, length, &mut task, &mut self.fields);
        self.task = task.or(own);
        is_changed
    }

    /// The head of a slice has come, or of an answer whose conditions and ranges are met here: it becomes that of what
    /// the client gets. `None` where it stays what it is; what is wrong with it is the other server's fault.
    fn select_part(
        &mut self,
        link: &Link,
        status: Status,
        length: Option<u64>,
        now: Moment,
    ) -> Result<Option<Selected>, Status> {
        let is_kept = std::mem::take(&mut self.outbox.is_kept);
        let Some(accepted) = self.accepted.clone() else { return Ok(None) };
        let settings = &accepted.bound_site.site.location(self.route.location).settings;
        let size = settings.filters.as_deref().and_then(|filters| filters.slice);
        let slice = size.zip(self.route.slice_start.get());
        let selected = match slice {
            Some((size, start)) if status == Status::PARTIAL_CONTENT => {
                let Some(tree) = self.tree(link, &link.facts(), now) else { return Ok(None) };
                Some(self.slice(&tree, (start, size.get()), now)?)
            }
            _ if status == Status::OK && self.may_be_cut(settings, is_kept) => {
                let facts = link.facts();
                let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
                let judged = is_kept
                    .then(|| filter::judge(&request, static_file::since(settings), &self.fields));
                match judged.flatten() {
                    Some(status) => Some(Selected { status, range: 0..0 }),
                    None => self.cut(&accepted, &facts, link, length, now),
                }
            }
            _ => None,
        };
        match selected {
            Some(Selected {
                status: status @ (Status::PRECONDITION_FAILED | Status::RANGE_NOT_SATISFIABLE),
                ..
            }) => {
                self.outbox.fields.clear();
                if let Some(range) = self.fields.get("content-range") {
                    self.outbox.fields.push("Content-Range", range);
                }
                Err(status)
            }
            selected => Ok(selected),
        }
    }

    /// Whether conditions and ranges of the client may be met here.
    fn may_be_cut(&self, settings: &Settings, is_kept: bool) -> bool {
        let forward = settings.pass.as_deref().map(|pass| &pass.forward);
        let for_cache =
            |it: &Forward| self.head.known(Known::Range).is_some() && it.caching.cache.is_some();
        is_kept || forward.is_some_and(|it| it.force_ranges || for_cache(it))
    }

    /// Cuts the range that the client asked for of a whole answer, where that is done here (`proxy_force_ranges`, and
    /// answers for a cache or from one, of which all was asked for). A body that filters change has no ranges.
    fn cut(
        &mut self,
        accepted: &Accepted,
        facts: &ConnectionFacts,
        link: &Link,
        length: Option<u64>,
        now: Moment,
    ) -> Option<Selected> {
        let table = accepted.bound_site.site.table();
        let settings = &table.location(self.route.location).settings;
        let complete = length.filter(|_| self.may_be_cut(settings, false))?;
        let request = request_view(&self.head, accepted, self.arrival, facts, link, now);
        let filtering = Filtering { table, request: &request, route: &self.route };
        if filtering.wanted(Status::OK, length, &mut self.fields).is_some() {
            return None;
        }
        let selected = filter::select(&request, complete, &mut self.fields);
        let is_head = self.head.method() == Method::Head;
        let is_whole = selected.range == (0..complete);
        let task = self.task.take().map(|mut task| -> Box<dyn Task> {
            if is_head || is_whole || task.narrow(&selected.range) {
                return task;
            }
            let part = Part::new(selected.range.clone());
            Box::new(FilterTask::new(task, length, Box::new(part)))
        });
        self.task = task;
        Some(selected)
    }

    fn slice(
        &mut self,
        tree: &Rc<RequestTree>,
        slice: (u64, u64),
        now: Moment,
    ) -> Result<Selected, Status> {
        let request = tree.view(now);
        let route = Rc::new(self.route.clone());
        let requester = Rc::new(Requester { tree: Rc::clone(tree), route, depth: 0 });
        let sliced = filter::slice(&request, slice, &mut self.fields).map_err(|wrong| {
            requester.report(Level::Error, format_args!("{wrong}"));
            Status::BAD_GATEWAY
        })?;
        let target = SubrequestTarget {
            path: self.route.path.clone(),
            query: self.route.query.clone(),
            method: self.route.method,
            slice_start: None,
        };
        if self.head.method() == Method::Head {
            return Ok(sliced.selected);
        }
        let first = (sliced.first.start, sliced.first.end);
        self.task = self.task.take().map(|task| -> Box<dyn Task> {
            let task = SliceTask::new(task, requester, sliced.slices, target, first);
            Box::new(if sliced.is_first_wanted { task } else { task.without_first() })
        });
        Ok(sliced.selected)
    }

    /// Frames a reply; what is in memory goes into the batch, the rest waits its turn behind it.
    fn send_pieces(&mut self, link: &mut Link, reply: Reply, now: Moment) {
        let bytes = reply.len();
        let sends = self.send_head(link, reply.status, BodyLength::of(Some(bytes)), now);
        if sends != Sends::Nothing && self.waits_for_disk(&reply, now) {
            self.task = Some(Box::new(FileTask::new(reply.piece.into_iter().chain(reply.body))));
            return;
        }
        if sends != Sends::Nothing {
            self.body_bytes = bytes;
        }
        if sends != Sends::Nothing {
            let (protocol, buffers) = link.parts();
            let is_free = self.pace.is_none();
            for piece in reply.piece.into_iter().chain(reply.body) {
                if let Some(bytes) = piece.in_memory()
                    && is_free
                    && self.pieces.is_empty()
                    && bytes.len() as u64 <= protocol.body_allowance(self.id)
                {
                    let taken = protocol.body(self.id, bytes, &mut buffers.scratch, now);
                    if taken == bytes.len() {
                        continue;
                    }
                    self.piece_sent = taken as u64;
                }
                self.pieces.push_back(piece);
            }
        }
        if self.pieces.is_empty() {
            self.finish(link, now);
        } else {
            link.protocol.set_ready(self.id, true, now);
        }
    }

    /// Whether a file of the reply has to be read from a disk first, or is to be read beside the event loop
    /// in any case (`aio threads`).
    fn waits_for_disk(&self, reply: &Reply, now: Moment) -> bool {
        reply.piece.iter().chain(&reply.body).any(|piece| match piece {
            Piece::File(file, range) if file.content().is_none() => {
                self.reads_beside || !file.is_in_memory(range, now)
            }
            _ => false,
        })
    }

    /// Sends the head of an answer whose body a task makes; without one, only the head was asked for.
    fn send_stream(
        &mut self,
        link: &mut Link,
        status: Status,
        task: Option<Box<dyn Task>>,
        now: Moment,
    ) {
        let sends = self.send_head(link, status, BodyLength::Unknown, now);
        match task.filter(|_| sends != Sends::Nothing) {
            Some(task) => self.task = Some(task),
            None => self.finish(link, now),
        }
    }

    /// Sends the head of a task's answer.
    pub(crate) fn send_task_head(
        &mut self,
        link: &mut Link,
        status: Status,
        length: Option<u64>,
        now: Moment,
    ) {
        let Some(accepted) = self.accepted.clone() else { return };
        if status.is_success() && self.head.asks_tunnel() {
            // The server did not switch protocols; the client would take the body for a tunnel.
            self.drop_task();
            return self.answer(link, RouteInput::Failed(Status::BAD_GATEWAY), now);
        }
        let bound_site = Rc::clone(&accepted.bound_site);
        if let Some(task) = &self.task {
            task.describe_upstream(&mut self.route.upstream);
            task.describe_body(&mut self.route.body);
        }
        if let Some(rate) = self.outbox.limit_rate.take() {
            self.route.limit_rate = Some(rate);
        }
        self.begin_task_fields(&bound_site, link, now);
        let (mut status, mut length) = (status, length);
        match self.select_part(link, status, length, now) {
            Ok(None) => {}
            Ok(Some(Selected { status: Status::NOT_MODIFIED, .. })) => {
                return self.send_not_modified(link, &accepted, length, now);
            }
            Ok(Some(Selected { status: selected, range })) => {
                (status, length) = (selected, Some(range.end - range.start));
            }
            Err(status) => {
                self.drop_task();
                return self.answer(link, RouteInput::Failed(status), now);
            }
        }
        let facts = link.facts();
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let table = bound_site.site.table();
        added_fields(table, &request, &self.route, status, None, &mut self.fields);
        let computed = computed_charset(table, &request, &self.route);
        let recode = self.name_charset(&bound_site, status, computed.as_deref());
        let settings = &table.location(self.route.location).settings;
        if settings.filters.is_some() || recode.is_some() {
            let is_changed = self.filter(link, &facts, status, length, recode.as_ref(), now);
            let length = BodyLength::of(length.filter(|_| !is_changed));
            self.send_head(link, status, length, now);
            return;
        }
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let compression = Compression { table, request: &request, route: &self.route };
        let is_compressed =
            compression.apply_to_task(status, length, &mut self.task, &mut self.fields);
        let length = BodyLength::of(length.filter(|_| !is_compressed));
        self.send_head(link, status, length, now);
    }

    /// The client has what it asks for. A task that fills a cache goes on without it.
    fn send_not_modified(
        &mut self,
        link: &mut Link,
        accepted: &Accepted,
        length: Option<u64>,
        now: Moment,
    ) {
        let status = Status::NOT_MODIFIED;
        let facts = link.facts();
        let request = request_view(&self.head, accepted, self.arrival, &facts, link, now);
        let table = accepted.bound_site.site.table();
        added_fields(table, &request, &self.route, status, None, &mut self.fields);
        let compression = Compression { table, request: &request, route: &self.route };
        compression.apply_to_task(status, length, &mut None, &mut self.fields);
        for name in ["content-type", "content-encoding", "accept-ranges"] {
            self.fields.remove(name);
        }
        self.drop_task();
        self.outbox.trailers = None;
        self.send_stream(link, status, None, now);
    }

    /// Names the charset of what a program or another server has made; how it is recoded, where it is.
    fn name_charset(
        &mut self,
        bound_site: &BoundSite,
        status: Status,
        computed: Option<&[u8]>,
    ) -> Option<Arc<Recode>> {
        let asked = self.outbox.charset.take();
        let site = &bound_site.site;
        let settings = &site.location(self.route.location).settings;
        if settings.pass.is_none() && settings.cgi.is_none() && computed.is_none() {
            return None;
        }
        let charsets = &site.config().http.charsets;
        let asked = asked.as_deref();
        name_charset(charsets, settings, status, asked, computed, &mut self.fields, &self.route)
    }

    /// Switches to another protocol, as a task says; whether that can be.
    pub(crate) fn send_upgrade(&mut self, link: &mut Link, protocol: &[u8], now: Moment) -> bool {
        let Some(accepted) = self.accepted.clone() else { return false };
        if let Some(task) = &self.task {
            task.describe_upstream(&mut self.route.upstream);
            task.describe_body(&mut self.route.body);
        }
        self.begin_task_fields(&accepted.bound_site, link, now);
        self.begin_sending(link, now);
        let (engine, buffers) = link.parts();
        let before = buffers.scratch.out.len();
        let upgraded = engine.upgrade(self.id, protocol, &self.fields, &mut buffers.scratch, now);
        let Some(status) = upgraded else { return false };
        let is_http1 = status == Status::SWITCHING_PROTOCOLS;
        self.status = status;
        self.framing = Some(SentFraming {
            length: None,
            is_chunked: false,
            connection: if is_http1 { "upgrade" } else { "" },
            keep_alive_secs: None,
        });
        self.note_head_bytes(buffers.scratch.out.len() - before);
        // The end of the tunnel is still to come.
        self.has_body_ended = false;
        true
    }

    /// A head that is handed over as it is has no bytes, and is one all the same.
    fn note_head_bytes(&mut self, framed: usize) {
        self.head_bytes = if framed > 0 { framed } else { self.fields.as_lines().len() + 1 } as u64;
    }

    fn send_head(
        &mut self,
        link: &mut Link,
        status: Status,
        length: BodyLength,
        now: Moment,
    ) -> Sends {
        self.begin_sending(link, now);
        self.status = status;
        let length = self.expect_trailers(link, length);
        let (protocol, buffers) = link.parts();
        let before = buffers.scratch.out.len();
        debug_assert!(
            self.fields.iter().all(|(_, value)| is_field_value(value)),
            "a value would split the head: {:?}",
            self.fields
        );
        let response = Response { status, fields: &self.fields, length };
        let sends = protocol.respond(self.id, &response, &mut buffers.scratch, now);
        self.framing = Some(protocol.framing(status, length));
        let framed = buffers.scratch.out.len() - before;
        self.note_head_bytes(framed);
        self.note_head(link, length, now);
        link.tell(self.id, || Fact::Responded, now);
        sends
    }

    /// An answer with trailers does not say how long it is: only then they can follow.
    fn expect_trailers(&mut self, link: &Link, length: BodyLength) -> BodyLength {
        let Some(accepted) = &self.accepted else { return length };
        let table = accepted.bound_site.site.table();
        let may_follow = self.outbox.trailers.is_some();
        let is_some = (may_follow || has_trailers(table, &self.route, self.status))
            && self.head.method() != Method::Head
            && !self.status.is_bodyless()
            && link.protocol.can_have_trailers();
        if !is_some {
            return length;
        }
        self.trailers = Some(Box::default());
        BodyLength::Unknown
    }

    /// The fields that follow the body, now that all of it is known.
    fn make_trailers(&mut self, link: &Link, now: Moment) {
        let (Some(accepted), Some(mut made)) = (self.accepted.clone(), self.trailers.take()) else {
            return;
        };
        let facts = link.facts();
        let request = request_view(&self.head, &accepted, self.arrival, &facts, link, now);
        let sent = Sent {
            status: Some(self.status),
            bytes: self.head_bytes + self.body_bytes,
            body_bytes: self.body_bytes,
            fields: &self.fields,
            plain_bytes: self.plain_bytes,
            request_bytes: self.received,
            ..Sent::default()
        };
        let table = accepted.bound_site.site.table();
        // Those of the server that was asked come first.
        if let Some(mut passed) = self.outbox.trailers.take() {
            made.append(&mut passed);
        }
        added_trailers(table, &request, &self.route, self.status, &sent, &mut made);
        self.trailers = Some(made);
    }

    /// An answer begins: how fast, and in which way, may it leave?
    fn begin_sending(&mut self, link: &mut Link, now: Moment) {
        let Some(accepted) = &self.accepted else { return };
        let settings = &accepted.bound_site.site.location(self.route.location).settings;
        let bytes = |bytes: &Bytes| match bytes {
            Bytes::Fixed(count) => *count,
            Bytes::By(value) => {
                let facts = link.facts();
                let request = request_view(&self.head, accepted, self.arrival, &facts, link, now);
                let table = accepted.bound_site.site.table();
                let mut text = Vec::new();
                expand(value, table, &request, &self.route, None, &mut text);
                let text = std::str::from_utf8(&text).unwrap_or_default();
                sekisho_config::value::size(text).unwrap_or_default()
            }
        };
        let rate = self.route.limit_rate.unwrap_or_else(|| bytes(&settings.limit_rate));
        self.pace = Pace::new(rate, || bytes(&settings.limit_rate_after), now);
        self.sends_files = settings.sendfile;
        self.reads_beside = settings.aio_threads;
        link.no_delay = settings.tcp_nodelay;
    }

    /// Body bytes that a task has made: they leave at once, or wait for their turn.
    pub(crate) fn send_made(&mut self, link: &mut Link, now: Moment) {
        let made = &mut self.outbox.body;
        if self.head.method() != Method::Head {
            self.body_bytes += made.len() as u64;
        }
        let (protocol, buffers) = link.parts();
        let is_free = self.pace.is_none() && self.pieces.is_empty();
        if is_free && made.len() as u64 <= protocol.body_allowance(self.id) {
            let taken = protocol.body(self.id, made, &mut buffers.scratch, now);
            if taken == made.len() {
                made.clear();
            } else {
                // The window of the stream is full.
                self.piece_sent = taken as u64;
            }
        }
        if !made.is_empty() {
            // It may wait for long.
            if made.len() < made.capacity() / 2 {
                made.shrink_to_fit();
            }
            self.pieces.push_back(Piece::Bytes(std::mem::take(made)));
            // At once: other requests of the connection are next, in the same turn.
            let bytes = self.piece_bytes();
            memory::hold(&mut self.share, Class::Responses, bytes);
            protocol.set_ready(self.id, true, now);
        }
    }

    /// The response is complete as far as we are concerned.
    pub(crate) fn finish(&mut self, link: &mut Link, now: Moment) {
        if self.trailers.is_some() {
            self.make_trailers(link, now);
        }
        let (protocol, buffers) = link.parts();
        match self.trailers.as_deref().filter(|trailers| !trailers.is_empty()) {
            Some(trailers) => protocol.finish_with(self.id, trailers, &mut buffers.scratch, now),
            None => protocol.finish(self.id, &mut buffers.scratch, now),
        }
        self.end(link, true, now);
    }

    /// The response cannot be completed.
    pub(crate) fn break_off(&mut self, link: &mut Link, now: Moment) {
        if link.is_forced() {
            link.worker.shared.counters.forced.fetch_add(1, Ordering::Relaxed);
        }
        link.break_off(self.id, CloseReason::BrokenOff, now);
        link.tell(self.id, || Fact::BrokenOff, now);
        self.end(link, false, now);
        // What was framed before still leaves; where nothing was, the end follows at once.
        let pending = link.buffers.as_ref().is_some_and(|buffers| !buffers.unsent().is_empty());
        link.protocol.transmitted(0, pending, now);
    }

    /// The client is lost: the answer has no receiver.
    pub(crate) fn lose_client(&mut self, link: &mut Link, now: Moment) {
        link.tell(self.id, || Fact::ClientLost, now);
        // A server that was asked has had its time, which the log says.
        if let Some(task) = self.task.as_mut().filter(|task| task.upstream_view(now).is_some()) {
            task.cancel(Cause::ClientLost, now);
        }
        self.drop_task();
        link.break_off(self.id, CloseReason::PeerClosedEarly, now);
        self.end(link, false, now);
    }

    /// Its one ending: what it held is released, and the access log has its line.
    pub(crate) fn end(&mut self, link: &mut Link, is_complete: bool, now: Moment) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        link.tell(self.id, || Fact::Ended { is_complete }, now);
        if !is_complete {
            link.worker.shared.counters.incomplete.fetch_add(1, Ordering::Relaxed);
        }
        self.drop_task();
        self.log(link, is_complete, now);
        self.pieces.clear();
        self.piece_sent = 0;
        self.permits.clear();
        link.release();
    }
}
