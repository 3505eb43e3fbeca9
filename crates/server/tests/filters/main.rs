//! Requests within requests, and filters of bodies, over the real binary and real sockets.
#![forbid(unsafe_code)]

#[path = "../proxy/backend.rs"]
#[allow(dead_code, reason = "shared with the tests of proxying")]
mod backend;
#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod copies;
mod like_nginx;
mod live;
mod pages;
mod permission;
mod slices;
