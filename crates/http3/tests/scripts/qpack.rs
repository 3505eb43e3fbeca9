//! The dynamic tables of both sides (RFC 9204).

use std::time::Duration;

use sekisho_http3::frame::kind;
use sekisho_http3::qpack::Decoder;
use sekisho_http3::{BodyLength, Code, Event, Loss, Policy};
use sekisho_lifecycle::DeadlineKind;

use crate::harness::{
    CONTROL, DECODER, ENCODER, World, body_of, control, data, fields, frame_of, integer, post,
};

/// Set the capacity to 4096, insert `:path /a`.
const INSTRUCTIONS: [u8; 8] = [2, 0x3f, 0xe1, 0x1f, 0xc1, 2, b'/', b'a'];
/// A GET of `:path` from entry 0: required insert count 1, base 1.
const REQUEST: [u8; 9] = [2, 0, 0xd1, 0xd7, 0x50, 1, b'h', 0x80, 0];

fn request() -> Vec<u8> {
    frame_of(kind::HEADERS, &REQUEST[..8])
}

#[test]
fn a_request_waits_for_its_entries() {
    for read_max in [usize::MAX, 1] {
        let mut world = World::default();
        world.quic.read_max = read_max;
        world.send(0, &[request(), data(b"body")].concat(), true);
        assert_eq!(world.poll(), []);
        // Others are not delayed.
        let other = world.get(4);
        world.serve(other);
        world.send(ENCODER, &INSTRUCTIONS, false);
        let id = world.request();
        assert_eq!((world.scratch.head.target(), id.number()), (&b"/a"[..], 0));
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        assert_eq!(body_of(&world.poll(), id), (b"body".to_vec(), true));
        // The section's acknowledgement says that the entry is there: no increment is needed. It may have been told
        // before, where the bytes came one by one.
        let told = &world.quic.outgoing[&11].bytes[1..];
        assert!(told == [0x80] || told == [0x01, 0x80], "{told:x?}");
        world.serve(id);
    }
}

#[test]
fn entries_that_no_request_has_used_are_acknowledged_by_their_count() {
    let mut world = World::default();
    world.send(ENCODER, &INSTRUCTIONS, false);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x01]);
    // Again by duplication.
    world.send(ENCODER, &[0x00, 0x00], false);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x01, 0x02]);
    world.send(0, &request(), true);
    world.request();
    world.poll();
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x01, 0x02, 0x80]);
}

#[test]
fn blocked_streams_are_bounded() {
    // Q4
    let mut world = World::default();
    for stream in 0..16 {
        world.send(4 * stream, &request(), true);
    }
    assert_eq!(world.poll(), []);
    world.send(64, &request(), true);
    world.poll();
    assert!(world.is_closed_with(Code::DecompressionFailed));
}

#[test]
fn a_blocked_request_has_the_deadline_of_its_head() {
    let mut world = World::default();
    let first = world.get(0);
    world.send(4, &request(), true);
    world.send(ENCODER, &INSTRUCTIONS[..4], false);
    assert_eq!(world.poll(), []);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.expire(), []);
    assert_eq!(world.quic.outgoing[&4].reset, Some(Code::RequestIncomplete.number()));
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x44], "cancelled");
    // Its entry comes late and is of no use to it.
    world.send(ENCODER, &INSTRUCTIONS[4..], false);
    assert_eq!(world.poll(), []);
    world.serve(first);
    assert!(world.engine.is_idle());
}

#[test]
fn a_cancelled_request_is_told_to_the_encoder() {
    // RFC 9204 §2.2.2.2
    let mut world = World::default();
    world.send(ENCODER, &INSTRUCTIONS[..4], false);
    world.send(0, &request(), false);
    assert_eq!(world.poll(), []);
    world.client_resets(0, Code::RequestCancelled);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&11].bytes, [3], "a blocked stream is not read");
    world.client_stops(0, Code::RequestCancelled);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x40]);
    // And a body that is not read.
    world.send(4, &post(&[]), false);
    let id = world.request();
    world.respond(id, BodyLength::Empty);
    world.finish(id);
    assert_eq!(world.quic.outgoing[&11].bytes, [3, 0x40, 0x44]);
}

#[test]
fn trailers_may_wait_as_well() {
    let mut world = World::default();
    let trailers = frame_of(kind::HEADERS, &[2, 0, 0x40, 1, b'x']);
    world.send(0, &[post(&[]), data(b"a"), trailers].concat(), true);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    assert_eq!(body_of(&world.poll(), id), (b"a".to_vec(), false));
    // Insert `etag: y`, whose name the trailer has.
    world.send(ENCODER, &[2, 0x3f, 0xe1, 0x1f, 0xc7, 1, b'y'], false);
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
    world.serve(id);
}

#[test]
fn repeated_fields_of_responses_come_from_the_table() {
    let mut world = World::new(Policy::default());
    world.send(CONTROL, &control(&[(1, 4096), (7, 0)]), false);
    assert_eq!(world.poll(), []);
    let mut decoder = Decoder::new(4096);
    let mut read = 1;
    let mut lengths = Vec::new();
    for turn in 0..6 {
        let stream = 4 * turn;
        let id = world.get(stream);
        world.respond(id, BodyLength::Empty);
        world.finish(id);
        let instructions = world.quic.outgoing[&7].bytes[read..].to_vec();
        read += instructions.len();
        decoder.receive(&instructions, &mut Vec::new(), None).expect("ours");
        let out = &world.quic.outgoing[&stream].bytes;
        assert_eq!(out[0], 1);
        lengths.push(out.len());
        assert_eq!(fields(&decoder, &out[2..]), ":status: 200, content-length: 0, server: sekisho");
        let mut told = if turn == 0 { vec![3] } else { Vec::new() };
        let increment = decoder.take_increment();
        if increment > 0 {
            told.extend(integer(0, 6, increment));
        }
        if out[2] > 0 {
            told.extend(integer(0x80, 7, stream));
        }
        world.send(DECODER, &told, false);
        world.engine.delivered(stream);
        assert_eq!(world.poll(), []);
    }
    assert!(lengths[0] == lengths[1] && lengths[2] + 7 <= lengths[0], "{lengths:?}");
    assert!(lengths[2..].iter().all(|len| *len == lengths[2]), "{lengths:?}");
}

#[test]
fn a_client_that_never_acknowledges_is_never_sent_a_reference() {
    let mut world = World::new(Policy::default());
    world.send(CONTROL, &control(&[(1, 4096), (7, 100)]), false);
    assert_eq!(world.poll(), []);
    for turn in 0..300 {
        let stream = 4 * turn;
        let id = world.get(stream);
        world.serve(id);
        assert_eq!(world.frames(stream).len(), 1, "decoded without a table");
    }
    assert!(world.engine.capacity() < 16 * 1024, "{}", world.engine.capacity());
}

#[test]
fn acknowledgements_that_the_client_does_not_take_are_bounded() {
    let mut world = World::with(|policy| policy.keepalive_requests = u64::MAX);
    world.quic.out(11).window = 0;
    world.send(ENCODER, &INSTRUCTIONS, false);
    let mut stream = 0;
    while world.quic.closed.is_none() && stream < 4 * 10_000 {
        world.send(stream, &request(), true);
        for event in world.poll() {
            if let Event::Request(id) = event {
                world.respond(id, BodyLength::Empty);
                world.finish(id);
                world.engine.delivered(stream);
            }
        }
        stream += 4;
    }
    assert!(world.is_closed_with(Code::ExcessiveLoad), "{stream}");
    assert!(world.engine.capacity() < 64 * 1024);
}

#[test]
fn a_head_that_is_too_large_is_431_without_being_read() {
    let mut world = World::default();
    let mut bytes = Vec::new();
    sekisho_http3::frame::write_header(&mut bytes, kind::HEADERS, 1 << 40);
    world.send(0, &bytes, false);
    let events = world.poll();
    let [Event::Refused(id, refusal)] = events[..] else { panic!("{events:?}") };
    assert_eq!(refusal.cause, sekisho_http3::Cause::HeadTooLarge);
    world.respond(id, BodyLength::Empty);
    world.finish(id);
    assert!(world.quic.outgoing[&0].has_ended);
    assert_eq!(world.quic.stops[&0], Code::NoError.number());
    // One that is only too large when it is decoded.
    let long = "x".repeat(40_000);
    let head = [&crate::harness::GET[..], &[("a", &long[..])]].concat();
    world.send(4, &crate::harness::headers(&head), true);
    let events = world.poll();
    assert!(
        matches!(events[..], [Event::Refused(_, refusal)] if refusal == sekisho_http3::Cause::HeadTooLarge.into()),
        "{events:?}"
    );
}

#[test]
fn deadlines_of_lost_streams_are_gone() {
    let mut world = World::default();
    world.send(0, &post(&[]), false);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    world.client_resets(0, Code::NoError);
    assert_eq!(world.poll(), [Event::ClientLost(id, Loss::Reset(Code::NoError.number()))]);
    assert_eq!(world.engine.next_deadline(), None);
    world.finish(id);
    let kind = world.engine.next_deadline().map(|deadline| deadline.kind);
    assert_eq!(kind, Some(DeadlineKind::KeepAlive));
}
