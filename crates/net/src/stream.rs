//! A connected byte stream, TCP or Unix, as the driver uses it. Reading goes through the runtime's
//! `AsyncRead`, which knows from a short read that nothing more is there and saves the extra call.
//!
//! A TCP connection that has just been accepted is not known to the runtime yet: its first request is
//! often there already, and where its answer is also its end, it never needs to be. Only when it would
//! have to wait is it registered.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::listen::LOCAL_CONGESTION;

/// A client's end.
#[derive(Debug)]
pub enum Stream {
    /// TCP that nobody has had to wait for yet.
    Fresh(std::net::TcpStream),
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// It could not be registered, and is lost.
    Lost,
    /// A Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Reads what is there; zero is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Self::Fresh(tcp) = self {
            match io::Read::read(tcp, into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.register()?,
                done => return Poll::Ready(done),
            }
        }
        let mut buffer = ReadBuf::new(into);
        match self {
            Self::Tcp(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut buffer))?,
            Self::Unix(unix) => ready!(Pin::new(unix).poll_read(cx, &mut buffer))?,
            Self::Fresh(_) | Self::Lost => return Poll::Ready(Err(lost())),
        }
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Another way to read: `call` until it does not have to wait.
    pub(crate) fn poll_read_with(
        &mut self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Self::Fresh(_) = self {
            self.register()?;
        }
        loop {
            let done = match self {
                Self::Tcp(tcp) => {
                    ready!(tcp.poll_read_ready(cx))?;
                    tcp.try_io(Interest::READABLE, || call(tcp.as_fd()).map_err(io::Error::from))
                }
                Self::Unix(unix) => {
                    ready!(unix.poll_read_ready(cx))?;
                    unix.try_io(Interest::READABLE, || call(unix.as_fd()).map_err(io::Error::from))
                }
                Self::Fresh(_) | Self::Lost => Err(lost()),
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Makes the stream known to the runtime: from now on it can be waited for.
    fn register(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Lost) {
            Self::Fresh(tcp) => *self = Self::Tcp(TcpStream::from_std(tcp)?),
            other => *self = other,
        }
        Ok(())
    }

    /// Sends what the socket takes; `more` says that other bytes follow at once.
    pub fn poll_send(
        &mut self,
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
        &mut self,
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

    /// Holds segments back until they are full, or lets them go.
    pub fn cork(&self, is_corked: bool) {
        // Not for a Unix socket, which has none.
        if let Some(fd) = self.tcp() {
            let _ = socket2::SockRef::from(&fd).set_tcp_cork(is_corked);
        }
    }

    /// Sends without pacing: the client is on this machine.
    pub fn stay_local(&self) {
        if let Some(fd) = self.tcp() {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&fd).set_tcp_congestion(LOCAL_CONGESTION);
        }
    }

    /// Lets the kernel hold as much for this client as it likes, which spares both sides some work; see
    /// `listen::UNSENT_BYTES` for why it does not from the start.
    pub fn lift_unsent_limit(&self) {
        if let Some(fd) = self.tcp() {
            // Without it, all that is lost is the speed.
            let _ = socket2::SockRef::from(&fd).set_tcp_notsent_lowat(u32::MAX);
        }
    }

    /// Ends our side; the client sees the end of the stream.
    pub fn shut_down_write(&self) {
        // A client that is gone already has its end.
        if let Some(fd) = self.fd() {
            let _ = rustix::net::shutdown(fd, Shutdown::Write);
        }
    }

    /// Makes the coming close a reset: nothing cut short may look complete (C5).
    pub fn reset_on_close(&self) {
        let zero = Some(std::time::Duration::ZERO);
        if let Some(fd) = self.fd() {
            let _ = rustix::net::sockopt::set_socket_linger(fd, zero);
        }
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // There is room nearly always: only when there is not is the runtime asked.
        if let Self::Tcp(tcp) = self {
            match call(tcp.as_fd()) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return Poll::Ready(done.map_err(io::Error::from)),
            }
        }
        loop {
            match self {
                Self::Tcp(tcp) => ready!(tcp.poll_write_ready(cx))?,
                Self::Unix(unix) => ready!(unix.poll_write_ready(cx))?,
                Self::Fresh(_) => {}
                Self::Lost => return Poll::Ready(Err(lost())),
            }
            let done =
                match self {
                    Self::Fresh(tcp) => call(tcp.as_fd()).map_err(io::Error::from),
                    Self::Tcp(tcp) => tcp
                        .try_io(Interest::WRITABLE, || call(tcp.as_fd()).map_err(io::Error::from)),
                    Self::Unix(unix) => unix
                        .try_io(Interest::WRITABLE, || call(unix.as_fd()).map_err(io::Error::from)),
                    Self::Lost => Err(lost()),
                };
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.register()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    debug_assert!(done.as_ref().map_or(true, |count| *count <= wanted));
                    return Poll::Ready(done);
                }
            }
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Fresh(tcp) => Some(tcp.as_fd()),
            Self::Tcp(tcp) => Some(tcp.as_fd()),
            Self::Unix(unix) => Some(unix.as_fd()),
            Self::Lost => None,
        }
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        if matches!(self, Self::Unix(_)) { None } else { self.fd() }
    }

    /// Our own address; `None` on a Unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        let address = match self {
            Self::Fresh(tcp) => tcp.local_addr(),
            Self::Tcp(tcp) => tcp.local_addr(),
            Self::Unix(_) | Self::Lost => return None,
        };
        address.ok().map(|address| address.ip())
    }
}

fn lost() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
