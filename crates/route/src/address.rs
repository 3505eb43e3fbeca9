//! The text of an address, made without the standard library's formatter, which takes longer than the rest of a
//! line of the access log.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends an address as text. An IPv4 address that an IPv6 socket shows as mapped is written as what it is.
pub(crate) fn push_ip(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => push_v4(address, out),
        IpAddr::V6(address) => push_v6(address, out),
    }
}

fn push_v4(address: Ipv4Addr, out: &mut Vec<u8>) {
    let (mut text, mut end) = ([0; 16], 0);
    for octet in address.octets() {
        if octet >= 100 {
            text[end] = b'0' + octet / 100;
            end += 1;
        }
        if octet >= 10 {
            text[end] = b'0' + octet / 10 % 10;
            end += 1;
        }
        text[end] = b'0' + octet % 10;
        text[end + 1] = b'.';
        end += 2;
    }
    // Without the last point.
    out.extend_from_slice(&text[..end - 1]);
}

/// RFC 5952 §4: lower case, no leading zeros, the first of the longest runs of zeros as `::`.
fn push_v6(address: Ipv6Addr, out: &mut Vec<u8>) {
    let groups = address.segments();
    let zeros = longest_zeros(&groups);
    let mut at = 0;
    while at < groups.len() {
        if at == zeros.start && zeros.len() > 1 {
            out.extend_from_slice(b"::");
            at = zeros.end;
            continue;
        }
        if at > 0 && at != zeros.end {
            out.push(b':');
        }
        push_group(groups[at], out);
        at += 1;
    }
}

/// The first of the longest runs of zeros; runs shorter than two do not count (RFC 5952 §4.2.2).
fn longest_zeros(groups: &[u16; 8]) -> std::ops::Range<usize> {
    let mut longest = 8..8;
    let mut start = 0;
    // One more that is not zero ends the last run.
    for (at, group) in groups.iter().chain(&[1]).enumerate() {
        if *group == 0 {
            continue;
        }
        if at - start > longest.len().max(1) {
            longest = start..at;
        }
        start = at + 1;
    }
    longest
}

fn push_group(group: u16, out: &mut Vec<u8>) {
    let digits = [group >> 12, group >> 8 & 15, group >> 4 & 15, group & 15];
    let first = digits.iter().position(|digit| *digit != 0).unwrap_or(3);
    for digit in &digits[first..] {
        out.push(b"0123456789abcdef"[usize::from(*digit)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(address: IpAddr) -> String {
        let mut out = Vec::new();
        push_ip(address, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        for address in [
            "0.0.0.0",
            "192.0.2.1",
            "255.255.255.255",
            "10.20.30.4",
            "::",
            "::1",
            "1::",
            "2001:db8::1",
            "1:0:2:3:4:5:6:7",
            "0:1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:0",
            "1:0:0:2:0:0:3:4",
            "1:0:0:2:0:0:0:3",
            "fe80::abcd:ef01:2345:6789",
            "1:2:3:4:5:6::",
            "::2:3:4:5:6:7",
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(text(address), address.to_string());
        }
        assert_eq!(text("::ffff:192.0.2.1".parse().expect("an address")), "192.0.2.1");
    }

    proptest! {
        #[test]
        fn any_address_is_written_as_the_standard_library_does(
            groups: [u16; 8], is_zero: [bool; 8], octets: [u8; 4],
        ) {
            let mut groups = groups;
            for (group, is_zero) in groups.iter_mut().zip(is_zero) {
                *group = if is_zero { 0 } else { *group };
            }
            for address in [IpAddr::from(groups), IpAddr::from(octets)] {
                prop_assert_eq!(text(address), address.to_canonical().to_string());
            }
        }
    }
}
