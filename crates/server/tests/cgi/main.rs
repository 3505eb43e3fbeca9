//! CGI over the real binary, real programs and real sockets (C1–C12, T9).
//!
//! With `SEKISHO_LONG=1` the long forms run: 10,000 aborted requests, bodies of 100 MB.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod abort;
mod bodies;
mod environment;
mod limits;
mod locations;
mod recipes;
mod support;
mod table;
