//! `Range`: the parts lie within the body, do not overlap and are together no larger than it; and they are
//! exactly the bytes that were asked for, as a second, simple reading of the same text has it.
//!
//! The first byte says how long the body is and how many parts there may be; each line behind it is a value.

use std::collections::BTreeSet;
use std::ops::Range;

use sekisho_http::range::{self, Ranges};

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let Some((bits, rest)) = data.split_first() else { return };
    let size = [0, 1, 10, 40, 1000, u64::MAX, 40, 40][usize::from(bits & 7)];
    let parts_max = [0, 1, 3, range::PARTS_MAX][usize::from(bits >> 3 & 3)];
    for value in rest.split(|byte| *byte == b'\n').take(4) {
        bounded(value, size, parts_max);
    }
}

fn bounded(value: &[u8], size: u64, parts_max: usize) {
    let found = range::parse(value, size, parts_max);
    let wanted = wanted(value, size, parts_max);
    let parts = match found {
        Ranges::Whole => return assert!(wanted.is_none(), "ignored {}", value.escape_ascii()),
        Ranges::Unsatisfiable => Vec::new(),
        Ranges::One(part) => vec![part],
        Ranges::Many(parts) => {
            assert!(parts.len() > 1);
            parts
        }
    };
    assert!(size > 0 && parts_max > 0 && parts.len() <= parts_max);
    let mut total = 0_u64;
    for (at, part) in parts.iter().enumerate() {
        assert!(part.start < part.end && part.end <= size, "{part:?} of {size}");
        total = total.checked_add(part.end - part.start).expect("no overflow");
        for other in &parts[..at] {
            assert!(part.end <= other.start || other.end <= part.start, "{parts:?}");
        }
    }
    assert!(total <= size);
    let wanted = wanted.unwrap_or_else(|| panic!("heeded {}", value.escape_ascii()));
    if size <= 40 {
        assert_eq!(bytes(&parts), bytes(&wanted), "{} of {size}", value.escape_ascii());
    } else {
        assert_eq!(parts.is_empty(), wanted.is_empty());
    }
}

fn bytes(parts: &[Range<u64>]) -> BTreeSet<u64> {
    parts.iter().cloned().flatten().collect()
}

/// What the text asks for, in wide numbers; `None` where it is to be ignored.
fn wanted(value: &[u8], size: u64, parts_max: usize) -> Option<Vec<Range<u64>>> {
    let text: String = value.iter().copied().map(char::from).collect();
    let (unit, list) = text.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") || list.is_empty() || size == 0 || parts_max == 0 {
        return None;
    }
    let is_space = |c: char| c.is_ascii_whitespace();
    let specs: Vec<&str> =
        list.split(',').map(|spec| spec.trim_matches(is_space)).filter(|s| !s.is_empty()).collect();
    let mut parts = Vec::new();
    for spec in specs {
        // What is malformed is not satisfiable.
        let ends = spec.split_once('-').and_then(|(first, last)| number(first).zip(number(last)));
        let Some((first, last)) = ends else { return Some(Vec::new()) };
        let size = u128::from(size);
        let (start, end) = match (first, last) {
            (None, None) => return Some(Vec::new()),
            (None, Some(suffix)) => (size.saturating_sub(suffix), size),
            (Some(first), None) => (first, size),
            (Some(first), Some(last)) if first > last => return Some(Vec::new()),
            (Some(first), Some(last)) => (first, size.min(last + 1)),
        };
        if start < end {
            // Those that lie within the body count.
            if parts.len() >= parts_max {
                return None;
            }
            parts.push(start as u64..end as u64);
        }
    }
    let total: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
    (total <= u128::from(size)).then_some(parts)
}

/// A number, one that is beyond 64 bits counting as the largest that is not; nothing; or no number at all.
#[expect(clippy::option_option, reason = "malformed and absent are different answers")]
fn number(text: &str) -> Option<Option<u128>> {
    if !text.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    Some(match text.len() {
        0 => None,
        _ if digits.len() > 20 => Some(u128::from(u64::MAX)),
        _ => Some(digits.parse().unwrap_or(0).min(u128::from(u64::MAX))),
    })
}
