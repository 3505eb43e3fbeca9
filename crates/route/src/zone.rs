//! The zones of `limit_req` and `limit_conn`: a bounded number of keys, each with what is counted for it.
//! Time comes as an argument; sharing a zone is the shell's business.

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
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    excess: u64,
    /// When it was counted, in milliseconds.
    last: u64,
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
        Self { keys: Keys::new(bytes_max) }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.keys.by_key.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
            *bucket = Bucket { excess, last: millis.max(bucket.last) };
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
        *bucket = Bucket { excess, last: millis.max(bucket.last) };
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
        self.keys.insert(key, Bucket { excess: 0, last: millis });
        true
    }
}

/// Places: how many requests of each key are being worked on. A key that has none is not held.
#[derive(Debug)]
pub struct ConnectionZone {
    keys: Keys<u32>,
}

impl ConnectionZone {
    /// An empty zone of this size.
    pub fn new(bytes_max: u64) -> Self {
        Self { keys: Keys::new(bytes_max) }
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
        match self.keys.find(key) {
            Some(at) => {
                let taken = self.keys.value_mut(at);
                if *taken >= max {
                    return Taken::No;
                }
                *taken += 1;
            }
            None if max == 0 => return Taken::No,
            // Every key in the zone has running requests: none can be removed.
            None if !self.keys.has_room(key) => return Taken::NoRoom,
            None => self.keys.insert(key, 1),
        }
        Taken::Yes
    }

    /// Leaves a place.
    pub fn leave(&mut self, key: &[u8]) {
        let Some(at) = self.keys.find(key) else { return };
        let taken = self.keys.value_mut(at);
        *taken = taken.saturating_sub(1);
        if *taken == 0 {
            self.keys.remove(at);
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
