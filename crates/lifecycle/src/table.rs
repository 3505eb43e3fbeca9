//! Values by request id, in the order of the ids. A session may have as many requests as there are slots, and they end
//! in any order: an entry that is removed is only marked, and marked ones are cleared away when they are most of the
//! table. So adding, finding and removing cost the same for the first request and the last.

use std::hash::{Hash, Hasher};

use crate::stay::RequestId;

/// Below this, marked entries are not worth clearing away.
const SMALL: usize = 16;

/// A value for each request.
#[derive(Clone, Debug)]
pub struct RequestTable<T> {
    /// In the order of their ids; `None` is removed.
    entries: Vec<(RequestId, Option<T>)>,
    len: usize,
}

impl<T> Default for RequestTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> RequestTable<T> {
    /// One without entries.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), len: 0 }
    }

    /// Adds a value. Its id is larger than every one before: one that is not is a bug of ours and changes nothing.
    pub fn push(&mut self, id: RequestId, value: T) {
        let is_next = self.entries.last().is_none_or(|(last, _)| *last < id);
        debug_assert!(is_next, "ids rise");
        if is_next {
            if self.entries.capacity() == 0 {
                // Many sessions only ever have one request at a time.
                self.entries.reserve_exact(1);
            }
            self.entries.push((id, Some(value)));
            self.len += 1;
        }
    }

    /// The value of a request.
    pub fn get(&self, id: RequestId) -> Option<&T> {
        let at = self.position(id)?;
        self.entries[at].1.as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let at = self.position(id)?;
        self.entries[at].1.as_mut()
    }

    /// Removes the value of a request.
    pub fn remove(&mut self, id: RequestId) -> Option<T> {
        let at = self.position(id)?;
        let value = self.entries[at].1.take()?;
        self.len -= 1;
        if self.len == 0 {
            self.entries.clear();
        } else if self.entries.len() > SMALL && self.len < self.entries.len() / 2 {
            self.entries.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    /// The values, in the order of their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// How many values there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn position(&self, id: RequestId) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

impl<T: PartialEq> PartialEq for RequestTable<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for RequestTable<T> {}

impl<T: Hash> Hash for RequestTable<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|value| value.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_their_order_whichever_go() {
        let mut table = RequestTable::new();
        for number in 0..100 {
            table.push(RequestId(number), number);
        }
        for number in (0..100).filter(|number| number % 7 != 0) {
            assert_eq!(table.remove(RequestId(number)), Some(number));
            assert_eq!(table.remove(RequestId(number)), None);
            assert_eq!(table.get(RequestId(number)), None);
            // Marks are cleared away when they are most of it, and not each time.
            assert!(table.entries.len() == 100 || table.len() < 50);
        }
        let left: Vec<u64> = table.iter().copied().collect();
        assert_eq!(left, (0..100).step_by(7).collect::<Vec<_>>());
        assert_eq!(table.len(), left.len());
        *table.get_mut(RequestId(49)).expect("it is there") = 1;
        assert_eq!(table.get(RequestId(49)), Some(&1));
    }

    #[test]
    fn what_was_removed_takes_no_more_room_than_what_is_there() {
        // E4: a request that stays does not keep the marks of all that came after it.
        let mut table = RequestTable::new();
        table.push(RequestId(0), ());
        for number in 1..10_000 {
            table.push(RequestId(number), ());
            table.remove(RequestId(number));
            assert!(table.entries.len() <= SMALL + 1);
        }
        table.remove(RequestId(0));
        assert!(table.is_empty() && table.entries.is_empty());
    }

    #[test]
    fn tables_with_the_same_values_are_the_same() {
        let mut one = RequestTable::new();
        one.push(RequestId(0), 'a');
        one.push(RequestId(1), 'b');
        one.remove(RequestId(0));
        let mut other = RequestTable::new();
        other.push(RequestId(1), 'b');
        assert_eq!(one, other);
    }
}
