//! Seeing and controlling a running server: `sekisho ctl`, the `endpoint` block and its services, over the real
//! binary.

#[path = "../common/mod.rs"]
mod common;

#[path = "../common/authority.rs"]
mod authority;

mod access;
mod clients;
mod commands;
mod identity;
mod many;
mod memory;
mod mistakes;
mod overview;
mod secured;
mod services;
mod strangers;
mod support;
mod upstreams;
mod withdrawn;
