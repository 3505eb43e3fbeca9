//! The values of variables that scripts have `set`, in copied text, so that an exchange borrows from nobody.

use std::ops::Range;

use sekisho_config::AssignedId;

/// The values of an exchange.
#[derive(Debug, Default)]
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

    /// Gives a variable its value, after so many matches.
    pub(crate) fn set(&mut self, AssignedId(at): AssignedId, value: &[u8], matches: usize) {
        let at = at as usize;
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

    /// A variable's value, and how many matches there had been when it was set.
    pub(crate) fn value(&self, AssignedId(at): AssignedId) -> Option<(&[u8], usize)> {
        let slot = self.slots.get(at as usize)?.as_ref()?;
        Some((self.text.get(slot.text.clone())?, slot.matches))
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
        let [a, b] = [AssignedId(3), AssignedId(0)];
        assert_eq!(all.value(a), None);
        all.set(a, b"one", 0);
        all.set(b, b"two", 1);
        all.set(a, b"longer than one", 2);
        assert_eq!(all.value(a), Some((&b"longer than one"[..], 2)));
        all.set(a, b"short", 3);
        all.set(a, b"", 4);
        assert_eq!(all.value(a), Some((&b""[..], 4)));
        assert_eq!(all.value(b), Some((&b"two"[..], 1)));
        assert_eq!(all.value(AssignedId(1)), None);
        all.clear();
        assert_eq!(all.value(b), None);
    }

    #[test]
    fn setting_the_same_again_takes_no_more_room() {
        let mut all = Assignments::default();
        all.set(AssignedId(0), &[b'x'; 100], 0);
        let room = all.capacity();
        for _ in 0..1000 {
            all.set(AssignedId(0), &[b'y'; 100], 0);
        }
        assert_eq!(all.capacity(), room);
    }
}
