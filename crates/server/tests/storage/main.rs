//! Object storage as root and as store, with a real S3 server that checks signatures (moto, from the Python package index).
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod odd;
mod reading;
mod store;
mod stored;
