//! A connected byte stream, TCP or Unix, as the driver uses it. Reading goes through the runtime's
//! `AsyncRead`, which knows from a short read that nothing more is there and saves the extra call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{SendFlags, Shutdown};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A client's end.
#[derive(Debug)]
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Reads what is there; zero is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        match self {
            Self::Tcp(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut buffer))?,
            Self::Unix(unix) => ready!(Pin::new(unix).poll_read(cx, &mut buffer))?,
        }
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Sends what the socket takes; `more` says that other bytes follow at once.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        self.poll_write_with(cx, bytes.len(), |fd| rustix::net::send(fd, bytes, flags))
    }

    /// Sends from a file, from `offset` on, at most `count` bytes; zero means that the file is shorter
    /// than it was.
    pub fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, count, |fd| {
            let mut at = offset;
            rustix::fs::sendfile(fd, file, Some(&mut at), count)
        })
    }

    /// Lets the kernel hold as much for this client as it likes, which spares both sides some work; see
    /// `listen::UNSENT_BYTES` for why it does not from the start.
    pub fn lift_unsent_limit(&self) {
        if let Self::Tcp(tcp) = self {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(tcp).set_tcp_notsent_lowat(u32::MAX);
        }
    }

    /// Ends our side; the client sees the end of the stream.
    pub fn shut_down_write(&self) {
        // A client that is gone already has its end.
        let _ = rustix::net::shutdown(self.as_fd(), Shutdown::Write);
    }

    /// Makes the coming close a reset: nothing cut short may look complete (C5).
    pub fn reset_on_close(&self) {
        let zero = Some(std::time::Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(self.as_fd(), zero);
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self {
                Self::Tcp(tcp) => ready!(tcp.poll_write_ready(cx))?,
                Self::Unix(unix) => ready!(unix.poll_write_ready(cx))?,
            }
            let mut call = || call(self.as_fd()).map_err(io::Error::from);
            let done = match self {
                Self::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, &mut call),
                Self::Unix(unix) => unix.try_io(Interest::WRITABLE, &mut call),
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    debug_assert!(
                        done.as_ref().is_ok_and(|count| *count <= wanted) || done.is_err()
                    );
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}
