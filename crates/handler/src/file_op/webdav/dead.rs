//! Dead properties are kept in an extended attribute of the file: they move with it.

use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use sekisho_webdav::DeadProperties;
use sekisho_webdav::dead::BYTES_MAX;

const ATTRIBUTE: &str = "user.sekisho.webdav";

/// The properties of a file or folder; none where nothing can be kept.
pub(super) fn read(file: impl AsFd) -> DeadProperties {
    read_bytes(file).and_then(|bytes| DeadProperties::from_bytes(&bytes)).unwrap_or_default()
}

fn read_bytes(file: impl AsFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0; BYTES_MAX];
    let count = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut *bytes).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// Keeps them.
pub(super) fn write(file: impl AsFd, properties: &DeadProperties) -> Result<(), Errno> {
    if properties.is_empty() {
        return match rustix::fs::fremovexattr(file, ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        };
    }
    let bytes = properties.to_bytes().ok_or(Errno::NOSPC)?;
    rustix::fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty())
}

/// Gives one file the properties of another. Where that cannot be, the file comes without them.
pub(in super::super) fn copy(from: impl AsFd, to: impl AsFd) {
    if let Some(bytes) = read_bytes(from) {
        let _ = rustix::fs::fsetxattr(to, ATTRIBUTE, &bytes, XattrFlags::empty());
    }
}
