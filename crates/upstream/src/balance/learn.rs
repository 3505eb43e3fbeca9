//! `sticky learn`: sessions that upstreams create, and the server each belongs to. Shared by all workers, as
//! many as fit, and for as long as they are used.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekisho_lifecycle::Moment;

use crate::cache::Key;
use crate::lru::Lru;

/// Bytes of a zone that one session costs: nginx says that a megabyte holds about 4,000.
const BYTES_PER_SESSION: u64 = 256;

/// The sessions of one group.
#[derive(Debug)]
pub struct Sessions {
    entries_max: usize,
    timeout: Duration,
    known: Mutex<Lru<Key, Vec<u8>>>,
}

impl Sessions {
    /// For a zone of so many bytes; a session that is not used for `timeout` is forgotten.
    pub fn new(zone_bytes: u64, timeout: Duration) -> Self {
        let sessions = usize::try_from(zone_bytes / BYTES_PER_SESSION).unwrap_or(usize::MAX);
        Self { entries_max: sessions.max(1), timeout, known: Mutex::new(Lru::new()) }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An answer created a session (`create`) on the server with this route.
    pub fn learn(&self, session: &[u8], route: &[u8], now: Moment) {
        if session.is_empty() {
            return;
        }
        let mut known = self.lock();
        self.forget_old(&mut known, now);
        known.put(Key::new(session), route.to_vec(), now);
        while known.len() > self.entries_max {
            let Some((oldest, _)) = known.oldest() else { break };
            known.remove(oldest);
        }
    }

    /// The route of a session that a request came with (`lookup`), which counts as used.
    pub fn find(&self, session: &[u8], now: Moment) -> Option<Vec<u8>> {
        if session.is_empty() {
            return None;
        }
        let mut known = self.lock();
        self.forget_old(&mut known, now);
        known.use_entry(Key::new(session), now).map(|route| route.clone())
    }

    fn forget_old(&self, known: &mut Lru<Key, Vec<u8>>, now: Moment) {
        while let Some((oldest, _)) =
            known.oldest().filter(|(_, used)| (*used + self.timeout).is_due(now))
        {
            known.remove(oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lru<Key, Vec<u8>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_learned_used_and_forgotten() {
        let seconds = |seconds: u64| Moment::from_millis(seconds * 1000);
        let sessions = Sessions::new(512, Duration::from_secs(10));
        sessions.learn(b"", b"r", seconds(0));
        assert!(sessions.is_empty());
        sessions.learn(b"one", b"a", seconds(0));
        sessions.learn(b"two", b"b", seconds(1));
        assert_eq!(sessions.find(b"one", seconds(2)).as_deref(), Some(b"a".as_slice()));
        sessions.learn(b"three", b"c", seconds(3));
        assert_eq!(
            sessions.find(b"two", seconds(3)),
            None,
            "no more than fit: the least used went"
        );
        assert_eq!(sessions.find(b"one", seconds(11)).as_deref(), Some(b"a".as_slice()));
        assert_eq!(sessions.find(b"three", seconds(13)), None, "not used for too long");
        assert_eq!(sessions.find(b"one", seconds(21)), None);
        assert_eq!(sessions.find(b"", seconds(21)), None);
    }
}
