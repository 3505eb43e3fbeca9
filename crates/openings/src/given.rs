//! The descriptors of a worker process that its parent opened. There is one set in a process: the one that came with
//! the last start or reload.
//!
//! A file is opened by its path first, with the rights of the process, so that a file that was replaced is read anew;
//! the given descriptor serves where that is denied. Texts of the configuration come from the given set first: parent
//! and worker process must read the same text.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::Stat;
use rustix::io::Errno;

static GIVEN: RwLock<Option<Given>> = RwLock::new(None);

/// A set of descriptors, by path.
#[derive(Debug, Default)]
pub struct Given {
    /// Texts of the configuration.
    pub configs: HashMap<PathBuf, File>,
    /// Certificates, keys, files of passwords and the like, open for reading.
    pub files: HashMap<PathBuf, File>,
    /// Logs, open for appending.
    pub logs: HashMap<PathBuf, File>,
    /// Why the parent did not open a file or a log.
    pub refused: HashMap<PathBuf, String>,
}

/// Uses this set from now on; returns the one before, for a reload that fails.
pub fn replace(next: Option<Given>) -> Option<Given> {
    std::mem::replace(&mut GIVEN.write().unwrap_or_else(PoisonError::into_inner), next)
}

/// Reads a whole file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file that must be UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8"))
}

/// What a file is now; what it was when it was given, where the process may not know.
pub fn stat(path: &Path) -> io::Result<Stat> {
    match rustix::fs::stat(path) {
        Err(Errno::ACCESS) => {
            let given = with(|given| given.files.get(path).map(rustix::fs::fstat));
            Ok(given.unwrap_or(Err(Errno::ACCESS))?)
        }
        // It exists in a folder that can be entered, and may still not be read.
        found => Ok(found?),
    }
}

/// Opens a file for reading.
pub fn open(path: &Path) -> io::Result<Opened> {
    match File::open(path) {
        Err(denied) if denied.kind() == ErrorKind::PermissionDenied => {
            let found = with(|given| match given.files.get(path) {
                Some(file) => Some(file.try_clone().map(|file| Opened { file, at: Some(0) })),
                None => given.refused.get(path).map(|why| Err(refusal(why))),
            });
            found.unwrap_or(Err(denied))
        }
        opened => Ok(Opened { file: opened?, at: None }),
    }
}

/// The descriptor of a log; nothing where the parent did not open it, or there is no parent.
pub fn log(path: &Path) -> Option<io::Result<File>> {
    with(|given| match given.logs.get(path) {
        Some(file) => Some(file.try_clone()),
        None => given.refused.get(path).map(|why| Err(refusal(why))),
    })
}

/// A text of the configuration as the parent read it; nothing where it did not, or there is no parent.
pub fn config_text(path: &Path) -> Option<io::Result<Vec<u8>>> {
    let file = with(|given| given.configs.get(path).map(File::try_clone))?;
    Some(file.and_then(|file| {
        let mut bytes = Vec::new();
        Opened { file, at: Some(0) }.read_to_end(&mut bytes)?;
        Ok(bytes)
    }))
}

/// The names in a folder on the way to texts that the parent read; nothing where there is no parent.
pub fn config_names(folder: &Path) -> Option<BTreeSet<OsString>> {
    with(|given| {
        let below = given.configs.keys().filter_map(|path| path.strip_prefix(folder).ok());
        let names = below.filter_map(|rest| rest.components().next());
        Some(names.map(|name| name.as_os_str().to_owned()).collect())
    })
}

fn with<T>(look: impl FnOnce(&Given) -> Option<T>) -> Option<T> {
    GIVEN.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(look)
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.to_owned())
}

/// A file that is read from its beginning.
#[derive(Debug)]
pub struct Opened {
    file: File,
    /// Where a given descriptor is read next: its own offset is shared with other readers.
    at: Option<u64>,
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(at) = &mut self.at else { return self.file.read(into) };
        let count = self.file.read_at(into, *at)?;
        *at += count as u64;
        Ok(count)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O8: a file that the process may not open is read from the given descriptor, twice; others by their paths.
    #[test]
    fn a_denied_file_is_read_from_the_given_descriptor() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (key, conf) = (dir.path().join("key"), dir.path().join("a/b.conf"));
        std::fs::write(&key, "first").expect("written");
        let file = || File::open(&key).expect("it is there");
        let mut given = Given::default();
        given.files.insert(key.clone(), file());
        given.configs.insert(conf.clone(), file());
        given.refused.insert("/none/x".into(), "is a link".to_owned());
        assert!(replace(Some(given)).is_none() && log(&key).is_none());
        for _ in 0..2 {
            assert_eq!(read(&key).expect("read"), b"first");
            assert_eq!(config_text(&conf).expect("given").expect("read"), b"first");
        }
        assert_eq!(config_names(dir.path()).expect("given").into_iter().next(), Some("a".into()));
        assert!(config_text(Path::new("/etc/passwd")).is_none());
        assert!(matches!(log(Path::new("/none/x")), Some(Err(_))));
        // A file that was replaced is read anew.
        std::fs::remove_file(&key).expect("removed");
        std::fs::write(&key, "second").expect("written");
        assert_eq!(read(&key).expect("read"), b"second");
        assert!(replace(None).is_some() && config_names(dir.path()).is_none());
    }
}
