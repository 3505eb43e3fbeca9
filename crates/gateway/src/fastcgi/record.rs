//! FastCGI records: the eight bytes in front of everything, and what is written in them.

use sekisho_http::upstream::{BodyFault, Request, RequestFault};

use crate::params::each_param;

/// Bytes of a record header.
pub(super) const HEADER_BYTES: usize = 8;
/// Bytes of an `FCGI_END_REQUEST` body.
pub(super) const END_BYTES: usize = 8;
const VERSION: u8 = 1;
/// The longest content that a record of ours has: below the 16 bits there are, and a multiple of 8.
const CONTENT_BYTES_MAX: usize = 0xfff8;
const RESPONDER: u16 = 1;
const KEEP_CONNECTION: u8 = 1;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// What a record of the application holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Stdout,
    Stderr,
    End,
    /// About the connection, not about a request: ignored.
    Management,
}

/// A record header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) content: u16,
    pub(super) padding: u8,
}

impl Header {
    /// Reads the header of a record that an application sends, as a part of the response to the request `id`.
    pub(super) fn read(bytes: [u8; HEADER_BYTES], id: u16) -> Result<Self, BodyFault> {
        let [version, kind, id_high, id_low, content_high, content_low, padding, _] = bytes;
        if version != VERSION {
            return Err(BodyFault::RecordVersion);
        }
        let content = u16::from_be_bytes([content_high, content_low]);
        let kind = match (u16::from_be_bytes([id_high, id_low]), kind) {
            (0, _) => Kind::Management,
            (other, _) if other != id => return Err(BodyFault::RecordRequest),
            (_, STDOUT) => Kind::Stdout,
            (_, STDERR) => Kind::Stderr,
            (_, END_REQUEST) if usize::from(content) == END_BYTES => Kind::End,
            (_, END_REQUEST) => return Err(BodyFault::RecordLength),
            _ => return Err(BodyFault::RecordType),
        };
        Ok(Self { kind, content, padding })
    }
}

/// Writes everything in front of the request body to `out`, or nothing.
pub(super) fn begin(request: &Request<'_>, id: u16, out: &mut Vec<u8>) -> Result<(), RequestFault> {
    let mut params = Vec::with_capacity(1024);
    let mut is_too_large = false;
    each_param(request.pairs, request.body, |name, value| {
        for text in [name, value] {
            is_too_large |= !push_length(&mut params, text.len());
        }
        params.extend_from_slice(name);
        params.extend_from_slice(value);
    })?;
    if is_too_large {
        return Err(RequestFault::TooLarge);
    }
    header(out, id, BEGIN_REQUEST, 8, 0);
    let [high, low] = RESPONDER.to_be_bytes();
    let flags = if request.keeps_alive { KEEP_CONNECTION } else { 0 };
    out.extend_from_slice(&[high, low, flags, 0, 0, 0, 0, 0]);
    stream(out, id, PARAMS, &params);
    header(out, id, PARAMS, 0, 0);
    Ok(())
}

/// Writes body bytes.
pub(super) fn stdin(out: &mut Vec<u8>, id: u16, bytes: &[u8]) {
    stream(out, id, STDIN, bytes);
}

/// Writes the end of the body.
pub(super) fn stdin_end(out: &mut Vec<u8>, id: u16) {
    header(out, id, STDIN, 0, 0);
}

fn stream(out: &mut Vec<u8>, id: u16, kind: u8, bytes: &[u8]) {
    for content in bytes.chunks(CONTENT_BYTES_MAX) {
        let padding = content.len().next_multiple_of(8) - content.len();
        header(out, id, kind, content.len() as u16, padding as u8);
        out.extend_from_slice(content);
        out.extend_from_slice(&[0; 8][..padding]);
    }
}

fn header(out: &mut Vec<u8>, id: u16, kind: u8, content: u16, padding: u8) {
    let [id_high, id_low] = id.to_be_bytes();
    let [high, low] = content.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, padding, 0]);
}

/// One byte for short lengths, four with the highest bit set for others; `false` beyond 31 bits.
fn push_length(out: &mut Vec<u8>, len: usize) -> bool {
    match u32::try_from(len) {
        Ok(len @ 0..0x80) => out.push(len as u8),
        Ok(len @ 0x80..0x8000_0000) => out.extend_from_slice(&(len | 0x8000_0000).to_be_bytes()),
        _ => return false,
    }
    true
}
