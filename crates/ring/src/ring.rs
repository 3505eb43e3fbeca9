//! The two sides of a ring.
//!
//! Positions count bytes since the beginning and never go back; a byte's place is its position modulo the size.
//! `tail` is written by the producer, `head` by the consumer. What a side reads of the other's position is
//! believed only if it leaves between nothing and a whole ring in between.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::copy::WORD;
use crate::layout::{ENDED, HEAD, READER_WAITS, RingLayout, TAIL, WRITER_WAITS};
use crate::memory::{Memory, Word};

/// The other side has written what cannot be. There is no way back: every further call says the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the shared memory was corrupted")
    }
}

impl std::error::Error for Corrupt {}

/// What a write came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Moved {
    /// So many bytes went; none when there is no room.
    pub bytes: usize,
    /// The other side sleeps and must be woken.
    pub must_wake: bool,
}

/// What a read came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Read {
    /// Bytes came.
    Some(Moved),
    /// There is nothing now.
    Empty,
    /// There is nothing, and nothing will come.
    Ended,
}

/// The side that writes.
#[derive(Debug)]
pub struct Producer<M> {
    side: Side<M>,
    /// Ours; what stands in the memory is a copy.
    tail: u64,
    /// How far the consumer was known to be.
    head: u64,
    is_waiting: bool,
    is_corrupt: bool,
}

/// The side that reads.
#[derive(Debug)]
pub struct Consumer<M> {
    side: Side<M>,
    /// Ours; what stands in the memory is a copy.
    head: u64,
    /// How far the producer was known to be.
    tail: u64,
    /// The producer was seen to have ended.
    is_ended: bool,
    is_waiting: bool,
    is_corrupt: bool,
}

#[derive(Debug)]
struct Side<M> {
    memory: M,
    /// In words.
    control: usize,
    /// In bytes, as the size.
    data: usize,
    bytes: usize,
}

impl<M: Memory> Producer<M> {
    /// The writing side of a ring that nothing has gone through; `None` where the memory has no such place.
    pub fn new(memory: M, place: RingLayout) -> Option<Self> {
        let side = Side::new(memory, place)?;
        Some(Self { side, tail: 0, head: 0, is_waiting: false, is_corrupt: false })
    }

    /// Writes as much as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> Result<Moved, Corrupt> {
        if self.room()? < bytes.len() {
            self.look()?;
        }
        let count = bytes.len().min(self.room()?);
        if count == 0 {
            return Ok(Moved { bytes: 0, must_wake: false });
        }
        if std::mem::take(&mut self.is_waiting) {
            self.side.set(WRITER_WAITS, 0);
        }
        self.side.put(self.tail, &bytes[..count]);
        self.tail = self.tail.wrapping_add(count as u64);
        self.side.word(TAIL).store(self.tail, Release);
        Ok(Moved { bytes: count, must_wake: self.side.wakes(READER_WAITS) })
    }

    /// Nothing more will come; whether the other side must be woken.
    pub fn end(&mut self) -> bool {
        self.side.word(ENDED).store(1, Release);
        self.side.wakes(READER_WAITS)
    }

    /// There is no room, and the caller would sleep: whether it may. If not, there is room now.
    pub fn wait(&mut self) -> Result<bool, Corrupt> {
        self.is_waiting = true;
        self.side.set(WRITER_WAITS, 1);
        self.side.memory.fence();
        self.look()?;
        Ok(self.room()? == 0)
    }

    fn room(&self) -> Result<usize, Corrupt> {
        if self.is_corrupt {
            return Err(Corrupt);
        }
        Ok(self.side.bytes - self.tail.wrapping_sub(self.head) as usize)
    }

    /// Asks how far the consumer is.
    fn look(&mut self) -> Result<(), Corrupt> {
        let head = self.side.word(HEAD).load(Acquire);
        let is_back = head.wrapping_sub(self.head) > self.side.bytes as u64;
        let is_beyond = self.tail.wrapping_sub(head) > self.side.bytes as u64;
        if self.is_corrupt || is_back || is_beyond {
            self.is_corrupt = true;
            return Err(Corrupt);
        }
        self.head = head;
        Ok(())
    }
}

impl<M: Memory> Consumer<M> {
    /// The reading side of a ring that nothing has gone through; `None` where the memory has no such place.
    pub fn new(memory: M, place: RingLayout) -> Option<Self> {
        let side = Side::new(memory, place)?;
        Some(Self { side, head: 0, tail: 0, is_ended: false, is_waiting: false, is_corrupt: false })
    }

    /// Copies out what is there.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Read, Corrupt> {
        if self.there()? < into.len() {
            self.look()?;
        }
        let there = self.there()?;
        if there == 0 {
            return Ok(if self.is_ended { Read::Ended } else { Read::Empty });
        }
        if std::mem::take(&mut self.is_waiting) {
            self.side.set(READER_WAITS, 0);
        }
        let count = into.len().min(there);
        self.side.get(self.head, &mut into[..count]);
        self.head = self.head.wrapping_add(count as u64);
        self.side.word(HEAD).store(self.head, Release);
        // A writer that waits is not woken for a few bytes, but always when it has nothing on its way.
        let is_worth_it = there - count <= self.side.bytes - self.side.bytes / 4;
        let must_wake = is_worth_it && self.side.wakes(WRITER_WAITS);
        Ok(Read::Some(Moved { bytes: count, must_wake }))
    }

    /// Whether there is something to read, or the end: a look that changes nothing, for a caller that looks often. What is
    /// impossible counts as something; the next read says what it is.
    pub fn has_something(&self) -> bool {
        self.side.word(TAIL).load(Acquire) != self.head || self.side.word(ENDED).load(Acquire) != 0
    }

    /// There is nothing, and the caller would sleep: whether it may. If not, there is something now, or
    /// the end.
    pub fn wait(&mut self) -> Result<bool, Corrupt> {
        self.is_waiting = true;
        self.side.set(READER_WAITS, 1);
        self.side.memory.fence();
        self.look()?;
        Ok(self.there()? == 0 && !self.is_ended)
    }

    fn there(&self) -> Result<usize, Corrupt> {
        if self.is_corrupt {
            return Err(Corrupt);
        }
        Ok(self.tail.wrapping_sub(self.head) as usize)
    }

    /// Asks how far the producer is.
    fn look(&mut self) -> Result<(), Corrupt> {
        // The end first: what was written before it is then seen as well.
        if self.side.word(ENDED).load(Acquire) != 0 {
            self.is_ended = true;
        }
        let tail = self.side.word(TAIL).load(Acquire);
        let is_back = tail.wrapping_sub(self.tail) > self.side.bytes as u64;
        let is_beyond = tail.wrapping_sub(self.head) > self.side.bytes as u64;
        if self.is_corrupt || is_back || is_beyond {
            self.is_corrupt = true;
            return Err(Corrupt);
        }
        self.tail = tail;
        Ok(())
    }
}

impl<M: Memory> Side<M> {
    fn new(memory: M, place: RingLayout) -> Option<Self> {
        let RingLayout { control, data, bytes } = place;
        let is_good = control.is_multiple_of(WORD)
            && data.is_multiple_of(WORD)
            && bytes.is_power_of_two()
            && bytes >= WORD;
        let words = memory.words().len();
        let has_room = control / WORD + WRITER_WAITS < words
            && (data / WORD).checked_add(bytes / WORD)? <= words;
        let side = Self { memory, control: control / WORD, data, bytes };
        (is_good && has_room).then_some(side)
    }

    fn word(&self, at: usize) -> &M::Word {
        &self.memory.words()[self.control + at]
    }

    fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Relaxed);
    }

    /// After something was done: whether the other side sleeps. Reported once: the side that clears the word
    /// must wake it.
    fn wakes(&self, at: usize) -> bool {
        self.memory.fence();
        let sleeps = self.word(at).load(Relaxed) != 0;
        if sleeps {
            self.set(at, 0);
        }
        sleeps
    }

    fn at(&self, position: u64) -> usize {
        position as usize & (self.bytes - 1)
    }

    /// Copies in, around the end if need be; the caller has looked that there is room.
    fn put(&self, position: u64, bytes: &[u8]) {
        let at = self.at(position);
        let (first, second) = bytes.split_at(bytes.len().min(self.bytes - at));
        self.memory.put(self.data + at, first);
        if !second.is_empty() {
            self.memory.put(self.data, second);
        }
    }

    fn get(&self, position: u64, bytes: &mut [u8]) {
        let at = self.at(position);
        let first = bytes.len().min(self.bytes - at);
        let (first, second) = bytes.split_at_mut(first);
        self.memory.get(self.data + at, first);
        if !second.is_empty() {
            self.memory.get(self.data, second);
        }
    }
}
