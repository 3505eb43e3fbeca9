//! Bounds on how often something may happen. A bound is a burst and a rate at which it is given back, so that an
//! honest client that lives long never meets it.

use sekisho_lifecycle::Moment;

/// How often something may happen: a burst, and a rate after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How often at once.
    pub burst: u32,
    /// How often a second.
    pub per_second: u32,
}

/// How full one bucket is, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    level: u32,
    /// Milliseconds, modulo 2^32.
    at: u32,
}

/// The token buckets of one connection, one for each bound.
#[derive(Debug)]
pub struct Buckets<const COUNT: usize> {
    buckets: [Bucket; COUNT],
}

impl<const COUNT: usize> Default for Buckets<COUNT> {
    fn default() -> Self {
        Self { buckets: [Bucket::default(); COUNT] }
    }
}

impl<const COUNT: usize> Buckets<COUNT> {
    /// Counts one; says whether it is within the bound.
    pub fn spend(&mut self, bound: usize, rate: Rate, now: Moment) -> bool {
        let Some(bucket) = self.buckets.get_mut(bound) else { return false };
        let now = (now.as_nanos() / 1_000_000) as u32;
        if bucket.level == 0 {
            bucket.at = now;
        }
        let passed = now.wrapping_sub(bucket.at);
        let given_back = u64::from(passed) * u64::from(rate.per_second) / 1000;
        if given_back > 0 {
            bucket.level =
                bucket.level.saturating_sub(u32::try_from(given_back).unwrap_or(u32::MAX));
            bucket.at = now;
        }
        bucket.level = bucket.level.saturating_add(1);
        bucket.level <= rate.burst
    }

    /// Gives back what our own doing gave the peer cause for.
    pub fn earn(&mut self, bound: usize, amount: u32) {
        if let Some(bucket) = self.buckets.get_mut(bound) {
            bucket.level = bucket.level.saturating_sub(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_given_back_at_its_rate() {
        let rate = Rate { burst: 10, per_second: 2 };
        let mut buckets = Buckets::<2>::default();
        let mut spend = |millis| buckets.spend(1, rate, Moment::from_millis(millis));
        for _ in 0..10 {
            assert!(spend(5));
        }
        assert!(!spend(5));
        assert!(!spend(505), "one is given back and spent");
        assert!(spend(2005), "three more are given back");
        assert!(spend(2005));
        assert!(!spend(2100));
        buckets.earn(1, 2);
        assert!(buckets.spend(1, rate, Moment::from_millis(2100)));
    }

    #[test]
    fn bounds_are_told_apart() {
        let rate = Rate { burst: 1, per_second: 0 };
        let mut buckets = Buckets::<3>::default();
        for bound in 0..3 {
            assert!(buckets.spend(bound, rate, Moment::ZERO), "{bound}");
            assert!(!buckets.spend(bound, rate, Moment::MAX), "{bound}");
        }
        assert!(!buckets.spend(3, rate, Moment::ZERO), "there is no such bound");
    }
}
