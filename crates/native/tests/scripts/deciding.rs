//! The phase in which the shell finds out which peer it is: what may happen meanwhile, row by row.

use sekisho_lifecycle::{CloseReason, DeadlineKind, Engine, Manner, Session, Stage};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::Hello;
use sekisho_native::{Code, Event};

use crate::session::{Peer, at};

/// A peer that has sent its handshake after nine seconds, with two requests behind it.
fn pipelining() -> Peer {
    let mut peer = Peer::new(|_| {});
    peer.now = at(9);
    peer.says(Kind::Hello, 0, &Hello { major: 1, user: "ann".into(), ..Hello::default() });
    for slot in [1, 2] {
        let mut wire = Vec::new();
        frame::write(&mut wire, Head { word: 5, ..Head::of_slot(Kind::Request, slot) }, b"body");
        peer.sends(&wire);
    }
    assert!(matches!(&peer.events[..], [Event::Hello(greeting)] if greeting.user == "ann"));
    assert!(peer.engine.is_deciding());
    peer
}

#[test]
fn nothing_of_a_session_runs_before_it_is_admitted() {
    // E2, E13
    let mut peer = pipelining();
    assert_eq!(peer.inbox.len(), 2 * (frame::HEAD_BYTES + 4), "they wait");
    assert_eq!((peer.engine.stay().running(), peer.kinds()), (0, Vec::new()));
    assert!(peer.engine.wants_input(), "its end would be noticed");
    peer.engine.admit(7, &mut peer.scratch, peer.now);
    assert_eq!(peer.kinds(), [Kind::Welcome]);
    let is_request = |event: &&Event| matches!(event, Event::Request { .. });
    assert_eq!(peer.events.iter().filter(is_request).count(), 2);
}

#[test]
fn a_refusal_ends_it_and_its_requests_never_run() {
    // E2, E5, E13
    for (code, reason) in [
        (Code::AuthenticationError, CloseReason::NotAdmitted),
        (Code::PermissionError, CloseReason::NotAdmitted),
        (Code::ResourceLimitReached, CloseReason::TooMany),
    ] {
        let mut peer = pipelining();
        peer.engine.refuse(code, "no");
        let bye = peer.bye();
        assert_eq!((Code::of_number(bye.code), bye.text.as_str()), (code, "no"));
        assert_eq!(peer.events.len(), 1, "nothing came of them");
        assert_eq!(peer.engine.input_ended(peer.now), None);
        assert_eq!(peer.engine.stage(), Stage::Closed(reason));
        // A decision that comes too late is void.
        peer.engine.admit(7, &mut peer.scratch, peer.now);
        assert!(peer.scratch.out.is_empty());
    }
}

#[test]
fn a_decision_has_its_own_deadline() {
    // E2, E13, T3: the client was in time, however late; the decision has its own time, and is refused without it.
    for handshake_timeout in [Some(std::time::Duration::from_secs(10)), None] {
        let mut peer = Peer::new(|policy| policy.handshake_timeout = handshake_timeout);
        peer.now = at(9);
        peer.says(Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
        let next = peer.engine.next_deadline().map(|next| (next.at, next.kind));
        assert_eq!(next, Some((at(19), DeadlineKind::Handshake)));
        peer.wait_until(at(18));
        assert!(peer.engine.is_deciding());
        peer.wait_until(at(19));
        assert_eq!(Code::of_number(peer.bye().code), Code::ServiceUnavailable);
        peer.engine.admit(7, &mut peer.scratch, peer.now);
        assert!(peer.scratch.out.is_empty(), "too late");
        peer.wait_until(at(21));
        let reason = CloseReason::Expired(DeadlineKind::Handshake);
        assert_eq!(peer.engine.stage(), Stage::Closed(reason));
    }
}

#[test]
fn a_client_that_goes_while_it_is_decided_on_is_gone() {
    // L12, E13
    let mut peer = pipelining();
    assert_eq!(peer.engine.input_ended(peer.now), None);
    assert_eq!(peer.engine.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
    peer.engine.admit(7, &mut peer.scratch, peer.now);
    assert!(peer.scratch.out.is_empty());
    assert_eq!(peer.engine.stay().session(), Session::Vacant);
    let mut peer = pipelining();
    peer.engine.transport_lost(CloseReason::TransportLost, peer.now);
    assert_eq!(peer.engine.stage(), Stage::Closed(CloseReason::TransportLost));
}

#[test]
fn a_shutdown_does_not_wait_for_a_decision() {
    // L3, L10, E13
    for manner in [Manner::Graceful, Manner::Forceful] {
        let mut peer = pipelining();
        peer.engine.shut_down(manner, peer.now);
        assert_eq!(Code::of_number(peer.bye().code), Code::SessionClosed);
        peer.engine.admit(7, &mut peer.scratch, peer.now);
        assert!(peer.scratch.out.is_empty());
    }
}
