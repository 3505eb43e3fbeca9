//! The dynamic table of HPACK and QPACK (RFC 7541 §2.3.2, §4; RFC 9204 §3.2).

use std::collections::VecDeque;

/// What an entry costs beside its bytes (RFC 7541 §4.1).
pub const ENTRY_COST: usize = 32;
/// The size of a table that is useful to most peers and of HPACK's by default.
pub const TABLE_BYTES: usize = 4096;
/// The largest size of a table: lengths of names and values have 16 bits.
pub const TABLE_BYTES_MAX: usize = u16::MAX as usize;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its bytes begin, name first.
    start: u32,
    name_len: u16,
    value_len: u16,
    /// For a quick search; of the encoder only.
    mark: u32,
}

impl Entry {
    fn cost(self) -> usize {
        usize::from(self.name_len) + usize::from(self.value_len) + ENTRY_COST
    }
}

/// A dynamic table. The bytes of its entries are stored one after the other; those of evicted entries are
/// removed when room is needed.
#[derive(Debug)]
pub struct Table {
    bytes: Vec<u8>,
    /// The oldest first.
    entries: VecDeque<Entry>,
    cost: u32,
    max: u32,
}

impl Table {
    /// An empty table, which has no memory of its own yet.
    pub const fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), cost: 0, max: max as u32 }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How large the table may be.
    pub const fn max(&self) -> usize {
        self.max as usize
    }

    /// How large it is (RFC 7541 §4.1).
    pub const fn cost(&self) -> usize {
        self.cost as usize
    }

    /// How much memory it holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Name and value of an entry; the newest is 0.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let at = self.entries.len().checked_sub(index + 1)?;
        let entry = self.entries.get(at)?;
        let bytes = self.bytes.get(entry.start as usize..)?;
        let (name, rest) = bytes.split_at_checked(usize::from(entry.name_len))?;
        Some((name, rest.get(..usize::from(entry.value_len))?))
    }

    /// The index of an entry with this mark, name and value.
    pub fn find(&self, mark: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let (older, newer) = self.entries.as_slices();
        let mut index = 0;
        for entries in [newer, older] {
            for entry in entries.iter().rev() {
                if entry.mark == mark && self.get(index) == Some((name, value)) {
                    return Some(index);
                }
                index += 1;
            }
        }
        None
    }

    /// Changes how large the table may be, and evicts what does not fit (RFC 7541 §4.3).
    pub fn set_max(&mut self, max: usize) {
        self.max = max as u32;
        self.evict(0);
        if self.entries.is_empty() {
            (self.bytes, self.entries) = (Vec::new(), VecDeque::new());
        }
    }

    /// Adds an entry, for which others may have to go; one that is larger than the table empties it
    /// (RFC 7541 §4.4).
    pub fn insert(&mut self, mark: u32, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len();
        self.evict(len + ENTRY_COST);
        if len + ENTRY_COST > self.max as usize {
            return;
        }
        self.make_room(len);
        // Both fit into 16 bits: the table is never larger than that.
        let entry = Entry {
            start: self.bytes.len() as u32,
            name_len: name.len() as u16,
            value_len: value.len() as u16,
            mark,
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(entry);
        self.cost += entry.cost() as u32;
    }

    fn evict(&mut self, cost: usize) {
        while self.cost as usize + cost > self.max as usize {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.cost -= oldest.cost() as u32;
        }
    }

    /// Takes out the bytes of evicted entries where that saves an allocation.
    fn make_room(&mut self, len: usize) {
        if self.bytes.len() + len <= self.bytes.capacity() {
            return;
        }
        let unused = self.entries.front().map_or(self.bytes.len(), |entry| entry.start as usize);
        if unused >= len.max(self.bytes.len() / 4) {
            self.bytes.drain(..unused);
            for entry in &mut self.entries {
                entry.start -= unused as u32;
            }
        }
    }
}

/// Tells fields apart quickly; two that share a mark are compared. Never 0.
pub fn mark(name: &[u8], value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    fn ends(bytes: &[u8]) -> (u64, u64) {
        match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => (bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)), 0),
        }
    }
    let (first, last) = ends(value);
    let (front, back) = ends(name);
    let lengths = (name.len() as u64) << 16 | value.len() as u64;
    let mixed = (first ^ lengths).wrapping_mul(FACTOR).rotate_left(23) ^ last;
    let mixed = (mixed.wrapping_mul(FACTOR) ^ front).rotate_left(29) ^ back;
    (mixed.wrapping_mul(FACTOR) >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_go_first_and_the_size_holds() {
        // RFC 7541 §4.1, §4.4
        let mut table = Table::new(100);
        table.insert(0, b"a", b"1");
        table.insert(0, b"b", b"2");
        assert_eq!((table.len(), table.cost()), (2, 68));
        table.insert(0, b"c", b"3");
        assert_eq!(table.get(0), Some((&b"c"[..], &b"3"[..])));
        assert_eq!(table.get(1), Some((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(2), None);
        table.insert(0, b"too large", &[b'x'; 100]);
        assert_eq!((table.len(), table.cost()), (0, 0));
    }

    #[test]
    fn memory_is_bounded_however_many_entries_pass() {
        let mut table = Table::new(TABLE_BYTES);
        assert_eq!(table.capacity(), 0);
        for turn in 0..10_000_usize {
            table.insert(0, b"name", &vec![b'x'; turn % 700]);
            assert!(table.cost() <= TABLE_BYTES);
            assert!(table.capacity() <= 5 * TABLE_BYTES, "{}", table.capacity());
        }
        table.set_max(0);
        assert_eq!(table.capacity(), 0);
    }

    #[test]
    fn entries_are_found_by_name_and_value() {
        let mut table = Table::new(TABLE_BYTES);
        table.insert(7, b"server", b"one");
        table.insert(7, b"server", b"two");
        assert_eq!(table.find(7, b"server", b"one"), Some(1));
        assert_eq!(table.find(7, b"server", b"two"), Some(0));
        assert_eq!(table.find(8, b"server", b"two"), None);
        assert_eq!(table.find(7, b"serve", b"rtwo"), None);
    }
}
