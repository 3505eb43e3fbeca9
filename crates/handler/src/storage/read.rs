//! GET and HEAD of an object: with ranges, the store's validators and, where there is one, from the cache.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use sekisho_http::conditional::{names_tag, names_tag_strongly, only_tag};
use sekisho_http::{Fields, Known, Method, Status, date};
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment};
use sekisho_route::upstream_facts::UpstreamFacts;
use sekisho_route::{RouteState, media_type};
use sekisho_storage::Refusal;

use super::ask::{Ask, Refusing};
use super::{Client, Question};
use crate::cgi::HandlerContext;
use crate::task::{BodyIn, Describe, Outbox, Progress, Task, UpstreamView, Work};
use crate::upstream::{CacheQuery, Call};
use crate::without;

/// What a client sees of an object's fields; everything else is between the store and us.
const SHOWN: [&str; 11] = [
    "Content-Type",
    "Content-Encoding",
    "Content-Language",
    "Content-Disposition",
    "Content-Range",
    "Cache-Control",
    "Expires",
    "ETag",
    "Last-Modified",
    "Accept-Ranges",
    "Age",
];
/// What stores say where nobody has told them a type.
const NO_TYPE: [&[u8]; 2] = [b"binary/octet-stream", b"application/octet-stream"];

/// Starts to give the object that the request's path names; an error is the status to answer with.
pub fn read(
    call: &Call<'_>,
    context: Rc<dyn HandlerContext>,
    now: Moment,
) -> Result<Box<dyn Task>, Status> {
    let Call { table, request, route_state, .. } = *call;
    let client = Client::of_root(call, context)?;
    let key = client.key(&route_state.file, route_state.root_bytes);
    let settings = &table.location(route_state.location).settings;
    let is_head = route_state.method == Method::Head;
    let mut conditions = Fields::default();
    // Conditions and ranges are those of the client's own request for this very object.
    if route_state.status.is_none() && !route_state.is_subrequest {
        let known = [
            Known::IfMatch,
            Known::IfNoneMatch,
            Known::IfModifiedSince,
            Known::IfUnmodifiedSince,
            Known::Range,
            Known::IfRange,
        ];
        for known in known {
            if let Some(value) = request.head.known(known) {
                conditions.push(known.name(), value);
            }
        }
        drop_invalid(&mut conditions);
        // A store gives one part at a time; all of it is right, too (RFC 9110 §14.2).
        let is_many = conditions.get("range").is_some_and(|value| value.contains(&b','));
        if is_many || settings.max_ranges == Some(0) || is_head {
            conditions.remove("range");
            conditions.remove("if-range");
        }
    }
    let has_cache = client.sender.has_cache();
    let method = if is_head && !has_cache { "HEAD" } else { "GET" };
    let mut question = Question::new(client.storage.place.object(method, &key));
    let (mut whole, mut suffix, mut tags, mut required) = (None, None, None, None);
    if has_cache {
        let key = client.storage.place.cache_key(&key);
        question.cached = Some(CacheQuery { key, conditions, is_head });
    } else {
        required = own_requirement(&mut conditions);
        whole = guard_range(&mut conditions).then(|| question.clone());
        tags = own_tags(&mut conditions);
        suffix = client.storage.place.trim_conditions(&mut conditions).map(|bytes| {
            let plain = question.clone();
            question.draft.method = "HEAD";
            (plain, bytes)
        });
        question.draft.fields.append(&mut conditions);
    }
    let fallback = media_type(table, route_state).as_bytes().to_vec();
    Ok(Box::new(ReadTask {
        ask: Ask::new(&client, question, now),
        whole,
        suffix,
        tags,
        required,
        is_over: false,
        media_type: fallback,
        fixed: route_state.status,
        refusing: None,
        missing: (route_state.status.is_none()).then(|| route_state.file.clone()),
    }))
}

/// Dates and ranges that are none are ignored (RFC 9110 §13.1.3, §14.2); stores make errors of them.
fn drop_invalid(conditions: &mut Fields) {
    for name in ["if-modified-since", "if-unmodified-since"] {
        if conditions.get(name).is_some_and(|value| date::parse(value).is_none()) {
            conditions.remove(name);
        }
    }
    let is_bytes = |value: &[u8]| {
        value.split_at_checked(6).is_some_and(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes="))
    };
    if conditions.get("range").is_some_and(|value| !is_bytes(value)) {
        conditions.remove("range");
    }
}

/// Stores compare the value of `If-Match` as it is written. One strong tag is left to them; everything else is returned,
/// and judged here.
fn own_requirement(conditions: &mut Fields) -> Option<Vec<u8>> {
    let list = conditions.get("if-match")?;
    if list.starts_with(b"\"") && only_tag(list).is_some() {
        return None;
    }
    let list = list.to_vec();
    conditions.remove("if-match");
    conditions.remove("if-unmodified-since");
    Some(list)
}

/// Stores do not know `If-Range`: it becomes a condition. Where that does not hold, all of the object is asked for;
/// whether it may come to that.
fn guard_range(conditions: &mut Fields) -> bool {
    let value = conditions.get("if-range").map(<[u8]>::to_vec);
    conditions.remove("if-range");
    let Some(value) = value.filter(|_| conditions.has("range")) else { return false };
    let is_guarded = conditions.has("if-match") || conditions.has("if-unmodified-since");
    if value.starts_with(b"W/") || is_guarded {
        // A weak tag never holds (RFC 9110 §13.1.5).
        conditions.remove("range");
        return false;
    }
    let name = if value.starts_with(b"\"") { "If-Match" } else { "If-Unmodified-Since" };
    conditions.push(name, value);
    true
}

/// Stores compare one entity tag, as it is written. It is sent in its strong form (RFC 9110 §13.1.2: they are compared
/// weakly); everything else is returned, and judged here.
fn own_tags(conditions: &mut Fields) -> Option<Vec<u8>> {
    let list = conditions.get("if-none-match")?.to_vec();
    conditions.remove("if-none-match");
    conditions.remove("if-modified-since");
    // Azure refuses conditions of both kinds.
    let has_other = conditions.has("if-match") || conditions.has("if-unmodified-since");
    match only_tag(&list).filter(|_| !has_other) {
        Some(tag) => {
            conditions.push("If-None-Match", tag);
            None
        }
        None => Some(list),
    }
}

/// An object on its way to a client.
#[derive(Debug)]
struct ReadTask {
    ask: Ask,
    /// What is asked for if the object is not the one that the client has a part of.
    whole: Option<Question>,
    /// The last bytes are wanted, and how long the object is is being asked: the question for them, and how many.
    suffix: Option<(Question, u64)>,
    /// An `If-None-Match` that the store was not told of.
    tags: Option<Vec<u8>>,
    /// The same of `If-Match`.
    required: Option<Vec<u8>>,
    /// The client has what it asks for, and the rest of the answer is not for it.
    is_over: bool,
    media_type: Vec<u8>,
    /// The status that an `error_page` wants.
    fixed: Option<Status>,
    /// The store has refused.
    refusing: Option<Refusing>,
    /// What is told to the decision if there is no such object: it may be a folder.
    missing: Option<Vec<u8>>,
}

impl ReadTask {
    /// It is known how long the object is: its last bytes are asked for.
    fn ask_end(&mut self, (mut question, bytes): (Question, u64), length: u64, fields: &Fields) {
        self.whole = Some(question.clone());
        if length > 0 {
            let range = format!("bytes={}-", length.saturating_sub(bytes));
            question.draft.fields.push("Range", range);
            if let Some(tag) = fields.get("etag") {
                question.draft.fields.push("If-Match", tag);
            }
        }
        self.ask =
            Ask::new(&Rc::clone(&self.ask.client), question, self.ask.client.context().now());
    }

    /// The head of the answer; `None` if it is none for the client.
    fn head(&mut self, status: Status, length: Option<u64>, out: &mut Outbox) -> Option<Progress> {
        match status.code() {
            200 | 206 | 304 => {}
            _ => {
                self.refusing = Some(Refusing::new(status, out));
                return None;
            }
        }
        let is_shown =
            |name: &[u8]| SHOWN.iter().any(|shown| name.eq_ignore_ascii_case(shown.as_bytes()));
        out.fields.retain(|name, _| is_shown(name));
        if let Some(list) = &self.required
            && !names_tag_strongly(list, out.fields.get("etag"))
        {
            self.is_over = true;
            out.fields.clear();
            return Some(Progress::Fail(Status::PRECONDITION_FAILED));
        }
        if let Some(tags) = &self.tags
            && status != Status::NOT_MODIFIED
            && names_tag(tags, out.fields.get("etag"))
        {
            self.is_over = true;
            out.fields.remove("Content-Type");
            out.fields.remove("Content-Range");
            return Some(Progress::Head(Status::NOT_MODIFIED, None));
        }
        let kind = out.fields.get("content-type");
        let is_unknown = kind.is_none_or(|kind| NO_TYPE.contains(&kind));
        if is_unknown && status != Status::NOT_MODIFIED {
            out.fields.remove("Content-Type");
            if !self.media_type.is_empty() {
                out.fields.push("Content-Type", &self.media_type);
            }
        }
        if !out.fields.has("Accept-Ranges") && status == Status::OK && self.fixed.is_none() {
            out.fields.push("Accept-Ranges", "bytes");
        }
        Some(Progress::Head(self.fixed.unwrap_or(status), length))
    }

    /// All of a refusal has come.
    fn refuse(&self, refusal: &Refusal, out: &mut Outbox) -> Progress {
        out.fields.clear();
        if let (416, Some(bytes)) = (refusal.status, refusal.object_bytes) {
            out.fields.push("Content-Range", format!("bytes */{bytes}"));
        }
        match self.ask.client.refused(&self.ask.question.draft, refusal) {
            Status::NOT_FOUND if self.missing.is_some() => Progress::Again,
            status => Progress::Fail(status),
        }
    }
}

impl Work for ReadTask {
    without!(narrow, is_service);

    fn stops_with_client(&self) -> bool {
        true
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        if self.is_over {
            return Poll::Ready(Progress::Done);
        }
        loop {
            let progress = ready!(self.ask.poll(cx, out, now));
            if let Some(refusing) = &mut self.refusing {
                let Some(refusal) = refusing.take(&progress, out) else { continue };
                return Poll::Ready(self.refuse(&refusal, out));
            }
            match progress {
                Progress::Head(Status::PRECONDITION_FAILED, _) if self.whole.is_some() => {
                    out.fields.clear();
                    self.suffix = None;
                    if let Some(question) = self.whole.take() {
                        self.ask = Ask::new(&Rc::clone(&self.ask.client), question, now);
                    }
                }
                Progress::Head(Status::OK, length) if self.suffix.is_some() => {
                    let fields = std::mem::take(&mut out.fields);
                    if let Some(suffix) = self.suffix.take() {
                        self.ask_end(suffix, length.unwrap_or_default(), &fields);
                    }
                }
                Progress::Head(status, length) => {
                    if let Some(progress) = self.head(status, length, out) {
                        return Poll::Ready(progress);
                    }
                }
                Progress::Informational(_) => out.fields.clear(),
                // Nothing of what a store asks for is done here.
                Progress::HandOver(_) | Progress::Redirect(_) | Progress::Upgrade(_) => {
                    out.fields.clear();
                    return Poll::Ready(Progress::Fail(Status::BAD_GATEWAY));
                }
                progress => return Poll::Ready(progress),
            }
        }
    }

    fn hold(&mut self, is_held: bool, now: Moment) {
        self.ask.hold(is_held, now);
    }

    fn absorb(&mut self, cx: &mut Context<'_>, now: Moment) {
        self.ask.absorb(cx, now);
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.ask.next_deadline()
    }

    fn conclude(&mut self, route_state: &mut RouteState) {
        if let Some(file) = &self.missing {
            route_state.objects.get_or_insert_default().note_missing(file);
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        self.ask.cancel(cause, now);
    }
}

impl BodyIn for ReadTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for ReadTask {
    without!(plain_bytes, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "storage"
    }

    fn describe_upstream(&self, facts: &mut UpstreamFacts) {
        self.ask.describe_upstream(facts);
    }

    fn upstream_view(&self, now: Moment) -> Option<UpstreamView> {
        self.ask.upstream_view(now)
    }
}
