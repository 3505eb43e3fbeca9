//! Files whose bytes are not in memory: a thread of their device reads them, portion by portion, so that a slow
//! disk delays the one response that needs it and not the event loop (O5).

use std::collections::VecDeque;
use std::fmt;
use std::future::Future as _;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::{Errno, pread};
use sekisho_lifecycle::Moment;
use sekisho_lifecycle::cancel::Cause;

use crate::disk::{Device, Operation};
use crate::reply::Piece;
use crate::task::{BodyIn, Describe, Outbox, Progress, Work};
use crate::without;

/// How much is read at once, and so held for a response.
const PORTION_BYTES: u64 = 128 << 10;

/// The body of a response, read in the pool. Its head has been sent.
pub struct FileTask {
    pieces: VecDeque<Piece>,
    stage: FileStage,
}

enum FileStage {
    Ready,
    Reading(Operation<io::Result<Vec<u8>>>),
    Broken,
}

impl fmt::Debug for FileTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTask").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

impl FileTask {
    /// Reads these, in order.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self { pieces: pieces.into_iter().collect(), stage: FileStage::Ready }
    }

    /// Begins with the next portion; bytes that are in memory go out at once. `None` when a read has begun.
    fn next(&mut self, out: &mut Outbox) -> Option<Progress> {
        let Some(piece) = self.pieces.front_mut() else { return Some(Progress::Done) };
        if let Some(bytes) = piece.in_memory() {
            out.body.extend_from_slice(bytes);
            self.pieces.pop_front();
            return Some(Progress::Body);
        }
        let Piece::File(file, range) = piece else { return Some(Progress::Break) };
        let Some(descriptor) = file.shared_descriptor() else { return Some(Progress::Break) };
        let portion = range.start..range.end.min(range.start + PORTION_BYTES);
        let device = Device::of(&*descriptor);
        self.stage = FileStage::Reading(device.read(move || read(&descriptor, portion)));
        None
    }

    /// A portion has been read.
    fn take_portion(&mut self, bytes: Vec<u8>, out: &mut Outbox) -> Progress {
        let Some(Piece::File(_, range)) = self.pieces.front_mut() else { return Progress::Break };
        if bytes.is_empty() {
            // The file is shorter than its head said: the client must see that.
            return Progress::Break;
        }
        range.start += bytes.len() as u64;
        if range.is_empty() {
            self.pieces.pop_front();
        }
        out.body = bytes;
        Progress::Body
    }
}

fn read(descriptor: &Arc<OwnedFd>, portion: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (portion.end - portion.start) as usize];
    loop {
        match pread(descriptor, &mut *bytes, portion.start) {
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Work for FileTask {
    without!(next_deadline, hold, absorb, narrow, stops_with_client, is_service, conclude);

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outbox, _: Moment) -> Poll<Progress> {
        loop {
            match &mut self.stage {
                FileStage::Ready => {
                    if let Some(progress) = self.next(out) {
                        return Poll::Ready(progress);
                    }
                }
                FileStage::Reading(reading) => {
                    let Poll::Ready(read) = Pin::new(reading).poll(cx) else {
                        return Poll::Pending;
                    };
                    self.stage = FileStage::Ready;
                    return Poll::Ready(match read {
                        Ok(Ok(bytes)) => self.take_portion(bytes, out),
                        Ok(Err(_)) | Err(_) => Progress::Break,
                    });
                }
                FileStage::Broken => return Poll::Ready(Progress::Break),
            }
        }
    }

    fn cancel(&mut self, _: Cause, _: Moment) {
        self.stage = FileStage::Broken;
    }
}

impl BodyIn for FileTask {
    without!(take, body_sink, direct_bytes_done, end_body, return_body);
}

impl Describe for FileTask {
    without!(plain_bytes, upstream_view, describe_upstream, describe_body, describe_subrequests);

    fn name(&self) -> &'static str {
        "file"
    }
}
