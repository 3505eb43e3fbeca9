//! The pid file: written when the server listens, locked while it serves, removed at its end, put aside for
//! an upgrade.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

/// The suffix of the old file while a new process takes over, as in nginx.
const ASIDE: &str = ".oldbin";

/// Our pid file; gone when this is dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Where it is just now.
    place: PathBuf,
    /// Kept open: our present user may not be able to open it again.
    file: File,
}

impl PidFile {
    /// Writes the file; the error says which one. `is_server` recognises a process that is a running server.
    pub fn write(path: &Path, is_server: fn(Pid) -> bool) -> Result<Self, String> {
        let open = || -> io::Result<Self> {
            // Not emptied before it is ours: it may be another's.
            let file = sekisho_openings::open_guarded(OFlags::WRONLY | OFlags::CREATE, path)?;
            Self::take_over(path, file, is_server)
        };
        open().map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Takes over a file that another process has opened.
    pub fn take_over(path: &Path, file: File, is_server: fn(Pid) -> bool) -> io::Result<Self> {
        lock(path, &file, is_server)?;
        let this = Self { path: path.to_owned(), place: path.to_owned(), file };
        this.say_ours()?;
        Ok(this)
    }

    /// The server is to end: a server that starts now may have the file.
    pub fn release(&self) {
        // What could not be locked need not be unlocked.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingUnlock);
    }

    /// Where it belongs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes room for the file of a process that takes over.
    pub fn put_aside(&mut self) -> io::Result<()> {
        if !self.is_plain()? {
            return Ok(());
        }
        let mut aside = self.path.clone().into_os_string();
        aside.push(ASIDE);
        std::fs::rename(&self.path, &aside)?;
        self.place = aside.into();
        Ok(())
    }

    /// The process that was to take over does not.
    pub fn put_back(&mut self) -> io::Result<()> {
        if self.place != self.path {
            std::fs::rename(&self.place, &self.path)?;
            self.place.clone_from(&self.path);
        }
        self.say_ours()
    }

    /// The open file, for a process that takes over where it could not be put aside.
    pub fn share(&self) -> Option<(PathBuf, File)> {
        let file = self.file.try_clone().ok().filter(|_| self.place == self.path)?;
        Some((self.path.clone(), file))
    }

    /// Written first and truncated after: when it cannot be written, the old content remains, which may well
    /// be the same.
    fn say_ours(&self) -> io::Result<()> {
        let line = format!("{}\n", std::process::id());
        self.file.write_all_at(line.as_bytes(), 0)?;
        if self.is_plain()? { self.file.set_len(line.len() as u64) } else { Ok(()) }
    }

    /// Whether it is a file and not a device: `/dev/null` names no process, and is shared by all.
    fn is_plain(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.is_file())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A file that another server has put there meanwhile stays.
        let is_ours = read(&self.place).is_ok_and(|pid| pid == rustix::process::getpid());
        if is_ours && std::fs::remove_file(&self.place).is_err() {
            // The folder is another user's; an empty file names no process.
            let _ = self.file.set_len(0);
        }
    }
}

/// Locks the file, unless another server has: two with one file could not be told apart by `-s`.
fn lock(path: &Path, file: &File, is_server: fn(Pid) -> bool) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {}
        // Some file systems know no locks.
        _ => return Ok(()),
    }
    match read(path) {
        // The lock of one that was killed may be held a moment longer by what it was just starting.
        Ok(pid) if pid != rustix::process::getpid() && is_server(pid) => {
            let number = pid.as_raw_nonzero();
            Err(io::Error::other(format!(
                "it belongs to process {number}, a running server: set another file with \"pid\""
            )))
        }
        _ => Ok(()),
    }
}

/// The process that a pid file names.
pub fn read(path: &Path) -> io::Result<Pid> {
    let text = std::fs::read_to_string(path)?;
    let number = text.trim().parse::<i32>().ok().filter(|number| *number > 0);
    number.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("contains no process id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O1: `pid /dev/null` means no pid file, as with nginx.
    #[test]
    fn a_device_is_written_to_and_left_where_it_is() {
        let path = Path::new("/dev/null");
        let mut first = PidFile::write(path, |_| true).expect("it takes everything");
        let second = PidFile::write(path, |_| true).expect("no server owns it");
        first.put_aside().expect("nothing to do");
        first.put_back().expect("nothing to do");
        drop((first, second));
        assert!(path.exists() && !Path::new("/dev/null.oldbin").exists());
    }
}
