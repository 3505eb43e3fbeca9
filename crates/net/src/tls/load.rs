//! Certificates, keys and settings become a configuration of rustls.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, InconsistentKeys, ServerConfig, SignatureAlgorithm};
use sekisho_config::{AcmeChallenge, Server, Tls};

use super::acme::{self, AcmeSlot};
use super::certificate::Certificate;
use super::client::ClientCheck;
use super::{InUse, ServerTls, TlsProblem, encrypted_key, tickets};
use crate::clock::unix_time;

/// A record's own bytes, which rustls counts with what it holds.
const RECORD_OVERHEAD: usize = 5;

/// What this server needs. Warnings go to `found`.
pub(super) fn server(
    server: &Server,
    speaks_http2: bool,
    found: &mut Vec<TlsProblem>,
) -> Result<ServerTls, TlsProblem> {
    let tls = &*server.tls;
    let provider = Arc::new(provider(tls));
    let mut pairs = Vec::new();
    for (certificate, key) in tls.certificates.iter().zip(&tls.keys) {
        pairs.push(Arc::new(pair(certificate, key, tls, &provider, found)?));
    }
    let versions: Vec<_> = [(tls.versions.tls12, &TLS12), (tls.versions.tls13, &TLS13)]
        .into_iter()
        .filter_map(|(is_on, version)| is_on.then_some(version))
        .collect();
    let client = ClientCheck::load(tls, &provider)?;
    let refused = |error: rustls::Error| TlsProblem {
        directive: "ssl_protocols",
        path: tls.certificates.first().cloned().unwrap_or_default(),
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
    let ordered = server.acme.as_deref().filter(|_| tls.uses_acme.0).map(acme::slot);
    let rejects = tls.rejects || (pairs.is_empty() && ordered.is_none());
    let pairs = Arc::new(Pairs { files: pairs, ordered });
    let mut config = builder.with_cert_resolver(Arc::clone(&pairs) as Arc<dyn ResolvesServerCert>);
    config.ignore_client_order = tls.prefers_own_order;
    config.max_fragment_size = Some(tls.record_bytes + RECORD_OVERHEAD);
    config.alpn_protocols = [&b"h2"[..], b"http/1.1", b"http/1.0"]
        .into_iter()
        .skip(usize::from(!speaks_http2))
        .map(<[u8]>::to_vec)
        .collect();
    if is_checked_by_handshake(server) {
        config.alpn_protocols.push(acme::ALPN_ACME.as_bytes().to_vec());
    }
    // Sessions and tickets belong to one server block with its settings: what was agreed on with one is never
    // resumed with another (S4).
    let identity = identity(server);
    config.session_storage = match tls.sessions_max {
        0 => Arc::new(NoServerSessionStorage {}),
        most => tickets::sessions(&identity, || ServerSessionMemoryCache::new(most)),
    };
    if tls.tickets {
        config.ticketer = tickets::ticketer(&identity, tls)?;
    } else if tls.sessions_max == 0 {
        config.send_tls13_tickets = 0;
    }
    Ok(ServerTls { config: Arc::new(config), serial: 0, rejects, client, pairs })
}

/// What makes a server's sessions its own.
fn identity(server: &Server) -> String {
    let tls = &server.tls;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        server.names.first(),
        tls.certificates,
        tls.verify,
        tls.client_certificate,
        tls.trusted_certificate,
        tls.crl,
        tls.sessions_max,
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
    fs::read(path)
        .map_err(|error| problem(directive, path, format_args!("cannot be read: {error}")))
}

/// Every certificate of a file.
pub(super) fn certificates(
    directive: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let text = read(directive, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain =
        chain.map_err(|error| problem(directive, path, format_args!("is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(problem(directive, path, "has no certificate in it"));
    }
    Ok(chain)
}

/// A certificate and its key.
fn pair(
    certificate: &Path,
    key: &Path,
    tls: &Tls,
    provider: &CryptoProvider,
    found: &mut Vec<TlsProblem>,
) -> Result<CertifiedKey, TlsProblem> {
    const NAME: &str = "ssl_certificate";
    const KEY: &str = "ssl_certificate_key";
    let chain = certificates(NAME, certificate)?;
    let text = read(KEY, key)?;
    let der = if memchr_any(&text, b"ENCRYPTED") {
        encrypted_key::read(key, &text, tls.password_file.as_deref())?
    } else {
        PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| problem(KEY, key, format_args!("has no private key in it: {error}")))?
    };
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
            problem(NAME, certificate, format_args!("is no certificate: {error}"))
        }
        error => problem(KEY, key, format_args!("cannot be used: {error}")),
    })?;
    if let Some(staple) = &tls.staple {
        pair.ocsp = Some(read("ssl_stapling_file", staple)?);
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

/// Whether it is a certificate of version 1, and of this key.
fn is_version_1_of(pair: &CertifiedKey) -> bool {
    let certificate = pair.cert.first().and_then(|it| Certificate::parse(it));
    let (Some(certificate), Some(key)) = (certificate, pair.key.public_key()) else { return false };
    !certificate.has_version && key.ends_with(&certificate.key_bits)
}

fn memchr_any(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|it| it == word)
}

/// Whether an authority checks the names of a server by handshakes.
fn is_checked_by_handshake(server: &Server) -> bool {
    let acme = server.acme.as_deref();
    acme.is_some_and(|acme| acme.issuer.challenge == AcmeChallenge::TlsAlpn01)
}

/// The pairs of a server: the first one that the client can verify is shown.
#[derive(Debug)]
pub(super) struct Pairs {
    files: Vec<Arc<CertifiedKey>>,
    /// `$acme_certificate`
    ordered: Option<Arc<AcmeSlot>>,
}

impl Pairs {
    /// What is shown to clients of a server.
    pub(super) fn in_use(&self, server: &Server) -> Vec<InUse> {
        let parse = |pair: &CertifiedKey| pair.cert.first().and_then(|it| Certificate::parse(it));
        let files = self.files.iter().zip(&server.tls.certificates).map(|(pair, path)| {
            let certificate = parse(pair);
            let names = certificate.as_ref().map(names_of).unwrap_or_default();
            InUse { names, certificate, source: path.display().to_string() }
        });
        let ordered = self.ordered.iter().zip(&server.acme).map(|(slot, wanted)| InUse {
            names: wanted.names.clone(),
            certificate: slot.certificate(),
            source: format!("acme_issuer {}", wanted.issuer.name),
        });
        files.chain(ordered).collect()
    }
}

/// What a certificate is for: its names, or where it has none its subject.
fn names_of(certificate: &Certificate) -> Vec<String> {
    match certificate.names.as_slice() {
        [] => vec![certificate.subject.clone()],
        names => names.to_vec(),
    }
}

impl ResolvesServerCert for Pairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if acme::is_check(&hello) {
            return acme::shown_for(&hello);
        }
        let schemes = hello.signature_schemes();
        let suits = |pair: &&Arc<CertifiedKey>| pair.key.choose_scheme(schemes).is_some();
        // Curves before RSA: they cost a fraction.
        let is_curve = |pair: &&Arc<CertifiedKey>| pair.key.algorithm() != SignatureAlgorithm::RSA;
        let ordered = self.ordered.as_ref().and_then(|slot| slot.pair());
        let all = || ordered.iter().chain(&self.files);
        let fast = all().filter(suits).find(is_curve);
        fast.or_else(|| all().find(suits)).cloned()
    }
}
