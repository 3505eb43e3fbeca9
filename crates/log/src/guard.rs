//! Files that root opens in a folder of somebody else, as the folder of the logs is the user's that the server
//! becomes: a link that they put there would have root write to any file of the machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file; as root, not by a link that is another user's.
pub fn open_guarded(options: &mut OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    let is_link_of_root = |path: &Path| {
        let about = std::fs::symlink_metadata(path);
        about.is_ok_and(|about| about.is_symlink() && about.uid() == 0)
    };
    let is_guarded = rustix::process::geteuid().is_root() && !is_link_of_root(path);
    let flags = if is_guarded { flags | OFlags::NOFOLLOW } else { flags };
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
        if is_guarded && is_link {
            let why = "it is a link of another user, which root does not follow";
            return io::Error::new(io::ErrorKind::PermissionDenied, why);
        }
        error
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    /// V45: whoever owns the folder does not choose what root writes to; what root has put there is followed.
    #[test]
    fn root_follows_no_link_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make links of another user");
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            open_guarded(options.append(true).create(true), OFlags::empty(), &at(name))
        };
        std::fs::write(at("secret"), "").expect("a file");
        for (link, target) in [("theirs", "secret"), ("nowhere", "not-there"), ("own", "secret")] {
            symlink(at(target), at(link)).expect("a link");
            if link != "own" {
                lchown(at(link), Some(65_534), Some(65_534)).expect("it is theirs now");
            }
        }
        for link in ["theirs", "nowhere"] {
            let error = open(link).expect_err("not followed");
            assert!(error.to_string().contains("another user"), "{error}");
        }
        assert!(!at("not-there").exists());
        open("own").expect("root's own link is followed");
        open("plain").expect("no link at all");
    }
}
