//! Validators and conditional requests (RFC 9110 §13): does the client already have what it asks
//! for, or is what it has in mind gone? A pure decision on a head and two validators.

use crate::date;
use crate::head::{Head, Known, Method};

/// What is known about the state of a representation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validators<'a> {
    /// The entity tag as it is sent, quotes and a possible `W/` included.
    pub etag: Option<&'a [u8]>,
    /// The time of the last modification, in Unix seconds.
    pub modified: i64,
}

/// How `If-Modified-Since` is compared (`if_modified_since`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// Not at all.
    Off,
    /// The times must be equal.
    Exact,
    /// The modification must not be later.
    Before,
}

/// The result of the conditions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreconditionResult {
    /// Answer as if there were no conditions.
    Proceed,
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
}

/// The conditions in the order of RFC 9110 §13.2.2.
pub fn evaluate(head: &Head, validators: &Validators<'_>, since: Since) -> PreconditionResult {
    let is_read = matches!(head.method(), Method::Get | Method::Head);

    if head.known(Known::IfMatch).is_some() {
        if !any_tag(head, Known::IfMatch, |tag| is_strong_match(tag, validators.etag)) {
            return PreconditionResult::PreconditionFailed;
        }
    } else if let Some(limit) = head.known(Known::IfUnmodifiedSince).and_then(date::parse)
        && validators.modified > limit
    {
        return PreconditionResult::PreconditionFailed;
    }

    if head.known(Known::IfNoneMatch).is_some() {
        if any_tag(head, Known::IfNoneMatch, |tag| is_weak_match(tag, validators.etag)) {
            return if is_read {
                PreconditionResult::NotModified
            } else {
                PreconditionResult::PreconditionFailed
            };
        }
    } else if is_read
        && since != Since::Off
        && let Some(date) = head.known(Known::IfModifiedSince).and_then(date::parse)
    {
        let is_unmodified = match since {
            Since::Off => false,
            Since::Exact => validators.modified == date,
            Since::Before => validators.modified <= date,
        };
        if is_unmodified {
            return PreconditionResult::NotModified;
        }
    }
    PreconditionResult::Proceed
}

/// Whether a `Range` may be honoured as far as `If-Range` is concerned: it names this very
/// representation, or is not there (RFC 9110 §13.1.5).
pub fn if_range_holds(head: &Head, validators: &Validators<'_>) -> bool {
    let Some(value) = head.known(Known::IfRange) else { return true };
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return is_strong_match(Tag::Value(value), validators.etag);
    }
    date::parse(value) == Some(validators.modified)
}

/// One member of `If-Match` or `If-None-Match`.
#[derive(Clone, Copy)]
enum Tag<'a> {
    /// `*`: whatever there is.
    Any,
    Value(&'a [u8]),
}

fn is_strong_match(tag: Tag<'_>, ours: Option<&[u8]>) -> bool {
    match tag {
        Tag::Any => true,
        Tag::Value(tag) => !tag.starts_with(b"W/") && ours == Some(tag),
    }
}

fn is_weak_match(tag: Tag<'_>, ours: Option<&[u8]>) -> bool {
    let opaque = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
    match tag {
        Tag::Any => true,
        Tag::Value(tag) => ours.is_some_and(|ours| opaque(ours) == opaque(tag)),
    }
}

/// Whether a tag in the list, which may be spread over several fields, has the property. A list that is
/// broken is read as far as it is whole.
fn any_tag<'a>(head: &'a Head, known: Known, mut holds: impl FnMut(Tag<'a>) -> bool) -> bool {
    head.all_known(known).any(|list| any_of_list(list, &mut holds))
}

fn any_of_list<'a>(list: &'a [u8], mut holds: impl FnMut(Tag<'a>) -> bool) -> bool {
    if list == b"*" {
        return holds(Tag::Any);
    }
    let mut rest = list;
    while let Some((tag, after)) = next_tag(rest) {
        if holds(Tag::Value(tag)) {
            return true;
        }
        rest = after;
    }
    false
}

/// Whether the value of an `If-None-Match` names this entity tag, or whatever there is.
pub fn names_tag(list: &[u8], etag: Option<&[u8]>) -> bool {
    any_of_list(list, |tag| is_weak_match(tag, etag))
}

/// Whether the value of an `If-Match` names this entity tag, which must be a strong one, or whatever there is.
pub fn names_tag_strongly(list: &[u8], etag: Option<&[u8]>) -> bool {
    any_of_list(list, |tag| is_strong_match(tag, etag))
}

/// The entity tag that the value of an `If-None-Match` consists of, without its `W/`; `None` where it is `*`, or not one.
pub fn only_tag(list: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = next_tag(list)?;
    let is_last = rest.iter().all(|byte| matches!(byte, b' ' | b'\t' | b','));
    is_last.then(|| tag.strip_prefix(b"W/").unwrap_or(tag))
}

/// The first entity tag of a list, and what follows it. Tags may contain commas.
fn next_tag(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = list.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
    let list = &list[start..];
    let quote = if list.starts_with(b"W/") { 2 } else { 0 };
    if list.get(quote) != Some(&b'"') {
        return None;
    }
    let close = memchr::memchr(b'"', &list[quote + 1..])?;
    Some(list.split_at(quote + 1 + close + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Version;
    use proptest::prelude::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const OURS: Validators<'_> = Validators { etag: Some(b"\"a\""), modified: 784_111_777 };

    fn head(method: &str, fields: &[(&str, &str)]) -> Head {
        let mut head = Head::default();
        head.begin(method.as_bytes(), b"/", Version::Http11);
        for (name, value) in fields {
            head.push(name.as_bytes(), value.as_bytes());
        }
        head
    }

    #[test]
    fn a_list_is_one_tag_or_several() {
        for (list, only, names_ours) in [
            ("\"a\"", Some("\"a\""), true),
            (" W/\"a\" ,", Some("\"a\""), true),
            ("\"b\"", Some("\"b\""), false),
            ("\"x,y\", W/\"a\"", None, true),
            ("\"b\" \"c\"", None, false),
            ("*", None, true),
            ("a", None, false),
            ("", None, false),
        ] {
            let list = list.as_bytes();
            assert_eq!(only_tag(list), only.map(str::as_bytes), "{}", list.escape_ascii());
            assert_eq!(names_tag(list, OURS.etag), names_ours, "{}", list.escape_ascii());
        }
    }

    /// F1: conditionals in the order of RFC 9110 §13.2.2.
    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_rfc() {
        use PreconditionResult::{NotModified, PreconditionFailed, Proceed};
        let (m, nm) = ("If-Match", "If-None-Match");
        let (ms, us) = ("If-Modified-Since", "If-Unmodified-Since");
        let table: &[(&[(&str, &str)], PreconditionResult)] = &[
            (&[], Proceed),
            (&[(m, "\"a\"")], Proceed),
            (&[(m, "*")], Proceed),
            (&[(m, "\"b\", \"a\"")], Proceed),
            (&[(m, "\"b\""), (m, "\"a\"")], Proceed),
            (&[(m, "\"b\"")], PreconditionFailed),
            (&[(m, "W/\"a\"")], PreconditionFailed),
            (&[(m, "a")], PreconditionFailed),
            (&[(m, "")], PreconditionFailed),
            (&[(us, DATE)], Proceed),
            (&[(us, LATER)], Proceed),
            (&[(us, EARLIER)], PreconditionFailed),
            (&[(us, "nonsense")], Proceed),
            // If-Match makes If-Unmodified-Since void.
            (&[(m, "\"a\""), (us, EARLIER)], Proceed),
            (&[(nm, "\"a\"")], NotModified),
            (&[(nm, "W/\"a\"")], NotModified),
            (&[(nm, "*")], NotModified),
            (&[(nm, "\"x,y\" , ,\"a\"")], NotModified),
            (&[(nm, "\"b\"")], Proceed),
            (&[(nm, "\"a")], Proceed),
            (&[(ms, DATE)], NotModified),
            (&[(ms, LATER)], NotModified),
            (&[(ms, EARLIER)], Proceed),
            // If-None-Match makes If-Modified-Since void.
            (&[(nm, "\"b\""), (ms, DATE)], Proceed),
            (&[(nm, "\"a\""), (ms, EARLIER)], NotModified),
            // A failed If-Match comes before everything.
            (&[(m, "\"b\""), (nm, "\"a\"")], PreconditionFailed),
            (&[(m, "\"a\""), (nm, "\"a\"")], NotModified),
        ];
        for (fields, expected) in table {
            for method in ["GET", "HEAD"] {
                let result = evaluate(&head(method, fields), &OURS, Since::Before);
                assert_eq!(result, *expected, "{method} {fields:?}");
            }
        }
    }

    #[test]
    fn a_writing_method_fails_where_a_reading_one_is_spared() {
        let put = |fields| evaluate(&head("PUT", fields), &OURS, Since::Before);
        assert_eq!(put(&[("If-None-Match", "*")]), PreconditionResult::PreconditionFailed);
        assert_eq!(put(&[("If-Modified-Since", DATE)]), PreconditionResult::Proceed);
    }

    #[test]
    fn if_modified_since_compares_as_configured() {
        use PreconditionResult::{NotModified, Proceed};
        let table = [
            (Since::Off, [Proceed, Proceed, Proceed]),
            (Since::Exact, [Proceed, NotModified, Proceed]),
            (Since::Before, [Proceed, NotModified, NotModified]),
        ];
        for (since, results) in table {
            for (date, expected) in [EARLIER, DATE, LATER].into_iter().zip(results) {
                let head = head("GET", &[("If-Modified-Since", date)]);
                assert_eq!(evaluate(&head, &OURS, since), expected, "{since:?} {date}");
            }
        }
    }

    #[test]
    fn without_an_entity_tag_only_the_asterisk_matches() {
        let bare = Validators { etag: None, ..OURS };
        let of = |name, value| evaluate(&head("GET", &[(name, value)]), &bare, Since::Exact);
        assert_eq!(of("If-None-Match", "\"a\""), PreconditionResult::Proceed);
        assert_eq!(of("If-None-Match", "*"), PreconditionResult::NotModified);
        assert_eq!(of("If-Match", "\"a\""), PreconditionResult::PreconditionFailed);
    }

    /// F1: `If-Range`
    #[test]
    fn if_range_wants_a_strong_tag_or_the_exact_date() {
        let table = [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            (DATE, true),
            (LATER, false),
            (EARLIER, false),
            ("nonsense", false),
            ("", false),
        ];
        for (value, expected) in table {
            assert_eq!(
                if_range_holds(&head("GET", &[("If-Range", value)]), &OURS),
                expected,
                "{value}"
            );
        }
        assert!(if_range_holds(&head("GET", &[]), &OURS));
        let weak = Validators { etag: Some(b"W/\"a\""), ..OURS };
        assert!(!if_range_holds(&head("GET", &[("If-Range", "W/\"a\"")]), &weak));
    }

    proptest! {
        #[test]
        fn no_condition_makes_it_panic(value in "[W/\"a*, \\\\]{0,24}") {
            let head = head("GET", &[("If-Match", &value), ("If-None-Match", &value), ("If-Range", &value)]);
            let _ = evaluate(&head, &OURS, Since::Before);
            let _ = if_range_holds(&head, &OURS);
        }
    }
}
