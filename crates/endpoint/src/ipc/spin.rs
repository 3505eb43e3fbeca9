//! Looking again and again for a while before sleeping: on two cores an answer that comes soon costs no wakeup then. How
//! long that may be is bounded, and a side that looked in vain looks for a shorter time the next time: a peer that
//! takes its time costs little, and other sessions of the thread are not held up by it for long.

use std::time::Duration;

use crate::clock::Clock;

/// After so many waits that did not look at all, one looks again for the whole time.
const PROBE_EVERY: u32 = 64;
/// So many looks are taken between two looks at the clock.
const LOOKS: u32 = 32;

/// How long to look before the next sleep.
#[derive(Clone, Debug)]
pub(crate) struct Spin {
    longest: Duration,
    /// How often in a row it was in vain.
    misses: u32,
    clock: Clock,
}

impl Spin {
    /// For so long at the most; zero is not at all.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, misses: 0, clock: Clock::new() }
    }

    /// How long to look now. Each miss halves it; from time to time it is all again.
    fn length(&self) -> Duration {
        if self.misses.is_multiple_of(PROBE_EVERY) {
            return self.longest;
        }
        self.longest.checked_div(1_u32.checked_shl(self.misses).unwrap_or(0)).unwrap_or_default()
    }

    fn note(&mut self, was_found: bool) {
        self.misses = if was_found { 0 } else { self.misses.wrapping_add(1) };
    }

    /// Looks until there is something, or the time is over; whether there is.
    pub(crate) fn until(&mut self, mut is_there: impl FnMut() -> bool) -> bool {
        let length = self.length();
        // Below that the clock itself takes as long.
        if length < Duration::from_nanos(200) {
            if !self.longest.is_zero() {
                self.note(false);
            }
            return false;
        }
        let by = self.clock.now() + length;
        let found = loop {
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                is_there()
            }) {
                break true;
            }
            if by.is_due(self.clock.now()) {
                break false;
            }
        };
        self.note(found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_done_for_a_shorter_time() {
        let micros = Duration::from_micros;
        let mut spin = Spin { longest: micros(20), misses: 0, clock: Clock::new() };
        let mut lengths = Vec::new();
        for _ in 0..5 {
            lengths.push(spin.length());
            spin.note(false);
        }
        let halves = [20_000, 10_000, 5000, 2500, 1250].map(Duration::from_nanos);
        assert_eq!(lengths, halves);
        spin.note(true);
        assert_eq!(spin.length(), micros(20));
        // After many misses it is nothing, but once in a while.
        spin.misses = 40;
        assert_eq!(spin.length(), Duration::ZERO);
        let mut whole = 0;
        for _ in 0..10 * PROBE_EVERY {
            whole += u32::from(spin.length() == micros(20));
            spin.note(false);
        }
        assert_eq!(whole, 10);
    }

    #[test]
    fn looking_ends() {
        let mut spin = Spin { longest: Duration::from_micros(50), misses: 0, clock: Clock::new() };
        assert!(!spin.until(|| false));
        spin.misses = 0;
        let mut looks = 0;
        assert!(spin.until(|| {
            looks += 1;
            looks == 3
        }));
        let mut off = Spin { longest: Duration::ZERO, misses: 0, clock: Clock::new() };
        assert!(!off.until(|| panic!("it does not look")));
    }
}
