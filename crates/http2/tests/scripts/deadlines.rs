//! Deadlines of the connection and of each stream (T1–T10, M4, V11).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http2::frame::{Kind, PREFACE, flag, setting};
use sekisho_http2::{BodyLength, Cause, Code, Event, Http2, Loss, Owner};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Engine, Moment, Stage};

use crate::harness::{
    GET, POST, Peer, Sent, block, data, frame, policy, seconds, settings, settings_ack, window,
};

fn deadline(engine: &Http2) -> Option<(DeadlineKind, Moment, Owner)> {
    let next = engine.next_owned_deadline();
    assert_eq!(next.map(|(deadline, _)| deadline), engine.next_deadline());
    next.map(|(Deadline { at, kind }, owner)| (kind, at, owner))
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with one that may be missing")]
fn of_connection(kind: DeadlineKind, at: u64) -> Option<(DeadlineKind, Moment, Owner)> {
    Some((kind, seconds(at), Owner::Connection))
}

#[test]
fn the_first_head_has_one_deadline_from_accept() {
    // T4: bytes do not push it.
    let mut peer = Peer::fresh(policy(|policy| policy.settings_timeout = None));
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Header, 10));
    peer.at(seconds(3)).sends(&PREFACE[..10]);
    peer.at(seconds(6)).sends([&PREFACE[10..], &settings(&[])].concat());
    peer.flushes();
    let head = frame(Kind::Headers, 5, 1, &block(&GET));
    peer.at(seconds(9)).sends(&head[..20]);
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Header, 10));
    assert!(peer.at(seconds(10)).expires().is_empty());
    assert_eq!(peer.flushes(), [Sent::GoAway(0, 0)]);
    assert_eq!(peer.stage(), Stage::Lingering);
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Linger, 20));
    peer.at(seconds(20)).expires();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::Header)));
    assert_eq!(deadline(&peer.engine), None);
}

#[test]
fn a_connection_that_never_says_a_word_ends() {
    let mut peer = Peer::fresh(policy(|_| {}));
    assert!(peer.at(seconds(10)).expires().is_empty());
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::Header)));
}

#[test]
fn our_settings_must_be_acknowledged() {
    let change = |policy: &mut sekisho_http2::Policy| {
        policy.settings_timeout = Some(Duration::from_secs(2));
    };
    let mut peer = Peer::fresh(policy(change));
    peer.sends([&PREFACE[..], &settings(&[])].concat());
    peer.flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Handshake, 2));
    assert!(peer.at(seconds(2)).expires().is_empty());
    assert_eq!(peer.flushes(), [Sent::GoAway(0, Code::SettingsTimeout.number())]);
    let mut peer = Peer::fresh(policy(change));
    peer.sends([&PREFACE[..], &settings(&[]), &settings_ack()].concat());
    peer.flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Header, 10));
}

/// A running response is not cut because SETTINGS were not acknowledged, nor is a client that sends other frames.
#[test]
fn an_acknowledgement_is_awaited_in_quiet_time_only() {
    let change = |policy: &mut sekisho_http2::Policy| {
        policy.settings_timeout = Some(Duration::from_secs(2));
    };
    let mut peer = Peer::fresh(policy(change));
    peer.sends([&PREFACE[..], &settings(&[])].concat());
    peer.flushes();
    peer.at(seconds(1)).sends(frame(Kind::Ping, 0, 0, &[0; 8]));
    peer.flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Handshake, 3));
    let id = peer.gets(1);
    assert_eq!(deadline(&peer.engine), None, "a handler at work");
    assert!(peer.at(seconds(20)).expires().is_empty());
    peer.answers(id, Status::OK);
    peer.flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Handshake, 22));
    assert!(peer.at(seconds(22)).expires().is_empty());
    assert_eq!(peer.flushes(), [Sent::GoAway(1, Code::SettingsTimeout.number())]);
}

#[test]
fn quiet_time_begins_when_the_last_response_has_left_and_pings_do_not_push_it() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    assert_eq!(deadline(&peer.engine), None, "a handler at work has no deadline here (T9)");
    peer.answers(id, Status::OK);
    peer.at(seconds(2)).flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::KeepAlive, 12));
    peer.at(seconds(8)).sends(frame(Kind::Ping, 0, 0, &[0; 8]));
    assert_eq!(peer.flushes(), [Sent::Pong]);
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::KeepAlive, 12));
    assert!(peer.at(seconds(12)).expires().is_empty());
    assert!(peer.engine.wants_flush());
    assert_eq!(peer.flushes(), [Sent::GoAway(1, 0)]);
    peer.engine.input_ended(peer.now);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::KeepAlive)));
}

#[test]
fn keep_alive_can_be_off() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_timeout = None));
    let id = peer.gets(1);
    peer.answers(id, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    assert!(peer.engine.wants_flush());
    assert_eq!(peer.flushes(), [Sent::GoAway(1, 0)]);
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// V9, V10: a frame that has begun must end, and so must a header block.
#[test]
fn a_frame_and_a_block_have_one_deadline_each() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.at(seconds(20)).sends(&frame(Kind::Ping, 0, 0, &[0; 8])[..4]);
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Header, 30));
    peer.at(seconds(25)).sends(&frame(Kind::Ping, 0, 0, &[0; 8])[4..]);
    peer.flushes();
    assert_eq!(deadline(&peer.engine), None);
    peer.sends(frame(Kind::Headers, flag::END_STREAM, 3, &[]));
    for second in 26..34 {
        peer.at(seconds(second)).sends(frame(Kind::Continuation, 0, 3, b"\0\x01a\x01b"));
        assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Header, 35));
    }
    let events = peer.at(seconds(35)).expires();
    assert_eq!(events, [Event::ClientLost(id, Loss::Connection)]);
}

#[test]
fn a_body_that_does_not_come_is_408_on_its_stream() {
    let change = |policy: &mut sekisho_http2::Policy| {
        policy.lingering_timeout = Some(Duration::from_secs(5));
    };
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    assert_eq!(deadline(&peer.engine), None, "the handler has not asked for it (T9)");
    peer.takes_body(id, None).expect("no limit");
    peer.flushes();
    let body = |at| Some((DeadlineKind::Body, seconds(at), Owner::Stream(id)));
    assert_eq!(deadline(&peer.engine), body(10));
    peer.at(seconds(5)).sends(data(1, b"x", false));
    assert_eq!(deadline(&peer.engine), body(15));
    peer.sends(data(1, b"", false));
    peer.engine.hold_body(id, true, peer.now);
    assert_eq!(deadline(&peer.engine), None);
    peer.at(seconds(30)).engine.hold_body(id, false, seconds(30));
    assert_eq!(deadline(&peer.engine), body(40));
    assert!(peer.at(seconds(39)).expires().is_empty(), "never early (T1)");
    let events = peer.at(seconds(40)).expires();
    assert_eq!(events, [Event::Refused(id, Cause::BodyTimedOut.into())]);
    assert_eq!(deadline(&peer.engine), None, "an expiry is marked once (T6)");
    peer.answers(id, Status::REQUEST_TIMEOUT);
    peer.flushes();
    let rest = Some((DeadlineKind::Linger, seconds(45), Owner::Stream(id)));
    assert_eq!(deadline(&peer.engine), rest, "the end of the request is waited for");
    peer.at(seconds(45)).expires();
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::NoError.number())]);
}

#[test]
fn a_body_that_stops_after_the_response_began_is_a_lost_client() {
    // T7: no 408 into a response that has started.
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.heads(id, Status::OK, BodyLength::Unknown);
    peer.flushes();
    let events = peer.at(seconds(10)).expires();
    assert_eq!(events, [Event::ClientLost(id, Loss::Expired(DeadlineKind::Body))]);
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::Cancel.number())]);
}

#[test]
fn a_body_has_a_least_rate() {
    let change = |policy: &mut sekisho_http2::Policy| policy.body_min_rate = Some(100);
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    let mut second = 0;
    // One byte a second buys a hundredth of a second each time.
    while peer.at(seconds(second)).expires().is_empty() {
        peer.sends(data(1, b"x", false));
        second += 1;
        assert!(second < 30);
    }
    assert_eq!(second, 11);
}

#[test]
fn a_window_that_waits_for_the_handler_is_not_the_clients_delay() {
    let change = |policy: &mut sekisho_http2::Policy| {
        (policy.stream_window_bytes, policy.upload_window_bytes) = (100, 100);
    };
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.sends(data(1, &[0; 100], false));
    peer.flushes();
    assert_eq!(deadline(&peer.engine), None);
    peer.at(seconds(100));
    peer.engine.consumed(id, 100, &mut peer.scratch, peer.now);
    peer.flushes();
    let body = Some((DeadlineKind::Body, seconds(110), Owner::Stream(id)));
    assert_eq!(deadline(&peer.engine), body);
}

#[test]
fn output_that_nobody_takes_ends_the_connection() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(5));
    peer.stalls();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Send, 60));
    peer.at(seconds(30)).engine.transmitted(1, true, seconds(30));
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Send, 90));
    peer.engine.acknowledged(seconds(50));
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Send, 110));
    let events = peer.at(seconds(110)).expires();
    assert_eq!(events, [Event::ClientLost(id, Loss::Connection)]);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::Send)));
}

/// V11: zero windows.
#[test]
fn a_stream_whose_window_stays_closed_is_reset() {
    let mut peer = Peer::open();
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let stalled = peer.gets(1);
    peer.heads(stalled, Status::OK, BodyLength::Known(5000));
    peer.flushes();
    assert_eq!(deadline(&peer.engine), None, "it has nothing to send");
    peer.is_ready(stalled);
    let window_of = |id, at| Some((DeadlineKind::Send, seconds(at), Owner::Stream(id)));
    assert_eq!(deadline(&peer.engine), window_of(stalled, 60));
    let other = peer.at(seconds(30)).gets(3);
    let events = peer.at(seconds(60)).expires();
    assert_eq!(events, [Event::ClientLost(stalled, Loss::Expired(DeadlineKind::Send))]);
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::Cancel.number())]);
    peer.finishes(stalled);
    assert_eq!(peer.engine.open_streams(), 1);
    peer.heads(other, Status::OK, BodyLength::Empty);
    peer.finishes(other);
    assert_eq!(peer.flushes().len(), 1);
}

/// V11: tiny windows. Bytes that trickle do not push the deadline.
#[test]
fn a_window_that_is_opened_byte_by_byte_is_as_good_as_closed() {
    let mut peer = Peer::open();
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(100_000));
    peer.is_ready(id);
    peer.flushes();
    for second in 1..60 {
        peer.at(seconds(second)).sends(window(1, 2));
        assert_eq!(peer.bodies(id, &[0; 100]), 2);
        peer.flushes();
        assert!(peer.expires().is_empty());
    }
    let events = peer.at(seconds(60)).expires();
    assert_eq!(events, [Event::ClientLost(id, Loss::Expired(DeadlineKind::Send))]);
}

#[test]
fn a_window_that_is_small_but_opened_again_and_again_will_do() {
    let mut peer = Peer::open();
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(1_000_000));
    peer.is_ready(id);
    peer.flushes();
    for second in 1..500 {
        peer.at(seconds(second)).sends(window(1, 100));
        assert_eq!(peer.bodies(id, &[0; 100]), 100);
        peer.flushes();
        assert!(peer.expires().is_empty(), "{second}");
    }
}

#[test]
fn a_connection_whose_window_stays_closed_ends() {
    let mut peer = Peer::open();
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]));
    let ids = [peer.gets(1), peer.gets(3)];
    for id in ids {
        peer.heads(id, Status::OK, BodyLength::Known(100_000));
        peer.is_ready(id);
    }
    assert_eq!(peer.bodies(ids[0], &vec![0; 100_000]), 65_535);
    peer.flushes();
    assert_eq!(deadline(&peer.engine), of_connection(DeadlineKind::Send, 60));
    assert_eq!(peer.at(seconds(60)).expires().len(), 2);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::Send)));
}

#[test]
fn no_timeout_is_no_deadline() {
    // T2
    let change = |policy: &mut sekisho_http2::Policy| {
        (policy.header_timeout, policy.body_timeout, policy.send_timeout) = (None, None, None);
        (policy.settings_timeout, policy.lingering_timeout) = (None, None);
    };
    let mut peer = Peer::fresh(policy(change));
    assert_eq!(deadline(&peer.engine), None);
    peer.sends([&PREFACE[..], &settings(&[])].concat());
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.heads(id, Status::OK, BodyLength::Unknown);
    peer.stalls();
    assert_eq!(deadline(&peer.engine), None);
    assert!(peer.at(Moment::MAX).expires().is_empty());
}
