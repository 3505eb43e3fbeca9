//! Requests and responses.

use sekisho_http3::{BodyLength, Code, Event, Malformed, Sends};

use crate::harness::{GET, World, body_of, control, data, get, headers, post};

#[test]
fn a_request_gets_its_response() {
    // Q1
    let mut world = World::default();
    let id = world.get(0);
    assert_eq!(world.scratch.head.target(), b"/x");
    assert_eq!(world.scratch.head.version().as_str(), "HTTP/3.0");
    assert!(!world.engine.request_has_body(id));
    assert_eq!(world.respond(id, BodyLength::Known(5)), Sends::Exactly(5));
    assert_eq!(world.engine.allowance(id), 5);
    assert_eq!(world.body(id, b"hello, world"), 5);
    assert_eq!(world.engine.next_sent(), Some(id));
    world.finish(id);
    let head = "HEADERS :status: 200, content-length: 5, server: sekisho";
    assert_eq!(world.frames(0), [head, "DATA 5 hello"]);
    assert!(world.quic.outgoing[&0].has_ended);
    assert!(!world.engine.is_idle(), "not acknowledged");
    world.engine.delivered(0);
    assert_eq!(world.poll(), []);
    assert!(world.engine.is_idle());
    assert!(!world.quic.stops.contains_key(&0));
}

#[test]
fn our_streams_begin_with_their_types_and_settings() {
    let world = World::default();
    assert_eq!(world.quic.outgoing[&3].bytes[..2], [0, 4]);
    assert_eq!(world.quic.outgoing[&7].bytes, [2]);
    assert_eq!(world.quic.outgoing[&11].bytes, [3]);
    assert!(world.quic.outgoing[&3].priority > 3);
}

#[test]
fn a_body_of_unknown_length_has_a_frame_for_each_call() {
    let mut world = World::default();
    let id = world.get(0);
    assert_eq!(world.respond(id, BodyLength::Unknown), Sends::Stream);
    assert_eq!(world.body(id, b"ab"), 2);
    assert_eq!(world.body(id, b"cde"), 3);
    world.finish(id);
    let frames = world.frames(0);
    assert_eq!(frames[1..], ["DATA 2 ab", "DATA 3 cde"]);
    assert!(world.quic.outgoing[&0].has_ended);
}

#[test]
fn a_partly_written_frame_is_continued() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Unknown);
    world.quic.out(0).window = 4;
    assert_eq!(world.body(id, b"abcdef"), 2, "two bytes of the header");
    assert_eq!((world.engine.allowance(id), world.body(id, b"cdef")), (0, 0));
    world.open_window(0, 100);
    assert_eq!(world.poll(), []);
    assert_eq!(world.engine.allowance(id), 4);
    assert_eq!(world.body(id, b"cdefgh"), 4);
    assert_eq!(world.body(id, b"gh"), 2);
    assert_eq!(world.frames(0)[1..], ["DATA 6 abcdef", "DATA 2 gh"]);
}

#[test]
fn a_head_that_is_blocked_is_written_later_and_fin_follows() {
    let mut world = World::default();
    let id = world.get(0);
    world.quic.out(0).window = 3;
    world.respond(id, BodyLength::Empty);
    world.finish(id);
    assert!(!world.quic.outgoing[&0].has_ended);
    assert_eq!(world.engine.next_sent(), None);
    world.open_window(0, 4);
    assert_eq!(world.poll(), []);
    assert!(!world.quic.outgoing[&0].has_ended);
    world.open_window(0, 400);
    assert_eq!(world.poll(), []);
    assert!(world.quic.outgoing[&0].has_ended);
    assert_eq!(world.engine.next_sent(), Some(id));
    assert_eq!(world.frames(0), ["HEADERS :status: 200, content-length: 0, server: sekisho"]);
}

#[test]
fn a_malformed_request_is_reset() {
    let without = |name: &str| {
        headers(&GET.iter().copied().filter(|field| field.0 != name).collect::<Vec<_>>())
    };
    let rows = [
        (without(":path"), Malformed::PathMissing),
        (without(":scheme"), Malformed::SchemeMissing),
        (without(":method"), Malformed::MethodMissing),
        (headers(&[&GET[..], &[(":status", "200")]].concat()), Malformed::PseudoUnknown),
        (headers(&[&GET[..], &[(":path", "/y")]].concat()), Malformed::PseudoRepeated),
        (
            headers(&[&GET[..], &[(":protocol", "websocket")]].concat()),
            Malformed::ProtocolUnexpected,
        ),
        (headers(&[&GET[..], &[("a", "b"), (":x", "y")]].concat()), Malformed::PseudoLate),
    ];
    for (bytes, malformed) in rows {
        let mut world = World::default();
        world.send(0, &bytes, false);
        assert_eq!(world.poll(), [Event::Malformed(0, malformed)]);
        assert_eq!(world.quic.outgoing[&0].reset, Some(Code::Message.number()));
        assert_eq!(world.quic.stops[&0], Code::Message.number());
        world.get(4);
    }
}

#[test]
fn a_body_has_the_length_of_its_head() {
    // RFC 9114 §4.1.2
    for (body, ends) in [(&b"abcd"[..], false), (b"ab", true), (b"", true)] {
        let mut world = World::default();
        world.send(0, &post(&[("content-length", "3")]), false);
        let id = world.request();
        assert_eq!(world.engine.body_length(id), Some(3));
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("small");
        let bytes = if body.is_empty() { Vec::new() } else { data(body) };
        world.send(0, &bytes, ends);
        let events = world.poll();
        assert!(events.contains(&Event::Malformed(0, Malformed::LengthDiffers)), "{events:?}");
        assert!(!body_of(&events, id).1);
    }
    // Known at once: no handler begins.
    let mut world = World::default();
    world.send(0, &post(&[("content-length", "3")]), true);
    assert_eq!(world.poll(), [Event::Malformed(0, Malformed::LengthDiffers)]);
    assert_eq!(world.engine.open_streams(), 0);
}

#[test]
fn settings_may_come_behind_requests() {
    let mut world = World::new(sekisho_http3::Policy::default());
    world.send(0, &get(), true);
    let id = world.request();
    world.send(2, &control(&[(1, 4096), (7, 10), (0x21, 5)]), false);
    assert_eq!(world.poll(), []);
    world.serve(id);
    assert!(world.engine.is_idle());
}
