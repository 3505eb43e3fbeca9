//! Responses on many streams: turns, priorities, blocked streams.

use sekisho_http::Status;
use sekisho_http3::frame::kind;
use sekisho_http3::{BodyLength, Sends, StreamId};

use crate::harness::{CONTROL, GET, World, frame_of, get, headers, number};

fn with_priority(value: &'static str) -> Vec<u8> {
    headers(&[&GET[..], &[("priority", value)]].concat())
}

/// Streams with a response of which 100 bytes are ready.
fn responding(world: &mut World, priorities: &[&'static str]) -> Vec<StreamId> {
    let mut ids = Vec::new();
    for (at, priority) in (0..).zip(priorities) {
        let bytes = if priority.is_empty() { get() } else { with_priority(priority) };
        world.send(4 * at, &bytes, true);
        let id = world.request();
        world.respond(id, BodyLength::Known(100));
        world.engine.set_ready(id, true, world.now);
        ids.push(id);
    }
    ids
}

/// The streams in the order of their turns, each of which sends a part of its body.
fn turns(world: &mut World, part: usize, count: usize) -> Vec<u64> {
    let mut turns = Vec::new();
    while turns.len() < count
        && let Some(id) = world.engine.next_sendable()
    {
        turns.push(id.number());
        world.body(id, &vec![b'x'; part]);
    }
    turns
}

#[test]
fn streams_without_a_priority_take_turns() {
    let mut world = World::default();
    responding(&mut world, &["", "", ""]);
    let order = turns(&mut world, 50, 10);
    assert_eq!(order.len(), 6);
    let mut first: Vec<u64> = order[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 4, 8]);
}

#[test]
fn urgency_comes_first_and_sequential_streams_one_after_the_other() {
    // RFC 9218 §10
    let mut world = World::default();
    responding(&mut world, &["u=5", "u=1", "u=1", "u=5, i"]);
    assert_eq!(turns(&mut world, 50, 4), [4, 4, 8, 8]);
    assert_eq!(world.quic.outgoing[&4].priority, 2);
    assert_eq!(world.quic.outgoing[&0].priority, -2);
}

#[test]
fn the_client_can_change_a_priority_also_before_its_request() {
    // RFC 9218 §7.2
    let mut world = World::default();
    let update = |stream: u64, value: &str| {
        frame_of(kind::PRIORITY_UPDATE, &[&number(stream)[..], value.as_bytes()].concat())
    };
    world.send(CONTROL, &update(4, "u=0"), false);
    assert_eq!(world.poll(), []);
    responding(&mut world, &["", "u=6", ""]);
    assert_eq!(world.quic.outgoing[&4].priority, 3, "the update says more than the field");
    assert_eq!(turns(&mut world, 50, 1), [4]);
    world.send(CONTROL, &update(8, "u=0,i"), false);
    world.send(CONTROL, &update(4, "u=7"), false);
    assert_eq!(world.poll(), []);
    assert_eq!(turns(&mut world, 50, 2), [8, 8]);
}

#[test]
fn a_blocked_stream_loses_its_turn_until_it_is_writable() {
    let mut world = World::default();
    let ids = responding(&mut world, &["u=1", "u=2"]);
    world.quic.out(0).window = 30;
    assert_eq!(world.engine.next_sendable(), Some(ids[0]));
    assert_eq!(world.body(ids[0], &[b'x'; 100]), 30);
    assert_eq!(world.engine.allowance(ids[0]), 0);
    assert_eq!(world.engine.next_sendable(), Some(ids[1]));
    world.open_window(0, 1000);
    assert_eq!(world.engine.next_sendable(), Some(ids[0]));
    assert_eq!(world.engine.allowance(ids[0]), 70);
    assert_eq!(world.body(ids[0], &[b'x'; 100]), 70);
    assert!(world.quic.outgoing[&0].has_ended);
    assert_eq!(world.engine.next_sendable(), Some(ids[1]));
    world.engine.set_ready(ids[1], false, world.now);
    assert_eq!(world.engine.next_sendable(), None);
}

#[test]
fn a_body_waits_for_its_blocked_head() {
    let mut world = World::default();
    let id = world.get(0);
    world.quic.out(0).window = 3;
    world.respond(id, BodyLength::Known(5));
    world.engine.set_ready(id, true, world.now);
    assert_eq!((world.engine.allowance(id), world.body(id, b"hello")), (0, 0));
    assert_eq!(world.engine.next_sendable(), None);
    world.open_window(0, 1000);
    assert!(world.engine.has_work());
    assert_eq!(world.poll(), []);
    assert_eq!(world.engine.next_sendable(), Some(id));
    assert_eq!(world.body(id, b"hello"), 5);
    assert_eq!(world.frames(0)[1], "DATA 5 hello");
}

#[test]
fn small_writes_of_the_connection_make_no_difference() {
    let mut world = World::default();
    world.quic.write_max = 1;
    let id = world.get(0);
    world.respond(id, BodyLength::Unknown);
    assert_eq!(world.body(id, b"hello"), 5);
    world.finish(id);
    assert_eq!(world.frames(0)[1], "DATA 5 hello");
    assert!(world.quic.outgoing[&0].has_ended);
}

#[test]
fn a_head_has_what_belongs_into_it() {
    let mut world = World::default();
    let id = world.get(0);
    let fields = [
        (&b"Content-Type"[..], &b"text/css"[..]),
        (b"Connection", b"close"),
        (b"Content-Length", b"0"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Bad\r\nName", b"x"),
        (b"X-Bad", b"a\r\nb"),
        (b"X-Good", b"a b"),
    ];
    let sends = world.engine.respond(
        id,
        Status::NOT_FOUND,
        BodyLength::Unknown,
        fields,
        &mut world.quic,
        world.now,
    );
    assert_eq!(sends, Sends::Stream);
    assert_eq!(world.frames(0), ["HEADERS :status: 404, content-type: text/css, x-good: a b"]);
    assert_eq!(world.respond(id, BodyLength::Empty), Sends::Nothing, "there is one already");
}

#[test]
fn statuses_that_no_table_has_are_literals() {
    let mut world = World::default();
    let rows = [(0, 418, Sends::Exactly(3)), (4, 204, Sends::Nothing), (8, 304, Sends::Nothing)];
    for (stream, code, expected) in rows {
        let id = world.get(stream);
        let status = Status::new(code).expect("a status");
        let length = BodyLength::Known(3);
        let sends = world.engine.respond(id, status, length, [], &mut world.quic, world.now);
        assert_eq!(sends, expected);
        assert!(world.frames(stream)[0].starts_with(&format!("HEADERS :status: {code}")));
    }
}

#[test]
fn informational_heads_and_trailers() {
    let mut world = World::default();
    let id = world.get(0);
    let early = Status::new(103).expect("a status");
    let link = [(&b"link"[..], &b"</a>"[..])];
    world.engine.inform(id, early, link, &mut world.quic, world.now);
    let switching = Status::new(101).expect("a status");
    world.engine.inform(id, switching, [], &mut world.quic, world.now);
    world.respond(id, BodyLength::Unknown);
    world.engine.inform(id, early, link, &mut world.quic, world.now);
    world.body(id, b"x");
    let trailer = [(&b"Digest"[..], &b"y"[..])];
    world.engine.trailers(id, trailer, &mut world.quic, world.now);
    assert!(world.quic.outgoing[&0].has_ended);
    let expected = [
        "HEADERS :status: 103, link: </a>",
        "HEADERS :status: 200, server: sekisho",
        "DATA 1 x",
        "HEADERS digest: y",
    ];
    assert_eq!(world.frames(0), expected);
    world.finish(id);
    assert_eq!(world.quic.outgoing[&0].reset, None);
}

#[test]
fn a_response_to_head_has_no_body() {
    let mut world = World::default();
    let mut head = GET;
    head[0].1 = "HEAD";
    world.send(0, &headers(&head), true);
    let id = world.request();
    assert_eq!(world.respond(id, BodyLength::Known(5)), Sends::Nothing);
    assert_eq!(world.frames(0), ["HEADERS :status: 200, content-length: 5, server: sekisho"]);
    assert!(world.quic.outgoing[&0].has_ended);
}

#[test]
fn our_own_streams_are_opened_when_the_client_allows_it() {
    let mut world = World::new(sekisho_http3::Policy::default());
    assert_eq!(world.quic.unis, 0);
    let mut late = crate::harness::closed_to_unis();
    assert!(late.quic.outgoing.is_empty());
    late.quic.unis = 3;
    assert_eq!(late.poll(), []);
    assert_eq!(late.quic.outgoing.len(), 3);
    assert_eq!(world.poll(), []);
}
