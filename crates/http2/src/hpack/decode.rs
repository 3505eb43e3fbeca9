//! Header blocks into fields (RFC 7541 §6). Every length and index is checked before it is used, and no work
//! is done that the block is not long enough for.

use sekisho_http::compression::prefixed::{read_integer, read_string};
use sekisho_http::huffman;
use sekisho_http::request::Field;

use super::Fault;
use super::table::{STATIC, STATIC_COUNT, TABLE_BYTES, Table};

/// How many bytes of a number may follow its first one.
const NUMBER_BYTES_MAX: u32 = 4;

/// The receiving side's state.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    takes_long_padding: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES), takes_long_padding: false }
    }
}

/// Where a name is.
enum Name {
    Static(usize),
    Dynamic(usize),
    Literal,
}

impl Decoder {
    /// One that takes a whole byte of padding behind a string that needs none. RFC 7541 §5.2 calls it an error; nginx
    /// takes it from servers, and there are servers that send it.
    pub fn lenient() -> Self {
        Self { takes_long_padding: true, ..Self::default() }
    }

    /// How much memory the table holds.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Decodes a whole block, field by field. `text` is room for strings that must be decoded or kept; it is
    /// cleared before use.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        text: &mut Vec<u8>,
        mut take: impl FnMut(Field<'_>),
    ) -> Result<(), Fault> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut block, 5)?;
                if !may_resize || size > TABLE_BYTES {
                    return Err(Fault::TableSize);
                }
                self.table.set_max(size);
                continue;
            }
            may_resize = false;
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                take(self.indexed(index)?);
            } else {
                self.literal(first, &mut block, text, &mut take)?;
            }
        }
        Ok(())
    }

    fn indexed(&self, index: usize) -> Result<Field<'_>, Fault> {
        match index {
            0 => Err(Fault::Index),
            1..=STATIC_COUNT => {
                let (name, value) = STATIC[index];
                Ok(Field { name, value, is_static_name: true })
            }
            _ => {
                let (name, value) = self.table.get(index - STATIC_COUNT - 1).ok_or(Fault::Index)?;
                Ok(Field { name, value, is_static_name: false })
            }
        }
    }

    fn literal(
        &mut self,
        first: u8,
        block: &mut &[u8],
        text: &mut Vec<u8>,
        take: &mut impl FnMut(Field<'_>),
    ) -> Result<(), Fault> {
        let is_kept = first & 0x40 != 0;
        let index = integer(block, if is_kept { 6 } else { 4 })?;
        text.clear();
        let name = match index {
            0 => Name::Literal,
            1..=STATIC_COUNT => Name::Static(index),
            _ => Name::Dynamic(index - STATIC_COUNT - 1),
        };
        let raw_name = match name {
            Name::Literal => string(block, text, self.takes_long_padding)?,
            Name::Static(_) | Name::Dynamic(_) => None,
        };
        let decoded_name = text.len();
        let raw_value = string(block, text, self.takes_long_padding)?;
        let value_end = text.len();
        if let (Name::Dynamic(index), true) = (&name, is_kept) {
            // The entry may have to go for the new one.
            let (name, _) = self.table.get(*index).ok_or(Fault::Index)?;
            text.extend_from_slice(name);
        }
        let value = raw_value.unwrap_or(&text[decoded_name..value_end]);
        let (name, is_static_name) = match name {
            Name::Static(index) => (STATIC[index].0, true),
            Name::Dynamic(_) if is_kept => (&text[value_end..], false),
            Name::Dynamic(index) => {
                let (name, _) = self.table.get(index).ok_or(Fault::Index)?;
                take(Field { name, value, is_static_name: false });
                return Ok(());
            }
            Name::Literal => (raw_name.unwrap_or(&text[..decoded_name]), false),
        };
        take(Field { name, value, is_static_name });
        if is_kept {
            self.table.insert(0, name, value);
        }
        Ok(())
    }
}

/// A number, no larger than 28 bits behind those of its first byte.
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, Fault> {
    Ok(read_integer(block, prefix, NUMBER_BYTES_MAX)? as usize)
}

/// A string (RFC 7541 §5.2): borrowed from the block, or decoded and appended to `text`.
fn string<'a>(
    block: &mut &'a [u8],
    text: &mut Vec<u8>,
    takes_long_padding: bool,
) -> Result<Option<&'a [u8]>, Fault> {
    let (bytes, is_huffman) = read_string(block, 7, NUMBER_BYTES_MAX)?;
    if is_huffman {
        let before = text.len();
        let decoded = huffman::decode(bytes, text);
        match (decoded, bytes) {
            (Err(_), [bytes @ .., 0xff]) if takes_long_padding => {
                text.truncate(before);
                huffman::decode(bytes, text)?;
            }
            (decoded, _) => decoded?,
        }
        Ok(None)
    } else {
        Ok(Some(bytes))
    }
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

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, Fault> {
        let mut fields = Vec::new();
        decoder.decode(block, &mut Vec::new(), |field| {
            fields.push(format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
        })?;
        Ok(fields)
    }

    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        // RFC 7541 C.3 and C.4: three requests on one connection, plain and with Huffman coding.
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let expected: [&[&str]; 3] = [
            &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
            &[
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: www.example.com",
                "cache-control: no-cache",
            ],
            &[
                ":method: GET",
                ":scheme: https",
                ":path: /index.html",
                ":authority: www.example.com",
                "custom-key: custom-value",
            ],
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            for (block, expected) in blocks.iter().zip(expected) {
                assert_eq!(fields(&mut decoder, &hex(block)).expect("valid"), expected);
            }
            assert_eq!(decoder.table.cost(), 164);
        }
    }

    #[test]
    fn what_is_wrong_with_a_block_is_told() {
        let rows: [(&[u8], Fault); 14] = [
            (&[0x80], Fault::Index),
            (&[0xbe], Fault::Index),
            (&[0x7e, 0x01, b'x'], Fault::Index),
            (&[0x0f, 0x70, 0x01, b'x'], Fault::Index),
            (&[0xff], Fault::CutShort),
            (&[0xff, 0x80], Fault::CutShort),
            (&[0xff, 0x80, 0x80, 0x80, 0x80, 0x01], Fault::Number),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Fault::Number),
            (&[0x40], Fault::CutShort),
            (&[0x40, 0x02, b'a'], Fault::CutShort),
            (&[0x40, 0x01, b'a', 0x7f, 0xff, 0xff, 0xff, 0x7f], Fault::CutShort),
            (&[0x40, 0x81, 0x06, 0x00], Fault::Huffman),
            (&[0x82, 0x20], Fault::TableSize),
            (&[0x3f, 0xe2, 0x1f], Fault::TableSize),
        ];
        for (block, fault) in rows {
            assert_eq!(fields(&mut Decoder::default(), block), Err(fault), "{block:x?}");
        }
    }

    #[test]
    fn the_table_can_be_made_smaller_and_larger_at_the_front_of_a_block() {
        // RFC 7541 §4.2, §6.3
        let mut decoder = Decoder::default();
        assert_eq!(fields(&mut decoder, b"\x40\x01a\x01b").expect("valid"), ["a: b"]);
        let emptied = fields(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x82]);
        assert_eq!(emptied.expect("valid"), [":method: GET"]);
        assert_eq!(fields(&mut decoder, &[0xbe]), Err(Fault::Index));
    }

    #[test]
    fn a_byte_of_padding_is_taken_only_where_that_was_chosen() {
        let block = [0x40, 0x85, 0xb8, 0x84, 0x8d, 0x36, 0xa3, 0x82, 0x07, 0xff];
        assert_eq!(fields(&mut Decoder::default(), &block), Err(Fault::Huffman));
        assert_eq!(fields(&mut Decoder::lenient(), &block), Ok(vec![":status: 0".to_owned()]));
        let two = [0x40, 0x85, 0xb8, 0x84, 0x8d, 0x36, 0xa3, 0x83, 0x07, 0xff, 0xff];
        assert_eq!(fields(&mut Decoder::lenient(), &two), Err(Fault::Huffman));
    }

    #[test]
    fn an_entry_may_be_the_name_of_the_one_that_evicts_it() {
        // RFC 7541 §4.4
        let mut decoder = Decoder::default();
        let name = [b'n'; 60];
        let mut block = vec![0x3f, 0x61, 0x40, 60]; // 128 bytes
        block.extend_from_slice(&name);
        block.extend_from_slice(&[1, b'v', 0x7e, 3, b'n', b'e', b'w']);
        let fields = fields(&mut decoder, &block).expect("valid");
        assert_eq!(fields[1], format!("{}: new", name.escape_ascii()));
        assert_eq!(decoder.table.get(0), Some((&name[..], &b"new"[..])));
        assert_eq!(decoder.table.len(), 1);
    }
}
