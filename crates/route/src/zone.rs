//! The zones of `limit_req` and `limit_conn`: a bounded number of keys, each with what is counted for it.
//! Time comes as an argument; sharing a zone is the shell's business.
//!
//! Several servers may count together. Each decides by itself, tells a store what it has counted since, and takes the
//! store's count for its own (`take_counted`, `reconcile`): no request waits for the store, and what one server did not know
//! of the others is charged a moment later.

use std::collections::HashMap;
use std::sync::Arc;

use sekisho_config::{Rate, RateLimit};
use sekisho_lifecycle::Moment;

use crate::access_checks::{Rated, Taken};

/// What a key costs beside its own bytes: a megabyte holds about 8,000 keys that are addresses.
pub const KEY_BYTES: usize = 112;
/// One request, in what is counted.
const ONE: u64 = 1000;
/// A key that was not used for this long, and that is within its rate, may be removed.
const IDLE_MILLIS: u64 = 60_000;
/// No entry.
const NONE: u32 = u32::MAX;

/// Rates: a leaky bucket for each key, in thousandths of a request (nginx's arithmetic).
#[derive(Debug)]
pub struct RateZone {
    keys: Keys<Bucket>,
    /// Keys with requests that the store does not know of; `None` where there is no store.
    counted: Option<Vec<Arc<[u8]>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    excess: u64,
    /// When it was counted, in milliseconds.
    last: u64,
    /// How many requests the store does not know of.
    untold: u32,
}

/// What a server has counted of a key since it told the store last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The key.
    pub key: Arc<[u8]>,
    /// For a rate, the requests that came; for connections, those that there are.
    pub count: u32,
}

impl Bucket {
    /// What the excess is with one request more.
    fn with_one_more(self, rate: Rate, millis: u64) -> u64 {
        (self.excess + ONE).saturating_sub(drained(rate, millis.saturating_sub(self.last)))
    }

    fn is_idle(self, rate: Rate, millis: u64) -> bool {
        let quiet = millis.saturating_sub(self.last);
        quiet >= IDLE_MILLIS && self.excess <= drained(rate, quiet)
    }
}

/// How much leaves a bucket in a time: a thousandth of a request for each millisecond at one a second.
fn drained(rate: Rate, millis: u64) -> u64 {
    millis.saturating_mul(u64::from(rate.requests)) / u64::from(rate.secs.max(1))
}

fn millis_of(now: Moment) -> u64 {
    now.as_nanos() / 1_000_000
}

impl RateZone {
    /// An empty zone of this size.
    pub fn new(bytes_max: u64) -> Self {
        Self { keys: Keys::new(bytes_max), counted: None }
    }

    /// The same, with a store that is told what is counted.
    pub fn shared(bytes_max: u64) -> Self {
        Self { counted: Some(Vec::new()), ..Self::new(bytes_max) }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.keys.by_key.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the store is to be told, of so many keys. After a time in which it was away (`since_away` says at which rate
    /// and when) only what has not drained from our own buckets meanwhile: it would charge all of it at once.
    pub fn take_counted(
        &mut self,
        keys_max: usize,
        since_away: Option<(Rate, Moment)>,
    ) -> Vec<Counted> {
        let Some(counted) = &mut self.counted else { return Vec::new() };
        let rest = counted.split_off(counted.len().min(keys_max));
        let keys = std::mem::replace(counted, rest);
        let of = |key: Arc<[u8]>| {
            // A key that had to make room since is not told.
            let at = *self.keys.by_key.get(&key)?;
            let bucket = self.keys.value_mut(at);
            let left = since_away.map_or(u64::MAX, |(rate, now)| {
                let quiet = millis_of(now).saturating_sub(bucket.last);
                bucket.excess.saturating_sub(drained(rate, quiet)).div_ceil(ONE)
            });
            let count = std::mem::take(&mut bucket.untold);
            Some(Counted { key, count: count.min(u32::try_from(left).unwrap_or(u32::MAX)) })
        };
        keys.into_iter().filter_map(of).collect()
    }

    /// The store has counted so much of a key, of all servers together.
    pub fn reconcile(&mut self, key: &[u8], excess: u64, now: Moment) {
        let Some(at) = self.keys.by_key.get(key).copied() else { return };
        let bucket = self.keys.value_mut(at);
        bucket.excess = excess.saturating_add(u64::from(bucket.untold) * ONE);
        bucket.last = millis_of(now).max(bucket.last);
    }

    /// What could not be told is to be told again.
    pub fn give_back(&mut self, counted: &[Counted]) {
        for Counted { key, count } in counted {
            if let Some(at) = self.keys.by_key.get(key).copied() {
                self.note(at, *count);
            }
        }
    }

    /// Requests of a key were counted that the store does not know of.
    fn note(&mut self, at: u32, requests: u32) {
        let Some(counted) = &mut self.counted else { return };
        let entry = &mut self.keys.entries[at as usize];
        if entry.value.untold == 0 {
            counted.push(Arc::clone(&entry.key));
        }
        entry.value.untold = entry.value.untold.saturating_add(requests);
    }

    /// How far above its rate a key is with one request more; with `counts`, that one is counted unless it
    /// is beyond the burst.
    pub fn look(&mut self, limit: &RateLimit, key: &[u8], counts: bool, now: Moment) -> Rated {
        let millis = millis_of(now);
        let Some(at) = self.keys.find(key) else {
            if counts && !self.begin(limit, key, millis) {
                return Rated::NoRoom;
            }
            return Rated::Within(0);
        };
        let bucket = self.keys.value_mut(at);
        let excess = bucket.with_one_more(limit.rate, millis);
        if excess > limit.burst {
            return Rated::Over(excess);
        }
        if counts {
            (bucket.excess, bucket.last) = (excess, millis.max(bucket.last));
            self.note(at, 1);
        }
        Rated::Within(excess)
    }

    /// Counts a request, whatever the excess.
    pub fn count(&mut self, limit: &RateLimit, key: &[u8], now: Moment) -> u64 {
        let millis = millis_of(now);
        let Some(at) = self.keys.find(key) else {
            self.begin(limit, key, millis);
            return 0;
        };
        let bucket = self.keys.value_mut(at);
        let excess = bucket.with_one_more(limit.rate, millis);
        (bucket.excess, bucket.last) = (excess, millis.max(bucket.last));
        self.note(at, 1);
        excess
    }

    /// The first request of a key. Removes one or two idle keys; without room, the least recently used one.
    fn begin(&mut self, limit: &RateLimit, key: &[u8], millis: u64) -> bool {
        for _ in 0..2 {
            if self.keys.oldest().is_some_and(|bucket| bucket.is_idle(limit.rate, millis)) {
                self.keys.remove_oldest();
            }
        }
        while !self.keys.has_room(key) {
            if !self.keys.remove_oldest() {
                return false;
            }
        }
        self.keys.insert(key, Bucket { excess: 0, last: millis, untold: 0 });
        self.note(self.keys.newest, 1);
        true
    }
}

/// Places: how many requests of each key are being worked on. A key that has none is not held.
#[derive(Debug)]
pub struct ConnectionZone {
    keys: Keys<Places>,
    /// Keys whose places have changed since the store was told; `None` where there is no store.
    changed: Option<Vec<Arc<[u8]>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Places {
    taken: u32,
    /// Those of other servers, as the store said.
    elsewhere: u32,
    is_changed: bool,
}

impl ConnectionZone {
    /// An empty zone of this size.
    pub fn new(bytes_max: u64) -> Self {
        Self { keys: Keys::new(bytes_max), changed: None }
    }

    /// The same, with a store that is told what is counted.
    pub fn shared(bytes_max: u64) -> Self {
        Self { changed: Some(Vec::new()), ..Self::new(bytes_max) }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.keys.by_key.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a place, if fewer than `max` are taken. Every place that was taken must be left, once.
    pub fn take(&mut self, key: &[u8], max: u32) -> Taken {
        let at = match self.keys.find(key) {
            Some(at) => {
                let places = self.keys.value_mut(at);
                if places.taken.saturating_add(places.elsewhere) >= max {
                    // Perhaps others have left theirs by now.
                    self.note(at);
                    return Taken::No;
                }
                places.taken += 1;
                at
            }
            None if max == 0 => return Taken::No,
            // Every key in the zone has running requests: none can be removed.
            None if !self.keys.has_room(key) => return Taken::NoRoom,
            None => {
                self.keys.insert(key, Places { taken: 1, ..Places::default() });
                self.keys.newest
            }
        };
        self.note(at);
        Taken::Yes
    }

    /// Leaves a place.
    pub fn leave(&mut self, key: &[u8]) {
        let Some(at) = self.keys.find(key) else { return };
        let places = self.keys.value_mut(at);
        places.taken = places.taken.saturating_sub(1);
        if places.taken == 0 && self.changed.is_none() {
            self.keys.remove(at);
        } else {
            self.note(at);
        }
    }

    /// What the store is to be told, of so many keys: how many places are taken here.
    pub fn take_counted(&mut self, keys_max: usize) -> Vec<Counted> {
        let Some(changed) = &mut self.changed else { return Vec::new() };
        let rest = changed.split_off(changed.len().min(keys_max));
        let keys = std::mem::replace(changed, rest);
        let of = |key: Arc<[u8]>| {
            let places = self.keys.value_mut(*self.keys.by_key.get(&key)?);
            places.is_changed = false;
            let count = places.taken;
            Some(Counted { key, count })
        };
        keys.into_iter().filter_map(of).collect()
    }

    /// So many places of a key are taken on other servers, says the store.
    pub fn reconcile(&mut self, key: &[u8], elsewhere: u32) {
        let Some(at) = self.keys.by_key.get(key).copied() else { return };
        let places = self.keys.value_mut(at);
        places.elsewhere = elsewhere;
        if places.taken == 0 && elsewhere == 0 && !places.is_changed {
            self.keys.remove(at);
        }
    }

    /// What could not be told is to be told again.
    pub fn give_back(&mut self, counted: &[Counted]) {
        for Counted { key, .. } in counted {
            if let Some(at) = self.keys.by_key.get(key).copied() {
                self.note(at);
            }
        }
    }

    /// The store forgets what it is not told again: every key is to be told. One without any places goes when the
    /// store has answered.
    pub fn refresh(&mut self) {
        let all: Vec<u32> = self.keys.by_key.values().copied().collect();
        for at in all {
            self.note(at);
        }
    }

    fn note(&mut self, at: u32) {
        let Some(changed) = &mut self.changed else { return };
        let entry = &mut self.keys.entries[at as usize];
        if !std::mem::replace(&mut entry.value.is_changed, true) {
            changed.push(Arc::clone(&entry.key));
        }
    }
}

/// A bounded number of keys that knows which of them was not used for the longest time.
#[derive(Debug)]
struct Keys<T> {
    by_key: HashMap<Arc<[u8]>, u32>,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct Entry<T> {
    key: Arc<[u8]>,
    value: T,
    newer: u32,
    older: u32,
}

impl<T> Keys<T> {
    fn new(bytes_max: u64) -> Self {
        Self {
            by_key: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            bytes_max,
        }
    }

    /// Looks for a key, which is the newest then.
    fn find(&mut self, key: &[u8]) -> Option<u32> {
        let at = *self.by_key.get(key)?;
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        Some(at)
    }

    fn value_mut(&mut self, at: u32) -> &mut T {
        &mut self.entries[at as usize].value
    }

    fn oldest(&self) -> Option<&T> {
        self.entries.get(self.oldest as usize).map(|entry| &entry.value)
    }

    fn has_room(&self, key: &[u8]) -> bool {
        self.bytes + cost(key) <= self.bytes_max && self.by_key.len() < NONE as usize
    }

    fn insert(&mut self, key: &[u8], value: T) {
        let key: Arc<[u8]> = key.into();
        self.bytes += cost(&key);
        let entry = Entry { key: Arc::clone(&key), value, newer: NONE, older: NONE };
        let at = if let Some(at) = self.free.pop() {
            self.entries[at as usize] = entry;
            at
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        self.by_key.insert(key, at);
        self.link(at);
    }

    fn remove_oldest(&mut self) -> bool {
        let is_any = self.oldest != NONE;
        if is_any {
            self.remove(self.oldest);
        }
        is_any
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let key = std::mem::take(&mut self.entries[at as usize].key);
        self.by_key.remove(&key);
        self.bytes -= cost(&key);
        self.free.push(at);
    }

    fn link(&mut self, at: u32) {
        let before = self.newest;
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

fn cost(key: &[u8]) -> u64 {
    (KEY_BYTES + key.len()) as u64
}
