//! Certificates that are ordered and renewed by themselves (RFC 8555), as in nginx's own module for it.

use std::path::PathBuf;
use std::sync::Arc;

/// `acme_issuer`: a certificate authority and our account with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AcmeIssuer {
    /// Its name in the configuration.
    pub name: String,
    /// `uri`: where its directory is.
    pub uri: String,
    /// `account_key`: a file with the account's key; `None` where one is made.
    pub account_key: Option<PathBuf>,
    /// `challenge`
    pub challenge: AcmeChallenge,
    /// `contact`: URLs.
    pub contacts: Vec<String>,
    /// `external_account_key`
    pub external_account: Option<ExternalAccount>,
    /// `profile`
    pub profile: Option<AcmeProfile>,
    /// `ssl_trusted_certificate`: the issuers of the authority's own certificate; `None` for the system's
    /// list.
    pub trusted_certificate: Option<PathBuf>,
    /// `ssl_verify`
    pub verifies: bool,
    /// `state_path`: where account, keys and certificates are kept; `None` for nowhere.
    pub state_path: Option<PathBuf>,
    /// `accept_terms_of_service`
    pub accepts_terms: bool,
}

/// `acme_store`: where servers share what they order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcmeStore {
    /// Its address.
    pub url: String,
    /// `key=`: a file with the key that seals what lies there.
    pub key: Option<PathBuf>,
}

/// How we show that a name is ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcmeChallenge {
    /// By a file on port 80.
    #[default]
    Http01,
    /// By a handshake on port 443 (RFC 8737).
    TlsAlpn01,
}

/// `external_account_key`: an account elsewhere that this one belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalAccount {
    /// Its id.
    pub id: String,
    /// Its key: a file, or the key itself, in base64url.
    pub key: ExternalKey,
}

/// Where the key of an [`ExternalAccount`] is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExternalKey {
    /// In a file.
    File(PathBuf),
    /// `data:`
    Data(String),
}

/// `profile`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcmeProfile {
    /// Its name.
    pub name: String,
    /// `require`: nothing is ordered without it.
    pub is_required: bool,
}

/// `acme_certificate`: what a server orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcmeCertificate {
    /// The authority.
    pub issuer: Arc<AcmeIssuer>,
    /// For which names.
    pub names: Vec<String>,
    /// `key=`
    pub key: AcmeKey,
}

/// The kind of a certificate's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AcmeKey {
    /// `ecdsa:256`
    #[default]
    P256,
    /// `ecdsa:384`
    P384,
    /// `rsa:2048`
    Rsa2048,
    /// `rsa:3072`
    Rsa3072,
    /// `rsa:4096`
    Rsa4096,
}
