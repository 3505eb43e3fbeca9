//! What a session has while there is something to do: buffers, the request in work, who works on it. Borrowed
//! from the worker, and given back when there is nothing to do.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use sekisho_handler::{Outbox, Piece, Task};
use sekisho_http1::Scratch;
use sekisho_lifecycle::Moment;

use crate::bell::Rope;
use crate::pace::Pace;
use crate::serve::Serving;
use crate::sluice::Sluice;

/// What one read takes at the most; grows for a head that is larger.
const INPUT_BYTES: usize = 16 * 1024;
/// Answers of a batch are written together up to about this size.
const BATCH_BYTES: usize = 64 * 1024;
/// Buffers that have grown beyond this are not kept.
const KEEP_BYTES: usize = 128 * 1024;

/// What a session has while there is something to do.
#[derive(Debug)]
pub struct Busy {
    pub(crate) input: Vec<u8>,
    /// Where the bytes that the engine has not taken begin and end in `input`.
    pub(crate) taken: usize,
    pub(crate) filled: usize,
    /// Where the head of the request in work lies in `input`, while it does; empty where it was not whole.
    pub(crate) head: Range<usize>,
    /// Head and output, as the engine wants them.
    pub scratch: Scratch,
    /// How much of the output has left.
    pub(crate) sent: usize,
    /// How fast the answer may leave, where that is limited.
    pub(crate) pace: Option<Pace>,
    /// What leaves after the output: files, and what comes between and after them.
    pub pieces: VecDeque<Piece>,
    /// The request that is being answered.
    pub serving: Serving,
    /// Who works on it, where that takes time; what it has not taken of the body; what it made.
    pub(crate) task: Option<Box<dyn Task>>,
    pub(crate) body: Vec<u8>,
    /// How the body gets into a file, while it does.
    pub(crate) sluice: Option<Rc<Sluice>>,
    pub(crate) has_body_ended: bool,
    /// The task has no room for more of the body.
    pub(crate) awaits_room: bool,
    pub(crate) is_task_held: bool,
    pub(crate) outbox: Outbox,
    /// What those who work for the session wake it by.
    pub(crate) rope: Option<Rope>,
}

impl Default for Busy {
    fn default() -> Self {
        Self {
            input: vec![0; INPUT_BYTES],
            taken: 0,
            filled: 0,
            head: 0..0,
            scratch: Scratch::default(),
            sent: 0,
            pace: None,
            pieces: VecDeque::new(),
            serving: Serving::default(),
            task: None,
            body: Vec::new(),
            sluice: None,
            has_body_ended: false,
            awaits_room: false,
            is_task_held: false,
            outbox: Outbox::default(),
            rope: None,
        }
    }
}

impl Busy {
    /// Whether nothing in it is still needed.
    pub(crate) fn is_done(&self) -> bool {
        self.taken == self.filled
            && self.sent == self.scratch.out.len()
            && self.pieces.is_empty()
            && self.task.is_none()
            && !self.serving.is_answering()
    }

    /// What has been read and not taken.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.taken..self.filled]
    }

    /// So many bytes at the front of it have been taken.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// An answer begins: how fast may it leave?
    pub(crate) fn begin_pace(&mut self, now: Moment) {
        let Some(current) = &self.serving.current else { return };
        let exchange = &self.serving.exchange;
        let settings = &current.placed.site.location(exchange.location).settings;
        let rate = exchange.limit_rate.unwrap_or(settings.limit_rate);
        self.pace = Pace::new(rate, settings.limit_rate_after, now);
    }

    /// How many of so many bytes may leave now.
    pub(crate) fn allow(&mut self, wanted: u64, now: Moment) -> u64 {
        self.pace.as_mut().map_or(wanted, |pace| pace.allow(wanted, now))
    }

    /// So many bytes have left.
    pub(crate) fn has_sent(&mut self, bytes: u64) {
        if let Some(pace) = &mut self.pace {
            pace.sent(bytes);
        }
    }

    /// Whether an answer leaves more slowly than it could: the next one waits for it, and so does whoever
    /// wants its place.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_some() && self.sent < self.scratch.out.len()
    }

    /// Whether more may be put into the batch before it leaves.
    pub(crate) fn has_room(&self) -> bool {
        self.scratch.out.len() - self.sent <= BATCH_BYTES
    }

    /// Makes it ready for another session; `false` when it is not worth keeping.
    pub fn tidy(&mut self) -> bool {
        (self.taken, self.filled, self.sent) = (0, 0, 0);
        self.scratch.out.clear();
        // One client's head must never be taken for another's (a 408 is answered without one).
        self.scratch.head.clear();
        self.pace = None;
        self.pieces.clear();
        self.task = None;
        self.body.clear();
        self.sluice = None;
        self.has_body_ended = false;
        self.awaits_room = false;
        self.is_task_held = false;
        self.outbox.fields.clear();
        self.outbox.body.clear();
        let is_small = self.input.len() <= KEEP_BYTES
            && self.scratch.out.capacity() <= KEEP_BYTES
            && self.scratch.head.capacity() <= KEEP_BYTES
            && self.body.capacity() <= KEEP_BYTES
            && self.outbox.body.capacity() <= KEEP_BYTES;
        is_small && self.serving.tidy(KEEP_BYTES)
    }
}
