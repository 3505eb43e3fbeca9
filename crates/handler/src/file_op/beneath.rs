//! Names below a root, reached by descriptors: the folder is opened once, and every further step is
//! relative to it. So nothing outside the root is ever touched, even if folders are swapped for links
//! meanwhile (F2, V19): what a link leads out to is not followed, and a link at the last name is never
//! followed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sekisho_config::Symlinks;

use super::temp::Temp;

/// How many folders may be missing on the way to an upload.
const MISSING_MAX: usize = 128;
/// How often a name is looked up again when the tree changes just then.
const TRIES: usize = 16;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a folder that is open.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The folder, or the deepest one on the way there that exists.
    pub(super) folder: Arc<OwnedFd>,
    /// Folders between it and the name that are not there.
    pub(super) missing: Vec<Vec<u8>>,
    /// The name; empty for the root itself.
    pub(super) name: Vec<u8>,
    /// Whether it was written with a closing slash.
    pub(super) is_folder: bool,
    /// By which path the folder was found.
    origin: Arc<Origin>,
}

/// How a folder was found.
#[derive(Debug)]
struct Origin {
    root: Vec<u8>,
    folders: Vec<Vec<u8>>,
    symlinks: Symlinks,
}

impl Origin {
    fn open(&self) -> Result<OwnedFd, Errno> {
        let parts: Vec<&[u8]> = self.folders.iter().map(Vec::as_slice).collect();
        open_below(&open_root(&self.root)?, &parts, self.symlinks)
    }
}

impl Spot {
    /// Finds the folder that the last name of `file` is in. Its first `root_bytes` are a directory that
    /// the configuration named.
    pub(super) fn find(
        file: &[u8],
        root_bytes: usize,
        symlinks: Symlinks,
        may_miss: bool,
    ) -> Result<Self, Errno> {
        let (root, rest) = file.split_at(root_bytes.min(file.len()));
        let parts: Vec<&[u8]> =
            rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let is_folder = rest.last().is_none_or(|byte| *byte == b'/');
        if parts.iter().any(|part| matches!(*part, b"." | b"..")) {
            return Err(Errno::XDEV);
        }
        let root_path = root;
        let root = open_root(root_path)?;
        let origin = |folders: &[&[u8]]| {
            let folders = folders.iter().map(|part| part.to_vec()).collect();
            Arc::new(Origin { root: root_path.to_vec(), folders, symlinks })
        };
        let Some((name, folders)) = parts.split_last() else {
            let (folder, origin) = (Arc::new(root), origin(&[]));
            return Ok(Self { folder, missing: Vec::new(), name: Vec::new(), is_folder, origin });
        };
        let mut there = folders.len();
        let folder = loop {
            match open_below(&root, &folders[..there], symlinks) {
                Ok(folder) => break folder,
                Err(Errno::NOENT) if may_miss && there > 0 => there -= 1,
                Err(errno) => return Err(errno),
            }
            if folders.len() - there > MISSING_MAX {
                return Err(Errno::NOENT);
            }
        };
        Ok(Self {
            folder: Arc::new(folder),
            missing: folders[there..].iter().map(|part| part.to_vec()).collect(),
            name: name.to_vec(),
            is_folder,
            origin: origin(&folders[..there]),
        })
    }

    /// Whether what was seen here is a link that leads to a folder.
    pub(super) fn is_link_to_folder(&self, there: &Stat) -> bool {
        let seen = || rustix::fs::statat(&*self.folder, &*self.name, AtFlags::empty());
        kind(there) == FileType::Symlink
            && seen().is_ok_and(|target| kind(&target) == FileType::Directory)
    }

    /// Whether the folder is still the one that its path leads to: the rules of the path hold for it. `STALE`
    /// where it was moved, or removed, since.
    pub(super) fn check_place(&self) -> Result<(), Errno> {
        let now = match self.origin.open() {
            Ok(now) => rustix::fs::fstat(now)?,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(Errno::STALE),
            Err(errno) => return Err(errno),
        };
        let own = rustix::fs::fstat(&*self.folder)?;
        let is_same = (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino);
        if is_same { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Another name in the same folder.
    pub(super) fn named(&self, name: &[u8]) -> Self {
        Self { name: name.to_vec(), is_folder: false, ..self.clone() }
    }

    /// A file that is yet to appear here.
    pub(super) fn new_file(&self) -> Result<Temp, Errno> {
        // An error in a removed folder says little about the cause.
        Temp::new(&self.folder).or_else(|errno| self.check_place().and(Err(errno)))
    }

    /// What there is, without following a link. Nothing where its folder is missing.
    pub(super) fn look(&self) -> Result<Option<Stat>, Errno> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        look(&self.folder, &self.name)
    }

    /// Makes the folders that are missing.
    pub(super) fn make_folders(&self, mode: u32) -> Result<Made, Errno> {
        let mut folders = Made { folder: Arc::clone(&self.folder), own: Vec::new() };
        for name in &self.missing {
            folders.enter(name, mode)?;
        }
        Ok(folders)
    }
}

/// Folders that were made for something that is not there yet; gone again unless it comes.
#[derive(Debug)]
pub(super) struct Made {
    /// The last of them.
    pub(super) folder: Arc<OwnedFd>,
    own: Vec<(Arc<OwnedFd>, Vec<u8>)>,
}

impl Made {
    fn enter(&mut self, name: &[u8], mode: u32) -> Result<(), Errno> {
        match make_folder(&self.folder, name, mode) {
            Ok(()) => self.own.push((Arc::clone(&self.folder), name.to_vec())),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        self.folder = Arc::new(open_folder(&self.folder, name)?);
        Ok(())
    }

    /// What they were made for has come.
    pub(super) fn keep(mut self) -> Arc<OwnedFd> {
        self.own.clear();
        Arc::clone(&self.folder)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (folder, name) in self.own.drain(..).rev() {
            // Another client's file may be in it by now: then it stays.
            let _ = rustix::fs::unlinkat(&*folder, name, AtFlags::REMOVEDIR);
        }
    }
}

/// What there is of this name, without following a link.
pub(super) fn look(folder: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What kind of thing it is.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Makes a folder with exactly these permissions, whatever the umask.
pub(super) fn make_folder(folder: impl AsFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    rustix::fs::mkdirat(folder.as_fd(), name, Mode::from_raw_mode(mode))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One that its owner may not read keeps what the umask left.
    if let Ok(new) = rustix::fs::openat(folder, name, flags, Mode::empty()) {
        let _ = rustix::fs::fchmod(new, Mode::from_raw_mode(mode));
    }
    Ok(())
}

/// Opens a folder of this name that is no link.
pub(super) fn open_folder(folder: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// The root is the configuration's: links are followed in its name.
fn open_root(root: &[u8]) -> Result<OwnedFd, Errno> {
    let root = if root.is_empty() { b"/" } else { root };
    rustix::fs::open(root, FOLDER, Mode::empty())
}

fn open_below(root: &OwnedFd, parts: &[&[u8]], symlinks: Symlinks) -> Result<OwnedFd, Errno> {
    let path = if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') };
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if symlinks != Symlinks::Follow {
        // `if_not_owner`: where files are changed, no links are followed at all.
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    for _ in 0..TRIES {
        match rustix::fs::openat2(root, path.as_slice(), FOLDER, Mode::empty(), resolve) {
            // A folder on the path was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS) => return walk(root, parts),
            opened => return opened,
        }
    }
    Err(Errno::BUSY)
}

/// The same where the kernel cannot do it in one step: no link is followed at all.
fn walk(root: &OwnedFd, parts: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let mut at = root.try_clone().map_err(|_| Errno::MFILE)?;
    for part in parts {
        at = open_folder(&at, part)?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn find(root: &Path, rest: &str, symlinks: Symlinks) -> Result<Spot, Errno> {
        let mut file = root.as_os_str().as_bytes().to_vec();
        let root_bytes = file.len();
        file.extend_from_slice(rest.as_bytes());
        Spot::find(&file, root_bytes, symlinks, true)
    }

    /// V19
    #[test]
    fn a_link_that_leads_out_is_not_followed() {
        let tree = tempfile::tempdir().expect("a folder");
        let root = tree.path().join("root");
        std::fs::create_dir_all(root.join("in/side")).expect("folders");
        std::fs::create_dir(tree.path().join("out")).expect("a folder");
        symlink("../out", root.join("away")).expect("a link");
        symlink(tree.path().join("out"), root.join("far")).expect("a link");
        symlink("in", root.join("near")).expect("a link");
        for (rest, follow, deny) in [
            ("/x", true, true),
            ("/in/x", true, true),
            ("/in/side/", true, true),
            ("/near/x", true, false),
            ("/near", true, true),
            ("/away/x", false, false),
            ("/far/x", false, false),
            ("/away", true, true),
            ("/new/deep/x", true, true),
            ("/in/../x", false, false),
        ] {
            let find = |symlinks| find(&root, rest, symlinks);
            assert_eq!(find(Symlinks::Follow).is_ok(), follow, "{rest}");
            assert_eq!(find(Symlinks::Deny).is_ok(), deny, "{rest}");
            assert_eq!(find(Symlinks::IfSameOwner).is_ok(), deny, "{rest}");
        }
        let spot = find(&root, "/new/deep/x", Symlinks::Follow).expect("found");
        assert_eq!((spot.missing.len(), spot.name.as_slice()), (2, b"x".as_slice()));
        assert!(find(&root, "/", Symlinks::Follow).expect("the root").name.is_empty());
    }

    #[test]
    fn folders_that_were_made_for_nothing_are_gone() {
        let tree = tempfile::tempdir().expect("a folder");
        let spot = find(tree.path(), "/a/b/c", Symlinks::Follow).expect("found");
        drop(spot.make_folders(0o700).expect("made"));
        assert!(!tree.path().join("a").exists());
        spot.make_folders(0o750).expect("made").keep();
        assert!(tree.path().join("a/b").is_dir());
    }
}
