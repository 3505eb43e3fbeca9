//! The finished configuration: typed, defaults filled in, inheritance done. What the rest of the server
//! reads; nothing outside this crate sees configuration text.

mod access;
mod acme;
mod cache;
mod cgi;
mod charset;
mod cluster;
mod compression;
mod endpoint;
mod expires;
mod file_ops;
mod filters;
mod heads;
mod health;
mod listen;
mod listing;
mod logs;
mod lookup;
mod pem;
mod privilege;
mod process;
mod real_ip;
mod resolver;
mod rewrite;
mod sticky;
mod storage;
mod stream;
mod template;
mod tls;
mod upstream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sekisho_http::{Method, Status};

use crate::expression::Expression;
use crate::template::Names;

pub use access::{
    Access, AddressMatch, AddressRule, Bound, ConnectionLimit, LimitExcept, Limits, Links,
    PasswordRule, Rate, RateLimit, Referers, Signature, StoreFailure, UserFile, Zone, ZoneId,
    ZoneKind, ZoneStore,
};
pub use acme::{
    AcmeCertificate, AcmeChallenge, AcmeIssuer, AcmeKey, AcmeProfile, AcmeStore, ExternalAccount,
    ExternalKey,
};
pub use cache::{CacheChoice, CacheId, CachePath, Caching};
pub use cgi::{Cgi, CgiExtension, CgiLimits, CgiPass, CgiStderr, Interpreter, Programs};
pub use charset::{CharsetTypes, Charsets, Recode, Recoding};
pub use cluster::Cluster;
pub use compression::{
    Compression, Neighbour, NoGzipFor, OneCoding, Proxied, is_compressed_already,
};
pub use endpoint::{Admin, Endpoint, IdentityRule, Permit};
pub use expires::Expires;
pub use file_ops::{
    Conflict, DeleteDirectories, ExtMethods, FileOps, Methods, Origins, Permissions, Sync,
    UnfinishedMax,
};
pub use filters::{
    Addition, AuthRequest, Filters, MediaTypes, Mirrors, Ssi, Substitutions, UserId, UserIdExpires,
    UserIdMode,
};
pub use heads::{ChangedField, HeadLimits, Http2, Http3, KeepaliveDisable};
pub use health::{HealthCheck, MatchRules};
pub use listen::{Listen, ListenAddress, ListenOptions};
pub use listing::{Archives, Listing, ListingFormat};
pub use logs::{
    AccessLog, AccessTarget, ErrorLog, Escape, Level, LogFileCache, LogFormat, LogTarget, Syslog,
    SyslogServer,
};
pub use lookup::{DatabaseEntry, DatabaseField, Geo, Map, MapTable, MapValue, Networks, Split};
pub use pem::{Pem, PemCache};
pub use privilege::{Privilege, Sandbox};
pub use process::{Processes, Workers};
pub use real_ip::{RealIp, RealIpSource};
pub use resolver::Resolver;
pub use rewrite::{
    Assigned, AssignedId, Assignee, Branch, Condition, FileTest, Replacement, Return, Rewrite,
    Rewriting, Script, Step, Then,
};
pub use sticky::Sticky;
pub use storage::{CredentialSource, Storage};
pub use stream::StreamSettings;
pub use template::{
    ConnectionState, Part, PrereadVariable, Template, TlsVariable, UpstreamVariable, Variable,
};
pub use tls::{Stapling, Tls, TlsVersions, VerifyClient};
pub use upstream::{
    CookieName, CookieRule, Destination, Family, Forward, Param, Pass, PassTo, Rename,
    UpstreamGroup, UpstreamId, UpstreamPlace, UpstreamServer, UpstreamTls,
};

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    /// What stands outside every block.
    pub main: Main,
    /// The `http` block; empty when there is none.
    pub http: Http,
    /// The `stream` block as a configuration of its own: what `http` holds there are its servers, addresses, maps,
    /// zones and groups. Each server has one location, its root, whose settings have [`Settings::stream`].
    pub stream: Option<Arc<Config>>,
}

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Main {
    /// `worker_processes`
    pub worker_processes: Workers,
    /// `pid`; `None` for `off`.
    pub pid: Option<PathBuf>,
    /// `daemon` and `master_process`
    pub processes: Processes,
    /// `user`: user and group name.
    pub user: Option<(String, Option<String>)>,
    /// `error_log` of the main context.
    pub error_logs: Vec<ErrorLog>,
    /// `worker_rlimit_nofile`
    pub worker_rlimit_nofile: Option<u64>,
    /// `worker_connections` of `events`: connections a worker may hold.
    pub worker_connections: usize,
    /// `connections_max` of `events`: connections the whole server may hold.
    pub connections_max: Option<usize>,
    /// `connections_per_address` of `events`.
    pub connections_per_address: Option<usize>,
    /// `worker_shutdown_timeout`: how long a graceful stop may take.
    pub worker_shutdown_timeout: Option<Duration>,
    /// `worker_shutdown_timeout` where it is set: how long sessions of a former configuration or binary may stay.
    pub former_sessions_timeout: Option<Duration>,
    /// `sandbox` and its companions.
    pub privilege: Privilege,
    /// The `endpoint` block.
    pub endpoint: Endpoint,
    /// The `cluster` block.
    pub cluster: Option<Box<Cluster>>,
}

/// `status`, `stub_status`, `empty_gif`: what the server makes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusForm {
    /// A live page for people.
    Page,
    /// Prometheus's text format.
    Prometheus,
    /// nginx's few lines.
    Counts,
    /// A probe: whether this server wants new requests.
    Ready,
    /// A probe: whether this server answers.
    Live,
    /// A transparent pixel.
    Pixel,
}

/// The `http` block.
#[derive(Debug, Default)]
pub struct Http {
    /// Every address that is listened on, once each.
    pub listens: Vec<Listen>,
    /// The servers, in the order of the file; a [`ServerId`] is an index here.
    pub servers: Vec<Server>,
    /// Every location of every server, nested and named ones too; a [`LocationId`] is an index here.
    /// Each server's own settings (for what is decided before a location is found, and where none
    /// matches) are a location here too: [`Server::root`].
    pub locations: Vec<Location>,
    /// `map` blocks; a [`MapId`] is an index here.
    pub maps: Vec<Map>,
    /// `geo` blocks; [`Variable::Geo`] has an index here.
    pub geos: Vec<Geo>,
    /// Databases of addresses (`geoip2`).
    pub databases: Vec<PathBuf>,
    /// Their variables; [`Variable::Database`] has an index here.
    pub database_entries: Vec<DatabaseEntry>,
    /// `split_clients` blocks; [`Variable::Split`] has an index here.
    pub splits: Vec<Split>,
    /// Variables that are `set`; an [`AssignedId`] is an index here.
    pub assigned: Vec<Assigned>,
    /// `limit_req_zone` and `limit_conn_zone`; a [`ZoneId`] is an index here.
    pub zones: Vec<Zone>,
    /// The names of `charset` and its companions, and `charset_map` blocks.
    pub charsets: Charsets,
    /// `acme_store`
    pub acme_store: Option<AcmeStore>,
    /// `ssl_session_ticket_store`
    pub ticket_store: Option<String>,
    /// Groups of servers that requests are passed to; an [`UpstreamId`] is an index here.
    pub upstreams: Vec<UpstreamGroup>,
    /// Folders of cached answers; a [`CacheId`] is an index here.
    pub caches: Vec<CachePath>,
    /// `storage` blocks that are object storage; [`Storage::id`] is an index here.
    pub storages: Vec<Arc<Storage>>,
    /// The names that the configuration gives a meaning, for values that are not known before (`ssi`).
    pub names: Names,
    /// `health_check`s
    pub health_checks: Vec<HealthCheck>,
}

/// An index into [`Http::servers`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub u32);
/// An index into [`Http::locations`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocationId(pub u32);
/// An index into [`Http::maps`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapId(pub u32);

/// A `server` block.
#[derive(Debug)]
pub struct Server {
    /// `server_name`s; the first one is `$server_name`. Empty means `""`.
    pub names: Vec<ServerName>,
    /// The server's own settings, seen as a location that matches everything. Its script is run before a
    /// location is looked for.
    pub root: LocationId,
    /// The top-level locations, named ones included.
    pub locations: Vec<LocationId>,
    /// `merge_slashes`
    pub merge_slashes: bool,
    /// `large_client_header_buffers`, `client_header_buffer_size` and our own limits.
    pub head_limits: HeadLimits,
    /// `client_header_timeout`: a server's, as it is needed before a location is known.
    pub client_header_timeout: Option<Duration>,
    /// `underscores_in_headers`, `ignore_invalid_headers`: as in nginx.
    pub underscores_in_headers: bool,
    /// `ignore_invalid_headers`
    pub ignore_invalid_headers: bool,
    /// HTTP/2 at this server's addresses.
    pub http2: Http2,
    /// What it says about HTTP/3.
    pub http3: Http3,
    /// `acme_certificate`
    pub acme: Option<Arc<AcmeCertificate>>,
    /// TLS at those of its addresses that have it.
    pub tls: Arc<Tls>,
}

/// One `server_name`.
#[derive(Clone, Debug)]
pub enum ServerName {
    /// In lower case; `""` matches a request without `Host`.
    Exact(String),
    /// `*.example.org`, kept as `.example.org`; or `.example.org`, which is this and the exact name both
    /// (the resolver writes two entries).
    LeadingWildcard(String),
    /// `www.example.*`, kept as `www.example.`.
    TrailingWildcard(String),
    /// `~…`
    Regex(Arc<Pattern>),
}

/// A regular expression with its source and the names of its groups.
#[derive(Debug)]
pub struct Pattern {
    /// As written, without `~`.
    pub source: String,
    /// Compiled; case-insensitive where asked for.
    pub regex: Expression,
}

/// How a location matches.
#[derive(Clone, Debug)]
pub enum LocationMatch {
    /// `location = /path`
    Exact(Vec<u8>),
    /// `location /path` and `location ^~ /path` (then `is_final`: regexes are not tried).
    Prefix {
        /// The prefix.
        path: Vec<u8>,
        /// `^~`
        is_final: bool,
    },
    /// `location ~` and `~*`
    Regex(Arc<Pattern>),
    /// `location @name`, kept with its `@`.
    Named(String),
    /// The server itself.
    Server,
    /// An `if` within the location before: nothing is looked for here, a script leads to it.
    If,
}

/// A location: how it matches, its nested locations, and its settings.
#[derive(Debug)]
pub struct Location {
    /// How it matches.
    pub matches: LocationMatch,
    /// The server it belongs to.
    pub server: ServerId,
    /// Nested locations.
    pub locations: Vec<LocationId>,
    /// What holds here, inheritance done.
    pub settings: Settings,
}

/// What holds in a location: everything that is inherited from `http` to `server` to `location`, and the
/// settings of the location alone.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the language")]
pub struct Settings {
    // Where files are.
    /// `root` or `alias`
    pub path_mapping: PathMapping,
    /// `index`
    pub index: Arc<[Template]>,
    /// `try_files` (a location's own)
    pub try_files: Option<Arc<TryFiles>>,
    /// `autoindex`
    pub autoindex: bool,
    /// `autoindex_exact_size`
    pub autoindex_exact_size: bool,
    /// `autoindex_localtime`
    pub autoindex_localtime: bool,
    /// `autoindex_format` and its companions.
    pub listing: Listing,
    /// `disable_symlinks`
    pub disable_symlinks: Symlinks,
    /// `open_file_cache` and its companions.
    pub open_file_cache: FileCache,
    /// `cgi` and its companions; `None` where nothing is run.
    pub cgi: Option<Arc<Cgi>>,
    /// `dav_methods`, `upload_store` and their companions; `None` where nothing may be changed.
    pub file_ops: Option<Arc<FileOps>>,
    /// `proxy_pass`, `fastcgi_pass`, `scgi_pass`, `uwsgi_pass` (a location's own): another server answers.
    pub pass: Option<Arc<Pass>>,
    /// What a server of `stream` does; `None` in `http`.
    pub stream: Option<Arc<StreamSettings>>,
    /// `resolver`, `resolver_timeout`: who is asked for names while the server runs.
    pub resolver: Arc<Resolver>,
    /// `service`: the service that answers.
    pub service: Option<Arc<str>>,
    /// `status`, `stub_status`, `empty_gif`: the server answers by itself.
    pub status: Option<StatusForm>,

    // What is answered.
    /// `rewrite`, `set`, `if`, `break`, `return` and what goes with them.
    pub rewriting: Rewriting,
    /// `error_page`
    pub error_pages: Arc<[ErrorPage]>,
    /// `recursive_error_pages`
    pub recursive_error_pages: bool,
    /// `internal`
    pub internal: bool,
    /// `limit_except` (a location's own): which clients may use other methods than these.
    pub limit_except: Option<Arc<LimitExcept>>,
    /// How the addresses of clients behind proxies are found; `None` if no proxy is trusted.
    pub real_ip: Option<Arc<RealIp>>,
    /// Which clients are admitted; `None` for all.
    pub access: Option<Arc<Access>>,
    /// How fast and how much at once; `None` without bounds.
    pub limits: Option<Arc<Limits>>,
    /// What signed links and referers are measured by.
    pub links: Option<Arc<Links>>,
    /// `allow_methods`: exactly these; others get 405.
    pub allow_methods: Option<Arc<[Method]>>,
    /// `absolute_redirect`
    pub absolute_redirect: bool,
    /// `server_name_in_redirect`
    pub server_name_in_redirect: bool,
    /// `port_in_redirect`
    pub port_in_redirect: bool,

    // Heads.
    /// `types`
    pub types: Arc<Types>,
    /// `default_type`
    pub default_type: Arc<str>,
    /// `charset`; `None` for off. Added to text types (nginx's default `charset_types`).
    pub charset: Option<Arc<str>>,
    /// `charset $variable`: the charset has the name that this gives.
    pub charset_by: Option<Arc<Template>>,
    /// `charset_types`
    pub charset_types: CharsetTypes,
    /// `source_charset`
    pub source_charset: Option<Arc<str>>,
    /// Where it is another one than `charset`: how texts are recoded.
    pub recode: Option<Arc<Recode>>,
    /// `override_charset`
    pub override_charset: bool,
    /// `add_header`
    pub add_headers: Arc<[AddHeader]>,
    /// `more_set_headers`, `more_clear_headers`: those of the levels around come first.
    pub changed_fields: Arc<[ChangedField]>,
    /// `add_trailer`
    pub add_trailers: Arc<[AddHeader]>,
    /// `expires`
    pub expires: Expires,
    /// `etag`
    pub etag: bool,
    /// `if_modified_since`
    pub if_modified_since: IfModifiedSince,
    /// `max_ranges`; `None` means as many as the server's own bound allows, `Some(0)` switches ranges off.
    pub max_ranges: Option<usize>,
    /// `server_tokens`
    pub server_tokens: ServerTokens,
    /// `gzip`, `brotli`, `zstd` and their companions.
    pub compression: Arc<Compression>,
    /// `gunzip`, `sub_filter`, `ssi` and the like; `None` where there are none.
    pub filters: Option<Arc<Filters>>,
    /// `mirror`; `None` where there are none.
    pub mirrors: Option<Arc<Mirrors>>,
    /// `subrequest_output_buffer_size`
    pub subrequest_bytes_max: usize,
    /// `random_index`
    pub random_index: bool,

    // Manners.
    /// `client_max_body_size`; `None` for 0 (no limit).
    pub client_max_body_size: Option<u64>,
    /// `client_body_buffer_size`
    pub client_body_buffer_size: usize,
    /// What is passed on depends on the body: all of it is read first.
    pub reads_body_first: bool,
    /// `client_body_in_file_only`
    pub client_body_in_file_only: InFileOnly,
    /// `client_body_temp_path`
    pub client_body_temp_path: Option<TempFolder>,
    /// `client_body_discard_max`
    pub client_body_discard_max: u64,
    /// `client_body_timeout`
    pub client_body_timeout: Option<Duration>,
    /// `client_body_min_rate`
    pub client_body_min_rate: Option<u64>,
    /// `keepalive_timeout` (first argument); `None` for 0: no keep-alive.
    pub keepalive_timeout: Option<Duration>,
    /// `keepalive_timeout`'s second argument: sent as `Keep-Alive: timeout=`.
    pub keepalive_header: Option<Duration>,
    /// `keepalive_time`; `None` for no bound.
    pub keepalive_time: Option<Duration>,
    /// `chunked_transfer_encoding`
    pub chunked_transfer_encoding: bool,
    /// `keepalive_disable`
    pub keepalive_disable: KeepaliveDisable,
    /// `keepalive_requests`
    pub keepalive_requests: u64,
    /// `send_timeout`
    pub send_timeout: Option<Duration>,
    /// `lingering_timeout`
    pub lingering_timeout: Option<Duration>,
    /// `lingering_time`
    pub lingering_time: Option<Duration>,
    /// `half_close`
    pub half_close: bool,
    /// `tcp_nodelay`
    pub tcp_nodelay: bool,
    /// `http2_chunk_size`
    pub http2_chunk_size: u32,
    /// `sendfile`
    pub sendfile: bool,
    /// `aio threads`: files are read beside the event loop even where they seem to be in memory.
    pub aio_threads: bool,
    /// `limit_rate`: bytes a second; 0 for no limit.
    pub limit_rate: Bytes,
    /// `limit_rate_after`
    pub limit_rate_after: Bytes,

    // Logs.
    /// `access_log`; empty for off.
    pub access_logs: Arc<[AccessLog]>,
    /// `error_log`
    pub error_logs: Arc<[ErrorLog]>,
    /// `log_not_found`
    pub log_not_found: bool,
    /// `open_log_file_cache`; `None` for off.
    pub log_file_cache: Option<LogFileCache>,
    /// `log_subrequest`
    pub log_subrequest: bool,
    /// `reset_timedout_connection`
    pub reset_timedout_connection: bool,
}

/// A number of bytes that a variable may give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// So many.
    Fixed(u64),
    /// As many as the value says; none if it is no size.
    By(Arc<Template>),
}

/// Where a location's files are.
#[derive(Clone, Debug)]
pub enum PathMapping {
    /// `root`: the whole path is added. Relative paths have been joined to the prefix.
    Root(Arc<Template>),
    /// `alias`: what follows the location's prefix is added; with a regex location the alias is the
    /// whole file name.
    Alias(Arc<Template>),
    /// The `alias` of an enclosing prefix location, as a regex location within it sees it: the first
    /// `prefix_bytes` of the path are taken away and the rest is added to the alias.
    AliasOfParent {
        /// The alias, as the enclosing location has it.
        alias: Arc<Template>,
        /// How long the enclosing location's prefix is.
        prefix_bytes: usize,
    },
}

impl PathMapping {
    /// What a root in object storage begins with: nothing can be opened there, whatever asks for it.
    pub(crate) const STORAGE: &'static str = "/dev/null/storage:";

    /// Whether it is a `storage`, and no folder of this machine.
    pub fn is_storage(&self) -> bool {
        matches!(self, Self::Root(template) if is_in_storage(template))
    }
}

/// Whether a folder is a `storage`, and none of this machine.
pub fn is_in_storage(folder: &Template) -> bool {
    let literal = folder.as_literal();
    literal.is_some_and(|text| text.starts_with(PathMapping::STORAGE.as_bytes()))
}

impl Settings {
    /// The folders for temporary files that requests of a location may need.
    pub fn temp_folders(&self) -> impl Iterator<Item = &TempFolder> {
        let forward = self.pass.as_deref().map(|pass| &pass.forward);
        let bodies = self.client_body_temp_path.as_ref();
        let bodies = bodies.filter(|_| forward.is_some() || self.cgi.is_some());
        bodies.into_iter().chain(forward.and_then(|forward| forward.temp_path.as_ref()))
    }
}

/// A folder for temporary files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TempFolder {
    /// Where it is.
    pub path: Arc<Path>,
    /// The configuration does not name it: where it cannot be used, TMPDIR is.
    pub is_default: bool,
}

/// `client_body_in_file_only`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InFileOnly {
    /// Small bodies stay in memory.
    #[default]
    Off,
    /// Every body is put into a file, which is removed with its request.
    Clean,
    /// Every body is put into a file, which stays.
    On,
}

/// `disable_symlinks`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// Followed (nginx's default).
    Follow,
    /// Never followed below the root.
    Deny,
    /// Followed only where link and target have the same owner.
    IfSameOwner,
}

/// `open_file_cache` and its companions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileCache {
    /// Not configured: only files that are asked for very often are trusted, and only for a moment.
    Auto,
    /// `open_file_cache off`
    Off,
    /// As configured.
    On {
        /// `max=`
        max: usize,
        /// `inactive=`
        inactive: Duration,
        /// `open_file_cache_valid`
        valid: Duration,
        /// `open_file_cache_min_uses`
        min_uses: u32,
        /// `open_file_cache_errors`
        errors: bool,
    },
}

/// `try_files`
#[derive(Debug)]
pub struct TryFiles {
    /// Each candidate; `is_dir` for one that was written with a closing slash (which is not in the template).
    pub candidates: Vec<TryFile>,
    /// What happens when none is there.
    pub fallback: Fallback,
}

/// A candidate of `try_files`.
#[derive(Debug)]
pub struct TryFile {
    /// The path to look for.
    pub path: Template,
    /// Whether a directory is meant.
    pub is_dir: bool,
}

/// The last word of `try_files`.
#[derive(Debug)]
pub enum Fallback {
    /// An internal redirect.
    Uri(Template),
    /// `@name`
    Named(String),
    /// `=code`
    Status(Status),
}

/// One `error_page` directive.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// The codes it is for (may contain 494–499 as nginx has them).
    pub codes: Vec<u16>,
    /// `=code`, `=`, or neither.
    pub status: ErrorStatus,
    /// Where the answer comes from.
    pub target: ErrorTarget,
}

impl ErrorPage {
    /// Whether it is for this status. nginx's number for too large header fields (494) is for our 431, too.
    pub fn is_for(&self, status: Status) -> bool {
        self.codes.contains(&status.code())
            || (status == Status::HEADER_TOO_LARGE && self.codes.contains(&494))
    }
}

/// Which status an `error_page` answers with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorStatus {
    /// The original one.
    Keep,
    /// `=`: whatever the target answers.
    FromTarget,
    /// `=code`
    Fixed(Status),
}

/// Where an `error_page` goes.
#[derive(Clone, Debug)]
pub enum ErrorTarget {
    /// An internal redirect to a path.
    Uri(Template),
    /// A named location.
    Named(String),
    /// A redirect of the client to an absolute address (302, or the fixed status if that is a redirect).
    Redirect(Template),
}

/// Names to something. Looked up for every request, with names from the configuration in it only: a quick
/// hash will do.
pub type ByName<T> = std::collections::HashMap<Vec<u8>, T, foldhash::fast::RandomState>;

/// `types`: extension (lower case) to media type.
#[derive(Debug, Default)]
pub struct Types {
    /// Extension without its dot, to media type.
    pub by_extension: ByName<Arc<str>>,
}

/// `add_header`
#[derive(Clone, Debug)]
pub struct AddHeader {
    /// The field's name.
    pub name: String,
    /// Its value; an empty value adds nothing.
    pub value: Template,
    /// `always`: also for statuses other than 200, 201, 204, 206, 301, 302, 303, 304, 307, 308.
    pub always: bool,
}

/// `if_modified_since`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfModifiedSince {
    /// Never answered with 304.
    Off,
    /// Only an equal time.
    Exact,
    /// Not later than the given time.
    Before,
}

/// `server_tokens`
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerTokens {
    /// `Server: sekisho/0.1.0`
    On,
    /// `Server: sekisho`
    Off,
}
