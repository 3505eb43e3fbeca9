//! Clients' certificates of version 1, which rustls does not read. `openssl x509 -req` makes them where no extensions are
//! asked for, and many private authorities have nothing else.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{AlgorithmIdentifier, SignatureVerificationAlgorithm};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::certificate::Certificate;
use super::der::{BIT_STRING, Reader, SEQUENCE};

/// One that says no version, if it is one.
pub(super) fn parse(der: &[u8]) -> Option<Certificate> {
    Certificate::parse(der).filter(|it| !it.has_version)
}

/// Whether the client has the key of its certificate: the signature of the handshake is made with it.
pub(super) fn has_key(
    certificate: &Certificate,
    message: &[u8],
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> bool {
    let of_scheme = |(scheme, _): &&(SignatureScheme, _)| *scheme == signed.scheme;
    let known = algorithms.mapping.iter().find(of_scheme).map_or(&[][..], |(_, known)| known);
    is_signed(certificate, known, None, message, signed.signature())
}

/// Whether this authority has signed it.
pub(super) fn is_issued_by(
    der: &[u8],
    certificate: &Certificate,
    authority: &Certificate,
    algorithms: &WebPkiSupportedAlgorithms,
) -> bool {
    certificate.issuer_der == authority.subject_der
        && authority.is_authority
        && is_signed_by(der, authority, algorithms)
}

/// Whether a certificate, or a list of revoked ones, has a signature by the key of this one.
pub(super) fn is_signed_by(
    der: &[u8],
    authority: &Certificate,
    algorithms: &WebPkiSupportedAlgorithms,
) -> bool {
    let parts = || {
        let mut all = Reader(der).expect(SEQUENCE)?;
        let signed = all.whole()?;
        all.expect(SEQUENCE)?;
        let kind = all.expect(SEQUENCE)?.0;
        Some((signed, kind, all.expect(BIT_STRING)?.0.strip_prefix(&[0])?))
    };
    parts().is_some_and(|(signed, kind, signature)| {
        is_signed(authority, algorithms.all, Some(kind), signed, signature)
    })
}

/// Whether a signature of this kind (any of the known ones, if none is said) is made with the key of a certificate.
fn is_signed(
    by: &Certificate,
    known: &[&dyn SignatureVerificationAlgorithm],
    kind: Option<&[u8]>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let is_kind = |id: AlgorithmIdentifier| kind.is_none_or(|kind| *id == *kind);
    known
        .iter()
        .filter(|it| *it.public_key_alg_id() == *by.key_kind && is_kind(it.signature_alg_id()))
        .any(|it| it.verify_signature(&by.key_bits, message, signature).is_ok())
}
