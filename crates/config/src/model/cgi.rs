//! What the configuration says about CGI programs: which files are programs, and how they are run.

use std::sync::Arc;
use std::time::Duration;

use super::{Level, LogTarget, Template};

/// `cgi` and its companions, where anything is run at all.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the language")]
pub struct Cgi {
    /// Which files are programs: `cgi`, `cgi_pass`, or the listed extensions alone.
    pub programs: Programs,
    /// `cgi_extension`, the longest first.
    pub extensions: Arc<[CgiExtension]>,
    /// `cgi_interpreter`: for programs whose extension names none.
    pub interpreter: Option<Arc<Interpreter>>,
    /// `cgi_working_dir`; `None` for the program's own folder.
    pub working_dir: Option<Arc<Template>>,
    /// `cgi_path`
    pub path: Arc<[u8]>,
    /// `cgi_set_var`: these win over every other variable.
    pub variables: Arc<[(String, Template)]>,
    /// `cgi_stderr`
    pub stderr: CgiStderr,
    /// `cgi_body_only`
    pub body_only: bool,
    /// `cgi_strict`: a bad line in a program's head spoils it; otherwise the line is left out.
    pub strict: bool,
    /// `cgi_read_timeout`
    pub read_timeout: Option<Duration>,
    /// `cgi_timeout`: the whole run.
    pub timeout: Option<Duration>,
    /// `cgi_timeout`'s second argument: how much later it is killed; `None` for `kill_grace`.
    pub timeout_kill: Option<Duration>,
    /// `cgi_kill_grace`: from TERM to KILL.
    pub kill_grace: Duration,
    /// `cgi_max_processes`, counted over the whole server.
    pub max_processes: usize,
    /// `cgi_max_processes_per_address`: of these, for the requests of one client address.
    pub max_per_address: usize,
    /// `cgi_reserved_processes`: of these, only for locations that run fewer than so many.
    pub reserved: usize,
    /// `cgi_queue`: how many requests may wait for a process, over the whole server.
    pub queue: usize,
    /// `cgi_queue`'s second argument: how long one waits.
    pub queue_timeout: Option<Duration>,
    /// `cgi_request_buffering`: a program is started when its body is complete.
    pub request_buffering: bool,
    /// `cgi_pass_authorization`
    pub pass_authorization: bool,
    /// `cgi_head_max`
    pub head_bytes_max: usize,
    /// `cgi_x_accel_redirect`
    pub x_accel_redirect: bool,
    /// `cgi_leave_daemons`
    pub leaves_daemons: bool,
    /// `cgi_limits`
    pub limits: CgiLimits,
}

/// `cgi_limits`: how much one program may use; `None` for as much as the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CgiLimits {
    /// `memory=`: bytes of address space.
    pub memory_bytes: Option<u64>,
    /// `cpu=`: seconds on a processor.
    pub cpu_secs: Option<u64>,
    /// `file=`: bytes of each file that it writes.
    pub file_bytes: Option<u64>,
    /// `processes=`: processes and threads of the server's user, all counted.
    pub processes: Option<u64>,
    /// `files=`: open descriptors.
    pub descriptors: Option<u64>,
}

impl Cgi {
    /// Whether a regular file of this name is a program that is run at its own path. (The file of `cgi_pass`
    /// is one at any path.)
    pub fn is_program(&self, file: &[u8]) -> bool {
        match self.programs {
            Programs::All => true,
            Programs::ByExtension => self.extension_of(file).is_some(),
            Programs::One(_) => false,
        }
    }

    /// Whether a request for a file of this name starts a program: the file itself, or one that gets its path
    /// (`cgi_pass`).
    pub fn is_given(&self, file: &[u8]) -> bool {
        matches!(self.programs, Programs::One(_)) || self.is_program(file)
    }

    /// What the program in this file is run by; `None` when it is run itself.
    pub fn interpreter_of(&self, file: &[u8]) -> Option<&Interpreter> {
        let own = self.extension_of(file).and_then(|listed| listed.interpreter.as_ref());
        own.or(self.interpreter.as_ref()).map(|interpreter| &**interpreter)
    }

    /// The longest listed extension of the last segment of a path.
    pub fn extension_of(&self, file: &[u8]) -> Option<&CgiExtension> {
        self.extensions.iter().find(|listed| {
            let stem = file.strip_suffix(&*listed.extension);
            stem.and_then(<[u8]>::last).is_some_and(|last| *last != b'/')
        })
    }
}

impl Default for Cgi {
    /// Nothing at all: the ground on which the table's defaults are put.
    fn default() -> Self {
        Self {
            programs: Programs::ByExtension,
            extensions: Arc::default(),
            interpreter: None,
            working_dir: None,
            path: Arc::default(),
            variables: Arc::default(),
            stderr: CgiStderr::Off,
            body_only: false,
            strict: false,
            read_timeout: None,
            timeout: None,
            timeout_kill: None,
            kill_grace: Duration::ZERO,
            max_processes: 0,
            max_per_address: 0,
            reserved: 0,
            queue: 0,
            queue_timeout: None,
            request_buffering: false,
            pass_authorization: false,
            head_bytes_max: 0,
            x_accel_redirect: false,
            leaves_daemons: false,
            limits: CgiLimits::default(),
        }
    }
}

/// Which files are programs.
#[derive(Clone, Debug)]
pub enum Programs {
    /// `cgi on`: every regular file; none is ever sent as it is.
    All,
    /// Those with an extension that `cgi_extension` lists; others are sent.
    ByExtension,
    /// `cgi_pass`: this one, for everything.
    One(CgiPass),
}

/// `cgi_pass`
#[derive(Clone, Debug)]
pub struct CgiPass {
    /// The program's file.
    pub program: Arc<Template>,
    /// Its arguments.
    pub args: Arc<[Template]>,
    /// How much of the path is the program's own (`SCRIPT_NAME`): the path of the location that contains the
    /// directive, without a closing slash.
    pub prefix_bytes: usize,
}

/// One `cgi_extension`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgiExtension {
    /// With its dot.
    pub extension: Box<[u8]>,
    /// What such programs are run by; `None` for `cgi_interpreter`, or themselves.
    pub interpreter: Option<Arc<Interpreter>>,
}

/// What a program is run by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interpreter {
    /// Its file, absolute unless a variable begins it.
    pub program: Template,
    /// Arguments before the program's file.
    pub args: Vec<Template>,
}

/// `cgi_stderr`
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CgiStderr {
    /// Thrown away.
    Off,
    /// Into the error log, line by line, at this level.
    ErrorLog(Level),
    /// Appended to this file.
    To(LogTarget),
}
