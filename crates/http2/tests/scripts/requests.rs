//! Requests, and what is wrong with frames (M1, V5, V13). h2spec asks much more of this kind.

use sekisho_http::Status;
use sekisho_http2::frame::{Kind, PREFACE, flag, setting};
use sekisho_http2::{BodyLength, Cause, Code, Event, Loss, Malformed, Sends};

use crate::harness::{
    GET, POST, Peer, Sent, block, data, frame, headers, policy, reset, settings, settings_ack,
    window,
};

#[test]
fn a_request_is_answered_on_its_stream() {
    let mut peer = Peer::fresh(policy(|_| {}));
    assert!(peer.sends(b"").is_empty());
    let greeting = peer.flushes();
    assert_eq!(greeting[0], Sent::Settings, "ours come at once");
    peer.sends([&PREFACE[..], &settings(&[])].concat());
    assert_eq!(peer.flushes(), [Sent::SettingsAck]);
    let id = peer.gets(1);
    assert_eq!(peer.scratch.head.target(), b"/");
    assert_eq!(peer.heads(id, Status::OK, BodyLength::Known(5)), Sends::Exactly(5));
    assert_eq!(peer.bodies(id, b"hello, world"), 5, "what goes beyond the length is cut");
    peer.finishes(id);
    let fields = [":status: 200", "content-length: 5", "server: s"].map(String::from).to_vec();
    let expected = [
        Sent::Headers { stream: 1, fields, ends: false },
        Sent::Data { stream: 1, len: 5, ends: true },
    ];
    assert_eq!(peer.flushes(), expected);
    assert_eq!(peer.engine.next_sent(), Some(id));
    assert_eq!(peer.engine.next_sent(), None);
    assert!(peer.engine.is_idle());
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let rows = [
        ("HEAD", Status::OK, BodyLength::Known(9), Some("content-length: 9")),
        ("HEAD", Status::OK, BodyLength::Unknown, None),
        ("GET", Status::NO_CONTENT, BodyLength::Empty, None),
        ("GET", Status::NOT_MODIFIED, BodyLength::Empty, None),
        ("GET", Status::OK, BodyLength::Empty, Some("content-length: 0")),
        ("GET", Status::OK, BodyLength::Known(0), Some("content-length: 0")),
    ];
    for (method, status, length, field) in rows {
        let mut peer = Peer::open();
        let mut fields = GET;
        fields[0].1 = method;
        let id = peer.requests(1, &fields, true);
        assert_eq!(peer.heads(id, status, length), Sends::Nothing);
        assert_eq!(peer.bodies(id, b"unwanted"), 0);
        peer.finishes(id);
        let frames = peer.flushes();
        let [Sent::Headers { fields, ends: true, .. }] = frames.as_slice() else {
            panic!("{frames:?}")
        };
        let length = fields.iter().find(|field| field.starts_with("content-length"));
        assert_eq!(length.map(String::as_str), field, "{method} {status}");
        assert_eq!(peer.engine.next_sent(), Some(id));
    }
}

#[test]
fn streams_are_answered_in_any_order() {
    let mut peer = Peer::open();
    let ids = [1, 3, 5].map(|stream| peer.gets(stream));
    assert_eq!(peer.engine.open_streams(), 3);
    for id in [ids[2], ids[0], ids[1]] {
        peer.answers(id, Status::OK);
    }
    let streams: Vec<u32> = peer
        .flushes()
        .iter()
        .filter_map(|frame| match frame {
            Sent::Data { stream, ends: true, .. } => Some(*stream),
            _ => None,
        })
        .collect();
    assert_eq!(streams, [5, 1, 3]);
    assert_eq!(peer.engine.open_streams(), 0);
}

#[test]
fn a_head_may_come_in_pieces_with_padding_and_priority() {
    let mut peer = Peer::open();
    let fields = block(&GET);
    let (front, back) = fields.split_at(7);
    let mut payload = vec![3, 0x80, 0, 0, 9, 200];
    payload.extend_from_slice(front);
    payload.extend_from_slice(&[0; 3]);
    let flags = flag::PADDED | flag::PRIORITY | flag::END_STREAM;
    assert!(peer.sends(frame(Kind::Headers, flags, 1, &payload)).is_empty());
    assert!(peer.sends(frame(Kind::Continuation, 0, 1, &back[..5])).is_empty());
    assert!(!peer.engine.is_idle(), "the scratch holds the head");
    let events = peer.sends(frame(Kind::Continuation, flag::END_HEADERS, 1, &back[5..]));
    assert!(matches!(events.as_slice(), [Event::Request(_)]), "{events:?}");
}

#[test]
fn informational_heads_come_before_the_response() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    let hints = Status::new(103).expect("a status");
    let link: [(&[u8], &[u8]); 1] = [(b"link", b"</a>")];
    peer.engine.inform(id, hints, link, &mut peer.scratch, peer.now);
    peer.engine.inform(id, Status::SWITCHING_PROTOCOLS, [], &mut peer.scratch, peer.now);
    peer.answers(id, Status::OK);
    peer.engine.inform(id, hints, link, &mut peer.scratch, peer.now);
    let frames = peer.flushes();
    let fields = [":status: 103", "link: </a>"].map(String::from).to_vec();
    assert_eq!(frames[0], Sent::Headers { stream: 1, fields, ends: false });
    assert_eq!(frames.len(), 3, "{frames:?}");
}

#[test]
fn fields_that_would_break_a_response_are_left_out() {
    // V5, and RFC 9113 §8.2.2
    let mut peer = Peer::open();
    let id = peer.gets(1);
    let fields: [(&[u8], &[u8]); 9] = [
        (b"Connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"Content-Length", b"7"),
        (b"keep-alive", b"x"),
        (b"a b", b"x"),
        (b"", b"x"),
        (b":status", b"500"),
        (b"X-Split", b"a\r\nb: c"),
        (b"X-Kept", b"yes"),
    ];
    let (scratch, now) = (&mut peer.scratch, peer.now);
    peer.engine.respond(id, Status::OK, BodyLength::Empty, fields, scratch, now);
    let frames = peer.flushes();
    let kept = [":status: 200", "content-length: 0", "x-kept: yes"].map(String::from).to_vec();
    assert_eq!(frames, [Sent::Headers { stream: 1, fields: kept, ends: true }]);
}

#[test]
fn a_malformed_request_is_reset_and_others_go_on() {
    // M4, V5; the rows stand beside the code.
    let mut peer = Peer::open();
    let one = peer.gets(1);
    let mut fields = GET.to_vec();
    fields.push(("connection", "close"));
    let events = peer.sends(headers(3, &fields, true));
    assert_eq!(events, [Event::Malformed(3, Malformed::ConnectionField)]);
    assert_eq!(peer.flushes(), [Sent::Reset(3, Code::Protocol.number())]);
    assert!(peer.sends(data(3, b"late", false)).is_empty(), "we reset it: it is ignored");
    assert!(peer.flushes().is_empty());
    peer.answers(one, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
    peer.gets(5);
}

#[test]
fn a_head_beyond_the_limit_is_431_on_its_stream() {
    let mut peer = Peer::new(policy(|policy| policy.head_bytes_max = 400));
    let long = "x".repeat(300);
    let mut fields = GET.to_vec();
    fields.push(("a", &long));
    let events = peer.sends(headers(1, &fields, true));
    let [Event::Refused(id, refusal)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(refusal.cause, Cause::HeadTooLarge);
    assert_eq!(refusal.status, Status::HEADER_TOO_LARGE);
    peer.answers(*id, refusal.status);
    assert_eq!(peer.flushes().len(), 2);
    peer.gets(3);
}

/// RFC 9113: what ends the connection, and with which code.
#[test]
fn violations_end_the_connection_with_their_code() {
    let huge = frame(Kind::Headers, 0, 1, &vec![0; 16_385]);
    let cut = frame(Kind::Headers, 0, 1, &block(&GET));
    let rows: Vec<(&str, Vec<u8>, Code)> = vec![
        ("a frame that is too long", huge, Code::FrameSize),
        ("HEADERS on stream 0", headers(0, &GET, true), Code::Protocol),
        ("HEADERS on an even stream", headers(2, &GET, true), Code::Protocol),
        ("DATA on stream 0", data(0, b"x", true), Code::Protocol),
        ("DATA on an unused stream", data(1, b"x", true), Code::Protocol),
        ("padding that is too long", frame(Kind::Headers, 0xc, 1, &[9, 0, 0]), Code::Protocol),
        ("PADDED without a length", frame(Kind::Headers, 0xc, 1, &[]), Code::FrameSize),
        ("PRIORITY that is cut", frame(Kind::Headers, 0x24, 1, &[0; 4]), Code::FrameSize),
        ("CONTINUATION alone", frame(Kind::Continuation, 4, 1, &[]), Code::Protocol),
        ("a frame within a block", [cut.clone(), settings(&[])].concat(), Code::Protocol),
        ("DATA within a block", [cut.clone(), data(1, b"", true)].concat(), Code::Protocol),
        (
            "CONTINUATION of another stream",
            [cut, frame(Kind::Continuation, 4, 3, &[])].concat(),
            Code::Protocol,
        ),
        ("a block that cannot be decoded", frame(Kind::Headers, 5, 1, &[0x80]), Code::Compression),
        ("RST_STREAM on an unused stream", reset(1), Code::Protocol),
        ("RST_STREAM that is cut", frame(Kind::RstStream, 0, 1, &[0; 3]), Code::FrameSize),
        ("SETTINGS on a stream", frame(Kind::Settings, 0, 1, &[]), Code::Protocol),
        ("SETTINGS that are cut", frame(Kind::Settings, 0, 0, &[0; 5]), Code::FrameSize),
        ("an ACK with settings", frame(Kind::Settings, 1, 0, &[0; 6]), Code::FrameSize),
        ("a bad ENABLE_PUSH", settings(&[(setting::ENABLE_PUSH, 2)]), Code::Protocol),
        (
            "a window too large",
            settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
            Code::FlowControl,
        ),
        ("a frame size too small", settings(&[(setting::MAX_FRAME_SIZE, 100)]), Code::Protocol),
        ("a frame size too large", settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)]), Code::Protocol),
        ("PUSH_PROMISE", frame(Kind::PushPromise, 4, 1, &[0; 4]), Code::Protocol),
        ("PING on a stream", frame(Kind::Ping, 0, 1, &[0; 8]), Code::Protocol),
        ("PING that is cut", frame(Kind::Ping, 0, 0, &[0; 7]), Code::FrameSize),
        ("GOAWAY on a stream", frame(Kind::GoAway, 0, 1, &[0; 8]), Code::Protocol),
        ("GOAWAY that is cut", frame(Kind::GoAway, 0, 0, &[0; 7]), Code::FrameSize),
        ("WINDOW_UPDATE that is cut", frame(Kind::WindowUpdate, 0, 0, &[0; 3]), Code::FrameSize),
        ("WINDOW_UPDATE by nothing", window(0, 0), Code::Protocol),
        ("WINDOW_UPDATE on an unused stream", window(1, 1), Code::Protocol),
        ("WINDOW_UPDATE beyond the largest", window(0, 0x7fff_ffff), Code::FlowControl),
        ("PRIORITY on stream 0", frame(Kind::Priority, 0, 0, &[0; 5]), Code::Protocol),
        ("PRIORITY that is cut", frame(Kind::Priority, 0, 1, &[0; 4]), Code::FrameSize),
        (
            "PRIORITY_UPDATE that is cut",
            frame(Kind::PriorityUpdate, 0, 0, &[0; 3]),
            Code::FrameSize,
        ),
        ("PRIORITY_UPDATE of stream 0", frame(Kind::PriorityUpdate, 0, 0, &[0; 4]), Code::Protocol),
    ];
    for (what, bytes, code) in rows {
        let mut peer = Peer::open();
        let (events, seen) = peer.fails(&bytes);
        assert_eq!((seen, events), (code.number(), vec![]), "{what}");
    }
}

#[test]
fn a_connection_begins_with_a_preface() {
    let mut peer = Peer::fresh(policy(|_| {}));
    assert_eq!(peer.fails(b"GET / HTTP/1.1\r\n\r\n").1, Code::Protocol.number());
}

/// As in nginx: a client that names no settings has the initial ones.
#[test]
fn settings_need_not_come_first() {
    for first in [Vec::new(), settings_ack(), settings(&[])] {
        let mut peer = Peer::fresh(policy(|_| {}));
        peer.sends([&PREFACE[..], &first].concat());
        peer.flushes();
        let id = peer.gets(1);
        peer.heads(id, Status::OK, BodyLength::Empty);
        peer.finishes(id);
        assert!(matches!(peer.flushes()[..], [Sent::Headers { stream: 1, ends: true, .. }]));
    }
}

#[test]
fn a_violation_of_the_connection_loses_every_stream() {
    let mut peer = Peer::open();
    let ids = [peer.gets(1), peer.requests(3, &POST, false)];
    let (events, _) = peer.fails(frame(Kind::Ping, 0, 0, &[0; 7]));
    assert_eq!(events, ids.map(|id| Event::ClientLost(id, Loss::Connection)));
    for id in ids {
        peer.answers(id, Status::OK);
    }
    assert!(peer.flushes().is_empty(), "nothing is said after the last word");
    assert_eq!(peer.engine.open_streams(), 0);
}

#[test]
fn numbers_of_streams_rise() {
    let mut peer = Peer::open();
    let id = peer.gets(5);
    peer.answers(id, Status::OK);
    peer.flushes();
    assert_eq!(peer.fails(headers(3, &GET, true)).1, Code::Protocol.number());
    let mut peer = Peer::open();
    let id = peer.gets(5);
    peer.answers(id, Status::OK);
    assert_eq!(peer.fails(headers(5, &GET, true)).1, Code::StreamClosed.number());
}

#[test]
fn frames_of_unknown_kinds_are_skipped() {
    let mut peer = Peer::open();
    let mut bytes = frame(Kind::Unknown, 0xff, 77, &[1; 300]);
    bytes.extend_from_slice(&headers(1, &GET, true));
    assert!(matches!(peer.sends(&bytes).as_slice(), [Event::Request(_)]));
}

#[test]
fn streams_beyond_the_limit_may_be_tried_again() {
    let mut peer = Peer::new(policy(|policy| policy.streams_max = 2));
    let one = peer.gets(1);
    peer.gets(3);
    assert!(peer.sends(headers(5, &GET, true)).is_empty());
    assert_eq!(peer.flushes(), [Sent::Reset(5, Code::RefusedStream.number())]);
    peer.answers(one, Status::OK);
    peer.gets(7);
}
