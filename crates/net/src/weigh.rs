//! What a worker holds in memory, by kind. Sizes are taken from the types and the capacities as they are, when
//! somebody asks; nothing is counted on the way of a request.

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
        let (pool, exchanges) = (self.pool.borrow(), self.exchange_pool.borrow());
        let kept = pool.iter().map(|it| it.held_bytes()).sum::<usize>()
            + exchanges.iter().map(|it| it.held_bytes()).sum::<usize>();
        let sessions = self.sessions.borrow();
        vec![
            Held::new("session records", (sessions.len(), sessions.held_bytes())),
            Held::new("connections", (sessions.len(), self.turns.held_bytes())),
            Held::new("buffers in use", self.turns.weigh_buffers()),
            Held::new("buffers kept", (pool.len(), kept)),
            Held::new("file cache", self.files.borrow().weigh()),
            Held::new("access log buffers", self.access_log.weigh()),
            Held::new("upload memory", sekisho_handler::file_op::held()),
            Held::new("listing cache", self.listings.borrow().weigh()),
        ]
    }
}
