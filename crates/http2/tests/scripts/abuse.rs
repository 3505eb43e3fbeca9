//! What a peer may do that brings it nothing is bounded, and each bound has its event (M4, V7–V10, V12).

use sekisho_http::Status;
use sekisho_http2::frame::{Kind, flag, setting};
use sekisho_http2::{Bound, Code, Event, Policy, Rate};
use sekisho_lifecycle::{Engine, Stage};

use crate::harness::{
    GET, POST, Peer, Sent, block, data, frame, headers, policy, reset, seconds, settings,
    settings_ack, window,
};

/// Sends what `make` makes until the connection ends; which bound ended it, after how many. The shell ends
/// each stream as soon as the engine asks for it.
fn flood(mut peer: Peer, mut make: impl FnMut(u32) -> Vec<u8>) -> (Bound, u32) {
    for turn in 0..100_000 {
        let events = peer.sends(make(turn));
        for event in &events {
            match event {
                Event::ClientLost(id, _) => peer.finishes(*id),
                Event::BoundExceeded(bound) => {
                    let frames = peer.flushes();
                    let last = frames.last();
                    assert!(
                        matches!(last, Some(Sent::GoAway(_, code)) if *code == Code::EnhanceYourCalm.number()),
                        "{last:?}"
                    );
                    assert_eq!(peer.stage(), Stage::Lingering);
                    return (*bound, turn + 1);
                }
                _ => {}
            }
        }
        peer.flushes();
    }
    panic!("nothing ended it");
}

fn odd(turn: u32) -> u32 {
    2 * turn + 1
}

/// V7, CVE-2023-44487
#[test]
fn rapid_reset() {
    let seen =
        flood(Peer::open(), |turn| [headers(odd(turn), &GET, true), reset(odd(turn))].concat());
    assert_eq!(seen, (Bound::Resets, 201));
}

/// V7: handlers that do not end at once are not started without limit.
#[test]
fn rapid_reset_starts_no_more_handlers_than_streams_may_be_open() {
    let mut peer = Peer::new(policy(|policy| policy.streams_max = 10));
    let mut started = 0;
    for turn in 0..100 {
        let events = peer.sends([headers(odd(turn), &GET, true), reset(odd(turn))].concat());
        started += events.iter().filter(|event| matches!(event, Event::Request(_))).count();
        peer.flushes();
    }
    assert_eq!((started, peer.engine.open_streams()), (10, 10));
}

/// V8, CVE-2025-8671: each way in which a client can make us reset a stream.
#[test]
fn made_you_reset() {
    let ways: [fn(u32) -> Vec<u8>; 6] = [
        |stream| [headers(stream, &GET, true), window(stream, 0)].concat(),
        |stream| [headers(stream, &GET, true), window(stream, 0x7fff_ffff)].concat(),
        |stream| [headers(stream, &GET, true), data(stream, b"x", true)].concat(),
        |stream| [headers(stream, &GET, true), headers(stream, &GET, true)].concat(),
        |stream| [headers(stream, &GET, true), frame(Kind::Priority, 0, stream, &[0; 4])].concat(),
        |stream| headers(stream, &[(":method", "GET")], true),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        let seen = flood(Peer::open(), |turn| way(odd(turn)));
        assert_eq!(seen, (Bound::OwnResets, 101), "{at}");
    }
}

/// Clients that cancel now and then, for as long as they like, are not abusive.
#[test]
fn an_honest_client_never_meets_a_bound() {
    let change = |policy: &mut Policy| policy.keepalive_requests = u64::MAX;
    let mut peer = Peer::new(policy(change));
    for turn in 0..1500 {
        peer.at(seconds(u64::from(turn)));
        let id = peer.gets(4 * turn + 1);
        peer.heads(id, Status::OK, sekisho_http2::BodyLength::Known(40_000));
        peer.bodies(id, &vec![0; 40_000]);
        peer.finishes(id);
        let cancelled = 4 * turn + 3;
        let bytes = [
            headers(cancelled, &GET, true),
            reset(cancelled),
            window(0, 40_000),
            window(4 * turn + 1, 40_000),
            frame(Kind::Ping, 0, 0, &[0; 8]),
            frame(Kind::Priority, 0, 4 * turn + 1, &[0; 5]),
            frame(Kind::Unknown, 0, 0, b"grease"),
        ];
        for event in peer.sends(bytes.concat()) {
            match event {
                Event::ClientLost(id, _) => peer.finishes(id),
                Event::Request(_) => {}
                other => panic!("{other:?}"),
            }
        }
        peer.flushes();
    }
}

/// V9: counted before anything is decoded, in bytes and in frames.
#[test]
fn continuation_flood() {
    let long = vec![0; 16_000];
    let (bound, frames) = flood(Peer::open(), |turn| match turn {
        0 => frame(Kind::Headers, 0, 1, &block(&GET)),
        _ => frame(Kind::Continuation, 0, 1, &long),
    });
    assert_eq!((bound, frames), (Bound::HeaderBlock, 6), "within 64 KiB");
    let (bound, frames) = flood(Peer::open(), |turn| match turn {
        0 => frame(Kind::Headers, 0, 1, &[]),
        _ => frame(Kind::Continuation, 0, 1, b"\0"),
    });
    assert_eq!((bound, frames), (Bound::HeaderBlock, 17));
    let empty = policy(|policy| policy.block_frames_max = u32::MAX);
    let (bound, frames) = flood(Peer::new(empty), |turn| match turn {
        0 => frame(Kind::Headers, 0, 1, &[]),
        _ => frame(Kind::Continuation, 0, 1, b""),
    });
    assert_eq!((bound, frames), (Bound::EmptyFrames, 101));
}

/// V10
#[test]
fn floods_of_frames_that_bring_nothing() {
    type Flood = (Bound, u32, fn(u32) -> Vec<u8>);
    let floods: [Flood; 10] = [
        (Bound::Settings, 50, |_| settings(&[])),
        (Bound::Pings, 101, |_| frame(Kind::Ping, 0, 0, &[0; 8])),
        (Bound::Priorities, 501, |turn| frame(Kind::Priority, 0, odd(turn), &[0; 5])),
        (Bound::Priorities, 501, |_| frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x01u=1")),
        (Bound::WindowUpdates, 1001, |_| window(0, 1)),
        (Bound::UselessFrames, 201, |_| frame(Kind::Unknown, 0, 0, &[])),
        (Bound::UselessFrames, 201, |_| frame(Kind::Ping, flag::ACK, 0, &[0; 8])),
        (Bound::UselessFrames, 201, |_| settings_ack()),
        (Bound::UselessFrames, 201, |_| frame(Kind::GoAway, 0, 0, &[0; 8])),
        (Bound::Settings, 1, |_| settings(&[(setting::INITIAL_WINDOW_SIZE, 1); 2000])),
    ];
    for (bound, many, make) in floods {
        assert_eq!(flood(Peer::open(), make), (bound, many));
    }
    let with_stream = || {
        let mut peer = Peer::open();
        peer.requests(1, &POST, false);
        peer
    };
    assert_eq!(flood(with_stream(), |_| data(1, b"", false)), (Bound::EmptyFrames, 101));
    let padded = |_| frame(Kind::Data, flag::PADDED, 1, &[3, 0, 0, 0]);
    assert_eq!(flood(with_stream(), padded), (Bound::EmptyFrames, 101));
    assert_eq!(flood(with_stream(), |_| window(1, 1)), (Bound::WindowUpdates, 1001));
}

#[test]
fn streams_beyond_the_limit_are_refused_for_a_while_only() {
    let mut peer = Peer::new(policy(|policy| policy.streams_max = 1));
    peer.gets(1);
    let seen = flood(peer, |turn| headers(odd(turn) + 2, &GET, true));
    assert_eq!(seen, (Bound::RefusedStreams, 201));
}

/// V10: a client that floods us and does not read fills only its own socket.
#[test]
fn nothing_is_taken_while_answers_wait_to_leave() {
    let change = |policy: &mut Policy| {
        policy.rates = [Rate { burst: u32::MAX, per_second: 0 }; 9];
    };
    let mut peer = Peer::new(policy(change));
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    let flood = ping.repeat(10_000);
    peer.sends(&flood);
    assert!(!peer.engine.wants_input());
    assert!(peer.scratch.out.len() < 20_000, "{}", peer.scratch.out.len());
    let before = peer.inbox.len();
    assert!(peer.engine.receive(&peer.inbox, &mut peer.scratch, peer.now).is_rest());
    peer.flushes();
    assert!(peer.engine.wants_input());
    peer.sends(b"");
    assert!(peer.inbox.len() < before);
}

/// A connection whose output is never empty goes on taking input.
#[test]
fn answers_that_have_left_do_not_count() {
    let change = |policy: &mut Policy| {
        policy.rates = [Rate { burst: u32::MAX, per_second: 0 }; 9];
    };
    let mut peer = Peer::new(policy(change));
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    for _ in 0..10_000 {
        peer.sends(&ping);
        // All but the last answer leaves.
        peer.engine.transmitted(17, true, peer.now);
        assert!(peer.engine.wants_input());
    }
}

/// V12: a block of references to one large entry costs what its bytes cost.
#[test]
fn hpack_bomb() {
    let mut peer = Peer::open();
    let value = "x".repeat(3900);
    let mut bomb = block(&GET);
    // One entry of nearly the whole table, and then nothing but references to it.
    bomb.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xbd, 0x1d]);
    bomb.extend_from_slice(value.as_bytes());
    bomb.extend_from_slice(&[0xbe; 12_000]);
    let events = peer.sends(frame(Kind::Headers, 5, 1, &bomb));
    let [Event::Refused(id, refusal)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(refusal.status, Status::HEADER_TOO_LARGE);
    assert!(peer.scratch.head.capacity() < 100_000, "{}", peer.scratch.head.capacity());
    peer.answers(*id, refusal.status);
    peer.flushes();
    let mut fields = block(&GET);
    fields.push(0xbe);
    let events = peer.sends(frame(Kind::Headers, 5, 3, &fields));
    assert!(matches!(events.as_slice(), [Event::Request(_)]), "the table goes on: {events:?}");
}
