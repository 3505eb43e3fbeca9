//! Tables by slot, and what goes with a request.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use sekisho_lifecycle::{Request, RequestId, RequestTable};

use super::Server;

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

impl Server {
    /// A slot is free for the client when its request is completely over, though a handler may still hold
    /// it.
    pub(super) fn free_slot_if_over(&mut self, id: RequestId) {
        let is_over =
            self.stay.requests().get(id).is_none_or(|entry| entry.state == Request::Finished);
        if is_over
            && let Some(lane) = self.lanes.get(id)
            && self.slots.get(&lane.slot) == Some(&id)
        {
            self.slots.remove(&lane.slot);
        }
    }

    /// A request is over, and its handle is gone: nothing of it is left.
    pub(super) fn remove_lane(&mut self, id: RequestId) {
        let Some(lane) = self.lanes.remove(id) else { return };
        if self.slots.get(&lane.slot) == Some(&id) {
            self.slots.remove(&lane.slot);
        }
        self.channels -= u32::from(lane.purse.is_some());
        for channel in 1..lane.channels {
            let was_read = self.side_channels.remove(&(id, channel as u8)).is_some();
            self.channels -= u32::from(was_read);
        }
        self.waiting -= usize::from(lane.waits());
        if let Some(at) = lane.deadline {
            self.request_deadlines.remove(&(at, id));
        }
    }

    /// Gives back the memory of tables, if there is no request; says whether that is so.
    pub fn trim(&mut self) -> bool {
        let is_idle = self.lanes.is_empty() && self.slots.is_empty() && self.bodies.is_empty();
        if is_idle {
            self.lanes = RequestTable::new();
            self.slots = BySlot::default();
            self.bodies = BySlot::default();
            self.orders = Vec::new();
            self.overdue = Vec::new();
            if self.leaving.is_empty() && self.events.is_empty() {
                (self.leaving, self.events) = (VecDeque::new(), VecDeque::new());
            }
            self.stay.trim();
        }
        is_idle
    }

    /// The channels of this request, if it has any, are no longer read.
    pub(super) fn drop_purse(&mut self, id: RequestId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if lane.purse.take().is_some() {
            self.channels -= 1;
        }
        for channel in 1..lane.channels {
            if self.side_channels.remove(&(id, channel as u8)).is_some() {
                self.channels -= 1;
            }
        }
        self.wait_is_over(id);
    }

    pub(super) fn in_slot(&self, slot: u16) -> Option<RequestId> {
        self.slots.get(&slot).copied()
    }
}
