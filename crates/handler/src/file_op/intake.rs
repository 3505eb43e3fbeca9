//! A body on its way to the disk. It is gathered in memory on the event loop, and written by a thread beside it:
//! no write, and no opening for writing, ever holds up the loop (F5). While a thread writes, nothing more is taken,
//! and what comes waits in the socket. A small body that is complete is written, and takes its place, in one go.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use rustix::io::Errno;
use sekisho_http::Status;
use tokio::runtime::Handle;

use super::direct::Direct;
use super::{Failure, Outcome};
use crate::disk::{Device, Operation};

/// How much memory a body has at first, and at the most: as much as its client can fill.
const BUFFER_BYTES_MIN: usize = 16 << 10;
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// Where a body goes. All of this runs on threads that may wait for the disk.
pub(super) trait Sink: std::fmt::Debug + Send {
    /// Opens what is written to, if that is not done yet.
    fn open(&mut self) -> Result<(), Failure>;

    /// Writes the next bytes; opens what they go to if need be.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// It is complete, and written.
    fn finish(self: Box<Self>) -> Outcome;

    /// The file that the bytes go to as they are; `None` where they are looked at.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// So many bytes were written to that file past this sink.
    fn wrote(&mut self, _bytes: u64) {}

    /// What it means that the file could not be written.
    fn failure(&self, errno: Errno) -> Failure;

    /// Whether what has come stays, also if no more does.
    fn keeps_parts(&self) -> bool {
        false
    }
}

/// Memory for what has come of a body; counted for the worker whose client fills it, whichever thread drops
/// it.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

thread_local! {
    static HELD: Arc<AtomicUsize> = Arc::default();
}

/// How many bytes of this worker's uploads wait in memory to be written.
pub(super) fn memory_bytes() -> usize {
    HELD.with(|held| held.load(Ordering::Relaxed))
}

impl Memory {
    fn none() -> Self {
        Self { bytes: Vec::new(), held: HELD.with(Arc::clone) }
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn grow(&mut self, bytes: usize) {
        if bytes > self.len() {
            self.held.fetch_add(bytes - self.len(), Ordering::Relaxed);
            if self.bytes.is_empty() {
                // The allocator knows of memory that is zero already.
                self.bytes = vec![0; bytes];
            } else {
                self.bytes.resize(bytes, 0);
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// A body being received.
#[derive(Debug)]
pub(super) struct Intake {
    device: Arc<Device>,
    /// Here unless a thread works with it.
    sink: Option<Box<dyn Sink>>,
    /// What has come and is not written: its first `filled` bytes.
    buffer: Memory,
    filled: usize,
    /// How large the buffer is made.
    buffer_bytes: usize,
    /// Nothing has come since the last look.
    is_idle: bool,
    work: Option<Operation<Worked>>,
    direct: Route,
}

/// Whether the bytes go past the page cache.
#[derive(Debug)]
enum Route {
    Buffered,
    /// So many of them, when the file is open.
    Wanted(u64),
    Direct(Direct, u64),
}

#[derive(Debug)]
struct Worked {
    /// `None` if that failed: the file is gone before the client gets the error.
    sink: Option<Box<dyn Sink>>,
    buffer: Memory,
    result: Result<(), Failure>,
}

impl Intake {
    /// `direct` is how long the body is going to be, where it is so long that it goes past the page cache.
    pub(super) fn new(device: Arc<Device>, sink: Box<dyn Sink>, direct: Option<u64>) -> Self {
        let mut intake = Self {
            device,
            sink: Some(sink),
            buffer: Memory::none(),
            filled: 0,
            buffer_bytes: BUFFER_BYTES_MIN,
            is_idle: false,
            work: None,
            direct: Route::Buffered,
        };
        if let Some(length) = direct
            && Handle::try_current().is_ok()
        {
            intake.direct = Route::Wanted(length);
            intake.hand_over(|sink, _| sink.open());
        }
        intake
    }

    /// Gives the sink and the received bytes to a thread.
    fn hand_over(
        &mut self,
        work: impl FnOnce(&mut dyn Sink, &[u8]) -> Result<(), Failure> + Send + 'static,
    ) {
        let Some(mut sink) = self.sink.take() else { return };
        let (buffer, filled) = (std::mem::replace(&mut self.buffer, Memory::none()), self.filled);
        self.filled = 0;
        let work = move || {
            let result = work(&mut *sink, &buffer.bytes[..filled]);
            let sink = result.is_ok().then_some(sink);
            Worked { sink, buffer, result }
        };
        self.work = Some(self.device.write(work));
    }

    fn write_gathered(&mut self) {
        let is_full = self.filled == self.buffer.len();
        let bytes = if is_full { self.buffer_bytes * 4 } else { self.filled.next_power_of_two() };
        self.buffer_bytes = bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        self.hand_over(|sink, bytes| sink.write(bytes));
    }

    /// Goes on with what is being written: ready when there is room for more.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Some(work) = &mut self.work {
            let worked = std::task::ready!(Pin::new(work).poll(cx));
            self.work = None;
            match worked {
                Ok(Worked { sink, buffer, result }) => {
                    if buffer.len() == self.buffer_bytes {
                        self.buffer = buffer;
                    }
                    self.sink = sink;
                    self.is_idle = false;
                    if let Err(failure) = result {
                        return Poll::Ready(Err(failure));
                    }
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            self.choose_route();
        }
        let (Route::Direct(direct, _), Some(sink)) = (&mut self.direct, &self.sink) else {
            return Poll::Ready(Ok(()));
        };
        direct.advance(cx).map_err(|errno| sink.failure(errno))
    }

    fn choose_route(&mut self) {
        let Route::Wanted(length) = self.direct else { return };
        let file = self.sink.as_ref().and_then(|sink| sink.file());
        let direct = file.and_then(|file| Direct::begin(file, length));
        self.direct = direct.map_or(Route::Buffered, |direct| Route::Direct(direct, 0));
    }

    /// Where the next bytes are to be put; there is no room while something is being written.
    pub(super) fn body_sink(&mut self, cx: &mut Context<'_>) -> Result<&mut [u8], Failure> {
        match self.advance(cx) {
            Poll::Pending => return Ok(&mut []),
            Poll::Ready(advanced) => advanced?,
        }
        Ok(self.room())
    }

    /// The same when it is known how it stands.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.work.is_some() {
            return &mut [];
        }
        if let Route::Direct(direct, _) = &mut self.direct {
            return direct.room();
        }
        self.buffer.grow(self.buffer_bytes);
        &mut self.buffer.bytes[self.filled..]
    }

    /// So many bytes have been put there.
    pub(super) fn filled(&mut self, bytes: u64) {
        self.is_idle = false;
        if let Route::Direct(direct, total) = &mut self.direct {
            *total += bytes;
            direct.filled(bytes as usize);
            return;
        }
        self.filled = (self.filled + bytes as usize).min(self.buffer.len());
        if self.filled == self.buffer.len() {
            self.write_gathered();
        }
    }

    /// Takes bytes that have come in another way: says how many there was room for.
    pub(super) fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, Failure> {
        let mut taken = 0;
        while taken < bytes.len() {
            let room = self.body_sink(cx)?;
            let count = room.len().min(bytes.len() - taken);
            if count == 0 {
                break;
            }
            room[..count].copy_from_slice(&bytes[taken..taken + count]);
            self.filled(count as u64);
            taken += count;
        }
        Ok(taken)
    }

    /// Nothing more has come for now: what is worth it is written, and memory that is not being filled is
    /// given back.
    pub(super) fn pause(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        match self.advance(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(advanced) => advanced?,
        }
        let Some(sink) = self.sink.as_ref() else { return Ok(()) };
        let is_worth_it = self.filled >= BUFFER_BYTES_MIN / 2 || sink.keeps_parts();
        if self.filled > 0 && is_worth_it {
            self.write_gathered();
            // Asks to be woken.
            if let Poll::Ready(advanced) = self.advance(cx) {
                advanced?;
            }
        } else if self.filled == 0 && self.is_idle {
            self.buffer = Memory::none();
        }
        self.is_idle = true;
        Ok(())
    }

    /// No more bytes come: ready, with what remains to be done, when what was being written is.
    pub(super) fn settle(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn FnOnce() -> Outcome + Send>, Failure>> {
        std::task::ready!(self.advance(cx))?;
        let Some(mut sink) = self.sink.take() else {
            return Poll::Ready(Err(Failure::of(Status::INTERNAL_SERVER_ERROR)));
        };
        if let Route::Direct(direct, total) = &mut self.direct {
            match direct.settle(cx) {
                Poll::Pending => {
                    self.sink = Some(sink);
                    return Poll::Pending;
                }
                Poll::Ready(Err(errno)) => return Poll::Ready(Err(sink.failure(errno))),
                Poll::Ready(Ok(())) => {
                    sink.wrote(*total);
                    // Its memory is of no more use.
                    self.direct = Route::Buffered;
                }
            }
        }
        let (buffer, filled) = (std::mem::replace(&mut self.buffer, Memory::none()), self.filled);
        Poll::Ready(Ok(Box::new(move || {
            if filled > 0 {
                sink.write(&buffer.bytes[..filled])?;
            }
            drop(buffer);
            sink.finish()
        })))
    }
}

impl Drop for Intake {
    /// What has come of a body that does not end goes, or stays, beside the event loop, too.
    fn drop(&mut self) {
        let Some(mut sink) = self.sink.take() else { return };
        let direct = std::mem::replace(&mut self.direct, Route::Buffered);
        let (buffer, filled) = (std::mem::replace(&mut self.buffer, Memory::none()), self.filled);
        let end = move || {
            if filled > 0 && sink.keeps_parts() {
                let _ = sink.write(&buffer.bytes[..filled]);
            }
            drop((direct, sink));
        };
        self.device.detach(end);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::file_op::Answer;

    /// A disk that writes when the test allows it.
    #[derive(Debug)]
    struct Slow {
        go: Mutex<Receiver<()>>,
        written: Sender<Vec<u8>>,
        keeps: bool,
    }

    impl Sink for Slow {
        fn open(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
            let go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
            go.recv().map_err(|_| self.failure(Errno::IO))?;
            self.written.send(bytes.to_vec()).map_err(|_| self.failure(Errno::IO))
        }

        fn finish(self: Box<Self>) -> Outcome {
            Ok(Answer::new(Status::CREATED))
        }

        fn failure(&self, errno: Errno) -> Failure {
            Failure::by(errno, Status::CONFLICT, "store", b"x")
        }

        fn keeps_parts(&self) -> bool {
            self.keeps
        }
    }

    fn slow(keeps: bool) -> (Intake, Sender<()>, Receiver<Vec<u8>>) {
        let (go, wait) = channel();
        let (written, seen) = channel();
        let sink = Slow { go: Mutex::new(wait), written, keeps };
        (Intake::new(Device::at("/".as_ref()), Box::new(sink), None), go, seen)
    }

    /// F5, X21: while the disk is busy nothing is taken, and only the blocking thread waits for it.
    #[tokio::test]
    async fn a_busy_disk_holds_back_the_client_and_not_the_loop() {
        let (mut intake, go, seen) = slow(false);
        let body: Vec<u8> = (0..600_000u32).map(|at| (at % 251) as u8).collect();
        let (mut rest, mut held_back) = (body.as_slice(), 0);
        let mut written = Vec::new();
        std::future::poll_fn(|cx| {
            while !rest.is_empty() {
                let count = intake.take(cx, rest).expect("taken");
                rest = &rest[count..];
                if count == 0 {
                    // This would never return if the loop had to write.
                    held_back += 1;
                    assert!(memory_bytes() <= 2 * BUFFER_BYTES_MAX, "{}", memory_bytes());
                    go.send(()).expect("it waits");
                    written.extend(seen.recv().expect("written"));
                    return match intake.advance(cx) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(_) => {
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        }
                    };
                }
            }
            Poll::Ready(())
        })
        .await;
        assert!(held_back > 1, "{held_back}");
        go.send(()).expect("it waits");
        go.send(()).expect("it waits");
        let work = std::future::poll_fn(|cx| intake.settle(cx)).await.expect("settled");
        let outcome = tokio::task::spawn_blocking(work).await.expect("done").expect("finished");
        assert_eq!(outcome.status, Status::CREATED);
        written.extend(seen.try_iter().flatten());
        assert!(written == body);
        drop(intake);
        assert_eq!(memory_bytes(), 0, "memory is given back");
    }

    /// F5: a small body is written when it is complete, in the job that finishes it; what does not grow is given back.
    #[tokio::test]
    async fn a_small_body_waits_for_its_end() {
        let (mut intake, go, seen) = slow(false);
        std::future::poll_fn(|cx| {
            assert_eq!(intake.take(cx, b"small").expect("taken"), 5);
            intake.pause(cx).expect("nothing to do");
            Poll::Ready(())
        })
        .await;
        assert!(intake.work.is_none(), "no thread is asked yet");
        go.send(()).expect("it waits");
        let work = std::future::poll_fn(|cx| intake.settle(cx)).await.expect("settled");
        assert!(seen.try_recv().is_err());
        work().expect("finished");
        assert_eq!(seen.try_recv().expect("written"), b"small");
    }

    /// F5: what is worth keeping is kept, also when the client goes.
    #[tokio::test]
    async fn a_body_that_breaks_off_leaves_what_it_should() {
        for keeps in [true, false] {
            let (mut intake, go, seen) = slow(keeps);
            std::future::poll_fn(|cx| Poll::Ready(intake.take(cx, b"part").expect("taken"))).await;
            go.send(()).expect("it waits");
            drop(intake);
            let kept = tokio::task::spawn_blocking(move || seen.recv().ok()).await.expect("done");
            assert_eq!(kept.as_deref(), keeps.then_some(&b"part"[..]));
        }
    }
}
