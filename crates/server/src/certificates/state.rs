//! What is kept on disk: accounts, keys and certificates, each file written atomically and readable for its
//! owner alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes a folder, and gives it to the server's later user. An existing one stays as it is.
pub(crate) fn make_folder(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    DirBuilder::new().mode(FOLDER_MODE).create(path)?;
    match owner {
        Some((uid, gid)) if uid != 0 => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        _ => Ok(()),
    }
}

/// Writes a file that appears whole or not at all.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_folder(folder, None)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = folder.join(name);
    // An unfinished file of an earlier process would make the creation fail, and may be readable by others.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Has the folder for one process at a time, until it is dropped: a new process and the one that it replaces
/// do not order the same.
pub(super) fn lock(folder: &Path) -> io::Result<Option<File>> {
    make_folder(folder, None)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.open(folder.join("lock"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_whole_and_for_us_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/a.pem");
        for content in [&b"one"[..], b"two"] {
            write(&path, content).expect("written");
            assert_eq!(fs::read(&path).expect("a file"), content);
        }
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&folder.path().join("state")), 0o700);
        assert_eq!(fs::read_dir(folder.path().join("state")).expect("a folder").count(), 1);
    }

    #[test]
    fn a_folder_is_for_one_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = lock(folder.path()).expect("a lock");
        assert!(first.is_some());
        assert!(lock(folder.path()).expect("an answer").is_none());
        drop(first);
        assert!(lock(folder.path()).expect("a lock").is_some());
    }
}
