//! `stream`: connections and datagrams that are passed to another server as they are.

use std::sync::Arc;

use super::forward::{bind, destination};
use super::{Context, MAIN, Row, STREAM, STREAM_LEVELS, STREAM_SERVER, active, block, set, silent};
use crate::level::{Directive, Fault, Level, Scope};
use crate::listen::stream_listen;
use crate::model::{Bytes, Family, PassTo};
use crate::names::server_name;
use crate::value;
use sekisho_upstream::retry::{Condition, NextUpstream};

pub(super) const ROWS: &[Row] = &[
    block("stream", MAIN, "", Context::Stream, "Servers that pass TCP connections and UDP datagrams on").once(),
    block("server", STREAM, "", Context::StreamServer, "A server of TCP connections or UDP datagrams"),
    active(
        "listen",
        STREAM_SERVER,
        "address:port [option] ...",
        "",
        "An address to listen on; `udp` for datagrams, `ssl`, `proxy_protocol`, `default_server`, and socket options",
        |l, d, _| {
            let args: Vec<&[u8]> = d.args().iter().map(|word| &*word.text).collect();
            let line = stream_listen(&args).map_err(|wrong| {
                Fault::all(wrong.into_iter().map(|(at, reason)| Fault::at(d.arg(at), reason)))
            })?;
            l.own.listens.push((line, Some(d.arg(0).span)));
            Ok(())
        },
    )
    .repeated(),
    active(
        "server_name",
        STREAM_SERVER,
        "name ...",
        "",
        "Names of the server, compared with the one that a client asks for in its TLS handshake",
        |l, d, s| d.args().iter().try_for_each(|word| server_name(l, d, s, word)),
    )
    .repeated(),
    active(
        "proxy_pass",
        STREAM_SERVER,
        "address",
        "",
        "Where connections and datagrams are passed to: host and port, `unix:` and a path, an `upstream`, or variables that say one of these",
        proxy_pass,
    ),
    active(
        "return",
        STREAM_SERVER,
        "value",
        "",
        "Sends a value, which may have variables, and closes the connection",
        |l, d, s| {
            l.stream.returns = Some(d.template(d.arg(0), s)?);
            Ok(())
        },
    ),
    active(
        "set",
        STREAM_SERVER,
        "$variable value",
        "",
        "Sets a variable, before the connection is passed on",
        |l, d, s| {
            let word = d.arg(0);
            let invalid = || Fault::at(word, format!("invalid variable name \"{}\"", word.shown()));
            let name = d.text(word)?.strip_prefix('$').ok_or_else(invalid)?.to_ascii_lowercase();
            let id = *s.names.assigned.get(&name).ok_or_else(invalid)?;
            let value = d.template(d.arg(1), s)?;
            l.stream.assignments.push((id, value));
            Ok(())
        },
    )
    .repeated(),
    active(
        "proxy_timeout",
        STREAM_LEVELS,
        "time|off",
        "10m",
        "How long neither side may send anything before the connection is closed",
        |l, d, _| set(&mut l.stream.timeout, d.deadline(0)),
    ),
    active(
        "proxy_connect_timeout",
        STREAM_LEVELS,
        "time|off",
        "",
        "How long a connection to a server may take to come up (60s)",
        |l, d, _| set(&mut l.forward(Family::Proxy).connect_timeout, d.deadline(0)),
    ),
    active(
        "proxy_next_upstream",
        STREAM_LEVELS,
        "on|off",
        "",
        "Whether another server is tried where a connection to one cannot be made (on)",
        |l, d, _| {
            let conditions =
                if d.flag()? { vec![Condition::Error, Condition::Timeout] } else { Vec::new() };
            let forward = l.forward(Family::Proxy);
            let NextUpstream { tries, timeout, .. } = forward.next_upstream;
            forward.next_upstream = NextUpstream::new(conditions);
            (forward.next_upstream.tries, forward.next_upstream.timeout) = (tries, timeout);
            Ok(())
        },
    ),
    active(
        "proxy_next_upstream_tries",
        STREAM_LEVELS,
        "number",
        "",
        "How many servers are tried at the most; 0 for all",
        |l, d, _| {
            let tries = d.number(0)?;
            l.forward(Family::Proxy).next_upstream.tries = u32::try_from(tries).unwrap_or(u32::MAX);
            Ok(())
        },
    ),
    active(
        "proxy_next_upstream_timeout",
        STREAM_LEVELS,
        "time|off",
        "",
        "How long others are tried; 0 for as long as it takes",
        |l, d, _| set(&mut l.forward(Family::Proxy).next_upstream.timeout, d.deadline(0)),
    ),
    active(
        "proxy_buffer_size",
        STREAM_LEVELS,
        "size",
        "",
        "How much is read at once from either side (16k)",
        |l, d, _| set(&mut l.stream.buffer_bytes, d.small_size(0)),
    ),
    active(
        "proxy_upload_rate",
        STREAM_LEVELS,
        "rate",
        "0",
        "How many bytes of the client are read in a second; 0 for as many as come",
        |l, d, s| {
            let rate = rate(d, s)?;
            l.stream.upload_rate = rate;
            Ok(())
        },
    ),
    active(
        "proxy_download_rate",
        STREAM_LEVELS,
        "rate",
        "0",
        "How many bytes of the server are read in a second; 0 for as many as come",
        |l, d, s| {
            let rate = rate(d, s)?;
            l.stream.download_rate = rate;
            Ok(())
        },
    ),
    active(
        "proxy_half_close",
        STREAM_LEVELS,
        "on|off",
        "off",
        "Whether each direction of a TCP connection is closed by itself",
        |l, d, _| set(&mut l.stream.half_close, d.flag()),
    ),
    active(
        "proxy_requests",
        STREAM_LEVELS,
        "number",
        "0",
        "How many datagrams of a client belong together, before the next one begins a new session; 0 for all",
        |l, d, _| {
            l.stream.requests_max = Some(d.number(0)?).filter(|number| *number > 0);
            Ok(())
        },
    ),
    active(
        "proxy_responses",
        STREAM_LEVELS,
        "number",
        "",
        "How many datagrams a server answers to one of a client; a session ends with the last of them",
        |l, d, _| {
            l.stream.responses_max = Some(d.number(0)?);
            Ok(())
        },
    ),
    active(
        "proxy_protocol",
        STREAM_LEVELS,
        "on|off",
        "off",
        "Whether a server is told by a PROXY header who the client is",
        |l, d, _| set(&mut l.stream.sends_proxy_header, d.flag()),
    ),
    active(
        "proxy_ssl",
        STREAM_LEVELS,
        "on|off",
        "off",
        "Whether connections to a server are encrypted; `proxy_ssl_name` and the rest say how",
        |l, d, _| set(&mut l.stream.is_upstream_tls, d.flag()),
    ),
    active(
        "proxy_bind",
        STREAM_LEVELS,
        "address|off [transparent]",
        "",
        "The local address of connections to servers; `transparent` is not supported yet",
        |l, d, s| set(&mut l.forward(Family::Proxy).bind, bind(d, s)),
    ),
    active(
        "proxy_socket_keepalive",
        STREAM_LEVELS,
        "on|off",
        "",
        "Whether TCP keep-alive is used for connections to servers (SO_KEEPALIVE)",
        |l, d, _| set(&mut l.forward(Family::Proxy).socket_keepalive, d.flag()),
    ),
    active(
        "ssl_preread",
        STREAM_LEVELS,
        "on|off",
        "off",
        "Whether the first message of a TLS handshake is looked at before the connection is passed on: `$ssl_preread_server_name`",
        |l, d, _| set(&mut l.stream.prereads_tls, d.flag()),
    ),
    active(
        "preread_buffer_size",
        STREAM_LEVELS,
        "size",
        "16k",
        "How large that message may be",
        |l, d, _| set(&mut l.stream.preread_bytes, d.small_size(0)),
    ),
    active(
        "preread_timeout",
        STREAM_LEVELS,
        "time|off",
        "30s",
        "How long it may take to come",
        |l, d, _| set(&mut l.stream.preread_timeout, d.deadline(0)),
    ),
    active(
        "proxy_protocol_timeout",
        STREAM_LEVELS,
        "time|off",
        "30s",
        "How long the PROXY header of a balancer may take to come",
        |l, d, _| set(&mut l.stream.proxy_header_timeout, d.deadline(0)),
    ),
    active(
        "ssl_handshake_timeout",
        STREAM_LEVELS,
        "time|off",
        "60s",
        "How long a client may take for its TLS handshake",
        |l, d, _| set(&mut l.stream.handshake_timeout, d.deadline(0)),
    ),
    silent("tcp_nodelay", STREAM_LEVELS, "on|off", "Segments are sent at once"),
];

fn rate(d: &Directive<'_>, s: &Scope<'_>) -> Result<Bytes, Fault> {
    let word = d.arg(0);
    if word.text.contains(&b'$') {
        return Ok(Bytes::By(Arc::new(d.template(word, s)?)));
    }
    let size = value::size(d.text(word)?).map_err(|wrong| d.invalid(word, wrong))?;
    Ok(Bytes::Fixed(size))
}

fn proxy_pass(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let text = d.text(word)?;
    let to = if text.contains('$') {
        PassTo::Computed(d.template(word, s)?)
    } else {
        PassTo::Named(destination(s, word, text, false, None)?)
    };
    l.pass = Some((Family::Proxy, to));
    Ok(())
}
