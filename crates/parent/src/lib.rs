//! The parent: the process that stays root. It reads the configuration, opens what the configuration names (texts,
//! certificates, keys, logs, folders, listening sockets, the pid file) and gives the descriptors to the worker process,
//! which runs as `user` and does everything else. It takes the signals, has the worker process reload and reopen, starts
//! a new one where it died, and hands over to a new parent at an upgrade.
//!
//! It never reads from the network or from a program, and opens nothing that the configuration does not name. The worker
//! process can say a few words to it (`delivery::Say`), and none of them has an argument that the parent acts on.
#![forbid(unsafe_code)]

mod delivery;
mod limits;
mod list;
pub mod notify;
pub mod pid_file;
mod reading;
mod sockets;
mod supervise;
mod upgrade;
mod wire;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use sekisho_config::{Config, ListenAddress, Options};

pub use delivery::{Delivery, GivenSocket, Link, Order, Say, WorkerUser, is_worker};
pub use reading::worker_user;
pub use supervise::run;
pub use upgrade::is_successor;
pub use wire::{Packet, address_text, parse_address};

/// Sockets that a service manager has opened.
pub type ManagedSockets = Vec<(ListenAddress, OwnedFd)>;

/// What a parent needs to know.
pub struct Setup {
    /// The main file of the configuration.
    pub main_file: PathBuf,
    /// How it is read.
    pub options: Options,
    /// The arguments of the worker process: our own.
    pub arguments: Vec<OsString>,
    /// What the worker process is called in a list of processes.
    pub worker_name: OsString,
    /// The listeners of the control socket, which the worker process serves.
    pub control: Vec<OwnedFd>,
    /// The sockets that a service manager has opened for addresses of the configuration.
    pub managed: fn(&Config) -> Result<ManagedSockets, String>,
    /// Starts the program that is now at this program's path.
    pub successor: Box<dyn Fn() -> Result<Command, String>>,
    /// Recognises a process that is a running server.
    pub is_server: fn(Pid) -> bool,
    /// Called once, when the server serves.
    pub when_ready: Box<dyn FnOnce()>,
}

/// The configuration, if it has no errors, as a parent reads it.
pub fn read(main_file: &std::path::Path, options: &Options) -> Option<Config> {
    reading::read(main_file, options).0
}

/// The time, since some point in the past.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
