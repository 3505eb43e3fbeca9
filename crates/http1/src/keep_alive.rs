//! Why a connection closes after a response, if it does. A decision without memory: the status code
//! has no part in it (H2).

use sekisho_lifecycle::CloseReason;

/// Whether it is known where the request ends, and with it where the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEnd {
    /// The request was read to its end.
    Reached,
    /// Its end is known and near enough to be read up to.
    Discardable,
    /// Not known, or too far away.
    Broken,
}

/// How the end of a response body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body, and nothing says how long it would be.
    None,
    /// By `Content-Length`.
    Length(u64),
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// What the decision depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are the questions, each asked once")]
pub struct PersistenceFacts {
    /// Whether the end of the request is known.
    pub request_end: RequestEnd,
    /// How the end of the response is known.
    pub response_framing: Framing,
    /// Whether the client wants to keep the connection (H1).
    pub client_persists: bool,
    /// Whether the client has sent FIN.
    pub input_ended: bool,
    /// Whether the server drains.
    pub draining: bool,
    /// Whether this was the last request that one connection may carry.
    pub used_up: bool,
    /// Whether the connection is as old as one may become.
    pub is_old: bool,
    /// Whether keep-alive is configured at all.
    pub keeps_alive: bool,
}

/// Why this connection must close after the response; `None` keeps it alive.
///
/// The question is whether the start of the next request is known, never the status code.
pub const fn close_reason(facts: &PersistenceFacts) -> Option<CloseReason> {
    match (facts.request_end, facts.response_framing) {
        (RequestEnd::Broken, _) => Some(CloseReason::OutOfSync),
        (_, Framing::UntilClose) => Some(CloseReason::CloseDelimited),
        _ if !facts.client_persists => Some(CloseReason::ClientAsked),
        _ if facts.input_ended => Some(CloseReason::PeerClosed),
        _ if facts.draining => Some(CloseReason::Draining),
        _ if facts.used_up => Some(CloseReason::RequestsUsedUp),
        _ if facts.is_old => Some(CloseReason::TimeUsedUp),
        _ if !facts.keeps_alive => Some(CloseReason::KeepAliveOff),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: PersistenceFacts = PersistenceFacts {
        request_end: RequestEnd::Reached,
        response_framing: Framing::Length(3),
        client_persists: true,
        input_ended: false,
        draining: false,
        used_up: false,
        is_old: false,
        keeps_alive: true,
    };

    /// H1, H2: each reason, and that nothing but these closes.
    #[test]
    fn each_reason_closes_and_nothing_else_does() {
        let rows = [
            (KEPT, None),
            (PersistenceFacts { request_end: RequestEnd::Discardable, ..KEPT }, None),
            (PersistenceFacts { response_framing: Framing::None, ..KEPT }, None),
            (PersistenceFacts { response_framing: Framing::Chunked, ..KEPT }, None),
            (
                PersistenceFacts { request_end: RequestEnd::Broken, ..KEPT },
                Some(CloseReason::OutOfSync),
            ),
            (
                PersistenceFacts { response_framing: Framing::UntilClose, ..KEPT },
                Some(CloseReason::CloseDelimited),
            ),
            (PersistenceFacts { client_persists: false, ..KEPT }, Some(CloseReason::ClientAsked)),
            (PersistenceFacts { input_ended: true, ..KEPT }, Some(CloseReason::PeerClosed)),
            (PersistenceFacts { draining: true, ..KEPT }, Some(CloseReason::Draining)),
            (PersistenceFacts { used_up: true, ..KEPT }, Some(CloseReason::RequestsUsedUp)),
            (PersistenceFacts { is_old: true, ..KEPT }, Some(CloseReason::TimeUsedUp)),
            (PersistenceFacts { keeps_alive: false, ..KEPT }, Some(CloseReason::KeepAliveOff)),
        ];
        for (facts, reason) in rows {
            assert_eq!(close_reason(&facts), reason, "{facts:?}");
        }
    }

    /// H2: a lost place in the stream outweighs what client and handler asked for.
    #[test]
    fn a_broken_request_outweighs_every_other_reason() {
        let facts = PersistenceFacts {
            request_end: RequestEnd::Broken,
            response_framing: Framing::UntilClose,
            client_persists: false,
            input_ended: true,
            draining: true,
            used_up: true,
            is_old: true,
            keeps_alive: false,
        };
        assert_eq!(close_reason(&facts), Some(CloseReason::OutOfSync));
    }
}
