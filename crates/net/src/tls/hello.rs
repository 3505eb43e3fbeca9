//! The first message of a client, looked at before anything is answered: the name in it chooses whose certificate is
//! shown, and more. rustls reads it again afterwards.

use rustls::server::Acceptor;
use sekisho_route::Offered;

/// The type of a record that a handshake begins with.
const HANDSHAKE_RECORD: u8 = 22;

/// What has come so far.
#[derive(Debug)]
pub(crate) enum Peek {
    /// Not enough to say.
    More,
    /// The client speaks in the clear (S2).
    Clear,
    /// The name that it asks for, empty where it asks for none, and what it offers.
    Hello(String, Box<Offered>),
    /// No hello: an alert that says so, and why.
    Odd(Vec<u8>, rustls::Error),
}

/// The longest record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;

/// Looks at a complete first message that came without records (QUIC).
pub(crate) fn peek_message(message: &[u8]) -> Peek {
    let mut records = Vec::with_capacity(message.len() + 5);
    for part in message.chunks(RECORD_BYTES_MAX) {
        records.extend_from_slice(&[HANDSHAKE_RECORD, 3, 1]);
        records.extend_from_slice(&(part.len() as u16).to_be_bytes());
        records.extend_from_slice(part);
    }
    peek(&records)
}

/// Looks at all that has come.
pub(crate) fn peek(input: &[u8]) -> Peek {
    match input.first() {
        None => return Peek::More,
        // The lengths of hellos of SSL 2.0 begin with the highest bit.
        Some(first) if *first != HANDSHAKE_RECORD && *first < 0x80 => return Peek::Clear,
        Some(_) => {}
    }
    let mut acceptor = Acceptor::default();
    let mut left = input;
    while !left.is_empty() {
        if !matches!(acceptor.read_tls(&mut left), Ok(1..)) {
            let error = rustls::Error::General("a hello that is too long".to_owned());
            return Peek::Odd(Vec::new(), error);
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let name = hello.server_name().unwrap_or_default().to_owned();
                let groups = hello.named_groups().unwrap_or_default();
                let offered = Offered {
                    ciphers: hello.cipher_suites().iter().map(|it| u16::from(*it)).collect(),
                    groups: groups.iter().map(|it| u16::from(*it)).collect(),
                };
                return Peek::Hello(name, Box::new(offered));
            }
            Ok(None) => {}
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                // Writing to memory cannot fail.
                let _ = alert.write_all(&mut bytes);
                return Peek::Odd(bytes, error);
            }
        }
    }
    Peek::More
}
