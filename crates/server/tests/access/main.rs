//! Access checks over the wire: addresses, passwords, rates and connections. Where nginx is
//! installed, both answer the same requests alike.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod like_nginx;
mod passwords;
mod rates;
mod waiting;
