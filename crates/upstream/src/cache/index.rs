//! What a cache knows without looking at the disk (`keys_zone`): which entries there are, how often and when
//! they were asked for, how large they are, and which are being fetched. Shared by all workers; memory and
//! disk are bounded (U5), and of several requests that want the same entry one fetches it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekisho_lifecycle::Moment;

use super::key::Key;
use crate::lru::Lru;

/// Bytes of a `keys_zone` that one key costs: nginx says that a megabyte holds about 8,000.
const BYTES_PER_KEY: u64 = 128;

/// What `proxy_cache_path` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How many keys are known at most, whether they have an entry or were only asked for.
    pub keys_max: usize,
    /// `max_size`: bytes of all entries.
    pub bytes_max: Option<u64>,
    /// `inactive`: what was not asked for in this time is dropped, fresh or not.
    pub inactive: Duration,
}

impl Settings {
    /// For a `keys_zone` of so many bytes, with nginx's defaults.
    pub fn new(zone_bytes: u64) -> Self {
        let keys_max = usize::try_from(zone_bytes / BYTES_PER_KEY).unwrap_or(usize::MAX).max(1);
        Self { keys_max, bytes_max: None, inactive: Duration::from_mins(10) }
    }
}

/// What is known about a key that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// How often it was asked for, this time included.
    pub uses: u32,
    /// Whether there is an entry.
    pub has_entry: bool,
    /// Whether a request is fetching it.
    pub is_updating: bool,
}

/// Whether to fetch an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// Yes; the caller reports how it ended.
    Yours,
    /// Another request does; `proxy_cache_lock_age` allows a further try at this time.
    Taken(Moment),
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    uses: u32,
    entry_bytes: Option<u64>,
    fetched_until: Option<Moment>,
}

#[derive(Debug)]
struct State {
    nodes: Lru<Key, Node>,
    bytes: u64,
}

/// The index of one cache.
#[derive(Debug)]
pub struct Index {
    settings: Settings,
    state: Mutex<State>,
}

impl Index {
    /// An empty one.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, state: Mutex::new(State { nodes: Lru::new(), bytes: 0 }) }
    }

    /// How many keys are known, and how many bytes their entries have.
    pub fn size(&self) -> (usize, u64) {
        let state = self.lock();
        (state.nodes.len(), state.bytes)
    }

    /// A key is asked for. What it returns beside what is known is to be deleted from the disk: the key that
    /// was not asked for the longest, where there are too many.
    pub fn ask(&self, key: Key, now: Moment) -> (Known, Vec<Key>) {
        let mut state = self.lock();
        if state.nodes.peek(key).is_none() {
            state.nodes.put(key, Node::default(), now);
        }
        let mut known = Known { uses: 1, has_entry: false, is_updating: false };
        if let Some(node) = state.nodes.use_entry(key, now) {
            node.uses = node.uses.saturating_add(1);
            known = Known {
                uses: node.uses,
                has_entry: node.entry_bytes.is_some(),
                is_updating: node.fetched_until.is_some_and(|until| !until.is_due(now)),
            };
        }
        let dropped = state.shrink(&self.settings);
        (known, dropped)
    }

    /// Whether the caller is to fetch the entry. It has `lock_age` for that, after which another request may
    /// try (`proxy_cache_lock_age`).
    pub fn fetch(&self, key: Key, lock_age: Duration, now: Moment) -> Fetch {
        let mut state = self.lock();
        if state.nodes.peek(key).is_none() {
            state.nodes.put(key, Node::default(), now);
        }
        let Some(node) = state.nodes.peek(key) else { return Fetch::Yours };
        match node.fetched_until {
            Some(until) if !until.is_due(now) => Fetch::Taken(until),
            _ => {
                node.fetched_until = Some(now + lock_age);
                Fetch::Yours
            }
        }
    }

    /// A fetch has ended: with an entry of so many bytes under its name, or without a new one. What it returns
    /// is to be deleted from the disk, so that all fits again.
    pub fn fetched(&self, key: Key, entry_bytes: Option<u64>, now: Moment) -> Vec<Key> {
        let mut state = self.lock();
        if let Some(node) = state.nodes.peek(key) {
            node.fetched_until = None;
        }
        match entry_bytes {
            None => Vec::new(),
            Some(bytes) => state.put(&self.settings, key, bytes, now),
        }
    }

    /// An entry was found on the disk: by the loader, or by a request. It counts as asked for now.
    pub fn found(&self, key: Key, entry_bytes: u64, now: Moment) -> Vec<Key> {
        self.lock().put(&self.settings, key, entry_bytes, now)
    }

    /// An entry is gone, or is to go: a purge, damage, a deletion by hand. Whether there was one.
    pub fn remove(&self, key: Key) -> bool {
        let mut state = self.lock();
        let node = state.nodes.remove(key);
        let bytes = node.and_then(|node| node.entry_bytes);
        state.bytes = state.bytes.saturating_sub(bytes.unwrap_or(0));
        bytes.is_some()
    }

    /// Drops what was not asked for in the time of `inactive`, at most `count`; those with an entry are returned,
    /// to be deleted from the disk.
    pub fn expire(&self, count: usize, now: Moment) -> Vec<Key> {
        let mut state = self.lock();
        let mut dropped = Vec::new();
        for _ in 0..count {
            let oldest = state.nodes.oldest();
            let Some((key, _)) =
                oldest.filter(|(_, used)| (*used + self.settings.inactive).is_due(now))
            else {
                break;
            };
            dropped.extend(state.drop_node(key));
        }
        dropped
    }

    /// Drops what was not asked for the longest until so many bytes are free; those are returned, to be deleted from
    /// the disk.
    pub fn free(&self, bytes: u64) -> Vec<Key> {
        let mut state = self.lock();
        let target = state.bytes.saturating_sub(bytes);
        let mut dropped = Vec::new();
        while state.bytes > target {
            let Some((key, _)) = state.nodes.oldest() else { break };
            dropped.extend(state.drop_node(key));
        }
        dropped
    }

    /// Every key that has an entry.
    pub fn entries(&self) -> Vec<Key> {
        let state = self.lock();
        let with_entry = state.nodes.iter().filter(|(_, node)| node.entry_bytes.is_some());
        with_entry.map(|(key, _)| key).collect()
    }

    /// Entries of a key and of its variants. Another key may be among them, by chance.
    pub fn entries_of(&self, key: Key) -> Vec<Key> {
        let (first, last) = key.variants();
        let state = self.lock();
        let with_entry = state.nodes.range(first..=last).filter(|(_, it)| it.entry_bytes.is_some());
        with_entry.map(|(key, _)| key).collect()
    }

    /// When something will have been inactive for too long (T2).
    pub fn next_deadline(&self) -> Option<Moment> {
        self.lock().nodes.oldest().map(|(_, used)| used + self.settings.inactive)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, settings: &Settings, key: Key, bytes: u64, now: Moment) -> Vec<Key> {
        if self.nodes.peek(key).is_none() {
            self.nodes.put(key, Node::default(), now);
        }
        if let Some(node) = self.nodes.use_entry(key, now) {
            let before = node.entry_bytes.replace(bytes).unwrap_or(0);
            self.bytes = self.bytes.saturating_sub(before).saturating_add(bytes);
        }
        self.shrink(settings)
    }

    /// Drops those that were not asked for the longest until all fits.
    fn shrink(&mut self, settings: &Settings) -> Vec<Key> {
        let mut dropped = Vec::new();
        while self.nodes.len() > settings.keys_max
            || settings.bytes_max.is_some_and(|max| self.bytes > max)
        {
            let Some((key, _)) = self.nodes.oldest() else { break };
            dropped.extend(self.drop_node(key));
        }
        dropped
    }

    /// Forgets a key; it is returned when it has an entry.
    fn drop_node(&mut self, key: Key) -> Option<Key> {
        let bytes = self.nodes.remove(key)?.entry_bytes?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    fn key(number: u8) -> Key {
        Key([number; 16])
    }

    const AGE: Duration = Duration::from_secs(5);

    #[test]
    fn room_is_made_by_those_that_were_not_asked_for_the_longest() {
        let index = index(10, None);
        for number in 1..=4 {
            index.found(key(number), 100, seconds(number.into()));
        }
        index.ask(key(1), seconds(9));
        assert_eq!(index.free(150), [key(2), key(3)]);
        assert_eq!(index.free(0), []);
        assert_eq!(index.free(10_000), [key(4), key(1)], "no more than there is");
        assert_eq!(index.free(1), []);
    }

    fn index(keys_max: usize, bytes_max: Option<u64>) -> Index {
        Index::new(Settings { keys_max, bytes_max, inactive: Duration::from_mins(1) })
    }

    /// U5: one fetch for each key, and another one when it takes too long.
    #[test]
    fn one_fetches_and_the_others_wait() {
        let index = index(10, None);
        let (known, _) = index.ask(key(1), seconds(0));
        assert_eq!(known, Known { uses: 1, has_entry: false, is_updating: false });
        assert_eq!(index.fetch(key(1), AGE, seconds(0)), Fetch::Yours);
        assert_eq!(index.fetch(key(1), AGE, seconds(1)), Fetch::Taken(seconds(5)));
        assert_eq!(index.fetch(key(2), AGE, seconds(1)), Fetch::Yours, "each key by itself");
        assert!(index.ask(key(1), seconds(4)).0.is_updating);
        assert_eq!(index.fetch(key(1), AGE, seconds(5)), Fetch::Yours);
        assert_eq!(index.fetched(key(1), Some(100), seconds(6)), []);
        let (known, _) = index.ask(key(1), seconds(7));
        assert_eq!(known, Known { uses: 3, has_entry: true, is_updating: false });
        assert_eq!(index.fetch(key(1), AGE, seconds(8)), Fetch::Yours, "when it has expired");
        assert_eq!(index.fetched(key(1), None, seconds(9)), []);
        assert!(index.ask(key(1), seconds(9)).0.has_entry, "the old one is still there");
    }

    #[test]
    fn keys_and_bytes_are_bounded() {
        let index = index(3, Some(100));
        for number in 0..3 {
            assert_eq!(index.fetched(key(number), Some(30), seconds(number.into())), []);
        }
        index.ask(key(0), seconds(5));
        assert_eq!(index.ask(key(9), seconds(6)).1, [key(1)], "too many keys");
        assert_eq!(index.fetched(key(9), Some(60), seconds(7)), [key(2)], "too many bytes");
        assert_eq!(index.size(), (2, 90));
        assert_eq!(index.fetched(key(9), Some(20), seconds(8)), []);
        assert_eq!(index.size(), (2, 50), "a new size replaces the old one");
        let huge = index.fetched(key(8), Some(1000), seconds(9));
        assert_eq!(huge, [key(0), key(9), key(8)], "what never fits does not stay");
        assert_eq!(index.size(), (0, 0));
    }

    #[test]
    fn what_nobody_asks_for_goes() {
        let index = index(10, None);
        index.found(key(1), 10, seconds(0));
        index.ask(key(2), seconds(1));
        index.found(key(3), 10, seconds(2));
        assert_eq!(index.next_deadline(), Some(seconds(60)));
        assert_eq!(index.expire(10, seconds(59)), []);
        assert_eq!(
            index.expire(10, seconds(61)),
            [key(1)],
            "one without an entry needs no deletion"
        );
        assert_eq!(index.size(), (1, 10));
        assert!(index.remove(key(3)) && !index.remove(key(3)));
        assert_eq!((index.size(), index.next_deadline()), ((0, 0), None));
    }

    #[test]
    fn the_entries_of_a_key_are_found_with_its_variants() {
        let index = index(100, None);
        let (own, other) = (Key::new(b"own"), Key::new(b"other"));
        let variant = |key: Key, value: &'static [u8]| key.variant(b"A", |_| Some(value));
        let mut expected = vec![own, variant(own, b"1"), variant(own, b"2")];
        for key in expected.iter().copied().chain([other, variant(other, b"1")]) {
            index.found(key, 1, seconds(1));
        }
        index.ask(variant(own, b"3"), seconds(1));
        expected.sort_unstable();
        assert_eq!(index.entries_of(own), expected);
    }

    #[test]
    fn a_zone_holds_as_many_keys_as_nginx_says() {
        assert_eq!(Settings::new(1 << 20).keys_max, 8192);
        assert_eq!(Settings::new(0).keys_max, 1);
    }
}
