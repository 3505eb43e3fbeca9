//! The wire form of frames (RFC 9114 §7): variable-length integers, the type and length in front of each frame, and the
//! frames that a server sends on its control stream.

/// The longest frame header: two variable-length integers.
pub const HEADER_BYTES_MAX: usize = 16;
/// The largest variable-length integer.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// The types of frames (RFC 9114 §7.2, RFC 9218 §7.2).
pub mod kind {
    /// DATA
    pub const DATA: u64 = 0x0;
    /// HEADERS
    pub const HEADERS: u64 = 0x1;
    /// CANCEL_PUSH
    pub const CANCEL_PUSH: u64 = 0x3;
    /// SETTINGS
    pub const SETTINGS: u64 = 0x4;
    /// PUSH_PROMISE
    pub const PUSH_PROMISE: u64 = 0x5;
    /// GOAWAY
    pub const GOAWAY: u64 = 0x7;
    /// MAX_PUSH_ID
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// PRIORITY_UPDATE of a request
    pub const PRIORITY_UPDATE: u64 = 0xf0700;
    /// PRIORITY_UPDATE of a push
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;

    /// Types of HTTP/2 that HTTP/3 has no use for; they must not occur (RFC 9114 §7.2.8).
    pub const fn is_reserved(kind: u64) -> bool {
        matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
    }

    /// Types that an extension may have defined: those that we do not know are ignored.
    pub const fn is_unknown(kind: u64) -> bool {
        !is_reserved(kind)
            && !matches!(
                kind,
                DATA | HEADERS
                    | CANCEL_PUSH
                    | SETTINGS
                    | PUSH_PROMISE
                    | GOAWAY
                    | MAX_PUSH_ID
                    | PRIORITY_UPDATE
                    | PRIORITY_UPDATE_PUSH
            )
    }
}

/// The types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream_kind {
    /// The control stream.
    pub const CONTROL: u64 = 0x0;
    /// A push stream.
    pub const PUSH: u64 = 0x1;
    /// The QPACK encoder stream.
    pub const ENCODER: u64 = 0x2;
    /// The QPACK decoder stream.
    pub const DECODER: u64 = 0x3;
}

/// The settings (RFC 9114 §7.2.4.1, RFC 9204 §5).
pub mod setting {
    /// `SETTINGS_QPACK_MAX_TABLE_CAPACITY`
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    /// `SETTINGS_MAX_FIELD_SECTION_SIZE`
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    /// `SETTINGS_QPACK_BLOCKED_STREAMS`
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;

    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 9220)
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

    /// Settings of HTTP/2 that must not occur.
    pub const fn is_reserved(id: u64) -> bool {
        matches!(id, 0x0 | 0x2..=0x5)
    }
}

/// Takes a variable-length integer (RFC 9000 §16) from the front of the input, if it is there completely.
pub fn read_varint(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let len = 1 << (first >> 6);
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    let first = u64::from(first & 0x3f);
    Some(bytes[1..].iter().fold(first, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Writes a variable-length integer.
pub fn write_varint(out: &mut Vec<u8>, number: u64) {
    debug_assert!(number <= VARINT_MAX, "62 bits");
    let bytes = number.to_be_bytes();
    match number {
        0..=0x3f => out.push(bytes[7]),
        0x40..=0x3fff => out.extend_from_slice(&[0x40 | bytes[6], bytes[7]]),
        0x4000..=0x3fff_ffff => {
            out.extend_from_slice(&[0x80 | bytes[4], bytes[5], bytes[6], bytes[7]]);
        }
        _ => {
            out.push(0xc0 | bytes[0]);
            out.extend_from_slice(&bytes[1..]);
        }
    }
}

/// How many bytes a variable-length integer takes.
pub const fn varint_len(number: u64) -> usize {
    match number {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Writes a frame header.
pub fn write_header(out: &mut Vec<u8>, kind: u64, len: u64) {
    write_varint(out, kind);
    write_varint(out, len);
}

/// Writes SETTINGS.
pub fn write_settings(out: &mut Vec<u8>, settings: &[(u64, u64)]) {
    let len =
        settings.iter().map(|(id, value)| varint_len(*id) + varint_len(*value)).sum::<usize>();
    write_header(out, kind::SETTINGS, len as u64);
    for (id, value) in settings {
        write_varint(out, *id);
        write_varint(out, *value);
    }
}

/// Writes GOAWAY: requests from this stream on are not processed.
pub fn write_go_away(out: &mut Vec<u8>, stream: u64) {
    write_header(out, kind::GOAWAY, varint_len(stream) as u64);
    write_varint(out, stream);
}

/// The bytes of a number that come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartialHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: u8,
}

impl PartialHeader {
    /// Whether nothing of a header has come.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes bytes from the input until `COUNT` variable-length integers are complete.
    pub(crate) fn take<const COUNT: usize>(&mut self, input: &mut &[u8]) -> Option<[u64; COUNT]> {
        if self.len == 0
            && let Some(numbers) = read_varints(input)
        {
            return Some(numbers);
        }
        while let Some((byte, rest)) = input.split_first() {
            let place = self.bytes.get_mut(usize::from(self.len))?;
            (*place, *input) = (*byte, rest);
            self.len += 1;
            let mut gathered = &self.bytes[..usize::from(self.len)];
            if let Some(numbers) = read_varints(&mut gathered) {
                self.len = 0;
                return Some(numbers);
            }
        }
        None
    }
}

/// Takes some variable-length integers, or nothing.
fn read_varints<const COUNT: usize>(input: &mut &[u8]) -> Option<[u64; COUNT]> {
    let mut rest = *input;
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = read_varint(&mut rest)?;
    }
    *input = rest;
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_those_of_the_rfc() {
        // RFC 9000 A.1
        let rows: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, number) in rows {
            assert_eq!(read_varint(&mut &bytes[..]), Some(number));
            assert_eq!(read_varint(&mut &bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            write_varint(&mut out, number);
            assert_eq!(out.len(), varint_len(number));
            assert_eq!(read_varint(&mut &out[..]), Some(number));
        }
        let mut out = Vec::new();
        write_varint(&mut out, VARINT_MAX);
        assert_eq!(out, [0xff; 8]);
    }

    #[test]
    fn a_front_may_come_byte_by_byte() {
        let mut out = Vec::new();
        write_header(&mut out, kind::PRIORITY_UPDATE, 70_000);
        let mut header = PartialHeader::default();
        for byte in &out[..out.len() - 1] {
            assert_eq!(header.take::<2>(&mut &[*byte][..]), None);
        }
        let mut last = &[out[out.len() - 1], 9][..];
        assert_eq!(header.take(&mut last), Some([kind::PRIORITY_UPDATE, 70_000]));
        assert_eq!((last, header.is_empty()), (&[9][..], true));
        assert_eq!(header.take(&mut &out[..]), Some([kind::PRIORITY_UPDATE, 70_000]));
    }

    #[test]
    fn types_are_known_reserved_or_unknown() {
        for reserved in [0x2, 0x6, 0x8, 0x9] {
            assert!(kind::is_reserved(reserved) && !kind::is_unknown(reserved));
        }
        for grease in [0x21, 0x40, 0xa, 0xf0702] {
            assert!(kind::is_unknown(grease), "{grease:x}");
        }
    }
}
