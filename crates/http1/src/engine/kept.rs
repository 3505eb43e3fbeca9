//! Whether a connection may continue after its response, and whether the response may have trailers.

use sekisho_http::{Policy, Version};
use sekisho_lifecycle::{CloseReason, Moment, Stage};

use super::{Http1, Output};

impl Http1 {
    /// The connection ends after this response, as its client cannot be trusted with another (`keepalive_disable`).
    pub fn keep_alive_off(&mut self) {
        if self.stage == Stage::Open && self.output == Output::Awaited {
            self.closing = self.closing.or(Some(CloseReason::KeepAliveOff));
        }
    }

    /// Whether a response of unknown length would be sent in chunks, so that it can have trailers.
    pub fn can_have_trailers(&self) -> bool {
        self.request.version == Version::Http11
            && !self.request.is_head
            && self.policy().sends_chunks
    }

    /// Whether the connection is as old as one may become.
    pub(super) fn is_old(&self, policy: &Policy, now: Moment) -> bool {
        policy.keepalive_time.is_some_and(|time| now.since(self.born) > time)
    }
}
