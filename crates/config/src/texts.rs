//! Byte strings of a long list: each is stored once, behind the others, and has a number. The lists of `map` and `geo`
//! are made of these: an entry takes the bytes that it has and a few more.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Different byte strings, numbered from 0 on. All of them together have less than 4 GiB: they come from a configuration.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl Texts {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text of a number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        self.ends.get(number as usize).map(|_| text(&self.bytes, &self.ends, number))
    }

    /// The number of a text.
    pub fn find(&self, wanted: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(wanted);
        let is_it = |number: &u32| text(&self.bytes, &self.ends, *number) == wanted;
        self.index.find(hash, is_it).copied()
    }

    /// The number of a text, which is added if it is new; whether it is.
    pub fn add(&mut self, wanted: &[u8]) -> (u32, bool) {
        let Self { bytes, ends, index, hasher } = self;
        let is_it = |number: &u32| text(bytes, ends, *number) == wanted;
        let rehash = |number: &u32| hasher.hash_one(text(bytes, ends, *number));
        match index.entry(hasher.hash_one(wanted), is_it, rehash) {
            Entry::Occupied(found) => (*found.get(), false),
            Entry::Vacant(vacant) => {
                let number = ends.len() as u32;
                vacant.insert(number);
                bytes.extend_from_slice(wanted);
                ends.push(bytes.len() as u32);
                (number, true)
            }
        }
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len() as u32).map(|number| text(&self.bytes, &self.ends, number))
    }

    /// No more are added: memory that was reserved for others is given back.
    pub(crate) fn shrink(&mut self) {
        let Self { bytes, ends, index, hasher } = self;
        bytes.shrink_to_fit();
        ends.shrink_to_fit();
        index.shrink_to_fit(|number| hasher.hash_one(text(bytes, ends, *number)));
    }

    /// Gives unused memory back and drops the index: texts are found by their numbers only from now on.
    pub(crate) fn seal(&mut self) {
        self.index = HashTable::new();
        self.shrink();
    }
}

fn text<'b>(bytes: &'b [u8], ends: &[u32], number: u32) -> &'b [u8] {
    let end = ends[number as usize] as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before as usize] as usize);
    &bytes[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_what_they_say_and_by_their_numbers() {
        let mut texts = Texts::default();
        assert!(texts.is_empty() && texts.find(b"").is_none());
        let word = |at: u32| format!("w{}", at * 7919 % 1000).into_bytes();
        for at in 0..1000 {
            assert_eq!(texts.add(&word(at)), (at, true));
        }
        assert_eq!(texts.add(b""), (1000, true));
        for at in 0..1000 {
            assert_eq!(texts.add(&word(at)), (at, false));
        }
        texts.shrink();
        for at in 0..1000 {
            assert_eq!(texts.find(&word(at)), Some(at));
        }
        assert_eq!((texts.find(b"w1000"), texts.find(b"")), (None, Some(1000)));
        texts.seal();
        assert_eq!((texts.get(3), texts.get(1000)), (Some(&*word(3)), Some(&b""[..])));
        assert_eq!((texts.get(1001), texts.len(), texts.iter().count()), (None, 1001, 1001));
    }
}
