//! A server that requests are passed on to, as it stands on the command line.

use crate::Problem;

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) scheme: &'static str,
    /// Host and port, or `unix:PATH`.
    pub(crate) server: String,
    /// What stands behind the host; empty or with a slash in front.
    pub(crate) path: String,
}

impl Target {
    /// Reads `PORT`, `:PORT`, `HOST:PORT`, `unix:PATH`, or one of them behind `http://` or `https://`.
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        let wrong = |why: &str| {
            Problem::new(format_args!(
                "{text}: {why}; a server is for example :3000, host:3000 or https://host"
            ))
        };
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => ("http", rest),
            Some(("https", rest)) => ("https", rest),
            Some(_) => return Err(wrong("the scheme is not http or https")),
            None => ("http", text),
        };
        let is_odd = |character: char| {
            character.is_whitespace() || character.is_control() || "$'\"\\;{}".contains(character)
        };
        if rest.is_empty() || rest.contains(is_odd) {
            return Err(wrong("not a server"));
        }
        if rest.starts_with("unix:") {
            let (server, path) = match rest.rsplit_once(":/").filter(|(head, _)| *head != "unix") {
                Some((server, path)) => (server.to_owned(), format!("/{path}")),
                None => (rest.to_owned(), String::new()),
            };
            return Ok(Self { scheme, server, path });
        }
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let port = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
        let server = match host.rsplit_once(':').filter(|(head, _)| !head.ends_with(':')) {
            _ if port(host).is_some() => format!("127.0.0.1:{host}"),
            Some(("" | "localhost", number)) if port(number).is_some() => {
                format!("127.0.0.1:{number}")
            }
            Some((_, number)) if port(number).is_some() => host.to_owned(),
            Some(_) if !host.ends_with(']') => {
                return Err(wrong("the port is not a number from 1 to 65535"));
            }
            _ if host.is_empty() => return Err(wrong("there is no host")),
            _ => format!("{host}:{}", if scheme == "https" { 443 } else { 80 }),
        };
        Ok(Self { scheme, server, path: path.to_owned() })
    }

    /// The name for `Host` and TLS if it is not an address.
    pub(crate) fn host_name(&self) -> Option<&str> {
        let host = self.server.rsplit_once(':').map_or(self.server.as_str(), |(host, _)| host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_name = host != "unix"
            && !host.starts_with("unix:")
            && bare.parse::<std::net::IpAddr>().is_err();
        is_name.then_some(host)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.server, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_port_an_address_a_name_or_a_url() {
        for (text, expected) in [
            ("3000", "http://127.0.0.1:3000"),
            (":3000", "http://127.0.0.1:3000"),
            ("localhost:3000", "http://127.0.0.1:3000"),
            ("10.0.0.1:80", "http://10.0.0.1:80"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("http://app.example.org", "http://app.example.org:80"),
            ("https://app.example.org/api/", "https://app.example.org:443/api/"),
            ("unix:/run/app.sock", "http://unix:/run/app.sock"),
        ] {
            assert_eq!(Target::read(text).expect(text).to_string(), expected, "{text}");
        }
        for text in ["", "ftp://a", "host:99999", "host:", "a b:1", "a;b:1", ":0"] {
            assert!(Target::read(text).is_err(), "{text}");
        }
        let name = |text| Target::read(text).expect("good").host_name().map(str::to_owned);
        assert_eq!(name("https://app.example.org"), Some("app.example.org".to_owned()));
        assert_eq!((name(":1"), name("unix:/run/x"), name("[::1]:1")), (None, None, None));
    }
}
