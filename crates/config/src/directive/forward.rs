//! What the directives of `proxy_*`, `fastcgi_*`, `scgi_*`, `uwsgi_*` and `grpc_*` have in common: one row for each of them
//! in each family, by one description.

use std::sync::Arc;

use super::{LEVELS, Row, active, set, silent, temp_folder};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Destination, Family, Forward, LocationMatch, PassTo, UpstreamPlace};
use crate::parse::Word;
use sekisho_upstream::cache::Ignored;
use sekisho_upstream::fields::IgnoredAccel;
use sekisho_upstream::retry::{Condition, NextUpstream};

/// What all of them have.
macro_rules! servers {
    ($prefix:literal, $family:expr) => {
        &[
            active(
                concat!($prefix, "_connect_timeout"),
                LEVELS,
                "time|off",
                "60s",
                "How long connecting to a server may take (504)",
                |l, d, _| set(&mut l.forward($family).connect_timeout, d.deadline(0)),
            ),
            active(
                concat!($prefix, "_send_timeout"),
                LEVELS,
                "time|off",
                "60s",
                "How long a server may read nothing of a request (504)",
                |l, d, _| set(&mut l.forward($family).send_timeout, d.deadline(0)),
            ),
            active(
                concat!($prefix, "_read_timeout"),
                LEVELS,
                "time|off",
                "60s",
                "How long a server may be silent (504)",
                |l, d, _| set(&mut l.forward($family).read_timeout, d.deadline(0)),
            ),
            active(
                concat!($prefix, "_next_upstream"),
                LEVELS,
                "condition ...",
                "error timeout",
                "When the request is passed to the next server: `error`, `timeout`, `invalid_header`, `http_500` …, `non_idempotent`, `off`",
                |l, d, _| next_upstream(l.forward($family), d),
            ),
            active(
                concat!($prefix, "_next_upstream_tries"),
                LEVELS,
                "number",
                "0",
                "How many servers are tried; 0 for all",
                |l, d, _| {
                    let tries = d.number(0)?;
                    l.forward($family).next_upstream.tries = u32::try_from(tries).unwrap_or(u32::MAX);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_next_upstream_timeout"),
                LEVELS,
                "time|off",
                "0",
                "How long other servers are tried; 0 for no limit",
                |l, d, _| set(&mut l.forward($family).next_upstream.timeout, d.deadline(0)),
            ),
            active(
                concat!($prefix, "_buffer_size"),
                LEVELS,
                "size",
                "4k",
                "How large the head of an answer may be",
                |l, d, _| set(&mut l.forward($family).buffer_size, d.small_size(0)),
            ),
            active(
                concat!($prefix, "_intercept_errors"),
                LEVELS,
                "on|off",
                "off",
                "Whether `error_page` applies to errors of the server, too",
                |l, d, _| set(&mut l.forward($family).intercept_errors, d.flag()),
            ),
            active(
                concat!($prefix, "_hide_header"),
                LEVELS,
                "field",
                "",
                "A field of answers that is not passed to clients, in addition to `Date`, `Server`, `X-Pad` and `X-Accel-…`",
                |l, d, _| {
                    let is_first = d.is_first_of(l);
                    let visible = Arc::make_mut(&mut l.forward($family).visible);
                    list(&mut visible.hidden, is_first, d)
                },
            )
            .repeated(),
            active(
                concat!($prefix, "_pass_header"),
                LEVELS,
                "field",
                "",
                "A field of answers that is passed to clients although it is hidden by default",
                |l, d, _| {
                    let is_first = d.is_first_of(l);
                    let visible = Arc::make_mut(&mut l.forward($family).visible);
                    list(&mut visible.passed, is_first, d)
                },
            )
            .repeated(),
            active(
                concat!($prefix, "_ignore_headers"),
                LEVELS,
                "field ...",
                "",
                "Fields of answers that are ignored: `X-Accel-Redirect`, `X-Accel-Limit-Rate`, `X-Accel-Buffering`, …",
                |l, d, _| ignore(l, $family, d),
            )
            .repeated(),
            active(
                concat!($prefix, "_bind"),
                LEVELS,
                "address|off [transparent]",
                "",
                "The local address of connections to servers; `transparent` is not supported yet",
                |l, d, s| set(&mut l.forward($family).bind, bind(d, s)),
            ),
            active(
                concat!($prefix, "_socket_keepalive"),
                LEVELS,
                "on|off",
                "off",
                "Whether TCP keep-alive is used for connections to servers (SO_KEEPALIVE)",
                |l, d, _| set(&mut l.forward($family).socket_keepalive, d.flag()),
            ),
        ]
    };
}

/// What those have that buffer requests and answers: all but gRPC.
macro_rules! buffers {
    ($prefix:literal, $family:expr) => {
        &[
            active(
                concat!($prefix, "_buffering"),
                LEVELS,
                "on|off",
                "on",
                "Whether an answer is read as fast as the server sends it, and buffered for a slow client",
                |l, d, _| set(&mut l.forward($family).buffering, d.flag()),
            ),
            active(
                concat!($prefix, "_buffers"),
                LEVELS,
                "number size",
                "8 4k",
                "How much of an answer is buffered in memory for a slow client",
                |l, d, _| {
                    let bytes = d.count(0)?.saturating_mul(d.small_size(1)?);
                    l.forward($family).buffers_bytes = bytes.min(1 << 30);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_max_temp_file_size"),
                LEVELS,
                "size",
                "1024m",
                "How much of an answer is buffered on the disk; 0 for none",
                |l, d, _| set(&mut l.forward($family).temp_file_bytes_max, d.size(0)),
            ),
            active(
                concat!($prefix, "_request_buffering"),
                LEVELS,
                "on|off",
                "on",
                "Whether the request body is read completely before it is passed on",
                |l, d, _| set(&mut l.forward($family).request_buffering, d.flag()),
            ),
            active(
                concat!($prefix, "_ignore_client_abort"),
                LEVELS,
                "on|off",
                "off",
                "Whether a passed request continues when its client disconnects",
                |l, d, _| set(&mut l.forward($family).ignore_client_abort, d.flag()),
            ),
            active(
                concat!($prefix, "_pass_request_headers"),
                LEVELS,
                "on|off",
                "on",
                "Whether the fields of a request are passed on",
                |l, d, _| set(&mut l.forward($family).pass_request_headers, d.flag()),
            ),
            active(
                concat!($prefix, "_pass_request_body"),
                LEVELS,
                "on|off",
                "on",
                "Whether the body of a request is passed on",
                |l, d, _| set(&mut l.forward($family).pass_request_body, d.flag()),
            ),
            active(
                concat!($prefix, "_force_ranges"),
                LEVELS,
                "on|off",
                "off",
                "Whether ranges are served whatever `Accept-Ranges` of the server says",
                |l, d, _| set(&mut l.forward($family).force_ranges, d.flag()),
            ),
            active(
                concat!($prefix, "_limit_rate"),
                LEVELS,
                "rate",
                "0",
                "The rate in bytes per second at which an answer is read; 0 for no limit",
                |l, d, _| set(&mut l.forward($family).read_rate, d.size(0)),
            ),
            silent(
                concat!($prefix, "_busy_buffers_size"),
                LEVELS,
                "size",
                "Buffers are passed on as they are filled",
            ),
            silent(
                concat!($prefix, "_temp_file_write_size"),
                LEVELS,
                "size",
                "The server chooses the size of writes",
            ),
            silent(
                concat!($prefix, "_read_ahead"),
                LEVELS,
                "size",
                "The server chooses the size of reads",
            ),
            active(
                concat!($prefix, "_temp_path"),
                LEVELS,
                "path [level1] [level2] [level3]",
                "",
                "The folder for buffered responses that do not fit in memory, created at the start if it is missing; they are files without a name. The default is the same as nginx's where that folder exists or the prefix was given (`-p`), else TMPDIR. Levels of folders are not needed",
                |l, d, s| {
                    l.forward($family).temp_path = Some(temp_folder(d, s));
                    Ok(())
                },
            ),
            silent(
                concat!($prefix, "_send_lowat"),
                LEVELS,
                "size",
                "The kernel decides about sending",
            ),
        ]
    };
}

pub(super) const PROXY: &[Row] = servers!("proxy", Family::Proxy);
pub(super) const FASTCGI: &[Row] = servers!("fastcgi", Family::FastCgi);
pub(super) const SCGI: &[Row] = servers!("scgi", Family::Scgi);
pub(super) const UWSGI: &[Row] = servers!("uwsgi", Family::Uwsgi);
pub(super) const GRPC: &[Row] = servers!("grpc", Family::Grpc);
pub(super) const PROXY_BUFFERS: &[Row] = buffers!("proxy", Family::Proxy);
pub(super) const FASTCGI_BUFFERS: &[Row] = buffers!("fastcgi", Family::FastCgi);
pub(super) const SCGI_BUFFERS: &[Row] = buffers!("scgi", Family::Scgi);
pub(super) const UWSGI_BUFFERS: &[Row] = buffers!("uwsgi", Family::Uwsgi);

fn next_upstream(forward: &mut Forward, d: &Directive<'_>) -> Result<(), Fault> {
    let mut conditions = Vec::new();
    let mut retries_non_idempotent = false;
    let mut is_off = false;
    for word in d.args() {
        let found = Condition::ALL.iter().find(|one| one.name().as_bytes() == &*word.text);
        match (&*word.text, found) {
            (_, Some(condition)) => conditions.push(*condition),
            (b"non_idempotent", None) => retries_non_idempotent = true,
            (b"off", None) => is_off = true,
            // Only a cache has a use for it.
            (b"updating", None) => {}
            _ => return Err(Fault::at(word, format!("invalid value \"{}\"", word.shown()))),
        }
    }
    if is_off {
        conditions.clear();
    }
    let NextUpstream { tries, timeout, .. } = forward.next_upstream;
    let mut next = NextUpstream::new(conditions);
    next.retries_non_idempotent = retries_non_idempotent;
    (next.tries, next.timeout) = (tries, timeout);
    forward.next_upstream = next;
    Ok(())
}

fn list(names: &mut Vec<Box<str>>, is_first: bool, d: &Directive<'_>) -> Result<(), Fault> {
    if is_first {
        names.clear();
    }
    names.push(d.text(d.arg(0))?.into());
    Ok(())
}

fn ignore(l: &mut Level, family: Family, d: &Directive<'_>) -> Result<(), Fault> {
    // Several of them at one level are one list.
    let (mut accel, mut cache) = if d.is_first_of(l) {
        (IgnoredAccel::default(), Ignored::default())
    } else {
        (l.forward(family).ignored, super::cache::rules(l, family).ignored)
    };
    for word in d.args() {
        match d.text(word)?.to_ascii_lowercase().as_str() {
            "x-accel-redirect" => accel.redirect = true,
            "x-accel-limit-rate" => accel.limit_rate = true,
            "x-accel-buffering" => accel.buffering = true,
            "x-accel-charset" => accel.charset = true,
            "x-accel-expires" => cache.accel_expires = true,
            "expires" => cache.expires = true,
            "cache-control" => cache.cache_control = true,
            "set-cookie" => cache.set_cookie = true,
            "vary" => cache.vary = true,
            _ => return Err(Fault::at(word, format!("invalid value \"{}\"", word.shown()))),
        }
    }
    l.forward(family).ignored = accel;
    super::cache::rules(l, family).ignored = cache;
    Ok(())
}

/// `proxy_bind` and the like: the local address, `None` for `off`.
pub(super) fn bind(
    d: &Directive<'_>,
    s: &Scope<'_>,
) -> Result<Option<crate::model::Template>, Fault> {
    let word = d.arg(0);
    match d.args().get(1) {
        Some(word) if &*word.text == b"transparent" => {
            let note = "the workers have no right to use addresses that are not the machine's";
            return Err(d.not_built(word).note(note.to_owned()).help(
                "tell the server the client's address by the PROXY protocol or a field".to_owned(),
            ));
        }
        Some(word) => {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
        None if &*word.text == b"off" => return Ok(None),
        None => {}
    }
    let template = d.template(word, s)?;
    let is_address = |text: &[u8]| {
        let text = std::str::from_utf8(text).unwrap_or_default();
        text.parse::<std::net::IpAddr>().is_ok() || text.parse::<std::net::SocketAddr>().is_ok()
    };
    match template.as_literal() {
        Some(text) if !is_address(text) => Err(d.invalid(word, "is not an address")),
        _ => Ok(Some(template)),
    }
}

/// `fastcgi_pass` and the like: an address or the name of a group, or variables that say it.
pub(super) fn pass(
    l: &mut Level,
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    family: Family,
) -> Result<(), Fault> {
    let word = d.arg(0);
    only_one(l)?;
    let text = d.text(word)?;
    let to = if text.contains('$') {
        PassTo::Computed(d.template(word, s)?)
    } else {
        let (scheme, rest) = match text.split_once("://") {
            // `unix://path` is a socket and no scheme, as in nginx.
            Some((scheme, rest))
                if matches!(family, Family::Uwsgi | Family::Grpc) && scheme != "unix" =>
            {
                (scheme.to_ascii_lowercase(), rest)
            }
            _ => (String::new(), text),
        };
        let is_tls = match (family, &*scheme) {
            (_, "") | (Family::Uwsgi, "uwsgi") | (Family::Grpc, "grpc") => false,
            (Family::Uwsgi, "suwsgi") | (Family::Grpc, "grpcs") => true,
            _ => return Err(d.invalid(word, "has an unknown scheme")),
        };
        if family == Family::Grpc && !rest.starts_with("unix:") && rest.contains('/') {
            return Err(Fault::at(word, "\"grpc_pass\" cannot have URI part"));
        }
        let mut to = destination(s, word, rest, is_tls, None)?;
        if family == Family::Grpc && rest.starts_with("unix:") {
            // As nginx calls such a server.
            to.host = "localhost".into();
        }
        PassTo::Named(to)
    };
    l.pass = Some((family, to));
    Ok(())
}

pub(super) fn only_one(l: &Level) -> Result<(), Fault> {
    let own = Family::ALL.into_iter().filter(|family| l.says(pass_name(*family))).count();
    if own > 0 && l.says("service") {
        Err(Fault::new(
            "one location either passes requests to another server or has a \"service\"",
        ))
    } else if own > 1 {
        Err(Fault::new("requests are passed to another server here already"))
    } else {
        Ok(())
    }
}

const fn pass_name(family: Family) -> &'static str {
    match family {
        Family::Proxy => "proxy_pass",
        Family::FastCgi => "fastcgi_pass",
        Family::Scgi => "scgi_pass",
        Family::Uwsgi => "uwsgi_pass",
        Family::Grpc => "grpc_pass",
    }
}

/// What an address without variables means: a group of that name, or one that is made of it.
pub(super) fn destination(
    s: &mut Scope<'_>,
    word: &Word,
    address: &str,
    is_tls: bool,
    port: Option<u16>,
) -> Result<Destination, Fault> {
    let wrong = |why: &str| Fault::at(word, format!("{why} in upstream \"{address}\""));
    // Only HTTP has a port of its own.
    let place = UpstreamPlace::parse(address, port.unwrap_or(0)).map_err(wrong)?;
    let group = s.upstream(address, &place, word, port.is_some())?;
    let port = match &place {
        UpstreamPlace::Tcp(_, port) => *port,
        UpstreamPlace::Unix(_) => port.unwrap_or_default(),
    };
    Ok(Destination { group, is_tls, host: address.into(), port, uri: None })
}

/// Whether a `proxy_pass` may have a URI here.
pub(super) fn may_have_uri(l: &Level) -> bool {
    let is_plain = matches!(l.matches, LocationMatch::Exact(_) | LocationMatch::Prefix { .. });
    is_plain && l.context == super::Context::Location
}

#[cfg(test)]
mod tests {
    use crate::model::{Config, PassTo};
    use crate::source::Memory;
    use crate::{Options, load};

    fn loaded(location: &str) -> Result<Config, String> {
        let text = format!("http {{ server {{ listen 80; location / {{ {location} }} }} }}");
        let outcome =
            load("/c.conf".as_ref(), &Options::new("/"), &Memory::of("/c.conf", text.as_str()));
        let said: String = outcome.reports.iter().map(|report| report.render(false)).collect();
        outcome.config.ok_or(said)
    }

    #[test]
    fn grpc_pass_names_a_server_and_nothing_else() {
        for (address, host, is_tls) in [
            ("127.0.0.1:9", "127.0.0.1:9", false),
            ("grpc://127.0.0.1:9", "127.0.0.1:9", false),
            ("GRPCS://127.0.0.1:9", "127.0.0.1:9", true),
            ("grpc://unix:/run/x.sock", "localhost", false),
        ] {
            let config = loaded(&format!("grpc_pass {address};")).expect("sound");
            let passes =
                config.http.locations.iter().find_map(|location| location.settings.pass.as_ref());
            let pass = passes.expect("it passes");
            let PassTo::Named(to) = &pass.to else { panic!("{address} has no variables") };
            assert_eq!((&*to.host, to.is_tls), (host, is_tls), "{address}");
            let forward = &pass.forward;
            assert!(forward.is_http2() && forward.pass_trailers && !forward.request_buffering);
            assert!(forward.pass_request_headers && forward.pass_request_body);
        }
        for (location, expected) in [
            ("grpc_pass http://127.0.0.1:9;", "has an unknown scheme"),
            ("grpc_pass 127.0.0.1:9/x;", "cannot have URI part"),
            ("grpc_pass 127.0.0.1;", "no port in upstream"),
            (
                "grpc_pass 127.0.0.1:9; proxy_pass http://127.0.0.1:9;",
                "passed to another server here",
            ),
            ("grpc_buffering on;", "unknown directive"),
            ("proxy_http_version 3;", "must be \"1.0\", \"1.1\" or \"2\""),
        ] {
            let said = loaded(location).expect_err(location);
            assert!(said.contains(expected), "{location}: {said}");
        }
    }
}
