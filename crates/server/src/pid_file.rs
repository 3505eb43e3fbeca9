//! The pid file: written when the server listens, locked while it serves, removed at its end, put aside for
//! an upgrade; and signals to the process that it names.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::Problem;
use crate::cli::SignalName;
use crate::local_socket::{self, Purpose};

/// The suffix of the old file while a new process takes over, as in nginx.
const ASIDE: &str = ".oldbin";

/// Our pid file; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Where it is just now.
    place: PathBuf,
    /// Kept open: our present user may not be able to open it again.
    file: File,
}

impl PidFile {
    /// Writes the file.
    pub(crate) fn write(path: &Path) -> Result<Self, Problem> {
        let open = || -> io::Result<Self> {
            // Not emptied before it is ours: it may be another's.
            let file = sekisho_log::open_guarded(OFlags::WRONLY | OFlags::CREATE, path)?;
            Self::take_over(path, file)
        };
        open()
            .map_err(|error| Problem::new(format_args!("cannot write {}: {error}", path.display())))
    }

    /// Takes over a file that another process has opened.
    pub(crate) fn take_over(path: &Path, file: File) -> io::Result<Self> {
        lock(path, &file)?;
        let this = Self { path: path.to_owned(), place: path.to_owned(), file };
        this.say_ours()?;
        Ok(this)
    }

    /// The server is to end: a server that starts now may have the file.
    pub(crate) fn release(&self) {
        // What could not be locked need not be unlocked.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingUnlock);
    }

    /// Where it belongs.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes room for the file of a process that takes over.
    pub(crate) fn put_aside(&mut self) -> io::Result<()> {
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
    pub(crate) fn put_back(&mut self) -> io::Result<()> {
        if self.place != self.path {
            std::fs::rename(&self.place, &self.path)?;
            self.place.clone_from(&self.path);
        }
        self.say_ours()
    }

    /// The open file, for a process that takes over where it could not be put aside.
    pub(crate) fn share(&self) -> Option<(PathBuf, File)> {
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
fn lock(path: &Path, file: &File) -> io::Result<()> {
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
        Ok(pid) if pid != rustix::process::getpid() && stranger(pid).is_none() => {
            let number = pid.as_raw_nonzero();
            Err(io::Error::other(format!(
                "it belongs to process {number}, a running server: set another file with \"pid\""
            )))
        }
        _ => Ok(()),
    }
}

/// The server that a pid file names.
pub(crate) fn server(path: &Path) -> Result<Pid, Problem> {
    let pid = read(path).map_err(|error| {
        Problem::new(format_args!("no running server: {}: {error}", path.display()))
    })?;
    // A pid file that was left behind may name any process by now.
    let why = stranger(pid).or_else(|| {
        let has_it = has_open(pid, path).unwrap_or(true);
        (!has_it).then_some("which is a server with another pid file")
    });
    match why {
        None => Ok(pid),
        Some(why) => Err(Problem::new(format_args!(
            "no running server: {} names process {}, {why}",
            path.display(),
            pid.as_raw_nonzero(),
        ))),
    }
}

/// Why a process is no server that runs, if it is none.
fn stranger(pid: Pid) -> Option<&'static str> {
    let number = pid.as_raw_nonzero().to_string();
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    match state {
        None => Some("which does not run"),
        Some('Z' | 'X') => Some("which has ended"),
        Some(_) if is_server(pid) => None,
        Some(_) => Some("which is not a Sekisho server"),
    }
}

/// Whether a process is a server: it has our name, runs our file, or listens on the control socket of a server. After an
/// upgrade, or through a link, only the last may be so.
fn is_server(pid: Pid) -> bool {
    let number = pid.as_raw_nonzero().get().unsigned_abs();
    let name = |of: &str| std::fs::read_to_string(format!("/proc/{of}/comm")).ok();
    let file = |of: &str| identity(Path::new(&format!("/proc/{of}/exe")));
    let of = number.to_string();
    let is_alike =
        name(&of) == name("self") || file(&of).is_some_and(|it| Some(it) == file("self"));
    is_alike || matches!(local_socket::connect(number, Purpose::Control), Ok(Some(_)))
}

/// A file, by device and number.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

/// Whether a process has this file open; `None` where we may not know.
fn has_open(pid: Pid, path: &Path) -> Option<bool> {
    let wanted = identity(path)?;
    let open = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    Some(open.flatten().any(|entry| identity(&entry.path()) == Some(wanted)))
}

/// Sends a signal to a server.
pub(crate) fn signal(pid: Pid, name: SignalName) -> Result<(), Problem> {
    let signal = match name {
        SignalName::Stop => Signal::TERM,
        SignalName::Quit => Signal::QUIT,
        SignalName::Reload => Signal::HUP,
        SignalName::Reopen => Signal::USR1,
    };
    rustix::process::kill_process(pid, signal).map_err(|error| {
        Problem::new(format_args!("cannot signal process {}: {error}", pid.as_raw_nonzero()))
    })
}

fn read(path: &Path) -> io::Result<Pid> {
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
        let mut first = PidFile::write(path).expect("it takes everything");
        let second = PidFile::write(path).expect("no server owns it");
        first.put_aside().expect("nothing to do");
        first.put_back().expect("nothing to do");
        drop((first, second));
        assert!(path.exists() && !Path::new("/dev/null.oldbin").exists());
    }
}
