//! The header that a load balancer sends before everything else, with its client's address: the PROXY
//! protocol, versions 1 and 2. Bytes in, addresses out; which peers are trusted is decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// No header of version 1 is longer, its line end included.
const V1_BYTES_MAX: usize = 107;
/// What a header of version 2 begins with.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEAD_BYTES: usize = 16;
/// No header is longer, as in nginx: room for addresses and some further values.
pub const BYTES_MAX: usize = 4096;

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProxyHeader {
    /// The client's address and the address it connected to. `None` if the balancer does not say it: it
    /// connects for itself (`LOCAL`), does not know (`UNKNOWN`), or the client came by something else than
    /// TCP.
    pub addresses: Option<ProxyAddresses>,
    /// The further values of version 2 (TLVs), as they came.
    values: Box<[u8]>,
}

/// A further value of a header of version 2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProxyValue {
    /// That of this type.
    Of(u16),
    /// That of this type within the one about TLS.
    OfTls(u16),
    /// Whether the client's certificate was verified: 0 if it was.
    TlsVerify,
}

impl ProxyValue {
    const TLS: u16 = 0x20;
    /// Before the values within the one about TLS: a byte of flags and the result of the verification.
    const TLS_HEAD_BYTES: usize = 5;

    /// The one of this name, as nginx names it: `alpn`, `ssl_cn`, `0xae`, `ssl_0x21`.
    pub fn named(name: &str) -> Option<Self> {
        let number = |text: &str| u16::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        if let Some(name) = name.strip_prefix("ssl_") {
            let known = match name {
                "verify" => return Some(Self::TlsVerify),
                "version" => Some(0x21),
                "cn" => Some(0x22),
                "cipher" => Some(0x23),
                "sig_alg" => Some(0x24),
                "key_alg" => Some(0x25),
                _ => number(name),
            };
            return known.map(Self::OfTls);
        }
        let known = match name {
            "alpn" => Some(0x01),
            "authority" => Some(0x02),
            "unique_id" => Some(0x05),
            "ssl" => Some(Self::TLS),
            "netns" => Some(0x30),
            _ => number(name),
        };
        known.map(Self::Of)
    }
}

impl ProxyHeader {
    /// Appends a further value; nothing where the balancer has not sent it.
    pub fn push_value(&self, which: ProxyValue, out: &mut Vec<u8>) {
        let tls =
            || find(&self.values, ProxyValue::TLS)?.split_at_checked(ProxyValue::TLS_HEAD_BYTES);
        let found = match which {
            ProxyValue::Of(kind) => find(&self.values, kind),
            ProxyValue::OfTls(kind) => tls().and_then(|(_, values)| find(values, kind)),
            ProxyValue::TlsVerify => {
                if let Some([_, result @ ..]) = tls().map(|(head, _)| head) {
                    let result = result.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
                    out.extend_from_slice(result.to_string().as_bytes());
                }
                None
            }
        };
        out.extend_from_slice(found.unwrap_or_default());
    }
}

/// The first value of a type: each has a byte for its type and two for its length. What is cut short ends the search.
fn find(mut values: &[u8], kind: u16) -> Option<&[u8]> {
    while let Some(([of, high, low], rest)) = values.split_first_chunk::<3>() {
        let (value, behind) = rest.split_at_checked(u16::from_be_bytes([*high, *low]).into())?;
        if u16::from(*of) == kind {
            return Some(value);
        }
        values = behind;
    }
    None
}

/// Both ends of the connection to the balancer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyAddresses {
    /// The client.
    pub source: SocketAddr,
    /// What it connected to.
    pub destination: SocketAddr,
}

/// The bytes are no valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadProxyHeader {
    /// It begins like none.
    NoHeader,
    /// Longer than any may be.
    TooLong,
    /// A field of it is wrong.
    Malformed,
}

impl BadProxyHeader {
    /// In words.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoHeader => "the connection does not begin with a PROXY header",
            Self::TooLong => "the PROXY header is too long",
            Self::Malformed => "the PROXY header is malformed",
        }
    }
}

impl std::fmt::Display for BadProxyHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for BadProxyHeader {}

/// Reads the header at the beginning of what a connection has sent: the header and its length, or `None` where
/// more bytes are needed. What cannot become a header any more is refused at once.
pub fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadProxyHeader> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => version_1(bytes),
        Some(_) => version_2(bytes),
    }
}

/// The header of version 1 that says this to a server.
pub fn write(addresses: Option<ProxyAddresses>) -> String {
    match addresses {
        Some(ProxyAddresses { source, destination })
            if source.is_ipv4() == destination.is_ipv4() =>
        {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            let (from_port, to_port) = (source.port(), destination.port());
            format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n")
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    }
}

fn version_1(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadProxyHeader> {
    const START: &[u8] = b"PROXY ";
    let common = bytes.len().min(START.len());
    if bytes[..common] != START[..common] {
        return Err(BadProxyHeader::NoHeader);
    }
    let looked_at = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = looked_at.windows(2).position(|pair| pair == b"\r\n") else {
        let said = bytes.get(START.len()..).unwrap_or_default();
        let may_be = |family: &&[u8]| {
            let common = said.len().min(family.len());
            said[..common] == family[..common]
        };
        return match [&b"TCP4 "[..], b"TCP6 ", b"UNKNOWN"].iter().any(may_be) {
            false => Err(BadProxyHeader::Malformed),
            true if bytes.len() < V1_BYTES_MAX => Ok(None),
            true => Err(BadProxyHeader::TooLong),
        };
    };
    let line = std::str::from_utf8(&bytes[START.len()..end]);
    let line = line.map_err(|_| BadProxyHeader::Malformed)?;
    let addresses = if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        None
    } else {
        Some(text_addresses(line).ok_or(BadProxyHeader::Malformed)?)
    };
    Ok(Some((ProxyHeader { addresses, values: Box::default() }, end + 2)))
}

/// `TCP4 192.0.2.1 192.0.2.2 56324 443`
fn text_addresses(line: &str) -> Option<ProxyAddresses> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [family, source, destination, source_port, destination_port] = fields.as_slice() else {
        return None;
    };
    let address = |text: &str| -> Option<IpAddr> {
        match *family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let port = |text: &str| -> Option<u16> {
        // The standard library would take a sign.
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    Some(ProxyAddresses {
        source: SocketAddr::new(address(source)?, port(source_port)?),
        destination: SocketAddr::new(address(destination)?, port(destination_port)?),
    })
}

fn version_2(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadProxyHeader> {
    let common = bytes.len().min(V2_SIGNATURE.len());
    if bytes[..common] != V2_SIGNATURE[..common] {
        return Err(BadProxyHeader::NoHeader);
    }
    let Some(head) = bytes.first_chunk::<V2_HEAD_BYTES>() else { return Ok(None) };
    let (version_and_command, family) = (head[12], head[13]);
    if version_and_command >> 4 != 2 {
        return Err(BadProxyHeader::Malformed);
    }
    let is_local = match version_and_command & 15 {
        0 => true,
        1 => false,
        _ => return Err(BadProxyHeader::Malformed),
    };
    let total = V2_HEAD_BYTES + usize::from(u16::from_be_bytes([head[14], head[15]]));
    if total > BYTES_MAX {
        return Err(BadProxyHeader::TooLong);
    }
    let Some(rest) = bytes.get(V2_HEAD_BYTES..total) else { return Ok(None) };
    let read = match family {
        _ if is_local => None,
        // TCP over IPv4, over IPv6.
        0x11 => Some(v4(rest).ok_or(BadProxyHeader::Malformed)?),
        0x21 => Some(v6(rest).ok_or(BadProxyHeader::Malformed)?),
        // Unix sockets, datagrams and unknown families: accepted, but the addresses are not read.
        _ => None,
    };
    let (addresses, values) = read.unzip();
    let values = values.unwrap_or_default().into();
    Ok(Some((ProxyHeader { addresses, values }, total)))
}

/// The addresses, and what follows them.
fn v4(rest: &[u8]) -> Option<(ProxyAddresses, &[u8])> {
    let (source, rest) = rest.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    let (ports, rest) = rest.split_first_chunk::<4>()?;
    let addresses = ProxyAddresses {
        source: SocketAddr::new(Ipv4Addr::from(*source).into(), port(*ports, 0)),
        destination: SocketAddr::new(Ipv4Addr::from(*destination).into(), port(*ports, 2)),
    };
    Some((addresses, rest))
}

fn v6(rest: &[u8]) -> Option<(ProxyAddresses, &[u8])> {
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let (ports, rest) = rest.split_first_chunk::<4>()?;
    let addresses = ProxyAddresses {
        source: SocketAddr::new(Ipv6Addr::from(*source).into(), port(*ports, 0)),
        destination: SocketAddr::new(Ipv6Addr::from(*destination).into(), port(*ports, 2)),
    };
    Some((addresses, rest))
}

fn port(ports: [u8; 4], at: usize) -> u16 {
    u16::from_be_bytes([ports[at], ports[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        match parse(bytes) {
            Ok(None) => "more".to_owned(),
            Ok(Some((ProxyHeader { addresses: None, .. }, count))) => format!("nobody {count}"),
            Ok(Some((ProxyHeader { addresses: Some(it), .. }, count))) => {
                format!("{} {} {count}", it.source, it.destination)
            }
            Err(bad) => format!("{bad:?}"),
        }
    }

    fn v2(version_and_command: u8, family: u8, length: u16, rest: &[u8]) -> Vec<u8> {
        let head = [&V2_SIGNATURE[..], &[version_and_command, family], &length.to_be_bytes()];
        [head.concat(), rest.to_vec()].concat()
    }

    #[test]
    fn version_1_is_one_line_of_text() {
        let table: [(&[u8], &str); 18] = [
            (b"", "more"),
            (b"P", "more"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r", "more"),
            (
                b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET",
                "192.0.2.1:56324 192.0.2.2:443 42",
            ),
            (b"PROXY TCP6 2001:db8::1 ::2 1 2\r\n", "[2001:db8::1]:1 [::2]:2 32"),
            (b"PROXY UNKNOWN\r\n", "nobody 15"),
            (b"PROXY UNKNOWN what ever\r\n", "nobody 25"),
            (b"PROXY UNKNOWNS\r\n", "Malformed"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 \r\n", "Malformed"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n", "Malformed"),
            (b"PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", "Malformed"),
            (b"PROXY TCP4 2001:db8::1 ::2 1 2\r\n", "Malformed"),
            (b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", "Malformed"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", "Malformed"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", "Malformed"),
            (b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", "Malformed"),
            (b"POST / HTTP/1.1\r\n", "NoHeader"),
            (b"GET / HTTP/1.1\r\n", "NoHeader"),
        ];
        for (bytes, expected) in table {
            assert_eq!(shown(bytes), expected, "{}", bytes.escape_ascii());
        }
        let mut long = b"PROXY UNKNOWN ".to_vec();
        long.resize(V1_BYTES_MAX - 1, b'x');
        assert_eq!(shown(&long), "more");
        long.push(b'x');
        assert_eq!(shown(&long), "TooLong");
    }

    #[test]
    fn version_2_is_binary() {
        let tcp4 = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
        let mut tcp6 = [0; 36];
        (tcp6[15], tcp6[31], tcp6[33], tcp6[35]) = (1, 2, 3, 4);
        let table = [
            (v2(0x21, 0x11, 12, &tcp4), "192.0.2.1:56324 192.0.2.2:443 28"),
            (
                v2(0x21, 0x11, 15, &[&tcp4[..], b"tlv", b"GET"].concat()),
                "192.0.2.1:56324 192.0.2.2:443 31",
            ),
            (v2(0x21, 0x21, 36, &tcp6), "[::1]:3 [::2]:4 52"),
            (v2(0x20, 0x11, 12, &tcp4), "nobody 28"),
            (v2(0x20, 0, 0, b""), "nobody 16"),
            (v2(0x21, 0x31, 216, &[0; 216]), "nobody 232"),
            (v2(0x21, 0x12, 12, &tcp4), "nobody 28"),
            (v2(0x21, 0x11, 12, &tcp4[..11]), "more"),
            (v2(0x21, 0x11, 11, &tcp4), "Malformed"),
            (v2(0x21, 0x21, 35, &tcp6), "Malformed"),
            (v2(0x11, 0x11, 12, &tcp4), "Malformed"),
            (v2(0x22, 0x11, 12, &tcp4), "Malformed"),
            (v2(0x21, 0x11, 5000, &tcp4), "TooLong"),
            (b"\r\n\r\n\0\r\nQUIX".to_vec(), "NoHeader"),
        ];
        for (bytes, expected) in table {
            assert_eq!(shown(&bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn further_values_are_found_by_name() {
        let value = |kind: u8, text: &[u8]| {
            [&[kind][..], &(text.len() as u16).to_be_bytes(), text].concat()
        };
        let tls =
            [&[7, 0, 0, 1, 2][..], &value(0x21, b"TLSv1.3"), &value(0x22, b"a.test")].concat();
        let values =
            [value(1, b"h2"), value(2, b"b.test"), value(0x20, &tls), value(0xae, b"x")].concat();
        let all = [&[192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2][..], &values].concat();
        let (header, _) = parse(&v2(0x21, 0x11, all.len() as u16, &all)).unwrap().unwrap();
        for (name, expected) in [
            ("alpn", "h2"),
            ("0x01", "h2"),
            ("0x0001", "h2"),
            ("authority", "b.test"),
            ("unique_id", ""),
            ("0xae", "x"),
            ("0x1ae", ""),
            ("ssl_version", "TLSv1.3"),
            ("ssl_cn", "a.test"),
            ("ssl_0x22", "a.test"),
            ("ssl_key_alg", ""),
            ("ssl_verify", "258"),
        ] {
            let mut out = Vec::new();
            header.push_value(ProxyValue::named(name).expect(name), &mut out);
            assert_eq!(out, expected.as_bytes(), "{name}");
        }
        for name in ["", "other", "0x", "0xg", "ssl_", "ssl_other", "0x10000"] {
            assert_eq!(ProxyValue::named(name), None, "{name}");
        }
        // A value that is cut short, and none at all.
        for all in [&all[..all.len() - 1], &all[..12], &all[..14]] {
            let (header, _) = parse(&v2(0x21, 0x11, all.len() as u16, all)).unwrap().unwrap();
            let mut out = Vec::new();
            header.push_value(ProxyValue::Of(0xae), &mut out);
            assert_eq!(out, b"");
        }
        let (local, _) = parse(&v2(0x20, 0x11, all.len() as u16, &all)).unwrap().unwrap();
        let mut out = Vec::new();
        local.push_value(ProxyValue::TlsVerify, &mut out);
        assert_eq!(out, b"");
    }
}
