//! The arguments of `listen`: an address in any of nginx's forms, and socket options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::model::{ListenAddress, ListenOptions};
use crate::source::path_of;
use crate::value;

/// The port where none is said.
const PORT: u16 = 80;
/// How many ports one `listen` may name.
const RANGE_MAX: u16 = 1000;

/// What one `listen` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenLine {
    /// Every address it means: more than one for a range of ports.
    pub addresses: Vec<ListenAddress>,
    /// `default_server`
    pub is_default: bool,
    /// The socket options.
    pub options: ListenOptions,
    /// Whether any of them was given: then no other `listen` of the address may.
    pub has_options: bool,
}

/// Which argument is wrong (0 is the address), and why.
pub type BadListen = (usize, String);

/// Reads the arguments of a `listen`; the error is everything that is wrong with them.
pub fn listen(args: &[&[u8]]) -> Result<ListenLine, Vec<BadListen>> {
    let address = args.first().copied().unwrap_or_default();
    let mut wrong = Vec::new();
    let addresses = addresses(address).unwrap_or_else(|reason| {
        wrong.push((0, reason));
        Vec::new()
    });
    let mut line = ListenLine {
        addresses,
        is_default: false,
        options: ListenOptions::default(),
        has_options: false,
    };
    for (at, arg) in args.iter().enumerate().skip(1) {
        let read = match std::str::from_utf8(arg) {
            Ok(text) => option(&mut line, text),
            Err(_) => Err("invalid parameter".to_owned()),
        };
        wrong.extend(read.err().map(|reason| (at, reason)));
    }
    if line.options.quic {
        let at = args.iter().position(|arg| *arg == b"quic").unwrap_or(0);
        wrong.extend(quic(&mut line).into_iter().map(|reason| (at, reason)));
    }
    if wrong.is_empty() { Ok(line) } else { Err(wrong) }
}

/// Makes the addresses of a `listen … quic` those of datagrams. Each worker has a socket of its own, so that the kernel
/// can hand a datagram to the worker that its connection id names. Returns what is wrong.
fn quic(line: &mut ListenLine) -> Vec<String> {
    let options = &line.options;
    let unsuitable = [
        (options.tls, "ssl"),
        (options.http2, "http2"),
        (options.proxy_protocol, "proxy_protocol"),
        (options.backlog.is_some(), "backlog"),
        (options.so_keepalive.is_some(), "so_keepalive"),
        (options.fastopen.is_some(), "fastopen"),
        (options.deferred.is_some(), "deferred"),
    ];
    let unsuitable = unsuitable.into_iter().filter(|(is_said, _)| *is_said);
    let mut wrong: Vec<_> = unsuitable
        .map(|(_, name)| format!("\"{name}\" parameter is incompatible with \"quic\""))
        .collect();
    for address in &mut line.addresses {
        match address {
            ListenAddress::Tcp(at) => *address = ListenAddress::Udp(*at),
            _ => wrong.push("\"quic\" is for IP addresses".to_owned()),
        }
    }
    (line.options.tls, line.options.reuseport) = (true, true);
    wrong
}

/// Reads the arguments of a `listen` in `stream`: there is no port where none is said, and `udp` is for datagrams.
pub fn stream_listen(args: &[&[u8]]) -> Result<ListenLine, Vec<BadListen>> {
    let mut wrong: Vec<BadListen> = Vec::new();
    let address = args.first().copied().unwrap_or_default();
    let text = std::str::from_utf8(address).unwrap_or_default();
    let behind = text.rsplit_once(']').map_or(text, |(_, behind)| behind);
    let has_port =
        behind.contains(':') || text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if !has_port && !text.starts_with("unix:") {
        wrong.push((0, format!("no port in \"{text}\" of the \"listen\" directive")));
    }
    let at = |wanted: &[u8]| args.iter().position(|arg| *arg == wanted).unwrap_or(0);
    let is_udp = at(b"udp") > 0;
    let (places, rest): (Vec<usize>, Vec<&[u8]>) =
        args.iter().copied().enumerate().filter(|(at, arg)| *at == 0 || *arg != b"udp").unzip();
    for name in [&b"http2"[..], b"quic"].into_iter().filter(|name| args.contains(name)) {
        let shown = String::from_utf8_lossy(name);
        wrong.push((at(name), format!("invalid parameter \"{shown}\"")));
    }
    let mut line = match listen(&rest) {
        Ok(line) if wrong.is_empty() => line,
        Ok(_) => return Err(wrong),
        Err(more) => {
            wrong.extend(more.into_iter().map(|(at, reason)| (places[at], reason)));
            wrong.sort_unstable();
            wrong.dedup_by_key(|(at, _)| *at);
            return Err(wrong);
        }
    };
    if !is_udp {
        return Ok(line);
    }
    for address in &mut line.addresses {
        match address {
            ListenAddress::Tcp(at) => *address = ListenAddress::Udp(*at),
            _ => return Err(vec![(0, "\"udp\" is for IP addresses".to_owned())]),
        }
    }
    let options = &line.options;
    let unsuitable = [
        (options.tls, "ssl"),
        (options.proxy_protocol, "proxy_protocol"),
        (options.backlog.is_some(), "backlog"),
        (options.so_keepalive.is_some(), "so_keepalive"),
        (options.fastopen.is_some(), "fastopen"),
    ];
    let unsuitable = unsuitable.into_iter().filter(|(is_said, _)| *is_said);
    let wrong: Vec<_> = unsuitable
        .map(|(_, name)| (at(b"udp"), format!("\"{name}\" parameter is incompatible with \"udp\"")))
        .collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(line)
}

/// The addresses that a word means.
pub fn addresses(word: &[u8]) -> Result<Vec<ListenAddress>, String> {
    if let Some(path) = word.strip_prefix(b"unix:") {
        return match path {
            [] => Err("no path in the unix domain socket".to_owned()),
            // The kernel has room for 108 bytes, the last one a zero.
            _ if path.len() > 107 => Err("too long path in the unix domain socket".to_owned()),
            _ => Ok(vec![ListenAddress::Unix(path_of(path))]),
        };
    }
    let text = std::str::from_utf8(word).map_err(|_| "invalid address".to_owned())?;
    if text.is_empty() {
        return Err("no host".to_owned());
    }
    let (host, ports) = split(text)?;
    let ip = ip(host)?;
    Ok(ports.map(|port| ListenAddress::Tcp(SocketAddr::new(ip, port))).collect())
}

fn split(text: &str) -> Result<(&str, std::ops::RangeInclusive<u16>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("missing \"]\" in the address")?;
        let ports = match rest.strip_prefix(':') {
            Some(port) => ports(port)?,
            None if rest.is_empty() => PORT..=PORT,
            None => return Err(format!("invalid port \"{rest}\"")),
        };
        // Marked, so that it is not taken for a name.
        return Ok((&text[..host.len() + 2], ports));
    }
    if let Some((host, port)) = text.rsplit_once(':') {
        if host.contains(':') {
            return Err("an IPv6 address must be in brackets".to_owned());
        }
        return if host.is_empty() { Err("no host".to_owned()) } else { Ok((host, ports(port)?)) };
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Ok(("*", ports(text)?));
    }
    Ok((text, PORT..=PORT))
}

fn ports(text: &str) -> Result<std::ops::RangeInclusive<u16>, String> {
    let port = |text: &str| {
        let port = value::number(text).ok().and_then(|port| u16::try_from(port).ok());
        port.filter(|port| *port > 0).ok_or_else(|| format!("invalid port \"{text}\""))
    };
    let Some((first, last)) = text.split_once('-') else {
        let port = port(text)?;
        return Ok(port..=port);
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last || last - first >= RANGE_MAX {
        return Err("invalid port range".to_owned());
    }
    Ok(first..=last)
}

fn ip(host: &str) -> Result<IpAddr, String> {
    if host == "*" {
        return Ok(Ipv4Addr::UNSPECIFIED.into());
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let ip: Ipv6Addr =
            inner.parse().map_err(|_| format!("invalid IPv6 address \"{inner}\""))?;
        return Ok(ip.into());
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    host.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| {
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_number {
            format!("invalid address \"{host}\"")
        } else {
            format!("names are not resolved: \"{host}\" must be an address or \"localhost\"")
        }
    })
}

fn option(line: &mut ListenLine, text: &str) -> Result<(), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let wrong = || format!("invalid parameter \"{text}\"");
    let number = || {
        let number = value.and_then(|value| value::number(value).ok());
        number.and_then(|number| u32::try_from(number).ok()).ok_or_else(wrong)
    };
    let size = || value.and_then(|value| value::size(value).ok()).map(Some).ok_or_else(wrong);
    let flag = || value.and_then(|value| value::flag(value).ok()).ok_or_else(wrong);
    let options = &mut line.options;
    match (name, value) {
        ("default_server" | "default", None) => {
            line.is_default = true;
            return Ok(());
        }
        // nginx since 1.25 prefers the directive `http2`, and takes this all the same.
        // Not options of the socket: every `listen` of an address may say them.
        ("http2", None) => {
            options.http2 = true;
            return Ok(());
        }
        ("ssl", None) => {
            options.tls = true;
            return Ok(());
        }
        ("proxy_protocol", None) => {
            options.proxy_protocol = true;
            return Ok(());
        }
        ("quic", None) => {
            options.quic = true;
            return Ok(());
        }
        ("spdy" | "multipath", None) => {
            return Err(format!("\"{name}\" of \"listen\" is not supported yet"));
        }
        ("bind", None) => {}
        ("setfib", Some(_)) => _ = number()?,
        ("accept_filter", Some(value)) if !value.is_empty() => {}
        ("reuseport", None) => options.reuseport = true,
        ("deferred", None | Some("on")) => options.deferred = Some(true),
        ("deferred", Some("off")) => options.deferred = Some(false),
        // nginx takes -1 for the system's own.
        ("backlog", Some("-1")) => options.backlog = None,
        ("backlog", Some(_)) => {
            options.backlog = Some(number()?).filter(|n| *n > 0).ok_or_else(wrong).map(Some)?;
        }
        ("fastopen", Some(_)) => options.fastopen = Some(number()?),
        ("rcvbuf", Some(_)) => options.rcvbuf = size()?,
        ("sndbuf", Some(_)) => options.sndbuf = size()?,
        ("ipv6only", Some(_)) => {
            let is_v6 =
                line.addresses.iter().all(|a| matches!(a, ListenAddress::Tcp(a) if a.is_ipv6()));
            if !is_v6 {
                return Err("\"ipv6only\" is for IPv6 addresses".to_owned());
            }
            options.ipv6only = Some(flag()?);
        }
        ("so_keepalive", Some("on" | "off")) => options.so_keepalive = Some(flag()?),
        ("so_keepalive", Some(value)) => {
            options.so_keepalive = Some(keepalive_fields(value).ok_or_else(wrong)?);
        }
        _ => return Err(wrong()),
    }
    line.has_options = true;
    Ok(())
}

/// `[idle]:[interval]:[count]`: at least one of them.
fn keepalive_fields(value: &str) -> Option<bool> {
    let fields: Vec<&str> = value.split(':').collect();
    let [idle, interval, count] = fields.as_slice() else { return None };
    let is_time = |text: &str| text.is_empty() || value::time(text).is_ok();
    let is_fine =
        is_time(idle) && is_time(interval) && (count.is_empty() || value::number(count).is_ok());
    (is_fine && value.len() > 2).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        match listen(&args) {
            Ok(line) => {
                let addresses: Vec<_> = line
                    .addresses
                    .iter()
                    .map(|address| match address {
                        ListenAddress::Tcp(address) => address.to_string(),
                        ListenAddress::Unix(path) => path.display().to_string(),
                        ListenAddress::Udp(address) => format!("udp {address}"),
                    })
                    .collect();
                addresses.join(" ")
            }
            Err(wrong) => {
                let shown: Vec<_> =
                    wrong.iter().map(|(at, reason)| format!("{at}: {reason}")).collect();
                shown.join("; ")
            }
        }
    }

    /// O2: every address form of nginx is read.
    #[test]
    fn addresses_have_many_forms() {
        let table = [
            ("80", "0.0.0.0:80"),
            ("*:80", "0.0.0.0:80"),
            ("*", "0.0.0.0:80"),
            ("1.2.3.4:81", "1.2.3.4:81"),
            ("1.2.3.4", "1.2.3.4:80"),
            ("[::]:80", "[::]:80"),
            ("[::1]", "[::1]:80"),
            ("[2001:db8::1]:8080", "[2001:db8::1]:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("localhost", "127.0.0.1:80"),
            ("8080-8082", "0.0.0.0:8080 0.0.0.0:8081 0.0.0.0:8082"),
            ("[::1]:80-81", "[::1]:80 [::1]:81"),
            ("unix:/run/x.sock", "/run/x.sock"),
            ("0", "0: invalid port \"0\""),
            ("65536", "0: invalid port \"65536\""),
            ("82-80", "0: invalid port range"),
            ("1-65535", "0: invalid port range"),
            ("1.2.3.4:", "0: invalid port \"\""),
            ("1.2.3", "0: invalid address \"1.2.3\""),
            ("1.2.3.4.5:80", "0: invalid address \"1.2.3.4.5\""),
            ("::1", "0: an IPv6 address must be in brackets"),
            ("[::1", "0: missing \"]\" in the address"),
            ("[::1]80", "0: invalid port \"80\""),
            ("[1.2.3.4]:80", "0: invalid IPv6 address \"1.2.3.4\""),
            (":80", "0: no host"),
            ("", "0: no host"),
            (
                "0 x y=1 deferred",
                "0: invalid port \"0\"; 1: invalid parameter \"x\"; 2: invalid parameter \"y=1\"",
            ),
            ("unix:", "0: no path in the unix domain socket"),
            (
                "example.org:80",
                "0: names are not resolved: \"example.org\" must be an address or \"localhost\"",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert!(shown(&format!("unix:/{}", "x".repeat(107))).starts_with("0: too long"));
    }

    #[test]
    fn options_are_read_or_refused() {
        let args: Vec<&[u8]> = "[::]:80 default_server backlog=511 reuseport ipv6only=off so_keepalive=30m::10 \
                                rcvbuf=8k sndbuf=1m deferred fastopen=3 http2 proxy_protocol bind setfib=1 accept_filter=httpready"
            .split(' ')
            .map(str::as_bytes)
            .collect();
        let line = listen(&args).unwrap();
        assert!(line.is_default && line.has_options);
        let expected = ListenOptions {
            backlog: Some(511),
            reuseport: true,
            ipv6only: Some(false),
            so_keepalive: Some(true),
            rcvbuf: Some(8192),
            sndbuf: Some(1 << 20),
            deferred: Some(true),
            fastopen: Some(3),
            http2: true,
            mode: None,
            ipc: false,
            quic: false,
            tls: false,
            proxy_protocol: true,
        };
        assert_eq!(line.options, expected);
        assert!(!listen(&[b"80", b"default_server"]).unwrap().has_options);
        let table = [
            ("80 quic", "udp 0.0.0.0:80"),
            ("[::]:443 quic reuseport default_server", "udp [::]:443"),
            ("443 ssl quic", "2: \"ssl\" parameter is incompatible with \"quic\""),
            ("443 quic http2", "1: \"http2\" parameter is incompatible with \"quic\""),
            ("unix:/run/x quic", "1: \"quic\" is for IP addresses"),
            ("80 multipath", "1: \"multipath\" of \"listen\" is not supported yet"),
            ("80 backlog=0", "1: invalid parameter \"backlog=0\""),
            ("80 backlog=x", "1: invalid parameter \"backlog=x\""),
            ("80 ipv6only=on", "1: \"ipv6only\" is for IPv6 addresses"),
            ("80 so_keepalive=::", "1: invalid parameter \"so_keepalive=::\""),
            ("80 bind deferred=1", "2: invalid parameter \"deferred=1\""),
            ("80 nonsense", "1: invalid parameter \"nonsense\""),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
