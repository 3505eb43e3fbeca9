//! What 1.1 adds, rule by rule: bodies that go on, deadlines, names, several channels, signs of life. And that a peer of
//! 1.0 sees none of it.

use std::time::Duration;

use prost::Message;
use sekisho_lifecycle::{Cause, CloseReason, DeadlineKind, Engine, Manner, RequestId, Stage};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{Failure, Hello, RequestOptions};
use sekisho_native::server::{AcquireError, AnswerError, WriteError, Written};
use sekisho_native::{Code, Event};

use crate::session::{Peer, at};

const NEWER: Hello = Hello {
    major: 1,
    minor: 1,
    label: String::new(),
    application: String::new(),
    credential: Vec::new(),
    admin: false,
    channel_bytes: 0,
    frame_bytes_max: 0,
    keepalive_millis: 0,
    drains_at_end: false,
    user: String::new(),
};

impl Peer {
    fn asks_with(&mut self, slot: u16, options: &RequestOptions) -> RequestId {
        self.says(Kind::Options, slot, options);
        self.asks(slot).expect("admitted")
    }

    fn uploads(&mut self, slot: u16) -> RequestId {
        self.asks_with(slot, &RequestOptions { body_follows: true, ..RequestOptions::default() })
    }

    fn data(&mut self, slot: u16, part: &[u8]) {
        let mut wire = Vec::new();
        frame::write(&mut wire, Head::of_slot(Kind::Data, slot), part);
        self.sends(&wire);
    }

    fn result(&mut self, id: RequestId) -> Result<(), AnswerError> {
        self.engine.result(id, b"done", &mut self.scratch, self.now)
    }

    /// The code of the answer that must be the last frame.
    fn failure(&mut self) -> Code {
        let frames = self.hears();
        let (head, payload) = frames.last().expect("an answer");
        assert_eq!(head.kind, Kind::Error);
        Code::of_number(Failure::decode(&payload[..]).expect("it can be read").code)
    }
}

#[test]
fn a_peer_of_the_older_version_is_served_as_ever_and_may_not_use_the_newer_frames() {
    let mut peer = Peer::open(|_| {});
    let id = peer.asks(1).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("opened");
    let more = peer.engine.add_channel(id, &mut peer.scratch, peer.now);
    assert_eq!(more, Err(AcquireError::Unsupported));
    peer.engine.release_channel(id, &mut peer.scratch, peer.now);
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Acquired, Kind::Released, Kind::Result]);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.minor() > 0) {
        let mut peer = Peer::open(|_| {});
        peer.bare(kind, 0, 0);
        assert_eq!(peer.bye().code, Code::InvalidRequest.number(), "{kind}");
    }
}

#[test]
fn a_body_comes_in_parts_as_its_service_takes_them() {
    // E4
    let mut peer = Peer::open_with(&NEWER, |policy| policy.channel_bytes_max = 100);
    let id = peer.uploads(3);
    let with = |event: &Event| matches!(event, Event::Request { with: Some(with), .. } if with.body_follows);
    assert!(peer.events.iter().any(with));
    peer.data(3, &[7; 38]);
    assert!(matches!(peer.events.last(), Some(Event::Data { id: of, .. }) if *of == id));
    peer.engine.body_taken(id, 38, &mut peer.scratch, peer.now);
    let frames = peer.hears();
    assert_eq!((frames[0].0.kind, frames[0].0.word), (Kind::DataCredit, 50));
    peer.data(3, &[7; 88]);
    peer.bare(Kind::DataEnd, 3, 0);
    assert_eq!(peer.events.last(), Some(&Event::DataEnded(id)));
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Result]);
    // The slot is free again.
    assert!(peer.asks(3).is_some());
}

#[test]
fn a_body_beyond_its_credit_is_the_end() {
    // E4
    let mut peer = Peer::open_with(&NEWER, |policy| policy.channel_bytes_max = 100);
    peer.uploads(3);
    peer.data(3, &[7; 88]);
    peer.data(3, b"");
    assert!(peer.bye().text.contains("without credit"));
}

#[test]
fn a_slot_is_in_use_until_its_body_has_ended_though_the_answer_was_early() {
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.uploads(3);
    peer.result(id).expect("taken");
    peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
    assert_eq!(peer.kinds(), [Kind::Result]);
    assert!(peer.engine.lanes().is_empty());
    peer.events.clear();
    peer.data(3, b"on its way");
    assert_eq!(peer.events, [Event::Discarded]);
    peer.bare(Kind::DataEnd, 3, 0);
    assert!(peer.asks(3).is_some());
    // Without that end it would have been a breach.
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.uploads(3);
    peer.result(id).expect("taken");
    peer.hears();
    peer.events.clear();
    assert!(peer.asks(3).is_none());
    assert!(peer.bye().text.contains("in use"));
}

#[test]
fn a_cancelled_body_never_looks_complete() {
    // L31
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.uploads(3);
    peer.bare(Kind::Cancel, 3, 0);
    assert_eq!(peer.events.last(), Some(&Event::Cancelled(id, Cause::ClientAsked)));
    peer.bare(Kind::DataEnd, 3, 0);
    assert_eq!(peer.events.last(), Some(&Event::Cancelled(id, Cause::ClientAsked)));
}

#[test]
fn a_service_that_wants_no_more_says_so_once_and_the_rest_is_thrown_away() {
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.uploads(3);
    for _ in 0..2 {
        peer.engine.stop_body(id, &mut peer.scratch, peer.now);
    }
    assert_eq!(peer.kinds(), [Kind::DataStop]);
    peer.data(3, b"too much");
    peer.bare(Kind::DataEnd, 3, 0);
    assert_eq!(peer.events.last(), Some(&Event::Discarded));
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Result]);
}

#[test]
fn unfinished_bodies_are_bounded() {
    // E4
    let mut peer = Peer::open_with(&NEWER, |policy| policy.requests_max = 2);
    for slot in 0..2 {
        let id = peer.uploads(slot);
        peer.result(id).expect("taken");
        peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
        peer.hears();
    }
    let options = RequestOptions { body_follows: true, ..RequestOptions::default() };
    peer.says(Kind::Options, 2, &options);
    assert!(peer.bye().text.contains("bodies"));
}

#[test]
fn options_stand_immediately_before_their_request() {
    for (kind, slot) in [(Kind::Request, 2), (Kind::Cancel, 1), (Kind::Ping, 0)] {
        let mut peer = Peer::open_with(&NEWER, |_| {});
        peer.says(Kind::Options, 1, &RequestOptions::default());
        peer.bare(kind, slot, 0);
        assert!(peer.bye().text.contains("options"), "{kind}");
    }
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let named = RequestOptions { service: "kv".to_owned(), ..RequestOptions::default() };
    let id = peer.asks_with(1, &named);
    let is_named = |event: &Event| matches!(event, Event::Request { with: Some(with), .. } if with.service == "kv");
    assert!(peer.events.iter().any(is_named));
    peer.engine.set_service(id, 9);
    assert_eq!(peer.engine.lanes().get(id).map(|lane| lane.service), Some(9));
    // The next request has none of it.
    peer.asks(2).expect("admitted");
    assert!(matches!(peer.events.last(), Some(Event::Request { with: None, .. })));
}

#[test]
fn a_request_ends_at_its_deadline_whatever_its_service_does() {
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let options = RequestOptions { timeout_micros: 2_000_000, ..RequestOptions::default() };
    let (silent, writer) = (peer.asks_with(1, &options), peer.asks_with(2, &options));
    let done = peer.asks_with(3, &options);
    peer.result(done).expect("taken");
    peer.engine.acquire_channel(writer, &mut peer.scratch, peer.now).expect("opened");
    peer.hears();
    let due = peer.engine.next_deadline().expect("armed");
    assert_eq!((due.at, due.kind), (at(2), DeadlineKind::Request));
    peer.events.clear();
    peer.wait_until(at(2));
    assert_eq!(peer.kinds(), [Kind::Released, Kind::Error, Kind::Error]);
    for id in [silent, writer] {
        assert!(peer.events.contains(&Event::Cancelled(id, Cause::Deadline)));
        assert_eq!(peer.result(id), Err(AnswerError::AnsweredAlready));
    }
    let written = peer.engine.write(writer, 0, b"late", &mut peer.scratch, peer.now);
    assert_eq!(written, Err(WriteError::Unwanted));
    // No bug of a service is reported, and the session goes on.
    for id in [silent, writer, done] {
        peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
    }
    peer.sends(&[]);
    assert!(!peer.events.iter().any(|event| matches!(event, Event::Bug(..))));
    peer.bare(Kind::Drained, 2, 0);
    let id = peer.asks_with(1, &RequestOptions { timeout_micros: 1, ..RequestOptions::default() });
    peer.wait_until(at(3));
    assert_eq!(peer.failure(), Code::DeadlineExceeded);
    assert!(peer.engine.is_cancelled(id));
}

#[test]
fn channels_of_one_request_have_their_own_credit_and_end_with_the_first() {
    // E4
    let mut peer = Peer::open_with(&NEWER, |policy| policy.channel_bytes_max = 100);
    let id = peer.asks(1).expect("admitted");
    let (engine, scratch, now) = (&mut peer.engine, &mut peer.scratch, peer.now);
    assert_eq!(engine.add_channel(id, scratch, now), Err(AcquireError::OutOfOrder));
    engine.acquire_channel(id, scratch, now).expect("opened");
    assert_eq!(engine.add_channel(id, scratch, now), Ok(1));
    assert_eq!(engine.add_channel(id, scratch, now), Ok(2));
    assert_eq!(engine.write(id, 1, &[0; 88], scratch, now), Ok(Written::Sent));
    assert_eq!(engine.write(id, 1, b"", scratch, now), Ok(Written::Full));
    assert_eq!(engine.write(id, 2, &[0; 88], scratch, now), Ok(Written::Sent));
    assert_eq!(engine.write(id, 0, &[0; 88], scratch, now), Ok(Written::Sent));
    let frames: Vec<_> = peer.hears().iter().map(|(head, _)| (head.kind, head.channel)).collect();
    let opened = [(Kind::Acquired, 0), (Kind::Acquired, 1), (Kind::Acquired, 2)];
    assert_eq!(frames[..3], opened);
    assert_eq!(frames[3..], [(Kind::Record, 1), (Kind::Record, 2), (Kind::Record, 0)]);
    let mut wire = Vec::new();
    Head { word: 100, ..Head::of_channel(Kind::Credit, 1, 1) }.write(&mut wire);
    Head::of_channel(Kind::Drained, 1, 2).write(&mut wire);
    peer.sends(&wire);
    let (engine, scratch) = (&mut peer.engine, &mut peer.scratch);
    assert_eq!(engine.write(id, 1, b"", scratch, now), Ok(Written::Sent));
    assert_eq!(engine.write(id, 2, b"", scratch, now), Err(WriteError::Unwanted));
    assert!(engine.is_wanted(id, 1) && !engine.is_wanted(id, 2));
    engine.release_side_channel(id, 1, scratch, now);
    engine.release_channel(id, scratch, now);
    assert_eq!(engine.add_channel(id, scratch, now), Err(AcquireError::OutOfOrder));
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Record, Kind::Released, Kind::Released, Kind::Result]);
    peer.bare(Kind::Drained, 1, 0);
    assert!(peer.asks(1).is_some(), "the slot is free");
}

#[test]
fn a_channel_that_never_was_is_the_end() {
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.asks(1).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("opened");
    let mut wire = Vec::new();
    Head { word: 1, ..Head::of_channel(Kind::Credit, 1, 3) }.write(&mut wire);
    peer.sends(&wire);
    assert!(peer.bye().text.contains("no channel 3"));
}

#[test]
fn a_peer_that_vanishes_is_noticed_by_a_missed_answer() {
    let hello = Hello { keepalive_millis: 4000, ..NEWER };
    let mut peer = Peer::open_with(&hello, |_| {});
    let next = |peer: &Peer| peer.engine.next_deadline().map(|due| (due.at, due.kind));
    assert_eq!(next(&peer), Some((at(4), DeadlineKind::Ping)));
    peer.wait_until(at(4));
    assert_eq!(peer.kinds(), [Kind::Ping]);
    peer.now = at(5);
    peer.bare(Kind::Pong, 0, 0);
    assert_eq!(next(&peer), Some((at(9), DeadlineKind::Ping)));
    peer.wait_until(at(9));
    assert_eq!(peer.kinds(), [Kind::Ping]);
    let id = peer.asks(1).expect("any bytes are an answer");
    peer.wait_until(at(13));
    assert_eq!(peer.kinds(), [Kind::Ping]);
    peer.wait_until(at(17));
    assert_eq!(peer.engine.stage(), Stage::Closed(CloseReason::Expired(DeadlineKind::Ping)));
    peer.sends(&[]);
    assert!(peer.events.contains(&Event::Cancelled(id, Cause::ClientLost)));
}

#[test]
fn signs_of_life_do_not_lengthen_a_session() {
    // E6
    let hello = Hello { keepalive_millis: 4000, ..NEWER };
    let mut peer = Peer::open_with(&hello, |policy| {
        policy.session_timeout = Some(Duration::from_secs(10));
    });
    for second in [4, 8] {
        peer.wait_until(at(second));
        assert_eq!(peer.kinds(), [Kind::Ping]);
        peer.bare(Kind::Pong, 0, 0);
        peer.bare(Kind::Ping, 0, 99);
        let frames = peer.hears();
        assert_eq!((frames[0].0.kind, frames[0].0.word), (Kind::Pong, 99));
    }
    peer.wait_until(at(10));
    assert_eq!(peer.bye().code, Code::SessionExpired.number());
}

#[test]
fn a_client_that_never_finishes_its_body_does_not_hold_a_graceful_end() {
    // L14
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.uploads(1);
    peer.engine.shut_down(Manner::Graceful, peer.now);
    assert_eq!(peer.engine.next_deadline().map(|due| due.kind), Some(DeadlineKind::Session));
    peer.engine.await_body(id, true, peer.now);
    assert_eq!(peer.engine.next_deadline().map(|due| due.kind), Some(DeadlineKind::Drain));
    peer.engine.await_body(id, false, peer.now);
    assert_eq!(peer.engine.next_deadline().map(|due| due.kind), Some(DeadlineKind::Session));
    peer.engine.await_body(id, true, peer.now);
    peer.wait_until(at(10));
    peer.sends(&[]);
    assert!(peer.events.contains(&Event::Cancelled(id, Cause::Shutdown)));
}

/// A request whose channel was opened and released, and whose answer has left.
fn answered_by_channel(drains_at_end: bool) -> Peer {
    let mut peer = Peer::open_with(&Hello { drains_at_end, ..NEWER }, |_| {});
    let id = peer.asks(3).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("opened");
    let written = peer.engine.write(id, 0, b"record", &mut peer.scratch, peer.now);
    assert_eq!(written, Ok(Written::Sent));
    assert!(peer.engine.release_channel(id, &mut peer.scratch, peer.now));
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Acquired, Kind::Record, Kind::Released, Kind::Result]);
    peer
}

#[test]
fn where_it_was_agreed_a_channel_that_is_released_is_drained() {
    // L28
    let mut peer = answered_by_channel(true);
    assert!(peer.asks(3).is_some(), "the slot is free");
    // What crossed the end is void, in a slot that is free as well.
    let mut peer = answered_by_channel(true);
    peer.bare(Kind::Credit, 3, 18);
    peer.bare(Kind::Drained, 3, 0);
    assert!(peer.asks(3).is_some(), "and then it is asked again");
    let mut peer = answered_by_channel(false);
    assert!(peer.asks(3).is_none(), "the slot is in use until DRAINED");
    assert_eq!(peer.bye().code, Code::InvalidRequest.number());
}

#[test]
fn a_drained_that_crosses_the_release_is_void_where_that_was_agreed_and_a_second_one_is_not() {
    // L28
    for released in [true, false] {
        let mut peer = Peer::open_with(&Hello { drains_at_end: true, ..NEWER }, |_| {});
        let id = peer.asks(3).expect("admitted");
        peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("opened");
        if released {
            assert!(peer.engine.release_channel(id, &mut peer.scratch, peer.now));
        }
        peer.bare(Kind::Drained, 3, 0);
        if released {
            peer.result(id).expect("taken");
            assert_eq!(peer.kinds(), [Kind::Acquired, Kind::Released, Kind::Result]);
            assert!(peer.asks(3).is_some(), "the slot is free");
        } else {
            peer.bare(Kind::Drained, 3, 0);
            assert_eq!(peer.bye().code, Code::InvalidRequest.number());
        }
    }
}

#[test]
fn a_handler_that_forgets_its_channel_leaves_a_free_slot_where_an_end_is_enough() {
    // L29, L28
    let mut peer = Peer::open_with(&Hello { drains_at_end: true, ..NEWER }, |_| {});
    let id = peer.asks(3).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("opened");
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Acquired, Kind::Released, Kind::Result]);
    assert!(peer.asks(3).is_some(), "the slot is free");
}

#[test]
fn a_handler_that_opens_its_channel_again_makes_no_liar_of_the_client() {
    // E4: found by `worlds`.
    let mut peer = Peer::open_with(&Hello { drains_at_end: true, ..NEWER }, |_| {});
    let id = peer.asks(3).expect("admitted");
    let (engine, scratch, now) = (&mut peer.engine, &mut peer.scratch, peer.now);
    engine.acquire_channel(id, scratch, now).expect("opened");
    assert_eq!(engine.add_channel(id, scratch, now), Ok(1));
    assert!(engine.release_channel(id, scratch, now));
    assert_eq!(engine.acquire_channel(id, scratch, now), Err(AcquireError::OutOfOrder));
    // The client does not know yet that both have ended.
    let mut wire = Vec::new();
    Head { word: 1, ..Head::of_channel(Kind::Credit, 3, 1) }.write(&mut wire);
    Head::of_channel(Kind::Drained, 3, 1).write(&mut wire);
    peer.sends(&wire);
    peer.result(id).expect("taken");
    let said = [Kind::Acquired, Kind::Acquired, Kind::Released, Kind::Result];
    assert_eq!(peer.kinds(), said);
    assert!(peer.asks(3).is_some(), "the slot is free");
}

#[test]
fn a_channel_that_is_released_after_the_first_has_ended_already() {
    // E4: found by `worlds`.
    for drains_at_end in [false, true] {
        let mut peer = Peer::open_with(&Hello { drains_at_end, ..NEWER }, |_| {});
        let id = peer.asks(3).expect("admitted");
        let (engine, scratch, now) = (&mut peer.engine, &mut peer.scratch, peer.now);
        engine.acquire_channel(id, scratch, now).expect("opened");
        assert_eq!(engine.add_channel(id, scratch, now), Ok(1));
        assert!(engine.release_channel(id, scratch, now));
        engine.release_side_channel(id, 1, scratch, now);
        peer.result(id).expect("taken");
        let said = [Kind::Acquired, Kind::Acquired, Kind::Released, Kind::Result];
        assert_eq!(peer.kinds(), said, "{drains_at_end}");
    }
}

#[test]
fn force_does_not_hide_that_a_password_was_withdrawn() {
    // L10
    let mut peer = Peer::open_with(&NEWER, |_| {});
    let id = peer.asks(1).expect("admitted");
    peer.engine.withdraw("your password was withdrawn", peer.now);
    peer.engine.shut_down(Manner::Forceful, peer.now);
    peer.result(id).expect("taken");
    assert_eq!(peer.kinds(), [Kind::Result]);
    // The answer has left: nothing keeps the session.
    peer.sends(&[]);
    let bye = peer.bye();
    assert_eq!(bye.code, Code::AuthenticationError.number(), "{}", bye.text);
    assert!(bye.text.contains("your password was withdrawn"), "{}", bye.text);
}
