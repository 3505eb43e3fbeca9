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

/// Has the kernel choose among the UDP sockets of one address by the first byte of a datagram's QUIC connection id: the
/// socket whose number in the order of binding is that byte's remainder by `count` (RFC 8999 §5).
pub fn steer_by_connection_id(socket: &impl AsFd, count: u8) -> io::Result<()> {
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const JUMP_IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
    const REMAINDER: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
    const fn step(code: u16, jt: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf: 0, k }
    }
    let mut steps = [
        step(LOAD_BYTE, 0, 0),
        step(JUMP_IF_SET, 2, 0x80),
        // A short header: the id follows the first byte.
        step(LOAD_BYTE, 0, 1),
        step(JUMP, 0, 1),
        // A long one: version and length come before it.
        step(LOAD_BYTE, 0, 6),
        step(REMAINDER, 0, count.max(1).into()),
        step(RETURN, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads `length` bytes from `program` and the
    // steps that it points to, both of them locals that outlive the call.
    let failed = unsafe {
        let value = (&raw const program).cast();
        let descriptor = socket.as_fd().as_raw_fd();
        libc::setsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            value,
            length,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
