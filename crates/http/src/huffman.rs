//! The Huffman code of HPACK and QPACK (RFC 7541 Appendix B). The code is canonical, so that the lengths of its words
//! say everything; the tables are made from them when this is compiled.

use std::fmt;

/// A string that is not well encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadHuffman;

impl fmt::Display for BadHuffman {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("string in a header block is encoded wrongly")
    }
}

impl std::error::Error for BadHuffman {}

/// How long the word of each byte is, in bits; the last one is the end of the string, which never occurs.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LENGTH_MAX: usize = 30;
const END: u16 = 256;

/// Words of up to so many bits, which are those of all bytes that occur often, are found in one look.
const QUICK_BITS: u32 = 10;

struct Tables {
    /// The word of each symbol.
    words: [u32; 257],
    /// For the next `QUICK_BITS` bits: the byte, and how many bits its word has; 0 bits for a longer word.
    quick: [(u8, u8); 1 << QUICK_BITS],
    /// For each length: the first word of it, and the index of its symbol in `symbols`.
    first: [(u32, u16); LENGTH_MAX + 2],
    /// All symbols in the order of their words.
    symbols: [u16; 257],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        words: [0; 257],
        quick: [(0, 0); 1 << QUICK_BITS],
        first: [(0, 0); LENGTH_MAX + 2],
        symbols: [0; 257],
    };
    let (mut word, mut at, mut length) = (0_u32, 0, 1);
    while length <= LENGTH_MAX {
        word <<= 1;
        tables.first[length] = (word, at as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                tables.words[symbol] = word;
                tables.symbols[at] = symbol as u16;
                if length as u32 <= QUICK_BITS {
                    let step = QUICK_BITS - length as u32;
                    let mut entry = (word << step) as usize;
                    while entry < ((word + 1) << step) as usize {
                        tables.quick[entry] = (symbol as u8, length as u8);
                        entry += 1;
                    }
                }
                word += 1;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    tables.first[LENGTH_MAX + 1] = (word << 1, at as u16);
    tables
}

/// Decodes a string and puts it behind what `out` holds. The bits behind the last word must be fewer than
/// eight, and all ones (RFC 7541 §5.2).
pub fn decode(mut input: &[u8], out: &mut Vec<u8>) -> Result<(), BadHuffman> {
    // No word is shorter than five bits.
    out.reserve(input.len() * 8 / 5 + 1);
    let mut bits = 0_u64;
    let mut count = 0_u32;
    loop {
        if let Some(chunk) = input.first_chunk::<4>().filter(|_| count <= 32) {
            bits |= u64::from(u32::from_be_bytes(*chunk)) << (32 - count);
            count += 32;
            input = &input[4..];
        } else {
            while let (Some((byte, rest)), true) = (input.split_first(), count <= 56) {
                bits |= u64::from(*byte) << (56 - count);
                count += 8;
                input = rest;
            }
        }
        // With 30 bits there is a whole word; with fewer, only at the end.
        while count >= LENGTH_MAX as u32 {
            let (byte, length) = next(bits)?;
            out.push(byte);
            bits <<= length;
            count -= length;
        }
        if input.is_empty() {
            break;
        }
    }
    while count > 0 {
        // What is left may be the padding: ones, which begin no word of fewer than eight bits.
        let padding = u64::MAX << (64 - count);
        if count < 8 && bits & padding == padding {
            return Ok(());
        }
        let (byte, length) = next(bits)?;
        if length > count {
            return Err(BadHuffman);
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
    Ok(())
}

/// The byte whose word the bits begin with, and how long the word is.
fn next(bits: u64) -> Result<(u8, u32), BadHuffman> {
    let (byte, length) = TABLES.quick[(bits >> (64 - QUICK_BITS)) as usize];
    if length > 0 {
        return Ok((byte, u32::from(length)));
    }
    for length in QUICK_BITS as usize + 1..=LENGTH_MAX {
        let word = (bits >> (64 - length)) as u32;
        let (first, at) = TABLES.first[length];
        let many = u32::from(TABLES.first[length + 1].1 - at);
        if word.wrapping_sub(first) < many {
            let symbol = TABLES.symbols[usize::from(at) + (word - first) as usize];
            return if symbol == END { Err(BadHuffman) } else { Ok((symbol as u8, length as u32)) };
        }
    }
    Err(BadHuffman)
}

/// How many bytes a string takes when it is encoded.
pub fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Encodes a string.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let mut bits = 0_u64;
    let mut count = 0_u32;
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(TABLES.words[usize::from(byte)]);
        count += length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, BadHuffman> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    #[test]
    fn words_are_those_of_the_rfc() {
        // RFC 7541 Appendix B: the first, the last and some between.
        let rows = [
            (0, 0x1ff8),
            (1, 0x7f_ffd8),
            (10, 0x3fff_fffc),
            (48, 0x0),
            (97, 0x3),
            (92, 0x7fff0),
            (126, 0x1ffd),
            (249, 0xfff_fffe),
            (255, 0x3ff_ffee),
            (256, 0x3fff_ffff),
        ];
        for (symbol, word) in rows {
            assert_eq!(TABLES.words[symbol], word, "{symbol}");
        }
    }

    #[test]
    fn every_byte_comes_back_alone_and_among_others() {
        for byte in 0..=u8::MAX {
            for text in [vec![byte], vec![byte; 7], [b"abc".as_slice(), &[byte], b"xyz0"].concat()]
            {
                let mut out = Vec::new();
                encode(&text, &mut out);
                assert_eq!(out.len(), encoded_len(&text));
                assert_eq!(decoded(&out), Ok(text));
            }
        }
    }

    #[test]
    fn padding_is_short_and_all_ones_and_the_end_does_not_occur() {
        // RFC 7541 §5.2
        assert_eq!(decoded(b""), Ok(Vec::new()));
        assert_eq!(decoded(&[0x07]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0x06]), Err(BadHuffman));
        assert_eq!(decoded(&[0xff]), Err(BadHuffman));
        assert_eq!(decoded(&[0x07, 0xff]), Err(BadHuffman));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(BadHuffman));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(BadHuffman));
    }
}
