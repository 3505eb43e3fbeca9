//! Compressing answers on the fly. What is small is compressed whole ([`whole`]); the rest is a task that
//! makes its answer piece by piece ([`CompressTask`]), each larger piece on a thread of the blocking pool.
//!
//! What it may cost is bounded for the process: all streams together may take their budget
//! ([`Class::Compression`]), each has one piece in memory, and no more pieces are in work than there are
//! processors. Beyond that, and while memory is short, answers leave as they are. Nothing is ever
//! decompressed here.

mod encoder;
mod streaming;

use std::sync::{Arc, LazyLock};

use sekisho_config::Recode;
use sekisho_http::Coding;
use sekisho_lifecycle::Share;
use tokio::sync::Semaphore;

use crate::memory::{self, Class};

pub use encoder::Encoder;
pub use streaming::{CompressTask, Source};

/// A body in memory that is not longer than this is compressed at once, on the event loop.
pub const WHOLE_BYTES_MAX: u64 = 64 * 1024;

/// The holder of a permit may compress a piece; all workers share the permits.
static PIECES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)))
});

/// All that is needed to compress one answer piece by piece.
#[derive(Debug)]
pub struct Compressor {
    encoder: Encoder,
    is_quick: bool,
    /// How long the body is to be.
    length: Option<u64>,
    share: Share,
}

impl Compressor {
    /// For a body of this length, where it is known, of which so many bytes are held in memory meanwhile; `None`
    /// while too many are in use, or memory is short.
    pub fn take(coding: Coding, level: u8, length: Option<u64>, held: usize) -> Option<Self> {
        if memory::is_short() {
            return None;
        }
        let bytes = stream_kib(coding, level) * 1024 + streaming::PIECE_BYTES + held;
        let share = memory::budget(Class::Compression).take(bytes)?;
        let encoder = Encoder::new(coding, level, length).ok()?;
        Some(Self { encoder, is_quick: is_quick(coding, level), length, share })
    }
}

impl Compressor {
    /// For a text of this length that is given in another charset; `None` while memory is short.
    pub fn recode(recode: &Arc<Recode>, length: u64) -> Option<Self> {
        let share = memory::budget(Class::Compression).take(streaming::PIECE_BYTES)?;
        let encoder = Encoder::recode(recode);
        Some(Self { encoder, is_quick: true, length: Some(length), share })
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
