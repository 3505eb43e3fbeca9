//! A configuration made ready to serve: its routing table, the policies of each location for the protocol
//! engines, and its opened logs. Immutable and shared by all workers; a reload makes a new one.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sekisho_config::{
    AccessTarget, Config, ErrorLog, FileCache, Listen, ListenAddress, Location, LocationId,
    LogFormat, LogTarget, RealIp, Server, ServerId, ServerTokens, Settings, SyslogServer, Template,
};
use sekisho_handler::disk;
use sekisho_handler::limits::{SharedZone, Zones};
use sekisho_handler::storage::Credentials;
use sekisho_handler::upstream::{Cache, Checks, Group, Groups, UpstreamTlsConfigs};
use sekisho_log::{Buffering, ErrorLogger, Logs, Sink};
use sekisho_route::{AddressDatabase, LineFormat, Machine, Table};
use sekisho_service::ServiceAccess;

use crate::log_files;
use crate::native::{NativeRules, NativeTls};
use crate::protocol::Policies;
use crate::tls::{self, InUse, ServerTls, Staple, TlsProblem};

/// The name and version of this server.
pub const PRODUCT: &str = concat!("sekisho/", env!("CARGO_PKG_VERSION"));
/// The same without its version (`server_tokens off`).
pub const PRODUCT_NAME: &str = "sekisho";

/// Numbers sites.
static SERIALS: AtomicU64 = AtomicU64::new(0);

/// A configuration made ready to serve.
#[derive(Debug)]
pub struct Site {
    serial: u64,
    table: Arc<Table>,
    /// By location.
    policies: Vec<Policies>,
    access_logs: Vec<Arc<[OpenLog]>>,
    error_loggers: Vec<ErrorLogger>,
    /// Of `limit_req` and `limit_conn`, by their ids.
    zones: Vec<Arc<SharedZone>>,
    groups: Vec<Arc<Group>>,
    caches: Vec<Arc<Cache>>,
    checks: Arc<Checks>,
    upstream_tls: UpstreamTlsConfigs,
    /// The keys of each `storage`.
    credentials: Vec<Option<Arc<Credentials>>>,
    /// By server, where it has TLS.
    tls: Vec<Option<Arc<ServerTls>>>,
    /// Opens files of access logs whose paths have variables.
    logs: Arc<Logs>,
    log_files: Mutex<log_files::Files>,
    /// The `stream` block, as a site of its own.
    stream: Option<Arc<Self>>,
    is_stream: bool,
    /// The error log of the main context.
    pub log: ErrorLogger,
    /// What the configuration and all that was made of it holds in memory, as the allocator told while it
    /// was loaded.
    pub memory_bytes: u64,
    /// What native sessions may do, if there is an `endpoint` with addresses.
    pub native: Option<Arc<NativeRules>>,
    /// What callers of services may do, whatever the protocol.
    pub access: ServiceAccess,
    /// TLS of the native endpoint, where an address has it.
    pub native_tls: Option<Arc<NativeTls>>,
    /// By server: the `Alt-Svc` that announces HTTP/3. Empty where no server has it.
    alt_svc: Vec<Option<Box<str>>>,
}

impl Site {
    /// Opens what a configuration needs.
    pub fn new(
        config: Arc<Config>,
        logs: &Arc<Logs>,
        zones: &Zones,
        groups: &Groups,
        machine: Machine,
    ) -> Result<Self, OpenError> {
        disk::forget_folders();
        let stream = match &config.stream {
            Some(stream) => {
                let stream = Arc::clone(stream);
                let upstreams = groups.of_stream(&stream.http.upstreams);
                let machine = machine.clone();
                Some(Arc::new(Self::open(stream, logs, zones, upstreams, Vec::new(), machine)?))
            }
            None => None,
        };
        let caches = groups.caches.of(&config.http.caches);
        let upstreams = groups.of(&config.http.upstreams);
        let http = Self::open(config, logs, zones, upstreams, caches, machine)?;
        Ok(Self { stream, ..http })
    }

    /// The same for one block of servers.
    fn open(
        config: Arc<Config>,
        logs: &Arc<Logs>,
        zones: &Zones,
        groups: Vec<Arc<Group>>,
        caches: Vec<Arc<Cache>>,
        machine: Machine,
    ) -> Result<Self, OpenError> {
        let http = &config.http;
        let is_stream = http.locations.iter().any(|it| it.settings.stream.is_some());
        let mut policies: Vec<Policies> = Vec::with_capacity(http.locations.len());
        let mut distinct: Vec<Policies> = Vec::new();
        let mut access_logs = Vec::with_capacity(http.locations.len());
        let mut formats = Formats::default();
        let mut error_loggers = Vec::with_capacity(http.locations.len());
        for location in &http.locations {
            let server = &http.servers[location.server.0 as usize];
            let policy = Policies::new(server, &location.settings);
            // Locations with the same policies share them, so that a switch between them is none.
            let known = distinct.iter().find(|known| **known == policy).cloned();
            policies.push(known.unwrap_or_else(|| {
                distinct.push(policy.clone());
                policy
            }));
            let mut opened = Vec::new();
            for log in location.settings.access_logs.iter() {
                let buffering = Buffering { bytes: log.buffer, flush: log.flush, gzip: log.gzip };
                let to = match &log.target {
                    AccessTarget::Fixed(target) => LineTarget::Sink(open(logs, target, buffering)?),
                    AccessTarget::Variable(path) => LineTarget::Path(path.clone()),
                };
                opened.push(OpenLog { to, format: formats.compiled(&log.format) });
            }
            access_logs.push(opened.into());
            error_loggers.push(logger(logs, &location.settings.error_logs)?);
        }
        let log = logger(logs, &config.main.error_logs)?;
        let zones = zones.of(&http.zones);
        let upstream_tls = UpstreamTlsConfigs::load(&config).map_err(tls::upstream_problem)?;
        let credentials = sekisho_handler::storage::credentials(&http.storages);
        let credentials = credentials.map_err(OpenError::Storage)?;
        let checks = Arc::new(Checks::new(&http.health_checks, &groups, &upstream_tls));
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        let tls = tls::load(&config, serial).map_err(OpenError::Tls)?;
        let native_tls = if is_stream {
            None
        } else {
            tls::load_native(&config, serial).map_err(OpenError::Tls)?
        };
        let alt_svc = alt_svc(&config);
        let databases = databases(&config)?;
        let table = Table::new(config).with_machine(machine).with_databases(databases);
        let table = Arc::new(table);
        Ok(Self {
            serial,
            table,
            policies,
            access_logs,
            error_loggers,
            zones,
            groups,
            caches,
            checks,
            upstream_tls,
            credentials,
            tls,
            stream: None,
            is_stream,
            log,
            logs: Arc::clone(logs),
            log_files: Mutex::default(),
            memory_bytes: 0,
            native: None,
            access: ServiceAccess::default(),
            native_tls,
            alt_svc,
        })
    }

    /// Its number: no other site of this process has the same.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The `Alt-Svc` of a location: HTTP/3 of its server, unless the location says something of its own.
    pub(crate) fn alt_svc(&self, location: LocationId) -> Option<&str> {
        if self.alt_svc.is_empty() {
            return None;
        }
        let location = self.location(location);
        let added = &location.settings.add_headers;
        let is_own = added.iter().any(|field| field.name.eq_ignore_ascii_case("alt-svc"));
        self.alt_svc.get(location.server.0 as usize)?.as_deref().filter(|_| !is_own)
    }

    /// The routing table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The routing table, for work beside the event loop.
    pub fn shared_table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.table.config()
    }

    /// The `stream` block, if there is one.
    pub fn stream(&self) -> Option<&Arc<Self>> {
        self.stream.as_ref()
    }

    /// Whether it is one: its connections are passed on as they are.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Where this address stands in the configuration.
    pub fn listen_index(&self, address: &ListenAddress) -> Option<usize> {
        self.config().http.listens.iter().position(|listen| listen.address == *address)
    }

    /// The policies at an address before `Host` has chosen a server (T8).
    pub(crate) fn first_policy(&self, listen: usize) -> &Policies {
        let http = &self.config().http;
        let server = http.listens[listen].default_server;
        self.policy(http.servers[server.0 as usize].root)
    }

    /// The same where the client has said a name in its handshake.
    pub(crate) fn policy_before_head(&self, listen: usize, name: Option<&str>) -> &Policies {
        let server = name.and_then(|name| self.table.server_named(listen, name.as_bytes()));
        match server {
            Some(server) => self.policy(self.table.server(server).root),
            None => self.first_policy(listen),
        }
    }

    /// A location's manners.
    pub(crate) fn policy(&self, location: LocationId) -> &Policies {
        &self.policies[location.0 as usize]
    }

    /// A location.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.config().http.locations[id.0 as usize]
    }

    /// Whether HTTP/2 is spoken at an address: where one of its servers wants it.
    pub(crate) fn speaks_http2(&self, listen: usize) -> bool {
        let http = &self.config().http;
        let listen = &http.listens[listen];
        listen.options.http2 || http.servers[listen.default_server.0 as usize].http2.is_on
    }

    /// Whether connections to an address begin with the header of a balancer.
    pub(crate) fn is_behind_proxy(&self, listen: usize) -> bool {
        self.config().http.listens[listen].options.proxy_protocol
    }

    /// How the addresses of clients behind proxies are found at an address, before `Host` has chosen a
    /// server.
    pub(crate) fn first_real_ip(&self, listen: usize) -> Option<&RealIp> {
        let http = &self.config().http;
        let server = http.listens[listen].default_server;
        self.location(http.servers[server.0 as usize].root).settings.real_ip.as_deref()
    }

    /// Whether connections to an address are encrypted.
    pub(crate) fn is_tls(&self, listen: usize) -> bool {
        self.config().http.listens[listen].options.tls
    }

    /// The TLS of the server with this name at an address, or of its default one.
    pub(crate) fn tls_of(&self, listen: usize, name: &str) -> Option<&Arc<ServerTls>> {
        let server = self.table.server_named(listen, name.as_bytes())?;
        let tls = self.tls.get(server.0 as usize)?.as_ref();
        if tls.is_some_and(|tls| !tls.is_bare) {
            return tls;
        }
        let default = self.config().http.listens.get(listen)?.default_server;
        self.tls.get(default.0 as usize)?.as_ref()
    }

    /// The certificates that are shown to clients.
    pub fn certificates(&self) -> Vec<InUse> {
        let mut all = tls::in_use(self.config(), &self.tls);
        for one in self.stream.iter().flat_map(|stream| stream.certificates()) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// The certificates whose OCSP responses are fetched.
    pub fn staples(&self) -> Vec<Arc<Staple>> {
        tls::staples(&self.tls)
    }

    /// A location's `access_log`s, in their order.
    pub(crate) fn access_logs(&self, location: LocationId) -> &[OpenLog] {
        &self.access_logs[location.0 as usize]
    }

    /// Where files of access logs are opened.
    pub(crate) fn logs(&self) -> &Logs {
        &self.logs
    }

    /// The files that `open_log_file_cache` keeps.
    pub(crate) fn log_files(&self) -> &Mutex<log_files::Files> {
        &self.log_files
    }

    /// A location's error log.
    pub fn error_logger(&self, location: LocationId) -> &ErrorLogger {
        &self.error_loggers[location.0 as usize]
    }

    /// Checks of their servers.
    pub(crate) fn checks(&self) -> &Arc<Checks> {
        &self.checks
    }

    /// Groups of servers that requests are passed to.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Caches of their answers.
    pub fn caches(&self) -> &[Arc<Cache>] {
        &self.caches
    }

    /// How servers are spoken to by TLS.
    pub(crate) fn upstream_tls(&self) -> &UpstreamTlsConfigs {
        &self.upstream_tls
    }

    /// The keys of each `storage`.
    pub(crate) fn credentials(&self) -> &[Option<Arc<Credentials>>] {
        &self.credentials
    }

    /// The zones of `limit_req` and `limit_conn`, by their ids.
    pub fn zones(&self) -> &[Arc<SharedZone>] {
        &self.zones
    }

    /// The largest `open_file_cache` there is: how many entries, and how long they stay unused.
    pub fn file_cache(&self) -> Option<(usize, Duration)> {
        let of = |location: &Location| match location.settings.open_file_cache {
            FileCache::On { max, inactive, .. } => Some((max, inactive)),
            FileCache::Auto | FileCache::Off => None,
        };
        self.config().http.locations.iter().filter_map(of).max()
    }
}

/// An `access_log` that is open, with its format compiled.
#[derive(Debug)]
pub(crate) struct OpenLog {
    pub(crate) to: LineTarget,
    pub(crate) format: Arc<LineFormat>,
}

/// Where the lines of an `access_log` go.
#[derive(Debug)]
pub(crate) enum LineTarget {
    Sink(Arc<Sink>),
    /// A file of this name, which is opened when there is a line for it.
    Path(Template),
}

/// The compiled formats of a configuration: each is compiled once, however many locations use it.
#[derive(Default)]
struct Formats(Vec<(Arc<LogFormat>, Arc<LineFormat>)>);

impl Formats {
    fn compiled(&mut self, format: &Arc<LogFormat>) -> Arc<LineFormat> {
        let known = self.0.iter().find(|(known, _)| Arc::ptr_eq(known, format));
        if let Some((_, compiled)) = known {
            return Arc::clone(compiled);
        }
        let compiled = Arc::new(LineFormat::new(format));
        self.0.push((Arc::clone(format), Arc::clone(&compiled)));
        compiled
    }
}

/// How this server calls itself in a location.
pub fn product(settings: &Settings) -> &'static str {
    match settings.server_tokens {
        ServerTokens::On => PRODUCT,
        ServerTokens::Off => PRODUCT_NAME,
    }
}

/// What a site needs and could not get.
#[derive(Debug)]
pub enum OpenError {
    /// A log, and why.
    Log(LogTarget, io::Error),
    /// A file of TLS.
    Tls(TlsProblem),
    /// A database of addresses, and why.
    Database(PathBuf, String),
    /// The keys of a storage: which, and why.
    Storage(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(LogTarget::File(path), error) => {
                write!(f, "cannot open log {}: {error}", path.display())
            }
            Self::Log(LogTarget::Syslog(syslog), error) => {
                let server = match &syslog.server {
                    SyslogServer::Unix(path) => path.display().to_string(),
                    SyslogServer::Host(host) => host.clone(),
                };
                write!(f, "cannot reach the syslog server {server}: {error}")
            }
            Self::Log(LogTarget::Stderr, error) => write!(f, "cannot write to stderr: {error}"),
            Self::Tls(problem) => problem.fmt(f),
            Self::Storage(why) => f.write_str(why),
            Self::Database(path, why) => write!(f, "geoip2 \"{}\" {why}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// The databases that a configuration names (`geoip2`), read into memory.
pub fn databases(config: &Config) -> Result<Vec<Arc<AddressDatabase>>, OpenError> {
    let read = |path: &PathBuf| {
        let bytes =
            sekisho_openings::read(path).map_err(|error| format!("cannot be read: {error}"));
        let made = bytes.and_then(|bytes| AddressDatabase::new(bytes).map_err(str::to_owned));
        made.map(Arc::new).map_err(|why| OpenError::Database(path.clone(), why))
    };
    config.http.databases.iter().map(read).collect()
}

fn open(logs: &Logs, target: &LogTarget, buffering: Buffering) -> Result<Arc<Sink>, OpenError> {
    logs.open(target, buffering).map_err(|error| OpenError::Log(target.clone(), error))
}

fn logger(logs: &Logs, wanted: &[ErrorLog]) -> Result<ErrorLogger, OpenError> {
    let open = |log: &ErrorLog| Ok((open(logs, &log.target, Buffering::default())?, log.level));
    Ok(ErrorLogger::new(wanted.iter().map(open).collect::<Result<_, OpenError>>()?))
}

/// By server: how HTTP/3 is announced, where it listens for it.
fn alt_svc(config: &Config) -> Vec<Option<Box<str>>> {
    let http = &config.http;
    let port = |at: usize| {
        let of = |listen: &&Listen| listen.servers.contains(&ServerId(at as u32));
        let quic = http.listens.iter().filter(|listen| listen.options.quic).find(of)?;
        match quic.address {
            ListenAddress::Udp(address) => Some(address.port()),
            ListenAddress::Tcp(_) | ListenAddress::Unix(_) => None,
        }
    };
    let announced = |(at, server): (usize, &Server)| {
        let port = port(at).filter(|_| server.http3.is_on && server.http3.alt_svc)?;
        Some(format!("h3=\":{port}\"; ma=86400").into_boxed_str())
    };
    let all: Vec<_> = http.servers.iter().enumerate().map(announced).collect();
    if all.iter().all(Option::is_none) { Vec::new() } else { all }
}
