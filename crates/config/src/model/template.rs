//! Values with variables in them, in the finished configuration.

use sekisho_http::ProxyValue;

use super::{AssignedId, MapId};

/// A value with variables in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Template {
    /// The pieces in order; neighbouring literals have been joined.
    pub parts: Vec<Part>,
}

impl Template {
    /// A value without variables.
    pub fn literal(text: impl Into<Vec<u8>>) -> Self {
        let text = text.into();
        Self { parts: if text.is_empty() { Vec::new() } else { vec![Part::Literal(text)] } }
    }

    /// Whether it names this variable.
    pub fn names(&self, variable: &Variable) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Variable(it) if it == variable))
    }

    /// The value, if there is no variable in it.
    pub fn as_literal(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

/// A piece of a [`Template`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Text.
    Literal(Vec<u8>),
    /// `$name` or `${name}`
    Variable(Variable),
}

/// The variables there are; unknown names are configuration errors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Variable {
    /// `$arg_name`
    Arg(String),
    Args,
    /// A variable of the configuration's own, which a `set` gives its value.
    Assigned(AssignedId),
    BinaryRemoteAddr,
    BodyBytesSent,
    BytesSent,
    /// `$1` … `$9`
    Capture(u8),
    Connection,
    ConnectionRequests,
    ConnectionTime,
    /// `$connections_…`
    Connections(ConnectionState),
    ContentLength,
    ContentType,
    /// `$cookie_name`
    Cookie(String),
    /// A variable of a `geoip2`: its index.
    Database(u32),
    DateGmt,
    DateLocal,
    DocumentRoot,
    DocumentUri,
    /// The variable of a `geo`: its index.
    Geo(u32),
    GzipRatio,
    Host,
    Hostname,
    /// `$http_name`, kept as the field's name (`_` turned into `-`).
    Http(String),
    Http2,
    /// Always empty: HTTP/3 is not supported yet.
    Http3,
    Https,
    InvalidReferer,
    IsArgs,
    IsRequestPort,
    LimitConnStatus,
    LimitReqStatus,
    LimitRate,
    /// The variable of a `map`.
    Map(MapId),
    Msec,
    /// A named group of a regex.
    NamedCapture(String),
    NginxVersion,
    Pid,
    Pipe,
    /// `$ssl_preread_name`
    Preread(PrereadVariable),
    /// `$protocol`
    Protocol,
    ProxyAddr,
    ProxyPort,
    ProxyServerAddr,
    ProxyServerPort,
    /// `$proxy_protocol_tlv_name`
    ProxyValue(ProxyValue),
    QueryString,
    RealipRemoteAddr,
    RealipRemotePort,
    RealpathRoot,
    RemoteAddr,
    RemotePort,
    RemoteUser,
    Request,
    RequestBody,
    RequestBodyFile,
    RequestCompletion,
    RequestFilename,
    RequestId,
    RequestLength,
    RequestMethod,
    RequestPort,
    RequestTime,
    RequestUri,
    Scheme,
    SecureLink,
    SecureLinkExpires,
    /// `$sent_http_name`, kept as the field's name.
    SentHttp(String),
    /// `$sent_trailer_name`, kept as the field's name.
    SentTrailer(String),
    ServerAddr,
    ServerName,
    ServerPort,
    ServerProtocol,
    SliceRange,
    /// The variable of a `split_clients`: its index.
    Split(u32),
    Status,
    /// `$ssl_name`
    Tls(TlsVariable),
    TimeIso8601,
    TimeLocal,
    UidGot,
    UidSet,
    /// `$upstream_name`, `$proxy_name`, `$fastcgi_name`
    Upstream(UpstreamVariable),
    Uri,
}

/// A variable about the first message of a TLS handshake that is passed on as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is named as nginx names it, after `$ssl_preread_`")]
pub enum PrereadVariable {
    AlpnProtocols,
    Protocol,
    ServerName,
}

/// A variable about another server that was asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is named as nginx names it")]
pub enum UpstreamVariable {
    Addr,
    BytesReceived,
    BytesSent,
    CacheStatus,
    ConnectTime,
    /// `$upstream_cookie_name`
    Cookie(String),
    FastCgiPathInfo,
    FastCgiScriptName,
    HeaderTime,
    /// `$upstream_http_name`, kept as the field's name.
    Http(String),
    ProxyAddForwardedFor,
    ProxyHost,
    ProxyPort,
    ResponseLength,
    ResponseTime,
    Status,
    /// `$upstream_trailer_name`, kept as the field's name.
    Trailer(String),
}

/// What a connection does, as nginx counts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is named as nginx names it, after `$connections_`")]
pub enum ConnectionState {
    Active,
    Reading,
    Writing,
    Waiting,
}

/// A variable about the encryption of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is named as nginx names it, after `$ssl_`")]
pub enum TlsVariable {
    Alpn,
    Cipher,
    Ciphers,
    ClientCertificate,
    ClientCertificateEscaped,
    ClientFingerprint,
    ClientIssuer,
    ClientIssuerLegacy,
    ClientCertificateRaw,
    ClientSubject,
    ClientSubjectLegacy,
    ClientSerial,
    ClientEnd,
    ClientDaysLeft,
    ClientStart,
    ClientVerify,
    Curve,
    Curves,
    EarlyData,
    Protocol,
    ServerName,
    SessionId,
    SessionReused,
}
