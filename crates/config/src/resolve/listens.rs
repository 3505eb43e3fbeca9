//! Addresses and the servers behind them: one socket for each address, one default server, no name twice but with a warning.

use std::collections::{HashMap, HashSet};

use crate::level::{Own, Scope};
use crate::listen::ListenLine;
use crate::model::{Listen, ListenAddress, ListenOptions, ServerId, ServerName, Tls};
use crate::parse::Node;
use crate::report::{Report, Span};

/// Addresses as they gather.
#[derive(Debug, Default)]
pub(super) struct Listens {
    list: Vec<Gathered>,
    by_address: HashMap<ListenAddress, usize>,
}

#[derive(Debug)]
struct Gathered {
    listen: Listen,
    /// The `listen` that says it first.
    first: Span,
    /// The `listen` that has the socket options.
    options_from: Option<Span>,
    /// The `listen` that says `default_server`.
    default_from: Option<Span>,
    /// Every name of every server here, and where it stands.
    names: HashMap<String, Span>,
    /// Servers without a certificate, and their `listen`.
    bare: Vec<(ServerId, Span)>,
    /// Servers that reject handshakes.
    rejecting: HashSet<ServerId>,
    /// Servers that say `ssl on`.
    encrypting: HashSet<ServerId>,
}

impl Listens {
    /// Puts a server behind its addresses.
    pub(super) fn add(
        &mut self,
        scope: &mut Scope<'_>,
        server: ServerId,
        node: &Node,
        own: &Own,
        tls: &Tls,
    ) {
        let names = names_of(scope, node, own);
        let mut has_conflict = false;
        for (line, span) in &own.listens {
            let at = span.unwrap_or(node.name.span);
            for address in &line.addresses {
                let gathered = self.at(address, server, at);
                if !gathered.take(scope, server, line, at) {
                    continue;
                }
                if tls.is_on {
                    gathered.encrypting.insert(server);
                }
                if tls.is_bare() {
                    gathered.bare.push((server, at));
                } else if tls.certificates.is_empty() && !tls.uses_acme.0 {
                    gathered.rejecting.insert(server);
                }
                // One conflict for each server says enough.
                for (name, at) in &names {
                    let before = *gathered.names.entry(name.clone()).or_insert(*at);
                    if before != *at && !has_conflict {
                        let address = shown(address);
                        let message =
                            format!("conflicting server name \"{name}\" on {address}, ignored");
                        let report = Report::warning(scope.files, *at, message);
                        let other = "the other one, which has the name";
                        scope.reports.push(report.related(scope.files, before, other));
                        has_conflict = true;
                    }
                }
            }
        }
    }

    fn at(&mut self, address: &ListenAddress, server: ServerId, first: Span) -> &mut Gathered {
        let next = self.list.len();
        let at = *self.by_address.entry(address.clone()).or_insert(next);
        if at == next {
            self.list.push(Gathered {
                listen: Listen {
                    address: address.clone(),
                    default_server: server,
                    servers: Vec::new(),
                    options: ListenOptions::default(),
                },
                first,
                options_from: None,
                default_from: None,
                names: HashMap::new(),
                bare: Vec::new(),
                rejecting: HashSet::new(),
                encrypting: HashSet::new(),
            });
        }
        &mut self.list[at]
    }

    /// Where each address is first said.
    pub(super) fn places(&self) -> HashMap<ListenAddress, Span> {
        self.list.iter().map(|of| (of.listen.address.clone(), of.first)).collect()
    }

    /// The finished list, in the order in which the addresses were first said.
    pub(super) fn finish(mut self, scope: &mut Scope<'_>) -> Vec<Listen> {
        for Gathered { listen, encrypting, .. } in &mut self.list {
            // As in nginx, the default server of an address decides: names are known after the handshake.
            listen.options.tls |= encrypting.contains(&listen.default_server);
        }
        self.check_certificates(scope);
        let mut all: Vec<Listen> = self.list.into_iter().map(|gathered| gathered.listen).collect();
        for listen in &mut all {
            if matches!(listen.address, ListenAddress::Unix(_)) {
                // As with nginx: the folder's permissions decide which users may connect.
                listen.options.mode.get_or_insert(0o666);
            }
        }
        all
    }

    /// Where connections are encrypted, the default server needs a certificate. The others may do without: clients see
    /// that of the default one, unless it rejects them.
    fn check_certificates(&self, scope: &mut Scope<'_>) {
        let mut reported = HashSet::new();
        for Gathered { listen, bare, rejecting, .. } in &self.list {
            let default = listen.default_server;
            let others = rejecting.contains(&default);
            let missing = bare.iter().filter(|(server, _)| others || *server == default);
            for (server, at) in missing.filter(|_| listen.options.tls) {
                if !reported.insert(*server) {
                    continue;
                }
                let kind = if listen.options.quic { "quic" } else { "ssl" };
                let message = format!(
                    "no \"ssl_certificate\" is defined for the \"listen … {kind}\" directive"
                );
                let help = "name a certificate and its key, or say \"ssl_reject_handshake on\"";
                let report = Report::error(scope.files, *at, message);
                scope.reports.push(report.help(help.to_owned()));
            }
        }
    }
}

impl Gathered {
    /// Takes a `listen` of a server; `false` if the server is here already.
    fn take(
        &mut self,
        scope: &mut Scope<'_>,
        server: ServerId,
        line: &ListenLine,
        at: Span,
    ) -> bool {
        let shown = shown(&self.listen.address);
        if self.listen.servers.last() == Some(&server) {
            error(scope, at, format!("a duplicate listen {shown}"), None);
            return false;
        }
        self.listen.servers.push(server);
        if line.has_options {
            if let Some(before) = self.options_from.replace(at) {
                error(scope, at, format!("duplicate listen options for {shown}"), Some(before));
            }
            let ListenOptions { http2, tls, proxy_protocol, quic, .. } = self.listen.options;
            let options = line.options.clone();
            self.listen.options = ListenOptions { http2, proxy_protocol, tls, quic, ..options };
        }
        self.listen.options.proxy_protocol |= line.options.proxy_protocol;
        self.listen.options.http2 |= line.options.http2;
        self.listen.options.tls |= line.options.tls;
        if line.options.quic {
            (self.listen.options.quic, self.listen.options.reuseport) = (true, true);
        }
        if line.is_default {
            if let Some(before) = self.default_from.replace(at) {
                error(scope, at, format!("a duplicate default server for {shown}"), Some(before));
            }
            self.listen.default_server = server;
        }
        true
    }
}

/// The names of a server, each once, in the order of the file; one without names has the empty one.
fn names_of(scope: &mut Scope<'_>, node: &Node, own: &Own) -> Vec<(String, Span)> {
    let body = node.body.as_deref().unwrap_or_default();
    let says_names = body.iter().any(|node| &*node.name.text == b"server_name");
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for (name, span) in &own.server_names {
        let key = key(name);
        if seen.insert(key.clone()) {
            names.push((key, *span));
        } else {
            scope.warn(*span, format!("server name \"{key}\" appears twice"));
        }
    }
    // A server whose names are wrong has been reported.
    if names.is_empty() && !says_names {
        names.push((String::new(), node.name.span));
    }
    names
}

fn error(scope: &mut Scope<'_>, at: Span, message: String, before: Option<Span>) {
    let mut report = Report::error(scope.files, at, message);
    if let Some(before) = before {
        report = report.related(scope.files, before, "the other one");
    }
    scope.reports.push(report);
}

fn key(name: &ServerName) -> String {
    match name {
        ServerName::Exact(name) => name.clone(),
        ServerName::LeadingWildcard(name) => format!("*{name}"),
        ServerName::TrailingWildcard(name) => format!("{name}*"),
        ServerName::Regex(pattern) => format!("~{}", pattern.source),
    }
}

pub(super) fn shown(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        ListenAddress::Udp(address) => format!("{address} (udp)"),
    }
}
