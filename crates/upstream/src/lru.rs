//! A map that knows which of its entries was not used for the longest time. Deterministic; its owner bounds
//! its size.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use sekisho_lifecycle::Moment;

#[derive(Debug)]
struct Node<V> {
    value: V,
    turn: u64,
    used: Moment,
}

/// The map.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    nodes: BTreeMap<K, Node<V>>,
    /// By their last use.
    order: BTreeMap<u64, K>,
    turn: u64,
}

impl<K: Ord + Copy, V> Lru<K, V> {
    pub(crate) const fn new() -> Self {
        Self { nodes: BTreeMap::new(), order: BTreeMap::new(), turn: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// An entry, without using it.
    pub(crate) fn peek(&mut self, key: K) -> Option<&mut V> {
        self.nodes.get_mut(&key).map(|node| &mut node.value)
    }

    /// An entry, which is used now.
    pub(crate) fn use_entry(&mut self, key: K, now: Moment) -> Option<&mut V> {
        let node = self.nodes.get_mut(&key)?;
        self.order.remove(&node.turn);
        self.turn += 1;
        (node.turn, node.used) = (self.turn, now);
        self.order.insert(node.turn, key);
        Some(&mut node.value)
    }

    /// Puts an entry, which is used now, in the place of one that may be there.
    pub(crate) fn put(&mut self, key: K, value: V, now: Moment) -> Option<V> {
        let old = self.remove(key);
        self.turn += 1;
        self.order.insert(self.turn, key);
        self.nodes.insert(key, Node { value, turn: self.turn, used: now });
        old
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let node = self.nodes.remove(&key)?;
        self.order.remove(&node.turn);
        Some(node.value)
    }

    /// Everything, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.nodes.iter().map(|(key, node)| (*key, &node.value))
    }

    /// Everything from one key to another.
    pub(crate) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = (K, &V)> {
        self.nodes.range(keys).map(|(key, node)| (*key, &node.value))
    }

    /// The one that was not used for the longest time, and when it was.
    pub(crate) fn oldest(&self) -> Option<(K, Moment)> {
        let (_, key) = self.order.first_key_value()?;
        self.nodes.get(key).map(|node| (*key, node.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_comes_to_the_end() {
        let mut map = Lru::new();
        let at = Moment::from_millis;
        for (key, time) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(map.put(key, key * 10, at(time)), None);
        }
        assert_eq!(map.oldest(), Some((1, at(10))));
        assert_eq!(map.use_entry(1, at(40)).copied(), Some(10));
        assert_eq!(map.peek(2).copied(), Some(20));
        assert_eq!(map.oldest(), Some((2, at(20))));
        assert_eq!(map.put(2, 21, at(50)), Some(20));
        assert_eq!(map.remove(3), Some(30));
        assert_eq!((map.oldest(), map.len()), (Some((1, at(40))), 2));
        assert_eq!(map.use_entry(9, at(60)), None);
    }
}
