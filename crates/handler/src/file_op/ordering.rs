//! The order between operations on whole folders and the files that appear in folders meanwhile. An upload
//! that began under one path must not end under another because its folder was moved, and what appears in a
//! folder after it was looked through must be looked at, too, before the folder is moved (V18, V26).
//!
//! Whatever appears does so under the shared lock, with its folder looked up again; whatever moves or removes
//! a folder does so under the exclusive one, for as long as one rename takes. Each device has a lock of its own: a
//! rename that hangs holds up no other device (O10).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use sekisho_http::Status;

use super::Failure;
use super::beneath::Spot;
use super::entries::{FolderId, id_of};

/// The locks, by device. There are as many as devices that were ever written to.
static NAMES: Mutex<BTreeMap<u64, &'static RwLock<()>>> = Mutex::new(BTreeMap::new());
/// How many folders are being looked through.
static WATCHES: AtomicUsize = AtomicUsize::new(0);
/// Folders in which something has appeared while others are looked through.
static CHANGED: Mutex<Vec<FolderId>> = Mutex::new(Vec::new());
/// More are not remembered one by one.
const CHANGED_MAX: usize = 10_000;
/// How often a folder is looked through again because something has appeared in it.
const TRIES: usize = 4;

fn names_of(device: u64) -> &'static RwLock<()> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(device).or_insert_with(|| Box::leak(Box::default()))
}

/// The exclusive locks of these devices, always taken in the same order.
fn lock_devices(devices: &BTreeSet<u64>) -> Vec<RwLockWriteGuard<'static, ()>> {
    let lock = |device: &u64| names_of(*device).write().unwrap_or_else(PoisonError::into_inner);
    devices.iter().map(lock).collect()
}

/// Something is going to appear in a folder.
#[derive(Debug)]
pub(super) struct Appearing {
    _shared: RwLockReadGuard<'static, ()>,
}

impl Appearing {
    /// In the folder of this spot, which must still be where it was found (`STALE` otherwise).
    pub(super) fn at(spot: &Spot) -> Result<Self, Errno> {
        let id = id_of(&*spot.folder)?;
        let shared = names_of(id.0).read().unwrap_or_else(PoisonError::into_inner);
        let appearing = Self { _shared: shared };
        spot.check_place()?;
        if WATCHES.load(Ordering::SeqCst) > 0 {
            let mut changed = changed();
            if changed.len() < CHANGED_MAX {
                changed.push(id);
            }
        }
        Ok(appearing)
    }
}

/// A folder that is going to be moved or removed is looked through meanwhile.
#[derive(Debug)]
struct Watch;

impl Watch {
    fn begin(devices: &BTreeSet<u64>) -> Self {
        WATCHES.fetch_add(1, Ordering::SeqCst);
        // A writer that did not see it yet has finished its rename when the locks are taken.
        drop(lock_devices(devices));
        Self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut changed = changed();
        if WATCHES.fetch_sub(1, Ordering::SeqCst) == 1 {
            changed.clear();
        }
    }
}

/// Looks through folders, and changes their names only if nothing has appeared in them meanwhile. `spots` are
/// those whose names change, and must still be where they were found.
pub(super) fn look_then_change<T>(
    spots: &[&Spot],
    look: impl Fn() -> Result<HashSet<FolderId>, Failure>,
    change: impl Fn() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Failure> {
    let devices = spots.iter().map(|spot| id_of(&*spot.folder).map(|id| id.0));
    let devices: BTreeSet<u64> = match devices.collect() {
        Ok(devices) => devices,
        Err(errno) => return Ok(Err(errno)),
    };
    let _watch = Watch::begin(&devices);
    for _ in 0..TRIES {
        let before = changed().len();
        let seen = look()?;
        // Other file systems may be mounted below.
        let mounted = seen.iter().map(|folder| folder.0);
        let _exclusive = lock_devices(&devices.iter().copied().chain(mounted).collect());
        let (is_touched, is_full) = {
            let changed = changed();
            let new = changed.get(before..).unwrap_or(&changed);
            (new.iter().any(|folder| seen.contains(folder)), changed.len() >= CHANGED_MAX)
        };
        if !is_touched && (!is_full || seen.is_empty()) {
            for spot in spots {
                if let Err(errno) = spot.check_place() {
                    return Ok(Err(errno));
                }
            }
            return Ok(change());
        }
    }
    Err(Failure::because(
        Status::CONFLICT,
        "refused to change a folder: new files keep appearing in it",
    ))
}

fn changed() -> MutexGuard<'static, Vec<FolderId>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}
