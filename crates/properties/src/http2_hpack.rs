//! Header blocks of HTTP/2: our decoder gives what a second, simple reading of RFC 7541 gives, or both refuse; what
//! was decoded is the same after it was encoded and decoded again; the tables stay within their bounds.
//!
//! The bytes FE FF part one block from the next on the same connection.

use sekisho_http::Status;
use sekisho_http::huffman;
use sekisho_http2::hpack::table::{ENTRY_COST, STATIC, TABLE_BYTES};
use sekisho_http2::hpack::{Decoder, Encoder};

type Field = (Vec<u8>, Vec<u8>);

/// Holds decoder and encoder to it.
pub fn check(data: &[u8]) {
    let mut decoder = Decoder::default();
    let mut second = Second { entries: Vec::new(), max: TABLE_BYTES };
    let (mut encoder, mut reader) = (Encoder::default(), Decoder::default());
    for block in blocks(data) {
        let ours = read(&mut decoder, block);
        let theirs = second.read(block);
        assert_eq!(ours, theirs, "two readings of {}", block.escape_ascii());
        assert!(decoder.capacity() <= 5 * TABLE_BYTES);
        let Some(fields) = ours else { return };
        assert!(fields.len() <= block.len(), "more fields than bytes");
        let mut written = Vec::new();
        encoder.begin(&mut written);
        encoder.status(Status::OK, &mut written);
        for (name, value) in &fields {
            encoder.field(name, value, &mut written);
        }
        let again = read(&mut reader, &written).expect("what we encode can be decoded");
        assert_eq!(again[0], (b":status".to_vec(), b"200".to_vec()));
        assert_eq!(again[1..], fields[..], "encoded and decoded again");
        assert!(encoder.capacity() <= TABLE_BYTES);
    }
}

/// The parts of an input that FE FF separates.
pub(crate) fn blocks(data: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(2).position(|pair| pair == [0xfe, 0xff]) {
        blocks.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    blocks.push(rest);
    blocks
}

fn read(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let mut bytes = 0;
    let result = decoder.decode(block, &mut Vec::new(), |field| {
        // The engine counts the list size; here a bomb is only kept from filling the memory.
        bytes += field.name.len() + field.value.len();
        if bytes < 1 << 20 {
            fields.push((field.name.to_vec(), field.value.to_vec()));
        }
    });
    result.ok().map(|()| fields)
}

/// RFC 7541, read again and without haste. The newest entry is the last one.
struct Second {
    entries: Vec<Field>,
    max: usize,
}

impl Second {
    fn read(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        let mut at = 0;
        while at < block.len() {
            let first = block[at];
            if first >> 5 == 1 {
                let size = number(block, &mut at, 5)?;
                if !fields.is_empty() || size > TABLE_BYTES as u64 {
                    return None;
                }
                self.max = size as usize;
                self.evict(0);
                continue;
            }
            if first >> 7 == 1 {
                let index = number(block, &mut at, 7)?;
                fields.push(self.entry(index)?);
                continue;
            }
            let is_kept = first >> 6 == 1;
            let index = number(block, &mut at, if is_kept { 6 } else { 4 })?;
            let name = match index {
                0 => string(block, &mut at)?,
                // Our decoder looks an index up when it needs it, and refuses the block all the same.
                _ => self.entry(index).map(|(name, _)| name).unwrap_or_default(),
            };
            let value = string(block, &mut at)?;
            if index > 0 {
                self.entry(index)?;
            }
            fields.push((name.clone(), value.clone()));
            if is_kept {
                let cost = name.len() + value.len() + ENTRY_COST;
                self.evict(cost);
                if cost <= self.max {
                    self.entries.push((name, value));
                }
            }
        }
        Some(fields)
    }

    fn evict(&mut self, more: usize) {
        let cost = |entries: &[Field]| -> usize {
            entries.iter().map(|(name, value)| name.len() + value.len() + ENTRY_COST).sum()
        };
        while !self.entries.is_empty() && cost(&self.entries) + more > self.max {
            self.entries.remove(0);
        }
    }

    fn entry(&self, index: u64) -> Option<Field> {
        let index = usize::try_from(index).ok()?;
        if index == 0 {
            return None;
        }
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.to_vec(), value.to_vec()));
        }
        let at = self.entries.len().checked_sub(index - STATIC.len() + 1)?;
        self.entries.get(at).cloned()
    }
}

fn number(block: &[u8], at: &mut usize, prefix: u32) -> Option<u64> {
    let mask = (1_u64 << prefix) - 1;
    let mut number = u64::from(*block.get(*at)?) & mask;
    *at += 1;
    if number < mask {
        return Some(number);
    }
    for shift in [0, 7, 14, 21] {
        let byte = *block.get(*at)?;
        *at += 1;
        number += u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn string(block: &[u8], at: &mut usize) -> Option<Vec<u8>> {
    let is_huffman = *block.get(*at)? >= 0x80;
    let len = usize::try_from(number(block, at, 7)?).ok()?;
    let bytes = block.get(*at..at.checked_add(len)?)?;
    *at += len;
    if !is_huffman {
        return Some(bytes.to_vec());
    }
    let mut text = Vec::new();
    huffman::decode(bytes, &mut text).ok()?;
    // The code has one form for each string, padding included.
    let mut again = Vec::new();
    huffman::encode(&text, &mut again);
    assert_eq!(again, bytes, "a string that is encoded otherwise");
    Some(text)
}
