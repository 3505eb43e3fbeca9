//! The whole HTTP/1 engine, driven by a script. `cut` offers one stream in several ways and wants the same
//! of each; `world` plays a peer, a transport, a handler and a clock in any order and checks at each step
//! what must always be true; `wire` reads what has left as a client would.

pub mod cut;
pub mod wire;
pub mod world;

use std::sync::Arc;
use std::time::Duration;

use sekisho_http1::Policy;

/// Any cut gives the same events and answers; and in any order of bytes, time, answers and ends there is
/// exactly one answer for each request, a deadline for each side that is waited for, and one end, after which
/// nothing is written. The input is the stream of the peer, a byte 0xff, and the script of all other parts.
pub fn check(data: &[u8]) {
    let (stream, script) = split(data);
    let seed = script.iter().take(4).fold(0, |seed, byte| seed << 8 | u32::from(*byte));
    cut::check(stream, seed);
    world::check(stream, script);
}

/// What parts the stream of the peer from the script of all others.
const SEPARATOR: u8 = 0xff;

/// The stream, and the script.
pub fn split(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == SEPARATOR) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

/// Two policies with small limits and every deadline, as the bits say.
pub fn policies(bits: u8) -> [Arc<Policy>; 2] {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let base = Policy {
        header_timeout: seconds(5),
        body_timeout: seconds(7),
        body_min_rate: (bits & 1 != 0).then_some(10),
        keepalive_timeout: seconds(3),
        send_timeout: seconds(4),
        lingering_timeout: seconds(2),
        lingering_time: (bits & 2 != 0).then_some(Duration::from_secs(6)),
        keepalive_requests: if bits & 4 != 0 { 3 } else { 1000 },
        line_bytes_max: 64,
        field_bytes_max: 64,
        head_bytes_max: 256,
        fields_max: 6,
        body_discard_max: 40,
        half_close: bits & 8 != 0,
        keepalive_header_secs: (bits & 16 != 0).then_some(5),
        keepalive_time: None,
        sends_chunks: true,
    };
    let other = Policy {
        keepalive_timeout: (bits & 16 != 0).then_some(Duration::from_secs(1)),
        body_discard_max: if bits & 32 != 0 { 0 } else { 1000 },
        send_timeout: seconds(9),
        body_min_rate: Some(1),
        half_close: bits & 64 != 0,
        ..base.clone()
    };
    [Arc::new(base), Arc::new(other)]
}
