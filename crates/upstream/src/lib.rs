//! Which server of a group is asked, whether another one is asked after a failure, which connections are
//! kept, and which answers (U1–U5). Pure: facts, numbers and the time come in, decisions go out. State that
//! all workers share is protected by one small lock for each group; nothing blocks while it is held.
#![forbid(unsafe_code)]

pub mod balance;
pub mod cache;
pub mod fields;
pub mod health;
pub mod keepalive;
mod lru;
pub mod request;
pub mod resolve;
pub mod retry;
pub mod rewrite;

pub use balance::{Balancer, Method, PeerSettings, Selection};
