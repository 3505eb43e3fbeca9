//! The head of a program's answer (RFC 3875 §6, C9): read line by line as it comes, turned into lines
//! that are safe to send, or refused with a reason. No byte is looked at twice; nothing that could split a
//! response or control the connection passes.

use std::mem;

use sekisho_http::token::is_token_byte;
use sekisho_http::{Fields, Status};

use super::cause::HeadError;

/// How many names a `Connection` field may give.
const NOMINATED_MAX: usize = 16;

/// Fields that are about one connection, or that the server writes itself.
const NOT_PASSED_ON: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
    "server",
    "x-sendfile",
    "x-lighttpd-send-file",
];

/// How a head is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadRules {
    /// `cgi_head_max`
    pub bytes_max: usize,
    /// `cgi_strict`
    pub is_strict: bool,
    /// `cgi_x_accel_redirect`
    pub takes_accel: bool,
}

/// What a program says about its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: Status,
    /// Its fields, without those the server writes: ready to be sent.
    pub fields: Fields,
    /// `Content-Length`, which is not among the fields.
    pub content_length: Option<u64>,
    /// Whether there is a `Content-Type` among the fields.
    pub has_content_type: bool,
    /// What kind of answer it is.
    pub kind: Kind,
}

impl ResponseHead {
    /// That of a program which prints a body only.
    pub const fn body_only() -> Self {
        Self {
            status: Status::OK,
            fields: Fields::new(),
            content_length: None,
            has_content_type: false,
            kind: Kind::Document,
        }
    }

    /// Whether it is certain that no body belongs to it (C3).
    pub const fn is_without_body(&self) -> bool {
        self.status.is_bodyless()
            || matches!(self.content_length, Some(0))
            || matches!(self.kind, Kind::ClientRedirect)
    }
}

/// The kinds of answers (RFC 3875 §6.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A document, or a redirect with one.
    Document,
    /// A redirect of the client and nothing else.
    ClientRedirect,
    /// Another local target, `path[?query]`, answers in its stead.
    LocalRedirect(Vec<u8>),
    /// The same by `X-Accel-Redirect`.
    Accel(Vec<u8>),
}

/// What came of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fed {
    /// All were taken, and the head goes on.
    More,
    /// The head is complete.
    Head {
        /// The head.
        head: ResponseHead,
        /// How many bytes were taken; the rest is body.
        taken: usize,
    },
}

/// Reads a head, however its bytes are cut.
#[derive(Debug)]
pub struct HeadReader {
    rules: HeadRules,
    /// Bytes taken so far.
    bytes: usize,
    /// A line whose end has not come yet.
    line: Vec<u8>,
    fields: Fields,
    field_count: usize,
    status: Option<Status>,
    status_line: Option<Status>,
    content_length: Option<u64>,
    location: Option<Vec<u8>>,
    accel: Option<Vec<u8>>,
    has_content_type: bool,
    /// Names that a `Connection` field gave.
    nominated: Vec<Vec<u8>>,
    /// The answer is an upstream's, which nginx reads a little differently.
    is_upstream: bool,
}

impl HeadReader {
    /// A reader for one head.
    pub const fn new(rules: HeadRules) -> Self {
        Self::with(rules, false)
    }

    /// A reader for the head of a FastCGI, SCGI or uwsgi answer. It is strict; `X-Accel-*`, `Date` and `Server`
    /// are kept for the upstream task to decide about, a `Location` is for the client in every form, and a
    /// head may be empty: all as in nginx.
    pub(crate) const fn for_upstream(bytes_max: usize) -> Self {
        Self::with(HeadRules { bytes_max, is_strict: true, takes_accel: false }, true)
    }

    /// The status that a line before the fields gave; it outweighs a `Status` field.
    pub(crate) fn set_status(&mut self, status: Status) {
        self.status_line = Some(status);
    }

    const fn with(rules: HeadRules, is_upstream: bool) -> Self {
        Self {
            is_upstream,
            status_line: None,
            rules,
            bytes: 0,
            line: Vec::new(),
            fields: Fields::new(),
            field_count: 0,
            status: None,
            content_length: None,
            location: None,
            accel: None,
            has_content_type: false,
            nominated: Vec::new(),
        }
    }

    /// Takes output of the program up to the end of the head. Not to be used again after an error or a
    /// complete head.
    pub fn feed(&mut self, input: &[u8]) -> Result<Fed, HeadError> {
        let mut taken = 0;
        while let Some(end) = memchr::memchr(b'\n', &input[taken..]) {
            let piece = &input[taken..taken + end];
            self.count(end + 1)?;
            taken += end + 1;
            let is_last = if self.line.is_empty() {
                self.take_line(piece)?
            } else {
                let mut line = mem::take(&mut self.line);
                line.extend_from_slice(piece);
                let is_last = self.take_line(&line)?;
                line.clear();
                self.line = line;
                is_last
            };
            if is_last {
                return Ok(Fed::Head { head: self.finish()?, taken });
            }
        }
        let rest = &input[taken..];
        self.count(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(Fed::More)
    }

    fn count(&mut self, bytes: usize) -> Result<(), HeadError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.rules.bytes_max { Err(HeadError::TooLarge) } else { Ok(()) }
    }

    /// Takes a line without its LF; `true` for the empty one that ends the head.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, HeadError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(true);
        }
        match self.take_field(line) {
            Err(error) if self.rules.is_strict => Err(error),
            _ => Ok(false),
        }
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let colon = memchr::memchr(b':', line).ok_or(HeadError::BadLine)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
            return Err(HeadError::BadLine);
        }
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(HeadError::ControlByte);
        }
        self.field_count += 1;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("status") {
            let status = parse_status(value).ok_or(HeadError::BadStatus)?;
            if self.is_upstream {
                // `fastcgi_pass_header Status`
                self.fields.push(name, value);
            }
            return put(&mut self.status, status, HeadError::BadStatus);
        }
        if is("content-length") {
            let length = parse_length(value).ok_or(HeadError::BadLength)?;
            if self.content_length.is_some_and(|known| known != length) {
                return Err(HeadError::BadLength);
            }
            self.content_length = Some(length);
            return Ok(());
        }
        if is("location") {
            if value.is_empty() {
                return Err(HeadError::BadLocation);
            }
            return put(&mut self.location, value.to_vec(), HeadError::BadLocation);
        }
        if !self.is_upstream
            && name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
        {
            // None of them leaves, whether it is heeded or not (V25).
            if self.rules.takes_accel && is("x-accel-redirect") && !value.is_empty() {
                return put(&mut self.accel, value.to_vec(), HeadError::BadLocation);
            }
            return Ok(());
        }
        if is("connection") {
            let names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            for name in names.filter(|name| !name.is_empty()) {
                if self.nominated.len() == NOMINATED_MAX {
                    return Err(HeadError::BadLine);
                }
                self.nominated.push(name.to_vec());
            }
            return Ok(());
        }
        let is_own = |known: &str| {
            is(known) && !(self.is_upstream && (known == "date" || known.starts_with("server")))
        };
        if NOT_PASSED_ON.iter().any(|known| is_own(known)) {
            return Ok(());
        }
        self.has_content_type |= is("content-type");
        self.fields.push(name, value);
        Ok(())
    }

    fn finish(&mut self) -> Result<ResponseHead, HeadError> {
        if self.is_upstream {
            return Ok(self.finish_upstream());
        }
        if self.field_count == 0 && self.rules.is_strict {
            return Err(HeadError::Empty);
        }
        if !self.nominated.is_empty() {
            self.drop_nominated();
        }
        let mut fields = mem::take(&mut self.fields);
        let has_status = self.status.is_some();
        let mut status = self.status.unwrap_or(Status::OK);
        let kind = match (self.accel.take(), self.location.take()) {
            (Some(target), _) => Kind::Accel(target),
            (None, None) => Kind::Document,
            (None, Some(location)) if status == Status::OK && is_local(&location) => {
                Kind::LocalRedirect(location)
            }
            (None, Some(location)) => {
                fields.push("Location", &location);
                if status == Status::OK {
                    status = Status::FOUND;
                }
                // With a status or a media type a document may follow.
                if has_status || self.has_content_type || self.content_length.is_some() {
                    Kind::Document
                } else {
                    Kind::ClientRedirect
                }
            }
        };
        Ok(ResponseHead {
            status,
            fields,
            content_length: self.content_length,
            has_content_type: self.has_content_type,
            kind,
        })
    }

    fn finish_upstream(&mut self) -> ResponseHead {
        if !self.nominated.is_empty() {
            self.drop_nominated();
        }
        let mut fields = mem::take(&mut self.fields);
        let location = self.location.take();
        let without = if location.is_some() { Status::FOUND } else { Status::OK };
        if let Some(location) = location {
            fields.push("Location", &location);
        }
        ResponseHead {
            status: self.status_line.or(self.status).unwrap_or(without),
            fields,
            content_length: self.content_length,
            has_content_type: self.has_content_type,
            kind: Kind::Document,
        }
    }

    /// Takes away the fields that a `Connection` field names (RFC 9110 §7.6.1).
    fn drop_nominated(&mut self) {
        let nominated = &self.nominated;
        self.fields.retain(|name, _| !nominated.iter().any(|one| one.eq_ignore_ascii_case(name)));
        self.has_content_type = self.fields.has("content-type");
    }
}

fn put<T>(slot: &mut Option<T>, value: T, twice: HeadError) -> Result<(), HeadError> {
    if slot.is_some() {
        return Err(twice);
    }
    *slot = Some(value);
    Ok(())
}

/// `404 Not Found`: a final status; the reason phrase is the server's own.
fn parse_status(value: &[u8]) -> Option<Status> {
    let (code, rest) = value.split_at_checked(3)?;
    if !matches!(rest, [] | [b' ' | b'\t', ..]) {
        return None;
    }
    let code =
        std::str::from_utf8(code).ok().filter(|code| code.bytes().all(|b| b.is_ascii_digit()))?;
    Status::new(code.parse().ok()?).filter(|status| (200..600).contains(&status.code()))
}

fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// `/path`, but not `//host/path`.
fn is_local(location: &[u8]) -> bool {
    location.starts_with(b"/") && !location.starts_with(b"//")
}
