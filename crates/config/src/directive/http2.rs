//! HTTP/2.

use super::{HTTP_SERVER, LEVELS, Row, active, set, warned};
use crate::level::{Directive, Fault};

pub(super) const ROWS: &[Row] = &[
    active("http2", HTTP_SERVER, "on|off", "off", "Whether HTTP/2 is supported", |l, d, _| {
        set(&mut l.parts.http2.is_on, d.flag())
    }),
    active(
        "http2_max_concurrent_streams",
        HTTP_SERVER,
        "number",
        "128",
        "The maximum number of running requests of one connection",
        |l, d, _| set(&mut l.parts.http2.streams_max, count(d)),
    ),
    active(
        "http2_body_preread_size",
        HTTP_SERVER,
        "size",
        "64k",
        "How much of a request body a client may send before it is read",
        |l, d, _| set(&mut l.parts.http2.preread_bytes, bytes(d, 0)),
    ),
    active(
        "http2_chunk_size",
        LEVELS,
        "size",
        "8k",
        "The maximum size of a piece of a response body while other streams wait",
        |l, d, _| set(&mut l.settings.http2_chunk_size, bytes(d, 1)),
    ),
    warned("http2_recv_buffer_size", HTTP_SERVER, "size", "Buffers are pooled"),
    warned("http2_recv_timeout", HTTP_SERVER, "time", "Obsolete: use `client_header_timeout`"),
    warned("http2_idle_timeout", HTTP_SERVER, "time", "Obsolete: use `keepalive_timeout`"),
    warned("http2_max_requests", HTTP_SERVER, "number", "Obsolete: use `keepalive_requests`"),
    warned(
        "http2_max_field_size",
        HTTP_SERVER,
        "size",
        "Obsolete: use `large_client_header_buffers`",
    ),
    warned(
        "http2_max_header_size",
        HTTP_SERVER,
        "size",
        "Obsolete: use `large_client_header_buffers`",
    ),
    warned(
        "http2_max_concurrent_pushes",
        HTTP_SERVER,
        "number",
        "Clients no longer support pushes",
    ),
    warned("http2_push", LEVELS, "uri|off", "Clients no longer support pushes"),
    warned("http2_push_preload", LEVELS, "on|off", "Clients no longer support pushes"),
    warned("http2_streams_index_size", HTTP_SERVER, "number", "Obsolete"),
];

pub(super) fn count(d: &Directive<'_>) -> Result<u32, Fault> {
    let count = d.count(0)?;
    u32::try_from(count).map_err(|_| d.invalid(d.arg(0), "is too large"))
}

pub(super) fn bytes(d: &Directive<'_>, least: u32) -> Result<u32, Fault> {
    let bytes = d.size(0)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (least..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| d.invalid(d.arg(0), &format!("must be from {least} to 1g")))
}
