//! The first message of a TLS handshake (RFC 8446 §4.1.2, RFC 5246 §7.4.1.2) in so far as it says where a connection
//! is to go: the name of the server, the protocols that the client speaks, and the newest version that it knows. It is
//! only looked at; all of it is passed on as it came.

/// What the message says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHello {
    /// `$ssl_preread_server_name`; empty where none is asked for.
    pub server_name: Vec<u8>,
    /// `$ssl_preread_alpn_protocols`: separated by commas.
    pub alpn_protocols: Vec<u8>,
    /// `$ssl_preread_protocol`
    pub protocol: &'static str,
}

/// What the first bytes of a connection are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hello {
    /// Not all of the message is there.
    NotYet,
    /// The beginning of something else.
    Other,
    /// The message.
    Complete(ClientHello),
}

/// The type of a record with a part of a handshake.
const HANDSHAKE: u8 = 22;
/// The type of this message.
const CLIENT_HELLO: u8 = 1;
const RECORD_HEAD_BYTES: usize = 5;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ALPN: u16 = 16;
const EXTENSION_SUPPORTED_VERSIONS: u16 = 43;

impl Hello {
    /// Reads the first bytes of a connection.
    pub fn read(bytes: &[u8]) -> Self {
        match message(bytes) {
            Err(other) => other,
            Ok(body) => read_body(&body).map_or(Self::Other, Self::Complete),
        }
    }
}

/// The body of the message, out of the records that it came in.
fn message(mut bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    if let [first, _, CLIENT_HELLO, high, low, ..] = bytes
        && first & 0x80 != 0
    {
        // The form of SSL 2.0, which says nothing else.
        let protocol = version_name(u16::from_be_bytes([*high, *low]));
        return Err(Hello::Complete(ClientHello { protocol, ..ClientHello::default() }));
    }
    let mut handshake = Vec::new();
    loop {
        if let [kind, a, b, c, body @ ..] = handshake.as_slice() {
            if *kind != CLIENT_HELLO {
                return Err(Hello::Other);
            }
            let wanted = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if let Some(body) = body.get(..wanted) {
                return Ok(body.to_vec());
            }
        }
        match bytes {
            [first] | [first, _] | [first, _, CLIENT_HELLO, ..] if first & 0x80 != 0 => {
                return Err(Hello::NotYet);
            }
            [kind, ..] if *kind != HANDSHAKE => return Err(Hello::Other),
            [_, major, ..] if *major != 3 => return Err(Hello::Other),
            [_, _, _, high, low, rest @ ..] => {
                let wanted = usize::from(u16::from_be_bytes([*high, *low]));
                if wanted == 0 {
                    return Err(Hello::Other);
                }
                handshake.extend_from_slice(&rest[..wanted.min(rest.len())]);
                bytes = bytes.get(RECORD_HEAD_BYTES + wanted..).unwrap_or_default();
            }
            _ => return Err(Hello::NotYet),
        }
    }
}

fn read_body(body: &[u8]) -> Option<ClientHello> {
    let mut hello = ClientHello::default();
    let mut rest = Reader(body);
    let version = rest.number()?;
    // The random bytes of the client.
    rest.take(32)?;
    let session = usize::from(rest.byte()?);
    rest.take(session)?;
    let ciphers = usize::from(rest.number()?);
    rest.take(ciphers)?;
    let compressions = usize::from(rest.byte()?);
    rest.take(compressions)?;
    hello.protocol = version_name(version);
    if rest.0.is_empty() {
        return Some(hello);
    }
    let length = usize::from(rest.number()?);
    let mut extensions = Reader(rest.take(length)?);
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let length = usize::from(extensions.number()?);
        // What is only looked at may be shorter than it says.
        let length = length.min(extensions.0.len());
        let mut content = Reader(extensions.take(length)?);
        match kind {
            EXTENSION_SERVER_NAME => hello.server_name = server_name(&mut content)?,
            EXTENSION_ALPN => hello.alpn_protocols = protocols(&mut content)?,
            EXTENSION_SUPPORTED_VERSIONS => {
                let length = usize::from(content.byte()?);
                let versions = content.take(length)?.as_chunks::<2>().0.iter();
                let known = versions.map(|two| u16::from_be_bytes(*two));
                // Values that mean nothing keep servers from being strict (RFC 8701).
                let newest = known.filter(|version| !version_name(*version).is_empty()).max();
                if let Some(newest) = newest {
                    hello.protocol = version_name(newest);
                }
            }
            _ => {}
        }
    }
    Some(hello)
}

/// The host among the names; there are no other kinds (RFC 6066 §3).
fn server_name(content: &mut Reader<'_>) -> Option<Vec<u8>> {
    let length = usize::from(content.number()?);
    let mut names = Reader(content.take(length)?);
    while !names.0.is_empty() {
        let kind = names.byte()?;
        let length = usize::from(names.number()?);
        let name = names.take(length)?;
        if kind == 0 {
            return Some(name.to_ascii_lowercase());
        }
    }
    Some(Vec::new())
}

fn protocols(content: &mut Reader<'_>) -> Option<Vec<u8>> {
    let length = usize::from(content.number()?);
    let mut names = Reader(content.take(length)?);
    let mut all = Vec::new();
    while !names.0.is_empty() {
        let length = usize::from(names.byte()?);
        let name = names.take(length)?;
        if !all.is_empty() {
            all.push(b',');
        }
        all.extend_from_slice(name);
    }
    Some(all)
}

const fn version_name(version: u16) -> &'static str {
    match version {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        // The drafts of it count as well.
        0x0304 | 0x7f00..=0x7fff => "TLSv1.3",
        _ => "",
    }
}

/// Bytes that are taken from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut all = kind.to_be_bytes().to_vec();
        all.extend((content.len() as u16).to_be_bytes());
        all.extend(content);
        all
    }

    fn with_length(content: &[u8]) -> Vec<u8> {
        let mut all = (content.len() as u16).to_be_bytes().to_vec();
        all.extend(content);
        all
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        if !extensions.is_empty() {
            body.extend(with_length(extensions));
        }
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend(with_length(&body));
        message
    }

    /// In records of so many bytes.
    fn records(message: &[u8], bytes: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &with_length(part)].concat();
        message.chunks(bytes).flat_map(record).collect()
    }

    fn example() -> (Vec<u8>, ClientHello) {
        let name = with_length(&[&[0][..], &with_length(b"WWW.example.org")].concat());
        let alpn = with_length(b"\x02h2\x08http/1.1");
        let extensions = [
            extension(0x0a0a, b""),
            extension(EXTENSION_SERVER_NAME, &name),
            extension(EXTENSION_ALPN, &alpn),
            extension(EXTENSION_SUPPORTED_VERSIONS, &[6, 0x7a, 0x7a, 3, 4, 3, 3]),
        ];
        let expected = ClientHello {
            server_name: b"www.example.org".to_vec(),
            alpn_protocols: b"h2,http/1.1".to_vec(),
            protocol: "TLSv1.3",
        };
        (hello(&extensions.concat()), expected)
    }

    #[test]
    fn a_message_says_the_same_however_it_is_cut() {
        let (message, expected) = example();
        for bytes in [1, 3, 50, 1000] {
            let all = records(&message, bytes);
            for end in 0..all.len() {
                assert_eq!(Hello::read(&all[..end]), Hello::NotYet, "{end} of {}", all.len());
            }
            assert_eq!(Hello::read(&all), Hello::Complete(expected.clone()), "{bytes}");
            let longer = [&all[..], b"more"].concat();
            assert_eq!(Hello::read(&longer), Hello::Complete(expected.clone()));
        }
    }

    #[test]
    fn what_says_less_is_read_as_well() {
        let plain = records(&hello(&[]), 100);
        let expected = ClientHello { protocol: "TLSv1.2", ..ClientHello::default() };
        assert_eq!(Hello::read(&plain), Hello::Complete(expected));
        for (version, expected) in [([0, 2], "SSLv2"), ([3, 1], "TLSv1")] {
            let old = [&[0x80, 46, 1][..], &version].concat();
            assert_eq!(Hello::read(&old[..4]), Hello::NotYet);
            let found = Hello::read(&old);
            assert!(matches!(found, Hello::Complete(hello) if hello.protocol == expected));
        }
    }

    #[test]
    fn what_is_no_handshake_is_told_at_once() {
        for bytes in [&b"GET / HTTP/1.1"[..], b"SSH-2.0-x", b"\x16\x02\x00", b"\x17\x03\x03"] {
            assert_eq!(Hello::read(bytes), Hello::Other, "{bytes:?}");
        }
        // A length that leads nowhere.
        let mut message = hello(&[]);
        message[38] = 200;
        assert_eq!(Hello::read(&records(&message, 100)), Hello::Other);
        assert_eq!(Hello::read(b"\x16\x03\x01\x00\x00"), Hello::Other);
        assert_eq!(Hello::read(&records(&[2, 0, 0, 0], 4)), Hello::Other);
    }
}
