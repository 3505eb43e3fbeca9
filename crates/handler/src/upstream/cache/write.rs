//! An entry on its way to the disk: its body behind room for its head, in a file without its name; then the head, then
//! the name. So an entry appears atomically, even if the process is killed meanwhile.

use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use sekisho_lifecycle::Moment;
use sekisho_upstream::cache::entry::{BodySum, Entry};
use sekisho_upstream::cache::{Key, Lifetime, PurgeSerial};

use crate::disk::Operation;

use super::folder::{Body, Cache, Fetching, Kept, TEMPORARY, lock_unnamed, make_folder};

/// What is written at a time.
const PIECE_BYTES: usize = 128 * 1024;

static SERIALS: AtomicU64 = AtomicU64::new(0);

/// A file without its name; it is deleted unless it gets one.
#[derive(Debug)]
struct Unnamed {
    file: File,
    path: PathBuf,
    is_named: bool,
}

impl Unnamed {
    /// In the folder where the entry belongs: a name within a folder is given at once, and in a sandbox, too.
    fn create(cache: &Cache, slot: Key) -> io::Result<Self> {
        let place = cache.path_of(slot);
        let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let (process, serial) = (std::process::id(), SERIALS.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("{TEMPORARY}{process}-{serial}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_folder(folder)?;
                options.open(&path)?
            }
            opened => opened?,
        };
        let unnamed = Self { file, path, is_named: false };
        lock_unnamed(&unnamed.file)?;
        Ok(unnamed)
    }

    fn name(mut self, cache: &Cache, slot: Key) -> io::Result<()> {
        fs::rename(&self.path, cache.path_of(slot))?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.is_named {
            // One that stays is deleted by the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An entry that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    cache: Arc<Cache>,
    slot: Key,
    asked_at: PurgeSerial,
    /// `None` when it is on its way to be completed.
    entry: Option<Entry>,
    head_bytes: u64,
    pending: Vec<u8>,
    sum: BodySum,
    written: u64,
    file: Option<Unnamed>,
    disk: Option<Operation<io::Result<Option<Unnamed>>>>,
    is_failed: bool,
}

impl Writer {
    /// `None` where the head is too long to be kept, or the disk does not respond.
    pub(super) fn new(
        cache: &Arc<Cache>,
        slot: Key,
        asked_at: PurgeSerial,
        entry: Entry,
    ) -> Option<Self> {
        let mut head = Vec::new();
        entry.encode(&mut head).ok()?;
        if cache.device().is_stuck() {
            return None;
        }
        Some(Self {
            cache: Arc::clone(cache),
            slot,
            asked_at,
            entry: Some(entry),
            head_bytes: head.len() as u64,
            pending: Vec::new(),
            sum: BodySum::default(),
            written: 0,
            file: None,
            disk: None,
            is_failed: false,
        })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_failed {
            self.sum.update(bytes);
            self.pending.extend_from_slice(bytes);
        }
    }

    /// Whether more may come now; where not, the task is woken when it may. An error means that it is not kept.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_failed || self.pending.len() < PIECE_BYTES {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_disk(cx))?;
        let piece = std::mem::take(&mut self.pending);
        let (file, at) = (self.file.take(), self.head_bytes + self.written);
        self.written += piece.len() as u64;
        let (cache, slot, device) = (Arc::clone(&self.cache), self.slot, self.cache.device());
        self.disk = Some(device.write(move || {
            let file = file.map_or_else(|| Unnamed::create(&cache, slot), Ok)?;
            file.file.write_all_at(&piece, at)?;
            Ok(Some(file))
        }));
        Poll::Ready(Ok(()))
    }

    fn poll_disk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(disk) = &mut self.disk else { return Poll::Ready(Ok(())) };
        let done = ready!(Pin::new(disk).poll(cx));
        self.disk = None;
        match done.map_err(io::Error::from).and_then(|done| done) {
            Ok(file) => {
                self.file = file;
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.is_failed = true;
                self.pending = Vec::new();
                Poll::Ready(Err(error))
            }
        }
    }

    /// The body is complete: the entry gets its name. Ready when it has it.
    pub(super) fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        fetching: &mut Option<Fetching>,
        now: Moment,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_disk(cx))?;
            if self.is_failed {
                return Poll::Ready(Ok(()));
            }
            let Some(mut entry) = self.entry.take() else { return Poll::Ready(Ok(())) };
            let (body_bytes, body_checksum) = std::mem::take(&mut self.sum).finish();
            (entry.body_bytes, entry.body_checksum) = (body_bytes, body_checksum);
            let piece = std::mem::take(&mut self.pending);
            let (file, at) = (self.file.take(), self.head_bytes + self.written);
            let (cache, slot, fetching) = (Arc::clone(&self.cache), self.slot, fetching.take());
            let asked_at = self.asked_at;
            self.disk = Some(self.cache.device().write(move || {
                let (file, rest) = match file {
                    Some(file) => {
                        file.file.write_all_at(&piece, at)?;
                        (file, &[][..])
                    }
                    // A short body is written with its head.
                    None => (Unnamed::create(&cache, slot)?, &*piece),
                };
                complete(&cache, (slot, asked_at), file, &entry, rest, now)?;
                drop(fetching);
                Ok(None)
            }));
        }
    }
}

/// Writes the head, with the body where that has not been written, and gives the file its name.
fn complete(
    cache: &Cache,
    (slot, asked_at): (Key, PurgeSerial),
    file: Unnamed,
    entry: &Entry,
    body: &[u8],
    now: Moment,
) -> io::Result<()> {
    let mut start = Vec::new();
    entry.encode(&mut start).map_err(io::Error::other)?;
    let bytes = start.len() as u64 + entry.body_bytes;
    start.extend_from_slice(body);
    file.file.write_all_at(&start, 0)?;
    let mut dropped = Vec::new();
    cache.keep(&entry.key, (slot, asked_at), || {
        file.name(cache, slot)?;
        dropped = cache.index.found(slot, bytes, now);
        Ok(())
    })?;
    cache.delete(&dropped);
    Ok(())
}

/// Writes an entry anew that was found to be still valid, with its new lifetime.
pub(super) fn prolong(
    cache: &Cache,
    (slot, asked_at): (Key, PurgeSerial),
    kept: &Kept,
    lifetime: Lifetime,
    now: Moment,
) -> io::Result<()> {
    let file = Unnamed::create(cache, slot)?;
    let entry = Entry { lifetime, ..kept.entry.clone() };
    match &kept.body {
        Body::Memory(bytes) => file.file.write_all_at(bytes, kept.head_bytes)?,
        Body::File(from) => copy(from, &file.file, kept.head_bytes, entry.body_bytes)?,
    }
    complete(cache, (slot, asked_at), file, &entry, &[], now)
}

/// Copies a stretch of a file to the same place of another one.
fn copy(from: &File, to: &File, start: u64, bytes: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, end) = (start, start + bytes);
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        from.read_exact_at(&mut piece[..count], at)?;
        to.write_all_at(&piece[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
