//! Certificates of clients. The handshake takes any whose key the client has; whether it is one of ours is judged
//! afterwards, for a resumed session as well, so that the answer can say what is wrong (495, 496) and so that a
//! session of one server block is nothing to another (S4).

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use sekisho_config::{Tls, VerifyClient};
use sekisho_route::{ClientCertificate, ClientVerdict};

use super::certificate::Certificate;
use super::load::{certificates, problem, read};
use super::revocation::{self, RevocationList};
use super::{TlsProblem, version_1};
use crate::clock::unix_time;

/// As OpenSSL words it.
const UNKNOWN: &str = "unable to get local issuer certificate";
const SELF_SIGNED: &str = "self-signed certificate";

/// How a server judges its clients' certificates.
#[derive(Debug)]
pub(super) struct ClientCheck {
    /// `None` for `optional_no_ca` without any authority.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The authorities themselves.
    authorities: Vec<(CertificateDer<'static>, Certificate)>,
    has_crl: bool,
    revocations: Vec<RevocationList>,
    algorithms: WebPkiSupportedAlgorithms,
    /// Names of authorities that are sent to clients.
    hints: Arc<[DistinguishedName]>,
    depth: usize,
    is_lenient: bool,
}

impl ClientCheck {
    /// `None` where clients are not asked.
    pub(super) fn load(
        tls: &Tls,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Self>, TlsProblem> {
        if !tls.asks_for_certificate() {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        let mut hints = Vec::new();
        let mut authorities = Vec::new();
        let files = [
            ("ssl_client_certificate", &tls.client_certificate),
            ("ssl_trusted_certificate", &tls.trusted_certificate),
        ];
        for (directive, path) in files {
            let Some(path) = path else { continue };
            for authority in certificates(directive, path)? {
                let parsed = Certificate::parse(&authority).unwrap_or_default();
                authorities.push((authority.clone(), parsed));
                roots.add(authority).map_err(|error| {
                    problem(directive, path, format!("cannot be used: {error}"))
                })?;
            }
            if directive == "ssl_client_certificate" {
                hints = roots.subjects();
            }
        }
        let mut revocations = Vec::new();
        let verifier = if roots.is_empty() {
            None
        } else {
            let roots = Arc::new(roots);
            let mut builder =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            if let Some(path) = &tls.crl {
                for (list, read) in revocation_lists(path)? {
                    if !read.is_version_1 {
                        builder = builder.with_crls([list]);
                    }
                    revocations.push(read);
                }
                builder = builder.allow_unknown_revocation_status();
            }
            let first = tls.crl.as_ref().or(tls.client_certificate.as_ref());
            let first = first.cloned().unwrap_or_default();
            let built = builder.build().map_err(|error| {
                problem("ssl_client_certificate", &first, format!("cannot be used: {error}"))
            })?;
            Some(built)
        };
        let depth = tls.verify_depth as usize;
        let is_lenient = tls.verify == VerifyClient::OptionalNoCa;
        let (hints, has_crl) = (hints.into(), tls.crl.is_some());
        let algorithms = provider.signature_verification_algorithms;
        Ok(Some(Self {
            verifier,
            authorities,
            has_crl,
            revocations,
            algorithms,
            hints,
            depth,
            is_lenient,
        }))
    }

    /// The verifier that asks for client certificates in the handshake.
    pub(super) fn asker(&self, provider: &CryptoProvider) -> Arc<dyn ClientCertVerifier> {
        let algorithms = provider.signature_verification_algorithms;
        Arc::new(Asker { hints: Arc::clone(&self.hints), algorithms })
    }

    /// The verification of a client's certificates; `None` if it has sent none.
    pub(super) fn judge(
        &self,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Option<Box<ClientCertificate>> {
        let (first, rest) = chain?.split_first()?;
        let now = unix_time();
        // Only so many certificates may be between it and an authority.
        let rest = &rest[..rest.len().min(self.depth.saturating_sub(1))];
        let parsed = Certificate::parse(first).unwrap_or_default();
        let judged = match &self.verifier {
            _ if self.is_authority(first) || self.has_issued(first, &parsed) => {
                in_time(&parsed, now.as_secs() as i64)
            }
            Some(verifier) => verifier
                .verify_client_cert(first, rest, UnixTime::since_unix_epoch(now))
                .map(|_| ())
                .map_err(|error| match &error {
                    // It is one of version 1, or marked as an authority's.
                    Error::InvalidCertificate(rustls::CertificateError::Other(_))
                        if parsed.issuer_der == parsed.subject_der =>
                    {
                        SELF_SIGNED.to_owned()
                    }
                    Error::InvalidCertificate(_) if !parsed.has_version => UNKNOWN.to_owned(),
                    _ => reason(&error),
                }),
            None => Err(UNKNOWN.to_owned()),
        };
        let judged =
            judged.and_then(|()| self.check_revocation(&parsed, rest, now.as_secs() as i64));
        let is_excused = self.is_lenient
            && judged.as_ref().is_err_and(|why| [UNKNOWN, SELF_SIGNED].contains(&why.as_str()));
        let result = match judged {
            Ok(()) => ClientVerdict::Valid,
            Err(why) if is_excused => ClientVerdict::Unjudged(why),
            Err(why) => ClientVerdict::Invalid(why),
        };
        Some(Box::new(ClientCertificate {
            result,
            subject: parsed.subject,
            issuer: parsed.issuer,
            subject_legacy: parsed.subject_legacy,
            issuer_legacy: parsed.issuer_legacy,
            serial: parsed.serial,
            fingerprint: super::certificate::fingerprint(first),
            from: super::certificate::date(parsed.from),
            to: super::certificate::date(parsed.to),
            days_left: (parsed.to - now.as_secs() as i64).max(0) / 86_400,
            pem: pem(first),
        }))
    }
}

impl ClientCheck {
    /// Whether the certificate is itself one of the authorities: that is how those of a client's own making are trusted.
    fn is_authority(&self, certificate: &CertificateDer<'_>) -> bool {
        !self.has_crl && self.authorities.iter().any(|(authority, _)| authority == certificate)
    }

    /// Whether none of a chain is in a list that rustls does not look at.
    fn check_revocation(
        &self,
        first: &Certificate,
        rest: &[CertificateDer<'_>],
        now: i64,
    ) -> Result<(), String> {
        if self.revocations.is_empty() {
            return Ok(());
        }
        let rest = rest.iter().filter_map(|der| Certificate::parse(der));
        let chain: Vec<Certificate> = [first.clone()].into_iter().chain(rest).collect();
        let authorities: Vec<&Certificate> = self.authorities.iter().map(|(_, it)| it).collect();
        let why =
            revocation::refused(&self.revocations, &chain, &authorities, &self.algorithms, now);
        why.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Whether an authority has issued a certificate of version 1.
    fn has_issued(&self, der: &CertificateDer<'_>, certificate: &Certificate) -> bool {
        if certificate.has_version || self.depth == 0 {
            return false;
        }
        let now = unix_time().as_secs() as i64;
        let issued = |authority: &Certificate| {
            in_time(authority, now).is_ok()
                && version_1::is_issued_by(der, certificate, authority, &self.algorithms)
        };
        self.authorities.iter().any(|(_, authority)| issued(authority))
    }
}

/// Whether a certificate is valid now.
fn in_time(certificate: &Certificate, now: i64) -> Result<(), String> {
    if now < certificate.from {
        return Err("certificate is not yet valid".to_owned());
    }
    if now > certificate.to {
        return Err("certificate has expired".to_owned());
    }
    Ok(())
}

/// As OpenSSL words it, for `$ssl_client_verify`.
fn reason(error: &Error) -> String {
    use rustls::CertificateError as E;
    let Error::InvalidCertificate(error) = error else { return error.to_string() };
    match error {
        E::Expired | E::ExpiredContext { .. } => "certificate has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "certificate is not yet valid",
        E::Revoked => "certificate revoked",
        E::UnknownIssuer => UNKNOWN,
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => "unsuitable certificate purpose",
        E::BadSignature => "certificate signature failure",
        _ => return error.to_string(),
    }
    .to_owned()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, next) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = next;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Asks for a certificate and checks that the client has its key; nothing else.
#[derive(Debug)]
struct Asker {
    hints: Arc<[DistinguishedName]>,
    algorithms: WebPkiSupportedAlgorithms,
}

const BAD_SIGNATURE: Error = Error::InvalidCertificate(rustls::CertificateError::BadSignature);

fn is_pkcs1(scheme: SignatureScheme) -> bool {
    use SignatureScheme as S;
    matches!(
        scheme,
        S::RSA_PKCS1_SHA1 | S::RSA_PKCS1_SHA256 | S::RSA_PKCS1_SHA384 | S::RSA_PKCS1_SHA512
    )
}

impl Asker {
    fn check_key(
        &self,
        certificate: &Certificate,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if version_1::has_key(certificate, message, signed, &self.algorithms) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(BAD_SIGNATURE)
    }
}

impl ClientCertVerifier for Asker {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match version_1::parse(certificate) {
            Some(parsed) => self.check_key(&parsed, message, signature),
            None => verify_tls12_signature(message, certificate, signature, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match version_1::parse(certificate) {
            // RFC 8446 §4.2.3: these are for certificates alone.
            Some(_) if is_pkcs1(signature.scheme) => Err(BAD_SIGNATURE),
            Some(parsed) => self.check_key(&parsed, message, signature),
            None => verify_tls13_signature(message, certificate, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The lists of a file, each also as we read it.
fn revocation_lists(
    path: &Path,
) -> Result<Vec<(CertificateRevocationListDer<'static>, RevocationList)>, TlsProblem> {
    let text = read("ssl_crl", path)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let lists = lists.map_err(|error| problem("ssl_crl", path, format!("is not PEM: {error}")))?;
    if lists.is_empty() {
        // As with nginx: nothing would be refused by it.
        return Err(problem("ssl_crl", path, "has no list"));
    }
    let parse = |list: CertificateRevocationListDer<'static>| {
        let read = RevocationList::parse(&list);
        Ok((list, read.ok_or_else(|| problem("ssl_crl", path, "cannot be read"))?))
    };
    lists.into_iter().map(parse).collect()
}
