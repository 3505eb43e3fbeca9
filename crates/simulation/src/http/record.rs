//! What became of a session, on the server's side. At the end it is held against what the client saw.

use std::collections::BTreeMap;

use sekisho_lifecycle::{CloseReason, Moment};

/// What became of a session.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts about one session, each independent")]
pub(super) struct Record {
    /// Why it ended.
    pub(super) reason: Option<CloseReason>,
    /// How many requests were seen or refused.
    pub(super) asked: usize,
    /// How many heads were complete.
    pub(super) heads: usize,
    /// How many responses were complete, though perhaps they did not leave.
    pub(super) finished: usize,
    /// Which requests were refused, and how.
    pub(super) refused: BTreeMap<usize, u16>,
    /// How many times the client got a 100.
    pub(super) continues: usize,
    /// `half_close` holds for the request that was seen last.
    pub(super) half_close: bool,
    /// There were as many sessions as there may be.
    pub(super) was_one_too_many: bool,
    /// The client's FIN has arrived, behind what was read or not.
    pub(super) has_seen_fin: bool,
    /// The engine said that the client is lost.
    pub(super) is_client_lost: bool,
    /// An answer was broken off.
    pub(super) has_broken_off: bool,
    /// Since when it has been idle whenever it rested.
    pub(super) idle_since: Option<Moment>,
    /// The end came in the middle of a response.
    pub(super) was_answering: bool,
    /// An operator cancelled what it ran.
    pub(super) was_cancelled: bool,
    /// The process ended under it.
    pub(super) was_abandoned: bool,
    /// The client was not waited for any longer.
    pub(super) has_linger_expired: bool,
}
