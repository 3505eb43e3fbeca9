//! The one step in which a complete file takes its place.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{Conflict, FileOps, Permissions, Sync};
use sekisho_http::{Status, file_name};

use super::beneath::{self, Spot};
use super::conditions::Conditions;
use super::ordering::Appearing;
use super::temp::Temp;
use super::{Failure, copy, webdav};
use crate::file_cache::files_changed;

/// How often it is tried again when the name comes and goes just then.
const TRIES: usize = 16;
/// How many other names are tried (`upload_conflict rename`).
const NAMES_MAX: u32 = 1000;

/// Under which rules a file takes its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) access: Permissions,
    pub(super) conflict: Conflict,
    pub(super) sync: Sync,
    /// When it was modified, if the client says so.
    pub(super) modified: Option<i64>,
}

impl Rules {
    pub(super) fn of(file_ops: &FileOps) -> Self {
        let FileOps { access, conflict, sync, .. } = *file_ops;
        Self { access, conflict, sync, modified: None }
    }
}

/// Where a file was stored.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) folder: Arc<OwnedFd>,
    pub(super) name: Vec<u8>,
    /// Whether there was nothing of this name before.
    pub(super) is_new: bool,
    pub(super) stat: Stat,
}

/// Whether something may be replaced by a file: a regular file may, and a link, which is not followed.
pub(super) fn may_replace(stat: &Stat) -> bool {
    matches!(beneath::kind(stat), FileType::RegularFile | FileType::Symlink)
}

/// Lets a file take its place. `file` is its whole name, for the log.
pub(super) fn land(
    mut temp: Temp,
    spot: &Spot,
    conditions: &Conditions,
    rules: &Rules,
    file: &[u8],
) -> Result<Landed, Failure> {
    let fail = |errno| Failure::by(errno, Status::CONFLICT, "store", file);
    dress(&temp, rules).map_err(fail)?;
    let (folder, (name, is_new)) = {
        let _appearing = Appearing::at(spot).map_err(fail)?;
        let made = spot.make_folders(rules.access.folder).map_err(fail)?;
        let folder = Arc::clone(&made.folder);
        let _turn = turn(&spot.name);
        let is_new = beneath::look(&folder, &spot.name).map_err(fail)?.is_none();
        conditions.check_locks(file, false, is_new)?;
        let placed = acquire_permit(&mut temp, &folder, &spot.name, conditions, rules, file)?;
        made.keep();
        (folder, placed)
    };
    files_changed();
    if rules.sync == Sync::Full {
        sync_folder(&folder).map_err(fail)?;
    }
    let stat = temp.stat().map_err(fail)?;
    Ok(Landed { folder, name, is_new, stat })
}

/// Permissions, time and, where wanted, safety on the disk.
fn dress(temp: &Temp, rules: &Rules) -> Result<(), Errno> {
    let file = temp.descriptor()?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(rules.access.file))?;
    if let Some(modified) = rules.modified {
        set_time(temp, modified, 0)?;
    }
    match rules.sync {
        Sync::Off => Ok(()),
        Sync::Data => rustix::fs::fdatasync(file),
        Sync::Full => rustix::fs::fsync(file),
    }
}

fn acquire_permit(
    temp: &mut Temp,
    folder: &Arc<OwnedFd>,
    name: &[u8],
    conditions: &Conditions,
    rules: &Rules,
    file: &[u8],
) -> Result<(Vec<u8>, bool), Failure> {
    let fail = |errno| Failure::by(errno, Status::CONFLICT, "store", file);
    for _ in 0..TRIES {
        let there = beneath::look(folder, name).map_err(fail)?;
        conditions.check(there.as_ref())?;
        let Some(there) = there else {
            match temp.appear(folder, name) {
                Ok(()) => return Ok((name.to_vec(), true)),
                // Another request or process was quicker.
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(fail(errno)),
            }
        };
        if !may_replace(&there) {
            return Err(Failure::because(
                Status::CONFLICT,
                "upload refused: something that is not a file has this name",
            ));
        }
        return match rules.conflict {
            Conflict::Replace => {
                outdate(temp, &there).map_err(fail)?;
                keep_properties(temp, folder, name);
                temp.replace(folder, name).map_err(fail)?;
                Ok((name.to_vec(), false))
            }
            Conflict::Refuse => Err(Failure::because(
                Status::CONFLICT,
                "upload refused: the file exists, and upload_conflict is refuse",
            )),
            Conflict::Rename => take_other_name(temp, folder, name, file),
        };
    }
    Err(fail(Errno::BUSY))
}

/// A file that is replaced keeps the properties that clients gave it (RFC 4918 §9.7.1).
fn keep_properties(temp: &Temp, folder: &OwnedFd, name: &[u8]) {
    if let (Ok(old), Ok(new)) = (copy::open_file(folder, name), temp.descriptor()) {
        webdav::copy_properties(&old, new);
    }
}

/// The kernel's clock for files is coarse: two that replace each other within one of its steps would have
/// the same time, and if they are of one size the same entity tag. The new one is made the later.
fn outdate(temp: &Temp, old: &Stat) -> Result<(), Errno> {
    let new = temp.stat()?;
    let (new, old) = ((new.st_mtime, new.st_mtime_nsec), (old.st_mtime, old.st_mtime_nsec));
    // A time in the future, or one that the client gave, is not increased.
    let is_close = old.0.saturating_sub(new.0) <= 1;
    if new > old || !is_close {
        return Ok(());
    }
    let is_last = old.1 >= 999_999_999;
    let (seconds, nanos) = if is_last { (old.0 + 1, 0) } else { (old.0, old.1 + 1) };
    set_time(temp, seconds, nanos as i64)
}

fn set_time(temp: &Temp, seconds: i64, nanos: i64) -> Result<(), Errno> {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(temp.descriptor()?, &times)
}

fn take_other_name(
    temp: &mut Temp,
    folder: &OwnedFd,
    name: &[u8],
    file: &[u8],
) -> Result<(Vec<u8>, bool), Failure> {
    for number in 1..=NAMES_MAX {
        let other = file_name::numbered(name, number);
        match temp.appear(folder, &other) {
            Ok(()) => return Ok((other, true)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Failure::by(errno, Status::CONFLICT, "store", file)),
        }
    }
    Err(Failure::because(Status::CONFLICT, "upload refused: too many files of this name"))
}

/// Puts the names in a folder on the disk.
pub(super) fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::openat(folder, ".", flags, Mode::empty())?)
}

/// Between looking at a name and changing it no other request of this server changes a file of that name: so
/// a condition that held when it was checked still holds when the change is made. Held for microseconds.
pub(super) fn turn(name: &[u8]) -> MutexGuard<'static, ()> {
    const TURNS: usize = 64;
    static LOCKS: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let lock = &LOCKS[KEYS.hash_one(name) as usize % TURNS];
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
