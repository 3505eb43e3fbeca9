//! Seeing and controlling a running server: `sekisho ctl`, the `endpoint` block and its services, over the real
//! binary.

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod many;
mod memory;
mod mistakes;
mod access;
mod services;
mod commands;
mod support;
