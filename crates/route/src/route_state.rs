//! What is known about a request when it comes, and what the decision fills in for the steps after it.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use sekisho_config::{LocationId, ServerId};
use sekisho_http::{Coding, Head, Method, ProxyHeader, Status};
use sekisho_lifecycle::Moment;

use crate::access_checks::AccessProgress;
use crate::assigned::Assignments;
use crate::body_facts::BodyFacts;
use crate::capture::Captures;
use crate::log_entry::{LogEntries, LogEntry};
use crate::object::Objects;
use crate::stream::ClientHello;
use crate::subrequest::{AuthAnswer, Picked};
use crate::upstream_facts::UpstreamFacts;

/// What is known about a request and its connection, for decisions and variables.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request's head.
    pub head: &'a Head,
    /// The index of the `Listen` that the connection came in by.
    pub listen: usize,
    /// The connection.
    pub connection: &'a ConnectionFacts,
    /// The time of day.
    pub wall: WallTime,
    /// What `$request_id` is made of.
    pub request_id: RequestIdSeed,
    /// When its first byte came, and what time it is by the same clock.
    pub since: Moment,
    /// Now.
    pub now: Moment,
    /// Whether it came in the same read as an earlier request.
    pub is_pipelined: bool,
    /// Counts the connections of this server by what they do.
    pub census: Option<&'a dyn Census>,
}

impl<'a> Request<'a> {
    /// A request that has just come, on a server that counts nothing.
    pub fn new(
        head: &'a Head,
        listen: usize,
        connection: &'a ConnectionFacts,
        wall: WallTime,
        request_id: RequestIdSeed,
    ) -> Self {
        let (since, now) = (Moment::ZERO, Moment::ZERO);
        let (is_pipelined, census) = (false, None);
        Self { head, listen, connection, wall, request_id, since, now, is_pipelined, census }
    }
}

/// Counts connections.
pub trait Census: std::fmt::Debug {
    /// What they do now, all workers taken together.
    fn connections(&self) -> ConnectionCounts;
}

/// How many connections do what: `$connections_…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionCounts {
    /// All that are open.
    pub active: u64,
    /// A head has begun and is not complete.
    pub reading: u64,
    /// A request is being worked on or answered.
    pub writing: u64,
    /// Idle.
    pub waiting: u64,
}

/// 128 random bits; `$request_id` shows them as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestIdSeed(pub u128);

/// What is known about a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFacts {
    /// Its serial number: `$connection`.
    pub id: u64,
    /// The peer; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// Our own address; `None` on a Unix socket.
    pub local: Option<SocketAddr>,
    /// The PROXY header of a balancer: `$proxy_protocol_…`.
    pub proxied: Option<Arc<ProxyHeader>>,
    /// How many requests have come on it, this one included: `$connection_requests`.
    pub requests: u64,
    /// When it was accepted.
    pub since: Moment,
    /// Whether it is encrypted: `$https`, `$scheme`.
    pub is_tls: bool,
    /// The result of its handshake: `$ssl_…`.
    pub tls: Option<Arc<TlsFacts>>,
    /// It is in the clear where it was to be encrypted (497).
    pub is_clear_by_mistake: bool,
    /// It is made of datagrams: `$protocol`.
    pub is_udp: bool,
}

/// What is known about an encrypted connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFacts {
    /// `$ssl_protocol`
    pub protocol: &'static str,
    /// `$ssl_cipher`
    pub cipher: &'static str,
    /// `$ssl_curve`
    pub curve: &'static str,
    /// `$ssl_server_name`: the name that the client asked for.
    pub server_name: String,
    /// `$ssl_session_reused`
    pub is_resumed: bool,
    /// `$ssl_early_data`: what has come so far may be somebody's repetition of it, as the handshake is not over.
    pub is_early: bool,
    /// `$ssl_session_id`, in hexadecimal digits; TLS 1.3 and tickets have none.
    pub session_id: String,
    /// `$ssl_ciphers` and `$ssl_curves`: what the client has offered, by IANA's numbers; nothing where a session was
    /// resumed.
    pub offered: Option<Box<Offered>>,
    /// `$ssl_alpn_protocol`
    pub alpn: Cow<'static, str>,
    /// The number of the configuration by which the client's certificate was judged.
    pub judged_under: u64,
    /// The certificate that the client has shown.
    pub client: Option<Box<ClientCertificate>>,
}

/// What a client has offered in its hello.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offered {
    /// Cipher suites.
    pub ciphers: Box<[u16]>,
    /// Groups for the key exchange.
    pub groups: Box<[u16]>,
}

/// A client's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// Whether it is one of ours.
    pub result: ClientVerdict,
    /// `$ssl_client_s_dn`
    pub subject: String,
    /// `$ssl_client_i_dn`
    pub issuer: String,
    /// `$ssl_client_s_dn_legacy`
    pub subject_legacy: String,
    /// `$ssl_client_i_dn_legacy`
    pub issuer_legacy: String,
    /// `$ssl_client_serial`
    pub serial: String,
    /// `$ssl_client_fingerprint`
    pub fingerprint: String,
    /// `$ssl_client_v_start`
    pub from: String,
    /// `$ssl_client_v_end`
    pub to: String,
    /// `$ssl_client_v_remain`
    pub days_left: i64,
    /// `$ssl_client_raw_cert`
    pub pem: String,
}

/// What was found of a client's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientVerdict {
    /// It is one of ours.
    Valid,
    /// The issuer is not verified; that is left to the upstream or program (`optional_no_ca`).
    Unjudged(String),
    /// It is not, and why.
    Invalid(String),
}

/// The time of day, with the distance of local time from UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WallTime {
    /// Seconds since 1970.
    pub unix_secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// How many seconds local time is ahead of UTC.
    pub utc_offset_secs: i32,
}

/// What the decision fills and later steps (fields, log) read. Used again for the next request: its
/// storage stays, so that an ordinary decision allocates nothing.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct RouteState {
    /// The chosen server.
    pub server: ServerId,
    /// The location that decided; the server's own (`Server::root`) where none was looked for.
    pub location: LocationId,
    /// `$uri`: the decoded, resolved path, as it stands after internal redirects.
    pub path: Vec<u8>,
    /// `$args`
    pub query: Vec<u8>,
    /// The host of the request in lower case, without port; empty when there was none.
    pub host: Vec<u8>,
    /// `$request_filename`, once it has been mapped; empty before.
    pub file: Vec<u8>,
    /// How much of `file` names a directory of the configuration; see [`Files::look`](crate::Files).
    pub root_bytes: usize,
    /// How much of `path` names the program that is run; see [`RouteState::script_name`].
    pub(crate) script_bytes: usize,
    /// Set by `error_page`: what the status of a file or listing shall be.
    pub status: Option<Status>,
    /// The coding of the file that is served: a neighbour of `file`.
    pub coding: Option<Coding>,
    /// Whether a neighbour was found that only some clients get, for this or for a file before it.
    pub has_neighbours: bool,
    /// The body of a text, or the address of a redirect.
    pub text: Vec<u8>,
    /// The address of a redirect for which an `error_page` is answered: it is sent as `Location` with the page.
    /// Without scheme and host, where these were put before a path: they are those of the page's location.
    pub(crate) redirect: Vec<u8>,
    /// How much of the address in `text` was put before a path.
    pub(crate) origin_bytes: usize,
    /// The value of `Allow`, for 405 and OPTIONS.
    pub allow: Vec<u8>,
    /// The method that is acted on: the client's, until an `error_page` makes it GET.
    pub method: Method,
    /// `set $limit_rate`: bytes in a second, 0 for no limit; `None` where no `set` was run.
    pub limit_rate: Option<u64>,
    /// The client's address from a trusted proxy; see [`RouteState::client`].
    pub(crate) real_address: Option<SocketAddr>,
    pub(crate) captures: Captures,
    /// What scripts have set.
    pub(crate) assigned: Assignments,
    /// What `map`s have been looked up.
    pub(crate) found: RefCell<Assignments>,
    /// What is to be logged about the decision.
    pub(crate) log_entries: RefCell<LogEntries>,
    /// Whether a script has changed the path and stayed in the location.
    pub is_rewritten: bool,
    /// Whether the path is no longer what the client asked for: a `rewrite`, an internal redirect.
    pub is_moved: bool,
    /// The request's body, as far as it was gathered.
    pub body: BodyFacts,
    /// What the handshake says that is passed on as it is: `$ssl_preread_…`.
    pub client_hello: Option<Box<ClientHello>>,
    /// Which servers were asked, where another one answers.
    pub upstream: UpstreamFacts,
    /// The last path that could be used, while a script makes another.
    pub(crate) last_path: Vec<u8>,
    /// How far it has come through the access checks.
    pub(crate) access_progress: AccessProgress,
    /// Whether a server has been chosen.
    pub(crate) is_routed: bool,
    /// The request that was decided: what belongs to another is not to be built upon.
    pub(crate) decided: Option<RequestIdSeed>,
    /// Whether the present path is our own doing: `internal` locations are open to it.
    pub(crate) is_internal: bool,
    /// Whether an `error_page` has been used up.
    pub(crate) is_error_page: bool,
    /// Internal redirects so far.
    pub(crate) redirects: u8,
    /// Whether it is a request within a request: access is checked for the request around it.
    pub is_subrequest: bool,
    /// What `auth_request` was answered.
    pub auth: Option<Box<AuthAnswer>>,
    /// The locations with a `mirror` that were passed, and not acted upon.
    pub mirrored: Vec<LocationId>,
    /// What `random_index` found.
    pub picked: Picked,
    /// What is known of objects in the location's `storage`.
    pub objects: Option<Box<Objects>>,
    /// Where the slice begins that `$slice_range` was asked for.
    pub slice_start: Cell<Option<u64>>,
    /// Room for a value that is being expanded.
    pub(crate) value: Vec<u8>,
}

impl Default for RouteState {
    fn default() -> Self {
        Self {
            server: ServerId(0),
            location: LocationId(0),
            path: Vec::new(),
            query: Vec::new(),
            host: Vec::new(),
            file: Vec::new(),
            root_bytes: 0,
            script_bytes: 0,
            status: None,
            coding: None,
            has_neighbours: false,
            text: Vec::new(),
            redirect: Vec::new(),
            origin_bytes: 0,
            allow: Vec::new(),
            method: Method::Other,
            limit_rate: None,
            real_address: None,
            captures: Captures::default(),
            assigned: Assignments::default(),
            found: RefCell::default(),
            log_entries: RefCell::default(),
            is_rewritten: false,
            is_moved: false,
            body: BodyFacts::default(),
            client_hello: None,
            upstream: UpstreamFacts::default(),
            last_path: Vec::new(),
            access_progress: AccessProgress::default(),
            is_routed: false,
            decided: None,
            is_internal: false,
            is_error_page: false,
            redirects: 0,
            is_subrequest: false,
            auth: None,
            mirrored: Vec::new(),
            picked: Picked::NotAsked,
            objects: None,
            slice_start: Cell::new(None),
            value: Vec::new(),
        }
    }
}

impl RouteState {
    /// Empties it for the next request; the storage stays.
    pub fn clear(&mut self) {
        self.server = ServerId(0);
        self.location = LocationId(0);
        for buffer in [
            &mut self.path,
            &mut self.query,
            &mut self.host,
            &mut self.file,
            &mut self.text,
            &mut self.redirect,
            &mut self.allow,
            &mut self.value,
            &mut self.last_path,
        ] {
            buffer.clear();
        }
        self.root_bytes = 0;
        self.script_bytes = 0;
        self.origin_bytes = 0;
        self.status = None;
        self.coding = None;
        self.has_neighbours = false;
        self.method = Method::Other;
        self.limit_rate = None;
        self.real_address = None;
        self.captures.clear();
        self.assigned.clear();
        self.found.get_mut().clear();
        self.log_entries.get_mut().clear();
        self.is_rewritten = false;
        self.is_moved = false;
        self.body = BodyFacts::default();
        self.client_hello = None;
        self.upstream.clear();
        self.access_progress.clear();
        self.is_routed = false;
        self.decided = None;
        self.is_internal = false;
        self.is_error_page = false;
        self.redirects = 0;
        self.is_subrequest = false;
        self.auth = None;
        self.mirrored.clear();
        self.picked = Picked::NotAsked;
        self.objects = None;
        self.slice_start.set(None);
    }

    /// Whether [`decide`](crate::Table::decide) or `choose_server` has filled it.
    pub fn is_routed(&self) -> bool {
        self.is_routed
    }

    /// The part of the path that names the program of an [`Action::Cgi`](crate::Action): `SCRIPT_NAME`.
    pub fn script_name(&self) -> &[u8] {
        self.path.get(..self.script_bytes).unwrap_or(&self.path)
    }

    /// What follows it: `PATH_INFO`, empty or beginning with a slash.
    pub fn path_info(&self) -> &[u8] {
        self.path.get(self.script_bytes..).unwrap_or_default()
    }

    /// The client's address: the peer's, or the one from a trusted proxy (`set_real_ip_from`); `None` on a
    /// Unix socket.
    pub fn client(&self, connection: &ConnectionFacts) -> Option<SocketAddr> {
        self.real_address.or(connection.remote)
    }

    /// The user, if its password was right. A name that a client only claims is no user.
    pub fn verified_user(&self) -> Option<&[u8]> {
        self.access_progress.is_verified.then_some(&*self.access_progress.user)
    }

    /// How much memory it holds, for a pool that does not keep giants.
    pub fn capacity(&self) -> usize {
        let Self { path, query, host, file, text, redirect, allow, value, last_path, .. } = self;
        let buffers = [path, query, host, file, text, redirect, allow, value, last_path];
        buffers.iter().map(|buffer| buffer.capacity()).sum::<usize>()
            + self.captures.capacity()
            + self.assigned.capacity()
            + self.found.borrow().capacity()
            + self.access_progress.realm.capacity()
            + self.access_progress.user.capacity()
    }

    /// Whether an expression ran out of steps, so that what was made with its result cannot be used.
    pub fn is_undecided(&self) -> bool {
        self.captures.is_exhausted()
    }

    /// Whether there is anything to be logged about the request.
    pub fn has_log_entries(&self) -> bool {
        !self.log_entries.borrow().is_empty()
    }

    /// What is to be logged about the request so far; returned once.
    pub fn take_log_entries(&mut self) -> Vec<LogEntry> {
        self.log_entries.get_mut().take()
    }
}
