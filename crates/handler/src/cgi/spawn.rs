//! A program's process and our ends of its pipes. Every descriptor of ours is close-on-exec, and the child
//! sees three (C8).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use sekisho_config::{CgiLimits, CgiStderr, Level, LogTarget};
use sekisho_gateway::cgi::{Cause, Environment, Invocation};
use sekisho_sys::{Limits, Process};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::request_body::BodyFile;

/// What a program reads.
#[derive(Debug)]
pub(super) enum Input {
    /// Nothing.
    Nothing,
    /// The request's body as it comes.
    Pipe,
    /// The request's body, gathered in memory.
    Memory(Vec<u8>),
    /// The request's body, gathered in a file.
    File(BodyFile),
}

/// A process and our ends of its pipes. Its number is also its group's.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) process: Pid,
    /// Where the program's input is written, and what is to be written first.
    pub(super) stdin: Option<Sender>,
    pub(super) unwritten: Vec<u8>,
    /// The file that is its input. Its position shows how far the program has read.
    pub(super) input: Option<BodyFile>,
    pub(super) stdout: Receiver,
    /// And the level of what comes by it.
    pub(super) stderr: Option<(OwnedFd, Level)>,
}

/// A descriptor for the child.
enum Theirs {
    Own(OwnedFd),
    Shared(BorrowedFd<'static>),
}

impl AsFd for Theirs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Shared(fd) => fd.as_fd(),
        }
    }
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
    limits: CgiLimits,
) -> Result<Pipes, (Cause, io::Error)> {
    let resources = |error: Errno| (Cause::NoResources, io::Error::from(error));
    let (stdout, their_stdout) = pipe().map_err(resources)?;
    let (stderr, their_stderr) = match stderr {
        CgiStderr::Off => (None, Theirs::Shared(nothing().map_err(resources)?)),
        CgiStderr::ErrorLog(level) => {
            let (ours, theirs) = pipe().map_err(resources)?;
            (Some((ours, *level)), Theirs::Own(theirs))
        }
        // `cgi_stderr` reads no such target.
        CgiStderr::To(LogTarget::Syslog(_)) => {
            (None, Theirs::Shared(nothing().map_err(resources)?))
        }
        CgiStderr::To(LogTarget::Stderr) => {
            let copy = rustix::io::fcntl_dupfd_cloexec(io::stderr(), FIRST_OF_OURS);
            (None, Theirs::Own(copy.map_err(resources)?))
        }
        CgiStderr::To(LogTarget::File(path)) => {
            let file = File::options().append(true).create(true).open(path);
            (None, Theirs::Own(file.map_err(|error| (Cause::NoResources, error))?.into()))
        }
    };
    let (mut input_file, mut unwritten) = (None, Vec::new());
    let (stdin, their_stdin) = match input {
        Input::Nothing => (None, Theirs::Shared(nothing().map_err(resources)?)),
        Input::Pipe => {
            let (theirs, ours) = pipe().map_err(resources)?;
            (Some(ours), Theirs::Own(theirs))
        }
        Input::Memory(bytes) => {
            let (theirs, ours) = pipe().map_err(resources)?;
            unwritten = fill(&ours, bytes).map_err(resources)?;
            // As a rule all of it is in the pipe now, and its end behind it: nothing needs to be watched.
            ((!unwritten.is_empty()).then_some(ours), Theirs::Own(theirs))
        }
        Input::File(file) => {
            let copy = file.descriptor().and_then(|fd| fd.try_clone_to_owned());
            input_file = Some(file);
            (None, Theirs::Own(copy.map_err(|error| (Cause::NoResources, error))?))
        }
    };
    let descriptors = [their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
    let process = start(invocation, environment, descriptors, limits).map_err(|error| {
        let cause = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => Cause::NoResources,
            _ => Cause::NotStarted,
        };
        (cause, error)
    })?;
    match adopt(stdout, stdin) {
        Ok((stdout, stdin)) => {
            Ok(Pipes { process, stdin, unwritten, input: input_file, stdout, stderr })
        }
        Err(error) => {
            end(process);
            Err((Cause::NoResources, error))
        }
    }
}

/// Ends a process and its group here and now.
pub(super) fn end(process: Pid) {
    let _ = rustix::process::kill_process_group(process, Signal::KILL);
    let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
}

fn start(
    invocation: &Invocation,
    environment: &Environment,
    descriptors: [BorrowedFd<'_>; 3],
    limits: CgiLimits,
) -> io::Result<Pid> {
    let string = |bytes: &Vec<u8>| CString::new(bytes.as_slice());
    let program = string(&invocation.program)?;
    let directory = string(&invocation.directory)?;
    let arguments = invocation.args.iter().map(string).collect::<Result<Vec<CString>, _>>()?;
    let arguments: Vec<&CStr> = arguments.iter().map(CString::as_c_str).collect();
    let environment: Vec<&CStr> = environment.iter().collect();
    let pid = sekisho_sys::spawn(&Process {
        program: &program,
        arguments: &arguments,
        environment: &environment,
        directory: &directory,
        descriptors,
        limits: Limits {
            memory_bytes: limits.memory_bytes,
            cpu_secs: limits.cpu_secs,
            file_bytes: limits.file_bytes,
            processes: limits.processes,
            descriptors: limits.descriptors,
        },
    })?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("a process without a number"))
}

/// A program's own three descriptors come first; ours are never among them.
const FIRST_OF_OURS: i32 = 3;

/// Where nothing comes from and everything may go.
fn nothing() -> Result<BorrowedFd<'static>, Errno> {
    static NOTHING: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = NOTHING.get() {
        return Ok(fd.as_fd());
    }
    let fd = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(NOTHING.get_or_init(|| fd).as_fd())
}

/// The end that is read from, and the one that is written to.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
}

/// Writes as much into a pipe as it holds; the rest.
fn fill(pipe: &OwnedFd, mut bytes: Vec<u8>) -> Result<Vec<u8>, Errno> {
    rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::write(pipe, &bytes[written..]) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno),
        }
    }
    bytes.drain(..written);
    Ok(bytes)
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
