//! Request line and fields: bytes into a typed head, or the cause why not (H9, RFC 9112). Any doubt
//! about where the message ends is a refusal.

use std::ops::Range;

use sekisho_http::refusal::Cause;
pub use sekisho_http::target::is_host;
use sekisho_http::target::{is_authority, split};
use sekisho_http::token::{is_token_byte, is_value_byte};
use sekisho_http::{Head, Known, Policy, Version};

use crate::frame::{Framer, POSITION_MAX};

/// A valid request line: where its parts lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLine {
    method_end: u32,
    target_end: u32,
    version: Version,
}

impl RequestLine {
    /// The method, out of the bytes that the line stood at the front of.
    pub fn method<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..self.method_end as usize]
    }

    /// The target, out of the bytes that the line stood at the front of.
    pub fn target<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.method_end as usize + 1..self.target_end as usize]
    }

    /// The version.
    pub const fn version(&self) -> Version {
        self.version
    }
}

/// How the end of a request body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// There is none.
    #[default]
    None,
    /// By `Content-Length`.
    Length(u64),
    /// By the last chunk.
    Chunked,
}

/// What the client expects before it sends its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expectation {
    /// Nothing.
    #[default]
    None,
    /// `100-continue`
    Continue,
    /// Something we cannot do (H7).
    Unknown,
}

/// What a head says about its message and its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// How the end of the body is known.
    pub framing: Framing,
    /// Whether the client wants to keep the connection (H1).
    pub persists: bool,
    /// What it expects.
    pub expectation: Expectation,
}

/// Parses a request line, given without its line end.
pub fn request_line(line: &[u8]) -> Result<RequestLine, Cause> {
    let Some(method_end) = memchr::memchr(b' ', line) else {
        return Err(line_cause(line, Cause::RequestLineInvalid));
    };
    if method_end == 0 || !line[..method_end].iter().copied().all(is_token_byte) {
        return Err(line_cause(line, Cause::MethodInvalid));
    }
    let rest = &line[method_end + 1..];
    let target_len = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    if target_len == 0 || !rest[..target_len].iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
        return Err(line_cause(line, Cause::TargetInvalid));
    }
    // After CONNECT, the meaning of the following bytes is uncertain. A path there is 405, as in nginx.
    if &line[..method_end] == b"CONNECT" && !is_authority(&rest[..target_len]) {
        let is_path = split(&rest[..target_len]).is_ok_and(|target| target.path != b"*");
        return Err(if is_path { Cause::ConnectWithPath } else { Cause::TargetInvalid });
    }
    let version = match rest.get(target_len + 1..) {
        Some(b"HTTP/1.1") => Version::Http11,
        Some(b"HTTP/1.0") => Version::Http10,
        Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => {
            return Err(Cause::VersionNotSupported);
        }
        Some(version) if memchr::memchr(b' ', version).is_some() => {
            return Err(line_cause(line, Cause::RequestLineInvalid));
        }
        Some(_) => return Err(line_cause(line, Cause::VersionInvalid)),
        None => return Err(line_cause(line, Cause::VersionMissing)),
    };
    let target_end = method_end + 1 + target_len;
    Ok(RequestLine { method_end: method_end as u32, target_end: target_end as u32, version })
}

/// Looks on for the end of a head, and parses it when it is there: its length, and what it says. `bytes` begins
/// with the request line and is the same as last time with more behind it.
pub fn head(
    framer: &mut Framer,
    bytes: &[u8],
    limits: &Policy,
    head: &mut Head,
) -> Result<Option<(usize, Message)>, Cause> {
    // Nearly every head comes whole and is good: it is read once.
    if framer.scanned() == 0
        && let Some(len) = good_head(bytes, limits, head)
        && let Ok(message) = message(head)
    {
        return Ok(Some((len, message)));
    }
    head.clear();
    let Some(frame) = framer.advance(bytes, limits)? else { return Ok(None) };
    if good_head(&bytes[..frame.len], limits, head).is_none() {
        let line = frame.line;
        head.begin(line.method(bytes), line.target(bytes), line.version());
        let mut lines = bytes[frame.fields_at..frame.len].split(|byte| *byte == b'\n');
        return Err(lines.find_map(field_fault).unwrap_or(Cause::FieldNameInvalid));
    }
    Ok(Some((frame.len, message(head)?)))
}

/// Reads a head that is complete, within the limits and without a fault; `None` for every other.
fn good_head(bytes: &[u8], limits: &Policy, head: &mut Head) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max).min(POSITION_MAX)];
    let line_window = &bytes[..bytes.len().min(limits.line_bytes_max)];
    let line_end = memchr::memchr(b'\n', line_window)?;
    let line = &bytes[..line_end];
    let line = request_line(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let target = line.method_end as usize + 1..line.target_end as usize;
    head.begin_block(line.method(bytes), target, line.version);
    let mut at = line_end + 1;
    for _ in 0..=limits.fields_max {
        match bytes.get(at..)? {
            [b'\n', ..] => {
                head.end_block(&bytes[..=at]);
                return Some(at + 1);
            }
            [b'\r', b'\n', ..] => {
                head.end_block(&bytes[..at + 2]);
                return Some(at + 2);
            }
            _ => {}
        }
        let (colon, is_odd) = name_end(bytes, at)?;
        let end = value_end(bytes, colon + 1)?;
        let next = match bytes.get(end..)? {
            [b'\n', ..] => end + 1,
            [b'\r', b'\n', ..] => end + 2,
            _ => return None,
        };
        if next - at > limits.field_bytes_max {
            return None;
        }
        let name = &bytes[at..colon];
        let value = trim(bytes, colon + 1..end);
        let known = if is_odd { None } else { Known::from_bytes(name) };
        head.push_position(known, at..colon, value, is_odd);
        at = next;
    }
    None
}

/// Bits of [`BYTES`]: allowed in a token; is a letter, a digit or a hyphen.
const TOKEN: u8 = 1;
const PLAIN: u8 = 2;

/// What each byte may be in a field's name.
const BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if is_token_byte(byte as u8) {
            table[byte] |= TOKEN;
        }
        if (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'-' {
            table[byte] |= PLAIN;
        }
        byte += 1;
    }
    table
};

/// The position of the colon after a field's name, and whether the name is an odd one.
fn name_end(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let mut seen = TOKEN | PLAIN;
    let length = bytes[start..].iter().position(|byte| {
        let class = BYTES[usize::from(*byte)];
        if class != 0 {
            seen &= class;
        }
        class == 0
    })?;
    let colon = start + length;
    (length > 0 && bytes[colon] == b':').then_some((colon, seen & PLAIN == 0))
}

/// The first byte from `start` on that is not allowed in a field's value: the end of a valid line.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = start;
    loop {
        // Eight at a time: below a space, or DEL. The lowest mark is exact, and no other is looked at.
        while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            let eight = u64::from_le_bytes(*eight);
            let below = eight.wrapping_sub(ONES * 0x20) & !eight;
            let del = eight ^ (ONES * 0x7f);
            let marks = (below | (del.wrapping_sub(ONES) & !del)) & HIGH;
            if marks != 0 {
                at += marks.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match bytes.get(at)? {
            byte if is_value_byte(*byte) => at += 1,
            _ => return Some(at),
        }
    }
}

/// A value without the white space around it.
fn trim(bytes: &[u8], mut value: Range<usize>) -> Range<usize> {
    let is_space = |at: usize| matches!(bytes[at], b' ' | b'\t');
    while value.start < value.end && is_space(value.start) {
        value.start += 1;
    }
    while value.start < value.end && is_space(value.end - 1) {
        value.end -= 1;
    }
    value
}

/// What a parsed head says about its message, or why that is not certain (H9).
pub fn message(head: &Head) -> Result<Message, Cause> {
    check_host(head)?;
    if head.repeats_single_field() {
        return Err(Cause::FieldRepeated);
    }
    let is_11 = head.version() == Version::Http11;
    let framing = framing(head)?;
    let expectation = if is_11 { expectation(head) } else { Expectation::None };
    let persists = match head.known(Known::Connection) {
        None => is_11,
        Some(_) if has_option(head, b"close") => false,
        Some(_) => is_11 || has_option(head, b"keep-alive"),
    };
    Ok(Message { framing, persists, expectation })
}

fn check_host(head: &Head) -> Result<(), Cause> {
    let mut hosts = head.all_known(Known::Host);
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(Cause::HostRepeated),
        (Some(host), None) if !is_host(host) => Err(Cause::HostInvalid),
        (None, None) if head.version() == Version::Http11 => Err(Cause::HostMissing),
        _ => Ok(()),
    }
}

fn framing(head: &Head) -> Result<Framing, Cause> {
    let length = head.known(Known::ContentLength);
    if head.known(Known::TransferEncoding).is_some() {
        if head.version() == Version::Http10 {
            return Err(Cause::CodingInHttp10);
        }
        if length.is_some() {
            return Err(Cause::LengthAndCoding);
        }
        return codings(head.all_known(Known::TransferEncoding)).map(|()| Framing::Chunked);
    }
    let Some(length) = length else { return Ok(Framing::None) };
    // Even equal ones: two lengths are a sign that two parsers have not agreed before.
    if head.all_known(Known::ContentLength).nth(1).is_some()
        || memchr::memchr(b',', length).is_some()
    {
        return Err(Cause::LengthRepeated);
    }
    number(length).map(Framing::Length).ok_or(Cause::LengthInvalid)
}

/// Whether the transfer codings are `chunked` alone. Malformed lists come before unknown codings.
pub(crate) fn codings<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<(), Cause> {
    let (mut chunked, mut unknown) = (false, false);
    for value in values {
        for coding in value.split(|byte| *byte == b',') {
            let coding = coding.trim_ascii();
            let name =
                coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
            if name.is_empty() || !name.iter().copied().all(is_token_byte) {
                return Err(Cause::CodingInvalid);
            }
            let is_chunked = name.eq_ignore_ascii_case(b"chunked");
            match (chunked, is_chunked) {
                (true, true) => return Err(Cause::CodingRepeated),
                (true, false) => return Err(Cause::CodingNotLast),
                // `chunked` has no parameters.
                (false, true) if coding.len() != name.len() => return Err(Cause::CodingInvalid),
                (false, true) => chunked = true,
                (false, false) => unknown = true,
            }
        }
    }
    if unknown { Err(Cause::CodingUnknown) } else { Ok(()) }
}

fn expectation(head: &Head) -> Expectation {
    head.all_known(Known::Expect).fold(Expectation::None, |before, value| {
        if before != Expectation::Unknown && value.eq_ignore_ascii_case(b"100-continue") {
            Expectation::Continue
        } else {
            Expectation::Unknown
        }
    })
}

fn has_option(head: &Head, option: &[u8]) -> bool {
    head.all_known(Known::Connection)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(option))
}

/// Digits only, and no more than 64 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A stray byte explains a line better than what it led to.
fn line_cause(line: &[u8], otherwise: Cause) -> Cause {
    stray(line).unwrap_or(otherwise)
}

fn stray(line: &[u8]) -> Option<Cause> {
    match memchr::memchr2(b'\r', 0, line).map(|at| line[at]) {
        Some(0) => Some(Cause::Nul),
        Some(_) => Some(Cause::BareCr),
        None => None,
    }
}

/// What is wrong with a field line that the parser has refused: called only after it failed.
pub(crate) fn field_fault(line: &[u8]) -> Option<Cause> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    if let Some(cause) = stray(line) {
        return Some(cause);
    }
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Some(Cause::FieldFolded);
    }
    let Some(colon) = memchr::memchr(b':', line) else { return Some(Cause::ColonMissing) };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.ends_with(b" ") || name.ends_with(b"\t") {
        return Some(Cause::SpaceBeforeColon);
    }
    if name.is_empty() || !name.iter().copied().all(is_token_byte) {
        return Some(Cause::FieldNameInvalid);
    }
    (!value.iter().copied().all(is_value_byte)).then_some(Cause::FieldValueInvalid)
}
