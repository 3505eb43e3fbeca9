//! A request body on its way from the transport to where it belongs without passing through the engine: into a
//! file by `splice`, over a pipe that all bodies of a worker share while there are any (it is empty between two
//! uses; one that is not, because the file could not take it all, is thrown away with what is in it); or into
//! memory that the task has for it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use sekisho_handler::task::{BodySink, rest};
use sekisho_lifecycle::Moment;

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::transport::Transport;

/// How much the pipe holds, if the system allows it.
const PIPE_BYTES: usize = 1 << 20;
/// Shorter bodies, and the ends of long ones, are not worth it.
const DIRECT_MIN: u64 = 64 << 10;
/// So much of a body is taken before other sessions get their turn.
const TURN_BYTES: u64 = 4 << 20;

/// A worker's pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    /// Something is left in it.
    is_spoiled: Cell<bool>,
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one works as well, and more often.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES);
        Ok(Self { out, into, is_spoiled: Cell::new(false) })
    }

    /// The one that is in use, or another.
    fn shared(known: &RefCell<Weak<Self>>) -> Option<Rc<Self>> {
        let usable = known.borrow().upgrade().filter(|pipe| !pipe.is_spoiled.get());
        usable.or_else(|| {
            let pipe = Rc::new(Self::new().ok()?);
            *known.borrow_mut() = Rc::downgrade(&pipe);
            Some(pipe)
        })
    }

    /// Empties the pipe into the file: how many of `bytes` it took.
    fn drain(&self, file: BorrowedFd<'_>, bytes: u64) -> Result<u64, Errno> {
        let mut left = bytes;
        while left > 0 {
            let flags = SpliceFlags::MOVE;
            match rustix::pipe::splice(&self.out, None, file, None, left as usize, flags) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => left -= count as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(bytes)
    }
}

impl<T: Transport> Connection<T> {
    /// Takes what there is of a body directly into its file or memory. `Ready(None)` when this body, or what is
    /// left of it, goes through the engine.
    #[inline(never)]
    pub(crate) fn take_direct_body(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<io::Result<Option<u64>>> {
        let Some(at) = self.exchanges.places().find(|at| self.may_be_direct(*at)) else {
            return Poll::Ready(Ok(None));
        };
        let Self { transport, link, exchanges, .. } = self;
        let Some(exchange) = exchanges.get_mut(at) else { return Poll::Ready(Ok(None)) };
        let wanted = link.protocol.direct_body(exchange.id);
        let can_splice = transport.capabilities().splice && wanted >= DIRECT_MIN;
        let Some(task) = &mut exchange.task else { return Poll::Ready(Ok(None)) };
        let (taken, end) = match task.body_sink(cx) {
            BodySink::Memory([]) => {
                exchange.awaits_room = true;
                link.protocol.hold_body(exchange.id, true, now);
                return Poll::Pending;
            }
            BodySink::Memory(_) => exchange.read_body(cx, transport, wanted),
            BodySink::File(_) if can_splice => {
                let Some(pipe) = Pipe::shared(&link.worker.pipe) else {
                    return Poll::Ready(Ok(None));
                };
                exchange.splice_body(cx, transport, &pipe, wanted)
            }
            BodySink::File(_) | BodySink::Ordinary => return Poll::Ready(Ok(None)),
        };
        let id = exchange.id;
        if taken > 0 {
            link.protocol.body_taken(id, taken, now);
            self.active = now;
            self.received += taken;
        }
        match end {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if taken == 0 => Poll::Pending,
            _ if taken >= TURN_BYTES && self.link.protocol.direct_body(id) > 0 => rest(cx),
            // Zero is the end of the stream, which the engine is told in the ordinary way.
            _ if taken == 0 => Poll::Ready(Ok(None)),
            _ => Poll::Ready(Ok(Some(taken))),
        }
    }

    fn may_be_direct(&self, at: usize) -> bool {
        let is_all_taken =
            self.link.buffers.as_ref().is_none_or(|buffers| buffers.unread().is_empty());
        self.exchanges.get(at).is_some_and(|exchange| {
            exchange.task.is_some()
                && exchange.body.is_empty()
                && is_all_taken
                && self.link.protocol.direct_body(exchange.id) > 0
        })
    }
}

impl Exchange {
    /// Takes what there is of a body into its file: how much, and why no more.
    fn splice_body<T: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut T,
        pipe: &Rc<Pipe>,
        wanted: u64,
    ) -> (u64, Poll<io::Result<()>>) {
        self.pipe = Some(Rc::clone(pipe));
        let Some(task) = &mut self.task else { return (0, Poll::Ready(Ok(()))) };
        let mut taken = 0;
        let end = loop {
            let room = wanted.min(TURN_BYTES).saturating_sub(taken).min(PIPE_BYTES as u64);
            if room == 0 {
                break Poll::Ready(Ok(()));
            }
            let filled = match transport.splice(pipe.into.as_fd(), room as usize) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(0)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(filled)) => filled as u64,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            };
            let filled = filled + transport.splice_more(pipe.into.as_fd(), room - filled);
            // The file is the task's for as long as it works.
            let BodySink::File(file) = task.body_sink(cx) else { break Poll::Ready(Ok(())) };
            let drained = pipe.drain(file, filled);
            taken += filled;
            self.received += filled;
            let has_failed = drained.is_err();
            task.direct_bytes_done(drained);
            if has_failed {
                // What is left in the pipe belongs to nobody any more.
                pipe.is_spoiled.set(true);
                break Poll::Ready(Ok(()));
            }
        };
        (taken, end)
    }

    /// Takes what there is of a body into the memory that the task has for it: how much, and why no more.
    fn read_body<T: Transport>(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut T,
        wanted: u64,
    ) -> (u64, Poll<io::Result<()>>) {
        let Some(task) = &mut self.task else { return (0, Poll::Ready(Ok(()))) };
        let mut taken = 0;
        let end = loop {
            let BodySink::Memory(room) = task.body_sink(cx) else { break Poll::Ready(Ok(())) };
            let left = wanted.min(TURN_BYTES).saturating_sub(taken);
            let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if most == 0 {
                break Poll::Ready(Ok(()));
            }
            match transport.read(&mut room[..most]) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(0)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(count)) => {
                    taken += count as u64;
                    self.received += count as u64;
                    task.direct_bytes_done(Ok(count as u64));
                }
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            }
        };
        (taken, end)
    }
}
