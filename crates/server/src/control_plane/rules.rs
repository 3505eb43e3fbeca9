//! What native sessions may do, as a configuration says it.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::Endpoint;
use sekisho_endpoint::{Policy, RequestLimits, ServiceAccess, SessionSlots};
use sekisho_handler::memory::{self, Class};
use sekisho_net::native::{GateRules, NativeRules};

use super::identities::Identities;
use crate::cluster::Membership;

/// Peers that have only just connected, at each address.
const GREETINGS: u32 = 256;
/// What one session may hold: so much, or half of what all may.
const SESSION_BYTES_MAX: usize = 8 << 20;

/// What native sessions may do, and for how long a graceful end waits for them.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) endpoint: Endpoint,
    pub(crate) identities: Identities,
    /// The same for callers of services, and how much they may do at once.
    pub(crate) access: ServiceAccess,
    pub(crate) grace: Option<Duration>,
    /// What this node is in its cluster.
    pub(crate) membership: Option<Arc<Membership>>,
}

impl Rules {
    /// Those of a configuration. As long as the limits are those of `before`, what runs goes on counting.
    pub(crate) fn new(
        endpoint: Endpoint,
        identities: Identities,
        grace: Option<Duration>,
        before: Option<&Self>,
    ) -> Self {
        let limits = |of: &Endpoint| (of.requests_per_identity, of.requests_per_address);
        let own = limits(&endpoint);
        let limits = match before {
            Some(before) if limits(&before.endpoint) == own => Arc::clone(&before.access.limits),
            _ => RequestLimits::new(own.0, own.1),
        };
        let permissions = Arc::new(identities.permissions.clone());
        let access = ServiceAccess { permissions, limits };
        Self { endpoint, identities, access, grace, membership: None }
    }

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
        let Identities { tokens, allowed, .. } = self.identities.clone();
        let password_file = limits.password_file.clone();
        Some(Arc::new(NativeRules {
            policy: Arc::new(self.policy()),
            slots: SessionSlots::with_shares(
                limits.sessions_max,
                limits.admin_sessions,
                GREETINGS,
                (limits.sessions_of_an_address(), limits.sessions_per_identity.unwrap_or(u32::MAX)),
            ),
            budget: Arc::clone(memory::budget(Class::Native)),
            session_bytes_max: SESSION_BYTES_MAX.min(memory::budget(Class::Native).limit() / 2),
            gate: GateRules { tokens, password_file, allowed },
            access: self.access.clone(),
            services: limits.services.clone(),
            http_addresses: limits.http_addresses.clone(),
            grace: self.grace,
        }))
    }

    fn is_same_but_addresses(&self, other: &Self) -> bool {
        let mut endpoint = other.endpoint.clone();
        endpoint.listens.clone_from(&self.endpoint.listens);
        // Certificates are taken up by the listeners.
        endpoint.tls.clone_from(&self.endpoint.tls);
        self.identities == other.identities && self.endpoint == endpoint
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
