//! One direction of a connection: bytes leave in pieces, take their time, wait in a bounded buffer until
//! they are read, and come out in order. At its end stands a FIN or a reset.

use std::collections::VecDeque;
use std::time::Duration;

use sekisho_lifecycle::Moment;

use crate::rng::Rng;

/// How one direction behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkProfile {
    /// Each piece takes at least and at most so many milliseconds.
    pub latency: (u64, u64),
    /// No piece is longer.
    pub piece_bytes_max: usize,
    /// So many pieces of a hundred stall, for so many milliseconds at the most.
    pub stalls: (u64, u64),
    /// What may be on its way or unread.
    pub capacity: usize,
}

impl LinkProfile {
    /// Some weather; nothing stalls where it is calm.
    pub fn draw(is_calm: bool, rng: &mut Rng) -> Self {
        let least = rng.pick(&[0, 0, 1, 5, 20]);
        Self {
            latency: (least, least + rng.pick(&[0, 1, 10, 50])),
            piece_bytes_max: rng.pick(&[1, 3, 17, 100, 1000, 1 << 20]),
            stalls: (
                if is_calm { 0 } else { rng.pick(&[0, 0, 2, 10]) },
                rng.pick(&[30, 400, 3000]),
            ),
            capacity: rng.pick(&[64, 300, 2000, 1 << 16]),
        }
    }
}

/// What is on its way.
#[derive(Debug)]
enum Packet {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// What a read came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes.
    Bytes(usize),
    /// Nothing is there yet.
    Nothing,
    /// The other side has ended.
    End,
    /// The connection was reset.
    Reset,
}

/// One direction of a connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one direction, each independent")]
pub struct Pipe {
    profile: LinkProfile,
    on_the_way: VecDeque<(Moment, Packet)>,
    arrived: VecDeque<u8>,
    used: usize,
    last_at: Moment,
    /// All that was read.
    read: u64,
    has_fin: bool,
    has_reset: bool,
    /// The sender has ended its side.
    is_ended: bool,
    /// The reader has closed.
    is_deaf: bool,
    /// The sender waits for room.
    wants_room: bool,
}

impl Pipe {
    /// A direction without anything in it.
    pub const fn new(profile: LinkProfile) -> Self {
        Self {
            profile,
            on_the_way: VecDeque::new(),
            arrived: VecDeque::new(),
            used: 0,
            last_at: Moment::ZERO,
            read: 0,
            has_fin: false,
            has_reset: false,
            is_ended: false,
            is_deaf: false,
            wants_room: false,
        }
    }

    /// Takes what there is room for; `None` when there is none.
    pub fn send(&mut self, bytes: &[u8], now: Moment, rng: &mut Rng) -> Option<usize> {
        debug_assert!(!self.is_ended, "bytes after the end");
        let room = self.profile.capacity.saturating_sub(self.used);
        let taken = room.min(bytes.len());
        self.wants_room = taken < bytes.len();
        if taken == 0 {
            return None;
        }
        self.used += taken;
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let len = rng.size(1..=self.profile.piece_bytes_max.min(rest.len()));
            let (piece, after) = rest.split_at(len);
            self.put(Packet::Bytes(piece.to_vec()), now, rng);
            rest = after;
        }
        Some(taken)
    }

    /// The sender has sent all.
    pub fn end(&mut self, now: Moment, rng: &mut Rng) {
        if !std::mem::replace(&mut self.is_ended, true) {
            self.put(Packet::Fin, now, rng);
        }
    }

    /// The sender resets the connection: a random part of what it had not sent is lost.
    pub fn reset(&mut self, now: Moment, rng: &mut Rng) {
        self.is_ended = true;
        let kept = rng.size(0..=self.on_the_way.len());
        for (_, lost) in self.on_the_way.drain(kept..) {
            if let Packet::Bytes(bytes) = lost {
                self.used -= bytes.len();
            }
        }
        self.put(Packet::Reset, now, rng);
    }

    /// Answers bytes that came to a closed connection: a reset, behind all that was sent.
    pub fn refuse(&mut self, now: Moment, rng: &mut Rng) {
        self.is_ended = true;
        self.put(Packet::Reset, now, rng);
    }

    /// The reader closes; returns whether bytes are lost with it.
    pub fn close_reader(&mut self) -> bool {
        self.is_deaf = true;
        let has_lost = !self.arrived.is_empty();
        self.used -= self.arrived.len();
        self.arrived.clear();
        has_lost
    }

    /// Delivers what is due; returns whether bytes came to a reader that has closed.
    pub fn deliver(&mut self, now: Moment, rng: &mut Rng) -> bool {
        let (mut is_unheard, mut has_come) = (false, false);
        while let Some((_, packet)) = self.on_the_way.pop_front_if(|(at, _)| at.is_due(now)) {
            match packet {
                Packet::Bytes(bytes) if self.is_deaf || self.has_reset => {
                    self.used -= bytes.len();
                    is_unheard |= self.is_deaf;
                }
                Packet::Bytes(bytes) => {
                    self.arrived.extend(bytes);
                    has_come = true;
                }
                Packet::Fin => self.has_fin = true,
                // A prompt reader has read what came just before.
                Packet::Reset if has_come => {
                    self.on_the_way.push_front((now, Packet::Reset));
                    return is_unheard;
                }
                Packet::Reset => {
                    self.has_reset = true;
                    // Some systems throw away what was not read by then.
                    if rng.is_one_of(50) {
                        self.used -= self.arrived.len();
                        self.arrived.clear();
                    }
                }
            }
        }
        is_unheard
    }

    /// When something arrives next.
    pub fn next_arrival(&self) -> Option<Moment> {
        self.on_the_way.front().map(|(at, _)| *at)
    }

    /// Reads at most so many bytes.
    pub fn read(&mut self, most: usize, into: &mut Vec<u8>) -> Read {
        let count = most.min(self.arrived.len());
        if count > 0 {
            into.extend(self.arrived.drain(..count));
            self.used -= count;
            self.read += count as u64;
            return Read::Bytes(count);
        }
        match (self.has_reset, self.has_fin && self.arrived.is_empty()) {
            (true, _) => Read::Reset,
            (false, true) => Read::End,
            (false, false) => Read::Nothing,
        }
    }

    /// Whether the sender is to be woken for room, once.
    pub fn has_room_for_sender(&mut self) -> bool {
        self.used < self.profile.capacity && std::mem::take(&mut self.wants_room)
    }

    /// How much could be sent now.
    pub const fn room(&self) -> usize {
        self.profile.capacity.saturating_sub(self.used)
    }

    /// Whether the end has arrived here.
    pub const fn has_fin(&self) -> bool {
        self.has_fin
    }

    /// How many bytes have arrived here so far.
    pub fn arrived_bytes(&self) -> u64 {
        self.read + self.arrived.len() as u64
    }

    /// Bytes that were sent and have not arrived.
    pub fn bytes_on_the_way(&self) -> u64 {
        self.used.saturating_sub(self.arrived.len()) as u64
    }

    /// Whether a reset has arrived here.
    pub const fn is_reset(&self) -> bool {
        self.has_reset
    }

    /// Whether its sender has ended it.
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Bytes that have come and have not been read.
    pub fn unread(&self) -> usize {
        self.arrived.len()
    }

    /// How many bytes were read.
    pub const fn read_bytes(&self) -> u64 {
        self.read
    }

    /// The shortest time for anything to pass.
    pub const fn latency_min(&self) -> Duration {
        Duration::from_millis(self.profile.latency.0)
    }

    fn put(&mut self, packet: Packet, now: Moment, rng: &mut Rng) {
        let (least, most) = self.profile.latency;
        let (cases, longest) = self.profile.stalls;
        let mut at = now + rng.millis(least..=most);
        if rng.is_one_of(cases) {
            at = at + rng.millis(1..=longest);
        }
        self.last_at = self.last_at.max(at);
        self.on_the_way.push_back((self.last_at, packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: LinkProfile =
        LinkProfile { latency: (5, 5), piece_bytes_max: 3, stalls: (0, 1), capacity: 8 };

    #[test]
    fn bytes_come_out_in_order_after_their_time_and_no_more_than_fit_are_taken() {
        let (mut pipe, mut rng, mut got) = (Pipe::new(CALM), Rng::new(1), Vec::new());
        assert_eq!(pipe.send(b"0123456789", Moment::ZERO, &mut rng), Some(8));
        assert_eq!(pipe.send(b"89", Moment::ZERO, &mut rng), None);
        pipe.deliver(Moment::from_millis(4), &mut rng);
        assert_eq!(pipe.read(9, &mut got), Read::Nothing);
        pipe.end(Moment::ZERO, &mut rng);
        pipe.deliver(Moment::from_millis(5), &mut rng);
        assert_eq!(
            (pipe.read(9, &mut got), got.as_slice()),
            (Read::Bytes(8), b"01234567".as_slice())
        );
        assert!(pipe.has_room_for_sender() && !pipe.has_room_for_sender());
        assert_eq!(pipe.read(9, &mut got), Read::End);
    }

    #[test]
    fn a_reset_comes_behind_what_was_sent_and_bytes_to_a_closed_connection_are_reported() {
        let (mut pipe, mut rng, mut got) = (Pipe::new(CALM), Rng::new(1), Vec::new());
        pipe.send(b"01", Moment::ZERO, &mut rng);
        pipe.refuse(Moment::ZERO, &mut rng);
        assert!(!pipe.deliver(Moment::from_millis(5), &mut rng) && !pipe.is_reset());
        assert_eq!(pipe.read(9, &mut got), Read::Bytes(2));
        assert!(!pipe.deliver(Moment::from_millis(5), &mut rng) && pipe.is_reset());
        assert_eq!(pipe.read(9, &mut got), Read::Reset);
        let mut pipe = Pipe::new(CALM);
        pipe.close_reader();
        pipe.send(b"01", Moment::ZERO, &mut rng);
        assert!(pipe.deliver(Moment::from_millis(5), &mut rng));
    }
}
