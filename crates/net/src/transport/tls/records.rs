//! Records of TLS and the buffers that they go through: those of a thread share a pool.

use std::cell::RefCell;
use std::io;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::{HANDSHAKE_BYTES_MAX, READ_BYTES, failed};

/// How many buffers a thread keeps for later.
const POOL_MAX: usize = 64;
/// Type, version and length.
const RECORD_HEAD_BYTES: usize = 5;
/// So much may follow in TLS 1.2; in TLS 1.3 it is less.
const RECORD_BYTES_MAX: usize = (16 << 10) + 2048;

thread_local! {
    /// Buffers that nobody has now.
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn borrow_buffer() -> Vec<u8> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_default()
}

pub(super) fn give_back(buffer: &mut Vec<u8>) {
    let mut buffer = std::mem::take(buffer);
    if (READ_BYTES..=2 * HANDSHAKE_BYTES_MAX).contains(&buffer.capacity()) {
        POOL.with_borrow_mut(|pool| {
            if pool.len() < POOL_MAX {
                buffer.clear();
                pool.push(buffer);
            }
        });
    }
}

/// Bytes that wait: those from `at` on.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) bytes: Vec<u8>,
    pub(super) at: usize,
}

impl Waiting {
    pub(super) fn left(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// So many have been used; a buffer without any goes back.
    pub(super) fn used(&mut self, count: usize) {
        self.at += count;
        if self.is_empty() {
            self.at = 0;
            give_back(&mut self.bytes);
        }
    }

    /// Room behind what waits, at least so much.
    pub(super) fn room(&mut self, least: usize) -> &mut [u8] {
        if self.bytes.capacity() < READ_BYTES {
            let mut larger = borrow_buffer();
            larger.extend_from_slice(self.left());
            (self.bytes, self.at) = (larger, 0);
        } else if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        let filled = self.bytes.len();
        self.bytes.resize(filled + least, 0);
        &mut self.bytes[filled..]
    }

    /// Takes back room that was not filled.
    pub(super) fn cut(&mut self, unfilled: usize) {
        let filled = self.bytes.len() - unfilled;
        self.bytes.truncate(filled);
        self.used(0);
    }
}

/// How many records have come to their end; one that is longer than any may be counts, so that it is refused.
pub(super) fn complete_records(mut input: &[u8]) -> usize {
    let mut count = 0;
    while let Some((head, rest)) = input.split_at_checked(RECORD_HEAD_BYTES) {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        match rest.get(length..) {
            Some(rest) => input = rest,
            None if length > RECORD_BYTES_MAX => return count + 1,
            None => return count,
        }
        count += 1;
    }
    count
}

/// The buffers that records go through.
pub(super) struct Records<'a> {
    pub(super) input: &'a mut Waiting,
    pub(super) plain: &'a mut Waiting,
    pub(super) output: &'a mut Waiting,
}

/// What came of a record.
pub(super) enum Taken {
    /// So much plaintext; what there was no room for waits.
    Plain(usize),
    /// A step of the protocol.
    Other,
    /// The peer has ended its side.
    Close,
    /// There is no record to take.
    Nothing,
}

impl Records<'_> {
    /// Takes the next record, or one step that an earlier one has led to.
    pub(super) fn take_one(
        self,
        keys: &mut UnbufferedServerConnection,
        into: &mut [u8],
    ) -> io::Result<Taken> {
        let Self { input, plain, output } = self;
        let records = &mut input.bytes[input.at..];
        let UnbufferedStatus { mut discard, state, .. } = keys.process_tls_records(records);
        let mut count = 0;
        let taken = match state.map_err(failed)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(failed)?;
                    discard += record.discard;
                    let taken = record.payload.len().min(into.len() - count);
                    into[count..count + taken].copy_from_slice(&record.payload[..taken]);
                    count += taken;
                    plain.bytes.extend_from_slice(&record.payload[taken..]);
                }
                Taken::Plain(count)
            }
            ConnectionState::EncodeTlsData(mut record) => {
                encode(output, |room| record.encode(room))?;
                Taken::Other
            }
            ConnectionState::TransmitTlsData(output) => {
                output.done();
                Taken::Other
            }
            // Said once.
            ConnectionState::PeerClosed => Taken::Close,
            // The handshake waits, or nothing does, or both sides have ended.
            _ => Taken::Nothing,
        };
        input.used(discard);
        Ok(taken)
    }
}

/// Puts a record of the handshake behind the output.
pub(super) fn encode(
    output: &mut Waiting,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> io::Result<()> {
    let mut size = 1 << 10;
    loop {
        let made = encode(output.room(size));
        match made {
            Ok(count) => {
                output.cut(size - count);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(more)) => {
                output.cut(size);
                size = more.required_size;
            }
            Err(error @ EncodeError::AlreadyEncoded) => {
                output.cut(size);
                return Err(failed(error));
            }
        }
    }
}

/// Puts so much plaintext behind the output, as records.
pub(super) fn seal(
    output: &mut Waiting,
    bytes: usize,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> io::Result<()> {
    let mut size = bytes + bytes / 64 + 256;
    loop {
        match seal(output.room(size)) {
            Ok(count) => {
                output.cut(size - count);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(more)) => {
                output.cut(size);
                size = more.required_size;
            }
            Err(error @ EncryptError::EncryptExhausted) => {
                output.cut(size);
                return Err(failed(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_when_they_are_complete() {
        let cases: [(&[u8], usize); 8] = [
            (b"", 0),
            (b"\x16\x03\x01\x00", 0),
            (b"\x16\x03\x01\x00\x02a", 0),
            (b"\x16\x03\x01\x00\x02ab", 1),
            (b"\x16\x03\x01\x00\x00", 1),
            (b"\x16\x03\x01\x00\x01a\x16\x03\x01\x00\x01", 1),
            (b"\x16\x03\x01\x00\x01a\x16\x03\x01\x00\x01b", 2),
            (b"\x16\x03\x01\xff\xffa", 1),
        ];
        for (input, expected) in cases {
            assert_eq!(complete_records(input), expected, "{input:?}");
        }
    }

    #[test]
    fn what_waits_gives_its_buffer_back_when_it_is_used_up() {
        let mut waiting = Waiting::default();
        waiting.room(10).copy_from_slice(b"abcdefghij");
        waiting.cut(4);
        waiting.used(2);
        assert_eq!(waiting.left(), b"cdef");
        waiting.room(3).copy_from_slice(b"xyz");
        assert_eq!(waiting.left(), b"cdefxyz");
        waiting.used(7);
        assert!(waiting.is_empty() && waiting.bytes.capacity() == 0);
    }
}
