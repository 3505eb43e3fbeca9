//! A connected byte stream, TCP or Unix, as the driver uses it: calls that never wait, and what is known of
//! whether the next one would have to.
//!
//! The kernel tells of a change once (edge-triggered): what it said holds until a call finds it spent. A read
//! that fills less than its room has taken all there is, which saves the call that would find nothing.

use std::io;
use std::net::IpAddr;
use std::ops::{BitOr, BitOrAssign};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::listen::LOCAL_CONGESTION;

/// What a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready(u8);

impl Ready {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// Bytes can be read, or the end.
    pub const TO_READ: Self = Self(1);
    /// Bytes can be sent.
    pub const TO_SEND: Self = Self(2);
    /// Behind what can be read comes the end, and nothing else.
    pub const ENDED: Self = Self(4);
    /// The other side is gone altogether.
    pub const LOST: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(15);

    /// As the kernel says it.
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
    pub const fn may_read(self) -> bool {
        self.has(Self::TO_READ)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A client's end.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    ready: Ready,
    is_tcp: bool,
    /// Whether the kernel tells of changes. A connection that has its answer and its end in its first turn
    /// never needs it.
    pub(crate) is_watched: bool,
}

impl Stream {
    /// A stream over a socket that does not block.
    pub const fn new(fd: OwnedFd, is_tcp: bool) -> Self {
        let ready = Ready(Ready::TO_READ.0 | Ready::TO_SEND.0);
        Self { fd, ready, is_tcp, is_watched: false }
    }

    /// Notes what the kernel has told.
    pub fn note(&mut self, ready: Ready) {
        self.ready |= ready;
    }

    /// Whether it could not take what was to be sent.
    pub const fn is_full(&self) -> bool {
        !self.ready.has(Ready::TO_SEND)
    }

    /// Whether the client has sent its last byte, though not all may have been read.
    pub const fn has_ended(&self) -> bool {
        self.ready.has(Ready::ENDED)
    }

    /// Whether the client is gone altogether.
    pub const fn is_lost(&self) -> bool {
        self.ready.has(Ready::LOST)
    }

    /// Reads what is there; zero is the end.
    pub fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = into.len();
        let read = self.read_with(|fd| {
            rustix::net::recv(fd, &mut *into, RecvFlags::empty()).map(|(count, _)| count)
        });
        if let Poll::Ready(Ok(count)) = read
            && count < room
            && count > 0
            && !self.has_ended()
        {
            self.ready = self.ready.without(Ready::TO_READ);
        }
        read
    }

    /// Another way to read.
    pub(crate) fn read_with(
        &mut self,
        call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.with(Ready::TO_READ, call)
    }

    /// Sends what the socket takes; `more` says that other bytes follow at once.
    pub fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        self.with(Ready::TO_SEND, |fd| rustix::net::send(fd, bytes, flags))
    }

    /// Sends from a file, from `offset` on, at most `count` bytes; zero means that the file is shorter
    /// than it was.
    pub fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.with(Ready::TO_SEND, |fd| {
            let mut at = offset;
            rustix::fs::sendfile(fd, file, Some(&mut at), count)
        })
    }

    /// Calls, if that does not have to wait.
    fn with(
        &mut self,
        needed: Ready,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if !self.ready.has(needed) {
            return Poll::Pending;
        }
        loop {
            match call(self.fd.as_fd()) {
                Err(Errno::AGAIN) => {
                    self.ready = self.ready.without(needed);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                done => return Poll::Ready(done.map_err(io::Error::from)),
            }
        }
    }

    /// Holds segments back until they are full, or lets them go.
    pub fn cork(&self, is_corked: bool) {
        // Not for a Unix socket, which has none.
        if self.is_tcp {
            let _ = socket2::SockRef::from(&self.fd).set_tcp_cork(is_corked);
        }
    }

    /// Sends without pacing: the client is on this machine.
    pub fn stay_local(&self) {
        if self.is_tcp {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_congestion(LOCAL_CONGESTION);
        }
    }

    /// Lets the kernel hold as much for this client as it likes, which spares both sides some work; see
    /// `listen::UNSENT_BYTES` for why it does not from the start.
    pub fn lift_unsent_limit(&self) {
        if self.is_tcp {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_notsent_lowat(u32::MAX);
        }
    }

    /// Ends our side; the client sees the end of the stream.
    pub fn shut_down_write(&self) {
        // A client that is gone already has its end.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Makes the coming close a reset: nothing cut short may look complete (C5).
    pub fn reset_on_close(&self) {
        let zero = Some(std::time::Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, zero);
    }

    /// Our own address; `None` on a Unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        if !self.is_tcp {
            return None;
        }
        let address = socket2::SockRef::from(&self.fd).local_addr().ok()?;
        address.as_socket().map(|address| address.ip())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("an option");
        (Stream::new(ours.into(), false), theirs)
    }

    fn read(stream: &mut Stream, room: usize) -> Option<usize> {
        match stream.read(&mut vec![0; room]) {
            Poll::Ready(read) => Some(read.expect("a read")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_read_that_did_not_fill_its_room_is_not_tried_again_until_the_kernel_says_so() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"abc").expect("room");
        assert_eq!(read(&mut ours, 2), Some(2), "there may be more");
        assert_eq!(read(&mut ours, 2), Some(1), "that is all");
        theirs.write_all(b"def").expect("room");
        assert_eq!(read(&mut ours, 2), None, "nobody has told");
        ours.note(Ready::TO_READ);
        assert_eq!(read(&mut ours, 2), Some(2));
    }

    #[test]
    fn an_end_that_was_told_with_the_last_bytes_is_found_behind_them() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"abc").expect("room");
        drop(theirs);
        ours.note(Ready::from_kernel(EventFlags::IN | EventFlags::RDHUP));
        assert_eq!((read(&mut ours, 9), read(&mut ours, 9)), (Some(3), Some(0)));
    }

    #[test]
    fn what_a_full_socket_did_not_take_waits_for_the_kernel() {
        let (mut ours, mut theirs) = pair();
        let bytes = vec![7; 1 << 20];
        let mut sent = 0;
        while let Poll::Ready(count) = ours.send(&bytes, false) {
            sent += count.expect("a send");
        }
        assert!(ours.is_full());
        theirs.read_exact(&mut vec![0; sent]).expect("what was sent");
        assert!(ours.send(&bytes, false).is_pending(), "nobody has told");
        ours.note(Ready::from_kernel(EventFlags::OUT));
        assert!(ours.send(&bytes, false).is_ready());
    }
}
