//! Single stories, rule by rule, on a clock that is a number.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use sekisho_lifecycle::{
    Cause, CloseReason, DeadlineKind, Engine, Manner, Moment, RequestId, Session, Stage,
};
use sekisho_native::frame::{self, HEAD_BYTES, Head, Kind};
use sekisho_native::message::{self, Bye, Extension, Failure, Hello, Shutdown};
use sekisho_native::policy::PROGRESS_BYTES;
use sekisho_native::server::{AcquireError, AnswerError, WriteError, Written};
use sekisho_native::{Code, Event, Policy, Scratch, Server};

pub(crate) struct Peer {
    pub(crate) engine: Server,
    pub(crate) scratch: Scratch,
    pub(crate) now: Moment,
    pub(crate) inbox: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn at(seconds: u64) -> Moment {
    Moment::from_millis(seconds * 1000)
}

impl Peer {
    pub(crate) fn new(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy);
        let engine = Server::new(Arc::new(policy), Moment::ZERO);
        let (scratch, inbox, events) = (Scratch::default(), Vec::new(), Vec::new());
        Self { engine, scratch, now: Moment::ZERO, inbox, events }
    }

    /// A session that is open, with its `WELCOME` sent.
    pub(crate) fn open(change: impl FnOnce(&mut Policy)) -> Self {
        Self::open_with(&Hello { major: 1, ..Hello::default() }, change)
    }

    /// The same after this handshake.
    pub(crate) fn open_with(hello: &Hello, change: impl FnOnce(&mut Policy)) -> Self {
        let mut peer = Self::new(change);
        peer.says(Kind::Hello, 0, hello);
        peer.engine.admit(1, &mut peer.scratch, peer.now);
        assert_eq!(peer.hears()[0].0.kind, Kind::Welcome);
        peer.events.clear();
        peer
    }

    pub(crate) fn sends(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        loop {
            let step = self.engine.receive(&self.inbox, &mut self.scratch, self.now);
            let is_rest = step.is_rest();
            self.inbox.drain(..step.taken);
            self.events.extend(step.event);
            if is_rest {
                break;
            }
        }
    }

    pub(crate) fn says(&mut self, kind: Kind, slot: u16, message: &impl Message) {
        let mut wire = Vec::new();
        message::write(&mut wire, kind, slot, message);
        self.sends(&wire);
    }

    pub(crate) fn bare(&mut self, kind: Kind, slot: u16, word: u32) {
        let mut wire = Vec::new();
        Head { word, ..Head::of_slot(kind, slot) }.write(&mut wire);
        self.sends(&wire);
    }

    pub(crate) fn asks(&mut self, slot: u16) -> Option<RequestId> {
        let mut wire = Vec::new();
        frame::write(&mut wire, Head { word: 5, ..Head::of_slot(Kind::Request, slot) }, b"body");
        self.sends(&wire);
        match self.events.last() {
            Some(Event::Request { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// Takes all output, as frames.
    pub(crate) fn hears(&mut self) -> Vec<(Head, Vec<u8>)> {
        self.sends(&[]);
        let moved = self.scratch.out.len() as u64;
        let mut wire = std::mem::take(&mut self.scratch.out);
        self.engine.transmitted(moved, false, self.now);
        let mut frames = Vec::new();
        while let Ok(Some(head)) = Head::read(&wire) {
            let rest = wire.split_off(HEAD_BYTES);
            let (payload, rest) = rest.split_at(head.length as usize);
            frames.push((head, payload.to_vec()));
            wire = rest.to_vec();
        }
        assert!(wire.is_empty());
        frames
    }

    pub(crate) fn kinds(&mut self) -> Vec<Kind> {
        self.hears().into_iter().map(|(head, _)| head.kind).collect()
    }

    /// The code of the `BYE` that must be next.
    pub(crate) fn bye(&mut self) -> Bye {
        let frames = self.hears();
        let (head, payload) = frames.last().expect("a last word");
        assert_eq!(head.kind, Kind::Bye);
        Bye::decode(&payload[..]).expect("it can be read")
    }

    pub(crate) fn wait_until(&mut self, moment: Moment) {
        self.now = moment;
        let event = self.engine.expire(moment);
        self.events.extend(event);
    }
}

#[test]
fn nothing_follows_the_last_word() {
    // E3, L12: the peer breaks the protocol while a producer is at work, which does not know it yet.
    let mut peer = Peer::open(|_| {});
    let streams = peer.asks(1).expect("admitted");
    let late = peer.asks(2).expect("admitted");
    peer.engine.acquire_channel(streams, &mut peer.scratch, peer.now).expect("a channel");
    assert_eq!(peer.kinds(), [Kind::Acquired]);
    peer.bare(Kind::Drained, 7, 0);
    let (engine, scratch, now) = (&mut peer.engine, &mut peer.scratch, peer.now);
    assert!(engine.release_channel(streams, scratch, now));
    engine.result(streams, b"late", scratch, now).expect("the one answer");
    let _ = engine.acquire_channel(late, scratch, now);
    engine.handle_dropped(late, scratch, now);
    assert_eq!(peer.kinds(), [Kind::Bye]);
}

#[test]
fn the_handshake_has_an_absolute_deadline() {
    // E2
    let mut peer = Peer::new(|_| {});
    assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), Some(at(10)));
    peer.now = at(9);
    peer.sends(&[7, 0, 0]);
    assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), Some(at(10)));
    peer.wait_until(at(10));
    assert_eq!(Code::of_number(peer.bye().code), Code::SessionExpired);
    assert_eq!(peer.engine.stage(), Stage::Lingering);
    peer.wait_until(at(12));
    let reason = CloseReason::Expired(DeadlineKind::Handshake);
    assert_eq!(peer.engine.stage(), Stage::Closed(reason));
}

#[test]
fn anything_but_a_handshake_first_is_the_end() {
    // E2
    let mut peer = Peer::new(|_| {});
    assert_eq!(peer.asks(0), None);
    assert_eq!(Code::of_number(peer.bye().code), Code::InvalidRequest);
    let mut peer = Peer::open(|_| {});
    peer.says(Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
    assert_eq!(Code::of_number(peer.bye().code), Code::InvalidRequest);
}

#[test]
fn another_major_version_is_told_which_one_would_do() {
    // E3
    let mut peer = Peer::new(|_| {});
    peer.says(Kind::Hello, 0, &Hello { major: 2, ..Hello::default() });
    let bye = peer.bye();
    assert_eq!((Code::of_number(bye.code), bye.major), (Code::UnsupportedOperation, 1));
}

#[test]
fn a_length_field_allocates_nothing_before_or_after_the_handshake() {
    // E2, E4, V42, V46: four gigabytes are claimed, and the head is enough to refuse them.
    for (mut peer, kind) in [(Peer::new(|_| {}), Kind::Hello), (Peer::open(|_| {}), Kind::Request)]
    {
        let mut wire = Vec::new();
        Head { length: u32::MAX, ..Head::of_slot(kind, 0) }.write(&mut wire);
        peer.sends(&wire);
        assert_eq!(Code::of_number(peer.bye().code), Code::ResourceLimitReached);
    }
}

#[test]
fn a_frame_at_the_limit_is_taken_and_one_byte_more_is_not() {
    // E4
    let mut peer = Peer::open(|policy| policy.frame_bytes_max = 100);
    let mut wire = Vec::new();
    frame::write(&mut wire, Head::of_slot(Kind::Request, 1), &[0; 100]);
    peer.sends(&wire);
    assert!(matches!(peer.events[0], Event::Request { .. }));
    let mut wire = Vec::new();
    Head { length: 101, ..Head::of_slot(Kind::Request, 2) }.write(&mut wire);
    peer.sends(&wire);
    assert_eq!(Code::of_number(peer.bye().code), Code::ResourceLimitReached);
}

#[test]
fn a_frame_that_does_not_go_on_is_late_and_a_drip_does_not_save_it() {
    // E2, T5
    let mut peer = Peer::open(|_| {});
    let mut wire = Vec::new();
    frame::write(&mut wire, Head::of_slot(Kind::Request, 1), &vec![1; 100_000]);
    peer.now = at(100);
    peer.sends(&wire[..5]);
    peer.now = at(105);
    peer.sends(&wire[5..100]);
    assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), Some(at(110)));
    // Real progress buys time.
    peer.sends(&wire[100..200 + PROGRESS_BYTES as usize]);
    assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), Some(at(115)));
    peer.wait_until(at(115));
    assert_eq!(Code::of_number(peer.bye().code), Code::InvalidRequest);
}

#[test]
fn a_slot_in_use_used_again_is_the_end_and_its_first_request_is_cancelled() {
    // E3
    let mut peer = Peer::open(|_| {});
    let id = peer.asks(4).expect("admitted");
    assert_eq!(peer.asks(4), None);
    assert_eq!(Code::of_number(peer.bye().code), Code::InvalidRequest);
    assert!(peer.events.contains(&Event::Cancelled(id, Cause::ClientLost)));
    assert!(peer.engine.is_cancelled(id));
}

#[test]
fn a_slot_is_free_again_when_its_answer_has_left_though_the_handle_is_held() {
    // L33
    let mut peer = Peer::open(|_| {});
    let first = peer.asks(4).expect("admitted");
    assert_eq!(peer.engine.result(first, b"a", &mut peer.scratch, peer.now), Ok(()));
    assert_eq!(peer.kinds(), [Kind::Result]);
    assert_eq!(peer.engine.stay().session(), Session::Idle);
    let second = peer.asks(4).expect("the slot is free");
    assert_ne!(first, second);
    let again = peer.engine.result(first, b"b", &mut peer.scratch, peer.now);
    assert_eq!(again, Err(AnswerError::AnsweredAlready));
    assert!(peer.hears().is_empty());
}

#[test]
fn requests_beyond_the_limit_are_refused_and_the_session_goes_on() {
    // E4, E5
    let mut peer = Peer::open(|policy| policy.requests_max = 2);
    let first = peer.asks(0).expect("admitted");
    peer.asks(1).expect("admitted");
    assert_eq!(peer.asks(2), None);
    let frames = peer.hears();
    let failure = Failure::decode(&frames[0].1[..]).expect("an error");
    assert_eq!((frames[0].0.slot, failure.code), (2, Code::ResourceLimitReached.number()));
    peer.engine.handle_dropped(first, &mut peer.scratch, peer.now);
    peer.hears();
    assert!(peer.asks(2).is_some());
}

#[test]
fn a_session_lives_by_its_traffic_and_an_extension_only_lengthens_it() {
    // E6
    let mut peer = Peer::open(|policy| policy.session_extension_max = Duration::from_secs(1000));
    let life = |peer: &Peer| peer.engine.next_deadline().map(|deadline| deadline.at);
    assert_eq!(life(&peer), Some(at(300)));
    peer.now = at(200);
    peer.bare(Kind::Cancel, 9, 0);
    assert_eq!(life(&peer), Some(at(500)));
    for (seconds, end) in [(400, 600), (10, 600), (100_000, 1200)] {
        peer.says(Kind::Extend, 0, &Extension { millis: seconds * 1000 });
        let frames = peer.hears();
        let given = Extension::decode(&frames[0].1[..]).expect("an extension").millis;
        assert_eq!(given, (end - 200) * 1000);
        assert_eq!(life(&peer), Some(at(end)));
    }
    // Traffic does not shorten it either.
    peer.now = at(250);
    peer.bare(Kind::Cancel, 9, 0);
    assert_eq!(life(&peer), Some(at(1200)));
    let id = peer.asks(0).expect("admitted");
    peer.wait_until(at(1199));
    assert_eq!(peer.engine.stay().asked(), None);
    peer.wait_until(at(1200));
    assert!(peer.events.contains(&Event::Cancelled(id, Cause::Deadline)));
    assert_eq!(peer.asks(1), None);
    peer.engine
        .error(id, Code::OperationCancelled, "late", &mut peer.scratch, peer.now)
        .expect("the one answer");
    let frames = peer.hears();
    let refusal = Failure::decode(&frames[0].1[..]).expect("an error");
    assert_eq!(refusal.code, Code::SessionExpired.number());
    assert_eq!(Code::of_number(peer.bye().code), Code::SessionExpired);
}

#[test]
fn grace_waits_for_channels_until_its_deadline_and_then_is_force() {
    // L14, L30
    let mut peer = Peer::open(|_| {});
    let id = peer.asks(0).expect("admitted");
    let (engine, scratch) = (&mut peer.engine, &mut peer.scratch);
    assert_eq!(engine.acquire_channel(id, scratch, peer.now), Ok(()));
    assert_eq!(engine.write(id, 0, b"record", scratch, peer.now), Ok(Written::Sent));
    assert!(engine.release_channel(id, scratch, peer.now));
    assert_eq!(engine.result(id, b"done", scratch, peer.now), Ok(()));
    engine.handle_dropped(id, scratch, peer.now);
    let kinds = [Kind::Acquired, Kind::Record, Kind::Released, Kind::Result];
    assert_eq!(peer.kinds(), kinds);
    peer.now = at(50);
    peer.says(Kind::Shutdown, 0, &Shutdown { forceful: false });
    assert!(peer.hears().is_empty(), "an undrained channel blocks a graceful end");
    let deadline = peer.engine.next_deadline().expect("armed");
    assert_eq!((deadline.at, deadline.kind), (at(60), DeadlineKind::Drain));
    peer.wait_until(at(60));
    peer.bye();
    assert!(peer.engine.reclaim(peer.now));
}

/// A session with a window of 1,000 bytes whose producer waits for its client, asked to end at 50 s.
fn producer_that_waits() -> (Peer, RequestId) {
    let mut peer = Peer::open(|policy| {
        policy.channel_bytes_max = 1000;
        policy.session_timeout = None;
    });
    let id = peer.asks(0).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("a channel");
    assert_eq!(writes(&mut peer, id), Written::Sent);
    assert_eq!(writes(&mut peer, id), Written::Full);
    peer.hears();
    peer.now = at(50);
    peer.engine.shut_down(Manner::Graceful, peer.now);
    (peer, id)
}

fn writes(peer: &mut Peer, id: RequestId) -> Written {
    let record = [7; 900];
    peer.engine.write(id, 0, &record, &mut peer.scratch, peer.now).expect("an open channel")
}

fn drain_deadline(peer: &Peer) -> Option<Moment> {
    let deadline = peer.engine.next_deadline();
    deadline.filter(|deadline| deadline.kind == DeadlineKind::Drain).map(|deadline| deadline.at)
}

#[test]
fn a_reader_that_withholds_credit_does_not_hold_a_graceful_end() {
    // L14: the request runs, but only its client is waited for.
    let (mut peer, id) = producer_that_waits();
    assert_eq!(drain_deadline(&peer), Some(at(60)));
    // What is no use to the producer gives no time.
    peer.now = at(55);
    peer.bare(Kind::Credit, 0, 1);
    assert_eq!(writes(&mut peer, id), Written::Full);
    assert_eq!(drain_deadline(&peer), Some(at(60)));
    peer.wait_until(at(60));
    assert!(peer.events.contains(&Event::Cancelled(id, Cause::Shutdown)));
    peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
    assert_eq!(peer.kinds().last(), Some(&Kind::Error));
    peer.bye();
    assert!(peer.engine.reclaim(peer.now));
}

#[test]
fn time_that_a_service_takes_is_not_its_clients() {
    // L14: between two records the deadline stands still.
    let (mut peer, id) = producer_that_waits();
    peer.now = at(56);
    peer.bare(Kind::Credit, 0, 900 + HEAD_BYTES as u32);
    assert_eq!(drain_deadline(&peer), None, "the service is to move");
    peer.now = at(100);
    assert_eq!(writes(&mut peer, id), Written::Sent);
    assert_eq!(drain_deadline(&peer), None);
    assert_eq!(writes(&mut peer, id), Written::Full);
    assert_eq!(drain_deadline(&peer), Some(at(104)), "six seconds are spent");
}

#[test]
fn a_request_that_computes_keeps_the_drain_deadline_off() {
    // L14, L6
    let (mut peer, _) = producer_that_waits();
    let mut other = Peer::open(|policy| policy.channel_bytes_max = 1000);
    let (waits, computes) = (other.asks(0).expect("admitted"), other.asks(1).expect("admitted"));
    other.engine.acquire_channel(waits, &mut other.scratch, other.now).expect("a channel");
    assert_eq!(writes(&mut other, waits), Written::Sent);
    assert_eq!(writes(&mut other, waits), Written::Full);
    other.engine.shut_down(Manner::Graceful, other.now);
    assert_eq!(drain_deadline(&other), None);
    other.engine.result(computes, b"", &mut other.scratch, other.now).expect("answered");
    other.engine.handle_dropped(computes, &mut other.scratch, other.now);
    other.hears();
    assert_eq!(drain_deadline(&other), Some(at(10)));
    // The end of the producer is the end of its waiting.
    peer.bare(Kind::Drained, 0, 0);
    assert_eq!(drain_deadline(&peer), None);
}

#[test]
fn a_slow_reader_that_goes_on_reading_has_its_download_whole_under_grace() {
    // L14: each 16 KiB buy the time again; 900 bytes every 0.4 s are 20 KiB in ten seconds.
    let (mut peer, id) = producer_that_waits();
    for step in 1..1000 {
        peer.now = Moment::from_millis(50_000 + 400 * step);
        let due = drain_deadline(&peer).expect("it waits");
        assert!(!due.is_due(peer.now), "cut off after {step} records");
        peer.bare(Kind::Credit, 0, 900 + HEAD_BYTES as u32);
        assert_eq!(writes(&mut peer, id), Written::Sent);
        assert_eq!(writes(&mut peer, id), Written::Full);
        peer.hears();
    }
    // A record every second is too little.
    let mut steps = 0..100;
    let end = steps.find(|_| {
        peer.now = peer.now + Duration::from_secs(1);
        peer.bare(Kind::Credit, 0, 900 + HEAD_BYTES as u32);
        let _ = writes(&mut peer, id);
        let _ = writes(&mut peer, id);
        peer.hears();
        drain_deadline(&peer).is_some_and(|due| due.is_due(peer.now))
    });
    assert!(end.is_some_and(|step| step < 20), "{end:?}");
}

#[test]
fn a_drained_channel_lets_a_graceful_end_complete_at_once() {
    // L14, L26
    let mut peer = Peer::open(|_| {});
    let id = peer.asks(0).expect("admitted");
    let (engine, scratch) = (&mut peer.engine, &mut peer.scratch);
    engine.acquire_channel(id, scratch, peer.now).expect("a channel");
    engine.release_channel(id, scratch, peer.now);
    engine.result(id, b"", scratch, peer.now).expect("answered");
    engine.handle_dropped(id, scratch, peer.now);
    peer.hears();
    peer.engine.shut_down(Manner::Graceful, peer.now);
    peer.bare(Kind::Drained, 0, 0);
    assert_eq!(Code::of_number(peer.bye().code), Code::SessionClosed);
}

#[test]
fn a_slow_reader_slows_its_producer_and_credit_is_not_believed_beyond_the_window() {
    // E4, L28
    let mut peer = Peer::open(|policy| policy.channel_bytes_max = 100);
    let id = peer.asks(0).expect("admitted");
    peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("a channel");
    let write = |peer: &mut Peer, len: usize| {
        peer.engine.write(id, 0, &vec![0; len], &mut peer.scratch, peer.now)
    };
    assert_eq!(write(&mut peer, 89), Err(WriteError::TooLarge));
    assert_eq!(write(&mut peer, 38), Ok(Written::Sent));
    assert_eq!(write(&mut peer, 38), Ok(Written::Sent));
    assert_eq!(write(&mut peer, 0), Ok(Written::Full));
    peer.bare(Kind::Credit, 0, 50);
    assert_eq!(peer.events.last(), Some(&Event::ChannelMoved(id)));
    assert_eq!(write(&mut peer, 38), Ok(Written::Sent));
    peer.bare(Kind::Credit, 0, 101);
    assert_eq!(Code::of_number(peer.bye().code), Code::InvalidRequest);
    assert_eq!(write(&mut peer, 38), Err(WriteError::Unwanted), "it does not block");
}

#[test]
fn whoever_does_not_read_holds_the_producers_of_all_its_channels_back() {
    // E4, X8: whatever credit each of them has.
    let mut peer = Peer::open(|policy| {
        policy.channel_bytes_max = 1000;
        policy.output_bytes_max = 300;
    });
    let ids = [0, 1, 2].map(|slot| peer.asks(slot).expect("admitted"));
    for id in ids {
        peer.engine.acquire_channel(id, &mut peer.scratch, peer.now).expect("a channel");
    }
    peer.hears();
    let write = |peer: &mut Peer, id| {
        peer.engine.write(id, 0, &[0; 100], &mut peer.scratch, peer.now).expect("it is open")
    };
    for id in ids {
        assert_eq!(write(&mut peer, id), Written::Sent);
    }
    assert_eq!(ids.map(|id| write(&mut peer, id)), [Written::Full; 3]);
    assert!(peer.scratch.out.len() < 400, "{}", peer.scratch.out.len());
    peer.engine.transmitted(100, true, peer.now);
    let mut told = Vec::new();
    while let Some(event) = peer.engine.next_event() {
        told.push(event);
    }
    assert_eq!(told, ids.map(Event::ChannelMoved), "each of them gets the event once");
    assert_eq!(write(&mut peer, ids[2]), Written::Sent);
}

#[test]
fn channels_beyond_the_limit_are_refused_to_the_handler() {
    // E4
    let mut peer = Peer::open(|policy| policy.channels_max = 1);
    let (first, second) = (peer.asks(0).expect("one"), peer.asks(1).expect("two"));
    let (engine, scratch) = (&mut peer.engine, &mut peer.scratch);
    assert_eq!(engine.acquire_channel(first, scratch, peer.now), Ok(()));
    let refused = engine.acquire_channel(second, scratch, peer.now);
    assert_eq!(refused, Err(AcquireError::TooMany));
    peer.bare(Kind::Drained, 0, 0);
    let (engine, scratch) = (&mut peer.engine, &mut peer.scratch);
    assert_eq!(engine.acquire_channel(second, scratch, peer.now), Ok(()));
    let again = engine.acquire_channel(second, scratch, peer.now);
    assert_eq!(again, Err(AcquireError::OutOfOrder));
}

#[test]
fn whoever_does_not_read_is_not_listened_to_and_then_lost() {
    // E4: refusals do not pile up.
    let mut peer = Peer::open(|policy| {
        policy.requests_max = 1;
        policy.output_bytes_max = 300;
    });
    peer.asks(0).expect("admitted");
    for _ in 0..100 {
        peer.asks(1);
    }
    assert!(peer.scratch.out.len() < 500);
    assert!(!peer.inbox.is_empty() && !peer.engine.wants_input());
    peer.engine.transmitted(0, true, peer.now);
    peer.wait_until(at(10));
    let reason = CloseReason::Expired(DeadlineKind::Send);
    assert_eq!(peer.engine.stage(), Stage::Closed(reason));
    assert!(peer.events.iter().any(|event| matches!(event, Event::Cancelled(..))));
}

#[test]
fn a_lost_peer_cancels_at_once_and_all_is_released_with_the_last_handle() {
    // L12, L13, L15, L32
    let mut peer = Peer::open(|_| {});
    let id = peer.asks(0).expect("admitted");
    let event = peer.engine.input_ended(peer.now);
    assert_eq!(event, Some(Event::Cancelled(id, Cause::ClientLost)));
    assert_eq!(peer.engine.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
    assert!(!peer.engine.reclaim(peer.now));
    peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
    assert!(peer.scratch.out.is_empty());
    assert_eq!(peer.engine.stay().session(), Session::Shutdown);
    assert!(peer.engine.reclaim(peer.now));
    assert!(peer.engine.lanes().is_empty());
}

/// T6, L7: a peer that does not read cannot stay, though nothing limits how long bytes may wait: force, `BYE`
/// and an expiry have a limit of their own.
#[test]
fn what_a_session_that_is_to_go_has_left_to_say_has_five_seconds_at_the_most() {
    for (send_timeout, patience) in
        [(None, 5), (Some(Duration::from_mins(1)), 5), (Some(Duration::from_secs(2)), 2)]
    {
        for manner in [Manner::Graceful, Manner::Forceful] {
            let mut peer = Peer::open(|policy| {
                policy.send_timeout = send_timeout;
                policy.session_timeout = None;
            });
            let id = peer.asks(1).expect("it is admitted");
            peer.now = at(100);
            peer.engine
                .result(id, b"result", &mut peer.scratch, peer.now)
                .expect("the first answer");
            peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
            // The peer takes one byte and no more.
            peer.engine.transmitted(1, true, peer.now);
            let usual = send_timeout.map(|timeout| peer.now + timeout);
            assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), usual);
            peer.now = at(101);
            peer.engine.shut_down(manner, peer.now);
            if manner == Manner::Graceful {
                // Its answer is on the way: a graceful end waits for the usual send timeout.
                peer.sends(b"");
                assert_eq!(peer.engine.next_deadline().map(|deadline| deadline.at), usual);
                continue;
            }
            peer.engine.transmitted(1, true, peer.now);
            let deadline = peer.engine.next_deadline().expect("there is one");
            assert_eq!((deadline.kind, deadline.at), (DeadlineKind::Send, at(101 + patience)));
            assert_eq!(peer.engine.stage(), Stage::Open);
            assert_eq!(peer.engine.expire(deadline.at), None);
            let reason = CloseReason::Expired(DeadlineKind::Send);
            assert_eq!(peer.engine.stage(), Stage::Closed(reason));
            assert!(peer.engine.reclaim(deadline.at), "nothing is left");
        }
    }
    // `BYE`: the peer never sent its greeting, and takes nothing.
    let mut peer = Peer::new(|policy| policy.send_timeout = None);
    peer.now = at(10);
    peer.engine.expire(peer.now);
    peer.sends(b"");
    peer.engine.transmitted(0, true, peer.now);
    let deadline = peer.engine.next_deadline().map(|deadline| (deadline.kind, deadline.at));
    assert_eq!(deadline, Some((DeadlineKind::Send, at(15))));
}

#[test]
fn an_idle_session_gives_its_tables_back_and_one_at_work_does_not() {
    // E4
    let mut peer = Peer::open(|_| {});
    for round in 0..3 {
        let id = peer.asks(round).expect("admitted");
        assert!(!peer.engine.trim(), "a request is under way");
        assert_eq!(peer.engine.lanes().get(id).map(|lane| lane.slot), Some(round));
        peer.engine.result(id, b"done", &mut peer.scratch, peer.now).expect("taken");
        assert!(!peer.engine.trim(), "its answer has not left");
        assert_eq!(peer.kinds(), [Kind::Result]);
        peer.engine.handle_dropped(id, &mut peer.scratch, peer.now);
        assert!(peer.engine.trim());
    }
}
