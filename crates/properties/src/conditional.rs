//! Dates and entity tags: a date that is accepted is one of the three forms of its second, and every
//! second is read from each form; conditions come to what a second, simple reading of RFC 9110 §13.2.2 says;
//! a list of tags is found whole, whatever stands in the tags.
//!
//! The first byte says what is asked and of what; each line behind it is the value of a field.

use sekisho_http::conditional::{PreconditionResult, Since, Validators, evaluate, if_range_holds};
use sekisho_http::{Head, Version, date};

const NAMES: [&[u8]; 5] =
    [b"If-Match", b"If-None-Match", b"If-Modified-Since", b"If-Unmodified-Since", b"If-Range"];
const METHODS: [&[u8]; 4] = [b"GET", b"HEAD", b"PUT", b"DELETE"];
const TAGS: [Option<&[u8]>; 4] = [None, Some(b"\"a,b\""), Some(b"W/\"a,b\""), Some(b"\"\"")];
/// Sunday, 6 November 1994, 08:49:37.
const MODIFIED: i64 = 784_111_777;

/// Holds the readers to it.
pub fn check(data: &[u8]) {
    let Some((bits, rest)) = data.split_first() else { return };
    let lines: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').take(NAMES.len()).collect();
    for value in &lines {
        reads_a_date(value);
    }
    if let Some(seconds) = rest.first_chunk() {
        let seconds = i64::from_le_bytes(*seconds);
        let near = MODIFIED + (seconds & 0xff) - 128;
        writes_a_date([seconds, seconds >> 24, seconds >> 31, near][usize::from(bits >> 6)]);
    }
    let asked = Asked {
        method: METHODS[usize::from(bits & 3)],
        etag: TAGS[usize::from(bits >> 2 & 3)],
        since: [Since::Off, Since::Exact, Since::Before, Since::Before][usize::from(bits >> 4 & 3)],
    };
    asked.weighs(&lines);
    asked.finds_tags(rest);
}

// Dates.

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn reads_a_date(value: &[u8]) {
    let Some(seconds) = date::parse(value) else { return };
    assert!(seconds >= 0);
    // White space around it, which the parser of heads takes away, is none of its business.
    let value = std::str::from_utf8(value).expect("a date is ASCII").trim().as_bytes();
    let mut text = value.to_vec();
    // What stands between date and time of the second form is not looked at.
    if let Some(between) = value.len().checked_sub(13).filter(|_| value.contains(&b'-')) {
        text[between] = b' ';
    }
    // A day of one digit has a space or a zero before it in the third form.
    let [first, second, third] = forms(seconds);
    let zero = third.replace("  ", " 0");
    // The day of the week may be any, and `UTC` is `GMT`.
    let text = String::from_utf8_lossy(&text).replace(" UTC", " GMT");
    let behind = |text: &str| text.find([',', ' ']).map(|at| text[at..].to_owned());
    let is_form = [first, second, third, zero].iter().any(|form| behind(form) == behind(&text));
    assert!(is_form, "{} is not {seconds}", value.escape_ascii());
}

fn writes_a_date(seconds: i64) {
    let mut out = Vec::new();
    date::write(seconds, &mut out);
    let [first, second, third] = forms(seconds);
    assert_eq!(String::from_utf8(out).as_deref(), Ok(first.as_str()));
    let civil = date::civil(seconds);
    let is_held = (1..=9999).contains(&civil.year);
    assert!(is_held && (1..=12).contains(&civil.month) && (1..=31).contains(&civil.day));
    assert!(civil.hour < 24 && civil.minute < 60 && civil.second < 60 && civil.weekday < 7);
    let again = seconds_of(civil);
    if (-62_135_596_800..=253_402_300_799).contains(&seconds) {
        assert_eq!(again, seconds, "{civil:?}");
    } else {
        assert!(
            again.abs_diff(0) < seconds.abs_diff(0),
            "moved to the nearest that four digits hold"
        );
    }
    let read = |text: &str| date::parse(text.as_bytes());
    let is_read = again >= 0;
    assert_eq!(read(&first), is_read.then_some(again), "{first}");
    assert_eq!(read(&third), is_read.then_some(again), "{third}");
    // Two digits of a year mean 1970 to 2069.
    if is_read && civil.year < 2070 {
        assert_eq!(read(&second), Some(again), "{second}");
    }
}

/// The three forms of RFC 9110 §5.6.7.
fn forms(seconds: i64) -> [String; 3] {
    let at = date::civil(seconds);
    let weekday = WEEKDAYS[usize::from(at.weekday)];
    let (short, month) = (&weekday[..3], date::MONTHS[usize::from(at.month - 1)]);
    let time = format!("{:02}:{:02}:{:02}", at.hour, at.minute, at.second);
    let (day, year) = (at.day, at.year);
    [
        format!("{short}, {day:02} {month} {year:04} {time} GMT"),
        format!("{weekday}, {day:02}-{month}-{:02} {time} GMT", year % 100),
        format!("{short} {month} {day:2} {time} {year:04}"),
    ]
}

/// By the Julian day number (Fliegel and van Flandern), which is not how the calendar is made.
fn seconds_of(at: date::Civil) -> i64 {
    let (year, month, day) = (i64::from(at.year), i64::from(at.month), i64::from(at.day));
    let shift = (14 - month) / 12;
    let (years, months) = (year + 4800 - shift, month + 12 * shift - 3);
    let julian =
        day + (153 * months + 2) / 5 + 365 * years + years / 4 - years / 100 + years / 400 - 32_045;
    assert_eq!((julian + 1) % 7, i64::from(at.weekday), "the day of the week");
    let of_day = i64::from(at.hour) * 3600 + i64::from(at.minute) * 60 + i64::from(at.second);
    (julian - 2_440_588) * 86_400 + of_day
}

// Conditions.

struct Asked {
    method: &'static [u8],
    etag: Option<&'static [u8]>,
    since: Since,
}

impl Asked {
    fn head(&self, fields: &[(&[u8], &[u8])]) -> Head {
        let mut head = Head::default();
        head.begin(self.method, b"/", Version::Http11);
        for (name, value) in fields {
            head.push(name, value);
        }
        head
    }

    fn validators(&self) -> Validators<'static> {
        Validators { etag: self.etag, modified: MODIFIED }
    }

    fn is_read(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD")
    }

    /// Any values in any fields.
    fn weighs(&self, lines: &[&[u8]]) {
        let fields: Vec<(&[u8], &[u8])> = NAMES
            .into_iter()
            .zip(lines.iter().copied())
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let head = self.head(&fields);
        let value =
            |name: &[u8]| fields.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        let strong = |tag: &Tag| self.etag.is_some_and(|ours| tag.is_strong(ours));
        let weak = |tag: &Tag| self.etag.is_some_and(|ours| tag.is_weak(ours));
        let failed = match (value(b"If-Match"), value(b"If-Unmodified-Since").map(date::parse)) {
            (Some(list), _) => !(list == b"*" || tags(list).iter().any(strong)),
            (None, Some(Some(limit))) => MODIFIED > limit,
            _ => false,
        };
        let is_known = match (value(b"If-None-Match"), value(b"If-Modified-Since").map(date::parse))
        {
            (Some(list), _) => list == b"*" || tags(list).iter().any(weak),
            (None, Some(Some(time))) if self.is_read() => match self.since {
                Since::Off => false,
                Since::Exact => time == MODIFIED,
                Since::Before => time >= MODIFIED,
            },
            _ => false,
        };
        let wanted = match (failed, is_known) {
            (true, _) => PreconditionResult::PreconditionFailed,
            (_, true) if self.is_read() => PreconditionResult::NotModified,
            (_, true) => PreconditionResult::PreconditionFailed,
            (false, false) => PreconditionResult::Proceed,
        };
        assert_eq!(evaluate(&head, &self.validators(), self.since), wanted, "{fields:?}");
        let holds = match value(b"If-Range") {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => self.etag == Some(tag),
            Some(tag) if tag.starts_with(b"W/") => false,
            Some(time) => date::parse(time) == Some(MODIFIED),
        };
        assert_eq!(if_range_holds(&head, &self.validators()), holds, "{fields:?}");
    }

    /// A list that is put together of any bytes is taken apart again.
    fn finds_tags(&self, text: &[u8]) {
        let separators: [&[u8]; 4] = [b",", b", ", b" ,\t, ", b",,"];
        let mut list = Vec::new();
        let (mut has_strong, mut has_weak) = (false, false);
        for (at, piece) in text.split(|byte| *byte == b'"' || *byte == b'\n').take(12).enumerate() {
            let is_weak_tag = piece.len() % 3 == 1;
            let tag = [if is_weak_tag { &b"W/\""[..] } else { b"\"" }, piece, b"\""].concat();
            let opaque = self.etag.map(|ours| ours.strip_prefix(b"W/").unwrap_or(ours));
            has_strong |= !is_weak_tag && self.etag == Some(tag.as_slice());
            has_weak |= opaque == Some(&tag[if is_weak_tag { 2 } else { 0 }..]);
            list.extend_from_slice(&tag);
            list.extend_from_slice(separators[at % 4]);
        }
        let result =
            |name: &[u8]| evaluate(&self.head(&[(name, &list)]), &self.validators(), self.since);
        assert_eq!(
            result(b"If-Match") == PreconditionResult::Proceed,
            has_strong,
            "{}",
            list.escape_ascii()
        );
        assert_eq!(
            result(b"If-None-Match") != PreconditionResult::Proceed,
            has_weak,
            "{}",
            list.escape_ascii()
        );
    }
}

/// A tag without its quotes.
struct Tag {
    is_weak: bool,
    opaque: Vec<u8>,
}

impl Tag {
    fn is_strong(&self, ours: &[u8]) -> bool {
        !self.is_weak && ours == [b"\"", self.opaque.as_slice(), b"\""].concat()
    }

    fn is_weak(&self, ours: &[u8]) -> bool {
        let quoted = [b"\"", self.opaque.as_slice(), b"\""].concat();
        ours == quoted || ours == [b"W/", quoted.as_slice()].concat()
    }
}

/// The tags of a list as far as it is one, byte by byte.
fn tags(list: &[u8]) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut tag: Option<Tag> = None;
    let mut weak_mark = 0;
    for &byte in list {
        match (&mut tag, weak_mark, byte) {
            (Some(_), _, b'"') => {
                tags.extend(tag.take());
                weak_mark = 0;
            }
            (Some(tag), _, byte) => tag.opaque.push(byte),
            (None, 0 | 2, b'"') => tag = Some(Tag { is_weak: weak_mark == 2, opaque: Vec::new() }),
            (None, 0, b' ' | b'\t' | b',') => {}
            (None, 0, b'W') => weak_mark = 1,
            (None, 1, b'/') => weak_mark = 2,
            _ => break,
        }
    }
    tags
}
