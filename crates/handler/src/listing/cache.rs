//! Listings that are asked for very often are kept as they were written. What is kept is trusted as a
//! file is (`hotness.rs`): while it is hot, for a moment, and only as long as the folder itself is what it
//! was; so a client that changes a folder and looks at it sees what was changed.

use std::rc::Rc;

use quick_cache::Weighter;
use quick_cache::unsync::Cache as Bounded;
use sekisho_config::{FileCache as Setting, Settings, Symlinks};
use sekisho_lifecycle::Moment;

use super::shared::Readings;
use crate::file_cache::{self, INACTIVE, Identity};
use crate::hotness::{Hotness, RACY_SECS};
use crate::memory;

/// What all kept listings of a worker may weigh, and how many there may be.
const BYTES_MAX: u64 = 8 << 20;
const LISTINGS_MAX: usize = 256;
/// A listing larger than this is not kept.
pub(super) const LISTING_BYTES_MAX: usize = 1 << 20;
const ENTRY_WEIGHT: u64 = 256;

#[derive(Debug)]
struct Kept {
    body: Rc<[u8]>,
    identity: Identity,
    /// Something in it, or the folder itself, changed so recently that it may change again unseen.
    is_racy: bool,
    hotness: Hotness,
}

#[derive(Clone)]
struct Weights;

impl Weighter<Box<[u8]>, Rc<Kept>> for Weights {
    fn weight(&self, key: &Box<[u8]>, kept: &Rc<Kept>) -> u64 {
        ENTRY_WEIGHT + (key.len() + kept.body.len()) as u64
    }
}

/// The kept listings of one worker.
pub struct Cache {
    kept: Bounded<Box<[u8]>, Rc<Kept>, Weights>,
    /// Large folders that are being read.
    pub(super) readings: Readings,
}

impl Default for Cache {
    fn default() -> Self {
        let bytes = memory::cache_bytes(BYTES_MAX);
        let kept = Bounded::with_weighter(LISTINGS_MAX, bytes, Weights);
        Self { kept, readings: Readings::default() }
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// Whether the folder itself changed so recently that its listing cannot be kept.
pub(super) fn is_racy(stat: &rustix::fs::Stat, wall_secs: i64) -> bool {
    wall_secs - stat.st_mtime.max(stat.st_ctime) < RACY_SECS
}

impl Cache {
    /// Drops what was not asked for lately; returns whether anything is left.
    pub fn sweep(&mut self, now: Moment) -> bool {
        self.kept.retain(|_, kept| !kept.hotness.is_forgotten(now, INACTIVE));
        !self.is_empty()
    }

    /// How many listings there are, and what they hold in memory.
    pub fn memory_usage(&self) -> (usize, usize) {
        let entry = size_of::<(Box<[u8]>, Rc<Kept>)>() + size_of::<Kept>();
        let bytes = self.kept.iter().map(|(key, kept)| entry + key.len() + kept.body.len());
        (self.kept.len(), bytes.sum())
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The listing of this name, if it can be trusted now. The name has everything that the listing depends
    /// on.
    pub(super) fn find(
        &self,
        name: &[u8],
        path: &[u8],
        root_bytes: usize,
        settings: &Settings,
        now: Moment,
    ) -> Option<Rc<[u8]>> {
        let kept = self.kept.get(name)?;
        let is_hot = kept.hotness.is_hot(now);
        let is_trusted = match settings.open_file_cache {
            Setting::Off => false,
            Setting::Auto => is_hot,
            Setting::On { valid, .. } => kept.hotness.is_fresh(now, valid),
        };
        if !is_trusted || kept.is_racy {
            return None;
        }
        let stat = match settings.disable_symlinks {
            Symlinks::Follow => rustix::fs::stat(path),
            symlinks => file_cache::open(path, root_bytes, symlinks).map(|(_, stat)| stat),
        };
        let is_same = stat.is_ok_and(|stat| Identity::of(&stat) == kept.identity);
        is_same.then(|| Rc::clone(&kept.body))
    }

    /// Keeps a listing that was just made. `newest` is the latest change of anything in it.
    pub(super) fn keep(
        &mut self,
        name: &[u8],
        body: Vec<u8>,
        stat: &rustix::fs::Stat,
        newest: i64,
        now: Moment,
        wall_secs: i64,
    ) -> Rc<[u8]> {
        let changed = stat.st_mtime.max(stat.st_ctime).max(newest);
        let old = self.kept.get(name);
        let kept = Kept {
            body: body.into(),
            identity: Identity::of(stat),
            is_racy: wall_secs - changed < RACY_SECS,
            hotness: old.map_or_else(|| Hotness::new(now), |old| old.hotness.checked_anew(now)),
        };
        let body = Rc::clone(&kept.body);
        self.kept.insert(name.into(), Rc::new(kept));
        body
    }
}
