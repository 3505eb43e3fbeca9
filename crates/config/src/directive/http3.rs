//! HTTP/3 and QUIC.

use std::sync::Arc;

use super::http2::{bytes, count};
use super::{HTTP_SERVER, MAIN, Row, active, set, silent, warned};

pub(super) const ROWS: &[Row] = &[
    active("http3", HTTP_SERVER, "on|off", "on", "Whether HTTP/3 is supported", |l, d, _| {
        set(&mut l.parts.http3.is_on, d.flag())
    }),
    active(
        "http3_max_concurrent_streams",
        HTTP_SERVER,
        "number",
        "128",
        "The maximum number of running requests of one connection",
        |l, d, _| set(&mut l.parts.http3.streams_max, count(d)),
    ),
    active(
        "http3_stream_buffer_size",
        HTTP_SERVER,
        "size",
        "256k",
        "How much of a request body a client may send before it is read",
        |l, d, _| set(&mut l.parts.http3.stream_buffer_bytes, bytes(d, 1)),
    ),
    active(
        "http3_alt_svc",
        HTTP_SERVER,
        "on|off",
        "on",
        "Whether responses over TCP announce HTTP/3 by `Alt-Svc` where the server listens for it (ours)",
        |l, d, _| set(&mut l.parts.http3.alt_svc, d.flag()),
    ),
    active(
        "quic_retry",
        HTTP_SERVER,
        "on|off",
        "off",
        "Whether every client must prove its address first; many unproved ones must in any case",
        |l, d, _| set(&mut l.parts.http3.retry, d.flag()),
    ),
    active(
        "quic_gso",
        HTTP_SERVER,
        "on|off",
        "on",
        "Whether datagrams are handed to the kernel in batches",
        |l, d, _| set(&mut l.parts.http3.gso, d.flag()),
    ),
    silent(
        "quic_active_connection_id_limit",
        HTTP_SERVER,
        "number",
        "Up to five connection ids of a client are kept",
    ),
    silent("quic_bpf", MAIN, "on|off", "Datagrams find their worker without it"),
    active(
        "quic_host_key",
        HTTP_SERVER,
        "file",
        "",
        "A secret (random bytes) for address tokens and stateless resets, which hold over a restart then",
        |l, d, s| {
            Arc::make_mut(&mut l.tls).quic_host_key = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    warned("http3_hq", HTTP_SERVER, "on|off", "HTTP/0.9 over QUIC is not supported"),
];
