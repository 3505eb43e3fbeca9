//! Connections, bodies, limits and deadlines. Each deadline is 10 seconds unless said otherwise, and
//! `0` or `off` means none.

use std::sync::Arc;

use super::{HTTP_SERVER, LEVELS, LEVELS_IF, Row, active, set, temp_folder};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Bytes, InFileOnly, KeepaliveDisable};

/// More of one body is never kept in memory.
const BODY_MEMORY_MAX: u64 = 1 << 30;

pub(super) const ROWS: &[Row] = &[
    active(
        "client_header_timeout",
        HTTP_SERVER,
        "time|off",
        "60s",
        "The time from accept, or from the first byte of a further request, to the end of its header block; bytes do not extend it",
        |l, d, _| set(&mut l.parts.client_header_timeout, d.deadline(0)),
    ),
    active(
        "client_header_buffer_size",
        HTTP_SERVER,
        "size",
        "1k",
        "The size of the buffer for request heads; larger ones use a large buffer",
        |l, d, _| set(&mut l.parts.header_buffer, d.small_size(0)),
    ),
    active(
        "large_client_header_buffers",
        HTTP_SERVER,
        "number size",
        "4 8k",
        "The size limits the request line (414) and each field (431), number times size the whole head (431)",
        |l, d, _| {
            set(
                &mut l.parts.large_buffers,
                d.count(0).and_then(|number| Ok((number, d.small_size(1)?))),
            )
        },
    ),
    active(
        "client_header_fields_max",
        HTTP_SERVER,
        "number",
        "100",
        "The maximum number of fields of a head (431 beyond; ours)",
        |l, d, _| set(&mut l.parts.fields_max, d.count(0)),
    ),
    active(
        "max_headers",
        HTTP_SERVER,
        "number",
        "",
        "nginx's name of `client_header_fields_max`",
        |l, d, _| set(&mut l.parts.fields_max, d.count(0)),
    ),
    active(
        "underscores_in_headers",
        HTTP_SERVER,
        "on|off",
        "off",
        "Whether names of fields may contain underscores",
        |l, d, _| set(&mut l.parts.underscores_in_headers, d.flag()),
    ),
    active(
        "ignore_invalid_headers",
        HTTP_SERVER,
        "on|off",
        "on",
        "Whether fields with invalid names are ignored",
        |l, d, _| set(&mut l.parts.ignore_invalid_headers, d.flag()),
    ),
    active(
        "client_max_body_size",
        LEVELS,
        "size",
        "1m",
        "The maximum size of a request body (413 beyond); 0 means no limit",
        |l, d, _| {
            set(
                &mut l.settings.client_max_body_size,
                d.size(0).map(|size| Some(size).filter(|size| *size > 0)),
            )
        },
    ),
    active(
        "client_body_buffer_size",
        LEVELS,
        "size",
        "16k",
        "How much of a buffered request body is kept in memory; the rest goes to a temporary file",
        |l, d, _| {
            let bytes = d.size(0).map(|bytes| bytes.min(BODY_MEMORY_MAX) as usize);
            set(&mut l.settings.client_body_buffer_size, bytes)
        },
    ),
    active(
        "client_body_in_file_only",
        LEVELS,
        "on|clean|off",
        "off",
        "Puts every buffered request body into a named file (`$request_body_file`): `clean` removes it after the request, `on` keeps it",
        |l, d, _| {
            l.settings.client_body_in_file_only = match &*d.arg(0).text {
                b"on" => InFileOnly::On,
                b"clean" => InFileOnly::Clean,
                b"off" => InFileOnly::Off,
                _ => return Err(d.invalid(d.arg(0), "must be \"on\", \"clean\" or \"off\"")),
            };
            Ok(())
        },
    ),
    active(
        "client_body_temp_path",
        LEVELS,
        "path [level1] [level2] [level3]",
        "",
        "The folder for request bodies that do not fit in memory, created at the start if it is missing; they have a name in it (`$request_body_file`). Without it they are files without a name in nginx's default folder where that exists or the prefix was given (`-p`), else in TMPDIR. Levels of folders are not needed",
        |l, d, s| {
            l.settings.client_body_temp_path = Some(temp_folder(d, s));
            Ok(())
        },
    ),
    active(
        "client_body_discard_max",
        LEVELS,
        "size",
        "64m",
        "How much of a refused body is read and discarded to keep the connection open (ours)",
        |l, d, _| set(&mut l.settings.client_body_discard_max, d.size(0)),
    ),
    active(
        "client_body_timeout",
        LEVELS,
        "time|off",
        "60s",
        "Maximum pause between two reads of a request body",
        |l, d, _| set(&mut l.settings.client_body_timeout, d.deadline(0)),
    ),
    active(
        "client_body_min_rate",
        LEVELS,
        "size|off",
        "off",
        "The lowest average rate of a body in bytes per second, checked from 10 s after its head, or after `client_body_timeout` if that is longer (408; ours)",
        |l, d, _| {
            if &*d.arg(0).text == b"off" {
                l.settings.client_body_min_rate = None;
                return Ok(());
            }
            set(
                &mut l.settings.client_body_min_rate,
                d.size(0).map(|rate| Some(rate).filter(|rate| *rate > 0)),
            )
        },
    ),
    active(
        "keepalive_timeout",
        LEVELS,
        "time|off [header]",
        "75s",
        "How long a connection may be idle after a response; 0 switches keep-alive off",
        keepalive,
    ),
    active(
        "keepalive_requests",
        LEVELS,
        "number",
        "1000",
        "The maximum number of requests of one connection",
        |l, d, _| set(&mut l.settings.keepalive_requests, d.number(0)),
    ),
    active(
        "keepalive_disable",
        LEVELS,
        "none|browser ...",
        "msie6",
        "Browsers whose connections are not kept open: `msie6` (after a POST), `safari`",
        keepalive_disable,
    ),
    active(
        "keepalive_time",
        LEVELS,
        "time",
        "1h",
        "The age from which a connection is not kept open for another request",
        |l, d, _| set(&mut l.settings.keepalive_time, d.deadline(0)),
    ),
    active(
        "chunked_transfer_encoding",
        LEVELS,
        "on|off",
        "on",
        "Whether answers of unknown length to HTTP/1.1 clients are chunked; otherwise closing the connection ends them",
        |l, d, _| set(&mut l.settings.chunked_transfer_encoding, d.flag()),
    ),
    active(
        "limit_rate",
        LEVELS_IF,
        "rate",
        "0",
        "The rate of each answer in bytes per second; 0 for no limit",
        |l, d, s| set(&mut l.settings.limit_rate, bytes(d, s)),
    ),
    active(
        "limit_rate_after",
        LEVELS_IF,
        "size",
        "0",
        "The number of bytes after which the rate is limited",
        |l, d, s| set(&mut l.settings.limit_rate_after, bytes(d, s)),
    ),
    active(
        "send_timeout",
        LEVELS,
        "time|off",
        "60s",
        "How long a client may acknowledge no bytes",
        |l, d, _| set(&mut l.settings.send_timeout, d.deadline(0)),
    ),
    active(
        "lingering_timeout",
        LEVELS,
        "time|off",
        "10s",
        "How long reading after an early answer may pause (nginx: 5s)",
        |l, d, _| set(&mut l.settings.lingering_timeout, d.deadline(0)),
    ),
    active(
        "lingering_time",
        LEVELS,
        "time|off",
        "30s",
        "How long reading after an early answer may take",
        |l, d, _| set(&mut l.settings.lingering_time, d.deadline(0)),
    ),
    active(
        "half_close",
        LEVELS,
        "on|off",
        "off",
        "Whether a client that has shut down its sending side still gets its answer (ours)",
        |l, d, _| set(&mut l.settings.half_close, d.flag()),
    ),
    active(
        "tcp_nodelay",
        LEVELS,
        "on|off",
        "on",
        "Whether small segments are sent at once",
        |l, d, _| set(&mut l.settings.tcp_nodelay, d.flag()),
    ),
    active(
        "reset_timedout_connection",
        LEVELS,
        "on|off",
        "off",
        "Whether a connection that timed out is reset",
        |l, d, _| set(&mut l.settings.reset_timedout_connection, d.flag()),
    ),
];

fn keepalive(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    l.settings.keepalive_timeout = d.deadline(0)?;
    l.settings.keepalive_header = match d.args().len() {
        0 | 1 => None,
        _ => d.deadline(1)?,
    };
    Ok(())
}

/// A size that nginx also reads from variables.
fn bytes(d: &Directive<'_>, s: &Scope<'_>) -> Result<Bytes, Fault> {
    let word = d.arg(0);
    if word.text.contains(&b'$') {
        return d.template(word, s).map(|value| Bytes::By(Arc::new(value)));
    }
    d.size(0).map(Bytes::Fixed)
}

fn keepalive_disable(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut disable = KeepaliveDisable::default();
    for word in d.args() {
        match &*word.text {
            b"none" => disable = KeepaliveDisable::default(),
            b"msie6" => disable.msie6 = true,
            b"safari" => disable.safari = true,
            _ => return Err(d.invalid(word, "is neither none nor msie6 nor safari")),
        }
    }
    l.settings.keepalive_disable = disable;
    Ok(())
}
