//! `proxy_pass`, `grpc_pass`: requests are passed on by HTTP; what is changed in them and in their answers.

use std::sync::Arc;

use sekisho_http::Version;
use sekisho_upstream::rewrite::CookieFlags;

use super::forward::{destination, may_have_uri, only_one, pass};
use super::{LEVELS, PASSES, Row, active, set, silent};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{CookieName, CookieRule, Family, Forward, PassTo, Rename};
use crate::names::regex_of;
use crate::parse::Word;
use crate::report::Report;

pub(super) const ROWS: &[Row] = &[
    active(
        "proxy_pass",
        PASSES,
        "url",
        "",
        "Passes requests to another server or group by HTTP; a URI in it replaces the path of the location",
        proxy_pass,
    ),
    active(
        "proxy_http_version",
        LEVELS,
        "1.0|1.1|2",
        "1.1",
        "The HTTP version of requests to servers",
        |l, d, _| {
            l.forward(Family::Proxy).http_version = match &*d.arg(0).text {
                b"1.0" => Version::Http10,
                b"1.1" => Version::Http11,
                b"2" | b"2.0" => Version::Http2,
                _ => return Err(d.invalid(d.arg(0), "must be \"1.0\", \"1.1\" or \"2\"")),
            };
            Ok(())
        },
    ),
    active(
        "proxy_set_header",
        LEVELS,
        "field value",
        "",
        SET_HEADER,
        |l, d, s| set_header(l, d, s, Family::Proxy),
    )
    .repeated(),
    active(
        "proxy_pass_trailers",
        LEVELS,
        "on|off",
        "off",
        "Whether fields that follow the body of an answer are passed to clients; over HTTP/1.1 a server sends them only if `proxy_set_header TE trailers` asks for them",
        |l, d, _| set(&mut l.forward(Family::Proxy).pass_trailers, d.flag()),
    ),
    active(
        "proxy_method",
        LEVELS,
        "method",
        "",
        "The method of passed requests, in place of the client's",
        |l, d, s| {
            l.forward(Family::Proxy).method = Some(d.template(d.arg(0), s)?);
            Ok(())
        },
    ),
    active(
        "proxy_set_body",
        LEVELS,
        "value",
        "",
        "The body of passed requests, in place of the client's",
        |l, d, s| {
            l.forward(Family::Proxy).set_body = Some(d.template(d.arg(0), s)?);
            Ok(())
        },
    ),
    active(
        "proxy_redirect",
        LEVELS,
        "default|off|from [to]",
        "default",
        "What `Location` and `Refresh` of an answer become: `default`, a beginning and its replacement, or `~` an expression and a value",
        redirect,
    )
    .repeated(),
    active(
        "proxy_cookie_domain",
        LEVELS,
        "off|domain [replacement]",
        "",
        "What the `Domain` of a cookie becomes",
        |l, d, s| {
            let rename = renamed(d, s, b".")?;
            rename_list(l, d, |forward| &mut forward.cookie_domains, rename);
            Ok(())
        },
    )
    .repeated(),
    active(
        "proxy_cookie_path",
        LEVELS,
        "off|path [replacement]",
        "",
        "What the `Path` of a cookie becomes",
        |l, d, s| {
            let rename = renamed(d, s, b"")?;
            rename_list(l, d, |forward| &mut forward.cookie_paths, rename);
            Ok(())
        },
    )
    .repeated(),
    active(
        "proxy_cookie_flags",
        LEVELS,
        "off|cookie [flag] ...",
        "",
        "Flags that are added to cookies: `secure`, `httponly`, `samesite=…`, or removed with `no` before the name",
        cookie_flags,
    )
    .repeated(),
    silent("proxy_headers_hash_max_size", LEVELS, "size", "Tables grow as needed"),
    silent("proxy_headers_hash_bucket_size", LEVELS, "size", "Tables grow as needed"),
];

pub(super) const GRPC: &[Row] = &[
    active(
        "grpc_pass",
        PASSES,
        "address",
        "",
        "Passes requests to a gRPC server or group by HTTP/2: host and port, or `unix:` and a path, with `grpc://` or `grpcs://` before it",
        |l, d, s| pass(l, d, s, Family::Grpc),
    ),
    active("grpc_set_header", LEVELS, "field value", "", SET_HEADER, |l, d, s| {
        set_header(l, d, s, Family::Grpc)
    })
    .repeated(),
    silent("grpc_headers_hash_max_size", LEVELS, "size", "Tables grow as needed"),
    silent("grpc_headers_hash_bucket_size", LEVELS, "size", "Tables grow as needed"),
];

const SET_HEADER: &str =
    "A field of passed requests that replaces the client's; an empty value removes it";

fn set_header(
    l: &mut Level,
    d: &Directive<'_>,
    s: &mut Scope<'_>,
    family: Family,
) -> Result<(), Fault> {
    let name: Box<str> = d.text(d.arg(0))?.into();
    let value = d.template(d.arg(1), s)?;
    let is_first = d.is_first_of(l);
    let headers = &mut l.forward(family).set_headers;
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    // A request has one `Host`. Debian's `proxy_params` sets it, and many recipes set it again.
    if is_host(&name) && !is_first && headers.iter().any(|(name, _)| is_host(name)) {
        let message = "Host is set a second time: this value counts";
        s.reports.push(Report::warning(s.files, d.arg(0).span, message));
        *headers = headers.iter().filter(|(name, _)| !is_host(name)).cloned().collect();
    }
    push(headers, is_first, (name, value));
    Ok(())
}

/// Adds to a list that replaces the inherited one.
fn push<T: Clone>(list: &mut Arc<[T]>, is_first: bool, value: T) {
    let before = if is_first { &[] } else { &**list };
    *list = before.iter().cloned().chain([value]).collect();
}

fn proxy_pass(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    only_one(l)?;
    let text = d.text(word)?;
    if text.contains('$') {
        l.pass = Some((Family::Proxy, PassTo::Computed(d.template(word, s)?)));
        return Ok(());
    }
    let prefix = |scheme: &str| {
        let start = text.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
    };
    let (rest, is_tls) = match (prefix("http://"), prefix("https://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => {
            return Err(Fault::at(word, "invalid URL prefix")
                .help("it begins with http:// or https://".to_owned()));
        }
    };
    let (address, uri) = split_url(rest);
    let uri: Option<Box<[u8]>> = match uri {
        "" => None,
        // As in nginx, a query alone has a slash before it.
        uri if uri.starts_with('?') => Some(format!("/{uri}").into_bytes().into()),
        uri => Some(uri.as_bytes().into()),
    };
    if uri.is_some() && !may_have_uri(l) {
        return Err(Fault::at(
            word,
            "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named location, or inside \"if\" statement, or inside \"limit_except\" block",
        ));
    }
    let port = if is_tls { 443 } else { 80 };
    let mut to = destination(s, word, address, is_tls, Some(port))?;
    if to.host.starts_with("unix:") {
        // nginx calls such a server by this name.
        to.host = "localhost".into();
    }
    to.uri = uri;
    l.pass = Some((Family::Proxy, PassTo::Named(to)));
    Ok(())
}

/// Splits the part of a URL after the scheme: the address, and what follows it. The path of a Unix socket
/// ends with a colon.
pub fn split_url(rest: &str) -> (&str, &str) {
    if let Some(path) = rest.strip_prefix("unix:") {
        return match path.find(':') {
            Some(at) => (&rest[..at + 5], &path[at + 1..]),
            None => (rest, ""),
        };
    }
    rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))
}

fn redirect(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let rename = match d.args() {
        [word] if &*word.text == b"default" => {
            let has_variables = matches!(&l.pass, Some((_, PassTo::Computed(_))));
            if has_variables && !d.is_default {
                return Err(Fault::new(
                    "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
                ));
            }
            Some(Rename::Default)
        }
        _ => renamed(d, s, b"")?,
    };
    rename_list(l, d, |forward| &mut forward.redirects, rename);
    Ok(())
}

fn rename_list(
    l: &mut Level,
    d: &Directive<'_>,
    list: fn(&mut Forward) -> &mut Arc<[Rename]>,
    rename: Option<Rename>,
) {
    let is_first = d.is_first_of(l);
    let list = list(l.forward(Family::Proxy));
    match rename {
        None => *list = Arc::default(),
        Some(rename) => push(list, is_first, rename),
    }
}

/// `off`, or a text or an expression with what takes its place. What `leading` is before a text does not count.
fn renamed(d: &Directive<'_>, s: &Scope<'_>, leading: &[u8]) -> Result<Option<Rename>, Fault> {
    match d.args() {
        [word] if &*word.text == b"off" => Ok(None),
        [from, to] => {
            let text = to.text.strip_prefix(leading).unwrap_or(&to.text);
            let to = d.template_of(to, text, s)?;
            Ok(Some(match &*from.text {
                [b'~', b'*', source @ ..] => Rename::Pattern(regex_of(from, source, true)?, to),
                [b'~', source @ ..] => {
                    // Domains have no case.
                    Rename::Pattern(regex_of(from, source, leading == b".")?, to)
                }
                text => {
                    let text = text.strip_prefix(leading).unwrap_or(text);
                    Rename::Text(d.template_of(from, text, s)?, to)
                }
            }))
        }
        words => {
            let word: &Word = words.first().unwrap_or(&d.node.name);
            Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())))
        }
    }
}

fn cookie_flags(l: &mut Level, d: &Directive<'_>, s: &mut Scope<'_>) -> Result<(), Fault> {
    let is_first = d.is_first_of(l);
    let word = d.arg(0);
    if d.args().len() == 1 {
        if &*word.text != b"off" {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
        l.forward(Family::Proxy).cookie_flags = Arc::default();
        return Ok(());
    }
    let name = match &*word.text {
        [b'~', b'*', source @ ..] | [b'~', source @ ..] => {
            CookieName::Pattern(regex_of(word, source, true)?)
        }
        _ => CookieName::Text(d.template(word, s)?),
    };
    let mut flags = CookieFlags::default();
    let mut computed = Vec::new();
    for word in &d.args()[1..] {
        if word.text.contains(&b'$') {
            computed.push(d.template(word, s)?);
        } else if !flags.add(&word.text) {
            return Err(Fault::at(word, format!("invalid parameter \"{}\"", word.shown())));
        }
    }
    let rule = CookieRule { name, flags, computed };
    push(&mut l.forward(Family::Proxy).cookie_flags, is_first, rule);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::split_url;

    #[test]
    fn a_url_is_an_address_and_what_follows() {
        for (text, expected) in [
            ("a:80", ("a:80", "")),
            ("a/b?c", ("a", "/b?c")),
            ("a?c", ("a", "?c")),
            ("unix:/run/x.sock", ("unix:/run/x.sock", "")),
            ("unix:/run/x.sock:", ("unix:/run/x.sock", "")),
            ("unix:/run/x.sock:/b", ("unix:/run/x.sock", "/b")),
        ] {
            assert_eq!(split_url(text), expected, "{text}");
        }
    }
}
