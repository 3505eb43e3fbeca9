//! The native endpoint's protocol, both sides of it: frames, handshake, requests in slots, channels with
//! credit, cancel, shutdown and expiry. Bytes and the current time go in; events, bytes and deadlines come
//! out. It owns no socket, task, file or clock, and knows no service; the program around it, which does, is called
//! the shell.
//!
//! How sessions and requests live and die is not decided here: the tables of `sekisho_lifecycle` are,
//! on the server's side through its `Stay`. The wire form is in `docs/protocol.md` of the repository, byte by byte.
#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod code;
pub mod event;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod policy;
pub mod reader;
pub mod server;
pub mod violation;

pub use client::Client;
pub use code::Code;
pub use event::{ClientEvent, Event, Scratch};
pub use handshake::{Greeting, Secret, VERSION, Version};
pub use policy::Policy;
pub use server::Server;
pub use violation::Violation;
