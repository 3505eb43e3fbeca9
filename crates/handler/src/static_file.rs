//! Files and their ranges: validators, conditionals, one or several ranges (F1).

use std::io::Write;
use std::ops::Range;
use std::rc::Rc;

use sekisho_config::{IfModifiedSince, Settings};
use sekisho_http::conditional::{self, Since, Validators, Verdict};
use sekisho_http::range::{self, Ranges};
use sekisho_http::{Head, Known, Status};

use crate::answer::{self, media_type_field};
use crate::file_cache::OpenFile;
use crate::reply::{Piece, Reply};

/// How many ranges one answer may have, whatever the configuration allows (V16).
pub const RANGES_MAX: usize = 16;

/// Answers with a file. `fixed` is the status that an `error_page` wants: then neither conditionals nor
/// ranges apply, for it is not what the client asked for.
pub fn reply(
    file: &Rc<OpenFile>,
    head: &Head,
    settings: &Settings,
    media_type: &[u8],
    fixed: Option<Status>,
    product: &str,
    fields: &mut Vec<u8>,
) -> Reply {
    let ranges_max = settings.max_ranges.unwrap_or(RANGES_MAX).min(RANGES_MAX);
    if let Some(status) = fixed {
        describe(file, settings, media_type, false, fields);
        return Reply::of(status, Piece::File(Rc::clone(file), 0..file.size()));
    }
    let validators =
        Validators { etag: settings.etag.then(|| file.etag()), modified: file.modified() };
    let since = match settings.if_modified_since {
        IfModifiedSince::Off => Since::Off,
        IfModifiedSince::Exact => Since::Exact,
        IfModifiedSince::Before => Since::Before,
    };
    match conditional::evaluate(head, &validators, since) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            fields.extend_from_slice(file.modified_field());
            if settings.etag {
                fields.extend_from_slice(file.etag_field());
            }
            return Reply::empty(Status::NOT_MODIFIED);
        }
        Verdict::PreconditionFailed => {
            return answer::page(Status::PRECONDITION_FAILED, product, fields);
        }
    }
    let wanted = match head.known(Known::Range) {
        Some(value) if ranges_max > 0 && conditional::if_range_holds(head, &validators) => {
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
            let _ = write!(fields, "Content-Range: bytes */{}\r\n", file.size());
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

fn describe(
    file: &OpenFile,
    settings: &Settings,
    media_type: &[u8],
    takes_ranges: bool,
    fields: &mut Vec<u8>,
) {
    media_type_field(media_type, settings, fields);
    fields.extend_from_slice(file.modified_field());
    if settings.etag {
        fields.extend_from_slice(file.etag_field());
    }
    if takes_ranges {
        fields.extend_from_slice(b"Accept-Ranges: bytes\r\n");
    }
}

fn content_range(range: &Range<u64>, size: u64, fields: &mut Vec<u8>) {
    let _ = write!(fields, "Content-Range: bytes {}-{}/{size}\r\n", range.start, range.end - 1);
}

/// RFC 9110 §14.6. The boundary is made from the file's tag: it need not be secret, only not occur in
/// the content by accident.
fn multipart(
    file: &Rc<OpenFile>,
    settings: &Settings,
    media_type: &[u8],
    ranges: &[Range<u64>],
    fields: &mut Vec<u8>,
) -> Reply {
    let tag = file.etag().iter().filter(|byte| byte.is_ascii_alphanumeric());
    let boundary: String = "sekisho-".chars().chain(tag.map(|byte| char::from(*byte))).collect();
    let _ = write!(fields, "Content-Type: multipart/byteranges; boundary={boundary}\r\n");
    fields.extend_from_slice(file.modified_field());
    if settings.etag {
        fields.extend_from_slice(file.etag_field());
    }
    let mut body = Vec::with_capacity(ranges.len() * 2 + 1);
    for range in ranges {
        let mut lines = format!("\r\n--{boundary}\r\n").into_bytes();
        media_type_field(media_type, settings, &mut lines);
        content_range(range, file.size(), &mut lines);
        lines.extend_from_slice(b"\r\n");
        body.push(Piece::Bytes(lines));
        body.push(Piece::File(Rc::clone(file), range.clone()));
    }
    body.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
    Reply { status: Status::PARTIAL_CONTENT, body, piece: None }
}
