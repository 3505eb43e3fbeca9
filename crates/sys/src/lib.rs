//! The one crate with unsafe code: calls that the machine offers and no safe crate does. Each block says
//! why it is sound.

mod heap;
mod memory;
mod socket;
mod spawn;
mod watch;

pub use heap::{give_back as give_back_memory, heap};
pub use memory::SharedMemory;
pub use socket::{defer_accept, set_least_hops};
pub use spawn::{Process, spawn};
pub use watch::watch;
