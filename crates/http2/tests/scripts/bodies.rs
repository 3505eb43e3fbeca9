//! Request bodies: limits, credit, holding, endings (M3, M5, H6, H7).

use sekisho_http::Status;
use sekisho_http2::frame::{Kind, flag};
use sekisho_http2::{BodyLength, Cause, Code, Event, Loss, Malformed, StreamId};

use crate::harness::{POST, Peer, Sent, data, frame, headers, policy, reset};

fn with_length(length: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut fields = POST.to_vec();
    fields.push(("content-length", length));
    fields
}

fn bytes_of(events: &[Event], id: StreamId) -> usize {
    events
        .iter()
        .map(|event| match event {
            Event::Body(of, range) if *of == id => range.len(),
            _ => 0,
        })
        .sum()
}

#[test]
fn a_body_comes_as_events_up_to_its_end() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    assert_eq!(peer.takes_body(id, None), Ok(()));
    let frames = [data(1, b"hello", false), data(1, b"", true)].concat();
    assert_eq!(peer.sends(frames), [Event::Body(id, 9..14), Event::BodyEnd(id)]);
}

#[test]
fn a_request_without_a_body_ends_at_once_when_it_is_asked_for() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    assert!(!peer.engine.request_has_body(id));
    assert_eq!(peer.takes_body(id, Some(0)), Ok(()));
    assert_eq!(peer.next(), Some(Event::BodyEnd(id)));
    assert_eq!(peer.next(), None);
}

#[test]
fn what_comes_before_it_is_wanted_is_stored() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &with_length("10"), false);
    assert!(peer.sends([data(1, b"01234", false), data(1, b"567", false)].concat()).is_empty());
    assert_eq!(peer.engine.body_length(id), Some(10));
    assert_eq!(peer.takes_body(id, Some(10)), Ok(()));
    assert_eq!(peer.next(), Some(Event::Stored(id)));
    assert_eq!(peer.scratch.body, b"01234567");
    assert_eq!(peer.sends(data(1, b"89", true)), [Event::Body(id, 9..11), Event::BodyEnd(id)]);
}

#[test]
fn a_body_that_is_held_back_comes_later_and_in_order() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.engine.hold_body(id, true, peer.now);
    assert!(peer.sends([data(1, b"one", false), data(1, b"two", true)].concat()).is_empty());
    peer.engine.hold_body(id, false, peer.now);
    assert_eq!(peer.next(), Some(Event::Stored(id)));
    assert_eq!(peer.scratch.body, b"onetwo");
    peer.engine.hold_body(id, true, peer.now);
    assert_eq!(peer.next(), None, "its end is held back, too");
    peer.engine.hold_body(id, false, peer.now);
    assert_eq!(peer.next(), Some(Event::BodyEnd(id)));
}

/// M5: what a handler does not take is not acknowledged.
#[test]
fn credit_follows_what_was_consumed() {
    let change = |policy: &mut sekisho_http2::Policy| {
        (policy.stream_window_bytes, policy.upload_window_bytes) = (1000, 4000);
    };
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    assert_eq!(
        peer.flushes(),
        [Sent::Window(1, 3000)],
        "a body that is wanted has a larger window"
    );
    let events = peer.sends(data(1, &[0; 3000], false));
    assert_eq!(bytes_of(&events, id), 3000);
    assert!(peer.flushes().is_empty());
    peer.engine.consumed(id, 1000, &mut peer.scratch, peer.now);
    assert!(peer.flushes().is_empty(), "not for so little");
    peer.engine.consumed(id, 1500, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Window(1, 2500)]);
    peer.engine.consumed(id, u32::MAX, &mut peer.scratch, peer.now);
    assert!(peer.flushes().is_empty(), "no credit for bytes that never came");
    let events = peer.sends(data(1, &[0; 3501], false));
    assert_eq!(events, [Event::ClientLost(id, Loss::Violation)], "beyond the window");
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::FlowControl.number())]);
}

/// M5: bytes are credited once, also where more of them have come since.
#[test]
fn credit_is_given_once() {
    let change = |policy: &mut sekisho_http2::Policy| {
        (policy.stream_window_bytes, policy.upload_window_bytes) = (1000, 4000);
    };
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.sends(data(1, &[0; 3000], false));
    peer.flushes();
    peer.engine.consumed(id, 2500, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Window(1, 2500)]);
    peer.sends(data(1, &[0; 3000], false));
    peer.engine.consumed(id, 1, &mut peer.scratch, peer.now);
    assert!(peer.flushes().is_empty(), "the 2,500 bytes were credited before");
    peer.engine.consumed(id, 1999, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Window(1, 2000)]);
}

/// M5: one stream's stall delays no other.
#[test]
fn the_window_of_the_connection_does_not_wait_for_handlers() {
    let mut peer = Peer::new(policy(|policy| policy.connection_window_bytes = 100_000));
    let stalled = peer.requests(1, &POST, false);
    let other = peer.requests(3, &POST, false);
    peer.takes_body(other, None).expect("no limit");
    peer.flushes();
    for _ in 0..4 {
        assert!(peer.sends(data(1, &[0; 16_000], false)).is_empty());
    }
    let windows = peer.flushes();
    assert!(matches!(windows.as_slice(), [Sent::Window(0, given)] if *given >= 50_000));
    let events = peer.sends(data(3, &[0; 16_000], true));
    assert_eq!(bytes_of(&events, other), 16_000);
    assert!(peer.engine.request_has_body(stalled));
}

/// `http2_body_preread_size 0`: nothing may come before a handler wants it, and nothing comes if none does.
#[test]
fn a_body_may_have_to_wait_for_its_handler() {
    let mut peer = Peer::new(policy(|policy| policy.stream_window_bytes = 0));
    let id = peer.requests(1, &POST, false);
    assert!(peer.flushes().is_empty());
    peer.takes_body(id, None).expect("no limit");
    let opened = peer.flushes();
    assert!(matches!(opened.as_slice(), [Sent::Window(1, _)]), "{opened:?}");
    assert_eq!(bytes_of(&peer.sends(data(1, &[0; 16_000], true)), id), 16_000);
    peer.answers(id, Status::OK);
    peer.flushes();

    let id = peer.requests(3, &POST, false);
    peer.answers(id, Status::OK);
    let frames = peer.flushes();
    assert_eq!(frames.last(), Some(&Sent::Reset(3, Code::NoError.number())), "{frames:?}");

    let id = peer.requests(5, &POST, false);
    assert_eq!(peer.sends(data(5, &[0; 1], false)), [Event::ClientLost(id, Loss::Violation)]);
}

/// H6, M3: a body that is too large is refused at once, and its rest is not wanted.
#[test]
fn a_body_beyond_its_limit_is_413() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &with_length("100000"), false);
    assert_eq!(peer.takes_body(id, Some(10)), Err(413));
    peer.answers(id, Status::CONTENT_TOO_LARGE);
    let frames = peer.flushes();
    assert_eq!(frames.last(), Some(&Sent::Reset(1, Code::NoError.number())), "{frames:?}");
    assert!(peer.sends(data(1, &[0; 5000], false)).is_empty());
    assert!(peer.flushes().is_empty(), "what was on its way is ignored");

    let id = peer.requests(3, &POST, false);
    peer.takes_body(id, Some(10)).expect("nothing is known");
    peer.flushes();
    let events = peer.sends([data(3, &[0; 6], false), data(3, &[0; 5], false)].concat());
    let refused = Event::Refused(id, Cause::BodyTooLarge.into());
    assert_eq!(events, [Event::Body(id, 9..15), Event::Body(id, 9..13), refused]);
    peer.answers(id, Status::CONTENT_TOO_LARGE);
    assert_eq!(peer.flushes().len(), 2, "a short rest may still come");
    assert!(peer.sends(data(3, b"", true)).is_empty());
    assert!(peer.flushes().is_empty(), "and then there is nothing to reset");

    let id = peer.requests(5, &POST, false);
    assert!(peer.sends(data(5, &[0; 20], false)).is_empty());
    assert_eq!(peer.takes_body(id, Some(10)), Err(413), "what is stored counts");
}

/// M3: the rest of a request that was answered is thrown away, and refused when it is long.
#[test]
fn an_early_answer_does_not_wait_for_the_body() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    peer.answers(id, Status::NOT_FOUND);
    assert_eq!(peer.flushes().len(), 2);
    assert_eq!(peer.engine.open_streams(), 0, "for the shell it is over");
    assert!(peer.sends(data(1, &[0; 16_000], false)).is_empty());
    assert!(peer.flushes().is_empty());
    assert!(
        peer.sends([data(1, &[0; 16_000], false), data(1, &[0; 8000], false)].concat()).is_empty()
    );
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::NoError.number())]);
    assert!(peer.sends(data(1, &[0; 8000], false)).is_empty());
    assert!(peer.flushes().is_empty());
}

/// H7
#[test]
fn a_client_that_waits_for_100_is_told_once() {
    let mut fields = with_length("2");
    fields.push(("expect", "100-continue"));
    let mut peer = Peer::open();
    let id = peer.requests(1, &fields, false);
    peer.takes_body(id, None).expect("no limit");
    let fields_100 = vec![":status: 100".to_string()];
    assert_eq!(peer.flushes(), [Sent::Headers { stream: 1, fields: fields_100, ends: false }]);
    let id = peer.requests(3, &fields, false);
    peer.answers(id, Status::NOT_FOUND);
    let frames = peer.flushes();
    assert_eq!(frames.len(), 3, "no 100: {frames:?}");
    assert_eq!(frames[2], Sent::Reset(3, Code::NoError.number()));
}

#[test]
fn a_body_is_as_long_as_it_says() {
    // RFC 9113 §8.1.1
    for frames in [data(1, b"123456", false), data(1, b"1234", true)] {
        let mut peer = Peer::open();
        let id = peer.requests(1, &with_length("5"), false);
        peer.takes_body(id, None).expect("no limit");
        let events = peer.sends(frames);
        assert!(events.contains(&Event::Malformed(1, Malformed::LengthDiffers)), "{events:?}");
        assert!(events.contains(&Event::ClientLost(id, Loss::Violation)), "{events:?}");
        assert_eq!(peer.flushes(), [Sent::Reset(1, Code::Protocol.number())]);
    }
    let mut peer = Peer::open();
    let events = peer.sends(headers(1, &with_length("5"), true));
    assert_eq!(events, [Event::Malformed(1, Malformed::LengthDiffers)]);
}

#[test]
fn trailers_end_a_body_and_are_dropped() {
    // H13
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    let events = peer.sends([data(1, b"x", false), headers(1, &[("a", "b")], true)].concat());
    assert_eq!(events, [Event::Body(id, 9..10), Event::BodyEnd(id)]);

    let rows = [
        (headers(3, &[("a", "b")], false), Malformed::TrailersWithoutEnd),
        (headers(3, &[(":path", "/")], true), Malformed::PseudoInTrailers),
        (headers(3, &[("A", "b")], true), Malformed::NameInvalid),
    ];
    for (frames, malformed) in rows {
        let mut peer = Peer::open();
        let id = peer.requests(3, &POST, false);
        let events = peer.sends(frames);
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events.contains(&Event::Malformed(3, malformed)), "{events:?}");
        assert!(events.contains(&Event::ClientLost(id, Loss::Violation)), "{events:?}");
    }
}

#[test]
fn nothing_comes_behind_the_end_of_a_request() {
    // RFC 9113 §5.1, V8
    for frames in [data(1, b"x", false), headers(1, &[("a", "b")], true)] {
        let mut peer = Peer::open();
        let id = peer.gets(1);
        assert_eq!(peer.sends(frames), [Event::ClientLost(id, Loss::Violation)]);
        assert_eq!(peer.flushes(), [Sent::Reset(1, Code::StreamClosed.number())]);
        assert_eq!(peer.engine.open_streams(), 1, "it counts until its handler has ended");
        assert_eq!(peer.bodies(id, b"late"), 0);
        peer.finishes(id);
        assert_eq!(peer.engine.open_streams(), 0);
        assert!(peer.flushes().is_empty());
    }
}

#[test]
fn padding_is_taken_out_and_counts() {
    let change = |policy: &mut sekisho_http2::Policy| {
        (policy.stream_window_bytes, policy.upload_window_bytes) = (1000, 1000);
    };
    let mut peer = Peer::new(policy(change));
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    let mut payload = vec![200];
    payload.extend_from_slice(b"body");
    payload.extend_from_slice(&[0; 200]);
    for _ in 0..4 {
        let events = peer.sends(frame(Kind::Data, flag::PADDED, 1, &payload));
        assert_eq!(events, [Event::Body(id, 10..14)]);
    }
    peer.engine.consumed(id, 16, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Window(1, 4 * 205)], "padding needs no consumer");
    peer.fails(frame(Kind::Data, flag::PADDED, 1, &[5, 0, 0]));
}

#[test]
fn a_reset_after_everything_was_said_changes_nothing() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Empty);
    assert!(peer.sends(reset(1)).is_empty());
    peer.finishes(id);
    assert_eq!(peer.flushes().len(), 1);
    assert_eq!(peer.engine.next_sent(), Some(id));
}

#[test]
fn a_reset_loses_the_client() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &POST, false);
    peer.takes_body(id, None).expect("no limit");
    peer.flushes();
    peer.heads(id, Status::OK, BodyLength::Unknown);
    assert_eq!(peer.sends(reset(1)), [Event::ClientLost(id, Loss::Reset(8))]);
    assert!(peer.sends(reset(1)).is_empty(), "once is enough");
    peer.finishes(id);
    assert_eq!(peer.flushes().len(), 1, "only the head had left");
    let events = peer.sends(data(1, b"x", false));
    assert!(events.is_empty());
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::StreamClosed.number())]);
}
