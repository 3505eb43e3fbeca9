//! A response as a handler knows it, before any protocol frames it; and what a busy connection borrows for the
//! request in work. The same for every HTTP version.

use crate::fields::Fields;
use crate::head::Head;
use crate::request::is_name_byte;
use crate::status::Status;
use crate::token::is_value_byte;

/// The longest name that is made lower case without an allocation; there is none in use that is longer.
const NAME_BYTES_MAX: usize = 64;

/// What a busy connection borrows from its worker's pool.
#[derive(Default, Debug)]
pub struct Scratch {
    /// The head of the request that was received last.
    pub head: Head,
    /// Bytes that are to leave.
    pub out: Vec<u8>,
}

/// What the handler says about the length of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// There is none.
    Empty,
    /// So many bytes.
    Known(u64),
    /// Not known before the end.
    Unknown,
}

impl BodyLength {
    /// The length that a handler gave, if it did.
    pub const fn of(length: Option<u64>) -> Self {
        match length {
            Some(0) => Self::Empty,
            Some(length) => Self::Known(length),
            None => Self::Unknown,
        }
    }
}

/// How a response body leaves, as the protocol engine says when it has framed the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// Not at all: HEAD, 204, 304, an empty one.
    Nothing,
    /// So many bytes, through the engine, or by the shell itself where the transport can send files.
    Exactly(u64),
    /// Through the engine until the response is finished.
    Stream,
}

/// A response as the handler knows it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The final status.
    pub status: Status,
    /// Its fields; never `Content-Length`, `Transfer-Encoding`, `Connection`: framing is the protocol's.
    pub fields: &'a Fields,
    /// How long the body is.
    pub length: BodyLength,
}

/// Gives the name of a field in lower case, as HTTP/2 and HTTP/3 write it.
pub fn with_lower_name<R>(name: &[u8], write: impl FnOnce(&[u8]) -> R) -> R {
    if !name.iter().any(u8::is_ascii_uppercase) {
        return write(name);
    }
    let mut lower = [0; NAME_BYTES_MAX];
    match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            write(lower)
        }
        None => write(&name.to_ascii_lowercase()),
    }
}

/// Whether a handler's field, its name in lower case, may be written in a response of HTTP/2 or HTTP/3. Fields about the
/// connection and the length are the engine's.
pub fn is_response_field(name: &[u8], value: &[u8]) -> bool {
    let is_framing = matches!(
        name,
        b"connection"
            | b"content-length"
            | b"keep-alive"
            | b"proxy-connection"
            | b"transfer-encoding"
            | b"upgrade"
    );
    !is_framing
        && !name.is_empty()
        && name.iter().copied().all(is_name_byte)
        && value.iter().copied().fold(true, |all, byte| all & is_value_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_responses_are_well_formed_and_not_about_framing() {
        let long = [b'A'; 100];
        assert_eq!(with_lower_name(b"X-Name", <[u8]>::to_vec), b"x-name");
        assert_eq!(with_lower_name(&long, <[u8]>::to_vec), [b'a'; 100]);
        assert!(is_response_field(b"server", b"x y"));
        for (name, value) in
            [(&b"connection"[..], &b"x"[..]), (b"", b"x"), (b"a b", b"x"), (b"a", b"x\r\ny")]
        {
            assert!(!is_response_field(name, value), "{}", name.escape_ascii());
        }
    }
}
