//! A budget of bytes that several users share. A user that wants memory takes a share first; a share beyond
//! the limit is refused, and dropping a share gives it back. It only counts: it allocates and frees nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes there are, and how many are taken.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    taken: AtomicUsize,
}

/// Bytes that are taken from a budget, until this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0) })
    }

    /// How many bytes there are in all.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many of them are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes so many bytes; `None` where that is more than is left.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.take_up_to(bytes, self.limit)
    }

    /// The same for work that needs more memory as it goes on: it begins only while at most half of the budget is
    /// taken, so that what has begun can grow.
    pub fn begin(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.take_up_to(bytes, self.limit / 2)
    }

    fn take_up_to(self: &Arc<Self>, bytes: usize, limit: usize) -> Option<Share> {
        // A share is not made before it is known to be granted: dropping one gives its bytes back.
        self.add(bytes, limit).then(|| Share { budget: Arc::clone(self), bytes })
    }

    fn add(&self, bytes: usize, limit: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Share {
    /// How many bytes it has.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it so many bytes; `false`, and no change, where the budget does not have them.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.budget.add(bytes - self.bytes, self.budget.limit) {
            return false;
        }
        if bytes < self.bytes {
            self.budget.taken.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X8
    #[test]
    fn no_more_is_taken_than_there_is_and_all_comes_back() {
        let budget = Budget::new(100);
        let mut first = budget.take(60).expect("there is room");
        assert_eq!(budget.limit(), 100);
        assert!(budget.take(41).is_none());
        let second = budget.take(40).expect("exactly the rest");
        assert!(!first.resize(61), "nothing is left");
        assert_eq!((first.bytes(), budget.taken()), (60, 100));
        drop(second);
        assert!(first.resize(100));
        assert!(first.resize(10));
        assert_eq!(budget.taken(), 10);
        assert!(budget.take(usize::MAX).is_none());
        drop(first);
        assert_eq!(budget.taken(), 0);
    }

    /// X8
    #[test]
    fn what_grows_begins_only_while_half_is_free() {
        let budget = Budget::new(100);
        let mut first = budget.begin(50).expect("half of it");
        assert!(budget.begin(1).is_none());
        assert!(first.resize(90), "what has begun goes on");
        assert!(budget.take(10).is_some(), "the rest is for others");
    }
}
