//! Everything that is left to chance comes from here, and all of it from one seed: the same seed is the
//! same world, on every machine. An actor that must not depend on what others draw has a generator of its
//! own.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A stream of numbers that follows from its seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The dice of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed);
        rng.draw();
        rng
    }

    /// Another generator, derived from this one's seed and a number, without drawing from this one.
    #[must_use]
    pub fn apart(&self, number: u64) -> Self {
        Self::new(self.0 ^ number.wrapping_add(1).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number of this range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = (range.end() - range.start()).saturating_add(1);
        range.start() + self.draw() % span
    }

    /// A size of this range.
    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.within(*range.start() as u64..=*range.end() as u64) as usize
    }

    /// Whether this is one of so many cases in a hundred.
    pub fn is_one_of(&mut self, cases: u64) -> bool {
        self.draw() % 100 < cases
    }

    /// A length of time, in whole milliseconds: so that things often fall on the same instant.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.size(0..=of.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_one_others() {
        let drawn = |seed| {
            let mut rng = Rng::new(seed);
            [rng.draw(), rng.within(3..=9), rng.apart(7).draw(), rng.draw()]
        };
        assert_eq!(drawn(5), drawn(5));
        assert_ne!(drawn(5), drawn(6));
    }

    #[test]
    fn what_is_drawn_lies_in_its_range() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!((3..=9).contains(&rng.within(3..=9)));
        }
    }
}
