//! The `stream` block: a configuration of its own, with servers, maps, zones and groups that `http` knows nothing
//! of, and the other way round.

use std::sync::Arc;

use super::Walk;
use crate::directive::{Body, Context, Row};
use crate::level::Level;
use crate::model::{Config, Http, LocationMatch, Server, ServerId};
use crate::parse::Node;
use crate::report::Report;
use crate::template::Names;

impl Walk<'_> {
    /// Reads the block, which takes the place of `http` while it is read.
    pub(super) fn stream(&mut self, main: &Level, node: &Node) {
        let nodes = node.body.as_deref().unwrap_or_default();
        let scope = &mut self.scope;
        let outer = (
            std::mem::replace(&mut scope.names, Names { is_stream: true, ..Names::default() }),
            std::mem::take(&mut scope.formats),
            std::mem::take(&mut scope.bad_formats),
            std::mem::take(&mut scope.zones),
            std::mem::take(&mut scope.upstreams),
        );
        let http = std::mem::take(&mut self.http);
        let http_listens = std::mem::take(&mut self.listens);
        self.collect_names(&nodes.iter().collect::<Vec<_>>());
        self.stream_servers(main, nodes);
        let mut stream = std::mem::replace(&mut self.http, http);
        let scope = &mut self.scope;
        stream.zones = std::mem::take(&mut scope.zones);
        stream.upstreams = std::mem::take(&mut scope.upstreams);
        (scope.names, scope.formats, scope.bad_formats, scope.zones, scope.upstreams) = outer;
        stream.listens = std::mem::replace(&mut self.listens, http_listens).finish(&mut self.scope);
        for listen in &mut stream.listens {
            // A server may be the first to speak: nobody waits for the client's first bytes.
            listen.options.deferred.get_or_insert(false);
        }
        self.stream = Some(stream);
    }

    fn stream_servers(&mut self, main: &Level, nodes: &[Node]) {
        let mut level = main.child(Context::Stream, LocationMatch::Server);
        // Nothing is logged where nothing is said.
        level.settings.access_logs = Arc::default();
        // A client is believed by the PROXY header only: there are no fields.
        level.real_ip.source = crate::model::RealIpSource::ProxyHeader;
        let blocks = self.fill(&mut level, nodes);
        level.finish();
        let is = |row: &Row, context| row.body == Body::Block(context);
        for (_, node) in blocks.iter().filter(|(row, _)| is(row, Context::StreamUpstream)) {
            self.upstream(&level, node, Context::StreamUpstream);
        }
        for (_, node) in blocks.iter().filter(|(row, _)| is(row, Context::StreamServer)) {
            if self.scope.reports.is_full() {
                return;
            }
            self.stream_server(&level, node);
        }
    }

    fn stream_server(&mut self, stream: &Level, node: &Node) {
        let id = ServerId(self.http.servers.len() as u32);
        let mut level = stream.child(Context::StreamServer, LocationMatch::Server);
        level.server = Some(self.http.servers.len());
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        if !level.says("listen") {
            self.error(node.name.span, "no \"listen\" is defined for this server of \"stream\"");
        }
        if !level.says("proxy_pass") && !level.says("return") {
            let help = "say where its connections go by \"proxy_pass\", or answer by \"return\"";
            let message = "no handler for this server of \"stream\"";
            let report = Report::error(self.scope.files, node.name.span, message);
            self.scope.reports.push(report.help(help.to_owned()));
        } else if level.says("proxy_pass") && level.says("return") {
            self.error(node.name.span, "\"return\" and \"proxy_pass\" exclude each other");
        }
        level.finish();
        let own = std::mem::take(&mut level.own);
        self.check_tls(&level, &own, node);
        self.listens.add(&mut self.scope, id, node, &own, &level.tls);
        let root = self.push_location(LocationMatch::Server, id, &level);
        self.http.servers.push(Server {
            names: own.server_names.into_iter().map(|(name, _)| name).collect(),
            root,
            locations: Vec::new(),
            merge_slashes: level.parts.merge_slashes,
            head_limits: level.parts.head_limits(),
            client_header_timeout: level.parts.client_header_timeout,
            underscores_in_headers: level.parts.underscores_in_headers,
            ignore_invalid_headers: level.parts.ignore_invalid_headers,
            http2: level.parts.http2,
            http3: level.parts.http3,
            acme: None,
            tls: Arc::clone(&level.tls),
        });
    }
}

/// The configuration of the block: the process is the same.
pub(super) fn config_of(main: &crate::model::Main, stream: Http) -> Config {
    Config { main: main.clone(), http: stream, stream: None }
}
