//! One end of a session through shared memory, for a runtime. It opens itself with its first read or write, so
//! whatever deadline the session has for its handshake is the deadline for this as well.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::RecvFlags;
use sekisho_native::Code;
use sekisho_ring::Rings;
use tokio::net::UnixStream;

use super::Config;
use super::greeting::{self, HELLO_BYTES, Incoming, Offer};
use super::link::Link;
use super::spin::Spin;
use super::wakeup::{WakeEvent, Wakeups, new_wakeups};
use sekisho_service::Peer;

use crate::stream::Stream as Transport;

/// One end of a session. One task drives it: the task that polled last is woken.
#[derive(Debug)]
pub struct Stream {
    state: State,
    peer: Peer,
    /// Looks before it sleeps.
    spin: Spin,
}

#[derive(Debug)]
enum State {
    /// The server: so much of the client's greeting has come.
    Accepting { socket: UnixStream, word: [u8; HELLO_BYTES], filled: usize, config: Config },
    /// The client: so much of its own greeting has been sent.
    Greeting { socket: UnixStream, sent: usize },
    /// The client: the server's reply is awaited.
    Awaiting { socket: UnixStream, word: Box<Incoming> },
    /// Bytes go through the rings.
    Open(Box<Open>),
    /// It did not come to that.
    Failed(io::ErrorKind),
}

#[derive(Debug)]
struct Open {
    link: Link,
    wakeups: Wakeups,
    /// The other side is gone; what it wrote can still be read.
    is_gone: bool,
}

impl Stream {
    /// The server's end of a connection that was accepted.
    pub fn accept(socket: UnixStream, config: &Config) -> Self {
        let peer = peer_of(&socket);
        let (config, spin) = (config.clone(), Spin::new(config.spin));
        let state = State::Accepting { socket, word: [0; HELLO_BYTES], filled: 0, config };
        Self { state, peer, spin }
    }

    /// The client's end of a connection to a server that shares memory.
    pub fn connect(socket: UnixStream) -> Self {
        let peer = peer_of(&socket);
        let spin = Spin::new(Duration::ZERO);
        Self { state: State::Greeting { socket, sent: 0 }, peer, spin }
    }

    /// So long it looks for bytes before it sleeps.
    #[must_use]
    pub fn with_spin(mut self, longest: Duration) -> Self {
        self.spin = Spin::new(longest);
        self
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Open>> {
        while !matches!(self.state, State::Open(_)) {
            if let Err(error) = ready!(self.poll_step(cx)) {
                self.state = State::Failed(error.kind());
                return Poll::Ready(Err(error));
            }
        }
        match &mut self.state {
            State::Open(open) => Poll::Ready(Ok(open)),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_read_with(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
        spin: &mut Spin,
    ) -> Poll<io::Result<usize>> {
        let Open { link, wakeups, is_gone } = match ready!(self.poll_open(cx)) {
            // A peer that goes before its greeting has closed, as with any other transport.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Poll::Ready(Ok(0));
            }
            open => open?,
        };
        loop {
            if let Some(count) = link.read(into, || wakeups.wake_peer())? {
                return Poll::Ready(Ok(count));
            }
            if *is_gone {
                return Poll::Ready(Ok(0));
            }
            // A side that has just moved bytes is likely to get more.
            if spin.until(|| link.has_something()) {
                continue;
            }
            if link.reader_waits()? && ready!(wakeups.poll(cx))? == WakeEvent::End {
                *is_gone = true;
            }
        }
    }

    /// One step towards the open state.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(_) => {}
            State::Failed(kind) => return Poll::Ready(Err((*kind).into())),
            State::Accepting { socket, word, filled, config } => {
                if !config.access.admits(self.peer) {
                    return Poll::Ready(Err(refuse(socket, Code::PermissionError)));
                }
                while *filled < HELLO_BYTES {
                    match socket.try_read(&mut word[*filled..]) {
                        Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                        Ok(count) => *filled += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            ready!(socket.poll_read_ready(cx))?;
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                if let Err(code) = greeting::check_hello(word) {
                    return Poll::Ready(Err(refuse(socket, code)));
                }
                let config = config.clone();
                self.replace(|socket| share(socket, &config))?;
            }
            State::Greeting { socket, sent } => {
                let hello = greeting::hello();
                while *sent < HELLO_BYTES {
                    match socket.try_write(&hello[*sent..]) {
                        Ok(count) => *sent += count,
                        // A server that refuses us need not have waited for our greeting; its reply says why.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            ready!(socket.poll_write_ready(cx))?;
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                self.replace(|socket| Ok(State::Awaiting { socket, word: Box::default() }))?;
            }
            State::Awaiting { socket, word } => {
                let came = socket.try_io(tokio::io::Interest::READABLE, || {
                    word.take(socket.as_fd(), RecvFlags::DONTWAIT)
                });
                match came {
                    Ok(None) => {}
                    Ok(Some((rings, offer))) => {
                        self.replace(|socket| open(socket, rings, offer))?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(socket.poll_read_ready(cx))?;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next state, which takes the socket over.
    fn replace(&mut self, next: impl FnOnce(UnixStream) -> io::Result<State>) -> io::Result<()> {
        let failed = State::Failed(io::ErrorKind::NotConnected);
        self.state = match std::mem::replace(&mut self.state, failed) {
            State::Accepting { socket, .. }
            | State::Greeting { socket, .. }
            | State::Awaiting { socket, .. } => next(socket)?,
            other => other,
        };
        Ok(())
    }
}

impl Transport for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut spin = self.spin.clone();
        let read = self.poll_read_with(cx, into, &mut spin);
        self.spin = spin;
        read
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Open { link, wakeups, is_gone } = ready!(self.poll_open(cx))?;
        loop {
            if *is_gone {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let count = link.write(bytes, || wakeups.wake_peer())?;
            if count > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(count));
            }
            if link.writer_waits()? && ready!(wakeups.poll(cx))? == WakeEvent::End {
                *is_gone = true;
            }
        }
    }

    fn poll_shut_down(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Open(open) = &mut self.state {
            let Open { link, wakeups, .. } = &mut **open;
            link.end(|| wakeups.wake_peer());
        }
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> Peer {
        self.peer
    }
}

/// The server makes the memory and the wakeup descriptors, and gives the client its part of them.
fn share(socket: UnixStream, config: &Config) -> io::Result<State> {
    let shared = new_offer(config);
    let (rings, offer, client_waker) = match shared {
        Ok(shared) => shared,
        Err(error) => {
            refuse(&socket, Code::SystemError);
            return Err(error);
        }
    };
    let link = Link::new(&offer.memory, rings, true)?;
    let word = greeting::reply(Ok((rings.request.bytes, rings.answer.bytes)));
    greeting::send(socket.as_fd(), &word, &offer.descriptors())?;
    let wakeups = Wakeups::of_server(offer.server_wakeup, client_waker, socket)?;
    Ok(State::Open(Box::new(Open { link, wakeups, is_gone: false })))
}

fn new_offer(config: &Config) -> io::Result<(Rings, Offer, std::os::fd::OwnedFd)> {
    let (request, answer) = config.ring_bytes();
    let rings = Rings::new(request, answer).ok_or(io::ErrorKind::InvalidInput)?;
    let memory = greeting::new_memory(rings.memory_bytes())?;
    let (server_wakeup, (client_wakeup, client_waker)) = new_wakeups()?;
    Ok((rings, Offer { memory, server_wakeup, client_wakeup }, client_waker))
}

/// The client takes what it was given.
fn open(socket: UnixStream, rings: Rings, offer: Offer) -> io::Result<State> {
    let link = Link::new(&offer.memory, rings, false)?;
    let wakeups = Wakeups::of_client(offer.client_wakeup, offer.server_wakeup, socket)?;
    Ok(State::Open(Box::new(Open { link, wakeups, is_gone: false })))
}

/// Tells the client why not.
fn refuse(socket: &UnixStream, code: Code) -> io::Error {
    // Whether the peer gets it or not, the session is over.
    let _ = greeting::send(socket.as_fd(), &greeting::reply(Err(code)), &[]);
    let kind = match code {
        Code::PermissionError => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, super::Refused(code.number()))
}

fn peer_of(socket: &UnixStream) -> Peer {
    socket.peer_cred().map_or(Peer::Unknown, |of| Peer::Local {
        uid: of.uid(),
        pid: of.pid().and_then(|pid| u32::try_from(pid).ok()),
    })
}
