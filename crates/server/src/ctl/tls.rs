//! TLS to an address of the endpoint.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sekisho_endpoint::blocking::Transport;

use super::{Failure, Target};

/// How long the server may take nothing while something waits to leave.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// A connection with TLS.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    keys: ClientConnection,
    pub(super) tcp: TcpStream,
}

/// The socket, as rustls writes to it: nothing waits.
struct AtOnce<'a>(&'a mut TcpStream);

impl io::Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_some(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsSocket {
    /// The client's side, by what the command line says.
    pub(super) fn new(tcp: TcpStream, target: &Target) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("TLS: {error}"));
        let mut roots = RootCertStore::empty();
        if let Some(path) = &target.cacert {
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| failed(&error))?;
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots);
        let config = match &target.cert {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let from = target.key.as_ref().unwrap_or(path);
                let key = PrivateKeyDer::from_pem_file(from).map_err(|error| of(from, &error))?;
                let own = builder.with_client_auth_cert(certificates(path)?, key);
                own.map_err(|error| failed(&error))?
            }
        };
        let name = match &target.servername {
            Some(name) => ServerName::try_from(name.clone()).map_err(|error| failed(&error))?,
            None => ServerName::from(tcp.peer_addr()?.ip()),
        };
        let keys = ClientConnection::new(Arc::new(config), name);
        Ok(Self { keys: keys.map_err(|error| failed(&error))?, tcp })
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
}

impl Transport for TlsSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.flush_all()?;
            match self.keys.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            self.keys.read_tls(&mut self.tcp)?;
            if let Err(error) = self.keys.process_new_packets() {
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.keys.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            // Before the handshake there may be no more room.
            _ if count == 0 => Err(io::ErrorKind::WouldBlock.into()),
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

fn of(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    all.map_err(|error| of(path, &error))
}
