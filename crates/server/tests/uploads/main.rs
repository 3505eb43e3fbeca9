//! Uploads, deletion and what else changes files, over the real binary: nothing is ever half there.

mod change;
#[path = "../common/mod.rs"]
mod common;
mod folders;
mod put;
mod resume;
mod store;
mod stuck_disk;
mod whole;
