//! Where the work of an `Action` is done: one file for each kind. Shell: it touches the file system,
//! never a client's socket. What it makes is a [`Reply`], which the driver sends.
#![forbid(unsafe_code)]

mod address;
pub mod answer;
pub mod cgi;
mod cold_file;
pub mod compress;
pub mod descriptors;
pub mod disk;
pub mod file_cache;
pub mod file_op;
pub mod filter;
mod hotness;
pub mod key_pair;
pub mod limits;
pub mod listing;
pub mod memory;
mod open_file;
pub mod password;
pub mod reply;
pub mod request_body;
pub mod service;
pub mod static_file;
pub mod status;
pub mod storage;
pub mod task;
mod temporary;
pub mod upstream;
pub mod wait;

pub use cold_file::FileTask;
pub use file_cache::{FileCache, View};
pub use open_file::OpenFile;
pub use reply::{Piece, Reply};
pub use task::{
    BodyIn, Describe, Outbox, Progress, SubrequestView, Task, UpstreamView, Work, Wrapper,
};
