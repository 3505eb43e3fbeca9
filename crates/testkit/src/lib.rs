//! For tests over the real binary and real sockets: a server on free ports, a client that sees every
//! byte, bounded waits. A test crate: whatever goes wrong here is a failed test, so it panics, and it
//! says what it saw. Nothing that ships may depend on it.
#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod dns;
pub mod files;
pub mod inject;
pub mod process;
pub mod program;
pub mod response;
pub mod server;

pub use client::{Client, End, ReadError};
pub use clock::{Stopwatch, eventually, now, pause, wait_for};
pub use dns::Dns;
pub use files::{Tree, noise};
pub use inject::Injected;
pub use program::{Background, Finished, have, python_with, run};
pub use response::{Framing, Response};
pub use rustix::process::Signal;
pub use server::{Server, as_root, free_port};
