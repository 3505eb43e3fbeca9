//! HTTP/2.

use super::{HTTP_SERVER, LEVELS, Row, active, set, warned};
use crate::level::{Directive, Fault};

pub(super) const ROWS: &[Row] = &[
    active(
        "http2",
        HTTP_SERVER,
        "on|off",
        "off",
        "Whether HTTP/2 is spoken: with clients that begin with it",
        |l, d, _| set(&mut l.parts.http2.is_on, d.flag()),
    ),
    active(
        "http2_max_concurrent_streams",
        HTTP_SERVER,
        "number",
        "128",
        "How many requests of one connection may be in work",
        |l, d, _| set(&mut l.parts.http2.streams_max, count(d)),
    ),
    active(
        "http2_body_preread_size",
        HTTP_SERVER,
        "size",
        "64k",
        "How much of a request's body may come before it is asked for",
        |l, d, _| set(&mut l.parts.http2.preread_bytes, bytes(d)),
    ),
    active(
        "http2_chunk_size",
        LEVELS,
        "size",
        "8k",
        "How long a piece of a response body may be, where others wait for their turn",
        |l, d, _| set(&mut l.settings.http2_chunk_size, bytes(d)),
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
    warned("http2_max_concurrent_pushes", HTTP_SERVER, "number", "Clients no longer take pushes"),
    warned("http2_push", LEVELS, "uri|off", "Clients no longer take pushes"),
    warned("http2_push_preload", LEVELS, "on|off", "Clients no longer take pushes"),
    warned("http2_streams_index_size", HTTP_SERVER, "number", "Obsolete"),
];

fn count(d: &Directive<'_>) -> Result<u32, Fault> {
    let count = d.count(0)?;
    u32::try_from(count).map_err(|_| d.invalid(d.arg(0), "is too large"))
}

fn bytes(d: &Directive<'_>) -> Result<u32, Fault> {
    let bytes = d.size(0)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (1..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| d.invalid(d.arg(0), "must be from 1 to 1g"))
}
