//! Where a server is: `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT]`, or `tls://…`.

use std::fmt;

/// The port of servers that name none.
const PORT: u16 = 4222;

/// A server's address.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether nothing may be said in the clear.
    pub is_tls: bool,
    /// The user, or the token if there is no password.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// What is wrong with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// Neither `nats://` nor `tls://`.
    Scheme,
    /// No host, or none that could be one.
    Host,
    /// No number from 1 to 65535.
    Port,
}

impl fmt::Display for AddressError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Scheme => "an address of NATS begins with nats:// or tls://",
            Self::Host => "the address names no host",
            Self::Port => "the port must be a number from 1 to 65535",
        })
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(AddressError::Scheme),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (who, place) = match rest.rsplit_once('@') {
            Some((who, place)) => (Some(who), place),
            None => (None, rest),
        };
        let (host, port) = split_port(place)?;
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_good) {
            return Err(AddressError::Host);
        }
        let (user, password) = match who.map(|who| who.split_once(':').ok_or(who)) {
            Some(Ok((user, password))) => (Some(user.to_owned()), Some(password.to_owned())),
            Some(Err(token)) => (Some(token.to_owned()), None),
            None => (None, None),
        };
        Ok(Self { host: host.to_owned(), port, is_tls, user, password })
    }
}

fn split_port(place: &str) -> Result<(&str, u16), AddressError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(AddressError::Host)?;
            (host, after.strip_prefix(':').or(if after.is_empty() { None } else { Some("") }))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.map_or(Ok(PORT), str::parse).ok().filter(|port| *port > 0);
    Ok((host, port.ok_or(AddressError::Port)?))
}

/// Without what it proves itself by.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "tls" } else { "nats" };
        if self.host.contains(':') {
            write!(out, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        for (text, expected) in [
            ("nats://localhost", Ok("nats://localhost:4222")),
            ("nats://localhost:4333/", Ok("nats://localhost:4333")),
            ("tls://edge:secret@nats.example.org", Ok("tls://nats.example.org:4222")),
            ("nats://token@127.0.0.1:1", Ok("nats://127.0.0.1:1")),
            ("nats://[::1]:5", Ok("nats://[::1]:5")),
            ("nats://[::1]", Ok("nats://[::1]:4222")),
            ("nats://[::1", Err(AddressError::Host)),
            ("nats://[::1]x", Err(AddressError::Port)),
            ("nats://", Err(AddressError::Host)),
            ("nats://a b", Err(AddressError::Host)),
            ("nats://a:0", Err(AddressError::Port)),
            ("nats://a:65536", Err(AddressError::Port)),
            ("http://a", Err(AddressError::Scheme)),
            ("localhost:4222", Err(AddressError::Scheme)),
        ] {
            let shown = Address::parse(text).map(|address| format!("{address:?}"));
            assert_eq!(shown, expected.map(str::to_owned), "{text}");
        }
        let address = Address::parse("tls://edge:se:cret@a@b").expect("an address");
        assert_eq!(address.user.as_deref(), Some("edge"));
        assert_eq!(address.password.as_deref(), Some("se:cret@a"));
    }
}
