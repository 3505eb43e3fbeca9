//! What a server has answered and a slow client has not taken yet (`proxy_buffering`): in memory up to `proxy_buffers`,
//! beyond that in a temporary file without a name, up to `proxy_max_temp_file_size`. So a slow client occupies no
//! server. The disk is touched by threads of the blocking pool only, one piece at a time.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What is written or read at a time.
const PIECE_BYTES: usize = 128 * 1024;

/// Bytes that wait.
///
/// ```text
/// file[read..written], then the bytes on their way to it, then memory
/// ```
#[derive(Debug, Default)]
pub(super) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    /// What of the file is still to be read.
    read: u64,
    written: u64,
    disk: Option<JoinHandle<io::Result<Done>>>,
    /// Bytes that are on their way to the file.
    leaving: u64,
    is_failed: bool,
}

/// What the disk has done.
#[derive(Debug)]
enum Done {
    Written(File, u64),
    Read(File, Vec<u8>),
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory: usize,
    pub(super) file: u64,
}

impl Spool {
    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.disk.is_none() && self.read == self.written
    }

    /// Whether more may be kept. Where the disk is busy, the task of `cx` is woken when it is not.
    pub(super) fn has_room(&mut self, cx: &mut Context<'_>, room: Room) -> bool {
        if self.is_failed {
            return false;
        }
        // Memory in front of the file, and what gathers while the disk is busy.
        let is_on_disk = self.file.is_some() || self.disk.is_some();
        let most = if is_on_disk { PIECE_BYTES.max(room.memory) } else { room.memory };
        if self.memory.len() < most {
            return true;
        }
        if self.written - self.read + self.leaving >= room.file {
            return false;
        }
        // A read that is under way has its turn first.
        if self.poll_disk(cx, None).is_pending() {
            return false;
        }
        self.write_memory();
        !self.is_failed
    }

    /// Where more goes.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Moves what comes first to `out`. An error is final: the answer cannot be completed.
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
                // The file is empty: it begins anew, or is not needed.
                (self.read, self.written) = (0, 0);
                std::mem::swap(out, &mut self.memory);
                return Poll::Ready(Ok(()));
            }
            self.read_file()?;
        }
    }

    /// Ready when the disk does nothing.
    fn poll_disk(
        &mut self,
        cx: &mut Context<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Poll<io::Result<()>> {
        let Some(disk) = &mut self.disk else { return Poll::Ready(Ok(())) };
        let is_read_wanted = out.is_some();
        if !is_read_wanted && self.leaving == 0 {
            // What is being read is for the next call with `out`.
            return Poll::Pending;
        }
        let done = ready!(Pin::new(disk).poll(cx));
        self.disk = None;
        self.leaving = 0;
        match done.map_err(io::Error::other).and_then(|done| done) {
            Ok(Done::Written(file, bytes)) => {
                self.file = Some(file);
                self.written += bytes;
            }
            Ok(Done::Read(file, bytes)) => {
                self.file = Some(file);
                self.read += bytes.len() as u64;
                if let Some(out) = out {
                    out.extend_from_slice(&bytes);
                }
            }
            Err(error) => {
                self.is_failed = true;
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn write_memory(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            self.is_failed = true;
            return;
        };
        let (file, at) = (self.file.take(), self.written);
        let piece = std::mem::take(&mut self.memory);
        self.leaving = piece.len() as u64;
        self.disk = Some(runtime.spawn_blocking(move || {
            let file = file.map_or_else(tempfile::tempfile, Ok)?;
            file.write_all_at(&piece, at)?;
            Ok(Done::Written(file, piece.len() as u64))
        }));
    }

    fn read_file(&mut self) -> io::Result<()> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        let at = self.read;
        let bytes = (self.written - at).min(PIECE_BYTES as u64) as usize;
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

    use super::*;

    /// Whatever is put in comes out, in order, in memory or by the disk.
    #[tokio::test]
    async fn bytes_come_out_in_order() {
        let all: Vec<u8> = (0..2_000_000u32).map(|at| (at * 31 % 251) as u8).collect();
        for (room, chunk, every) in [
            (Room { memory: 1000, file: 1 << 30 }, 700, 1000),
            (Room { memory: 64 << 10, file: 1 << 30 }, 30_000, 7),
            (Room { memory: 64 << 10, file: 300_000 }, 30_000, 3),
            (Room { memory: 1000, file: 0 }, 700, 1),
        ] {
            let mut spool = Spool::default();
            let (mut put, mut taken) = (0, Vec::new());
            let mut round = 0;
            while taken.len() < all.len() {
                round += 1;
                let may_put = poll_fn(|cx| Poll::Ready(spool.has_room(cx, room))).await;
                if may_put && put < all.len() {
                    let end = (put + chunk).min(all.len());
                    spool.end().extend_from_slice(&all[put..end]);
                    put = end;
                }
                if (!may_put || put == all.len() || round % every == 0) && !spool.is_empty() {
                    let mut out = Vec::new();
                    poll_fn(|cx| spool.poll_take(cx, &mut out)).await.expect("there is a disk");
                    taken.append(&mut out);
                }
                tokio::task::yield_now().await;
            }
            assert!(taken == all && spool.is_empty(), "{room:?}");
        }
    }
}
