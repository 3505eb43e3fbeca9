//! Pipes through which bytes pass from one socket to another within the kernel (splice). A session borrows one while
//! there is something in it.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;

/// How many pipes a worker keeps.
const KEPT_MAX: usize = 64;
/// How much one holds, where the system allows it.
pub(super) const PIPE_BYTES: usize = 256 << 10;

/// A pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    /// How much is in it.
    pub(super) filled: usize,
}

impl Pipe {
    fn new() -> Option<Self> {
        let (output, input) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // With less room it takes more calls.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE_BYTES);
        Some(Self { output, input, filled: 0 })
    }

    /// Where bytes go in.
    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Where they come out.
    pub(super) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

/// The pipes of a worker that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Pipes(RefCell<Vec<Pipe>>);

impl Pipes {
    /// An empty pipe; `None` where the system has none.
    pub(super) fn borrow(&self) -> Option<Pipe> {
        self.0.borrow_mut().pop().or_else(Pipe::new)
    }

    /// Takes a pipe back. One that is not empty is for nobody else.
    pub(super) fn give_back(&self, pipe: Pipe) {
        let mut kept = self.0.borrow_mut();
        if pipe.filled == 0 && kept.len() < KEPT_MAX {
            kept.push(pipe);
        }
    }
}
