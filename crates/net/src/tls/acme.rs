//! Certificates that are ordered by themselves, as handshakes and requests see them: what has been issued, and what
//! shows an authority that a name is ours (RFC 8555 §8.3, RFC 8737). Kept by the process, so that it outlives
//! a reload; ordering is done elsewhere.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use ::aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use sekisho_config::AcmeCertificate;

use super::certificate::Certificate;

/// What an authority asks for in a handshake by which it checks a name.
pub(crate) const ALPN_ACME: &str = "acme-tls/1";

/// The clocks of authorities differ from ours by no more.
const CLOCK_SKEW_SECS: i64 = 24 * 60 * 60;

/// A certificate that is ordered: there, or not yet.
#[derive(Debug, Default)]
pub struct AcmeSlot {
    issued: RwLock<Option<Issued>>,
}

#[derive(Clone, Debug)]
struct Issued {
    pair: Arc<CertifiedKey>,
    pem: Pem,
}

#[derive(Clone)]
struct Pem(Arc<[u8]>);

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pem(…)")
    }
}

#[derive(Default)]
struct Kept {
    slots: HashMap<String, Arc<AcmeSlot>>,
    /// The answer to a request for a token.
    tokens: HashMap<String, String>,
    /// What is to be shown in a handshake for a name.
    names: HashMap<String, Arc<CertifiedKey>>,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
/// How many tokens and names there are: nearly always none, and then nothing is looked up.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

impl AcmeSlot {
    /// What has been issued.
    pub fn pair(&self) -> Option<Arc<CertifiedKey>> {
        let issued = self.issued.read().unwrap_or_else(PoisonError::into_inner);
        issued.as_ref().map(|issued| Arc::clone(&issued.pair))
    }

    /// The same as it was put: a key and its certificates.
    pub fn pem(&self) -> Option<Arc<[u8]>> {
        let issued = self.issued.read().unwrap_or_else(PoisonError::into_inner);
        issued.as_ref().map(|issued| Arc::clone(&issued.pem.0))
    }

    /// Puts a key and its certificates (PEM, one behind the other) to use.
    pub fn put(&self, pem: &[u8]) -> Result<(), String> {
        let pair = pair_of(pem)?;
        pair.keys_match().map_err(|error| format!("cannot be used: {error}"))?;
        let issued = Issued { pair: Arc::new(pair), pem: Pem(pem.into()) };
        *self.issued.write().unwrap_or_else(PoisonError::into_inner) = Some(issued);
        Ok(())
    }

    /// What the certificate says, if it is there.
    pub fn certificate(&self) -> Option<Certificate> {
        self.pair()?.cert.first().and_then(|der| Certificate::parse(der))
    }
}

/// A key and its certificates; whether they belong together is for [`CertifiedKey::keys_match`] to say.
fn pair_of(pem: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| format!("is not PEM: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("has no key: {error}"))?;
    if chain.is_empty() {
        return Err("has no certificate in it".to_owned());
    }
    let key = aws_lc_rs::default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| format!("cannot be used: {error}"))?;
    Ok(CertifiedKey::new(chain, key))
}

/// What an authority has issued for these names, key and certificates: what the certificate says. An error where it is for
/// others, or not valid now: it must not take the place of one that is in use.
pub fn check_issued(pem: &[u8], names: &[String], now: i64) -> Result<Certificate, String> {
    let pair = pair_of(pem)?;
    pair.keys_match().map_err(|error| format!("cannot be used: {error}"))?;
    let certificate = pair.cert.first().and_then(|der| Certificate::parse(der));
    let certificate = certificate.ok_or("cannot be read")?;
    let address = |name: &str| name.parse::<std::net::IpAddr>().ok();
    let is_same = |own: &str, name: &str| {
        own.eq_ignore_ascii_case(name) || address(own).is_some_and(|it| Some(it) == address(name))
    };
    if let Some(name) =
        names.iter().find(|name| !certificate.names.iter().any(|own| is_same(own, name)))
    {
        return Err(format!("is not for {name}"));
    }
    if certificate.to <= now || certificate.from > now + CLOCK_SKEW_SECS {
        return Err("is not valid now".to_owned());
    }
    Ok(certificate)
}

/// What tells one order from another: authority, names and kind of key.
pub fn identity(wanted: &AcmeCertificate) -> String {
    format!("{} {} {:?}", wanted.issuer.uri, wanted.names.join(","), wanted.key)
}

/// Where key and certificates are kept; `None` where nothing is.
pub fn state_file(wanted: &AcmeCertificate) -> Option<PathBuf> {
    let folder = wanted.issuer.state_path.as_ref()?;
    let first = wanted.names.first()?;
    let hash = digest(&SHA256, identity(wanted).as_bytes());
    let hash = hash.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes);
    Some(folder.join(format!("{first}-{hash:08x}.pem")))
}

/// The place of a certificate. What was issued earlier is read from its file.
pub fn slot(wanted: &AcmeCertificate) -> Arc<AcmeSlot> {
    let slot = Arc::clone(lock().slots.entry(identity(wanted)).or_default());
    if slot.pair().is_none()
        && let Some(pem) = state_file(wanted).and_then(|path| std::fs::read(path).ok())
    {
        // One that cannot be used is ordered anew.
        let _ = slot.put(&pem);
    }
    slot
}

fn lock() -> std::sync::MutexGuard<'static, Kept> {
    // Nothing that holds the lock can panic half-way.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows an authority that a name is ours, until it is dropped.
#[derive(Debug)]
pub struct Proof(Shown);

#[derive(Debug)]
enum Shown {
    Token(String),
    Name(String),
}

impl Proof {
    /// By what is answered to a request for a token (HTTP-01).
    pub fn token(token: &str, key_authorization: &str) -> Self {
        lock().tokens.insert(token.to_owned(), key_authorization.to_owned());
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Self(Shown::Token(token.to_owned()))
    }

    /// By what is shown in a handshake for a name (TLS-ALPN-01): a key and its certificate (PEM).
    pub fn handshake(name: &str, pem: &[u8]) -> Result<Self, String> {
        // The extension that makes it one is critical, and no library takes it for a certificate.
        let pair = Arc::new(pair_of(pem)?);
        lock().names.insert(name.to_ascii_lowercase(), pair);
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Ok(Self(Shown::Name(name.to_ascii_lowercase())))
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
        let mut kept = lock();
        match &self.0 {
            Shown::Token(token) => drop(kept.tokens.remove(token)),
            Shown::Name(name) => drop(kept.names.remove(name)),
        }
    }
}

/// What is answered to a request for a token.
pub(crate) fn key_authorization(token: &[u8]) -> Option<Vec<u8>> {
    if UNDER_WAY.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let token = std::str::from_utf8(token).ok()?;
    lock().tokens.get(token).map(|text| text.clone().into_bytes())
}

/// Whether a handshake is one by which an authority checks a name.
pub(super) fn is_check(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.any(|it| it == ALPN_ACME.as_bytes()))
}

/// What is shown in such a handshake.
pub(super) fn shown_for(hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
    let name = hello.server_name()?.to_ascii_lowercase();
    lock().names.get(&name).cloned()
}
