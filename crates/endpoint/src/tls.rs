//! TLS around TCP, with rustls' own buffers: sessions are few and long. Both sides are the same; what each of them shows and
//! trusts is in the configuration that it is made with.

use std::io::{self, Read, Write};
use std::net::TcpStream as StdTcpStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use sekisho_lifecycle::Moment;
use sekisho_service::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::address::TlsOptions;
use crate::blocking::Transport;
use crate::clock::Clock;
use crate::stream;

/// So much is encrypted in one go: no more waits here to leave.
const SEND_BYTES: usize = 64 << 10;
/// How long the server may take nothing while something waits to leave.
const STALL_LIMIT: Duration = Duration::from_secs(30);

impl TlsOptions {
    /// What rustls needs, from the files as they are now.
    pub fn client_config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.authorities {
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| of_file(path, &error))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                let why = "the system trusts no certificate authority: name a file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let Some(path) = &self.certificate else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let from = self.key.as_ref().unwrap_or(path);
        let key = PrivateKeyDer::from_pem_file(from).map_err(|error| of_file(from, &error))?;
        let own = builder.with_client_auth_cert(certificates(path)?, key);
        Ok(Arc::new(own.map_err(|error| of_file(path, &error))?))
    }

    /// The name that the certificate of the server at this address must have.
    pub fn server_name(&self, at: &str) -> io::Result<ServerName<'static>> {
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let error = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        ServerName::try_from(name).map_err(error)
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| of_file(path, &error))?;
    if all.is_empty() {
        return Err(of_file(path, &"no certificate is in it"));
    }
    Ok(all)
}

fn of_file(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}

/// A connection with TLS, of either side.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    keys: Connection,
    is_shut: bool,
}

/// The socket, as rustls reads from and writes to it.
struct Socket<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

fn blocking<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Socket<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(into);
        let polled = AsyncRead::poll_read(Pin::new(self.tcp), self.cx, &mut buffer);
        blocking(polled)?;
        Ok(buffer.filled().len())
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(AsyncWrite::poll_write(Pin::new(self.tcp), self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn polled<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl Stream {
    /// A side of a connection whose handshake is yet to come: it goes with what is read and written.
    pub fn new(tcp: TcpStream, keys: impl Into<Connection>) -> Self {
        Self { tcp, keys: keys.into(), is_shut: false }
    }

    /// The client's side, when the handshake is done: the server is the one with this name.
    pub async fn connect(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let keys = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = Self::new(tcp, keys);
        std::future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(stream)
    }

    /// The certificates that the peer has shown, its own first.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.keys.peer_certificates()
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.keys.is_handshaking() {
            ready!(self.poll_flush(cx))?;
            if self.keys.is_handshaking() && ready!(self.poll_more(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        self.poll_flush(cx)
    }

    /// Sends the records that wait.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.keys.wants_write() {
            let tcp = &mut self.tcp;
            if ready!(polled(self.keys.write_tls(&mut Socket { tcp, cx })))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads records; zero is the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let tcp = &mut self.tcp;
        let count = ready!(polled(self.keys.read_tls(&mut Socket { tcp, cx })))?;
        if let Err(error) = self.keys.process_new_packets() {
            // The peer is told why, if it takes it.
            let _ = self.poll_flush(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }
}

impl stream::Stream for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // What the handshake has to say; if the peer does not take it, its bytes are read all the same.
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            match self.keys.reader().read(into) {
                Ok(count) => return Poll::Ready(Ok(count)),
                // An end without a last word is an end: the protocol has one of its own to say.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_more(cx))?;
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let count = self.keys.writer().write(&bytes[..bytes.len().min(SEND_BYTES)])?;
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What did not leave leaves before the next, or when the session reads.
            _ => Poll::Ready(Ok(count)),
        }
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_shut, true) {
            self.keys.send_close_notify();
        }
        ready!(self.poll_flush(cx))?;
        AsyncWrite::poll_shutdown(Pin::new(&mut self.tcp), cx)
    }

    fn reset_on_close(&mut self) {
        stream::Stream::reset_on_close(&mut self.tcp);
    }

    fn peer(&self) -> Peer {
        stream::Stream::peer(&self.tcp)
    }
}

/// The client's side for programs without a runtime.
#[derive(Debug)]
pub struct BlockingStream {
    keys: ClientConnection,
    tcp: StdTcpStream,
}

/// The socket, as rustls writes to it: nothing waits.
struct AtOnce<'a>(&'a mut StdTcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_some(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlockingStream {
    /// When the handshake is done, for which there is so much time: the server is the one with this name.
    pub fn connect(
        tcp: StdTcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let keys = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = Self { keys, tcp };
        let clock = Clock::new();
        while stream.keys.is_handshaking() {
            stream.flush_all()?;
            let left = timeout.saturating_sub(clock.now().since(Moment::ZERO));
            match stream.tcp.wait(false, left).and_then(|_| stream.read_more()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        stream.flush_all()?;
        Ok(stream)
    }

    /// The socket, for its options.
    pub fn tcp(&self) -> &StdTcpStream {
        &self.tcp
    }

    /// Sends the records that wait, as far as that goes at once.
    fn flush(&mut self) -> io::Result<()> {
        while self.keys.wants_write() {
            self.keys.write_tls(&mut AtOnce(&mut self.tcp))?;
        }
        Ok(())
    }

    /// The same to the end.
    fn flush_all(&mut self) -> io::Result<()> {
        loop {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.tcp.wait(true, STALL_LIMIT)?;
                }
                done => return done,
            }
        }
    }

    /// Reads records; zero is the end.
    fn read_more(&mut self) -> io::Result<usize> {
        let count = self.keys.read_tls(&mut self.tcp)?;
        if let Err(error) = self.keys.process_new_packets() {
            // The server is told why, if it takes it.
            let _ = self.flush();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(count)
    }
}

impl Transport for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            match self.keys.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            // A server that cannot get rid of its answers takes nothing: whichever comes first.
            if !self.keys.wants_write() || self.tcp.wait(true, STALL_LIMIT)? {
                self.read_more()?;
            }
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.keys.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        let state = self.keys.process_new_packets();
        if state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
            return Ok(true);
        }
        let has_output = self.keys.wants_write();
        self.tcp.wait(wants_to_write || has_output, timeout)
    }
}
