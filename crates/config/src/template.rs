//! Values with variables in them: `$name`, `${name}`, `$1`. An unknown name is an error, with a
//! suggestion.

use std::collections::{HashMap, HashSet};

use crate::model::{
    AssignedId, ConnectionState, MapId, Part, PrereadVariable, Template, TlsVariable,
    UpstreamVariable, Variable,
};
use crate::report::did_you_mean;
use sekisho_http::ProxyValue;

/// The names that this configuration itself defines.
#[derive(Debug, Default)]
pub struct Names {
    /// The variables of `map`s.
    pub maps: HashMap<String, MapId>,
    /// The variables of `geo`s and `split_clients`.
    pub lookups: HashMap<String, Variable>,
    /// The named groups of its regular expressions.
    pub captures: HashSet<String>,
    /// The variables that a `set` gives a value; each may be one of the others too.
    pub assigned: HashMap<String, AssignedId>,
    /// Whether they are those of `stream`, where the server's own variables are others.
    pub is_stream: bool,
}

/// Why a value is not a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTemplate {
    /// What is wrong.
    pub message: String,
    /// What might have been meant.
    pub help: Option<String>,
}

/// Reads a value.
pub fn template(text: &[u8], names: &Names) -> Result<Template, BadTemplate> {
    let mut parts: Vec<Part> = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.iter().position(|byte| *byte == b'$') {
        literal.extend_from_slice(&rest[..dollar]);
        let (name, behind) = split_name(&rest[dollar + 1..]).ok_or_else(|| BadTemplate {
            message: format!("invalid variable name in \"{}\"", shown(text)),
            help: Some("\"$\" begins a variable, and cannot be escaped".to_owned()),
        })?;
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Variable(variable(name, names)?));
        rest = behind;
    }
    literal.extend_from_slice(rest);
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(Template { parts })
}

/// The name behind a dollar sign, and what follows it.
fn split_name(text: &[u8]) -> Option<(&str, &[u8])> {
    let is_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    let (name, behind) = match text {
        [b'{', inner @ ..] => {
            let end = inner.iter().position(|byte| *byte == b'}')?;
            (&inner[..end], &inner[end + 1..])
        }
        // A capture is one digit: `$12` is `$1` and a 2.
        [b'1'..=b'9', ..] => text.split_at(1),
        _ => text.split_at(text.iter().take_while(|byte| is_name(byte)).count()),
    };
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    Some((std::str::from_utf8(name).ok()?, behind))
}

/// The variable of this name; case does not matter.
pub fn variable(name: &str, names: &Names) -> Result<Variable, BadTemplate> {
    let name = name.to_ascii_lowercase();
    if let [digit @ b'1'..=b'9'] = name.as_bytes() {
        return Ok(Variable::Capture(digit - b'0'));
    }
    if let Some((_, known)) = own(names.is_stream).find(|(known, _)| *known == name) {
        return Ok(known.clone());
    }
    if let Some(id) = names.assigned.get(&name) {
        return Ok(Variable::Assigned(*id));
    }
    defined(&name, names).ok_or_else(|| unknown(&name, names))
}

/// The variable of this name in lower case, if it is not one of the server's own and no `set` is asked: of a
/// `map`, of a named group, of a field.
pub fn defined(name: &str, names: &Names) -> Option<Variable> {
    if let Some(map) = names.maps.get(name) {
        return Some(Variable::Map(*map));
    }
    if let Some(variable) = names.lookups.get(name) {
        return Some(variable.clone());
    }
    if names.captures.contains(name) {
        return Some(Variable::NamedCapture(name.to_owned()));
    }
    if let Some(value) = name.strip_prefix("proxy_protocol_tlv_").and_then(ProxyValue::named) {
        return Some(Variable::ProxyValue(value));
    }
    if names.is_stream {
        return None;
    }
    let field = |rest: &str| rest.replace('_', "-");
    let by_prefix = [
        name.strip_prefix("arg_").map(|rest| Variable::Arg(rest.to_owned())),
        name.strip_prefix("cookie_").map(|rest| Variable::Cookie(rest.to_owned())),
        name.strip_prefix("sent_trailer_").map(|rest| Variable::SentTrailer(field(rest))),
        name.strip_prefix("sent_http_").map(|rest| Variable::SentHttp(field(rest))),
        name.strip_prefix("http_").map(|rest| Variable::Http(field(rest))),
        name.strip_prefix("upstream_http_")
            .map(|rest| Variable::Upstream(UpstreamVariable::Http(field(rest)))),
        name.strip_prefix("upstream_trailer_")
            .map(|rest| Variable::Upstream(UpstreamVariable::Trailer(field(rest)))),
        name.strip_prefix("upstream_cookie_")
            .map(|rest| Variable::Upstream(UpstreamVariable::Cookie(rest.to_owned()))),
    ];
    by_prefix.into_iter().flatten().next()
}

fn unknown(name: &str, names: &Names) -> BadTemplate {
    let is_nginx =
        NOT_BUILT.contains(&name) || NOT_BUILT_PREFIXES.iter().any(|p| name.starts_with(p));
    if is_nginx {
        return BadTemplate {
            message: format!("variable \"${name}\" is not supported yet"),
            help: None,
        };
    }
    let own = names.maps.keys().chain(&names.captures).chain(names.assigned.keys());
    let own = own.chain(names.lookups.keys());
    let own = own.map(String::as_str);
    let known = self::own(names.is_stream).map(|(known, _)| *known).chain(own);
    let help = did_you_mean(name, known).map(|help| help.replacen('"', "\"$", 1));
    BadTemplate { message: format!("unknown \"{name}\" variable"), help }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(100).collect()
}

/// Whether the server itself gives this name a meaning, so that nothing else may.
pub fn is_taken(name: &str, is_stream: bool) -> bool {
    own(is_stream).any(|(known, _)| *known == name) || (!is_stream && NOT_BUILT.contains(&name))
}

/// The server's own variables.
fn own(is_stream: bool) -> impl Iterator<Item = &'static (&'static str, Variable)> {
    let more = if is_stream { KNOWN_IN_STREAM } else { &[] };
    let is_here =
        move |(name, _): &&(&'static str, Variable)| !is_stream || KNOWN_EVERYWHERE.contains(name);
    KNOWN.iter().filter(is_here).chain(more)
}

/// Whether a variable may be called so.
pub fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Every variable with a name of its own, for the reference.
pub fn known_names(is_stream: bool) -> impl Iterator<Item = &'static str> {
    own(is_stream).map(|(name, _)| *name)
}

const KNOWN: &[(&str, Variable)] = {
    use {ConnectionState as C, TlsVariable as T, UpstreamVariable as U, Variable as V};
    &[
        ("args", V::Args),
        ("binary_remote_addr", V::BinaryRemoteAddr),
        ("body_bytes_sent", V::BodyBytesSent),
        ("bytes_sent", V::BytesSent),
        ("connection", V::Connection),
        ("connection_requests", V::ConnectionRequests),
        ("connection_time", V::ConnectionTime),
        ("connections_active", V::Connections(C::Active)),
        ("connections_reading", V::Connections(C::Reading)),
        ("connections_waiting", V::Connections(C::Waiting)),
        ("connections_writing", V::Connections(C::Writing)),
        ("content_length", V::ContentLength),
        ("content_type", V::ContentType),
        ("date_gmt", V::DateGmt),
        ("date_local", V::DateLocal),
        ("document_root", V::DocumentRoot),
        ("document_uri", V::DocumentUri),
        ("gzip_ratio", V::GzipRatio),
        ("host", V::Host),
        ("hostname", V::Hostname),
        ("https", V::Https),
        ("invalid_referer", V::InvalidReferer),
        ("http2", V::Http2),
        ("http3", V::Http3),
        ("is_args", V::IsArgs),
        ("is_request_port", V::IsRequestPort),
        ("limit_conn_status", V::LimitConnStatus),
        ("limit_req_status", V::LimitReqStatus),
        ("limit_rate", V::LimitRate),
        ("msec", V::Msec),
        ("nginx_version", V::NginxVersion),
        ("pid", V::Pid),
        ("pipe", V::Pipe),
        ("request_body", V::RequestBody),
        ("request_body_file", V::RequestBodyFile),
        ("proxy_protocol_addr", V::ProxyAddr),
        ("proxy_protocol_port", V::ProxyPort),
        ("proxy_protocol_server_addr", V::ProxyServerAddr),
        ("proxy_protocol_server_port", V::ProxyServerPort),
        ("query_string", V::QueryString),
        ("realip_remote_addr", V::RealipRemoteAddr),
        ("realip_remote_port", V::RealipRemotePort),
        ("realpath_root", V::RealpathRoot),
        ("remote_addr", V::RemoteAddr),
        ("remote_port", V::RemotePort),
        ("remote_user", V::RemoteUser),
        ("request", V::Request),
        ("request_completion", V::RequestCompletion),
        ("request_filename", V::RequestFilename),
        ("request_id", V::RequestId),
        ("request_length", V::RequestLength),
        ("request_method", V::RequestMethod),
        ("request_port", V::RequestPort),
        ("request_time", V::RequestTime),
        ("request_uri", V::RequestUri),
        ("scheme", V::Scheme),
        ("secure_link", V::SecureLink),
        ("secure_link_expires", V::SecureLinkExpires),
        ("server_addr", V::ServerAddr),
        ("server_name", V::ServerName),
        ("server_port", V::ServerPort),
        ("server_protocol", V::ServerProtocol),
        ("slice_range", V::SliceRange),
        ("status", V::Status),
        ("ssl_alpn_protocol", V::Tls(T::Alpn)),
        ("ssl_cipher", V::Tls(T::Cipher)),
        ("ssl_ciphers", V::Tls(T::Ciphers)),
        ("ssl_client_cert", V::Tls(T::ClientCertificate)),
        ("ssl_client_escaped_cert", V::Tls(T::ClientCertificateEscaped)),
        ("ssl_client_fingerprint", V::Tls(T::ClientFingerprint)),
        ("ssl_client_i_dn", V::Tls(T::ClientIssuer)),
        ("ssl_client_i_dn_legacy", V::Tls(T::ClientIssuerLegacy)),
        ("ssl_client_raw_cert", V::Tls(T::ClientCertificateRaw)),
        ("ssl_client_s_dn", V::Tls(T::ClientSubject)),
        ("ssl_client_s_dn_legacy", V::Tls(T::ClientSubjectLegacy)),
        ("ssl_client_serial", V::Tls(T::ClientSerial)),
        ("ssl_client_v_end", V::Tls(T::ClientEnd)),
        ("ssl_client_v_remain", V::Tls(T::ClientDaysLeft)),
        ("ssl_client_v_start", V::Tls(T::ClientStart)),
        ("ssl_client_verify", V::Tls(T::ClientVerify)),
        ("ssl_curve", V::Tls(T::Curve)),
        ("ssl_curves", V::Tls(T::Curves)),
        ("ssl_early_data", V::Tls(T::EarlyData)),
        ("ssl_protocol", V::Tls(T::Protocol)),
        ("ssl_server_name", V::Tls(T::ServerName)),
        ("ssl_session_id", V::Tls(T::SessionId)),
        ("ssl_session_reused", V::Tls(T::SessionReused)),
        ("time_iso8601", V::TimeIso8601),
        ("time_local", V::TimeLocal),
        ("uid_got", V::UidGot),
        ("uid_set", V::UidSet),
        ("uri", V::Uri),
        ("fastcgi_path_info", V::Upstream(U::FastCgiPathInfo)),
        ("fastcgi_script_name", V::Upstream(U::FastCgiScriptName)),
        ("proxy_add_x_forwarded_for", V::Upstream(U::ProxyAddForwardedFor)),
        ("proxy_host", V::Upstream(U::ProxyHost)),
        ("proxy_port", V::Upstream(U::ProxyPort)),
        ("upstream_addr", V::Upstream(U::Addr)),
        ("upstream_bytes_received", V::Upstream(U::BytesReceived)),
        ("upstream_bytes_sent", V::Upstream(U::BytesSent)),
        ("upstream_cache_status", V::Upstream(U::CacheStatus)),
        ("upstream_connect_time", V::Upstream(U::ConnectTime)),
        ("upstream_header_time", V::Upstream(U::HeaderTime)),
        ("upstream_response_length", V::Upstream(U::ResponseLength)),
        ("upstream_response_time", V::Upstream(U::ResponseTime)),
        ("upstream_status", V::Upstream(U::Status)),
    ]
};

/// Those of them that mean the same in `stream`.
const KNOWN_EVERYWHERE: &[&str] = &[
    "binary_remote_addr",
    "bytes_sent",
    "connection",
    "hostname",
    "limit_conn_status",
    "msec",
    "nginx_version",
    "pid",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_addr",
    "remote_port",
    "server_addr",
    "server_name",
    "server_port",
    "ssl_alpn_protocol",
    "ssl_cipher",
    "ssl_client_cert",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_raw_cert",
    "ssl_client_s_dn",
    "ssl_client_serial",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_v_start",
    "ssl_client_verify",
    "ssl_curve",
    "ssl_protocol",
    "ssl_server_name",
    "ssl_session_reused",
    "status",
    "time_iso8601",
    "time_local",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_connect_time",
];

/// Those that `stream` has beside them.
const KNOWN_IN_STREAM: &[(&str, Variable)] = {
    use {PrereadVariable as P, UpstreamVariable as U, Variable as V};
    &[
        // The whole of a session is what a request is in `http`.
        ("bytes_received", V::RequestLength),
        ("protocol", V::Protocol),
        ("session_time", V::RequestTime),
        ("ssl_preread_alpn_protocols", V::Preread(P::AlpnProtocols)),
        ("ssl_preread_protocol", V::Preread(P::Protocol)),
        ("ssl_preread_server_name", V::Preread(P::ServerName)),
        ("upstream_first_byte_time", V::Upstream(U::HeaderTime)),
        ("upstream_session_time", V::Upstream(U::ResponseTime)),
    ]
};

/// Variables that nginx has and we do not.
const NOT_BUILT: &[&str] =
    &["ancient_browser", "limit_rate", "memcached_key", "modern_browser", "msie"];
const NOT_BUILT_PREFIXES: &[&str] = &[
    "geoip_",
    "jwt_",
    "proxy_",
    "session_log_",
    "ssl_",
    "tcpinfo_",
    "trailer_",
    "uid_",
    "upstream_",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        let names = Names {
            maps: HashMap::from([("kind".to_owned(), MapId(0))]),
            lookups: HashMap::from([("near".to_owned(), Variable::Geo(0))]),
            captures: HashSet::from(["user".to_owned()]),
            assigned: HashMap::from([
                ("own".to_owned(), AssignedId(0)),
                ("http_own".to_owned(), AssignedId(1)),
            ]),
            is_stream: false,
        };
        match template(text.as_bytes(), &names) {
            Ok(template) => template
                .parts
                .iter()
                .map(|part| match part {
                    Part::Literal(text) => String::from_utf8_lossy(text).into_owned(),
                    Part::Variable(variable) => format!("{variable:?}"),
                })
                .collect(),
            Err(bad) => vec![bad.message, bad.help.unwrap_or_default()],
        }
    }

    #[test]
    fn values_are_cut_into_literals_and_variables() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            ("plain", &["plain"]),
            ("$uri", &["Uri"]),
            ("$URI", &["Uri"]),
            ("a${uri}b", &["a", "Uri", "b"]),
            ("$uri/$args", &["Uri", "/", "Args"]),
            ("$12", &["Capture(1)", "2"]),
            ("$arg_x$cookie_y", &["Arg(\"x\")", "Cookie(\"y\")"]),
            ("$http_user_agent", &["Http(\"user-agent\")"]),
            ("$sent_http_x_y", &["SentHttp(\"x-y\")"]),
            ("$kind$user", &["Map(MapId(0))", "NamedCapture(\"user\")"]),
            ("$http_host$host", &["Http(\"host\")", "Host"]),
            ("$own$http_own", &["Assigned(AssignedId(0))", "Assigned(AssignedId(1))"]),
        ];
        for (text, expected) in table {
            assert_eq!(parts(text), *expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_a_suggestion() {
        assert_eq!(parts("$urri"), ["unknown \"urri\" variable", "did you mean \"$uri\"?"]);
        assert_eq!(parts("$usr"), ["unknown \"usr\" variable", "did you mean \"$user\"?"]);
        assert_eq!(
            parts("$upstream_cache_age"),
            ["variable \"$upstream_cache_age\" is not supported yet", ""]
        );
        for text in ["$", "a$", "${", "${}", "${a-b}", "$-", "${uri"] {
            assert!(parts(text)[0].starts_with("invalid variable name"), "{text}");
        }
    }
}
