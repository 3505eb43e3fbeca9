//! Starting a process. Only what keeps the standard library on the `posix_spawn` path is used (no
//! `pre_exec`, no `uid`): the cost does not grow with the server's memory (C11). Every descriptor of ours
//! is close-on-exec, so the child sees three (C8).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use sekisho_config::{CgiStderr, LogTarget};
use sekisho_gateway::cgi::{Cause, Environment, Invocation};
use tokio::net::unix::pipe::{Receiver, Sender};

/// A program's own three descriptors come first; ours are never among them.
const FIRST_DESCRIPTOR: i32 = 3;

/// What a program reads.
#[derive(Debug)]
pub(super) enum Input {
    /// Nothing.
    Nothing,
    /// The request's body as it comes.
    Pipe,
    /// The request's body, gathered.
    File(File),
}

/// A process and our ends of its pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) child: Child,
    pub(super) stdin: Option<Sender>,
    pub(super) stdout: Receiver,
    pub(super) stderr: Option<OwnedFd>,
}

/// Whether we may run this file.
pub(super) fn is_executable(file: &[u8]) -> bool {
    rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Starts a program in a process group of its own.
pub(super) fn spawn(
    invocation: &Invocation,
    environment: &Environment,
    input: Input,
    stderr: &CgiStderr,
) -> Result<Pipes, (Cause, io::Error)> {
    let resources = |error: Errno| (Cause::NoResources, io::Error::from(error));
    let (stdout, child_stdout) = pipe_to_us().map_err(resources)?;
    let (stderr, child_stderr) = match stderr {
        CgiStderr::Off => (None, nothing(&WRITE_NOTHING, OFlags::WRONLY).map_err(resources)?),
        CgiStderr::ErrorLog => {
            let (ours, theirs) = pipe_to_us().map_err(resources)?;
            (Some(ours), Stdio::from(theirs))
        }
        CgiStderr::To(LogTarget::Stderr) => (None, Stdio::inherit()),
        CgiStderr::To(LogTarget::File(path)) => {
            let file = File::options().append(true).create(true).open(path);
            match file {
                Ok(file) => (None, Stdio::from(file)),
                Err(error) => return Err((Cause::NoResources, error)),
            }
        }
    };
    let (stdin, child_stdin) = match input {
        Input::Nothing => (None, nothing(&READ_NOTHING, OFlags::RDONLY).map_err(resources)?),
        Input::File(file) => (None, Stdio::from(file)),
        Input::Pipe => {
            let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(resources)?;
            (Some(ours), Stdio::from(theirs))
        }
    };
    let [program, rest @ ..] = invocation.args.as_slice() else {
        return Err((Cause::NotStarted, io::Error::other("no program")));
    };
    let mut command = Command::new(OsStr::from_bytes(&invocation.program));
    command
        .arg0(OsStr::from_bytes(program))
        .args(rest.iter().map(|argument| OsStr::from_bytes(argument)))
        .env_clear()
        .current_dir(OsStr::from_bytes(&invocation.directory))
        .process_group(0)
        .stdin(child_stdin)
        .stdout(child_stdout)
        .stderr(child_stderr);
    for variable in environment.iter() {
        let variable = variable.to_bytes();
        if let Some(split) = variable.iter().position(|byte| *byte == b'=') {
            let (name, value) = (&variable[..split], &variable[split + 1..]);
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    let child = command.spawn().map_err(|error| {
        let cause = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => Cause::NoResources,
            _ => Cause::NotStarted,
        };
        (cause, error)
    })?;
    match adopt(stdout, stdin) {
        Ok((stdout, stdin)) => Ok(Pipes { child, stdin, stdout, stderr }),
        Err(error) => {
            let mut child = child;
            let _ = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
            Err((Cause::NoResources, error))
        }
    }
}

/// Where nothing comes from, and where everything may go; opened once.
static READ_NOTHING: OnceLock<OwnedFd> = OnceLock::new();
static WRITE_NOTHING: OnceLock<OwnedFd> = OnceLock::new();

fn nothing(opened: &OnceLock<OwnedFd>, how: OFlags) -> Result<Stdio, Errno> {
    let fd = match opened.get() {
        Some(fd) => fd,
        None => {
            let fd = rustix::fs::open("/dev/null", how | OFlags::CLOEXEC, Mode::empty())?;
            opened.get_or_init(|| fd)
        }
    };
    Ok(Stdio::from(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_DESCRIPTOR)?))
}

/// A pipe whose reading end is ours.
fn pipe_to_us() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
}

/// Makes our ends non-blocking (theirs stay as they are) and known to the runtime.
fn adopt(stdout: OwnedFd, stdin: Option<OwnedFd>) -> io::Result<(Receiver, Option<Sender>)> {
    let non_blocking = |fd: OwnedFd| -> io::Result<OwnedFd> {
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        Ok(fd)
    };
    let stdout = Receiver::from_owned_fd_unchecked(non_blocking(stdout)?)?;
    let stdin = stdin.map(|fd| Sender::from_owned_fd_unchecked(non_blocking(fd)?)).transpose()?;
    Ok((stdout, stdin))
}
