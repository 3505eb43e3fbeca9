//! Byte ranges (RFC 9110 §14): what a `Range` field asks of a body of known size. Whatever it asks,
//! the parts are few and together not larger than the body.

use std::ops::Range;

/// How many parts are sent at most where the configuration sets no other bound.
pub const PARTS_MAX: usize = 16;

/// The result of a `Range` field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ranges {
    /// No usable range: the whole body.
    Whole,
    /// 416: malformed, or nothing of it lies within the body.
    Unsatisfiable,
    /// One part, never empty.
    One(Range<u64>),
    /// Two or more parts, none empty, none overlapping another; in the order in which they were asked
    /// for, unless some overlapped and were joined.
    Many(Vec<Range<u64>>),
}

/// Reads a `Range` field for a body of `size` bytes. One of another unit, or that asks for more than
/// `parts_max` parts or for more bytes in all than there are, is ignored: the whole body is sent. So
/// it is for an empty list, and for an empty body, where no range could be satisfied. One that is malformed is as in nginx not
/// satisfiable, which RFC 9110 §14.2 leaves to us.
pub fn parse(value: &[u8], size: u64, parts_max: usize) -> Ranges {
    let Some((unit, list)) = value.split_at_checked(b"bytes=".len()) else { return Ranges::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") || list.is_empty() || size == 0 || parts_max == 0 {
        return Ranges::Whole;
    }
    let mut first = None;
    let mut more = Vec::new();
    let mut asked = 0;
    // Wider than any size, so that no sum is cut off at it.
    let mut total = 0_u128;
    for spec in list.split(|byte| *byte == b',') {
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue; // RFC 9110 §5.6.1.2: empty list members are to be ignored.
        }
        let Some(range) = parse_one(spec, size) else { return Ranges::Unsatisfiable };
        if range.is_empty() {
            continue;
        }
        // As in nginx: those that lie within the body count.
        asked += 1;
        if asked > parts_max {
            return Ranges::Whole;
        }
        total += u128::from(range.end - range.start);
        match &first {
            None => first = Some(range),
            Some(_) => more.push(range),
        }
    }
    match first {
        None => Ranges::Unsatisfiable,
        Some(_) if total > u128::from(size) => Ranges::Whole,
        Some(only) if more.is_empty() => Ranges::One(only),
        Some(first) => {
            more.insert(0, first);
            join_overlapping(more)
        }
    }
}

/// One `first-last`, `first-` or `-suffix`; empty when it lies outside, `None` when it is malformed.
fn parse_one(spec: &[u8], size: u64) -> Option<Range<u64>> {
    let dash = memchr::memchr(b'-', spec)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    match (number(first)?, number(last)?) {
        (None, Some(suffix)) => Some(size - suffix.min(size)..size),
        (Some(first), None) => Some(first.min(size)..size),
        (Some(first), Some(last)) if first <= last => {
            Some(first.min(size)..last.saturating_add(1).min(size))
        }
        (None, None) | (Some(_), Some(_)) => None,
    }
}

/// A number, or nothing; `None` when it is neither. One that is too large for 64 bits counts as the largest:
/// it is beyond every body.
#[expect(clippy::option_option, reason = "malformed and absent are different answers")]
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits.is_empty() {
        return Some(None);
    }
    Some(Some(
        digits.iter().fold(0_u64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        }),
    ))
}

/// RFC 9110 §14.2 lets us join what overlaps; the order asked for is kept where nothing does.
fn join_overlapping(parts: Vec<Range<u64>>) -> Ranges {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.start);
    if sorted.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return Ranges::Many(parts);
    }
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for part in sorted {
        match joined.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    match joined.as_slice() {
        [only] => Ranges::One(only.clone()),
        _ => Ranges::Many(joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// F1, V16: single and multiple ranges, bounded.
    #[test]
    fn ranges_come_to_what_they_ask_for() {
        let table: &[(&str, u64, Ranges)] = &[
            ("bytes=0-0", 10, Ranges::One(0..1)),
            ("bytes=0-", 10, Ranges::One(0..10)),
            ("BYTES=2-4", 10, Ranges::One(2..5)),
            ("bytes=5-99", 10, Ranges::One(5..10)),
            ("bytes=-3", 10, Ranges::One(7..10)),
            ("bytes=-99", 10, Ranges::One(0..10)),
            ("bytes= 1-2 ,\t4-5", 10, Ranges::Many(vec![1..3, 4..6])),
            ("bytes=,1-2,,", 10, Ranges::One(1..3)),
            ("bytes=8-9,0-1", 10, Ranges::Many(vec![8..10, 0..2])),
            ("bytes=0-1,2-3", 10, Ranges::Many(vec![0..2, 2..4])),
            ("bytes=4-6,0-5", 10, Ranges::One(0..7)),
            ("bytes=6-7,0-2,1-3", 10, Ranges::Many(vec![0..4, 6..8])),
            ("bytes=0-4,20-", 10, Ranges::One(0..5)),
            ("bytes=10-", 10, Ranges::Unsatisfiable),
            ("bytes=10-11,-0", 10, Ranges::Unsatisfiable),
            ("bytes=-0", 10, Ranges::Unsatisfiable),
            ("bytes=99999999999999999999-", 10, Ranges::Unsatisfiable),
            ("bytes=0-99999999999999999999", 10, Ranges::One(0..10)),
            ("bytes=18446744073709551615-18446744073709551615", u64::MAX, Ranges::Unsatisfiable),
            ("bytes=0-18446744073709551615", u64::MAX, Ranges::One(0..u64::MAX)),
            ("bytes=0-,0-", 10, Ranges::Whole),
            ("bytes=0-8,0-8", 10, Ranges::Whole),
            ("bytes=4-2", 10, Ranges::Unsatisfiable),
            ("bytes=-", 10, Ranges::Unsatisfiable),
            ("bytes=", 10, Ranges::Whole),
            ("bytes=,", 10, Ranges::Unsatisfiable),
            ("bytes=a-b", 10, Ranges::Unsatisfiable),
            ("bytes=+1-2", 10, Ranges::Unsatisfiable),
            ("bytes=1-2-3", 10, Ranges::Unsatisfiable),
            ("bytes=--1", 10, Ranges::Unsatisfiable),
            ("bytes=1 - 2", 10, Ranges::Unsatisfiable),
            ("bytes 0-1", 10, Ranges::Whole),
            ("items=0-1", 10, Ranges::Whole),
            ("", 10, Ranges::Whole),
            ("bytes=0-", 0, Ranges::Whole),
        ];
        for (value, size, expected) in table {
            assert_eq!(parse(value.as_bytes(), *size, PARTS_MAX), *expected, "{value}");
        }
    }

    /// V16
    #[test]
    fn too_many_parts_get_the_whole_body() {
        assert_eq!(parse(b"bytes=0-0,2-2", 10, 2), Ranges::Many(vec![0..1, 2..3]));
        assert_eq!(parse(b"bytes=0-0,2-2,4-4", 10, 2), Ranges::Whole);
        assert_eq!(parse(b"bytes=90-,91-,0-0", 10, 2), Ranges::One(0..1));
        assert_eq!(parse(b"bytes=0-0", 10, 0), Ranges::Whole);
    }

    /// V16, V46
    #[test]
    fn more_bytes_than_there_are_are_refused_for_the_largest_body_too() {
        assert_eq!(parse(b"bytes=0-0,1-,-3", u64::MAX, PARTS_MAX), Ranges::Whole);
        assert_eq!(parse(b"bytes=0-,-18446744073709551615", u64::MAX, PARTS_MAX), Ranges::Whole);
    }

    proptest! {
        /// V16
        #[test]
        fn parts_lie_within_the_body_and_never_overlap(
            list in "bytes=([0-9]{0,2}-[0-9]{0,3},? ?){0,20}", size in 0_u64..200
        ) {
            let parts = match parse(list.as_bytes(), size, PARTS_MAX) {
                Ranges::Whole | Ranges::Unsatisfiable => return Ok(()),
                Ranges::One(part) => vec![part],
                Ranges::Many(parts) => {
                    prop_assert!(parts.len() > 1);
                    parts
                }
            };
            prop_assert!(parts.len() <= PARTS_MAX);
            prop_assert!(parts.iter().all(|part| !part.is_empty() && part.end <= size));
            prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= size);
            let mut sorted = parts;
            sorted.sort_by_key(|part| part.start);
            prop_assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
