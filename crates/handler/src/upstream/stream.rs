//! The transport to a server: TCP or a Unix socket, encrypted or not. Nothing here blocks: a call that cannot
//! go on returns `Pending` and wakes the task later.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use rustix::pipe::SpliceFlags;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use super::group::Address;
use super::tls::{Secure, TlsStream};

/// Pages are moved where they can be, and nobody waits.
const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// A connection that is being made.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>>>>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The system's word.
    Io(io::Error),
    /// The handshake failed.
    Tls(String),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How a connection is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// `proxy_bind`
    pub(super) bind: Option<SocketAddr>,
    /// `proxy_socket_keepalive`
    pub(super) keepalive: bool,
    /// `https://`
    pub(super) secure: Option<Secure>,
    /// What is sent in the clear before everything else: a PROXY header.
    pub(super) preface: Vec<u8>,
    /// Datagrams are sent.
    pub(super) is_udp: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

/// A socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Udp(UdpSocket),
}

/// Begins to connect.
pub(super) fn connect(address: Address, options: Options) -> Connecting {
    Box::pin(async move {
        let socket = match address {
            Address::Unix(_) if options.is_udp => {
                return Err(io::Error::from(io::ErrorKind::Unsupported).into());
            }
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path).await?),
            Address::Tcp(address) if options.is_udp => {
                Socket::Udp(connect_udp(address, options.bind)?)
            }
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
                Socket::Tcp(socket.connect(address).await?)
            }
        };
        let mut sent = 0;
        while sent < options.preface.len() {
            sent += poll_fn(|cx| socket.write(cx, &options.preface[sent..])).await?;
        }
        match options.secure {
            None => Ok(Stream::Plain(socket)),
            Some(secure) => {
                let stream = TlsStream::connect(socket, secure).await;
                Ok(Stream::Tls(Box::new(stream.map_err(ConnectError::Tls)?)))
            }
        }
    })
}

/// A socket that sends to one server, and hears from no other.
fn connect_udp(address: SocketAddr, own: Option<SocketAddr>) -> io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(own.unwrap_or(any))?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

impl Stream {
    /// Appends what has come, as far as the spare capacity of `to` goes; 0 is the end.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.read(cx, to),
            Self::Tls(stream) => stream.read(cx, to),
        }
    }

    /// Whether something may be there to read. What is encrypted is looked at by reading.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            // An error is found by reading.
            Self::Plain(socket) => socket.poll_ready(cx, true).map(|_| ()),
            Self::Tls(_) => Poll::Ready(()),
        }
    }

    /// Sends what can leave now.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.write(cx, bytes),
            Self::Tls(stream) => stream.write(cx, bytes),
        }
    }

    /// Whether all that was taken has left.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.flush(cx),
        }
    }

    /// Ends our side; the server sees the end of what is sent.
    pub(super) fn shut_down_write(&mut self, cx: &mut Context<'_>) {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.close(cx),
        };
        // A server that is gone has its end already.
        let _ = socket.try_io(Interest::WRITABLE, |fd| {
            rustix::net::shutdown(fd, rustix::net::Shutdown::Write)
        });
    }

    /// The socket of datagrams, which the runtime does not watch: what the kernel tells of an error alone would wake
    /// nobody.
    pub(super) fn datagram_socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Plain(Socket::Udp(socket)) => Some(socket.as_fd()),
            _ => None,
        }
    }

    /// The socket, where bytes may pass through the kernel alone: TCP in the clear.
    pub(super) const fn plain_tcp(&self) -> Option<&Socket> {
        match self {
            Self::Plain(socket @ Socket::Tcp(_)) => Some(socket),
            _ => None,
        }
    }

    /// Whether an idle connection is still there, with nothing in it: what a server says unasked ends it.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_idle(),
            Self::Tls(stream) => stream.is_idle(),
        }
    }
}

impl Socket {
    fn poll_ready(&self, cx: &mut Context<'_>, is_read: bool) -> Poll<io::Result<()>> {
        match (self, is_read) {
            (Self::Tcp(stream), true) => stream.poll_read_ready(cx),
            (Self::Tcp(stream), false) => stream.poll_write_ready(cx),
            (Self::Unix(stream), true) => stream.poll_read_ready(cx),
            (Self::Unix(stream), false) => stream.poll_write_ready(cx),
            // Tried at once: its owner watches it.
            (Self::Udp(_), _) => Poll::Ready(Ok(())),
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
            Self::Udp(socket) => Ok(work(socket.as_fd())?),
        }
    }

    fn read(&self, cx: &mut Context<'_>, to: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, true))?;
            let room = to.capacity() - to.len();
            match self.try_io(Interest::READABLE, |fd| rustix::io::read(fd, spare_capacity(to))) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && matches!(self, Self::Udp(_)) =>
                {
                    return Poll::Pending;
                }
                Err(error) if is_retried(&error) => {}
                // A datagram says nothing about the next one.
                Ok(count) if count > 0 && count < room && !matches!(self, Self::Udp(_)) => {
                    self.has_read_all();
                    return Poll::Ready(Ok(count));
                }
                read => return Poll::Ready(read),
            }
        }
    }

    /// A read that did not fill its buffer has emptied the socket: the next event says when there is more. Asking the
    /// socket again would be one more system call for each answer. That it was closed is not forgotten.
    fn has_read_all(&self) {
        let _ = self.try_io(Interest::READABLE, |_| Err::<(), _>(rustix::io::Errno::AGAIN));
    }

    fn write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Self::Udp(socket) = self {
            // A datagram leaves now, or is lost as on its way.
            let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
            return Poll::Ready(match rustix::net::send(socket, bytes, flags) {
                Err(rustix::io::Errno::AGAIN) => Ok(bytes.len()),
                sent => Ok(sent?),
            });
        }
        loop {
            ready!(self.poll_ready(cx, false))?;
            let sent = self.try_io(Interest::WRITABLE, |fd| {
                rustix::net::send(fd, bytes, rustix::net::SendFlags::NOSIGNAL)
            });
            match sent {
                Err(error) if is_retried(&error) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Lets `work` read from the socket, once something is there.
    pub(super) fn read_by(
        &self,
        cx: &mut Context<'_>,
        mut work: impl FnMut(&mut dyn io::Read) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, true))?;
            let read = self.try_io(Interest::READABLE, |fd| {
                work(&mut Raw(fd)).map_err(|error| {
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
                })
            });
            match read {
                Err(error) if is_retried(&error) => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Lets `work` write to the socket, once it takes something.
    pub(super) fn write_by(
        &self,
        cx: &mut Context<'_>,
        mut work: impl FnMut(&mut dyn io::Write) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, false))?;
            let written = self.try_io(Interest::WRITABLE, |fd| {
                work(&mut Raw(fd)).map_err(|error| {
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
                })
            });
            match written {
                Err(error) if is_retried(&error) => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Moves bytes from the socket into an empty pipe.
    pub(super) fn splice_in(
        &self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, true))?;
            let moved = self.try_io(Interest::READABLE, |fd| {
                rustix::pipe::splice(fd, None, pipe, None, count, SPLICE)
            });
            match moved {
                Err(error) if is_retried(&error) => {}
                moved => return Poll::Ready(moved),
            }
        }
    }

    /// Moves bytes from a pipe that is not empty into the socket.
    pub(super) fn splice_out(
        &self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, false))?;
            let moved = self.try_io(Interest::WRITABLE, |fd| {
                rustix::pipe::splice(pipe, None, fd, None, count, SPLICE)
            });
            match moved {
                Err(error) if is_retried(&error) => {}
                moved => return Poll::Ready(moved),
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = self.try_io(Interest::READABLE, |fd| {
            rustix::net::recv(fd, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)
        });
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl Stream {
    /// Sends a few bytes without waiting; whether all of them have left.
    pub(super) fn send_at_once(&mut self, mut bytes: &[u8]) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        while !bytes.is_empty() {
            match self.write(&mut cx, bytes) {
                Poll::Ready(Ok(count @ 1..)) => bytes = &bytes[count..],
                Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => return false,
            }
        }
        matches!(self.flush(&mut cx), Poll::Ready(Ok(())))
    }
}

fn is_retried(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// A descriptor as the standard library reads and writes.
struct Raw<'fd>(BorrowedFd<'fd>);

impl io::Read for Raw<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, to)?)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, rustix::net::SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
