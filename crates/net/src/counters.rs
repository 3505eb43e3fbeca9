//! Counters of what happened so far. Shared by all workers; any thread may read them.

use std::sync::atomic::{AtomicU64, Ordering};

use sekisho_lifecycle::{CloseReason, DeadlineKind};

pub use crate::activity::Activities;
use crate::protocol::ProtocolKind;

/// A counter for each protocol.
#[derive(Debug, Default)]
pub struct ByProtocol([AtomicU64; ProtocolKind::ALL.len()]);

impl ByProtocol {
    /// Counts one.
    pub fn count(&self, protocol: ProtocolKind) {
        self.0[protocol as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were with this protocol.
    pub fn of(&self, protocol: ProtocolKind) -> u64 {
        self.0[protocol as usize].load(Ordering::Relaxed)
    }

    /// How many there were.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Counters of the whole process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted. The version of HTTP is not known yet: it counts as [`ProtocolKind::Http1`].
    pub accepted: ByProtocol,
    /// Connections closed.
    pub closed: AtomicU64,
    /// Requests whose head was complete.
    pub requests: ByProtocol,
    /// What connections do.
    pub activities: Activities,
    /// Deadlines that expired, by kind (T10).
    pub expired: [AtomicU64; DeadlineKind::ALL.len()],
    /// Responses broken off after their head had left.
    pub broken_off: AtomicU64,
    /// Requests that ended before their response was complete.
    pub incomplete: AtomicU64,
    /// Requests that an operator had cancelled.
    pub cancelled: AtomicU64,
    /// Bytes received in sessions that have ended.
    pub received_bytes: AtomicU64,
    /// Bytes sent in sessions that have ended.
    pub sent_bytes: AtomicU64,
    /// Sessions that were ended by force in the middle of a request.
    pub forced: AtomicU64,
    /// Connections that a mistake of ours has ended.
    pub panics: AtomicU64,
    /// Workers that were found stuck.
    pub workers_stuck: AtomicU64,
    /// Workers that were replaced, because they had ended or were stuck.
    pub workers_replaced: AtomicU64,
    /// Times that accepting had to pause for lack of descriptors or slots.
    pub accept_pauses: AtomicU64,
}

impl Counters {
    /// Counts the end of a connection.
    pub fn close(&self, reason: CloseReason) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        if reason == CloseReason::BrokenOff {
            self.broken_off.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a deadline that fell.
    pub fn expire(&self, kind: DeadlineKind) {
        if let Some(index) = DeadlineKind::ALL.iter().position(|other| *other == kind) {
            self.expired[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}
