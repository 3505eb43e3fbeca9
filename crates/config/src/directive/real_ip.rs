//! The client's address behind a proxy.

use std::sync::Arc;

use super::access::who;
use super::{LEVELS, Row, active, set};
use crate::model::RealIpSource;

pub(super) const ROWS: &[Row] = &[
    active(
        "set_real_ip_from",
        LEVELS,
        "address|cidr|host|unix:",
        "",
        "Proxies that are trusted to name their client; a host has the addresses that it has when the configuration is loaded",
        |l, d, s| {
            let word = d.arg(0);
            if d.is_first_of(l) {
                (l.real_ip.from, l.real_ip.hosts) = Default::default();
            }
            let text = d.text(word)?;
            if is_host(text) {
                let host = (Arc::from(text), word.span);
                l.real_ip.hosts = l.real_ip.hosts.iter().cloned().chain([host]).collect();
                return Ok(());
            }
            let from = who(d, s, word)?;
            let all = l.real_ip.from.iter().copied().chain([from]).collect();
            l.real_ip.from = all;
            Ok(())
        },
    )
    .in_stream()
    .repeated(),
    active(
        "real_ip_header",
        LEVELS,
        "field|X-Real-IP|X-Forwarded-For|proxy_protocol",
        "X-Real-IP",
        "Where a trusted proxy names its client: a field, or the header of the PROXY protocol",
        |l, d, _| {
            let word = d.arg(0);
            l.real_ip.source = match &*word.text {
                b"proxy_protocol" => RealIpSource::ProxyHeader,
                name if !name.is_empty() && name.iter().all(u8::is_ascii_graphic) => {
                    RealIpSource::Field(name.to_ascii_lowercase().into())
                }
                _ => return Err(d.invalid(word, "is not the name of a field")),
            };
            Ok(())
        },
    ),
    active(
        "real_ip_recursive",
        LEVELS,
        "on|off",
        "off",
        "Whether addresses of trusted proxies in the field are skipped",
        |l, d, _| set(&mut l.real_ip.is_recursive, d.flag()),
    ),
];

/// Whether it is the name of a host, and no address or network: it has a letter that none of these has.
fn is_host(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().all(is_name) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}
