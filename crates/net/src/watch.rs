//! Notices that a client goes while more of its request lies in the socket than is wanted now. Whoever does
//! not read sees no end, and the runtime tells of a socket only that there is something to read: so another
//! descriptor of it is waited for, and the kernel asked what is new. Only for as long as a task works.

use std::io;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::unix::pipe::Receiver;

use crate::drive::Connection;
use crate::stream::Stream;

/// How a client has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// It sends no more (FIN).
    Sending,
    /// Its connection is lost.
    Whole,
}

/// A client that is watched. The runtime's pipe is used only to wait: it is the safe way to wait for any
/// descriptor.
#[derive(Debug)]
pub(crate) struct Watch(Receiver);

impl Watch {
    fn new(stream: &Stream) -> io::Result<Self> {
        let fd = stream.fd().ok_or(io::ErrorKind::NotConnected)?;
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        Receiver::from_owned_fd_unchecked(fd).map(Self)
    }

    /// Looks, and if the client is there, lets whoever asks know when that changes.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Gone> {
        loop {
            let Poll::Ready(ready) = self.0.poll_read_ready(cx) else { return self.look() };
            if ready.is_err() {
                return Poll::Pending;
            }
            // What is there is known: the next news is waited for.
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.0.try_io(nothing);
        }
    }

    fn look(&self) -> Poll<Gone> {
        let mut look = [PollFd::new(&self.0, PollFlags::RDHUP)];
        if rustix::event::poll(&mut look, Some(&Timespec::default())).is_err() {
            return Poll::Pending;
        }
        let seen = look[0].revents();
        if seen.intersects(PollFlags::ERR | PollFlags::HUP) {
            Poll::Ready(Gone::Whole)
        } else if seen.contains(PollFlags::RDHUP) {
            Poll::Ready(Gone::Sending)
        } else {
            Poll::Pending
        }
    }
}

impl Connection {
    /// Whether the client of a task has gone, although what it sent cannot be read to its end now (L12).
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let loses_by_fin = self.engine.loses_by_fin();
        let Some(busy) = self.busy.as_mut().filter(|busy| busy.task.is_some()) else {
            return Poll::Pending;
        };
        if busy.watch.is_none() {
            // Without descriptors its end is noticed at a deadline.
            busy.watch = Watch::new(&self.stream).ok();
        }
        let Some(watch) = &busy.watch else { return Poll::Pending };
        match watch.poll_gone(cx) {
            Poll::Ready(Gone::Whole) => Poll::Ready(()),
            Poll::Ready(Gone::Sending) if loses_by_fin => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}
