//! The locks of the whole server: one table for all workers, which outlives a reload. A lock is on a file by its
//! name, whatever path it was asked for by.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sekisho_http::Status;
use sekisho_lifecycle::Moment;
use sekisho_webdav::LockTable;
use sekisho_webdav::lock::ChangedPath;

use super::super::Failure;

/// How many locks there may be at a time.
const LOCKS_MAX: usize = 10_000;

static TABLE: Mutex<LockTable> = Mutex::new(LockTable::new(LOCKS_MAX));
/// How many there are: without any, nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The time, as the last operation saw it, for threads beside the event loop.
static NOW_NANOS: AtomicU64 = AtomicU64::new(0);

/// The table, for as long as it is held.
pub(super) struct Held(MutexGuard<'static, LockTable>);

impl std::ops::Deref for Held {
    type Target = LockTable;

    fn deref(&self) -> &LockTable {
        &self.0
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut LockTable {
        &mut self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        COUNT.store(self.0.len(), Ordering::Release);
    }
}

pub(super) fn hold() -> Held {
    Held(TABLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An operation begins now.
pub(in super::super) fn observe(now: Moment) {
    NOW_NANOS.fetch_max(now.since(Moment::ZERO).as_nanos() as u64, Ordering::Relaxed);
}

pub(super) fn now() -> Moment {
    Moment::from_nanos(NOW_NANOS.load(Ordering::Relaxed))
}

/// The name of a file by which it is locked: without a slash at the end, and without doubled ones.
pub(in super::super) fn key(file: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(file.len());
    for part in file.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        key.push(b'/');
        key.extend_from_slice(part);
    }
    key
}

/// Refuses a change of what is locked, unless the client knows the lock (423).
pub(in super::super) fn check(
    file: &[u8],
    is_tree: bool,
    changes_folder: bool,
    tokens: &[Vec<u8>],
) -> Result<(), Failure> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let change = ChangedPath { path: key(file), is_tree, changes_folder };
    let tokens: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
    hold().check(&change, &tokens, now()).map_err(|locked| {
        let why = format!("change refused: \"{}\" is locked", locked.escape_ascii());
        Failure::because(Status::LOCKED, &why)
    })
}

/// The tokens of the locks that a file is in.
pub(in super::super) fn tokens_of(file: &[u8]) -> Vec<String> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    hold().covering(&key(file), now()).map(|lock| lock.token.clone()).collect()
}

/// What is at this place has been replaced: the locks within it are gone, and one on it stays.
pub(in super::super) fn forget_below(file: &[u8]) {
    if COUNT.load(Ordering::Acquire) != 0 {
        hold().forget_below(&key(file));
    }
}

/// A file, or a folder with all that is in it, is gone from here.
pub(in super::super) fn forget(file: &[u8]) {
    if COUNT.load(Ordering::Acquire) != 0 {
        hold().forget(&key(file));
    }
}
