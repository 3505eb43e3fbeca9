//! A program's complaints: into the error log line by line, each with the request's id, and not without
//! end (C10).

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::OFlags;
use sekisho_config::Level;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use super::HandlerContext;

/// A line is cut after so many bytes.
const LINE_MAX: usize = 1024;
/// A run may write so many lines into the log; the rest is counted.
const LINES_MAX: u32 = 100;
/// What one read takes.
const READ_BYTES: usize = 4096;
/// How often the rest of stderr is read: a child that outlived the group may write for ever.
const LAST_READS: u32 = 16;

/// Our end of a program's stderr.
#[derive(Debug)]
pub(super) struct Stderr {
    pipe: Pipe,
    level: Level,
    line: Vec<u8>,
    lines: u32,
}

#[derive(Debug)]
enum Pipe {
    /// Not registered with epoll: it is read when the program has ended, which most do in a moment.
    Unwatched(OwnedFd),
    /// Read as it comes.
    Watched(Receiver),
    /// Over.
    Ended,
}

impl Stderr {
    pub(super) const fn new(pipe: OwnedFd, level: Level) -> Self {
        Self { pipe: Pipe::Unwatched(pipe), level, line: Vec::new(), lines: 0 }
    }

    /// Has it read as it comes from now on.
    pub(super) fn watch(&mut self) {
        self.pipe = match std::mem::replace(&mut self.pipe, Pipe::Ended) {
            Pipe::Unwatched(pipe) => rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)
                .map_err(io::Error::from)
                .and_then(|()| Receiver::from_owned_fd_unchecked(pipe))
                .map_or(Pipe::Ended, Pipe::Watched),
            pipe => pipe,
        };
    }

    /// Reads what has come.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, context: &dyn HandlerContext) {
        let mut bytes = [0; READ_BYTES];
        loop {
            let Pipe::Watched(pipe) = &mut self.pipe else { return };
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(pipe).poll_read(cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let filled = buffer.filled().len();
                    self.take(&bytes[..filled], context);
                }
                Poll::Ready(_) => self.pipe = Pipe::Ended,
            }
        }
    }

    /// Logs the rest: what is still in the pipe, an unfinished line, and how much was left out.
    pub(super) fn finish(mut self, context: &dyn HandlerContext) {
        let mut bytes = [0; READ_BYTES];
        for _ in 0..LAST_READS {
            match self.last_words(&mut bytes) {
                Ok(count) if count > 0 => self.take(&bytes[..count], context),
                _ => break,
            }
        }
        self.end_line(context);
        if self.lines > LINES_MAX {
            let left_out = self.lines - LINES_MAX;
            let message = format_args!("cgi stderr: {left_out} more lines were left out");
            context.report(self.level, message);
        }
    }

    fn last_words(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.pipe {
            Pipe::Watched(pipe) => pipe.try_read(bytes),
            Pipe::Ended => Ok(0),
            Pipe::Unwatched(pipe) => {
                // It may block: no more is asked for than is there.
                let there = usize::try_from(rustix::io::ioctl_fionread(pipe)?).unwrap_or(0);
                let wanted = there.min(bytes.len());
                if wanted == 0 {
                    return Ok(0);
                }
                Ok(rustix::io::read(pipe, &mut bytes[..wanted])?)
            }
        }
    }

    fn take(&mut self, bytes: &[u8], context: &dyn HandlerContext) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece {
                [text @ .., b'\n'] => (text, true),
                text => (text, false),
            };
            let room = LINE_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.end_line(context);
            }
        }
    }

    fn end_line(&mut self, context: &dyn HandlerContext) {
        if self.line.is_empty() {
            return;
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= LINES_MAX {
            let line = String::from_utf8_lossy(&self.line);
            context.report(self.level, format_args!("cgi stderr: {line}"));
        }
        self.line.clear();
    }
}
