//! The client's address behind a proxy.

use std::sync::Arc;

use super::access::who;
use super::{LEVELS, Row, active, set};
use crate::model::{AddressMatch, RealIpSource};

pub(super) const ROWS: &[Row] = &[
    active(
        "set_real_ip_from",
        LEVELS,
        "address|cidr|unix:",
        "",
        "Proxies that are believed when they say who their client is",
        |l, d, s| {
            let word = d.arg(0);
            let from = who(d, s, word)?;
            if from == AddressMatch::All {
                return Err(d.invalid(word, "must be an address, a network or \"unix:\""));
            }
            if d.is_first_of(l) {
                l.real_ip.from = Arc::default();
            }
            let all = l.real_ip.from.iter().copied().chain([from]).collect();
            l.real_ip.from = all;
            Ok(())
        },
    )
    .repeated(),
    active(
        "real_ip_header",
        LEVELS,
        "field|X-Real-IP|X-Forwarded-For|proxy_protocol",
        "X-Real-IP",
        "Where such a proxy says it: a field, or the header of the PROXY protocol",
        |l, d, _| {
            let word = d.arg(0);
            l.real_ip.source = match &*word.text {
                b"proxy_protocol" => RealIpSource::ProxyHeader,
                name if !name.is_empty() && name.iter().all(u8::is_ascii_graphic) => {
                    RealIpSource::Field(name.to_ascii_lowercase().into())
                }
                _ => return Err(d.invalid(word, "is no name of a field")),
            };
            Ok(())
        },
    ),
    active(
        "real_ip_recursive",
        LEVELS,
        "on|off",
        "off",
        "Whether addresses in the field that are believed proxies, too, are passed over",
        |l, d, _| set(&mut l.real_ip.is_recursive, d.flag()),
    ),
];
