//! Rings of bytes in memory that is shared with an untrusted process.
//!
//! A ring goes one way: a [`Producer`] here, a [`Consumer`] there. Each side keeps its own position to itself
//! and only ever *tells* it through the memory; the other's position is read once into a local, checked, and
//! then used. So whatever the other side writes there, nothing is read or written beyond the ring, and what
//! comes out is bytes that were copied before they are looked at, or [`Corrupt`].
//!
//! A side that finds nothing to do sets a flag in the memory and looks once more before it sleeps; a side
//! that has done something looks whether the other sleeps, and reports that it must be woken
//! ([`Moved::must_wake`]). Between the two steps both sides have a fence, so one of them sees the other
//! (`tests/loom.rs`). Wakeups, descriptors and maps are the caller's affair: here is no unsafe code and no
//! system call.
#![forbid(unsafe_code)]

mod copy;
mod layout;
mod memory;
mod ring;

pub use copy::{get, put};
pub use layout::{CONTROL_BYTES, HEAD_BYTES, RING_BYTES_MAX, RING_BYTES_MIN, RingLayout, Rings};
pub use memory::{Memory, Word};
pub use ring::{Consumer, Corrupt, Moved, Producer, Read};
