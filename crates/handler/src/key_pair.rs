//! Certificates and their keys, as the configuration names them: read from PEM, and kept for a while where variables
//! choose them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::InconsistentKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sekisho_config::{Pem, PemCache, Template};

/// No certificate with its chain, and no key, is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of a certificate or a key, whose variables are known.
pub fn read(pem: &Pem) -> Result<Vec<u8>, String> {
    match pem {
        Pem::File(path) => {
            sekisho_openings::read(path).map_err(|error| format!("cannot be read: {error}"))
        }
        Pem::Text(text) => Ok(text.to_vec()),
        Pem::Computed { .. } => Err("has variables".to_owned()),
    }
}

/// The same where a client may have had a say in the name: only what is a file of a usual size, so that nobody waits.
fn read_chosen(pem: &Pem) -> Result<Vec<u8>, String> {
    if let Pem::File(path) = pem {
        let found = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err("is no file of a usual size".to_owned());
        }
    }
    read(pem)
}

/// Every certificate of a text.
pub fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&plain(text)).collect();
    let chain = chain.map_err(|error| format!("is not PEM: {error}"))?;
    let chain: Vec<_> = chain.into_iter().map(alone).collect();
    if chain.is_empty() {
        return Err("has no certificate in it".to_owned());
    }
    Ok(chain)
}

/// OpenSSL has other names for certificates: one with marks of its own behind it, and an old one.
fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = Cow::Borrowed(text);
    for name in ["TRUSTED ", "X509 "] {
        let name = format!(" {name}CERTIFICATE-----");
        while let Some(at) = memchr::memmem::find(&plain, name.as_bytes()) {
            let label = b" CERTIFICATE-----".iter().copied();
            plain.to_mut().splice(at..at + name.len(), label);
        }
    }
    plain
}

/// A certificate without what is behind it.
fn alone(der: CertificateDer<'static>) -> CertificateDer<'static> {
    // Its length is in two bytes: none is shorter than 256 bytes or longer than 65,535.
    let whole = match der.as_ref() {
        [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => der.len(),
    };
    if whole >= der.len() { der } else { CertificateDer::from(der[..whole].to_vec()) }
}

/// The private key of a text, decrypted with a password of that file if it must be; `directive` is what names the file.
pub fn private_key(
    text: &[u8],
    passwords: Option<&Path>,
    directive: &str,
) -> Result<PrivateKeyDer<'static>, String> {
    if is_encrypted(text) {
        return decrypted(text, passwords, directive);
    }
    PrivateKeyDer::from_pem_slice(text)
        .map_err(|error| format!("has no private key in it: {error}"))
}

fn is_encrypted(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"ENCRYPTED").is_some()
}

/// The key (PKCS #8, RFC 5958), by the first password that fits, as in nginx.
fn decrypted(
    text: &[u8],
    passwords: Option<&Path>,
    directive: &str,
) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not PEM".to_owned())?;
    let (label, document) = SecretDocument::from_pem(text).map_err(|_| {
        let how = "convert it with: openssl pkcs8 -topk8 -in KEY -out NEW";
        format!("is encrypted in a form that is not supported; {how}")
    })?;
    if label != "ENCRYPTED PRIVATE KEY" {
        return Err("is encrypted in a form that is not supported".to_owned());
    }
    let Some(file) = passwords else {
        return Err(format!("is encrypted: set its password with \"{directive}\""));
    };
    let shown = file.display();
    let key = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|error| format!("is not an encrypted key: {error}"))?;
    let known = sekisho_openings::read(file)
        .map_err(|error| format!("is encrypted, and \"{shown}\" cannot be read: {error}"))?;
    for password in lines(&known) {
        if let Ok(plain) = key.decrypt(password) {
            let der = PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec());
            return Ok(PrivateKeyDer::Pkcs8(der));
        }
    }
    Err(format!("cannot be decrypted with any password in \"{shown}\""))
}

/// One password in a line; a line may end as on Windows.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
}

/// A certificate and its key that variables choose.
#[derive(Debug)]
pub struct ComputedPair {
    /// The certificate.
    pub certificate: Pem,
    /// Its key.
    pub key: Pem,
    /// Where the passwords of encrypted keys are.
    pub password_file: Option<std::path::PathBuf>,
    /// What was read a short time ago.
    kept: Option<(PemCache, Mutex<Kept>)>,
}

/// Pairs by what names them, and how often one was asked for.
#[derive(Debug, Default)]
struct Kept {
    pairs: HashMap<(Pem, Pem), KeptPair>,
    uses: u64,
}

#[derive(Debug)]
struct KeptPair {
    pair: Arc<CertifiedKey>,
    read: Duration,
    used: Duration,
    /// The number of its last use.
    last_use: u64,
}

impl ComputedPair {
    /// Nothing is read yet.
    pub fn new(
        certificate: Pem,
        key: Pem,
        password_file: Option<std::path::PathBuf>,
        cache: Option<PemCache>,
    ) -> Self {
        let kept = cache.map(|cache| (cache, Mutex::default()));
        Self { certificate, key, password_file, kept }
    }

    /// The pair that the variables name now; `None` where the name is empty. `now` is the time of day.
    pub fn pair(
        &self,
        provider: &CryptoProvider,
        now: Duration,
        value: impl Fn(&Template) -> Vec<u8>,
    ) -> Result<Option<Arc<CertifiedKey>>, String> {
        let known = |pem: &Pem| match pem {
            Pem::Computed { value: template, folder } => {
                let text = value(template);
                (!text.is_empty()).then(|| Pem::of_value(&text, folder))
            }
            other => Some(other.clone()),
        };
        let Some(named) = known(&self.certificate).zip(known(&self.key)) else { return Ok(None) };
        let Some((rules, kept)) = &self.kept else {
            return self.load(&named, provider).map(|(pair, _)| Some(pair));
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { pairs, uses } = &mut *kept;
        *uses += 1;
        pairs.retain(|_, it| {
            now.saturating_sub(it.used) < rules.inactive
                && now.saturating_sub(it.read) < rules.valid
        });
        if let Some(found) = pairs.get_mut(&named) {
            (found.used, found.last_use) = (now, *uses);
            return Ok(Some(Arc::clone(&found.pair)));
        }
        let (pair, is_encrypted) = self.load(&named, provider)?;
        if is_encrypted {
            return Ok(Some(pair));
        }
        // A certificate and a key count one each.
        while pairs.len() >= (rules.max / 2).max(1) {
            let oldest = pairs.iter().min_by_key(|(_, it)| it.last_use);
            let Some(oldest) = oldest.map(|(named, _)| named.clone()) else { break };
            pairs.remove(&oldest);
        }
        let new = KeptPair { pair: Arc::clone(&pair), read: now, used: now, last_use: *uses };
        pairs.insert(named, new);
        Ok(Some(pair))
    }

    /// Reads them; whether the key is encrypted, so that it is not kept in memory.
    fn load(
        &self,
        (certificate, key): &(Pem, Pem),
        provider: &CryptoProvider,
    ) -> Result<(Arc<CertifiedKey>, bool), String> {
        let about = |pem: &Pem, why: String| format!("\"{}\" {why}", pem.shown().display());
        let chain = read_chosen(certificate)
            .and_then(|text| chain(&text))
            .map_err(|why| format!("cannot load certificate {}", about(certificate, why)))?;
        let wrong_key = |why| format!("cannot load certificate key {}", about(key, why));
        let text = read_chosen(key).map_err(wrong_key)?;
        let der = private_key(&text, self.password_file.as_deref(), "ssl_password_file");
        let der = der.map_err(wrong_key)?;
        let pair = pair(chain, der, provider).map_err(wrong_key)?;
        Ok((Arc::new(pair), is_encrypted(&text)))
    }
}

/// Both together. What is wrong is said of the key. rustls reads no certificate of version 1, but has no need to: only
/// the other side verifies it.
pub fn pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let own = provider.key_provider.load_private_key(key);
    let own = own.map_err(|error| format!("cannot be used: {error}"))?;
    let pair = CertifiedKey::new(chain, own);
    match pair.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err("is not the key of the certificate".to_owned())
        }
        _ => Ok(pair),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_names_is_a_file_of_a_usual_size() {
        for (path, why) in [("/dev/zero", "usual size"), ("/", "usual size"), ("/none", "cannot")] {
            let error = read_chosen(&Pem::File(path.into())).expect_err(path);
            assert!(error.contains(why), "{path}: {error}");
        }
        assert_eq!(read_chosen(&Pem::Text(b"x"[..].into())), Ok(b"x".to_vec()));
    }

    #[test]
    fn each_line_is_a_password() {
        let found: Vec<&[u8]> = lines(b"one\r\n\ntwo words\nlast").collect();
        assert_eq!(found, [&b"one"[..], b"two words", b"last"]);
    }
}
