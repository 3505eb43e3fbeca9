//! The pid file: written when the server listens, removed at its end; and signals to whom it names.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

use crate::Problem;
use crate::cli::SignalName;

/// A pid file that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file.
    pub(crate) fn write(path: &Path) -> Result<Self, Problem> {
        let text = format!("{}\n", std::process::id());
        std::fs::write(path, text).map_err(|error| {
            Problem::new(format_args!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self(path.to_owned()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Whoever replaced it in the meantime keeps theirs.
        let is_ours = read(&self.0).is_ok_and(|pid| pid == rustix::process::getpid());
        if is_ours {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// Sends a signal to the server that a pid file names.
pub(crate) fn signal(path: &Path, name: SignalName) -> Result<(), Problem> {
    let pid = read(path).map_err(|error| {
        Problem::new(format_args!("no running server: {}: {error}", path.display()))
    })?;
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
