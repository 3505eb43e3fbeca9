//! What a worker holds in memory, by kind. Sizes are taken from the types and the capacities as they are, when
//! somebody asks; nothing is counted on the way of a request but how many sets of buffers are lent.

use crate::drive::{Busy, Connection};
use crate::inquiry::Whom;
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
    /// What it holds. Sessions that work are asked what their buffers have grown to; of the others that have
    /// buffers each is taken for a fresh set.
    pub(crate) async fn weigh(&self) -> Vec<Held> {
        let views = self.look(Whom::All).await;
        let running: Vec<usize> =
            views.iter().filter_map(|view| Some(view.running.as_ref()?.buffer_bytes)).collect();
        let lent = self.lent.get();
        let others = lent.saturating_sub(running.len());
        let in_use = running.iter().sum::<usize>() + others * Busy::fresh_bytes();
        let pool = self.pool.borrow();
        let kept = pool.iter().map(|busy| busy.held_bytes()).sum::<usize>();
        let sessions = self.sessions.borrow();
        let count = sessions.len();
        vec![
            Held::new("session records", (count, sessions.held_bytes())),
            Held::new("connection tasks", (count, count * size_of::<Connection>())),
            Held::new("buffers in use", (lent, in_use)),
            Held::new("buffers kept", (pool.len(), kept)),
            Held::new("file cache", self.files.borrow().weigh()),
            Held::new("repeated answers", self.repeats.borrow().weigh()),
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

    fn fresh_bytes() -> usize {
        Self::default().held_bytes()
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
