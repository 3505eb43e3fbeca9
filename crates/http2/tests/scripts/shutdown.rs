//! Ends by the server, and ends by the client (M2, L6, L7, L12, H11).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http2::frame::{Kind, MAX_31, PREFACE, flag};
use sekisho_http2::{BodyLength, Code, Event, Loss};
use sekisho_lifecycle::{CloseReason, DeadlineKind, Engine, Stage};

use crate::harness::{GET, POST, Peer, Sent, data, frame, headers, policy, settings};

fn shut_down(peer: &mut Peer) {
    peer.engine.shut_down_gracefully(&mut peer.scratch, peer.now);
}

/// M2
#[test]
fn a_graceful_end_is_announced_and_then_final() {
    let mut peer = Peer::open();
    let one = peer.gets(1);
    shut_down(&mut peer);
    assert_eq!(peer.flushes(), [Sent::GoAway(MAX_31, 0), Sent::Ping]);
    shut_down(&mut peer);
    assert!(peer.flushes().is_empty(), "a repeat changes nothing (L10)");
    assert!(peer.engine.will_close());
    assert!(!peer.engine.takes_no_request(), "what is on its way is taken");
    let three = peer.gets(3);
    assert!(peer.sends(frame(Kind::Ping, flag::ACK, 0, b"goaway 1")).is_empty());
    assert_eq!(peer.flushes(), [Sent::GoAway(3, 0)]);
    assert!(peer.engine.takes_no_request());
    assert!(peer.sends(headers(5, &POST, false)).is_empty(), "the client knows");
    assert!(peer.sends(data(5, b"x", true)).is_empty());
    assert!(peer.flushes().is_empty());
    peer.answers(one, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    assert_eq!(peer.stage(), Stage::Open);
    peer.answers(three, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    assert_eq!(peer.stage(), Stage::Lingering);
    assert_eq!(peer.engine.input_ended(peer.now), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Draining));
}

#[test]
fn a_client_that_does_not_echo_is_not_waited_for() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.answers(id, Status::OK);
    peer.flushes();
    shut_down(&mut peer);
    peer.flushes();
    let next = peer.engine.next_deadline().map(|deadline| deadline.kind);
    assert_eq!(next, Some(DeadlineKind::Drain));
    peer.after(Duration::from_secs(1)).expires();
    assert_eq!(peer.flushes(), [Sent::GoAway(1, 0)]);
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// M2: the first requests of a client that has begun to speak are answered.
#[test]
fn a_client_in_the_middle_of_its_preface_may_ask_before_the_end() {
    let mut peer = Peer::fresh(policy(|_| {}));
    let (begin, rest) = PREFACE.split_at(10);
    assert!(peer.sends(begin).is_empty());
    peer.flushes();
    shut_down(&mut peer);
    assert!(peer.flushes().is_empty(), "nothing is said before the client's SETTINGS");
    assert!(peer.sends(rest).is_empty());
    assert!(peer.sends(settings(&[])).is_empty());
    let one = peer.gets(1);
    let said = peer.flushes();
    assert!(said.contains(&Sent::GoAway(MAX_31, 0)), "{said:?}");
    peer.answers(one, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
}

#[test]
fn a_connection_that_has_not_begun_ends_at_once() {
    let mut peer = Peer::fresh(policy(|_| {}));
    shut_down(&mut peer);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Draining));
}

/// H10
#[test]
fn a_connection_too_many_is_told_so() {
    let mut peer = Peer::fresh(policy(|_| {}));
    peer.engine.refuse_connection(&mut peer.scratch, peer.now);
    let frames = peer.flushes();
    assert_eq!(frames.first(), Some(&Sent::Settings));
    assert_eq!(frames.last(), Some(&Sent::GoAway(0, Code::EnhanceYourCalm.number())));
    assert_eq!(peer.stage(), Stage::Lingering);
    peer.engine.input_ended(peer.now);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::TooMany));
}

#[test]
fn a_reload_changes_limits_and_not_what_was_announced() {
    let mut peer = Peer::open();
    let renewed = policy(|policy| (policy.stream_window_bytes, policy.head_bytes_max) = (10, 50));
    peer.engine.set_base_policy(&renewed);
    let events = peer.sends(headers(1, &GET, true));
    assert!(matches!(events.as_slice(), [Event::Refused(..)]), "{events:?}");
    let roomy = policy(|policy| policy.stream_window_bytes = 10);
    peer.engine.set_base_policy(&roomy);
    let id = peer.requests(3, &POST, false);
    assert!(peer.sends(data(3, &[0; 5000], true)).is_empty(), "the window is the one announced");
    assert_eq!(peer.takes_body(id, None), Ok(()));
    assert_eq!(peer.next(), Some(Event::Stored(id)));
}

/// M2, L7
#[test]
fn a_forceful_end_resets_what_runs() {
    let mut peer = Peer::open();
    let ids = [peer.gets(1), peer.gets(3), peer.gets(5)];
    peer.answers(ids[0], Status::OK);
    peer.heads(ids[1], Status::OK, BodyLength::Known(100));
    peer.flushes();
    peer.engine.shut_down_forcefully(&mut peer.scratch, peer.now);
    let events = peer.sends(b"");
    let lost = [ids[1], ids[2]].map(|id| Event::ClientLost(id, Loss::Connection));
    assert_eq!(events, lost);
    let cancel = Code::Cancel.number();
    assert_eq!(
        peer.flushes(),
        [Sent::Reset(3, cancel), Sent::Reset(5, cancel), Sent::GoAway(5, 0)]
    );
    assert_eq!(peer.stage(), Stage::Lingering);
    for id in ids {
        peer.finishes(id);
    }
    assert!(peer.flushes().is_empty());
}

#[test]
fn force_may_follow_grace() {
    // L10
    let mut peer = Peer::open();
    peer.gets(1);
    shut_down(&mut peer);
    peer.sends(frame(Kind::Ping, flag::ACK, 0, b"goaway 1"));
    peer.sends(headers(3, &GET, true));
    peer.flushes();
    peer.engine.shut_down_forcefully(&mut peer.scratch, peer.now);
    let frames = peer.flushes();
    assert_eq!(frames.last(), Some(&Sent::GoAway(1, 0)), "the last stream is never put higher");
}

#[test]
fn after_so_many_requests_the_connection_ends_gracefully() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_requests = 2));
    let one = peer.gets(1);
    peer.answers(one, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    let two = peer.gets(3);
    assert_eq!(peer.flushes(), [Sent::GoAway(MAX_31, 0), Sent::Ping]);
    peer.answers(two, Status::OK);
    peer.flushes();
    peer.sends(frame(Kind::Ping, flag::ACK, 0, b"goaway 1"));
    assert_eq!(peer.flushes(), [Sent::GoAway(3, 0)]);
    peer.engine.input_ended(peer.now);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::RequestsUsedUp));
}

#[test]
fn a_client_that_closes_between_requests_ends_the_connection() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.answers(id, Status::OK);
    peer.flushes();
    assert_eq!(peer.engine.input_ended(peer.now), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
}

/// H11
#[test]
fn a_client_that_sends_no_more_still_receives_what_is_being_sent() {
    let mut peer = Peer::open();
    let (working, sending) = (peer.gets(1), peer.gets(3));
    peer.heads(sending, Status::OK, BodyLength::Known(5));
    let event = peer.engine.input_ended(peer.now);
    assert_eq!(event, Some(Event::ClientLost(working, Loss::Connection)));
    peer.finishes(working);
    assert_eq!(peer.stage(), Stage::Open);
    assert_eq!(peer.bodies(sending, b"hello"), 5);
    peer.finishes(sending);
    assert_eq!(peer.flushes().len(), 2);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
}

#[test]
fn half_close_lets_handlers_go_on() {
    let mut peer = Peer::new(policy(|policy| policy.half_close = true));
    let (complete, cut) = (peer.gets(1), peer.requests(3, &POST, false));
    let event = peer.engine.input_ended(peer.now);
    assert_eq!(event, Some(Event::ClientLost(cut, Loss::Connection)));
    peer.finishes(cut);
    peer.answers(complete, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
}

#[test]
fn a_lost_transport_loses_every_stream() {
    // L12
    let mut peer = Peer::open();
    let id = peer.gets(1);
    let answered = peer.gets(3);
    peer.answers(answered, Status::OK);
    peer.engine.abort(CloseReason::TransportLost);
    peer.scratch.out.clear();
    assert_eq!(peer.sends(b""), [Event::ClientLost(id, Loss::Connection)]);
    assert_eq!(peer.engine.next_sent(), None, "what did not leave was not sent");
    peer.answers(id, Status::OK);
    assert_eq!(peer.engine.open_streams(), 0);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::TransportLost));
    assert!(peer.scratch.out.is_empty());
}
