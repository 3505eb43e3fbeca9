//! Where a server is: `tcp://HOST:PORT`, `tls://HOST:PORT?OPTIONS`, `unix:PATH` or `ipc:PATH` (shared memory over a Unix
//! socket). A path that begins with `@` is an abstract name.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `tcp://HOST:PORT`.
    Tcp(String),
    /// `unix:PATH`.
    Unix(String),
    /// `ipc:PATH`: shared memory.
    Ipc(String),
    /// `tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME`, where each of the options may be left out. Connecting needs
    /// the feature `tls`.
    Tls(String, Box<TlsOptions>),
}

/// What a client shows and whom it trusts. All files are PEM, and read for each connection.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct TlsOptions {
    /// `ca`: the authorities that the server's certificate may come from; those of the system if not set.
    pub authorities: Option<PathBuf>,
    /// `cert`: the client's certificate, with those of intermediate authorities behind it.
    pub certificate: Option<PathBuf>,
    /// `key`: its key, where that is not in the same file.
    pub key: Option<PathBuf>,
    /// `name`: the name in the server's certificate, where that is not the host of the address.
    pub name: Option<String>,
}

/// The text is no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let has_port = |at: &str| {
            at.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        let found = if let Some(rest) = text.strip_prefix("tcp://") {
            has_port(rest).then(|| Self::Tcp(rest.to_owned()))
        } else if let Some(rest) = text.strip_prefix("tls://") {
            let (at, query) = rest.split_once('?').unwrap_or((rest, ""));
            let options = TlsOptions::from_query(query).filter(|_| has_port(at));
            options.map(|options| Self::Tls(at.to_owned(), Box::new(options)))
        } else if let Some(path) = text.strip_prefix("unix:") {
            Some(Self::Unix(path.to_owned())).filter(|_| !path.is_empty())
        } else if let Some(path) = text.strip_prefix("ipc:") {
            Some(Self::Ipc(path.to_owned())).filter(|_| !path.is_empty())
        } else {
            None
        };
        found.ok_or_else(|| NoAddress(text.to_owned()))
    }
}

impl TlsOptions {
    /// `None` for options that are not known, empty, given twice or wrongly encoded.
    fn from_query(query: &str) -> Option<Self> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            let value = decoded(value).filter(|value| !value.is_empty())?;
            let path = |value| Some(PathBuf::from(OsString::from_vec(value)));
            let before = match key {
                "ca" => options.authorities.replace(path(value)?).is_some(),
                "cert" => options.certificate.replace(path(value)?).is_some(),
                "key" => options.key.replace(path(value)?).is_some(),
                "name" => options.name.replace(String::from_utf8(value).ok()?).is_some(),
                _ => return None,
            };
            if before {
                return None;
            }
        }
        // A key is that of a certificate.
        (options.key.is_none() || options.certificate.is_some()).then_some(options)
    }

    fn query(&self) -> String {
        let files = [("ca", &self.authorities), ("cert", &self.certificate), ("key", &self.key)];
        let files = files
            .into_iter()
            .filter_map(|(key, path)| Some((key, encoded(path.as_ref()?.as_os_str().as_bytes()))));
        let name = self.name.as_ref().map(|name| ("name", encoded(name.as_bytes())));
        let pairs = files.chain(name).map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// `%41` for `A`; `None` where the digits are not there.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push((high * 16 + low) as u8);
    }
    Some(out)
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/:@[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => write!(out, "tcp://{at}"),
            Self::Unix(path) => write!(out, "unix:{path}"),
            Self::Ipc(path) => write!(out, "ipc:{path}"),
            Self::Tls(at, options) => {
                let query = options.query();
                let mark = if query.is_empty() { "" } else { "?" };
                write!(out, "tls://{at}{mark}{query}")
            }
        }
    }
}

impl fmt::Display for NoAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = "tcp://HOST:PORT, tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME, unix:PATH and \
                     ipc:PATH are known";
        write!(out, "{:?} is no address: {known}", self.0)
    }
}

impl std::error::Error for NoAddress {}

impl From<NoAddress> for io::Error {
    fn from(error: NoAddress) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_transport() {
        let good = ["tcp://localhost:80", "tcp://[::1]:9000", "unix:/run/s", "unix:@name", "ipc:s"];
        let tls =
            ["tls://a:1", "tls://[::1]:9000?ca=/a%20b/c.pem", "tls://a:1?cert=c&key=%26k&name=b.c"];
        for text in good.into_iter().chain(tls) {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        let bad = ["", "localhost:80", "tcp://", "tcp://a", "tcp://:80", "tcp://a:0", "tcp://a:x"];
        let tls = [
            "tls://a",
            "tls://a?ca=b",
            "tls://a:1?verify=off",
            "tls://a:1?ca",
            "tls://a:1?ca=",
            "tls://a:1?ca=%4",
            "tls://a:1?ca=%zz",
            "tls://a:1?ca=b&ca=c",
            "tls://a:1?key=k",
            "tls://a:1?name=%ff",
        ];
        for text in bad.into_iter().chain(tls).chain(["unix:", "ipc:", "http://a:80"]) {
            let error = text.parse::<Address>().expect_err("no address").to_string();
            assert!(error.contains("is no address"), "{error}");
        }
    }

    #[test]
    fn options_stand_behind_the_question_mark() {
        let text = "tls://host:7455?ca=/etc/a%20b.pem&cert=c%2Fd.pem&key=e&name=other.example";
        let Ok(Address::Tls(at, options)) = text.parse() else { panic!("an address") };
        let expected = TlsOptions {
            authorities: Some("/etc/a b.pem".into()),
            certificate: Some("c/d.pem".into()),
            key: Some("e".into()),
            name: Some("other.example".to_owned()),
        };
        assert_eq!((at.as_str(), *options), ("host:7455", expected));
    }
}
