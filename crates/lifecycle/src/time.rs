//! The monotonic time as code without a clock knows it: a number that comes in as an argument. A test makes
//! one out of thin air; a program makes it of its own clock, in one place.

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since some fixed start. Kept as one more, so that
/// "no moment" needs no room of its own: sessions hold several that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(NonZeroU64);

impl Default for Moment {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Moment {
    /// The start of the clock.
    pub const ZERO: Self = Self(NonZeroU64::MIN);
    /// Later than anything.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The moment `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// The moment `millis` milliseconds after the start of the clock.
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_nanos(millis * 1_000_000)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// How long ago `earlier` was, or zero when it lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The one comparison: used both to compute a wait and to expire.
    pub const fn is_due(self, now: Self) -> bool {
        now.0.get() >= self.0.get()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
