//! What this node is in its cluster, with all that is read from files.

use std::fmt;
use std::path::{Path, PathBuf};
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

/// A word of the configuration that cannot be used, and why.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct MembershipProblem {
    /// The directive.
    pub(crate) directive: &'static str,
    /// The word.
    pub(crate) word: PathBuf,
    /// What is wrong.
    pub(crate) message: String,
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
        let (membership, problems) = Self::read(config);
        match problems.into_iter().next() {
            Some(MembershipProblem { message, .. }) => Err(Problem::new(message)),
            None => Ok(membership.map(Arc::new)),
        }
    }

    /// The same with all that is wrong with it.
    pub(crate) fn read(config: &Config) -> (Option<Self>, Vec<MembershipProblem>) {
        let Some(of) = &config.main.cluster else { return (None, Vec::new()) };
        let mut problems = Vec::new();
        let mut wrong = |directive, word: &Path, message: String| {
            problems.push(MembershipProblem { directive, word: word.to_owned(), message });
        };
        let node = of.node.clone().or_else(machine_name).unwrap_or_else(|| {
            let message = "cluster: the machine's name is no name for a node; say \"node\"";
            wrong("name", Path::new(&of.name), message.to_owned());
            String::new()
        });
        let credentials = of.credentials.as_deref().and_then(|path| {
            let text = sekisho_openings::read_text(path).map_err(|error| error.to_string());
            let read =
                text.and_then(|text| Credentials::parse(&text).map_err(|error| error.to_string()));
            read.map_err(|why| {
                let message = format!("cluster: credentials {}: {why}", path.display());
                wrong("credentials", path, message);
            })
            .ok()
        });
        let wants_tls = of.trusted_certificate.is_some() || of.servers.iter().any(|it| it.is_tls);
        let tls = wants_tls.then(|| client_tls::client_tls(of.trusted_certificate.as_deref()));
        let tls = tls.transpose().unwrap_or_else(|why| {
            let message = format!("cluster: {why}");
            match &of.trusted_certificate {
                Some(path) => wrong("trusted_certificate", path, message),
                None => wrong("name", Path::new(&of.name), message),
            }
            None
        });
        let membership = Self {
            cluster: of.name.clone(),
            node,
            servers: of.servers.clone(),
            credentials,
            tls,
            // It was read just now.
            trusted: of
                .trusted_certificate
                .as_ref()
                .and_then(|it| sekisho_openings::read(it).ok())
                .unwrap_or_default(),
        };
        (Some(membership), problems)
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
