//! Which users may control the server: root, its own user, those that the configuration names, and clients
//! with the credential. Names are looked up when a configuration comes into use.

use std::path::Path;

use sekisho_config::{Admin, Endpoint};
use sekisho_endpoint::{Code, Greeting, Peer};

use crate::{Problem, user};

/// The shortest credential: less can be guessed.
const CREDENTIAL_BYTES_MIN: usize = 16;
/// The longest: what a greeting has room for.
const CREDENTIAL_BYTES_MAX: usize = 2048;

/// The users that may control the server.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Operators {
    uids: Vec<u32>,
    credential: Option<Vec<u8>>,
}

impl Operators {
    /// The users that the configuration names.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, Problem> {
        let mut uids = Vec::new();
        for admin in &endpoint.admins {
            match admin {
                Admin::Uid(uid) => uids.push(*uid),
                Admin::User(name) => uids.push(user::uid(name).ok_or_else(|| {
                    Problem::new(format_args!("admin: user \"{name}\" is not in /etc/passwd"))
                })?),
                Admin::Group(name) => uids.extend(user::members(name).ok_or_else(|| {
                    Problem::new(format_args!("admin: group \"{name}\" is not in /etc/group"))
                })?),
            }
        }
        let credential = endpoint.credential_file.as_deref().map(read_credential).transpose()?;
        Ok(Self { uids, credential })
    }

    /// Whether this user may, over a local socket.
    pub(super) fn has(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw() || self.uids.contains(&uid)
    }

    fn may_control(&self, greeting: &Greeting, peer: &Peer) -> bool {
        let is_known = match peer {
            Peer::Local { uid, .. } => self.has(*uid),
            Peer::Loopback => true,
            Peer::Tcp(_) | Peer::Unknown => false,
        };
        is_known
            || self.credential.as_ref().is_some_and(|own| is_same(own, greeting.credential.bytes()))
    }

    /// At the addresses of the block: every client is admitted; one that wants to control must be an
    /// operator.
    pub(super) fn admit(&self, greeting: &Greeting, peer: &Peer) -> Result<(), (Code, String)> {
        if greeting.wants_admin && !self.may_control(greeting, peer) {
            return Err((Code::PermissionError, REFUSAL.to_owned()));
        }
        Ok(())
    }
}

/// The answer to a client that may not control.
pub(super) const REFUSAL: &str =
    "only root, the server's own user and the users named by \"admin\" may control this server";

fn read_credential(path: &Path) -> Result<Vec<u8>, Problem> {
    let problem =
        |why: &dyn std::fmt::Display| Problem::new(format_args!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| problem(&error))?;
    let credential = text.trim_ascii().to_vec();
    if !(CREDENTIAL_BYTES_MIN..=CREDENTIAL_BYTES_MAX).contains(&credential.len()) {
        return Err(problem(&format_args!(
            "a credential has from {CREDENTIAL_BYTES_MIN} to {CREDENTIAL_BYTES_MAX} bytes"
        )));
    }
    Ok(credential)
}

/// Compares without telling by the time it takes how much was right.
fn is_same(own: &[u8], shown: &[u8]) -> bool {
    let differences = own.iter().zip(shown).fold(0, |all, (own, shown)| all | (own ^ shown));
    own.len() == shown.len() && std::hint::black_box(differences) == 0
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The credential is not shown.
        f.debug_struct("Operators").field("uids", &self.uids).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use sekisho_native::Secret;

    use super::*;

    fn greeting(credential: &[u8]) -> Greeting {
        Greeting {
            label: String::new(),
            application: String::new(),
            user: String::new(),
            credential: Secret::new(credential.to_vec()),
            wants_admin: true,
            minor: 0,
            frame_bytes_max: 0,
            channel_bytes: 0,
        }
    }

    #[test]
    fn operators_are_known_by_socket_or_by_credential() {
        // E4, E9, V50
        let own = rustix::process::geteuid().as_raw();
        let other = own.wrapping_add(4711);
        let named = own.wrapping_add(4712);
        let operators =
            Operators { uids: vec![named], credential: Some(b"0123456789abcdef".into()) };
        let local = |uid| Peer::Local { uid, pid: None };
        let tcp = Peer::Tcp("127.0.0.1:1".parse().expect("an address"));
        for (peer, credential, expected) in [
            (local(0), &b""[..], true),
            (local(own), b"", true),
            (local(named), b"", true),
            (local(other), b"", false),
            (tcp, b"", false),
            (tcp, b"0123456789abcdeX", false),
            (tcp, b"0123456789abcde", false),
            (tcp, b"0123456789abcdef", true),
            (Peer::Unknown, b"", false),
        ] {
            assert_eq!(operators.may_control(&greeting(credential), &peer), expected, "{peer:?}");
        }
        let without = Operators::default();
        assert!(!without.may_control(&greeting(b""), &tcp), "no credential is not an empty one");
    }
}
