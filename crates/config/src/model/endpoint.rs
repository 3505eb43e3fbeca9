//! The native endpoint: its addresses, which clients may control, and what each session may use.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ListenAddress, ListenOptions, Tls};

/// The `endpoint` block. Without one nothing is listened on; the limits hold for the server's own control
/// socket all the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// `listen`
    pub listens: Vec<(ListenAddress, ListenOptions)>,
    /// `services`: their names.
    pub services: Vec<String>,
    /// `admin`: which users may control, beside root and the server's own user.
    pub admins: Vec<Admin>,
    /// `credential_file`: a client with its content may control from anywhere.
    pub credential_file: Option<PathBuf>,
    /// `token_file`: names and tokens.
    pub token_file: Option<PathBuf>,
    /// `password_file`: users and their passwords.
    pub password_file: Option<PathBuf>,
    /// `allow_identity`: which clients may begin a session; none is all.
    pub allowed: Vec<IdentityRule>,
    /// `permit`: which callers may call which services, by whatever protocol.
    pub permits: Vec<Permit>,
    /// `ssl_…`, where an address has TLS.
    pub tls: Option<Arc<Tls>>,
    /// `http_addresses`: what sessions that may not control reach through the service `http`.
    pub http_addresses: Vec<ListenAddress>,
    /// `sessions_max`
    pub sessions_max: u32,
    /// `sessions_per_address`; none is three quarters of `sessions_max`.
    pub sessions_per_address: Option<u32>,
    /// `sessions_per_identity`
    pub sessions_per_identity: Option<u32>,
    /// `requests_per_identity`
    pub requests_per_identity: Option<u32>,
    /// `requests_per_address`
    pub requests_per_address: Option<u32>,
    /// `admin_sessions`
    pub admin_sessions: u32,
    /// `requests_per_session`
    pub requests_per_session: u32,
    /// `channels_per_session`
    pub channels_per_session: u32,
    /// `frame_bytes_max`
    pub frame_bytes_max: u32,
    /// `channel_bytes_max`
    pub channel_bytes_max: u32,
    /// `handshake_timeout`
    pub handshake_timeout: Option<Duration>,
    /// `frame_timeout`
    pub frame_timeout: Option<Duration>,
    /// `session_timeout`
    pub session_timeout: Option<Duration>,
    /// `session_lifetime_max`
    pub session_lifetime_max: Duration,
    /// `spin`
    pub spin: Duration,
}

impl Endpoint {
    /// How many sessions one address may have: never all of several.
    pub fn sessions_of_an_address(&self) -> u32 {
        let share = self.sessions_max - self.sessions_max / 4;
        self.sessions_per_address.unwrap_or(share)
    }
}

/// `permit`: these callers may call this service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The service.
    pub service: String,
    /// For `control`: whether to see alone.
    pub reads_only: bool,
    /// The callers.
    pub who: Vec<IdentityRule>,
}

/// Which callers are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityRule {
    /// `all`
    All,
    /// `anonymous`: those that have proved nothing.
    Anonymous,
    /// `identified`: those that have proved who they are.
    Identified,
    /// `unix:NAME`: a local user.
    UnixUser(String),
    /// `unix:UID`
    UnixUid(u32),
    /// `group:NAME`: local users of this group.
    UnixGroup(String),
    /// `token:NAME`: the holder of a token of `token_file`.
    Token(String),
    /// `user:NAME`: a user whose password was right.
    User(String),
    /// `certificate:SUBJECT`: of a verified client certificate, as `$ssl_client_s_dn` has it.
    Certificate(String),
    /// `address:ADDRESS[/BITS]`
    Network(IpAddr, u8),
}

/// A user or group that may control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admin {
    /// `admin user NAME`
    User(String),
    /// `admin group NAME`
    Group(String),
    /// `admin uid NUMBER`
    Uid(u32),
}
