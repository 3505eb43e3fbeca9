//! Response head and framing into bytes. The encoder alone writes `Content-Length`,
//! `Transfer-Encoding` and `Connection`; everything else comes ready-made.

use sekisho_http::{BodyLength, Fields, Status, Version};

use crate::keep_alive::Framing;

/// What goes out when the body is wanted (H7).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What the head says about the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Kept. HTTP/1.0 needs the field; in HTTP/1.1 it is the default, but clients and proxies that were
    /// tested with nginx may look for it.
    Kept,
    /// Kept, and for how many seconds without a request.
    KeptFor(u64),
    /// Closed after this response.
    Closed,
}

/// How the end of a response is made known, and whether body bytes follow at all (H1, H12, H13).
pub const fn framing(
    is_head: bool,
    version: Version,
    status: Status,
    length: BodyLength,
    sends_chunks: bool,
) -> (Framing, bool) {
    if status.is_bodyless() {
        return (Framing::None, false);
    }
    match (length, version) {
        (BodyLength::Empty | BodyLength::Known(0), _) => (Framing::Length(0), false),
        (BodyLength::Known(length), _) => (Framing::Length(length), !is_head),
        (BodyLength::Unknown, Version::Http11 | Version::Http2 | Version::Http3)
            if sends_chunks =>
        {
            (Framing::Chunked, !is_head)
        }
        (BodyLength::Unknown, _) if is_head => (Framing::None, false),
        (BodyLength::Unknown, _) => (Framing::UntilClose, true),
    }
}

/// Writes a response head. `fields` are whole lines.
pub fn head(
    out: &mut Vec<u8>,
    status: Status,
    fields: &Fields,
    framing: Framing,
    persistence: Persistence,
) {
    // Status line, Content-Length with 20 digits, Connection, Keep-Alive and the last CRLF fit into this.
    const REST_BYTES_MAX: usize = 200;
    let fields = fields.as_lines();
    out.reserve(fields.len() + REST_BYTES_MAX);
    out.extend_from_slice(b"HTTP/1.1 ");
    let line = status.line();
    if line.is_empty() {
        out.extend_from_slice(itoa::Buffer::new().format(status.code()).as_bytes());
        out.push(b' ');
    } else {
        out.extend_from_slice(line.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(fields);
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
    out.extend_from_slice(match persistence {
        Persistence::Kept => b"Connection: keep-alive\r\n\r\n",
        Persistence::KeptFor(_) => b"Connection: keep-alive\r\nKeep-Alive: timeout=",
        Persistence::Closed => b"Connection: close\r\n\r\n",
    });
    if let Persistence::KeptFor(secs) = persistence {
        out.extend_from_slice(itoa::Buffer::new().format(secs).as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }
}

/// Writes the end of a chunked body with fields behind it (RFC 9112 §7.1.2).
pub fn trailers(out: &mut Vec<u8>, fields: &Fields) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(fields.as_lines());
    out.extend_from_slice(b"\r\n");
}

/// Writes one chunk; nothing for an empty one, which would be the last.
pub fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    const SIZE_BYTES_MAX: usize = 16 + 4;
    if bytes.is_empty() {
        return;
    }
    out.reserve(bytes.len() + SIZE_BYTES_MAX);
    let digits = (usize::BITS - bytes.len().leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[bytes.len() >> (4 * place) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H1, H12, H13: how every kind of response says where it ends.
    #[test]
    fn the_framing_follows_from_method_version_status_and_length() {
        use {BodyLength as B, Framing as F, Version as V};
        let (ok, none, same) = (Status::OK, Status::NO_CONTENT, Status::NOT_MODIFIED);
        let rows = [
            (false, V::Http11, ok, B::Empty, (F::Length(0), false)),
            (false, V::Http11, ok, B::Known(0), (F::Length(0), false)),
            (false, V::Http11, ok, B::Known(5), (F::Length(5), true)),
            (false, V::Http10, ok, B::Known(5), (F::Length(5), true)),
            (false, V::Http11, ok, B::Unknown, (F::Chunked, true)),
            (false, V::Http10, ok, B::Unknown, (F::UntilClose, true)),
            (true, V::Http11, ok, B::Known(5), (F::Length(5), false)),
            (true, V::Http11, ok, B::Unknown, (F::Chunked, false)),
            (true, V::Http10, ok, B::Unknown, (F::None, false)),
            (false, V::Http11, none, B::Known(5), (F::None, false)),
            (false, V::Http11, same, B::Known(5), (F::None, false)),
            (false, V::Http10, same, B::Unknown, (F::None, false)),
        ];
        for (is_head, version, status, length, expected) in rows {
            let found = framing(is_head, version, status, length, true);
            assert_eq!(found, expected, "{is_head} {version:?} {status} {length:?}");
        }
        let without_chunks = |is_head| framing(is_head, V::Http11, ok, B::Unknown, false);
        assert_eq!(without_chunks(false), (F::UntilClose, true));
        assert_eq!(without_chunks(true), (F::None, false));
    }

    #[test]
    fn a_status_without_a_phrase_keeps_its_space() {
        let mut out = Vec::new();
        let status = Status::new(299).expect("a status");
        let fields = [("A", "b")].into_iter().collect();
        head(&mut out, status, &fields, Framing::None, Persistence::Kept);
        assert_eq!(out, b"HTTP/1.1 299 \r\nA: b\r\nConnection: keep-alive\r\n\r\n");
    }

    #[test]
    fn the_longest_head_needs_one_reservation() {
        let mut out = Vec::new();
        let status = Status::HEADER_TOO_LARGE;
        let (framing, persistence) = (Framing::Length(u64::MAX), Persistence::KeptFor(u64::MAX));
        head(&mut out, status, &Fields::new(), framing, persistence);
        assert!(out.len() <= 200, "{}", out.len());
    }

    #[test]
    fn a_chunk_has_its_size_in_front_of_it() {
        for (len, size) in [(1, "1"), (15, "f"), (16, "10"), (255, "ff"), (4096, "1000")] {
            let mut out = Vec::new();
            let bytes = vec![b'x'; len];
            chunk(&mut out, &bytes);
            let expected = [size.as_bytes(), b"\r\n", &bytes, b"\r\n"].concat();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn an_empty_chunk_is_not_written() {
        let mut out = Vec::new();
        chunk(&mut out, b"");
        assert!(out.is_empty());
    }
}
