//! The one crate with unsafe code: calls that the machine offers and no safe crate does. Each block says
//! why it is sound.

mod socket;
mod spawn;

pub use socket::defer_accept;
pub use spawn::{Process, spawn};
