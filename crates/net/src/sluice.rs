//! A body on its way from the socket to where it belongs without a detour. Into a file by `splice`, without
//! passing through our memory, over a pipe that all bodies of a worker share while there are any: it is empty
//! between two uses; one that is not, because the file could not take it all, is thrown away with what is in
//! it. Or into memory that the task has for it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use sekisho_handler::task::{Way, rest};
use sekisho_lifecycle::Moment;

use crate::drive::Connection;
use crate::stream::Stream;

/// How much the pipe holds, if the system allows it.
const PIPE_BYTES: usize = 1 << 20;
/// Shorter bodies, and the ends of long ones, are not worth it.
const DIRECT_MIN: u64 = 64 << 10;
/// So much of a body is taken before other sessions get their turn.
const TURN_BYTES: u64 = 4 << 20;

/// A worker's pipe.
#[derive(Debug)]
pub(crate) struct Sluice {
    out: OwnedFd,
    into: OwnedFd,
    /// Something is left in it.
    is_foul: Cell<bool>,
}

impl Sluice {
    fn new() -> Result<Self, Errno> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one works as well, and more often.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES);
        Ok(Self { out, into, is_foul: Cell::new(false) })
    }

    /// The one that is in use, or another.
    fn shared(known: &RefCell<Weak<Self>>) -> Option<Rc<Self>> {
        let usable = known.borrow().upgrade().filter(|sluice| !sluice.is_foul.get());
        usable.or_else(|| {
            let sluice = Rc::new(Self::new().ok()?);
            *known.borrow_mut() = Rc::downgrade(&sluice);
            Some(sluice)
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

impl Connection {
    /// Takes what there is of a body directly into its file. `Ready(None)` when this body, or what is left
    /// of it, goes the ordinary way.
    #[inline(never)]
    pub(crate) fn sluice_body(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Poll<io::Result<Option<u64>>> {
        let Some(busy) = self.busy.as_mut().filter(|busy| busy.task.is_some()) else {
            return Poll::Ready(Ok(None));
        };
        let wanted = self.engine.direct_body();
        let may_be_direct = wanted > 0 && busy.unread().is_empty() && busy.body.is_empty();
        let Some(task) = busy.task.as_mut().filter(|_| may_be_direct) else {
            return Poll::Ready(Ok(None));
        };
        match task.way(cx) {
            Way::Memory([]) => {
                busy.awaits_room = true;
                self.engine.hold_body(true, now);
                return Poll::Pending;
            }
            Way::Memory(_) => return self.pour_body(cx, wanted, now),
            Way::File(_) if wanted >= DIRECT_MIN => {}
            _ => return Poll::Ready(Ok(None)),
        }
        let Some(sluice) = Sluice::shared(&self.worker.sluice) else {
            return Poll::Ready(Ok(None));
        };
        busy.sluice = Some(Rc::clone(&sluice));
        let mut taken = 0;
        let end = loop {
            let room = wanted.min(TURN_BYTES).saturating_sub(taken).min(PIPE_BYTES as u64);
            if room == 0 {
                break Poll::Ready(Ok(()));
            }
            let filled = match self.stream.splice(sluice.into.as_fd(), room as usize) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(0)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(filled)) => filled as u64,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            };
            let filled = filled + self.stream.splice_more(&sluice.into, room - filled);
            // The file is the task's for as long as it works.
            let Way::File(file) = task.way(cx) else { break Poll::Ready(Ok(())) };
            let drained = sluice.drain(file, filled);
            taken += filled;
            busy.serving.received(filled as usize);
            let has_failed = drained.is_err();
            task.came(drained);
            if has_failed {
                // What is left in the pipe is nobody's any more.
                sluice.is_foul.set(true);
                break Poll::Ready(Ok(()));
            }
        };
        self.took(cx, taken, end, now)
    }

    /// Takes what there is of a body into the memory that the task has for it.
    fn pour_body(
        &mut self,
        cx: &mut Context<'_>,
        wanted: u64,
        now: Moment,
    ) -> Poll<io::Result<Option<u64>>> {
        let Some(busy) = &mut self.busy else { return Poll::Ready(Ok(None)) };
        let Some(task) = &mut busy.task else { return Poll::Ready(Ok(None)) };
        let mut taken = 0;
        let end = loop {
            let Way::Memory(room) = task.way(cx) else { break Poll::Ready(Ok(())) };
            let left = wanted.min(TURN_BYTES).saturating_sub(taken);
            let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if most == 0 {
                break Poll::Ready(Ok(()));
            }
            match self.stream.read(&mut room[..most]) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(0)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(count)) => {
                    taken += count as u64;
                    busy.serving.received(count);
                    task.came(Ok(count as u64));
                }
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
            }
        };
        self.took(cx, taken, end, now)
    }

    /// So many bytes of a body have been taken, and this is why no more were.
    fn took(
        &mut self,
        cx: &mut Context<'_>,
        taken: u64,
        end: Poll<io::Result<()>>,
        now: Moment,
    ) -> Poll<io::Result<Option<u64>>> {
        if taken > 0 {
            self.engine.body_taken(taken, now);
            self.active = now;
            self.received += taken;
        }
        match end {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if taken == 0 => Poll::Pending,
            _ if taken >= TURN_BYTES && self.engine.direct_body() > 0 => rest(cx),
            // Zero is the end of the stream, which the ordinary way finds out for itself.
            _ if taken == 0 => Poll::Ready(Ok(None)),
            _ => Poll::Ready(Ok(Some(taken))),
        }
    }
}

impl Stream {
    /// Moves bytes that have come into a pipe; zero is the end.
    fn splice(&mut self, pipe: BorrowedFd<'_>, most: usize) -> Poll<io::Result<usize>> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.read_with(|fd| rustix::pipe::splice(fd, None, pipe, None, most, flags))
    }

    /// Moves more of them, so that the file gets them in one go: the kernel gives only one packet at a time.
    /// Where this ends says nothing about the socket: the pipe may be full.
    fn splice_more(&self, pipe: &OwnedFd, most: u64) -> u64 {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let mut moved = 0;
        while moved < most {
            match rustix::pipe::splice(self, None, pipe, None, (most - moved) as usize, flags) {
                Ok(count) if count > 0 => moved += count as u64,
                Err(Errno::INTR) => {}
                // The next look at the socket finds out.
                _ => break,
            }
        }
        moved
    }
}
