//! Fields into header blocks (RFC 9204 §4.5), instructions for the client's decoder (§4.3), and its acknowledgements
//! (§4.4).
//!
//! A field that comes again is put into the dynamic table and is used from there when the client has acknowledged it;
//! a field that was seen once is written as it is. No header block refers to an entry that is not acknowledged.

use std::collections::VecDeque;

use sekisho_http::Status;
use sekisho_http::compression::prefixed::{read_integer, write_integer, write_string};
use sekisho_http::compression::table::{ENTRY_COST, TABLE_BYTES_MAX, Table, mark};

use super::table::{Found, find};
use super::{Fault, NUMBER_BYTES_MAX};

/// The longest field that is put into the table: others must not be evicted for a giant.
const KEPT_BYTES_MAX: usize = 256;
/// Strings from this length on are worth the work of Huffman coding although they are sent only once.
const HUFFMAN_BYTES_MIN: usize = 64;
/// How many fields that were seen once are remembered.
const SEEN_COUNT: usize = 16;
/// How many header blocks with references may wait for their acknowledgement. Beyond that there are none.
const SECTIONS_MAX: usize = 256;
/// How many bytes of instructions may wait. Beyond that nothing is inserted.
const INSTRUCTION_BYTES_MAX: usize = 2048;
/// The longest prefix of a header block: two numbers.
pub(crate) const PREFIX_BYTES_MAX: usize = 2 * (1 + NUMBER_BYTES_MAX as usize);

/// `:status: 200`.
const OK_INDEX: u8 = 25;
/// Fields with secrets, which are kept out of every table on the way (RFC 9204 §7.1.3): `set-cookie`, `cookie`,
/// `authorization`.
const SECRET_INDICES: [u8; 3] = [14, 5, 84];
/// Fields whose values change from response to response: `date`, `etag`, `last-modified`, `content-length`, `age`,
/// `location`, `content-disposition`.
const CHANGING_INDICES: [u8; 7] = [6, 7, 10, 4, 2, 12, 3];

/// A header block whose acknowledgement has not come.
#[derive(Clone, Copy, Debug)]
struct Sent {
    stream: u64,
    /// The insert count that it needs.
    required: u64,
    /// The oldest entry that it refers to.
    lowest: u64,
}

/// A field that no table has.
#[derive(Clone, Copy, Debug)]
pub struct Literal {
    /// Where the static table has its name.
    index: Option<u8>,
    /// Of a field that is worth an entry.
    mark: Option<u32>,
}

/// The sending side's state.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Twice as many entries as the client's largest table could have.
    full_range: u64,
    inserted: u64,
    /// How many insertions the client has acknowledged.
    acknowledged: u64,
    sent: VecDeque<Sent>,
    /// Insert count and oldest entry of the header block that is being written.
    required: u64,
    lowest: u64,
    /// Marks of the last fields that were sent once.
    seen: [u32; SEEN_COUNT],
    seen_at: u8,
    /// Instructions for the encoder stream.
    pub(crate) instructions: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: Table::new(0),
            full_range: 0,
            inserted: 0,
            acknowledged: 0,
            sent: VecDeque::new(),
            required: 0,
            lowest: u64::MAX,
            seen: [0; SEEN_COUNT],
            seen_at: 0,
            instructions: Vec::new(),
        }
    }
}

impl Encoder {
    /// How much memory it holds.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
            + self.sent.capacity() * size_of::<Sent>()
            + self.instructions.capacity()
    }

    /// Instructions that are to leave on the encoder stream.
    pub fn take_instructions(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.instructions)
    }

    /// Gives back memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        if self.instructions.is_empty() {
            self.instructions = Vec::new();
        }
        if self.sent.is_empty() {
            self.sent = VecDeque::new();
        }
    }

    /// The client's SETTINGS_QPACK_MAX_TABLE_CAPACITY, of which we use no more than `own`. Called once.
    pub fn set_peer_max(&mut self, peer: u64, own: usize) {
        self.full_range = 2 * (peer / ENTRY_COST as u64);
        let max = usize::try_from(peer).unwrap_or(usize::MAX).min(own).min(TABLE_BYTES_MAX);
        if max > 0 {
            self.table.set_max(max);
            write_integer(&mut self.instructions, 0x20, 5, max as u64);
        }
    }

    /// Begins a header block. Its prefix is known at its end.
    pub fn begin(&mut self) {
        (self.required, self.lowest) = (0, u64::MAX);
    }

    /// Ends the header block of a stream: its prefix (RFC 9204 §4.5.1).
    pub fn end(&mut self, stream: u64, out: &mut Vec<u8>) {
        if self.required == 0 {
            return out.extend_from_slice(&[0, 0]);
        }
        write_integer(out, 0, 8, self.required % self.full_range + 1);
        // The base is the number of acknowledged entries, so that all entries are before it.
        write_integer(out, 0, 7, self.acknowledged - self.required);
        let (required, lowest) = (self.required, self.lowest);
        self.sent.push_back(Sent { stream, required, lowest });
    }

    /// Writes `:status`.
    pub fn status(&mut self, status: Status, out: &mut Vec<u8>) {
        let code = status.code();
        let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
        if code == 200 {
            return out.push(0xc0 | OK_INDEX);
        }
        if let Some(literal) = self.indexed(b":status", &digits, out) {
            self.literal(literal, b":status", &digits, out);
        }
    }

    /// Writes a field if a table has it; if not, or if the client may not have the entry yet, it has to be written by
    /// [`literal`](Self::literal).
    pub fn indexed(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Option<Literal> {
        let index = match find(name, value) {
            Found::Field(index) => {
                write_integer(out, 0xc0, 6, u64::from(index));
                return None;
            }
            Found::Name(index) => Some(index),
            Found::Nothing => None,
        };
        let is_kept = self.table.max() > 0
            && name.len() + value.len() <= KEPT_BYTES_MAX
            && !index.is_some_and(|index| {
                SECRET_INDICES.contains(&index) || CHANGING_INDICES.contains(&index)
            });
        if !is_kept {
            return Some(Literal { index, mark: None });
        }
        let mark = mark(name, value);
        let Some(found) = self.table.find(mark, name, value) else {
            return Some(Literal { index, mark: Some(mark) });
        };
        let absolute = self.inserted - 1 - found as u64;
        if absolute >= self.acknowledged || self.sent.len() >= SECTIONS_MAX {
            return Some(Literal { index, mark: None });
        }
        write_integer(out, 0x80, 6, self.acknowledged - absolute - 1);
        self.required = self.required.max(absolute + 1);
        self.lowest = self.lowest.min(absolute);
        None
    }

    /// Writes a field as it is. The name is in lower case, name and value are well formed.
    pub fn literal(&mut self, literal: Literal, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let Literal { index, mark } = literal;
        if let Some(mark) = mark {
            self.keep(index, mark, name, value);
        }
        let is_secret = index.is_some_and(|index| SECRET_INDICES.contains(&index));
        let never = if is_secret { 0x20 } else { 0 };
        if let Some(index) = index {
            write_integer(out, 0x50 | never, 4, u64::from(index));
        } else {
            write_string(out, 0x20 | never >> 1, 3, name, HUFFMAN_BYTES_MIN);
        }
        write_string(out, 0, 7, value, HUFFMAN_BYTES_MIN);
    }

    /// Inserts a field that comes for the second time, if there is room for it.
    fn keep(&mut self, index: Option<u8>, mark: u32, name: &[u8], value: &[u8]) {
        if !self.seen.contains(&mark) {
            self.seen[usize::from(self.seen_at) % SEEN_COUNT] = mark;
            self.seen_at = self.seen_at.wrapping_add(1);
            return;
        }
        let cost = name.len() + value.len() + ENTRY_COST;
        if self.instructions.len() + cost > INSTRUCTION_BYTES_MAX || !self.has_room(cost) {
            return;
        }
        let out = &mut self.instructions;
        match index {
            Some(index) => write_integer(out, 0xc0, 6, u64::from(index)),
            None => write_string(out, 0x40, 5, name, 0),
        }
        write_string(out, 0, 7, value, 0);
        self.table.insert(mark, name, value);
        self.inserted += 1;
    }

    /// Whether an entry fits when those are evicted that no header block on its way refers to (RFC 9204 §2.1.1).
    fn has_room(&self, cost: usize) -> bool {
        let max = self.table.max();
        let mut used = self.table.cost();
        if used + cost <= max {
            return true;
        }
        let lowest = self.sent.iter().map(|sent| sent.lowest).min().unwrap_or(u64::MAX);
        let fixed = self.acknowledged.min(lowest).min(self.lowest);
        let oldest = self.inserted - self.table.len() as u64;
        for absolute in oldest..fixed {
            let index = (self.inserted - 1 - absolute) as usize;
            let Some((name, value)) = self.table.get(index) else { return false };
            used -= name.len() + value.len() + ENTRY_COST;
            if used + cost <= max {
                return true;
            }
        }
        false
    }

    /// Carries out one instruction of the client's decoder; `Ok(false)` if it came only in part.
    pub fn acknowledge(&mut self, input: &mut &[u8]) -> Result<bool, Fault> {
        let Some(&first) = input.first() else { return Ok(false) };
        let prefix_bits = if first & 0x80 != 0 { 7 } else { 6 };
        let number = match read_integer(input, prefix_bits, NUMBER_BYTES_MAX).map_err(Fault::from) {
            Err(Fault::CutShort) => return Ok(false),
            number => number?,
        };
        if first & 0x80 != 0 {
            let at = self.sent.iter().position(|sent| sent.stream == number);
            let sent = at.and_then(|at| self.sent.remove(at)).ok_or(Fault::Acknowledgement)?;
            self.acknowledged = self.acknowledged.max(sent.required);
        } else if first & 0x40 != 0 {
            self.sent.retain(|sent| sent.stream != number);
        } else {
            // RFC 9204 §4.4.3
            let acknowledged = self.acknowledged.checked_add(number);
            let acknowledged = acknowledged.filter(|count| *count <= self.inserted && number > 0);
            self.acknowledged = acknowledged.ok_or(Fault::Acknowledgement)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::table::STATIC;
    use super::super::{Decoder, Section};
    use super::*;

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    fn name_of(index: u8) -> &'static [u8] {
        STATIC[usize::from(index)].0
    }

    fn encoded(encoder: &mut Encoder, stream: u64, fields: &Fields) -> Vec<u8> {
        let (mut lines, mut block) = (Vec::new(), Vec::new());
        encoder.begin();
        for (name, value) in fields {
            if let Some(literal) = encoder.indexed(name, value, &mut lines) {
                encoder.literal(literal, name, value, &mut lines);
            }
        }
        encoder.end(stream, &mut block);
        block.extend_from_slice(&lines);
        block
    }

    fn decoded(decoder: &Decoder, block: &[u8]) -> (Section, Fields) {
        let mut fields = Vec::new();
        let section = decoder
            .decode(block, &mut Vec::new(), |field| {
                fields.push((field.name.to_vec(), field.value.to_vec()));
            })
            .expect("what we encode can be decoded");
        (section, fields)
    }

    #[test]
    fn indices_are_those_of_the_names() {
        let secret = SECRET_INDICES.map(name_of);
        assert_eq!(secret, [&b"set-cookie"[..], b"cookie", b"authorization"]);
        let changing = CHANGING_INDICES.map(name_of);
        assert_eq!(changing[..4], [&b"date"[..], b"etag", b"last-modified", b"content-length"]);
        assert_eq!(changing[4..], [&b"age"[..], b"location", b"content-disposition"]);
        assert_eq!(STATIC[usize::from(OK_INDEX)], (&b":status"[..], &b"200"[..]));
    }

    #[test]
    fn a_repeated_field_is_used_from_the_table_when_it_is_acknowledged() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
        encoder.set_peer_max(4096, 1024);
        let fields = vec![(b"server".to_vec(), b"sekisho".to_vec())];
        let first = encoded(&mut encoder, 0, &fields);
        let second = encoded(&mut encoder, 4, &fields);
        let third = encoded(&mut encoder, 8, &fields);
        assert_eq!((first.len(), &first), (second.len(), &third), "not yet acknowledged");
        decoder.receive(&encoder.take_instructions(), &mut Vec::new(), None).expect("ours");
        assert_eq!(decoder.inserted(), 1, "inserted once");
        assert_eq!(encoder.acknowledge(&mut &[0x01][..]), Ok(true));
        let fourth = encoded(&mut encoder, 12, &fields);
        assert_eq!(fourth, [2, 0, 0x80]);
        assert_eq!(decoded(&decoder, &fourth), (Section::Decoded(1), fields));
        assert_eq!(encoder.acknowledge(&mut &[0x8c][..]), Ok(true));
        // RFC 9204 §4.4: what was not sent cannot be acknowledged.
        for wrong in [0x8c, 0x00, 0x01] {
            assert_eq!(encoder.acknowledge(&mut &[wrong][..]), Err(Fault::Acknowledgement));
        }
        assert_eq!(encoder.acknowledge(&mut &[0x48][..]), Ok(true), "a cancelled stream");
    }

    #[test]
    fn secrets_are_never_inserted_and_marked() {
        let mut encoder = Encoder::default();
        encoder.set_peer_max(4096, 1024);
        encoder.instructions.clear();
        let fields = vec![(b"set-cookie".to_vec(), b"a=b".to_vec())];
        for stream in 0..4 {
            assert_eq!(encoded(&mut encoder, stream, &fields), *b"\0\0\x7e\x03a=b");
        }
        assert_eq!(encoder.instructions, []);
    }

    #[test]
    fn a_client_without_a_table_gets_no_instructions() {
        let mut encoder = Encoder::default();
        encoder.set_peer_max(0, 1024);
        let fields = vec![(b"server".to_vec(), b"sekisho".to_vec())];
        for stream in 0..4 {
            encoded(&mut encoder, stream, &fields);
        }
        assert_eq!((encoder.instructions.len(), encoder.capacity()), (0, 0));
    }

    fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let name =
            prop::sample::select(vec!["server", "content-type", "vary", "x-a", "x-b", "etag"]);
        let value = prop_oneof!["[a-d]{0,2}", "[a-z]{100}", Just("text/css".to_owned())];
        (name, value).prop_map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes()))
    }

    proptest! {
        /// RFC 9204 §2: whatever is sent when, and acknowledged or cancelled when, blocks are never blocked and
        /// fields come back.
        #[test]
        fn fields_come_back_with_tables_of_every_size(
            peer in 0_u64..3000,
            own in 0_usize..1500,
            steps in prop::collection::vec((prop::collection::vec(field(), 0..6), 0_u8..8), 1..60),
        ) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(peer as usize));
            encoder.set_peer_max(peer, own);
            let (mut blocks, mut stream) = (VecDeque::new(), 0);
            for (fields, step) in steps {
                stream += 4;
                let block = encoded(&mut encoder, stream, &fields);
                blocks.push_back((stream, block, fields));
                if step & 1 != 0 {
                    let instructions = encoder.take_instructions();
                    for bytes in instructions.chunks(usize::from(step) + 1) {
                        prop_assert_eq!(decoder.receive(bytes, &mut Vec::new(), None), Ok(true));
                    }
                    let mut out = Vec::new();
                    write_integer(&mut out, 0, 6, decoder.take_increment());
                    if out != [0] {
                        prop_assert_eq!(encoder.acknowledge(&mut &out[..]), Ok(true));
                    }
                }
                if step & 2 != 0 && let Some((stream, block, fields)) = blocks.pop_front() {
                    let (section, seen) = decoded(&decoder, &block);
                    prop_assert_eq!(seen, fields);
                    let mut out = Vec::new();
                    match section {
                        Section::Decoded(0) => continue,
                        Section::Decoded(_) if step & 4 == 0 => write_integer(&mut out, 0x80, 7, stream),
                        Section::Decoded(_) => write_integer(&mut out, 0x40, 6, stream),
                        Section::Blocked(_) => prop_assert!(false, "blocked"),
                    }
                    prop_assert_eq!(encoder.acknowledge(&mut &out[..]), Ok(true));
                }
            }
        }
    }
}
