//! The request that goes out, built from parsed pairs and never from received text: one `Host`, one
//! `Content-Length` or chunks, nothing about another connection, no line end in a value (U3).

use sekisho_http::Version;
use sekisho_http::target::is_host;
use sekisho_http::token::{is_token, is_value};
use sekisho_http::upstream::{Request, RequestBody, RequestFault, is_hop_by_hop};

/// What is remembered of a request whose head was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// HEAD: the answer has no body.
    pub(super) is_head: bool,
    /// Another protocol was offered.
    pub(super) asks_upgrade: bool,
    /// The request asked the upstream to keep the connection.
    pub(super) keeps: bool,
}

/// Writes a request head to `out`, or nothing at all.
pub(super) fn encode(request: &Request<'_>, out: &mut Vec<u8>) -> Result<Asked, RequestFault> {
    let Checked { host, upgrade, is_close, wants_trailers } = check(request)?;
    let keeps = request.keeps_alive && !is_close;
    let is_11 = request.version == Version::Http11;
    // An upgrade exists in HTTP/1.1 only (RFC 9110 §7.8).
    let upgrade = upgrade.filter(|_| is_11);
    let wants_trailers = wants_trailers && is_11;

    for part in [request.method, b" ", request.target, b" "] {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(request.version.as_str().as_bytes());
    out.extend_from_slice(b"\r\n");
    if let Some(host) = host {
        field(out, b"Host", host);
    }
    match request.body {
        RequestBody::None => {}
        RequestBody::Known(length) => {
            field(out, b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
        }
        RequestBody::Unknown => field(out, b"Transfer-Encoding", b"chunked"),
    }
    let option: &[u8] = match (upgrade, keeps, request.version, wants_trailers) {
        (Some(_), _, _, false) => b"Upgrade",
        (Some(_), _, _, true) => b"Upgrade, TE",
        (None, false, _, false) => b"close",
        (None, false, _, true) => b"close, TE",
        (None, true, Version::Http10, _) => b"keep-alive",
        (None, true, Version::Http11 | Version::Http2 | Version::Http3, false) => b"",
        (None, true, Version::Http11 | Version::Http2 | Version::Http3, true) => b"TE",
    };
    if !option.is_empty() {
        field(out, b"Connection", option);
    }
    if let Some(protocol) = upgrade {
        field(out, b"Upgrade", protocol);
    }
    // RFC 9110 §10.1.4: it is about this connection, which `Connection` says.
    if wants_trailers {
        field(out, b"TE", b"trailers");
    }
    request.pairs.write_lines(out, is_passed_on);
    out.extend_from_slice(b"\r\n");
    let is_head = request.method == b"HEAD";
    Ok(Asked { is_head, asks_upgrade: upgrade.is_some(), keeps })
}

/// What a request says about itself and its connection.
struct Checked<'a> {
    host: Option<&'a [u8]>,
    /// The protocol that is offered.
    upgrade: Option<&'a [u8]>,
    is_close: bool,
    wants_trailers: bool,
}

/// Looks for everything that could make two readers of the request differ.
fn check<'a>(request: &Request<'a>) -> Result<Checked<'a>, RequestFault> {
    let Request { method, target, version, pairs, body, .. } = *request;
    // What follows a CONNECT is no body: it would be a tunnel that was not asked for.
    if method == b"CONNECT" || !is_token(method) {
        return Err(RequestFault::Method);
    }
    // A fragment is for some a part of the target and for others its end.
    let is_wrong = |byte: u8| byte <= b' ' || byte == 0x7f || byte == b'#';
    if target.is_empty() || target.iter().fold(false, |any, byte| any | is_wrong(*byte)) {
        return Err(RequestFault::Target);
    }
    if version == Version::Http10 && body == RequestBody::Unknown {
        return Err(RequestFault::LengthUnknown);
    }
    let mut found = Checked { host: None, upgrade: None, is_close: false, wants_trailers: false };
    let (mut hosts, mut offers_upgrade) = (0_u32, false);
    for (name, value) in pairs.iter() {
        if !is_token(name) || !is_value(value) {
            return Err(RequestFault::Pair);
        }
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => {
                found.wants_trailers |= has_word(value, b"trailers");
            }
            4 if name.eq_ignore_ascii_case(b"host") => {
                found.host = Some(value);
                hosts += 1;
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                found.upgrade = found.upgrade.or(Some(value));
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                found.is_close |= has_word(value, b"close");
                offers_upgrade |= has_word(value, b"upgrade");
            }
            _ => {}
        }
    }
    found.upgrade = found.upgrade.filter(|value| offers_upgrade && !value.is_empty());
    match (hosts, found.host) {
        (1, Some(host)) if is_host(host) => Ok(found),
        (0, _) if version == Version::Http10 => Ok(found),
        _ => Err(RequestFault::Host),
    }
}

fn is_passed_on(name: &[u8]) -> bool {
    let is_written_anew = match name.len() {
        4 => name.eq_ignore_ascii_case(b"host"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        _ => false,
    };
    !is_written_anew && !is_hop_by_hop(name)
}

fn has_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|other| other.trim_ascii().eq_ignore_ascii_case(word))
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_http::Fields;

    fn written(request: &Request<'_>) -> Result<String, RequestFault> {
        let mut out = Vec::new();
        let asked = encode(request, &mut out);
        assert!(asked.is_ok() || out.is_empty(), "an error writes nothing");
        asked.map(|_| String::from_utf8(out).expect("text"))
    }

    fn get(pairs: &Fields) -> Request<'_> {
        Request {
            method: b"GET",
            target: b"/a?b",
            version: Version::Http11,
            pairs,
            body: RequestBody::None,
            keeps_alive: true,
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Fields {
        list.iter().copied().collect()
    }

    /// U3: one framing, one host, nothing about another connection, whatever the pairs say.
    #[test]
    fn a_request_is_built_and_never_copied() {
        let pairs = pairs(&[
            ("Accept", "*/*"),
            ("hOST", "a:81"),
            ("Content-Length", "99"),
            ("content-length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "keep-alive, x"),
            ("Keep-Alive", "9"),
            ("TE", "gzip"),
            ("Trailer", "x"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Cookie", "a=b"),
        ]);
        let rest = "Accept: */*\r\nCookie: a=b\r\n\r\n";
        let rows = [
            (get(&pairs), format!("GET /a?b HTTP/1.1\r\nHost: a:81\r\n{rest}")),
            (
                Request { body: RequestBody::Known(7), ..get(&pairs) },
                format!("GET /a?b HTTP/1.1\r\nHost: a:81\r\nContent-Length: 7\r\n{rest}"),
            ),
            (
                Request { body: RequestBody::Unknown, method: b"POST", ..get(&pairs) },
                format!("POST /a?b HTTP/1.1\r\nHost: a:81\r\nTransfer-Encoding: chunked\r\n{rest}"),
            ),
            (
                Request { keeps_alive: false, ..get(&pairs) },
                format!("GET /a?b HTTP/1.1\r\nHost: a:81\r\nConnection: close\r\n{rest}"),
            ),
            (
                Request { version: Version::Http10, ..get(&pairs) },
                format!("GET /a?b HTTP/1.0\r\nHost: a:81\r\nConnection: keep-alive\r\n{rest}"),
            ),
        ];
        for (request, expected) in rows {
            assert_eq!(written(&request), Ok(expected));
        }
    }

    /// `$proxy_host` is the name of the group, which need not be one of the DNS.
    #[test]
    fn names_of_groups_are_hosts() {
        for host in ["backend", "my_app", "app-1:8080", "[::1]:80", "127.0.0.1"] {
            assert!(written(&get(&pairs(&[("Host", host)]))).is_ok(), "{host}");
        }
    }

    /// U6: an upgrade is asked for when the pairs ask for it, in HTTP/1.1.
    #[test]
    fn an_upgrade_is_asked_for_with_both_fields() {
        let both = pairs(&[("Host", "a"), ("Connection", "upgrade"), ("Upgrade", "websocket")]);
        let text = written(&get(&both)).expect("sound");
        assert!(text.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{text}");
        for without in [
            pairs(&[("Host", "a"), ("Connection", "upgrade")]),
            pairs(&[("Host", "a"), ("Upgrade", "websocket")]),
            pairs(&[("Host", "a"), ("Connection", "upgrade"), ("Upgrade", "")]),
        ] {
            let text = written(&get(&without)).expect("sound");
            assert!(!text.contains("Upgrade") && !text.contains("Connection"), "{text}");
        }
        let old = Request { version: Version::Http10, ..get(&both) };
        assert!(!written(&old).expect("sound").contains("Upgrade"));
    }

    /// RFC 9110 §10.1.4: trailers are asked for of this server, whatever else the connection is to do.
    #[test]
    fn trailers_are_asked_for_with_both_fields() {
        let asked = pairs(&[("Host", "a"), ("Te", "deflate, Trailers")]);
        let upgrade = pairs(&[
            ("Host", "a"),
            ("TE", "trailers"),
            ("Connection", "upgrade"),
            ("Upgrade", "websocket"),
        ]);
        for (request, expected) in [
            (get(&asked), "Host: a\r\nConnection: TE\r\nTE: trailers\r\n\r\n"),
            (
                Request { keeps_alive: false, ..get(&asked) },
                "Host: a\r\nConnection: close, TE\r\nTE: trailers\r\n\r\n",
            ),
            (
                get(&upgrade),
                "Host: a\r\nConnection: Upgrade, TE\r\nUpgrade: websocket\r\nTE: trailers\r\n\r\n",
            ),
            // HTTP/1.0 has neither chunks nor trailers.
            (
                Request { version: Version::Http10, ..get(&asked) },
                "Host: a\r\nConnection: keep-alive\r\n\r\n",
            ),
        ] {
            let text = written(&request).expect("sound");
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn the_configuration_may_ask_for_an_end_of_the_connection() {
        let pairs = pairs(&[("Host", "a"), ("Connection", "close")]);
        assert!(written(&get(&pairs)).expect("sound").contains("Connection: close\r\n"));
    }

    /// U3: what could be read in two ways never leaves.
    #[test]
    fn a_request_that_could_be_read_in_two_ways_is_not_sent() {
        use RequestFault as F;
        let good = pairs(&[("Host", "a")]);
        for (request, fault) in [
            (Request { method: b"", ..get(&good) }, F::Method),
            (Request { method: b"G T", ..get(&good) }, F::Method),
            (Request { method: b"CONNECT", ..get(&good) }, F::Method),
            (Request { target: b"", ..get(&good) }, F::Target),
            (Request { target: b"/a HTTP/1.1\r\nX: y", ..get(&good) }, F::Target),
            (Request { target: b"/\x7f", ..get(&good) }, F::Target),
            (Request { target: b"/a#b", ..get(&good) }, F::Target),
            (
                Request { version: Version::Http10, body: RequestBody::Unknown, ..get(&good) },
                F::LengthUnknown,
            ),
        ] {
            assert_eq!(written(&request), Err(fault));
        }
        for (bad, fault) in [
            (vec![], F::Host),
            (vec![("Host", "a"), ("host", "a")], F::Host),
            (vec![("Host", "a b")], F::Host),
            (vec![("Host", "a"), ("X", "a\r\nY: z")], F::Pair),
            (vec![("Host", "a"), ("X", "a\nb")], F::Pair),
            (vec![("Host", "a"), ("X", "a\0b")], F::Pair),
            (vec![("Host", "a"), ("X ", "b")], F::Pair),
            (vec![("Host", "a"), ("X:", "b")], F::Pair),
            (vec![("Host", "a"), ("", "b")], F::Pair),
        ] {
            let bad = pairs(&bad);
            assert_eq!(written(&get(&bad)), Err(fault), "{bad:?}");
        }
    }
}
