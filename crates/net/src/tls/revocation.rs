//! Lists of revoked certificates that rustls does not read: those of version 1, which `openssl ca -gencrl` makes where no
//! extensions are asked for. Lists of both versions are looked at for certificates of version 1.

use std::collections::HashSet;

use rustls::crypto::WebPkiSupportedAlgorithms;

use super::certificate::Certificate;
use super::der::{GENERALIZED_TIME, INTEGER, Reader, SEQUENCE, UTC_TIME, time};
use super::version_1::is_signed_by;

/// A list (RFC 5280 §5.1).
#[derive(Debug)]
pub(super) struct RevocationList {
    der: Vec<u8>,
    pub(super) is_version_1: bool,
    issuer_der: Vec<u8>,
    from: i64,
    to: Option<i64>,
    revoked: HashSet<Vec<u8>>,
}

impl RevocationList {
    /// Reads one.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let mut fields = Reader(der).expect(SEQUENCE)?.expect(SEQUENCE)?;
        let mut after_version = fields;
        let is_version_1 = after_version.expect(INTEGER).is_none();
        if !is_version_1 {
            fields = after_version;
        }
        fields.expect(SEQUENCE)?;
        let issuer_der = fields.whole()?.to_vec();
        fields.expect(SEQUENCE)?;
        let from = time(fields.next()?)?;
        let (mut to, mut revoked) = (None, HashSet::new());
        let mut next = fields.next();
        if let Some(read @ (UTC_TIME | GENERALIZED_TIME, _)) = next {
            to = Some(time(read)?);
            next = fields.next();
        }
        if let Some((SEQUENCE, entries)) = next {
            let mut entries = Reader(entries);
            while !entries.0.is_empty() {
                revoked.insert(entries.expect(SEQUENCE)?.expect(INTEGER)?.0.to_vec());
            }
        }
        Some(Self { der: der.to_vec(), is_version_1, issuer_der, from, to, revoked })
    }

    /// Whether it is about certificates of this issuer.
    fn is_for(&self, certificate: &Certificate) -> bool {
        self.issuer_der == certificate.issuer_der
    }

    /// Why a certificate is not accepted by what the list says, as OpenSSL words it. `known` are certificates of which one is
    /// its issuer's.
    fn refuses(
        &self,
        certificate: &Certificate,
        known: &[&Certificate],
        algorithms: &WebPkiSupportedAlgorithms,
        now: i64,
    ) -> Option<&'static str> {
        let is_signed = known.iter().any(|issuer| {
            issuer.subject_der == self.issuer_der && is_signed_by(&self.der, issuer, algorithms)
        });
        if !is_signed {
            return Some("CRL signature failure");
        }
        if self.revoked.contains(&certificate.serial_bytes) {
            return Some("certificate revoked");
        }
        if now < self.from {
            return Some("CRL is not yet valid");
        }
        self.to.is_some_and(|to| now > to).then_some("CRL has expired")
    }
}

/// Why a chain of certificates is not accepted by what these lists say.
pub(super) fn refused(
    lists: &[RevocationList],
    chain: &[Certificate],
    authorities: &[&Certificate],
    algorithms: &WebPkiSupportedAlgorithms,
    now: i64,
) -> Option<&'static str> {
    let known: Vec<&Certificate> = chain.iter().chain(authorities.iter().copied()).collect();
    chain.iter().find_map(|certificate| {
        let is_old = !certificate.has_version;
        let mut own = lists.iter().filter(|list| list.is_for(certificate)).peekable();
        if is_old && own.peek().is_none() {
            return Some("unable to get certificate CRL");
        }
        // The others are rustls'.
        own.filter(|list| list.is_version_1 || is_old)
            .find_map(|list| list.refuses(certificate, &known, algorithms, now))
    })
}
