//! Which purges there were while an answer was on its way: one that was asked for before a purge of its key is not
//! kept, since it may be what the purge was about.

use std::collections::VecDeque;

/// So many purges are known by their keys. What was asked for before the oldest of them counts as purged.
const KNOWN_MAX: usize = 256;

/// The number of purges at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct PurgeSerial(u64);

/// The purges of a cache.
#[derive(Debug, Default)]
pub struct Purges {
    count: u64,
    /// The latest ones: the key, or all of them.
    latest: VecDeque<Option<Vec<u8>>>,
}

impl Purges {
    /// What an answer is asked for with.
    pub const fn serial(&self) -> PurgeSerial {
        PurgeSerial(self.count)
    }

    /// A key is purged, or all of them.
    pub fn note(&mut self, key: Option<&[u8]>) {
        self.count += 1;
        if self.latest.len() >= KNOWN_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(key.map(<[u8]>::to_vec));
    }

    /// Whether an answer of this key, asked for then, may be what a purge was about.
    pub fn has_purged(&self, key: &[u8], since: PurgeSerial) -> bool {
        let later = self.count.saturating_sub(since.0);
        let known = self.latest.len() as u64;
        let is_this = |purged: &Option<Vec<u8>>| purged.as_deref().is_none_or(|it| it == key);
        later > known || self.latest.iter().rev().take(later as usize).any(is_this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_a_purge_of_its_key_is_purged() {
        let mut purges = Purges::default();
        let begun = purges.serial();
        assert!(!purges.has_purged(b"a", begun));
        purges.note(Some(b"a"));
        assert!(purges.has_purged(b"a", begun) && !purges.has_purged(b"b", begun));
        let later = purges.serial();
        assert!(!purges.has_purged(b"a", later), "it was asked for after the purge");
        purges.note(None);
        assert!(purges.has_purged(b"a", later) && purges.has_purged(b"b", begun));
    }

    #[test]
    fn purges_that_are_no_longer_known_count_for_every_key() {
        let mut purges = Purges::default();
        let begun = purges.serial();
        (0..KNOWN_MAX).for_each(|_| purges.note(Some(b"a")));
        assert!(!purges.has_purged(b"b", begun));
        purges.note(Some(b"a"));
        assert!(purges.has_purged(b"b", begun));
        assert_eq!(purges.latest.len(), KNOWN_MAX);
    }
}
