//! What native sessions may do, as a configuration says it.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::Endpoint;
use sekisho_endpoint::{Code, Greeting, Peer, Policy, SessionSlots};
use sekisho_handler::memory;
use sekisho_net::native::NativeRules;

use super::operators::Operators;
use crate::cluster::Membership;

/// Peers that have only just connected, at each address.
const GREETINGS: u32 = 256;
/// What one session may hold: so much, or half of what all may.
const SESSION_BYTES_MAX: usize = 8 << 20;

/// What native sessions may do, and for how long a graceful end waits for them.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) endpoint: Endpoint,
    pub(crate) operators: Operators,
    pub(crate) grace: Option<Duration>,
    /// What this node is in its cluster.
    pub(crate) membership: Option<Arc<Membership>>,
}

impl Rules {
    /// The same for the workers; `None` where nothing is listened on. If only addresses have changed since
    /// `before`, it is the same value: sessions go on under it.
    pub(crate) fn for_workers(
        &self,
        before: Option<&(Self, Option<Arc<NativeRules>>)>,
    ) -> Option<Arc<NativeRules>> {
        if self.endpoint.listens.is_empty() {
            return None;
        }
        if let Some((rules, Some(native))) = before
            && rules.is_same_but_addresses(self)
        {
            return Some(Arc::clone(native));
        }
        let limits = &self.endpoint;
        let operators = self.operators.clone();
        Some(Arc::new(NativeRules {
            policy: Arc::new(self.policy()),
            slots: SessionSlots::with_address_limit(
                limits.sessions_max,
                limits.admin_sessions,
                GREETINGS,
                limits.sessions_of_an_address(),
            ),
            budget: Arc::clone(memory::native()),
            session_bytes_max: SESSION_BYTES_MAX.min(memory::native().limit() / 2),
            authenticator: Arc::new(move |greeting: &Greeting, peer: &Peer| {
                // While memory is short, only operators are admitted (X8).
                if !greeting.wants_admin && memory::is_short() {
                    return Err((Code::ResourceLimitReached, "memory is short".to_owned()));
                }
                operators.admit(greeting, peer)
            }),
            services: limits.services.clone(),
            http_addresses: limits.http_addresses.clone(),
            grace: self.grace,
        }))
    }

    fn is_same_but_addresses(&self, other: &Self) -> bool {
        let mut endpoint = other.endpoint.clone();
        endpoint.listens.clone_from(&self.endpoint.listens);
        self.operators == other.operators && self.endpoint == endpoint
    }

    /// Limits and deadlines of a session.
    pub(super) fn policy(&self) -> Policy {
        let limits = &self.endpoint;
        Policy {
            frame_bytes_max: limits.frame_bytes_max,
            requests_max: limits.requests_per_session,
            channels_max: limits.channels_per_session,
            channel_bytes_max: limits.channel_bytes_max,
            handshake_timeout: limits.handshake_timeout,
            frame_timeout: limits.frame_timeout,
            session_timeout: limits.session_timeout,
            session_extension_max: limits.session_lifetime_max,
            ..Policy::default()
        }
    }
}
