//! Requests that are passed to other servers, over the real binary and real sockets (U1–U6).
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod backend;
mod bad_disk;
mod balance;
mod bodies;
mod body_first;
mod cache;
mod cache_hot;
mod cache_parts;
mod cache_upkeep;
mod dying;
mod failures;
mod full_disk;
mod gateway_cache;
mod gateways;
mod grpc;
mod health;
mod hostile;
mod http2_backend;
mod instead;
mod lengths;
mod names;
mod peers;
mod requests;
mod sticky;
mod stuck_disk;
mod temp_folders;
mod trailers;
mod tunnel;
mod tunnel_http2;
