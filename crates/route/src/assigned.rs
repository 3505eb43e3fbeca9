//! The values of variables that scripts have `set` or `map`s have found, in copied text, so that an exchange
//! borrows nothing.

use std::ops::Range;

/// The values of an exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignments {
    text: Vec<u8>,
    /// By variable; shorter than the list of variables where the last ones are not set.
    slots: Vec<Option<Slot>>,
}

#[derive(Clone, Debug)]
struct Slot {
    text: Range<usize>,
    /// How many matches there had been: a named group of a later one takes the variable over.
    matches: usize,
}

impl Assignments {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.slots.clear();
    }

    /// Gives a variable its value.
    pub(crate) fn set(&mut self, id: u32, value: &[u8]) {
        self.set_at(id, value, 0);
    }

    /// Gives a variable its value, after so many matches.
    pub(crate) fn set_at(&mut self, id: u32, value: &[u8], matches: usize) {
        let at = id as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        let old = self.slots[at].as_ref().map(|slot| slot.text.clone());
        let text = match old {
            // Set again and again, it takes no more room.
            Some(old) if old.len() >= value.len() => old.start..old.start + value.len(),
            _ => self.text.len()..self.text.len() + value.len(),
        };
        if text.end > self.text.len() {
            self.text.extend_from_slice(value);
        } else {
            self.text[text.clone()].copy_from_slice(value);
        }
        self.slots[at] = Some(Slot { text, matches });
    }

    /// A variable's value.
    pub(crate) fn value(&self, id: u32) -> Option<&[u8]> {
        self.text.get(self.slots.get(id as usize)?.as_ref()?.text.clone())
    }

    /// How many matches there had been when it was set.
    pub(crate) fn stamp(&self, id: u32) -> Option<usize> {
        Some(self.slots.get(id as usize)?.as_ref()?.matches)
    }

    /// How much memory it holds.
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_the_others_stay() {
        let mut all = Assignments::default();
        let [a, b] = [3, 0];
        assert_eq!(all.value(a), None);
        all.set(a, b"one");
        all.set(b, b"two");
        all.set_at(a, b"longer than one", 2);
        assert_eq!((all.value(a), all.stamp(a)), (Some(&b"longer than one"[..]), Some(2)));
        all.set(a, b"short");
        all.set_at(a, b"", 4);
        assert_eq!((all.value(a), all.stamp(a)), (Some(&b""[..]), Some(4)));
        assert_eq!(all.value(b), Some(&b"two"[..]));
        assert_eq!(all.value(1), None);
        all.clear();
        assert_eq!(all.value(b), None);
    }

    #[test]
    fn setting_the_same_again_takes_no_more_room() {
        let mut all = Assignments::default();
        all.set(0, &[b'x'; 100]);
        let room = all.capacity();
        for _ in 0..1000 {
            all.set(0, &[b'y'; 100]);
        }
        assert_eq!(all.capacity(), room);
    }
}
