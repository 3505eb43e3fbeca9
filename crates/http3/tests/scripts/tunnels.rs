//! WebSocket over HTTP/3: extended CONNECT (RFC 9220, U6).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http3::{BodyLength, Cause, Code, Event, Loss, StreamId};

use crate::harness::{World, body_of, data, headers};

const CONNECT: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat"),
    (":authority", "a"),
];

fn upgrade(world: &mut World, id: StreamId) -> bool {
    let fields: [(&[u8], &[u8]); 1] = [(b"Sec-WebSocket-Protocol", b"p")];
    world.engine.upgrade(id, fields, &mut world.quic, world.now)
}

/// A tunnel that is open, on stream 0.
fn open(world: &mut World) -> StreamId {
    world.send(0, &headers(&CONNECT), false);
    let id = world.request();
    world.engine.take_body(id, Some(0), &mut world.quic, world.now).expect("no body");
    assert_eq!(world.poll(), [Event::BodyEnd(id)], "the request has no body");
    assert!(upgrade(world, id));
    assert_eq!(world.poll(), []);
    id
}

#[test]
fn the_setting_allows_extended_connect() {
    let world = World::default();
    let settings = &world.quic.outgoing[&3].bytes;
    assert!(settings.windows(2).any(|pair| pair == [8, 1]), "{settings:?}");
}

#[test]
fn a_tunnel_is_a_response_without_a_length_and_a_body_without_an_end() {
    let mut world = World::default();
    world.send(0, &[headers(&CONNECT), data(b"early")].concat(), false);
    let id = world.request();
    assert!(!world.engine.request_has_body(id));
    for events in [vec![Event::BodyEnd(id)], Vec::new()] {
        world.engine.take_body(id, Some(0), &mut world.quic, world.now).expect("no body");
        assert_eq!(world.poll(), events, "told once, and the bytes wait");
    }
    assert!(upgrade(&mut world, id));
    assert_eq!(body_of(&world.poll(), id), (b"early".to_vec(), false));
    world.send(0, &data(b"more"), false);
    assert_eq!(body_of(&world.poll(), id), (b"more".to_vec(), false));
    assert_eq!(world.body(id, b"echo"), 4);
    let head = "HEADERS :status: 200, sec-websocket-protocol: p";
    assert_eq!(world.frames(0), [head, "DATA 4 echo"]);
    assert!(!upgrade(&mut world, id), "it is open");
}

#[test]
fn a_silent_tunnel_has_no_deadline_of_the_engine() {
    let mut world = World::default();
    let id = open(&mut world);
    assert_eq!(world.engine.stream_deadline(id), None);
    world.pass(Duration::from_hours(10));
    assert_eq!(world.expire(), []);
    world.send(0, &data(b"x"), false);
    assert_eq!(body_of(&world.poll(), id).0, b"x");
    assert_eq!(world.engine.stream_deadline(id), None);
}

#[test]
fn both_sides_end_by_themselves() {
    // M3
    let mut world = World::default();
    let id = open(&mut world);
    world.send(0, &data(b"bye"), true);
    assert_eq!(body_of(&world.poll(), id), (b"bye".to_vec(), true));
    world.body(id, b"bye");
    world.finish(id);
    assert!(world.quic.outgoing[&0].has_ended && world.quic.stops.is_empty());
    // The client ends its side before the tunnel is open.
    let mut world = World::default();
    world.send(0, &headers(&CONNECT), true);
    let id = world.request();
    world.engine.take_body(id, Some(0), &mut world.quic, world.now).expect("no body");
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
    assert!(upgrade(&mut world, id));
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
}

#[test]
fn a_reset_ends_a_tunnel() {
    // M3
    let mut world = World::default();
    let id = open(&mut world);
    world.client_resets(0, Code::RequestCancelled);
    let lost = Event::ClientLost(id, Loss::Reset(Code::RequestCancelled.number()));
    assert_eq!(world.poll(), [lost]);
    let mut world = World::default();
    let id = open(&mut world);
    world.engine.reset(id, Code::Internal, &mut world.quic, world.now);
    assert_eq!(world.quic.outgoing[&0].reset, Some(Code::Internal.number()));
}

#[test]
fn a_tunnel_that_is_not_taken_is_not_read() {
    // M5
    let mut world = World::default();
    let id = open(&mut world);
    world.engine.hold_body(id, true, world.now);
    world.send(0, &data(&[b'x'; 1000]), false);
    assert_eq!(world.poll(), []);
    assert!(world.quic.unread(0) >= 1000);
    world.engine.hold_body(id, false, world.now);
    assert_eq!(body_of(&world.poll(), id).0.len(), 1000);
}

#[test]
fn a_refused_tunnel_has_a_response() {
    let mut world = World::default();
    world.send(0, &headers(&CONNECT), false);
    let id = world.request();
    let none: [(&[u8], &[u8]); 0] = [];
    world.engine.respond(
        id,
        Status::NOT_FOUND,
        BodyLength::Empty,
        none,
        &mut world.quic,
        world.now,
    );
    world.finish(id);
    assert!(world.quic.outgoing[&0].has_ended);
    assert_eq!(world.quic.stops[&0], Code::NoError.number());
    assert!(!upgrade(&mut world, id));
    let mut other = CONNECT;
    other[1].1 = "connect-udp";
    world.send(4, &headers(&other), false);
    let events = world.poll();
    let [Event::Refused(_, refusal)] = events[..] else { panic!("{events:?}") };
    assert_eq!((refusal.status.code(), refusal.cause), (501, Cause::ProtocolUnknown));
}

#[test]
fn a_header_block_in_a_tunnel_ends_the_connection() {
    // RFC 9114 §4.4
    let mut world = World::default();
    open(&mut world);
    world.send(0, &headers(&[("x", "y")]), false);
    world.poll();
    assert!(world.is_closed_with(Code::FrameUnexpected));
}
