//! A configuration made ready to serve: its routing table, the manners of each location as the engine
//! wants them, and its opened logs. Immutable and shared by all workers; a reload makes a new one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sekisho_config::{
    Config, ErrorLog, FileCache, ListenAddress, Location, LocationId, LogTarget, Server,
    ServerTokens, Settings,
};
use sekisho_handler::limits::{SharedZone, Zones};
use sekisho_http1::Policy;
use sekisho_log::{ErrorLogger, Logs, Sink};
use sekisho_route::{Machine, Table};

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
    policies: Vec<Arc<Policy>>,
    access_sinks: Vec<Arc<[Arc<Sink>]>>,
    error_loggers: Vec<ErrorLogger>,
    /// Of `limit_req` and `limit_conn`, by their ids.
    zones: Vec<Arc<SharedZone>>,
    /// The error log of the main context.
    pub log: ErrorLogger,
    /// What the configuration and all that was made of it holds in memory, as the allocator told while it
    /// was loaded.
    pub held_bytes: u64,
}

impl Site {
    /// Opens what a configuration needs.
    pub fn new(
        config: Arc<Config>,
        logs: &Logs,
        zones: &Zones,
        machine: Machine,
    ) -> Result<Self, OpenError> {
        let http = &config.http;
        let mut policies: Vec<Arc<Policy>> = Vec::with_capacity(http.locations.len());
        let mut distinct: Vec<Arc<Policy>> = Vec::new();
        let mut access_sinks = Vec::with_capacity(http.locations.len());
        let mut error_loggers = Vec::with_capacity(http.locations.len());
        for location in &http.locations {
            let policy = policy(&http.servers[location.server.0 as usize], &location.settings);
            // Locations with the same manners share them, so that a switch between them is none.
            let known = distinct.iter().find(|known| ***known == policy).cloned();
            policies.push(known.unwrap_or_else(|| {
                let policy = Arc::new(policy);
                distinct.push(Arc::clone(&policy));
                policy
            }));
            let mut sinks = Vec::new();
            for log in location.settings.access_logs.iter() {
                sinks.push(open(logs, &log.target, log.buffer, log.flush)?);
            }
            access_sinks.push(sinks.into());
            error_loggers.push(logger(logs, &location.settings.error_logs)?);
        }
        let log = logger(logs, &config.main.error_logs)?;
        let zones = zones.of(&http.zones);
        let table = Arc::new(Table::new(config).with_machine(machine));
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { serial, table, policies, access_sinks, error_loggers, zones, log, held_bytes: 0 })
    }

    /// Its number: no other site of this process has the same.
    pub fn serial(&self) -> u64 {
        self.serial
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

    /// Where this address stands in the configuration.
    pub fn listen_index(&self, address: &ListenAddress) -> Option<usize> {
        self.config().http.listens.iter().position(|listen| listen.address == *address)
    }

    /// The manners at an address before `Host` has chosen a server (T8).
    pub fn first_policy(&self, listen: usize) -> &Arc<Policy> {
        let http = &self.config().http;
        let server = http.listens[listen].default_server;
        self.policy(http.servers[server.0 as usize].root)
    }

    /// A location's manners.
    pub fn policy(&self, location: LocationId) -> &Arc<Policy> {
        &self.policies[location.0 as usize]
    }

    /// A location.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.config().http.locations[id.0 as usize]
    }

    /// The sinks of a location's `access_log`s, in their order.
    pub fn access_sinks(&self, location: LocationId) -> &[Arc<Sink>] {
        &self.access_sinks[location.0 as usize]
    }

    /// A location's error log.
    pub fn error_logger(&self, location: LocationId) -> &ErrorLogger {
        &self.error_loggers[location.0 as usize]
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

/// How this server calls itself in a location.
pub fn product(settings: &Settings) -> &'static str {
    match settings.server_tokens {
        ServerTokens::On => PRODUCT,
        ServerTokens::Off => PRODUCT_NAME,
    }
}

/// A log that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Which one.
    pub target: LogTarget,
    /// Why.
    pub error: io::Error,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            LogTarget::File(path) => {
                write!(f, "cannot open log {}: {}", path.display(), self.error)
            }
            LogTarget::Stderr => write!(f, "cannot write to stderr: {}", self.error),
        }
    }
}

impl std::error::Error for OpenError {}

fn open(
    logs: &Logs,
    target: &LogTarget,
    buffer: Option<u64>,
    flush: Option<Duration>,
) -> Result<Arc<Sink>, OpenError> {
    logs.open(target, buffer, flush).map_err(|error| OpenError { target: target.clone(), error })
}

fn logger(logs: &Logs, wanted: &[ErrorLog]) -> Result<ErrorLogger, OpenError> {
    let open = |log: &ErrorLog| Ok((open(logs, &log.target, None, None)?, log.level));
    Ok(ErrorLogger::new(wanted.iter().map(open).collect::<Result<_, OpenError>>()?))
}

fn policy(server: &Server, settings: &Settings) -> Policy {
    Policy {
        header_timeout: server.client_header_timeout,
        body_timeout: settings.client_body_timeout,
        body_min_rate: settings.client_body_min_rate,
        keepalive_timeout: settings.keepalive_timeout,
        send_timeout: settings.send_timeout,
        lingering_timeout: settings.lingering_timeout,
        lingering_time: settings.lingering_time,
        keepalive_requests: settings.keepalive_requests,
        line_bytes_max: server.head_limits.line_bytes_max,
        field_bytes_max: server.head_limits.field_bytes_max,
        head_bytes_max: server.head_limits.head_bytes_max,
        fields_max: server.head_limits.fields_max,
        body_discard_max: settings.client_body_discard_max,
        half_close: settings.half_close,
    }
}
