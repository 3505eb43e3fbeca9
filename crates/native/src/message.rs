//! The control messages, as protobuf. A field that a later version adds is skipped by an earlier one; a
//! number once given is never given to something else.

use std::fmt;

use prost::Message;

use crate::code::Code;
use crate::frame::{self, Head, Kind};

/// How long a text may be on the wire, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// How long the name of a service may be in a request, in bytes.
pub const SERVICE_NAME_BYTES_MAX: usize = 128;

/// The client's first message.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Hello {
    /// The protocol's major version that the client speaks.
    #[prost(uint32, tag = "1")]
    pub major: u32,
    /// The newest minor version that it knows.
    #[prost(uint32, tag = "2")]
    pub minor: u32,
    /// What the session is called in lists; may be empty.
    #[prost(string, tag = "3")]
    pub label: String,
    /// Which program it is; may be empty.
    #[prost(string, tag = "4")]
    pub application: String,
    /// A token; with a `user`, that user's password.
    #[prost(bytes = "vec", tag = "5")]
    pub credential: Vec<u8>,
    /// Whether the admin slot is asked for.
    #[prost(bool, tag = "6")]
    pub admin: bool,
    /// How many bytes of each channel the client is ready to hold; zero leaves it to the server.
    #[prost(uint32, tag = "7")]
    pub channel_bytes: u32,
    /// The longest payload that the client takes; zero leaves it to the server.
    #[prost(uint32, tag = "8")]
    pub frame_bytes_max: u32,
    /// Whose password the credential is; empty where it is a token.
    #[prost(string, tag = "9")]
    pub user: String,
    /// The client answers `PING` at any time, and wants to be asked after so long without a byte from it; zero for
    /// never (1.1).
    #[prost(uint32, tag = "16")]
    pub keepalive_millis: u32,
    /// The client takes all that it gave credit for: a channel's end needs no `DRAINED` (1.1).
    #[prost(bool, tag = "17")]
    pub drains_at_end: bool,
}

/// The credential is not shown.
impl fmt::Debug for Hello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hello")
            .field("version", &(self.major, self.minor))
            .field("label", &self.label)
            .field("application", &self.application)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The server's answer to it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Welcome {
    /// The major version that is spoken.
    #[prost(uint32, tag = "1")]
    pub major: u32,
    /// The minor version that both know.
    #[prost(uint32, tag = "2")]
    pub minor: u32,
    /// The session's number.
    #[prost(uint64, tag = "3")]
    pub session: u64,
    /// The longest payload, in both directions.
    #[prost(uint32, tag = "4")]
    pub frame_bytes_max: u32,
    /// How many requests may run at once.
    #[prost(uint32, tag = "5")]
    pub requests_max: u32,
    /// The window of each channel: the credit that it begins with.
    #[prost(uint32, tag = "6")]
    pub channel_bytes: u32,
    /// How long the session lives without traffic; zero for ever.
    #[prost(uint64, tag = "7")]
    pub session_timeout_millis: u64,
    /// After so long without a byte from the peer, either side sends `PING`; zero for never (1.1).
    #[prost(uint32, tag = "16")]
    pub keepalive_millis: u32,
    /// A channel counts as drained when it is released: the client sends `DRAINED` only where it wants no more (1.1).
    #[prost(bool, tag = "17")]
    pub drains_at_end: bool,
}

/// The server's last message.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Bye {
    /// Why, as a [`Code`]; zero when the client asked for it.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// Why, for people.
    #[prost(string, tag = "2")]
    pub text: String,
    /// The major version that would do.
    #[prost(uint32, tag = "3")]
    pub major: u32,
    /// And the minor.
    #[prost(uint32, tag = "4")]
    pub minor: u32,
}

/// An answer that is an error.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Failure {
    /// What went wrong, as a [`Code`].
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// What went wrong, for people.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// What a request has besides its body (1.1): sent immediately before it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestOptions {
    /// So long from now on the client waits for the answer; zero for ever.
    #[prost(uint64, tag = "1")]
    pub timeout_micros: u64,
    /// The service by its name, in place of its number; empty where the number says it.
    #[prost(string, tag = "2")]
    pub service: String,
    /// The body goes on after the request, in `DATA` frames.
    #[prost(bool, tag = "3")]
    pub body_follows: bool,
}

/// The client wants the session to end.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Shutdown {
    /// Whether running requests are cancelled.
    #[prost(bool, tag = "1")]
    pub forceful: bool,
}

/// The client wants the session to live longer, or knows now that it does.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Extension {
    /// For how long from now on.
    #[prost(uint64, tag = "1")]
    pub millis: u64,
}

impl Failure {
    /// An error with a text that fits.
    pub fn new(code: Code, text: &str) -> Self {
        Self { code: code.number(), text: fitting(text).to_owned() }
    }
}

/// As much of a text as may be on the wire.
pub fn fitting(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Appends a frame with a message in it.
pub fn write(out: &mut Vec<u8>, kind: Kind, slot: u16, message: &impl Message) {
    let length = message.encoded_len() as u32;
    Head { length, ..Head::of_slot(kind, slot) }.write(out);
    debug_assert!(length <= frame::CONTROL_BYTES_MAX);
    // A vector takes all there is: this cannot fail.
    let _ = message.encode(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(TEXT_BYTES_MAX);
        assert_eq!(fitting(&text).len(), TEXT_BYTES_MAX);
        assert_eq!(fitting(&format!("x{text}")).len(), TEXT_BYTES_MAX - 1);
        assert_eq!(fitting("short"), "short");
    }

    #[test]
    fn a_message_is_written_as_the_document_shows() {
        // docs/protocol.md has these bytes as its example.
        let mut out = Vec::new();
        let hello = Hello { major: 1, label: "ctl".into(), ..Hello::default() };
        write(&mut out, Kind::Hello, 0, &hello);
        assert_eq!(out, b"\x07\0\0\0\x01\0\0\0\0\0\0\0\x08\x01\x1a\x03ctl");
        assert_eq!(Hello::decode(&out[12..]), Ok(hello));
    }
}
