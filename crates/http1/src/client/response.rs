//! The head of an answer: where it ends, and its content, or why that is not certain. As
//! strict as the server's side (H9): a head that two readers could read differently is a fault (U3).

use sekisho_http::upstream::{HeadFault, ResponseHead, is_hop_by_hop, is_nomination};
use sekisho_http::{Fields, Status, Version};

use sekisho_http::token::is_value;

use crate::parse;
use sekisho_http::refusal::Cause;

/// What a head may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of one head: `proxy_buffer_size`.
    pub head_bytes_max: usize,
    /// How many field lines.
    pub fields_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes_max: 8 * 1024, fields_max: 200 }
    }
}

/// No head is shorter than this; a smaller limit would let none pass.
const HEAD_BYTES_MIN: usize = 32;
const PROTOCOL: &[u8] = b"HTTP/";
/// Where the phrase of a status line begins.
const REASON_AT: usize = b"HTTP/1.1 200 ".len();

/// How the end of an answer's body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// What a head says about its message and its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) framing: Framing,
    /// Whether the upstream keeps the connection (H1).
    pub(super) persists: bool,
    /// A body was declared where there can be none.
    pub(super) declares_body: bool,
}

/// Finds the end of one head. Nothing is looked at twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Framer {
    scanned: u32,
    line_at: u32,
    fields_at: u32,
    fields: u32,
    /// What the status line says, once it is complete.
    status: Option<(Version, Status)>,
}

impl Framer {
    /// How far has been looked.
    pub(super) const fn scanned(&self) -> usize {
        self.scanned as usize
    }

    /// Looks on where the last call stopped; `None` while the head is not complete. Where a fault is found
    /// depends on the stream alone, not on how it was cut.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        limits: Limits,
    ) -> Result<Option<usize>, HeadFault> {
        const POSITION_MAX: usize = (u32::MAX - 1) as usize;
        if !PROTOCOL.iter().zip(input).all(|(one, other)| one == other) {
            return Err(HeadFault::StatusLine);
        }
        let limit = limits.head_bytes_max.clamp(HEAD_BYTES_MIN, POSITION_MAX);
        let window = limit.min(input.len());
        loop {
            let from = (self.scanned as usize).min(window);
            let Some(found) = memchr::memchr(b'\n', &input[from..window]) else {
                self.scanned = window as u32;
                return if input.len() >= limit { Err(HeadFault::TooLarge) } else { Ok(None) };
            };
            let end = from + found;
            let line = &input[(self.line_at as usize).min(end)..end];
            let is_empty = matches!(line, [] | [b'\r']);
            self.scanned = end as u32 + 1;
            self.line_at = self.scanned;
            if self.fields_at == 0 {
                self.status = Some(status_line(line.strip_suffix(b"\r").unwrap_or(line))?);
                self.fields_at = self.scanned;
            } else if is_empty {
                return Ok(Some(end + 1));
            } else if self.fields as usize >= limits.fields_max {
                return Err(HeadFault::TooManyFields);
            } else {
                self.fields += 1;
            }
        }
    }
}

/// Parses the head that `framer` found at the front of `bytes` into `head`, whose storage is used again.
pub(super) fn parse(
    framer: Framer,
    bytes: &[u8],
    is_head: bool,
    head: &mut ResponseHead,
) -> Result<Message, HeadFault> {
    head.clear();
    let (line, block) = bytes.split_at(framer.fields_at as usize);
    (head.version, head.status) = framer.status.ok_or(HeadFault::StatusLine)?;
    let reason = line.get(REASON_AT..).unwrap_or_default();
    let reason = reason.strip_suffix(b"\n").unwrap_or(reason);
    head.reason.extend_from_slice(reason.strip_suffix(b"\r").unwrap_or(reason));
    let keeps_upgrade = matches!(head.status.code(), 101 | 426);
    with_fields(block, framer.fields as usize, |fields| {
        let found = Found::in_fields(fields);
        let message = message(fields, &found, head, is_head)?;
        push_end_to_end(fields, found.has_connection, keeps_upgrade, &mut head.fields);
        head.has_body = !matches!(message.framing, Framing::None | Framing::Length(0));
        Ok(message)
    })
}

/// Parses a trailer section, with the empty line behind it, and puts what is end to end into `out`.
pub(super) fn trailers(block: &[u8], out: &mut Fields) -> Result<(), HeadFault> {
    let count = memchr::memchr_iter(b'\n', block).count();
    with_fields(block, count, |fields| {
        push_end_to_end(fields, Found::in_fields(fields).has_connection, false, out);
        Ok(())
    })
}

/// `HTTP/1.1 200 OK`, given without its line end; the phrase begins at [`REASON_AT`].
fn status_line(line: &[u8]) -> Result<(Version, Status), HeadFault> {
    let rest = line.strip_prefix(PROTOCOL).ok_or(HeadFault::StatusLine)?;
    let (version, rest) = rest.split_at_checked(3).ok_or(HeadFault::StatusLine)?;
    let version = match version {
        b"1.1" => Version::Http11,
        b"1.0" => Version::Http10,
        [b'0'..=b'9', b'.', b'0'..=b'9'] => return Err(HeadFault::Version),
        _ => return Err(HeadFault::StatusLine),
    };
    let [b' ', code @ ..] = rest else { return Err(HeadFault::StatusLine) };
    let (code, reason) = code.split_at_checked(3).ok_or(HeadFault::StatusLine)?;
    if !code.iter().all(u8::is_ascii_digit) {
        return Err(HeadFault::StatusLine);
    }
    let status = code.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let status = Status::new(status).ok_or(HeadFault::StatusLine)?;
    // Without a phrase some servers leave out the space before it: no parser reads that differently.
    let reason = match reason {
        [] => &[],
        [b' ', reason @ ..] => reason,
        _ => return Err(HeadFault::StatusLine),
    };
    if !is_value(reason) {
        return Err(HeadFault::ControlByte);
    }
    Ok((version, status))
}

/// Parses field lines with the empty line behind them, and gives them to `take`.
fn with_fields<T>(
    block: &[u8],
    count: usize,
    take: impl FnOnce(&[httparse::Header<'_>]) -> Result<T, HeadFault>,
) -> Result<T, HeadFault> {
    match count {
        0..=8 => fields_into(block, &mut [httparse::EMPTY_HEADER; 8], take),
        9..=16 => fields_into(block, &mut [httparse::EMPTY_HEADER; 16], take),
        17..=32 => fields_into(block, &mut [httparse::EMPTY_HEADER; 32], take),
        // No more than the limit says.
        _ => fields_into(block, &mut vec![httparse::EMPTY_HEADER; count], take),
    }
}

fn fields_into<'a, T>(
    block: &'a [u8],
    room: &mut [httparse::Header<'a>],
    take: impl FnOnce(&[httparse::Header<'_>]) -> Result<T, HeadFault>,
) -> Result<T, HeadFault> {
    match httparse::parse_headers(block, room) {
        Ok(httparse::Status::Complete((len, fields))) if len == block.len() => take(fields),
        _ => Err(block
            .split(|byte| *byte == b'\n')
            .find_map(parse::field_fault)
            .map_or(HeadFault::Field, field_fault)),
    }
}

const fn field_fault(cause: Cause) -> HeadFault {
    match cause {
        Cause::FieldFolded => HeadFault::Folded,
        Cause::Nul | Cause::BareCr | Cause::FieldValueInvalid => HeadFault::ControlByte,
        _ => HeadFault::Field,
    }
}

/// The values of one field, by its name in lower case.
fn values<'a>(
    fields: &'a [httparse::Header<'_>],
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value)
}

/// The fields that say where a message ends, and whether the connection goes on: most heads have one or two of them.
#[derive(Default)]
struct Found<'a> {
    has_coding: bool,
    has_connection: bool,
    length: Option<&'a [u8]>,
    has_two_lengths: bool,
}

impl<'a> Found<'a> {
    fn in_fields(fields: &[httparse::Header<'a>]) -> Self {
        let mut found = Self::default();
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                10 => found.has_connection |= is("connection"),
                14 if is("content-length") => {
                    found.has_two_lengths |= found.length.is_some();
                    found.length = Some(field.value);
                }
                17 => found.has_coding |= is("transfer-encoding"),
                _ => {}
            }
        }
        found
    }
}

/// The options of `Connection` fields.
#[inline]
fn options<'a>(fields: &'a [httparse::Header<'_>]) -> impl Iterator<Item = &'a [u8]> {
    values(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// RFC 9112 §6.3, with every doubt a fault.
fn message(
    fields: &[httparse::Header<'_>],
    found: &Found<'_>,
    head: &mut ResponseHead,
    is_head: bool,
) -> Result<Message, HeadFault> {
    let is_11 = head.version == Version::Http11;
    let is_chunked = found.has_coding;
    let length = content_length(found)?;
    if is_chunked {
        if !is_11 {
            return Err(HeadFault::CodingInHttp10);
        }
        if length.is_some() {
            return Err(HeadFault::LengthAndCoding);
        }
        parse::codings(values(fields, "transfer-encoding")).map_err(|_| HeadFault::Coding)?;
    }
    head.content_length = length;
    let (mut is_close, mut is_kept) = (false, is_11);
    if found.has_connection {
        for option in options(fields) {
            is_close |= option.eq_ignore_ascii_case(b"close");
            is_kept |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    let persists = is_kept && !is_close;
    let code = head.status.code();
    let declares_body = is_chunked || length.is_some_and(|length| length > 0);
    if code < 200 {
        // A client that trusted the length would take the final head for a body.
        if declares_body {
            return Err(HeadFault::InformationalBody);
        }
        return Ok(Message { framing: Framing::None, persists, declares_body: false });
    }
    if is_head || code == 304 {
        return Ok(Message { framing: Framing::None, persists, declares_body: false });
    }
    if code == 204 {
        return Ok(Message { framing: Framing::None, persists, declares_body });
    }
    let framing = match (is_chunked, length) {
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    Ok(Message { framing, persists, declares_body: false })
}

fn content_length(found: &Found<'_>) -> Result<Option<u64>, HeadFault> {
    let Some(length) = found.length else { return Ok(None) };
    // Even equal ones: two lengths are a sign that two parsers have not agreed before.
    if found.has_two_lengths || length.contains(&b',') {
        return Err(HeadFault::LengthRepeated);
    }
    parse::number(length).map(Some).ok_or(HeadFault::LengthInvalid)
}

/// Keeps what is not about this connection: by name, and by what `Connection` names (RFC 9110 §7.6.1). The length
/// is kept elsewhere.
fn push_end_to_end(
    fields: &[httparse::Header<'_>],
    has_connection: bool,
    keeps_upgrade: bool,
    out: &mut Fields,
) {
    let has_nominations = has_connection && options(fields).any(is_nomination);
    for field in fields {
        let name = field.name.as_bytes();
        let is_upgrade = keeps_upgrade && field.name.eq_ignore_ascii_case("upgrade");
        let is_ours = is_hop_by_hop(name)
            || (name.len() == 14 && name.eq_ignore_ascii_case(b"content-length"))
            || (has_nominations && options(fields).any(|option| option.eq_ignore_ascii_case(name)));
        if is_upgrade || !is_ours {
            out.push(name, field.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_head: bool) -> Result<(Message, ResponseHead), HeadFault> {
        let mut framer = Framer::default();
        let len = framer.advance(text.as_bytes(), Limits::default())?.expect("complete");
        assert_eq!(len, text.len());
        let mut head = ResponseHead::default();
        parse(framer, text.as_bytes(), is_head, &mut head).map(|message| (message, head))
    }

    /// RFC 9112 §6.3: where an answer ends.
    #[test]
    fn the_framing_follows_from_method_status_and_fields() {
        use Framing as F;
        let rows = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, F::Length(5), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, F::None, true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", false, F::Chunked, true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, F::None, true),
            ("HTTP/1.1 200 OK\r\n\r\n", false, F::UntilClose, true),
            ("HTTP/1.1 200\r\n\r\n", false, F::UntilClose, true),
            ("HTTP/1.1 299 \r\n\r\n", false, F::UntilClose, true),
            ("HTTP/1.1 204 No Content\r\n\r\n", false, F::None, true),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, F::None, true),
            ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", false, F::None, true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n", false, F::UntilClose, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, F::Length(0), false),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
                false,
                F::Length(0),
                true,
            ),
            // A lone LF ends a line of a head, as on the server's side (H9).
            ("HTTP/1.1 200 OK\nContent-Length: 5\n\n", false, F::Length(5), true),
        ];
        for (text, is_head, framing, persists) in rows {
            let (message, _) =
                read(text, is_head).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            assert_eq!((message.framing, message.persists), (framing, persists), "{text}");
        }
    }

    /// U3: each head that two readers could read differently.
    #[test]
    fn a_head_that_could_be_read_in_two_ways_is_a_fault() {
        use HeadFault as F;
        let rows = [
            ("HTTP/1.1 20 OK\r\n\r\n", F::StatusLine),
            ("HTTP/1.1  200 OK\r\n\r\n", F::StatusLine),
            ("HTTP/1.1 2000\r\n\r\n", F::StatusLine),
            ("HTTP/1.1 200\tOK\r\n\r\n", F::StatusLine),
            ("HTTP/1.1 099 OK\r\n\r\n", F::StatusLine),
            ("http/1.1 200 OK\r\n\r\n", F::StatusLine),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", F::StatusLine),
            ("HTTP/11 200 OK\r\n\r\n", F::StatusLine),
            ("HTTP/1.2 200 OK\r\n\r\n", F::Version),
            ("HTTP/2.0 200 OK\r\n\r\n", F::Version),
            ("HTTP/1.1 200 O\rK\r\n\r\n", F::ControlByte),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", F::Field),
            ("HTTP/1.1 200 OK\r\nA b\r\n\r\n", F::Field),
            ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", F::Field),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", F::Folded),
            ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", F::ControlByte),
            ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", F::ControlByte),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                F::LengthRepeated,
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", F::LengthRepeated),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", F::LengthInvalid),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n", F::LengthInvalid),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", F::LengthInvalid),
            ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", F::LengthInvalid),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                F::LengthAndCoding,
            ),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", F::CodingInHttp10),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", F::Coding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", F::Coding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", F::Coding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n", F::Coding),
            ("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", F::InformationalBody),
            ("HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n", F::InformationalBody),
        ];
        for (text, fault) in rows {
            assert_eq!(read(text, false).map(|_| ()), Err(fault), "{text:?}");
        }
        // HEAD and 304 do not make a contradiction sound.
        for status in ["200 OK", "304 Not Modified"] {
            let text = format!(
                "HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"
            );
            assert_eq!(read(&text, true).map(|_| ()), Err(F::LengthAndCoding));
        }
    }

    #[test]
    fn limits_hold_at_their_byte() {
        let limits = Limits { head_bytes_max: 40, fields_max: 2 };
        let text = b"HTTP/1.1 200 OK\r\nA: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n\r\n";
        assert_eq!(Framer::default().advance(&text[..39], limits), Ok(None));
        assert_eq!(Framer::default().advance(&text[..40], limits), Err(HeadFault::TooLarge));
        let many = b"HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\n\r\n";
        assert_eq!(Framer::default().advance(many, limits), Err(HeadFault::TooManyFields));
    }

    /// U3, RFC 9110 §7.6.1: what leaves is end to end, in its order.
    #[test]
    fn only_end_to_end_fields_are_kept() {
        let text = "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
                    Content-Length: 0\r\nUpgrade: h2c\r\nSet-Cookie: b\r\nX-Accel-Expires: 5\r\n\r\n";
        let (_, head) = read(text, false).expect("sound");
        let expected = [("Set-Cookie", "a"), ("Set-Cookie", "b"), ("X-Accel-Expires", "5")];
        assert_eq!(head.fields, expected.into_iter().collect());
        assert_eq!(
            (head.content_length, head.has_body, &*head.reason),
            (Some(0), false, &b"OK"[..])
        );
        let text = "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let (_, head) = read(text, false).expect("sound");
        assert_eq!(head.fields, [("Upgrade", "websocket")].into_iter().collect());
    }
}
