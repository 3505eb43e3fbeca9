//! The transport to a server: TCP or a Unix socket. Nothing here waits: what cannot go on says so and wakes
//! the task later.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use super::group::Address;

/// A connection that is being made.
pub(super) type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// How a connection is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// `proxy_bind`
    pub(super) bind: Option<SocketAddr>,
    /// `proxy_socket_keepalive`
    pub(super) keepalive: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Begins to connect.
pub(super) fn connect(address: Address, options: Options) -> Connecting {
    Box::pin(async move {
        match address {
            Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Address::Tcp(address) => {
                let socket = match address {
                    SocketAddr::V4(_) => TcpSocket::new_v4()?,
                    SocketAddr::V6(_) => TcpSocket::new_v6()?,
                };
                if let Some(own) = options.bind {
                    socket.bind(own)?;
                }
                if options.keepalive {
                    socket.set_keepalive(true)?;
                }
                let _ = socket.set_nodelay(true);
                socket.connect(address).await.map(Stream::Tcp)
            }
        }
    })
}

impl Stream {
    fn poll_ready(&self, cx: &mut Context<'_>, is_read: bool) -> Poll<io::Result<()>> {
        match (self, is_read) {
            (Self::Tcp(stream), true) => stream.poll_read_ready(cx),
            (Self::Tcp(stream), false) => stream.poll_write_ready(cx),
            (Self::Unix(stream), true) => stream.poll_read_ready(cx),
            (Self::Unix(stream), false) => stream.poll_write_ready(cx),
        }
    }

    fn try_io<T>(
        &self,
        interest: Interest,
        mut work: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, || Ok(work(stream.as_fd())?)),
            Self::Unix(stream) => stream.try_io(interest, || Ok(work(stream.as_fd())?)),
        }
    }

    /// Appends what has come, as far as the spare capacity of `to` goes; 0 is the end.
    pub(super) fn read(&self, cx: &mut Context<'_>, to: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, true))?;
            match self.try_io(Interest::READABLE, |fd| rustix::io::read(fd, spare_capacity(to))) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Sends what can leave now.
    pub(super) fn write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, false))?;
            let sent = self.try_io(Interest::WRITABLE, |fd| {
                rustix::net::send(fd, bytes, rustix::net::SendFlags::NOSIGNAL)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Whether an idle connection is still there, with nothing in it: what a server says unasked ends it.
    pub(super) fn is_idle(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = self.try_io(Interest::READABLE, |fd| {
            rustix::net::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)
        });
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}
