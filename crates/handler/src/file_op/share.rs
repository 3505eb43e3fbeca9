//! How many descriptors file operations may have together: a share of all, so that clients that begin uploads
//! and do not end them leave enough for other requests (V39).

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};
use sekisho_http::Status;

use super::Failure;

/// What one operation holds at the most: a folder, a folder of its own, a file, and that file once more past the
/// page cache.
const OPERATION_DESCRIPTORS: u64 = 4;
/// Of how many descriptors one may be theirs.
const PART: u64 = 2;

static HELD: AtomicU64 = AtomicU64::new(0);

/// The descriptors of one operation, until it is dropped.
#[derive(Debug)]
pub(super) struct Share(());

/// A share for one more; 503 where there is none left.
pub(super) fn take() -> Result<Share, Failure> {
    let held = HELD.fetch_add(OPERATION_DESCRIPTORS, Ordering::Relaxed) + OPERATION_DESCRIPTORS;
    let share = Share(());
    match getrlimit(Resource::Nofile).current {
        Some(limit) if held > limit / PART => {
            let why = "file operation refused: too many open files".to_owned();
            let failure = Failure::of(Status::SERVICE_UNAVAILABLE).field("Retry-After", b"1");
            Err(Failure { why: Some(why), ..failure })
        }
        _ => Ok(share),
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        HELD.fetch_sub(OPERATION_DESCRIPTORS, Ordering::Relaxed);
    }
}
