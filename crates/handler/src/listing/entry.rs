//! The entries of a folder: read in slices, kept in runs that are each in order, and merged when they are
//! shown. No step takes long, however many there are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, RawDir, Stat};
use rustix::io::Errno;
use sekisho_config::Symlinks;
use sekisho_lifecycle::Share;

use super::order::SortOrder;
use super::{is_lack, readme};
use crate::file_cache;
use crate::memory::{self, Class};

/// How many entries a listing has at the most, and how many bytes of names.
const ENTRIES_MAX: usize = 1_000_000;
const NAME_BYTES_MAX: usize = 64 << 20;
/// A run is put in order when it has so many entries: that takes about a millisecond.
const RUN_ENTRIES: usize = 2048;
/// What one call takes from the kernel: about a thousand names.
const READ_BYTES: usize = 32 << 10;
/// How many names that cannot be asked for are remembered.
const ODD_MAX: usize = 16;

/// What is known about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Facts {
    pub(super) size: u64,
    pub(super) modified: i64,
}

/// One entry; its name is in its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    name_at: u32,
    name_bytes: u16,
    pub(super) is_folder: bool,
    has: Known,
    pub(super) facts: Facts,
}

/// What is known of an entry beside its name. One byte, as there may be many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Kind,
    /// Facts that the order needs.
    Facts,
    /// The name is a link.
    Link,
    LinkAndFacts,
}

impl Entry {
    /// One whose name is kept elsewhere.
    pub(super) const fn of(is_folder: bool, facts: Facts) -> Self {
        Self { name_at: 0, name_bytes: 0, is_folder, has: Known::Facts, facts }
    }
}

/// Some entries, which become a run when they are in order.
#[derive(Debug, Default)]
struct Run {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

impl Run {
    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name_at as usize;
        &self.names[start..start + usize::from(entry.name_bytes)]
    }

    fn sort(&mut self, order: SortOrder) {
        let Self { names, entries } = self;
        let name = |entry: &Entry| {
            let start = entry.name_at as usize;
            &names[start..start + usize::from(entry.name_bytes)]
        };
        entries.sort_unstable_by(|a, b| order.compare((a, name(a)), (b, name(b))));
    }

    /// What it holds in memory.
    fn memory_bytes(&self) -> usize {
        self.names.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

/// Why a folder cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadError {
    /// What the system says.
    System(Errno),
    /// Listings and archives hold as much memory as they may.
    OverBudget,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// An opened folder.
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: OwnedFd,
    symlinks: Symlinks,
}

impl Folder {
    /// Opens it as a file there would be (F2).
    pub(super) fn open(
        path: &[u8],
        root_bytes: usize,
        symlinks: Symlinks,
    ) -> Result<(Self, Stat), Errno> {
        let (descriptor, stat) = file_cache::open(path, root_bytes, symlinks)?;
        Ok((Self { descriptor, symlinks }, stat))
    }

    /// Whether a name is listed here.
    pub(super) fn lists(&self, name: &[u8]) -> bool {
        let is_one = is_shown(name) && !name.is_empty() && !name.contains(&b'/');
        let name = CString::new(name).ok().filter(|_| is_one);
        name.is_some_and(|name| matches!(self.look(&name), Ok(Some(_)) | Err(_)))
    }

    /// What a name refers to: whether it is a folder, and its facts. `None` for what is not served: a
    /// link that would not be followed or leads nowhere, a device, a socket, a file that is gone. An error is
    /// a lack of resources of ours: a listing without an existing file would be wrong.
    fn look(&self, name: &CStr) -> Result<Option<(bool, Facts)>, Errno> {
        // A link that would not be followed to be read is not followed to be shown.
        let flags = match self.symlinks {
            Symlinks::Follow => AtFlags::empty(),
            Symlinks::Deny | Symlinks::IfSameOwner => AtFlags::SYMLINK_NOFOLLOW,
        };
        let Some(mut stat) = self.stat(name, flags)? else { return Ok(None) };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let Some(target) = self.stat(name, AtFlags::empty())? else { return Ok(None) };
            if self.symlinks != Symlinks::IfSameOwner || target.st_uid != stat.st_uid {
                return Ok(None);
            }
            stat = target;
        }
        let is_folder = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::Directory => true,
            _ => return Ok(None),
        };
        let facts = Facts { size: stat.st_size as u64, modified: stat.st_mtime.max(0) };
        Ok(Some((is_folder, facts)))
    }

    fn stat(&self, name: &CStr, flags: AtFlags) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.descriptor, name, flags) {
            Ok(stat) => Ok(Some(stat)),
            Err(errno) if is_lack(errno) => Err(errno),
            Err(_) => Ok(None),
        }
    }
}

/// A folder that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    folder: Folder,
    order: SortOrder,
    buffer: Vec<u8>,
    run: Run,
    sorted: Vec<Arc<Run>>,
    /// What `sorted` holds in memory, and what is taken from the budget for it and for what is to come.
    sorted_bytes: usize,
    share: Option<Share>,
    /// The name of the file that is shown below the listing, the best so far.
    readme: Option<Vec<u8>>,
    /// Names with control characters, which cannot be asked for; the first ones.
    odd: Vec<Vec<u8>>,
    name_bytes: usize,
    count: usize,
    is_cut: bool,
}

impl Reading {
    pub(super) fn new(folder: Folder, order: SortOrder) -> Self {
        Self {
            folder,
            order,
            buffer: Vec::with_capacity(READ_BYTES),
            run: Run::default(),
            odd: Vec::new(),
            sorted: Vec::new(),
            sorted_bytes: 0,
            share: None,
            readme: None,
            name_bytes: 0,
            count: 0,
            is_cut: false,
        }
    }

    /// How many entries have been read.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// It is a large one: what it holds is taken from the budget from now on.
    pub(super) fn account(&mut self) -> Result<(), ReadError> {
        let bytes = self.memory_bytes();
        self.share = memory::budget(Class::Listings).take(bytes);
        if self.share.is_some() { Ok(()) } else { Err(ReadError::OverBudget) }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.buffer.capacity() + self.sorted_bytes + self.run.memory_bytes()
    }

    /// Reads some more; whether that was all.
    pub(super) fn step(&mut self) -> Result<bool, ReadError> {
        let is_done = self.read()?;
        let bytes = self.memory_bytes();
        let has_room = self.share.as_mut().is_none_or(|share| share.resize(bytes));
        if has_room { Ok(is_done) } else { Err(ReadError::OverBudget) }
    }

    fn read(&mut self) -> Result<bool, Errno> {
        let mut raw = RawDir::new(&self.folder.descriptor, self.buffer.spare_capacity_mut());
        let is_done = loop {
            let Some(entry) = raw.next() else { break true };
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type());
            if is_shown(name.to_bytes()) {
                let found = match kind {
                    FileType::RegularFile | FileType::Directory if !self.order.needs_facts() => {
                        Some((kind == FileType::Directory, None))
                    }
                    FileType::Socket
                    | FileType::Fifo
                    | FileType::CharacterDevice
                    | FileType::BlockDevice => None,
                    // Where they are not needed yet, facts are looked at when they are shown: they may change.
                    _ => self.folder.look(name)?.map(|(is_folder, facts)| {
                        (is_folder, self.order.needs_facts().then_some(facts))
                    }),
                };
                if let Some((is_folder, facts)) = found {
                    let name = name.to_bytes();
                    if self.count == ENTRIES_MAX || self.name_bytes + name.len() > NAME_BYTES_MAX {
                        self.is_cut = true;
                        break true;
                    }
                    self.run.entries.push(Entry {
                        name_at: self.run.names.len() as u32,
                        name_bytes: name.len() as u16,
                        is_folder,
                        has: match (kind == FileType::Symlink, facts.is_some()) {
                            (false, false) => Known::Kind,
                            (false, true) => Known::Facts,
                            (true, false) => Known::Link,
                            (true, true) => Known::LinkAndFacts,
                        },
                        facts: facts.unwrap_or_default(),
                    });
                    self.run.names.extend_from_slice(name);
                    self.name_bytes += name.len();
                    self.count += 1;
                    if !is_folder && readme::is_better(name, self.readme.as_deref()) {
                        self.readme = Some(name.to_vec());
                    }
                }
            }
            if is_odd(name.to_bytes()) && self.odd.len() < ODD_MAX {
                self.odd.push(name.to_bytes().to_vec());
            }
            if raw.is_buffer_empty() {
                break false;
            }
        };
        if is_done || self.run.entries.len() >= RUN_ENTRIES {
            let mut run = std::mem::take(&mut self.run);
            run.sort(self.order);
            run.names.shrink_to_fit();
            run.entries.shrink_to_fit();
            self.sorted_bytes += run.memory_bytes();
            self.sorted.push(Arc::new(run));
        }
        Ok(is_done)
    }

    /// What has been read.
    pub(super) fn finish(self) -> Sorted {
        let Self { folder, order, mut sorted, readme, odd, is_cut, share, .. } = self;
        sorted.retain(|run| !run.entries.is_empty());
        Sorted { folder, order, runs: sorted, readme, odd, is_cut, _share: share }
    }
}

/// The entries of a folder that has been read, in runs that are each in order. Several may go through them at a
/// time.
#[derive(Debug)]
pub(super) struct Sorted {
    folder: Folder,
    order: SortOrder,
    runs: Vec<Arc<Run>>,
    readme: Option<Vec<u8>>,
    odd: Vec<Vec<u8>>,
    is_cut: bool,
    _share: Option<Share>,
}

/// Whether a name is listed: hidden ones are not, nor those that no target can ask for (V20).
pub(super) fn is_shown(name: &[u8]) -> bool {
    !name.starts_with(b".") && !name.iter().any(u8::is_ascii_control)
}

/// Whether a name would be listed if it could be asked for.
fn is_odd(name: &[u8]) -> bool {
    !name.starts_with(b".") && !is_shown(name)
}

/// An entry as it is shown: its name, whether it is a folder, and its facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) name: &'a [u8],
    pub(super) is_folder: bool,
    /// The name is a link: what is removed or renamed is the link.
    pub(super) is_link: bool,
    pub(super) facts: Facts,
}

/// A way through the entries of a folder, in their order.
#[derive(Debug)]
pub(super) struct Entries {
    sorted: Arc<Sorted>,
    runs: BinaryHeap<Ordered>,
    /// The name that is being shown, ended by NUL.
    name: Vec<u8>,
    /// The reading that others may join as long as this is there.
    _reading: Option<Rc<dyn std::fmt::Debug>>,
}

impl Entries {
    /// From the first entry on.
    pub(super) fn of(sorted: Arc<Sorted>) -> Self {
        let order = sorted.order;
        let runs = sorted.runs.iter().map(|run| Ordered { run: Arc::clone(run), shown: 0, order });
        Self { runs: runs.collect(), name: Vec::new(), sorted, _reading: None }
    }

    /// The same for a reading that others may join.
    pub(super) fn of_reading(sorted: Arc<Sorted>, reading: Rc<dyn std::fmt::Debug>) -> Self {
        Self { _reading: Some(reading), ..Self::of(sorted) }
    }

    /// Whether there are more than are listed.
    pub(super) fn is_cut(&self) -> bool {
        self.sorted.is_cut
    }

    /// The next entry. What is gone by now is left out.
    pub(super) fn next(&mut self) -> Result<Option<Shown<'_>>, Errno> {
        loop {
            let Some(entry) = self.pop() else { return Ok(None) };
            let is_link = matches!(entry.has, Known::Link | Known::LinkAndFacts);
            if matches!(entry.has, Known::Facts | Known::LinkAndFacts) {
                let Entry { is_folder, facts, .. } = entry;
                return Ok(Some(Shown { name: self.name(), is_folder, is_link, facts }));
            }
            let name = CStr::from_bytes_with_nul(&self.name).unwrap_or_default();
            // A file that has become a folder meanwhile keeps its position, but is shown as a folder.
            if let Some((is_folder, facts)) = self.sorted.folder.look(name)? {
                return Ok(Some(Shown { name: self.name(), is_folder, is_link, facts }));
            }
        }
    }

    /// Names in the folder that are not listed as they have control characters; some of them, if there are many.
    pub(super) fn odd(&self) -> &[Vec<u8>] {
        &self.sorted.odd
    }

    /// Whether the entry that came last is a symbolic link.
    pub(super) fn is_link(&self) -> bool {
        let name = CStr::from_bytes_with_nul(&self.name).unwrap_or_default();
        let stat =
            rustix::fs::statat(&self.sorted.folder.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// The name of the file to show below the listing.
    pub(super) fn readme(&self) -> Option<&[u8]> {
        self.sorted.readme.as_deref()
    }

    fn name(&self) -> &[u8] {
        self.name.strip_suffix(b"\0").unwrap_or_default()
    }

    fn pop(&mut self) -> Option<Entry> {
        let mut top = self.runs.peek_mut()?;
        let entry = *top.run.entries.get(top.shown)?;
        self.name.clear();
        self.name.extend_from_slice(top.run.name(&entry));
        self.name.push(0);
        top.shown += 1;
        if top.shown == top.run.entries.len() {
            PeekMut::pop(top);
        }
        Some(entry)
    }
}

/// A run among others: the greatest is the one whose next entry comes first.
#[derive(Debug)]
struct Ordered {
    run: Arc<Run>,
    /// How many of it have been shown.
    shown: usize,
    order: SortOrder,
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        let next = |of: &Self| of.run.entries.get(of.shown).copied();
        match (next(self), next(other)) {
            (Some(a), Some(b)) => {
                let (a_name, b_name) = (self.run.name(&a), other.run.name(&b));
                self.order.compare((&a, a_name), (&b, b_name)).reverse()
            }
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

#[cfg(test)]
mod tests {
    use super::super::order::By;
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{lchown, symlink};
    use std::path::Path;

    const BY_NAME: SortOrder = SortOrder { by: By::Name, is_descending: false };

    fn names(
        path: &Path,
        root: &Path,
        symlinks: Symlinks,
        order: SortOrder,
    ) -> Result<Vec<String>, ReadError> {
        let root_bytes = root.as_os_str().len();
        let (folder, _) = Folder::open(path.as_os_str().as_bytes(), root_bytes, symlinks)?;
        let mut reading = Reading::new(folder, order);
        while !reading.step()? {}
        let mut entries = Entries::of(Arc::new(reading.finish()));
        let mut names = Vec::new();
        while let Some(Shown { name, .. }) = entries.next()? {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// F2: what may not be read because of a link is not listed either.
    #[test]
    fn links_are_judged_as_they_are_for_files() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).expect("a folder");
        std::fs::write(at("folder/file"), "text").expect("a file");
        symlink("file", at("folder/link")).expect("a link");
        symlink("file", at("folder/others")).expect("a link");
        symlink("nowhere", at("folder/nowhere")).expect("a link");
        symlink("folder", at("way")).expect("a link");
        // Only root can make a link that is another's.
        let is_root = lchown(at("folder/others"), Some(12345), None).is_ok();
        let list = |name: &str, symlinks| names(&at(name), dir.path(), symlinks, BY_NAME);
        let follow = list("way", Symlinks::Follow).expect("listed");
        assert_eq!(follow, ["file", "link", "others"]);
        assert!(list("way", Symlinks::Deny).is_err());
        assert_eq!(list("folder", Symlinks::Deny).expect("listed"), ["file"]);
        if is_root {
            let owned = list("way", Symlinks::IfSameOwner).expect("listed");
            assert_eq!(owned, ["file", "link"]);
        }
    }

    /// F4: what is not served is not listed: hidden names, devices, sockets, names that no target has.
    #[test]
    fn only_what_can_be_asked_for_is_listed() {
        use rustix::fs::{CWD, Mode, mknodat};
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["a", ".hidden", "new\nline", "del\u{7f}", "b\\c"] {
            std::fs::write(at(name), "").expect("a file");
        }
        std::fs::create_dir(at("folder")).expect("a folder");
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("a fifo");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        symlink("fifo", at("to-fifo")).expect("a link");
        let listed = names(dir.path(), dir.path(), Symlinks::Follow, BY_NAME).expect("listed");
        assert_eq!(listed, ["folder", "a", "b\\c"]);
    }

    /// F4: many runs come out as one order.
    #[test]
    fn runs_are_merged_in_every_order() {
        const COUNT: usize = RUN_ENTRIES * 3 + 17;
        let dir = tempfile::tempdir().expect("a temporary directory");
        for number in 0..COUNT {
            let file = std::fs::File::create(dir.path().join(format!("f{number}"))).expect("made");
            file.set_len((number * 7919 % COUNT) as u64).expect("a length");
        }
        std::fs::create_dir(dir.path().join("z")).expect("a folder");
        let listed = |by, is_descending| {
            let order = SortOrder { by, is_descending };
            let listed = names(dir.path(), dir.path(), Symlinks::Follow, order).expect("listed");
            assert_eq!(listed[0], "z");
            let number = |name: &String| name[1..].parse::<usize>().expect("a number");
            listed[1..].iter().map(number).collect::<Vec<_>>()
        };
        assert_eq!(listed(By::Name, false), (0..COUNT).collect::<Vec<_>>());
        assert_eq!(listed(By::Name, true), (0..COUNT).rev().collect::<Vec<_>>());
        let size = |number: &usize| number * 7919 % COUNT;
        assert!(listed(By::Size, false).is_sorted_by_key(size));
        assert!(listed(By::Size, true).iter().rev().is_sorted_by_key(size));
    }
}
