//! Protobuf messages read where they lie, and written without being made: of the service `http` a request comes and a
//! head goes for each call.

use std::ops::Range;

use prost::encoding::{encode_varint, encoded_len_varint};
use sekisho_http::Fields;

/// What most heads have room in.
const HEAD_BYTES: usize = 512;

/// The parts of a message that have a length, by tag; others are skipped.
pub(crate) struct Parts<'a> {
    raw: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Parts<'a> {
    /// Of the message that lies there.
    pub(crate) fn new(raw: &'a [u8], range: Range<usize>) -> Self {
        Self { raw, at: range.start, end: range.end.min(raw.len()) }
    }

    /// The next one; an error where the message is cut off or is none.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Range<usize>)>, ()> {
        while self.at < self.end {
            let key = self.varint()?;
            let length = match key & 7 {
                0 => {
                    self.varint()?;
                    continue;
                }
                1 => 8,
                5 => 4,
                2 => usize::try_from(self.varint()?).map_err(|_| ())?,
                _ => return Err(()),
            };
            let from = self.at;
            self.at = from.checked_add(length).filter(|at| *at <= self.end).ok_or(())?;
            if key & 7 == 2 {
                return Ok(Some((key >> 3, from..self.at)));
            }
        }
        Ok(None)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, ()> {
        // Nearly all of them are short.
        match self.raw[..self.end].get(self.at) {
            Some(byte) if *byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, ()> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.raw[..self.end].get(self.at).ok_or(())?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(())
    }
}

/// Name and value of a field line, the value without blanks around it.
pub(crate) fn field(raw: &[u8], range: Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
    let (mut name, mut value) = (0..0, 0..0);
    let mut parts = Parts::new(raw, range);
    while let Some((tag, range)) = parts.next().ok()? {
        match tag {
            1 => name = range,
            2 => value = range,
            _ => {}
        }
    }
    let bytes = &raw[value.clone()];
    let from = value.start + (bytes.len() - bytes.trim_ascii_start().len());
    Some((name, from..from + bytes.trim_ascii().len()))
}

/// A [`sekisho_endpoint::http::Head`] as it is sent, without making one.
pub(super) fn encode_head(status: u32, fields: &Fields, length: Option<u64>, out: &mut Vec<u8>) {
    // Tags and wire types: `status`, `fields`, and of these `name` and `value`.
    const STATUS: u8 = 1 << 3;
    const FIELD: u8 = 2 << 3 | 2;
    const NAME: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 2;
    out.reserve(HEAD_BYTES);
    if status > 0 {
        out.push(STATUS);
        encode_varint(status.into(), out);
    }
    let mut digits = [0; 20];
    let length = length.map(|length| (&b"Content-Length"[..], decimal(length, &mut digits)));
    for (name, value) in fields.iter().chain(length) {
        // Names are tokens.
        let name = if name.is_ascii() { name } else { b"?" };
        let bytes = part_bytes(name) + part_bytes(value);
        if bytes < 0x80 && !name.is_empty() && !value.is_empty() {
            // Nearly all of them.
            out.reserve(bytes + 2);
            out.extend_from_slice(&[FIELD, bytes as u8, NAME, name.len() as u8]);
            out.extend_from_slice(name);
            out.extend_from_slice(&[VALUE, value.len() as u8]);
            out.extend_from_slice(value);
            continue;
        }
        out.push(FIELD);
        push_length(out, bytes);
        for (key, bytes) in [(NAME, name), (VALUE, value)] {
            if !bytes.is_empty() {
                out.push(key);
                push_length(out, bytes.len());
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// What a part of a message takes; an empty one is left out.
const fn part_bytes(bytes: &[u8]) -> usize {
    match bytes.len() {
        0 => 0,
        length @ 1..0x80 => 2 + length,
        length => 1 + encoded_len_varint(length as u64) + length,
    }
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    if length < 0x80 {
        out.push(length as u8);
    } else {
        encode_varint(length as u64, out);
    }
}

/// A number in decimal digits.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sekisho_endpoint::http::{Field, Head};

    use super::*;

    #[test]
    fn a_head_is_encoded_as_its_message_is() {
        // E9
        let long = "x".repeat(300);
        for (status, length, rows) in [
            (200, Some(12), vec![("Server", "sekisho"), ("Empty", "")]),
            (404, Some(0), Vec::new()),
            (206, Some(u64::MAX), vec![("X", long.as_str())]),
            (304, None, vec![("ETag", "1")]),
        ] {
            let mut fields = Fields::new();
            for (name, value) in &rows {
                fields.push(name, value);
            }
            let mut encoded = Vec::new();
            encode_head(status, &fields, length, &mut encoded);
            let length = length.map(|length| ("Content-Length".to_owned(), length.to_string()));
            let rows = rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let made = |(name, value): (String, String)| Field { name, value: value.into_bytes() };
            let fields = rows.chain(length).map(made).collect();
            assert_eq!(encoded, Head { status, fields }.encode_to_vec());
        }
    }
}
