//! Where bytes enter and leave: listening, the loop that drives a protocol engine, deadlines, workers.
//! Shell: it owns sockets, tasks and the clock, and decides nothing that a pure room can decide.
#![forbid(unsafe_code)]

pub mod admission;
mod bell;
pub mod busy;
pub mod clock;
mod compress;
pub mod counters;
pub mod drive;
mod gates;
mod handshake;
pub mod inquiry;
mod list;
pub mod listen;
pub mod mishap;
mod pace;
pub mod pulse;
pub mod repeat;
pub mod serve;
pub mod session;
pub mod site;
mod sluice;
mod socket_file;
pub mod stream;
pub mod tally;
mod trial;
mod turns;
pub mod weigh;
mod work;
pub mod worker;

pub use clock::Clock;
pub use counters::Counters;
pub use inquiry::Inquiry;
pub use listen::Sockets;
pub use mishap::keep_panics_for_the_log;
pub use pulse::Pulse;
pub use sekisho_handler::deed::leftovers;
pub use sekisho_handler::limits::Zones;
pub use site::Site;
pub use worker::{Order, Worker};
