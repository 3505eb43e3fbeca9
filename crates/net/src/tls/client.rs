//! Certificates of clients. The handshake takes any whose key the client has; whether it is one of ours is judged
//! afterwards, for a resumed session as well, so that the answer can say what is wrong (495, 496) and so that a
//! session of one server block is nothing to another (S4).

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

use super::TlsProblem;
use super::certificate::Certificate;
use super::load::{certificates, read};
use crate::clock::unix_time;

/// How a server judges its clients' certificates.
#[derive(Debug)]
pub(super) struct ClientCheck {
    /// `None` for `optional_no_ca` without any authority.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
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
        let files = [
            ("ssl_client_certificate", &tls.client_certificate),
            ("ssl_trusted_certificate", &tls.trusted_certificate),
        ];
        let problem = |directive, path: &std::path::Path, message: String| TlsProblem {
            directive,
            path: path.to_owned(),
            message,
            is_warning: false,
        };
        for (directive, path) in files {
            let Some(path) = path else { continue };
            for authority in certificates(directive, path)? {
                roots.add(authority).map_err(|error| {
                    problem(directive, path, format!("cannot be used: {error}"))
                })?;
            }
            if directive == "ssl_client_certificate" {
                hints = roots.subjects();
            }
        }
        let verifier = if roots.is_empty() {
            None
        } else {
            let roots = Arc::new(roots);
            let mut builder =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            if let Some(path) = &tls.crl {
                let text = read("ssl_crl", path)?;
                let lists: Result<Vec<_>, _> =
                    CertificateRevocationListDer::pem_slice_iter(&text).collect();
                let lists = lists
                    .map_err(|error| problem("ssl_crl", path, format!("is not PEM: {error}")))?;
                builder = builder.with_crls(lists).allow_unknown_revocation_status();
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
        Ok(Some(Self { verifier, hints: hints.into(), depth, is_lenient }))
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
        let judged = match &self.verifier {
            Some(verifier) => verifier
                .verify_client_cert(first, rest, UnixTime::since_unix_epoch(now))
                .map_err(|error| reason(&error)),
            None => Err("unable to get local issuer certificate".to_owned()),
        };
        let is_excused = self.is_lenient
            && judged.as_ref().is_err_and(|why| why == "unable to get local issuer certificate");
        let result = match judged {
            Ok(_) => ClientVerdict::Valid,
            Err(why) if is_excused => ClientVerdict::Unjudged(why),
            Err(why) => ClientVerdict::Invalid(why),
        };
        let parsed = Certificate::parse(first).unwrap_or_default();
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

/// As OpenSSL words it, for `$ssl_client_verify`.
fn reason(error: &Error) -> String {
    use rustls::CertificateError as E;
    let Error::InvalidCertificate(error) = error else { return error.to_string() };
    match error {
        E::Expired | E::ExpiredContext { .. } => "certificate has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "certificate is not yet valid",
        E::Revoked => "certificate revoked",
        E::UnknownIssuer => "unable to get local issuer certificate",
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
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
