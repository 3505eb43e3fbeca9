//! A folder of entries: found by their key, counted in an index that all workers share, and deleted when they
//! are too many or no longer asked for. Everything here that touches the disk blocks, and belongs on a thread
//! of its own.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use sekisho_config::{CachePath, Family};
use sekisho_http::Fields;
use sekisho_http::upstream::{ResponseHead, push_end_to_end};
use sekisho_lifecycle::Moment;
use sekisho_upstream::cache::entry::{self, BodySum, Damaged, Entry};
use sekisho_upstream::cache::index::{Fetch, Known};
use sekisho_upstream::cache::{Index, Key, PurgeSerial, Purges, entry_path};

use super::hot::Hot;
use crate::disk::{self, Device};
use crate::upstream::Call;

/// What is read of a file at once: a small entry is whole in it.
const FIRST_BYTES: usize = 64 * 1024;
/// A change shows in the times of a file if it comes this much later than the one before.
const SETTLED: Duration = Duration::from_millis(20);
/// How many entries are dropped at a time for being inactive.
const EXPIRED_MAX: usize = 10_000;
/// The prefix of a file's temporary name.
pub(super) const TEMPORARY: &str = ".new-";

/// One cache.
#[derive(Debug)]
pub struct Cache {
    config: CachePath,
    pub(super) index: Index,
    /// The folder has not been looked through: there may be entries that the index does not know.
    is_cold: AtomicBool,
    /// The requests that wait for an entry that another request fetches.
    waiting: Mutex<HashMap<Key, Vec<Waker>>>,
    /// Held while an entry gets its name, so that no purge comes between.
    purges: Mutex<Purges>,
    /// Their serial by itself: a request does not wait for the disk.
    purge_serial: Mutex<PurgeSerial>,
    hot: Hot,
}

impl Cache {
    /// Whether a directive of this family names it so.
    pub(super) fn is_named(&self, name: &[u8], family: Family) -> bool {
        self.config.name.as_bytes() == name && self.config.family == family
    }
}

/// The fields of a request, by their names in lower case; those of one name are joined.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<Vec<u8>, Vec<u8>>);

impl Asked {
    pub(super) fn new(fields: &Fields) -> Self {
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (name, value) in fields.iter() {
            let own = all.entry(name.to_ascii_lowercase());
            own.and_modify(|before| {
                before.extend_from_slice(b", ");
                before.extend_from_slice(value);
            })
            .or_insert_with(|| value.to_vec());
        }
        Self(all)
    }

    pub(super) fn of(call: &Call<'_>) -> Self {
        let mut fields = Fields::default();
        push_end_to_end(call.request.head, &mut fields, |_| false);
        Self::new(&fields)
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

/// An entry that was read.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) entry: Entry,
    /// Its head, as if it had just come.
    pub(super) head: ResponseHead,
    /// Where the body begins in the file.
    pub(super) head_bytes: u64,
    pub(super) body: Body,
    pub(super) file: FileStamp,
}

/// A file, and what changes when its content does.
#[derive(Debug, Default)]
pub(super) struct FileStamp {
    path: CString,
    stamp: (u64, u64, i64, i64, i64),
    is_settled: bool,
}

impl FileStamp {
    fn new(path: &Path, meta: &Metadata) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let changed = UNIX_EPOCH.checked_add(Duration::new(
            u64::try_from(meta.ctime()).unwrap_or(0),
            u32::try_from(meta.ctime_nsec()).unwrap_or(0),
        ));
        let age = changed.and_then(|at| at.elapsed().ok());
        let is_settled = age.is_some_and(|age| age > SETTLED);
        let stamp =
            (meta.dev(), meta.ino(), meta.len().cast_signed(), meta.ctime(), meta.ctime_nsec());
        Ok(Self { path, stamp, is_settled })
    }

    /// Whether a later change shows in the stamp: the clock of file systems has ticked since the last one.
    pub(super) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn is_unchanged(&self) -> bool {
        rustix::fs::lstat(&*self.path).is_ok_and(|stat| {
            self.stamp
                == (
                    stat.st_dev,
                    stat.st_ino,
                    stat.st_size,
                    stat.st_ctime,
                    stat.st_ctime_nsec as i64,
                )
        })
    }
}

/// The body of an entry.
#[derive(Debug)]
pub(super) enum Body {
    /// A short one is in memory, its checksum verified.
    Memory(Vec<u8>),
    File(File),
}

/// Entries that are to be deleted, by the value of `proxy_cache_key`.
#[derive(Clone, Copy, Debug)]
pub enum Purge<'a> {
    /// Those of a key, with all variants.
    Key(&'a [u8]),
    /// Those whose key begins so.
    Prefix(&'a [u8]),
    /// All of them.
    All,
}

impl<'a> Purge<'a> {
    /// As nginx reads a key: `*` at its end stands for any rest. Nothing is every entry.
    pub fn parse(key: &'a [u8]) -> Self {
        match key {
            [] | [b'*'] => Self::All,
            [start @ .., b'*'] => Self::Prefix(start),
            key => Self::Key(key),
        }
    }
}

/// What was found for a request.
#[derive(Debug)]
pub(super) struct Looked {
    /// Where the answer to this request belongs.
    pub(super) slot: Key,
    pub(super) kept: Option<Arc<Kept>>,
    /// What is wrong with the files.
    pub(super) problem: Option<String>,
}

impl Cache {
    fn new(config: &CachePath) -> Self {
        Self {
            config: config.clone(),
            index: Index::new(config.settings),
            is_cold: AtomicBool::new(true),
            waiting: Mutex::default(),
            purges: Mutex::default(),
            purge_serial: Mutex::default(),
            hot: Hot::new(config.settings.inactive),
        }
    }

    /// The device of its folder.
    pub fn device(&self) -> Arc<Device> {
        Device::at(&self.config.path)
    }

    pub(super) fn path_of(&self, slot: Key) -> PathBuf {
        self.config.path.join(entry_path(&self.config.levels, slot))
    }

    /// A request asks for a key: what is known of it, and whether it is worth a look at the disk.
    pub(super) fn ask(self: &Arc<Self>, key: Key, now: Moment) -> (Known, bool) {
        let (known, dropped) = self.index.ask(key, now);
        if !dropped.is_empty() {
            let own = Arc::clone(self);
            self.device().detach(move || own.delete(&dropped));
        }
        (known, known.has_entry || self.is_cold.load(Ordering::Acquire))
    }

    /// The entry of a request, where it is hot and its file is as it was read.
    pub(super) fn hot<A: Borrow<Asked>>(
        self: &Arc<Self>,
        main: Key,
        key: &[u8],
        asked: impl FnOnce() -> A,
        now: Moment,
    ) -> Option<Arc<Kept>> {
        let (mut slot, (mut kept, mut is_due)) = (main, self.hot.find(main, now)?);
        let Entry { vary, variant, .. } = &kept.entry;
        if !vary.is_empty() {
            let asked = asked();
            let own = main.variant(vary, |name| asked.borrow().get(name));
            if own.0 != *variant {
                (slot, (kept, is_due)) = (own, self.hot.find(own, now)?);
                if kept.entry.variant != own.0 {
                    return None;
                }
            }
        }
        if kept.entry.key != key {
            return None;
        }
        if !kept.file.is_unchanged() {
            self.hot.remove(slot);
            return None;
        }
        if is_due {
            for used in [main, slot] {
                self.ask(used, now);
            }
        }
        Some(kept)
    }

    /// Looks for the entry of a request on the disk.
    pub(super) fn look(&self, main: Key, key: &[u8], asked: &Asked, now: Moment) -> Looked {
        let mut looked = Looked { slot: main, kept: None, problem: None };
        let Some(kept) = self.open(main, key, &mut looked.problem, now) else { return looked };
        let Entry { vary, variant, .. } = &kept.entry;
        let own = main.variant(vary, |name| asked.get(name));
        if vary.is_empty() || own.0 == *variant {
            looked.kept = Some(kept);
            return looked;
        }
        // It is another variant's: each further one has a file of its own.
        looked.slot = own;
        let kept = self.open(own, key, &mut looked.problem, now);
        looked.kept = kept.filter(|kept| kept.entry.variant == own.0);
        looked
    }

    fn open(
        &self,
        slot: Key,
        key: &[u8],
        problem: &mut Option<String>,
        now: Moment,
    ) -> Option<Arc<Kept>> {
        let path = self.path_of(slot);
        let generation = self.hot.generation(slot);
        match read(&path, key) {
            Ok(Ok(kept)) => {
                let bytes = kept.head_bytes + kept.entry.body_bytes;
                self.delete(&self.index.found(slot, bytes, now));
                let kept = Arc::new(kept);
                if kept.file.is_settled() {
                    self.hot.put(slot, &kept, generation, now);
                }
                Some(kept)
            }
            // Two keys with one hash: the later one takes the place.
            Ok(Err(Damaged::OtherKey)) => None,
            Ok(Err(damage)) => {
                *problem = Some(format!("{damage}: \"{}\"", path.display()));
                self.remove(slot);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index.remove(slot);
                None
            }
            Err(error) => {
                *problem = Some(format!("cannot read cache file \"{}\": {error}", path.display()));
                None
            }
        }
    }

    /// Deletes an entry.
    pub(super) fn remove(&self, slot: Key) {
        self.index.remove(slot);
        self.delete(&[slot]);
    }

    /// Deletes the files of entries that the index does not know any more.
    pub(super) fn delete(&self, slots: &[Key]) {
        for slot in slots {
            disk::note_progress();
            // A request that reads it has it open; a file that is not there is what is wanted.
            let _ = fs::remove_file(self.path_of(*slot));
            self.hot.remove(*slot);
        }
    }

    /// Deletes entries that were not asked for, and, once, indexes what an earlier process has left.
    pub fn maintain(&self, now: Moment) -> io::Result<()> {
        if self.is_cold.load(Ordering::Acquire) {
            let found = self.load(&self.config.path, self.config.levels.len(), now);
            self.is_cold.store(false, Ordering::Release);
            found?;
        }
        self.delete(&self.index.expire(EXPIRED_MAX, now));
        if let Some(min) = self.config.free_min {
            let disk = rustix::fs::statvfs(&self.config.path)?;
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            self.delete(&self.index.free(min.saturating_sub(free)));
        }
        Ok(())
    }

    /// What an answer is asked for with that may be kept.
    pub(super) fn purge_serial(&self) -> PurgeSerial {
        *self.purge_serial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_purge(&self, key: Option<&[u8]>) {
        let mut purges = self.purges();
        purges.note(key);
        let mut serial = self.purge_serial.lock().unwrap_or_else(PoisonError::into_inner);
        *serial = purges.serial();
    }

    /// Gives the entry of a slot its name, unless its key was purged since it was asked for. Whether it was.
    pub(super) fn keep(
        &self,
        key: &[u8],
        (slot, asked_at): (Key, PurgeSerial),
        name: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        let purges = self.purges();
        if purges.has_purged(key, asked_at) {
            return Ok(false);
        }
        let named = name();
        self.hot.remove(slot);
        named.map(|()| true)
    }

    fn purges(&self) -> MutexGuard<'_, Purges> {
        self.purges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name in `keys_zone`.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Deletes entries; how many there were.
    pub fn purge(&self, what: Purge<'_>, now: Moment) -> io::Result<u64> {
        if self.is_cold.load(Ordering::Acquire) {
            self.maintain(now)?;
        }
        let key = match what {
            Purge::Key(key) => Some(key),
            Purge::Prefix(_) | Purge::All => None,
        };
        // First: what gets its name from here on knows of it, and what has its name is found below.
        self.note_purge(key);
        let slots = match key {
            Some(key) => self.index.entries_of(Key::new(key)),
            None => self.index.entries(),
        };
        let mut purged = 0;
        for slot in slots {
            if self.is_meant(slot, what) {
                self.remove(slot);
                purged += 1;
            }
        }
        Ok(purged)
    }

    /// Whether a purge is about an entry. What cannot be read is of no use to anybody.
    fn is_meant(&self, slot: Key, what: Purge<'_>) -> bool {
        match what {
            Purge::All => true,
            Purge::Key(key) => key_of(&self.path_of(slot)).is_none_or(|found| found == key),
            Purge::Prefix(start) => {
                key_of(&self.path_of(slot)).is_none_or(|found| found.starts_with(start))
            }
        }
    }

    fn load(&self, folder: &Path, depth: usize, now: Moment) -> io::Result<()> {
        for item in fs::read_dir(folder)? {
            let item = item?;
            // What disappears meanwhile is not missed.
            let Ok(meta) = item.metadata() else { continue };
            if meta.is_dir() {
                if depth > 0 {
                    self.load(&item.path(), depth - 1, now)?;
                }
                continue;
            }
            let name = item.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(TEMPORARY) {
                if is_left_over(&item.path()) {
                    let _ = fs::remove_file(item.path());
                }
            } else if let Some(slot) = parse_name(name)
                && self.path_of(slot) == item.path()
            {
                self.delete(&self.index.found(slot, meta.len(), now));
            }
        }
        Ok(())
    }

    /// Whether to fetch an entry; the request that does so keeps the [`Fetching`] until it is done.
    pub(super) fn fetch(
        self: &Arc<Self>,
        slot: Key,
        lock_age: Duration,
        now: Moment,
    ) -> Result<Fetching, Moment> {
        match self.index.fetch(slot, lock_age, now) {
            Fetch::Yours => Ok(Fetching { cache: Arc::clone(self), slot }),
            Fetch::Taken(until) => Err(until),
        }
    }

    /// Wakes the caller when a fetch has ended. Asked for before the fetch is looked at, so that none is missed.
    pub(super) fn wait(&self, slot: Key, waker: &Waker) {
        let mut waiting = self.waiting();
        let all = waiting.entry(slot).or_default();
        if !all.iter().any(|known| known.will_wake(waker)) {
            all.push(waker.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Key, Vec<Waker>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to fetch an entry, until it is dropped.
#[derive(Debug)]
pub(super) struct Fetching {
    cache: Arc<Cache>,
    slot: Key,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // Without an entry the time does not matter; one that was stored is known already.
        self.cache.index.fetched(self.slot, None, Moment::from_millis(0));
        let wakers = self.cache.waiting().remove(&self.slot);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

fn read(path: &Path, key: &[u8]) -> io::Result<Result<Kept, Damaged>> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let file_bytes = meta.len();
    let stamp = FileStamp::new(path, &meta)?;
    let mut start = vec![0; usize::try_from(file_bytes).unwrap_or(usize::MAX).min(FIRST_BYTES)];
    file.read_exact_at(&mut start, 0)?;
    let head_bytes = match entry::head_bytes(&start) {
        Ok(bytes) => bytes,
        Err(damage) => return Ok(Err(damage)),
    };
    if head_bytes > start.len() && head_bytes as u64 <= file_bytes {
        start.resize(head_bytes, 0);
        file.read_exact_at(&mut start, 0)?;
    }
    let entry = match entry::decode(&start, file_bytes, key) {
        Ok(entry) => entry,
        Err(damage) => return Ok(Err(damage)),
    };
    let body = if start.len() as u64 == file_bytes {
        let body = start.split_off(head_bytes);
        let mut sum = BodySum::default();
        sum.update(&body);
        if !sum.fits(&entry) {
            return Ok(Err(Damaged::Checksum));
        }
        Body::Memory(body)
    } else {
        Body::File(file)
    };
    let head = entry.response_head();
    Ok(Ok(Kept { entry, head, head_bytes: head_bytes as u64, body, file: stamp }))
}

/// The key that the head of a file names; `None` where there is no entry in it.
fn key_of(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut head = vec![0; entry::PREFIX_BYTES];
    file.read_exact_at(&mut head, 0).ok()?;
    head.resize(entry::head_bytes(&head).ok()?, 0);
    file.read_exact_at(&mut head, 0).ok()?;
    entry::key(&head).ok()
}

fn parse_name(name: &str) -> Option<Key> {
    if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(name, 16).ok().map(|number| Key(number.to_be_bytes()))
}

/// Locks a file that is being written, until it is closed: its process is alive.
pub(super) fn lock_unnamed(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

/// Whether the process that wrote a file has died.
fn is_left_over(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| lock_unnamed(&file).is_ok())
}

/// Makes the folder that a file is to lie in.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Every cache of the server that is in use. A cache outlives a reload that leaves it as it is.
#[derive(Debug, Default)]
pub struct Caches(Mutex<Vec<Weak<Cache>>>);

impl Caches {
    /// The caches of a configuration, in its order.
    pub fn of(&self, wanted: &[CachePath]) -> Vec<Arc<Cache>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|cache| cache.strong_count() > 0);
        let all: Vec<Arc<Cache>> = wanted
            .iter()
            .map(|config| {
                let mut before = known.iter().filter_map(Weak::upgrade);
                let same = before.find(|cache| cache.config == *config);
                same.unwrap_or_else(|| Arc::new(Cache::new(config)))
            })
            .collect();
        known.extend(all.iter().map(Arc::downgrade));
        all
    }
}
