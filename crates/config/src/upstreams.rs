//! Groups of servers by their name, while a configuration is read.

use crate::level::{Fault, Scope};
use crate::model::{UpstreamGroup, UpstreamId, UpstreamPlace, UpstreamServer};
use crate::parse::Word;

impl Scope<'_> {
    /// The group that an address names: an `upstream` of that name, or one with this server alone.
    pub fn upstream(
        &mut self,
        address: &str,
        place: &UpstreamPlace,
        word: &Word,
        has_default_port: bool,
    ) -> Result<UpstreamId, Fault> {
        let host = match place {
            UpstreamPlace::Tcp(host, _) => host,
            UpstreamPlace::Unix(_) => address,
        };
        let is_named =
            |group: &UpstreamGroup| group.is_declared && group.name.eq_ignore_ascii_case(host);
        if let Some(at) = self.upstreams.iter().position(is_named) {
            if let UpstreamPlace::Tcp(_, port) = place
                && address.len() != host.len()
            {
                let message = format!("upstream \"{host}\" may not have port {port}");
                return Err(Fault::at(word, message));
            }
            return Ok(UpstreamId(at as u32));
        }
        if let UpstreamPlace::Tcp(_, 0) = place
            && !has_default_port
        {
            return Err(Fault::at(word, format!("no port in upstream \"{address}\"")));
        }
        let name = match place {
            UpstreamPlace::Tcp(_, port) if address.len() == host.len() => format!("{host}:{port}"),
            _ => address.to_owned(),
        };
        if let Some(at) = self.upstreams.iter().position(|group| group.name == name) {
            return Ok(UpstreamId(at as u32));
        }
        self.upstreams.push(UpstreamGroup {
            name,
            is_declared: false,
            servers: vec![UpstreamServer {
                // Without a group there is no other server, and its failures do not count.
                peer: sekisho_upstream::PeerSettings::new(address),
                place: place.clone(),
                addresses: Vec::new(),
                is_resolved: false,
                span: Some(word.span),
            }],
            method: sekisho_upstream::Method::RoundRobin,
            key: None,
            keepalive: sekisho_upstream::keepalive::Settings::default(),
            sticky: None,
            resolver: std::sync::Arc::default(),
        });
        Ok(UpstreamId(self.upstreams.len() as u32 - 1))
    }
}
