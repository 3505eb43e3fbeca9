//! Leftovers of uploads. What is written has no name where the file system allows that, so there is
//! hardly ever anything; what a dead server left all the same is known by its name and by its free lock, and
//! removed. What a living server works on is locked and stays.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use sekisho_config::{Config, FileOps, PathMapping, Settings, Template};

use super::{beneath, delete, resume, temp};
use crate::disk::{self, Device};

/// How often a folder with unfinished uploads is looked through while uploads come there.
const AGAIN_SECS: i64 = 300;
/// How many folders are remembered as looked through.
const FOLDERS_MAX: usize = 4096;
/// How deep, and among how many names, leftovers are looked for at the start.
const DEPTH_MAX: usize = 32;
const NAMES_MAX: usize = 1_000_000;

/// Looks through a folder that something is about to be stored in, unless that was done lately: on another
/// thread, while the request goes on.
pub(super) fn visit(folder: &Arc<OwnedFd>, life: Option<Duration>, seconds: i64) {
    static VISITED: LazyLock<Mutex<HashMap<(u64, u64), i64>>> = LazyLock::new(Mutex::default);
    let Ok(stat) = rustix::fs::fstat(&**folder) else { return };
    {
        let mut visited = VISITED.lock().unwrap_or_else(PoisonError::into_inner);
        if visited.len() >= FOLDERS_MAX {
            visited.clear();
        }
        let last = visited.entry((stat.st_dev, stat.st_ino)).or_insert(i64::MIN);
        let is_due = *last == i64::MIN || (life.is_some() && *last + AGAIN_SECS <= seconds);
        if !is_due {
            return;
        }
        *last = seconds;
    }
    let own = Arc::clone(folder);
    Device::of(&**folder).detach(move || {
        let mut sweep =
            Sweep { aim: Aim::Leftovers { life, seconds }, names_left: NAMES_MAX, removed: 0 };
        if let Ok(opened) = delete::open_to_read(&*own, b".") {
            // What cannot be read now is looked at another time.
            let _ = sweep.folder(&opened, 0);
        }
    });
}

/// Removes what a dead server has left in the folders that this configuration names: below the roots
/// where files may be stored, and in the stores. How many leftovers there were, and whether there were
/// too many names to look at all of them. What is below a root is looked through once: later files there are
/// our own, and in use.
pub fn leftovers(config: &Config, seconds: i64) -> (usize, bool) {
    static ROOTS: LazyLock<Mutex<HashSet<Vec<u8>>>> = LazyLock::new(Mutex::default);
    let mut found = (0, false);
    let mut stores: Vec<&[u8]> = Vec::new();
    for location in &config.http.locations {
        for (path, depth, life) in folders(&location.settings) {
            let is_new = if depth > 0 {
                let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
                roots.insert(path.to_vec())
            } else {
                stores.push(path);
                !stores[..stores.len() - 1].contains(&path)
            };
            if !is_new {
                continue;
            }
            let mut sweep =
                Sweep { aim: Aim::Leftovers { life, seconds }, names_left: NAMES_MAX, removed: 0 };
            let path =
                Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(folder) = rustix::fs::open(path, flags, Mode::empty()) {
                let _ = sweep.folder(&folder, depth);
            }
            found = (found.0 + sweep.removed, found.1 || sweep.names_left == 0);
        }
    }
    found
}

/// Set once an upload of this process was finished in several requests: it has left a note.
static HAS_FINISHED: AtomicBool = AtomicBool::new(false);

/// Tells that there is a note about a finished upload.
pub(super) fn has_finished() {
    HAS_FINISHED.store(true, Ordering::Relaxed);
}

/// Removes the notes about finished uploads below a folder, if this process has made any: nobody will answer a client
/// that asks once more.
pub fn forget_finished(folder: &Path) {
    if !HAS_FINISHED.load(Ordering::Relaxed) {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) {
        let mut sweep = Sweep { aim: Aim::Finished, names_left: NAMES_MAX, removed: 0 };
        // What cannot be read stays, and is found by the next server.
        let _ = sweep.folder(&folder, DEPTH_MAX);
    }
}

/// Where a location stores files, as far as that is known beforehand: path, depth, and how long unfinished
/// uploads live there.
fn folders(settings: &Settings) -> impl Iterator<Item = (&[u8], usize, Option<Duration>)> {
    let file_ops: Option<&FileOps> = settings.file_ops.as_deref();
    // A store that depends on the request lies below the root, too.
    let is_below = |file_ops: &&FileOps| {
        let is_fixed = |store: &Template| store.as_literal().is_some();
        !file_ops.methods.is_empty() || !file_ops.store.as_ref().is_some_and(is_fixed)
    };
    let changes = file_ops.filter(is_below);
    let place = match &settings.path_mapping {
        PathMapping::Root(template) | PathMapping::Alias(template) => template.as_literal(),
        PathMapping::AliasOfParent { alias, .. } => alias.as_literal(),
    };
    let life = file_ops.and_then(|file_ops| file_ops.resumable);
    let root = changes.and(place).map(move |path| (path, DEPTH_MAX, life));
    let store = file_ops.and_then(|file_ops| file_ops.store.as_ref()?.as_literal());
    root.into_iter().chain(store.map(move |path| (path, 0, life)))
}

/// A walk through folders.
#[derive(Debug)]
struct Sweep {
    aim: Aim,
    names_left: usize,
    removed: usize,
}

/// What is removed.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// What dead servers have left, and what has expired at this time.
    Leftovers { life: Option<Duration>, seconds: i64 },
    /// Notes about finished uploads, however young.
    Finished,
}

impl Sweep {
    fn folder(&mut self, folder: &OwnedFd, depth: usize) -> Result<(), Errno> {
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            disk::note_progress();
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Some(left) = self.names_left.checked_sub(1) else { return Ok(()) };
            self.names_left = left;
            if name.starts_with(temp::PREFIX.as_bytes()) {
                if matches!(self.aim, Aim::Leftovers { .. }) {
                    self.leftover(folder, name);
                }
            } else if name.starts_with(resume::PREFIX.as_bytes()) {
                self.unfinished(folder, name);
            } else if depth > 0
                && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
                && let Ok(inner) = delete::open_to_read(folder, name)
            {
                // One that cannot be read hides what it holds; the others can be.
                let _ = self.folder(&inner, depth - 1);
            }
        }
        Ok(())
    }

    /// A file or folder with a name of ours is removed unless its lock is held.
    fn leftover(&mut self, folder: &OwnedFd, name: &[u8]) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return };
        if !temp::lock(opened.as_fd()) {
            return;
        }
        let Ok(stat) = rustix::fs::fstat(&opened) else { return };
        let removed = match beneath::kind(&stat) {
            FileType::Directory => delete::remove_tree(folder, name),
            FileType::RegularFile => rustix::fs::unlinkat(folder, name, AtFlags::empty()),
            _ => return,
        };
        self.removed += usize::from(removed.is_ok());
    }

    /// An unfinished upload, or a note about one, is removed when it has expired.
    fn unfinished(&mut self, folder: &OwnedFd, name: &[u8]) {
        let is_done = name.ends_with(resume::DONE.as_bytes());
        let (mut life, seconds) = match self.aim {
            Aim::Leftovers { life: Some(life), seconds } => (life, seconds),
            Aim::Leftovers { life: None, .. } => return,
            Aim::Finished => {
                if is_done && resume::is_finished(folder, name) {
                    self.leftover(folder, name);
                }
                return;
            }
        };
        if is_done {
            life = life.min(resume::DONE_LIFE);
        }
        let Ok(Some(stat)) = beneath::look(folder, name) else { return };
        let is_old = stat.st_mtime.saturating_add(life.as_secs() as i64) <= seconds;
        if !is_old || beneath::kind(&stat) != FileType::RegularFile {
            return;
        }
        if let Some(data) = name.strip_suffix(resume::NOTE.as_bytes())
            && let Ok(Some(data)) = beneath::look(folder, data)
            && data.st_mtime.saturating_add(life.as_secs() as i64) > seconds
        {
            // What it is about is younger.
            return;
        }
        self.leftover(folder, name);
    }
}
