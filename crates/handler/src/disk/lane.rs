//! The threads of one device: at most [`LANE_THREADS`] operations run at a time, the others wait in their order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::LANE_THREADS;

/// Runs an operation; returns what is left to do when its thread is free again.
type Job = Box<dyn FnOnce() -> Box<dyn FnOnce()> + Send>;

/// Operations that share their threads.
#[derive(Debug)]
pub(super) struct Lane {
    path: PathBuf,
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    serial: u64,
    running: Vec<Running>,
    waiting: VecDeque<Waiting>,
    abandoned: u64,
}

#[derive(Debug)]
struct Running {
    serial: u64,
    /// When it began, or made progress.
    since: Instant,
}

struct Waiting {
    serial: u64,
    job: Job,
    runtime: Handle,
}

impl std::fmt::Debug for LaneState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneState").field("running", &self.running).finish_non_exhaustive()
    }
}

/// The state of a lane as the control plane shows it.
#[derive(Debug)]
pub(super) struct LaneView {
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) oldest: Option<Duration>,
    pub(super) abandoned: u64,
}

/// The state of an operation.
#[derive(Debug)]
pub(super) enum Phase {
    Waiting,
    Running(Instant),
    Over,
}

impl Lane {
    pub(super) const fn new(path: PathBuf) -> Self {
        let state =
            LaneState { serial: 0, running: Vec::new(), waiting: VecDeque::new(), abandoned: 0 };
        Self { path, state: Mutex::new(state) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        // Nothing that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has work done, now or when there is a thread for it. What it returns is called when its thread is free again.
    /// Without a runtime the work is done here.
    pub(super) fn submit<F: FnOnce() + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Ticket {
        let Ok(runtime) = Handle::try_current() else {
            work()();
            return Ticket { lane: Arc::clone(self), serial: None };
        };
        let job: Job = Box::new(move || -> Box<dyn FnOnce()> { Box::new(work()) });
        let mut state = self.state();
        state.serial += 1;
        let serial = state.serial;
        let ticket = Ticket { lane: Arc::clone(self), serial: Some(serial) };
        if state.running.len() < LANE_THREADS {
            let slot = self.occupy(&mut state, serial);
            drop(state);
            slot.run(&runtime, job);
        } else {
            state.waiting.push_back(Waiting { serial, job, runtime });
        }
        ticket
    }

    fn occupy(self: &Arc<Self>, state: &mut LaneState, serial: u64) -> Slot {
        state.running.push(Running { serial, since: Instant::now() });
        Slot { lane: Arc::clone(self), serial }
    }

    pub(super) fn view(&self) -> LaneView {
        let state = self.state();
        LaneView {
            running: state.running.len(),
            waiting: state.waiting.len(),
            oldest: state.running.iter().map(|one| one.since.elapsed()).max(),
            abandoned: state.abandoned,
        }
    }
}

/// A thread of a lane, until it is dropped: then the operation that has waited longest has it.
#[derive(Debug)]
struct Slot {
    lane: Arc<Lane>,
    serial: u64,
}

thread_local! {
    /// The operation that this thread runs.
    static CURRENT: RefCell<Option<(Arc<Lane>, u64)>> = const { RefCell::new(None) };
}

impl Slot {
    fn run(self, runtime: &Handle, job: Job) {
        runtime.spawn_blocking(move || {
            CURRENT.set(Some((Arc::clone(&self.lane), self.serial)));
            let rest = job();
            drop(self);
            rest();
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        CURRENT.set(None);
        let mut state = self.lane.state();
        state.running.retain(|one| one.serial != self.serial);
        let Some(Waiting { serial, job, runtime }) = state.waiting.pop_front() else { return };
        let slot = self.lane.occupy(&mut state, serial);
        drop(state);
        slot.run(&runtime, job);
    }
}

/// The operation of this thread is long, and has made a step.
pub fn note_progress() {
    CURRENT.with_borrow(|current| {
        let Some((lane, serial)) = current else { return };
        let mut state = lane.state();
        if let Some(one) = state.running.iter_mut().find(|one| one.serial == *serial) {
            one.since = Instant::now();
        }
    });
}

/// An operation that was submitted. Dropped while it waits, it is withdrawn.
#[derive(Debug)]
pub(super) struct Ticket {
    lane: Arc<Lane>,
    /// `None` when it is over.
    serial: Option<u64>,
}

impl Ticket {
    /// The operation is over.
    pub(super) const fn forget(&mut self) {
        self.serial = None;
    }

    /// The operation is not waited for any longer, though it runs.
    pub(super) fn abandon(&mut self) {
        self.lane.state().abandoned += 1;
        self.serial = None;
    }

    pub(super) fn phase(&self) -> Phase {
        let state = self.lane.state();
        let Some(serial) = self.serial else { return Phase::Over };
        match state.running.iter().find(|one| one.serial == serial) {
            Some(one) => Phase::Running(one.since),
            None if state.waiting.iter().any(|one| one.serial == serial) => Phase::Waiting,
            None => Phase::Over,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(serial) = self.serial else { return };
        let mut state = self.lane.state();
        let at = state.waiting.iter().position(|one| one.serial == serial);
        let withdrawn = at.and_then(|at| state.waiting.remove(at));
        state.abandoned += u64::from(withdrawn.is_some());
        drop(state);
        // What it holds is dropped without the lock: that may submit another operation.
        drop(withdrawn);
    }
}
