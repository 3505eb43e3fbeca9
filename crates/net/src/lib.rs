//! Where bytes enter and leave: listening, the loop that drives a protocol engine, deadlines, workers.
//! Shell: it owns sockets, tasks and the clock, and decides nothing that a pure room can decide.
#![forbid(unsafe_code)]

mod access_log;
mod admission;
mod wake;
mod buffers;
pub mod clock;
mod compress;
mod connection;
pub mod counters;
mod dispatch;
mod drive;
mod exchange;
mod route_view;
mod handshake;
pub mod query;
mod link;
mod list;
pub mod listen;
pub mod panic_report;
mod output;
mod pace;
mod protocol;
pub mod heartbeat;
mod request_log;
mod respond;
pub mod session;
pub mod site;
mod socket_file;
mod splice;
pub mod request_stats;
pub mod transport;
mod fault_injection;
mod scheduler;
pub mod memory_usage;
mod work;
pub mod worker;

pub use clock::Clock;
pub use counters::Counters;
pub use query::WorkerQuery;
pub use listen::Sockets;
pub use panic_report::keep_panics_for_the_log;
pub use protocol::ProtocolKind;
pub use heartbeat::Heartbeat;
pub use sekisho_handler::file_op::leftovers;
pub use sekisho_handler::limits::Zones;
pub use site::Site;
pub use worker::{WorkerCommand, Worker};
