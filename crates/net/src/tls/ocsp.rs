//! Whether a certificate has been revoked, asked of its issuer (OCSP, RFC 6960): what is asked, and what an answer says.
//! Who asks is elsewhere; no clock and no network here.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs as provider;

use super::certificate::Certificate;
use super::der::{
    BIT_STRING, ENUMERATED, GENERALIZED_TIME, INTEGER, NULL, OCTET_STRING, OID, Reader, SEQUENCE,
    time, value,
};

/// No answer is longer.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The clocks of responders differ from ours by no more.
const SKEW_SECS: i64 = 300;
const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;
const CONTEXT_2: u8 = 0xa2;
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

/// Which certificate is asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// How responders know the certificate: the contents of a `CertID`.
    id: Vec<u8>,
    issuer: Certificate,
}

/// A response that may be sent to clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Until when it holds, in seconds since 1970; `None` where newer ones are always there to be had.
    pub until: Option<i64>,
}

impl Question {
    /// About a certificate, to its issuer. `None` where the second has not signed the first.
    pub fn new(certificate: &[u8], issuer: &[u8]) -> Option<Self> {
        let shown = Certificate::parse(certificate)?;
        let issuer = Certificate::parse(issuer)?;
        let is_issuer = shown.issuer_der == issuer.subject_der
            && Signed::parse(certificate)?.is_by(&issuer).is_ok();
        if !is_issuer {
            return None;
        }
        let hash = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
        let algorithm = [value(OID, SHA1), value(NULL, &[])].concat();
        let id = [
            value(SEQUENCE, &algorithm),
            value(OCTET_STRING, hash(&shown.issuer_der).as_ref()),
            value(OCTET_STRING, hash(&issuer.key_bits).as_ref()),
            value(INTEGER, &shown.serial_bytes),
        ]
        .concat();
        Some(Self { id, issuer })
    }

    /// As it is sent: without a nonce, so that responders may answer from a cache (RFC 5019).
    pub fn encode(&self) -> Vec<u8> {
        let mut request = self.id.clone();
        // CertID, Request, requestList, TBSRequest, OCSPRequest.
        for _ in 0..5 {
            request = value(SEQUENCE, &request);
        }
        request
    }

    /// The path of a `GET` (RFC 6960 §A.1) behind that of the responder.
    pub fn path(&self, base: &str) -> String {
        let text = STANDARD.encode(self.encode());
        let text = text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        format!("{}/{text}", base.trim_end_matches('/'))
    }

    /// Judges a response: it must say that this certificate is good, now, and be signed. Where `verifies`, the signer
    /// is the issuer or one that the issuer has authorized; else it may be any whose certificate comes with it.
    pub fn judge(&self, response: &[u8], verifies: bool, now: i64) -> Result<Answer, String> {
        let basic = basic(response)?;
        let signed = Signed::parse(basic).ok_or("is not well-formed")?;
        let mut data = Reader(signed.content).expect(SEQUENCE).ok_or("is not well-formed")?;
        let found = self.find(&mut data, now).ok_or("is not well-formed")??;
        self.check_signer(&signed, &found.responder, verifies, now)?;
        Ok(Answer { until: found.until })
    }

    /// What is said of our certificate.
    fn find(&self, data: &mut Reader<'_>, now: i64) -> Option<Result<Found, String>> {
        let (mut tag, mut responder) = data.next()?;
        if tag == CONTEXT_0 {
            (tag, responder) = data.next()?;
        }
        let responder = match tag {
            CONTEXT_1 => Responder::Name(responder.to_vec()),
            CONTEXT_2 => Responder::Key(Reader(responder).expect(OCTET_STRING)?.0.to_vec()),
            _ => return None,
        };
        data.expect(GENERALIZED_TIME)?;
        let mut list = data.expect(SEQUENCE)?;
        while let Some((SEQUENCE, one)) = list.next() {
            let mut one = Reader(one);
            if !self.is_about(&mut one.expect(SEQUENCE)?) {
                continue;
            }
            let status = one.next()?.0;
            let from = time(one.next()?)?;
            let until = match one.next() {
                Some((CONTEXT_0, next)) => Some(time(Reader(next).next()?)?),
                _ => None,
            };
            return Some(match status {
                GOOD if from > now + SKEW_SECS => Err("is from the future".to_owned()),
                GOOD if until.is_some_and(|until| until + SKEW_SECS < now) => {
                    Err("is out of date".to_owned())
                }
                GOOD => Ok(Found { responder, until }),
                REVOKED => Err("says that the certificate has been revoked".to_owned()),
                _ => Err("says that the certificate is not known".to_owned()),
            });
        }
        Some(Err("is about another certificate".to_owned()))
    }

    /// Whether a `CertID` is ours. Responders may write the parameters of the hash or leave them out.
    fn is_about(&self, id: &mut Reader<'_>) -> bool {
        let mut own = Reader(&self.id);
        let (Some(hash), Some(wanted)) = (id.expect(SEQUENCE), own.expect(SEQUENCE)) else {
            return false;
        };
        let kind = |mut it: Reader<'_>| it.expect(OID).map(|it| it.0.to_vec());
        kind(hash) == kind(wanted) && id.0 == own.0
    }

    fn check_signer(
        &self,
        signed: &Signed<'_>,
        responder: &Responder,
        verifies: bool,
        now: i64,
    ) -> Result<(), String> {
        if responder.is(&self.issuer) {
            return signed.is_by(&self.issuer);
        }
        let mut rest = signed.rest;
        let mut certificates =
            rest.expect(CONTEXT_0).and_then(|mut it| it.expect(SEQUENCE)).unwrap_or(Reader(&[]));
        while let Some(der) = certificates.whole() {
            certificates.next();
            let Some(author) = Certificate::parse(der).filter(|it| responder.is(it)) else {
                continue;
            };
            signed.is_by(&author)?;
            if verifies {
                let own = Signed::parse(der).ok_or("has a signer that cannot be read")?;
                let is_issued =
                    author.issuer_der == self.issuer.subject_der && own.is_by(&self.issuer).is_ok();
                if !is_issued || !author.may_sign_ocsp {
                    return Err("has a signer that the issuer has not authorized".to_owned());
                }
                if now < author.from || now > author.to {
                    return Err("has a signer whose certificate is not valid now".to_owned());
                }
            }
            return Ok(());
        }
        Err("is signed by an unknown responder".to_owned())
    }
}

/// Whether these bytes are an OCSP response at all.
pub(super) fn is_response(bytes: &[u8]) -> bool {
    basic(bytes).is_ok()
}

/// The basic response within a response (RFC 6960 §4.2.1).
fn basic(response: &[u8]) -> Result<&[u8], String> {
    let odd = || "is no OCSP response".to_owned();
    let mut outer = Reader(response).expect(SEQUENCE).ok_or_else(odd)?;
    let status = outer.expect(ENUMERATED).and_then(|it| it.0.first().copied()).ok_or_else(odd)?;
    let refused = match status {
        0 => "",
        1 => "the request is malformed",
        2 => "internal error",
        3 => "try later",
        5 => "a signature is wanted",
        6 => "unauthorized",
        _ => return Err(format!("has the status {status}")),
    };
    if !refused.is_empty() {
        return Err(format!("is a refusal: {refused}"));
    }
    let inner = outer.expect(CONTEXT_0).and_then(|mut it| it.expect(SEQUENCE));
    let mut inner = inner.ok_or_else(odd)?;
    if inner.expect(OID).is_none_or(|kind| kind.0 != BASIC) {
        return Err("is of an unknown kind".to_owned());
    }
    inner.expect(OCTET_STRING).map(|it| it.0).ok_or_else(odd)
}

struct Found {
    responder: Responder,
    until: Option<i64>,
}

/// Who has signed a response.
enum Responder {
    /// By its encoded name.
    Name(Vec<u8>),
    /// By the SHA-1 of its key.
    Key(Vec<u8>),
}

impl Responder {
    fn is(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Name(name) => *name == certificate.subject_der,
            Self::Key(hash) => {
                digest(&SHA1_FOR_LEGACY_USE_ONLY, &certificate.key_bits).as_ref() == hash
            }
        }
    }
}

/// Something that is signed: a certificate or a basic response.
struct Signed<'a> {
    /// What is signed, with its head.
    content: &'a [u8],
    /// The contents of the `AlgorithmIdentifier`.
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// What follows.
    rest: Reader<'a>,
}

impl<'a> Signed<'a> {
    fn parse(der: &'a [u8]) -> Option<Self> {
        let mut all = Reader(der).expect(SEQUENCE)?;
        let content = all.whole()?;
        all.expect(SEQUENCE)?;
        let algorithm = all.expect(SEQUENCE)?.0;
        let signature = all.expect(BIT_STRING)?.0.get(1..)?;
        Some(Self { content, algorithm, signature, rest: all })
    }

    /// Whether this one has signed it.
    fn is_by(&self, signer: &Certificate) -> Result<(), String> {
        let known = provider::default_provider().signature_verification_algorithms.all;
        let mut fitting = known.iter().filter(|it| {
            it.signature_alg_id().as_ref() == self.algorithm
                && it.public_key_alg_id().as_ref() == signer.key_kind
        });
        let mut is_known = false;
        let is_good = fitting.any(|it| {
            is_known = true;
            it.verify_signature(&signer.key_bits, self.content, self.signature).is_ok()
        });
        match (is_good, is_known) {
            (true, _) => Ok(()),
            (false, true) => Err("has a signature that is wrong".to_owned()),
            (false, false) => Err("has a signature of a kind that is not supported".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
