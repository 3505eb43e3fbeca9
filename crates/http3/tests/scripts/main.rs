//! Scripts on virtual time: what the client does to streams, what the handlers say, and what leaves.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by a panic")]

mod abuse;
mod bodies;
mod control;
mod cuts;
mod deadlines;
mod harness;
mod qpack;
mod requests;
mod sending;
mod shutdown;
mod tunnels;
