//! What a NATS server sends: however it is cut, the operations and the end are the same, and what is held is bounded.
//!
//! The last four bytes of the input say where the rest is cut.

use sekisho_nats::{Address, Credentials, Decoder, Operation, Violation};

use crate::cuts;

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let [whole, rest @ ..] = cuts::ways(payload, seed).map(|pieces| run(&pieces));
    for cut in rest {
        assert_eq!(cut, whole, "the cut makes a difference");
    }
    let sizes = whole.0.iter().map(|operation| match operation {
        Operation::Message(message) => message.payload.len(),
        _ => 0,
    });
    assert!(sizes.sum::<usize>() <= payload.len(), "bytes come from nowhere");
    if let Ok(text) = std::str::from_utf8(payload) {
        // No secret is shown, whatever the text is.
        if let Ok(address) = Address::parse(text) {
            let again = Address::parse(&address.to_string()).expect("what is shown is an address");
            assert_eq!((again.host, again.port), (address.host, address.port));
        }
        let _ = Credentials::parse(text);
    }
}

fn run(pieces: &[&[u8]]) -> (Vec<Operation>, Option<Violation>) {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.next_operation() {
                Ok(Some(operation)) => seen.push(operation),
                Ok(None) => break,
                Err(violation) => return (seen, Some(violation)),
            }
        }
    }
    (seen, None)
}
