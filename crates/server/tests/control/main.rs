//! Seeing and controlling a running server: `sekisho ctl`, the `endpoint` block and its services, over the real
//! binary.

#[path = "../common/mod.rs"]
mod common;

mod access;
mod clients;
mod commands;
mod many;
mod memory;
mod mistakes;
mod overview;
mod services;
mod strangers;
mod support;
mod upstreams;
