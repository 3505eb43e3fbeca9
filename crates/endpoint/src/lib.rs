//! Services over TCP, Unix sockets, shared memory and in-process, and live control of every session.
//!
//! A [`Service`] is called by its number with a [`Request`] and a [`Response`], and does not know the
//! transport. An [`Endpoint`] holds the services and the sessions of one thread; each session is one future
//! ([`Connection`]) that reads, lets the protocol's engine speak, polls the services that are at work and
//! writes, without a task or a lock between them. Nothing here is global: a worker owns its endpoint, and a
//! program may embed one. [`Client`] and [`blocking::Client`] are the other side.
//!
//! ```
//! use std::rc::Rc;
//! use sekisho_endpoint::{Client, Config, Echo, Endpoint, Services, loopback};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # tokio::task::LocalSet::new().block_on(&runtime, async {
//! let mut services = Services::default();
//! services.add(Echo::NUMBER, "echo", Rc::new(Echo)).unwrap();
//! let endpoint = Endpoint::new(Config::default(), services);
//! let (near, far) = loopback::pair();
//! tokio::task::spawn_local(endpoint.serve(far));
//! let client = Client::connect(near, "example").await.unwrap();
//! assert_eq!(client.call(Echo::NUMBER, b"hello").await.unwrap(), b"hello");
//! # });
//! ```
#![forbid(unsafe_code)]

mod address;
mod admission;
pub mod blocking;
mod client;
mod clock;
mod connect;
mod connection;
pub mod control;
mod core;
mod echo;
mod endpoint;
mod greetings;
pub mod http;
mod inbound;
pub mod ipc;
pub mod loopback;
mod new_request;
mod observer;
mod reconnect;
pub mod remote;
mod session;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;
mod watchdog;
mod working;

pub use address::{Address, NoAddress, TlsOptions};
pub use admission::{
    Admission, Admitted, Applicant, Authenticator, Decision, Evidence, OwnUser, SessionSlots,
};
pub use client::{Call, Client, Upload};
pub use connect::{AnyBlockingStream, AnyStream, connect, connect_blocking, connect_to};
pub use connection::Connection;
pub use core::{CallError, Options};
pub use echo::Echo;
pub use endpoint::{Config, Counters, Endpoint, FindError};
pub use new_request::NewRequest;
pub use observer::{Observer, Silent};
pub use reconnect::{Backoff, ReconnectingClient};
pub use session::{RequestInfo, SessionInfo};
pub use stream::{PeerCertificate, Stream};
pub use watchdog::{Heartbeat, StuckTurn, Watchdog};

pub use sekisho_lifecycle::stay::Bug;
pub use sekisho_lifecycle::{Budget, CloseReason, Manner, RequestId};
pub use sekisho_native::{Greeting, Policy, Secret};
pub use sekisho_service::{
    AcquireError, Answer, AnswerError, BlockingWork, BodyLost, BodyStream, Caller, Channel, Code,
    ControlAccess, DuplicateService, Held, HttpHead, Identity, IdentityMatch, OverBudget, Peer,
    Permissions, Request, RequestLimits, Response, Service, ServiceAccess, Services, Work,
    WriteError, service_fn, stream_service_fn,
};
