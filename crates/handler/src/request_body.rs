//! A request body that is gathered before a program or an upstream starts (C7): in memory up to
//! `client_body_buffer_size`, beyond that in a temporary file, which has a name only where the configuration says
//! where (`client_body_temp_path`, `client_body_in_file_only`). So a slow client occupies nothing but its
//! connection, and the length of the body is known when it is handed over.
//!
//! The file is made and written by threads beside the event loop (`disk.rs`), never by the loop. While one chunk is being
//! written the next one fills; what there is no room for stays with the caller, which holds the client back.
//! Nothing here knows which handler wants the body.
//!
//! Bytes in memory are in the budget (O9). Where the share of request bodies is used up, a body goes to the file from its
//! first byte and keeps no memory.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sekisho_config::{InFileOnly, Settings, TempFolder};
use sekisho_lifecycle::Share;
use tempfile::TempPath;

use crate::disk::{Device, Operation};
use crate::temporary;

use crate::memory::{self, Class, UNCOUNTED_BYTES};

/// How much is written to the file at a time. A body on its way to a file has at most two of these in memory.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunk size while the budget is used up; less waits only while an earlier chunk is being written.
const THRIFTY_BYTES: usize = 8 * 1024;
/// The kernel takes a while to release a file of this size: not while clients wait.
const LARGE_BYTES: u64 = 64 << 20;

/// A body that is being gathered.
///
/// ```text
/// Memory ──more than fits──▶ Writing ⇄ Idle ──end, all written──▶ handed over
///    └──end──▶ handed over      └──error──▶ Failed
/// ```
#[derive(Debug)]
pub struct RequestBody {
    /// `client_body_buffer_size`
    memory_bytes_max: usize,
    /// How long the body is going to be, where that is known.
    expected_bytes: Option<u64>,
    /// What a file is like.
    naming: Naming,
    /// How much of it has been taken.
    bytes: u64,
    /// What has been taken and is not in the file, nor on its way there.
    chunk: Vec<u8>,
    store: Store,
    has_ended: bool,
    /// The memory of the chunk and of the one that is being written.
    share: Option<Share>,
    /// The budget has refused memory.
    is_thrifty: bool,
}

/// Whether a file has a name.
#[derive(Clone, Debug)]
enum Naming {
    /// It has none; where it is.
    Nameless(Option<TempFolder>),
    /// It has one in this folder, or in that of temporary files.
    Named { folder: Option<TempFolder>, only: InFileOnly },
}

impl Naming {
    const fn folder(&self) -> Option<&TempFolder> {
        let (Self::Named { folder, .. } | Self::Nameless(folder)) = self;
        folder.as_ref()
    }
}

/// Where the bytes before the chunk are.
#[derive(Debug)]
enum Store {
    /// There are none.
    Memory,
    /// In the file.
    Idle(BodyFile),
    /// On their way to the file.
    Writing(Operation<io::Result<Written>>),
    /// They could not be written, or have been handed over.
    Failed,
}

/// What comes back from the thread: the file, and the chunk's memory for the next one.
#[derive(Debug)]
struct Written {
    file: BodyFile,
    chunk: Vec<u8>,
}

/// A body that is complete.
#[derive(Debug)]
pub enum Gathered {
    /// In memory, with its share of the budget.
    Memory(Vec<u8>, Option<Share>),
    /// In a file, whose position is its beginning.
    File(BodyFile),
}

impl Gathered {
    /// How long it is.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes, _) => bytes.len() as u64,
            Self::File(file) => file.bytes,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RequestBody {
    /// Nothing of it has come yet. `memory_bytes_max` is `client_body_buffer_size`; `expected_bytes` is what the client
    /// has announced.
    pub const fn new(memory_bytes_max: usize, expected_bytes: Option<u64>) -> Self {
        Self {
            memory_bytes_max,
            expected_bytes,
            naming: Naming::Nameless(None),
            bytes: 0,
            chunk: Vec::new(),
            store: Store::Memory,
            has_ended: false,
            share: None,
            is_thrifty: false,
        }
    }

    /// The same for a location.
    pub fn of(settings: &Settings, expected_bytes: Option<u64>) -> Self {
        let only = settings.client_body_in_file_only;
        let is_only = only != InFileOnly::Off;
        let memory = if is_only { 0 } else { settings.client_body_buffer_size };
        let mut body = Self::new(memory, expected_bytes);
        let folder = settings.client_body_temp_path.clone();
        let is_named = is_only || folder.as_ref().is_some_and(|folder| !folder.is_default);
        body.naming =
            if is_named { Naming::Named { folder, only } } else { Naming::Nameless(folder) };
        body
    }

    /// Takes bytes; says how many. Where that is not all, the disk is busy, and the task of `cx` is woken when there is
    /// room. An error is final.
    pub fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        loop {
            self.ask_for_memory(rest.len());
            let room = self.chunk_max().saturating_sub(self.chunk.len());
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.chunk.extend_from_slice(now);
            self.bytes += now.len() as u64;
            rest = later;
            if rest.is_empty() && (!self.is_thrifty || self.chunk.is_empty()) {
                return Ok(bytes.len());
            }
            match self.advance(cx) {
                Poll::Ready(idle) => idle?,
                Poll::Pending => return Ok(bytes.len() - rest.len()),
            }
            self.write_chunk()?;
        }
    }

    /// No more of it comes.
    pub const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether all of it has come.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The whole body, once: ready when it has [ended](Self::end) and is all in memory or in the file.
    pub fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Gathered>> {
        loop {
            ready!(self.advance(cx))?;
            if !self.has_ended {
                if self.is_thrifty && !self.chunk.is_empty() {
                    self.write_chunk()?;
                    continue;
                }
                return Poll::Pending;
            }
            let fits = self.chunk.len() <= self.memory_bytes_max;
            match std::mem::replace(&mut self.store, Store::Failed) {
                Store::Memory if fits => {
                    let bytes = std::mem::take(&mut self.chunk);
                    return Poll::Ready(Ok(Gathered::Memory(bytes, self.share.take())));
                }
                Store::Idle(file) if self.chunk.is_empty() => {
                    (self.chunk, self.share) = (Vec::new(), None);
                    return Poll::Ready(Ok(Gathered::File(file)));
                }
                store => {
                    self.store = store;
                    self.write_chunk()?;
                }
            }
        }
    }

    /// Asks the budget for the memory that the next bytes need.
    fn ask_for_memory(&mut self, more: usize) {
        self.is_thrifty = false;
        let leaving = if matches!(self.store, Store::Writing(_)) { CHUNK_BYTES } else { 0 };
        let wanted = leaving + (self.chunk.len() + more).min(self.chunk_max());
        if wanted <= UNCOUNTED_BYTES {
            return;
        }
        let budget = memory::budget(Class::RequestBodies);
        self.is_thrifty = !self.share.get_or_insert_with(|| budget.empty_share()).resize(wanted);
    }

    /// How much is kept before it is written.
    fn chunk_max(&self) -> usize {
        let fits = |expected: u64| expected <= self.memory_bytes_max as u64;
        match self.store {
            _ if self.is_thrifty => THRIFTY_BYTES,
            Store::Memory if self.expected_bytes.is_none_or(fits) => self.memory_bytes_max,
            _ => CHUNK_BYTES,
        }
    }

    /// Ready when nothing is being written.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Store::Writing(writing) = &mut self.store {
            let written = ready!(Pin::new(writing).poll(cx));
            self.store = Store::Failed;
            let Written { file, mut chunk } = written.map_err(io::Error::from)??;
            if self.is_thrifty {
                if self.chunk.is_empty() {
                    (self.chunk, self.share) = (Vec::new(), None);
                }
            } else if self.chunk.is_empty() {
                chunk.clear();
                self.chunk = chunk;
            }
            self.store = Store::Idle(file);
        }
        Poll::Ready(Ok(()))
    }

    /// Lets a thread write the chunk. Nothing else is being written.
    fn write_chunk(&mut self) -> io::Result<()> {
        let file = match std::mem::replace(&mut self.store, Store::Failed) {
            Store::Memory => None,
            Store::Idle(file) => Some(file),
            Store::Writing(_) | Store::Failed => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let chunk = std::mem::take(&mut self.chunk);
        let naming = self.naming.clone();
        let device = match &file {
            Some(file) => Device::of(file.descriptor()?),
            None => Device::at(&temporary::place(naming.folder())),
        };
        self.store = Store::Writing(device.write(move || {
            let mut file = file.map_or_else(|| BodyFile::new(&naming), Ok)?;
            file.append(&chunk)?;
            Ok(Written { file, chunk })
        }));
        Ok(())
    }
}

/// A temporary file that holds a body.
#[derive(Debug)]
pub struct BodyFile {
    /// `None` only while it is dropped.
    file: Option<File>,
    bytes: u64,
    /// What is removed with it.
    temporary: Option<TempPath>,
    name: Option<Arc<Path>>,
}

impl BodyFile {
    /// Makes one: to be called where it may take its time.
    fn new(naming: &Naming) -> io::Result<Self> {
        let (folder, only) = match naming {
            Naming::Named { folder, only } => (folder, only),
            Naming::Nameless(folder) => {
                let file = Some(temporary::create(folder.as_ref())?);
                return Ok(Self { file, bytes: 0, temporary: None, name: None });
            }
        };
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("body-").rand_bytes(10);
        let made = match folder {
            Some(folder) => builder.tempfile_in(&folder.path)?,
            None => builder.tempfile()?,
        };
        let (file, path) = made.into_parts();
        let name = Some(Arc::from(&*path));
        let temporary = if *only == InFileOnly::On {
            path.keep().map_err(|error| error.error)?;
            None
        } else {
            Some(path)
        };
        Ok(Self { file: Some(file), bytes: 0, temporary, name })
    }

    /// How long it is.
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads from a place: to be called where it may take its time.
    pub fn read_at(&self, at: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut bytes = vec![0; bytes_max];
        let count = file.read_at(&mut bytes, at)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Its name, where it has one.
    pub const fn name(&self) -> Option<&Arc<Path>> {
        self.name.as_ref()
    }

    /// The one place that touches the disk: to be called where it may take its time. The position of the file stays
    /// where it is, at the beginning.
    fn append(&mut self, chunk: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        tests::before_the_disk();
        let file = self.file.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        file.write_all_at(chunk, self.bytes)?;
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    /// The descriptor for a reader.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(file.as_fd())
    }

    /// How far the processes that share the descriptor have read.
    pub fn position(&self) -> Option<u64> {
        rustix::fs::tell(self.descriptor().ok()?).ok()
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        let file = (self.file.take(), self.temporary.take());
        if let (Some(opened), true) = (&file.0, self.bytes > LARGE_BYTES) {
            Device::of(opened).detach(move || drop(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::sync::Mutex;
    use std::thread::ThreadId;
    use std::time::Duration;

    use super::*;

    const MEMORY: usize = 1000;

    /// Which threads have touched the disk, in every test of this file.
    static TOUCHED_BY: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

    /// A slow disk.
    #[expect(clippy::disallowed_methods, reason = "it is the disk that takes its time")]
    pub(super) fn before_the_disk() {
        TOUCHED_BY.lock().expect("no panic").push(std::thread::current().id());
        std::thread::sleep(Duration::from_millis(3));
    }

    fn body(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// Sends a body in pieces as a connection does, counting how often it had to wait.
    async fn gather(body: &[u8], piece: usize, is_announced: bool) -> (Gathered, usize) {
        let announced = is_announced.then_some(body.len() as u64);
        let mut gathering = RequestBody::new(MEMORY, announced);
        let mut waits = 0;
        for piece in body.chunks(piece.max(1)) {
            let mut rest = piece;
            poll_fn(|cx| {
                let taken = gathering.take(cx, rest).expect("there is a disk");
                rest = &rest[taken..];
                if rest.is_empty() {
                    return Poll::Ready(());
                }
                waits += 1;
                Poll::Pending
            })
            .await;
        }
        gathering.end();
        assert!(gathering.has_ended());
        let gathered = poll_fn(|cx| gathering.poll_gathered(cx)).await.expect("gathered");
        (gathered, waits)
    }

    fn content(gathered: Gathered) -> Vec<u8> {
        match gathered {
            Gathered::Memory(bytes, _) => bytes,
            Gathered::File(file) => {
                let copy = file.descriptor().expect("open").try_clone_to_owned().expect("a copy");
                let mut bytes = Vec::new();
                File::from(copy).read_to_end(&mut bytes).expect("read");
                assert_eq!(file.position(), Some(bytes.len() as u64), "the position is shared");
                bytes
            }
        }
    }

    /// C7: small in memory, large in a file, in whatever pieces it comes and whether or not its length is announced.
    #[tokio::test]
    async fn a_body_is_whole_in_memory_or_in_a_file() {
        let lengths = [0, 1, MEMORY - 1, MEMORY, MEMORY + 1, CHUNK_BYTES, 5 * CHUNK_BYTES + 77];
        for length in lengths {
            for piece in [1000, 16 * 1024, 1 << 20] {
                for is_announced in [true, false] {
                    let body = body(length);
                    let (gathered, _) = gather(&body, piece, is_announced).await;
                    let is_in_memory = matches!(gathered, Gathered::Memory(..));
                    assert_eq!(is_in_memory, length <= MEMORY, "{length}");
                    assert_eq!(gathered.len(), length as u64);
                    assert_eq!(gathered.is_empty(), length == 0);
                    assert!(content(gathered) == body, "{length} in pieces of {piece}");
                }
            }
        }
    }

    /// C7: a disk that is slow holds back the sender, and no other client. Each write sleeps, and
    /// none of them sleeps on this thread, which is the event loop's.
    #[tokio::test]
    async fn the_event_loop_never_touches_the_disk() {
        let body = body(16 * CHUNK_BYTES);
        let (gathered, waits) = gather(&body, 16 * 1024, true).await;
        assert!(content(gathered) == body);
        assert!(waits > 0, "the sender was held back");
        let own = std::thread::current().id();
        let touched = TOUCHED_BY.lock().expect("no panic");
        assert!(touched.len() >= 16 && !touched.contains(&own));
    }

    /// What was taken and what waits is bounded whatever the disk does.
    #[test]
    fn memory_is_bounded_while_the_disk_does_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let busy = runtime.spawn_blocking(move || gate.recv());
        runtime.block_on(async {
            let mut gathering = RequestBody::new(MEMORY, None);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut taken = 0;
            let piece = body(10_000);
            for _ in 0..100 {
                taken += gathering.take(&mut cx, &piece).expect("taken");
            }
            assert_eq!(taken, MEMORY + CHUNK_BYTES);
            // The client goes: nothing waits for the disk.
            drop(gathering);
        });
        go.send(()).expect("it waits");
        runtime.block_on(busy).expect("done").expect("told");
    }
}
