//! Connections that the kernel has made and nobody can accept yet: with `deferred` it waits for their first
//! bytes, or for a second. Before a socket closes they must come in, or they would never be told.

use std::path::Path;

use sekisho_config::ListenAddress;

/// The kernel's number for a connection whose handshake is not over, as its tables write it.
const SYN_RECEIVED: &str = "03";

/// Whether connections to this address are still on their way in. Where that cannot be found out, none are.
pub(crate) fn are_pending(address: &ListenAddress) -> bool {
    let ListenAddress::Tcp(at) = address else { return false };
    let table = if at.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    // One row is about 150 bytes: a busy machine's table is read within milliseconds.
    std::fs::read_to_string(Path::new(table)).is_ok_and(|table| has_pending(&table, at.port()))
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
}
