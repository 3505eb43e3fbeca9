//! File operations that may block: they run on threads beside the event loop. This is their one way to the blocking
//! pool; computations and services use the pool by themselves, and are bounded elsewhere (ADR 0094).
//!
//! Each device has threads of its own, for reads and for writes: a device that hangs stops requests that need it and no
//! others (O10). An operation that gets no thread within [`WAIT_MAX`], and one that takes longer than [`STUCK_AFTER`],
//! fails with [`DiskError::Busy`]; an operation that may have changed something visible is waited for to its end.

mod lane;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

pub use lane::note_progress;
use lane::{Lane, Phase};

/// How long an operation waits for a thread.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long one operation, or one step of a long one, may take before its device counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });
/// Maximum number of operations of one lane that run at a time.
const LANE_THREADS: usize = 32;
/// Maximum number of devices with threads of their own; further ones share those of the last.
const DEVICES_MAX: usize = 7;
/// Maximum number of threads that file operations have at a time: two lanes for each device.
pub const THREADS_MAX: usize = DEVICES_MAX * 2 * LANE_THREADS;
/// How many folders are remembered with their devices.
const FOLDERS_MAX: usize = 1024;
/// What the client of a request that failed with [`DiskError::Busy`] is told to wait, in seconds.
pub const RETRY_AFTER: &str = "10";

/// A device that files are on, as `st_dev` says.
#[derive(Debug)]
pub struct Device {
    number: (u32, u32),
    reads: Arc<Lane>,
    writes: Arc<Lane>,
}

#[derive(Debug, Default)]
struct Devices {
    all: Vec<Arc<Device>>,
    folders: HashMap<PathBuf, Arc<Device>>,
}

static DEVICES: LazyLock<Mutex<Devices>> = LazyLock::new(Mutex::default);

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A configuration was loaded: folders may be on other devices than before.
pub fn forget_folders() {
    devices().folders.clear();
}

impl Devices {
    fn find(&mut self, number: (u32, u32), path: impl FnOnce() -> PathBuf) -> Arc<Device> {
        let known = self.all.iter().find(|device| device.number == number);
        let full = || self.all.get(DEVICES_MAX - 1);
        if let Some(device) = known.or_else(full) {
            return Arc::clone(device);
        }
        let path = path();
        let lane = || Arc::new(Lane::new(path.clone()));
        let device = Arc::new(Device { number, reads: lane(), writes: lane() });
        self.all.push(Arc::clone(&device));
        device
    }
}

impl Device {
    /// The device of a folder, or of the nearest folder above it that exists. Looked up once for each configuration.
    pub fn at(folder: &Path) -> Arc<Self> {
        if let Some(device) = devices().folders.get(folder) {
            return Arc::clone(device);
        }
        let flags = AtFlags::STATX_DONT_SYNC;
        let stat = folder.ancestors().find_map(|at| statx(CWD, at, flags, StatxFlags::INO).ok());
        let number = stat.map_or((0, 0), |stat| (stat.stx_dev_major, stat.stx_dev_minor));
        let mut devices = devices();
        let device = devices.find(number, || folder.to_owned());
        if devices.folders.len() >= FOLDERS_MAX {
            devices.folders.clear();
        }
        devices.folders.insert(folder.to_owned(), Arc::clone(&device));
        device
    }

    /// The device of an open file or folder.
    pub fn of(file: impl AsFd) -> Arc<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&file, c"", flags, StatxFlags::INO);
        let number = stat.map_or((0, 0), |stat| (stat.stx_dev_major, stat.stx_dev_minor));
        devices().find(number, || {
            let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            std::fs::read_link(link).unwrap_or_default()
        })
    }

    /// Whether an operation that writes takes too long.
    pub fn is_stuck(&self) -> bool {
        self.writes.view().oldest.is_some_and(|age| age >= STUCK_AFTER)
    }

    /// Runs work that changes nothing, or nothing that is visible outside, and so may be given up.
    pub fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Operation<T> {
        Operation::start(&self.reads, Limit::Abandon, work)
    }

    /// Runs work that writes to a file that nobody else sees, and so may be given up.
    pub fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Operation<T> {
        Operation::start(&self.writes, Limit::Abandon, work)
    }

    /// Runs work that others see. Once it has begun, its result is waited for.
    pub fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Operation<T> {
        Operation::start(&self.writes, Limit::Wait, work)
    }

    /// Runs work that nobody waits for, such as closing a large file, when there is a thread for it.
    pub fn detach(&self, work: impl FnOnce() + Send + 'static) {
        let mut ticket = self.writes.submit(move || {
            work();
            || ()
        });
        ticket.forget();
    }
}

/// Why an operation has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// The device does not keep up, or hangs.
    Busy,
    /// The work has panicked, or the server ends.
    Lost,
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Busy => "the disk does not respond",
            Self::Lost => "a thread has ended early",
        })
    }
}

impl std::error::Error for DiskError {}

impl From<DiskError> for io::Error {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Busy => Self::new(io::ErrorKind::ResourceBusy, error),
            DiskError::Lost => Self::other(error),
        }
    }
}

/// Whether an error means that a device does not keep up: a 503, and not the request's fault.
pub fn is_busy(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.downcast_ref::<DiskError>() == Some(&DiskError::Busy))
}

/// What happens to an operation that takes too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    /// It is given up, waiting or running.
    Abandon,
    /// It is given up while it waits.
    Wait,
}

/// Work on its way. One that is dropped before it has a thread is not done.
pub struct Operation<T> {
    result: oneshot::Receiver<T>,
    ticket: lane::Ticket,
    limit: Limit,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<T> std::fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Operation<T> {
    fn start(lane: &Arc<Lane>, limit: Limit, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, result) = oneshot::channel();
        // The sender outlives a panic of the work: who waits is woken when the thread is free again.
        let ticket = lane.submit(move || {
            let value = catch_unwind(AssertUnwindSafe(work));
            move || drop(value.map(|value| sender.send(value)))
        });
        let timer = None;
        Self { result, ticket, limit, timer }
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T, DiskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = Pin::new(&mut self.result).poll(cx) {
            self.ticket.forget();
            return Poll::Ready(result.map_err(|_| DiskError::Lost));
        }
        let (limit, Self { ticket, timer, .. }) = (self.limit, &mut *self);
        if Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let first = || Box::pin(sleep_until(Instant::now() + WAIT_MAX));
        let timer = timer.get_or_insert_with(first);
        while timer.as_mut().poll(cx).is_ready() {
            match ticket.phase() {
                Phase::Waiting => return Poll::Ready(Err(DiskError::Busy)),
                Phase::Running(since) if since.elapsed() < STUCK_AFTER => {
                    timer.as_mut().reset(since + STUCK_AFTER);
                }
                Phase::Running(_) if limit == Limit::Abandon => {
                    ticket.abandon();
                    return Poll::Ready(Err(DiskError::Busy));
                }
                // The next look; the result wakes the task, too.
                Phase::Running(_) | Phase::Over => {
                    timer.as_mut().reset(Instant::now() + STUCK_AFTER);
                }
            }
        }
        Poll::Pending
    }
}

/// A device as the control plane shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceView {
    /// A path on it.
    pub path: PathBuf,
    /// Its number.
    pub number: (u32, u32),
    /// Operations that run.
    pub running: usize,
    /// Operations that wait for a thread.
    pub waiting: usize,
    /// How long the oldest operation has run without progress, where that is too long.
    pub stuck: Option<Duration>,
    /// Operations that were given up.
    pub abandoned: u64,
}

/// All devices that were used so far.
pub fn views() -> Vec<DeviceView> {
    let all = devices().all.clone();
    let view = |device: &Arc<Device>| {
        let lanes = [&device.reads, &device.writes].map(|lane| lane.view());
        let stuck = lanes.iter().filter_map(|lane| lane.oldest).max();
        DeviceView {
            path: device.reads.path().to_owned(),
            number: device.number,
            running: lanes.iter().map(|lane| lane.running).sum(),
            waiting: lanes.iter().map(|lane| lane.waiting).sum(),
            stuck: stuck.filter(|age| *age >= STUCK_AFTER),
            abandoned: lanes.iter().map(|lane| lane.abandoned).sum(),
        }
    };
    all.iter().map(view).collect()
}

#[cfg(test)]
mod tests;
