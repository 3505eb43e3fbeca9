//! What a worker holds in memory, by kind. Sizes are taken from the types and the capacities as they are,
//! when they are asked for; a request counts nothing.

use crate::worker::Worker;

/// What is held of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryUsage {
    /// What it is.
    pub kind: &'static str,
    /// How many of them.
    pub count: usize,
    /// How many bytes together.
    pub bytes: usize,
}

impl MemoryUsage {
    fn new(kind: &'static str, (count, bytes): (usize, usize)) -> Self {
        Self { kind, count, bytes }
    }
}

impl Worker {
    /// What it holds.
    pub(crate) fn memory_usage(&self) -> Vec<MemoryUsage> {
        let (pool, exchanges) = (self.pool.borrow(), self.exchange_pool.borrow());
        let kept = pool.iter().map(|it| it.memory_bytes()).sum::<usize>()
            + exchanges.iter().map(|it| it.memory_bytes()).sum::<usize>();
        let sessions = self.sessions.borrow();
        let [native, native_buffers] = self.native.memory_usage();
        vec![
            MemoryUsage::new("session records", (sessions.len(), sessions.memory_bytes())),
            MemoryUsage::new("connections", (sessions.len(), self.scheduler.memory_bytes())),
            MemoryUsage::new("buffers in use", self.scheduler.buffer_memory_usage()),
            MemoryUsage::new("buffers kept", (pool.len(), kept)),
            MemoryUsage::new("file cache", self.files.borrow().memory_usage()),
            MemoryUsage::new("access log buffers", self.access_log.memory_usage()),
            MemoryUsage::new("upload memory", sekisho_handler::file_op::memory_usage()),
            MemoryUsage::new("native sessions", native),
            MemoryUsage::new("native buffers kept", native_buffers),
            MemoryUsage::new("listing cache", self.listings.borrow().memory_usage()),
        ]
    }
}
