//! The memory and its two rings, seen from one side.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use sekisho_ring::{Consumer, Corrupt, Memory, Moved, Producer, Read, Rings};
use sekisho_sys::SharedMemory;

/// So much is moved before the other side can see it, if it is awake: it may go on while the rest is copied.
const STEP_BYTES: usize = 16 * 1024;
/// What is no longer than this is copied word by word: one instruction for all takes a while to begin.
const WORDS_BYTES: usize = 512;

/// Mapped memory as rings know it.
#[derive(Clone, Debug)]
struct Mapped(Arc<SharedMemory>);

impl Memory for Mapped {
    type Word = std::sync::atomic::AtomicU64;

    fn words(&self) -> &[Self::Word] {
        &self.0
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        if bytes.len() <= WORDS_BYTES || !self.0.write(at, bytes) {
            sekisho_ring::put(&self.0, at, bytes);
        }
    }

    fn get(&self, at: usize, bytes: &mut [u8]) {
        if bytes.len() <= WORDS_BYTES || !self.0.read(at, bytes) {
            sekisho_ring::get(&self.0, at, bytes);
        }
    }

    fn fence(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// One side of a session's memory.
#[derive(Debug)]
pub(crate) struct Link {
    producer: Producer<Mapped>,
    consumer: Consumer<Mapped>,
}

impl Link {
    /// Maps the memory; a server reads requests and writes answers.
    pub(crate) fn new(memory: &impl AsFd, rings: Rings, is_server: bool) -> io::Result<Self> {
        let memory = Mapped(Arc::new(SharedMemory::map(memory, rings.memory_bytes())?));
        let Rings { request, answer } = rings;
        let (reads, writes) = if is_server { (request, answer) } else { (answer, request) };
        let sides = Producer::new(memory.clone(), writes).zip(Consumer::new(memory, reads));
        let (producer, consumer) = sides.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { producer, consumer })
    }

    /// Copies out what is there; `ring` wakes the other side.
    pub(crate) fn read(&mut self, into: &mut [u8], ring: impl Fn()) -> io::Result<Option<usize>> {
        let (mut count, mut must_wake, mut is_ended) = (0, false, false);
        for step in into.chunks_mut(STEP_BYTES) {
            let len = step.len();
            match self.consumer.read(step).map_err(corrupt)? {
                Read::Some(moved) => {
                    count += moved.bytes;
                    must_wake |= moved.must_wake;
                    if moved.bytes == len {
                        continue;
                    }
                }
                Read::Empty => {}
                Read::Ended => is_ended = true,
            }
            break;
        }
        if must_wake {
            ring();
        }
        Ok((count > 0 || is_ended).then_some(count))
    }

    /// Writes what there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8], ring: impl Fn()) -> io::Result<usize> {
        let (mut count, mut must_wake) = (0, false);
        for step in bytes.chunks(STEP_BYTES) {
            let Moved { bytes, must_wake: rings } = self.producer.write(step).map_err(corrupt)?;
            count += bytes;
            must_wake |= rings;
            if bytes < step.len() {
                break;
            }
        }
        if must_wake {
            ring();
        }
        Ok(count)
    }

    /// Whether the reader may sleep now.
    pub(crate) fn reader_waits(&mut self) -> io::Result<bool> {
        self.consumer.wait().map_err(corrupt)
    }

    /// Whether there is something to read, or the memory is not as it should be: the next read says what.
    pub(crate) fn has_something(&self) -> bool {
        self.consumer.has_something()
    }

    /// Whether the writer may sleep now.
    pub(crate) fn writer_waits(&mut self) -> io::Result<bool> {
        self.producer.wait().map_err(corrupt)
    }

    /// Nothing more will be written.
    pub(crate) fn end(&mut self, ring: impl Fn()) {
        if self.producer.end() {
            ring();
        }
    }
}

fn corrupt(corrupt: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, corrupt)
}
