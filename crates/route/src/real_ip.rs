//! The client's address behind a proxy (`set_real_ip_from`). Only a trusted proxy is believed; a list of
//! addresses is read from its end, which the nearest proxy has written.

use std::net::{IpAddr, SocketAddr};

use sekisho_config::{RealIp, RealIpSource};
use sekisho_http::Head;

use crate::route_state::ConnectionFacts;

/// The client's address from the proxy; `None` if the peer is not trusted or sends none. `head` is `None` if
/// the fields of the request must not be read.
pub(crate) fn find(
    real_ip: &RealIp,
    connection: &ConnectionFacts,
    head: Option<&Head>,
) -> Option<SocketAddr> {
    let peer = connection.remote.map(|remote| remote.ip());
    match &real_ip.source {
        RealIpSource::ProxyHeader => {
            let said = connection.proxied.as_deref()?.addresses?;
            real_ip.trusts(peer).then_some(said.source)
        }
        RealIpSource::Field(name) => {
            let lines: Vec<&[u8]> = head?.values_like(None, name).collect();
            let lines = lines.into_iter().rev();
            follow(real_ip, peer, lines.flat_map(addresses))
        }
    }
}

/// The words of a line, the last one first.
fn addresses(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.rsplit(|byte| matches!(byte, b',' | b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// Goes back from the peer as far as proxies are trusted.
fn follow<'a>(
    real_ip: &RealIp,
    peer: Option<IpAddr>,
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Option<SocketAddr> {
    let mut found = None;
    let mut speaker = peer;
    while real_ip.trusts(speaker) {
        let Some(address) = words.next().and_then(address) else { break };
        found = Some(address);
        speaker = Some(address.ip());
        if !real_ip.is_recursive {
            break;
        }
    }
    found
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`; the port is 0 by default.
fn address(word: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(word).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let without_port = || bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    text.parse().ok().or_else(without_port)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sekisho_config::AddressMatch;

    use super::*;

    fn real_ip(is_recursive: bool) -> RealIp {
        let ten = AddressMatch::V4 { address: 10 << 24, mask: 0xff00_0000 };
        let source = RealIpSource::Field(Arc::from(&b"x-forwarded-for"[..]));
        RealIp::new([ten, AddressMatch::Unix].into(), source, is_recursive)
    }

    fn found(is_recursive: bool, peer: Option<&str>, lines: &[&str]) -> String {
        let peer = peer.map(|peer| peer.parse().expect("an address"));
        let words = lines.iter().rev().flat_map(|line| addresses(line.as_bytes()));
        let found = follow(&real_ip(is_recursive), peer, words);
        found.map_or("none".to_owned(), |found| found.to_string())
    }

    #[test]
    fn only_proxies_that_are_believed_are_listened_to() {
        let table: [(bool, Option<&str>, &[&str], &str); 14] = [
            (false, Some("10.0.0.1"), &["192.0.2.1"], "192.0.2.1:0"),
            (false, Some("10.0.0.1"), &["192.0.2.1:80"], "192.0.2.1:80"),
            (false, Some("10.0.0.1"), &["2001:db8::1"], "[2001:db8::1]:0"),
            (false, Some("10.0.0.1"), &["[2001:db8::1]:80"], "[2001:db8::1]:80"),
            (false, Some("10.0.0.1"), &["[2001:db8::1]"], "[2001:db8::1]:0"),
            (false, Some("10.0.0.1"), &["1.1.1.1, 192.0.2.1 , "], "192.0.2.1:0"),
            (false, Some("10.0.0.1"), &["1.1.1.1", "10.0.0.2"], "10.0.0.2:0"),
            (true, Some("10.0.0.1"), &["1.1.1.1", "2.2.2.2, 10.0.0.2"], "2.2.2.2:0"),
            (true, Some("10.0.0.1"), &["10.0.0.3", "10.0.0.2"], "10.0.0.3:0"),
            (true, Some("10.0.0.1"), &["1.1.1.1, unknown, 10.0.0.2"], "10.0.0.2:0"),
            (false, Some("10.0.0.1"), &["unknown"], "none"),
            (false, Some("192.0.2.9"), &["1.1.1.1"], "none"),
            (false, None, &["1.1.1.1"], "1.1.1.1:0"),
            (true, Some("10.0.0.1"), &[], "none"),
        ];
        for (is_recursive, peer, lines, expected) in table {
            assert_eq!(found(is_recursive, peer, lines), expected, "{peer:?} {lines:?}");
        }
    }
}
