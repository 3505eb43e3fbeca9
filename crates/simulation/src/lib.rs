//! Whole worlds on virtual time: the server's driver, engines and lifecycle tables, clients, and a network that
//! cuts, delays and breaks. A world follows from its seed and nothing else, so that a failing seed plays again
//! exactly. `docs/simulation.md` says what is promised.
//!
//! No socket, file, thread or clock. Nothing here is part of the server.
#![forbid(unsafe_code)]

pub mod context;
pub mod fault;
pub mod http;
pub mod http2;
pub mod native;
pub mod network;
pub mod outcome;
pub mod rng;
pub mod schedule;

pub use fault::Fault;
pub use outcome::{Failure, RunStats, World, check};

/// How much of a world is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Only this client comes.
    pub only: Option<usize>,
    /// No client asks for more than this.
    pub asks_max: usize,
}

impl Scope {
    /// All of it.
    pub const WHOLE: Self = Self { only: None, asks_max: usize::MAX - 1 };
}
