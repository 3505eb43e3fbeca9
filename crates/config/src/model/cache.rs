//! What the configuration says about keeping answers of other servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sekisho_upstream::cache::index::Settings;
use sekisho_upstream::cache::{StoreRules, UseStale};

use super::{Family, Template};

/// An index into [`Http::caches`](super::Http::caches).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheId(pub u32);

/// Which cache a location has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheChoice {
    /// This one.
    Named(CacheId),
    /// The one whose name these variables say; none where they are empty or say `off`.
    Computed(Template),
}

/// `proxy_cache_path` and its like: a folder of entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachePath {
    /// Whose directive it was: `fastcgi_cache` does not name one of `proxy_cache_path`.
    pub family: Family,
    /// The name in `keys_zone`.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    /// `levels`: how many digits name each folder beneath it.
    pub levels: Vec<u8>,
    /// `keys_zone`, `max_size`, `inactive`
    pub settings: Settings,
    /// `min_free`: so much of the disk is left to others.
    pub free_min: Option<u64>,
}

/// How answers are kept: what `proxy_cache` and its companions say.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the language")]
pub struct Caching {
    /// `_cache`; `None` for `off`.
    pub cache: Option<CacheChoice>,
    /// `_cache_key`
    pub key: Template,
    /// `_cache_valid`, `_cache_methods`, `_cache_min_uses`, and `_ignore_headers` as far as it is about caches.
    pub rules: Arc<StoreRules>,
    /// `_cache_max_range_offset`
    pub range_offset_max: Option<u64>,
    /// `_cache_bypass`
    pub bypass: Arc<[Template]>,
    /// `_no_cache`
    pub no_cache: Arc<[Template]>,
    /// `_cache_use_stale`
    pub use_stale: UseStale,
    /// `_cache_lock`
    pub lock: bool,
    /// `_cache_lock_timeout`
    pub lock_timeout: Duration,
    /// `_cache_lock_age`
    pub lock_age: Duration,
    /// `_cache_revalidate`
    pub revalidate: bool,
    /// `_cache_background_update`
    pub background_update: bool,
    /// `proxy_cache_convert_head`
    pub convert_head: bool,
}
