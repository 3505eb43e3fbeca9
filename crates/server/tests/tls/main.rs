//! TLS over real sockets (S1–S4, V32): what is served, which client gets which certificate, and how
//! connections end.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../common/authority.rs"]
mod authority;
mod change;
mod checks;
mod chosen;
mod clients;
mod early;
mod ends;
mod goaway;
mod proxied;
mod serving;
mod staples;
mod support;
mod under_load;
