//! Fields into header blocks (RFC 7541 §6). A field that comes again is put into the dynamic table and is one
//! byte from then on; a field that was seen once is written as it is, which costs a copy and no memory.

use sekisho_http::Status;
use sekisho_http::compression::prefixed::{write_integer, write_string};
use sekisho_http::compression::table::mark;

use super::table::{STATIC, STATIC_COUNT, TABLE_BYTES, Table};

/// How large our own table may become, whatever the peer allows. Enough for what responses repeat; an idle
/// connection keeps it.
pub const ENCODER_TABLE_BYTES: usize = 1024;
/// The longest field that is put into the table: others must not be evicted for a giant.
const KEPT_BYTES_MAX: usize = 256;
/// Strings from this length on are worth the work of Huffman coding although they are sent only once.
const HUFFMAN_BYTES_MIN: usize = 64;
/// How many fields that were seen once are remembered.
const SEEN_COUNT: usize = 16;

const STATUS_INDEX: u8 = 8;
/// Where fields begin that are no pseudo-header fields.
const FIELDS_INDEX: u8 = 15;
/// Fields with secrets, which are kept out of every table on the way (RFC 7541 §7.1.3): `set-cookie`, `cookie`,
/// `authorization`, `proxy-authorization`.
const SECRET_INDICES: [u8; 4] = [55, 32, 23, 49];

/// The sending side's state.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The smallest size since the peer was last told, if it must be told (RFC 7541 §4.2).
    smallest: Option<u32>,
    /// Marks of the last fields that were sent once.
    seen: [u32; SEEN_COUNT],
    seen_at: u8,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: Table::new(ENCODER_TABLE_BYTES),
            smallest: Some(ENCODER_TABLE_BYTES as u32),
            seen: [0; SEEN_COUNT],
            seen_at: 0,
        }
    }
}

impl Encoder {
    /// How much memory the table holds.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn set_peer_max(&mut self, max: u32) {
        let max = (max as usize).min(ENCODER_TABLE_BYTES);
        if max != self.table.max() {
            let smallest = self.smallest.unwrap_or(TABLE_BYTES as u32);
            self.smallest = Some(smallest.min(max as u32));
            self.table.set_max(max);
        }
    }

    /// Begins a block: tells the peer about a changed size of the table.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            let max = self.table.max();
            if (smallest as usize) < max {
                write_integer(out, 0x20, 5, u64::from(smallest));
            }
            write_integer(out, 0x20, 5, max as u64);
        }
    }

    /// Writes `:status`.
    pub fn status(&mut self, status: Status, out: &mut Vec<u8>) {
        let index = match status.code() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            code => {
                let digits =
                    [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
                return self.named(STATUS_INDEX, STATIC[usize::from(STATUS_INDEX)].0, &digits, out);
            }
        };
        out.push(0x80 | index);
    }

    /// Writes a field. The name is in lower case, name and value are well formed.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.named(static_name(name), name, value, out);
    }

    /// Writes a field that is in the table; returns whether it is.
    pub fn indexed(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> bool {
        match self.table.find(mark(name, value), name, value) {
            Some(found) => {
                write_integer(out, 0x80, 7, (found + STATIC_COUNT + 1) as u64);
                true
            }
            None => false,
        }
    }

    /// Writes a field that is not in the table. The name is in lower case, name and value are well formed.
    pub fn literal(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.put(static_name(name), name, value, out);
    }

    /// A pseudo-header field of a request.
    pub fn pseudo(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let of_requests = &STATIC[1..usize::from(STATUS_INDEX)];
        if let Some(at) = of_requests.iter().position(|entry| *entry == (name, value)) {
            return out.push(0x80 | (at as u8 + 1));
        }
        let index = of_requests.iter().position(|entry| entry.0 == name).map_or(0, |at| at + 1);
        self.named(index as u8, name, value, out);
    }

    /// A field of a request, with its name in lower case.
    pub fn request_field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let names = &STATIC[usize::from(FIELDS_INDEX)..];
        let found = names.iter().position(|entry| entry.0 == name);
        let index = found.map_or(0, |at| at as u8 + FIELDS_INDEX);
        self.named(index, name, value, out);
    }

    fn named(&mut self, index: u8, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if !self.indexed(name, value, out) {
            self.put(index, name, value, out);
        }
    }

    fn put(&mut self, index: u8, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let is_secret = SECRET_INDICES.contains(&index);
        if is_secret || name.len() + value.len() > KEPT_BYTES_MAX {
            let pattern = if is_secret { 0x10 } else { 0 };
            return literal(pattern, 4, index, name, value, HUFFMAN_BYTES_MIN, out);
        }
        let mark = mark(name, value);
        if self.seen.contains(&mark) {
            literal(0x40, 6, index, name, value, 0, out);
            self.table.insert(mark, name, value);
        } else {
            self.seen[usize::from(self.seen_at) % SEEN_COUNT] = mark;
            self.seen_at = self.seen_at.wrapping_add(1);
            literal(0, 4, index, name, value, HUFFMAN_BYTES_MIN, out);
        }
    }
}

fn literal(
    pattern: u8,
    prefix: u32,
    index: u8,
    name: &[u8],
    value: &[u8],
    huffman_min: usize,
    out: &mut Vec<u8>,
) {
    write_integer(out, pattern, prefix, u64::from(index));
    if index == 0 {
        write_string(out, 0, 7, name, huffman_min);
    }
    write_string(out, 0, 7, value, huffman_min);
}

/// The index of a name in the static table; 0 when it is not there.
fn static_name(name: &[u8]) -> u8 {
    match name.len() {
        3 => one_of(name, &[21]),
        4 => one_of(name, &[33, 34, 59, 45, 37, 38]),
        5 => one_of(name, &[22]),
        6 => one_of(name, &[54, 19, 32]),
        7 => one_of(name, &[36, 52]),
        8 => one_of(name, &[46]),
        10 => one_of(name, &[55, 58]),
        11 => one_of(name, &[53]),
        12 => one_of(name, &[31]),
        13 => one_of(name, &[18, 44, 24, 30]),
        14 => one_of(name, &[28]),
        16 => one_of(name, &[26, 27, 29, 61]),
        18 => one_of(name, &[48]),
        19 => one_of(name, &[25]),
        25 => one_of(name, &[56]),
        27 => one_of(name, &[20]),
        // `:status` is written by itself; the other names are those of requests.
        _ => 0,
    }
}

fn one_of(name: &[u8], indices: &[u8]) -> u8 {
    indices.iter().copied().find(|index| STATIC[usize::from(*index)].0 == name).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        decoder
            .decode(block, &mut Vec::new(), |field| {
                fields.push((field.name.to_vec(), field.value.to_vec()));
            })
            .expect("what we encode can be decoded");
        fields
    }

    #[test]
    fn names_of_response_fields_are_found_in_the_static_table() {
        for (index, (name, _)) in STATIC.iter().enumerate() {
            let found = usize::from(static_name(name));
            assert!(found == 0 || STATIC[found].0 == *name, "{}", name.escape_ascii());
            let is_response = matches!(index, 18 | 20..=22 | 24..=31 | 33 | 34 | 36 | 44..=46 | 53..=56 | 59 | 61);
            assert!(!is_response || found > 0, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_response_that_comes_again_is_a_few_bytes() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let fields: [(&[u8], &[u8]); 5] = [
            (b"server", b"sekisho"),
            (b"date", b"Sun, 15 Nov 2026 04:42:56 GMT"),
            (b"content-type", b"text/html"),
            (b"content-length", b"1234"),
            (b"x-content-type-options", b"nosniff"),
        ];
        let mut lengths = Vec::new();
        for _ in 0..4 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            encoder.status(Status::OK, &mut block);
            for (name, value) in fields {
                encoder.field(name, value, &mut block);
            }
            let seen = decoded(&mut decoder, &block);
            assert_eq!(seen[0], (b":status".to_vec(), b"200".to_vec()));
            for ((name, value), seen) in fields.iter().zip(&seen[1..]) {
                assert_eq!((seen.0.as_slice(), seen.1.as_slice()), (*name, *value));
            }
            lengths.push(block.len());
        }
        assert_eq!(lengths[2..], [6, 6], "one byte for each field");
        assert!(encoder.capacity() < 1024, "{}", encoder.capacity());
    }

    #[test]
    fn one_response_leaves_no_memory_behind() {
        let mut encoder = Encoder::default();
        encoder.field(b"server", b"sekisho", &mut Vec::new());
        assert_eq!(encoder.capacity(), 0);
    }

    #[test]
    fn a_cookie_is_in_no_table() {
        // RFC 7541 §7.1.3
        let mut encoder = Encoder::default();
        for _ in 0..4 {
            let mut block = Vec::new();
            encoder.field(b"set-cookie", b"a=b", &mut block);
            assert_eq!(block, b"\x1f\x28\x03a=b");
        }
    }

    #[test]
    fn the_peer_is_told_how_large_our_table_is() {
        // RFC 7541 §4.2: both the smallest and the last.
        let mut encoder = Encoder::default();
        let mut out = Vec::new();
        encoder.begin(&mut out);
        assert_eq!(out, [0x3f, 0xe1, 0x07]);
        out.clear();
        encoder.set_peer_max(0);
        encoder.set_peer_max(100_000);
        encoder.begin(&mut out);
        assert_eq!(out, [0x20, 0x3f, 0xe1, 0x07]);
        out.clear();
        encoder.set_peer_max(4096);
        encoder.begin(&mut out);
        assert_eq!(out, []);
    }

    #[test]
    fn every_status_can_be_written() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for code in 100..=999 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            encoder.status(Status::new(code).expect("a status"), &mut block);
            let seen = decoded(&mut decoder, &block);
            assert_eq!(seen, [(b":status".to_vec(), code.to_string().into_bytes())]);
        }
    }
}
