//! TLS to servers: `proxy_ssl_*`, `uwsgi_ssl_*` and `grpc_ssl_*`, by one description.

use std::sync::Arc;

use super::tls::{pem, pem_cache};
use super::{Contexts, LEVELS, Row, STREAM_LEVELS, active, set, silent};
use crate::model::Family;

macro_rules! rows {
    ($prefix:literal, $family:expr, $places:expr) => {
        &[
            active(
                concat!($prefix, "_ssl_server_name"),
                $places,
                "on|off",
                "off",
                "Whether the name of the server is sent in the handshake (SNI)",
                |l, d, _| set(&mut Arc::make_mut(&mut l.forward($family).tls).sends_name, d.flag()),
            ),
            active(
                concat!($prefix, "_ssl_name"),
                $places,
                "name",
                "",
                "The name that the certificate of a server must have; that of the address where it is not said",
                |l, d, s| {
                    let name = d.template(d.arg(0), s)?;
                    Arc::make_mut(&mut l.forward($family).tls).name = Some(name);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_verify"),
                $places,
                "on|off",
                "off",
                "Whether the certificate of a server is verified",
                |l, d, _| set(&mut Arc::make_mut(&mut l.forward($family).tls).verify, d.flag()),
            ),
            active(
                concat!($prefix, "_ssl_trusted_certificate"),
                $places,
                "file",
                "",
                "The certificates of trusted authorities",
                |l, d, s| {
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).trusted = Some(path);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_certificate"),
                $places,
                "file",
                "",
                "The client certificate for servers; with variables it is read for each connection",
                |l, d, s| {
                    let pem = if d.arg(0).text.is_empty() { None } else { Some(pem(d, s)?) };
                    Arc::make_mut(&mut l.forward($family).tls).certificate = pem;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_certificate_key"),
                $places,
                "file",
                "",
                "The key of that certificate",
                |l, d, s| {
                    let pem = if d.arg(0).text.is_empty() { None } else { Some(pem(d, s)?) };
                    Arc::make_mut(&mut l.forward($family).tls).key = pem;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_certificate_cache"),
                $places,
                "off|max=number [inactive=time] [valid=time]",
                "off",
                "Keeps client certificates and keys that variables choose in memory, so many of them",
                |l, d, _| {
                    let cache = pem_cache(d)?;
                    Arc::make_mut(&mut l.forward($family).tls).certificate_cache = cache;
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_password_file"),
                $places,
                "file",
                "",
                "Passwords of an encrypted key, one in a line",
                |l, d, s| {
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).password_file = Some(path);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_crl"),
                $places,
                "file",
                "",
                "Lists of revoked certificates (PEM)",
                |l, d, s| {
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).crl = Some(path);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_session_reuse"),
                $places,
                "on|off",
                "on",
                "Whether TLS sessions with servers are resumed",
                |l, d, _| {
                    set(&mut Arc::make_mut(&mut l.forward($family).tls).reuses_sessions, d.flag())
                },
            ),
            silent(concat!($prefix, "_ssl_protocols"), $places, "version ...", "TLS 1.2 and 1.3 are supported"),
            silent(concat!($prefix, "_ssl_ciphers"), $places, "ciphers", "Only secure cipher suites are used"),
            silent(concat!($prefix, "_ssl_verify_depth"), $places, "number", "The length of chains is not limited"),
            silent(concat!($prefix, "_ssl_conf_command"), $places, "name value", "OpenSSL is not used"),
        ]
    };
}

/// Sessions of `stream` are passed on by TLS as requests are.
const PLACES: Contexts = LEVELS.and(STREAM_LEVELS);

pub(super) const PROXY: &[Row] = rows!("proxy", Family::Proxy, PLACES);
pub(super) const UWSGI: &[Row] = rows!("uwsgi", Family::Uwsgi, LEVELS);
pub(super) const GRPC: &[Row] = rows!("grpc", Family::Grpc, LEVELS);
