//! The server's side of HTTP/3 (RFC 9114, QPACK RFC 9204, priorities RFC 9218; Q1–Q5). Pure: facts about streams and
//! the time go in, events come out. It owns no socket, task, file or clock, and knows no QUIC library: the connection
//! below it is a [`Quic`].
//!
//! What a driver does, over and over:
//!
//! 1. reports what happened to streams by [`Http3::opened`], [`Http3::readable`], [`Http3::writable`],
//!    [`Http3::stopped`] and [`Http3::delivered`];
//! 2. calls [`Http3::poll`] until it returns nothing, and acts on each event;
//! 3. while there is one, asks [`Http3::next_sendable`] and offers body bytes of that stream to [`Http3::body`];
//! 4. asks [`Http3::next_sent`] which responses have left;
//! 5. lets due deadlines act by [`Http3::expire`], and goes back to 2;
//! 6. ends each stream exactly once, by [`Http3::finish`] or [`Http3::reset`], also after
//!    [`Event::ClientLost`]: until then it counts as open;
//! 7. when [`Http3::is_idle`], calls [`Http3::shrink`].
#![forbid(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "frames and codes are written as the RFC writes them")]

pub mod budget;
pub mod code;
pub mod engine;
pub mod event;
pub mod frame;
pub mod policy;
pub mod qpack;
pub mod quic;
mod stream;

pub use budget::Bound;
pub use code::Code;
pub use engine::{Http3, Owner};
pub use event::{Event, Loss, StreamId};
pub use policy::Policy;
pub use quic::{Acknowledged, Quic, Read, Stopped};
pub use sekisho_http::refusal::Cause;
pub use sekisho_http::{BodyLength, Malformed, Rate, Refusal, Scratch, Sends};
