//! Whether an upstream connection carries another request. A decision without memory (U4).

use sekisho_http::upstream::NotReusable;

/// What the decision depends on, at the end of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are the questions, each asked once")]
pub struct Ended {
    /// Whether the end of the connection was the end of the answer.
    pub is_close_delimited: bool,
    /// Whether the answer declared a body that it cannot have.
    pub declares_body: bool,
    /// Whether all of the request has left.
    pub is_request_sent: bool,
    /// Whether the upstream keeps the connection.
    pub peer_keeps: bool,
    /// Whether we said that we keep it.
    pub we_keep: bool,
    /// Whether the upstream has sent FIN.
    pub is_peer_closed: bool,
}

/// Why the connection carries no further request; `None` when it may.
pub const fn not_reusable(ended: &Ended) -> Option<NotReusable> {
    match ended {
        Ended { is_close_delimited: true, .. } => Some(NotReusable::CloseDelimited),
        Ended { declares_body: true, .. } => Some(NotReusable::DeclaredBody),
        Ended { is_request_sent: false, .. } => Some(NotReusable::RequestUnsent),
        Ended { peer_keeps: false, .. } => Some(NotReusable::PeerAsked),
        Ended { we_keep: false, .. } => Some(NotReusable::WeAsked),
        Ended { is_peer_closed: true, .. } => Some(NotReusable::PeerClosed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U4: each reason, and that nothing but these ends the connection.
    #[test]
    fn each_reason_ends_the_connection_and_nothing_else_does() {
        let kept = Ended {
            is_close_delimited: false,
            declares_body: false,
            is_request_sent: true,
            peer_keeps: true,
            we_keep: true,
            is_peer_closed: false,
        };
        let rows = [
            (kept, None),
            (Ended { is_close_delimited: true, ..kept }, Some(NotReusable::CloseDelimited)),
            (Ended { declares_body: true, ..kept }, Some(NotReusable::DeclaredBody)),
            (Ended { is_request_sent: false, ..kept }, Some(NotReusable::RequestUnsent)),
            (Ended { peer_keeps: false, ..kept }, Some(NotReusable::PeerAsked)),
            (Ended { we_keep: false, ..kept }, Some(NotReusable::WeAsked)),
            (Ended { is_peer_closed: true, ..kept }, Some(NotReusable::PeerClosed)),
        ];
        for (ended, reason) in rows {
            assert_eq!(not_reusable(&ended), reason, "{ended:?}");
        }
    }
}
