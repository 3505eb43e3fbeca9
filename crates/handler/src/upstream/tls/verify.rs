//! Which certificates of servers are taken.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// `proxy_ssl_verify on`: a chain that ends at a trusted certificate, or a certificate that is itself among them. The
/// second is how servers with certificates of their own making are set up; such a certificate is often marked as an
/// authority's, which rustls takes from no server otherwise.
#[derive(Debug)]
pub(super) struct Trusted {
    chain: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Trusted {
    pub(super) fn new(
        chain: Arc<WebPkiServerVerifier>,
        named: Vec<CertificateDer<'static>>,
    ) -> Self {
        Self { chain, named }
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The dates of a certificate are judged before its marks: one that has expired is never odd.
        let judged = self.chain.verify_server_cert(certificate, others, name, stapled, now);
        let is_odd = matches!(&judged, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if !is_odd || !self.named.iter().any(|named| named == certificate) {
            return judged;
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Takes any certificate, though its key must be the server's: `proxy_ssl_verify off`, nginx's default, and `ssl_verify
/// off` of an `acme_issuer`.
#[derive(Debug)]
pub struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    /// With the signatures that aws-lc-rs knows.
    pub fn new() -> Self {
        Self(aws_lc_rs::default_provider().signature_verification_algorithms)
    }
}

impl Default for AnyCertificate {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        readable(verify_tls12_signature(message, certificate, signed, &self.0))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        readable(verify_tls13_signature(message, certificate, signed, &self.0))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Where nobody asks who signs, a certificate that rustls cannot read (version 1) is as good as any other.
fn readable(
    verified: Result<HandshakeSignatureValid, Error>,
) -> Result<HandshakeSignatureValid, Error> {
    match verified {
        Err(Error::InvalidCertificate(CertificateError::Other(_))) => {
            Ok(HandshakeSignatureValid::assertion())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rustls::RootCertStore;

    use super::*;

    /// Made by `openssl req -x509 -days 30`, which marks it as an authority's, for `a.test`, in November 2026.
    const NAMED: &str = "MIIBizCCATCgAwIBAgIUKV3AfIXG2u9BoJ4RmEqR04eBAd0wCgYIKoZIzj0EAwIwETEPMA0GA1UEAwwGYS50ZXN0MB4XDTI2MTEx\
        NjExMjQxNVoXDTI2MTIxNjExMjQxNVowETEPMA0GA1UEAwwGYS50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHw2EaaaP\
        koywcQq0ReLeXcnRPqronhq3ZWYbEyOncG2BW4Lao8GElsZ6TKLUQpKzsHyKfQfHxg+YRja3CK2UcKNmMGQwHQYDVR0OBBYEFK7V\
        VfFsk43XVTSfZph/6IBOqiuyMB8GA1UdIwQYMBaAFK7VVfFsk43XVTSfZph/6IBOqiuyMA8GA1UdEwEB/wQFMAMBAf8wEQYDVR0R\
        BAowCIIGYS50ZXN0MAoGCCqGSM49BAMCA0kAMEYCIQC3h4E5TxPhPhn0w5LmPDW8vAfOKwr8aOWY/PXS7V54HwIhAOspyMSA8pYb\
        L4n4oEXjVr56cQ983CMTiOOIpLHSYVRa";
    /// Within its days, and a year later.
    const VALID: Duration = Duration::from_secs(1_794_828_256 + 86_400);
    const EXPIRED: Duration = Duration::from_secs(1_794_828_256 + 365 * 86_400);

    #[test]
    fn a_certificate_that_is_named_counts_for_its_name_and_while_it_is_valid() {
        let named = CertificateDer::from(STANDARD.decode(NAMED).expect("base64"));
        let mut roots = RootCertStore::empty();
        roots.add(named.clone()).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let trusted = Trusted::new(chain.build().expect("a verifier"), vec![named.clone()]);
        let judge = |name: &'static str, now| {
            let name = ServerName::try_from(name).expect("a name");
            let now = UnixTime::since_unix_epoch(now);
            trusted.verify_server_cert(&named, &[], &name, &[], now).map(|_| ())
        };
        assert_eq!(judge("a.test", VALID), Ok(()));
        let refused = judge("a.test", EXPIRED).expect_err("expired");
        assert!(
            matches!(refused, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
            "{refused:?}"
        );
        let refused = judge("b.test", VALID).expect_err("another name");
        assert!(
            matches!(
                refused,
                Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
            ),
            "{refused:?}"
        );
    }
}
