//! The client's control stream, and frames in the wrong place: what h3spec checks of HTTP/3, and more.

use sekisho_http3::frame::kind;
use sekisho_http3::{Code, Event, Loss, Policy};
use sekisho_lifecycle::{CloseReason, Stage};

use crate::harness::{
    CONTROL, DECODER, ENCODER, World, control, data, frame_of, get, number, post,
};

/// Sends bytes on one stream of a connection without SETTINGS, and expects its end.
fn fails(stream: u64, bytes: &[u8], code: Code) {
    for read_max in [usize::MAX, 1] {
        let mut world = World::new(Policy::default());
        world.quic.read_max = read_max;
        world.send(stream, bytes, false);
        let events = world.poll();
        assert!(
            matches!(events[..], [.., Event::Violation(other, _)] if other == code),
            "{bytes:x?}: {events:?} instead of {}",
            code.name()
        );
        assert!(world.is_closed_with(code), "{bytes:x?}");
        assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::OutOfSync));
    }
}

/// What the control stream may begin with.
fn with_settings(more: &[u8]) -> Vec<u8> {
    [&control(&[])[..], more].concat()
}

#[test]
fn the_first_control_frame_is_settings() {
    // RFC 9114 §6.2.1
    for kind in [kind::DATA, kind::HEADERS, kind::GOAWAY, kind::MAX_PUSH_ID, 0x21] {
        let code = match kind {
            kind::SETTINGS => continue,
            _ => Code::MissingSettings,
        };
        fails(CONTROL, &[&[0][..], &frame_of(kind, &[0])].concat(), code);
    }
}

#[test]
fn settings_come_once_and_are_those_of_http3() {
    // RFC 9114 §7.2.4
    fails(CONTROL, &with_settings(&frame_of(kind::SETTINGS, &[])), Code::FrameUnexpected);
    for reserved in [0, 2, 3, 4, 5] {
        fails(CONTROL, &control(&[(reserved, 1)]), Code::Settings);
    }
    fails(CONTROL, &control(&[(6, 1), (6, 1)]), Code::Settings);
    fails(CONTROL, &[0, 4, 1, 6], Code::Frame);
    let many: Vec<_> = (0..100).map(|at| (0x1000 + at, at)).collect();
    fails(CONTROL, &control(&many), Code::Settings);
    fails(CONTROL, &[0, 4, 0x80, 0x10, 0, 0], Code::ExcessiveLoad);
}

#[test]
fn frames_of_requests_do_not_come_on_the_control_stream() {
    // RFC 9114 §7.2
    for kind in [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE, 0x2, 0x6, 0x8, 0x9] {
        fails(CONTROL, &with_settings(&frame_of(kind, &[0])), Code::FrameUnexpected);
    }
}

#[test]
fn control_frames_do_not_come_on_a_request_stream() {
    // RFC 9114 §7.2; before and behind the head
    let kinds = [
        kind::CANCEL_PUSH,
        kind::SETTINGS,
        kind::PUSH_PROMISE,
        kind::GOAWAY,
        kind::MAX_PUSH_ID,
        kind::PRIORITY_UPDATE,
        0x2,
        0x6,
        0x8,
        0x9,
    ];
    for kind in kinds {
        fails(0, &frame_of(kind, &[0]), Code::FrameUnexpected);
        let mut world = World::default();
        world.send(0, &post(&[]), false);
        let id = world.request();
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        world.send(0, &frame_of(kind, &[0]), false);
        let events = world.poll();
        assert!(events.contains(&Event::ClientLost(id, Loss::Connection)), "{events:?}");
        assert!(world.is_closed_with(Code::FrameUnexpected), "{kind:x}");
    }
}

#[test]
fn frames_of_a_request_come_in_order() {
    // RFC 9114 §4.1
    fails(0, &data(b"x"), Code::FrameUnexpected);
    let trailers = crate::harness::headers(&[("a", "b")]);
    for behind in [data(b"x"), trailers.clone()] {
        let mut world = World::default();
        world.send(0, &[post(&[]), data(b"x"), trailers.clone(), behind].concat(), true);
        let id = world.request();
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        world.poll();
        assert!(world.is_closed_with(Code::FrameUnexpected));
    }
}

#[test]
fn pushes_are_numbered_and_there_are_none() {
    // RFC 9114 §7.2.3, §7.2.6, §7.2.7, RFC 9218 §7.2
    let rows = [
        (frame_of(kind::CANCEL_PUSH, &[0]), Code::Id),
        (frame_of(kind::CANCEL_PUSH, &[]), Code::Frame),
        (frame_of(kind::PRIORITY_UPDATE_PUSH, &[0]), Code::Id),
        (frame_of(kind::PRIORITY_UPDATE, &[1]), Code::Id),
        (frame_of(kind::PRIORITY_UPDATE, &[]), Code::Frame),
        (frame_of(kind::MAX_PUSH_ID, &[0x40]), Code::Frame),
        (frame_of(kind::MAX_PUSH_ID, &[1, 1]), Code::Frame),
        (frame_of(kind::GOAWAY, &[]), Code::Frame),
        ([frame_of(kind::MAX_PUSH_ID, &[7]), frame_of(kind::MAX_PUSH_ID, &[6])].concat(), Code::Id),
        ([frame_of(kind::GOAWAY, &[6]), frame_of(kind::GOAWAY, &[7])].concat(), Code::Id),
    ];
    for (frames, code) in rows {
        fails(CONTROL, &with_settings(&frames), code);
    }
    let fine = [
        frame_of(kind::MAX_PUSH_ID, &[6]),
        frame_of(kind::MAX_PUSH_ID, &[6]),
        frame_of(kind::GOAWAY, &[6]),
        frame_of(kind::GOAWAY, &[0]),
    ];
    let mut world = World::default();
    world.send(CONTROL, &fine.concat(), false);
    assert_eq!(world.poll(), []);
    world.get(0);
}

#[test]
fn critical_streams_are_not_closed() {
    // RFC 9114 §6.2.1, RFC 9204 §4.2
    for (stream, bytes) in [(CONTROL, control(&[])), (ENCODER, vec![2]), (DECODER, vec![3])] {
        let mut world = World::new(Policy::default());
        world.send(stream, &bytes, true);
        world.poll();
        assert!(world.is_closed_with(Code::ClosedCriticalStream));
        let mut world = World::new(Policy::default());
        world.send(stream, &bytes, false);
        assert_eq!(world.poll(), []);
        world.client_resets(stream, Code::NoError);
        world.poll();
        assert!(world.is_closed_with(Code::ClosedCriticalStream));
    }
    for ours in [3, 7, 11] {
        let mut world = World::default();
        world.client_stops(ours, Code::NoError);
        world.poll();
        assert!(world.is_closed_with(Code::ClosedCriticalStream));
    }
}

#[test]
fn there_is_one_stream_of_each_critical_type_and_no_push_stream() {
    // RFC 9114 §6.2
    for kind in [0, 2, 3] {
        let mut world = World::new(Policy::default());
        world.send(CONTROL, &[kind], false);
        world.send(ENCODER, &[kind], false);
        world.poll();
        assert!(world.is_closed_with(Code::StreamCreation), "{kind}");
    }
    fails(CONTROL, &[1, 0], Code::StreamCreation);
}

#[test]
fn what_an_extension_may_have_defined_is_ignored() {
    // RFC 9114 §9
    let mut world = World::default();
    let grease = frame_of(0x21, b"anything");
    world.send(CONTROL, &grease, false);
    world.send(ENCODER, &[number(0x21), b"anything".to_vec()].concat(), false);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.stops[&ENCODER], Code::StreamCreation.number());
    let frames = [
        grease.clone(),
        post(&[]),
        grease.clone(),
        data(b"ab"),
        frame_of(0x40, &[]),
        data(b"c"),
        grease.clone(),
        crate::harness::headers(&[("a", "b")]),
        grease,
    ];
    world.send(0, &frames.concat(), true);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    assert_eq!(crate::harness::body_of(&world.poll(), id), (b"abc".to_vec(), true));
    // A stream that ends before its type is none.
    world.send(14, &[0x40], true);
    world.send(18, &[], true);
    assert_eq!(world.poll(), []);
    world.get(4);
}

#[test]
fn a_request_stream_ends_between_frames() {
    // RFC 9114 §7.1, §4.1
    for len in 1..get().len() {
        let mut world = World::default();
        world.send(0, &get()[..len], true);
        world.poll();
        assert!(world.is_closed_with(Code::Frame), "{len}");
    }
    let mut world = World::default();
    world.send(0, &[], true);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&0].reset, Some(Code::RequestIncomplete.number()));
    assert!(!world.quic.stops.contains_key(&0), "it has ended");
    world.get(4);
}

#[test]
fn qpack_errors_end_the_connection() {
    // RFC 9204 §2.2, §6: an index that no table has, an empty block, more streams blocked than may be.
    fails(0, &frame_of(kind::HEADERS, &[0, 0, 0xff, 0x24]), Code::DecompressionFailed);
    fails(0, &frame_of(kind::HEADERS, &[]), Code::DecompressionFailed);
    fails(0, &frame_of(kind::HEADERS, &[0, 0, 0x80]), Code::DecompressionFailed);
    // A capacity beyond what was announced, an index that does not exist.
    fails(ENCODER, &[2, 0x3f, 0xe2, 0x1f], Code::EncoderStream);
    fails(ENCODER, &[2, 0x00], Code::EncoderStream);
    // An increment of 0, or of something that was not inserted; an acknowledgement of nothing.
    fails(DECODER, &[3, 0x00], Code::DecoderStream);
    fails(DECODER, &[3, 0x01], Code::DecoderStream);
    fails(DECODER, &[3, 0x80], Code::DecoderStream);
}

#[test]
fn streams_that_no_client_opens_are_ignored() {
    let mut world = World::default();
    world.engine.opened(1);
    world.engine.opened(3);
    world.engine.readable(77);
    world.engine.writable(77);
    world.engine.stopped(77, 0);
    world.engine.delivered(77);
    assert_eq!(world.poll(), []);
    world.get(0);
}
