//! Compressing answers on the fly. What is small is compressed whole ([`whole`]); the rest is a task that
//! makes its answer piece by piece ([`Pressed`]), each larger piece on a thread of the blocking pool.
//!
//! What it may cost is bounded for the process: the encoders of all streams together may take
//! [`STREAMS_KIB_MAX`] (beyond that answers leave as they are), each has one piece in hand, and no more pieces
//! are in work than there are processors. Nothing is ever decompressed here.

mod encoder;
mod pressed;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use sekisho_http::Coding;
use tokio::sync::Semaphore;

pub use encoder::Encoder;
pub use pressed::{Pressed, Source};

/// How much memory the encoders of the process may take at a time, beside those that compress a whole at once.
pub const STREAMS_KIB_MAX: usize = 256 * 1024;
/// What is in memory and not longer than this is compressed whole, where it stands.
pub const WHOLE_BYTES_MAX: u64 = 64 * 1024;

/// What all workers share.
struct Shared {
    /// Who has one may compress a piece.
    pieces: Arc<Semaphore>,
    /// What the encoders that are in use take, in KiB.
    streams: AtomicUsize,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    pieces: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
    streams: AtomicUsize::new(0),
});

/// A share of [`STREAMS_KIB_MAX`]; given back when dropped.
#[derive(Debug)]
struct Stream {
    kib: usize,
}

impl Stream {
    fn take(kib: usize) -> Option<Self> {
        let more = |taken: usize| Some(taken + kib).filter(|all| *all <= STREAMS_KIB_MAX);
        let taken = SHARED.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Not made before it is known to be wanted: dropping one gives its share back.
        taken.is_ok().then(|| Self { kib })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        SHARED.streams.fetch_sub(self.kib, Ordering::Relaxed);
    }
}

/// All that is needed to compress one answer piece by piece.
#[derive(Debug)]
pub struct Press {
    encoder: Encoder,
    is_quick: bool,
    /// How long the body is to be.
    length: Option<u64>,
    stream: Stream,
}

impl Press {
    /// For a body of this length, where it is known; `None` while too many are in use.
    pub fn take(coding: Coding, level: u8, length: Option<u64>) -> Option<Self> {
        let stream = Stream::take(stream_kib(coding, level))?;
        let encoder = Encoder::new(coding, level, length).ok()?;
        Some(Self { encoder, is_quick: is_quick(coding, level), length, stream })
    }
}

/// About how much memory an encoder takes, as it was measured.
pub const fn stream_kib(coding: Coding, level: u8) -> usize {
    match (coding, level) {
        (Coding::Gzip, _) => 512,
        (Coding::Zstd, 0..=3) | (Coding::Brotli, 0..=1) => 1024,
        (Coding::Brotli, 2..=4) => 3 * 1024,
        (Coding::Zstd, _) | (Coding::Brotli, 5..=6) => 4 * 1024,
        (Coding::Brotli, 7) => 10 * 1024,
        (Coding::Brotli, 8) => 18 * 1024,
        (Coding::Brotli, 9) => 36 * 1024,
        (Coding::Brotli, _) => 16 * 1024,
    }
}

/// Whether a coding at this level is quick enough for the event loop, with pieces of a few kilobytes.
pub const fn is_quick(coding: Coding, level: u8) -> bool {
    match coding {
        Coding::Zstd => level <= 12,
        Coding::Brotli => level <= 9,
        Coding::Gzip => true,
    }
}

/// The compressed form; `None` when it would not be shorter, or cannot be made.
pub fn whole(coding: Coding, level: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() / 2);
    let mut encoder = Encoder::new(coding, level, Some(bytes.len() as u64)).ok()?;
    encoder.write(bytes, &mut out).ok()?;
    encoder.finish(&mut out).ok()?;
    (out.len() < bytes.len()).then_some(out)
}
