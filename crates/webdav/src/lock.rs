//! Write locks (RFC 4918 §6, §7): which there are, which clients they keep out, when they end. A lock is on a
//! path, and where it is deep on everything below it. Paths are bytes with slashes and without one at the
//! end.

use std::collections::BTreeMap;
use std::time::Duration;

use sekisho_lifecycle::Moment;

/// How long a lock lasts where the client does not say, and at the most. A client that goes on refreshes it.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(10);
const TIMEOUT_MAX: Duration = Duration::from_hours(1);
/// What a client may say about a lock's owner.
const OWNER_BYTES_MAX: usize = 4096;

/// Whether others may lock the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One client only.
    Exclusive,
    /// Every client that wants to share it.
    Shared,
}

/// A lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Its name: a unique URI.
    pub token: String,
    /// What it is on.
    pub path: Vec<u8>,
    /// Whether it is on everything below, too.
    pub is_deep: bool,
    /// Whether others may have one.
    pub scope: Scope,
    /// What the client said about its owner: XML.
    pub owner: String,
    /// How long it lasts after it was taken or refreshed.
    pub timeout: Duration,
    expires: Moment,
}

/// Why there is no lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// This path is locked.
    Locked(Vec<u8>),
    /// There are as many locks as there may be.
    Full,
}

/// What a request changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedPath {
    /// What is changed.
    pub path: Vec<u8>,
    /// With all that is below it.
    pub is_tree: bool,
    /// It comes or goes, which changes its folder.
    pub changes_folder: bool,
}

/// All locks.
#[derive(Debug)]
pub struct LockTable {
    by_path: BTreeMap<Vec<u8>, Vec<Lock>>,
    count: usize,
    count_max: usize,
}

impl LockTable {
    /// One for so many locks.
    pub const fn new(count_max: usize) -> Self {
        Self { by_path: BTreeMap::new(), count: 0, count_max }
    }

    /// How many there are, those that have ended included.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes a lock. Its expiry is set here.
    pub fn acquire(&mut self, mut lock: Lock, now: Moment) -> Result<Lock, Refused> {
        self.drop_expired(now);
        let conflicts =
            |other: &&Lock| lock.scope == Scope::Exclusive || other.scope == Scope::Exclusive;
        let above = self.covering(&lock.path, now).find(conflicts);
        let below = || self.below(&lock.path, now).find(conflicts);
        let conflict = above.or_else(|| if lock.is_deep { below() } else { None });
        if let Some(other) = conflict {
            return Err(Refused::Locked(other.path.clone()));
        }
        if self.count >= self.count_max || lock.owner.len() > OWNER_BYTES_MAX {
            return Err(Refused::Full);
        }
        lock.expires = now + lock.timeout;
        self.count += 1;
        self.by_path.entry(lock.path.clone()).or_default().push(lock.clone());
        Ok(lock)
    }

    /// Lets a lock that covers the path, and whose token is among these, last longer.
    pub fn refresh<'t>(
        &mut self,
        path: &[u8],
        tokens: impl IntoIterator<Item = &'t [u8]>,
        timeout: Duration,
        now: Moment,
    ) -> Option<Lock> {
        let tokens: Vec<&[u8]> = tokens.into_iter().collect();
        let found =
            self.covering(path, now).find(|lock| tokens.contains(&lock.token.as_bytes()))?;
        let (place, token) = (found.path.clone(), found.token.clone());
        let lock = self.by_path.get_mut(&place)?.iter_mut().find(|lock| lock.token == token)?;
        (lock.timeout, lock.expires) = (timeout, now + timeout);
        Some(lock.clone())
    }

    /// Ends a lock that covers the path; `false` where it has no such lock.
    pub fn release(&mut self, path: &[u8], token: &[u8], now: Moment) -> bool {
        let found = self.covering(path, now).find(|lock| lock.token.as_bytes() == token);
        let Some(place) = found.map(|lock| lock.path.clone()) else { return false };
        self.retain_at(&place, |lock| lock.token.as_bytes() != token);
        true
    }

    /// What was here is gone, and with it the locks on it and below it (§7.7, §9.6).
    pub fn forget(&mut self, path: &[u8]) {
        self.forget_below(path);
        self.retain_at(path, |_| false);
    }

    /// What was below is gone.
    pub fn forget_below(&mut self, path: &[u8]) {
        let places: Vec<Vec<u8>> = self.range_below(path).map(|(place, _)| place.clone()).collect();
        for place in places {
            self.retain_at(&place, |_| false);
        }
    }

    /// The locks that a path is in: its own, and deep ones above.
    pub fn covering<'a>(&'a self, path: &'a [u8], now: Moment) -> impl Iterator<Item = &'a Lock> {
        let own = self.by_path.get(path).into_iter().flatten();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let above = ends.filter_map(|end| self.by_path.get(&path[..end])).flatten();
        own.chain(above.filter(|lock| lock.is_deep)).filter(move |lock| !lock.expires.is_due(now))
    }

    /// Whether a change may be made by a client that knows these tokens; the path that is locked where not.
    pub fn check(
        &self,
        change: &ChangedPath,
        tokens: &[&[u8]],
        now: Moment,
    ) -> Result<(), Vec<u8>> {
        let is_known = |lock: &Lock| tokens.contains(&lock.token.as_bytes());
        // Of locks that are shared one is enough.
        let check_path = |path: &[u8]| {
            let mut locks = self.covering(path, now).peekable();
            match locks.peek() {
                Some(first) if !self.covering(path, now).any(is_known) => Err(first.path.clone()),
                _ => Ok(()),
            }
        };
        check_path(&change.path)?;
        if change.changes_folder
            && let Some(end) = change.path.iter().rposition(|byte| *byte == b'/')
        {
            check_path(&change.path[..end])?;
        }
        match self.below(&change.path, now).find(|lock| change.is_tree && !is_known(lock)) {
            Some(lock) => Err(lock.path.clone()),
            None => Ok(()),
        }
    }

    fn below<'a>(&'a self, path: &'a [u8], now: Moment) -> impl Iterator<Item = &'a Lock> {
        let locks = self.range_below(path).flat_map(|(_, locks)| locks);
        locks.filter(move |lock| !lock.expires.is_due(now))
    }

    fn range_below<'a>(
        &'a self,
        path: &'a [u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<Lock>)> {
        let first = [path, b"/"].concat();
        let is_below = {
            let first = first.clone();
            move |(place, _): &(&Vec<u8>, &Vec<Lock>)| place.starts_with(&first)
        };
        self.by_path.range(first..).take_while(is_below)
    }

    fn retain_at(&mut self, path: &[u8], keep: impl Fn(&Lock) -> bool) {
        let Some(locks) = self.by_path.get_mut(path) else { return };
        let before = locks.len();
        locks.retain(keep);
        self.count -= before - locks.len();
        if locks.is_empty() {
            self.by_path.remove(path);
        }
    }

    fn drop_expired(&mut self, now: Moment) {
        let mut count = 0;
        self.by_path.retain(|_, locks| {
            locks.retain(|lock| !lock.expires.is_due(now));
            count += locks.len();
            !locks.is_empty()
        });
        self.count = count;
    }
}

impl Lock {
    /// A lock that is yet to be taken.
    pub fn new(token: String, path: Vec<u8>, is_deep: bool, scope: Scope, owner: String) -> Self {
        let timeout = TIMEOUT_DEFAULT;
        Self { token, path, is_deep, scope, owner, timeout, expires: Moment::ZERO }
    }
}

/// The name of a new lock, made of random bytes (RFC 4122 §4.4).
pub fn token(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let mut out = String::from("urn:uuid:");
    for (at, byte) in random.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    out
}

/// `Timeout`: how long the client wants a lock to last, within what is given (§10.7).
pub fn timeout(value: Option<&[u8]>) -> Duration {
    let words = value.unwrap_or_default().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut wanted = words.filter_map(|word| {
        if word.eq_ignore_ascii_case(b"infinite") {
            return Some(TIMEOUT_MAX);
        }
        let (name, digits) = word.split_at_checked(7)?;
        let seconds = std::str::from_utf8(digits).ok()?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        (name.eq_ignore_ascii_case(b"second-") && is_number)
            .then(|| seconds.parse().map_or(TIMEOUT_MAX, Duration::from_secs))
    });
    wanted.next().unwrap_or(TIMEOUT_DEFAULT).clamp(Duration::from_secs(1), TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_millis(1000);

    fn lock(token: &str, path: &str, is_deep: bool, scope: Scope) -> Lock {
        Lock::new(token.into(), path.into(), is_deep, scope, String::new())
    }

    fn take(table: &mut LockTable, token: &str, path: &str, is_deep: bool, scope: Scope) -> bool {
        table.acquire(lock(token, path, is_deep, scope), NOW).is_ok()
    }

    #[test]
    fn locks_that_cannot_both_be_are_refused() {
        use Scope::{Exclusive, Shared};
        for (first, second, is_taken) in [
            (("/a", true, Exclusive), ("/a", false, Shared), false),
            (("/a", true, Exclusive), ("/a/b/c", false, Exclusive), false),
            (("/a", false, Exclusive), ("/a/b", false, Exclusive), true),
            (("/a/b", false, Exclusive), ("/a", true, Exclusive), false),
            (("/a/b", false, Exclusive), ("/a", false, Exclusive), true),
            (("/a", true, Shared), ("/a/b", true, Shared), true),
            (("/a", true, Shared), ("/a/b", true, Exclusive), false),
            (("/a", true, Exclusive), ("/ab", true, Exclusive), true),
            (("/a!", true, Exclusive), ("/a", true, Exclusive), true),
        ] {
            let mut table = LockTable::new(10);
            assert!(take(&mut table, "1", first.0, first.1, first.2));
            assert_eq!(
                take(&mut table, "2", second.0, second.1, second.2),
                is_taken,
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn a_change_needs_the_tokens_of_what_it_touches() {
        let mut table = LockTable::new(10);
        assert!(take(&mut table, "deep", "/d", true, Scope::Exclusive));
        assert!(take(&mut table, "flat", "/f", false, Scope::Exclusive));
        assert!(take(&mut table, "inner", "/t/x", false, Scope::Exclusive));
        assert!(take(&mut table, "one", "/s", false, Scope::Shared));
        assert!(take(&mut table, "two", "/s", false, Scope::Shared));
        for (path, is_tree, changes_folder, tokens, expected) in [
            ("/other", false, true, &[][..], true),
            ("/d/x", false, false, &[], false),
            ("/d/x", false, true, &["deep"], true),
            ("/f/x", false, false, &[], true),
            ("/f/x", false, true, &[], false),
            ("/f/x", false, true, &["flat"], true),
            ("/t", true, true, &[], false),
            ("/t", false, true, &[], true),
            ("/t", true, true, &["inner"], true),
            ("/s", false, false, &[], false),
            ("/s", false, false, &["two"], true),
            ("/s", false, false, &["deep"], false),
        ] {
            let change = ChangedPath { path: path.into(), is_tree, changes_folder };
            let tokens: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
            let checked = table.check(&change, &tokens, NOW);
            assert_eq!(checked.is_ok(), expected, "{path} {is_tree} {changes_folder}");
        }
    }

    #[test]
    fn locks_end_with_their_time_their_file_or_by_request() {
        let mut table = LockTable::new(3);
        let later = NOW + TIMEOUT_DEFAULT;
        assert!(take(&mut table, "1", "/a", true, Scope::Exclusive));
        assert_eq!(table.covering(b"/a/b", NOW).count(), 1);
        assert_eq!(table.covering(b"/a/b", later).count(), 0);
        let refreshed = table.refresh(b"/a/b", [b"1".as_slice()], TIMEOUT_MAX, NOW);
        assert_eq!(refreshed.map(|lock| lock.timeout), Some(TIMEOUT_MAX));
        assert_eq!(table.covering(b"/a/b", later).count(), 1);
        assert_eq!(table.refresh(b"/b", [b"1".as_slice()], TIMEOUT_MAX, NOW), None);
        assert!(!table.release(b"/b", b"1", NOW) && !table.release(b"/a", b"2", NOW));
        assert!(table.release(b"/a/b", b"1", NOW), "from anywhere within it");
        assert!(table.is_empty());
        for path in ["/x", "/x/y", "/z"] {
            assert!(take(&mut table, path, path, false, Scope::Exclusive));
        }
        let full = table.acquire(lock("4", "/w", false, Scope::Shared), NOW);
        assert_eq!(full, Err(Refused::Full));
        table.forget(b"/x");
        assert_eq!(table.len(), 1);
        assert!(table.acquire(lock("5", "/w", false, Scope::Shared), later).is_ok());
        assert_eq!(table.len(), 1, "what has ended makes room");
    }

    #[test]
    fn tokens_and_timeouts() {
        assert_eq!(token([0xab; 16]), "urn:uuid:abababab-abab-4bab-abab-abababababab");
        for (value, secs) in [
            (None, 600),
            (Some("Infinite, Second-4100000000"), 3600),
            (Some("Second-30"), 30),
            (Some("nonsense, second-30"), 30),
            (Some("Second-0"), 1),
            (Some("Second-99999999999999999999"), 3600),
            (Some("Second-"), 600),
            (Some("Second-+5"), 600),
        ] {
            assert_eq!(timeout(value.map(str::as_bytes)).as_secs(), secs, "{value:?}");
        }
    }
}
