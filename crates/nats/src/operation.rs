//! What a server sends.

use std::fmt;

/// The longest line but `INFO`: a subject, a reply and two numbers.
const LINE_BYTES_MAX: usize = 4096;
/// The longest `INFO`, which lists the servers of a cluster.
const INFO_BYTES_MAX: usize = 64 * 1024;
/// The longest message that is taken. Servers allow 1 MB unless told otherwise.
const PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An operation of the server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// How the server is; the first thing it says, and again when that changes.
    Info(Info),
    /// A message for a subscription.
    Message(Message),
    /// It wants to know whether the client is there.
    Ping,
    /// It is there.
    Pong,
    /// All well.
    Ok,
    /// Something is wrong; after most errors it closes.
    Error(String),
}

/// How a server is, as far as a client cares.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// To be signed by a client that proves itself by a key.
    pub nonce: Option<String>,
    /// Whether nothing may be said in the clear.
    pub is_tls_required: bool,
    /// The longest message it takes.
    pub payload_bytes_max: usize,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Its subject.
    pub subject: String,
    /// The number of the subscription.
    pub subscription: u64,
    /// Where an answer is wanted.
    pub reply: Option<String>,
    /// The status in its head: 503 says that nobody listens at the subject asked for.
    pub status: Option<u16>,
    /// Its content.
    pub payload: Vec<u8>,
}

/// Why what came is not the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A line is too long.
    LongLine,
    /// A line is no operation.
    Unknown,
    /// A message is longer than it may be.
    LongMessage,
    /// A message does not end where it says.
    BadEnd,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::LongLine => "a line is too long",
            Self::Unknown => "a line is no operation of NATS",
            Self::LongMessage => "a message is too long",
            Self::BadEnd => "a message does not end where it says",
        })
    }
}

impl std::error::Error for Violation {}

/// A message whose content is still coming.
#[derive(Debug)]
struct Awaited {
    message: Message,
    head_bytes: usize,
    bytes: usize,
}

/// Makes operations of bytes, however they are cut.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    /// So much of it is done with.
    done: usize,
    awaited: Option<Awaited>,
}

impl Decoder {
    /// Takes what came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.drain(..std::mem::take(&mut self.done));
        self.held.extend_from_slice(bytes);
    }

    /// The next operation that is all there.
    pub fn next_operation(&mut self) -> Result<Option<Operation>, Violation> {
        loop {
            if let Some(awaited) = &self.awaited {
                let bytes = awaited.bytes;
                let Some((content, end)) = self.held[self.done..].split_at_checked(bytes) else {
                    return Ok(None);
                };
                let Some(end) = end.get(..2) else { return Ok(None) };
                if end != b"\r\n" {
                    return Err(Violation::BadEnd);
                }
                let (head, payload) = content.split_at(awaited.head_bytes);
                let (status, payload) = (status(head), payload.to_vec());
                self.done += bytes + 2;
                let message = self.awaited.take().map(|awaited| awaited.message);
                let message = Message { status, payload, ..message.unwrap_or_default() };
                return Ok(Some(Operation::Message(message)));
            }
            let held = &self.held[self.done..];
            let is_info = held.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"INFO"));
            let bytes_max = if is_info { INFO_BYTES_MAX } else { LINE_BYTES_MAX };
            let end = memchr::memchr(b'\n', held);
            if end.unwrap_or(held.len()) > bytes_max {
                return Err(Violation::LongLine);
            }
            let Some(end) = end else { return Ok(None) };
            let line = Line::parse(&held[..end])?;
            self.done += end + 1;
            match line {
                Line::Whole(operation) => return Ok(Some(operation)),
                Line::Message(awaited) => self.awaited = Some(awaited),
            }
        }
    }
}

/// What a line says.
enum Line {
    Whole(Operation),
    /// It is the first line of a message.
    Message(Awaited),
}

impl Line {
    fn parse(line: &[u8]) -> Result<Self, Violation> {
        let line = std::str::from_utf8(line.trim_ascii()).map_err(|_| Violation::Unknown)?;
        let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let name = name.to_ascii_uppercase();
        Ok(Self::Whole(match name.as_str() {
            "MSG" | "HMSG" => return Ok(Self::Message(Awaited::new(rest, name == "HMSG")?)),
            "PING" => Operation::Ping,
            "PONG" => Operation::Pong,
            "+OK" => Operation::Ok,
            "-ERR" => Operation::Error(rest.trim().trim_matches('\'').to_owned()),
            "INFO" => Operation::Info(Info::parse(rest).ok_or(Violation::Unknown)?),
            _ => return Err(Violation::Unknown),
        }))
    }
}

impl Awaited {
    /// `SUBJECT NUMBER [REPLY] [HEAD-BYTES] BYTES`
    fn new(line: &str, has_head: bool) -> Result<Self, Violation> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (before, sizes) = words
            .split_at_checked(words.len().wrapping_sub(if has_head { 2 } else { 1 }))
            .ok_or(Violation::Unknown)?;
        let (subject, number, reply) = match *before {
            [subject, number] => (subject, number, None),
            [subject, number, reply] => (subject, number, Some(reply.to_owned())),
            _ => return Err(Violation::Unknown),
        };
        let number_of = |text: &str| text.parse::<u64>().map_err(|_| Violation::Unknown);
        let size = |at: usize| {
            let size = sizes.get(at).map_or(Ok(0), |text| number_of(text))?;
            let size = usize::try_from(size).ok().filter(|size| *size <= PAYLOAD_BYTES_MAX);
            size.ok_or(Violation::LongMessage)
        };
        let (head_bytes, bytes) = if has_head { (size(0)?, size(1)?) } else { (0, size(0)?) };
        if head_bytes > bytes {
            return Err(Violation::Unknown);
        }
        let subscription = number_of(number)?;
        let message =
            Message { subject: subject.to_owned(), subscription, reply, ..Message::default() };
        Ok(Self { message, head_bytes, bytes })
    }
}

impl Info {
    fn parse(text: &str) -> Option<Self> {
        let all: serde_json::Value = serde_json::from_str(text).ok()?;
        let is = |name: &str| all.get(name).and_then(serde_json::Value::as_bool) == Some(true);
        let bytes = all.get("max_payload").and_then(serde_json::Value::as_u64);
        Some(Self {
            nonce: all.get("nonce").and_then(|it| Some(it.as_str()?.to_owned())),
            is_tls_required: is("tls_required"),
            payload_bytes_max: bytes.map_or(1 << 20, |bytes| bytes as usize),
        })
    }
}

/// The status of a message's head: `NATS/1.0 503\r\n…`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"NATS/1.0 ")?.get(..3)?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Operation>, Violation> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        let mut operations = Vec::new();
        while let Some(operation) = decoder.next_operation()? {
            operations.push(operation);
        }
        Ok(operations)
    }

    fn message(reply: Option<&str>, status: Option<u16>, payload: &str) -> Operation {
        Operation::Message(Message {
            subject: "a.b".to_owned(),
            subscription: 7,
            reply: reply.map(str::to_owned),
            status,
            payload: payload.into(),
        })
    }

    #[test]
    fn every_operation_is_understood() {
        for (bytes, expected) in [
            ("PING\r\npong\r\n+OK\r\n", vec![Operation::Ping, Operation::Pong, Operation::Ok]),
            (
                "-ERR 'Authorization Violation'\r\n",
                vec![Operation::Error("Authorization Violation".into())],
            ),
            ("MSG a.b 7 5\r\nhello\r\n", vec![message(None, None, "hello")]),
            ("MSG a.b 7 _INBOX.1 0\r\n\r\n", vec![message(Some("_INBOX.1"), None, "")]),
            ("HMSG a.b 7 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", vec![message(None, Some(503), "")]),
            ("HMSG a.b 7 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", vec![message(Some("r"), None, "hi")]),
            ("MSG a.b 7 5\r\nhel", vec![]),
            ("PI", vec![]),
        ] {
            assert_eq!(all(bytes.as_bytes()), Ok(expected), "{bytes:?}");
        }
        let info = all(b"INFO {\"nonce\":\"abc\",\"tls_required\":true,\"max_payload\":99}\r\n");
        let expected =
            Info { nonce: Some("abc".into()), is_tls_required: true, payload_bytes_max: 99 };
        assert_eq!(info, Ok(vec![Operation::Info(expected)]));
    }

    #[test]
    fn what_is_not_the_protocol_is_told() {
        let long = format!("MSG {} 1 0\r\n", "x".repeat(5000));
        for (bytes, expected) in [
            ("HTTP/1.1 400 Bad Request\r\n", Violation::Unknown),
            ("MSG a 1\r\n", Violation::Unknown),
            ("MSG a x 1\r\n", Violation::Unknown),
            ("MSG\r\n", Violation::Unknown),
            ("HMSG a 1 9 4\r\n", Violation::Unknown),
            ("MSG a 1 2\r\nabcd", Violation::BadEnd),
            ("MSG a 1 99999999999\r\n", Violation::LongMessage),
            ("MSG a 1 99999999999999999999999\r\n", Violation::Unknown),
            ("INFO nonsense\r\n", Violation::Unknown),
            (&long, Violation::LongLine),
            (&"x".repeat(5000), Violation::LongLine),
        ] {
            assert_eq!(all(bytes.as_bytes()), Err(expected), "{bytes:?}");
        }
    }
}
