//! Descriptors that are not sockets, in a runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the runtime say when there is something to read. Each new edge is told, whether or not the old one
/// was read away.
pub fn watch(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, and always the same; what has it now is the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(Into::into)
}
