//! Bounds on frames that cost us work and make no progress: beyond a bound the connection ends with
//! GOAWAY(ENHANCE_YOUR_CALM) (M4, V7–V10). A bound is a burst and a rate at which it is given back, so that
//! an honest client that lives long never meets it.

use sekisho_lifecycle::Moment;

use crate::policy::Rate;

macro_rules! bounds {
    ($($(#[doc = $doc:literal])+ $variant:ident $tag:literal;)*) => {
        /// What is bounded.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Bound { $($(#[doc = $doc])+ $variant,)* }

        impl Bound {
            /// Every bound, in the order of its counter.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Its name in logs and metrics.
            pub const fn tag(self) -> &'static str {
                match self { $(Self::$variant => $tag,)* }
            }
        }
    };
}

bounds! {
    /// Streams that the client reset before they were answered: rapid reset (V7).
    Resets "http2_resets";
    /// Streams that we had to reset for what the client sent on them: `MadeYouReset` (V8).
    OwnResets "http2_own_resets";
    /// Streams beyond the number that may be open at a time.
    RefusedStreams "http2_refused_streams";
    /// SETTINGS.
    Settings "http2_settings";
    /// PING.
    Pings "http2_pings";
    /// PRIORITY and PRIORITY_UPDATE.
    Priorities "http2_priorities";
    /// DATA, HEADERS and CONTINUATION that carry nothing and end nothing.
    EmptyFrames "http2_empty_frames";
    /// WINDOW_UPDATE beyond what our DATA gives cause for.
    WindowUpdates "http2_window_updates";
    /// Frames of kinds that we do not know, or for streams that are over.
    UselessFrames "http2_useless_frames";
    /// A header block that is too long, or comes in too many pieces (V9).
    HeaderBlock "http2_header_block";
}

/// How many of the bounds are rates; the last one is not.
pub const RATES: usize = Bound::ALL.len() - 1;

/// How full one bucket is, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    level: u32,
    /// Milliseconds, modulo 2^32.
    at: u32,
}

/// All of one connection.
#[derive(Debug, Default)]
pub struct Budget {
    buckets: [Bucket; RATES],
}

impl Budget {
    /// Counts one; says whether it is within the bound.
    pub fn spend(&mut self, bound: Bound, rate: Rate, now: Moment) -> bool {
        let Some(bucket) = self.buckets.get_mut(bound as usize) else { return false };
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
    pub fn earn(&mut self, bound: Bound, amount: u32) {
        if let Some(bucket) = self.buckets.get_mut(bound as usize) {
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
        let mut budget = Budget::default();
        let mut spend = |millis| budget.spend(Bound::Pings, rate, Moment::from_millis(millis));
        for _ in 0..10 {
            assert!(spend(5));
        }
        assert!(!spend(5));
        assert!(!spend(505), "one is given back and spent");
        assert!(spend(2005), "three more are given back");
        assert!(spend(2005));
        assert!(!spend(2100));
    }

    #[test]
    fn bounds_are_told_apart() {
        let rate = Rate { burst: 1, per_second: 0 };
        let mut budget = Budget::default();
        for bound in &Bound::ALL[..RATES] {
            assert!(budget.spend(*bound, rate, Moment::ZERO), "{}", bound.tag());
            assert!(!budget.spend(*bound, rate, Moment::MAX), "{}", bound.tag());
        }
        assert!(!budget.spend(Bound::HeaderBlock, rate, Moment::ZERO), "it is no rate");
    }
}
