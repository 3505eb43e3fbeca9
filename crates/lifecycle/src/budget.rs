//! A budget of bytes that several users share. A user that wants memory takes a share first; a share beyond
//! the limit is refused, and dropping a share gives it back. It only counts: it allocates and frees nothing.
//!
//! A budget can be part of another one: a share of the part is also taken from the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit in bytes, and how many bytes are taken.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    taken: AtomicUsize,
    whole: Option<Arc<Budget>>,
}

/// Bytes that are taken from a budget, until this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget with this limit in bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0), whole: None })
    }

    /// A budget with this limit that is part of another one.
    pub fn part_of(whole: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0), whole: Some(Arc::clone(whole)) })
    }

    /// The limit in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The number of bytes that are taken. It exceeds the limit where users [hold](Share::hold) more.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether nothing is left of it, or of the budget that it is part of.
    #[inline]
    pub fn is_full(&self) -> bool {
        let mut budget = self;
        loop {
            if budget.taken() >= budget.limit {
                return true;
            }
            match &budget.whole {
                Some(whole) => budget = whole,
                None => return false,
            }
        }
    }

    /// Takes bytes; `None` where that is more than is left.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.take_up_to(bytes, self.limit)
    }

    /// The same for work that needs more memory as it goes on: it begins only while at most half of the budget is
    /// taken, so that what has begun can grow.
    pub fn begin(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.take_up_to(bytes, self.limit / 2)
    }

    /// A share without bytes, which can grow.
    pub fn empty_share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }

    fn take_up_to(self: &Arc<Self>, bytes: usize, limit: usize) -> Option<Share> {
        // A share is not made before it is known to be granted: dropping one gives its bytes back.
        self.add(bytes, limit).then(|| Share { budget: Arc::clone(self), bytes })
    }

    fn add(&self, bytes: usize, limit: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= limit);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        let Some(whole) = &self.whole else { return true };
        let is_granted = whole.add(bytes, whole.limit);
        if !is_granted {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_granted
    }

    fn add_in_any_case(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.add_in_any_case(bytes);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

impl Share {
    /// The number of its bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a share of this budget.
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Changes its number of bytes; `false`, and no change, where the budget does not have them.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.budget.add(bytes - self.bytes, self.budget.limit) {
            return false;
        }
        if bytes < self.bytes {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Counts memory that is in use already, within the limit or not. Returns `false` where it grew although nothing was
    /// left.
    pub fn hold(&mut self, bytes: usize) -> bool {
        if self.resize(bytes) {
            return true;
        }
        self.budget.add_in_any_case(bytes - self.bytes);
        self.bytes = bytes;
        false
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
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

    /// O9
    #[test]
    fn a_share_of_a_part_is_also_taken_from_the_whole() {
        let whole = Budget::new(100);
        let [a, b] = [(); 2].map(|()| Budget::part_of(&whole, 70));
        let mut of_a = a.take(60).expect("there is room");
        assert!(b.take(41).is_none(), "the whole has only 40 left");
        assert_eq!((a.taken(), b.taken(), whole.taken()), (60, 0, 60));
        let of_b = b.take(40).expect("exactly the rest");
        assert!(a.is_full() && b.is_full() && !of_a.resize(61));
        drop(of_b);
        assert!(!a.is_full() && of_a.resize(70) && a.is_full() && !b.is_full());
        assert!(of_a.is_of(&a) && !of_a.is_of(&b));
        drop(of_a);
        assert_eq!((a.taken(), b.taken(), whole.taken()), (0, 0, 0));
    }

    /// O9
    #[test]
    fn memory_in_use_is_counted_beyond_the_limit() {
        let whole = Budget::new(100);
        let part = Budget::part_of(&whole, 50);
        let mut share = part.empty_share();
        assert!(share.hold(50) && !share.hold(120));
        assert_eq!((share.bytes(), part.taken(), whole.taken()), (120, 120, 120));
        assert!(share.hold(110), "it has shrunk");
        assert!(part.is_full() && part.take(1).is_none());
        assert!(share.hold(10) && !part.is_full());
        drop(share);
        assert_eq!((part.taken(), whole.taken()), (0, 0));
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
