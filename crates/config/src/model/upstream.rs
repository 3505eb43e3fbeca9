//! What the configuration says about other servers that requests are passed to: groups of them, and how the
//! requests of a location are passed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::Version;
use sekisho_upstream::fields::{IgnoredAccel, Visible};
use sekisho_upstream::retry::NextUpstream;
use sekisho_upstream::rewrite::CookieFlags;
use sekisho_upstream::{Method, PeerSettings, keepalive};

use super::{Caching, Pattern, Pem, PemCache, Resolver, Sticky, Storage, TempFolder, Template};
use crate::report::Span;

/// An index into [`Http::upstreams`](super::Http::upstreams).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UpstreamId(pub u32);

/// A group of servers: an `upstream` block, or the one that a `proxy_pass` names.
#[derive(Clone, Debug)]
pub struct UpstreamGroup {
    /// Its name: that of the block, or host and port.
    pub name: String,
    /// Whether it is an `upstream` block: then a `proxy_pass` with variables may name it.
    pub is_declared: bool,
    /// Its servers, in the order of the file.
    pub servers: Vec<UpstreamServer>,
    /// How one is chosen.
    pub method: Method,
    /// The key of `hash`.
    pub key: Option<Template>,
    /// `keepalive` and its companions.
    pub keepalive: keepalive::Settings,
    /// `sticky`
    pub sticky: Option<Sticky>,
    /// Who is asked for the addresses of servers with `resolve`.
    pub resolver: Arc<Resolver>,
}

impl UpstreamGroup {
    /// A group of one server, whose name is looked up. As with nginx, each request tries its addresses anew.
    pub fn of_name(name: &str, place: UpstreamPlace) -> Self {
        Self {
            name: name.to_owned(),
            is_declared: false,
            servers: vec![UpstreamServer {
                peer: PeerSettings { max_fails: 0, ..PeerSettings::new(name) },
                place,
                addresses: Vec::new(),
                is_resolved: true,
                span: None,
            }],
            method: Method::RoundRobin,
            key: None,
            keepalive: keepalive::Settings::default(),
            sticky: None,
            resolver: Arc::default(),
        }
    }
}

/// One `server` of an `upstream`.
#[derive(Clone, Debug)]
pub struct UpstreamServer {
    /// What the line says, with the name as it is written.
    pub peer: PeerSettings,
    /// Where it is.
    pub place: UpstreamPlace,
    /// The addresses of its name, found when the configuration was loaded; none for a Unix socket.
    pub addresses: Vec<SocketAddr>,
    /// `resolve`: its name is looked up while the server runs.
    pub is_resolved: bool,
    /// Its position in the configuration.
    pub(crate) span: Option<Span>,
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpstreamPlace {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String, u16),
}

impl UpstreamPlace {
    /// Reads `host[:port]`, `[address]:port` or `unix:path[:]`; the port is `port` by default. The error is
    /// the reason if it is none of these.
    pub fn parse(text: &str, port: u16) -> Result<Self, &'static str> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_suffix(':').unwrap_or(path);
            if path.is_empty() {
                return Err("no path in the unix domain socket");
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let (host, number) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, behind)) => {
                    (host, Some(behind.strip_prefix(':').ok_or("invalid host")?))
                }
                None => return Err("invalid host"),
            },
            None => match text.split_once(':') {
                Some((host, number)) => (host, Some(number)),
                None => (text, None),
            },
        };
        let is_host = |byte: u8| byte > b' ' && byte != 0x7f && !b"/?#@".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err("no host");
        }
        let port = match number {
            None => port,
            Some(number) => match number.parse() {
                Ok(0) | Err(_) => return Err("invalid port"),
                Ok(port) => port,
            },
        };
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

/// The protocols in which requests are passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Family {
    Proxy,
    FastCgi,
    Scgi,
    Uwsgi,
    Grpc,
}

impl Family {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Proxy, Self::FastCgi, Self::Scgi, Self::Uwsgi, Self::Grpc];

    /// What its directives begin with, and its scheme in the error log, except for HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::FastCgi => "fastcgi",
            Self::Scgi => "scgi",
            Self::Uwsgi => "uwsgi",
            Self::Grpc => "grpc",
        }
    }
}

/// `proxy_pass`, `fastcgi_pass`, `scgi_pass`, `uwsgi_pass`, `grpc_pass`: requests of a location are another server's.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The protocol.
    pub family: Family,
    /// Where they are passed to.
    pub to: PassTo,
    /// The path of the location, which the URI of `proxy_pass` replaces; empty in a regular expression.
    pub location: Arc<[u8]>,
    /// How.
    pub forward: Arc<Forward>,
    /// `root storage:NAME`: the server is a store, and is asked for objects.
    pub storage: Option<Arc<Storage>>,
}

impl Pass {
    /// Requests are for the objects of a store.
    pub fn to_storage(storage: &Arc<Storage>) -> Self {
        Self {
            family: Family::Proxy,
            to: PassTo::Named(storage.to.clone()),
            location: Arc::default(),
            forward: Arc::clone(&storage.forward),
            storage: Some(Arc::clone(storage)),
        }
    }

    /// The same, with what a location says of stale answers and of waiting for others, where answers are kept.
    #[must_use]
    pub fn cached_as(mut self, said: &Caching) -> Self {
        if self.forward.caching.cache.is_some() {
            let caching = Caching {
                use_stale: said.use_stale,
                background_update: said.background_update,
                lock_timeout: said.lock_timeout,
                lock_age: said.lock_age,
                ..(*self.forward.caching).clone()
            };
            self.forward =
                Arc::new(Forward { caching: Arc::new(caching), ..(*self.forward).clone() });
        }
        self
    }
}

/// Where requests are passed to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PassTo {
    /// This one.
    Named(Destination),
    /// What these variables say at the time: an address, or the name of an `upstream`.
    Computed(Template),
}

/// What a `proxy_pass` without variables says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The group.
    pub group: UpstreamId,
    /// `https://`
    pub is_tls: bool,
    /// `$proxy_host`: as it is written.
    pub host: Box<str>,
    /// `$proxy_port`
    pub port: u16,
    /// The URI behind it, if there is one.
    pub uri: Option<Box<[u8]>>,
}

/// How requests are passed, and answers are given back: what `proxy_*` says, and `fastcgi_*`,
/// `scgi_*`, `uwsgi_*` and `grpc_*`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the language")]
pub struct Forward {
    /// `_connect_timeout`
    pub connect_timeout: Option<Duration>,
    /// `_send_timeout`
    pub send_timeout: Option<Duration>,
    /// `_read_timeout`
    pub read_timeout: Option<Duration>,
    /// `_next_upstream`, `_tries`, `_timeout`
    pub next_upstream: NextUpstream,
    /// `_buffering`
    pub buffering: bool,
    /// `_buffer_size`: how large the head of an answer may be.
    pub buffer_size: usize,
    /// `_buffers`: how much of an answer is kept in memory for a slow client.
    pub buffers_bytes: usize,
    /// `_max_temp_file_size`: how much more of it on the disk.
    pub temp_file_bytes_max: u64,
    /// `_temp_path`
    pub temp_path: Option<TempFolder>,
    /// `_request_buffering`
    pub request_buffering: bool,
    /// `proxy_force_ranges`: parts of an answer are cut here.
    pub force_ranges: bool,
    /// `_intercept_errors`
    pub intercept_errors: bool,
    /// `_ignore_client_abort`
    pub ignore_client_abort: bool,
    /// `_pass_request_headers`
    pub pass_request_headers: bool,
    /// `_pass_request_body`
    pub pass_request_body: bool,
    /// `_hide_header`, `_pass_header`
    pub visible: Arc<Visible>,
    /// `_ignore_headers`
    pub ignored: IgnoredAccel,
    /// `_cache` and its companions
    pub caching: Arc<Caching>,
    /// `_limit_rate`: bytes a second that are read; 0 for no limit.
    pub read_rate: u64,
    /// `_bind`
    pub bind: Option<Template>,
    /// `_socket_keepalive`
    pub socket_keepalive: bool,
    /// `proxy_http_version`; HTTP/2 for `grpc_pass`.
    pub http_version: Version,
    /// `proxy_pass_trailers`; what follows a body of `grpc_pass` is always passed on.
    pub pass_trailers: bool,
    /// `proxy_method`
    pub method: Option<Template>,
    /// `proxy_set_body`
    pub set_body: Option<Template>,
    /// `proxy_set_header`, `grpc_set_header`
    pub set_headers: Arc<[(Box<str>, Template)]>,
    /// `proxy_redirect`; `None` for `off`.
    pub redirects: Arc<[Rename]>,
    /// `proxy_cookie_domain`
    pub cookie_domains: Arc<[Rename]>,
    /// `proxy_cookie_path`
    pub cookie_paths: Arc<[Rename]>,
    /// `proxy_cookie_flags`
    pub cookie_flags: Arc<[CookieRule]>,
    /// `fastcgi_param`, `scgi_param`, `uwsgi_param`
    pub params: Arc<[Param]>,
    /// `fastcgi_index`
    pub index: Arc<[u8]>,
    /// `fastcgi_split_path_info`
    pub split_path_info: Option<Arc<Pattern>>,
    /// `fastcgi_catch_stderr`
    pub caught: Arc<[Box<[u8]>]>,
    /// `fastcgi_keep_conn`
    pub keep_conn: bool,
    /// `uwsgi_modifier1`, `uwsgi_modifier2`
    pub modifiers: (u8, u8),
    /// `proxy_ssl_*`, `uwsgi_ssl_*`, `grpc_ssl_*`
    pub tls: Arc<UpstreamTls>,
}

impl Default for Forward {
    /// Nothing at all: the ground on which the table's defaults are put.
    fn default() -> Self {
        Self {
            connect_timeout: None,
            send_timeout: None,
            read_timeout: None,
            next_upstream: NextUpstream::default(),
            buffering: false,
            buffer_size: 0,
            buffers_bytes: 0,
            temp_file_bytes_max: 0,
            temp_path: None,
            force_ranges: false,
            request_buffering: false,
            intercept_errors: false,
            ignore_client_abort: false,
            pass_request_headers: false,
            pass_request_body: false,
            visible: Arc::default(),
            ignored: IgnoredAccel::default(),
            caching: Arc::default(),
            read_rate: 0,
            bind: None,
            socket_keepalive: false,
            http_version: Version::Http10,
            pass_trailers: false,
            method: None,
            set_body: None,
            set_headers: Arc::default(),
            redirects: Arc::default(),
            cookie_domains: Arc::default(),
            cookie_paths: Arc::default(),
            cookie_flags: Arc::default(),
            params: Arc::default(),
            index: Arc::default(),
            split_path_info: None,
            caught: Arc::default(),
            keep_conn: false,
            modifiers: (0, 0),
            tls: Arc::default(),
        }
    }
}

impl Forward {
    /// The ground of a family: what no directive of it changes.
    pub fn of(family: Family) -> Self {
        match family {
            // Both directions of a call go on at the same time, and a call without its trailers has no result.
            Family::Grpc => Self {
                http_version: Version::Http2,
                pass_trailers: true,
                pass_request_headers: true,
                pass_request_body: true,
                ..Self::default()
            },
            Family::Proxy | Family::FastCgi | Family::Scgi | Family::Uwsgi => Self::default(),
        }
    }

    /// Whether servers are spoken to in HTTP/2.
    pub const fn is_http2(&self) -> bool {
        matches!(self.http_version, Version::Http2)
    }
}

/// A place that an answer names and that is another one for the client.
#[derive(Clone, Debug)]
pub enum Rename {
    /// `default`: what `proxy_pass` names is the location.
    Default,
    /// What begins with the first (or, for a domain, is it) has the second instead.
    Text(Template, Template),
    /// What matches becomes this, which may have captures in it.
    Pattern(Arc<Pattern>, Template),
}

/// One `proxy_cookie_flags`.
#[derive(Clone, Debug)]
pub struct CookieRule {
    /// Which cookies.
    pub name: CookieName,
    /// What is set or taken away.
    pub flags: CookieFlags,
    /// More of it, as variables say.
    pub computed: Vec<Template>,
}

/// Which cookies a rule is for.
#[derive(Clone, Debug)]
pub enum CookieName {
    /// The one of this name.
    Text(Template),
    /// Those that match.
    Pattern(Arc<Pattern>),
}

/// One `fastcgi_param`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name.
    pub name: Box<str>,
    /// Its value.
    pub value: Template,
    /// `if_not_empty`
    pub is_optional: bool,
}

/// `proxy_ssl_*`
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct UpstreamTls {
    /// `proxy_ssl_server_name`
    pub sends_name: bool,
    /// `proxy_ssl_name`; `None` for `$proxy_host`.
    pub name: Option<Template>,
    /// `proxy_ssl_verify`
    pub verify: bool,
    /// `proxy_ssl_trusted_certificate`
    pub trusted: Option<PathBuf>,
    /// `proxy_ssl_certificate`, `proxy_ssl_certificate_key`
    pub certificate: Option<Pem>,
    /// `proxy_ssl_certificate_key`
    pub key: Option<Pem>,
    /// `proxy_ssl_certificate_cache`
    pub certificate_cache: Option<PemCache>,
    /// `proxy_ssl_password_file`
    pub password_file: Option<PathBuf>,
    /// `proxy_ssl_crl`
    pub crl: Option<PathBuf>,
    /// `proxy_ssl_session_reuse`
    pub reuses_sessions: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_or_hosts_with_a_port() {
        let tcp = |host: &str, port| Ok(UpstreamPlace::Tcp(host.to_owned(), port));
        let rows = [
            ("127.0.0.1:8080", tcp("127.0.0.1", 8080)),
            ("backend", tcp("backend", 80)),
            ("[::1]:81", tcp("::1", 81)),
            ("[::1]", tcp("::1", 80)),
            ("unix:/run/app.sock", Ok(UpstreamPlace::Unix("/run/app.sock".into()))),
            ("unix:/run/app.sock:", Ok(UpstreamPlace::Unix("/run/app.sock".into()))),
            ("unix:", Err("no path in the unix domain socket")),
            ("a:0", Err("invalid port")),
            ("a:99999", Err("invalid port")),
            ("a:b", Err("invalid port")),
            (":80", Err("no host")),
            ("", Err("no host")),
            ("a b", Err("no host")),
            ("[::1", Err("invalid host")),
        ];
        for (text, expected) in rows {
            assert_eq!(UpstreamPlace::parse(text, 80), expected, "{text}");
        }
    }
}
