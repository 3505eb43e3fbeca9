//! Whether a worker's loop turns, seen from outside (X19). A worker that sleeps says so; one that does not
//! counts the turns of its loop. It is never asked: whoever looks wakes nobody.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// The heartbeat of one worker.
#[derive(Debug, Default)]
pub struct Heartbeat {
    is_asleep: AtomicBool,
    loop_count: AtomicU64,
    thread: AtomicI32,
}

impl Heartbeat {
    /// The calling thread is the worker.
    pub(crate) fn begin(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The worker has nothing to do and waits; or goes on.
    pub(crate) fn sleep(&self, is_asleep: bool) {
        self.is_asleep.store(is_asleep, Ordering::Relaxed);
        self.turn();
    }

    /// The loop turns. Only the worker's own thread says so.
    pub(crate) fn turn(&self) {
        self.loop_count
            .store(self.loop_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether it waits for something to do, or for its thread to begin.
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed) || self.thread.load(Ordering::Relaxed) == 0
    }

    /// How often its loop has turned.
    pub fn loop_count(&self) -> u64 {
        self.loop_count.load(Ordering::Relaxed)
    }

    /// How long the thread has waited for a processor so far: what the machine kept from it is not its fault.
    pub fn waited(&self) -> Duration {
        let thread = self.thread.load(Ordering::Relaxed);
        let line = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
        let nanos = line.ok().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// Whether somebody traces the process, and stops its threads as they like: a debugger.
    pub fn is_traced() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    }

    /// What the kernel says the thread does, in its own letters: `R` for running, `D` for a disk, ….
    pub fn state(&self) -> Option<char> {
        let thread = self.thread.load(Ordering::Relaxed);
        let line = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
        // The name may hold blanks and brackets.
        line.rsplit_once(") ")?.1.chars().next()
    }
}
