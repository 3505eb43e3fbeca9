//! The part of a response that a slow client has not taken yet (`proxy_buffering`): in memory up to `proxy_buffers`,
//! beyond that in a temporary file without a name, up to `proxy_max_temp_file_size`. So a slow client occupies no
//! server. Only threads beside the event loop touch the disk (`disk.rs`), one piece at a time.
//!
//! Bytes come out in the order in which they went in, or not at all (O10): a piece stays in memory until the file has
//! all of it. After a failed write the spool uses memory alone.
//!
//! The memory is in the budget (O9): where the share of proxy buffers is used up, a spool that is empty takes nothing, and
//! the server is held back.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sekisho_config::TempFolder;
use sekisho_lifecycle::Share;

use crate::disk::{Device, Operation};
use crate::temporary;

use crate::memory::{self, Class, RESPONSE_BYTES_MIN};

/// Maximum number of bytes that are read from the file at once.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Bytes that wait.
///
/// ```text
/// file[read..written], then the piece that is being written to it, then memory
/// ```
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// `proxy_temp_path`
    folder: Option<TempFolder>,
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    /// The range of the file that is still to be read.
    read: u64,
    written: u64,
    disk: Option<Operation<io::Result<Done>>>,
    /// The piece that is being written; empty while none is.
    leaving: Arc<Vec<u8>>,
    /// Nothing more is written to the disk.
    is_memory_only: bool,
    /// Why, until it has been reported.
    write_error: Option<io::Error>,
    /// Bytes are lost: the response cannot be completed.
    is_lost: bool,
    /// The memory that it may have, until it is empty.
    share: Option<Share>,
}

/// A finished operation of the disk.
#[derive(Debug)]
enum Done {
    Written(Arc<File>),
    Read(Vec<u8>),
}

/// Limits of a spool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory: usize,
    pub(super) file: u64,
}

impl Spool {
    /// An empty one, whose file is in this folder.
    pub(super) fn new(folder: Option<TempFolder>) -> Self {
        Self { folder, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.disk.is_none() && self.read == self.written && !self.is_lost
    }

    /// How many bytes may be added. Where the disk is busy, the task of `cx` is woken when it is idle.
    pub(super) fn room(&mut self, cx: &mut Context<'_>, room: Room) -> usize {
        let budget = memory::budget(Class::ProxyBuffers);
        if !self.share.get_or_insert_with(|| budget.empty_share()).resize(room.memory) {
            self.share = None;
            return 0;
        }
        loop {
            let left = room.memory.saturating_sub(self.memory.len() + self.leaving.len());
            if left > 0 {
                // All that is granted: a buffer that is doubled as it grows takes more than that.
                self.memory.reserve_exact(left);
                return left;
            }
            let is_file_full = self.written - self.read + self.leaving.len() as u64 >= room.file;
            if self.is_memory_only || is_file_full {
                return 0;
            }
            // A read that is in progress finishes first.
            if self.poll_disk(cx, None).is_pending() || self.is_lost {
                return 0;
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
                self.share = None;
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
        if out.is_none() && self.leaving.is_empty() {
            // A read is for the next call with `out`.
            return Poll::Pending;
        }
        let done = ready!(Pin::new(disk).poll(cx));
        self.disk = None;
        let piece = std::mem::take(&mut self.leaving);
        match done.map_err(io::Error::from).and_then(|done| done) {
            Ok(Done::Written(file)) => {
                self.file = Some(file);
                self.written += piece.len() as u64;
            }
            Ok(Done::Read(bytes)) => {
                self.read += bytes.len() as u64;
                if let Some(out) = out {
                    out.extend_from_slice(&bytes);
                }
            }
            // What could not be written is still here; a thread that is stuck has the piece, too.
            Err(error) if !piece.is_empty() => {
                let mut piece = Arc::unwrap_or_clone(piece);
                piece.append(&mut self.memory);
                self.memory = piece;
                (self.is_memory_only, self.write_error) = (true, Some(error));
            }
            Err(error) => {
                self.is_lost = true;
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn write_memory(&mut self) {
        let (file, at) = (self.file.clone(), self.written);
        let piece = Arc::new(std::mem::take(&mut self.memory));
        self.leaving = Arc::clone(&piece);
        let folder = self.folder.clone();
        let device = Device::at(&temporary::place(folder.as_ref()));
        self.disk = Some(device.write(move || {
            let made = || temporary::create(folder.as_ref()).map(Arc::new);
            let file = file.map_or_else(made, Ok)?;
            file.write_all_at(&piece, at)?;
            Ok(Done::Written(file))
        }));
    }

    fn read_file(&mut self) -> io::Result<()> {
        let file = Arc::clone(self.file.as_ref().ok_or(io::ErrorKind::NotFound)?);
        let at = self.read;
        let is_full = memory::is_full(Class::Responses);
        let bytes_max = if is_full { RESPONSE_BYTES_MIN } else { READ_BYTES_MAX };
        let bytes = (self.written - at).min(bytes_max as u64) as usize;
        self.disk = Some(Device::of(&*file).read(move || {
            let mut piece = vec![0; bytes];
            file.read_exact_at(&mut piece, at)?;
            Ok(Done::Read(piece))
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
            let may_put = poll_fn(|cx| Poll::Ready(spool.room(cx, room) > 0)).await;
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
            assert!(
                spool.memory.len() + spool.leaving.len() <= room.memory + chunk,
                "memory is bounded"
            );
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
            poll_fn(|cx| if spool.room(cx, room) > 0 { Poll::Ready(()) } else { Poll::Pending })
                .await;
            spool.end().extend_from_slice(&[7; 1000]);
        }
        let mut spool = Spool { file: Some(Arc::new(full_after(0))), ..Spool::default() };
        spool.end().extend_from_slice(&[7; 1000]);
        poll_fn(|cx| {
            assert_eq!(spool.room(cx, room), 0);
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
                    let file = Some(Arc::new(full_after(k * room.memory as u64 + part)));
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
