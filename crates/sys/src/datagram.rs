//! Datagrams with the address that they came to: an answer must leave from there, or its client does not know it.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::set;

/// Room for the one message beside a datagram, aligned as the kernel wants it.
type Control = [u64; 16];

/// Has a socket at every address of the machine tell by which one a datagram came.
pub fn tell_destination(socket: &impl AsFd, is_v6: bool) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}

/// Takes a datagram without waiting: its length, where it came from, and where it came to, if that is told.
pub fn receive_datagram(
    socket: &impl AsFd,
    into: &mut [u8],
) -> io::Result<(usize, Option<SocketAddr>, Option<IpAddr>)> {
    let mut control: Control = [0; 16];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: both are structures of numbers and pointers, for which zero is a value. Every pointer in the message is
    // to a local, or to `into`, with its length beside it, and all of them outlive the call. Messages beside the
    // datagram are walked as the kernel has written them, within the length that it has set.
    unsafe {
        let mut from: libc::sockaddr_storage = zeroed();
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
        let descriptor = socket.as_fd().as_raw_fd();
        let count = libc::recvmsg(descriptor, &raw mut message, libc::MSG_DONTWAIT);
        let Ok(count) = usize::try_from(count) else { return Err(io::Error::last_os_error()) };
        let mut to = None;
        let mut beside = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(head) = beside.as_ref() {
            let bytes = libc::CMSG_DATA(beside);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let local: libc::in_pktinfo = bytes.cast::<libc::in_pktinfo>().read_unaligned();
                    to = Some(Ipv4Addr::from(u32::from_be(local.ipi_addr.s_addr)).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let local: libc::in6_pktinfo =
                        bytes.cast::<libc::in6_pktinfo>().read_unaligned();
                    to = Some(Ipv6Addr::from(local.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
            beside = libc::CMSG_NXTHDR(&raw const message, beside);
        }
        Ok((count, address(&from), to))
    }
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let start: *const libc::sockaddr_storage = storage;
    // SAFETY: the family says which structure the storage holds, and it has room for each.
    unsafe {
        match i32::from(storage.ss_family) {
            libc::AF_INET => {
                let known = &*start.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(known.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(known.sin_port)).into())
            }
            libc::AF_INET6 => {
                let known = &*start.cast::<libc::sockaddr_in6>();
                let (ip, port) = (known.sin6_addr.s6_addr.into(), u16::from_be(known.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, known.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Sends a datagram without waiting, from this address where one is named.
pub fn send_datagram(
    socket: &impl AsFd,
    bytes: &[u8],
    to: SocketAddr,
    from: Option<IpAddr>,
) -> io::Result<usize> {
    let mut control: Control = [0; 16];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: as above; the kernel only reads. The message beside the datagram is written into `control`, which has
    // room for either kind and is aligned for its head.
    unsafe {
        let mut name: libc::sockaddr_storage = zeroed();
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = put_address(&raw mut name, to);
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(from) = from {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of::<Control>() as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            let bytes = libc::CMSG_DATA(head);
            let length = match from {
                IpAddr::V4(from) => {
                    let mut info: libc::in_pktinfo = zeroed();
                    info.ipi_spec_dst.s_addr = u32::from(from).to_be();
                    bytes.cast::<libc::in_pktinfo>().write_unaligned(info);
                    ((*head).cmsg_level, (*head).cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
                    size_of::<libc::in_pktinfo>()
                }
                IpAddr::V6(from) => {
                    let mut info: libc::in6_pktinfo = zeroed();
                    info.ipi6_addr.s6_addr = from.octets();
                    bytes.cast::<libc::in6_pktinfo>().write_unaligned(info);
                    let kind = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
                    ((*head).cmsg_level, (*head).cmsg_type) = kind;
                    size_of::<libc::in6_pktinfo>()
                }
            };
            (*head).cmsg_len = libc::CMSG_LEN(length as u32) as _;
            message.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let count = libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags);
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

/// Writes an address for the kernel; how long it is.
///
/// # Safety
///
/// `to` must be valid for writes.
unsafe fn put_address(to: *mut libc::sockaddr_storage, address: SocketAddr) -> libc::socklen_t {
    // SAFETY: the caller says that it can be written to, and it has room for either.
    unsafe {
        match address {
            SocketAddr::V4(address) => {
                let mut known: libc::sockaddr_in = zeroed();
                known.sin_family = libc::AF_INET as libc::sa_family_t;
                known.sin_port = address.port().to_be();
                known.sin_addr.s_addr = u32::from(*address.ip()).to_be();
                to.cast::<libc::sockaddr_in>().write(known);
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(address) => {
                let mut known: libc::sockaddr_in6 = zeroed();
                known.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                known.sin6_port = address.port().to_be();
                known.sin6_addr.s6_addr = address.ip().octets();
                known.sin6_scope_id = address.scope_id();
                to.cast::<libc::sockaddr_in6>().write(known);
                size_of::<libc::sockaddr_in6>() as libc::socklen_t
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_leaves_from_where_its_question_came_to() {
        for (any, to, own) in
            [("0.0.0.0:0", "127.0.0.7", "127.0.0.1:0"), ("[::]:0", "::1", "[::1]:0")]
        {
            // Some machines have no IPv6.
            let Ok(server) = UdpSocket::bind(any) else { continue };
            let Ok(client) = UdpSocket::bind(own) else { continue };
            let to: IpAddr = to.parse().expect("an address");
            tell_destination(&server, to.is_ipv6()).expect("an option");
            let port = server.local_addr().expect("it has an address").port();
            client.connect((to, port)).expect("it can be named");
            client.set_read_timeout(Some(Duration::from_mins(1))).expect("it can be set");
            client.send(b"question").expect("it leaves");
            let mut buffer = [0; 100];
            // On one machine it is there as soon as it has left.
            let (count, from, told) = receive_datagram(&server, &mut buffer).expect("it is there");
            assert_eq!((&buffer[..count], told), (&b"question"[..], Some(to)));
            let from = from.expect("somebody sent it");
            assert_eq!(from, client.local_addr().expect("it has an address"));
            send_datagram(&server, b"answer", from, told).expect("it leaves");
            // A socket that is connected hears nobody else.
            let count = client.recv(&mut buffer).expect("it comes");
            assert_eq!(&buffer[..count], b"answer");
            let none = receive_datagram(&server, &mut buffer).expect_err("there is no more");
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        }
    }
}
