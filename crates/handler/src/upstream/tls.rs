//! TLS to servers (`https://`, `proxy_ssl_*`): settings made ready when a site is made, and the stream itself.

mod verify;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sekisho_config::{Config, Family, Location, Pass, PassTo, UpstreamTls};

pub use self::verify::AnyCertificate;
use self::verify::Trusted;
use super::stream::Socket;
use crate::encrypted_key;

/// A file that cannot be used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamTlsProblem {
    /// The directive.
    pub directive: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub message: String,
}

/// How servers are spoken to by TLS, by the settings of the locations.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTlsConfigs(HashMap<UpstreamTls, Arc<ClientConfig>>);

impl UpstreamTlsConfigs {
    /// Makes those of a configuration ready.
    pub fn load(config: &Config) -> Result<Self, UpstreamTlsProblem> {
        let mut all = HashMap::new();
        let is_tls = |location: &Location| {
            let settings = &location.settings;
            match &settings.stream {
                Some(stream) => stream.is_upstream_tls,
                None => settings.pass.as_deref().is_some_and(may_be_tls),
            }
        };
        let locations = config.http.locations.iter().filter(|location| is_tls(location));
        for pass in locations.filter_map(|location| location.settings.pass.as_deref()) {
            let settings = &*pass.forward.tls;
            if !all.contains_key(settings) {
                all.insert(settings.clone(), Arc::new(client_config(settings)?));
            }
        }
        Ok(Self(all))
    }

    pub(super) fn get(&self, settings: &UpstreamTls) -> Option<Arc<ClientConfig>> {
        self.0.get(settings).cloned()
    }
}

fn may_be_tls(pass: &Pass) -> bool {
    match &pass.to {
        PassTo::Named(to) => to.is_tls,
        PassTo::Computed(_) => matches!(pass.family, Family::Proxy | Family::Grpc | Family::Uwsgi),
    }
}

fn client_config(settings: &UpstreamTls) -> Result<ClientConfig, UpstreamTlsProblem> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifying = Arc::clone(&provider);
    let keys = provider.key_provider;
    let problem = |directive, path: &Path, message: String| UpstreamTlsProblem {
        directive,
        path: path.to_owned(),
        message,
    };
    let nowhere = Path::new("");
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| problem("proxy_pass", nowhere, error.to_string()))?;
    let builder = if settings.verify {
        const TRUSTED: &str = "proxy_ssl_trusted_certificate";
        let Some(path) = &settings.trusted else {
            let message = format!("no {TRUSTED} for proxy_ssl_verify");
            return Err(problem("proxy_ssl_verify", nowhere, message));
        };
        let mut roots = RootCertStore::empty();
        let named = certificates(TRUSTED, path)?;
        for authority in &named {
            roots
                .add(authority.clone())
                .map_err(|error| problem(TRUSTED, path, format!("cannot be used: {error}")))?;
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), verifying)
            .build()
            .map_err(|error| problem(TRUSTED, path, format!("cannot be used: {error}")))?;
        let verifier = Arc::new(Trusted::new(chain, named));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        let verifier = Arc::new(AnyCertificate::new());
        builder.dangerous().with_custom_certificate_verifier(verifier)
    };
    let mut config = match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => {
            const NAME: &str = "proxy_ssl_certificate";
            let chain = certificates(NAME, certificate)?;
            let own = private_key(key, settings.password_file.as_deref())?;
            let own = keys.load_private_key(own).map_err(|error| {
                problem("proxy_ssl_certificate_key", key, format!("cannot be used: {error}"))
            })?;
            let pair = CertifiedKey::new(chain, own);
            // Whether they fit cannot be told of a certificate in an old form, which servers may take all the same.
            if let Err(error @ rustls::Error::InconsistentKeys(_)) = pair.keys_match() {
                let message = format!("does not fit its key: {error}");
                return Err(problem(NAME, certificate, message));
            }
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        (Some(certificate), None) => {
            let message = "has no proxy_ssl_certificate_key".to_owned();
            return Err(problem("proxy_ssl_certificate", certificate, message));
        }
        (None, _) => builder.with_no_client_auth(),
    };
    config.enable_sni = settings.sends_name;
    if !settings.reuses_sessions {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// A key, which may be encrypted.
fn private_key(
    path: &Path,
    passwords: Option<&Path>,
) -> Result<PrivateKeyDer<'static>, UpstreamTlsProblem> {
    const KEY: &str = "proxy_ssl_certificate_key";
    let problem = |directive, path: &Path, message: String| UpstreamTlsProblem {
        directive,
        path: path.to_owned(),
        message,
    };
    let read = |directive, path: &Path| {
        let text = std::fs::read(path);
        text.map_err(|error| problem(directive, path, format!("cannot be read: {error}")))
    };
    let text = read(KEY, path)?;
    if encrypted_key::is_encrypted(&text) {
        let passwords = passwords.map(|file| read("proxy_ssl_password_file", file)).transpose()?;
        let key = encrypted_key::decrypt(&text, passwords.as_deref());
        return key.map_err(|why| problem(KEY, path, why.to_string()));
    }
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| problem(KEY, path, format!("cannot be used: {error}")))
}

fn certificates(
    directive: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, UpstreamTlsProblem> {
    let problem =
        |message: String| UpstreamTlsProblem { directive, path: path.to_owned(), message };
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| problem(format!("cannot be read: {error}")))?;
    if all.is_empty() {
        return Err(problem("has no certificate in it".to_owned()));
    }
    Ok(all)
}

/// What a handshake needs.
#[derive(Clone, Debug)]
pub(super) struct Secure {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    /// HTTP/2 is spoken, which the handshake says (ALPN).
    pub(super) is_http2: bool,
}

impl Secure {
    /// The name is that of the configuration, or of the URL without its port.
    pub(super) fn new(
        config: Arc<ClientConfig>,
        settings: &UpstreamTls,
        host: &[u8],
        is_http2: bool,
    ) -> Option<Self> {
        let host = settings.name.as_deref().unwrap_or_else(|| without_port(host));
        let host = std::str::from_utf8(host).ok()?;
        let name = ServerName::try_from(host.to_owned()).ok();
        // No certificate can have an invalid name: the handshake may go on only if it is not verified.
        let name = match name {
            None if !settings.verify => ServerName::try_from("upstream.invalid").ok(),
            name => name,
        };
        Some(Self { config, name: name?, is_http2 })
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    if let Some(rest) = host.strip_prefix(b"[") {
        return rest.split(|byte| *byte == b']').next().unwrap_or_default();
    }
    host.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// An encrypted connection.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Socket,
    tls: ClientConnection,
}

impl TlsStream {
    /// Shakes hands.
    pub(super) async fn connect(socket: Socket, secure: Secure) -> Result<Self, String> {
        let Secure { config, name, is_http2 } = secure;
        let protocols = if is_http2 { vec![b"h2".to_vec()] } else { Vec::new() };
        let tls = ClientConnection::new_with_alpn(config, name, protocols)
            .map_err(|error| error.to_string())?;
        let mut stream = Self { socket, tls };
        poll_fn(|cx| stream.poll_handshake(cx)).await.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.flush(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Sends what is encrypted and waits.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let Self { socket, tls } = self;
            ready!(socket.write_by(cx, |writer| tls.write_tls(writer)))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads encrypted bytes and decrypts them.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self { socket, tls } = self;
        let read = ready!(socket.read_by(cx, |reader| tls.read_tls(reader)))?;
        if let Err(error) = tls.process_new_packets() {
            // The alert says why, if it can.
            let _ = self.flush(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(read))
    }

    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let before = to.len();
            let room = (to.capacity() - before).min(64 * 1024);
            let mut reader = self.tls.reader().take(room as u64);
            match reader.read_to_end(to) {
                Ok(0) => {}
                // An end without `close_notify` is no end (S3): what came before it counts.
                Ok(_) => return Poll::Ready(Ok(to.len() - before)),
                Err(_) if to.len() > before => return Poll::Ready(Ok(to.len() - before)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Answers to what came (a new key) leave as they can.
                    if let Poll::Ready(Err(error)) = self.flush(cx) {
                        return Poll::Ready(Err(error));
                    }
                    ready!(self.fill(cx))?;
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            return Poll::Ready(Ok(0));
        }
    }

    pub(super) fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.flush(cx))?;
        let written = self.tls.writer().write(bytes)?;
        if let Poll::Ready(Err(error)) = self.flush(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    /// Says that nothing follows (`close_notify`), as far as that leaves at once.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) -> &Socket {
        self.tls.send_close_notify();
        let _ = self.flush(cx);
        &self.socket
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.tls.wants_write() && self.socket.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_server_has_no_port() {
        for (host, expected) in
            [("a:443", "a"), ("a", "a"), ("[::1]:8443", "::1"), ("10.0.0.1:1", "10.0.0.1")]
        {
            assert_eq!(without_port(host.as_bytes()), expected.as_bytes());
        }
    }
}
