//! The servers of a group as an operator sees them.

use sekisho_lifecycle::Moment;
use sekisho_upstream::balance::Unavailable;

use super::group::Group;

/// A server of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerView {
    /// Its address.
    pub server: String,
    /// Whether requests are passed to it: `up`, or why not.
    pub state: &'static str,
    /// Requests that run there.
    pub running: u32,
    /// Requests and failures so far.
    pub requests: u64,
    /// See `requests`.
    pub failures: u64,
}

impl Group {
    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its servers; none where names are looked up when a request comes.
    pub fn servers(&self, now: Moment) -> Vec<ServerView> {
        let snapshots = self.balancer.snapshot(now);
        let view = |((_, name), seen): (&(_, std::sync::Arc<str>), _)| {
            let seen: sekisho_upstream::balance::Snapshot = seen;
            let state = match seen.unavailable {
                None => "up",
                Some(Unavailable::Down) => "down",
                Some(Unavailable::Draining) => "draining",
                Some(Unavailable::Unhealthy) => "unhealthy",
                Some(Unavailable::Failed) => "failed",
                Some(Unavailable::Full) => "full",
            };
            let (running, requests, failures) = (seen.connections, seen.requests, seen.failures);
            ServerView { server: name.to_string(), state, running, requests, failures }
        };
        self.addresses.iter().zip(snapshots).map(view).collect()
    }
}
