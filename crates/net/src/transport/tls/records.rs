//! Records of TLS and the buffers that they go through: those of a thread share a pool.

use std::cell::RefCell;
use std::fmt::Write;
use std::io;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::{HANDSHAKE_BYTES_MAX, READ_BYTES, failed};

/// An unfinished record of at most this size is moved out of a shared buffer, while its rest is waited for.
const SMALL_BYTES: usize = 4 << 10;

/// How many buffers a thread keeps for later.
const POOL_MAX: usize = 64;
/// Type, version and length.
const RECORD_HEAD_BYTES: usize = 5;
/// So much may follow in TLS 1.2; in TLS 1.3 it is less.
const RECORD_BYTES_MAX: usize = (16 << 10) + 2048;

thread_local! {
    /// Buffers that are not in use.
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn borrow_buffer() -> Vec<u8> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn give_back(buffer: &mut Vec<u8>) {
    let buffer = std::mem::take(buffer);
    if (READ_BYTES..=2 * HANDSHAKE_BYTES_MAX).contains(&buffer.len()) {
        POOL.with_borrow_mut(|pool| {
            if pool.len() < POOL_MAX {
                pool.push(buffer);
            }
        });
    }
}

/// Bytes that wait: those from `at` to `end`. What is behind them is room, and left as it is: nothing is cleared
/// only to be written over.
#[derive(Default)]
pub(super) struct Waiting {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({})", self.end - self.at)
    }
}

impl Waiting {
    pub(super) fn left(&self) -> &[u8] {
        &self.bytes[self.at..self.end]
    }

    pub(super) fn left_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// What it holds in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// So many have been used; a buffer without any goes back.
    pub(super) fn used(&mut self, count: usize) {
        self.at += count;
        if self.is_empty() {
            (self.at, self.end) = (0, 0);
            give_back(&mut self.bytes);
        }
    }

    /// Room behind what waits, so much, which counts as filled until some of it is [cut](Self::cut) off.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < READ_BYTES {
            let mut larger = borrow_buffer();
            let left = self.left();
            larger.resize(larger.len().max(READ_BYTES).max(left.len()), 0);
            larger[..left.len()].copy_from_slice(left);
            (self.at, self.end) = (0, left.len());
            self.bytes = larger;
        } else if self.at > 0 {
            self.bytes.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        let filled = self.end;
        self.end += bytes;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[filled..self.end]
    }

    /// Takes back room that was not filled.
    pub(super) fn cut(&mut self, unfilled: usize) {
        self.end -= unfilled;
        self.used(0);
    }

    /// Puts bytes behind what waits, without a buffer of the pool.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
    }

    /// Moves what waits out of a buffer of the pool, which others can use then: little, or all of it where a peer may never
    /// send the rest (O9).
    pub(super) fn shrink(&mut self, is_all: bool) {
        let left = self.left();
        let is_worth_it = left.len() <= SMALL_BYTES || is_all;
        if !left.is_empty() && is_worth_it && self.bytes.len() >= READ_BYTES {
            let kept = left.to_vec();
            give_back(&mut self.bytes);
            (self.at, self.end) = (0, kept.len());
            self.bytes = kept;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        give_back(&mut self.bytes);
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

/// The number of the session in a server's hello that these records begin with, in hexadecimal digits.
pub(super) fn session_id(records: &[u8]) -> Option<String> {
    /// The heads of record and message, the version and the random number.
    const BEFORE: usize = RECORD_HEAD_BYTES + 4 + 2 + 32;
    let is_hello = records.first() == Some(&22) && records.get(RECORD_HEAD_BYTES) == Some(&2);
    let (length, rest) = records.get(BEFORE..)?.split_first()?;
    let id = rest.get(..usize::from(*length)).filter(|_| is_hello)?;
    Some(id.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
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
    /// The same, before the handshake was over (RFC 8446 §2.3).
    Early(usize),
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
        let UnbufferedStatus { mut discard, state, .. } =
            keys.process_tls_records(input.left_mut());
        let mut count = 0;
        let mut take = |payload: &[u8]| {
            let taken = payload.len().min(into.len() - count);
            into[count..count + taken].copy_from_slice(&payload[..taken]);
            count += taken;
            if taken < payload.len() {
                plain.push(&payload[taken..]);
            }
        };
        let taken = match state.map_err(failed)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(failed)?;
                    discard += record.discard;
                    take(record.payload);
                }
                Taken::Plain(count)
            }
            ConnectionState::ReadEarlyData(mut early) => {
                while let Some(record) = early.next_record() {
                    let record = record.map_err(failed)?;
                    discard += record.discard;
                    take(record.payload);
                }
                Taken::Early(count)
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
