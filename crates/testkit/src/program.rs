//! Programs beside the server: whether an optional one is there, and a bounded run of one.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::clock::wait_for;
use crate::files::Tree;

/// Whether a program is installed. Says so when it is not: a test that needs it then returns.
pub fn have(program: &str) -> bool {
    let is_there = find(program, env::var_os("PATH").as_deref());
    if !is_there {
        println!("skipped: {program} is not installed");
    }
    is_there
}

fn find(program: &str, path: Option<&OsStr>) -> bool {
    let standard = ["/usr/sbin", "/sbin"].map(Into::into);
    path.into_iter().flat_map(env::split_paths).chain(standard).any(|folder| {
        folder
            .join(program)
            .metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// A Python that has this package: one in `folder`, into which it is installed from the package index where that can be
/// done, or the system's. If there is none, why.
pub fn python_with(package: &str, module: &str, folder: &str) -> Result<String, String> {
    const PATIENCE: Duration = Duration::from_mins(5);
    let own = format!("{folder}/bin/python");
    let import = format!("import {module}");
    let has_it = |python: &str| {
        Path::new(python).exists() && run(python, &["-c", &import], PATIENCE).code() == 0
    };
    if has_it(&own) {
        return Ok(own);
    }
    let mut why = "python3 makes no environment".to_owned();
    if have("python3") && run("python3", &["-m", "venv", folder], PATIENCE).code() == 0 {
        why = run(&own, &["-m", "pip", "install", "-q", package], PATIENCE).stderr;
    }
    let found = [&*own, "/usr/bin/python3"].into_iter().find(|python| has_it(python));
    found.map(str::to_owned).ok_or_else(|| format!("{package} cannot be installed: {why}"))
}

/// A program that runs beside a test. It has a process group of its own, and is killed with all of it when dropped: a
/// program with processes of its own (php-fpm, nginx) leaves none behind.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Starts it, without input.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        sekisho_sys::unignore_signals();
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end by a signal, and waits for that. Fails the test when it takes longer than `limit`.
    #[track_caller]
    pub fn end_by(&mut self, signal: Signal, limit: Duration) {
        let _ = kill_process(Pid::from_child(&self.0), signal);
        let is_over = || self.0.try_wait().is_ok_and(|status| status.is_some());
        assert!(wait_for(limit, is_over), "it does not end");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("a child of ours can be waited for")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail only for a program that has ended, which is what is wanted.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// What a program that has ended left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its output.
    pub stdout: String,
    /// All of its complaints.
    pub stderr: String,
}

impl Finished {
    /// Its exit status; 128 + n when signal n ended it, as a shell says it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// Runs a program to its end, without input. Fails the test when it takes longer than `limit`.
#[track_caller]
pub fn run(program: impl AsRef<OsStr>, arguments: &[&str], limit: Duration) -> Finished {
    let program = program.as_ref();
    let tree = Tree::new();
    sekisho_sys::unignore_signals();
    // Into files and not pipes: however much it writes, it cannot block on us.
    let file = |name: &str| File::create(tree.path(name)).expect("a file can be made");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", Path::new(program).display()));
    let mut status = None;
    let is_over = wait_for(limit, || {
        status = child.try_wait().expect("a child of ours can be waited for");
        status.is_some()
    });
    if !is_over {
        child.kill().ok();
        child.wait().ok();
    }
    let (stdout, stderr) = (tree.text("stdout"), tree.text("stderr"));
    let Some(status) = status else {
        let program = program.display();
        panic!("{program} {arguments:?} not over within {limit:?}:\n{stdout}\n{stderr}")
    };
    Finished { status, stdout, stderr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_named_as_missing() {
        assert!(have("sh"));
        assert!(!have("no-such-program-anywhere"));
    }

    #[test]
    fn a_run_brings_output_and_status() {
        let finished =
            run("sh", &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(10));
        assert_eq!(finished.code(), 3);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    #[should_panic(expected = "not over within")]
    fn a_run_that_takes_too_long_fails_the_test() {
        run("sleep", &["60"], Duration::from_millis(50));
    }
}
