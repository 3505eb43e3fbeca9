//! What the configuration says about one connection's manners. Shared by all connections of a server
//! block or location; swapped when `Host` has chosen another.

use std::time::Duration;

/// Limits and deadlines of a connection. `None` means none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// `client_header_timeout`
    pub header_timeout: Option<Duration>,
    /// `client_body_timeout`
    pub body_timeout: Option<Duration>,
    /// `client_body_min_rate`, bytes a second.
    pub body_min_rate: Option<u64>,
    /// `keepalive_timeout`; `None` switches keep-alive off, as `keepalive_timeout 0` does in nginx.
    pub keepalive_timeout: Option<Duration>,
    /// The second value of `keepalive_timeout`: seconds that are sent to the client in `Keep-Alive`.
    pub keepalive_header_secs: Option<u64>,
    /// `keepalive_time`: how long after its beginning a connection may still be kept.
    pub keepalive_time: Option<Duration>,
    /// `chunked_transfer_encoding`: whether HTTP/1.1 clients get chunks where the length is not known.
    pub sends_chunks: bool,
    /// `send_timeout`
    pub send_timeout: Option<Duration>,
    /// `lingering_timeout`: quiet time while lingering.
    pub lingering_timeout: Option<Duration>,
    /// `lingering_time`: how long lingering may take in all.
    pub lingering_time: Option<Duration>,
    /// `keepalive_requests`
    pub keepalive_requests: u64,
    /// Bytes of a request line, beyond which it is 414.
    pub line_bytes_max: usize,
    /// Bytes of one field line, beyond which it is 431.
    pub field_bytes_max: usize,
    /// Bytes of the whole head, beyond which it is 431.
    pub head_bytes_max: usize,
    /// How many fields, beyond which it is 431.
    pub fields_max: usize,
    /// `client_body_discard_max`: how much of an unwanted body is read and thrown away.
    pub body_discard_max: u64,
    /// `half_close`: FIN while a program works does not count as a lost client.
    pub half_close: bool,
}

impl Default for Policy {
    fn default() -> Self {
        const TEN: Option<Duration> = Some(Duration::from_secs(10));
        Self {
            header_timeout: TEN,
            body_timeout: TEN,
            body_min_rate: None,
            keepalive_timeout: TEN,
            keepalive_header_secs: None,
            keepalive_time: Some(Duration::from_hours(1)),
            sends_chunks: true,
            send_timeout: TEN,
            lingering_timeout: TEN,
            lingering_time: Some(Duration::from_secs(30)),
            keepalive_requests: 1000,
            line_bytes_max: 8 * 1024,
            field_bytes_max: 8 * 1024,
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            body_discard_max: 64 * 1024 * 1024,
            half_close: false,
        }
    }
}
