//! Where input is cut. The places are drawn from the input itself, so that a finding is one file.

/// How many bytes at the end of an input say how the rest of it is cut.
const SEED_BYTES: usize = 4;

/// The payload, and the seed that its last bytes make.
pub fn split_seed(data: &[u8]) -> (&[u8], u32) {
    match data.split_last_chunk::<SEED_BYTES>() {
        Some((payload, seed)) => (payload, u32::from_le_bytes(*seed)),
        None => (data, 0),
    }
}

/// The ways in which a payload is offered: whole, byte by byte, and cut as the seed says.
pub fn ways(payload: &[u8], seed: u32) -> [Vec<&[u8]>; 3] {
    let whole = vec![payload];
    let single = payload.chunks(1).collect();
    [whole, single, drawn(payload, seed)]
}

fn drawn(mut payload: &[u8], seed: u32) -> Vec<&[u8]> {
    let longest = [2, 7, 40, 300][(seed & 3) as usize];
    let mut state = seed | 1;
    let mut pieces = Vec::new();
    while !payload.is_empty() {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let len = (state >> 16) as usize % longest + 1;
        let (piece, rest) = payload.split_at(len.min(payload.len()));
        pieces.push(piece);
        payload = rest;
    }
    pieces
}
