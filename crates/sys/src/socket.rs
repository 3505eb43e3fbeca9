//! Socket options that no safe crate offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a listening TCP socket hand out a connection only when its first bytes are there, or when the
/// client has been silent for about `secs` seconds; zero switches that off.
pub fn defer_accept(listener: &impl AsFd, secs: u16) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, secs.into())
}

/// Lets a listening TCP socket take data with the first packet of clients that came before, for so many at a time
/// (RFC 7413).
pub fn set_fast_open(listener: &impl AsFd, queue: u16) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue.into())
}

/// Lets a TCP socket, and those that come out of it, take packets only from peers that are so near that so many
/// hops are left of them; zero takes all. Packets of a handshake that is under way are not looked at.
pub fn set_least_hops(socket: &impl AsFd, hops: u8) -> io::Result<()> {
    // A socket for IPv6 may take IPv4, too; one for IPv4 does not know the other.
    let _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, hops.into());
    set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, hops.into())
}

pub(crate) fn set(
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

/// How many bytes of a stream socket's output the peer has not acknowledged, those that have not left included.
pub fn unacknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel writes one `int` to a local
    // that outlives the call.
    let failed = unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ as libc::Ioctl, &raw mut bytes)
    };
    if failed == 0 { Ok(bytes.max(0) as u64) } else { Err(io::Error::last_os_error()) }
}
