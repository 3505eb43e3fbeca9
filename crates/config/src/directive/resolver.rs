//! `resolver`: names that are looked up while the server runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{Contexts, LEVELS, Row, STREAM_LEVELS, UPSTREAMS, active, set};
use crate::level::{Directive, Fault, Level, Scope};
use crate::model::Resolver;
use crate::value;

const DNS_PORT: u16 = 53;

const PLACES: Contexts = LEVELS.and(UPSTREAMS).and(STREAM_LEVELS);

pub(super) const ROWS: &[Row] = &[
    active(
        "resolver",
        PLACES,
        "address ... [valid=time] [ipv4=on|off] [ipv6=on|off]",
        "",
        "The DNS servers for names in `proxy_pass` with variables, and for servers of an `upstream` with `resolve`",
        resolver,
    ),
    active(
        "resolver_timeout",
        PLACES,
        "time",
        "30s",
        "How long to wait for the addresses of a name",
        |l, d, _| set(&mut Arc::make_mut(&mut l.settings.resolver).timeout, d.time(0)),
    ),
];

fn resolver(l: &mut Level, d: &Directive<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
    let timeout = l.settings.resolver.timeout;
    let mut own = Resolver { timeout, ..Resolver::default() };
    Fault::each(d.args(), |word| {
        let text = d.text(word)?;
        let invalid = || Fault::at(word, format!("invalid parameter \"{text}\""));
        match text.split_once('=') {
            Some(("valid", time)) => own.valid = Some(value::time(time).map_err(|_| invalid())?),
            Some(("ipv4", flag)) => own.ipv4 = value::flag(flag).map_err(|_| invalid())?,
            Some(("ipv6", flag)) => own.ipv6 = value::flag(flag).map_err(|_| invalid())?,
            // The statistics of the commercial version.
            Some(("status_zone", _)) => {}
            _ => {
                if let Some(address) = address(text) {
                    own.servers.push(address);
                    return Ok(());
                }
                let (host, port) = host(text).ok_or_else(|| {
                    Fault::at(word, format!("\"{text}\" is not the address of a DNS server"))
                })?;
                own.hosts.push((host.into(), port, word.span));
            }
        }
        Ok(())
    })?;
    if own.servers.is_empty() && own.hosts.is_empty() {
        return Err(Fault::new("no name servers defined".to_owned()));
    }
    if !own.ipv4 && !own.ipv6 {
        return Err(Fault::new("\"ipv4\" and \"ipv6\" cannot both be \"off\"".to_owned()));
    }
    l.settings.resolver = Arc::new(own);
    Ok(())
}

/// An address, with or without a port.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let alone = bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
    alone.or_else(|| text.parse().ok())
}

/// A host, with or without a port.
fn host(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (text, DNS_PORT),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (!is_number && host.bytes().all(is_name)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_addresses_with_port_53_unless_another_is_said() {
        let rows = [
            ("192.0.2.1", Some("192.0.2.1:53")),
            ("192.0.2.1:5353", Some("192.0.2.1:5353")),
            ("[2001:db8::1]", Some("[2001:db8::1]:53")),
            ("[2001:db8::1]:5353", Some("[2001:db8::1]:5353")),
            ("dns.example", None),
            ("192.0.2.1:", None),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|it| it.parse().expect("an address"));
            assert_eq!(address(text), expected, "{text}");
        }
    }

    #[test]
    fn a_server_may_be_named_by_its_host() {
        let rows = [
            ("dns.example", Some(("dns.example", 53))),
            ("dns.example:5353", Some(("dns.example", 5353))),
            ("kube-dns", Some(("kube-dns", 53))),
            ("dns.example:", None),
            ("dns.example:0", None),
            ("dns.example:x", None),
            ("192.0.2.300", None),
            ("[::1", None),
            ("a b", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(host(text), expected, "{text}");
        }
    }
}
