//! Numbers and strings behind a prefix of some bits (RFC 7541 §5, RFC 9204 §4.1).

use crate::huffman::{self, BadHuffman};

/// Why a number or a string cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// More bytes are needed.
    CutShort,
    /// A number that is too large.
    Number,
    /// A string that is not well encoded.
    Huffman,
}

impl From<BadHuffman> for Unreadable {
    fn from(_: BadHuffman) -> Self {
        Self::Huffman
    }
}

/// Reads a number that has `prefix_bits` bits in its first byte, and at most `bytes_max` bytes behind it.
pub fn read_integer(
    input: &mut &[u8],
    prefix_bits: u32,
    bytes_max: u32,
) -> Result<u64, Unreadable> {
    debug_assert!(bytes_max <= 8, "a number has at most 56 bits behind its prefix");
    let (&first, mut rest) = input.split_first().ok_or(Unreadable::CutShort)?;
    let mask = (1_u64 << prefix_bits) - 1;
    let mut number = u64::from(first) & mask;
    if number == mask {
        let mut shift = 0;
        loop {
            let (&byte, behind) = rest.split_first().ok_or(Unreadable::CutShort)?;
            rest = behind;
            if shift >= 7 * bytes_max {
                return Err(Unreadable::Number);
            }
            number += u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    Ok(number)
}

/// Reads the bytes of a string, whose length has `prefix_bits` bits in its first byte, and whether they are Huffman
/// coded: the bit before the length.
pub fn read_string<'a>(
    input: &mut &'a [u8],
    prefix_bits: u32,
    bytes_max: u32,
) -> Result<(&'a [u8], bool), Unreadable> {
    let is_huffman = input.first().is_some_and(|first| first >> prefix_bits & 1 != 0);
    let mut rest = *input;
    let len = read_integer(&mut rest, prefix_bits, bytes_max)?;
    let len = usize::try_from(len).map_err(|_| Unreadable::Number)?;
    let (bytes, rest) = rest.split_at_checked(len).ok_or(Unreadable::CutShort)?;
    *input = rest;
    Ok((bytes, is_huffman))
}

/// Writes a number; `pattern` are the bits before its prefix.
pub fn write_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, number: u64) {
    let mask = (1_u64 << prefix_bits) - 1;
    if number < mask {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a string, Huffman coded where it has at least `huffman_min` bytes and becomes shorter so; `pattern` are the
/// bits before the one that says which.
pub fn write_string(
    out: &mut Vec<u8>,
    pattern: u8,
    prefix_bits: u32,
    text: &[u8],
    huffman_min: usize,
) {
    if text.len() >= huffman_min {
        let len = huffman::encoded_len(text);
        if len < text.len() {
            write_integer(out, pattern | 1 << prefix_bits, prefix_bits, len as u64);
            return huffman::encode(text, out);
        }
    }
    write_integer(out, pattern, prefix_bits, text.len() as u64);
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_come_back() {
        // RFC 7541 C.1
        let mut out = Vec::new();
        write_integer(&mut out, 0, 5, 1337);
        assert_eq!(out, [0x1f, 0x9a, 0x0a]);
        for prefix_bits in 3..=8 {
            for number in [0, 1, 6, 7, 8, 126, 127, 128, 254, 255, 256, 1 << 20, 1 << 56] {
                let mut out = Vec::new();
                write_integer(&mut out, 0, prefix_bits, number);
                for len in 0..out.len() {
                    let cut = read_integer(&mut &out[..len], prefix_bits, 8);
                    assert_eq!(cut, Err(Unreadable::CutShort));
                }
                assert_eq!(read_integer(&mut &out[..], prefix_bits, 8), Ok(number));
            }
        }
        let long = [0xff, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(read_integer(&mut &long[..], 7, 4), Err(Unreadable::Number));
        assert!(read_integer(&mut &long[..], 7, 5).is_ok());
    }

    #[test]
    fn strings_are_coded_where_that_is_shorter() {
        for (text, huffman_min) in
            [(&b""[..], 0), (b"www.example.com", 0), (b"www", 64), (b"\0", 0)]
        {
            let mut out = Vec::new();
            write_string(&mut out, 0x40, 5, text, huffman_min);
            let (bytes, is_huffman) = read_string(&mut &out[..], 5, 4).expect("complete");
            let mut decoded = Vec::new();
            if is_huffman {
                huffman::decode(bytes, &mut decoded).expect("well encoded");
            } else {
                decoded.extend_from_slice(bytes);
            }
            assert_eq!((decoded.as_slice(), out[0] & 0xc0), (text, 0x40));
            let cut = read_string(&mut &out[..out.len() - 1], 5, 4);
            assert_eq!(cut, Err(Unreadable::CutShort));
        }
    }
}
