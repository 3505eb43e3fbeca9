//! The wire form of frames (RFC 9113 §4, §6): the nine bytes in front of each, and the short frames that an
//! endpoint sends of its own accord. Knows no stream.

/// How long a frame header is.
pub const HEADER_BYTES: usize = 9;
/// The longest payload that we take, which is the protocol's default and smallest allowed maximum.
pub const PAYLOAD_BYTES_MAX: u32 = 16 * 1024;
/// How much input a driver must be able to offer at once: frames other than DATA are taken whole.
pub const INPUT_BYTES_MIN: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX as usize;
/// The largest window, stream number and settings value where 31 bits count.
pub const MAX_31: u32 = 0x7fff_ffff;
/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The initial window of streams and of the connection (RFC 9113 §6.9.2).
pub const WINDOW_BYTES: u32 = 65_535;

/// Flags; their meaning depends on the kind of frame.
pub mod flag {
    /// `ACK` of SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// `END_STREAM` of DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// `END_HEADERS` of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// `PADDED` of DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// `PRIORITY` of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// The settings that we read or send (RFC 9113 §6.5.2, RFC 9218 §2.1).
pub mod setting {
    /// `SETTINGS_HEADER_TABLE_SIZE`
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// `SETTINGS_ENABLE_PUSH`
    pub const ENABLE_PUSH: u16 = 2;
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// `SETTINGS_INITIAL_WINDOW_SIZE`
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// `SETTINGS_MAX_FRAME_SIZE`
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441)
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// `SETTINGS_NO_RFC7540_PRIORITIES`
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The kinds of frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// RFC 9218 §7.1
    PriorityUpdate,
    /// An extension that we do not know; it is skipped (RFC 9113 §5.5).
    Unknown,
}

impl Kind {
    const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            _ => Self::Unknown,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Headers => 1,
            Self::Priority => 2,
            Self::RstStream => 3,
            Self::Settings => 4,
            Self::PushPromise => 5,
            Self::Ping => 6,
            Self::GoAway => 7,
            Self::WindowUpdate => 8,
            Self::Continuation => 9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown => 0xff,
        }
    }
}

/// The first nine bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// How long the payload is.
    pub len: u32,
    /// Which kind of frame.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Which stream; 0 is the connection.
    pub stream: u32,
}

impl Header {
    /// Reads a header, if all of it is there.
    pub fn read(input: &[u8]) -> Option<Self> {
        let bytes = input.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            len: u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]),
            kind: Kind::from_byte(bytes[3]),
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & MAX_31,
        })
    }

    /// Whether the flag is set.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The header in its wire form.
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let len = self.len.to_be_bytes();
        let stream = self.stream.to_be_bytes();
        let kind = self.kind.byte();
        [len[1], len[2], len[3], kind, self.flags, stream[0], stream[1], stream[2], stream[3]]
    }
}

/// Whether a connection begins with the client's preface: HTTP/2 with prior knowledge (RFC 9113 §3.3). `None` while too
/// little has come to tell it from a request of HTTP/1, which is never for long: no other method begins with `PRI *`.
pub fn is_preface(input: &[u8]) -> Option<bool> {
    let len = input.len().min(PREFACE.len());
    if input[..len] != PREFACE[..len] {
        return Some(false);
    }
    (len == PREFACE.len()).then_some(true)
}

/// The four bytes at this place of a payload, as a number.
pub fn number(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Writes the header of a frame.
pub fn header(out: &mut Vec<u8>, len: usize, kind: Kind, flags: u8, stream: u32) {
    out.extend_from_slice(&Header { len: len as u32, kind, flags, stream }.to_bytes());
}

/// Ends a header block whose HEADERS frame begins at `at`: its length is written there, or it goes on in CONTINUATION frames
/// where it is longer than a frame of the peer may be.
pub(crate) fn close_block(out: &mut Vec<u8>, at: usize, len_max: usize, flags: u8, stream: u32) {
    let len = out.len() - at - HEADER_BYTES;
    if len <= len_max {
        out[at..at + 3].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        return;
    }
    let block = out.split_off(at + HEADER_BYTES);
    out.truncate(at);
    let many = block.len().div_ceil(len_max);
    for (piece, at) in block.chunks(len_max).zip(1..) {
        let end = if at == many { flag::END_HEADERS } else { 0 };
        let (kind, flags) = match at {
            1 => (Kind::Headers, flags | end),
            _ => (Kind::Continuation, end),
        };
        header(out, piece.len(), kind, flags, stream);
        out.extend_from_slice(piece);
    }
}

/// Writes RST_STREAM.
pub fn rst_stream(out: &mut Vec<u8>, stream: u32, code: u32) {
    header(out, 4, Kind::RstStream, 0, stream);
    out.extend_from_slice(&code.to_be_bytes());
}

/// Writes WINDOW_UPDATE.
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    header(out, 4, Kind::WindowUpdate, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Writes PING.
pub fn ping(out: &mut Vec<u8>, flags: u8, opaque: [u8; 8]) {
    header(out, 8, Kind::Ping, flags, 0);
    out.extend_from_slice(&opaque);
}

/// Writes GOAWAY without debug data.
pub fn go_away(out: &mut Vec<u8>, last: u32, code: u32) {
    header(out, 8, Kind::GoAway, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
}

/// Writes SETTINGS.
pub fn settings(out: &mut Vec<u8>, values: &[(u16, u32)]) {
    header(out, values.len() * 6, Kind::Settings, 0, 0);
    for (id, value) in values {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_is_written() {
        for byte in 0..=u8::MAX {
            let kind = Kind::from_byte(byte);
            let header = Header { len: 0x01_02_03, kind, flags: 0x2d, stream: MAX_31 };
            assert_eq!(Header::read(&header.to_bytes()), Some(header));
        }
        assert_eq!(Header::read(&[0; 8]), None);
    }

    #[test]
    fn a_preface_is_told_from_a_request_by_its_bytes() {
        assert_eq!(is_preface(b""), None);
        assert_eq!(is_preface(b"PRI * HTTP/2.0"), None);
        assert_eq!(is_preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n..."), Some(true));
        assert_eq!(is_preface(b"PUT"), Some(false));
        assert_eq!(is_preface(b"GET / HTTP/1.1\r\n"), Some(false));
    }

    #[test]
    fn the_reserved_bit_of_a_stream_number_is_ignored() {
        // RFC 9113 §4.1
        let header = Header::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]);
        assert_eq!(header.map(|header| header.stream), Some(1));
    }
}
