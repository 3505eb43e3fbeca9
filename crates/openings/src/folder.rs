//! Folders that root creates for the server's user: of caches, temporary bodies, ACME's state.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

const OWN: Mode = Mode::from_raw_mode(0o700);
const ABOVE: Mode = Mode::from_raw_mode(0o755);

/// Creates a folder and the missing ones above it, and gives it to an owner. An existing one stays as it is. Links in
/// what is created are not followed: the owner of a folder on the way cannot have root give it another folder.
pub fn make_folder(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let there = path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder: OwnedFd = rustix::fs::open(there, flags, Mode::empty())?;
    let missing = path.strip_prefix(there).unwrap_or(path);
    let mut names = missing.components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(ErrorKind::InvalidInput.into()) };
        let mode = if names.peek().is_some() { ABOVE } else { OWN };
        match rustix::fs::mkdirat(&folder, name, mode) {
            // Another process may be as fast as we are; what is there must be a folder of ours.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        if rustix::fs::fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("a folder of another user was put there"));
        }
    }
    match owner {
        Some((uid, gid)) if uid != 0 => {
            Ok(rustix::fs::fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_created_with_those_above_it_and_no_link_is_followed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        make_folder(&at("a/b/c"), None).expect("created");
        make_folder(&at("a/b/c"), None).expect("it stays");
        let mode = |name: &str| std::fs::metadata(at(name)).expect("there").mode() & 0o777;
        assert_eq!((mode("a/b/c"), mode("a/b")), (0o700, 0o755));
        symlink(at("nowhere"), at("link")).expect("a link");
        make_folder(&at("link/x"), None).expect_err("a link is not followed");
        assert!(!at("nowhere").exists());
        if rustix::process::geteuid().is_root() {
            make_folder(&at("theirs"), Some((65_534, 65_534))).expect("created");
            assert_eq!(std::fs::metadata(at("theirs")).expect("there").uid(), 65_534);
        }
    }
}
