//! Socket options that no safe crate offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a listening TCP socket hand out a connection only when its first bytes are there, or when the
/// client has been silent for about `secs` seconds; zero switches that off.
pub fn defer_accept(listener: &impl AsFd, secs: u16) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, secs.into())
}

/// Lets a TCP socket, and those that come out of it, take packets only from peers that are so near that so many
/// hops are left of them; zero takes all. Packets of a handshake that is under way are not looked at.
pub fn set_least_hops(socket: &impl AsFd, hops: u8) -> io::Result<()> {
    // A socket for IPv6 may take IPv4, too; one for IPv4 does not know the other.
    let _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, hops.into());
    set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, hops.into())
}

fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads `length` bytes
    // from a local that is just so long and outlives the call.
    let failed = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value, length)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
