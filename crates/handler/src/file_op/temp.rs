//! A file that is not there yet. Where the file system can, it has no name at all until it is complete
//! (`O_TMPFILE`), so that nothing is left of it whenever the server ends. Elsewhere it has a name of ours,
//! and holds a lock by which a sweep knows that it is in use (`docs/adr/0017-uploads.md`).

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::disk::Device;

/// What the names of such files begin with.
pub(super) const PREFIX: &str = ".sekisho-upload-";
/// How often another name is tried.
const TRIES: usize = 16;
/// Freeing so much takes the kernel a while, so it is not done on the event loop.
const LARGE_BYTES: u64 = 64 << 20;

/// Whether a file without a name can be given one: by its descriptor's name in `/proc`.
static LINKS: LazyLock<bool> = LazyLock::new(|| rustix::fs::stat("/proc/self/fd").is_ok());

/// A file that is being written. Dropped before it has appeared, it leaves nothing.
#[derive(Debug)]
pub(super) struct Temp {
    file: Option<OwnedFd>,
    folder: Arc<OwnedFd>,
    /// Its name of ours, if it has one.
    name: Option<String>,
    /// Whether it stays under that name if it does not get another.
    stays: bool,
    bytes: u64,
    /// Whether it has got its name: then closing it is a small thing.
    has_appeared: bool,
}

impl Temp {
    /// An empty one in this folder.
    pub(super) fn new(folder: &Arc<OwnedFd>) -> Result<Self, Errno> {
        if *LINKS {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            match rustix::fs::openat(&**folder, ".", flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok(Self::of(file, folder, None)),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        Self::named(folder)
    }

    /// One with a name.
    fn named(folder: &Arc<OwnedFd>) -> Result<Self, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let name = random_name();
            let opened = rustix::fs::openat(&**folder, &name, flags, Mode::RUSR | Mode::WUSR);
            let file = match opened {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            };
            let temp = Self::of(file, folder, Some(name));
            // A sweep that came between making and locking has taken it for a dead server's.
            if lock(temp.descriptor()?) && rustix::fs::fstat(temp.descriptor()?)?.st_nlink > 0 {
                return Ok(temp);
            }
        }
        Err(Errno::EXIST)
    }

    fn of(file: OwnedFd, folder: &Arc<OwnedFd>, name: Option<String>) -> Self {
        Self {
            file: Some(file),
            folder: Arc::clone(folder),
            name,
            stays: false,
            bytes: 0,
            has_appeared: false,
        }
    }

    /// One that is complete and has been given this name of ours in this folder, from where it goes unless it
    /// appears.
    pub(super) fn of_parked(folder: &Arc<OwnedFd>, name: String) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&**folder, &name, flags, Mode::empty())?;
        let bytes = rustix::fs::fstat(&file)?.st_size as u64;
        let mut temp = Self::of(file, folder, Some(name));
        temp.bytes = bytes;
        Ok(temp)
    }

    /// Gives it a name of ours in this folder, by which it is found again when it is wanted, and closes the
    /// descriptor.
    pub(super) fn park(mut self, folder: &OwnedFd, name: &str) -> Result<(), Errno> {
        self.appear(folder, name.as_bytes())
    }

    /// An upload that has been gathered under this name, and is locked. It stays if it cannot appear.
    pub(super) fn of_partial(
        file: OwnedFd,
        folder: &Arc<OwnedFd>,
        name: String,
        bytes: u64,
    ) -> Self {
        let mut temp = Self::of(file, folder, Some(name));
        (temp.stays, temp.bytes) = (true, bytes);
        temp
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::pwrite(self.descriptor()?, rest, self.bytes) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    rest = &rest[count..];
                    self.bytes += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// So many bytes were written to its [`descriptor`](Self::descriptor).
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Where to write.
    pub(super) fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.file.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// What it is by now.
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.descriptor()?)
    }

    /// Gives it this name, where nothing has it; `EXIST` otherwise.
    pub(super) fn appear(&mut self, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let Some(own) = &self.name else {
            link(self.descriptor()?, folder, name)?;
            self.has_appeared = true;
            return Ok(());
        };
        let from = &*self.folder;
        match rustix::fs::renameat_with(from, own, folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.name = None,
            // The file system cannot do that; our own name is removed with the file.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(from, own, folder, name, AtFlags::empty())?;
                self.stays = false;
            }
            Err(errno) => return Err(errno),
        }
        self.has_appeared = true;
        Ok(())
    }

    /// Gives it this name, in place of whatever has it.
    pub(super) fn replace(&mut self, folder: &Arc<OwnedFd>, name: &[u8]) -> Result<(), Errno> {
        if self.name.is_none() {
            // A link cannot replace, a rename can: it has a name of ours for a moment.
            lock(self.descriptor()?);
            let own = random_name();
            link(self.descriptor()?, folder, own.as_bytes())?;
            self.folder = Arc::clone(folder);
            self.name = Some(own);
        }
        if let Some(own) = &self.name {
            rustix::fs::renameat(&*self.folder, own, &**folder, name)?;
            self.name = None;
        }
        self.has_appeared = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        // One that has a name holds a lock, which must go now.
        let is_deleted = self.name.is_none() && !self.has_appeared;
        if let Some(name) = self.name.take().filter(|_| !self.stays) {
            let _ = rustix::fs::unlinkat(&*self.folder, name, AtFlags::empty());
        }
        let file = self.file.take();
        // Closing a file without a name deletes it: thousands of clients that leave at once would delay all
        // others.
        if self.bytes > LARGE_BYTES || is_deleted {
            Device::of(&*self.folder).detach(move || drop(file));
        }
    }
}

fn link(file: BorrowedFd<'_>, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, own, folder, name, AtFlags::SYMLINK_FOLLOW)
}

/// Takes the lock that says "in use"; `false` if it is held already.
pub(super) fn lock(file: BorrowedFd<'_>) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// A name that cannot be guessed.
fn random_name() -> String {
    format!("{PREFIX}{}", random())
}

/// 128 random bits: the keys of the standard library's hasher are random.
pub(super) fn random_bytes() -> [u8; 16] {
    static KEYS: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let [first, second] = &*KEYS;
    let (first, second) = (first.hash_one(count), second.hash_one(count));
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

/// The same in hexadecimal.
pub(crate) fn random() -> String {
    format!("{:032x}", u128::from_be_bytes(random_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(path: &std::path::Path) -> Arc<OwnedFd> {
        Arc::new(fs::File::open(path).expect("a folder").into())
    }

    fn names(path: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// F5, V30: both kinds, with and without a name of their own.
    #[test]
    fn a_file_appears_or_replaces_whole_and_leaves_nothing_else() {
        for make in [Temp::new, Temp::named] {
            let tree = tempfile::tempdir().expect("a folder");
            let at = folder(tree.path());
            let mut temp = make(&at).expect("made");
            temp.write(b"one").expect("written");
            temp.appear(&at, b"a").expect("appeared");
            drop(temp);
            let mut temp = make(&at).expect("made");
            temp.write(b"second").expect("written");
            assert_eq!(temp.appear(&at, b"a"), Err(Errno::EXIST));
            assert_eq!(fs::read(tree.path().join("a")).expect("there"), b"one");
            temp.replace(&at, b"a").expect("replaced");
            drop(temp);
            assert_eq!(fs::read(tree.path().join("a")).expect("there"), b"second");
            assert_eq!(names(tree.path()), ["a"]);
            let mut temp = make(&at).expect("made");
            temp.write(b"third").expect("written");
            drop(temp);
            assert_eq!(names(tree.path()), ["a"]);
        }
    }
}
