//! The process that a pid file names, and signals to it. `sekisho-parent` has the file itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, Signal};

use sekisho_parent::pid_file::read;

use crate::Problem;
use crate::cli::SignalName;
use crate::local_socket::{self, Purpose};

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

/// Whether a process is a server that runs.
pub(crate) fn is_running_server(pid: Pid) -> bool {
    stranger(pid).is_none()
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
