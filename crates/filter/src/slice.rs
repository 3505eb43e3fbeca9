//! Slices of a resource (`slice`): where they begin, how they are asked for, and whether an answer is the one that was
//! asked for.

/// Where the first slice begins that a client needs: that of the first byte it asks for, or the very first. Only a
/// plain `bytes=from-` moves it, as in nginx; a condition on the range does not.
pub fn first_start(range: Option<&[u8]>, has_condition: bool, size: u64) -> u64 {
    let from = range.filter(|_| !has_condition).and_then(|range| {
        let range = strip_unit(range)?;
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (first, rest) = range.split_at(digits(range));
        let rest = rest.trim_ascii_start().strip_prefix(b"-")?.trim_ascii_start();
        // Several ranges may be anywhere.
        let is_one = rest[digits(rest)..].trim_ascii().is_empty();
        number(first).filter(|_| is_one)
    });
    aligned(from.unwrap_or(0), size)
}

/// The beginning of the slice that a byte is in.
pub const fn aligned(at: u64, size: u64) -> u64 {
    match at.checked_div(size) {
        Some(count) => count * size,
        None => 0,
    }
}

/// `$slice_range`: what is asked for.
pub fn push_range(start: u64, size: u64, out: &mut Vec<u8>) {
    let last = start.saturating_add(size.saturating_sub(1));
    out.extend_from_slice(format!("bytes={start}-{last}").as_bytes());
}

/// What a `Content-Range` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// Its first byte.
    pub start: u64,
    /// The byte behind its last.
    pub end: u64,
    /// How long the whole is, where it says so.
    pub complete: Option<u64>,
}

impl ContentRange {
    /// Reads one: `bytes 0-499/1234` (RFC 9110 §14.4).
    pub fn parse(value: &[u8]) -> Option<Self> {
        let unit = value.get(..5)?;
        let rest = value.get(5..)?;
        let is_bytes = unit.eq_ignore_ascii_case(b"bytes")
            && rest.first().is_some_and(u8::is_ascii_whitespace);
        let rest = rest.trim_ascii();
        let slash = rest.iter().position(|byte| *byte == b'/')?;
        let (range, complete) = (rest[..slash].trim_ascii(), rest[slash + 1..].trim_ascii());
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let start = number(range[..dash].trim_ascii())?;
        let end = number(range[dash + 1..].trim_ascii())?.checked_add(1)?;
        let complete = match complete {
            b"*" => None,
            digits => Some(number(digits)?),
        };
        let is_sound = is_bytes && start < end && complete.is_none_or(|complete| end <= complete);
        is_sound.then_some(Self { start, end, complete })
    }
}

/// What is wrong with the answer to a request for a slice; in nginx's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongSlice {
    /// The `Content-Range` cannot be read.
    Range,
    /// It does not say how long the whole is.
    NoLength,
    /// It is another slice.
    Unexpected(ContentRange),
    /// It is of another version than the slices before.
    Tag,
    /// Its body has fewer or more bytes than it says: so many of so many.
    Length(u64, u64),
}

impl std::fmt::Display for WrongSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Range => f.write_str("invalid range in slice response"),
            Self::NoLength => f.write_str("no complete length in slice response"),
            Self::Unexpected(ContentRange { start, end, .. }) => {
                write!(f, "unexpected range in slice response: {start}-{end}")
            }
            Self::Tag => f.write_str("etag mismatch in slice response"),
            Self::Length(bytes, of) => write!(f, "{bytes} bytes instead of {of} in slice response"),
        }
    }
}

/// The slices of one answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slices {
    size: u64,
    /// Where the next one begins that is to be asked for.
    next: u64,
    /// The bytes that the client gets; known with the first answer.
    wanted: std::ops::Range<u64>,
    tag: Option<Vec<u8>>,
}

impl Slices {
    /// The first one was asked for at `start`.
    pub const fn new(start: u64, size: u64) -> Self {
        Self { size, next: start, wanted: 0..u64::MAX, tag: None }
    }

    /// The answer to the slice that was asked for last: its range. How long the whole is stands in it.
    pub fn check(
        &mut self,
        content_range: Option<&[u8]>,
        tag: Option<&[u8]>,
    ) -> Result<(ContentRange, u64), WrongSlice> {
        if self.tag.is_some() && self.tag.as_deref() != tag {
            return Err(WrongSlice::Tag);
        }
        self.tag = tag.map(<[u8]>::to_vec);
        let range = content_range.and_then(ContentRange::parse).ok_or(WrongSlice::Range)?;
        let complete = range.complete.ok_or(WrongSlice::NoLength)?;
        let end = self.next.saturating_add(self.size).min(complete);
        if range.start != self.next || range.end != end {
            return Err(WrongSlice::Unexpected(range));
        }
        self.next = end;
        Ok((range, complete))
    }

    /// What the client gets of the whole, of which this is the first slice. Whether that one is of use: where it
    /// begins behind what is wanted, it has to be asked for again in its turn.
    pub fn want(&mut self, wanted: std::ops::Range<u64>, first: &ContentRange) -> bool {
        let is_of_use = first.start <= wanted.start;
        // Slices that end before it are not asked for.
        if !is_of_use || self.next.saturating_add(self.size) <= wanted.start {
            self.next = aligned(wanted.start, self.size);
        }
        self.wanted = wanted;
        is_of_use
    }

    /// Where the next slice begins that has to be asked for; `None` after the last.
    pub fn next_start(&self) -> Option<u64> {
        (self.next < self.wanted.end).then_some(self.next)
    }

    /// Which of so many bytes that stand at a place the client gets.
    pub fn wanted_of(&self, at: u64, count: usize) -> std::ops::Range<usize> {
        let start = self.wanted.start.saturating_sub(at).min(count as u64);
        let end = self.wanted.end.saturating_sub(at).min(count as u64);
        start as usize..end.max(start) as usize
    }
}

fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let unit = value.get(..6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then(|| value[6..].trim_ascii_start())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|number| *number < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slice_is_that_of_the_first_byte() {
        for (range, expected) in [
            (None, 0),
            (Some("bytes=0-0"), 0),
            (Some("bytes=3-4"), 2),
            (Some("bytes=5-"), 4),
            (Some("BYTES= 7 - 9"), 6),
            (Some("bytes=-3"), 0),
            (Some("bytes=3-3,4-4"), 0),
            (Some("bytes=3-,4-4"), 0),
            (Some("bytes=x-3"), 0),
            (Some("lines=4-5"), 0),
            (Some("bytes=99999999999999999999-"), 0),
        ] {
            assert_eq!(first_start(range.map(str::as_bytes), false, 2), expected, "{range:?}");
            assert_eq!(first_start(range.map(str::as_bytes), true, 2), 0, "{range:?}");
        }
        let mut text = Vec::new();
        push_range(4, 2, &mut text);
        assert_eq!(text, b"bytes=4-5");
        assert_eq!(aligned(5, 0), 0);
    }

    #[test]
    fn content_ranges_are_read_strictly() {
        let range = |start, end, complete| Some(ContentRange { start, end, complete });
        for (text, expected) in [
            ("bytes 0-1/100", range(0, 2, Some(100))),
            ("Bytes 2 - 3 / 100", range(2, 4, Some(100))),
            ("bytes 0-1/*", range(0, 2, None)),
            ("bytes */100", None),
            ("bytes", None),
            ("bytes 0-1", None),
            ("bytes 3-1/100", None),
            ("bytes 0-100/100", None),
            ("bytes0-1/100", None),
            ("bytes 0-18446744073709551615/*", None),
        ] {
            assert_eq!(ContentRange::parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_must_be_the_slice_that_was_asked_for() {
        let mut slices = Slices::new(2, 2);
        assert_eq!(slices.check(Some(b"bytes"), None), Err(WrongSlice::Range));
        assert_eq!(slices.check(None, None), Err(WrongSlice::Range));
        assert_eq!(slices.check(Some(b"bytes 2-3/*"), None), Err(WrongSlice::NoLength));
        assert!(matches!(slices.check(Some(b"bytes 2-4/9"), None), Err(WrongSlice::Unexpected(_))));
        assert!(matches!(slices.check(Some(b"bytes 1-2/9"), None), Err(WrongSlice::Unexpected(_))));
        let (range, complete) = slices.check(Some(b"bytes 2-3/9"), Some(b"\"a\"")).expect("right");
        assert_eq!((range.start, range.end, complete), (2, 4, 9));
        assert!(slices.want(3..9, &range));
        assert_eq!(slices.wanted_of(2, 2), 1..2);
        assert_eq!(slices.next_start(), Some(4));
        assert_eq!(slices.check(Some(b"bytes 4-5/9"), Some(b"\"b\"")), Err(WrongSlice::Tag));
        assert!(slices.check(Some(b"bytes 4-5/9"), Some(b"\"a\"")).is_ok());
        assert!(slices.check(Some(b"bytes 6-7/9"), Some(b"\"a\"")).is_ok());
        assert!(slices.check(Some(b"bytes 8-8/9"), Some(b"\"a\"")).is_ok());
        assert_eq!(slices.next_start(), None);
        // The end of a range may lie within a slice, and its beginning far from the first.
        let mut slices = Slices::new(0, 4);
        let (first, _) = slices.check(Some(b"bytes 0-3/100"), None).expect("right");
        assert!(slices.want(50..53, &first));
        assert_eq!(slices.wanted_of(0, 4), 4..4);
        assert_eq!(slices.next_start(), Some(48));
        assert!(slices.check(Some(b"bytes 48-51/100"), None).is_ok());
        assert_eq!(slices.wanted_of(48, 4), 2..4);
        assert_eq!(slices.next_start(), Some(52));
        assert!(slices.check(Some(b"bytes 52-55/100"), None).is_ok());
        assert_eq!(slices.wanted_of(52, 4), 0..1);
        assert_eq!(slices.next_start(), None);
        // A range that is not given after all: the whole begins before the slice that was asked for.
        let mut slices = Slices::new(4, 4);
        let (first, _) = slices.check(Some(b"bytes 4-7/10"), None).expect("right");
        assert!(!slices.want(0..10, &first));
        assert_eq!(slices.next_start(), Some(0));
    }
}
