//! Looks after the threads of endpoints: a turn that takes too long holds every session of its thread up, and is
//! reported with the service that did it, while it lasts. The watchdog is a thread of its own. It sleeps while no
//! session has a turn, and costs a turn a few stores.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crate::clock::Clock;

/// What an endpoint shows of its turns.
#[derive(Debug, Default)]
pub struct Heartbeat {
    /// Counted up when a turn begins, and when it ends: an odd number is a turn.
    turns: AtomicU64,
    session: AtomicU64,
    service: AtomicU32,
    /// The watchdog sleeps until the next turn.
    wants_wakeup: AtomicBool,
    watcher: OnceLock<Thread>,
}

impl Heartbeat {
    /// A session has its turn. Only the endpoint's own thread says so.
    pub(crate) fn begin_turn(&self, session: u64) {
        self.session.store(session, Ordering::Relaxed);
        self.service.store(0, Ordering::Relaxed);
        self.turns.store(self.turns.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
        if self.wants_wakeup.load(Ordering::SeqCst)
            && self.wants_wakeup.swap(false, Ordering::SeqCst)
            && let Some(watcher) = self.watcher.get()
        {
            watcher.unpark();
        }
    }

    /// A service is called in this turn.
    pub(crate) fn note_service(&self, service: u32) {
        self.service.store(service, Ordering::Relaxed);
    }

    /// The turn is over.
    pub(crate) fn end_turn(&self) {
        let turns = self.turns.load(Ordering::Relaxed) | 1;
        self.turns.store(turns.wrapping_add(1), Ordering::SeqCst);
    }

    /// The number of the turn that is under way.
    fn turn(&self) -> Option<u64> {
        Some(self.turns.load(Ordering::SeqCst)).filter(|turns| turns % 2 == 1)
    }
}

/// A turn that takes too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StuckTurn {
    /// The session that has it.
    pub session: u64,
    /// The service that was called last in it; 0 if none was.
    pub service: u32,
    /// How long it has taken so far.
    pub lasted: Duration,
    /// Whether it is over.
    pub is_over: bool,
}

/// The thread that looks; it ends when this is dropped.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Vec<Watched>>,
    is_over: AtomicBool,
}

struct Watched {
    heartbeat: Arc<Heartbeat>,
    /// The turn that was under way at the last look, since when, and what was reported of it.
    seen: Option<(u64, Duration, Option<StuckTurn>)>,
}

impl Watchdog {
    /// Reports each turn that takes longer than `limit`, when that is noticed and when it is over.
    pub fn start(
        limit: Duration,
        report: impl Fn(StuckTurn) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || own.run(limit, &report))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Looks after this endpoint, too.
    pub fn watch(&self, heartbeat: Arc<Heartbeat>) {
        let Some(thread) = &self.thread else { return };
        // An endpoint has one watchdog: the first.
        if heartbeat.watcher.set(thread.thread().clone()).is_ok() {
            self.shared.watched().push(Watched { heartbeat, seen: None });
            thread.thread().unpark();
        }
    }
}

impl Shared {
    fn watched(&self) -> std::sync::MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, limit: Duration, report: &impl Fn(StuckTurn)) {
        let clock = Clock::new();
        while !self.is_over.load(Ordering::Acquire) {
            let (stuck, is_any) = self.look(clock.uptime(), limit);
            stuck.into_iter().for_each(report);
            if is_any {
                std::thread::park_timeout(limit / 2);
            } else {
                std::thread::park();
            }
        }
    }

    /// The turns to report, and whether any is under way. If none is, the next one wakes the watchdog.
    fn look(&self, now: Duration, limit: Duration) -> (Vec<StuckTurn>, bool) {
        let (mut stuck, mut is_any) = (Vec::new(), false);
        let mut all = self.watched();
        // An endpoint that is gone has no turns.
        all.retain(|watched| Arc::strong_count(&watched.heartbeat) > 1 || watched.seen.is_some());
        for watched in &mut *all {
            let heartbeat = &watched.heartbeat;
            heartbeat.wants_wakeup.store(true, Ordering::SeqCst);
            let turn = heartbeat.turn();
            match (&mut watched.seen, turn) {
                (Some((before, since, reported)), Some(turn)) if *before == turn => {
                    let lasted = now.saturating_sub(*since);
                    if reported.is_none() && lasted >= limit {
                        let session = heartbeat.session.load(Ordering::Relaxed);
                        let service = heartbeat.service.load(Ordering::Relaxed);
                        let found = StuckTurn { session, service, lasted, is_over: false };
                        *reported = Some(found);
                        stuck.push(found);
                    }
                }
                (seen, turn) => {
                    if let Some((_, since, Some(reported))) = *seen {
                        // Another one may have its turn already.
                        let lasted = now.saturating_sub(since);
                        stuck.push(StuckTurn { lasted, is_over: true, ..reported });
                    }
                    *seen = turn.map(|turn| (turn, now, None));
                }
            }
            is_any |= turn.is_some();
        }
        if is_any {
            all.iter().for_each(|it| it.heartbeat.wants_wakeup.store(false, Ordering::SeqCst));
        }
        (stuck, is_any)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // One that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn watched() -> (Shared, Arc<Heartbeat>) {
        let (shared, heartbeat) = (Shared::default(), Arc::<Heartbeat>::default());
        let of = Watched { heartbeat: Arc::clone(&heartbeat), seen: None };
        shared.watched().push(of);
        (shared, heartbeat)
    }

    #[test]
    fn a_turn_that_takes_too_long_is_reported_once_and_when_it_is_over() {
        // X19, E4
        let (shared, heartbeat) = watched();
        assert_eq!(shared.look(at(0), LIMIT), (vec![], false));
        assert!(heartbeat.wants_wakeup.load(Ordering::SeqCst), "the next turn wakes the watchdog");
        heartbeat.begin_turn(7);
        heartbeat.note_service(42);
        assert_eq!(shared.look(at(5), LIMIT), (vec![], true));
        assert_eq!(shared.look(at(14), LIMIT), (vec![], true), "nine milliseconds");
        let stuck = StuckTurn { session: 7, service: 42, lasted: at(10), is_over: false };
        assert_eq!(shared.look(at(15), LIMIT), (vec![stuck], true));
        assert_eq!(shared.look(at(30), LIMIT), (vec![], true), "said already");
        heartbeat.end_turn();
        // Another session has its turn when that is noticed.
        heartbeat.begin_turn(8);
        let over = StuckTurn { lasted: at(35), is_over: true, ..stuck };
        assert_eq!(shared.look(at(40), LIMIT), (vec![over], true));
    }

    #[test]
    fn many_short_turns_are_no_long_one() {
        // X19
        let (shared, heartbeat) = watched();
        for millis in 0..100 {
            heartbeat.begin_turn(1);
            assert_eq!(shared.look(at(millis), LIMIT), (vec![], true));
            heartbeat.end_turn();
        }
    }
}
