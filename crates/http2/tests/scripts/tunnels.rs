//! WebSocket over HTTP/2: extended CONNECT (RFC 8441, U6).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http2::frame::{PREFACE, setting};
use sekisho_http2::{BodyLength, Cause, Code, Event, Loss, Malformed, StreamId};

use crate::harness::{GET, Peer, Sent, data, headers, policy, reset, settings, settings_ack};

const CONNECT: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat"),
    (":authority", "a"),
];

fn upgrade(peer: &mut Peer, id: StreamId) -> bool {
    let fields: [(&[u8], &[u8]); 1] = [(b"Sec-WebSocket-Protocol", b"p")];
    peer.engine.upgrade(id, fields, &mut peer.scratch, peer.now)
}

/// A tunnel that is open, on stream 1.
fn open(peer: &mut Peer) -> StreamId {
    let id = peer.requests(1, &CONNECT, false);
    assert_eq!(peer.takes_body(id, Some(0)), Ok(()));
    assert_eq!(peer.sends([]), [Event::BodyEnd(id)], "the request has no body");
    assert!(upgrade(peer, id));
    peer.flushes();
    id
}

#[test]
fn the_setting_allows_extended_connect() {
    let mut peer = Peer::fresh(policy(|_| {}));
    peer.sends([&PREFACE[..], &settings(&[]), &settings_ack()].concat());
    let wanted = [&setting::ENABLE_CONNECT_PROTOCOL.to_be_bytes()[..], &[0, 0, 0, 1]].concat();
    assert!(peer.scratch.out.windows(wanted.len()).any(|part| part == wanted));
}

#[test]
fn a_tunnel_is_a_response_without_a_length_and_a_body_without_an_end() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &CONNECT, false);
    assert!(!peer.engine.request_has_body(id));
    assert_eq!(peer.takes_body(id, Some(0)), Ok(()));
    // The bytes wait until the tunnel is open.
    assert_eq!(peer.sends(data(1, b"early", false)), [Event::BodyEnd(id)]);
    assert_eq!(peer.takes_body(id, Some(0)), Ok(()), "another handler may ask again");
    assert_eq!(peer.sends([]), []);
    assert!(upgrade(&mut peer, id));
    assert_eq!(peer.sends([]), [Event::Stored(id)]);
    assert_eq!(peer.scratch.body, b"early");
    let fields = [":status: 200", "sec-websocket-protocol: p"].map(String::from).to_vec();
    let frames = peer.flushes();
    assert_eq!(frames[0], Sent::Headers { stream: 1, fields, ends: false }, "{frames:?}");
    assert_eq!(peer.sends(data(1, b"more", false)), [Event::Body(id, 9..13)]);
    assert_eq!(peer.bodies(id, b"echo"), 4);
    assert_eq!(peer.flushes(), [Sent::Data { stream: 1, len: 4, ends: false }]);
    assert!(!upgrade(&mut peer, id), "it is open");
}

#[test]
fn a_silent_tunnel_has_no_deadline_of_the_engine() {
    let mut peer = Peer::open();
    let id = open(&mut peer);
    assert_eq!(peer.engine.stream_deadline(id), None);
    assert_eq!(peer.after(Duration::from_hours(10)).expires(), []);
    assert_eq!(peer.sends(data(1, b"x", false)), [Event::Body(id, 9..10)]);
    assert_eq!(peer.engine.stream_deadline(id), None);
}

#[test]
fn both_sides_end_by_themselves() {
    // M3
    let mut peer = Peer::open();
    let id = open(&mut peer);
    assert_eq!(peer.sends(data(1, b"bye", true)), [Event::Body(id, 9..12), Event::BodyEnd(id)]);
    assert_eq!(peer.bodies(id, b"bye"), 3);
    peer.finishes(id);
    let ends = Sent::Data { stream: 1, len: 0, ends: true };
    assert_eq!(peer.flushes(), [Sent::Data { stream: 1, len: 3, ends: false }, ends.clone()]);
    assert_eq!(peer.engine.open_streams(), 0);
    // The server ends first: the client has time to end its side.
    let mut peer = Peer::open();
    let id = open(&mut peer);
    peer.finishes(id);
    assert_eq!(peer.flushes(), [ends]);
    assert_eq!(peer.sends(data(1, b"", true)), []);
    assert_eq!(peer.flushes(), []);
}

#[test]
fn a_reset_ends_a_tunnel() {
    // M3
    let mut peer = Peer::open();
    let id = open(&mut peer);
    let lost = Event::ClientLost(id, Loss::Reset(Code::Cancel.number()));
    assert_eq!(peer.sends(reset(1)), [lost]);
    let mut peer = Peer::open();
    let id = open(&mut peer);
    peer.engine.reset(id, Code::Internal, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::Internal.number())]);
}

#[test]
fn a_tunnel_that_is_not_taken_stays_within_its_window() {
    // M5
    let mut peer = Peer::new(policy(|policy| {
        (policy.stream_window_bytes, policy.upload_window_bytes) = (1000, 1000);
    }));
    let id = open(&mut peer);
    peer.engine.hold_body(id, true, peer.now);
    assert_eq!(peer.sends(data(1, &[b'x'; 1000], false)), []);
    assert_eq!(peer.flushes(), []);
    peer.engine.hold_body(id, false, peer.now);
    assert_eq!(peer.sends([]), [Event::Stored(id)]);
    peer.engine.consumed(id, 1000, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes(), [Sent::Window(1, 1000)]);
}

#[test]
fn a_refused_tunnel_has_a_response() {
    let mut peer = Peer::open();
    let id = peer.requests(1, &CONNECT, false);
    peer.heads(id, Status::NOT_FOUND, BodyLength::Empty);
    peer.finishes(id);
    let frames = peer.flushes();
    let head = matches!(&frames[0], Sent::Headers { ends: true, fields, .. } if fields[0] == ":status: 404");
    assert!(head && frames[1..] == [Sent::Reset(1, 0)], "{frames:?}");
    assert!(!upgrade(&mut peer, id));
    // A request that asks for no tunnel gets none.
    let id = peer.requests(3, &GET, false);
    assert!(!upgrade(&mut peer, id));
    let mut other = CONNECT;
    other[1].1 = "connect-udp";
    let events = peer.sends(headers(5, &other, false));
    let [Event::Refused(_, refusal)] = events[..] else { panic!("{events:?}") };
    assert_eq!((refusal.status.code(), refusal.cause), (501, Cause::ProtocolUnknown));
}

#[test]
fn a_header_block_in_a_tunnel_is_malformed() {
    let mut peer = Peer::open();
    let id = open(&mut peer);
    let events = peer.sends(headers(1, &[("x", "y")], true));
    let malformed = Event::Malformed(1, Malformed::TrailersInTunnel);
    assert!(events.contains(&malformed), "{events:?}");
    assert!(events.contains(&Event::ClientLost(id, Loss::Violation)), "{events:?}");
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::Protocol.number())]);
}
