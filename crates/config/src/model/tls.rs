//! TLS: what a server block says about the connections that come in encrypted (S1).

use std::path::PathBuf;
use std::time::Duration;

use super::{Pem, PemCache};

/// What a server says about TLS. Files are named, not read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Tls {
    /// `ssl on`: every address whose default server says so is encrypted.
    pub is_on: bool,
    /// `ssl_certificate`, in the order of the file.
    pub certificates: Vec<Pem>,
    /// `ssl_certificate_key`: one for each certificate.
    pub keys: Vec<Pem>,
    /// `ssl_certificate_cache`
    pub certificate_cache: Option<PemCache>,
    /// `ssl_certificate $acme_certificate` and its key.
    pub uses_acme: (bool, bool),
    /// `ssl_password_file`
    pub password_file: Option<PathBuf>,
    /// `ssl_protocols`
    pub versions: TlsVersions,
    /// `ssl_ciphers`: suites of TLS 1.2 by their IANA numbers; `None` for all there are.
    pub ciphers: Option<Vec<u16>>,
    /// `ssl_conf_command Ciphersuites`: the same for TLS 1.3.
    pub suites: Option<Vec<u16>>,
    /// `ssl_ecdh_curve`: groups by their IANA numbers; `None` for all there are.
    pub groups: Option<Vec<u16>>,
    /// `ssl_prefer_server_ciphers`
    pub prefers_own_order: bool,
    /// `ssl_certificate_compression`
    pub compresses_certificates: bool,
    /// `ssl_session_cache`: for how many sessions there is room; 0 for none.
    pub sessions_max: usize,
    /// `ssl_session_timeout`
    pub session_timeout: Duration,
    /// `ssl_session_tickets`
    pub tickets: bool,
    /// `ssl_session_ticket_key`: the first one encrypts.
    pub ticket_keys: Vec<PathBuf>,
    /// `ssl_verify_client`
    pub verify: VerifyClient,
    /// `ssl_verify_depth`
    pub verify_depth: u32,
    /// `ssl_client_certificate`: authorities whose names are sent to clients.
    pub client_certificate: Option<PathBuf>,
    /// `ssl_trusted_certificate`: authorities whose names are not sent.
    pub trusted_certificate: Option<PathBuf>,
    /// `ssl_crl`
    pub crl: Option<PathBuf>,
    /// `quic_host_key`
    pub quic_host_key: Option<PathBuf>,
    /// `ssl_reject_handshake`
    pub rejects: bool,
    /// `ssl_buffer_size`: how much plaintext a record may hold.
    pub record_bytes: usize,
    /// `ssl_alpn`: the protocols of a server of `stream`.
    pub alpn: Vec<String>,
    /// `ssl_early_data`
    pub early_data: bool,
    /// `ssl_stapling…`
    pub stapling: Stapling,
}

/// OCSP responses that are sent with certificates (RFC 6066 §8).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stapling {
    /// `ssl_stapling`
    pub is_on: bool,
    /// `ssl_stapling_file`: the response itself; nobody is asked.
    pub file: Option<PathBuf>,
    /// `ssl_stapling_responder`: who is asked, in place of what a certificate says.
    pub responder: Option<String>,
    /// `ssl_stapling_verify`: whether the signer of a response must be the issuer or one that it has authorized.
    pub verifies: bool,
}

/// Versions of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsVersions {
    /// `TLSv1.2`
    pub tls12: bool,
    /// `TLSv1.3`
    pub tls13: bool,
}

/// `ssl_verify_client`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerifyClient {
    /// No certificate is asked for.
    Off,
    /// A valid one is needed.
    On,
    /// One is asked for, and it must be valid.
    Optional,
    /// One is asked for; its issuer is not verified here.
    OptionalNoCa,
}

impl Default for Tls {
    /// Nothing at all: the ground on which the table's defaults are put.
    fn default() -> Self {
        Self {
            is_on: false,
            certificates: Vec::new(),
            keys: Vec::new(),
            certificate_cache: None,
            uses_acme: (false, false),
            password_file: None,
            versions: TlsVersions { tls12: false, tls13: false },
            ciphers: None,
            suites: None,
            groups: None,
            prefers_own_order: false,
            compresses_certificates: true,
            sessions_max: 0,
            session_timeout: Duration::ZERO,
            tickets: false,
            ticket_keys: Vec::new(),
            verify: VerifyClient::Off,
            verify_depth: 0,
            client_certificate: None,
            trusted_certificate: None,
            crl: None,
            quic_host_key: None,
            rejects: false,
            record_bytes: 0,
            alpn: Vec::new(),
            early_data: false,
            stapling: Stapling::default(),
        }
    }
}

impl Tls {
    /// Every file that is named.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let single = [
            &self.password_file,
            &self.client_certificate,
            &self.trusted_certificate,
            &self.crl,
            &self.quic_host_key,
            &self.stapling.file,
        ];
        let pairs = self.certificates.iter().chain(&self.keys).filter_map(Pem::file);
        pairs.chain(&self.ticket_keys).chain(single.into_iter().flatten())
    }

    /// Whether it has neither a certificate nor refuses to have one.
    pub fn is_bare(&self) -> bool {
        self.certificates.is_empty() && !self.uses_acme.0 && !self.rejects
    }

    /// Whether clients are asked for a certificate.
    pub fn asks_for_certificate(&self) -> bool {
        self.verify != VerifyClient::Off
    }
}
