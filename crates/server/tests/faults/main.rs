//! What happens when the machine fails: single calls (the sweep), a full disk, no descriptors, no memory, a
//! clock that jumps, a log without a reader, files that change under the server, and its own sudden death.
//! Over the real binary. What is covered, and the figures of a long run, are in `docs/faults.md`.

#[path = "../common/mod.rs"]
mod common;

mod inject;
mod lifecycle;
mod machine;
mod scenario;
mod slow_disk;
mod sweep;
