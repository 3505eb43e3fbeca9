//! How many unfinished uploads a store holds, and how many of them one client address: each costs the store
//! inodes for as long as `upload_resumable_expires` says, so there is a bound (`upload_resumable_max`). The name
//! of an upload begins with a mark of its client's address, so that one look at the names is enough to count;
//! after that the count is kept in memory.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::Dir;
use rustix::io::Errno;
use sekisho_config::UnfinishedMax;
use sekisho_http::Status;

use super::entries::{FolderId, id_of};
use super::{Failure, delete, resume};

/// How many digits of an upload's name represent its client's address.
pub(crate) const OWNER_BYTES: usize = 8;
/// A store that seems full is counted again, but not more often than this.
const AGAIN_SECS: i64 = 5;
/// How many stores are remembered.
const STORES_MAX: usize = 4096;

static STORES: LazyLock<Mutex<HashMap<FolderId, Count>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Count {
    by_owner: HashMap<Vec<u8>, usize>,
    total: usize,
    /// When it was counted last.
    seconds: i64,
}

impl Count {
    fn of(folder: &OwnedFd, seconds: i64) -> Result<Self, Errno> {
        let mut count = Self { seconds, ..Self::default() };
        for entry in Dir::read_from(delete::open_to_read(folder, b".")?)? {
            if let Some(owner) = owner_in(entry?.file_name().to_bytes()) {
                count.add(owner);
            }
        }
        Ok(count)
    }

    fn add(&mut self, owner: &[u8]) {
        self.total += 1;
        *self.by_owner.entry(owner.to_vec()).or_default() += 1;
    }

    fn remove(&mut self, owner: &[u8]) {
        self.total = self.total.saturating_sub(1);
        if let Some(own) = self.by_owner.get_mut(owner) {
            *own -= 1;
            if *own == 0 {
                self.by_owner.remove(owner);
            }
        }
    }

    /// Whether one more is too many, and what that is answered with.
    fn refusal(&self, owner: &[u8], max: UnfinishedMax) -> Option<Status> {
        let own = self.by_owner.get(owner).copied().unwrap_or_default();
        if own >= max.of_address {
            Some(Status::TOO_MANY_REQUESTS)
        } else if self.total >= max.of_store {
            Some(Status::INSUFFICIENT_STORAGE)
        } else {
            None
        }
    }
}

/// The mark of a client's address in the names of its uploads; the same after a restart.
pub(crate) fn owner_of(address: Option<IpAddr>) -> String {
    // Nothing secret: FNV-1a.
    struct Fnv(u32);
    impl Hasher for Fnv {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            }
        }
        fn finish(&self) -> u64 {
            self.0.into()
        }
    }
    // An IPv6 address counts as its network: a client has all of it.
    let network = match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let mut octets = address.octets();
            octets[8..].fill(0);
            Some(IpAddr::from(octets))
        }
        other => other,
    };
    let mut hasher = Fnv(0x811c_9dc5);
    network.hash(&mut hasher);
    format!("{:08x}", hasher.finish())
}

/// The mark in the name of a note about an unfinished upload.
fn owner_in(name: &[u8]) -> Option<&[u8]> {
    let id = name.strip_prefix(resume::PREFIX.as_bytes())?.strip_suffix(resume::NOTE.as_bytes())?;
    id.get(..OWNER_BYTES)
}

fn stores() -> MutexGuard<'static, HashMap<FolderId, Count>> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts one more upload of this owner in, if there is room for it.
pub(super) fn admit(
    folder: &OwnedFd,
    owner: &[u8],
    max: UnfinishedMax,
    seconds: i64,
) -> Result<(), Failure> {
    let fail = |errno| Failure::by(errno, Status::NOT_FOUND, "count uploads in", b"store");
    let id = id_of(folder).map_err(fail)?;
    {
        let mut stores = stores();
        if let Some(count) = stores.get_mut(&id) {
            match count.refusal(owner, max) {
                None => {
                    count.add(owner);
                    return Ok(());
                }
                Some(status) if count.seconds + AGAIN_SECS > seconds => return Err(full(status)),
                Some(_) => {}
            }
        }
    }
    // No lock is held while the names are read; what comes and goes meanwhile is corrected the next time.
    let mut count = Count::of(folder, seconds).map_err(fail)?;
    let refusal = count.refusal(owner, max);
    if refusal.is_none() {
        count.add(owner);
    }
    let mut stores = stores();
    if stores.len() >= STORES_MAX {
        stores.clear();
    }
    stores.insert(id, count);
    refusal.map_or(Ok(()), |status| Err(full(status)))
}

fn full(status: Status) -> Failure {
    let why = "upload refused: too many unfinished uploads (upload_resumable_max)";
    Failure { why: Some(why.to_owned()), ..Failure::of(status) }
}

/// One is finished, or given up.
pub(super) fn leave(folder: &OwnedFd, upload: &str) {
    if let (Ok(id), Some(owner)) = (id_of(folder), upload.as_bytes().get(..OWNER_BYTES))
        && let Some(count) = stores().get_mut(&id)
    {
        count.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_mark_and_a_network_of_ipv6_too() {
        let of = |text: &str| owner_of(Some(text.parse().expect("an address")));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(owner_of(None).len(), OWNER_BYTES);
    }

    #[test]
    fn a_store_has_room_for_so_many_and_for_so_many_of_one() {
        let tree = tempfile::tempdir().expect("a folder");
        let folder: OwnedFd = std::fs::File::open(tree.path()).expect("a folder").into();
        let max = UnfinishedMax { of_store: 3, of_address: 2 };
        let note = |id: &str| format!("{}{id}{}", resume::PREFIX, resume::NOTE);
        // One is there from before, one is finished.
        std::fs::write(tree.path().join(note("aaaaaaaa-1")), "").expect("written");
        let done = format!("{}aaaaaaaa-2{}", resume::PREFIX, resume::DONE);
        std::fs::write(tree.path().join(done), "").expect("written");
        let ask = |owner: &str, seconds| {
            admit(&folder, owner.as_bytes(), max, seconds).map_err(|failure| failure.status)
        };
        assert_eq!(ask("aaaaaaaa", 10), Ok(()));
        assert_eq!(ask("aaaaaaaa", 10), Err(Status::TOO_MANY_REQUESTS));
        assert_eq!(ask("bbbbbbbb", 10), Ok(()));
        assert_eq!(ask("cccccccc", 10), Err(Status::INSUFFICIENT_STORAGE));
        leave(&folder, "bbbbbbbb-1");
        assert_eq!(ask("cccccccc", 10), Ok(()));
        // What others removed is found when it is counted again.
        assert_eq!(ask("dddddddd", 10 + AGAIN_SECS - 1), Err(Status::INSUFFICIENT_STORAGE));
        assert_eq!(ask("dddddddd", 10 + AGAIN_SECS), Ok(()));
    }
}
