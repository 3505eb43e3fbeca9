//! The PROXY protocol: however a header is cut, what comes first is a wait for more and then the same result;
//! what follows a header changes nothing; and what a header says is read back when it is written again.

use sekisho_http::proxy_header::{BYTES_MAX, ProxyAddresses, ProxyValue, parse};

/// Holds the parser to it.
pub fn check(data: &[u8]) {
    let whole = parse(data);
    for end in 0..data.len() {
        let part = parse(&data[..end]);
        match (&part, &whole) {
            (Ok(None), _) => {}
            // What is refused early is refused for the same reason with more bytes.
            (Err(early), Err(late)) => assert_eq!(early, late),
            (Ok(Some(early)), Ok(Some(late))) => assert_eq!(early, late),
            _ => panic!("{part:?} after {end} bytes, {whole:?} in the end"),
        }
    }
    let Ok(Some((header, count))) = whole.clone() else { return };
    assert!(count <= data.len() && count <= BYTES_MAX);
    assert_eq!(parse(&data[..count]), whole, "what follows does not matter");
    // Further values are found, or are not, whatever they are.
    for name in ["alpn", "0xe0", "ssl_cn", "ssl_verify"] {
        let mut value = Vec::new();
        header.push_value(ProxyValue::named(name).expect("a name"), &mut value);
        assert!(value.len() <= count);
    }
    if let Some(addresses) = header.addresses {
        for text in [written_1(addresses), written_2(addresses)] {
            let again = parse(&text).expect("a header").expect("a whole one");
            assert_eq!((again.0.addresses, again.1), (Some(addresses), text.len()));
        }
    }
}

fn written_1(ProxyAddresses { source, destination }: ProxyAddresses) -> Vec<u8> {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

fn written_2(ProxyAddresses { source, destination }: ProxyAddresses) -> Vec<u8> {
    let octets = |ip| match ip {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut rest = [octets(source.ip()), octets(destination.ip())].concat();
    rest.extend(source.port().to_be_bytes());
    rest.extend(destination.port().to_be_bytes());
    let mut text = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    text.push(if source.is_ipv4() { 0x11 } else { 0x21 });
    text.extend((rest.len() as u16).to_be_bytes());
    [text, rest].concat()
}
