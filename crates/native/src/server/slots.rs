//! Tables by slot.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What belongs to each slot in use.
pub(super) type BySlot<T> = HashMap<u16, T, BuildHasherDefault<SlotHasher>>;

/// Hashes slots: of so few numbers no two fall together by a client's choice more often than by chance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u16(&mut self, slot: u16) {
        self.0 = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
