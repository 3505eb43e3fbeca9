//! The part of a response that a slow client has not taken yet (`proxy_buffering`): in memory up to `proxy_buffers`,
//! beyond that in a temporary file without a name, up to `proxy_max_temp_file_size`. So a slow client occupies no
//! server. Only threads of the blocking pool touch the disk, one piece at a time.
//!
//! Bytes come out in the order in which they went in, or not at all (O10): a piece stays in memory until the file has
//! all of it. After a failed write the spool uses memory alone.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Maximum number of bytes that are read from the file at once.
const READ_BYTES_MAX: u64 = 64 * 1024;

/// Bytes that wait.
///
/// ```text
/// file[read..written], then the piece that is being written to it, then memory
/// ```
#[derive(Debug, Default)]
pub(super) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    /// The range of the file that is still to be read.
    read: u64,
    written: u64,
    disk: Option<JoinHandle<io::Result<Done>>>,
    /// Length of the piece that is being written.
    leaving: usize,
    /// Nothing more is written to the disk.
    is_memory_only: bool,
    /// Why, until it has been reported.
    write_error: Option<io::Error>,
    /// Bytes are lost: the response cannot be completed.
    is_lost: bool,
}

/// A finished operation of the disk.
#[derive(Debug)]
enum Done {
    Written(File, usize),
    /// The piece comes back, and so does the file with the pieces before it.
    Unwritten(Option<File>, Vec<u8>, io::Error),
    Read(File, Vec<u8>),
}

/// Limits of a spool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory: usize,
    pub(super) file: u64,
}

impl Spool {
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.disk.is_none() && self.read == self.written && !self.is_lost
    }

    /// Whether more bytes may be added. Where the disk is busy, the task of `cx` is woken when it is idle.
    pub(super) fn has_room(&mut self, cx: &mut Context<'_>, room: Room) -> bool {
        loop {
            if self.memory.len() + self.leaving < room.memory {
                return true;
            }
            let is_file_full = self.written - self.read + self.leaving as u64 >= room.file;
            if self.is_memory_only || is_file_full {
                return false;
            }
            // A read that is in progress finishes first.
            if self.poll_disk(cx, None).is_pending() || self.is_lost {
                return false;
            }
            if !self.is_memory_only && self.memory.len() >= room.memory {
                self.write_memory();
            }
        }
    }

    /// The buffer to append to.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// The error of a failed write, once. The bytes are still there.
    pub(super) fn take_write_error(&mut self) -> Option<io::Error> {
        self.write_error.take()
    }

    /// Moves the first bytes to `out`. An error is final: the response cannot be completed.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_disk(cx, Some(out)))?;
            if !out.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.read == self.written {
                // The file is empty: it is written from its beginning again, or not needed.
                (self.read, self.written) = (0, 0);
                std::mem::swap(out, &mut self.memory);
                return Poll::Ready(Ok(()));
            }
            self.read_file()?;
        }
    }

    /// Ready when the disk is idle. An error means that bytes are lost.
    fn poll_disk(
        &mut self,
        cx: &mut Context<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Poll<io::Result<()>> {
        if self.is_lost {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Some(disk) = &mut self.disk else { return Poll::Ready(Ok(())) };
        if out.is_none() && self.leaving == 0 {
            // A read is for the next call with `out`.
            return Poll::Pending;
        }
        let done = ready!(Pin::new(disk).poll(cx));
        self.disk = None;
        self.leaving = 0;
        match done.map_err(io::Error::other).and_then(|done| done) {
            Ok(Done::Written(file, bytes)) => {
                self.file = Some(file);
                self.written += bytes as u64;
            }
            Ok(Done::Unwritten(file, mut piece, error)) => {
                self.file = file;
                piece.append(&mut self.memory);
                self.memory = piece;
                (self.is_memory_only, self.write_error) = (true, Some(error));
            }
            Ok(Done::Read(file, bytes)) => {
                self.file = Some(file);
                self.read += bytes.len() as u64;
                if let Some(out) = out {
                    out.extend_from_slice(&bytes);
                }
            }
            Err(error) => {
                self.is_lost = true;
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn write_memory(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            self.is_memory_only = true;
            return;
        };
        let (file, at) = (self.file.take(), self.written);
        let piece = std::mem::take(&mut self.memory);
        self.leaving = piece.len();
        self.disk = Some(runtime.spawn_blocking(move || {
            let file = match file.map_or_else(tempfile::tempfile, Ok) {
                Ok(file) => file,
                Err(error) => return Ok(Done::Unwritten(None, piece, error)),
            };
            Ok(match file.write_all_at(&piece, at) {
                Ok(()) => Done::Written(file, piece.len()),
                Err(error) => Done::Unwritten(Some(file), piece, error),
            })
        }));
    }

    fn read_file(&mut self) -> io::Result<()> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        let at = self.read;
        let bytes = (self.written - at).min(READ_BYTES_MAX) as usize;
        self.disk = Some(runtime.spawn_blocking(move || {
            let mut piece = vec![0; bytes];
            file.read_exact_at(&mut piece, at)?;
            Ok(Done::Read(file, piece))
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    /// A file whose disk is full after `bytes`: a write beyond that fails, or is short first.
    fn full_after(bytes: u64) -> File {
        let file = rustix::fs::memfd_create("disk", MemfdFlags::ALLOW_SEALING).expect("a file");
        let file = File::from(file);
        file.set_len(bytes).expect("its length");
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).expect("a seal");
        file
    }

    /// Adds and takes bytes at the given pace; returns what came out, and whether all did.
    async fn pass_through(
        mut spool: Spool,
        all: &[u8],
        (room, chunk, every): (Room, usize, usize),
    ) -> (Vec<u8>, Option<io::Error>) {
        let (mut put, mut taken) = (0, Vec::new());
        let mut round = 0;
        let mut error = None;
        while taken.len() < all.len() {
            round += 1;
            let may_put = poll_fn(|cx| Poll::Ready(spool.has_room(cx, room))).await;
            error = error.or(spool.take_write_error());
            if may_put && put < all.len() {
                let end = (put + chunk).min(all.len());
                spool.end().extend_from_slice(&all[put..end]);
                put = end;
            }
            if (!may_put || put == all.len() || round % every == 0) && !spool.is_empty() {
                let mut out = Vec::new();
                poll_fn(|cx| spool.poll_take(cx, &mut out)).await.expect("bytes are not lost");
                taken.append(&mut out);
            }
            assert!(spool.memory.len() + spool.leaving <= room.memory + chunk, "memory is bounded");
            tokio::task::yield_now().await;
        }
        assert!(spool.is_empty());
        (taken, error.or(spool.take_write_error()))
    }

    fn pattern(bytes: u32) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// In memory or by the disk.
    #[tokio::test]
    async fn bytes_come_out_in_order() {
        let all = pattern(2_000_000);
        for pace in [
            (Room { memory: 1000, file: 1 << 30 }, 700, 1000),
            (Room { memory: 64 << 10, file: 1 << 30 }, 30_000, 7),
            (Room { memory: 64 << 10, file: 300_000 }, 30_000, 3),
            (Room { memory: 1000, file: 0 }, 700, 1),
        ] {
            let (taken, error) = pass_through(Spool::default(), &all, pace).await;
            assert!(taken == all && error.is_none(), "{pace:?}");
        }
    }

    /// A client that takes nothing does not wake the task: the disk must.
    #[tokio::test]
    async fn the_task_is_woken_when_the_disk_is_idle() {
        let room = Room { memory: 1000, file: 10_000 };
        let mut spool = Spool::default();
        for _ in 0..10 {
            poll_fn(|cx| if spool.has_room(cx, room) { Poll::Ready(()) } else { Poll::Pending })
                .await;
            spool.end().extend_from_slice(&[7; 1000]);
        }
        let mut spool = Spool { file: Some(full_after(0)), ..Spool::default() };
        spool.end().extend_from_slice(&[7; 1000]);
        poll_fn(|cx| {
            assert!(!spool.has_room(cx, room));
            if spool.take_write_error().is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// O10: a disk that is full at the k-th write, at its beginning or in the middle of it.
    #[tokio::test]
    async fn bytes_come_out_in_order_when_the_disk_is_full() {
        let all = pattern(400_000);
        let room = Room { memory: 16 << 10, file: 1 << 30 };
        for k in 0..20 {
            for part in [0, 1, 4096, 9000] {
                for every in [2, 5, 1000] {
                    let file = Some(full_after(k * room.memory as u64 + part));
                    let spool = Spool { file, ..Spool::default() };
                    let (taken, error) = pass_through(spool, &all, (room, 5000, every)).await;
                    assert!(taken == all, "{k}, {part}, {every}");
                    // A client that keeps pace leaves little for the disk.
                    assert!(error.is_some() || every < 1000, "{k}, {part}");
                }
            }
        }
    }
}
