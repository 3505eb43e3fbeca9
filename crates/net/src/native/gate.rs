//! The gate of native sessions: who a peer is, by its credential, its certificate or its user, and whether it may come
//! in. A password is checked beside the event loop, as those of `auth_basic` are. No credential is ever logged, and a
//! token is compared in a time that does not tell how much of it was right.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use sekisho_config::Level;
use sekisho_endpoint::{
    Admission, Admitted, Applicant, Authenticator, Code, ControlAccess, Decision, Evidence,
    Identity, IdentityMatch, Peer, PeerCertificate, Permissions, Secret,
};
use sekisho_handler::memory;
use sekisho_handler::password::{self, Answer};
use sekisho_handler::wait;
use sekisho_route::Password;
use subtle::ConstantTimeEq as _;

use super::NativeRules;
use super::logger::NativeLog as _;
use super::logger::WorkerLog;
use crate::clock::unix_time;
use crate::worker::Worker;

/// A file is read, a hash is computed, and then the answer is known.
const ROUNDS_MAX: usize = 3;

const WRONG: &str = "the credential is wrong";

/// The answer to a client that may not control.
pub const NOT_AN_OPERATOR: &str =
    "only root, the server's own user and the users named by \"admin\" may control this server";

/// Tokens and the names of their holders.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tokens(Vec<(Arc<str>, Secret)>);

impl Tokens {
    /// These.
    pub fn new(tokens: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(tokens.into_iter().map(|(name, token)| (name.into(), Secret::new(token))).collect())
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder of a token. All are compared, whichever is right.
    pub fn holder(&self, shown: &[u8]) -> Option<&Arc<str>> {
        let mut found = None;
        for (name, token) in &self.0 {
            if bool::from(token.bytes().ct_eq(shown)) {
                found = Some(name);
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What a peer is decided by.
#[derive(Clone, Debug, Default)]
pub struct GateRules {
    /// Tokens, that of `credential_file` included.
    pub tokens: Tokens,
    /// The file of users and passwords.
    pub password_file: Option<PathBuf>,
    /// Which clients may begin a session; none is all.
    pub allowed: Vec<IdentityMatch>,
}

/// What is known of a peer's identity without looking elsewhere.
#[derive(PartialEq, Eq, Debug)]
enum Proof {
    /// This, by what may be withdrawn or not.
    Known(Identity, Evidence),
    /// A user's password is to be checked.
    Password,
    /// What it has shown is wrong.
    Wrong(&'static str),
}

impl GateRules {
    fn proof(&self, applicant: &Applicant<'_>) -> Proof {
        let Applicant { greeting, peer, certificate } = *applicant;
        if !greeting.user.is_empty() {
            return match self.password_file {
                Some(_) => Proof::Password,
                None => Proof::Wrong("there are no users with passwords here"),
            };
        }
        // Where no credential is known, none can be wrong.
        if !greeting.credential.is_empty() && !self.tokens.is_empty() {
            return match self.tokens.holder(greeting.credential.bytes()) {
                // A change of tokens ends every session.
                Some(name) => Proof::Known(Identity::Token(Arc::clone(name)), Evidence::None),
                None => Proof::Wrong(WRONG),
            };
        }
        match certificate {
            Some(PeerCertificate { subject, chain }) => Proof::Known(
                Identity::Certificate(Arc::clone(subject)),
                Evidence::Certificate(Arc::clone(chain)),
            ),
            None => Proof::Known(Identity::of_peer(peer), Evidence::None),
        }
    }

    /// A peer that has proved this much: whether it may come in.
    fn admit(
        &self,
        permissions: &Permissions,
        (identity, evidence): (Identity, Evidence),
        peer: &Peer,
        wants_admin: bool,
    ) -> Admission {
        let is_allowed = self.allowed.is_empty()
            || self.allowed.iter().any(|rule| rule.is_meant(peer, &identity));
        // Only a session that asks for it controls anything.
        let mut control = ControlAccess::None;
        if wants_admin {
            control = control_access(permissions, peer, &identity);
            if control == ControlAccess::None {
                return Err((Code::PermissionError, NOT_AN_OPERATOR.to_owned()));
            }
        } else if !is_allowed {
            let text = format!("sessions are not permitted to {identity}");
            return Err((Code::PermissionError, text));
        }
        // One that may only read and was not named for sessions reads, and calls nothing else.
        let is_control_only = !is_allowed && control != ControlAccess::Full;
        Ok(Admitted { identity, control, is_control_only, evidence })
    }
}

/// What a peer may do with `control`: the server's own user and root, over a local socket, may do all.
pub fn control_access(
    permissions: &Permissions,
    peer: &Peer,
    identity: &Identity,
) -> ControlAccess {
    match peer {
        Peer::Loopback => ControlAccess::Full,
        Peer::Local { uid, .. } if *uid == 0 || *uid == rustix::process::geteuid().as_raw() => {
            ControlAccess::Full
        }
        _ => permissions.control(peer, identity),
    }
}

/// The authenticator of a worker.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) rules: Arc<NativeRules>,
    pub(super) worker: Weak<Worker>,
}

impl Authenticator for Gate {
    fn decide(&self, applicant: &Applicant<'_>) -> Decision {
        let wants_admin = applicant.greeting.wants_admin;
        // While memory is short, only operators are admitted (X8).
        if !wants_admin && memory::is_short() {
            let text = "memory is short".to_owned();
            return Decision::Now(Err((Code::ResourceLimitReached, text)));
        }
        let NativeRules { gate, access, .. } = &*self.rules;
        match gate.proof(applicant) {
            Proof::Wrong(why) => Decision::Now(Err((Code::AuthenticationError, why.to_owned()))),
            Proof::Known(identity, evidence) => {
                let (permissions, known) = (&access.permissions, (identity, evidence));
                Decision::Now(gate.admit(permissions, known, applicant.peer, wants_admin))
            }
            Proof::Password => {
                let (rules, worker) = (Arc::clone(&self.rules), Weak::clone(&self.worker));
                let (greeting, peer) = (applicant.greeting.clone(), *applicant.peer);
                Decision::later(async move {
                    let (user, password) = (greeting.user.as_str(), greeting.credential.bytes());
                    let evidence = check_password(&rules, &worker, &peer, user, password).await?;
                    let known = (Identity::User(user.into()), evidence);
                    let permissions = &rules.access.permissions;
                    rules.gate.admit(permissions, known, &peer, wants_admin)
                })
            }
        }
    }
}

/// Whether the password is the user's: what is stored for it.
async fn check_password(
    rules: &NativeRules,
    worker: &Weak<Worker>,
    peer: &Peer,
    user: &str,
    password: &[u8],
) -> Result<Evidence, (Code, String)> {
    let wrong = || (Code::AuthenticationError, WRONG.to_owned());
    let unable =
        || (Code::ServiceUnavailable, "the password cannot be checked at the moment".to_owned());
    let Some(path) = &rules.gate.password_file else { return Err(wrong()) };
    let remote = match peer {
        Peer::Tcp(address) => Some(address.ip()),
        _ => None,
    };
    for _ in 0..ROUNDS_MAX {
        let worker: Rc<Worker> = worker.upgrade().ok_or_else(unable)?;
        let log = WorkerLog(Rc::downgrade(&worker));
        let report = |level, message: fmt::Arguments<'_>| log.log(level, None, message);
        let shown = path.display();
        let (answer, users) = password::ask_and_show(
            &worker.shared.user_files,
            &worker.password_cache.borrow(),
            [path.as_os_str().as_bytes(), user.as_bytes(), password],
            worker.clock.now(),
            unix_time().as_secs() as i64,
        );
        let question = match answer {
            Answer::Known(Password::Right) => {
                let cache = worker.password_cache.borrow();
                let stored = users.and_then(|it| password::record(&cache, &it, user.as_bytes()));
                return Ok(stored.map_or(Evidence::None, Evidence::Password));
            }
            Answer::Known(_) => return Err(wrong()),
            Answer::Later(question) => question,
            Answer::Trouble(_, error) => {
                report(Level::Error, format_args!("password_file \"{shown}\": {error}"));
                return Err(unable());
            }
            Answer::Unusable(why) => {
                let user = user.escape_debug();
                let message = format_args!("password_file \"{shown}\", user \"{user}\": {why}");
                report(Level::Error, message);
                return Err(unable());
            }
        };
        let now = worker.clock.now();
        let hashers = &worker.shared.hashers;
        let Some(work) = wait::check_password(hashers, question, remote, now) else {
            report(Level::Error, format_args!("too many password checks are waiting"));
            return Err(unable());
        };
        match work.await {
            Ok(result) => {
                let mut cache = worker.password_cache.borrow_mut();
                result.keep(&worker.shared.user_files, &mut cache, worker.clock.now());
            }
            Err(error) => {
                report(Level::Crit, format_args!("checking a password failed: {error}"));
                return Err(unable());
            }
        }
    }
    Err(unable())
}

#[cfg(test)]
mod tests {
    use sekisho_endpoint::Greeting;

    use super::*;

    fn greeting(user: &str, credential: &[u8]) -> Greeting {
        Greeting {
            label: String::new(),
            application: String::new(),
            user: user.to_owned(),
            credential: Secret::new(credential.to_vec()),
            wants_admin: false,
            minor: 0,
            frame_bytes_max: 0,
            channel_bytes: 0,
            keepalive_millis: 0,
            drains_at_end: false,
        }
    }

    #[test]
    fn what_a_peer_shows_says_who_it_is() {
        // E2, E13, V50
        let tokens = Tokens::new([
            ("ci".to_owned(), b"0123456789abcdef".to_vec()),
            ("backup".to_owned(), b"0123456789abcdeg".to_vec()),
        ]);
        let with = GateRules { tokens, password_file: Some("/users".into()), allowed: Vec::new() };
        let without = GateRules::default();
        let (local, tcp) =
            (Peer::Local { uid: 7, pid: None }, Peer::Tcp(([192, 0, 2, 1], 1).into()));
        let chain: Arc<[Vec<u8>]> = [b"der".to_vec()].into();
        let subject = PeerCertificate { subject: "CN=ann".into(), chain: Arc::clone(&chain) };
        let known = |identity| Proof::Known(identity, Evidence::None);
        let token = |name: &str| known(Identity::Token(name.into()));
        let anonymous = || known(Identity::Anonymous);
        for (rules, user, credential, peer, certificate, expected) in [
            (&with, "", &b""[..], tcp, None, anonymous()),
            (&with, "", b"", local, None, known(Identity::Unix(7))),
            (&with, "", b"0123456789abcdef", tcp, None, token("ci")),
            (&with, "", b"0123456789abcdeg", local, None, token("backup")),
            (&with, "", b"0123456789abcdeg", tcp, Some(&subject), token("backup")),
            (&with, "", b"0123456789abcde", tcp, None, Proof::Wrong(WRONG)),
            (&with, "", b"0123456789abcdefg", local, Some(&subject), Proof::Wrong(WRONG)),
            (&with, "ann", b"0123456789abcdef", tcp, Some(&subject), Proof::Password),
            (
                &with,
                "",
                b"",
                tcp,
                Some(&subject),
                Proof::Known(
                    Identity::Certificate("CN=ann".into()),
                    Evidence::Certificate(Arc::clone(&chain)),
                ),
            ),
            (&without, "", b"anything", tcp, None, anonymous()),
            (
                &without,
                "ann",
                b"x",
                tcp,
                None,
                Proof::Wrong("there are no users with passwords here"),
            ),
        ] {
            let greeting = greeting(user, credential);
            let applicant = Applicant { greeting: &greeting, peer: &peer, certificate };
            assert_eq!(rules.proof(&applicant), expected, "{applicant:?}");
        }
        assert_eq!(format!("{:?}", with.tokens), r#"["ci", "backup"]"#);
    }

    #[test]
    fn sessions_are_for_those_that_are_named_and_the_admin_slot_for_those_that_control() {
        // E2, E4, E14
        let ann = || Identity::User("ann".into());
        let tcp = Peer::Tcp(([192, 0, 2, 1], 1).into());
        let mut permissions = Permissions::default();
        permissions.permit_control(ControlAccess::Read, [IdentityMatch::User("ann".into())]);
        permissions.permit_control(ControlAccess::Read, [IdentityMatch::Token("ci".into())]);
        permissions.permit_control(ControlAccess::Full, [IdentityMatch::User("ops".into())]);
        let open = GateRules::default();
        let named = IdentityMatch::Token("ci".into());
        let closed = GateRules { allowed: vec![named], ..GateRules::default() };
        let outcome = |admission: Admission| {
            admission.map(|it| (it.control, it.is_control_only)).map_err(|it| it.0)
        };
        let ops = || Identity::User("ops".into());
        let ci = || Identity::Token("ci".into());
        let refused = Err(Code::PermissionError);
        for (rules, identity, wants_admin, expected) in [
            (&open, Identity::Anonymous, false, Ok((ControlAccess::None, false))),
            (&open, Identity::Anonymous, true, refused),
            (&open, ann(), false, Ok((ControlAccess::None, false))),
            (&open, ann(), true, Ok((ControlAccess::Read, false))),
            (&closed, Identity::Anonymous, false, refused),
            (&closed, ann(), false, refused),
            // Reading is not calling: those that are not named for sessions call nothing but `control`.
            (&closed, ann(), true, Ok((ControlAccess::Read, true))),
            (&closed, ops(), false, refused),
            (&closed, ops(), true, Ok((ControlAccess::Full, false))),
            (&closed, ci(), false, Ok((ControlAccess::None, false))),
            (&closed, ci(), true, Ok((ControlAccess::Read, false))),
        ] {
            let admitted =
                rules.admit(&permissions, (identity.clone(), Evidence::None), &tcp, wants_admin);
            assert_eq!(outcome(admitted), expected, "{identity} {wants_admin}");
        }
    }

    #[test]
    fn root_and_our_own_user_control_and_others_by_rule() {
        // E4, E9, E14, V50
        let own = rustix::process::geteuid().as_raw();
        let (other, named) = (own.wrapping_add(4711), own.wrapping_add(4712));
        let mut permissions = Permissions::default();
        permissions.permit_control(ControlAccess::Full, [IdentityMatch::Unix(named)]);
        let local = |uid| Peer::Local { uid, pid: None };
        for (peer, expected) in [
            (local(0), ControlAccess::Full),
            (local(own), ControlAccess::Full),
            (local(named), ControlAccess::Full),
            (local(other), ControlAccess::None),
            (Peer::Tcp(([127, 0, 0, 1], 1).into()), ControlAccess::None),
            (Peer::Unknown, ControlAccess::None),
        ] {
            let access = control_access(&permissions, &peer, &Identity::of_peer(&peer));
            assert_eq!(access, expected, "{peer:?}");
        }
    }
}
