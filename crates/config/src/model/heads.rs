//! What a server says about request heads and HTTP/2, before a location is known.

use sekisho_http::Method;

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
