//! The request that goes out as a header block, built from parsed pairs: what could be read in two ways when it is written
//! as HTTP/1 by a server further on does not leave (U3).

use sekisho_http::target::is_host;
use sekisho_http::token::{is_token_byte, is_value_byte};
use sekisho_http::upstream::{Request, RequestBody, RequestFault, is_hop_by_hop};
use sekisho_http::{Fields, Version};

use super::{Client, Output};
use crate::frame::{self, Kind, flag};

/// Everything that could make two readers of the request differ; its authority.
pub(super) fn check<'a>(request: &Request<'a>) -> Result<&'a [u8], RequestFault> {
    let Request { method, target, pairs, .. } = *request;
    if method.is_empty() || method == b"CONNECT" || !method.iter().copied().all(is_token_byte) {
        return Err(RequestFault::Method);
    }
    let may_stand = |byte: &u8| *byte > b' ' && *byte != 0x7f && *byte != b'#';
    let is_path = target.first() == Some(&b'/') || (target == b"*" && method == b"OPTIONS");
    if !is_path || !target.iter().all(may_stand) {
        return Err(RequestFault::Target);
    }
    for (name, value) in pairs.iter() {
        let is_name = !name.is_empty() && name.iter().copied().all(is_token_byte);
        if !is_name || !value.iter().copied().all(is_value_byte) {
            return Err(RequestFault::Pair);
        }
    }
    let mut hosts = pairs.all(b"host");
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(host),
        _ => Err(RequestFault::Host),
    }
}

/// Whether the server may send trailers that mean something: `TE: trailers`, the only value there is in HTTP/2.
fn wants_trailers(pairs: &Fields) -> bool {
    pairs
        .all(b"te")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

impl Client {
    /// Writes HEADERS, and CONTINUATION where the block is longer than a frame may be.
    pub(super) fn write_head(
        &mut self,
        request: &Request<'_>,
        authority: &[u8],
        out: &mut Vec<u8>,
    ) {
        debug_assert!(request.version == Version::Http2 || request.version == Version::Http11);
        let at = out.len();
        let flags = if self.output == Output::Done { flag::END_STREAM } else { 0 };
        frame::header(out, 0, Kind::Headers, flags | flag::END_HEADERS, self.stream);
        self.encoder.begin(out);
        self.encoder.pseudo(b":method", request.method, out);
        let scheme: &[u8] = if self.is_secure { b"https" } else { b"http" };
        self.encoder.pseudo(b":scheme", scheme, out);
        self.encoder.pseudo(b":path", request.target, out);
        self.encoder.pseudo(b":authority", authority, out);
        if let RequestBody::Known(length) = request.body {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(length).as_bytes();
            self.encoder.request_field(b"content-length", digits, out);
        }
        if wants_trailers(request.pairs) {
            self.encoder.request_field(b"te", b"trailers", out);
        }
        let mut lower = Vec::new();
        for (name, value) in request.pairs.iter().filter(|(name, _)| is_passed_on(name)) {
            lower.clear();
            lower.extend_from_slice(name);
            lower.make_ascii_lowercase();
            self.encoder.request_field(&lower, value.trim_ascii(), out);
        }
        frame::close_block(out, at, self.peer_frame_bytes_max as usize, flags, self.stream);
    }
}

fn is_passed_on(name: &[u8]) -> bool {
    !is_hop_by_hop(name)
        && !name.eq_ignore_ascii_case(b"host")
        && !name.eq_ignore_ascii_case(b"content-length")
}
