//! What the answers of services look like over HTTP.
//!
//! | form | asked for by | result | records | error |
//! |---|---|---|---|---|
//! | plain | | the body | the body, one after the other | its text, with the status of its code; after records the response is broken off |
//! | records | `Accept: application/x-sekisho-records` | a frame | a frame each | a frame |
//! | gRPC | `Content-Type: application/grpc` | a message | a message each | `grpc-status` and `grpc-message` behind the body |

use std::time::Duration;

use sekisho_http::{Fields, Head, Method, Status};
use sekisho_service::{Answer, Code};

use crate::task::{Outbox, Progress};

/// The media type of framed records: each frame is a kind, four bytes of length (big-endian) and its bytes.
const RECORDS: &str = "application/x-sekisho-records";
const GRPC: &[u8] = b"application/grpc";
/// The kinds of frames.
const RECORD: u8 = 0;
const RESULT: u8 = 1;
const ERROR: u8 = 2;
/// What comes before a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// What lies next in a stream of gRPC messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// So many bytes of what comes before a message.
    Prefix(usize),
    /// So many bytes of one.
    Message(usize),
}

/// Takes the messages out of a body that is taken while it comes: the service sees their bytes, one message after the
/// other, as it does by every other way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Messages {
    prefix: [u8; PREFIX_BYTES],
    /// How much of the prefix has come, and what is missing of the message behind it.
    come: usize,
    left: usize,
}

impl Messages {
    /// What these bytes begin with; none of a message is counted before [`Self::took`] says so.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Piece, &'static str> {
        if self.left > 0 {
            return Ok(Piece::Message(self.left.min(bytes.len())));
        }
        let count = bytes.len().min(PREFIX_BYTES - self.come);
        self.prefix[self.come..self.come + count].copy_from_slice(&bytes[..count]);
        self.come += count;
        if self.come == PREFIX_BYTES {
            self.come = 0;
            self.left = length_of(self.prefix)?;
        }
        Ok(Piece::Prefix(count))
    }

    /// So many bytes of a message were taken.
    pub(super) const fn took(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// Whether the body may end here.
    pub(super) const fn is_between(self) -> bool {
        self.come == 0 && self.left == 0
    }
}

/// The length of a message, from what comes before it.
const fn length_of(
    [is_compressed, length @ ..]: [u8; PREFIX_BYTES],
) -> Result<usize, &'static str> {
    if is_compressed != 0 {
        return Err("messages are not compressed here");
    }
    Ok(u32::from_be_bytes(length) as usize)
}

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Plain,
    Records,
    Grpc,
}

impl Form {
    /// As the request wants it.
    pub(super) fn of(head: &Head) -> Result<Self, Status> {
        let named = |name: &[u8]| head.named(name).unwrap_or_default();
        if named(b"content-type").starts_with(GRPC) {
            if head.method() != Method::Post {
                return Err(Status::METHOD_NOT_ALLOWED);
            }
            return Ok(Self::Grpc);
        }
        let accepts = named(b"accept");
        let is_records = accepts.windows(RECORDS.len()).any(|part| part == RECORDS.as_bytes());
        Ok(if is_records { Self::Records } else { Self::Plain })
    }

    /// How long the caller waits, where it says so (`grpc-timeout`).
    pub(super) fn timeout(self, head: &Head) -> Option<Duration> {
        let text = head.named(b"grpc-timeout").filter(|_| self == Self::Grpc)?;
        let (unit, digits) = text.split_last()?;
        // At most eight digits, says the protocol.
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() <= 8)?;
        let count: u64 = digits.parse().ok()?;
        Some(match unit {
            b'H' => Duration::from_secs(count * 3600),
            b'M' => Duration::from_secs(count * 60),
            b'S' => Duration::from_secs(count),
            b'm' => Duration::from_millis(count),
            b'u' => Duration::from_micros(count),
            b'n' => Duration::from_nanos(count),
            _ => return None,
        })
    }

    /// The body of the call in that of the request.
    pub(super) fn unwrapped(self, mut body: Vec<u8>) -> Result<Vec<u8>, &'static str> {
        if self != Self::Grpc {
            return Ok(body);
        }
        let Some((prefix, message)) = body.split_first_chunk::<PREFIX_BYTES>() else {
            // A stream's body comes later.
            return if body.is_empty() { Ok(body) } else { Err("a message is cut") };
        };
        if message.len() != length_of(*prefix)? {
            return Err("one message is taken");
        }
        body.drain(..PREFIX_BYTES);
        Ok(body)
    }

    /// Frames a record.
    pub(super) fn put_record(self, record: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend_from_slice(record),
            Self::Records => put_frame(RECORD, record, out),
            Self::Grpc => put_frame(0, record, out),
        }
    }

    /// The head of a response with records.
    pub(super) fn head_of_records(self, out: &mut Outbox) -> Progress {
        self.put_type(out);
        Progress::Head(Status::OK, None)
    }

    /// The head of a response without; its body goes to `body`.
    pub(super) fn head_of_answer(
        self,
        answer: &Answer,
        out: &mut Outbox,
        body: &mut Vec<u8>,
    ) -> Progress {
        match (self, answer) {
            (Self::Plain, Ok(result)) => {
                self.put_type(out);
                body.extend_from_slice(result);
                Progress::Head(Status::OK, Some(result.len() as u64))
            }
            (Self::Plain, Err((code, text))) => {
                out.fields.push("Content-Type", "text/plain; charset=utf-8");
                out.fields.push("Sekisho-Error", code.to_string());
                body.extend_from_slice(text.as_bytes());
                Progress::Head(status_of(*code), Some(text.len() as u64))
            }
            (Self::Records, _) => {
                self.put_type(out);
                put_answer(answer, body);
                Progress::Head(Status::OK, Some(body.len() as u64))
            }
            (Self::Grpc, _) => {
                let progress = self.head_of_records(out);
                if let Ok(result) = answer {
                    put_frame(0, result, body);
                }
                put_grpc_status(answer, out);
                progress
            }
        }
    }

    /// The end of a response with records; whether it can be completed.
    pub(super) fn end_of_records(
        self,
        answer: &Answer,
        out: &mut Outbox,
        body: &mut Vec<u8>,
    ) -> bool {
        match self {
            Self::Plain => return answer.is_ok(),
            Self::Records => put_answer(answer, body),
            Self::Grpc => put_grpc_status(answer, out),
        }
        true
    }

    fn put_type(self, out: &mut Outbox) {
        out.fields.push(
            "Content-Type",
            match self {
                Self::Plain => "application/octet-stream",
                Self::Records => RECORDS,
                Self::Grpc => "application/grpc",
            },
        );
        if self == Self::Grpc {
            out.trailers = Some(Fields::default());
        }
    }
}

fn put_frame(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn put_answer(answer: &Answer, out: &mut Vec<u8>) {
    match answer {
        Ok(result) => put_frame(RESULT, result, out),
        Err((code, text)) => {
            let error = [&code.number().to_be_bytes(), text.as_bytes()].concat();
            put_frame(ERROR, &error, out);
        }
    }
}

fn put_grpc_status(answer: &Answer, out: &mut Outbox) {
    let trailers = out.trailers.get_or_insert_default();
    match answer {
        Ok(_) => trailers.push("grpc-status", "0"),
        Err((code, text)) => {
            trailers.push("grpc-status", grpc_status(*code).to_string());
            trailers.push_with("grpc-message", |out| percent_encode(text, out));
        }
    }
}

/// As gRPC wants its messages: printable ASCII but for the percent sign.
fn percent_encode(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

fn status_of(code: Code) -> Status {
    match code {
        Code::Unknown | Code::SystemError | Code::IoError => Status::INTERNAL_SERVER_ERROR,
        Code::UnsupportedOperation => Status::NOT_IMPLEMENTED,
        Code::IllegalState => Status::CONFLICT,
        Code::AuthenticationError | Code::PermissionError | Code::OperationDenied => {
            Status::FORBIDDEN
        }
        Code::ResourceLimitReached
        | Code::SessionClosed
        | Code::ServiceUnavailable
        | Code::OperationCancelled => Status::SERVICE_UNAVAILABLE,
        Code::SessionExpired | Code::DeadlineExceeded => Status::GATEWAY_TIMEOUT,
        Code::ServiceNotFound => Status::NOT_FOUND,
        Code::InvalidRequest => Status::BAD_REQUEST,
    }
}

/// gRPC's number for it.
const fn grpc_status(code: Code) -> u8 {
    match code {
        Code::OperationCancelled => 1,
        Code::Unknown => 2,
        Code::InvalidRequest => 3,
        Code::SessionExpired | Code::DeadlineExceeded => 4,
        Code::PermissionError | Code::OperationDenied => 7,
        Code::ResourceLimitReached => 8,
        Code::IllegalState => 9,
        Code::UnsupportedOperation | Code::ServiceNotFound => 12,
        Code::SystemError | Code::IoError => 13,
        Code::SessionClosed | Code::ServiceUnavailable => 14,
        Code::AuthenticationError => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_taken_out_of_its_frame() {
        let wrapped = |kind: u8, length: u32, bytes: &[u8]| {
            [&[kind][..], &length.to_be_bytes(), bytes].concat()
        };
        let unwrapped = |body| Form::Grpc.unwrapped(body);
        assert_eq!(unwrapped(wrapped(0, 3, b"abc")), Ok(b"abc".to_vec()));
        assert_eq!(unwrapped(wrapped(0, 0, b"")), Ok(Vec::new()));
        for bad in [wrapped(1, 3, b"abc"), wrapped(0, 4, b"abc"), wrapped(0, 2, b"abc"), vec![0; 4]]
        {
            assert!(unwrapped(bad).is_err());
        }
        assert_eq!(Form::Plain.unwrapped(b"as it is".to_vec()), Ok(b"as it is".to_vec()));
    }

    #[test]
    fn messages_are_taken_out_of_a_stream_however_it_is_cut() {
        let body = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x04defg";
        for size in 1..=body.len() {
            let (mut messages, mut out) = (Messages::default(), Vec::new());
            for mut part in body.chunks(size) {
                while !part.is_empty() {
                    let count = match messages.next(part).expect("in order") {
                        Piece::Prefix(count) => count,
                        Piece::Message(count) => {
                            // Not all of it may be taken at once.
                            let taken = count.div_ceil(2);
                            out.extend_from_slice(&part[..taken]);
                            messages.took(taken);
                            taken
                        }
                    };
                    part = &part[count..];
                }
            }
            assert_eq!(out, b"abcdefg", "in parts of {size}");
            assert!(messages.is_between());
        }
        let mut cut = Messages::default();
        assert_eq!(cut.next(b"\0\0"), Ok(Piece::Prefix(2)));
        assert!(!cut.is_between());
        assert!(Messages::default().next(b"\x01\0\0\0\x03abc").is_err(), "compressed");
    }

    #[test]
    fn a_message_of_grpc_is_printable() {
        let mut out = Vec::new();
        percent_encode("no é\n100%", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "no %C3%A9%0A100%25");
    }

    #[test]
    fn every_code_has_a_status_of_an_error() {
        // E8
        for code in Code::ALL {
            assert!(status_of(code).code() >= 400 && grpc_status(code) > 0, "{code}");
        }
    }
}
