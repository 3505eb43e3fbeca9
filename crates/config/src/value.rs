//! Words into numbers, sizes, times and switches. Overflow is an error, never a smaller number.

use std::time::Duration;

/// The largest time that can be said: what fits milliseconds in 63 bits.
const MILLIS_MAX: u64 = i64::MAX as u64;

/// Why a word is not the value it should be.
pub type Wrong = &'static str;

/// A whole number without sign.
pub fn number(text: &str) -> Result<u64, Wrong> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a number");
    }
    text.parse().map_err(|_| "is too large")
}

/// Bytes, with `k`, `m` or `g` behind the number.
pub fn size(text: &str) -> Result<u64, Wrong> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count = number(digits).map_err(|wrong| match wrong {
        "is too large" => wrong,
        _ => "is not a size: a number, with k, m or g behind it",
    })?;
    let bytes = count.checked_mul(1 << shift).ok_or("is too large")?;
    if bytes > i64::MAX as u64 { Err("is too large") } else { Ok(bytes) }
}

/// A length of time: `90`, `90s`, `1h30m`, `"1h 30m"`, `500ms`. Units go from large to small, each at
/// most once; a number without one is seconds, and is the last.
pub fn time(text: &str) -> Result<Duration, Wrong> {
    const WRONG: Wrong = "is not a time: like 30s, 500ms or 1h30m";
    let mut total: u64 = 0;
    let mut rest = text.trim_matches(' ');
    let mut last_unit = u64::MAX;
    let mut is_open = true;
    if rest.is_empty() {
        return Err(WRONG);
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count =
            number(&rest[..digits]).map_err(|wrong| if digits == 0 { WRONG } else { wrong })?;
        let (unit, len) = match &rest.as_bytes()[digits..] {
            [b'm', b's', ..] => (1, 2),
            [b'y', ..] => (365 * 86_400_000, 1),
            [b'M', ..] => (30 * 86_400_000, 1),
            [b'w', ..] => (7 * 86_400_000, 1),
            [b'd', ..] => (86_400_000, 1),
            [b'h', ..] => (3_600_000, 1),
            [b'm', ..] => (60_000, 1),
            [b's', ..] => (1000, 1),
            [] => (1000, 0),
            _ => return Err(WRONG),
        };
        if unit >= last_unit || !is_open {
            return Err(WRONG);
        }
        is_open = len > 0;
        last_unit = unit;
        total = count
            .checked_mul(unit)
            .and_then(|part| total.checked_add(part))
            .ok_or("is too large")?;
        rest = rest[digits + len..].trim_start_matches(' ');
    }
    if total > MILLIS_MAX { Err("is too large") } else { Ok(Duration::from_millis(total)) }
}

/// A deadline's length: `0` and `off` mean that there is none (T2).
pub fn deadline(text: &str) -> Result<Option<Duration>, Wrong> {
    if text == "off" {
        return Ok(None);
    }
    Ok(Some(time(text)?).filter(|length| !length.is_zero()))
}

/// `on` or `off`, in any case.
pub fn flag(text: &str) -> Result<bool, Wrong> {
    match text {
        _ if text.eq_ignore_ascii_case("on") => Ok(true),
        _ if text.eq_ignore_ascii_case("off") => Ok(false),
        _ => Err("must be \"on\" or \"off\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bounds() {
        let table = [
            ("0", Some(0)),
            ("1", Some(1)),
            ("8k", Some(8192)),
            ("8K", Some(8192)),
            ("1m", Some(1 << 20)),
            ("2G", Some(2 << 30)),
            ("8589934591g", Some(8_589_934_591 << 30)),
            ("8589934592g", None),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("99999999999999999999", None),
            ("", None),
            ("k", None),
            ("-1", None),
            ("+1", None),
            ("1kb", None),
            ("1 k", None),
            ("1.5m", None),
            ("１k", None),
        ];
        for (text, expected) in table {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn times_combine_units_from_large_to_small() {
        let table = [
            ("0", Some(0)),
            ("90", Some(90_000)),
            ("90s", Some(90_000)),
            ("500ms", Some(500)),
            ("1m", Some(60_000)),
            ("1M", Some(30 * 86_400_000)),
            ("1y", Some(365 * 86_400_000)),
            ("1w", Some(7 * 86_400_000)),
            ("1d", Some(86_400_000)),
            ("1h30m", Some(5_400_000)),
            ("1h 30m", Some(5_400_000)),
            ("1h30", Some(3_630_000)),
            ("1y1M1w1d1h1m1s1ms", Some((365 + 30 + 7 + 1) * 86_400_000 + 3_661_001)),
            ("30m1h", None),
            ("1h1h", None),
            ("1 2", None),
            ("1s1", None),
            ("", None),
            (" ", None),
            ("s", None),
            ("1x", None),
            ("-1", None),
            ("1.5h", None),
            ("off", None),
            ("9223372036854775807ms", Some(i64::MAX as u64)),
            ("9223372036854775808ms", None),
            ("18446744073709551616", None),
            ("9999999999999999y", None),
            ("１s", None),
        ];
        for (text, expected) in table {
            assert_eq!(time(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    /// T2: `0` or `off` in the configuration means none; inside, it is `None`.
    #[test]
    fn zero_and_off_are_no_deadline() {
        assert_eq!(deadline("0"), Ok(None));
        assert_eq!(deadline("0s"), Ok(None));
        assert_eq!(deadline("off"), Ok(None));
        assert_eq!(deadline("1ms"), Ok(Some(Duration::from_millis(1))));
        assert!(deadline("none").is_err());
    }

    #[test]
    fn switches_are_on_or_off() {
        assert_eq!(flag("on"), Ok(true));
        assert_eq!(flag("OFF"), Ok(false));
        assert!(flag("yes").is_err());
    }
}
