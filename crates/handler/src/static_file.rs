//! Files and their ranges: validators, conditionals, one or several ranges (F1).

use std::io::Write;
use std::ops::Range;
use std::rc::Rc;

use sekisho_config::{IfModifiedSince, Settings};
use sekisho_http::conditional::{self, PreconditionResult, Since, Validators};
use sekisho_http::range::{self, Ranges};
use sekisho_http::{Coding, Fields, Head, Known, Method, Status};

use crate::answer::{self, media_type_field};
use crate::open_file::{DescriptionKey, OpenFile};
use crate::reply::{Piece, Reply};

/// A GIF image of one transparent pixel.
const PIXEL: &[u8] = b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";
/// When nginx's pixel was made, in Unix seconds.
const PIXEL_MODIFIED: i64 = 23_349_600;
/// The same as a field has it.
const PIXEL_DATE: &str = "Mon, 28 Sep 1970 06:00:00 GMT";

/// How many ranges one answer may have, whatever the configuration allows (V16).
pub const RANGES_MAX: usize = 16;

/// What a file is served as.
#[derive(Clone, Copy, Debug, Default)]
pub struct Role {
    /// The status that an `error_page` wants: then neither conditionals nor ranges apply, for it is not what
    /// the client asked for.
    pub fixed: Option<Status>,
    /// The coding that the file has; then ranges do not apply either, as in nginx.
    pub coding: Option<Coding>,
    /// Whether `If-Range` holds, where that does not follow from the file.
    pub if_range: Option<bool>,
    /// Whether its bytes are changed on their way: then there are no ranges of them.
    pub is_filtered: bool,
}

/// Answers with a file.
pub fn reply(
    file: &Rc<OpenFile>,
    head: &Head,
    settings: &Settings,
    media_type: &[u8],
    role: Role,
    product: &str,
    fields: &mut Fields,
) -> Reply {
    if let Some(coding) = role.coding {
        return coded(file, head, settings, media_type, coding, role.fixed, product, fields);
    }
    // If texts are recoded, a range is one of the recoded text, which only a body in memory has.
    let has_ranges =
        settings.recode.as_ref().is_none_or(|to| to.keeps_length && file.content().is_some());
    let has_ranges = has_ranges && !role.is_filtered;
    let ranges_max = if has_ranges { settings.max_ranges.unwrap_or(RANGES_MAX) } else { 0 };
    let ranges_max = ranges_max.min(RANGES_MAX);
    if let Some(status) = role.fixed {
        media_type_field(media_type, settings, fields);
        if status == Status::OK {
            // As in nginx, an error has no date of its own.
            fields.push("Last-Modified", file.modified_text());
        }
        if settings.etag {
            fields.push("ETag", file.etag());
        }
        return Reply::of(status, Piece::File(Rc::clone(file), 0..file.size()));
    }
    let validators =
        Validators { etag: settings.etag.then(|| file.etag()), modified: file.modified() };
    match conditional::evaluate(head, &validators, since(settings)) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => {
            push_validators(file, settings, fields);
            return Reply::empty(Status::NOT_MODIFIED);
        }
        PreconditionResult::PreconditionFailed => {
            return answer::page(Status::PRECONDITION_FAILED, product, fields);
        }
    }
    let wanted = match head.known(Known::Range) {
        // Ranges are for GET alone (RFC 9110 §14.2).
        Some(value)
            if ranges_max > 0
                && head.method() != Method::Head
                && role
                    .if_range
                    .unwrap_or_else(|| conditional::if_range_holds(head, &validators)) =>
        {
            range::parse(value, file.size(), ranges_max)
        }
        _ => Ranges::Whole,
    };
    match wanted {
        Ranges::Whole => {
            describe(file, settings, media_type, ranges_max > 0, fields);
            Reply::of(Status::OK, Piece::File(Rc::clone(file), 0..file.size()))
        }
        Ranges::Unsatisfiable => {
            fields.push_with("Content-Range", |value| {
                let _ = write!(value, "bytes */{}", file.size());
            });
            answer::page(Status::RANGE_NOT_SATISFIABLE, product, fields)
        }
        Ranges::One(range) => {
            describe(file, settings, media_type, true, fields);
            content_range(&range, file.size(), fields);
            Reply::of(Status::PARTIAL_CONTENT, Piece::File(Rc::clone(file), range))
        }
        Ranges::Many(ranges) => multipart(file, settings, media_type, &ranges, fields),
    }
}

/// `empty_gif`: nginx's pixel, with its date.
pub fn pixel(
    head: &Head,
    settings: &Settings,
    fixed: Option<Status>,
    product: &str,
    fields: &mut Fields,
) -> Reply {
    let validators = Validators { etag: None, modified: PIXEL_MODIFIED };
    let result = match fixed {
        Some(_) => PreconditionResult::Proceed,
        None => conditional::evaluate(head, &validators, since(settings)),
    };
    if result == PreconditionResult::PreconditionFailed {
        return answer::page(Status::PRECONDITION_FAILED, product, fields);
    }
    fields.push("Last-Modified", PIXEL_DATE);
    if result == PreconditionResult::NotModified {
        return Reply::empty(Status::NOT_MODIFIED);
    }
    media_type_field(b"image/gif", settings, fields);
    Reply::of(fixed.unwrap_or(Status::OK), Piece::Static(PIXEL))
}

/// How a location compares the time of `If-Modified-Since`.
pub fn since(settings: &Settings) -> Since {
    match settings.if_modified_since {
        IfModifiedSince::Off => Since::Off,
        IfModifiedSince::Exact => Since::Exact,
        IfModifiedSince::Before => Since::Before,
    }
}

/// A neighbour that is compressed already: the type of its original, and a tag of its own. The coding is part
/// of the tag, for two neighbours may well be of the same length and time (RFC 9110 §8.8.3.3).
#[expect(clippy::too_many_arguments, reason = "what `reply` has, and the coding")]
fn coded(
    file: &Rc<OpenFile>,
    head: &Head,
    settings: &Settings,
    media_type: &[u8],
    coding: Coding,
    fixed: Option<Status>,
    product: &str,
    fields: &mut Fields,
) -> Reply {
    let opaque = file.etag().strip_suffix(b"\"").unwrap_or_default();
    let etag = [opaque, b"-", coding.name().as_bytes(), b"\""].concat();
    let push_validators = |fields: &mut Fields| {
        fields.push("Last-Modified", file.modified_text());
        if settings.etag {
            fields.push("ETag", &etag);
        }
    };
    if fixed.is_none() {
        let validators =
            Validators { etag: settings.etag.then_some(&etag), modified: file.modified() };
        match conditional::evaluate(head, &validators, since(settings)) {
            PreconditionResult::Proceed => {}
            PreconditionResult::NotModified => {
                push_validators(fields);
                return Reply::empty(Status::NOT_MODIFIED);
            }
            PreconditionResult::PreconditionFailed => {
                return answer::page(Status::PRECONDITION_FAILED, product, fields);
            }
        }
    }
    media_type_field(media_type, settings, fields);
    push_validators(fields);
    fields.push("Content-Encoding", coding.name());
    Reply::of(fixed.unwrap_or(Status::OK), Piece::File(Rc::clone(file), 0..file.size()))
}

fn describe(
    file: &OpenFile,
    settings: &Settings,
    media_type: &[u8],
    takes_ranges: bool,
    fields: &mut Fields,
) {
    let charset = settings.charset.as_deref();
    let key = DescriptionKey { media_type, charset, has_etag: settings.etag, takes_ranges };
    file.describe(key, fields, |fields| {
        media_type_field(media_type, settings, fields);
        push_validators(file, settings, fields);
        if takes_ranges {
            fields.push("Accept-Ranges", "bytes");
        }
    });
}

fn push_validators(file: &OpenFile, settings: &Settings, fields: &mut Fields) {
    fields.push("Last-Modified", file.modified_text());
    if settings.etag {
        fields.push("ETag", file.etag());
    }
}

fn content_range(range: &Range<u64>, size: u64, fields: &mut Fields) {
    fields.push_with("Content-Range", |value| {
        let _ = write!(value, "bytes {}-{}/{size}", range.start, range.end - 1);
    });
}

/// RFC 9110 §14.6. The boundary is made from the file's tag: it need not be secret, only not occur in
/// the content by accident.
fn multipart(
    file: &Rc<OpenFile>,
    settings: &Settings,
    media_type: &[u8],
    ranges: &[Range<u64>],
    fields: &mut Fields,
) -> Reply {
    let tag = file.etag().iter().filter(|byte| byte.is_ascii_alphanumeric());
    let boundary: String = "sekisho-".chars().chain(tag.map(|byte| char::from(*byte))).collect();
    fields.push("Content-Type", format!("multipart/byteranges; boundary={boundary}"));
    push_validators(file, settings, fields);
    let mut body = Vec::with_capacity(ranges.len() * 2 + 1);
    for range in ranges {
        // A part has fields in HTTP/1's form, in whatever protocol the response leaves.
        let mut part = Fields::new();
        media_type_field(media_type, settings, &mut part);
        content_range(range, file.size(), &mut part);
        let start = format!("\r\n--{boundary}\r\n").into_bytes();
        body.push(Piece::Bytes([start.as_slice(), part.as_lines(), b"\r\n"].concat()));
        body.push(Piece::File(Rc::clone(file), range.clone()));
    }
    body.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
    Reply { status: Status::PARTIAL_CONTENT, body, piece: None }
}
