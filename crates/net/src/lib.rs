//! Where bytes enter and leave: listening, the loop that drives a protocol engine, deadlines, workers.
//! Shell: it owns sockets, tasks and the clock, and decides nothing that a pure crate can decide.
#![forbid(unsafe_code)]

mod access_log;
mod activity;
mod admission;
mod buffers;
mod checks;
mod client_body;
pub mod clock;
mod compress;
mod connection;
pub mod counters;
mod debug_log;
mod direct_body;
mod dispatch;
mod drive;
mod error_context;
mod exchange;
mod fault_injection;
mod filter;
mod handshake;
pub mod heartbeat;
mod link;
mod list;
pub mod listen;
mod log_files;
pub mod memory_usage;
pub mod native;
pub mod observe;
mod output;
mod pace;
pub mod panic_report;
mod protocol;
pub mod query;
mod quic;
mod recode;
mod request_log;
pub mod request_stats;
mod respond;
mod route_view;
mod scheduler;
pub mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod site;

mod stream_session;
pub(crate) mod subrequest;
pub mod tls;
pub mod transport;
mod user_agent;
mod wake;
mod work;
pub mod worker;

pub use clock::Clock;
pub use counters::Counters;
pub use heartbeat::{Heartbeat, WakeAlarm, WatchedThread};
pub use listen::Sockets;
pub use panic_report::keep_panics_for_the_log;
pub use protocol::ProtocolKind;
pub use query::WorkerQuery;
pub use quic::process as quic_process;
pub use sekisho_handler::file_op::{forget_finished, leftovers};
pub use sekisho_handler::limits::Zones;
pub use sekisho_handler::upstream::Groups;
pub use site::Site;
pub use worker::{Worker, WorkerCommand};
