//! `resolver`: the DNS servers that are asked for addresses of names while the server runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::report::Span;

/// `resolver` and `resolver_timeout`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Resolver {
    /// The DNS servers, asked in turn; none where no name is looked up.
    pub servers: Vec<SocketAddr>,
    /// Those that are named by their host, with the port and their place in the file: looked up once.
    pub(crate) hosts: Vec<(Arc<str>, u16, Span)>,
    /// `valid=`: how long an answer is believed, in place of what its records say.
    pub valid: Option<Duration>,
    /// `ipv4=`
    pub ipv4: bool,
    /// `ipv6=`
    pub ipv6: bool,
    /// `resolver_timeout`
    pub timeout: Duration,
}

impl Resolver {
    /// Whether no server is named.
    pub fn is_none(&self) -> bool {
        self.servers.is_empty() && self.hosts.is_empty()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        let timeout = Duration::from_secs(30);
        Self {
            servers: Vec::new(),
            hosts: Vec::new(),
            valid: None,
            ipv4: true,
            ipv6: true,
            timeout,
        }
    }
}
