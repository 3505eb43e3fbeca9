//! `multipart/form-data` (RFC 7578, RFC 2046) as it comes: however the bytes are cut, the parts are the
//! same. It keeps a part's head and nothing else; every length has a limit.
//!
//! ```text
//! preamble ──delimiter──► after ──CRLF──► head ──empty line──► body ──delimiter──► after
//!                          └──`--`──► epilogue
//! ```

use std::borrow::Cow;

use memchr::memmem::Finder;

use crate::parameters;

/// The longest boundary (RFC 2046 §5.1.1).
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// White space behind a delimiter, at the most.
const PADDING_BYTES_MAX: usize = 64;

/// How much a body may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Parts.
    pub parts_max: usize,
    /// Bytes of one part's head.
    pub head_bytes_max: usize,
}

/// What is wrong with a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// More parts than there may be.
    TooManyParts,
    /// A part's head is too long.
    HeadTooLarge,
    /// A part's head is none, or names no field.
    BadHead,
    /// A delimiter is followed by something else than a line's end or `--`.
    BadDelimiter,
    /// It ended before its last delimiter.
    CutShort,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooManyParts => "too many parts",
            Self::HeadTooLarge => "the head of a part is too long",
            Self::BadHead => "the head of a part is bad",
            Self::BadDelimiter => "a delimiter is not followed by a line's end",
            Self::CutShort => "the last delimiter is missing",
        })
    }
}

impl std::error::Error for Malformed {}

/// What a form consists of, in order: for each part its beginning, its bytes in pieces, and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A part begins.
    Part(Part<'a>),
    /// Bytes of the part.
    Data(&'a [u8]),
    /// The part is complete.
    PartEnd,
}

/// What a part's head says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// The name of the form's field.
    pub name: Cow<'a, [u8]>,
    /// What the client calls the file; `None` for a field that is no file.
    pub file_name: Option<Cow<'a, [u8]>>,
    /// Its media type, if it says so.
    pub media_type: Option<&'a [u8]>,
}

/// The boundary that a `Content-Type` names, if it is that of a form.
pub fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    if !parameters::head_of(content_type).eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let boundary = parameters::parameter(content_type, b"boundary")?;
    let is_boundary = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    let is_good = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.iter().all(is_boundary)
        && boundary.last() != Some(&b' ');
    is_good.then(|| boundary.into_owned())
}

/// Whether a `Content-Type` says that the body is a form, valid or not.
pub fn is_form(content_type: &[u8]) -> bool {
    parameters::head_of(content_type).eq_ignore_ascii_case(b"multipart/form-data")
}

/// A form that is being read.
#[derive(Debug)]
pub struct Form {
    /// CRLF, two dashes and the boundary.
    delimiter: Finder<'static>,
    limits: Limits,
    state: State,
    /// How much of the delimiter is at the end of the input so far.
    matched: usize,
    parts: usize,
    head: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the first part: ignored.
    Preamble,
    /// Behind a delimiter; how many bytes have been seen, and the last of them if it counts.
    After(usize, Option<u8>),
    Head,
    Body,
    /// After the last delimiter: ignored.
    Epilogue,
}

impl Form {
    /// A form whose parts are delimited by this boundary.
    pub fn new(boundary: &[u8], limits: Limits) -> Self {
        let delimiter = [b"\r\n--", boundary].concat();
        Self {
            delimiter: Finder::new(&delimiter).into_owned(),
            limits,
            state: State::Preamble,
            // The first delimiter may be at the very beginning, without a line break before it.
            matched: 2,
            parts: 0,
            head: Vec::new(),
        }
    }

    /// Takes bytes, all of them, and tells what they are. An error of the caller's ends it, too.
    pub fn receive<E: From<Malformed>>(
        &mut self,
        input: &[u8],
        mut tell: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = input;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Preamble => self.search(rest, |_| Ok::<_, E>(()))?,
                State::Body => {
                    let taken = self.search(rest, |bytes| tell(Event::Data(bytes)))?;
                    if self.state != State::Body {
                        tell(Event::PartEnd)?;
                    }
                    taken
                }
                State::After(seen, last) => {
                    self.after_delimiter(rest[0], seen, last)?;
                    1
                }
                State::Head => {
                    let taken = self.receive_head(rest)?;
                    if self.state == State::Body {
                        tell(Event::Part(part(&self.head)?))?;
                    }
                    taken
                }
                State::Epilogue => rest.len(),
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// There is no more.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.state == State::Epilogue { Ok(()) } else { Err(Malformed::CutShort) }
    }

    /// Looks for the delimiter; what comes before it is the part's. Says how much was taken.
    fn search<E>(
        &mut self,
        input: &[u8],
        mut data: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let delimiter = self.delimiter.needle();
        if self.matched > 0 {
            let expected = &delimiter[self.matched..];
            let same = expected.iter().zip(input).take_while(|(a, b)| a == b).count();
            if same == expected.len() {
                (self.matched, self.state) = (0, State::After(0, None));
                return Ok(same);
            }
            if same == input.len() {
                self.matched += same;
                return Ok(same);
            }
            // It was none. Only its first byte is a CR, so nothing of it can be another's beginning.
            // The line break that was only assumed before the preamble belongs to no part anyhow.
            let held = self.matched + same;
            self.matched = 0;
            data(&delimiter[..held])?;
            return Ok(same);
        }
        if let Some(at) = self.delimiter.find(input) {
            if at > 0 {
                data(&input[..at])?;
            }
            self.state = State::After(0, None);
            return Ok(at + self.delimiter.needle().len());
        }
        // The end of the input may be the beginning of one.
        let tail = input.len().saturating_sub(delimiter.len() - 1);
        let held = memchr::memchr_iter(b'\r', &input[tail..])
            .map(|at| &input[tail + at..])
            .find(|end| delimiter.starts_with(end))
            .map_or(0, <[u8]>::len);
        self.matched = held;
        let bytes = &input[..input.len() - held];
        if !bytes.is_empty() {
            data(bytes)?;
        }
        Ok(input.len())
    }

    fn after_delimiter(
        &mut self,
        byte: u8,
        seen: usize,
        last: Option<u8>,
    ) -> Result<(), Malformed> {
        self.state = match (last, byte) {
            (None, b'-') if seen == 0 => State::After(1, Some(b'-')),
            (Some(b'-'), b'-') => State::Epilogue,
            (None, b' ' | b'\t') if seen < PADDING_BYTES_MAX => State::After(seen + 1, None),
            (None, b'\r') => State::After(seen + 1, Some(b'\r')),
            (Some(b'\r'), b'\n') => {
                self.parts += 1;
                if self.parts > self.limits.parts_max {
                    return Err(Malformed::TooManyParts);
                }
                self.head.clear();
                State::Head
            }
            _ => return Err(Malformed::BadDelimiter),
        };
        Ok(())
    }

    /// Gathers a part's head up to its empty line.
    fn receive_head(&mut self, input: &[u8]) -> Result<usize, Malformed> {
        let room = self.limits.head_bytes_max.saturating_sub(self.head.len());
        // The end may span earlier input; bytes that were searched are not searched again.
        let from = self.head.len().saturating_sub(3);
        let before = self.head.len();
        self.head.extend_from_slice(&input[..input.len().min(room)]);
        let end = if self.head.starts_with(b"\r\n") {
            Some(2)
        } else {
            let found = memchr::memmem::find(&self.head[from..], b"\r\n\r\n");
            found.map(|at| from + at + 4)
        };
        if let Some(end) = end {
            self.head.truncate(end);
            self.state = State::Body;
            return Ok(end - before);
        }
        if input.len() > room || self.head.len() >= self.limits.head_bytes_max {
            return Err(Malformed::HeadTooLarge);
        }
        Ok(input.len())
    }
}

/// Reads a part's head.
fn part(head: &[u8]) -> Result<Part<'_>, Malformed> {
    let (mut disposition, mut media_type) = (None, None);
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = memchr::memchr(b':', line).ok_or(Malformed::BadHead)?;
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-disposition") {
            disposition = disposition.or(Some(value));
        } else if name.eq_ignore_ascii_case(b"content-type") {
            media_type = media_type.or(Some(value));
        }
    }
    let disposition = disposition.ok_or(Malformed::BadHead)?;
    if !parameters::head_of(disposition).eq_ignore_ascii_case(b"form-data") {
        return Err(Malformed::BadHead);
    }
    let name = parameters::parameter(disposition, b"name").ok_or(Malformed::BadHead)?;
    Ok(Part { name, file_name: parameters::file_name(disposition), media_type })
}
