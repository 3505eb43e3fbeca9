//! What lets clients resume: keys of tickets and cached sessions. They are kept by the process, each for one
//! server block with its settings, so that they outlive a reload and are never another's (S4).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::server::{ProducesTickets, StoresServerSessions};
use sekisho_config::{Pem, Tls};

use super::secrets;

use super::TlsProblem;
use super::load::read;
use crate::clock::unix_time;

/// The name of a key comes before what it encrypts.
const KEY_NAME_BYTES: usize = 16;
/// No ticket is good for longer (RFC 8446 §4.6.1).
const LIFETIME_MAX: Duration = Duration::from_hours(7 * 24);
#[derive(Default)]
struct Kept {
    ticketers: HashMap<String, Arc<dyn ProducesTickets>>,
    sessions: HashMap<String, Arc<Sessions>>,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

fn now() -> u64 {
    unix_time().as_secs()
}

/// Where a server's sessions are kept: so many, for so long.
pub(super) fn sessions(identity: &str, most: usize, timeout: Duration) -> Arc<Sessions> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let made = || Arc::new(Sessions::new(most, timeout.as_secs()));
    Arc::clone(kept.sessions.entry(identity.to_owned()).or_insert_with(made))
}

/// Makes a server's tickets: with the keys of its files, or with generated keys that are rotated.
pub(super) fn ticketer(identity: &str, tls: &Tls) -> Result<Arc<dyn ProducesTickets>, TlsProblem> {
    let lifetime = tls.session_timeout.min(LIFETIME_MAX);
    let dated = |inner| Arc::new(Dated { inner, lifetime_secs: lifetime.as_secs() as u32 });
    if !tls.ticket_keys.is_empty() {
        return Ok(dated(Arc::new(TicketKeys::load(identity, tls)?) as _));
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.ticketers.get(identity) {
        return Ok(Arc::clone(known));
    }
    if !secrets::need_for(lifetime, now()) {
        return Err(TlsProblem {
            directive: "ssl_session_tickets",
            path: tls.certificates.first().map(Pem::shown).unwrap_or_default(),
            message: "no key could be generated: there are no random numbers".to_owned(),
            is_warning: false,
        });
    }
    let made: Arc<dyn ProducesTickets> = dated(Arc::new(OwnKeys::new(identity)));
    kept.ticketers.insert(identity.to_owned(), Arc::clone(&made));
    Ok(made)
}

/// Sessions of clients, the oldest ones first to go (`ssl_session_cache`, `ssl_session_timeout`).
pub(super) struct Sessions {
    state: Mutex<SessionsState>,
    most: usize,
    lifetime_secs: u64,
}

#[derive(Default)]
struct SessionsState {
    /// With the second at which each ends.
    known: HashMap<Vec<u8>, (u64, Vec<u8>)>,
    /// In the order of their coming; some are gone.
    order: VecDeque<(u64, Vec<u8>)>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("most", &self.most).finish_non_exhaustive()
    }
}

impl Sessions {
    fn new(most: usize, lifetime_secs: u64) -> Self {
        Self { state: Mutex::default(), most, lifetime_secs }
    }

    fn lock(&self) -> MutexGuard<'_, SessionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_at(&self, key: Vec<u8>, value: Vec<u8>, now: u64) {
        let until = now.saturating_add(self.lifetime_secs);
        let mut state = self.lock();
        let SessionsState { known, order } = &mut *state;
        while let Some((end, oldest)) = order.front()
            && (*end <= now || order.len() >= self.most)
        {
            // A later one of the same number stays.
            if known.get(oldest).is_some_and(|(until, _)| until == end) {
                known.remove(oldest);
            }
            order.pop_front();
        }
        order.push_back((until, key.clone()));
        known.insert(key, (until, value));
    }

    fn get_at(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let state = self.lock();
        state.known.get(key).filter(|(until, _)| *until > now).map(|(_, value)| value.clone())
    }

    /// Gives it out once.
    fn take_at(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let (until, value) = self.lock().known.remove(key)?;
        (until > now).then_some(value)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.put_at(key, value, now());
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_at(key, now())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.take_at(key, now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Tickets that say when they were made, and are good for `ssl_session_timeout` from then on.
#[derive(Debug)]
struct Dated {
    inner: Arc<dyn ProducesTickets>,
    lifetime_secs: u32,
}

impl Dated {
    fn encrypt_at(&self, plain: &[u8], now: u64) -> Option<Vec<u8>> {
        self.inner.encrypt(&[&now.to_be_bytes(), plain].concat())
    }

    fn decrypt_at(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let mut plain = self.inner.decrypt(ticket)?;
        let made = u64::from_be_bytes(*plain.first_chunk()?);
        plain.drain(..size_of::<u64>());
        (now.checked_sub(made)? < u64::from(self.lifetime_secs)).then_some(plain)
    }
}

impl ProducesTickets for Dated {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_secs
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, now())
    }
}

/// Keys of tickets that are derived from the secrets of this process, and change with them.
struct OwnKeys {
    identity: String,
    /// What was derived last, with the state of the secrets that it was derived from.
    derived: Mutex<(u64, Arc<TicketKeys>)>,
}

impl std::fmt::Debug for OwnKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnKeys").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl OwnKeys {
    fn new(identity: &str) -> Self {
        let derived = Mutex::new((0, Arc::new(TicketKeys(Vec::new()))));
        Self { identity: identity.to_owned(), derived }
    }

    fn keys(&self) -> Arc<TicketKeys> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        secrets::read(now(), |version, secrets| {
            if derived.0 != version {
                let mut keys = TicketKeys(Vec::new());
                for secret in secrets {
                    keys.push(&self.identity, secret);
                }
                *derived = (version, Arc::new(keys));
            }
        });
        Arc::clone(&derived.1)
    }
}

impl ProducesTickets for OwnKeys {
    fn enabled(&self) -> bool {
        true
    }

    /// Not asked for: see [`Dated`].
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys().encrypt(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys().decrypt(ticket)
    }
}

/// Keys of tickets, of `ssl_session_ticket_key` or of [`OwnKeys`]. The first one encrypts.
struct TicketKeys(Vec<([u8; KEY_NAME_BYTES], RandomizedNonceKey)>);

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TicketKeys").field(&self.0.len()).finish()
    }
}

impl TicketKeys {
    /// Derives one server block's key from a secret: two blocks with one secret do not read each other's tickets.
    fn push(&mut self, identity: &str, secret: &[u8]) -> Option<()> {
        let derive = |label: &[u8]| digest(&SHA256, &[label, identity.as_bytes(), secret].concat());
        let mut name = [0; KEY_NAME_BYTES];
        name.copy_from_slice(&derive(b"name").as_ref()[..KEY_NAME_BYTES]);
        let key = RandomizedNonceKey::new(&AES_256_GCM, derive(b"key").as_ref()).ok()?;
        self.0.push((name, key));
        Some(())
    }

    fn load(identity: &str, tls: &Tls) -> Result<Self, TlsProblem> {
        const NAME: &str = "ssl_session_ticket_key";
        let mut keys = Self(Vec::new());
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
            keys.push(identity, &bytes).ok_or_else(|| wrong("cannot be used"))?;
        }
        Ok(keys)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    /// Not asked for: see [`Dated`].
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let (name, key) = self.0.first()?;
        let mut sealed = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(KEY_NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let (name, key) = self.0.iter().find(|(known, _)| known == name)?;
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
    fn tickets_of_files_are_read_with_the_file_and_by_no_other_server_block() {
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
            TicketKeys::load(identity, &Tls { ticket_keys, ..Tls::default() }).expect("keys")
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

    #[test]
    fn a_ticket_is_good_for_the_timeout_of_sessions() {
        let mut keys = TicketKeys(Vec::new());
        keys.push("a", &[1; 32]).expect("a key");
        let inner = Arc::new(keys);
        let tickets = Dated { inner, lifetime_secs: 300 };
        let ticket = tickets.encrypt_at(b"session", 1000).expect("a ticket");
        for (now, is_good) in [(1000, true), (1299, true), (1300, false), (999, false)] {
            let read = tickets.decrypt_at(&ticket, now);
            assert_eq!(read.as_deref(), is_good.then_some(&b"session"[..]), "{now}");
        }
        assert_eq!(tickets.decrypt_at(&ticket[..20], 1000), None);
    }

    #[test]
    fn sessions_are_kept_for_their_time_and_given_out_once_where_that_is_asked() {
        let sessions = Sessions::new(3, 300);
        let put = |key: u8, now| sessions.put_at(vec![key], vec![key], now);
        let is_there = |key: u8, now| sessions.get_at(&[key], now).is_some();
        put(1, 1000);
        assert!(is_there(1, 1299) && !is_there(1, 1300));
        assert_eq!(sessions.take_at(&[1], 1001), Some(vec![1]));
        assert_eq!(sessions.take_at(&[1], 1001), None, "once");
        // The oldest one makes room; one whose time is over has none.
        for key in 2..=5 {
            put(key, 1000 + u64::from(key));
        }
        assert!(!is_there(2, 1010) && (3..=5).all(|key| is_there(key, 1010)));
        put(6, 2000);
        assert_eq!(sessions.lock().known.len(), 1);
        // A number that is used again counts from then on.
        put(6, 2100);
        put(7, 2350);
        assert!(is_there(6, 2399) && !is_there(6, 2400));
        assert!(sessions.lock().order.len() <= 3);
    }
}
