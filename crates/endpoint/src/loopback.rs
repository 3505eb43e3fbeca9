//! The in-process transport: two pipes of bounded size, for embedding and for tests. The two ends may live
//! on different threads.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sekisho_service::Peer;

use crate::stream::Stream;

/// How much a pipe holds before its writer waits.
const PIPE_BYTES: usize = 64 * 1024;

/// One end of a loopback connection.
#[derive(Debug)]
pub struct End {
    reads: Arc<Mutex<Pipe>>,
    writes: Arc<Mutex<Pipe>>,
}

#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_ended: bool,
    is_abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Two ends that are connected with each other.
pub fn pair() -> (End, End) {
    let (one, other) = (Arc::default(), Arc::default());
    let near = End { reads: Arc::clone(&one), writes: Arc::clone(&other) };
    (near, End { reads: other, writes: one })
}

impl Stream for End {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.reads);
        if pipe.bytes.is_empty() {
            if pipe.is_ended {
                return Poll::Ready(Ok(0));
            }
            register(&mut pipe.reader, cx);
            return Poll::Pending;
        }
        let count = io::Read::read(&mut pipe.bytes, into)?;
        wake(&mut pipe.writer);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.writes);
        if pipe.is_abandoned || pipe.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(PIPE_BYTES - pipe.bytes.len());
        if count == 0 && !bytes.is_empty() {
            register(&mut pipe.writer, cx);
            return Poll::Pending;
        }
        pipe.bytes.extend(&bytes[..count]);
        wake(&mut pipe.reader);
        Poll::Ready(Ok(count))
    }

    fn poll_shut_down(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.writes);
        pipe.is_ended = true;
        wake(&mut pipe.reader);
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> Peer {
        Peer::Loopback
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut pipe = lock(&self.writes);
        pipe.is_ended = true;
        wake(&mut pipe.reader);
        drop(pipe);
        let mut pipe = lock(&self.reads);
        pipe.is_abandoned = true;
        pipe.bytes = VecDeque::new();
        wake(&mut pipe.writer);
    }
}

/// A pipe is consistent after every step, also if the other end's thread panicked.
fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

fn wake(slot: &mut Option<Waker>) {
    if let Some(waker) = slot.take() {
        waker.wake();
    }
}
