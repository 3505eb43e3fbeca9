//! The client side of the NATS protocol (<https://docs.nats.io/reference/reference-protocols/nats-protocol>): what a
//! server sends, as operations; what a client sends, as bytes; and how a client proves who it is. No sockets here.
#![forbid(unsafe_code)]

mod address;
mod credentials;
mod operation;
mod send;
mod subject;

pub use address::{Address, AddressError};
pub use credentials::{Credentials, CredentialsError, SEED_BYTES, public_key};
pub use operation::{Decoder, Info, Message, Operation, Violation};
pub use send::{Connect, connect, ping, pong, publish, subscribe, unsubscribe};
pub use subject::is_token;
