//! Header blocks into fields (RFC 9204 §4.5), and the instructions of the client's encoder (§4.3). Every length and
//! index is checked before it is used, and no work is done that the input is not long enough for.

use sekisho_http::compression::prefixed::{read_integer, read_string};
use sekisho_http::compression::table::{ENTRY_COST, TABLE_BYTES_MAX, Table};
use sekisho_http::huffman;
use sekisho_http::request::Field;

use super::table::STATIC;
use super::{Fault, NUMBER_BYTES_MAX};

/// How many times longer a Huffman coded string can be than its text, rounded up.
const HUFFMAN_GROWTH: usize = 4;

/// The receiving side's state.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The capacity that was announced.
    capacity_max: usize,
    /// How many entries the client has ever inserted.
    inserted: u64,
    /// How many of them the client knows that we have.
    acknowledged: u64,
    /// An instruction that came in part.
    partial: Vec<u8>,
}

/// What a header block needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// It was decoded; it referred to entries below this insert count, to none where it is 0.
    Decoded(u64),
    /// Entries up to this insert count have to come first. Nothing was decoded.
    Blocked(u64),
}

/// The prefix of a header block.
#[derive(Clone, Copy)]
struct Prefix {
    required: u64,
    base: u64,
}

/// Where a name is.
enum Name {
    Static(usize),
    Dynamic(u64),
    Literal,
}

impl Decoder {
    /// One whose client may use a table of this size.
    pub fn new(capacity_max: usize) -> Self {
        let capacity_max = capacity_max.min(TABLE_BYTES_MAX);
        Self {
            table: Table::new(0),
            capacity_max,
            inserted: 0,
            acknowledged: 0,
            partial: Vec::new(),
        }
    }

    /// How much memory it holds.
    pub fn capacity(&self) -> usize {
        self.table.capacity() + self.partial.capacity()
    }

    /// How many entries the client has ever inserted.
    pub const fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Whether the client uses the dynamic table.
    pub const fn is_used(&self) -> bool {
        self.table.max() > 0
    }

    /// A header block that needs this insert count was acknowledged.
    pub const fn note_acknowledged(&mut self, required: u64) {
        if required > self.acknowledged {
            self.acknowledged = required;
        }
    }

    /// How many entries the client does not know that we have; it is told now.
    pub const fn take_increment(&mut self) -> u64 {
        let increment = self.inserted - self.acknowledged;
        self.acknowledged = self.inserted;
        increment
    }

    /// Carries out instructions of the client's encoder, cut wherever, until this many entries were inserted. Returns
    /// whether it went to the end; if not, it is to be called again, with or without more input.
    pub fn receive(
        &mut self,
        input: &[u8],
        text: &mut Vec<u8>,
        until: Option<u64>,
    ) -> Result<bool, Fault> {
        let mut partial = std::mem::take(&mut self.partial);
        let mut rest = if partial.is_empty() {
            input
        } else {
            partial.extend_from_slice(input);
            &partial[..]
        };
        let mut is_paused = false;
        while !rest.is_empty() {
            is_paused = until.is_some_and(|until| self.inserted >= until);
            if is_paused {
                break;
            }
            let before = rest;
            match self.instruction(&mut rest, text) {
                Ok(()) => {}
                Err(Fault::CutShort) => {
                    rest = before;
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.partial = rest.to_vec();
        Ok(!is_paused)
    }

    fn instruction(&mut self, rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), Fault> {
        let first = *rest.first().ok_or(Fault::CutShort)?;
        text.clear();
        if first & 0x80 != 0 {
            let index = read_integer(rest, 6, NUMBER_BYTES_MAX)?;
            let value = self.string(rest, 7, text)?;
            let value_len = text.len();
            let name = if first & 0x40 != 0 {
                static_entry(index)?.0
            } else {
                // The entry may have to go for the new one.
                let name = self.relative(index)?.0.to_vec();
                text.extend_from_slice(&name);
                let (value_text, name) = text.split_at(value_len);
                return self.insert(name, value.unwrap_or(value_text));
            };
            return self.insert(name, value.unwrap_or(&text[..]));
        }
        if first & 0x40 != 0 {
            let name = self.string(rest, 5, text)?;
            let name_len = text.len();
            let value = self.string(rest, 7, text)?;
            let (name_text, value_text) = text.split_at(name_len);
            return self.insert(name.unwrap_or(name_text), value.unwrap_or(value_text));
        }
        if first & 0x20 != 0 {
            let capacity = read_integer(rest, 5, NUMBER_BYTES_MAX)?;
            if capacity > self.capacity_max as u64 {
                return Err(Fault::Capacity);
            }
            self.table.set_max(capacity as usize);
            return Ok(());
        }
        let index = read_integer(rest, 5, NUMBER_BYTES_MAX)?;
        let (name, value) = self.relative(index)?;
        let (name, value) = (name.to_vec(), value.to_vec());
        self.insert(&name, &value)
    }

    /// An entry by its distance from the newest.
    fn relative(&self, index: u64) -> Result<(&[u8], &[u8]), Fault> {
        usize::try_from(index).ok().and_then(|index| self.table.get(index)).ok_or(Fault::Index)
    }

    /// A string of an instruction. One that cannot fit into the table is not waited for.
    fn string<'a>(
        &self,
        rest: &mut &'a [u8],
        prefix_bits: u32,
        text: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, Fault> {
        let len = read_integer(&mut &rest[..], prefix_bits, NUMBER_BYTES_MAX)?;
        if len > (HUFFMAN_GROWTH * self.capacity_max) as u64 {
            return Err(Fault::Capacity);
        }
        string(rest, prefix_bits, text)
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        // RFC 9204 §3.2.2
        if name.len() + value.len() + ENTRY_COST > self.table.max() {
            return Err(Fault::Capacity);
        }
        self.table.insert(0, name, value);
        self.inserted += 1;
        Ok(())
    }

    /// Decodes a whole header block, field by field, unless entries are missing. `text` is room for strings that must
    /// be decoded; it is cleared before use.
    pub fn decode(
        &self,
        mut block: &[u8],
        text: &mut Vec<u8>,
        mut take: impl FnMut(Field<'_>),
    ) -> Result<Section, Fault> {
        let prefix = self.prefix(&mut block)?;
        if prefix.required > self.inserted {
            return Ok(Section::Blocked(prefix.required));
        }
        while let Some(&first) = block.first() {
            text.clear();
            if first & 0x80 != 0 {
                let index = read_integer(&mut block, 6, NUMBER_BYTES_MAX)?;
                if first & 0x40 != 0 {
                    let (name, value) = static_entry(index)?;
                    take(Field { name, value, is_static_name: true });
                } else {
                    let (name, value) = self.entry(before(prefix, index)?, prefix)?;
                    take(Field { name, value, is_static_name: false });
                }
            } else if first & 0xf0 == 0x10 {
                let index = read_integer(&mut block, 4, NUMBER_BYTES_MAX)?;
                let (name, value) = self.entry(behind(prefix, index)?, prefix)?;
                take(Field { name, value, is_static_name: false });
            } else {
                self.literal(first, prefix, &mut block, text, &mut take)?;
            }
        }
        Ok(Section::Decoded(prefix.required))
    }

    fn literal(
        &self,
        first: u8,
        prefix: Prefix,
        block: &mut &[u8],
        text: &mut Vec<u8>,
        take: &mut impl FnMut(Field<'_>),
    ) -> Result<(), Fault> {
        let mut raw_name = None;
        let name = if first & 0x40 != 0 {
            let index = read_integer(block, 4, NUMBER_BYTES_MAX)?;
            match first & 0x10 {
                0 => Name::Dynamic(before(prefix, index)?),
                _ => Name::Static(usize::try_from(index).map_err(|_| Fault::Index)?),
            }
        } else if first & 0x20 != 0 {
            raw_name = string(block, 3, text)?;
            Name::Literal
        } else {
            Name::Dynamic(behind(prefix, read_integer(block, 3, NUMBER_BYTES_MAX)?)?)
        };
        let name_len = text.len();
        let raw_value = string(block, 7, text)?;
        let (name_text, value_text) = text.split_at(name_len);
        let value = raw_value.unwrap_or(value_text);
        let (name, is_static_name) = match name {
            Name::Static(index) => (STATIC.get(index).ok_or(Fault::Index)?.0, true),
            Name::Dynamic(absolute) => (self.entry(absolute, prefix)?.0, false),
            Name::Literal => (raw_name.unwrap_or(name_text), false),
        };
        take(Field { name, value, is_static_name });
        Ok(())
    }

    /// An entry by its absolute index (RFC 9204 §3.2.4).
    fn entry(&self, absolute: u64, prefix: Prefix) -> Result<(&[u8], &[u8]), Fault> {
        if absolute >= prefix.required {
            return Err(Fault::Index);
        }
        let index = self.inserted.checked_sub(absolute + 1).ok_or(Fault::Index)?;
        self.relative(index)
    }

    /// RFC 9204 §4.5.1.
    fn prefix(&self, block: &mut &[u8]) -> Result<Prefix, Fault> {
        let encoded = read_integer(block, 8, NUMBER_BYTES_MAX)?;
        let required = self.required(encoded)?;
        let is_negative = block.first().is_some_and(|first| first & 0x80 != 0);
        let delta = read_integer(block, 7, NUMBER_BYTES_MAX)?;
        let base = if is_negative {
            required.checked_sub(delta).and_then(|base| base.checked_sub(1))
        } else {
            required.checked_add(delta)
        };
        Ok(Prefix { required, base: base.ok_or(Fault::InsertCount)? })
    }

    /// RFC 9204 §4.5.1.1.
    fn required(&self, encoded: u64) -> Result<u64, Fault> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = (self.capacity_max / ENTRY_COST) as u64;
        let full_range = 2 * entries_max;
        if encoded > full_range {
            return Err(Fault::InsertCount);
        }
        let value_max = self.inserted + entries_max;
        let wrapped = value_max / full_range * full_range;
        let mut required = wrapped + encoded - 1;
        if required > value_max {
            required = required.checked_sub(full_range).ok_or(Fault::InsertCount)?;
        }
        if required == 0 { Err(Fault::InsertCount) } else { Ok(required) }
    }
}

fn static_entry(index: u64) -> Result<(&'static [u8], &'static [u8]), Fault> {
    let entry = usize::try_from(index).ok().and_then(|index| STATIC.get(index));
    entry.copied().ok_or(Fault::Index)
}

/// The absolute index of an entry before the base.
fn before(prefix: Prefix, index: u64) -> Result<u64, Fault> {
    prefix.base.checked_sub(index).and_then(|at| at.checked_sub(1)).ok_or(Fault::Index)
}

/// The absolute index of an entry at or behind the base.
fn behind(prefix: Prefix, index: u64) -> Result<u64, Fault> {
    prefix.base.checked_add(index).ok_or(Fault::Index)
}

/// A string: borrowed from the block, or decoded and appended to `text`.
fn string<'a>(
    block: &mut &'a [u8],
    prefix_bits: u32,
    text: &mut Vec<u8>,
) -> Result<Option<&'a [u8]>, Fault> {
    let (bytes, is_huffman) = read_string(block, prefix_bits, NUMBER_BYTES_MAX)?;
    if !is_huffman {
        return Ok(Some(bytes));
    }
    huffman::decode(bytes, text)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(u8::is_ascii_hexdigit)
            .map(|digit| (digit as char).to_digit(16).expect("a digit") as u8)
            .collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn fields(decoder: &Decoder, block: &str) -> Result<(Section, Vec<String>), Fault> {
        let mut fields = Vec::new();
        let section = decoder.decode(&hex(block), &mut Vec::new(), |field| {
            fields.push(format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
        })?;
        Ok((section, fields))
    }

    fn instruct(decoder: &mut Decoder, instructions: &str) -> Result<(), Fault> {
        decoder.receive(&hex(instructions), &mut Vec::new(), None).map(|_| ())
    }

    /// RFC 9204 Appendix B, with the encoder stream cut into single bytes or not at all.
    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        for is_cut in [false, true] {
            let mut decoder = Decoder::new(220);
            let instructions = |decoder: &mut Decoder, text: &str| {
                for bytes in hex(text).chunks(if is_cut { 1 } else { 1000 }) {
                    decoder.receive(bytes, &mut Vec::new(), None).expect("valid");
                }
            };
            // B.1
            let seen = fields(&decoder, "0000 510b 2f69 6e64 6578 2e68 746d 6c").expect("valid");
            assert_eq!(seen, (Section::Decoded(0), vec![":path: /index.html".to_owned()]));
            // B.2
            let section = "0381 1011";
            assert_eq!(fields(&decoder, section).expect("valid").0, Section::Blocked(2));
            let text = "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d \
                        c10c 2f73 616d 706c 652f 7061 7468";
            instructions(&mut decoder, text);
            let expected =
                vec![":authority: www.example.com".to_owned(), ":path: /sample/path".to_owned()];
            assert_eq!(fields(&decoder, section), Ok((Section::Decoded(2), expected)));
            assert_eq!(decoder.table.cost(), 106);
            // B.3
            instructions(
                &mut decoder,
                "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565",
            );
            assert_eq!((decoder.inserted(), decoder.table.cost()), (3, 160));
            // B.4
            let section = "0500 80 c1 81";
            assert_eq!(fields(&decoder, section).expect("valid").0, Section::Blocked(4));
            instructions(&mut decoder, "02");
            let expected = vec![
                ":authority: www.example.com".to_owned(),
                ":path: /".to_owned(),
                "custom-key: custom-value".to_owned(),
            ];
            assert_eq!(fields(&decoder, section), Ok((Section::Decoded(4), expected)));
            // B.5
            instructions(&mut decoder, "810d 6375 7374 6f6d 2d76 616c 7565 32");
            assert_eq!((decoder.inserted(), decoder.table.cost()), (5, 215));
            assert_eq!(decoder.relative(0), Ok((&b"custom-key"[..], &b"custom-value2"[..])));
            assert_eq!(decoder.partial, []);
        }
    }

    #[test]
    fn what_is_wrong_with_a_block_is_told() {
        let rows = [
            ("", Fault::CutShort),
            ("00", Fault::CutShort),
            ("0000 ff24", Fault::Index), // static 99
            ("0000 5f54 00", Fault::Index),
            ("0000 80", Fault::Index),
            ("0000 10", Fault::Index),
            ("0000 4000", Fault::Index),
            ("0000 0000", Fault::Index),
            ("0080", Fault::InsertCount), // base below 0
            ("ff8001 00", Fault::InsertCount),
            ("0100", Fault::InsertCount), // decodes to 0
            ("0000 23 6162", Fault::CutShort),
            ("0000 2a 0600", Fault::Huffman),
            ("00ff ffff ffff ffff ffff ff7f", Fault::Number),
        ];
        for (block, fault) in rows {
            assert_eq!(fields(&Decoder::new(4096), block), Err(fault), "{block}");
        }
        assert_eq!(fields(&Decoder::new(0), "0200"), Err(Fault::InsertCount), "no table");
    }

    #[test]
    fn what_is_wrong_with_an_instruction_is_told() {
        let rows = [
            ("3fe21f", Fault::Capacity),            // 4097
            ("c001 61", Fault::Capacity),           // no capacity set
            ("3f01 80 01 61", Fault::Index),        // nothing inserted
            ("3f01 00", Fault::Index),              // nothing to duplicate
            ("3fe11f ff24 00", Fault::Index),       // static 99
            ("3fe11f 7fe2ffff7f", Fault::Capacity), // a string that cannot fit is not waited for
            ("3fe11f 62 0600", Fault::Huffman),
        ];
        for (instructions, fault) in rows {
            let mut decoder = Decoder::new(4096);
            assert_eq!(instruct(&mut decoder, instructions), Err(fault), "{instructions}");
        }
    }

    #[test]
    fn an_entry_may_be_the_name_of_the_one_that_evicts_it() {
        let mut decoder = Decoder::new(64);
        instruct(&mut decoder, "3f21 43 6162 63 01 78").expect("valid");
        instruct(&mut decoder, "80 02 79 7a").expect("valid");
        assert_eq!(decoder.relative(0), Ok((&b"abc"[..], &b"yz"[..])));
        assert_eq!((decoder.inserted(), decoder.table.len()), (2, 1));
        assert_eq!(fields(&decoder, "0200 80"), Err(Fault::Index), "evicted");
        assert_eq!(decoder.take_increment(), 2);
        assert_eq!(decoder.take_increment(), 0);
    }
}
