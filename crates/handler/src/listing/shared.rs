//! Large folders that are being read, or have been, for requests that are there at the same time: equal ones share
//! one reading, and so one piece of memory. Those of one worker read together; what has been read is for all
//! workers. Nothing is kept for later: a reading is dropped with its last request.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak as SharedWeak};

use rustix::fs::Stat;
use sekisho_config::Symlinks;

use super::entry::{Entries, ReadError, Reading, Sorted};
use super::order::SortOrder;
use crate::file_cache::Identity;
use crate::hotness;

/// What tells one reading from another: the folder as it was, and how it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    identity: Identity,
    order: SortOrder,
    symlinks: Symlinks,
}

impl Key {
    /// `None` for a folder that cannot be shared: one that changed so recently that it may change again
    /// unseen, or one whose entries are sorted by something that does not change the folder's own time.
    pub(super) fn of(
        stat: &Stat,
        order: SortOrder,
        symlinks: Symlinks,
        wall_secs: i64,
    ) -> Option<Self> {
        let is_steady = !order.needs_facts() && !hotness::is_racy(stat, wall_secs);
        is_steady.then(|| Self { identity: Identity::of(stat), order, symlinks })
    }
}

/// The readings of a worker's requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings(Rc<RefCell<Vec<Known>>>);

/// A reading that may be there no more.
type Known = (Key, Weak<RefCell<ListingStage>>);

/// What has been read, for all workers. Looked at when a large listing begins or has been read.
static FINISHED: Mutex<Vec<(Key, SharedWeak<Sorted>)>> = Mutex::new(Vec::new());

fn finished() -> MutexGuard<'static, Vec<(Key, SharedWeak<Sorted>)>> {
    // Nothing that holds the lock can panic half-way.
    FINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find_finished(key: Option<Key>) -> Option<ListingStage> {
    let key = key?;
    let known = finished();
    let found = known.iter().find(|(other, _)| *other == key)?;
    found.1.upgrade().map(ListingStage::Done)
}

fn publish(key: Option<Key>, sorted: &Arc<Sorted>) {
    let mut known = finished();
    known.retain(|(other, weak)| weak.strong_count() > 0 && Some(*other) != key);
    known.extend(key.map(|key| (key, Arc::downgrade(sorted))));
}

/// A folder that is being read for one request or several. Each of them takes it a step further when it has
/// its turn, so it goes on if one of them ends.
#[derive(Clone, Debug)]
pub(super) struct SharedReading {
    stage: Rc<RefCell<ListingStage>>,
    key: Option<Key>,
}

#[derive(Debug)]
enum ListingStage {
    Reading(Box<Reading>),
    Done(Arc<Sorted>),
    Failed(ReadError),
}

impl Readings {
    /// The one that is there already.
    pub(super) fn find(&self, key: Option<Key>) -> Option<SharedReading> {
        let own = {
            let known = self.0.borrow();
            let found = known.iter().find(|(other, _)| Some(*other) == key);
            found.and_then(|(_, weak)| weak.upgrade())
        };
        // A request after a failure tries again.
        let own = own.filter(|stage| !matches!(*stage.borrow(), ListingStage::Failed(_)));
        let others = || find_finished(key).map(|stage| Rc::new(RefCell::new(stage)));
        own.or_else(others).map(|stage| SharedReading { stage, key })
    }

    /// Begins a large one, which others may join.
    pub(super) fn begin(
        &self,
        key: Option<Key>,
        mut reading: Reading,
    ) -> Result<SharedReading, ReadError> {
        let stage = match reading.account() {
            Ok(()) => ListingStage::Reading(Box::new(reading)),
            // Another worker may have it by now.
            Err(error) => find_finished(key).ok_or(error)?,
        };
        let stage = Rc::new(RefCell::new(stage));
        let mut known = self.0.borrow_mut();
        known.retain(|(other, weak)| weak.strong_count() > 0 && Some(*other) != key);
        known.extend(key.map(|key| (key, Rc::downgrade(&stage))));
        Ok(SharedReading { stage, key })
    }
}

impl SharedReading {
    /// Reads some more; a way through all entries when they are there.
    pub(super) fn step(&self) -> Result<Option<Entries>, ReadError> {
        let mut stage = self.stage.borrow_mut();
        if let ListingStage::Reading(reading) = &mut *stage {
            match reading.step() {
                Ok(false) => return Ok(None),
                Ok(true) => {}
                Err(error) => {
                    *stage = find_finished(self.key).unwrap_or(ListingStage::Failed(error));
                }
            }
        }
        let now = std::mem::replace(&mut *stage, ListingStage::Failed(ReadError::OverBudget));
        *stage = match now {
            ListingStage::Reading(reading) => {
                let sorted = Arc::new(reading.finish());
                publish(self.key, &sorted);
                ListingStage::Done(sorted)
            }
            other => other,
        };
        match &*stage {
            ListingStage::Done(sorted) => {
                let reading: Rc<dyn std::fmt::Debug> =
                    Rc::<RefCell<ListingStage>>::clone(&self.stage);
                Ok(Some(Entries::of_reading(Arc::clone(sorted), reading)))
            }
            ListingStage::Failed(error) => Err(*error),
            ListingStage::Reading(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Folder;
    use super::super::order::By;
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const BY_NAME: SortOrder = SortOrder { by: By::Name, is_descending: false };
    /// Long after anything that a test makes.
    const LATER: i64 = i64::MAX / 2;

    fn open(path: &std::path::Path) -> (Reading, Stat) {
        let path = path.as_os_str().as_bytes();
        let (folder, stat) = Folder::open(path, path.len(), Symlinks::Follow).expect("a folder");
        (Reading::new(folder, BY_NAME), stat)
    }

    fn all(shared: &SharedReading) -> usize {
        let mut entries = loop {
            if let Some(entries) = shared.step().expect("readable") {
                break entries;
            }
        };
        let mut count = 0;
        while entries.next().expect("readable").is_some() {
            count += 1;
        }
        count
    }

    /// X8: equal requests at the same time hold one reading, also when its first one has gone.
    #[test]
    fn equal_requests_share_one_reading() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for number in 0..3000 {
            std::fs::write(dir.path().join(format!("f{number}")), "").expect("a file");
        }
        let readings = Readings::default();
        let (reading, stat) = open(dir.path());
        let key = Key::of(&stat, BY_NAME, Symlinks::Follow, LATER);
        assert!(key.is_some() && readings.find(key).is_none());
        let before = crate::memory::budget(crate::memory::Class::Listings).taken();
        let first = readings.begin(key, reading).expect("there is room");
        assert!(first.step().expect("readable").is_none(), "there is more");
        let second = readings.find(key).expect("it is there");
        assert_eq!(all(&first), 3000);
        drop(first);
        assert_eq!(all(&second), 3000);
        assert!(crate::memory::budget(crate::memory::Class::Listings).taken() > before + 3000 * 24);
        let entries = second.step().expect("readable");
        drop(second);
        assert!(readings.find(key).is_some(), "the request that shows it still has it");
        let elsewhere = Readings::default().find(key).expect("another worker finds it");
        assert_eq!(all(&elsewhere), 3000);
        drop(elsewhere);
        drop(entries);
        assert!(readings.find(key).is_none(), "nothing is kept");
        assert_eq!(crate::memory::budget(crate::memory::Class::Listings).taken(), before);
    }

    /// F4: a client that changes a folder and looks at it sees what was changed.
    #[test]
    fn a_folder_that_has_changed_is_read_anew() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("a"), "").expect("a file");
        let readings = Readings::default();
        let (reading, stat) = open(dir.path());
        let changed = stat.st_ctime;
        assert!(Key::of(&stat, BY_NAME, Symlinks::Follow, changed).is_none(), "just changed");
        let by_size = SortOrder { by: By::Size, is_descending: false };
        assert!(Key::of(&stat, by_size, Symlinks::Follow, LATER).is_none(), "sizes change unseen");
        let key = Key::of(&stat, BY_NAME, Symlinks::Follow, LATER);
        let _first = readings.begin(key, reading).expect("there is room");
        std::fs::write(dir.path().join("b"), "").expect("a file");
        let (_, stat) = open(dir.path());
        assert!(readings.find(Key::of(&stat, BY_NAME, Symlinks::Follow, LATER)).is_none());
        let other = Key::of(&stat, BY_NAME, Symlinks::Deny, LATER);
        assert!(readings.find(other).is_none());
    }
}
