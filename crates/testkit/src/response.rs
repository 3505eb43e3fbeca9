//! A small, strict reader of HTTP/1 responses. It forgives nothing: a response that is framed in two
//! ways, cut short or ended by a lone LF is a failed test and not a nuisance.

use std::fmt;

/// A whole response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// The words behind it.
    pub reason: String,
    /// The fields as they came: names with their case, values without the blanks around them.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// How the body's end was known.
    pub framing: Framing,
}

/// How the end of a body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body: an answer to HEAD, or a status that never has one.
    None,
    /// `Content-Length`.
    Length(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The connection's end.
    UntilClose,
}

/// Why bytes are not a response, or not a whole one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub String);

/// What the caller knows and the bytes do not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The request was HEAD.
    pub is_head: bool,
    /// The peer has closed: nothing more comes.
    pub is_closed: bool,
}

impl Response {
    /// Reads one response from the front of `bytes`: the response and its length, or `None` while it
    /// is not all there.
    pub fn parse(bytes: &[u8], context: Context) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(head_end) = find(bytes, b"\r\n\r\n") else {
            return if context.is_closed && !bytes.is_empty() {
                Err(malformed("closed in the middle of the head"))
            } else {
                Ok(None)
            };
        };
        let mut response = parse_head(&bytes[..head_end])?;
        response.framing = framing_of(&response, context)?;
        let rest = &bytes[head_end + 4..];
        let Some((body, taken)) = read_body(rest, response.framing, context)? else {
            return if context.is_closed {
                Err(malformed("closed in the middle of the body"))
            } else {
                Ok(None)
            };
        };
        response.body = body;
        Ok(Some((response, head_end + 4 + taken)))
    }

    /// The value of a field that comes at most once.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let values = self.fields_named(name);
        assert!(values.len() < 2, "{name} came {} times: {values:?}", values.len());
        values.first().copied()
    }

    /// All values of a field, in their order.
    pub fn fields_named(&self, name: &str) -> Vec<&str> {
        let is_it = |(key, _): &&(String, String)| key.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is_it).map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the response says that the connection closes after it (H1).
    pub fn says_close(&self) -> bool {
        let says = |word: &str| {
            self.fields_named("connection")
                .iter()
                .flat_map(|value| value.split(','))
                .any(|token| token.trim().eq_ignore_ascii_case(word))
        };
        says("close") || (self.version == "HTTP/1.0" && !says("keep-alive"))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

fn parse_head(head: &[u8]) -> Result<Response, Malformed> {
    let head = std::str::from_utf8(head).map_err(|_| malformed("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let (version, rest) = status_line
        .split_once(' ')
        .ok_or_else(|| malformed(format!("status line {status_line:?}")))?;
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || !is_code {
        return Err(malformed(format!("status line {status_line:?}")));
    }
    let fields = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
    Ok(Response {
        version: version.to_owned(),
        status: code.parse().map_err(|_| malformed("status code"))?,
        reason: reason.to_owned(),
        fields,
        body: Vec::new(),
        framing: Framing::None,
    })
}

fn parse_field(line: &str) -> Result<(String, String), Malformed> {
    let bad = || malformed(format!("field line {line:?}"));
    let (name, value) = line.split_once(':').ok_or_else(bad)?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_clean = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    if name.is_empty() || !name.bytes().all(is_token) || !value.bytes().all(is_clean) {
        return Err(bad());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// RFC 9112 §6.3, and no mercy for what a server must not send.
fn framing_of(response: &Response, context: Context) -> Result<Framing, Malformed> {
    let lengths = response.fields_named("content-length");
    let codings = response.fields_named("transfer-encoding");
    if !codings.is_empty() && !lengths.is_empty() {
        return Err(malformed("framed in two ways"));
    }
    if !codings.is_empty() && response.version == "HTTP/1.0" {
        return Err(malformed("chunked to HTTP/1.0"));
    }
    let length = match lengths.as_slice() {
        [] => None,
        [one] if !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(one.parse().map_err(|_| malformed(format!("length {one:?}")))?)
        }
        other => return Err(malformed(format!("lengths {other:?}"))),
    };
    if matches!(response.status, 100..=199 | 204) && (length.is_some() || !codings.is_empty()) {
        return Err(malformed(format!("a {} with framing", response.status)));
    }
    if context.is_head || matches!(response.status, 100..=199 | 204 | 304) {
        return Ok(Framing::None);
    }
    match codings.as_slice() {
        [] => Ok(length.map_or(Framing::UntilClose, Framing::Length)),
        [one] if one.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        other => Err(malformed(format!("codings {other:?}"))),
    }
}

/// The body and how many bytes it took, framing included.
fn read_body(
    bytes: &[u8],
    framing: Framing,
    context: Context,
) -> Result<Option<(Vec<u8>, usize)>, Malformed> {
    match framing {
        Framing::None => Ok(Some((Vec::new(), 0))),
        Framing::Length(length) => Ok(bytes.get(..length).map(|body| (body.to_vec(), length))),
        Framing::UntilClose => Ok(context.is_closed.then(|| (bytes.to_vec(), bytes.len()))),
        Framing::Chunked => read_chunked(bytes),
    }
}

fn read_chunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Malformed> {
    // First the walk, then the copy: an unfinished body costs no copies.
    let mut chunks = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let size = chunk_size(&bytes[at..at + line])?;
        at += line + 2;
        if size == 0 {
            break;
        }
        let Some(data) = bytes.get(at..at.saturating_add(size).saturating_add(2)) else {
            return Ok(None);
        };
        if !data.ends_with(b"\r\n") {
            return Err(malformed("a chunk does not end where it should"));
        }
        chunks.push(&data[..size]);
        at += data.len();
    }
    // Trailer fields, up to an empty line.
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        at += line + 2;
        if line == 0 {
            return Ok(Some((chunks.concat(), at)));
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Malformed> {
    let bad = || malformed(format!("chunk size {:?}", String::from_utf8_lossy(line)));
    let text = std::str::from_utf8(line).map_err(|_| bad())?;
    let digits = text.split(';').next().unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    usize::from_str_radix(digits, 16).map_err(|_| bad())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn malformed(why: impl Into<String>) -> Malformed {
    Malformed(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Context = Context { is_head: false, is_closed: false };
    const HEAD: Context = Context { is_head: true, is_closed: false };
    const CLOSED: Context = Context { is_head: false, is_closed: true };

    fn whole(bytes: &str, context: Context) -> (Response, usize) {
        Response::parse(bytes.as_bytes(), context).expect("well formed").expect("complete")
    }

    fn refused(bytes: &str, context: Context) -> String {
        Response::parse(bytes.as_bytes(), context).expect_err("malformed").0
    }

    #[test]
    fn a_length_says_where_the_next_response_begins() {
        let bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: a \r\n\r\nhelloHTTP/1.1";
        let (response, taken) = whole(bytes, OPEN);
        assert_eq!((response.status, response.reason.as_str()), (200, "OK"));
        assert_eq!(response.text(), "hello");
        assert_eq!(response.field("x"), Some("a"));
        assert_eq!(&bytes[taken..], "HTTP/1.1");
    }

    #[test]
    fn a_response_is_incomplete_at_every_cut() {
        for bytes in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: x\r\n\r\n",
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(
                    Response::parse(&bytes.as_bytes()[..cut], OPEN),
                    Ok(None),
                    "cut at {cut}"
                );
                if cut > 0 {
                    refused(&bytes[..cut], CLOSED);
                }
            }
            assert_eq!(whole(bytes, OPEN).0.text(), "hello");
        }
    }

    #[test]
    fn a_body_without_framing_ends_with_the_connection() {
        let bytes = "HTTP/1.0 200 OK\r\n\r\nhello";
        assert_eq!(Response::parse(bytes.as_bytes(), OPEN), Ok(None));
        let (response, _) = whole(bytes, CLOSED);
        assert_eq!((response.text().as_str(), response.framing), ("hello", Framing::UntilClose));
        assert!(response.says_close());
    }

    #[test]
    fn answers_to_head_and_some_statuses_have_no_body() {
        let length = "Content-Length: 5\r\n\r\n";
        assert_eq!(whole(&format!("HTTP/1.1 200 OK\r\n{length}"), HEAD).0.framing, Framing::None);
        assert_eq!(whole(&format!("HTTP/1.1 304 NM\r\n{length}"), OPEN).0.framing, Framing::None);
        assert_eq!(whole("HTTP/1.1 100 Continue\r\n\r\n", OPEN).0.framing, Framing::None);
        refused(&format!("HTTP/1.1 204 No Content\r\n{length}"), OPEN);
    }

    #[test]
    fn what_a_server_must_not_send_is_refused() {
        for head in [
            "HTTP/2 200 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1",
            "HTTP/1.1 200 OK\r\nContent-Length: +1",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\r\nName : value",
            "HTTP/1.1 200 OK\r\nName: va\nlue",
            "HTTP/1.1 200 OK\r\nno colon",
        ] {
            refused(&format!("{head}\r\n\r\n"), OPEN);
        }
        for body in ["x\r\n", "\r\n", "3\r\nhello\r\n", "-1\r\n"] {
            refused(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"), OPEN);
        }
    }

    #[test]
    fn the_connection_field_is_read_as_a_list() {
        let says = |head: &str| {
            whole(&format!("{head}\r\nContent-Length: 0\r\n\r\n"), OPEN).0.says_close()
        };
        assert!(says("HTTP/1.1 200 OK\r\nConnection: x, Close"));
        assert!(!says("HTTP/1.1 200 OK"));
        assert!(!says("HTTP/1.0 200 OK\r\nConnection: keep-alive"));
    }
}
