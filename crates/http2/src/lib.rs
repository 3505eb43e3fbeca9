//! HTTP/2 over a byte stream, both sides (RFC 9113, HPACK RFC 7541, priorities RFC 9218; M1–M5). Pure:
//! bytes and the time go in, events and bytes come out. It owns no socket, task, file or clock, and an idle
//! connection's engine holds little more than its tables of header fields.
//!
//! The client's side is [`client`]. What a driver of the server's side does, over and over:
//!
//! 1. offers input to [`receive`](sekisho_lifecycle::Engine::receive) until it comes to rest, and acts on each event; its
//!    buffer can grow to [`frame::INPUT_BYTES_MIN`];
//! 2. while the output has room, asks [`Http2::next_sendable`] and frames as much of that stream's body, by
//!    [`Http2::body`], by [`Http2::open_frame`] and [`Http2::close_frame`] around bytes that it reads, or by
//!    [`Http2::file_frame`] before bytes that the transport sends from a file;
//! 3. writes `scratch.out`, calls [`transmitted`](sekisho_lifecycle::Engine::transmitted), and asks
//!    [`Http2::next_sent`] which responses have left;
//! 4. lets due deadlines act by [`expire`](sekisho_lifecycle::Engine::expire), and goes back to 1 with whatever it has,
//!    nothing included: events and frames that arose meanwhile come out there;
//! 5. ends each stream exactly once, by [`Http2::finish`] or [`Http2::reset`], also after
//!    [`Event::ClientLost`]: until then it counts as open;
//! 6. when [`Http2::is_idle`], gives the scratch back and calls [`Http2::shrink`].
//!
//! `examples/serve.rs` is such a driver, in its simplest form.
#![forbid(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "frames and codes are written as the RFC writes them")]

pub mod budget;
pub mod client;
pub mod code;
pub mod engine;
pub mod event;
pub mod frame;
pub mod hpack;
pub mod policy;
mod stream;

pub use budget::Bound;
pub use client::Client;
pub use code::Code;
pub use engine::{Http2, Owner, Sendable};
pub use event::{Event, Loss, Scratch, StreamId};
pub use policy::Policy;
pub use sekisho_http::refusal::Cause;
pub use sekisho_http::{BodyLength, Malformed, Rate, Refusal, Sends};
