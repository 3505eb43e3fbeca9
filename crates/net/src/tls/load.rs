//! Certificates, keys and settings become a configuration of rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, InconsistentKeys, ServerConfig, SignatureAlgorithm};
use sekisho_config::{AcmeCertificate, AcmeChallenge, Pem, Resolver, Server, Tls};
use sekisho_handler::key_pair::{self, ComputedPair};

use super::acme::{self, AcmeSlot};
use super::certificate::Certificate;
use super::client::ClientCheck;
use super::staple::Staple;
use super::{InUse, QuicTls, ServerTls, TlsProblem, ocsp, tickets};
use crate::clock::unix_time;

/// For so many sessions there is room with `ssl_early_data`, at least.
const EARLY_SESSIONS: usize = 20_480;
/// How much may come before the handshake is over, as with nginx.
const EARLY_BYTES_MAX: u32 = 16 << 10;
/// A record's own bytes, which rustls counts with what it holds.
const RECORD_OVERHEAD: usize = 5;

/// What is spoken within TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Speaks {
    Http1,
    /// And HTTP/1 as well.
    Http2,
    /// What is passed on as it is: what `ssl_alpn` says.
    Anything,
}

/// What this server needs. Warnings go to `found`.
pub(super) fn server(
    server: &Server,
    resolver: &Arc<Resolver>,
    speaks: Speaks,
    found: &mut Vec<TlsProblem>,
) -> Result<ServerTls, TlsProblem> {
    let name = format!("{:?}", server.names.first());
    let needs = Needs { tls: &server.tls, acme: server.acme.as_deref(), name, resolver };
    ready(&needs, speaks, found)
}

/// What the native endpoint needs: it orders no certificates, and staples none.
pub(super) fn endpoint(tls: &Tls, found: &mut Vec<TlsProblem>) -> Result<ServerTls, TlsProblem> {
    let resolver = Arc::new(Resolver::default());
    let needs = Needs { tls, acme: None, name: "endpoint".to_owned(), resolver: &resolver };
    ready(&needs, Speaks::Anything, found)
}

/// What a server or the endpoint needs.
struct Needs<'a> {
    tls: &'a Tls,
    acme: Option<&'a AcmeCertificate>,
    /// What tells it from others.
    name: String,
    resolver: &'a Arc<Resolver>,
}

fn ready(
    needs: &Needs<'_>,
    speaks: Speaks,
    found: &mut Vec<TlsProblem>,
) -> Result<ServerTls, TlsProblem> {
    let Needs { tls, acme, resolver, .. } = *needs;
    let provider = Arc::new(provider(tls));
    let (mut pairs, mut computed) = (Vec::new(), Vec::new());
    for (certificate, key) in tls.certificates.iter().zip(&tls.keys) {
        if certificate.is_computed() || key.is_computed() {
            let (passwords, cache) = (tls.password_file.clone(), tls.certificate_cache);
            let pair = ComputedPair::new(certificate.clone(), key.clone(), passwords, cache);
            computed.push(pair);
            continue;
        }
        let pair = Arc::new(pair(certificate, key, tls, &provider, found)?);
        let source = certificate.shown();
        let staple = staple(&source, &pair, tls, resolver, found)?;
        pairs.push(Shown { pair, source, staple });
    }
    let versions: Vec<_> = [(tls.versions.tls12, &TLS12), (tls.versions.tls13, &TLS13)]
        .into_iter()
        .filter_map(|(is_on, version)| is_on.then_some(version))
        .collect();
    let client = ClientCheck::load(tls, &provider)?;
    let refused = |error: rustls::Error| TlsProblem {
        directive: "ssl_protocols",
        path: tls.certificates.first().map(Pem::shown).unwrap_or_default(),
        message: error.to_string(),
        is_warning: false,
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(refused)?;
    let builder = match &client {
        Some(check) => builder.with_client_cert_verifier(check.asker(&provider)),
        None => builder.with_no_client_auth(),
    };
    let ordered = acme.filter(|_| tls.uses_acme.0).map(acme::slot);
    let is_bare = tls.is_bare();
    let rejects = tls.rejects || is_bare;
    let pairs = Arc::new(ServerPairs { files: pairs, ordered });
    let mut config = builder.with_cert_resolver(Arc::clone(&pairs) as Arc<dyn ResolvesServerCert>);
    config.ignore_client_order = tls.prefers_own_order;
    if !tls.compresses_certificates {
        config.cert_compressors.clear();
    }
    config.max_fragment_size = Some(tls.record_bytes + RECORD_OVERHEAD);
    config.alpn_protocols = match speaks {
        Speaks::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()],
        Speaks::Http1 => vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()],
        Speaks::Anything => tls.alpn.iter().map(|name| name.clone().into_bytes()).collect(),
    };
    if acme.is_some_and(is_checked_by_handshake) {
        config.alpn_protocols.push(acme::ALPN_ACME.as_bytes().to_vec());
    }
    // Sessions and tickets belong to one server block with its settings: what was agreed on with one is never
    // resumed with another (S4).
    let identity = identity(needs);
    // Only requests can be told from repetitions.
    let takes_early = tls.early_data && !matches!(speaks, Speaks::Anything);
    let most = if takes_early { tls.sessions_max.max(EARLY_SESSIONS) } else { tls.sessions_max };
    config.session_storage = match most {
        0 => Arc::new(NoServerSessionStorage {}),
        most => tickets::sessions(&identity, most, tls.session_timeout),
    };
    if takes_early {
        // What is resumed with early data must be known here and be used up by it: no ticket that says all by
        // itself, which could be used twice (RFC 8446 §8.1). Answers may leave before the handshake is over.
        config.max_early_data_size = EARLY_BYTES_MAX;
        config.send_half_rtt_data = true;
    } else if tls.tickets {
        config.ticketer = tickets::ticketer(&identity, tls)?;
    } else if tls.sessions_max == 0 {
        config.send_tls13_tickets = 0;
    }
    let config = Arc::new(config);
    Ok(ServerTls { config, quic: None, serial: 0, rejects, is_bare, client, pairs, computed })
}

/// The configuration of a server's handshakes over QUIC; `None` where it has no certificate. Early data has no limit of
/// its own there (RFC 9001 §4.6.1): flow control limits it.
pub(super) fn quic(
    server: &Server,
    config: &Arc<ServerConfig>,
) -> Result<Option<QuicTls>, TlsProblem> {
    if server.tls.is_bare() {
        return Ok(None);
    }
    if !server.tls.versions.tls13 {
        let path = server.tls.certificates.first().map(Pem::shown).unwrap_or_default();
        return Err(problem("ssl_protocols", &path, "QUIC needs TLSv1.3"));
    }
    let mut config = ServerConfig::clone(config);
    config.alpn_protocols = vec![super::ALPN_HTTP3.as_bytes().to_vec()];
    config.max_fragment_size = None;
    if config.max_early_data_size > 0 {
        config.max_early_data_size = u32::MAX;
    }
    Ok(Some(QuicTls { config: Arc::new(config), host_key: quic_host_key(server)? }))
}

/// The secret of `quic_host_key`.
fn quic_host_key(server: &Server) -> Result<Option<Arc<[u8]>>, TlsProblem> {
    const NAME: &str = "quic_host_key";
    let Some(path) = &server.tls.quic_host_key else { return Ok(None) };
    let bytes = read(NAME, path)?;
    if bytes.is_empty() {
        return Err(problem(NAME, path, "is empty"));
    }
    Ok(Some(bytes.into()))
}

/// What makes a server's sessions its own.
fn identity(needs: &Needs<'_>) -> String {
    let Needs { tls, name, .. } = needs;
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} {} {} {:?}",
        name,
        tls.certificates,
        tls.verify,
        tls.client_certificate,
        tls.trusted_certificate,
        tls.crl,
        tls.sessions_max,
        tls.early_data,
        tls.session_timeout,
    )
}

/// The suites and groups that are wanted.
fn provider(tls: &Tls) -> CryptoProvider {
    let all = aws_lc_rs::default_provider();
    let is_tls13 = |suite: CipherSuite| u16::from(suite) >> 8 == 0x13;
    let of = |wanted: &Option<Vec<u16>>, tls13: bool| {
        let there =
            || all.cipher_suites.iter().filter(move |suite| is_tls13(suite.suite()) == tls13);
        match wanted {
            None => there().copied().collect::<Vec<_>>(),
            Some(wanted) => wanted
                .iter()
                .filter_map(|id| there().find(|suite| u16::from(suite.suite()) == *id).copied())
                .collect(),
        }
    };
    let mut cipher_suites = of(&tls.suites, true);
    cipher_suites.extend(of(&tls.ciphers, false));
    let kx_groups = match &tls.groups {
        None => all.kx_groups.clone(),
        Some(wanted) => {
            let known = aws_lc_rs::ALL_KX_GROUPS;
            let find = |id: &u16| known.iter().find(|group| u16::from(group.name()) == *id);
            wanted.iter().filter_map(find).copied().collect()
        }
    };
    CryptoProvider { cipher_suites, kx_groups, ..all }
}

pub(super) fn problem(
    directive: &'static str,
    path: &Path,
    message: impl std::fmt::Display,
) -> TlsProblem {
    let (path, message) = (path.to_owned(), message.to_string());
    TlsProblem { directive, path, message, is_warning: false }
}

pub(super) fn read(directive: &'static str, path: &Path) -> Result<Vec<u8>, TlsProblem> {
    sekisho_openings::read(path)
        .map_err(|error| problem(directive, path, format_args!("cannot be read: {error}")))
}

/// Every certificate of a file.
pub(super) fn certificates(
    directive: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let text = read(directive, path)?;
    key_pair::chain(&text).map_err(|why| problem(directive, path, why))
}

/// A certificate and its key.
fn pair(
    certificate: &Pem,
    key: &Pem,
    tls: &Tls,
    provider: &CryptoProvider,
    found: &mut Vec<TlsProblem>,
) -> Result<CertifiedKey, TlsProblem> {
    const NAME: &str = "ssl_certificate";
    const KEY: &str = "ssl_certificate_key";
    let passwords = tls.password_file.as_deref();
    let chain = key_pair::read(certificate).and_then(|text| key_pair::chain(&text));
    let der = key_pair::read(key)
        .and_then(|text| key_pair::private_key(&text, passwords, "ssl_password_file"));
    let (certificate, key) = (&*certificate.shown(), &*key.shown());
    let chain = chain.map_err(|why| problem(NAME, certificate, why))?;
    let der = der.map_err(|why| problem(KEY, key, why))?;
    let own = provider.key_provider.load_private_key(der);
    let pair = own.map(|own| CertifiedKey::new(chain, own));
    let checked = pair.and_then(|pair| match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
        // rustls reads no certificate of version 1, but has no need to: only clients verify it.
        Err(rustls::Error::InvalidCertificate(_)) if is_version_1_of(&pair) => Ok(pair),
        Err(error) => Err(error),
    });
    let mut pair = checked.map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let message =
                format!("is not the key of the certificate \"{}\"", certificate.display());
            problem(KEY, key, message)
        }
        rustls::Error::InvalidCertificate(error) => {
            problem(NAME, certificate, format_args!("is not a certificate: {error}"))
        }
        error => problem(KEY, key, format_args!("cannot be used: {error}")),
    })?;
    if let Some(file) = tls.stapling.file.as_ref().filter(|_| tls.stapling.is_on) {
        const FILE: &str = "ssl_stapling_file";
        let response = read(FILE, file)?;
        if !ocsp::is_response(&response) {
            return Err(problem(FILE, file, "is no OCSP response (DER)"));
        }
        pair.ocsp = Some(response);
    }
    let now = unix_time().as_secs() as i64;
    let dates = pair.cert.first().and_then(|it| Certificate::parse(it)).map(|it| (it.from, it.to));
    let warning =
        |message: String| TlsProblem { is_warning: true, ..problem(NAME, certificate, message) };
    match dates {
        Some((_, to)) if to < now => {
            found.push(warning(format!("expired {} days ago", (now - to) / 86_400)));
        }
        Some((from, _)) if from > now => {
            found.push(warning("is not valid yet".to_owned()));
        }
        _ => {}
    }
    Ok(pair)
}

/// The place of its OCSP response, where one is to be fetched and can be.
fn staple(
    certificate: &Path,
    pair: &Arc<CertifiedKey>,
    tls: &Tls,
    resolver: &Arc<Resolver>,
    found: &mut Vec<TlsProblem>,
) -> Result<Option<Arc<Staple>>, TlsProblem> {
    if !tls.stapling.is_on || tls.stapling.file.is_some() {
        return Ok(None);
    }
    let authorities = match &tls.trusted_certificate {
        Some(path) => certificates("ssl_trusted_certificate", path)?,
        None => Vec::new(),
    };
    match Staple::of(certificate, pair, &authorities, &tls.stapling, resolver) {
        Ok(staple) => Ok(Some(staple)),
        Err(why) => {
            let message = format!("is sent without an OCSP response: {why}");
            let warning = problem("ssl_certificate", certificate, message);
            found.push(TlsProblem { is_warning: true, ..warning });
            Ok(None)
        }
    }
}

/// Whether it is a certificate of version 1, and of this key.
fn is_version_1_of(pair: &CertifiedKey) -> bool {
    let certificate = pair.cert.first().and_then(|it| Certificate::parse(it));
    let (Some(certificate), Some(key)) = (certificate, pair.key.public_key()) else { return false };
    !certificate.has_version && key.ends_with(&certificate.key_bits)
}

/// Whether an authority checks the names of a server by handshakes.
fn is_checked_by_handshake(acme: &AcmeCertificate) -> bool {
    acme.issuer.challenge == AcmeChallenge::TlsAlpn01
}

/// A pair as it is shown.
#[derive(Clone, Debug)]
struct Shown {
    pair: Arc<CertifiedKey>,
    /// The file.
    source: PathBuf,
    /// Where its OCSP response is put when it has been fetched.
    staple: Option<Arc<Staple>>,
}

/// The pairs of a server: the first one that the client can verify is shown.
#[derive(Clone, Debug)]
pub(super) struct ServerPairs {
    files: Vec<Shown>,
    /// `$acme_certificate`
    ordered: Option<Arc<AcmeSlot>>,
}

impl ServerPairs {
    /// What is shown to clients of a server.
    pub(super) fn in_use(&self, server: &Server) -> Vec<InUse> {
        let parse = |pair: &CertifiedKey| pair.cert.first().and_then(|it| Certificate::parse(it));
        let files = self.files.iter().map(|shown| {
            let certificate = parse(&shown.pair);
            let names = certificate.as_ref().map(names_of).unwrap_or_default();
            InUse { names, certificate, source: shown.source.display().to_string() }
        });
        let ordered = self.ordered.iter().zip(&server.acme).map(|(slot, wanted)| InUse {
            names: wanted.names.clone(),
            certificate: slot.certificate(),
            source: format!("acme_issuer {}", wanted.issuer.name),
        });
        files.chain(ordered).collect()
    }

    /// The same, and those that variables have chosen.
    pub(super) fn with(&self, chosen: Vec<Arc<CertifiedKey>>) -> Self {
        let shown = |pair| Shown { pair, source: PathBuf::new(), staple: None };
        let mut all = self.clone();
        all.files.extend(chosen.into_iter().map(shown));
        all
    }

    /// The certificates whose OCSP responses are fetched.
    pub(super) fn staples(&self) -> impl Iterator<Item = &Arc<Staple>> {
        self.files.iter().filter_map(|shown| shown.staple.as_ref())
    }
}

/// What a certificate is for: its names, or where it has none its subject.
fn names_of(certificate: &Certificate) -> Vec<String> {
    match certificate.names.as_slice() {
        [] => vec![certificate.subject.clone()],
        names => names.to_vec(),
    }
}

impl ResolvesServerCert for ServerPairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if acme::is_check(&hello) {
            return acme::shown_for(&hello);
        }
        let schemes = hello.signature_schemes();
        let suits = |pair: &Arc<CertifiedKey>| pair.key.choose_scheme(schemes).is_some();
        // Curves before RSA: they cost a fraction.
        let is_curve = |pair: &Arc<CertifiedKey>| pair.key.algorithm() != SignatureAlgorithm::RSA;
        let ordered = self.ordered.as_ref().and_then(|slot| slot.pair());
        let ordered = ordered.iter().map(|pair| (pair, None));
        let files = self.files.iter().map(|shown| (&shown.pair, shown.staple.as_ref()));
        let suiting = || ordered.clone().chain(files.clone()).filter(|(pair, _)| suits(pair));
        let fast = suiting().find(|(pair, _)| is_curve(pair));
        let (pair, staple) = fast.or_else(|| suiting().next())?;
        // With an OCSP response, if there is one now.
        Some(staple.and_then(|staple| staple.pair()).unwrap_or_else(|| Arc::clone(pair)))
    }
}
