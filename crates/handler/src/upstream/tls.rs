//! TLS to servers (`https://`, `proxy_ssl_*`): settings made ready when a site is made, and the stream itself.

mod verify;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sekisho_config::{Config, Family, Location, Pass, PassTo, Pem, Template, UpstreamTls};
use sekisho_transport::{Socket, Transport};

pub use self::verify::AnyCertificate;
use self::verify::Trusted;
use crate::key_pair::{self, ComputedPair};

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
pub struct UpstreamTlsConfigs(HashMap<UpstreamTls, Arc<Ready>>);

/// What the settings of a location come to.
#[derive(Debug)]
pub(super) struct Ready {
    config: Arc<ClientConfig>,
    /// A certificate of ours that variables choose.
    computed: Option<ComputedPair>,
}

impl UpstreamTlsConfigs {
    /// Makes those of a configuration ready; or says what is wrong, with each of them.
    pub fn load(config: &Config) -> Result<Self, Vec<UpstreamTlsProblem>> {
        let (mut all, mut problems, mut bad) = (HashMap::new(), Vec::new(), HashSet::new());
        let is_tls = |location: &Location| {
            let settings = &location.settings;
            match &settings.stream {
                Some(stream) => stream.is_upstream_tls,
                None => settings.pass.as_deref().is_some_and(may_be_tls),
            }
        };
        let locations = config.http.locations.iter().filter(|location| is_tls(location));
        let passes = locations.filter_map(|location| location.settings.pass.as_deref());
        let stores = config.http.storages.iter().filter(|storage| storage.to.is_tls);
        // A location whose root is a storage has it as its pass: it is looked at under its own names first.
        let forwards = stores.map(|it| (Prefix::Storage, &it.forward));
        let forwards = forwards.chain(passes.map(|pass| (Prefix::of(pass.family), &pass.forward)));
        for (prefix, forward) in forwards {
            let settings = &*forward.tls;
            if all.contains_key(settings) || bad.contains(settings) {
                continue;
            }
            match client_config(settings) {
                Ok(config) => {
                    let ready =
                        Ready { config: Arc::new(config), computed: computed_pair(settings) };
                    all.insert(settings.clone(), Arc::new(ready));
                }
                Err(problem) => {
                    problems.push(problem.named(prefix));
                    bad.insert(settings.clone());
                }
            }
        }
        if problems.is_empty() { Ok(Self(all)) } else { Err(problems) }
    }

    pub(super) fn get(&self, settings: &UpstreamTls) -> Option<&Ready> {
        self.0.get(settings).map(AsRef::as_ref)
    }
}

/// What the directives of TLS to servers begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Proxy,
    Grpc,
    Uwsgi,
    /// In a `storage` they have none.
    Storage,
}

impl Prefix {
    const fn of(family: Family) -> Self {
        match family {
            Family::Grpc => Self::Grpc,
            Family::Uwsgi => Self::Uwsgi,
            _ => Self::Proxy,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Proxy => "proxy_ssl_",
            Self::Grpc => "grpc_ssl_",
            Self::Uwsgi => "uwsgi_ssl_",
            Self::Storage => "ssl_",
        }
    }
}

/// The directives that files are named by, with each prefix.
const NAMES: [[&str; 4]; 5] = [
    [
        "proxy_ssl_trusted_certificate",
        "grpc_ssl_trusted_certificate",
        "uwsgi_ssl_trusted_certificate",
        "ssl_trusted_certificate",
    ],
    ["proxy_ssl_verify", "grpc_ssl_verify", "uwsgi_ssl_verify", "ssl_verify"],
    ["proxy_ssl_crl", "grpc_ssl_crl", "uwsgi_ssl_crl", "ssl_crl"],
    ["proxy_ssl_certificate", "grpc_ssl_certificate", "uwsgi_ssl_certificate", "ssl_certificate"],
    [
        "proxy_ssl_certificate_key",
        "grpc_ssl_certificate_key",
        "uwsgi_ssl_certificate_key",
        "ssl_certificate_key",
    ],
];

impl UpstreamTlsProblem {
    /// The same with the names that the configuration has for it.
    fn named(self, prefix: Prefix) -> Self {
        let row = NAMES.iter().find(|row| row[0] == self.directive);
        let directive = row.map_or(self.directive, |row| row[prefix as usize]);
        let message = self.message.replace(Prefix::Proxy.text(), prefix.text());
        Self { directive, message, ..self }
    }
}

/// Where one of the two has variables.
fn computed_pair(settings: &UpstreamTls) -> Option<ComputedPair> {
    let (certificate, key) = settings.certificate.as_ref().zip(settings.key.as_ref())?;
    let UpstreamTls { password_file, certificate_cache, .. } = settings;
    (certificate.is_computed() || key.is_computed()).then(|| {
        ComputedPair::new(
            certificate.clone(),
            key.clone(),
            password_file.clone(),
            *certificate_cache,
        )
    })
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
        let mut chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&verifying));
        if let Some(path) = &settings.crl {
            const CRL: &str = "proxy_ssl_crl";
            let lists = sekisho_openings::read(path)
                .map_err(|error| problem(CRL, path, format!("cannot be read: {error}")))?;
            let lists = CertificateRevocationListDer::pem_slice_iter(&lists)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| problem(CRL, path, format!("cannot be read: {error}")))?;
            chain = chain.with_crls(lists);
        }
        let chain = chain
            .build()
            .map_err(|error| problem(TRUSTED, path, format!("cannot be used: {error}")))?;
        let verifier = Arc::new(Trusted::new(chain, named));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        let verifier = Arc::new(AnyCertificate::new());
        builder.dangerous().with_custom_certificate_verifier(verifier)
    };
    let mut config = match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) if !certificate.is_computed() && !key.is_computed() => {
            const NAME: &str = "proxy_ssl_certificate";
            let about = |directive, pem: &Pem, why| problem(directive, &pem.shown(), why);
            let chain = key_pair::read(certificate)
                .and_then(|text| key_pair::chain(&text))
                .map_err(|why| about(NAME, certificate, why))?;
            let passwords = settings.password_file.as_deref();
            let own = key_pair::read(key)
                .and_then(|text| key_pair::private_key(&text, passwords, "proxy_ssl_password_file"))
                .map_err(|why| about("proxy_ssl_certificate_key", key, why))?;
            let pair = key_pair::pair(chain, own, &verifying)
                .map_err(|why| about("proxy_ssl_certificate_key", key, why))?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        (Some(certificate), None) => {
            let message = "has no proxy_ssl_certificate_key".to_owned();
            return Err(problem("proxy_ssl_certificate", &certificate.shown(), message));
        }
        _ => builder.with_no_client_auth(),
    };
    config.enable_sni = settings.sends_name;
    // A session is that of one certificate of ours.
    if !settings.reuses_sessions || computed_pair(settings).is_some() {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

fn certificates(
    directive: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, UpstreamTlsProblem> {
    let problem =
        |message: String| UpstreamTlsProblem { directive, path: path.to_owned(), message };
    let text = sekisho_openings::read(path);
    let text = text.map_err(|error| problem(format!("cannot be read: {error}")))?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
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
    /// The certificate of ours that variables have chosen.
    pub(super) own: Option<CertificateDer<'static>>,
    /// HTTP/2 is spoken, which the handshake says (ALPN).
    pub(super) is_http2: bool,
}

impl Secure {
    /// The name is that of the configuration, or of the URL without its port. `now` is the time of day; an error says
    /// why there can be no handshake.
    pub(super) fn new(
        ready: &Ready,
        settings: &UpstreamTls,
        host: &[u8],
        now: Duration,
        value: impl Fn(&Template) -> Vec<u8>,
    ) -> Result<Self, String> {
        let host = match &settings.name {
            Some(name) => Cow::Owned(value(name)),
            None => Cow::Borrowed(host),
        };
        let name = std::str::from_utf8(without_port(&host)).ok();
        let name = name.and_then(|name| ServerName::try_from(name.to_owned()).ok());
        // No certificate can have an invalid name: the handshake may go on only if it is not verified.
        let name = match name {
            None if !settings.verify => ServerName::try_from("upstream.invalid").ok(),
            name => name,
        };
        let name = name.ok_or_else(|| format!("no name for TLS in \"{}\"", host.escape_ascii()))?;
        let mut config = Arc::clone(&ready.config);
        let mut own = None;
        if let Some(computed) = &ready.computed {
            let pair = computed.pair(config.crypto_provider(), now, value)?;
            if let Some(pair) = pair {
                own = pair.cert.first().cloned();
                let config = Arc::make_mut(&mut config);
                config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair));
            }
        }
        Ok(Self { config, name, own, is_http2: false })
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
    /// Before its handshake.
    pub(super) fn new(socket: Socket, secure: Secure) -> Result<Self, String> {
        let Secure { config, name, is_http2, .. } = secure;
        let protocols = if is_http2 { vec![b"h2".to_vec()] } else { Vec::new() };
        let tls = ClientConnection::new_with_alpn(config, name, protocols)
            .map_err(|error| error.to_string())?;
        Ok(Self { socket, tls })
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Whether encrypted bytes wait to leave.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    pub(super) fn shake_hands(&mut self) -> Poll<io::Result<()>> {
        loop {
            ready!(self.flush())?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.fill())? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Sends what is encrypted and waits.
    pub(super) fn flush(&mut self) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(polled(self.tls.write_tls(&mut Raw(&mut self.socket))))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads encrypted bytes and decrypts them.
    fn fill(&mut self) -> Poll<io::Result<usize>> {
        let read = ready!(polled(self.tls.read_tls(&mut Raw(&mut self.socket))))?;
        if let Err(error) = self.tls.process_new_packets() {
            // The alert says why, if it can.
            let _ = self.flush();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(read))
    }

    pub(super) fn read(&mut self, to: &mut Vec<u8>) -> Poll<io::Result<usize>> {
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
                    if let Poll::Ready(Err(error)) = self.flush() {
                        return Poll::Ready(Err(error));
                    }
                    ready!(self.fill())?;
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            return Poll::Ready(Ok(0));
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.flush())?;
        let written = self.tls.writer().write(bytes)?;
        if let Poll::Ready(Err(error)) = self.flush() {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    /// Says that nothing follows (`close_notify`), as far as that leaves at once.
    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
    }
}

/// The result of a call through [`Raw`].
fn polled<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

/// A socket as rustls reads and writes.
struct Raw<'a>(&'a mut Socket);

impl Read for Raw<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.0.read(to) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes, false) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
