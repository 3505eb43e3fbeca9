//! The one crate with unsafe code: calls that the machine offers and no safe crate does. Each block says
//! why it is sound.

mod spawn;

pub use spawn::{Process, spawn};
