//! A connected TCP or Unix socket.
//!
//! The kernel reports a change once (edge-triggered): the readiness holds until a call would block. A read
//! that fills less than its room has taken all there is, which saves the call that would find nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Poll, ready};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::SpliceFlags;
use sekisho_http::proxy_header::{self, BYTES_MAX, ProxyHeader};

use super::{Capabilities, Ready, Transport};
use crate::listen::LOCAL_CONGESTION;
use crate::session::Token;

/// The events to watch: all of them, edge-triggered.
const CHANGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Pages are moved where they can be, and nobody waits.
const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// A client's end.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    ready: Ready,
    is_tcp: bool,
    /// Whether the socket is registered with epoll. A connection that has its answer and its end in its first
    /// turn never needs it.
    is_watched: bool,
    /// Whether the header of a balancer comes first, and has not come yet.
    awaits_proxy_header: bool,
}

impl Socket {
    /// A stream over a socket that does not block.
    pub const fn new(fd: OwnedFd, is_tcp: bool) -> Self {
        let ready = Ready::BOTH;
        Self { fd, ready, is_tcp, is_watched: false, awaits_proxy_header: false }
    }

    /// The same where the header of a balancer comes first (`listen … proxy_protocol`).
    #[must_use]
    pub fn behind_proxy(self) -> Self {
        Self { awaits_proxy_header: true, ..self }
    }

    /// The client's address; `None` on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        if !self.is_tcp {
            return None;
        }
        socket2::SockRef::from(&self.fd).peer_addr().ok()?.as_socket()
    }

    /// Our own address; `None` on a Unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        if !self.is_tcp {
            return None;
        }
        let address = socket2::SockRef::from(&self.fd).local_addr().ok()?;
        address.as_socket().map(|address| address.ip())
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
}

impl Transport for Socket {
    fn capabilities(&self) -> Capabilities {
        Capabilities { send_file: true, splice: self.is_tcp }
    }

    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.awaits_proxy_header {
            return Poll::Pending;
        }
        let room = into.len();
        let read = self.with(Ready::TO_READ, |fd| {
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

    fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        self.with(Ready::TO_SEND, |fd| rustix::net::send(fd, bytes, flags))
    }

    fn send_file(
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

    fn splice_in(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        if self.awaits_proxy_header {
            return Poll::Pending;
        }
        self.with(Ready::TO_READ, |fd| rustix::pipe::splice(fd, None, pipe, None, count, SPLICE))
    }

    fn splice_out(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        self.with(Ready::TO_SEND, |fd| rustix::pipe::splice(pipe, None, fd, None, count, SPLICE))
    }

    fn unacknowledged(&self) -> Option<u64> {
        sekisho_sys::unacknowledged_bytes(&self.fd).ok()
    }

    fn awaits_proxy_header(&self) -> bool {
        self.awaits_proxy_header
    }

    /// As a whole: until it is there, its bytes stay with the kernel, and a connection that stalls here holds no
    /// memory.
    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        let mut bytes = [0; BYTES_MAX];
        let seen = ready!(self.with(Ready::TO_READ, |fd| {
            rustix::net::recv(fd, &mut bytes, RecvFlags::PEEK).map(|(count, _)| count)
        }))?;
        let broken = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let Some((header, length)) = proxy_header::parse(&bytes[..seen]).map_err(broken)? else {
            if seen == 0 || self.has_ended() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            // epoll reports further bytes.
            self.ready = self.ready.without(Ready::TO_READ);
            return Poll::Pending;
        };
        // They were there a moment ago, and there is no other reader.
        let taken = rustix::net::recv(&self.fd, &mut bytes[..length], RecvFlags::empty())?.0;
        if taken != length {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.awaits_proxy_header = false;
        Poll::Ready(Ok(header))
    }

    fn note(&mut self, ready: Ready) {
        self.ready |= ready;
    }

    fn is_full(&self) -> bool {
        !self.ready.has(Ready::TO_SEND)
    }

    fn has_ended(&self) -> bool {
        self.ready.has(Ready::ENDED)
    }

    fn is_lost(&self) -> bool {
        self.ready.has(Ready::LOST)
    }

    fn cork(&self, is_corked: bool) {
        // Not for a Unix socket, which has none.
        if self.is_tcp {
            let _ = socket2::SockRef::from(&self.fd).set_tcp_cork(is_corked);
        }
    }

    fn set_no_delay(&self, is_on: bool) {
        if self.is_tcp {
            // Without it, all that is lost is a moment.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_nodelay(is_on);
        }
    }

    fn stay_local(&self) {
        if self.is_tcp {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_congestion(LOCAL_CONGESTION);
        }
    }

    /// Spares both sides some work; see `listen::UNSENT_BYTES` for why it is not so from the start.
    fn lift_unsent_limit(&self) {
        if self.is_tcp {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_notsent_lowat(u32::MAX);
        }
    }

    fn shut_down_write(&mut self, _: bool) {
        // A client that is gone has closed already.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    fn reset_on_close(&mut self) {
        let zero = Some(std::time::Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, zero);
    }

    /// The kernel removes a closed socket from epoll by itself.
    fn watch(&mut self, epoll: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        if !self.is_watched {
            epoll::add(epoll, &self.fd, EventData::new_u64(token.bits()), CHANGES)?;
            self.is_watched = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("an option");
        (Socket::new(ours.into(), false), theirs)
    }

    fn read(stream: &mut Socket, room: usize) -> Option<usize> {
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
        assert_eq!(read(&mut ours, 2), None, "epoll has reported nothing");
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
        assert!(ours.send(&bytes, false).is_pending(), "epoll has reported nothing");
        ours.note(Ready::from_kernel(EventFlags::OUT));
        assert!(ours.send(&bytes, false).is_ready());
    }
}
