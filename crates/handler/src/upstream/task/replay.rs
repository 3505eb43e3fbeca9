//! A body that is passed on as it comes, for a second server: what the first one has not processed is sent again, as long
//! as all of it is remembered.

use sekisho_lifecycle::Moment;

use super::{Stage, UpstreamTask};
use crate::upstream::body::Body;

impl UpstreamTask {
    /// Whether a server still has to be sent what another one was sent before.
    pub(super) fn is_replaying(&self) -> bool {
        self.replayed < self.streamed.bytes().len()
    }

    /// Sends what is remembered, and the end if the client has sent it.
    pub(super) fn replay(&mut self, now: Moment) {
        let Stage::Exchanging(_, exchange) = &mut self.parts.stage else { return };
        if !matches!(self.parts.body, Body::Stream(_)) || exchange.is_request_framed() {
            return;
        }
        let bytes = self.streamed.bytes();
        if self.replayed < bytes.len() {
            self.replayed += exchange.take(&bytes[self.replayed..], now);
        }
        if self.replayed >= bytes.len() && self.parts.has_body_ended {
            let _ = exchange.end_body(now);
        }
    }

    /// The client has sent this, and the server has it.
    pub(super) fn remember(&mut self, bytes: &[u8]) {
        if !self.streamed.push(bytes, self.parts.body_memory) {
            self.parts.machine.lose_body();
        }
        self.replayed = self.streamed.bytes().len();
    }
}
