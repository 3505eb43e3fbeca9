//! Whether a worker's loop turns, seen from outside (X19). A worker that sleeps says so; one that does not
//! counts the turns of its loop. The observer only reads memory and never wakes a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Tells the watchdog that some worker has woken up. While every worker sleeps nothing can be stuck, and the
/// watchdog sleeps, too.
#[derive(Debug, Default)]
pub struct WakeAlarm {
    is_armed: AtomicBool,
    woken: Notify,
}

impl WakeAlarm {
    /// The next worker that wakes up sets the alarm off. Look once more whether all are asleep after this.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// The watchdog no longer waits for it.
    pub fn disarm(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
    }

    /// Waits until a worker has woken up.
    pub async fn set_off(&self) {
        self.woken.notified().await;
    }

    fn worker_woke(&self) {
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            self.woken.notify_one();
        }
    }
}

/// The heartbeat of one worker.
#[derive(Debug, Default)]
pub struct Heartbeat {
    alarm: Arc<WakeAlarm>,
    is_asleep: AtomicBool,
    loop_count: AtomicU64,
    thread: AtomicI32,
}

impl Heartbeat {
    /// One whose worker sets off this alarm when it wakes up.
    pub fn new(alarm: Arc<WakeAlarm>) -> Self {
        Self { alarm, ..Self::default() }
    }

    /// The calling thread is the worker.
    pub(crate) fn begin(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The worker has nothing to do and waits; or goes on.
    pub(crate) fn sleep(&self, is_asleep: bool) {
        // In one order with the alarm: either the watchdog sees it awake, or it sees the alarm armed.
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
        if !is_asleep {
            self.alarm.worker_woke();
        }
        self.turn();
    }

    /// The loop turns. Only the worker's own thread says so.
    pub(crate) fn turn(&self) {
        self.loop_count
            .store(self.loop_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether it waits for something to do, or for its thread to begin.
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::SeqCst) || self.thread.load(Ordering::Relaxed) == 0
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

    /// Whether the process is traced: a debugger may stop its threads at any time.
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
