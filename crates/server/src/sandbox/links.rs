//! Links that lead out of a folder that is served. nginx follows them, and sites depend on it (Laravel's `storage`,
//! Capistrano's `shared`, packages of Debian), so their targets are places of the sandbox, to be read: if the link
//! belongs to root or to the owner of the folder that is served. Links of other users stay refused.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::TOO_WIDE;

/// Maximum number of folder entries that are looked at for one configuration. Links beyond it are refused and logged.
const ENTRIES_MAX: usize = 20_000;
/// Maximum number of targets that are added.
const TARGETS_MAX: usize = 256;

/// The targets of links that leave these folders, each outside of all of them.
pub(super) fn targets<'a>(served: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
    let roots = served.filter_map(|path| {
        let owner = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?.uid();
        Some((fs::canonicalize(path).ok()?, owner))
    });
    let roots: Vec<(PathBuf, u32)> = roots.filter(|(root, _)| root.parent().is_some()).collect();
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    let mut folders: VecDeque<(PathBuf, u32)> = roots.iter().cloned().collect();
    let mut left = ENTRIES_MAX;
    while let Some((folder, owner)) = folders.pop_front() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            left = left.saturating_sub(1);
            if left == 0 || found.len() == TARGETS_MAX {
                return found;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push_back((entry.path(), owner));
            } else if kind.is_symlink()
                && let Some(target) = followed(&entry.path(), owner)
                && !roots
                    .iter()
                    .map(|(root, _)| root)
                    .chain(&found)
                    .any(|it| target.starts_with(it))
            {
                if target.is_dir() {
                    // Links in there are followed, too.
                    folders.push_back((target.clone(), owner));
                }
                found.insert(target);
            }
        }
    }
    found
}

/// Where a link leads, if it is one of root or of this owner, and so is each further one on the way.
fn followed(link: &Path, owner: u32) -> Option<PathBuf> {
    let mut at = link.to_owned();
    for _ in 0..super::LINKS_MAX {
        let about = fs::symlink_metadata(&at).ok()?;
        if !about.is_symlink() {
            let target = fs::canonicalize(&at).ok()?;
            return (!TOO_WIDE.contains(&target.as_path())).then_some(target);
        }
        if about.uid() != 0 && about.uid() != owner {
            return None;
        }
        at = at.parent()?.join(fs::read_link(&at).ok()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    /// F2
    #[test]
    fn links_of_root_and_of_the_owner_are_followed_out_of_the_root() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = fs::canonicalize(dir.path()).expect("a path");
        let at = |name: &str| top.join(name);
        for folder in ["root/deep", "shared/more", "third", "other"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::write(at("file"), "").expect("a file");
        for (link, target) in [
            ("root/deep/storage", "../../shared"),
            ("root/file", "../file"),
            ("root/inside", "deep"),
            ("root/nowhere", "none"),
            ("root/all", "/"),
            ("root/etc", "/etc"),
            ("root/chain", "theirs"),
            ("root/theirs", "../other"),
            ("shared/third", "../third"),
        ] {
            symlink(target, at(link)).expect("a link");
        }
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            lchown(at("root/theirs"), Some(12_345), None).expect("it is theirs");
        }
        let mut expected = vec![at("file"), at("shared"), at("third")];
        if !is_root {
            expected.insert(1, at("other"));
        }
        let found = targets([at("root")].iter());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
}
