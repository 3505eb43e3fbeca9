//! HTTP/1.0 and 1.1 over a byte stream (H1–H13, T1–T8). Pure: bytes and the time go in, events and
//! bytes come out. It owns no socket, task, file or clock, and an idle connection's engine holds no
//! heap memory of its own.
#![forbid(unsafe_code)]

pub mod body;
pub mod client;
pub mod encode;
pub mod engine;
pub mod event;
pub mod frame;
pub mod keep_alive;
pub mod parse;

pub use client::Client;
pub use engine::Http1;
pub use event::Event;
pub use sekisho_http::refusal::Cause;
pub use sekisho_http::{BodyLength, Policy, Refusal, Response, Scratch, Sends};
