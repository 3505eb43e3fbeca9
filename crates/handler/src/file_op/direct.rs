//! A large body on its way to the disk past the page cache (`upload_direct`, ADR 0051): it is read from the
//! socket into memory of its own, and written from there by a thread beside the event loop. Meanwhile nothing
//! is read, and what comes waits in the socket: one piece of memory is enough, and the next one fills it in few
//! and large reads. The cache keeps what other requests read, no process waits for its write-back, and what
//! has been written when the file gets its name is on the disk.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::intake;
use crate::disk::{Device, DiskError, Operation};

/// How much is written at a time. It should fit into the processor's own cache.
const CHUNK_BYTES: usize = 1 << 20;
/// Disks want addresses, places and lengths that are multiples of this, or of less.
const ALIGNMENT: usize = 4096;
/// So much is laid out on the disk ahead of the bytes, and no more: a client must not fill the disk by
/// saying how much it is going to send.
const RESERVE_BYTES: u64 = 32 << 20;
/// So many uploads at a time have a buffer of their own in a worker; further ones are written through the
/// page cache.
const BUFFER_SLOTS: usize = 4;

/// A body on its way.
#[derive(Debug)]
pub(super) struct Direct {
    file: Arc<OwnedFd>,
    device: Arc<Device>,
    /// How long the body is going to be.
    length: u64,
    /// Where in the file the chunk begins.
    offset: u64,
    /// Up to where room on the disk has been laid out.
    reserved: u64,
    stage: DirectStage,
}

#[derive(Debug)]
enum DirectStage {
    Filling(Chunk),
    Writing(Operation<(Chunk, Result<(), Errno>)>),
    /// It could not be written.
    Failed(Errno),
}

impl Direct {
    /// `None` where the body goes the ordinary way: the file system cannot do it or gains nothing, or there
    /// are enough of them.
    pub(super) fn begin(file: BorrowedFd<'_>, length: u64) -> Option<Self> {
        if !is_for_this(file) {
            return None;
        }
        let chunk = Chunk::new(BufferSlot::take()?)?;
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0).ok()?;
        set_direct(&file, true).ok()?;
        Some(Self {
            device: Device::of(&file),
            file: Arc::new(file),
            length,
            offset: 0,
            reserved: 0,
            stage: DirectStage::Filling(chunk),
        })
    }

    /// Goes on as far as it can without waiting: ready when there is room for more.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Errno>> {
        if let DirectStage::Writing(writing) = &mut self.stage {
            self.stage = match ready!(Pin::new(writing).poll(cx)) {
                Ok((chunk, Ok(()))) => DirectStage::Filling(chunk),
                Ok((_, Err(errno))) => DirectStage::Failed(errno),
                Err(DiskError::Busy) => DirectStage::Failed(Errno::AGAIN),
                Err(DiskError::Lost) => DirectStage::Failed(Errno::IO),
            };
        }
        match self.stage {
            DirectStage::Failed(errno) => Poll::Ready(Err(errno)),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Where the next bytes are to be put; empty while what came before is being written.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.stage {
            DirectStage::Filling(chunk) => chunk.room(),
            DirectStage::Writing(_) | DirectStage::Failed(_) => &mut [],
        }
    }

    /// So many bytes have been put there.
    pub(super) fn filled(&mut self, count: usize) {
        if let DirectStage::Filling(chunk) = &mut self.stage {
            chunk.length = (chunk.length + count).min(CHUNK_BYTES);
            if chunk.length == CHUNK_BYTES {
                self.hand_over();
            }
        }
    }

    /// Puts bytes there: says how many there was room for.
    #[cfg(test)]
    fn take(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.filled(count);
        count
    }

    /// No more bytes come: ready when all of them are written.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Errno>> {
        loop {
            ready!(self.advance(cx))?;
            match &self.stage {
                DirectStage::Filling(chunk) if chunk.length > 0 => self.hand_over(),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Lets a thread write the chunk.
    fn hand_over(&mut self) {
        let stage = std::mem::replace(&mut self.stage, DirectStage::Failed(Errno::IO));
        let DirectStage::Filling(mut chunk) = stage else { return };
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        self.offset += chunk.length as u64;
        let ahead = self.length.saturating_sub(self.reserved).min(RESERVE_BYTES);
        let reserve = (self.offset > self.reserved && ahead > 0).then_some((self.reserved, ahead));
        self.reserved += reserve.map_or(0, |(_, bytes)| bytes);
        self.stage = DirectStage::Writing(self.device.write(move || {
            let result = chunk.write(file.as_fd(), offset, reserve);
            chunk.length = 0;
            (chunk, result)
        }));
    }
}

/// How many bodies of this worker go to the disk past the page cache, and how many bytes all of them have in memory.
pub fn memory_usage() -> (usize, usize) {
    let count = TAKEN.with(|taken| taken.load(Ordering::Relaxed));
    (count, count * (CHUNK_BYTES + ALIGNMENT) + intake::memory_bytes())
}

/// Whether bytes written past the cache go to a disk sooner, and without harm: where that is known.
fn is_for_this(file: BorrowedFd<'_>) -> bool {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [EXT4, XFS].contains(&(stat.f_type as u64)))
}

fn set_direct(file: impl AsFd, is_direct: bool) -> Result<(), Errno> {
    let flags = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
    rustix::fs::fcntl_setfl(file, flags)
}

/// Memory that a disk can read from.
#[derive(Debug)]
struct Chunk {
    /// Longer than a chunk, so that one begins in it where it must.
    memory: Vec<u8>,
    start: usize,
    length: usize,
    /// Goes with the memory: an upload may end while a thread still writes, or has yet to begin.
    _slot: BufferSlot,
}

impl Chunk {
    /// `None` where there is no memory for it.
    fn new(slot: BufferSlot) -> Option<Self> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(CHUNK_BYTES + ALIGNMENT).ok()?;
        memory.resize(CHUNK_BYTES + ALIGNMENT, 0);
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Some(Self { memory, start, length: 0, _slot: slot })
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start + self.length..self.start + CHUNK_BYTES]
    }

    /// Writes it to this place of the file. The last of a file is filled up with zeros, which are cut off.
    fn write(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        reserve: Option<(u64, u64)>,
    ) -> Result<(), Errno> {
        if let Some((from, bytes)) = reserve {
            lay_out(file, from, bytes)?;
        }
        let padded = self.length.next_multiple_of(ALIGNMENT);
        self.memory[self.start + self.length..self.start + padded].fill(0);
        write_all(file, &self.memory[self.start..self.start + padded], offset)?;
        if padded > self.length {
            rustix::fs::ftruncate(file, offset + self.length as u64)?;
        }
        Ok(())
    }
}

/// One extent instead of many. It is only a help: what it cannot do, writing may.
fn lay_out(file: BorrowedFd<'_>, from: u64, bytes: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), from, bytes) {
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => Err(errno),
        _ => Ok(()),
    }
}

fn write_all(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let (mut rest, mut at, mut is_direct) = (bytes, offset, true);
    while !rest.is_empty() {
        match rustix::io::pwrite(file, rest, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => (rest, at) = (&rest[count..], at + count as u64),
            Err(Errno::INTR) => {}
            // Not in this way, or not from here on: in the ordinary one.
            Err(Errno::INVAL) if is_direct => {
                is_direct = false;
                set_direct(file, false)?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The right to one upload buffer. It may be dropped by another thread than the worker's.
#[derive(Debug)]
struct BufferSlot(Arc<AtomicUsize>);

thread_local! {
    static TAKEN: Arc<AtomicUsize> = Arc::default();
}

impl BufferSlot {
    fn take() -> Option<Self> {
        let taken = TAKEN.with(Arc::clone);
        // Only this thread takes any.
        if taken.load(Ordering::Relaxed) >= BUFFER_SLOTS {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        Some(Self(taken))
    }
}

impl Drop for BufferSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// F5: in whatever pieces the bytes come, and in either way.
    #[tokio::test]
    async fn a_file_is_its_body_whatever_its_length() {
        let tree = tempfile::tempdir().expect("a folder");
        let lengths = [0, 1, 4095, 4096, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 777];
        for (length, piece) in lengths.into_iter().zip([1, 1, 100, 4096, 70_000, 99_999, 333_333]) {
            let path = tree.path().join(length.to_string());
            let file = std::fs::File::create(&path).expect("a file");
            let Some(mut direct) = Direct::begin(file.as_fd(), length as u64) else {
                println!("skipped: not on this file system");
                return;
            };
            let body = body(length);
            let mut rest = body.as_slice();
            while !rest.is_empty() {
                poll_fn(|cx| direct.advance(cx)).await.expect("written");
                let next = &rest[..piece.min(rest.len())];
                let count = if rest.len().is_multiple_of(2) {
                    direct.take(next)
                } else {
                    let room = direct.room();
                    let count = room.len().min(next.len());
                    room[..count].copy_from_slice(&next[..count]);
                    direct.filled(count);
                    count
                };
                assert!(count > 0, "there is room when nothing is being written");
                rest = &rest[count..];
            }
            poll_fn(|cx| direct.settle(cx)).await.expect("settled");
            assert!(std::fs::read(&path).expect("there") == body, "{length} in pieces of {piece}");
        }
    }

    /// F5: an error of the disk is reported once, and stays.
    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_told() {
        let tree = tempfile::tempdir().expect("a folder");
        let path = tree.path().join("a");
        std::fs::write(&path, "").expect("a file");
        let file = std::fs::File::open(&path).expect("a file that may only be read");
        let Some(mut direct) = Direct::begin(file.as_fd(), 5) else {
            println!("skipped: not on this file system");
            return;
        };
        assert_eq!(direct.take(b"hello"), 5);
        for _ in 0..2 {
            assert_eq!(poll_fn(|cx| direct.settle(cx)).await, Err(Errno::BADF));
            assert_eq!(direct.take(b"more"), 0);
        }
    }

    /// Memory is bounded, and slots come back, also from other threads.
    #[test]
    fn the_number_of_process_slots_is_bounded() {
        let mut slots: Vec<BufferSlot> = std::iter::from_fn(BufferSlot::take).collect();
        assert_eq!(slots.len(), BUFFER_SLOTS);
        let slot = slots.pop().expect("one of them");
        std::thread::spawn(move || drop(slot)).join().expect("let go");
        assert!(BufferSlot::take().is_some());
    }

    /// F5: the buffer of a client that leaves while the disk is busy counts until it is written.
    #[test]
    fn a_slot_is_taken_for_as_long_as_its_memory_is_allocated() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let _inside = runtime.enter();
        let file = tempfile::tempfile().expect("a file");
        let (go, release) = std::sync::mpsc::channel::<()>();
        let busy = runtime.spawn_blocking(move || release.recv());
        for turn in 0..BUFFER_SLOTS {
            let Some(mut direct) = Direct::begin(file.as_fd(), 2 << 20) else {
                assert_eq!(turn, 0, "slots are free");
                println!("skipped: not on this file system");
                return;
            };
            assert_eq!(direct.take(&body(CHUNK_BYTES)), CHUNK_BYTES);
        }
        assert!(Direct::begin(file.as_fd(), 2 << 20).is_none(), "all of it waits to be written");
        go.send(()).expect("it waits");
        runtime.block_on(busy).expect("done").expect("told");
        // One thread does one thing after the other.
        runtime.block_on(runtime.spawn_blocking(|| ())).expect("done");
        assert!(Direct::begin(file.as_fd(), 2 << 20).is_some());
    }
}
