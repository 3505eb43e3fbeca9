//! Entries that were read lately: the parsed head with the body, or with an open file where the body is long. All
//! workers share them. A request finds its entry here without a thread of the blocking pool.
//!
//! An entry leaves when its file gets another content or is deleted. A reader that opened the old file before that
//! must not put it back afterwards: it puts only if the generation is the one from before its `open`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sekisho_lifecycle::Moment;
use sekisho_upstream::cache::Key;

use super::folder::{Body, Kept};

/// Number of locks.
const SHARDS: usize = 16;
/// Memory of one shard, in bytes.
const SHARD_BYTES_MAX: usize = 512 * 1024;
/// Cost of an open file, in bytes: there are at most 128.
const FILE_BYTES: usize = 64 * 1024;
/// Cost of an entry beside its head and body, in bytes.
const ENTRY_BYTES: usize = 512;
/// How often the use of an entry is noted in the index.
const NOTE_PERIOD: Duration = Duration::from_secs(1);

/// The hot entries of a cache, by slot.
#[derive(Debug)]
pub(super) struct Hot {
    shards: [Mutex<Shard>; SHARDS],
    period: Duration,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Key, Entry>,
    bytes: usize,
    /// Number of removals.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    used: Moment,
    noted: Moment,
}

impl Hot {
    /// For a cache whose entries must be used once in a while (`inactive`).
    pub(super) fn new(inactive: Duration) -> Self {
        Self { shards: Default::default(), period: NOTE_PERIOD.min(inactive / 4) }
    }

    /// The entry of a slot, and whether its use has to be noted in the index.
    pub(super) fn find(&self, slot: Key, now: Moment) -> Option<(Arc<Kept>, bool)> {
        let mut shard = self.shard(slot);
        let entry = shard.entries.get_mut(&slot)?;
        entry.used = now;
        let is_due = (entry.noted + self.period).is_due(now);
        if is_due {
            entry.noted = now;
        }
        Some((Arc::clone(&entry.kept), is_due))
    }

    /// To be read before the file is opened.
    pub(super) fn generation(&self, slot: Key) -> u64 {
        self.shard(slot).generation
    }

    /// Adds an entry, unless a file of its shard was replaced or deleted since `generation`.
    pub(super) fn put(&self, slot: Key, kept: &Arc<Kept>, generation: u64, now: Moment) {
        let mut shard = self.shard(slot);
        if shard.generation != generation || cost(kept) > SHARD_BYTES_MAX / 4 {
            return;
        }
        shard.take(slot);
        shard.bytes += cost(kept);
        let entry = Entry { kept: Arc::clone(kept), used: now, noted: now };
        shard.entries.insert(slot, entry);
        while shard.bytes > SHARD_BYTES_MAX {
            let oldest = shard.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(slot, _)| *slot) else { break };
            shard.take(oldest);
        }
    }

    /// The file of a slot has been replaced or deleted.
    pub(super) fn remove(&self, slot: Key) {
        let mut shard = self.shard(slot);
        shard.generation += 1;
        shard.take(slot);
    }

    fn shard(&self, slot: Key) -> MutexGuard<'_, Shard> {
        let at = usize::from(slot.0[0]) % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn take(&mut self, slot: Key) {
        if let Some(entry) = self.entries.remove(&slot) {
            self.bytes -= cost(&entry.kept);
        }
    }
}

fn cost(kept: &Kept) -> usize {
    let body = match &kept.body {
        Body::Memory(bytes) => bytes.len(),
        Body::File(_) => FILE_BYTES,
    };
    // The fields are there twice, and about as long as on the disk.
    ENTRY_BYTES + 2 * kept.head_bytes as usize + body
}

#[cfg(test)]
mod tests {
    use sekisho_http::{Fields, Status};
    use sekisho_upstream::cache::{Lifetime, entry};

    use super::super::folder::FileStamp;
    use super::*;

    const LIFETIME: Lifetime = Lifetime {
        stored: 0,
        age: 0,
        valid_until: 0,
        stale_while_revalidate: 0,
        stale_if_error: 0,
        must_revalidate: false,
    };

    fn kept(bytes: usize) -> Arc<Kept> {
        let entry = entry::Entry {
            key: Vec::new(),
            vary: Vec::new(),
            variant: [0; 16],
            lifetime: LIFETIME,
            status: Status::OK,
            fields: Fields::default(),
            body_bytes: bytes as u64,
            body_checksum: 0,
        };
        let file = FileStamp::default();
        let (head, body) = (entry.response_head(), Body::Memory(vec![0; bytes]));
        Arc::new(Kept { entry, head, head_bytes: 100, body, file })
    }

    fn slot(number: u8) -> Key {
        Key([0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    #[test]
    fn a_reader_that_is_late_does_not_put_a_former_entry_back() {
        let (hot, now) = (Hot::new(Duration::from_mins(10)), Moment::ZERO);
        let generation = hot.generation(slot(1));
        hot.remove(slot(1));
        hot.put(slot(1), &kept(1), generation, now);
        assert!(hot.find(slot(1), now).is_none());
        hot.put(slot(1), &kept(1), hot.generation(slot(1)), now);
        assert!(hot.find(slot(1), now).is_some());
        hot.remove(slot(1));
        assert!(hot.find(slot(1), now).is_none());
    }

    #[test]
    fn memory_is_bounded_and_the_least_recently_used_leave() {
        let hot = Hot::new(Duration::from_mins(10));
        for number in 0..30 {
            let now = Moment::from_millis(number.into());
            hot.put(slot(number), &kept(50_000), hot.generation(slot(number)), now);
            assert!(hot.find(slot(0), now).is_some(), "{number}");
            assert!(hot.shard(slot(0)).bytes <= SHARD_BYTES_MAX);
        }
        assert!(hot.find(slot(1), Moment::ZERO).is_none());
        assert!(hot.find(slot(29), Moment::ZERO).is_some());
        hot.put(slot(40), &kept(SHARD_BYTES_MAX), hot.generation(slot(40)), Moment::ZERO);
        assert!(hot.find(slot(40), Moment::ZERO).is_none(), "one does not displace all others");
    }

    #[test]
    fn a_use_is_noted_once_in_a_period() {
        let hot = Hot::new(Duration::from_mins(10));
        let at = Moment::from_millis;
        hot.put(slot(1), &kept(1), 0, at(0));
        let is_due = |millis| hot.find(slot(1), at(millis)).expect("it is hot").1;
        assert_eq!([999, 1000, 1001, 1999, 2000].map(is_due), [false, true, false, false, true]);
    }
}
