//! The service `http` as its callers see it: its number and its messages.
//!
//! A request is a [`Request`]. The first record of the channel is the answer's [`Head`], the others are its
//! body; the result is [`Done`]. What no HTTP server could answer is an error.

use prost::Message;
use prost::bytes::Bytes;

/// The number under which servers offer it.
pub const NUMBER: u32 = 2;

/// An HTTP request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// Its method; `GET` if empty.
    #[prost(string, tag = "1")]
    pub method: String,
    /// What it asks for: a path, perhaps with a query; `/` if empty.
    #[prost(string, tag = "2")]
    pub target: String,
    /// Its fields, without those that frame the message. `Host` is `localhost` if not given.
    #[prost(message, repeated, tag = "3")]
    pub fields: Vec<Field>,
    /// Its body.
    #[prost(bytes = "bytes", tag = "4")]
    pub body: Bytes,
    /// The address that it comes to, as the configuration's `listen` has it; the first one if empty.
    #[prost(string, tag = "5")]
    pub address: String,
}

/// A field line.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Field {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The head of the answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Head {
    /// The status.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// The fields.
    #[prost(message, repeated, tag = "2")]
    pub fields: Vec<Field>,
}

/// The answer is complete.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Done {
    /// The status.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// How long the body was.
    #[prost(uint64, tag = "2")]
    pub body_bytes: u64,
}
