//! Descriptors that are not sockets, in a runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers the file with the runtime for reading. Each new edge is reported, whether or not the old data
/// was read.
pub fn watch(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, and always the same; what has it now is the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(Into::into)
}
