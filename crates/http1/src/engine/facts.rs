//! Queries about a connection: its state, and what it waits for.

use sekisho_lifecycle::{CloseReason, Stage};

use super::{Fate, Http1, Input, Output};

impl Http1 {
    /// Whether the connection is between requests, with everything sent and no byte of the next
    /// request seen.
    pub const fn is_idle(&self) -> bool {
        self.awaits_request() && !self.unsent
    }

    /// Whether no byte of the next request has been seen, though answers may still be leaving.
    pub const fn awaits_request(&self) -> bool {
        matches!((self.stage, self.input), (Stage::Open, Input::Head(_))) && !self.begun
    }

    /// Whether a client that sends no more is a lost one: while its answer is awaited, unless the
    /// configuration says otherwise (H11).
    pub fn loses_by_fin(&self) -> bool {
        matches!(self.output, Output::Awaited) && !self.policy().half_close
    }

    /// Whether bytes would be taken; if not, they may wait in the transport.
    pub const fn wants_input(&self) -> bool {
        if self.ended {
            return false;
        }
        match (self.stage, self.input) {
            (Stage::Lingering, _) | (Stage::Open, Input::Head(_)) => true,
            (Stage::Open, Input::Body { fate: Fate::Taken, .. } | Input::Tunnel) => {
                self.held.is_none()
            }
            (Stage::Open, Input::Body { fate, .. }) => !matches!(fate, Fate::Open),
            (Stage::Open, Input::Complete { .. } | Input::Ignored) | (Stage::Closed(_), _) => false,
        }
    }

    /// Whether our side ends as soon as what is waiting has left: its last bytes and the end of the stream
    /// can go together.
    pub const fn ends_after_output(&self) -> bool {
        matches!(
            (self.stage, self.output, self.input),
            (Stage::Open, Output::Finished, Input::Complete { .. } | Input::Ignored)
        ) && self.closing.is_some()
    }

    /// How many requests this connection has seen: heads that were complete and could be parsed.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether the connection ends after the response in work, as far as is known.
    pub const fn will_close(&self) -> bool {
        self.closing.is_some() || !matches!(self.stage, Stage::Open)
    }

    /// Whether a plain end of the connection would make an incomplete response look complete: a close must
    /// then be a reset (C5).
    pub const fn is_cut(&self) -> bool {
        self.until_close && (self.unsent || !matches!(self.output, Output::Finished))
    }

    /// Whether the last response ended before it was complete: a transport that signals a complete end must
    /// not do so (S3).
    pub const fn is_broken_off(&self) -> bool {
        matches!(self.closing, Some(CloseReason::BrokenOff))
    }
}
