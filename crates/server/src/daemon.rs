//! `daemon on`: the command starts the server in the background, waits until it serves and reports whether it does by
//! its exit status.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};

use sekisho_config::{Config, LogTarget};

use crate::Problem;
use crate::upgrade::Program;

/// Names the command in the environment of the server that it starts.
const DAEMON_OF: &str = "SEKISHO_DAEMON_OF";

/// Called when the server serves.
pub(crate) type WhenReady = Option<Box<dyn FnOnce()>>;

/// Whether this process is the server that a command has started.
pub(crate) fn is_background() -> bool {
    let named = env::var(DAEMON_OF).ok().and_then(|text| text.parse::<i32>().ok());
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    named.is_some() && named == parent
}

/// Starts the server and waits until it serves, or fails.
pub(crate) fn start() -> Result<ExitCode, Problem> {
    let failed = |error: io::Error| Problem::new(format_args!("cannot start the daemon: {error}"));
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Program::this().command()?;
    command.env(DAEMON_OF, std::process::id().to_string());
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    // The other end must be the server's alone.
    drop(command);
    if matches!(ours.read(&mut [0]), Ok(1)) {
        return Ok(ExitCode::SUCCESS);
    }
    // It has printed why.
    let status = child.wait().map_err(failed)?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Leaves the terminal of the command; returns what tells the command that the server serves.
pub(crate) fn leave_terminal() -> Result<WhenReady, Problem> {
    let leave = || -> io::Result<UnixStream> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        rustix::process::setsid()?;
        Ok(socket.into())
    };
    let mut command =
        leave().map_err(|error| Problem::new(format_args!("cannot become a daemon: {error}")))?;
    Ok(Some(Box::new(move || {
        // A command that was interrupted does not wait any more.
        let _ = command.write_all(b"1");
        close_stderr();
    })))
}

/// Whether standard error is used by a log.
pub(crate) fn logs_to_stderr(config: &Config) -> bool {
    let locations = config.blocks().flat_map(|block| &block.http.locations);
    let others = locations.flat_map(|location| location.settings.error_logs.iter());
    config.main.error_logs.iter().chain(others).any(|log| log.target == LogTarget::Stderr)
}

/// A server in the background does not hold the terminal of the command that started it.
pub(crate) fn close_stderr() {
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
}
