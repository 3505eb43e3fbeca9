//! What has broken other servers, tried on the real binary (docs/threats.md): where no scenario elsewhere does it.
//!
//! With `SEKISHO_LONG=1` the long forms run: 100,000 paths, 100,000 requests against a swap, ten times the rounds.
#![forbid(unsafe_code)]

#[path = "../background_load/mod.rs"]
mod background_load;
#[path = "../common/mod.rs"]
mod common;

mod bombs;
mod pairs;
mod paths;
mod requests;
mod smuggling;
