//! The tree becomes typed, immutable values: every directive is checked against the table and applied to
//! its level; levels inherit from `http` to `server` to `location`. All errors are found in one run.

mod checks;
mod listens;
mod locations;
mod lookups;
mod storage;
mod stream;
mod tls;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use checks::misplaced;

use crate::charset::charset_map;
use crate::directive::rewrite::assigned_name;
use crate::directive::{self, Body, Context, Row, Status, cache, health, limits, logs};
use crate::level::{Directive, Fault, Level, Scope, blank_main};
use crate::lex::{Lexer, Token};
use crate::lookup::{geo, split};
use crate::map::{cycle, map, map_name};
use crate::migration::instead_of;
use crate::model::{
    AcmeIssuer, Assigned, AssignedId, Charsets, Config, Http, LocationMatch, Map, MapId, Sandbox,
    Server, ServerId, StoreFailure, UpstreamGroup, Variable,
};
use crate::parse::{Node, Tree, Word, parse_bytes};
use crate::pattern::group_names;
use crate::report::{Report, Reports, Span, did_you_mean};
use crate::template::{self, Names};
use crate::{Location, LocationId, Options};

/// What was not written stands nowhere.
const NOWHERE: Span = Span { file: u32::MAX, start: 0, end: 0 };

/// Resolves a tree. What is wrong in it is reported and left out; `None` if the tree itself is not whole.
pub(crate) fn resolve(tree: &Tree, options: &Options, reports: &mut Reports) -> Option<Config> {
    let scope = Scope {
        options,
        files: &tree.files,
        reports,
        names: Names::default(),
        formats: HashMap::new(),
        bad_formats: HashSet::new(),
        zones: Vec::new(),
        store_failure: StoreFailure::default(),
        ticket_store: None,
        acme_store: None,
        upstreams: Vec::new(),
        caches: Vec::new(),
        charsets: Charsets::default(),
        matches: Vec::new(),
        zoned: HashSet::new(),
        main: blank_main(),
        endpoint_places: Vec::new(),
        http_places: Vec::new(),
        named_uses: Vec::new(),
        warned: HashSet::new(),
        issuer: AcmeIssuer::default(),
        storage: directive::storage::StorageParts::default(),
        storages: Vec::new(),
    };
    let mut walk = Walk {
        scope,
        http: Http::default(),
        stream: None,
        listens: listens::Listens::default(),
        issuers: Vec::new(),
        named: Vec::new(),
    };
    walk.all(&tree.nodes);
    if !tree.is_cut {
        walk.check_named_uses();
    }
    let Walk { mut scope, mut http, stream, listens, .. } = walk;
    let places = listens.places();
    let listens = listens.finish(&mut scope);
    for listen in stream.iter().flat_map(|stream| &stream.listens) {
        if listens.iter().any(|other| other.address == listen.address) {
            let address = listens::shown(&listen.address);
            let message = format!("\"http\" and \"stream\" both listen on {address}");
            let span = places.get(&listen.address).copied();
            scope.reports.push(Report::error(scope.files, span, message));
        }
    }
    for (address, span) in &scope.endpoint_places {
        if let Some(other) = places.get(address) {
            let address = listens::shown(address);
            let message = format!("the endpoint and a server both listen on {address}");
            let report = Report::error(scope.files, *span, message);
            scope.reports.push(report.related(scope.files, *other, "the server does here"));
        }
    }
    for (address, span) in &scope.http_places {
        if !tree.is_cut && !places.contains_key(address) {
            let address = listens::shown(address);
            let message = format!("no server listens on {address}, named by \"http_addresses\"");
            scope.reports.push(Report::error(scope.files, *span, message));
        }
    }
    if tree.is_cut {
        return None;
    }
    http.listens = listens;
    let has_endpoint = !scope.main.endpoint.listens.is_empty();
    let has_stream = stream.as_ref().is_some_and(|stream| !stream.listens.is_empty());
    let has_listener = !http.listens.is_empty() || has_endpoint || has_stream;
    if !has_listener && !scope.reports.has_errors() {
        let message = "nothing will listen: there is no \"server\" block";
        scope.reports.push(Report::warning(scope.files, None, message));
    }
    http.zones = scope.zones;
    http.ticket_store = scope.ticket_store;
    http.acme_store = scope.acme_store;
    http.charsets = scope.charsets;
    http.upstreams = scope.upstreams;
    crate::body_first::mark(&mut http);
    http.caches = scope.caches;
    http.storages = storage::objects(scope.storages);
    http.names = scope.names;
    let with_programs = http.locations.iter_mut().filter_map(|it| it.settings.cgi.as_mut());
    if let [only] = &mut with_programs.collect::<Vec<_>>()[..] {
        // There is no other location to reserve processes for.
        Arc::make_mut(only).reserved = 0;
    }
    let stream = stream.map(|stream| Arc::new(stream::config_of(&scope.main, stream)));
    Some(Config { main: scope.main, http, stream })
}

/// The walk over the tree.
struct Walk<'a> {
    scope: Scope<'a>,
    /// The block that is being read: `http`, or `stream` in its place.
    http: Http,
    /// `stream`, once it has been read.
    stream: Option<Http>,
    listens: listens::Listens,
    /// `acme_issuer`s.
    issuers: Vec<Arc<AcmeIssuer>>,
    /// The named locations of each server.
    named: Vec<HashSet<String>>,
}

/// A block within a level, to be entered when the level is finished.
type Inner<'n> = (&'static Row, &'n Node);

impl Walk<'_> {
    fn all(&mut self, nodes: &[Node]) {
        let of_http = |node: &&Node| &*node.name.text == b"http";
        let http = nodes.iter().filter(of_http).filter_map(|node| node.body.as_ref()).flatten();
        self.collect_names(&http.collect::<Vec<_>>());
        let mut base = self.defaults();
        base.finish();
        let mut main = base.child(Context::Main, LocationMatch::Server);
        let blocks = self.fill(&mut main, nodes);
        main.finish();
        self.scope.main.error_logs = main.settings.error_logs.to_vec();
        let privilege = &self.scope.main.privilege;
        if let Some(span) = main.seen.get("no_new_privs")
            && privilege.sandbox == Sandbox::On
            && !privilege.no_new_privs
        {
            self.error(*span, "\"sandbox on\" needs \"no_new_privs on\"");
        }
        for (row, node) in blocks {
            let body = node.body.as_deref().unwrap_or_default();
            match row.body {
                Body::Block(Context::Events) => {
                    let mut events = main.child(Context::Events, LocationMatch::Server);
                    self.fill(&mut events, body);
                }
                Body::Block(Context::Endpoint) => self.endpoint(&main, node),
                Body::Block(Context::Cluster) => self.cluster(&main, node),
                Body::Block(Context::Stream) => self.stream(&main, node),
                _ => self.http(&main, body),
            }
        }
    }

    fn endpoint(&mut self, main: &Level, node: &Node) {
        let mut level = main.child(Context::Endpoint, LocationMatch::Server);
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        if !level.says("listen") && !level.says("permit") {
            self.scope.warn(node.name.span, "this endpoint has no \"listen\"");
        }
        self.endpoint_tls(&mut level, node);
    }

    fn cluster(&mut self, main: &Level, node: &Node) {
        let mut level = main.child(Context::Cluster, LocationMatch::Server);
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        for needed in ["name", "nats"] {
            if !level.says(needed) {
                self.error(node.name.span, format!("no \"{needed}\" in this \"cluster\""));
            }
        }
    }

    fn http(&mut self, main: &Level, nodes: &[Node]) {
        let mut level = main.child(Context::Http, LocationMatch::Server);
        let blocks = self.fill(&mut level, nodes);
        level.finish();
        let is = |row: &Row, context| row.body == Body::Block(context);
        for (_, node) in blocks.iter().filter(|(row, _)| is(row, Context::Acme)) {
            self.issuer(&level, node);
        }
        for (_, node) in blocks.iter().filter(|(row, _)| is(row, Context::Upstream)) {
            self.upstream(&level, node, Context::Upstream);
        }
        for (_, node) in blocks.iter().filter(|(row, _)| is(row, Context::Storage)) {
            self.storage(&level, node);
        }
        let others = [Context::Acme, Context::Upstream, Context::Storage];
        let is_server = |row: &Row| !others.iter().any(|other| is(row, *other));
        for (_, node) in blocks.into_iter().filter(|(row, _)| is_server(row)) {
            if self.scope.reports.is_full() {
                return;
            }
            self.server(&level, node);
        }
    }

    /// A group of servers. Wherever it stands, every server may name it.
    fn upstream(&mut self, http: &Level, node: &Node, context: Context) {
        let Some(word) = node.args.first() else { return };
        let mut level = http.child(context, LocationMatch::Server);
        level.group = Some(Box::new(UpstreamGroup {
            name: word.shown(),
            is_declared: true,
            servers: Vec::new(),
            method: sekisho_upstream::Method::RoundRobin,
            key: None,
            keepalive: sekisho_upstream::keepalive::Settings::default(),
            sticky: None,
            resolver: Arc::default(),
        }));
        self.fill(&mut level, node.body.as_deref().unwrap_or_default());
        let Some(mut group) = level.group.take() else { return };
        if level.says("zone") {
            self.scope.zoned.insert(group.name.clone());
        }
        group.resolver = Arc::clone(&level.settings.resolver);
        if group.resolver.is_none()
            && let Some(server) = group.servers.iter().find(|server| server.is_resolved)
        {
            let name = &server.peer.server;
            self.error(node.name.span, format!("no resolver defined to resolve \"{name}\""));
        }
        if self.scope.upstreams.iter().any(|known| known.name == group.name) {
            self.error(word.span, format!("duplicate upstream \"{}\"", group.name));
        } else if group.servers.is_empty() && !level.says("server") {
            let name = &group.name;
            self.error(node.name.span, format!("no servers are inside upstream \"{name}\""));
        }
        self.scope.upstreams.push(*group);
    }

    fn server(&mut self, http: &Level, node: &Node) {
        let body = node.body.as_deref().unwrap_or_default();
        let id = ServerId(self.http.servers.len() as u32);
        let mut level = http.child(Context::Server, LocationMatch::Server);
        level.server = Some(self.http.servers.len());
        let blocks = self.fill(&mut level, body);
        if !level.says("listen") {
            self.apply_default(&mut level, "listen");
        }
        if body.is_empty() {
            self.scope
                .warn(node.name.span, "this server block is empty: everything is at its default");
        }
        level.finish();
        let mut own = std::mem::take(&mut level.own);
        level.own.steps = std::mem::take(&mut own.steps);
        self.check_password(&level);
        self.set_recode(&mut level);
        self.check_tls(&level, &own, node);
        self.check_program(&level);
        self.check_storage(&level);
        let acme = self.acme_certificate(&own);
        self.listens.add(&mut self.scope, id, node, &own, &level.tls);
        let root = self.push_location(LocationMatch::Server, id, &level);
        self.named.push(HashSet::new());
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
            acme,
            tls: Arc::clone(&level.tls),
        });
        self.script(&mut level, root, id, &blocks);
        let locations = self.locations(&level, id, &blocks);
        if let Some(server) = self.http.servers.get_mut(id.0 as usize) {
            server.locations = locations;
        }
    }

    fn push_location(
        &mut self,
        matches: LocationMatch,
        server: ServerId,
        level: &Level,
    ) -> LocationId {
        let id = LocationId(self.http.locations.len() as u32);
        let settings = level.settings.clone();
        self.http.locations.push(Location { matches, server, locations: Vec::new(), settings });
        id
    }

    /// Applies the directives of a level and returns its blocks.
    fn fill<'n>(&mut self, level: &mut Level, nodes: &'n [Node]) -> Vec<Inner<'n>> {
        let mut blocks = Vec::new();
        for node in nodes {
            if self.scope.reports.is_full() {
                break;
            }
            let Some(row) = self.check(level, node) else { continue };
            self.apply(level, row, node, false);
            if matches!(row.body, Body::Block(_)) {
                blocks.push((row, node));
            }
        }
        blocks
    }

    fn apply(&mut self, level: &mut Level, row: &'static Row, node: &Node, is_default: bool) {
        let directive = Directive { row, node, is_default };
        if let Err(fault) = (row.apply)(level, &directive, &mut self.scope) {
            self.fault(node, fault);
        }
    }

    fn fault(&mut self, node: &Node, fault: Fault) {
        let span = fault.span.unwrap_or(node.name.span);
        let mut report = Report::error(self.scope.files, span, fault.message);
        if span.file == NOWHERE.file {
            report = report.note(format!("in the default of \"{}\"", node.name.shown()));
        }
        let report = fault.note.into_iter().fold(report, Report::note);
        self.scope.reports.push(report.help(fault.help));
        for more in fault.more {
            self.fault(node, more);
        }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.scope.reports.push(Report::error(self.scope.files, span, message));
    }

    /// The row of a directive that may be applied here.
    fn check(&mut self, level: &mut Level, node: &Node) -> Option<&'static Row> {
        let name = node.name.shown();
        let span = node.name.span;
        let rows = directive::by_name(&node.name.text);
        let Some(first) = rows.first() else {
            // A block without a name has been reported by the parser.
            if !node.name.text.is_empty() || node.name.quoted {
                self.unknown(level.context, node);
            }
            return None;
        };
        let Some(row) = rows.iter().find(|row| row.contexts.contains(level.context)) else {
            if let Some(row) = rows.iter().find(|row| row.status == Status::NotBuilt) {
                self.not_built(row, node);
                return None;
            }
            let all = rows.iter().fold(first.contexts, |all, row| all.and(row.contexts));
            let (message, places) = misplaced(&name, all, level.context);
            self.scope.reports.push(Report::error(self.scope.files, span, message).note(places));
            return None;
        };
        if row.status == Status::NotBuilt {
            self.not_built(row, node);
            return None;
        }
        if !row.takes(node.args.len()) {
            let report = Report::error(
                self.scope.files,
                span,
                format!("invalid number of arguments in \"{name}\" directive"),
            );
            self.scope.reports.push(report.help(format!("its form is: {}", form(row))));
            return None;
        }
        match (row.body, &node.body) {
            (Body::None, Some(_)) => {
                self.error(span, format!("directive \"{name}\" is not terminated by \";\""));
                return None;
            }
            (Body::Block(_) | Body::Entries, None) => {
                self.error(span, format!("directive \"{name}\" has no opening \"{{\""));
                return None;
            }
            _ => {}
        }
        if let Some(before) = level.seen.get(row.name).filter(|_| !row.repeats) {
            let report =
                Report::error(self.scope.files, span, format!("\"{name}\" directive is duplicate"));
            self.scope.reports.push(report.related(
                self.scope.files,
                *before,
                "it is set here already",
            ));
            return None;
        }
        level.seen.entry(row.name).or_insert(span);
        if row.status == Status::Warned && self.scope.warned.insert(row.name) {
            let mut why = row.doc.to_owned();
            // Names keep their capitals, sentences do not.
            if why.as_bytes().get(1).is_some_and(u8::is_ascii_lowercase) {
                why[..1].make_ascii_lowercase();
            }
            self.scope.warn(span, format!("\"{name}\" is ignored: {why}"));
        }
        (row.status == Status::Active).then_some(row)
    }

    fn unknown(&mut self, context: Context, node: &Node) {
        let name = node.name.shown();
        if name.starts_with("lua_") || name.contains("_by_lua") {
            self.error(node.name.span, format!("\"{name}\" is not supported: there is no Lua"));
            return;
        }
        let here =
            directive::rows().filter(|row| row.contexts.contains(context)).map(|row| row.name);
        let help = instead_of(&name)
            .map(|what| format!("instead: {what}"))
            .or_else(|| did_you_mean(&name, here))
            .or_else(|| did_you_mean(&name, directive::rows().map(|row| row.name)));
        let message = format!("unknown directive \"{name}\"");
        self.scope
            .reports
            .push(Report::error(self.scope.files, node.name.span, message).help(help));
    }

    fn not_built(&mut self, row: &Row, node: &Node) {
        let span = node.name.span;
        // What is switched off is not missed.
        if matches!(node.args.as_slice(), [word] if &*word.text == b"off") {
            return;
        }
        let message = format!("\"{}\" is not supported yet", row.name);
        let help = instead_of(row.name).map(|what| format!("instead: {what}"));
        self.scope.reports.push(Report::error(self.scope.files, span, message).help(help));
    }

    /// The base level: the table's defaults, applied like any other directive.
    fn defaults(&mut self) -> Level {
        let mut base = Level::blank();
        for row in directive::rows() {
            if row.status == Status::Active && !row.default.is_empty() && row.name != "listen" {
                self.apply_default(&mut base, row.name);
            }
        }
        for (name, _) in &self.scope.options.defaults {
            let is_known =
                directive::by_name(name.as_bytes()).iter().any(|row| row.status == Status::Active);
            if !is_known {
                let report =
                    Report::error(self.scope.files, None, format!("unknown directive \"{name}\""));
                self.scope.reports.push(report.note("in the defaults of the command line"));
            }
        }
        // Settings without a default in the table.
        let options = self.scope.options;
        for (name, _) in &options.defaults {
            if directive::by_name(name.as_bytes()).iter().all(|row| row.default.is_empty()) {
                self.apply_default(&mut base, name);
            }
        }
        base
    }

    fn apply_default(&mut self, level: &mut Level, name: &str) {
        let rows = directive::by_name(name.as_bytes());
        // One name may mean two things in two contexts: only one of them has a default.
        let said = rows.iter().find(|row| !row.default.is_empty());
        let Some(row) = said.or(rows.first()) else { return };
        let own = self.scope.options.defaults.iter().rfind(|(known, _)| known == name);
        let node = default_node(row, own.map(|(_, args)| args.as_slice()));
        level.seen.insert(row.name, NOWHERE);
        self.apply(level, row, &node, true);
    }

    /// What may be referred to before it is defined: maps, named groups, log formats.
    fn collect_names(&mut self, nodes: &[&Node]) {
        collect_own(nodes.iter().copied(), &mut self.scope.names);
        let is_stream = self.scope.names.is_stream;
        let found = |name: &'static str| {
            let row = directive::by_name(name.as_bytes()).first().copied();
            let wanted = nodes.iter().copied().filter(move |node| {
                *node.name.text == *name.as_bytes()
                    && row.is_some_and(|row| row.takes(node.args.len()))
                    && node.body.is_some() == row.is_some_and(|row| row.body == Body::Entries)
            });
            wanted.filter_map(move |node| Some(Directive { row: row?, node, is_default: false }))
        };
        let mut maps = Vec::new();
        for directive in found("map") {
            self.name_map(directive, &mut maps);
        }
        let geos: Vec<_> = found("geo").collect();
        let splits: Vec<_> = found("split_clients").collect();
        let databases = self.name_databases(found("geoip2").collect());
        let geos = self.name_lookups(geos, Variable::Geo);
        let splits = self.name_lookups(splits, Variable::Split);
        self.http.assigned = assigned(&self.scope.names);
        self.read_maps(maps);
        self.read_databases(databases);
        self.http.geos = self.read_lookups(geos, geo);
        self.http.splits = self.read_lookups(splits, split);
        for directive in limits::FIRST.into_iter().flat_map(&found) {
            if let Err(fault) = limits::read(&directive, &mut self.scope) {
                self.fault(directive.node, fault);
            }
        }
        for (name, family) in cache::PATHS {
            for directive in found(name) {
                if let Err(fault) = cache::path(&directive, family, &mut self.scope) {
                    self.fault(directive.node, fault);
                }
            }
        }
        let (combined, _) = parse_bytes(logs::COMBINED.as_bytes());
        for node in combined.nodes.iter().filter(|_| !is_stream) {
            if let Some(row) = directive::by_name(b"log_format").first() {
                self.name_format(&Directive { row, node, is_default: true });
            }
        }
        for directive in found("log_format") {
            self.name_format(&directive);
        }
        for directive in found("match") {
            match health::rules(&directive) {
                Ok(rules) => self.scope.matches.push(Arc::new(rules)),
                Err(fault) => self.fault(directive.node, fault),
            }
        }
        for directive in found("charset_map") {
            if let Err(fault) = charset_map(&directive, &mut self.scope.charsets) {
                self.fault(directive.node, fault);
            }
        }
    }

    fn name_map<'n>(&mut self, directive: Directive<'n>, maps: &mut Vec<(Directive<'n>, String)>) {
        match map_name(&directive, self.scope.names.is_stream) {
            Ok(name) => {
                let id = MapId(maps.len() as u32);
                if self.scope.names.maps.insert(name.clone(), id).is_some() {
                    // As in nginx, the last one is the variable's.
                    let message = format!("this \"map\" replaces another one of \"${name}\"");
                    self.scope.warn(directive.arg(1).span, message);
                }
                maps.push((directive, name));
            }
            Err(fault) => self.fault(directive.node, fault),
        }
    }

    fn read_maps(&mut self, named: Vec<(Directive<'_>, String)>) {
        let count = named.len();
        let spans: Vec<Span> = named.iter().map(|(directive, _)| directive.arg(1).span).collect();
        let mut maps: Vec<Map> = Vec::new();
        for (directive, name) in named {
            match map(&directive, &mut self.scope, name) {
                Ok(map) => maps.push(map),
                Err(fault) => self.fault(directive.node, fault),
            }
        }
        // Ids are indices into the list: with a gap in it, nothing can be checked.
        if maps.len() == count {
            if let Some(MapId(at)) = cycle(&maps) {
                let name = maps[at as usize].name.clone();
                self.error(
                    spans[at as usize],
                    format!("the value of \"${name}\" depends on itself"),
                );
            }
            self.http.maps = maps;
        }
    }

    fn name_format(&mut self, directive: &Directive<'_>) {
        match logs::log_format(directive, &self.scope) {
            Ok(format) if self.scope.formats.contains_key(&format.name) => {
                let word = directive.arg(0);
                self.error(
                    word.span,
                    format!("duplicate \"log_format\" name \"{}\"", word.shown()),
                );
            }
            Ok(format) => _ = self.scope.formats.insert(format.name.clone(), Arc::new(format)),
            Err(fault) => {
                self.scope.bad_formats.insert(directive.arg(0).shown());
                self.fault(directive.node, fault);
            }
        }
    }

    fn check_named_uses(&mut self) {
        for wanted in std::mem::take(&mut self.scope.named_uses) {
            let servers = match wanted.server {
                Some(at) => self.named.get(at..=at).unwrap_or_default(),
                None => &self.named,
            };
            if !servers.iter().any(|names| names.contains(&wanted.name)) {
                let known = servers.iter().flatten().map(String::as_str);
                let help = did_you_mean(&wanted.name, known);
                // nginx finds out when it is needed, and answers 500.
                let message =
                    format!("named location \"{}\" is not defined: its use is a 500", wanted.name);
                self.scope
                    .reports
                    .push(Report::warning(self.scope.files, wanted.span, message).help(help));
            }
        }
    }
}

/// A directive's form, with its name, as the reference has it.
fn form(row: &Row) -> String {
    let end = if row.body == Body::None { ";" } else { " { … }" };
    let space = if row.form.is_empty() { "" } else { " " };
    format!("{}{space}{}{end}", row.name, row.form)
}

/// The directive that a row's default means, read by the same lexer; or one with these arguments.
fn default_node(row: &Row, args: Option<&[String]>) -> Node {
    let word = |text: &[u8]| Word { text: text.into(), quoted: false, span: NOWHERE };
    let name = word(row.name.as_bytes());
    match args {
        Some(args) => {
            Node { name, args: args.iter().map(|arg| word(arg.as_bytes())).collect(), body: None }
        }
        None if row.body == Body::Entries => {
            let (mut tree, _) = parse_bytes(row.default.as_bytes());
            for node in &mut tree.nodes {
                node.name.span = NOWHERE;
                node.args.iter_mut().for_each(|arg| arg.span = NOWHERE);
            }
            Node { name, args: Vec::new(), body: Some(tree.nodes) }
        }
        None => {
            let words = Lexer::new(row.default.as_bytes()).filter_map(|(token, _)| match token {
                Token::Word { text, .. } => Some(word(&text)),
                _ => None,
            });
            Node { name, args: words.collect(), body: None }
        }
    }
}

/// The variables that are `set`, with what they are otherwise.
fn assigned(names: &Names) -> Vec<Assigned> {
    let mut by_id: Vec<(&AssignedId, &String)> =
        names.assigned.iter().map(|(name, id)| (id, name)).collect();
    by_id.sort_unstable();
    let own = by_id.into_iter().map(|(_, name)| Assigned {
        name: name.clone(),
        otherwise: template::defined(name, names),
    });
    own.collect()
}

/// Every named group of every regular expression and every variable that is `set`, wherever they stand.
fn collect_own<'n>(nodes: impl IntoIterator<Item = &'n Node>, names: &mut Names) {
    // Blocks are nested within a bound.
    for node in nodes {
        let mut add = |word: &Word| {
            let source = std::str::from_utf8(&word.text).unwrap_or_default();
            names.captures.extend(group_names(source).map(str::to_ascii_lowercase));
        };
        match &*node.name.text {
            b"location" | b"server_name" | b"if" => node.args.iter().for_each(add),
            b"rewrite" | b"proxy_redirect" | b"proxy_cookie_path" | b"proxy_cookie_domain" => {
                node.args.first().into_iter().for_each(add);
            }
            b"set" | b"auth_request_set" => {
                let first = node.args.first();
                if let Some(name) = first.and_then(|word| assigned_name(word, names.is_stream)) {
                    let next = AssignedId(names.assigned.len() as u32);
                    names.assigned.entry(name).or_insert(next);
                }
            }
            b"map" => node.body.iter().flatten().for_each(|entry| add(&entry.name)),
            _ => {}
        }
        if let Some(body) = &node.body {
            collect_own(body, names);
        }
    }
}
