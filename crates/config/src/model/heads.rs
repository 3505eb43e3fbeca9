//! What a server says about request heads and HTTP/2, before a location is known.

use std::sync::Arc;

use sekisho_http::Method;

use super::Template;

/// One field of `more_set_headers` or `more_clear_headers`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedField {
    /// Its name; one that is taken away may end with `*`.
    pub name: Box<str>,
    /// The value that takes the place of all others; `None` to take them away.
    pub value: Option<Template>,
    /// The statuses that it is for; none for all.
    pub statuses: Arc<[u16]>,
    /// The media types that it is for, in lower case; none for all.
    pub types: Arc<[Box<str>]>,
}

impl ChangedField {
    /// Whether an answer of this status and media type is changed.
    pub fn is_for(&self, status: u16, media_type: &[u8]) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.types.is_empty()
                || self.types.iter().any(|it| media_type.eq_ignore_ascii_case(it.as_bytes())))
    }

    /// Whether a field of this name is concerned.
    pub fn is_about(&self, name: &[u8]) -> bool {
        match self.name.strip_suffix('*') {
            Some(stem) if self.value.is_none() => {
                name.get(..stem.len()).is_some_and(|it| it.eq_ignore_ascii_case(stem.as_bytes()))
            }
            _ => name.eq_ignore_ascii_case(self.name.as_bytes()),
        }
    }
}

/// What a server says about HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Http2 {
    /// `http2`
    pub is_on: bool,
    /// `http2_max_concurrent_streams`
    pub streams_max: u32,
    /// `http2_body_preread_size`
    pub preread_bytes: u32,
}

/// What a server says about HTTP/3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Http3 {
    /// `http3`
    pub is_on: bool,
    /// `http3_max_concurrent_streams`
    pub streams_max: u32,
    /// `http3_stream_buffer_size`
    pub stream_buffer_bytes: u32,
    /// `http3_alt_svc` (ours)
    pub alt_svc: bool,
    /// `quic_retry`
    pub retry: bool,
    /// `quic_gso`
    pub gso: bool,
}

/// Limits of a request head (H10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadLimits {
    /// Request line, in bytes (size of a large header buffer).
    pub line_bytes_max: usize,
    /// One field, in bytes (size of a large header buffer).
    pub field_bytes_max: usize,
    /// The whole head, in bytes (number times size of the large buffers).
    pub head_bytes_max: usize,
    /// `client_header_fields_max` (ours; 100).
    pub fields_max: usize,
}

/// `keepalive_disable`: the browsers that connections are not kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepaliveDisable {
    /// `msie6`, behind a POST.
    pub msie6: bool,
    /// `safari`
    pub safari: bool,
}

impl KeepaliveDisable {
    /// Whether a request of this method may be concerned at all.
    pub fn is_for(self, method: Method) -> bool {
        self.safari || (self.msie6 && method == Method::Post)
    }
}
