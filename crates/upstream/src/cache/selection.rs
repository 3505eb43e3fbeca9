//! Which part of a kept answer a client gets: all of it, a range, or a 304 (RFC 9110 §13, §14). Conditions
//! are not passed to the server of a cached location, so they are met here.

use std::ops::Range;

use sekisho_http::conditional::{names_tag, names_tag_strongly};
use sekisho_http::{Fields, Status, date, range};

/// What is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// The answer as it is.
    Whole,
    /// 304
    NotModified,
    /// 412
    Failed,
    /// 206 with these bytes.
    Part(Range<u64>),
    /// 416
    Unsatisfiable,
}

/// What a request gets of a kept answer. `asked` has the fields of the request. Several ranges are given as the
/// whole, which RFC 9110 §14.2 allows.
pub fn select<'a>(
    asked: impl Fn(&'static str) -> Option<&'a [u8]>,
    status: Status,
    kept: &Fields,
    body_bytes: u64,
) -> Selection {
    if status != Status::OK {
        return Selection::Whole;
    }
    let etag = kept.get("etag");
    let modified = kept.get("last-modified");
    let changed = modified.and_then(date::parse);
    let is_failed = match asked("if-match") {
        Some(tags) => !names_tag_strongly(tags, etag),
        None => asked("if-unmodified-since")
            .and_then(date::parse)
            .is_some_and(|limit| changed.is_none_or(|changed| changed > limit)),
    };
    if is_failed {
        return Selection::Failed;
    }
    let has_it = match asked("if-none-match") {
        Some(tags) => names_tag(tags, etag),
        None => asked("if-modified-since")
            .and_then(date::parse)
            .is_some_and(|since| changed.is_some_and(|changed| changed <= since)),
    };
    if has_it {
        return Selection::NotModified;
    }
    let Some(wanted) = asked("range") else { return Selection::Whole };
    let holds = asked("if-range").is_none_or(|tag| {
        let is_strong = !tag.starts_with(b"W/");
        is_strong && (Some(tag) == etag || Some(tag) == modified)
    });
    if !holds {
        return Selection::Whole;
    }
    match range::parse(wanted, body_bytes, range::PARTS_MAX) {
        range::Ranges::One(part) => Selection::Part(part),
        range::Ranges::Unsatisfiable => Selection::Unsatisfiable,
        range::Ranges::Whole | range::Ranges::Many(_) => Selection::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_met_by_what_is_kept() {
        use Selection as S;
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const LATER: &str = "Sun, 06 Nov 1994 08:50:37 GMT";
        const EARLIER: &str = "Sun, 06 Nov 1994 08:40:37 GMT";
        let kept: Fields = [("ETag", "\"a\""), ("Last-Modified", DATE)].into_iter().collect();
        let rows: &[(&[(&str, &str)], Selection)] = &[
            (&[], S::Whole),
            (&[("if-none-match", "\"a\"")], S::NotModified),
            (&[("if-none-match", "\"x\", W/\"a\"")], S::NotModified),
            (&[("if-none-match", "*")], S::NotModified),
            (&[("if-none-match", "\"x\""), ("if-modified-since", LATER)], S::Whole),
            (&[("if-modified-since", DATE)], S::NotModified),
            (&[("if-modified-since", EARLIER)], S::Whole),
            (&[("if-match", "\"a\"")], S::Whole),
            (&[("if-match", "\"x\", \"a\""), ("if-unmodified-since", EARLIER)], S::Whole),
            (&[("if-match", "\"x\"")], S::Failed),
            (&[("if-match", "W/\"a\"")], S::Failed),
            (&[("if-match", "\"x\""), ("if-none-match", "\"a\"")], S::Failed),
            (&[("if-unmodified-since", DATE)], S::Whole),
            (&[("if-unmodified-since", EARLIER)], S::Failed),
            (&[("range", "bytes=2-3")], S::Part(2..4)),
            (&[("range", "bytes=-3")], S::Part(7..10)),
            (&[("range", "bytes=0-1,4-5")], S::Whole),
            (&[("range", "bytes=20-")], S::Unsatisfiable),
            (&[("range", "bytes=2-3"), ("if-range", "\"a\"")], S::Part(2..4)),
            (&[("range", "bytes=2-3"), ("if-range", DATE)], S::Part(2..4)),
            (&[("range", "bytes=2-3"), ("if-range", "\"x\"")], S::Whole),
        ];
        for (fields, expected) in rows {
            let asked = |name: &str| {
                let found = fields.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| value.as_bytes())
            };
            assert_eq!(select(asked, Status::OK, &kept, 10), *expected, "{fields:?}");
            assert_eq!(select(asked, Status::NOT_FOUND, &kept, 10), S::Whole, "{fields:?}");
        }
    }
}
