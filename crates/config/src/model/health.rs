//! Active checks of the servers of a group: `health_check` and `match`.

use std::sync::Arc;

use sekisho_upstream::health::{Match, Settings};

use super::{Forward, Pattern, UpstreamId};

/// One `health_check`.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The group whose servers are checked.
    pub group: UpstreamId,
    /// `interval`, `jitter`, `passes`, `fails`, `mandatory`
    pub settings: Settings,
    /// `persistent`: what was found before a reload holds until it is found again.
    pub is_persistent: bool,
    /// `uri`
    pub uri: Box<[u8]>,
    /// `port`, where it is not that of the server.
    pub port: Option<u16>,
    /// `match`
    pub rules: Arc<MatchRules>,
    /// `https://`
    pub is_tls: bool,
    /// `Host` of the request.
    pub host: Box<str>,
    /// Timeouts, fields and TLS of the location.
    pub forward: Arc<Forward>,
}

/// A `match` block.
#[derive(Clone, Debug, Default)]
pub struct MatchRules {
    /// Its name; empty where none is said.
    pub name: Box<str>,
    /// `status`, and `header` without expressions.
    pub head: Match,
    /// `header NAME ~ expression`; whether it must not match.
    pub header_patterns: Vec<(Box<str>, Arc<Pattern>, bool)>,
    /// `body ~ expression`; whether it must not match.
    pub body_patterns: Vec<(Arc<Pattern>, bool)>,
}
