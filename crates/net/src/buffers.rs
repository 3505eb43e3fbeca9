//! What a connection borrows from its worker while there is something to do: its input and its output. An idle
//! connection has none.

use std::cell::RefCell;

use sekisho_handler::memory::{self, Class, RESPONSE_BYTES_MIN};
use sekisho_http::Scratch;
use sekisho_lifecycle::Moment;

use crate::wake::SessionWaker;

/// What one read takes at the most; grows for a head that is larger.
const INPUT_BYTES: usize = 16 * 1024;
/// Answers of a batch are written together up to about this size.
const BATCH_BYTES: usize = 64 * 1024;
/// A body is put behind a head of this size in any case.
const HEAD_BYTES: usize = 1024;
/// Buffers that have grown beyond this are not kept.
pub(crate) const KEEP_BYTES: usize = 128 * 1024;
/// How many inputs a thread keeps for connections that wait for something else.
const INPUTS_MAX: usize = 64;

thread_local! {
    /// Inputs that are not in use, each of [`INPUT_BYTES`].
    static INPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A connection's input and output.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    /// Where the bytes that the engine has not taken begin and end in `input`.
    pub(crate) taken: usize,
    pub(crate) filled: usize,
    /// The head that was received last, and the output, as the engine wants them.
    pub(crate) scratch: Scratch,
    /// How much of the output has left.
    pub(crate) sent: usize,
    /// When the first byte of the head that is being received was seen, and how many have been taken.
    pub(crate) since: Moment,
    pub(crate) received: u64,
    /// Whether that byte came in the same read as an earlier request.
    pub(crate) is_pipelined: bool,
    /// The waker by which tasks and other threads wake the session.
    pub(crate) session_waker: Option<SessionWaker>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            input: vec![0; INPUT_BYTES],
            taken: 0,
            filled: 0,
            scratch: Scratch::default(),
            sent: 0,
            since: Moment::ZERO,
            received: 0,
            is_pipelined: false,
            session_waker: None,
        }
    }
}

impl Buffers {
    /// Whether nothing in it is still needed.
    pub(crate) fn is_done(&self) -> bool {
        self.taken == self.filled && self.sent == self.scratch.out.len()
    }

    /// What has been read and not taken.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.taken..self.filled]
    }

    /// Room for the next read.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.input.len() < INPUT_BYTES {
            self.grow_input();
        }
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.filled == self.input.len() {
            if self.taken > 0 {
                self.input.copy_within(self.taken..self.filled, 0);
                self.filled -= self.taken;
                self.taken = 0;
            } else {
                // The engine bounds what it leaves untaken by the limits of a head.
                self.input.resize(self.input.len() * 2, 0);
            }
        }
        &mut self.input[self.filled..]
    }

    /// Whether a read would find room without the buffer growing beyond its usual size.
    pub(crate) fn has_input_room(&self) -> bool {
        self.filled < self.input.len().max(INPUT_BYTES) || self.taken > 0
    }

    /// The connection waits for something else: gives back memory that holds nothing (O9).
    pub(crate) fn give_back_room(&mut self, is_full: bool) {
        let out = &mut self.scratch.out;
        if is_full && out.len() < out.capacity() / 2 {
            out.shrink_to_fit();
        }
        let unread = self.unread();
        if self.input.is_empty() || unread.len() > self.input.len() / 4 * 3 {
            return;
        }
        let kept = unread.to_vec();
        let input = std::mem::replace(&mut self.input, kept);
        (self.taken, self.filled) = (0, self.input.len());
        if input.len() == INPUT_BYTES {
            INPUTS.with_borrow_mut(|inputs| {
                if inputs.len() < INPUTS_MAX {
                    inputs.push(input);
                }
            });
        }
    }

    /// Makes the input as large as usual again.
    fn grow_input(&mut self) {
        let spare = INPUTS.with_borrow_mut(Vec::pop);
        let mut input = spare.unwrap_or_else(|| vec![0; INPUT_BYTES]);
        let unread = self.unread();
        input[..unread.len()].copy_from_slice(unread);
        (self.taken, self.filled) = (0, unread.len());
        self.input = input;
    }

    /// What is to leave.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.scratch.out[self.sent..]
    }

    /// So many bytes have left; whether more wait.
    pub(crate) fn has_sent(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        let is_more = self.sent < self.scratch.out.len();
        if !is_more {
            self.scratch.out.clear();
            self.sent = 0;
        }
        is_more
    }

    /// Whether more may be put into the output before it leaves. Where the transport takes nothing and several requests
    /// share the connection, the beginnings of other answers may be put behind what waits.
    pub(crate) fn has_room(&self, is_blocked: bool) -> bool {
        let waiting = self.scratch.out.len() - self.sent;
        let most = if is_blocked { 2 * BATCH_BYTES } else { BATCH_BYTES };
        let least = if is_blocked { RESPONSE_BYTES_MIN } else { HEAD_BYTES };
        waiting <= least || (waiting <= most && !memory::is_full(Class::Responses))
    }

    /// Makes it ready for another connection; `false` when it is not worth keeping.
    pub(crate) fn tidy(&mut self) -> bool {
        (self.taken, self.filled, self.sent, self.received) = (0, 0, 0, 0);
        self.scratch.out.clear();
        // One client's head must never be taken for another's (a 408 is answered without one).
        self.scratch.head.clear();
        (INPUT_BYTES..=KEEP_BYTES).contains(&self.input.len())
            && self.scratch.out.capacity() <= KEEP_BYTES
            && self.scratch.head.capacity() <= KEEP_BYTES
    }

    /// What it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.input.capacity()
            + self.scratch.out.capacity()
            + self.scratch.head.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O9: a connection that waits has the bytes that have come, and no room for others.
    #[test]
    fn unread_bytes_survive_that_room_is_given_back() {
        let mut buffers = Buffers::default();
        for round in 1..5_usize {
            let piece = [round as u8; 1000];
            buffers.room()[..1000].copy_from_slice(&piece);
            buffers.filled += 1000;
            assert!(buffers.has_input_room());
            buffers.give_back_room(false);
            assert_eq!((buffers.unread().len(), buffers.input.len()), (round * 1000, round * 1000));
            assert!(buffers.unread().ends_with(&piece) && buffers.unread().starts_with(&[1; 1000]));
            assert!(buffers.has_input_room());
        }
        buffers.taken += 500;
        buffers.give_back_room(false);
        assert_eq!((buffers.unread().len(), buffers.taken), (3500, 500), "it is not worth it");
        buffers.taken = buffers.filled;
        buffers.give_back_room(false);
        assert!(buffers.input.is_empty() && buffers.room().len() == INPUT_BYTES);
    }

    #[test]
    fn the_memory_usage_of_buffers_is_what_they_have_grown_to() {
        let mut buffers = Buffers::default();
        assert!(buffers.memory_bytes() > 16 * 1024, "{}", buffers.memory_bytes());
        let before = buffers.memory_bytes();
        buffers.scratch.out.reserve_exact(100_000);
        assert_eq!(buffers.memory_bytes(), before + buffers.scratch.out.capacity());
    }
}
