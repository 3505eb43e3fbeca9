//! What a server of `stream` does with a connection or the datagrams of a client.

use std::time::Duration;

use super::{AssignedId, Bytes, Template};

/// What holds in a server of `stream`, beside what it shares with those of `http`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the language")]
pub struct StreamSettings {
    /// `return`: what is sent before the connection is closed; otherwise it is passed on.
    pub returns: Option<Template>,
    /// `set`, in the order of the file.
    pub assignments: Vec<(AssignedId, Template)>,
    /// `proxy_timeout`
    pub timeout: Option<Duration>,
    /// `proxy_buffer_size`
    pub buffer_bytes: usize,
    /// `proxy_upload_rate`
    pub upload_rate: Bytes,
    /// `proxy_download_rate`
    pub download_rate: Bytes,
    /// `proxy_half_close`
    pub half_close: bool,
    /// `proxy_requests`; `None` for no bound.
    pub requests_max: Option<u64>,
    /// `proxy_responses`; `None` for no bound.
    pub responses_max: Option<u64>,
    /// `proxy_protocol`
    pub sends_proxy_header: bool,
    /// `proxy_ssl`
    pub is_upstream_tls: bool,
    /// `ssl_preread`
    pub prereads_tls: bool,
    /// `preread_buffer_size`
    pub preread_bytes: usize,
    /// `preread_timeout`
    pub preread_timeout: Option<Duration>,
    /// `proxy_protocol_timeout`
    pub proxy_header_timeout: Option<Duration>,
    /// `ssl_handshake_timeout`
    pub handshake_timeout: Option<Duration>,
}

impl Default for StreamSettings {
    /// Nothing at all: the ground on which the table's defaults are put.
    fn default() -> Self {
        Self {
            returns: None,
            assignments: Vec::new(),
            timeout: None,
            // The row of the name has the default of `http`.
            buffer_bytes: 16 << 10,
            upload_rate: Bytes::Fixed(0),
            download_rate: Bytes::Fixed(0),
            half_close: false,
            requests_max: None,
            responses_max: None,
            sends_proxy_header: false,
            is_upstream_tls: false,
            prereads_tls: false,
            preread_bytes: 0,
            preread_timeout: None,
            proxy_header_timeout: None,
            handshake_timeout: None,
        }
    }
}
