//! What an endpoint reports for the log: every end has a reason, every bug of a handler is named.

use sekisho_lifecycle::stay::Bug;
use sekisho_lifecycle::{CloseReason, RequestId};
use sekisho_native::Code;

use sekisho_service::{Caller, Peer};

/// Hears what happens. It is called from within a session's turn and must not block.
pub trait Observer {
    /// A session was admitted.
    fn opened(&self, label: &str, caller: &Caller) {
        let _ = (label, caller);
    }

    /// A peer was not admitted, for this reason.
    fn refused(&self, session: u64, peer: &Peer, code: Code, text: &str) {
        let _ = (session, peer, code, text);
    }

    /// A caller was refused a request, for this reason.
    fn denied(&self, caller: &Caller, service: &str, code: Code, text: &str) {
        let _ = (caller, service, code, text);
    }

    /// What a session was admitted for has been withdrawn, for this reason, and it ends.
    fn withdrawn(&self, caller: &Caller, why: &str) {
        let _ = (caller, why);
    }

    /// A connection has ended, admitted as a session or not.
    fn closed(&self, session: u64, peer: &Peer, reason: CloseReason) {
        let _ = (session, peer, reason);
    }

    /// A session had a turn: it may have taken memory that [`Endpoint::trim`](crate::Endpoint::trim) gives back.
    fn worked(&self) {}

    /// A handler did something wrong; the client got its one answer all the same.
    fn bug(&self, session: u64, request: RequestId, bug: Bug) {
        let _ = (session, request, bug);
    }
}

/// Keeps no log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
