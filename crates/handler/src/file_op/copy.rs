//! Copies of files and folders, under names of ours until they are complete. Links are copied as links:
//! nothing is ever read through one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sekisho_config::Permissions;

use super::entries::EntryCheck;
use super::land::Rules;
use super::temp::{self, Temp};
use super::{Failure, Stop, beneath, delete, webdav};

/// How deep folders may lie within each other to be copied.
const DEPTH_MAX: usize = 128;
/// How often another name is tried.
const TRIES: usize = 16;
/// What one call copies at the most.
const PIECE_BYTES: usize = 16 << 20;
/// The same where the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 256 << 10;

/// A regular file that is no link.
pub(super) fn open_file(folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    match beneath::kind(&rustix::fs::fstat(&file)?) {
        FileType::RegularFile => Ok(file),
        _ => Err(Errno::PERM),
    }
}

/// A copy of a file that has yet to appear in this folder.
pub(super) fn copy_file(
    file: &OwnedFd,
    to: &Arc<OwnedFd>,
    stop: &Stop,
) -> Result<(Temp, Stat), Errno> {
    let stat = rustix::fs::fstat(file)?;
    let mut temp = Temp::new(to)?;
    loop {
        stop.check()?;
        match rustix::fs::copy_file_range(file, None, temp.descriptor()?, None, PIECE_BYTES) {
            Ok(0) => break,
            Ok(count) => temp.wrote(count as u64),
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                copy_rest(file, &mut temp, stop)?;
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    webdav::copy_properties(file, temp.descriptor()?);
    Ok((temp, stat))
}

fn copy_rest(file: &OwnedFd, temp: &mut Temp, stop: &Stop) -> Result<(), Errno> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        stop.check()?;
        match rustix::io::read(file, &mut *buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => temp.write(&buffer[..count])?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A copy has the permissions and the time of what it is a copy of, as in nginx.
pub(super) fn rules(rules: &Rules, stat: &Stat) -> Rules {
    let access = Permissions { file: stat.st_mode & 0o777, folder: rules.access.folder };
    Rules { access, modified: Some(stat.st_mtime), ..*rules }
}

/// A folder with a name of ours in which something is put together and moved out of. It is removed with all
/// that is left in it; locked meanwhile, so that a sweep does not touch it.
#[derive(Debug)]
pub(super) struct Tree {
    folder: Arc<OwnedFd>,
    name: String,
    own: Arc<OwnedFd>,
    stop: Stop,
}

impl Tree {
    /// What the copy is called in it.
    pub(super) const NAME: &[u8] = b"copy";

    pub(super) fn new(folder: &Arc<OwnedFd>, stop: &Stop) -> Result<Self, Errno> {
        for _ in 0..TRIES {
            let name = format!("{}{}", temp::PREFIX, temp::random());
            rustix::fs::mkdirat(&**folder, &name, Mode::RWXU)?;
            let own = match delete::open_to_read(&**folder, name.as_bytes()) {
                Ok(own) => Arc::new(own),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            // A sweep that came between making and locking has taken it for a dead server's.
            if temp::lock(own.as_fd()) && rustix::fs::fstat(&*own)?.st_nlink > 0 {
                let (folder, stop) = (Arc::clone(folder), stop.clone());
                return Ok(Self { folder, name, own, stop });
            }
        }
        Err(Errno::BUSY)
    }

    /// Where the copy is, under the name [`Tree::NAME`].
    pub(super) fn inside(&self) -> &Arc<OwnedFd> {
        &self.own
    }

    pub(super) fn copy_link(&self, from: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let target = rustix::fs::readlinkat(from, name, Vec::new())?;
        rustix::fs::symlinkat(target, &*self.own, Self::NAME)
    }

    /// What could not be looked at beforehand, because it came later, is checked as it is met: the copy appears
    /// when all of it is there.
    pub(super) fn copy_folder(
        &self,
        from: &OwnedFd,
        name: &[u8],
        is_deep: bool,
        check: &EntryCheck,
        fail: impl Fn(Errno) -> Failure,
    ) -> Result<(), Failure> {
        let depth_max = if is_deep { DEPTH_MAX } else { 0 };
        let mut copying =
            Copying { tree: self, check, below: Vec::new(), depth_max, refusal: None };
        let copied = delete::open_to_read(from, name)
            .and_then(|source| copying.folder(&source, &self.own, Self::NAME, 0));
        match copying.refusal.take() {
            Some(refusal) => Err(refusal),
            None => copied.map_err(fail),
        }
    }
}

/// A copy of a folder, being made.
struct Copying<'a> {
    tree: &'a Tree,
    check: &'a EntryCheck,
    /// The path of the present entry, below the folder.
    below: Vec<u8>,
    depth_max: usize,
    /// Why an entry may not be copied.
    refusal: Option<Failure>,
}

impl Copying<'_> {
    fn folder(
        &mut self,
        source: &OwnedFd,
        to: &Arc<OwnedFd>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(source)?;
        beneath::make_folder(&**to, name, 0o700)?;
        let copy = Arc::new(delete::open_to_read(&**to, name)?);
        if depth < self.depth_max {
            for entry in Dir::read_from(source)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    let above_bytes = self.below.len();
                    self.below.extend_from_slice(name);
                    self.entry(source, &copy, name, depth + 1)?;
                    self.below.truncate(above_bytes);
                }
            }
        }
        webdav::copy_properties(source, &*copy);
        rustix::fs::fchmod(&*copy, Mode::from_raw_mode(stat.st_mode & 0o777))
    }

    fn entry(
        &mut self,
        source: &OwnedFd,
        to: &Arc<OwnedFd>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Errno> {
        if name.starts_with(sekisho_route::OWN_PREFIX) {
            // Unfinished uploads, and this copy itself.
            return Ok(());
        }
        self.tree.stop.check()?;
        let Some(stat) = beneath::look(source, name)? else { return Ok(()) };
        let kind = beneath::kind(&stat);
        if kind == FileType::Directory {
            self.below.push(b'/');
        }
        if let Err(refusal) = self.check.check_entry(&self.below) {
            self.refusal = Some(refusal);
            return Err(Errno::PERM);
        }
        match kind {
            FileType::Directory if depth == self.depth_max => Err(Errno::LOOP),
            FileType::Directory => {
                let inner = delete::open_to_read(source, name)?;
                self.folder(&inner, to, name, depth)
            }
            FileType::RegularFile => {
                let (mut temp, stat) = copy_file(&open_file(source, name)?, to, &self.tree.stop)?;
                let file = temp.descriptor()?;
                rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
                let time = rustix::fs::Timespec {
                    tv_sec: stat.st_mtime,
                    tv_nsec: stat.st_mtime_nsec as _,
                };
                let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
                rustix::fs::futimens(file, &times)?;
                temp.appear(to, name)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(source, name, Vec::new())?;
                rustix::fs::symlinkat(target, &**to, name)
            }
            // A device, a socket or a FIFO is no file of ours.
            _ => Ok(()),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = delete::remove_tree(&self.folder, self.name.as_bytes());
        // What could not be removed is empty, or a sweep removes it.
        let _ = rustix::fs::unlinkat(&*self.folder, &self.name, AtFlags::REMOVEDIR);
    }
}
