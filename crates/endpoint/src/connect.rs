//! Connecting by an [`Address`], whatever the transport.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_service::Peer;
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::blocking;
use crate::client::Client;
use crate::core::{CONNECT_TIMEOUT, CallError, Options};
use crate::ipc;
use crate::stream::Stream;
#[cfg(feature = "tls")]
use crate::tls;

/// A transport of any kind.
#[derive(Debug)]
pub enum AnyStream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// Shared memory.
    Ipc(Box<ipc::Stream>),
    /// TCP with TLS.
    #[cfg(feature = "tls")]
    Tls(Box<tls::Stream>),
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
        Address::Tcp(at) => AnyStream::Tcp(open_tcp(at).await?),
        Address::Unix(path) => AnyStream::Unix(open_unix(path)?),
        Address::Ipc(path) => {
            let stream = ipc::Stream::connect(open_unix(path)?).with_spin(spin);
            AnyStream::Ipc(Box::new(stream))
        }
        #[cfg(feature = "tls")]
        Address::Tls(at, options) => {
            let name = options.server_name(at)?;
            let options = options.clone();
            // Files are read, as they are now: certificates are renewed.
            let config = tokio::task::spawn_blocking(move || options.client_config());
            let config = config.await.map_err(io::Error::other)??;
            AnyStream::Tls(Box::new(tls::Stream::connect(open_tcp(at).await?, config, name).await?))
        }
        #[cfg(not(feature = "tls"))]
        Address::Tls(..) => return Err(without_tls()),
    })
}

async fn open_tcp(at: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(not(feature = "tls"))]
fn without_tls() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "built without the feature \"tls\"")
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
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Stream::poll_read(&mut **stream, cx, into),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Stream::poll_write(stream, cx, bytes),
            Self::Unix(stream) => Stream::poll_write(stream, cx, bytes),
            Self::Ipc(stream) => Stream::poll_write(&mut **stream, cx, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Stream::poll_write(&mut **stream, cx, bytes),
        }
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Stream::poll_shut_down(stream, cx),
            Self::Unix(stream) => Stream::poll_shut_down(stream, cx),
            Self::Ipc(stream) => Stream::poll_shut_down(&mut **stream, cx),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Stream::poll_shut_down(&mut **stream, cx),
        }
    }

    fn peer(&self) -> Peer {
        match self {
            Self::Tcp(stream) => Stream::peer(stream),
            Self::Unix(stream) => Stream::peer(stream),
            Self::Ipc(stream) => Stream::peer(&**stream),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Stream::peer(&**stream),
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
    /// TCP with TLS.
    #[cfg(feature = "tls")]
    Tls(Box<tls::BlockingStream>),
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
        Address::Tcp(at) => AnyBlockingStream::Tcp(open_std_tcp(&at, timeout)?),
        Address::Unix(path) => AnyBlockingStream::Unix(open_std_unix(&path)?),
        Address::Ipc(path) => {
            let mut stream = ipc::BlockingStream::connect(open_std_unix(&path)?)?;
            stream.set_spin(spin);
            AnyBlockingStream::Ipc(Box::new(stream))
        }
        #[cfg(feature = "tls")]
        Address::Tls(at, options) => {
            let (config, name) = (options.client_config()?, options.server_name(&at)?);
            let tcp = open_std_tcp(&at, timeout)?;
            let stream = tls::BlockingStream::connect(tcp, config, name, timeout)?;
            AnyBlockingStream::Tls(Box::new(stream))
        }
        #[cfg(not(feature = "tls"))]
        Address::Tls(..) => return Err(without_tls()),
    })
}

fn open_std_tcp(at: &str, timeout: Duration) -> io::Result<std::net::TcpStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in std::net::ToSocketAddrs::to_socket_addrs(at)? {
        match std::net::TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
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
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.tcp().set_read_timeout(timeout),
        }
    }
}

impl blocking::Transport for AnyBlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => blocking::Transport::read(stream, into),
            Self::Unix(stream) => blocking::Transport::read(stream, into),
            Self::Ipc(stream) => stream.read(into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(into),
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_some(bytes),
            Self::Unix(stream) => stream.write_some(bytes),
            Self::Ipc(stream) => stream.write_some(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write_some(bytes),
        }
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        match self {
            Self::Tcp(stream) => stream.wait(wants_to_write, timeout),
            Self::Unix(stream) => stream.wait(wants_to_write, timeout),
            Self::Ipc(stream) => stream.wait(wants_to_write, timeout),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.wait(wants_to_write, timeout),
        }
    }
}
