//! Socket options that no safe crate offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a listening TCP socket hand out a connection only when its first bytes are there, or when the
/// client has been silent for about `secs` seconds; zero switches that off.
pub fn defer_accept(listener: &impl AsFd, secs: u16) -> io::Result<()> {
    let secs = libc::c_int::from(secs);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads `length` bytes
    // from a local that is just so long and outlives the call.
    let failed = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const secs).cast(),
            length,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
