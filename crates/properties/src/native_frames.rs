//! Frames of the native protocol: a server and a client take any stream; however it is cut, the events, the
//! answers and the end are the same, and the work is linear.
//!
//! The last four bytes of the input say where the rest is cut; a bit of them puts a handshake in front.

use crate::cuts;
use crate::native::shell::{client_takes, run};

/// `HELLO` of version 1, without a label.
const HELLO: [u8; 14] = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 1];

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let mut stream = Vec::new();
    if seed >> 31 == 0 {
        stream.extend_from_slice(&HELLO);
    }
    stream.extend_from_slice(payload);
    let whole = run(&stream, &[]);
    let drawn = [seed & 0x3f, seed >> 6 & 0x3f, seed >> 12 & 0x3f].map(|cut| cut as usize + 1);
    for cuts in [&[1][..], &drawn] {
        let (seen, wire, stage, looks) = run(&stream, cuts);
        assert_eq!(
            (&seen, &wire, stage),
            (&whole.0, &whole.1, whole.2),
            "the cut makes a difference"
        );
        assert!(looks <= 4 * stream.len() + 8, "the work is not linear");
    }
    client_takes(payload, drawn[0]);
}
