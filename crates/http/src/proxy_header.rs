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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProxyHeader {
    /// The client's address and the address it connected to. `None` if the balancer does not say it: it
    /// connects for itself (`LOCAL`), does not know (`UNKNOWN`), or the client came by something else than
    /// TCP.
    pub addresses: Option<ProxyAddresses>,
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
    Ok(Some((ProxyHeader { addresses }, end + 2)))
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
    let addresses = match family {
        _ if is_local => None,
        // TCP over IPv4, over IPv6.
        0x11 => Some(v4(rest).ok_or(BadProxyHeader::Malformed)?),
        0x21 => Some(v6(rest).ok_or(BadProxyHeader::Malformed)?),
        // Unix sockets, datagrams and unknown families: accepted, but the addresses are not read.
        _ => None,
    };
    Ok(Some((ProxyHeader { addresses }, total)))
}

fn v4(rest: &[u8]) -> Option<ProxyAddresses> {
    let (source, rest) = rest.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    let ports = *rest.first_chunk::<4>()?;
    Some(ProxyAddresses {
        source: SocketAddr::new(Ipv4Addr::from(*source).into(), port(ports, 0)),
        destination: SocketAddr::new(Ipv4Addr::from(*destination).into(), port(ports, 2)),
    })
}

fn v6(rest: &[u8]) -> Option<ProxyAddresses> {
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let ports = *rest.first_chunk::<4>()?;
    Some(ProxyAddresses {
        source: SocketAddr::new(Ipv6Addr::from(*source).into(), port(ports, 0)),
        destination: SocketAddr::new(Ipv6Addr::from(*destination).into(), port(ports, 2)),
    })
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
            Ok(Some((ProxyHeader { addresses: None }, count))) => format!("nobody {count}"),
            Ok(Some((ProxyHeader { addresses: Some(it) }, count))) => {
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
}
