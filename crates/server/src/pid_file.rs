//! The pid file: written when the server listens, gone at its end, put aside for an upgrade; and signals
//! to whom it names.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};

use crate::Problem;
use crate::cli::SignalName;

/// What is put behind the name while a new process takes over, as nginx does.
const ASIDE: &str = ".oldbin";

/// Our pid file; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Where it is just now.
    place: PathBuf,
    /// Kept open: whoever we have become since may not open it again.
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

    /// Makes a file ours that somebody else has opened.
    pub(crate) fn take_over(path: &Path, file: File) -> io::Result<Self> {
        let this = Self { path: path.to_owned(), place: path.to_owned(), file };
        this.say_ours()?;
        Ok(this)
    }

    /// Where it belongs.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes room for the file of a process that takes over.
    pub(crate) fn put_aside(&mut self) -> io::Result<()> {
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

    /// Written first and cut after: when it cannot be written, what it said before is still there, which may
    /// well be the same.
    fn say_ours(&self) -> io::Result<()> {
        let line = format!("{}\n", std::process::id());
        self.file.write_all_at(line.as_bytes(), 0)?;
        self.file.set_len(line.len() as u64)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Whoever replaced it in the meantime keeps theirs.
        let is_ours = read(&self.place).is_ok_and(|pid| pid == rustix::process::getpid());
        if is_ours && std::fs::remove_file(&self.place).is_err() {
            // The folder is another user's; an empty file names nobody.
            let _ = self.file.set_len(0);
        }
    }
}

/// The server that a pid file names.
pub(crate) fn server(path: &Path) -> Result<Pid, Problem> {
    let pid = read(path).map_err(|error| {
        Problem::new(format_args!("no running server: {}: {error}", path.display()))
    })?;
    // A pid file that was left behind may name anybody by now.
    let name = |of: &str| std::fs::read_to_string(format!("/proc/{of}/comm")).ok();
    let number = pid.as_raw_nonzero().to_string();
    if name(&number) != name("self") {
        let path = path.display();
        return Err(Problem::new(format_args!(
            "no running server: {path} names process {number}, which is none"
        )));
    }
    Ok(pid)
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
    number.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("holds no process id"))
}
