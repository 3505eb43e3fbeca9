//! What a program reads: a pipe that is written as bytes come, a pipe that holds a body from memory, or a file.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::unix::pipe::Sender;

use crate::request_body::BodyFile;

/// Our side of a program's input.
#[derive(Debug)]
pub(super) struct Stdin {
    /// `None` where nothing is written, or no more.
    pipe: Option<Sender>,
    /// What is to be written before anything else: what the pipe did not hold of a body in memory.
    unwritten: Vec<u8>,
    /// No more comes than that.
    is_complete: bool,
    /// The program has not taken what it was given.
    is_full: bool,
    /// The file that is its input, and how far the program has read in it, as far as we know.
    file: Option<(BodyFile, u64)>,
}

/// How much was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrote {
    /// Bytes that need not be offered again.
    pub(super) taken: usize,
    /// Whether the program's pipe took any.
    pub(super) has_moved: bool,
}

impl Stdin {
    pub(super) fn new(pipe: Option<Sender>, unwritten: Vec<u8>, file: Option<BodyFile>) -> Self {
        let file = file.map(|file| (file, 0));
        Self { pipe, unwritten, is_complete: false, is_full: false, file }
    }

    /// Whether the program waits for its input, as far as we know: it wants some, and has taken what there was.
    pub(super) const fn has_taken_all(&self) -> bool {
        self.pipe.is_some() && !self.is_full
    }

    /// Gives the program bytes of the body. One that closes its input or is gone takes all, to nowhere: that is
    /// normal (C7).
    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Wrote {
        let mut wrote = Wrote { taken: 0, has_moved: false };
        self.is_full = false;
        while wrote.taken < bytes.len() {
            let Some(pipe) = &mut self.pipe else {
                wrote.taken = bytes.len();
                break;
            };
            match Pin::new(pipe).poll_write(cx, &bytes[wrote.taken..]) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    wrote.taken += count;
                    wrote.has_moved = true;
                }
                Poll::Ready(_) => self.pipe = None,
                Poll::Pending => {
                    self.is_full = true;
                    break;
                }
            }
        }
        wrote
    }

    /// Goes on with what the pipe did not hold; whether the program has taken any.
    pub(super) fn write_rest(&mut self, cx: &mut Context<'_>) -> bool {
        if self.unwritten.is_empty() {
            return false;
        }
        let mut rest = std::mem::take(&mut self.unwritten);
        let wrote = self.write(cx, &rest);
        rest.drain(..wrote.taken);
        self.unwritten = rest;
        if self.is_complete {
            self.end();
        }
        wrote.has_moved
    }

    /// No more comes: the program sees the end of its input when it has taken what there is.
    pub(super) fn end(&mut self) {
        self.is_complete = true;
        if self.unwritten.is_empty() {
            self.pipe = None;
        }
    }

    /// The program gets no more, and how far it has read no longer matters.
    pub(super) fn close(&mut self) {
        self.pipe = None;
        self.unwritten = Vec::new();
        self.file = None;
    }

    /// Whether the program has read on in the file that is its input since this was last asked.
    pub(super) fn has_read_on(&mut self) -> bool {
        let Some((file, known)) = &mut self.file else { return false };
        let Some(position) = file.position() else { return false };
        std::mem::replace(known, position) != position
    }
}
