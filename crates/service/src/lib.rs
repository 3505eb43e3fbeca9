//! What a service is, whatever the protocol that calls it. A [`Service`] gets a [`Request`] (its head, its body, its
//! caller) and a [`Response`], through which it gives its one answer, opens a channel for results of any length and
//! sees that it is cancelled.
//!
//! This is the one contract between handlers and protocols: native sessions (`sekisho-endpoint`) and HTTP
//! servers call services through it, each behind a [`ResponseSink`]. It owns no
//! socket, thread or clock.
#![forbid(unsafe_code)]

mod body;
mod identity;
mod limits;
mod memory;
mod request;
mod response;
mod service;

pub use body::{BODY_ROOM_BYTES, BodyFeed, BodyLost, BodyStream, body_stream};
pub use identity::{
    AddressKey, ControlAccess, Identity, IdentityMatch, Permissions, ServiceAccess,
};
pub use limits::{RequestCounter, RequestLimits, RequestPermit, TooManyRequests};
pub use memory::{Held, OverBudget, SMALL_BODY_BYTES, SessionMemory};
pub use request::{Caller, HttpHead, Peer, Request};
pub use response::{Channel, Response, ResponseSink};
pub use service::{
    Answer, BlockingWork, DuplicateService, Service, Services, Work, service_fn, stream_service_fn,
};

pub use sekisho_native::Code;
pub use sekisho_native::server::{AcquireError, AnswerError, WriteError, Written};
