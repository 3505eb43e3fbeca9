//! The slots in which the open streams of a connection are kept. A slot is used again by a later stream; when no stream
//! is open, the memory of all but a few of them goes.

use sekisho_lifecycle::RequestId;

/// How many slots an idle connection keeps.
const SLOTS_KEPT: usize = 2;
const NO_SLOT: u16 = u16::MAX;
/// How many bits of a request's id are for the stream's number; the slot is above them.
const NUMBER_BITS: u32 = 48;

/// A stream that was given to the shell: its number on the wire, and where the engine keeps it. Numbers are never used
/// again, so that the id of a stream that is over finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct StreamId<N> {
    /// The number on the wire.
    pub number: N,
    /// The slot.
    pub slot: u16,
}

impl<N: Copy> StreamId<N> {
    /// The number on the wire.
    pub const fn number(self) -> N {
        self.number
    }
}

/// The slot of the stream that has this id. No two streams of a connection have one slot at a time.
pub const fn slot(id: RequestId) -> u16 {
    (id.0 >> NUMBER_BITS) as u16
}

impl From<StreamId<u32>> for RequestId {
    fn from(id: StreamId<u32>) -> Self {
        Self(u64::from(id.slot) << NUMBER_BITS | u64::from(id.number))
    }
}

impl From<RequestId> for StreamId<u32> {
    fn from(id: RequestId) -> Self {
        Self { number: id.0 as u32, slot: slot(id) }
    }
}

impl From<StreamId<u64>> for RequestId {
    fn from(id: StreamId<u64>) -> Self {
        // The streams of requests have every fourth number (RFC 9000 §2.1).
        Self(u64::from(id.slot) << NUMBER_BITS | id.number >> 2)
    }
}

impl From<RequestId> for StreamId<u64> {
    fn from(id: RequestId) -> Self {
        let index = id.0 & ((1 << NUMBER_BITS) - 1);
        Self { number: index << 2, slot: slot(id) }
    }
}

/// The number of a stream.
pub trait Number: Copy + Eq {
    /// The number of a vacant slot: no stream has it.
    const NONE: Self;
}

impl Number for u32 {
    const NONE: Self = Self::MAX;
}

impl Number for u64 {
    const NONE: Self = Self::MAX;
}

#[derive(Debug)]
enum Slot<S> {
    /// The next vacant slot.
    Vacant(u16),
    Used(S),
}

/// All open streams of a connection.
#[derive(Debug)]
pub struct Slots<N, S> {
    entries: Vec<Slot<S>>,
    /// The numbers in the slots, for a quick search.
    numbers: Vec<N>,
    vacant: u16,
    len: u16,
}

impl<N, S> Default for Slots<N, S> {
    fn default() -> Self {
        Self { entries: Vec::new(), numbers: Vec::new(), vacant: NO_SLOT, len: 0 }
    }
}

impl<N: Number, S> Slots<N, S> {
    /// How many streams there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a stream into a vacant slot. There are never more than 16 bits can count: the limit of open streams
    /// is checked before.
    pub fn insert(&mut self, number: N, stream: S) -> StreamId<N> {
        self.len += 1;
        let slot = self.vacant;
        if let Some(Slot::Vacant(next)) = self.entries.get(usize::from(slot)) {
            self.vacant = *next;
            self.entries[usize::from(slot)] = Slot::Used(stream);
            self.numbers[usize::from(slot)] = number;
            return StreamId { number, slot };
        }
        let slot = self.entries.len() as u16;
        self.entries.push(Slot::Used(stream));
        self.numbers.push(number);
        StreamId { number, slot }
    }

    /// Takes a stream out.
    pub fn remove(&mut self, id: StreamId<N>) -> Option<S> {
        self.get(id)?;
        let slot =
            std::mem::replace(&mut self.entries[usize::from(id.slot)], Slot::Vacant(self.vacant));
        self.numbers[usize::from(id.slot)] = N::NONE;
        self.vacant = id.slot;
        self.len -= 1;
        match slot {
            Slot::Used(stream) => Some(stream),
            Slot::Vacant(_) => None,
        }
    }

    /// Gives back the memory of vacant slots where none is in use.
    pub fn shrink(&mut self) {
        if self.len == 0 && self.entries.len() > SLOTS_KEPT {
            self.entries.clear();
            self.entries.shrink_to(SLOTS_KEPT);
            self.numbers.clear();
            self.numbers.shrink_to(SLOTS_KEPT);
            self.vacant = NO_SLOT;
        }
    }

    /// The stream of this id.
    pub fn get(&self, id: StreamId<N>) -> Option<&S> {
        match self.entries.get(usize::from(id.slot))? {
            Slot::Used(stream) if self.numbers[usize::from(id.slot)] == id.number => Some(stream),
            _ => None,
        }
    }

    /// The stream with this id, mutable.
    pub fn get_mut(&mut self, id: StreamId<N>) -> Option<&mut S> {
        match self.entries.get_mut(usize::from(id.slot))? {
            Slot::Used(stream) if self.numbers[usize::from(id.slot)] == id.number => Some(stream),
            _ => None,
        }
    }

    /// The open stream of this number.
    pub fn find(&self, number: N) -> Option<StreamId<N>> {
        let slot = self.numbers.iter().position(|other| *other == number)?;
        Some(StreamId { number, slot: slot as u16 })
    }

    /// All streams.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId<N>, &S)> {
        let slots = self.entries.iter().zip(&self.numbers).zip(0..);
        slots.filter_map(|((slot, number), at)| match slot {
            Slot::Used(stream) => Some((StreamId { number: *number, slot: at }, stream)),
            Slot::Vacant(_) => None,
        })
    }

    /// All streams with their ids, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId<N>, &mut S)> {
        let slots = self.entries.iter_mut().zip(&self.numbers).zip(0..);
        slots.filter_map(|((slot, number), at)| match slot {
            Slot::Used(stream) => Some((StreamId { number: *number, slot: at }, stream)),
            Slot::Vacant(_) => None,
        })
    }

    /// How much memory the slots take.
    pub const fn capacity(&self) -> usize {
        self.entries.capacity() * size_of::<Slot<S>>() + self.numbers.capacity() * size_of::<N>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_old_ids_find_nothing() {
        let mut streams = Slots::<u32, &str>::default();
        let one = streams.insert(1, "one");
        let three = streams.insert(3, "three");
        assert_eq!(streams.find(3), Some(three));
        assert_eq!(streams.remove(one), Some("one"));
        assert!(streams.get(one).is_none());
        assert!(streams.remove(one).is_none());
        assert_eq!(streams.len(), 1);
        let five = streams.insert(5, "five");
        assert_eq!(five.slot, one.slot);
        assert!(streams.get(one).is_none());
        assert_eq!(streams.find(1), None);
        assert_eq!(streams.iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["five", "three"]);
    }

    #[test]
    fn an_idle_connection_keeps_a_few_slots() {
        let mut streams = Slots::<u64, [u8; 100]>::default();
        let ids: Vec<_> = (0..100).map(|at| streams.insert(4 * at, [0; 100])).collect();
        for id in ids {
            streams.shrink();
            streams.remove(id);
        }
        streams.shrink();
        assert!(streams.capacity() <= 4 * 110, "{}", streams.capacity());
        assert_eq!((streams.insert(400, [0; 100]).slot, streams.len()), (0, 1));
    }

    #[test]
    fn ids_of_streams_are_ids_of_requests() {
        let id = StreamId { number: 0x7fff_ffff_u32, slot: 0xfffe };
        assert_eq!(StreamId::from(RequestId::from(id)), id);
        let id = StreamId { number: (1_u64 << (NUMBER_BITS + 2)) - 4, slot: 0xfffe };
        assert_eq!(StreamId::from(RequestId::from(id)), id);
    }
}
