//! The addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of every network interface that is up; none if the kernel does not report them.
pub fn interface_addresses() -> Vec<IpAddr> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes one pointer to a local that outlives it.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the C library made this list; each entry is valid until it is freed below, and the last one
        // has no next.
        let entry = unsafe { &*next };
        let is_up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: an address is either missing or of the size that its family says.
        if is_up && let Some(ip) = unsafe { address(entry.ifa_addr) } {
            found.push(ip);
        }
        next = entry.ifa_next;
    }
    // SAFETY: it is freed once, and nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// `at` is null, or a socket address of as many bytes as its family has.
unsafe fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family; the rest is as the caller promises. Nothing is assumed
    // about its alignment.
    unsafe {
        match i32::from(at.read_unaligned().sa_family) {
            libc::AF_INET => {
                let at = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(at.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let at = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(at.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_among_them() {
        assert!(interface_addresses().contains(&Ipv4Addr::LOCALHOST.into()));
    }
}
