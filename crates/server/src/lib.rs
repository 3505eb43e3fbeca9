//! The `sekisho` program as a library: reads its arguments, and starts, tests or signals a server. A program that
//! has services of its own is this one with them:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     sekisho::run(|| {
//!         let mut services = sekisho::built_in_services();
//!         let hello = sekisho::service_fn(|_, response: sekisho::Response| async move {
//!             let _ = response.body(b"hello");
//!         });
//!         services.add(1000, "hello", hello).expect("the number and the name are free");
//!         services
//!     })
//! }
//! ```
//!
//! `location /hello/ { service hello; }` in its configuration is then the way to it over HTTP and gRPC; native sessions
//! call it by its number.
#![forbid(unsafe_code)]

mod background;
mod builtin;
mod certificates;
mod cli;
mod client_tls;
mod control_plane;
mod ctl;
mod daemon;
mod disk;
mod handover;
mod https;
mod inherit;
mod local_socket;
mod manual;
mod migrate;
mod opening;
mod parent_link;
mod parenting;
mod path_access;
mod pid_file;
mod privilege;
mod reload;
mod run;
mod sandbox;
mod serve;
mod service_manager;
mod setup;

mod cluster;
mod start;
mod startup_log;
mod stores;
mod sweep;
mod temp_folders;
mod terminal;
mod upgrade;
mod user;
mod watchdog;
mod workers;
mod writable_programs;

use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use sekisho_endpoint::Echo;
use sekisho_net::worker::ServiceFactory;

pub use sekisho_endpoint::{
    Answer, BodyStream, Caller, Channel, Code, Request, Response, Service, Services, Work,
    service_fn,
};

/// Runs the program with these services: they are made once for each worker, on its thread.
pub fn run(services: impl Fn() -> Services + Send + Sync + 'static) -> ExitCode {
    sekisho_sys::set_up_heap();
    sekisho_sys::unignore_signals();
    sekisho_net::keep_panics_for_the_log();
    // There is one program in a process.
    let _ = SERVICES.set(ServiceFactory(Arc::new(services)));
    match cli::parse().and_then(start::act) {
        Ok(code) => code,
        Err(problem) => {
            // If stderr cannot be written, that cannot be reported either.
            let _ = writeln!(std::io::stderr(), "{}: {problem}", cli::program_name());
            upgrade::tell_failure(&problem);
            parent_link::tell_failure(&problem);
            ExitCode::FAILURE
        }
    }
}

/// The services that the server itself has for every protocol.
pub fn built_in_services() -> Services {
    let mut services = Services::default();
    // The first one.
    let _ = services.add(Echo::NUMBER, "echo", Rc::new(Echo));
    services
}

/// The services of this program.
static SERVICES: OnceLock<ServiceFactory> = OnceLock::new();

/// Makes the services of a worker.
pub(crate) fn service_factory() -> ServiceFactory {
    SERVICES.get_or_init(|| ServiceFactory(Arc::new(built_in_services))).clone()
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
