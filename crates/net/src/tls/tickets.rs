//! What lets clients resume: keys of tickets and cached sessions. They are kept by the process, each for one
//! server block with its settings, so that they outlive a reload and are never another's (S4).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use sekisho_config::Tls;

use super::TlsProblem;
use super::load::read;

/// The name of a key comes before what it encrypts.
const KEY_NAME_BYTES: usize = 16;

#[derive(Default)]
struct Kept {
    ticketers: HashMap<String, Arc<dyn ProducesTickets>>,
    sessions: HashMap<String, Arc<ServerSessionMemoryCache>>,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// Where a server's sessions are kept.
pub(super) fn sessions(
    identity: &str,
    make: impl FnOnce() -> Arc<ServerSessionMemoryCache>,
) -> Arc<ServerSessionMemoryCache> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(kept.sessions.entry(identity.to_owned()).or_insert_with(make))
}

/// Makes a server's tickets: with the keys of its files, or with generated keys that are rotated.
pub(super) fn ticketer(identity: &str, tls: &Tls) -> Result<Arc<dyn ProducesTickets>, TlsProblem> {
    if !tls.ticket_keys.is_empty() {
        return FileTickets::load(identity, tls).map(|it| Arc::new(it) as _);
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.ticketers.get(identity) {
        return Ok(Arc::clone(known));
    }
    let made = Ticketer::new().map_err(|error| TlsProblem {
        directive: "ssl_session_tickets",
        path: tls.certificates.first().cloned().unwrap_or_default(),
        message: format!("no key could be made: {error}"),
        is_warning: false,
    })?;
    kept.ticketers.insert(identity.to_owned(), Arc::clone(&made));
    Ok(made)
}

/// Tickets with the keys of `ssl_session_ticket_key`.
struct FileTickets {
    keys: Vec<([u8; KEY_NAME_BYTES], RandomizedNonceKey)>,
    lifetime_secs: u32,
}

impl std::fmt::Debug for FileTickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileTickets").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl FileTickets {
    fn load(identity: &str, tls: &Tls) -> Result<Self, TlsProblem> {
        const NAME: &str = "ssl_session_ticket_key";
        let mut keys = Vec::new();
        for path in &tls.ticket_keys {
            let wrong = |message: &str| TlsProblem {
                directive: NAME,
                path: path.clone(),
                message: message.to_owned(),
                is_warning: false,
            };
            let bytes = read(NAME, path)?;
            if !matches!(bytes.len(), 48 | 80) {
                return Err(wrong("must be 48 or 80 bytes long"));
            }
            // Two server blocks with one file do not read each other's tickets.
            let derive =
                |label: &[u8]| digest(&SHA256, &[label, identity.as_bytes(), &bytes].concat());
            let mut name = [0; KEY_NAME_BYTES];
            name.copy_from_slice(&derive(b"name").as_ref()[..KEY_NAME_BYTES]);
            let key = RandomizedNonceKey::new(&AES_256_GCM, derive(b"key").as_ref())
                .map_err(|_| wrong("cannot be used"))?;
            keys.push((name, key));
        }
        let lifetime_secs = tls.session_timeout.as_secs().min(7 * 86_400) as u32;
        Ok(Self { keys, lifetime_secs })
    }
}

impl ProducesTickets for FileTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_secs
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let (name, key) = self.keys.first()?;
        let mut sealed = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(KEY_NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let (name, key) = self.keys.iter().find(|(known, _)| known == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = key.open_in_place(nonce, Aad::from(name), &mut sealed).ok()?.len();
        sealed.truncate(plain);
        Some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_of_files_are_read_by_whoever_has_the_file_and_by_no_other_server_block() {
        // S4
        let dir = std::env::temp_dir().join(format!("sekisho-tickets-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let file = |name: &str, byte: u8| {
            let path = dir.join(name);
            std::fs::write(&path, [byte; 48]).expect("a file");
            path
        };
        let (old, new) = (file("old", 1), file("new", 2));
        let load = |identity: &str, keys: &[&std::path::PathBuf]| {
            let ticket_keys = keys.iter().map(|&it| it.clone()).collect();
            FileTickets::load(identity, &Tls { ticket_keys, ..Tls::default() }).expect("keys")
        };
        let before = load("a", &[&old]);
        let after = load("a", &[&new, &old]);
        let ticket = before.encrypt(b"session").expect("a ticket");
        assert_eq!(after.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "keys change");
        assert_eq!(before.decrypt(&after.encrypt(b"session").expect("one")), None);
        assert_eq!(load("b", &[&old]).decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(before.decrypt(&changed), None);
            assert_eq!(before.decrypt(&ticket[..at]), None);
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
