//! Opened files, kept while they are hot (`open_file_cache`). One cache for each worker, so nothing is
//! locked.
//!
//! What a cached entry says is trusted for a window only. With `open_file_cache` configured that is
//! `open_file_cache_valid`. Without it, an entry is trusted only while it is *hot* (`hotness.rs`): asked for
//! very often within a short window, and for no longer than that window; every other request looks at the
//! file system again. So a client that writes a file and asks for it sees what was written, and a file under
//! load costs no system call (`docs/adr/0005-file-cache.md`).

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sekisho_config::{FileCache as Setting, Settings, Symlinks};
use sekisho_lifecycle::Moment;
use sekisho_route::{AccessChecks, Files, Kind, Look, Seen};

use crate::hotness::{self, Hotness};
use crate::open_file::{DESCRIPTOR_WEIGHT, OpenFile};

/// What the cache may hold in bytes; a held descriptor weighs as much as [`DESCRIPTOR_WEIGHT`].
const CACHE_BYTES_MAX: u64 = 16 << 20;
const ENTRY_WEIGHT: u64 = 512;
/// Entries that were not asked for in this time are dropped (unless `inactive=` says otherwise).
pub const INACTIVE: Duration = Duration::from_secs(10);

/// Counts what this process has changed in files itself. What a cache knew before such a change is checked
/// again, so that the client that changed a file sees the change, whichever worker answers.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// A file has been changed by us: to be called before the client gets the answer.
pub(crate) fn files_changed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// How many changes there have been.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// When the file, or what is known about it, was last changed.
    pub(crate) fn changed_secs(&self) -> i64 {
        self.changed.0
    }
}

#[derive(Clone, Debug)]
enum Found {
    File(Rc<OpenFile>),
    Directory,
    Error(Errno),
}

impl Found {
    fn weight(&self) -> u64 {
        match self {
            Self::File(file) => file.weight(),
            Self::Directory | Self::Error(_) => 0,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    found: Found,
    /// As it was when the entry was inserted: the cache subtracts the same weight when it drops the entry.
    weight: u64,
    identity: Option<Identity>,
    /// Changed so recently that an equal identity proves nothing.
    is_racy: bool,
    hotness: Hotness,
    /// How many changes of our own there had been when it was looked at.
    changes: Cell<u64>,
}

impl Entry {
    fn look(&self) -> Look<Rc<OpenFile>> {
        match &self.found {
            Found::File(file) => Look::File(Rc::clone(file)),
            Found::Directory => Look::Directory,
            Found::Error(errno) => look_of(*errno),
        }
    }
}

#[derive(Clone)]
struct Weights {
    /// The least that an entry weighs: so many of them as `max=` says weigh all that the cache may hold.
    min: u64,
}

impl Weighter<Box<[u8]>, Rc<Entry>> for Weights {
    fn weight(&self, key: &Box<[u8]>, entry: &Rc<Entry>) -> u64 {
        (ENTRY_WEIGHT + key.len() as u64 + entry.weight).max(self.min)
    }
}

/// The opened files of one worker.
pub struct FileCache {
    entries: Cache<Box<[u8]>, Rc<Entry>, Weights>,
    key: Vec<u8>,
    inactive: Duration,
    last_error: Option<Errno>,
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCache").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Default for FileCache {
    fn default() -> Self {
        Self::new(None)
    }
}

impl FileCache {
    /// An empty cache; `configured` is the largest `open_file_cache` of the configuration.
    pub fn new(configured: Option<(usize, Duration)>) -> Self {
        let (items, inactive) = configured.unwrap_or((1024, INACTIVE));
        let bytes = CACHE_BYTES_MAX.max(items as u64 * DESCRIPTOR_WEIGHT);
        let min = configured.map_or(0, |_| bytes / items.max(1) as u64);
        Self {
            entries: Cache::with_weighter(items, bytes, Weights { min }),
            key: Vec::new(),
            inactive,
            last_error: None,
        }
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// How long an entry stays that is not asked for.
    pub fn inactive(&self) -> Duration {
        self.inactive
    }

    /// Drops entries that were not asked for lately; returns whether any are left.
    pub fn sweep(&mut self, now: Moment) -> bool {
        let inactive = self.inactive;
        self.entries.retain(|_, entry| !entry.hotness.is_forgotten(now, inactive));
        !self.entries.is_empty()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are, and what they hold in memory.
    pub fn memory_usage(&self) -> (usize, usize) {
        let bytes = self.entries.iter().map(|(key, entry)| {
            let found = match &entry.found {
                Found::File(file) => file.memory_bytes(),
                Found::Directory | Found::Error(_) => 0,
            };
            size_of::<(Box<[u8]>, Rc<Entry>)>() + key.len() + size_of::<Entry>() + found
        });
        (self.entries.len(), bytes.sum())
    }

    /// The error of the last look, for the error log.
    pub fn last_error(&self) -> Option<Errno> {
        self.last_error
    }

    fn find(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
        now: Moment,
        wall_secs: i64,
    ) -> Look<Rc<OpenFile>> {
        if settings.open_file_cache == Setting::Off {
            return match open(path, root_bytes, settings.disable_symlinks) {
                Ok((descriptor, stat)) => self.remember(&load(descriptor, &stat)),
                Err(errno) => self.remember(&Found::Error(errno)),
            };
        }
        // The symlink policy is part of the key, and where it begins to count: what one location may open
        // another may not.
        self.key.clear();
        self.key.push(settings.disable_symlinks as u8);
        if settings.disable_symlinks != Symlinks::Follow {
            self.key.extend_from_slice(&root_bytes.to_ne_bytes());
        }
        self.key.extend_from_slice(path);
        // Before it is looked at: what changes from here on is noticed the next time.
        let changes = changes();
        if let Some(entry) = self.entries.get(self.key.as_slice()) {
            let is_hot = entry.hotness.is_hot(now);
            let is_trusted = entry.changes.get() == changes
                && match settings.open_file_cache {
                    Setting::On { valid, errors, .. } => {
                        entry.hotness.is_fresh(now, valid)
                            && (errors || !matches!(entry.found, Found::Error(_)))
                    }
                    // The file has just been written: its writer may be about to ask for it, or to write
                    // again.
                    _ => is_hot && !entry.is_racy,
                };
            if is_trusted || entry.is_unchanged(path, settings.disable_symlinks) {
                if !is_trusted {
                    entry.hotness.check(now);
                    entry.changes.set(changes);
                }
                if let Found::Error(errno) = entry.found {
                    self.last_error = Some(errno);
                }
                let look = entry.look();
                if entry.found.weight() != entry.weight {
                    // Compressed forms have been added to it: it is weighed anew.
                    let entry = Entry { weight: entry.found.weight(), ..(**entry).clone() };
                    self.entries.insert(self.key.as_slice().into(), Rc::new(entry));
                }
                return look;
            }
        }
        self.open_anew(path, root_bytes, settings.disable_symlinks, now, wall_secs, changes)
    }

    fn open_anew(
        &mut self,
        path: &[u8],
        root_bytes: usize,
        symlinks: Symlinks,
        now: Moment,
        wall_secs: i64,
        changes: u64,
    ) -> Look<Rc<OpenFile>> {
        let mut opened = open(path, root_bytes, symlinks);
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
            // The cache itself may hold the descriptors that are missing (O5).
            self.entries.clear();
            opened = open(path, root_bytes, symlinks);
        }
        let (found, identity, is_racy) = match opened {
            Ok((descriptor, stat)) => {
                let is_racy = hotness::is_racy(&stat, wall_secs);
                (load(descriptor, &stat), Some(Identity::of(&stat)), is_racy)
            }
            Err(errno) => (Found::Error(errno), None, false),
        };
        let look = self.remember(&found);
        // A small file that has to be read from a disk first is not kept before it has been.
        let is_unread = matches!(&found, Found::File(file) if file.is_unread());
        if matches!(look, Look::Failed) || is_unread {
            self.entries.remove(self.key.as_slice());
            return look;
        }
        // Uses go on counting while it stays what it was, so that a hot missing file is known as hot;
        // a file that has just come or gone is not.
        let is_error = |found: &Found| matches!(found, Found::Error(_));
        let old = self.entries.get(self.key.as_slice());
        let old = old.filter(|old| is_error(&old.found) == is_error(&found));
        let hotness = old.map_or_else(|| Hotness::new(now), |old| old.hotness.checked_anew(now));
        let weight = found.weight();
        let entry =
            Entry { weight, found, identity, is_racy, hotness, changes: Cell::new(changes) };
        self.entries.insert(self.key.as_slice().into(), Rc::new(entry));
        look
    }

    fn remember(&mut self, found: &Found) -> Look<Rc<OpenFile>> {
        self.last_error = None;
        match found {
            Found::File(file) => Look::File(Rc::clone(file)),
            Found::Directory => Look::Directory,
            Found::Error(errno) => {
                self.last_error = Some(*errno);
                look_of(*errno)
            }
        }
    }
}

impl Entry {
    /// Looks at the file system: is the path still what it was? A miss is looked at by opening anew.
    fn is_unchanged(&self, path: &[u8], symlinks: Symlinks) -> bool {
        let Some(identity) = self.identity else { return false };
        // With a symlink policy the way to the file counts too, and only opening checks it.
        if self.is_racy || symlinks != Symlinks::Follow {
            return false;
        }
        rustix::fs::stat(path).is_ok_and(|stat| Identity::of(&stat) == identity)
    }
}

/// A worker's cache together with the time of this turn, as the router asks it.
#[derive(Debug)]
pub struct View<'a> {
    /// The cache.
    pub cache: &'a mut FileCache,
    /// The time of this turn.
    pub now: Moment,
    /// The same on the wall clock.
    pub wall_secs: i64,
}

/// Files alone, no limits: the wrapper around this view has the access checks.
impl AccessChecks for View<'_> {}

impl Files for View<'_> {
    type File = Rc<OpenFile>;

    fn look(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Look<Self::File> {
        self.cache.find(path, root_bytes, settings, self.now, self.wall_secs)
    }

    /// `stat` only, no open: a program may be executable but not readable for the server.
    fn look_for_program(&mut self, path: &[u8], root: usize, settings: &Settings) -> Look<()> {
        let stat = match stat(path, root, settings.disable_symlinks) {
            Ok(stat) => stat,
            Err(errno) => {
                self.cache.last_error = Some(errno);
                return match look_of(errno) {
                    Look::Denied => Look::Denied,
                    Look::Failed => Look::Failed,
                    _ => Look::Missing,
                };
            }
        };
        match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => Look::File(()),
            rustix::fs::FileType::Directory => Look::Directory,
            _ => Look::Missing,
        }
    }

    fn inspect(&mut self, path: &[u8], root: usize, settings: &Settings) -> Option<Seen> {
        let stat = stat(path, root, settings.disable_symlinks).ok()?;
        let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => Kind::File,
            rustix::fs::FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        };
        let mode = Mode::from_raw_mode(stat.st_mode);
        Some(Seen { kind, is_executable: mode.contains(Mode::XUSR) })
    }
}

/// What there is at a path. With a symlink policy the way to it counts, and only opening checks that.
fn stat(path: &[u8], root: usize, symlinks: Symlinks) -> Result<Stat, Errno> {
    match symlinks {
        Symlinks::Follow => rustix::fs::stat(path),
        symlinks => open(path, root, symlinks).map(|(_, stat)| stat),
    }
}

fn load(descriptor: OwnedFd, stat: &Stat) -> Found {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => Found::File(Rc::new(OpenFile::new(descriptor, stat))),
        rustix::fs::FileType::Directory => Found::Directory,
        // A FIFO, a socket or a device is nothing to serve.
        _ => Found::Error(Errno::ACCESS),
    }
}

fn look_of(errno: Errno) -> Look<Rc<OpenFile>> {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Look::Missing,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO | Errno::NOBUFS => Look::Failed,
        _ => Look::Denied,
    }
}

const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens the file, then calls `fstat`, in that order: the checked file is the served file (V19).
pub(crate) fn open(
    path: &[u8],
    root_bytes: usize,
    symlinks: Symlinks,
) -> Result<(OwnedFd, Stat), Errno> {
    let descriptor = match symlinks {
        Symlinks::Follow => rustix::fs::open(path, FLAGS, Mode::empty())?,
        Symlinks::Deny => {
            let (root, rest) = split(path, root_bytes);
            let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            rustix::fs::openat2(root, rest, FLAGS, Mode::empty(), resolve)?
        }
        Symlinks::IfSameOwner => {
            let (root, rest) = split(path, root_bytes);
            open_owned(root, rest)?
        }
    };
    let stat = rustix::fs::fstat(&descriptor)?;
    Ok((descriptor, stat))
}

/// The root, and the rest relative to it.
fn split(path: &[u8], root_bytes: usize) -> (&[u8], &[u8]) {
    let (root, rest) = path.split_at(root_bytes.min(path.len()));
    let leading = rest.iter().take_while(|byte| **byte == b'/').count();
    let rest = &rest[leading..];
    (if root.is_empty() { b"/" } else { root }, if rest.is_empty() { b"." } else { rest })
}

/// Walks the path one component at a time; a symlink is followed only where its target has its owner.
fn open_owned(root: &[u8], rest: &[u8]) -> Result<OwnedFd, Errno> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
    let mut at = rustix::fs::open(root, STEP, Mode::empty())?;
    let mut components = rest.split(|byte| *byte == b'/').filter(|c| !c.is_empty()).peekable();
    while let Some(component) = components.next() {
        let link = rustix::fs::openat(&at, component, STEP | OFlags::NOFOLLOW, Mode::empty())?;
        let link_stat = rustix::fs::fstat(&link)?;
        // What is asked for with a closing slash is a directory or nothing.
        let last = if rest.ends_with(b"/") { FLAGS | OFlags::DIRECTORY } else { FLAGS };
        let flags = if components.peek().is_none() { last } else { STEP };
        let is_link =
            rustix::fs::FileType::from_raw_mode(link_stat.st_mode) == rustix::fs::FileType::Symlink;
        let next = if is_link {
            let next = rustix::fs::openat(&at, component, flags, Mode::empty())?;
            if rustix::fs::fstat(&next)?.st_uid != link_stat.st_uid {
                return Err(Errno::LOOP);
            }
            next
        } else {
            rustix::fs::openat(&at, component, flags | OFlags::NOFOLLOW, Mode::empty())?
        };
        at = next;
    }
    if rest == b"." {
        return rustix::fs::openat(&at, b".".as_slice(), FLAGS, Mode::empty());
    }
    Ok(at)
}
