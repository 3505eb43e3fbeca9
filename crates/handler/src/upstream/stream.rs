//! A connection to a server: a socket in the clear or with TLS, and its slot in the worker's reactor. Nothing here
//! blocks: a call that cannot go on returns `Pending` and wakes the task later.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use sekisho_transport::{
    Connecting as ConnectingSocket, Reactor, Ready, Registration, Socket, SocketOptions, Transport,
};

use super::circle::{Cause, Hop, TooDeep};
use super::group::Address;
use super::tls::{Secure, TlsStream};

/// A connection that is being made.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>>>>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The system's error.
    Io(io::Error),
    /// The handshake failed.
    Tls(String),
    /// Requests go in a circle.
    Circle(TooDeep),
}

impl From<TooDeep> for ConnectError {
    fn from(why: TooDeep) -> Self {
        Self::Circle(why)
    }
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
    /// Bytes that are sent in the clear before everything else: a PROXY header.
    pub(super) preface: Vec<u8>,
    /// Datagrams are sent.
    pub(super) is_udp: bool,
    /// Who causes it.
    pub(super) cause: Cause,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Stream {
    io: Io,
    registration: Registration,
    /// It may come back to this process.
    hop: Option<Hop>,
}

#[derive(Debug)]
enum Io {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

/// Begins to connect.
pub(super) fn connect(reactor: &Rc<Reactor>, address: Address, options: Options) -> Connecting {
    let reactor = Rc::clone(reactor);
    Box::pin(async move {
        let wanted = SocketOptions { bind: options.bind, keepalive: options.keepalive };
        let depth = match &address {
            Address::Tcp(to) if !options.is_udp => options.cause.depth(*to)?,
            _ => None,
        };
        let mut connecting = match address {
            Address::Unix(_) if options.is_udp => {
                return Err(io::Error::from(io::ErrorKind::Unsupported).into());
            }
            Address::Unix(path) => ConnectingSocket::unix(&reactor, &path)?,
            Address::Tcp(address) if options.is_udp => {
                ConnectingSocket::udp(&reactor, address, wanted)?
            }
            Address::Tcp(address) => ConnectingSocket::tcp(&reactor, address, wanted)?,
        };
        let (socket, registration) = poll_fn(|cx| connecting.poll(cx)).await?;
        let mut stream = Stream { io: Io::Plain(socket), registration, hop: None };
        stream.hop = depth.and_then(|depth| Hop::new(stream.io.socket(), depth));
        let mut sent = 0;
        while sent < options.preface.len() {
            sent += poll_fn(|cx| stream.write(cx, &options.preface[sent..])).await?;
        }
        match options.secure {
            None => Ok(stream),
            Some(secure) => stream.secure(secure).await.map_err(ConnectError::Tls),
        }
    })
}

impl Stream {
    /// Shakes hands.
    async fn secure(self, secure: Secure) -> Result<Self, String> {
        let Self { io: Io::Plain(socket), registration, hop } = self else { return Ok(self) };
        let tls = TlsStream::new(socket, secure)?;
        let mut stream = Self { io: Io::Tls(Box::new(tls)), registration, hop };
        poll_fn(|cx| stream.poll_handshake(cx)).await.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call(cx, Ready::TO_READ, |io| match io {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::Tls(stream) => stream.shake_hands(),
        })
    }

    /// Calls with what is known of the socket's readiness. `Pending` waits for this, and to send what is encrypted.
    fn call<T>(
        &mut self,
        cx: &mut Context<'_>,
        needed: Ready,
        call: impl FnOnce(&mut Io) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Self { io, registration, .. } = self;
        registration.update(io.socket());
        let done = call(io);
        if done.is_pending() {
            let needed = if io.wants_write() { needed | Ready::TO_SEND } else { needed };
            registration.wait(io.socket(), needed, cx.waker())?;
        }
        done
    }

    /// Appends what has come, as far as the spare capacity of `to` goes; 0 is the end.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        self.call(cx, Ready::TO_READ, |io| match io {
            Io::Plain(socket) => socket.append(to),
            Io::Tls(stream) => stream.read(to),
        })
    }

    /// Whether something may be there to read. What is encrypted is looked at by reading.
    pub(super) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let readable = self.call(cx, Ready::TO_READ, |io| match io {
            Io::Plain(socket) if !socket.is_readable() => Poll::Pending,
            Io::Plain(_) | Io::Tls(_) => Poll::Ready(Ok(())),
        });
        // An error is found by reading.
        readable.map(|_| ())
    }

    /// Sends what can leave now.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.call(cx, Ready::TO_SEND, |io| match io {
            Io::Plain(socket) => socket.send(bytes, false),
            Io::Tls(stream) => stream.write(bytes),
        })
    }

    /// Whether all that was taken has left.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.io {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::Tls(_) => self.call(cx, Ready::TO_SEND, |io| match io {
                Io::Plain(_) => Poll::Ready(Ok(())),
                Io::Tls(stream) => stream.flush(),
            }),
        }
    }

    /// Ends our side; the server sees the end of what is sent.
    pub(super) fn shut_down_write(&mut self) {
        if let Io::Tls(stream) = &mut self.io {
            stream.close();
        }
        self.io.socket().shut_down_write(true);
    }

    /// Whether bytes may pass through the kernel alone: TCP in the clear.
    pub(super) fn can_splice(&self) -> bool {
        matches!(&self.io, Io::Plain(socket) if socket.capabilities().splice)
    }

    /// Moves bytes from the socket into an empty pipe.
    pub(super) fn splice_in(
        &mut self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.call(cx, Ready::TO_READ, |io| io.socket().splice_in(pipe, count))
    }

    /// Moves bytes from a pipe that is not empty into the socket.
    pub(super) fn splice_out(
        &mut self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.call(cx, Ready::TO_SEND, |io| io.socket().splice_out(pipe, count))
    }

    /// Whether an idle connection is still there, with nothing in it: what a server sends unasked ends it.
    pub(super) fn is_idle(&mut self) -> bool {
        self.registration.update(self.io.socket());
        !self.io.wants_write() && self.io.socket().is_quiet()
    }

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

impl Io {
    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.wants_write(),
        }
    }
}
