//! Temporary files without a name: what is in them goes with the process.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use sekisho_config::TempFolder;

/// Where files are made; TMPDIR where no folder is given.
pub(crate) fn place(folder: Option<&TempFolder>) -> PathBuf {
    folder.map_or_else(std::env::temp_dir, |folder| folder.path.to_path_buf())
}

/// Makes a file: to be called where it may take its time. A default folder that cannot be used is replaced by TMPDIR; the
/// operator was told so at the start.
pub(crate) fn create(folder: Option<&TempFolder>) -> io::Result<File> {
    let Some(folder) = folder else { return tempfile::tempfile() };
    match tempfile::tempfile_in(&folder.path) {
        Err(error) if folder.is_default && is_unusable(error.kind()) => tempfile::tempfile(),
        made => made,
    }
}

/// Whether the folder is missing, or not ours. A full disk is none of these.
fn is_unusable(kind: ErrorKind) -> bool {
    use ErrorKind as E;
    matches!(kind, E::NotFound | E::NotADirectory | E::PermissionDenied | E::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use super::*;

    fn is_in(file: &File, folder: &Path) -> bool {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::read_link(link).expect("a link").starts_with(folder)
    }

    #[test]
    fn a_default_folder_may_be_missing_and_a_configured_one_may_not() {
        let tree = tempfile::tempdir().expect("a folder");
        let folder = |path: &Path, is_default| TempFolder { path: path.into(), is_default };
        let missing = tree.path().join("missing");
        let made = create(Some(&folder(tree.path(), false))).expect("made");
        assert!(is_in(&made, tree.path()));
        let elsewhere = create(Some(&folder(&missing, true))).expect("made");
        assert!(!is_in(&elsewhere, tree.path()) && is_in(&elsewhere, &std::env::temp_dir()));
        let error = create(Some(&folder(&missing, false))).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(place(None), std::env::temp_dir());
    }
}
