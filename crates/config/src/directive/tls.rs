//! TLS. Names and meanings are nginx's; what OpenSSL alone knows is mapped to what there is, or warned of.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Contexts, ENDPOINT, HTTP, HTTP_SERVER, MAIN, Row, STREAM_LEVELS, active, nothing, set, warned,
};
use crate::cipher;
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::{Pem, PemCache, Tls, TlsVersions, VerifyClient};
use crate::parse::Word;

/// nginx reckons with 4000 sessions in a megabyte.
const SESSION_BYTES: u64 = 256;
/// `builtin` without a size.
const BUILTIN_SESSIONS: usize = 20_480;

/// Where TLS of servers is configured.
const PLACES: Contexts = HTTP_SERVER.and(STREAM_LEVELS);
/// And of the native endpoint.
const ALL_PLACES: Contexts = PLACES.and(ENDPOINT);

pub(super) const ROWS: &[Row] = &[
    active(
        "ssl",
        HTTP_SERVER,
        "on|off",
        "off",
        "Encrypts the connections of the server's addresses. Deprecated, as in nginx: say `listen … ssl`",
        |l, d, s| {
            let is_on = d.flag()?;
            if is_on {
                let message = "the \"ssl\" directive is deprecated, use the \"listen … ssl\" directive instead";
                s.warn(d.node.name.span, message);
            }
            Arc::make_mut(&mut l.tls).is_on = is_on;
            Ok(())
        },
    ),
    active(
        "ssl_certificate",
        ALL_PLACES,
        "file",
        "",
        "A certificate with the chain to its authority (PEM); more than one for different kinds of keys. With variables it is read in each handshake; `data:` stands before the text itself",
        |l, d, s| {
            if !l.own.tls_lists.contains(d.row.name) {
                Arc::make_mut(&mut l.tls).uses_acme.0 = false;
            }
            let list = replace_once(l, d, |tls| &mut tls.certificates);
            if &*d.arg(0).text == b"$acme_certificate" {
                Arc::make_mut(&mut l.tls).uses_acme.0 = true;
            } else {
                list.push(pem(d, s)?);
            }
            Ok(())
        },
    )
    .repeated(),
    active(
        "ssl_certificate_key",
        ALL_PLACES,
        "file",
        "",
        "The private key of the certificate (PEM)",
        |l, d, s| {
            if !l.own.tls_lists.contains(d.row.name) {
                Arc::make_mut(&mut l.tls).uses_acme.1 = false;
            }
            let list = replace_once(l, d, |tls| &mut tls.keys);
            if &*d.arg(0).text == b"$acme_certificate_key" {
                Arc::make_mut(&mut l.tls).uses_acme.1 = true;
            } else {
                list.push(pem(d, s)?);
            }
            Ok(())
        },
    )
    .repeated(),
    active(
        "ssl_certificate_cache",
        PLACES,
        "off|max=number [inactive=time] [valid=time]",
        "off",
        "Keeps certificates and keys that variables choose in memory, so many of them",
        |l, d, _| {
            let cache = pem_cache(d)?;
            Arc::make_mut(&mut l.tls).certificate_cache = cache;
            Ok(())
        },
    ),
    active(
        "ssl_password_file",
        ALL_PLACES,
        "file",
        "",
        "Passwords of encrypted keys, one in a line",
        |l, d, s| {
            Arc::make_mut(&mut l.tls).password_file = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_protocols",
        ALL_PLACES,
        "version ...",
        "TLSv1.2 TLSv1.3",
        "The supported versions: `TLSv1.2`, `TLSv1.3`; older ones are not supported",
        protocols,
    ),
    active(
        "ssl_ciphers",
        ALL_PLACES,
        "ciphers",
        "HIGH:!aNULL:!MD5",
        "The cipher suites of TLS 1.2, as OpenSSL writes them",
        ciphers,
    ),
    active(
        "ssl_conf_command",
        ALL_PLACES,
        "name value",
        "",
        "`Ciphersuites`: those of TLS 1.3; other commands of OpenSSL are not supported",
        conf_command,
    )
    .repeated(),
    active(
        "ssl_ecdh_curve",
        ALL_PLACES,
        "curve",
        "auto",
        "The groups of the key exchange, by OpenSSL's names",
        curves,
    ),
    active(
        "ssl_prefer_server_ciphers",
        ALL_PLACES,
        "on|off",
        "off",
        "Whether the server's order of cipher suites is used, and not the client's",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).prefers_own_order, d.flag()),
    ),
    active(
        "ssl_certificate_compression",
        ALL_PLACES,
        "on|off",
        "on",
        "Whether certificates are sent compressed to clients that can read that (RFC 8879)",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).compresses_certificates, d.flag()),
    ),
    active(
        "ssl_session_cache",
        ALL_PLACES,
        "off|none|builtin|shared [cache]",
        "none",
        "The cache for sessions without tickets; workers always share it",
        session_cache,
    ),
    active(
        "ssl_session_timeout",
        ALL_PLACES,
        "time",
        "5m",
        "How long a session can be resumed",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).session_timeout, d.time(0)),
    ),
    active(
        "ssl_session_tickets",
        ALL_PLACES,
        "on|off",
        "on",
        "Whether session tickets are used",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).tickets, d.flag()),
    ),
    active(
        "ssl_session_ticket_store",
        HTTP,
        "url",
        "",
        "Where servers share the keys of tickets (ours), a Redis or Valkey as for `limit_req_zone`: a session is resumed with any of them",
        nothing,
    ),
    active(
        "ssl_session_ticket_key",
        ALL_PLACES,
        "file",
        "",
        "A key for tickets (48 or 80 random bytes), shared by several servers; the first one encrypts",
        |l, d, s| {
            let path = s.path_beside_main(&d.arg(0).text);
            replace_once(l, d, |tls| &mut tls.ticket_keys).push(path);
            Ok(())
        },
    )
    .repeated(),
    active(
        "ssl_verify_client",
        ALL_PLACES,
        "on|off|optional|optional_no_ca",
        "off",
        "Whether clients are asked for a certificate",
        |l, d, _| {
            Arc::make_mut(&mut l.tls).verify = match &*d.arg(0).text {
                b"on" => VerifyClient::On,
                b"off" => VerifyClient::Off,
                b"optional" => VerifyClient::Optional,
                b"optional_no_ca" => VerifyClient::OptionalNoCa,
                _ => {
                    return Err(d.invalid(d.arg(0), "must be on, off, optional or optional_no_ca"));
                }
            };
            Ok(())
        },
    ),
    active(
        "ssl_verify_depth",
        ALL_PLACES,
        "number",
        "1",
        "The maximum number of authorities between a client's certificate and a trusted one",
        |l, d, _| {
            let depth = d.number(0)?;
            let depth = u32::try_from(depth).map_err(|_| d.invalid(d.arg(0), "is too large"))?;
            Arc::make_mut(&mut l.tls).verify_depth = depth;
            Ok(())
        },
    ),
    active(
        "ssl_client_certificate",
        ALL_PLACES,
        "file",
        "",
        "The authorities of client certificates (PEM); their names are sent to clients",
        |l, d, s| {
            Arc::make_mut(&mut l.tls).client_certificate = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_trusted_certificate",
        ALL_PLACES,
        "file",
        "",
        "The authorities of client certificates (PEM); their names are not sent",
        |l, d, s| {
            Arc::make_mut(&mut l.tls).trusted_certificate = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_crl",
        ALL_PLACES,
        "file",
        "",
        "Revoked certificates of clients (PEM)",
        |l, d, s| {
            Arc::make_mut(&mut l.tls).crl = Some(s.path_beside_main(&d.arg(0).text));
            Ok(())
        },
    ),
    active(
        "ssl_reject_handshake",
        PLACES,
        "on|off",
        "off",
        "Refuses every handshake of this server: for names that no other server has",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).rejects, d.flag()),
    ),
    active(
        "ssl_buffer_size",
        ALL_PLACES,
        "size",
        "16k",
        "The maximum size of a TLS record",
        |l, d, _| {
            // The format allows no more, and rustls no less.
            let size = d.small_size(0)?.clamp(512, 16 << 10);
            Arc::make_mut(&mut l.tls).record_bytes = size;
            Ok(())
        },
    ),
    active(
        "ssl_alpn",
        STREAM_LEVELS,
        "protocol ...",
        "",
        "The protocols that a client may choose from (ALPN), the preferred one first; a client that wants others is refused",
        |l, d, _| {
            let names: Result<Vec<String>, Fault> =
                d.args().iter().map(|word| Ok(d.text(word)?.to_owned())).collect();
            let names = names?;
            if let Some(at) = names.iter().position(|it| !(1..=255).contains(&it.len())) {
                return Err(d.invalid(d.arg(at), "must have from 1 to 255 bytes"));
            }
            Arc::make_mut(&mut l.tls).alpn = names;
            Ok(())
        },
    ),
    active(
        "ssl_early_data",
        HTTP_SERVER,
        "on|off",
        "off",
        "Takes requests that come with the first bytes of a resumed TLS 1.3 session; such a session is resumed once",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).early_data, d.flag()),
    ),
    active(
        "ssl_stapling",
        PLACES,
        "on|off",
        "off",
        "Sends an OCSP response with the certificate, fetched from the responder that the certificate names",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).stapling.is_on, d.flag()),
    ),
    active(
        "ssl_stapling_file",
        PLACES,
        "file",
        "",
        "The OCSP response (DER) that `ssl_stapling` sends; nobody is asked then",
        |l, d, s| {
            let path = s.path_beside_main(&d.arg(0).text);
            Arc::make_mut(&mut l.tls).stapling.file = Some(path);
            Ok(())
        },
    ),
    active(
        "ssl_stapling_responder",
        PLACES,
        "url",
        "",
        "The OCSP responder that is asked in place of the one that the certificate names; `http://` only",
        |l, d, _| {
            let url = d.text(d.arg(0))?;
            if !url.starts_with("http://") {
                return Err(d.invalid(d.arg(0), "must begin with \"http://\""));
            }
            Arc::make_mut(&mut l.tls).stapling.responder = Some(url.to_owned());
            Ok(())
        },
    ),
    active(
        "ssl_stapling_verify",
        PLACES,
        "on|off",
        "off",
        "Sends only OCSP responses that are signed by the issuer of the certificate or by one that it has authorized",
        |l, d, _| set(&mut Arc::make_mut(&mut l.tls).stapling.verifies, d.flag()),
    ),
    warned("ssl_dhparam", PLACES, "file", "Key exchange over finite fields is not supported"),
    warned("ssl_engine", MAIN, "device", "Not supported: keys are read from files"),
];

/// A file beside the main one, a text, or what variables say. Keys that OpenSSL gets from elsewhere are not supported.
pub(super) fn pem(d: &Directive<'_>, scope: &Scope<'_>) -> Result<Pem, Fault> {
    let word = d.arg(0);
    if [&b"engine:"[..], b"store:"].iter().any(|it| word.text.starts_with(it)) {
        return Err(d.not_built(word));
    }
    let folder = scope.path_beside_main(b"");
    if word.text.contains(&b'$') {
        return Ok(Pem::Computed { value: d.template(word, scope)?, folder });
    }
    Ok(Pem::of_value(&word.text, &folder))
}

/// `off|max=number [inactive=time] [valid=time]`
pub(super) fn pem_cache(d: &Directive<'_>) -> Result<Option<PemCache>, Fault> {
    let mut cache =
        PemCache { max: 0, inactive: Duration::from_secs(10), valid: Duration::from_mins(1) };
    for word in d.args() {
        let text = d.text(word)?;
        let time = |text| crate::value::time(text).map_err(|wrong| d.invalid(word, wrong));
        match text.split_once('=') {
            None if text == "off" && d.args().len() == 1 => return Ok(None),
            Some(("max", text)) => {
                let max = crate::value::number(text).map_err(|wrong| d.invalid(word, wrong))?;
                cache.max = max.min(1 << 16) as usize;
            }
            Some(("inactive", text)) => cache.inactive = time(text)?,
            Some(("valid", text)) => cache.valid = time(text)?,
            _ => {
                let message = format!("invalid parameter \"{}\"", word.shown());
                return Err(Fault::at(word, message));
            }
        }
    }
    if cache.max == 0 {
        let message = format!("\"{}\" must have the \"max\" parameter", d.row.name);
        return Err(Fault::new(message));
    }
    Ok(Some(cache))
}

/// A list whose first entry at a level replaces the inherited list.
fn replace_once<'l, T>(
    level: &'l mut Level,
    d: &Directive<'_>,
    list: fn(&mut Tls) -> &mut Vec<T>,
) -> &'l mut Vec<T> {
    let is_first = level.own.tls_lists.insert(d.row.name);
    let list = list(Arc::make_mut(&mut level.tls));
    if is_first {
        list.clear();
    }
    list
}

fn protocols(level: &mut Level, d: &Directive<'_>, scope: &mut Scope<'_>) -> Result<(), Fault> {
    let mut versions = TlsVersions { tls12: false, tls13: false };
    let mut old: Option<&Word> = None;
    for word in d.args() {
        match &*word.text {
            b"TLSv1.2" => versions.tls12 = true,
            b"TLSv1.3" => versions.tls13 = true,
            b"SSLv2" | b"SSLv3" | b"TLSv1" | b"TLSv1.1" => old = Some(word),
            _ => return Err(d.invalid(word, "is not a version of TLS")),
        }
    }
    if let Some(word) = old {
        if !versions.tls12 && !versions.tls13 {
            return Err(d
                .invalid(word, "is not supported")
                .help("use TLSv1.2 and TLSv1.3".to_owned()));
        }
        scope.warn(word.span, format!("\"{}\" is ignored: it is not supported", word.shown()));
    }
    Arc::make_mut(&mut level.tls).versions = versions;
    Ok(())
}

fn ciphers(level: &mut Level, d: &Directive<'_>, scope: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let chosen = cipher::tls12(d.text(word)?);
    if !chosen.unknown.is_empty() {
        let names = chosen.unknown.join(", ");
        scope.warn(word.span, format!("unsupported cipher suites are ignored: {names}"));
    }
    if chosen.suites.is_empty() {
        scope.warn(word.span, "no cipher suite of TLS 1.2 is left: only TLS 1.3 is supported");
    }
    Arc::make_mut(&mut level.tls).ciphers = Some(chosen.suites);
    Ok(())
}

fn conf_command(level: &mut Level, d: &Directive<'_>, scope: &mut Scope<'_>) -> Result<(), Fault> {
    let (name, value) = (d.arg(0), d.arg(1));
    if !name.text.eq_ignore_ascii_case(b"Ciphersuites") {
        if name.text.eq_ignore_ascii_case(b"Options") {
            scope.warn(name.span, "\"Options\" of OpenSSL are ignored");
            return Ok(());
        }
        return Err(d.not_built(name));
    }
    let chosen = cipher::tls13(d.text(value)?);
    if !chosen.unknown.is_empty() {
        let names = chosen.unknown.join(", ");
        scope.warn(value.span, format!("unsupported cipher suites are ignored: {names}"));
    }
    if chosen.suites.is_empty() {
        return Err(d.invalid(value, "has no cipher suite of TLS 1.3"));
    }
    Arc::make_mut(&mut level.tls).suites = Some(chosen.suites);
    Ok(())
}

fn curves(level: &mut Level, d: &Directive<'_>, scope: &mut Scope<'_>) -> Result<(), Fault> {
    let word = d.arg(0);
    let groups = if &*word.text == b"auto" {
        None
    } else {
        let chosen = cipher::groups(d.text(word)?);
        if !chosen.unknown.is_empty() {
            let names = chosen.unknown.join(", ");
            scope.warn(word.span, format!("unsupported groups are ignored: {names}"));
        }
        if chosen.suites.is_empty() {
            return Err(d.invalid(word, "has no supported group"));
        }
        Some(chosen.suites)
    };
    Arc::make_mut(&mut level.tls).groups = groups;
    Ok(())
}

fn session_cache(level: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let mut sessions = 0;
    for word in d.args() {
        let text = d.text(word)?;
        let found = match text.split(':').collect::<Vec<_>>().as_slice() {
            ["off" | "none"] => 0,
            ["builtin"] => BUILTIN_SESSIONS,
            ["builtin", count] => {
                crate::value::number(count).map_err(|wrong| d.invalid(word, wrong))? as usize
            }
            ["shared", name, size] if !name.is_empty() => {
                let size = crate::value::size(size).map_err(|wrong| d.invalid(word, wrong))?;
                (size / SESSION_BYTES) as usize
            }
            _ => {
                return Err(
                    d.invalid(word, "must be off, none, builtin[:count] or shared:name:size")
                );
            }
        };
        sessions = sessions.max(found);
    }
    Arc::make_mut(&mut level.tls).sessions_max = sessions;
    Ok(())
}
