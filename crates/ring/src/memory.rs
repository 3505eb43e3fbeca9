//! The memory of a ring: words that another process may change at any time. A trait, so that the same ring
//! runs in mapped memory, in a test's memory, and under loom, which counts every order in which things can
//! happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::copy;

/// Eight bytes that are read and written as one.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
}

/// Words that two sides see.
pub trait Memory {
    /// One of them.
    type Word: Word;
    /// All of them.
    fn words(&self) -> &[Self::Word];
    /// Copies bytes in, from the byte `at` on. No other side writes these words.
    fn put(&self, at: usize, bytes: &[u8]) {
        copy::put(self.words(), at, bytes);
    }
    /// Copies bytes out, from the byte `at` on.
    fn get(&self, at: usize, bytes: &mut [u8]) {
        copy::get(self.words(), at, bytes);
    }
    /// What was written before it is visible to a side that passes its own fence later.
    fn fence(&self);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }
}

impl Memory for [AtomicU64] {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Memory for Vec<AtomicU64> {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl<M: Memory + ?Sized> Memory for Arc<M> {
    type Word = M::Word;

    fn words(&self) -> &[M::Word] {
        (**self).words()
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        (**self).put(at, bytes);
    }

    fn get(&self, at: usize, bytes: &mut [u8]) {
        (**self).get(at, bytes);
    }

    fn fence(&self) {
        (**self).fence();
    }
}
