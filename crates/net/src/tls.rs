//! TLS as a site has it (S1, S4): for each server block a configuration of rustls, made of its certificates and
//! settings when the site is made. What must outlive a site (keys of tickets, sessions) is kept by the process.

pub mod acme;
pub mod certificate;
mod client;
mod der;
pub(crate) mod hello;
mod load;
pub mod ocsp;
mod revocation;
mod secrets;
mod staple;
mod tickets;
mod version_1;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::SupportedKxGroup;
use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion, ServerConfig};
use sekisho_config::{Config, Resolver, Server, ServerId, Template};
use sekisho_handler::key_pair::ComputedPair;
use sekisho_handler::upstream::{UpstreamTlsConfigs, UpstreamTlsProblem};
use sekisho_http::Head;
use sekisho_route::{
    ClientCertificate, ConnectionFacts, Offered, Request, RequestIdSeed, RouteState, TlsFacts,
    WallTime, expand,
};

use crate::clock::unix_time;
use crate::native::NativeTls;
use crate::site::{OpenError, Site};
use acme::ALPN_ACME;
use certificate::Certificate;
use client::ClientCheck;
use load::Speaks;
pub use secrets::{
    candidate as new_ticket_secret, hand_over as hand_over_ticket_secrets,
    share as share_ticket_secrets, take_over as take_over_ticket_secrets,
};
pub use staple::Staple;

/// HTTP/2 as clients ask for it.
pub(crate) const ALPN_HTTP2: &str = "h2";
/// HTTP/3 as clients ask for it.
pub(crate) const ALPN_HTTP3: &str = "h3";

/// What is wrong with the files that a server names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsProblem {
    /// The directive.
    pub directive: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub message: String,
    /// Whether the server can do without.
    pub is_warning: bool,
}

impl std::fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} \"{}\": {}", self.directive, self.path.display(), self.message)
    }
}

impl std::error::Error for TlsProblem {}

/// Reads every file that TLS needs and says what is wrong with them: for `-t`, a start and a reload.
pub fn check(config: &Config) -> Vec<TlsProblem> {
    let mut problems: Vec<TlsProblem> = Vec::new();
    let servers = config.blocks().flat_map(|block| {
        secured_servers(block).into_iter().flatten().map(move |server| (block, server))
    });
    for (block, server) in servers {
        let mut found = Vec::new();
        let resolver = resolver_of(block, server);
        let loaded = load::server(server, resolver, Speaks::Http1, &mut found);
        let is_quic = server.http3.is_on && block.http.listens.iter().any(|it| it.options.quic);
        let quic = |tls: ServerTls| load::quic(server, &tls.config);
        let problem = if is_quic { loaded.and_then(quic).err() } else { loaded.err() };
        found.extend(problem);
        for problem in found {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    if let Some(tls) = &config.main.endpoint.tls {
        let mut found = Vec::new();
        let loaded = load::endpoint(tls, &mut found);
        problems.extend(found.into_iter().chain(loaded.err()));
    }
    for block in config.blocks() {
        if let Err(found) = UpstreamTlsConfigs::load(block) {
            problems.extend(found.into_iter().map(upstream_problem_of));
        }
    }
    problems
}

fn upstream_problem_of(problem: UpstreamTlsProblem) -> TlsProblem {
    let UpstreamTlsProblem { directive, path, message } = problem;
    TlsProblem { directive, path, message, is_warning: false }
}

/// What is wrong with TLS to other servers, as a site reports it: the first, since `-t` has said all.
pub(crate) fn upstream_problem(problems: Vec<UpstreamTlsProblem>) -> OpenError {
    let first = problems.into_iter().next().unwrap_or_else(|| UpstreamTlsProblem {
        directive: "proxy_pass",
        path: PathBuf::new(),
        message: "TLS cannot be used".to_owned(),
    });
    OpenError::Tls(upstream_problem_of(first))
}

/// By server: itself, if it has an address with TLS.
fn secured_servers(config: &Config) -> Vec<Option<&Server>> {
    let http = &config.http;
    let is_secured = |id: usize| {
        let id = ServerId(id as u32);
        http.listens.iter().any(|listen| listen.options.tls && listen.servers.contains(&id))
    };
    let one = |(at, server)| is_secured(at).then_some(server);
    http.servers.iter().enumerate().map(one).collect()
}

/// Whether a server is at an address of QUIC.
fn has_quic(config: &Config, server: ServerId) -> bool {
    let listens = &config.http.listens;
    listens.iter().any(|listen| listen.options.quic && listen.servers.contains(&server))
}

/// Who is asked for the addresses of names that a server needs.
fn resolver_of<'a>(config: &'a Config, server: &Server) -> &'a Arc<Resolver> {
    &config.http.locations[server.root.0 as usize].settings.resolver
}

/// What is known of a handshake beside its keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hello {
    /// The client's name for us.
    pub(crate) server_name: String,
    /// What the client has offered.
    pub(crate) offered: Option<Box<Offered>>,
    /// The session's number in our hello, in hexadecimal digits.
    pub(crate) session_id: String,
}

impl Hello {
    /// That of facts which are found out anew.
    pub(crate) fn of(facts: &TlsFacts) -> Self {
        Self {
            server_name: facts.server_name.clone(),
            offered: facts.offered.clone(),
            session_id: facts.session_id.clone(),
        }
    }
}

/// What a server has for QUIC.
#[derive(Debug)]
pub(crate) struct QuicTls {
    pub(crate) config: Arc<ServerConfig>,
    /// The secret for address tokens and stateless resets, where one is configured.
    pub(crate) host_key: Option<Arc<[u8]>>,
}

/// A server's TLS, ready to be used.
#[derive(Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// The configuration for QUIC, where the server has HTTP/3.
    pub(crate) quic: Option<QuicTls>,
    /// The number of its site.
    serial: u64,
    /// `ssl_reject_handshake`, or a server without a certificate.
    rejects: bool,
    /// A server without a certificate: clients see that of the default server.
    pub(crate) is_bare: bool,
    /// Where clients are asked for certificates.
    client: Option<ClientCheck>,
    pairs: Arc<load::ServerPairs>,
    /// Certificates that variables choose.
    computed: Vec<ComputedPair>,
}

/// A certificate that is shown to clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InUse {
    /// What it is for; for one that is ordered and not there yet, what it will be for.
    pub names: Vec<String>,
    /// What it says; `None` where it is not there yet.
    pub certificate: Option<Certificate>,
    /// The file, or the authority that it is ordered from.
    pub source: String,
}

/// Those of a site, each once.
pub(crate) fn in_use(config: &Config, tls: &[Option<Arc<ServerTls>>]) -> Vec<InUse> {
    let mut all: Vec<InUse> = Vec::new();
    for (server, tls) in config.http.servers.iter().zip(tls) {
        for one in tls.iter().flat_map(|tls| tls.pairs.in_use(server)) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

/// The certificates of a site whose OCSP responses are fetched, each once.
pub(crate) fn staples(tls: &[Option<Arc<ServerTls>>]) -> Vec<Arc<Staple>> {
    let mut all: Vec<Arc<Staple>> = Vec::new();
    for staple in tls.iter().flatten().flat_map(|tls| tls.pairs.staples()) {
        if !all.iter().any(|known| Arc::ptr_eq(known, staple)) {
            all.push(Arc::clone(staple));
        }
    }
    all
}

/// Makes those of a configuration ready, by server.
pub(crate) fn load(
    config: &Config,
    serial: u64,
) -> Result<Vec<Option<Arc<ServerTls>>>, TlsProblem> {
    let http = &config.http;
    let one = |(at, server): (usize, Option<&Server>)| {
        let Some(server) = server else { return Ok(None) };
        let id = ServerId(at as u32);
        let speaks_http2 = server.http2.is_on
            || http.listens.iter().any(|listen| {
                listen.options.tls && listen.options.http2 && listen.servers.contains(&id)
            });
        let is_stream = config.http.locations.get(server.root.0 as usize);
        let is_stream = is_stream.is_some_and(|root| root.settings.stream.is_some());
        let speaks = match (is_stream, speaks_http2) {
            (true, _) => Speaks::Anything,
            (false, true) => Speaks::Http2,
            (false, false) => Speaks::Http1,
        };
        let resolver = resolver_of(config, server);
        let mut tls = load::server(server, resolver, speaks, &mut Vec::new())?;
        if server.http3.is_on && has_quic(config, id) {
            tls.quic = load::quic(server, &tls.config)?;
        }
        Ok(Some(Arc::new(ServerTls { serial, ..tls })))
    };
    secured_servers(config).into_iter().enumerate().map(one).collect()
}

/// Makes that of the native endpoint ready, where an address of it has TLS.
pub(crate) fn load_native(
    config: &Config,
    serial: u64,
) -> Result<Option<Arc<NativeTls>>, TlsProblem> {
    let Some(tls) = &config.main.endpoint.tls else { return Ok(None) };
    let server = ServerTls { serial, ..load::endpoint(tls, &mut Vec::new())? };
    Ok(Some(Arc::new(NativeTls { server, verify: tls.verify })))
}

/// Chooses a server by the name that a client asks for.
#[derive(Debug)]
pub struct Chooser {
    /// The site.
    pub site: Arc<Site>,
    /// Which of its addresses.
    pub listen: usize,
}

impl Chooser {
    /// The server of this name, or the default one; `None` where it rejects handshakes.
    pub(crate) fn choose(&self, name: &str) -> Option<Arc<ServerTls>> {
        let server = self.site.tls_of(self.listen, name)?;
        (!server.rejects).then(|| Arc::clone(server))
    }

    /// The configuration of its handshake with a client that has said this: `base`, with the certificates that variables
    /// choose, if there are such. An error says why they cannot be used.
    pub(crate) fn config_for(
        &self,
        server: &ServerTls,
        base: &Arc<ServerConfig>,
        hello: &Hello,
        remote: impl FnOnce() -> Option<SocketAddr>,
    ) -> Result<Arc<ServerConfig>, String> {
        if server.computed.is_empty() {
            return Ok(Arc::clone(base));
        }
        let tls = TlsFacts { server_name: hello.server_name.clone(), ..TlsFacts::default() };
        let tls = Some(Arc::new(tls));
        let facts =
            ConnectionFacts { remote: remote(), is_tls: true, tls, ..ConnectionFacts::default() };
        let (head, table) = (Head::default(), self.site.table());
        let request =
            Request::new(&head, self.listen, &facts, WallTime::default(), RequestIdSeed::default());
        let mut route_state = RouteState::default();
        if let Some(found) = table.server_named(self.listen, hello.server_name.as_bytes()) {
            route_state.server = found;
            route_state.location = table.server(found).root;
        }
        let value = |template: &Template| {
            let mut value = Vec::new();
            expand(template, table, &request, &route_state, None, &mut value);
            value
        };
        let provider = base.crypto_provider();
        let mut chosen = Vec::new();
        for computed in &server.computed {
            chosen.extend(computed.pair(provider, unix_time(), value)?);
        }
        let mut config = ServerConfig::clone(base);
        config.cert_resolver = Arc::new(server.pairs.with(chosen));
        Ok(Arc::new(config))
    }
}

impl ServerTls {
    /// What is to be thought of a client's certificates; `None` where it has sent none, or was not asked.
    pub(crate) fn judge(
        &self,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Option<Box<ClientCertificate>> {
        self.client.as_ref()?.judge(chain)
    }

    /// Facts about a handshake that was made with an earlier configuration, judged by this one (S4).
    pub(crate) fn judged_again(
        &self,
        facts: &TlsFacts,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> TlsFacts {
        TlsFacts { judged_under: self.serial, client: self.judge(chain), ..facts.clone() }
    }

    /// What a handshake came to, or comes to where early data is there before its end.
    pub(crate) fn facts(&self, keys: &CommonState, hello: Hello) -> TlsFacts {
        let alpn = match keys.alpn_protocol() {
            Some(b"h2") => Cow::Borrowed(ALPN_HTTP2),
            Some(b"h3") => Cow::Borrowed(ALPN_HTTP3),
            Some(b"http/1.1") => Cow::Borrowed("http/1.1"),
            Some(b"http/1.0") => Cow::Borrowed("http/1.0"),
            Some(b"acme-tls/1") => Cow::Borrowed(ALPN_ACME),
            Some(other) => Cow::Owned(String::from_utf8_lossy(other).into_owned()),
            None => Cow::Borrowed(""),
        };
        let cipher = keys.negotiated_cipher_suite().map_or("", |suite| cipher_name(suite.suite()));
        let group = keys.negotiated_key_exchange_group().map(SupportedKxGroup::name);
        let is_resumed = keys.handshake_kind() == Some(HandshakeKind::Resumed);
        let is_tls13 = keys.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let client = self.client.as_ref().and_then(|check| check.judge(keys.peer_certificates()));
        TlsFacts {
            protocol: match keys.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                _ => "",
            },
            cipher,
            curve: group.and_then(curve_name).unwrap_or_default(),
            server_name: hello.server_name,
            is_resumed,
            is_early: keys.is_handshaking(),
            // In TLS 1.3 what is echoed there says nothing.
            session_id: if is_tls13 { String::new() } else { hello.session_id },
            offered: hello.offered.filter(|_| !is_resumed),
            alpn,
            judged_under: self.serial,
            client,
        }
    }
}

/// As OpenSSL calls it.
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "ECDHE-ECDSA-CHACHA20-POLY1305"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "",
    }
}

/// As OpenSSL calls it.
fn curve_name(group: rustls::NamedGroup) -> Option<&'static str> {
    Some(match u16::from(group) {
        0x001d => "X25519",
        0x0017 => "prime256v1",
        0x0018 => "secp384r1",
        0x11ec => "X25519MLKEM768",
        0x11eb => "SecP256r1MLKEM768",
        0x0201 => "MLKEM768",
        _ => return None,
    })
}
