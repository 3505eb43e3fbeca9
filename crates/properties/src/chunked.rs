//! Body decoder: the same body and the same end for every cut; it never takes more than it is offered,
//! comes to rest, and reads what the encoder writes.

use crate::cuts;
use sekisho_http1::Cause;
use sekisho_http1::body::{Decoder, Progress};
use sekisho_http1::encode;
use sekisho_http1::parse::Framing;

/// The body, how many bytes it took on the wire, and how it ended. How much was taken before an error does
/// not matter: nothing after an error is looked at.
type Outcome = (Vec<u8>, Option<usize>, Result<Progress, Cause>);

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let (payload, seed) = cuts::split_seed(data);
    let framing = match seed >> 8 & 7 {
        0 => Framing::Length(u64::from(seed >> 16)),
        1 => Framing::Length(u64::MAX),
        _ => Framing::Chunked,
    };
    let max = match seed >> 11 & 3 {
        0 => u64::from(seed >> 24),
        _ => u64::MAX,
    };
    let mut first: Option<Outcome> = None;
    for pieces in cuts::ways(payload, seed) {
        let found = decode(framing, &pieces, max);
        assert!(found.0.len() as u64 <= max);
        if let Framing::Length(length) = framing {
            assert!(found.0.len() as u64 <= length);
        }
        match &first {
            None => first = Some(found),
            Some(first) => assert_eq!(*first, found, "the cut makes a difference"),
        }
    }
    encoded_is_decoded(payload, seed);
}

fn decode(framing: Framing, pieces: &[&[u8]], max: u64) -> Outcome {
    let Some(mut decoder) = Decoder::new(framing) else {
        return (Vec::new(), Some(0), Ok(Progress::End));
    };
    let (mut body, mut total, mut allowance) = (Vec::new(), 0, max);
    for piece in pieces {
        let mut rest = *piece;
        let mut looks = 0;
        loop {
            looks += 1;
            assert!(looks <= piece.len() + 2, "it does not come to rest");
            let decoded = match decoder.advance(rest, allowance) {
                Ok(decoded) => decoded,
                Err(cause) => return (body, None, Err(cause)),
            };
            assert!(decoded.taken <= rest.len(), "more was taken than offered");
            assert!(decoded.data.end <= decoded.taken && decoded.data.start <= decoded.data.end);
            assert!(decoded.data.len() as u64 <= allowance);
            allowance -= decoded.data.len() as u64;
            body.extend_from_slice(&rest[decoded.data]);
            total += decoded.taken;
            rest = &rest[decoded.taken..];
            match decoded.state {
                Progress::End | Progress::Over => {
                    // Once over, always over; and nothing more is taken.
                    let again = decoder.advance(rest, allowance);
                    assert!(
                        again.is_ok_and(|again| again.taken == 0 && again.state == decoded.state)
                    );
                    return (body, Some(total), Ok(decoded.state));
                }
                Progress::More if decoded.taken == 0 => break,
                Progress::More => {}
            }
        }
        assert!(rest.is_empty(), "with more to come, all that is offered is taken");
    }
    (body, Some(total), Ok(Progress::More))
}

fn encoded_is_decoded(body: &[u8], seed: u32) {
    let mut wire = Vec::new();
    let [_, _, pieces] = cuts::ways(body, seed.rotate_left(9));
    for piece in pieces {
        encode::chunk(&mut wire, piece);
    }
    wire.extend_from_slice(encode::LAST_CHUNK);
    let len = wire.len();
    wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let found = decode(Framing::Chunked, &[&wire], u64::MAX);
    assert_eq!(found, (body.to_vec(), Some(len), Ok(Progress::End)));
}
