//! The `sekisho` program: reads its arguments, and starts, tests or signals a server.
#![forbid(unsafe_code)]

mod body_folders;
mod builtin;
mod certificates;
mod cli;
mod control_plane;
mod ctl;
mod disk;
mod handover;
mod https;
mod local_socket;
mod manual;
mod migrate;
mod opening;
mod path_access;
mod pid_file;
mod privilege;
mod reload;
mod run;
mod sandbox;
mod serve;
mod service_manager;
mod setup;
mod start;
mod startup_log;
mod stores;
mod sweep;
mod upgrade;
mod user;
mod watchdog;
mod workers;
mod writable_programs;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    sekisho_sys::set_up_heap();
    sekisho_net::keep_panics_for_the_log();
    match cli::parse().and_then(start::act) {
        Ok(code) => code,
        Err(problem) => {
            // If stderr cannot be written, that cannot be reported either.
            let _ = writeln!(std::io::stderr(), "sekisho: {problem}");
            upgrade::tell_failure(&problem);
            ExitCode::FAILURE
        }
    }
}

/// What keeps the program from doing what it was asked to: one clear text for the operator.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) String);

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Problem {
    /// A problem with this text.
    pub(crate) fn new(text: impl std::fmt::Display) -> Self {
        Self(text.to_string())
    }
}
