//! Asks again who the clients of sessions are, when a configuration is taken up that leaves the rules as they are: a user may
//! be gone from the file of passwords or have another one, and a certificate may be revoked or have run out. Such
//! sessions end gracefully, and by force when that takes too long.

use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use sekisho_config::Level;
use sekisho_endpoint::{Caller, Endpoint, Evidence, Identity, Manner};
use sekisho_handler::disk::Device;
use sekisho_handler::password;

use super::logger::{NativeLog as _, WorkerLog};
use super::{NativeRules, NativeTls};
use crate::clock::unix_time;
use crate::worker::Worker;

/// So many certificates are verified in a row: each takes a fraction of a millisecond, and others have their turn.
const AT_ONCE: usize = 8;

const PASSWORD: &str = "your password was withdrawn";
const CERTIFICATE: &str = "your certificate was withdrawn";

impl Worker {
    /// Ends the sessions of this endpoint whose clients would not be admitted as the same any more.
    pub(super) fn review_native(
        self: &Rc<Self>,
        rules: &Arc<NativeRules>,
        endpoint: &Rc<Endpoint>,
        tls: Option<Arc<NativeTls>>,
    ) {
        let sessions = endpoint.evidence();
        if sessions.is_empty() {
            return;
        }
        let (worker, rules, endpoint) = (Rc::clone(self), Arc::clone(rules), Rc::clone(endpoint));
        tokio::task::spawn_local(async move {
            let mut withdrawn = worker.review_passwords(&rules, &endpoint, &sessions).await;
            drop(worker);
            withdrawn.extend(review_certificates(tls.as_deref(), &endpoint, &sessions).await);
            let Some(grace) = rules.grace.filter(|_| !withdrawn.is_empty()) else { return };
            tokio::time::sleep(grace).await;
            for session in withdrawn {
                endpoint.shut_down(session, Manner::Forceful);
            }
        });
    }

    /// Returns the sessions that end.
    async fn review_passwords(
        self: &Rc<Self>,
        rules: &NativeRules,
        endpoint: &Endpoint,
        sessions: &[(Rc<Caller>, Evidence)],
    ) -> Vec<u64> {
        let is_password = |evidence: &Evidence| matches!(evidence, Evidence::Password(_));
        let Some(path) = rules.gate.password_file.clone() else { return Vec::new() };
        if !sessions.iter().any(|(_, evidence)| is_password(evidence)) {
            return Vec::new();
        }
        let (from, now) = (path.clone(), unix_time().as_secs() as i64);
        let read = Device::at(&path).read(move || password::read_users(&from, now)).await;
        let users = match read.map_err(std::io::Error::from).and_then(|read| read) {
            Ok(users) => users,
            Err(error) => {
                // It may be about to be replaced; there is no reason to end everybody's session.
                let path = path.display();
                let message = format_args!(
                    "password_file \"{path}\": {error}; sessions of its users go on unchecked"
                );
                WorkerLog(Rc::downgrade(self)).log(Level::Error, None, message);
                return Vec::new();
            }
        };
        let mut withdrawn = Vec::new();
        for (caller, evidence) in sessions {
            let (Evidence::Password(before), Identity::User(user)) = (evidence, &caller.identity)
            else {
                continue;
            };
            let cache = self.password_cache.borrow();
            let why = match password::record(&cache, &users, user.as_bytes()) {
                Some(stored) if stored == *before => continue,
                Some(_) => "the user has another password",
                None => "the user is no longer in \"password_file\"",
            };
            drop(cache);
            endpoint.withdraw(caller.session, PASSWORD, why);
            withdrawn.push(caller.session);
        }
        withdrawn
    }
}

/// Returns the sessions that end.
async fn review_certificates(
    tls: Option<&NativeTls>,
    endpoint: &Endpoint,
    sessions: &[(Rc<Caller>, Evidence)],
) -> Vec<u64> {
    let (mut withdrawn, mut count) = (Vec::new(), 0);
    for (caller, evidence) in sessions {
        let Evidence::Certificate(chain) = evidence else { continue };
        if let Err(why) = judge(tls, caller, chain) {
            endpoint.withdraw(caller.session, CERTIFICATE, &why);
            withdrawn.push(caller.session);
        }
        count += 1;
        if count % AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    withdrawn
}

/// Whether a certificate still proves that its holder is this caller.
fn judge(tls: Option<&NativeTls>, caller: &Caller, chain: &[Vec<u8>]) -> Result<(), String> {
    let chain: Vec<_> = chain.iter().map(|one| CertificateDer::from(one.clone())).collect();
    let tls = tls.ok_or_else(|| "no address has TLS any more".to_owned())?;
    let subject = tls.judge(Some(&chain))?;
    match (subject, &caller.identity) {
        (Some(subject), Identity::Certificate(known)) if subject == **known => Ok(()),
        _ => Err("client certificates prove nothing any more".to_owned()),
    }
}
