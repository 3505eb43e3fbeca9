//! Calls that Linux offers and no safe crate does: shared memory, processes, users, Landlock, datagrams,
//! signals. It is the one crate of
//! the project with unsafe code; each block says why it is sound.

mod datagram;
mod heap;
mod interface;
mod landlock;
mod memory;
mod process;
mod signals;
mod socket;
mod spawn;
mod user;
mod watch;

pub use datagram::{receive_datagram, send_datagram, tell_destination};
pub use heap::{
    forget_code, give_back as give_back_memory, heap, page_bytes, set_up as set_up_heap,
};
pub use interface::interface_addresses;
pub use landlock::{Right, Ruleset, landlock_version};
pub use memory::SharedMemory;
pub use process::session_of;
pub use signals::{signal_fd, unignore_signals};
pub use socket::{
    defer_accept, set_fast_open, set_least_hops, steer_by_connection_id, unacknowledged_bytes,
};
pub use spawn::{Limits, Process, spawn};
pub use user::{Account, account, become_account, group, groups_of};
pub use watch::watch;
