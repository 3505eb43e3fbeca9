//! Where filters are put around the bodies of responses, in nginx's order: `gunzip`, then what is added before and
//! behind, text that is replaced, charsets, server-side includes; compression comes last (`compress.rs`). What they
//! change is no longer as long as it was, has no ranges, and at most a weak tag.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::{Addition, Recode, Settings, Ssi, Substitutions};
use sekisho_filter::slice::{ContentRange, Slices, WrongSlice};
use sekisho_filter::substitute::{Pair, Substituter};
use sekisho_handler::Task;
use sekisho_handler::filter::{AdditionTask, FilterTask, Gunzip, Recoder, Requests, SsiTask};
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::range::{self, Ranges};
use sekisho_http::{Fields, Known, Method, Status, date};
use sekisho_route::compression::{mark_varying, takes_gzip, weaken_tag};
use sekisho_route::{Request, RouteState, Table, expand};

/// A response whose body may be filtered.
#[derive(Clone, Copy)]
pub(crate) struct Filtering<'a> {
    pub(crate) table: &'a Table,
    pub(crate) request: &'a Request<'a>,
    pub(crate) route: &'a RouteState,
}

/// A body: who makes it, and how long it is, where that is known. Without a task only the head is wanted.
pub(crate) struct Body {
    pub(crate) task: Option<Box<dyn Task>>,
    pub(crate) length: Option<u64>,
}

impl Body {
    /// Puts a filter around it.
    fn wrap(&mut self, filter: impl FnOnce(Box<dyn Task>, Option<u64>) -> Box<dyn Task>) {
        let length = self.length.take();
        self.task = self.task.take().map(|task| filter(task, length));
    }
}

/// The filters that a response goes through.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    gunzip: bool,
    addition: Option<&'a Arc<Addition>>,
    substitutions: Option<&'a Arc<Substitutions>>,
    ssi: Option<&'a Arc<Ssi>>,
}

impl<'a> Filtering<'a> {
    fn settings(&self) -> &'a Settings {
        &self.table.location(self.route.location).settings
    }

    /// Which filters a response goes through; `None` where none does. Says in the head what that depends on.
    pub(crate) fn wanted(
        &self,
        status: Status,
        length: Option<u64>,
        fields: &mut Fields,
    ) -> Option<Wanted<'a>> {
        let settings = self.settings();
        let filters = settings.filters.as_deref()?;
        if status.is_bodyless() {
            return None;
        }
        let is_main = !self.route.is_subrequest;
        let is_gzip = |value: &[u8]| value.eq_ignore_ascii_case(b"gzip");
        let is_packed = filters.gunzip && fields.get("content-encoding").is_some_and(is_gzip);
        let compression = &settings.compression;
        if is_packed && is_main && compression.vary {
            mark_varying(fields);
        }
        // A request within another one takes nothing.
        let takes_gzip = is_main && takes_gzip(compression, self.request.head);
        let media_type = fields.get("content-type").unwrap_or_default();
        let has_body = length != Some(0);
        let has_additions = is_main && status == Status::OK;
        let wanted = Wanted {
            gunzip: is_packed && !takes_gzip,
            addition: filters
                .addition
                .as_ref()
                .filter(|rule| has_additions && rule.types.contain(media_type)),
            substitutions: filters
                .substitutions
                .as_ref()
                .filter(|rule| has_body && rule.types.contain(media_type)),
            ssi: filters.ssi.as_ref().filter(|rule| has_body && rule.types.contain(media_type)),
        };
        let is_any = wanted.gunzip
            || wanted.addition.is_some()
            || wanted.substitutions.is_some()
            || wanted.ssi.is_some();
        is_any.then_some(wanted)
    }

    /// Gives the text of a body in another charset; whether it is no longer as long as it was.
    pub(crate) fn recode(recode: &Arc<Recode>, body: &mut Body, fields: &mut Fields) -> bool {
        let length = body.length;
        body.wrap(|task, length| {
            Box::new(FilterTask::new(task, length, Box::new(Recoder::new(recode))))
        });
        if recode.keeps_length {
            body.length = length;
        } else {
            mark_changed(fields, true);
        }
        !recode.keeps_length
    }

    /// Puts the filters around a body, and makes the fields those of what comes out. `recode` is how its text is
    /// given in another charset, where it is.
    pub(crate) fn apply(
        &self,
        wanted: Wanted<'_>,
        body: &mut Body,
        fields: &mut Fields,
        recode: Option<&Arc<Recode>>,
        requester: impl Fn() -> Rc<dyn Requests>,
    ) {
        if wanted.gunzip {
            fields.remove("content-encoding");
            mark_changed(fields, true);
            body.wrap(|task, length| {
                Box::new(FilterTask::new(task, length, Box::<Gunzip>::default()))
            });
        }
        if let Some(addition) = wanted.addition {
            mark_changed(fields, true);
            body.wrap(|task, _| {
                Box::new(AdditionTask::new(task, requester(), Arc::clone(addition)))
            });
        }
        if let Some(rule) = wanted.substitutions {
            mark_changed(fields, rule.keeps_modified);
            let value = |template| {
                let mut value = Vec::new();
                expand(template, self.table, self.request, self.route, None, &mut value);
                value
            };
            let pairs =
                rule.pairs.iter().filter_map(|(from, to)| Pair::new(&value(from), value(to)));
            let substituter = Substituter::new(pairs.collect(), rule.is_once);
            body.wrap(|task, length| {
                Box::new(FilterTask::new(task, length, Box::new(substituter)))
            });
        }
        if let Some(recode) = recode {
            Self::recode(recode, body, fields);
        }
        if let Some(ssi) = wanted.ssi {
            mark_changed(fields, ssi.keeps_modified);
            let kept_max = self.settings().subrequest_bytes_max;
            body.wrap(|task, length| {
                Box::new(SsiTask::new(task, length, requester(), Arc::clone(ssi), kept_max))
            });
        }
        body.length = None;
    }
}

/// The head of a response whose body is changed.
fn mark_changed(fields: &mut Fields, keeps_modified: bool) {
    fields.remove("accept-ranges");
    if keeps_modified {
        weaken_tag(fields);
    } else {
        fields.remove("last-modified");
        fields.remove("etag");
    }
}

/// What of a whole response a client gets.
pub(crate) struct Selected {
    pub(crate) status: Status,
    pub(crate) range: Range<u64>,
}

/// The validators of a response, as its fields say them.
fn validators(fields: &Fields) -> (Validators<'_>, bool) {
    let modified = fields.get("last-modified").and_then(date::parse);
    let etag = fields.get("etag");
    (Validators { etag, modified: modified.unwrap_or(i64::MAX) }, modified.is_some())
}

/// Judges the conditions of a request by the fields of its response; the status where one of them decides.
pub(crate) fn judge(request: &Request<'_>, since: Since, fields: &Fields) -> Option<Status> {
    let (validators, is_dated) = validators(fields);
    let since = if is_dated { since } else { Since::Off };
    match conditional::evaluate(request.head, &validators, since) {
        PreconditionResult::Proceed => None,
        PreconditionResult::NotModified => Some(Status::NOT_MODIFIED),
        PreconditionResult::PreconditionFailed => Some(Status::PRECONDITION_FAILED),
    }
}

/// What a client gets of a response of this length: its range counts as for a file. The fields say so. An
/// unsatisfiable range is told by the status, without a body.
pub(crate) fn select(request: &Request<'_>, complete: u64, fields: &mut Fields) -> Selected {
    let head = request.head;
    let (validators, _) = validators(fields);
    let asked = match head.known(Known::Range) {
        Some(value)
            if head.method() != Method::Head && conditional::if_range_holds(head, &validators) =>
        {
            range::parse(value, complete, 1)
        }
        _ => Ranges::Whole,
    };
    fields.remove("accept-ranges");
    match asked {
        // Of several ranges none is given, as in nginx.
        Ranges::Whole | Ranges::Many(_) => {
            fields.push("Accept-Ranges", "bytes");
            Selected { status: Status::OK, range: 0..complete }
        }
        Ranges::One(range) => {
            let (first, last) = (range.start, range.end - 1);
            fields.push("Content-Range", format!("bytes {first}-{last}/{complete}"));
            Selected { status: Status::PARTIAL_CONTENT, range }
        }
        Ranges::Unsatisfiable => {
            fields.push("Content-Range", format!("bytes */{complete}"));
            Selected { status: Status::RANGE_NOT_SATISFIABLE, range: 0..0 }
        }
    }
}

/// A response that is put together of slices.
pub(crate) struct Sliced {
    pub(crate) slices: Slices,
    /// What the first slice has.
    pub(crate) first: ContentRange,
    pub(crate) selected: Selected,
    /// Whether the first slice is the first that the client gets.
    pub(crate) is_first_wanted: bool,
}

/// The head of the first slice becomes that of the whole, or of the range that the client asked for.
pub(crate) fn slice(
    request: &Request<'_>,
    (start, size): (u64, u64),
    fields: &mut Fields,
) -> Result<Sliced, WrongSlice> {
    let mut slices = Slices::new(start, size);
    let (first, complete) = slices.check(fields.get("content-range"), fields.get("etag"))?;
    fields.remove("content-range");
    let selected = match judge(request, Since::Exact, fields) {
        Some(status) => Selected { status, range: 0..0 },
        None => select(request, complete, fields),
    };
    let is_first_wanted = slices.want(selected.range.clone(), &first);
    Ok(Sliced { slices, first, selected, is_first_wanted })
}
