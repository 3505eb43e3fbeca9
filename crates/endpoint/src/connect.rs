//! Connecting by an address, whatever the transport: `tcp://HOST:PORT`, `unix:PATH` or `ipc:PATH` (shared memory over a
//! Unix socket). A path that begins with `@` is an abstract name.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_service::Peer;
use tokio::net::{TcpStream, UnixStream};

use crate::blocking;
use crate::client::Client;
use crate::core::{CONNECT_TIMEOUT, CallError, Options};
use crate::ipc;
use crate::stream::Stream;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `tcp://HOST:PORT`.
    Tcp(String),
    /// `unix:PATH`.
    Unix(String),
    /// `ipc:PATH`: shared memory.
    Ipc(String),
}

/// The text is no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let found = if let Some(rest) = text.strip_prefix("tcp://") {
            let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            has_port.then(|| Self::Tcp(rest.to_owned()))
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

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => write!(out, "tcp://{at}"),
            Self::Unix(path) => write!(out, "unix:{path}"),
            Self::Ipc(path) => write!(out, "ipc:{path}"),
        }
    }
}

impl fmt::Display for NoAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = "tcp://HOST:PORT, unix:PATH and ipc:PATH are known";
        write!(out, "{:?} is no address: {known}", self.0)
    }
}

impl std::error::Error for NoAddress {}

impl From<NoAddress> for io::Error {
    fn from(error: NoAddress) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A transport of any kind.
#[derive(Debug)]
pub enum AnyStream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// Shared memory.
    Ipc(Box<ipc::Stream>),
}

/// Connects to an address and greets the server.
pub async fn connect(
    address: &str,
    options: impl Into<Options>,
) -> Result<Client<AnyStream>, CallError> {
    let address = address.parse::<Address>().map_err(|error| CallError::Transport(error.into()))?;
    connect_to(&address, options).await
}

/// The same for an address that was read before.
pub async fn connect_to(
    address: &Address,
    options: impl Into<Options>,
) -> Result<Client<AnyStream>, CallError> {
    let options = options.into();
    let timeout = options.timeout.unwrap_or(CONNECT_TIMEOUT);
    let stream = match tokio::time::timeout(timeout, open(address, options.spin)).await {
        Ok(stream) => stream.map_err(CallError::Transport)?,
        Err(_) => return Err(CallError::Transport(io::ErrorKind::TimedOut.into())),
    };
    Client::connect(stream, options).await
}

async fn open(address: &Address, spin: Duration) -> io::Result<AnyStream> {
    Ok(match address {
        Address::Tcp(at) => {
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            AnyStream::Tcp(stream)
        }
        Address::Unix(path) => AnyStream::Unix(open_unix(path)?),
        Address::Ipc(path) => {
            let stream = ipc::Stream::connect(open_unix(path)?).with_spin(spin);
            AnyStream::Ipc(Box::new(stream))
        }
    })
}

/// A Unix socket connects at once, or its queue is full.
fn open_unix(path: &str) -> io::Result<UnixStream> {
    let stream = open_std_unix(path)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

fn open_std_unix(path: &str) -> io::Result<std::os::unix::net::UnixStream> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    std::os::unix::net::UnixStream::connect_addr(&address)
}

impl Stream for AnyStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Stream::poll_read(stream, cx, into),
            Self::Unix(stream) => Stream::poll_read(stream, cx, into),
            Self::Ipc(stream) => Stream::poll_read(&mut **stream, cx, into),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Stream::poll_write(stream, cx, bytes),
            Self::Unix(stream) => Stream::poll_write(stream, cx, bytes),
            Self::Ipc(stream) => Stream::poll_write(&mut **stream, cx, bytes),
        }
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Stream::poll_shut_down(stream, cx),
            Self::Unix(stream) => Stream::poll_shut_down(stream, cx),
            Self::Ipc(stream) => Stream::poll_shut_down(&mut **stream, cx),
        }
    }

    fn peer(&self) -> Peer {
        match self {
            Self::Tcp(stream) => Stream::peer(stream),
            Self::Unix(stream) => Stream::peer(stream),
            Self::Ipc(stream) => Stream::peer(&**stream),
        }
    }
}

/// A transport of any kind, for programs without a runtime.
#[derive(Debug)]
pub enum AnyBlockingStream {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// Shared memory.
    Ipc(Box<ipc::BlockingStream>),
}

/// Connects to an address and greets the server, for programs without a runtime.
pub fn connect_blocking(
    address: &str,
    options: impl Into<Options>,
) -> Result<blocking::Client<AnyBlockingStream>, CallError> {
    let options = options.into();
    let timeout = options.timeout.unwrap_or(CONNECT_TIMEOUT);
    let stream = open_blocking(address, timeout, options.spin);
    blocking::Client::connect(stream.map_err(CallError::Transport)?, options)
}

fn open_blocking(
    address: &str,
    timeout: Duration,
    spin: Duration,
) -> io::Result<AnyBlockingStream> {
    Ok(match address.parse::<Address>()? {
        Address::Tcp(at) => {
            let mut last = io::ErrorKind::AddrNotAvailable.into();
            for address in std::net::ToSocketAddrs::to_socket_addrs(&at)? {
                match std::net::TcpStream::connect_timeout(&address, timeout) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(AnyBlockingStream::Tcp(stream));
                    }
                    Err(error) => last = error,
                }
            }
            return Err(last);
        }
        Address::Unix(path) => AnyBlockingStream::Unix(open_std_unix(&path)?),
        Address::Ipc(path) => {
            let mut stream = ipc::BlockingStream::connect(open_std_unix(&path)?)?;
            stream.set_spin(spin);
            AnyBlockingStream::Ipc(Box::new(stream))
        }
    })
}

impl AnyBlockingStream {
    /// How long a wait for bytes may last; for ever if not set.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Ipc(stream) => {
                stream.set_read_timeout(timeout);
                Ok(())
            }
        }
    }
}

impl blocking::Transport for AnyBlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => blocking::Transport::read(stream, into),
            Self::Unix(stream) => blocking::Transport::read(stream, into),
            Self::Ipc(stream) => stream.read(into),
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_some(bytes),
            Self::Unix(stream) => stream.write_some(bytes),
            Self::Ipc(stream) => stream.write_some(bytes),
        }
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        match self {
            Self::Tcp(stream) => stream.wait(wants_to_write, timeout),
            Self::Unix(stream) => stream.wait(wants_to_write, timeout),
            Self::Ipc(stream) => stream.wait(wants_to_write, timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_transport() {
        let good = ["tcp://localhost:80", "tcp://[::1]:9000", "unix:/run/s", "unix:@name", "ipc:s"];
        for text in good {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        let bad = ["", "localhost:80", "tcp://", "tcp://a", "tcp://:80", "tcp://a:0", "tcp://a:x"];
        for text in bad.into_iter().chain(["unix:", "ipc:", "http://a:80"]) {
            let error = text.parse::<Address>().expect_err("no address").to_string();
            assert!(error.contains("is no address"), "{error}");
        }
    }
}
