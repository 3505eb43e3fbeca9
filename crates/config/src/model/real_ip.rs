//! The client's address behind a proxy: `set_real_ip_from` and its companions.

use std::net::IpAddr;
use std::sync::Arc;

use super::AddressMatch;
use crate::report::Span;

/// How the client's address is found behind a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealIp {
    /// `set_real_ip_from`: the trusted proxies.
    pub from: Arc<[AddressMatch]>,
    /// Those that are named by a host, and where; their addresses stand above once the machine was asked.
    pub(crate) hosts: Arc<[(Arc<str>, Span)]>,
    /// `real_ip_header`
    pub source: RealIpSource,
    /// `real_ip_recursive`: further, as long as addresses are those of trusted proxies.
    pub is_recursive: bool,
}

impl RealIp {
    /// With proxies that are named by their addresses.
    pub fn new(from: Arc<[AddressMatch]>, source: RealIpSource, is_recursive: bool) -> Self {
        Self { from, hosts: Arc::default(), source, is_recursive }
    }

    /// Whether this peer is trusted; `None` is one of a Unix socket.
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        self.from.iter().any(|who| who.is_meant(peer))
    }
}

/// Where the client's address stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RealIpSource {
    /// In a field of the request: its name.
    Field(Arc<[u8]>),
    /// In the header of the PROXY protocol.
    ProxyHeader,
}
