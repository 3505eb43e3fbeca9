//! Certificates that are shown with an OCSP response (`ssl_stapling`): handshakes send what there is and wait for
//! nothing. Kept by the process, so that a response outlives a reload; who fetches it is elsewhere.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use sekisho_config::{Resolver, Stapling};

use super::certificate::Certificate;
use super::ocsp::{Answer, Question};
use crate::clock::unix_time;

/// A certificate whose OCSP response is fetched.
#[derive(Debug)]
pub struct Staple {
    /// What its issuer is asked.
    pub question: Question,
    /// Who is asked: an `http://` URL.
    pub responder: String,
    /// Who is asked for the addresses of the responder; the system where it has no servers.
    pub resolver: Arc<Resolver>,
    /// The file of the certificate, for the log.
    pub source: String,
    verifies: bool,
    pair: Arc<CertifiedKey>,
    stapled: RwLock<Option<Stapled>>,
}

#[derive(Debug)]
struct Stapled {
    pair: Arc<CertifiedKey>,
    until: i64,
}

/// By certificate, responder and settings.
static KEPT: LazyLock<Mutex<HashMap<String, Arc<Staple>>>> = LazyLock::new(Mutex::default);

impl Staple {
    /// The place of a certificate's response. An error says why nobody can be asked for one.
    pub(super) fn of(
        path: &Path,
        pair: &Arc<CertifiedKey>,
        authorities: &[CertificateDer<'_>],
        settings: &Stapling,
        resolver: &Arc<Resolver>,
    ) -> Result<Arc<Self>, String> {
        let (own, chain) = pair.cert.split_first().ok_or("there is no certificate")?;
        let issuers = chain.iter().chain(authorities);
        let question = issuers.into_iter().find_map(|issuer| Question::new(own, issuer));
        let question = question.ok_or("the certificate of its issuer is not there")?;
        let named = || Certificate::parse(own).and_then(|it| it.responder);
        let responder = settings.responder.clone().or_else(named);
        let responder = responder.ok_or("it names no OCSP responder")?;
        if !responder.starts_with("http://") {
            return Err(format!("its OCSP responder \"{responder}\" is no http:// URL"));
        }
        let verifies = settings.verifies;
        let hash = digest(&SHA256, own);
        let identity = format!("{:?} {responder} {verifies} {resolver:?}", hash.as_ref());
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of earlier configurations.
        kept.retain(|known, staple| *known == identity || Arc::strong_count(staple) > 1);
        let made = || {
            Arc::new(Self {
                question,
                responder,
                resolver: Arc::clone(resolver),
                source: path.display().to_string(),
                verifies,
                pair: Arc::clone(pair),
                stapled: RwLock::new(None),
            })
        };
        Ok(Arc::clone(kept.entry(identity).or_insert_with(made)))
    }

    /// Takes a response up, if it is good; `now` in seconds since 1970.
    pub fn put(&self, response: &[u8], now: i64) -> Result<Answer, String> {
        let answer = self.question.judge(response, self.verifies, now)?;
        let pair = CertifiedKey {
            cert: self.pair.cert.clone(),
            key: Arc::clone(&self.pair.key),
            ocsp: Some(response.to_vec()),
        };
        let until = answer.until.unwrap_or(i64::MAX);
        let stapled = Stapled { pair: Arc::new(pair), until };
        *self.stapled.write().unwrap_or_else(PoisonError::into_inner) = Some(stapled);
        Ok(answer)
    }

    /// What is shown with a response, while that holds.
    pub(super) fn pair(&self) -> Option<Arc<CertifiedKey>> {
        let stapled = self.stapled.read().unwrap_or_else(PoisonError::into_inner);
        let stapled = stapled.as_ref()?;
        (stapled.until > unix_time().as_secs() as i64).then(|| Arc::clone(&stapled.pair))
    }
}
