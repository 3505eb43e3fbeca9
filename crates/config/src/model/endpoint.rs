//! The native endpoint: its addresses, which clients may control, and what each session may use.

use std::path::PathBuf;
use std::time::Duration;

use super::{ListenAddress, ListenOptions};

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
    /// `http_addresses`: what sessions that may not control reach through the service `http`.
    pub http_addresses: Vec<ListenAddress>,
    /// `sessions_max`
    pub sessions_max: u32,
    /// `sessions_per_address`; none is three quarters of `sessions_max`.
    pub sessions_per_address: Option<u32>,
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
