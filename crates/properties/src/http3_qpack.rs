//! QPACK: our decoder gives what a second, simple reading of RFC 9204 gives, or both refuse; what was decoded is the
//! same after it was encoded and decoded again, with acknowledgements in any order; the tables stay within their bounds.
//!
//! The bytes FE FF part the input: into instructions of the encoder and header blocks, in turns.

use sekisho_http::compression::prefixed::write_integer;
use sekisho_http::compression::table::ENTRY_COST;
use sekisho_http::{Status, huffman};
use sekisho_http3::qpack::table::STATIC;
use sekisho_http3::qpack::{Decoder, Encoder, Section};

use crate::http2_hpack::blocks;

type Field = (Vec<u8>, Vec<u8>);

const CAPACITY: usize = 300;

/// Holds decoder and encoder to it.
pub fn check(data: &[u8]) {
    let mut decoder = Decoder::new(CAPACITY);
    let mut second = Second::default();
    let (mut encoder, mut reader) = (Encoder::default(), Decoder::new(CAPACITY));
    encoder.set_peer_max(CAPACITY as u64, 200);
    let mut stream = 0;
    for (at, part) in blocks(data).into_iter().enumerate() {
        if at % 2 == 0 {
            let ours = part
                .chunks(at % 5 + 1)
                .try_for_each(|bytes| decoder.receive(bytes, &mut Vec::new(), None).map(|_| ()));
            let theirs = second.instructions(part);
            assert_eq!(ours.is_ok(), theirs.is_some(), "{} {ours:?}", part.escape_ascii());
            if theirs.is_none() {
                return;
            }
            assert_eq!(decoder.inserted(), second.entries.len() as u64);
            assert!(decoder.capacity() <= 16 * CAPACITY, "{}", decoder.capacity());
            continue;
        }
        let ours = read(&decoder, part);
        let theirs = second.block(part);
        assert_eq!(ours, theirs, "two readings of {}", part.escape_ascii());
        let Some((Section::Decoded(_), fields)) = ours else { continue };
        assert!(fields.len() <= part.len(), "more fields than bytes");
        stream += 4;
        again(&mut encoder, &mut reader, stream, &fields);
    }
}

fn read(decoder: &Decoder, block: &[u8]) -> Option<(Section, Vec<Field>)> {
    let mut fields = Vec::new();
    let section = decoder.decode(block, &mut Vec::new(), |field| {
        fields.push((field.name.to_vec(), field.value.to_vec()));
    });
    Some((section.ok()?, fields))
}

/// Fields are the same when they were encoded and decoded again.
fn again(encoder: &mut Encoder, reader: &mut Decoder, stream: u64, fields: &[Field]) {
    let (mut lines, mut block) = (Vec::new(), Vec::new());
    encoder.begin();
    encoder.status(Status::OK, &mut lines);
    for (name, value) in fields {
        if let Some(literal) = encoder.indexed(name, value, &mut lines) {
            encoder.literal(literal, name, value, &mut lines);
        }
    }
    encoder.end(stream, &mut block);
    block.extend_from_slice(&lines);
    let instructions = encoder.take_instructions();
    reader.receive(&instructions, &mut Vec::new(), None).expect("our own instructions");
    let (section, seen) = read(reader, &block).expect("what we encode can be decoded");
    assert_eq!(seen[0], (b":status".to_vec(), b"200".to_vec()));
    assert_eq!(seen[1..], fields[..], "encoded and decoded again");
    let mut told = Vec::new();
    if section != Section::Decoded(0) {
        let (pattern, bits) = if stream % 3 == 0 { (0x40, 6) } else { (0x80, 7) };
        write_integer(&mut told, pattern, bits, stream);
    }
    let increment = reader.take_increment();
    if increment > 0 {
        write_integer(&mut told, 0, 6, increment);
    }
    let mut rest = &told[..];
    while !rest.is_empty() {
        assert_eq!(encoder.acknowledge(&mut rest), Ok(true));
    }
    assert!(encoder.capacity() <= 16 * 1024, "{}", encoder.capacity());
}

/// RFC 9204, read again and without haste: all entries that ever were, the oldest first.
#[derive(Default)]
struct Second {
    entries: Vec<Field>,
    /// How many of the oldest are evicted.
    evicted: usize,
    capacity: usize,
    partial: Vec<u8>,
}

impl Second {
    fn instructions(&mut self, bytes: &[u8]) -> Option<()> {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        let mut at = 0;
        while at < bytes.len() {
            let mut end = at;
            match self.instruction(&bytes, &mut end) {
                Ok(()) => at = end,
                Err(Cut::Short) => break,
                Err(Cut::Wrong) => return None,
            }
        }
        self.partial = bytes[at..].to_vec();
        Some(())
    }

    fn instruction(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), Cut> {
        let first = bytes[*at];
        if first >> 7 == 1 {
            let index = number(bytes, at, 6)?;
            let value = string(bytes, at, 7, 4 * CAPACITY)?;
            let (name, _) = if first >> 6 & 1 == 1 { fixed(index)? } else { self.newest(index)? };
            return self.insert(name, value);
        }
        if first >> 6 == 1 {
            let name = string(bytes, at, 5, 4 * CAPACITY)?;
            let value = string(bytes, at, 7, 4 * CAPACITY)?;
            return self.insert(name, value);
        }
        let number = number(bytes, at, 5)?;
        if first >> 5 == 1 {
            if number > CAPACITY as u64 {
                return Err(Cut::Wrong);
            }
            self.capacity = number as usize;
            self.evict(0);
            return Ok(());
        }
        let (name, value) = self.newest(number)?;
        self.insert(name, value)
    }

    fn insert(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<(), Cut> {
        let cost = name.len() + value.len() + ENTRY_COST;
        if cost > self.capacity {
            return Err(Cut::Wrong);
        }
        self.evict(cost);
        self.entries.push((name, value));
        Ok(())
    }

    fn evict(&mut self, more: usize) {
        let cost = |entries: &[Field]| -> usize {
            entries.iter().map(|(name, value)| name.len() + value.len() + ENTRY_COST).sum()
        };
        while self.evicted < self.entries.len()
            && cost(&self.entries[self.evicted..]) + more > self.capacity
        {
            self.evicted += 1;
        }
    }

    fn newest(&self, index: u64) -> Result<Field, Cut> {
        let count = self.entries.len() as u64;
        let at = count.checked_sub(index).and_then(|at| at.checked_sub(1)).ok_or(Cut::Wrong)?;
        self.entry(at, count)
    }

    fn entry(&self, at: u64, required: u64) -> Result<Field, Cut> {
        if at >= required || at < self.evicted as u64 {
            return Err(Cut::Wrong);
        }
        self.entries.get(at as usize).cloned().ok_or(Cut::Wrong)
    }

    fn block(&self, bytes: &[u8]) -> Option<(Section, Vec<Field>)> {
        let at = &mut 0;
        let encoded = number(bytes, at, 8).ok()?;
        let required = self.required(encoded)?;
        let is_negative = *bytes.get(*at)? >= 0x80;
        let delta = number(bytes, at, 7).ok()?;
        let base = if is_negative {
            required.checked_sub(delta)?.checked_sub(1)?
        } else {
            required + delta
        };
        if required > self.entries.len() as u64 {
            return Some((Section::Blocked(required), Vec::new()));
        }
        let mut fields = Vec::new();
        while *at < bytes.len() {
            fields.push(self.line(bytes, at, base, required).ok()?);
        }
        Some((Section::Decoded(required), fields))
    }

    fn line(&self, bytes: &[u8], at: &mut usize, base: u64, required: u64) -> Result<Field, Cut> {
        let before = |index: u64| -> Result<Field, Cut> {
            let at = base.checked_sub(index).and_then(|at| at.checked_sub(1)).ok_or(Cut::Wrong)?;
            self.entry(at, required)
        };
        let behind = |index: u64| self.entry(base + index, required);
        let first = bytes[*at];
        match first.leading_zeros() {
            0 if first & 0x40 != 0 => fixed(number(bytes, at, 6)?),
            0 => before(number(bytes, at, 6)?),
            1 => {
                let index = number(bytes, at, 4)?;
                let name = if first & 0x10 != 0 { fixed(index)? } else { before(index)? }.0;
                Ok((name, string(bytes, at, 7, usize::MAX)?))
            }
            2 => {
                let name = string(bytes, at, 3, usize::MAX)?;
                Ok((name, string(bytes, at, 7, usize::MAX)?))
            }
            3 => behind(number(bytes, at, 4)?),
            _ => {
                let name = behind(number(bytes, at, 3)?)?.0;
                Ok((name, string(bytes, at, 7, usize::MAX)?))
            }
        }
    }

    /// Found by trying: the count that is encoded so and lies within reach.
    fn required(&self, encoded: u64) -> Option<u64> {
        if encoded == 0 {
            return Some(0);
        }
        let entries_max = (CAPACITY / ENTRY_COST) as u64;
        let count = self.entries.len() as u64;
        let lowest = (count + 1).saturating_sub(entries_max).max(1);
        (lowest..=count + entries_max).find(|required| required % (2 * entries_max) + 1 == encoded)
    }
}

enum Cut {
    Short,
    Wrong,
}

fn fixed(index: u64) -> Result<Field, Cut> {
    let entry = usize::try_from(index).ok().and_then(|index| STATIC.get(index));
    entry.map(|(name, value)| (name.to_vec(), value.to_vec())).ok_or(Cut::Wrong)
}

fn number(bytes: &[u8], at: &mut usize, prefix: u32) -> Result<u64, Cut> {
    let mask = (1_u64 << prefix) - 1;
    let mut number = u64::from(*bytes.get(*at).ok_or(Cut::Short)?) & mask;
    *at += 1;
    if number < mask {
        return Ok(number);
    }
    for place in 0..8 {
        let byte = *bytes.get(*at).ok_or(Cut::Short)?;
        *at += 1;
        number += u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    // Whether one more byte is there makes no difference to a block, but to a stream.
    if bytes.get(*at).is_none() { Err(Cut::Short) } else { Err(Cut::Wrong) }
}

fn string(bytes: &[u8], at: &mut usize, prefix: u32, max: usize) -> Result<Vec<u8>, Cut> {
    let is_huffman = *bytes.get(*at).ok_or(Cut::Short)? >> prefix & 1 == 1;
    let len = number(bytes, at, prefix)?;
    if len > max as u64 {
        return Err(Cut::Wrong);
    }
    let len = usize::try_from(len).map_err(|_| Cut::Short)?;
    let text = bytes.get(*at..at.checked_add(len).ok_or(Cut::Short)?).ok_or(Cut::Short)?;
    *at += len;
    if !is_huffman {
        return Ok(text.to_vec());
    }
    let mut decoded = Vec::new();
    huffman::decode(text, &mut decoded).map_err(|_| Cut::Wrong)?;
    Ok(decoded)
}
