//! Wakeup descriptors: how the sides wake each other, and how each learns that the other is gone.
//!
//! A server's wakeup descriptor is an `eventfd`. The client has the same open file, so it could make it block, fill it or
//! empty it: the server never reads or writes it, but only waits for each new edge, which every addition
//! causes. A client's wakeup descriptor is a pipe, of which the server alone has the writing end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::greeting::unfit;

/// A pipe that carries one byte at a time needs no more than a page.
const PIPE_BYTES: usize = 4096;

/// What was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakeEvent {
    /// A wakeup.
    Wakeup,
    /// The end of the other side.
    End,
}

/// The wakeup descriptors of a side in a runtime.
#[derive(Debug)]
pub(crate) enum Wakeups {
    /// The server's: its wakeup descriptor, the client's, and the sign of life.
    Server { own: AsyncFd<OwnedFd>, other: OwnedFd, socket: UnixStream },
    /// The client's: its wakeup descriptor, which is a sign of life as well, the server's, and what the server watches.
    Client { own: AsyncFd<OwnedFd>, other: OwnedFd, _socket: UnixStream },
}

/// New wakeup descriptors: the server's, and both ends of the client's.
pub(crate) fn new_wakeups() -> io::Result<(OwnedFd, (OwnedFd, OwnedFd))> {
    let server = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (hears, rings) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Where it cannot be made smaller, it is larger than it need be.
    let _ = rustix::pipe::fcntl_setpipe_size(&rings, PIPE_BYTES);
    Ok((server, (hears, rings)))
}

impl Wakeups {
    /// A server's.
    pub(crate) fn of_server(own: OwnedFd, other: OwnedFd, socket: UnixStream) -> io::Result<Self> {
        let own = sekisho_sys::watch(own)?;
        Ok(Self::Server { own, other, socket })
    }

    /// A client's.
    pub(crate) fn of_client(own: OwnedFd, other: OwnedFd, socket: UnixStream) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&own, true)?;
        let own = sekisho_sys::watch(own)?;
        Ok(Self::Client { own, other, _socket: socket })
    }

    /// Wakes the other side.
    pub(crate) fn wake_peer(&self) {
        match self {
            Self::Server { other, .. } => wake_client(other),
            Self::Client { other, .. } => wake_server(other),
        }
    }

    /// Waits for a wakeup, or for the end of the other side. The wakeup may be spurious.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<WakeEvent>> {
        match self {
            Self::Server { own, socket, .. } => {
                if let Poll::Ready(guard) = own.poll_read_ready(cx) {
                    guard?.clear_ready();
                    return Poll::Ready(Ok(WakeEvent::Wakeup));
                }
                loop {
                    ready!(socket.poll_read_ready(cx))?;
                    match socket.try_read(&mut [0]) {
                        Ok(0) => return Poll::Ready(Ok(WakeEvent::End)),
                        Ok(_) => {
                            return Poll::Ready(Err(unfit("there was something on the socket")));
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        // A reset is an end as well: the bytes in the ring are still valid.
                        Err(_) => return Poll::Ready(Ok(WakeEvent::End)),
                    }
                }
            }
            Self::Client { own, .. } => loop {
                let mut guard = ready!(own.poll_read_ready(cx))?;
                let mut bytes = [0; 64];
                match rustix::io::read(own, &mut bytes) {
                    Ok(0) => return Poll::Ready(Ok(WakeEvent::End)),
                    Ok(count) => {
                        if count < bytes.len() {
                            guard.clear_ready();
                        }
                        return Poll::Ready(Ok(WakeEvent::Wakeup));
                    }
                    Err(Errno::AGAIN) => guard.clear_ready(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            },
        }
    }
}

/// Wakes a client. A full pipe has woken it already, and a pipe without a reader has no client.
fn wake_client(wakeup: &impl AsFd) {
    let _ = rustix::io::write(wakeup, &[1]);
}

/// Wakes a server. Its counter does not overflow in the age of the universe.
pub(crate) fn wake_server(wakeup: &impl AsFd) {
    let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
}
