//! TLS to servers: `proxy_ssl_*`, `uwsgi_ssl_*` and `grpc_ssl_*`, by one description.

use std::sync::Arc;

use super::{Contexts, LEVELS, Row, STREAM_LEVELS, active, set, silent};
use crate::level::Fault;
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
                |l, d, _| {
                    let word = d.arg(0);
                    if word.text.contains(&b'$') {
                        let name = d.row.name;
                        let message = format!("variables in \"{name}\" are not supported yet");
                        return Err(Fault::at(word, message));
                    }
                    Arc::make_mut(&mut l.forward($family).tls).name = Some(Arc::from(&*word.text));
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
                "The client certificate for servers",
                |l, d, s| {
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).certificate = Some(path);
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
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).key = Some(path);
                    Ok(())
                },
            ),
            active(
                concat!($prefix, "_ssl_password_file"),
                $places,
                "file",
                "",
                "Passwords for an encrypted key, one in a line",
                |l, d, s| {
                    let path = s.path_beside_main(&d.arg(0).text);
                    Arc::make_mut(&mut l.forward($family).tls).password_file = Some(path);
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
