//! What binds the clients of a group to its servers: `sticky`.

use std::time::Duration;

use sekisho_upstream::balance::sticky::CookieSettings;

use super::{Template, UpstreamVariable};

/// One `sticky`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sticky {
    /// `cookie`: the server sets one.
    Cookie(CookieSettings),
    /// `route`: variables say it; the first that is not empty counts.
    Route(Vec<Template>),
    /// `learn`: sessions that servers make are kept in mind.
    Learn {
        /// `create`: where an answer says its session.
        create: Vec<UpstreamVariable>,
        /// `lookup`: where a request says it.
        lookup: Vec<Template>,
        /// The size of the zone.
        bytes: u64,
        /// `timeout`
        timeout: Duration,
    },
}
