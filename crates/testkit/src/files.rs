//! A folder of a test's own, with helpers to fill it: gone when dropped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder. Its `root` is where a test's site lies.
#[derive(Debug)]
pub struct Tree {
    folder: TempDir,
}

impl Tree {
    /// An empty folder with an empty `root` in it.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sekisho-test-")
            .tempdir()
            .expect("a temporary folder can be made");
        fs::create_dir(folder.path().join("root")).expect("the root can be made");
        Self { folder }
    }

    /// The folder itself: `{dir}` in a configuration.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The site's root: `{root}` in a configuration.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// A path below the folder.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Writes a file, and the folders on the way to it.
    #[track_caller]
    pub fn file(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        make_parent(&path);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes a file that may be executed.
    #[track_caller]
    pub fn script(&self, relative: &str, content: &str) -> PathBuf {
        let path = self.file(relative, content);
        self.mode(relative, 0o755);
        path
    }

    /// Makes a folder, and those on the way to it.
    #[track_caller]
    pub fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Makes a symbolic link that says `target`.
    #[track_caller]
    pub fn link(&self, relative: &str, target: impl AsRef<Path>) -> PathBuf {
        let path = self.path(relative);
        make_parent(&path);
        symlink(target, &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Sets the permissions of something.
    #[track_caller]
    pub fn mode(&self, relative: &str, mode: u32) {
        let path = self.path(relative);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The content of a file.
    #[track_caller]
    pub fn read(&self, relative: &str) -> Vec<u8> {
        let path = self.path(relative);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The text of a file; nothing when it is not there (yet).
    pub fn text(&self, relative: &str) -> String {
        fs::read(self.path(relative))
            .map(|content| String::from_utf8_lossy(&content).into_owned())
            .unwrap_or_default()
    }

    /// Whether there is something of this name.
    pub fn exists(&self, relative: &str) -> bool {
        fs::symlink_metadata(self.path(relative)).is_ok()
    }

    /// The names in a folder, sorted.
    #[track_caller]
    pub fn names(&self, relative: &str) -> Vec<String> {
        let path = self.path(relative);
        let mut names: Vec<String> = fs::read_dir(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

#[track_caller]
fn make_parent(path: &Path) {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
    }
}

/// Bytes that do not get shorter by compression; the same every time.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_what_was_put_into_it_and_is_gone_when_dropped() {
        let tree = Tree::new();
        tree.file("root/a/b.txt", "hello");
        tree.script("root/run.sh", "#!/bin/sh\n");
        tree.link("root/there", "a/b.txt");
        assert_eq!(tree.read("root/there"), b"hello");
        assert_eq!(tree.names("root"), ["a", "run.sh", "there"]);
        assert_eq!(tree.text("nothing"), "");
        let dir = tree.dir().to_owned();
        drop(tree);
        assert!(!dir.exists());
    }
}
