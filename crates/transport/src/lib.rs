//! Connected byte streams as the server uses them, those of clients and those to servers: calls that never wait, and
//! what is known of whether the next one would have to. Callers ask for capabilities and never for a descriptor, so
//! that a transport without one (encrypted, simulated) fits in. Knows no protocol and owns no loop: the [`Reactor`]
//! says which transports have become ready when its owner asks.
#![forbid(unsafe_code)]

mod connect;
mod reactor;
mod socket;

use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::os::fd::BorrowedFd;
use std::task::Poll;

use rustix::event::epoll::EventFlags;

pub use connect::{Connecting, SocketOptions};
pub use reactor::{Reactor, Registration};
pub use socket::Socket;

/// The congestion control of connections within this machine, where nothing is congested: an algorithm that paces what
/// it sends (BBR) would cost more than the sending. This one is always there (`docs/adr/0018-local-congestion.md`).
pub const LOCAL_CONGESTION: &[u8] = b"reno";

/// What a transport can do beside reading and writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// [`Transport::send_file`]: bytes of a file leave without being read.
    pub send_file: bool,
    /// [`Transport::splice_in`] and [`Transport::splice_out`]: bytes pass without being read.
    pub splice: bool,
}

/// What a transport is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready(u8);

impl Ready {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// Bytes can be read, or the end.
    pub const TO_READ: Self = Self(1);
    /// Bytes can be sent.
    pub const TO_SEND: Self = Self(2);
    /// Both: a socket that was just accepted.
    pub const BOTH: Self = Self(3);
    /// Behind what can be read comes the end, and nothing else.
    pub const ENDED: Self = Self(4);
    /// The other side is gone altogether.
    pub const LOST: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(15);

    /// As the kernel says it.
    #[inline]
    pub fn from_kernel(flags: EventFlags) -> Self {
        let mut ready = Self::NOTHING;
        let is_lost = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if is_lost {
            return Self::ALL;
        }
        if flags.contains(EventFlags::IN) {
            ready |= Self::TO_READ;
        }
        if flags.contains(EventFlags::OUT) {
            ready |= Self::TO_SEND;
        }
        if flags.contains(EventFlags::RDHUP) {
            ready |= Self::TO_READ | Self::ENDED;
        }
        ready
    }

    /// Whether a read would find something.
    #[inline]
    pub const fn may_read(self) -> bool {
        self.has(Self::TO_READ)
    }

    /// Whether it has all of `other`.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has any of `other`.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Without what `other` has.
    #[must_use]
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Ready {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A connected byte stream. Every call returns at once; `Pending` means that the transport reports a change
/// later (see [`Transport::watch`]).
pub trait Transport: std::fmt::Debug {
    /// What it can do beside reading and writing.
    fn capabilities(&self) -> Capabilities;

    /// Reads what is there; zero is the end. Only the transport knows whether there is more: it is called
    /// again until it returns `Pending`.
    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends what can be taken now; `more` says that other bytes, or the end, follow at once. What was not taken is
    /// offered again, with whatever follows it: a transport may have encrypted it already.
    fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>>;

    /// Sends from a file, from `offset` on, at most `count` bytes; zero means that the file is shorter than it
    /// was. Only with [`Capabilities::send_file`].
    fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let _ = (file, offset, count);
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Moves what has come into an empty pipe; zero is the end. Only with [`Capabilities::splice`].
    fn splice_in(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        let _ = (pipe, count);
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Sends what is in a pipe, which is not empty. Only with [`Capabilities::splice`].
    fn splice_out(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        let _ = (pipe, count);
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// How many of the bytes that were taken the peer has not acknowledged; `None` where nobody counts.
    fn unacknowledged(&self) -> Option<u64> {
        None
    }

    /// Notes what has become ready since the last turn.
    fn note(&mut self, ready: Ready);

    /// Whether it could not take what was to be sent.
    fn is_full(&self) -> bool;

    /// Whether the peer has sent its last byte, though not all may have been read.
    fn has_ended(&self) -> bool;

    /// Whether the peer is gone altogether.
    fn is_lost(&self) -> bool;

    /// A long body begins or ends: segments are held back until they are full, or no longer.
    fn cork(&self, is_corked: bool) {
        let _ = is_corked;
    }

    /// Whether small segments leave at once (`tcp_nodelay`).
    fn set_no_delay(&self, is_on: bool) {
        let _ = is_on;
    }

    /// The peer is on this machine: sends without pacing.
    fn stay_local(&self) {}

    /// The peer reads well: as much may wait for it as the system allows.
    fn lift_unsent_limit(&self) {}

    /// The connection ends here, with all that was to be sent: the transport signals that to the peer if it
    /// has a message for it (S3).
    fn end(&mut self) {}

    /// Ends our side; the peer sees the end of the stream. If all that was promised has been sent, this is
    /// signalled to the peer as by [`Transport::end`].
    fn shut_down_write(&mut self, is_complete: bool);

    /// Makes the coming close a reset: nothing cut short may look complete (C5).
    fn reset_on_close(&mut self);

    /// Registers the transport with `epoll` under this token; a second call does nothing.
    fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()>;
}
