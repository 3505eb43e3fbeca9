//! Configurations built by hand, files that are a list, and outcomes as one line of text.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{
    Config, ErrorPage, ErrorStatus, ErrorTarget, Expires, FileCache, HeadLimits, Http, Http2,
    IfModifiedSince, Listen, ListenAddress, ListenOptions, Location, LocationId, LocationMatch,
    Main, Map, MapId, MapValue, Part, PathMapping, Pattern, Return, Rewriting, Script, Server,
    ServerId, ServerName, ServerTokens, Settings, Step, Symlinks, Template, Tls, Types, Variable,
    Workers,
};
use sekisho_http::{Fields, Head, Status, Version};
use sekisho_lifecycle::Moment;
use sekisho_route::{
    Action, ConnectionFacts, FileOp, Files, Handover, Kind, Look, Request, RequestIdSeed,
    RouteState, Seen, Store, SubrequestTarget, Table, Wait, WallTime,
};

use crate::access_checks::FakeAccessChecks;

type Change = Box<dyn FnOnce(&mut Settings)>;

/// A location to be.
pub(crate) struct Spec {
    matches: LocationMatch,
    change: Change,
    nested: Vec<Spec>,
}

impl Spec {
    pub(crate) fn with(mut self, nested: Vec<Self>) -> Self {
        self.nested = nested;
        self
    }
}

pub(crate) fn exact(path: &str, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    spec(LocationMatch::Exact(path.into()), change)
}

pub(crate) fn prefix(path: &str, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    spec(LocationMatch::Prefix { path: path.into(), is_final: false }, change)
}

pub(crate) fn final_prefix(path: &str, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    spec(LocationMatch::Prefix { path: path.into(), is_final: true }, change)
}

pub(crate) fn regex(source: &str, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    spec(LocationMatch::Regex(pattern(source)), change)
}

pub(crate) fn named(name: &str, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    spec(LocationMatch::Named(name.into()), change)
}

fn spec(matches: LocationMatch, change: impl FnOnce(&mut Settings) + 'static) -> Spec {
    Spec { matches, change: Box::new(change), nested: Vec::new() }
}

/// A server to be.
pub(crate) struct ServerSpec {
    names: Vec<ServerName>,
    change: Change,
    script: Option<Arc<Script>>,
    merge_slashes: bool,
    tls: Arc<Tls>,
    locations: Vec<Spec>,
}

/// A server without a name.
pub(crate) fn server(locations: Vec<Spec>) -> ServerSpec {
    named_server(&[], locations)
}

pub(crate) fn named_server(names: &[&str], locations: Vec<Spec>) -> ServerSpec {
    ServerSpec {
        names: names.iter().flat_map(|name| server_names(name)).collect(),
        change: Box::new(|_| {}),
        script: None,
        merge_slashes: true,
        tls: Arc::default(),
        locations,
    }
}

impl ServerSpec {
    pub(crate) fn set(mut self, change: impl FnOnce(&mut Settings) + 'static) -> Self {
        self.change = Box::new(change);
        self
    }

    pub(crate) fn answers(mut self, code: u16, text: Option<&str>) -> Self {
        self.script = Some(returns(code, text));
        self
    }

    pub(crate) fn tls(mut self, tls: Tls) -> Self {
        self.tls = Arc::new(tls);
        self
    }

    pub(crate) fn keeps_slashes(mut self) -> Self {
        self.merge_slashes = false;
        self
    }

    pub(crate) fn table(self) -> Table {
        table(vec![self])
    }
}

fn server_names(name: &str) -> Vec<ServerName> {
    if let Some(source) = name.strip_prefix('~') {
        vec![ServerName::Regex(pattern(source))]
    } else if let Some(rest) = name.strip_prefix('*') {
        vec![ServerName::LeadingWildcard(rest.into())]
    } else if let Some(rest) = name.strip_prefix('.') {
        vec![ServerName::Exact(rest.into()), ServerName::LeadingWildcard(name.into())]
    } else if let Some(rest) = name.strip_suffix('*') {
        vec![ServerName::TrailingWildcard(rest.into())]
    } else {
        vec![ServerName::Exact(name.into())]
    }
}

/// All servers at one address; the first is the default.
pub(crate) fn table(servers: Vec<ServerSpec>) -> Table {
    table_with_maps(servers, Vec::new())
}

pub(crate) fn table_with_maps(servers: Vec<ServerSpec>, maps: Vec<Map>) -> Table {
    let mut http = Http { maps, ..Http::default() };
    for (index, spec) in servers.into_iter().enumerate() {
        let id = ServerId(index as u32);
        let mut own = settings();
        (spec.change)(&mut own);
        let root = LocationId(http.locations.len() as u32);
        http.locations.push(Location {
            matches: LocationMatch::Server,
            server: id,
            locations: Vec::new(),
            settings: Settings {
                rewriting: Rewriting { script: spec.script, ..own.rewriting.clone() },
                ..own.clone()
            },
        });
        let locations =
            spec.locations.into_iter().map(|location| add(&mut http, id, &own, location)).collect();
        http.servers.push(Server {
            acme: None,
            names: spec.names,
            root,
            locations,
            merge_slashes: spec.merge_slashes,
            head_limits: HeadLimits {
                line_bytes_max: 8192,
                field_bytes_max: 8192,
                head_bytes_max: 32768,
                fields_max: 100,
            },
            client_header_timeout: None,
            underscores_in_headers: false,
            ignore_invalid_headers: true,
            http2: Http2 { is_on: false, streams_max: 128, preread_bytes: 64 << 10 },
            http3: sekisho_config::Http3::default(),
            tls: spec.tls,
        });
    }
    http.listens.push(Listen {
        address: ListenAddress::Tcp(([127, 0, 0, 1], 8080).into()),
        default_server: ServerId(0),
        servers: (0..http.servers.len() as u32).map(ServerId).collect(),
        options: ListenOptions::default(),
    });
    Table::new(Arc::new(Config { main: main_settings(), http, stream: None }))
}

fn add(http: &mut Http, server: ServerId, outer: &Settings, spec: Spec) -> LocationId {
    let mut own = Settings {
        try_files: None,
        rewriting: Rewriting { script: None, ..outer.rewriting.clone() },
        internal: false,
        limit_except: None,
        ..outer.clone()
    };
    (spec.change)(&mut own);
    let id = LocationId(http.locations.len() as u32);
    http.locations.push(Location {
        matches: spec.matches,
        server,
        locations: Vec::new(),
        settings: own.clone(),
    });
    let nested = spec.nested.into_iter().map(|nested| add(http, server, &own, nested)).collect();
    http.locations[id.0 as usize].locations = nested;
    id
}

fn main_settings() -> Main {
    Main {
        processes: sekisho_config::Processes::default(),
        worker_processes: Workers::Count(1),
        pid: None,
        user: None,
        error_logs: Vec::new(),
        worker_rlimit_nofile: None,
        worker_connections: 512,
        connections_max: None,
        connections_per_address: None,
        worker_shutdown_timeout: None,
        former_sessions_timeout: None,
        endpoint: sekisho_config::Endpoint::default(),
        cluster: None,
        privilege: sekisho_config::Privilege::default(),
    }
}

fn settings() -> Settings {
    const TEN: Option<Duration> = Some(Duration::from_secs(10));
    let types = [("html", "text/html"), ("txt", "text/plain"), ("png", "image/png")];
    let by_extension =
        types.into_iter().map(|(extension, kind)| (extension.into(), kind.into())).collect();
    Settings {
        real_ip: None,
        path_mapping: PathMapping::Root(Arc::new(t("/srv"))),
        index: [t("index.html")].into(),
        try_files: None,
        autoindex: false,
        autoindex_exact_size: true,
        autoindex_localtime: false,
        listing: sekisho_config::Listing::default(),
        disable_symlinks: Symlinks::Follow,
        open_file_cache: FileCache::Off,
        cgi: None,
        rewriting: Rewriting::default(),
        file_ops: None,
        pass: None,
        stream: None,
        service: None,
        reads_body_first: false,
        status: None,
        error_pages: [].into(),
        recursive_error_pages: false,
        internal: false,
        limit_except: None,
        access: None,
        limits: None,
        links: None,
        allow_methods: None,
        absolute_redirect: true,
        server_name_in_redirect: false,
        port_in_redirect: true,
        types: Arc::new(Types { by_extension }),
        default_type: "application/octet-stream".into(),
        charset: None,
        charset_by: None,
        charset_types: sekisho_config::CharsetTypes::Text,
        source_charset: None,
        override_charset: false,
        recode: None,
        changed_fields: [].into(),
        add_headers: [].into(),
        add_trailers: [].into(),
        expires: Expires::Off,
        etag: true,
        if_modified_since: IfModifiedSince::Exact,
        max_ranges: None,
        server_tokens: ServerTokens::On,
        filters: None,
        mirrors: None,
        subrequest_bytes_max: 8192,
        random_index: false,
        log_subrequest: false,
        compression: Arc::default(),
        client_max_body_size: None,
        client_body_buffer_size: 16384,
        client_body_in_file_only: sekisho_config::InFileOnly::Off,
        client_body_temp_path: None,
        client_body_discard_max: 0,
        client_body_timeout: TEN,
        client_body_min_rate: None,
        keepalive_timeout: TEN,
        keepalive_header: None,
        keepalive_disable: sekisho_config::KeepaliveDisable::default(),
        keepalive_requests: 1000,
        send_timeout: TEN,
        lingering_timeout: TEN,
        lingering_time: TEN,
        keepalive_time: None,
        chunked_transfer_encoding: true,
        half_close: false,
        tcp_nodelay: true,
        http2_chunk_size: 8 << 10,
        sendfile: true,
        aio_threads: false,
        limit_rate: sekisho_config::Bytes::Fixed(0),
        limit_rate_after: sekisho_config::Bytes::Fixed(0),
        access_logs: [].into(),
        log_file_cache: None,
        error_logs: [].into(),
        log_not_found: true,
        reset_timedout_connection: false,
        resolver: Arc::default(),
    }
}

pub(crate) fn pattern(source: &str) -> Arc<Pattern> {
    Arc::new(Pattern::new(source, false).expect("a regex"))
}

/// A script that only answers.
pub(crate) fn returns(code: u16, text: Option<&str>) -> Arc<Script> {
    let answer = Return { code, text: text.map(|text| Arc::new(t(text))) };
    Arc::new(Script { steps: vec![Step::Return(answer)] })
}

pub(crate) fn status(code: u16) -> Status {
    Status::new(code).expect("a status")
}

/// `error_page` in the words of the configuration: `("404 403", "=200", "/page.html")`.
pub(crate) fn page(codes: &str, overwrite: &str, target: &str) -> ErrorPage {
    ErrorPage {
        codes: codes.split(' ').map(|code| code.parse().expect("a code")).collect(),
        status: match overwrite {
            "" => ErrorStatus::Keep,
            "=" => ErrorStatus::FromTarget,
            fixed => ErrorStatus::Fixed(status(fixed[1..].parse().expect("a code"))),
        },
        target: match target.as_bytes()[0] {
            b'/' => ErrorTarget::Uri(t(target)),
            b'@' => ErrorTarget::Named(target.into()),
            _ => ErrorTarget::Redirect(t(target)),
        },
    }
}

/// A `map` with exact keys only.
pub(crate) fn map(name: &str, source: &str, exact: &[(&str, &str)], default: &str) -> Map {
    let mut map =
        Map { name: name.into(), source: t(source), default: t(default), ..Map::default() };
    for (key, value) in exact {
        assert!(map.exact.add(key.as_bytes(), MapValue::Template(t(value))), "{key} is there");
    }
    map
}

/// A value: `$name` and `${name}` are variables, `$map0` is that of the first map.
pub(crate) fn t(text: &str) -> Template {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        if dollar > 0 {
            parts.push(Part::Literal(rest[..dollar].into()));
        }
        rest = &rest[dollar + 1..];
        let braced = rest.strip_prefix('{');
        rest = braced.unwrap_or(rest);
        let is_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        let end = if rest.starts_with(|first: char| first.is_ascii_digit()) {
            1
        } else {
            rest.find(|byte| !is_name(byte)).unwrap_or(rest.len())
        };
        parts.push(Part::Variable(variable(&rest[..end])));
        rest = &rest[end + usize::from(braced.is_some())..];
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.into()));
    }
    Template { parts }
}

fn variable(name: &str) -> Variable {
    use Variable as V;
    let field = |name: &str| name.replace('_', "-");
    if let Some(number) = name.bytes().next().filter(u8::is_ascii_digit) {
        return V::Capture(number - b'0');
    }
    match name {
        "args" => V::Args,
        "binary_remote_addr" => V::BinaryRemoteAddr,
        "body_bytes_sent" => V::BodyBytesSent,
        "bytes_sent" => V::BytesSent,
        "connection" => V::Connection,
        "connection_requests" => V::ConnectionRequests,
        "connection_time" => V::ConnectionTime,
        "connections_active" => V::Connections(sekisho_config::ConnectionState::Active),
        "is_request_port" => V::IsRequestPort,
        "request_port" => V::RequestPort,
        "content_length" => V::ContentLength,
        "content_type" => V::ContentType,
        "document_root" => V::DocumentRoot,
        "document_uri" => V::DocumentUri,
        "gzip_ratio" => V::GzipRatio,
        "host" => V::Host,
        "hostname" => V::Hostname,
        "https" => V::Https,
        "is_args" => V::IsArgs,
        "map0" => V::Map(MapId(0)),
        "map1" => V::Map(MapId(1)),
        "msec" => V::Msec,
        "nginx_version" => V::NginxVersion,
        "pid" => V::Pid,
        "pipe" => V::Pipe,
        "query_string" => V::QueryString,
        "realpath_root" => V::RealpathRoot,
        "remote_addr" => V::RemoteAddr,
        "remote_port" => V::RemotePort,
        "remote_user" => V::RemoteUser,
        "request" => V::Request,
        "request_completion" => V::RequestCompletion,
        "request_filename" => V::RequestFilename,
        "request_id" => V::RequestId,
        "request_length" => V::RequestLength,
        "request_method" => V::RequestMethod,
        "request_time" => V::RequestTime,
        "request_uri" => V::RequestUri,
        "scheme" => V::Scheme,
        "server_addr" => V::ServerAddr,
        "server_name" => V::ServerName,
        "server_port" => V::ServerPort,
        "server_protocol" => V::ServerProtocol,
        "status" => V::Status,
        "time_iso8601" => V::TimeIso8601,
        "time_local" => V::TimeLocal,
        "uri" => V::Uri,
        _ => {
            if let Some(name) = name.strip_prefix("arg_") {
                V::Arg(name.into())
            } else if let Some(name) = name.strip_prefix("cookie_") {
                V::Cookie(name.into())
            } else if let Some(name) = name.strip_prefix("sent_http_") {
                V::SentHttp(field(name))
            } else if let Some(name) = name.strip_prefix("http_") {
                V::Http(field(name))
            } else {
                V::NamedCapture(name.into())
            }
        }
    }
}

/// A file system that is a list: `dir/` for a directory, `!name` for what may not be opened, `?name` for
/// what fails. Directories of files are there by themselves.
#[derive(Default)]
pub(crate) struct FakeFiles {
    entries: Vec<String>,
    pub(crate) looks: usize,
    pub(crate) access_checks: FakeAccessChecks,
}

impl FakeFiles {
    pub(crate) fn new(entries: &[&str]) -> Self {
        let entries = entries.iter().map(ToString::to_string).collect();
        Self { entries, ..Self::default() }
    }
}

impl Files for FakeFiles {
    type File = String;

    fn look(&mut self, path: &[u8], root_bytes: usize, _: &Settings) -> Look<String> {
        self.looks += 1;
        let rest = &path[root_bytes..];
        // F2: what is asked for never climbs out of the root.
        assert_eq!(rest.first(), Some(&b'/'), "{}", path.escape_ascii());
        let is_dotted = |segment: &[u8]| matches!(segment, b"." | b"..");
        assert!(!rest.split(|byte| *byte == b'/').any(is_dotted), "{}", path.escape_ascii());
        let path = String::from_utf8_lossy(path).replace("//", "/");
        let directory = format!("{}/", path.trim_end_matches('/'));
        for entry in &self.entries {
            if entry[1..] == path && entry.starts_with(['!', '?']) {
                return if entry.starts_with('!') { Look::Denied } else { Look::Failed };
            }
            if *entry == path && !path.ends_with('/') {
                return Look::File(path);
            }
            if entry.starts_with(&directory) {
                return Look::Directory;
            }
        }
        Look::Missing
    }

    /// Programs are the files whose name ends in `.sh`; what may not be opened is there all the same.
    fn inspect(&mut self, path: &[u8], root_bytes: usize, settings: &Settings) -> Option<Seen> {
        match self.look(path, root_bytes, settings) {
            Look::File(_) => Some(Seen { kind: Kind::File, is_executable: path.ends_with(b".sh") }),
            Look::Directory => Some(Seen { kind: Kind::Directory, is_executable: true }),
            Look::Denied => Some(Seen { kind: Kind::File, is_executable: false }),
            Look::Missing | Look::Failed => None,
        }
    }
}

/// A request, and what came of it.
pub(crate) struct Asked {
    pub(crate) head: Head,
    pub(crate) connection: ConnectionFacts,
    pub(crate) route_state: RouteState,
    pub(crate) files: FakeFiles,
}

/// Sunday, 6 November 1994, 08:49:37.123 UTC; two hours ahead.
pub(crate) const WALL: WallTime =
    WallTime { unix_secs: 784_111_777, nanos: 123_456_789, utc_offset_secs: 7200 };

impl Asked {
    /// `"GET /path"`, with `Host: example.org`.
    pub(crate) fn new(line: &str, files: &[&str]) -> Self {
        Self::with_fields(line, &[("Host", "example.org")], files)
    }

    pub(crate) fn with_fields(line: &str, fields: &[(&str, &str)], files: &[&str]) -> Self {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let mut head = Head::default();
        head.begin(method.as_bytes(), target.as_bytes(), Version::Http11);
        for (name, value) in fields {
            head.push(name.as_bytes(), value.as_bytes());
        }
        let connection = ConnectionFacts {
            id: 7,
            remote: Some(([192, 0, 2, 1], 4711).into()),
            local: Some(([127, 0, 0, 1], 8080).into()),
            since: Moment::ZERO,
            requests: 3,
            is_tls: false,
            tls: None,
            proxied: None,
            is_clear_by_mistake: false,
            is_udp: false,
        };
        Self { head, connection, route_state: RouteState::default(), files: FakeFiles::new(files) }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        request(&self.head, &self.connection)
    }

    /// The outcome in one line: `file /srv/a`, `error 404`, `redirect 301 /b/`, …
    pub(crate) fn decide(&mut self, table: &Table) -> String {
        let request = request(&self.head, &self.connection);
        let action = table.decide(&request, &mut self.route_state, &mut self.files);
        self.outcome(&action)
    }

    /// What the decision comes to when it has waited.
    pub(crate) fn resume(&mut self, table: &Table) -> String {
        let request = request(&self.head, &self.connection);
        let action = table.resume(&request, &mut self.route_state, &mut self.files);
        self.outcome(&action)
    }

    /// What a request within this one comes to.
    pub(crate) fn decide_subrequest(
        &mut self,
        target: &SubrequestTarget,
        outer: &RouteState,
        table: &Table,
    ) -> String {
        let request = request(&self.head, &self.connection);
        let (route_state, files) = (&mut self.route_state, &mut self.files);
        let action = table.decide_subrequest(target, outer, &request, route_state, files);
        self.outcome(&action)
    }

    pub(crate) fn decide_error(&mut self, code: u16, table: &Table) -> String {
        let request = request(&self.head, &self.connection);
        let (route_state, files) = (&mut self.route_state, &mut self.files);
        let action = table.decide_error(status(code), &request, route_state, files);
        self.outcome(&action)
    }

    /// What a program that answered with a hand-over leads to.
    pub(crate) fn hand_over(&mut self, handover: Handover, target: &str, table: &Table) -> String {
        let request = request(&self.head, &self.connection);
        let (route_state, files) = (&mut self.route_state, &mut self.files);
        let action =
            table.redirect_internally(handover, target.as_bytes(), &request, route_state, files);
        self.outcome(&action)
    }

    fn outcome(&self, action: &Action<String>) -> String {
        let route_state = &self.route_state;
        let text = route_state.text.escape_ascii();
        let as_error = route_state.status.map(|status| format!(" as {status}")).unwrap_or_default();
        match action {
            Action::File(file) => format!("file {file}{as_error}"),
            Action::Pass => "pass".to_owned(),
            Action::Cgi => {
                let (name, info) = (route_state.script_name(), route_state.path_info());
                let file = route_state.file.escape_ascii();
                format!("cgi {file} {}|{}{as_error}", name.escape_ascii(), info.escape_ascii())
            }
            Action::FileOp(file_op) => {
                let (root, rest) = route_state.file.split_at(route_state.root_bytes);
                let (root, rest) = (root.escape_ascii(), rest.escape_ascii());
                format!("{} {root}|{rest}", file_op_name(file_op))
            }
            Action::Service => "service".to_owned(),
            Action::Status(form) => format!("status {form:?}"),
            Action::Listing => format!("listing {}{as_error}", route_state.file.escape_ascii()),
            Action::Redirect(status) => format!("redirect {status} {text}"),
            Action::Text(status) => format!("text {status} {text}"),
            Action::Error(status) if status.code() == 405 => {
                format!("error 405 {}", route_state.allow.escape_ascii())
            }
            Action::Error(status) => format!("error {status}"),
            Action::Options => format!("options {}", route_state.allow.escape_ascii()),
            Action::Close => "close".into(),
            Action::Wait(Wait::Password) => "wait for a password".into(),
            Action::Wait(Wait::Auth) => "wait for permission".into(),
            Action::Wait(Wait::RandomFile) => "wait for a file".into(),
            Action::Wait(Wait::Object) => "wait for an object".into(),
            Action::Wait(Wait::For(length)) => format!("wait {}ms", length.as_millis()),
        }
    }
}

fn file_op_name(file_op: &FileOp) -> String {
    let store = |store: &Store| {
        let address = store.address.as_deref().map(|address| address.escape_ascii().to_string());
        format!("{} at {}", store.name.escape_ascii(), address.unwrap_or_default())
    };
    match file_op {
        FileOp::Put => "put".into(),
        FileOp::Delete => "delete".into(),
        FileOp::Mkcol => "mkcol".into(),
        FileOp::Copy(to) => format!("copy to {} from", to.file.escape_ascii()),
        FileOp::Move(to) => format!("move to {} from", to.file.escape_ascii()),
        FileOp::Store(it) => format!("store {} in", store(it)),
        FileOp::Propfind => "propfind".into(),
        FileOp::Proppatch => "proppatch".into(),
        FileOp::Lock(may_come) => format!("lock {may_come}"),
        FileOp::Unlock => "unlock".into(),
        FileOp::Resume(it) => format!("resume {} in", store(it)),
    }
}

fn request<'a>(head: &'a Head, connection: &'a ConnectionFacts) -> Request<'a> {
    Request {
        head,
        listen: 0,
        connection,
        wall: WALL,
        request_id: RequestIdSeed(0xfeed),
        since: Moment::ZERO,
        now: Moment::ZERO + Duration::from_nanos(1_002_999_999),
        is_pipelined: true,
        census: None,
    }
}

/// The outcome of one request.
pub(crate) fn ask(table: &Table, line: &str, files: &[&str]) -> String {
    Asked::new(line, files).decide(table)
}

/// Asks each request of a table and compares the outcomes.
#[track_caller]
pub(crate) fn check(table: &Table, files: &[&str], rows: &[(&str, &str)]) {
    for (line, expected) in rows {
        assert_eq!(ask(table, line, files), *expected, "{line}");
    }
}

/// Fields as a table writes them: a line each.
pub(crate) fn fields(lines: &str) -> Fields {
    lines
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect()
}
