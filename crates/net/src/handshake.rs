//! Connections that the kernel has established but that cannot be accepted yet: with `deferred` the kernel
//! waits for their first bytes, or for a second. They must be accepted before the socket closes, or their
//! clients would never get an answer.
//!
//! The kernel is asked for those alone (`sock_diag`): its table of all connections takes seconds to read on a
//! machine with many in `TIME_WAIT`, and the sandbox may keep a worker from opening it.

use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use sekisho_config::ListenAddress;

/// The kernel's number for a connection whose handshake is not over, as its tables write it, and as bits for
/// both of its names within the kernel.
const SYN_RECEIVED: &str = "03";
const SYN_RECEIVED_BITS: u32 = 1 << 3 | 1 << 12;
/// `SOCK_DIAG_BY_FAMILY`, and a request for all.
const BY_FAMILY: u16 = 20;
const DUMP: u16 = 0x301;
/// The kernel's last word.
const DONE: u16 = 3;
const TCP: u8 = 6;
const HEAD_BYTES: usize = 16;
const REQUEST_BYTES: usize = 72;
/// The offset of the port in an answer, after the head.
const PORT_AT: usize = HEAD_BYTES + 4;
const ANSWER_BYTES: usize = 32 * 1024;
/// So many answers are read; if there are more, some handshake is pending.
const ANSWERS_MAX: usize = 256;

/// Whether connections to this address are still on their way in. Where that cannot be found out, none are.
pub(crate) fn are_pending(address: &ListenAddress) -> bool {
    let ListenAddress::Tcp(at) = address else { return false };
    ask(at.is_ipv4(), at.port()).unwrap_or_else(|_| {
        // A kernel that was built without it still has its table.
        let table = if at.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        std::fs::read_to_string(Path::new(table)).is_ok_and(|table| has_pending(&table, at.port()))
    })
}

/// Asks the kernel.
fn ask(is_ipv4: bool, port: u16) -> Result<bool, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&socket, &request(is_ipv4), SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES];
    for _ in 0..ANSWERS_MAX {
        let (count, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
        if let Some(is_pending) = read(answer.get(..count).unwrap_or_default(), port)? {
            return Ok(is_pending);
        }
    }
    Ok(true)
}

/// All connections of one family whose handshake is not over.
fn request(is_ipv4: bool) -> [u8; REQUEST_BYTES] {
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut message = [0; REQUEST_BYTES];
    message[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    message[HEAD_BYTES] = family.as_raw() as u8;
    message[HEAD_BYTES + 1] = TCP;
    message[HEAD_BYTES + 4..HEAD_BYTES + 8].copy_from_slice(&SYN_RECEIVED_BITS.to_ne_bytes());
    message
}

/// Looks through one answer: whether there is one at this port, or none at all; nothing where more may come.
fn read(mut answer: &[u8], port: u16) -> Result<Option<bool>, Errno> {
    while let Some(head) = answer.first_chunk::<HEAD_BYTES>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        match u16::from_ne_bytes([head[4], head[5]]) {
            DONE => return Ok(Some(false)),
            BY_FAMILY => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        let found = answer.get(PORT_AT..PORT_AT + 2).ok_or(Errno::BADMSG)?;
        if found == port.to_be_bytes() {
            return Ok(Some(true));
        }
        // Each begins on a border of four.
        let next = length.max(HEAD_BYTES).next_multiple_of(4);
        answer = answer.get(next..).unwrap_or_default();
    }
    Ok(None)
}

fn has_pending(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().any(|row| {
        let mut words = row.split_ascii_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        local.ends_with(&end) && words.nth(1) == Some(SYN_RECEIVED)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_row_tells_port_and_state() {
        // O4
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n\
            \x20  1: 0100007F:1F90 0100007F:D2F0 03 00000000:00000000 01:00000064 00000000\n\
            \x20  2: 0100007F:0050 0100007F:1F90 01 00000000:00000000 00:00000000 00000000\n";
        assert!(has_pending(table, 0x1f90));
        assert!(!has_pending(table, 0x50));
        assert!(!has_pending("", 80));
    }

    /// O4: of a listener that defers, a silent connection is on its way in; at another there is none.
    #[test]
    fn the_kernel_is_asked_for_handshakes_alone() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(deferring) = TcpListener::bind(address) else {
                println!("skipped: no {address}");
                continue;
            };
            sekisho_sys::defer_accept(&deferring, 5).expect("deferred");
            let at = deferring.local_addr().expect("an address");
            assert!(!are_pending(&ListenAddress::Tcp(at)));
            let _silent = TcpStream::connect(at).expect("connected");
            assert!(are_pending(&ListenAddress::Tcp(at)));
            assert_eq!(ask(at.is_ipv4(), at.port()), Ok(true));
            let other = TcpListener::bind(address).expect("bound").local_addr().expect("known");
            assert!(!are_pending(&ListenAddress::Tcp(other)));
        }
    }

    #[test]
    fn nothing_that_is_answered_harms() {
        for answer in
            [&[][..], &[0; 16], &[255; 40], &[16, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            let _ = read(answer, 80);
        }
    }
}
