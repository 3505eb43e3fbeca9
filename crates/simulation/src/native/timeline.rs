//! Which deadline a native session must have, reckoned beside the engine from what passes over its
//! transport (E2, E6, L14, T1–T6).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sekisho_lifecycle::{DeadlineKind, Moment};
use sekisho_native::Policy;

/// What precedes each payload.
const HEAD_BYTES: usize = 12;
/// The kinds of frame that matter here.
const BYE: u8 = 3;
const EXTEND: u8 = 5;
const REQUEST: u8 = 16;
/// A part of a body.
const DATA: u8 = 48;
/// L14: what a client that drains must take to have all of its time again.
const DRAIN_BYTES: usize = 16 * 1024;
/// T6: how long the last output may take, where `send_timeout` is longer or off.
const LAST_SEND_MAX: Duration = Duration::from_secs(5);

/// Where the frames of a stream lie.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: Vec<u8>,
    /// Of the frame that has begun: how much of it is missing.
    missing: usize,
    /// Where the stream stands, where each frame ends, and its kind.
    at: usize,
    ends: Vec<(usize, u8)>,
    /// Whether `BYE` was among them.
    pub(super) has_bye: bool,
}

impl Frames {
    /// More of the stream.
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.missing == 0 {
                let count = (HEAD_BYTES - self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..count]);
                self.at += count;
                bytes = &bytes[count..];
                if self.head.len() < HEAD_BYTES {
                    return;
                }
                let length = [self.head[0], self.head[1], self.head[2], self.head[3]];
                self.missing = u32::from_le_bytes(length) as usize;
                self.has_bye |= self.head[4] == BYE;
                self.ends.push((self.at + self.missing, self.head[4]));
                self.head.clear();
            }
            let count = self.missing.min(bytes.len());
            self.missing -= count;
            self.at += count;
            bytes = &bytes[count..];
        }
    }
}

/// What a session's driver has seen that deadlines hang on.
#[derive(Debug)]
pub(super) struct Timeline {
    policy: Arc<Policy>,
    frames: Frames,
    taken: usize,
    /// How many frames were taken whole.
    whole: usize,
    /// Extensions on their way.
    extensions: VecDeque<Duration>,
    /// The frame that is incomplete, by its number, and by when it must go on.
    frame_at: Option<(usize, Option<Moment>)>,
    handshake_at: Option<Moment>,
    send_at: Option<Moment>,
    life_at: Option<Moment>,
    drain_at: Option<Moment>,
    /// What was left of the time to drain when it stopped running, and what the client has taken since it began.
    drain_left: Option<Duration>,
    drained: usize,
    linger_at: Option<Moment>,
    is_admitted: bool,
    is_over: bool,
    is_forced: bool,
}

impl Timeline {
    /// A peer that has just connected.
    pub(super) fn new(policy: Arc<Policy>, now: Moment) -> Self {
        Self {
            handshake_at: policy.handshake_timeout.map(|timeout| now + timeout),
            policy,
            frames: Frames::default(),
            taken: 0,
            whole: 0,
            extensions: VecDeque::new(),
            frame_at: None,
            send_at: None,
            life_at: None,
            drain_at: None,
            drain_left: None,
            drained: 0,
            linger_at: None,
            is_admitted: false,
            is_over: false,
            is_forced: false,
        }
    }

    /// Bytes were read.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.frames.see(bytes);
    }

    /// The peer is in.
    pub(super) fn admitted(&mut self, now: Moment) {
        self.is_admitted = true;
        self.handshake_at = None;
        self.lives(now);
    }

    /// The engine has taken so much.
    pub(super) fn took(&mut self, bytes: usize, now: Moment) {
        let before = self.taken;
        self.taken += bytes;
        let has_life = self.is_admitted && !self.is_over;
        while let Some((end, kind)) = self.frames.ends.get(self.whole).copied() {
            let start = self.whole.checked_sub(1).map_or(0, |last| self.frames.ends[last].0);
            let is_whole = before < end && end <= self.taken;
            let is_bulk_moved = matches!(kind, REQUEST | DATA)
                && before.max(start + HEAD_BYTES) < self.taken.min(end);
            if has_life && (is_whole || is_bulk_moved) {
                self.lives(now);
            }
            if !is_whole {
                break;
            }
            self.whole += 1;
            if kind == EXTEND && has_life {
                let length = self.extensions.pop_front().unwrap_or_default();
                self.extended(length, now);
            }
        }
    }

    /// The client has asked for a longer life; it will come.
    pub(super) fn expect_extension(&mut self, length: Duration) {
        self.extensions.push_back(length);
    }

    /// Nothing has moved for too long.
    pub(super) fn life_is_over(&mut self) {
        self.life_at = None;
    }

    fn lives(&mut self, now: Moment) {
        if let Some(timeout) = self.policy.session_timeout {
            self.life_at = self.life_at.max(Some(now + timeout));
        }
    }

    fn extended(&mut self, length: Duration, now: Moment) {
        let asked = now + length.min(self.policy.session_extension_max);
        self.life_at = self.life_at.map(|at| at.max(asked));
    }

    /// Output was put.
    pub(super) fn puts(&mut self, now: Moment) {
        let by = self.send_by(now);
        self.send_at = match self.send_at {
            Some(at) if self.is_over || self.is_forced => by.map(|by| by.min(at)),
            at => at.or(by),
        };
    }

    /// A client that is to go cannot stay by not reading.
    fn send_by(&self, now: Moment) -> Option<Moment> {
        let timeout = self.policy.send_timeout;
        let last = (self.is_over || self.is_forced).then_some(LAST_SEND_MAX);
        [timeout, last].into_iter().flatten().min().map(|timeout| now + timeout)
    }

    /// The session ends by force.
    pub(super) fn is_forced(&mut self) {
        self.is_forced = true;
    }

    /// The transport took so much.
    pub(super) fn sent(&mut self, moved: u64, is_pending: bool, now: Moment) {
        if moved > 0 && self.is_admitted && !self.is_over {
            self.lives(now);
        }
        if !is_pending {
            self.send_at = None;
        } else if moved > 0 || self.send_at.is_none() {
            self.send_at = self.send_by(now);
        }
    }

    /// The session has sent `BYE`, or cannot.
    pub(super) fn over(&mut self) {
        self.is_over = true;
        (self.handshake_at, self.life_at, self.drain_at) = (None, None, None);
    }

    /// All has left; the peer is listened to for a while.
    pub(super) fn lingers(&mut self, now: Moment) {
        self.over();
        self.send_at = None;
        self.linger_at.get_or_insert(now + self.policy.linger_timeout);
    }

    /// A record left while the session drains: each 16 KiB buy the same time again (L14).
    pub(super) fn record(&mut self, bytes: usize, now: Moment) {
        self.drained += bytes + HEAD_BYTES;
        if self.drained >= DRAIN_BYTES {
            (self.drained, self.drain_left) = (0, None);
            if self.drain_at.is_some() {
                self.drain_at = self.policy.drain_timeout.map(|timeout| now + timeout);
            }
        }
    }

    /// The engine rests. `is_full`: it takes nothing in. `waits`: only the client is in the way of the end.
    pub(super) fn rests(&mut self, is_full: bool, waits: bool, now: Moment) {
        let whole = self.whole;
        let is_inside =
            self.frames.at > self.frames.ends.get(whole.wrapping_sub(1)).map_or(0, |(end, _)| *end);
        let timeout = self.policy.frame_timeout;
        self.frame_at = match self.frame_at {
            _ if !is_inside || self.is_over => None,
            Some((frame, _)) if is_full => Some((frame, None)),
            None if is_full => Some((whole, None)),
            Some((frame, Some(at))) if frame == whole => Some((frame, Some(at))),
            _ => Some((whole, timeout.map(|timeout| now + timeout))),
        };
        match self.drain_at {
            Some(at) if !waits => {
                self.drain_left = Some(at.since(now));
                self.drain_at = None;
            }
            None if waits => {
                let left = self.drain_left.or(self.policy.drain_timeout);
                self.drain_at = left.map(|left| now + left);
            }
            _ => {}
        }
    }

    /// What is armed.
    pub(super) fn next(&self) -> Option<(Moment, DeadlineKind)> {
        let rows = [
            (self.handshake_at, DeadlineKind::Handshake),
            (self.frame_at.and_then(|(_, at)| at), DeadlineKind::Frame),
            (self.send_at, DeadlineKind::Send),
            (self.life_at, DeadlineKind::Session),
            (self.drain_at, DeadlineKind::Drain),
            (self.linger_at, DeadlineKind::Linger),
        ];
        rows.into_iter().filter_map(|(at, kind)| Some((at?, kind))).min_by_key(|(at, _)| *at)
    }
}
