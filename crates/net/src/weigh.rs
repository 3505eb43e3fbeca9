//! What a worker holds in memory, by kind. Sizes are taken from the types and the capacities as they are, when
//! somebody asks; nothing is counted on the way of a request.

use crate::busy::Busy;
use crate::worker::Worker;

/// What is held of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// What it is.
    pub kind: &'static str,
    /// How many of them.
    pub count: usize,
    /// How many bytes together.
    pub bytes: usize,
}

impl Held {
    fn new(kind: &'static str, (count, bytes): (usize, usize)) -> Self {
        Self { kind, count, bytes }
    }
}

impl Worker {
    /// What it holds.
    pub(crate) fn weigh(&self) -> Vec<Held> {
        let pool = self.pool.borrow();
        let kept = pool.iter().map(|busy| busy.held_bytes()).sum::<usize>();
        let sessions = self.sessions.borrow();
        vec![
            Held::new("session records", (sessions.len(), sessions.held_bytes())),
            Held::new("connections", (sessions.len(), self.turns.held_bytes())),
            Held::new("buffers in use", self.turns.weigh_buffers()),
            Held::new("buffers kept", (pool.len(), kept)),
            Held::new("file cache", self.files.borrow().weigh()),
            Held::new("repeated answers", self.repeats.borrow().weigh()),
            Held::new("access log buffers", self.access_log.weigh()),
            Held::new("upload memory", sekisho_handler::deed::held()),
            Held::new("listing cache", self.listings.borrow().weigh()),
        ]
    }
}

impl Busy {
    /// What a set of buffers holds in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.input.capacity()
            + self.scratch.out.capacity()
            + self.scratch.head.capacity()
            + self.body.capacity()
            + self.outbox.body.capacity()
            + self.outbox.fields.capacity()
            + self.serving.fields.capacity()
            + self.pieces.capacity() * size_of::<sekisho_handler::Piece>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_buffers_weighs_what_it_has_grown_to() {
        let mut busy = Busy::default();
        assert!(busy.held_bytes() > 16 * 1024, "{}", busy.held_bytes());
        let before = busy.held_bytes();
        busy.scratch.out.reserve_exact(100_000);
        assert_eq!(busy.held_bytes(), before + busy.scratch.out.capacity());
    }
}
