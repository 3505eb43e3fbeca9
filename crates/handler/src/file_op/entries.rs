//! What lies below a folder, looked at before an operation on the whole folder changes anything: each entry
//! must be one that the request's location answers for, under its old and under its new path, and none may
//! become a program (F6, V18, V26). A client that may not change a file may not change it through the folder
//! around it either.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sekisho_config::LocationId;
use sekisho_http::Status;
use sekisho_route::Table;

use super::{Call, Failure, Stop, beneath, delete};

/// How many entries there may be below a folder, where each of them has to be looked at.
const ENTRIES_MAX: usize = 100_000;
/// How long the paths of folders that are still to be read may be together.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The kernel takes no longer path in one call.
const PATH_BYTES_MAX: usize = 4000;

/// A folder that was read: device and inode.
pub(super) type FolderId = (u64, u64);

pub(super) fn id_of(folder: impl AsFd) -> Result<FolderId, Errno> {
    let stat = rustix::fs::fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The check of one operation.
#[derive(Clone, Debug)]
pub(super) struct EntryCheck {
    table: Arc<Table>,
    location: LocationId,
    /// The paths, each with a closing slash, under which the entries are asked for now and afterwards.
    paths: Vec<Vec<u8>>,
    /// Whether what a link leads to will be reachable under the new path, too.
    follows_links: bool,
    is_needed: bool,
    stop: Stop,
}

impl EntryCheck {
    /// For a folder that is deleted.
    pub(super) fn of_delete(
        call: &Call<'_>,
        table: Arc<Table>,
        path: Vec<u8>,
        stop: &Stop,
    ) -> Self {
        Self::new(call, table, vec![path], false, stop)
    }

    /// For a folder that is copied or moved to this path.
    pub(super) fn of_change(
        call: &Call<'_>,
        table: Arc<Table>,
        source: Vec<u8>,
        destination: Vec<u8>,
        stop: &Stop,
    ) -> Self {
        let paths = vec![source, destination];
        Self::new(call, table, paths, true, stop)
    }

    fn new(
        call: &Call<'_>,
        table: Arc<Table>,
        paths: Vec<Vec<u8>>,
        follows_links: bool,
        stop: &Stop,
    ) -> Self {
        let location = call.route_state.location;
        let is_needed = paths.iter().any(|path| table.has_entries_to_check(location, path));
        Self { table, location, paths, follows_links, is_needed, stop: stop.clone() }
    }

    /// Whether this entry, a path below the folder, may be taken along.
    fn allows(&self, below: &[u8]) -> bool {
        let is_allowed =
            |path: &Vec<u8>| self.table.is_entry_of(self.location, &[path, below].concat());
        self.paths.iter().all(is_allowed)
    }

    /// The same for one that is met while the operation goes on; the path of a folder ends with a slash.
    pub(super) fn check_entry(&self, below: &[u8]) -> Result<(), Failure> {
        if !self.is_needed || self.allows(below) { Ok(()) } else { Err(refused(below)) }
    }

    /// Walks through all that is below the folder. Which folders were read: whatever appears in one of
    /// them later has not been looked at.
    pub(super) fn walk(&self, folder: &OwnedFd, name: &[u8]) -> Result<HashSet<FolderId>, Failure> {
        let mut seen = HashSet::new();
        if !self.is_needed {
            return Ok(seen);
        }
        let top = delete::open_to_read(folder, name)
            .map_err(|errno| Failure::by(errno, Status::NOT_FOUND, "read folder", name))?;
        let mut waiting = vec![(Vec::new(), false)];
        let (mut waiting_bytes, mut count) = (0, 0);
        while let Some((path, is_link)) = waiting.pop() {
            waiting_bytes -= path.len();
            let fail = |errno| Failure::by(errno, Status::CONFLICT, "read folder", &path);
            let opened = match self.open(&top, &path) {
                Ok(opened) => opened,
                // A link to a file, to nothing or to what we may not enter. (A folder that cannot be read but can be
                // entered hides names that clients may know.)
                Err(Errno::NOTDIR | Errno::NOENT | Errno::ACCESS) if is_link => continue,
                Err(errno) => return Err(fail(errno)),
            };
            seen.insert(id_of(&opened).map_err(fail)?);
            for entry in Dir::read_from(&opened).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                self.stop.check().map_err(fail)?;
                count += 1;
                let mut below = [&path, name].concat();
                let kind = match entry.file_type() {
                    FileType::Unknown => {
                        let stat = beneath::look(&opened, name).map_err(fail)?;
                        stat.map_or(FileType::Unknown, |stat| beneath::kind(&stat))
                    }
                    kind => kind,
                };
                if !name.starts_with(sekisho_route::OWN_PREFIX) && !self.allows(&below) {
                    return Err(refused(&below));
                }
                let is_link = kind == FileType::Symlink && self.follows_links;
                if kind == FileType::Directory || is_link {
                    below.push(b'/');
                    if !self.allows(&below) {
                        return Err(refused(&below));
                    }
                    waiting_bytes += below.len();
                    waiting.push((below, is_link));
                }
                if count > ENTRIES_MAX || waiting_bytes > WAITING_BYTES_MAX {
                    return Err(Failure::because(
                        Status::FORBIDDEN,
                        "refused to change a folder: too many entries to check",
                    ));
                }
            }
        }
        Ok(seen)
    }

    /// A folder below the one that is walked through.
    fn open(&self, top: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = delete::open_to_read(top, b".")?;
        let mut rest = path;
        while !rest.is_empty() {
            let end = rest.len().min(PATH_BYTES_MAX);
            let cut =
                rest[..end].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let part = &rest[..cut];
            let opened = if self.follows_links {
                rustix::fs::openat(&at, part, flags, Mode::empty())
            } else {
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                match rustix::fs::openat2(&at, part, flags, Mode::empty(), resolve) {
                    Err(Errno::NOSYS) => {
                        rustix::fs::openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty())
                    }
                    opened => opened,
                }
            };
            at = opened?;
            rest = &rest[cut + 1..];
        }
        Ok(at)
    }
}

fn refused(below: &[u8]) -> Failure {
    let below = below.escape_ascii();
    let why = format!(
        "refused to change a folder: another location is responsible for \"{below}\" in it"
    );
    Failure { why: Some(why), ..Failure::of(Status::FORBIDDEN) }
}
