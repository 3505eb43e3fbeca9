//! The one place in the tests that asks for the time and sleeps. Every wait has a limit, and waits for
//! a condition where there is one; a bare pause is for scripts whose peer must be slow.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(2);

/// The time now.
#[expect(clippy::disallowed_methods, reason = "tests over real sockets measure real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Does nothing for a while: for a peer that is to be slow.
#[expect(clippy::disallowed_methods, reason = "a slow peer is what the test is about")]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Looks at a condition until it holds or the limit is over; says whether it held.
#[must_use]
pub fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let watch = Stopwatch::start();
    loop {
        // In this order: a condition that became true during the last pause still counts.
        let is_over = watch.elapsed() >= limit;
        if condition() {
            return true;
        }
        if is_over {
            return false;
        }
        pause(POLL);
    }
}

/// Like [`wait_for`], and fails the test when the condition never held.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, condition: impl FnMut() -> bool) {
    assert!(wait_for(limit, condition), "{what}: not within {limit:?}");
}

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(now())
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        now().duration_since(self.0)
    }

    /// How much of `limit` is left; zero when it is over.
    pub fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_condition_or_with_its_limit() {
        let mut looks = 0;
        assert!(wait_for(Duration::from_secs(5), || {
            looks += 1;
            looks == 3
        }));
        let watch = Stopwatch::start();
        assert!(!wait_for(Duration::from_millis(20), || false));
        assert!(watch.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_condition_is_looked_at_even_with_no_time_at_all() {
        assert!(wait_for(Duration::ZERO, || true));
    }
}
