//! HTTP/2 over a byte stream, the server's side (RFC 9113, HPACK RFC 7541, priorities RFC 9218; M1–M5). Pure:
//! bytes and the time go in, events and bytes come out. It owns no socket, task, file or clock, and an idle
//! connection's engine holds little more than its tables of header fields.
#![forbid(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "frames and codes are written as the RFC writes them")]

pub mod budget;
pub mod code;
pub mod engine;
pub mod event;
pub mod frame;
pub mod hpack;
pub mod policy;
pub mod priority;
pub mod refusal;
mod request;
mod stream;

pub use budget::Bound;
pub use code::Code;
pub use engine::{Http2, Owner, Sendable};
pub use event::{BodyLength, Event, Loss, Scratch, Sends, StreamId, field_lines};
pub use policy::{Policy, Rate};
pub use refusal::{Cause, Malformed, Refusal};
