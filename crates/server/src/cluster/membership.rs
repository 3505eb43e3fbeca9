//! What this node is in its cluster, with all that is read from files.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use sekisho_config::Config;
use sekisho_nats::{Address, Credentials, is_token};

use crate::{Problem, client_tls, setup};

/// The membership in a cluster.
pub(crate) struct Membership {
    /// The cluster.
    pub(crate) cluster: String,
    /// This node.
    pub(crate) node: String,
    /// The NATS servers.
    pub(super) servers: Vec<Address>,
    /// How this node proves itself, if not by its address.
    pub(super) credentials: Option<Credentials>,
    /// For addresses that begin with `tls://`, and servers that want it.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// What the file of trusted authorities holds.
    trusted: Vec<u8>,
}

impl Membership {
    /// Whether it says the same as another.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.cluster.clone(), it.node.clone(), it.servers.clone());
        of(self) == of(other)
            && self.credentials == other.credentials
            && self.trusted == other.trusted
    }

    /// That of this configuration.
    pub(crate) fn new(config: &Config) -> Result<Option<Arc<Self>>, Problem> {
        let Some(of) = &config.main.cluster else { return Ok(None) };
        let node = match &of.node {
            Some(node) => node.clone(),
            None => machine_name().ok_or_else(|| {
                Problem::new("cluster: the machine's name is no name for a node; say \"node\"")
            })?,
        };
        let credentials = of.credentials.as_deref().map(|path| {
            let failed = |why: &dyn fmt::Display| {
                Problem::new(format_args!("cluster: credentials {}: {why}", path.display()))
            };
            let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
            Credentials::parse(&text).map_err(|error| failed(&error))
        });
        let wants_tls = of.trusted_certificate.is_some() || of.servers.iter().any(|it| it.is_tls);
        let tls = wants_tls.then(|| client_tls::client_tls(of.trusted_certificate.as_deref()));
        let tls = tls.transpose();
        let tls = tls.map_err(|error| Problem::new(format_args!("cluster: {error}")))?;
        Ok(Some(Arc::new(Self {
            cluster: of.name.clone(),
            node,
            servers: of.servers.clone(),
            credentials: credentials.transpose()?,
            tls,
            // It was read just now.
            trusted: of
                .trusted_certificate
                .as_ref()
                .and_then(|it| std::fs::read(it).ok())
                .unwrap_or_default(),
        })))
    }
}

/// The machine's name up to its first dot.
fn machine_name() -> Option<String> {
    let name = setup::hostname();
    let name = name.split('.').next().unwrap_or_default();
    is_token(name.as_bytes()).then(|| name.to_owned())
}

impl fmt::Debug for Membership {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Membership({}, {})", self.cluster, self.node)
    }
}
