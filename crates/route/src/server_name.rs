//! Which server block: nginx's order of exact name, longest leading wildcard, longest trailing
//! wildcard, first regular expression, default; for one listen address.

use std::sync::Arc;

use sekisho_config::{ByName, Http, Listen, PatternList, ServerId, ServerName};

use crate::capture::Captures;

/// The names of the servers behind one listen address.
#[derive(Debug)]
pub(crate) struct ServerNames {
    default: ServerId,
    /// Whether there is anything to choose, or to capture.
    is_single: bool,
    exact: ByName<ServerId>,
    /// `*.example.org` as `.example.org`
    leading: ByName<ServerId>,
    /// `www.example.*` as `www.example.`
    trailing: ByName<ServerId>,
    patterns: PatternList<ServerId>,
}

impl ServerNames {
    /// Where two servers claim a name, the first in the file has it.
    pub(crate) fn new(http: &Http, listen: &Listen) -> Self {
        let mut names = Self {
            default: listen.default_server,
            is_single: false,
            exact: ByName::default(),
            leading: ByName::default(),
            trailing: ByName::default(),
            patterns: PatternList::default(),
        };
        let mut patterns = Vec::new();
        for &id in &listen.servers {
            let Some(server) = http.servers.get(id.0 as usize) else { continue };
            if server.names.is_empty() {
                names.exact.entry(Vec::new()).or_insert(id);
            }
            for name in &server.names {
                let (map, text) = match name {
                    ServerName::Exact(text) => (&mut names.exact, text),
                    ServerName::LeadingWildcard(text) => (&mut names.leading, text),
                    ServerName::TrailingWildcard(text) => (&mut names.trailing, text),
                    ServerName::Regex(pattern) => {
                        patterns.push((Arc::clone(pattern), id));
                        continue;
                    }
                };
                map.entry(text.as_bytes().into()).or_insert(id);
            }
        }
        names.patterns = patterns.into();
        names.is_single = names.patterns.is_empty()
            && listen.servers.iter().all(|server| *server == listen.default_server);
        names
    }

    pub(crate) fn default_server(&self) -> ServerId {
        self.default
    }

    /// The server for a host, which is in lower case and without port.
    pub(crate) fn find(&self, host: &[u8], captures: &mut Captures) -> ServerId {
        if self.is_single {
            return self.default;
        }
        self.by_name(host)
            .or_else(|| {
                let mut patterns = self.patterns.candidates(host);
                patterns.find(|(pattern, _)| captures.matches(pattern, host)).map(|(_, id)| *id)
            })
            .unwrap_or(self.default)
    }

    fn by_name(&self, host: &[u8]) -> Option<ServerId> {
        if let Some(id) = self.exact.get(host) {
            return Some(*id);
        }
        let dots = || host.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
        // The leftmost dot has the longest suffix, the rightmost the longest prefix.
        let leading = || dots().find_map(|dot| self.leading.get(&host[dot..]));
        let trailing = || dots().rev().find_map(|dot| self.trailing.get(&host[..=dot]));
        let leading = if self.leading.is_empty() { None } else { leading() };
        leading.or_else(|| if self.trailing.is_empty() { None } else { trailing() }).copied()
    }
}
