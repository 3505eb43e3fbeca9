//! An answer that is compressed while it is sent: a task around a file, around bytes in memory or around
//! another task. Its head has been sent already; it gives the body.
//!
//! A larger piece is compressed on a thread of the blocking pool, one at a time for an answer, and none
//! before the client has taken the output of the last: so memory is bounded by the encoder and one piece, and
//! when the client goes away the work ends with the current piece. What another task gives is flushed
//! whenever that task pauses.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use sekisho_lifecycle::cancel::Cause;
use sekisho_lifecycle::{Deadline, Moment, Share};

use super::{Compressor, Encoder, PIECES};
use crate::disk::Device;
use crate::task::{self, BodyIn, Describe, Outbox, Progress, Task, Wrapper, rest};
use crate::{forward, without};

/// How much of a file one piece has.
pub(super) const PIECE_BYTES: usize = 128 * 1024;
/// A piece up to this size is compressed on the event loop, if that is quick.
const SMALL_BYTES: usize = 16 * 1024;
/// So much is compressed on the event loop before other sessions have their turn.
const TURN_BYTES: usize = 64 * 1024;

/// What is compressed.
#[derive(Debug)]
pub enum Source {
    /// The output of a task whose head has been given.
    Task(Box<dyn Task>),
    /// A stretch of a file.
    File(Arc<OwnedFd>, Range<u64>),
    /// Bytes, from the first that has not been taken.
    Bytes(Vec<u8>, usize),
}

/// See the module's text.
#[derive(Debug)]
pub struct CompressTask {
    source: Source,
    stage: CompressStage,
    is_quick: bool,
    /// How long the body is to be, before it is compressed.
    length: Option<u64>,
    /// Whether the encoder holds something back.
    is_dirty: bool,
    /// How much has been compressed, and how much of it where it stood since others had their turn.
    plain_bytes: u64,
    turn_bytes: usize,
    _share: Share,
}

enum CompressStage {
    /// Waits for the source.
    Ready(Encoder),
    /// A piece is being compressed.
    Working(Pin<Box<dyn Future<Output = io::Result<Piece>>>>),
    /// All has been given.
    Complete,
    /// It cannot go on.
    Broken,
}

impl std::fmt::Debug for CompressStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Working(_) => "Working",
            Self::Complete => "Complete",
            Self::Broken => "Broken",
        })
    }
}

/// What came of a piece.
struct Piece {
    /// `None` after the last one.
    encoder: Option<Encoder>,
    plain_bytes: u64,
    out: Vec<u8>,
}

/// What a piece is.
enum Work {
    Bytes(Vec<u8>, Then),
    File { descriptor: Arc<OwnedFd>, start: u64, bytes: usize, then: Then },
}

/// What follows a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    More,
    Flush,
    End,
}

impl CompressTask {
    /// Begins with it.
    pub fn new(source: Source, compressor: Compressor) -> Self {
        Self {
            source,
            stage: CompressStage::Ready(compressor.encoder),
            is_quick: compressor.is_quick,
            length: compressor.length,
            is_dirty: false,
            plain_bytes: 0,
            turn_bytes: 0,
            _share: compressor.share,
        }
    }

    /// Gives a piece to the pool.
    fn start(&mut self, encoder: Encoder, work: Work) {
        self.is_dirty = matches!(work, Work::Bytes(_, Then::More));
        self.stage = CompressStage::Working(Box::pin(async move {
            let work = work.read().await?;
            let permit = PIECES.clone().acquire_owned().await;
            let job = move || {
                // Held until the piece is done, also when the request is gone.
                let _permit = permit;
                encoder.run(work)
            };
            tokio::task::spawn_blocking(job).await.map_err(io::Error::other)?
        }));
    }

    /// Compresses a piece: on the event loop, or in the pool. Returns whether there is output.
    fn compressor(
        &mut self,
        mut encoder: Encoder,
        bytes: Vec<u8>,
        then: Then,
        out: &mut Outbox,
    ) -> bool {
        if !self.is_quick || bytes.len() > SMALL_BYTES {
            self.start(encoder, Work::Bytes(bytes, then));
            return false;
        }
        self.turn_bytes += bytes.len();
        self.plain_bytes += bytes.len() as u64;
        let written = encoder.write(&bytes, &mut out.body).and_then(|()| match then {
            Then::More => Ok(Some(encoder)),
            Then::Flush => encoder.flush(&mut out.body).map(|()| Some(encoder)),
            Then::End => encoder.finish(&mut out.body).map(|()| None),
        });
        self.is_dirty = then == Then::More;
        self.stage = match written {
            Ok(Some(encoder)) => CompressStage::Ready(encoder),
            Ok(None) => CompressStage::Complete,
            Err(_) => CompressStage::Broken,
        };
        !out.body.is_empty() && !matches!(self.stage, CompressStage::Broken)
    }

    /// Asks the task for more. `None` when the stage has changed.
    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Outbox,
        now: Moment,
    ) -> Option<Poll<Progress>> {
        let Source::Task(task) = &mut self.source else { return Some(Poll::Pending) };
        let (bytes, then) = match task.poll(cx, out, now) {
            Poll::Ready(Progress::Body) => (std::mem::take(&mut out.body), Then::More),
            Poll::Ready(Progress::Done) => (Vec::new(), Then::End),
            // It pauses: flush what it has given so far to the client.
            Poll::Pending if self.is_dirty => (Vec::new(), Then::Flush),
            Poll::Pending => {
                self.stage = CompressStage::Ready(encoder);
                self.turn_bytes = 0;
                return Some(Poll::Pending);
            }
            // A head has been given: whatever else it says, there is no other end than this.
            Poll::Ready(_) => {
                self.stage = CompressStage::Broken;
                return None;
            }
        };
        self.compressor(encoder, bytes, then, out).then_some(Poll::Ready(Progress::Body))
    }

    /// Takes the next piece of a file or of bytes.
    fn go_on(&mut self, encoder: Encoder) {
        let work = match &mut self.source {
            Source::Task(_) => return,
            Source::Bytes(all, taken) => {
                let end = all.len().min(*taken + PIECE_BYTES);
                let then = if end == all.len() { Then::End } else { Then::More };
                let bytes = all[*taken..end].to_vec();
                *taken = end;
                Work::Bytes(bytes, then)
            }
            Source::File(descriptor, range) => {
                let bytes = (range.end - range.start).min(PIECE_BYTES as u64);
                let start = range.start;
                range.start += bytes;
                let then = if range.is_empty() { Then::End } else { Then::More };
                let descriptor = Arc::clone(descriptor);
                Work::File { descriptor, start, bytes: bytes as usize, then }
            }
        };
        self.start(encoder, work);
    }
}

impl Work {
    /// Has a piece of a file read, by a thread of its device: a slow disk holds up no other compression.
    async fn read(self) -> io::Result<(Vec<u8>, Then)> {
        match self {
            Self::Bytes(bytes, then) => Ok((bytes, then)),
            Self::File { descriptor, start, bytes, then } => {
                let device = Device::of(&*descriptor);
                let read = device.read(move || read_exactly(&descriptor, start, bytes));
                Ok((read.await.map_err(io::Error::from)??, then))
            }
        }
    }
}

impl Encoder {
    fn run(mut self, (bytes, then): (Vec<u8>, Then)) -> io::Result<Piece> {
        let mut out = Vec::with_capacity(bytes.len() / 4);
        self.write(&bytes, &mut out)?;
        let encoder = match then {
            Then::More => Some(self),
            Then::Flush => {
                self.flush(&mut out)?;
                Some(self)
            }
            Then::End => {
                self.finish(&mut out)?;
                None
            }
        };
        Ok(Piece { encoder, plain_bytes: bytes.len() as u64, out })
    }
}

/// A file that has become shorter is an error: what is left of it must not pass for the whole.
fn read_exactly(descriptor: &OwnedFd, start: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match rustix::io::pread(descriptor, &mut content[filled..], start + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(content)
}

impl Wrapper for CompressTask {
    type Inner = dyn Task;

    fn inner(&self) -> Option<&Self::Inner> {
        match &self.source {
            Source::Task(task) => Some(&**task),
            Source::File(..) | Source::Bytes(..) => None,
        }
    }

    fn inner_mut(&mut self) -> Option<&mut Self::Inner> {
        match &mut self.source {
            Source::Task(task) => Some(&mut **task),
            Source::File(..) | Source::Bytes(..) => None,
        }
    }
}

impl task::Work for CompressTask {
    forward!(hold, absorb, stops_with_client, is_service, conclude);
    without!(narrow);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, now: Moment) -> Poll<Progress> {
        loop {
            if self.turn_bytes >= TURN_BYTES {
                self.turn_bytes = 0;
                return rest(cx);
            }
            match std::mem::replace(&mut self.stage, CompressStage::Broken) {
                // The head has no length, so only this check finds that bytes are missing.
                CompressStage::Complete
                    if self.length.is_some_and(|length| length != self.plain_bytes) =>
                {
                    return Poll::Ready(Progress::Break);
                }
                CompressStage::Complete => {
                    self.stage = CompressStage::Complete;
                    return Poll::Ready(Progress::Done);
                }
                CompressStage::Broken => return Poll::Ready(Progress::Break),
                CompressStage::Working(mut working) => match working.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.stage = CompressStage::Working(working);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(_)) => {}
                    Poll::Ready(Ok(mut piece)) => {
                        self.plain_bytes += piece.plain_bytes;
                        self.stage =
                            piece.encoder.map_or(CompressStage::Complete, CompressStage::Ready);
                        if !piece.out.is_empty() {
                            std::mem::swap(&mut out.body, &mut piece.out);
                            return Poll::Ready(Progress::Body);
                        }
                    }
                },
                CompressStage::Ready(encoder) => match self.source {
                    Source::Task(_) => {
                        if let Some(progress) = self.ask(cx, encoder, out, now) {
                            return progress;
                        }
                    }
                    Source::File(..) | Source::Bytes(..) => self.go_on(encoder),
                },
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        match (&self.source, &self.stage) {
            // It is asked again as soon as the piece is done.
            (Source::Task(task), CompressStage::Ready(_)) => task.next_deadline(),
            _ => None,
        }
    }

    fn cancel(&mut self, cause: Cause, now: Moment) {
        match &mut self.source {
            Source::Task(task) => task.cancel(cause, now),
            Source::File(..) | Source::Bytes(..) => self.stage = CompressStage::Broken,
        }
    }
}

impl BodyIn for CompressTask {
    forward!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for CompressTask {
    forward!(upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        match &self.source {
            Source::Task(task) => task.name(),
            Source::File(..) | Source::Bytes(..) => "compress",
        }
    }

    fn plain_bytes(&self) -> Option<u64> {
        Some(self.plain_bytes)
    }
}
