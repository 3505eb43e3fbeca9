//! Whether the loop of a thread turns, seen from outside (X19). A thread that sleeps says so; a worker that does not
//! counts the turns of its loop. Other threads have no loop of their own to count: a thread that is awake is asked, and
//! answers when its runtime gives it a turn. The observer never wakes a thread that sleeps.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Builder;
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

/// The heartbeat of one thread.
#[derive(Debug, Default)]
pub struct Heartbeat {
    alarm: Arc<WakeAlarm>,
    is_asleep: AtomicBool,
    loop_count: AtomicU64,
    thread: AtomicI32,
    /// The watchdog asks for a turn of a thread that does not count its own.
    asked: Notify,
}

impl Heartbeat {
    /// One whose worker sets off this alarm when it wakes up.
    pub fn new(alarm: Arc<WakeAlarm>) -> Self {
        Self { alarm, ..Self::default() }
    }

    /// Has the runtime of the calling thread say when it sleeps.
    pub fn attach<'a>(self: &Arc<Self>, runtime: &'a mut Builder) -> &'a mut Builder {
        self.begin();
        let (falls_asleep, wakes) = (Arc::clone(self), Arc::clone(self));
        runtime
            .on_thread_park(move || falls_asleep.sleep(true))
            .on_thread_unpark(move || wakes.sleep(false))
    }

    /// The calling thread is the one that is watched.
    fn begin(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The worker has nothing to do and waits; or goes on.
    fn sleep(&self, is_asleep: bool) {
        // In one order with the alarm: either the watchdog sees it awake, or it sees the alarm armed.
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
        if !is_asleep {
            self.alarm.worker_woke();
        }
        self.turn();
    }

    /// The loop turns. Only the thread itself says so.
    pub(crate) fn turn(&self) {
        self.loop_count
            .store(self.loop_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Asks a thread that is awake for a turn.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Whether it waits for something to do, or for its thread to begin; or has ended.
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

/// Threads beside the workers that are watched.
#[derive(Debug, Default)]
pub struct WatchedThreads(Mutex<Vec<Arc<WatchedThread>>>);

impl WatchedThreads {
    /// One more.
    pub fn add(&self, name: &'static str, alarm: &Arc<WakeAlarm>) -> Arc<WatchedThread> {
        let thread = Arc::new(WatchedThread {
            name,
            heartbeat: Arc::new(Heartbeat::new(Arc::clone(alarm))),
            stuck_count: AtomicU64::new(0),
            #[cfg(debug_assertions)]
            stall: Mutex::default(),
        });
        self.all().push(Arc::clone(&thread));
        thread
    }

    /// All of them, in the order in which they were started.
    pub fn all(&self) -> MutexGuard<'_, Vec<Arc<WatchedThread>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that has a runtime and is watched, without being a worker.
#[derive(Debug)]
pub struct WatchedThread {
    /// The name of the thread.
    pub name: &'static str,
    /// Whether its runtime gives turns.
    pub heartbeat: Arc<Heartbeat>,
    /// How often it was found stuck.
    pub stuck_count: AtomicU64,
    /// A fault that a test has asked for.
    #[cfg(debug_assertions)]
    stall: Mutex<Option<Duration>>,
}

impl WatchedThread {
    /// Answers the watchdog for as long as this is polled: beside everything else that the thread does.
    pub async fn answer(&self) {
        let _end = EndOnDrop(&self.heartbeat);
        loop {
            self.heartbeat.asked.notified().await;
            self.heartbeat.turn();
            #[cfg(debug_assertions)]
            self.stall_if_asked();
        }
    }

    /// Has it block for so long.
    #[cfg(debug_assertions)]
    pub(crate) fn stall(&self, length: Duration) {
        *self.stall.lock().unwrap_or_else(PoisonError::into_inner) = Some(length);
        self.heartbeat.ask();
    }

    #[cfg(debug_assertions)]
    fn stall_if_asked(&self) {
        let length = self.stall.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(length) = length {
            #[expect(clippy::disallowed_methods, reason = "the injected fault is to be stuck")]
            std::thread::sleep(length);
        }
    }
}

/// A thread that has ended is not stuck.
struct EndOnDrop<'a>(&'a Heartbeat);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_never_sleeps_answers_and_one_that_has_ended_is_not_awake() {
        // O14, X19
        let alarm = Arc::new(WakeAlarm::default());
        let threads = WatchedThreads::default();
        let thread = threads.add("busy", &alarm);
        let heartbeat = Arc::clone(&thread.heartbeat);
        assert!(heartbeat.is_asleep(), "it has not begun");
        let mut builder = Builder::new_current_thread();
        let runtime = heartbeat.attach(&mut builder).build().expect("a runtime");
        let answering = runtime.spawn(async move { thread.answer().await });
        let before = runtime.block_on(async {
            tokio::task::yield_now().await;
            // It has something to do all the time, so that its runtime does not park.
            let before = heartbeat.loop_count();
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(heartbeat.loop_count(), before, "nothing has asked");
            heartbeat.ask();
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            before
        });
        assert!(heartbeat.loop_count() > before && !heartbeat.is_asleep());
        drop((answering, runtime));
        assert!(heartbeat.is_asleep(), "it has ended");
    }
}
