//! A connected socket: TCP, Unix, or datagrams of one peer.
//!
//! The kernel reports a change once (edge-triggered): the readiness holds until a call would block. A read
//! that fills less than its room has taken all there is, which saves the call that would find nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::pipe::SpliceFlags;
use sekisho_http::proxy_header::{self, BYTES_MAX, ProxyHeader};

use crate::{Capabilities, LOCAL_CONGESTION, Ready, Transport};

/// The events to watch: all of them, edge-triggered.
const CHANGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Pages are moved where they can be, and nobody waits.
const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// The kind of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tcp,
    Unix,
    Udp,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    ready: Ready,
    kind: Kind,
    /// Whether the socket is registered with epoll. A connection that has its answer and its end in its first
    /// turn never needs it.
    is_watched: bool,
    /// Whether the header of a balancer comes first, and has not come yet.
    awaits_proxy_header: bool,
}

impl Socket {
    /// A connected stream socket that does not block.
    pub fn new(fd: OwnedFd, is_tcp: bool) -> Self {
        Self { ready: Ready::BOTH, ..Self::connecting(fd, is_tcp) }
    }

    /// A stream socket that is being connected: nothing can be sent or received yet.
    pub const fn connecting(fd: OwnedFd, is_tcp: bool) -> Self {
        let kind = if is_tcp { Kind::Tcp } else { Kind::Unix };
        Self { fd, ready: Ready::NOTHING, kind, is_watched: false, awaits_proxy_header: false }
    }

    /// A socket for datagrams that does not block.
    pub fn datagrams(fd: OwnedFd) -> Self {
        Self { kind: Kind::Udp, ..Self::new(fd, false) }
    }

    /// The same where the header of a balancer comes first (`listen … proxy_protocol`).
    #[must_use]
    pub fn behind_proxy(self) -> Self {
        Self { awaits_proxy_header: true, ..self }
    }

    /// The client's address; `None` on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        if !self.is_tcp() {
            return None;
        }
        socket2::SockRef::from(&self.fd).peer_addr().ok()?.as_socket()
    }

    /// Our own address; `None` on a Unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        if !self.is_tcp() {
            return None;
        }
        let address = socket2::SockRef::from(&self.fd).local_addr().ok()?;
        address.as_socket().map(|address| address.ip())
    }

    const fn is_tcp(&self) -> bool {
        matches!(self.kind, Kind::Tcp)
    }

    /// Whether a read may find something.
    #[inline]
    pub const fn is_readable(&self) -> bool {
        self.ready.may_read()
    }

    /// Appends what is there, as far as the spare capacity of `to` goes; zero is the end. The same as
    /// [`Transport::read`] where the memory need not be cleared first. Of datagrams, one.
    #[inline]
    pub fn append(&mut self, to: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = to.capacity() - to.len();
        let read = self.with(Ready::TO_READ, |fd| {
            rustix::net::recv(fd, spare_capacity(to), RecvFlags::empty()).map(|(_, count)| count)
        });
        self.note_read(&read, room);
        read
    }

    /// A read that did not fill its room has emptied the socket: the next event says when there is more. A datagram says
    /// nothing about the next one.
    #[inline]
    fn note_read(&mut self, read: &Poll<io::Result<usize>>, room: usize) {
        if let Poll::Ready(Ok(count)) = *read
            && count < room
            && count > 0
            && !self.has_ended()
            && self.kind != Kind::Udp
        {
            self.ready = self.ready.without(Ready::TO_READ);
        }
    }

    /// Whether the peer has sent nothing, neither bytes nor its end. Bytes stay where they are.
    #[inline]
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.with(Ready::TO_READ, |fd| {
            rustix::net::recv(fd, &mut byte, flags).map(|(count, _)| count)
        })
        .is_pending()
    }

    /// Whether the header of a balancer comes first, and has not been read.
    pub const fn awaits_proxy_header(&self) -> bool {
        self.awaits_proxy_header
    }

    /// Reads that header, as a whole: until it is there, its bytes stay with the kernel, and a connection that stalls here holds no
    /// memory.
    pub fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
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

    /// Calls, if that does not have to wait.
    #[inline]
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

/// Whether a file has bytes behind this one.
fn is_longer(file: BorrowedFd<'_>, bytes: u64) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_size.cast_unsigned() > bytes)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Transport for Socket {
    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities { send_file: true, splice: self.is_tcp() }
    }

    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.awaits_proxy_header {
            return Poll::Pending;
        }
        let room = into.len();
        let read = self.with(Ready::TO_READ, |fd| {
            rustix::net::recv(fd, &mut *into, RecvFlags::empty()).map(|(count, _)| count)
        });
        self.note_read(&read, room);
        read
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        if self.kind == Kind::Udp {
            // A datagram leaves now, or is lost as on its way.
            return Poll::Ready(match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => Ok(bytes.len()),
                sent => Ok(sent?),
            });
        }
        self.with(Ready::TO_SEND, |fd| rustix::net::send(fd, bytes, flags))
    }

    fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let sent = self.with(Ready::TO_SEND, |fd| {
            let mut at = offset;
            rustix::fs::sendfile(fd, file, Some(&mut at), count)
        });
        if let Poll::Ready(Ok(sent @ 1..)) = sent
            && sent < count
            && self.is_tcp()
            && is_longer(file, offset + sent as u64)
        {
            // The buffer is full. What the peer takes meanwhile is not worth a call of its own: the next event says when
            // there is room for much.
            self.ready = self.ready.without(Ready::TO_SEND);
        }
        sent
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

    #[inline]
    fn note(&mut self, ready: Ready) {
        self.ready |= ready;
    }

    #[inline]
    fn is_full(&self) -> bool {
        !self.ready.has(Ready::TO_SEND)
    }

    #[inline]
    fn has_ended(&self) -> bool {
        self.ready.has(Ready::ENDED)
    }

    #[inline]
    fn is_lost(&self) -> bool {
        self.ready.has(Ready::LOST)
    }

    fn cork(&self, is_corked: bool) {
        // Not for a Unix socket, which has none.
        if self.is_tcp() {
            let _ = socket2::SockRef::from(&self.fd).set_tcp_cork(is_corked);
        }
    }

    fn set_no_delay(&self, is_on: bool) {
        if self.is_tcp() {
            // Without it, all that is lost is a moment.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_nodelay(is_on);
        }
    }

    fn stay_local(&self) {
        if self.is_tcp() {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_congestion(LOCAL_CONGESTION);
        }
    }

    /// Spares both sides some work; see `listen::UNSENT_BYTES` for why it is not so from the start.
    fn lift_unsent_limit(&self) {
        if self.is_tcp() {
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
    #[inline]
    fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        if !self.is_watched {
            epoll::add(epoll, &self.fd, EventData::new_u64(token), CHANGES)?;
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

    #[inline]
    fn read(stream: &mut Socket, room: usize) -> Option<usize> {
        match stream.read(&mut vec![0; room]) {
            Poll::Ready(read) => Some(read.expect("a read")),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_file_that_fills_the_buffer_waits_for_the_kernel_and_one_that_is_short_does_not() {
        const BYTES: u64 = 256 << 20;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut theirs =
            std::net::TcpStream::connect(listener.local_addr().expect("it is bound")).expect("us");
        let (ours, _) = listener.accept().expect("a connection");
        ours.set_nonblocking(true).expect("an option");
        let mut ours = Socket::new(ours.into(), true);
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("one");
        let file_from = |ours: &mut Socket, offset: u64| match ours.send_file(
            file.as_fd(),
            offset,
            (BYTES - offset) as usize,
        ) {
            Poll::Ready(sent) => Some(sent.expect("a call")),
            Poll::Pending => None,
        };
        rustix::fs::ftruncate(&file, 10).expect("a length");
        assert_eq!(file_from(&mut ours, 0), Some(10), "that is all of the file");
        assert_eq!(file_from(&mut ours, 10), Some(0), "its end shows at once");
        rustix::fs::ftruncate(&file, BYTES).expect("a length");
        let sent = file_from(&mut ours, 0).expect("room") as u64;
        assert!(sent < BYTES, "more than a buffer holds");
        let half = sent as usize / 2;
        theirs.read_exact(&mut vec![0; half]).expect("what was sent");
        assert_eq!(file_from(&mut ours, sent), None, "epoll has reported nothing");
        ours.note(Ready::TO_SEND);
        assert!(file_from(&mut ours, sent).is_some_and(|more| more > 0), "there is room");
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
