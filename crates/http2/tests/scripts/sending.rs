//! Windows, turns and endings of responses (M3, M5, RFC 9218).

use sekisho_http::Status;
use sekisho_http2::frame::{HEADER_BYTES, Kind, flag, setting};
use sekisho_http2::{BodyLength, Code, Event, Loss, Sendable, Sends, StreamId};
use sekisho_lifecycle::Engine;

use crate::harness::{GET, Peer, Sent, frame, policy, settings, window};

/// Lets streams send as their turns come until none may; which streams had their turn.
fn turns(peer: &mut Peer) -> Vec<u32> {
    let mut seen = Vec::new();
    while let Some(Sendable { id, bytes_max }) = peer.engine.next_sendable() {
        assert_eq!(peer.bodies(id, &vec![0; bytes_max]), bytes_max);
        seen.push(id.number());
        assert!(seen.len() < 1000, "turns have no end");
    }
    seen
}

fn streams(peer: &mut Peer, priorities: &[&'static str], length: u64) -> Vec<StreamId> {
    let mut ids = Vec::new();
    for (stream, priority) in (1..).step_by(2).zip(priorities) {
        let mut fields = GET.to_vec();
        if !priority.is_empty() {
            fields.push(("priority", priority));
        }
        let id = peer.requests(stream, &fields, true);
        assert_eq!(peer.heads(id, Status::OK, BodyLength::Known(length)), Sends::Exactly(length));
        peer.is_ready(id);
        ids.push(id);
    }
    ids
}

/// `http2_chunk_size`
#[test]
fn a_frame_is_as_long_as_the_location_of_its_stream_says() {
    let mut peer = Peer::open();
    let (own, other) = (peer.gets(1), peer.gets(3));
    peer.engine.set_policy(own, &policy(|policy| policy.chunk_bytes = 100));
    for id in [own, other] {
        peer.heads(id, Status::OK, BodyLength::Known(20_000));
        peer.is_ready(id);
    }
    assert_eq!((peer.engine.quota(own), peer.engine.quota(other)), (100, 16 * 1024));
}

#[test]
fn nobody_sends_more_than_the_windows_allow() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(200_000));
    peer.is_ready(id);
    assert_eq!(peer.bodies(id, &vec![0; 200_000]), 65_535);
    assert_eq!(peer.engine.next_sendable(), None);
    peer.sends(window(1, 1000));
    assert_eq!(peer.engine.next_sendable(), None, "the connection's window is used up");
    peer.sends(window(0, 10));
    assert_eq!(peer.engine.next_sendable(), Some(Sendable { id, bytes_max: 10 }));
    peer.sends(window(0, 500_000));
    assert_eq!(peer.engine.quota(id), 1000);
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 60_000)]));
    assert_eq!(peer.engine.next_sendable(), None, "a window may become negative");
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 500_000)]));
    assert_eq!(peer.bodies(id, &vec![0; 200_000]), 200_000 - 65_535);
    peer.finishes(id);
    let frames = peer.flushes();
    let sizes: Vec<usize> = frames
        .iter()
        .filter_map(|frame| match frame {
            Sent::Data { len, .. } => Some(*len),
            _ => None,
        })
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 200_000);
    assert!(sizes.iter().all(|size| *size <= 16 * 1024));
    assert!(matches!(frames.last(), Some(Sent::Data { ends: true, .. })), "{:?}", frames.last());
}

#[test]
fn a_window_beyond_the_largest_resets_its_stream() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    let events = peer.sends(window(1, 0x7fff_ffff));
    assert_eq!(events, [Event::ClientLost(id, Loss::Violation)]);
    assert_eq!(peer.flushes(), [Sent::Reset(1, Code::FlowControl.number())]);
    let id = peer.gets(3);
    assert!(peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)])).is_empty());
    assert_eq!(peer.flushes(), [Sent::SettingsAck]);
    assert_eq!(peer.sends(window(3, 1)), [Event::ClientLost(id, Loss::Violation)]);
    peer.gets(5);
    peer.sends(settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    peer.sends(window(5, 1));
    let code = peer.fails(settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)])).1;
    assert_eq!(code, Code::FlowControl.number());
}

#[test]
fn streams_without_a_priority_go_forward_side_by_side() {
    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    streams(&mut peer, &["", "", ""], 3000);
    assert_eq!(turns(&mut peer), [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

/// A short response does not wait until each long one has had its turn, and many short ones stop no long one.
#[test]
fn a_new_response_comes_behind_the_first_that_waits() {
    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    streams(&mut peer, &["", "", ""], 3000);
    let mut seen = Vec::new();
    let mut sends = |peer: &mut Peer| {
        let Sendable { id, bytes_max } = peer.engine.next_sendable().expect("a stream");
        assert_eq!(peer.bodies(id, &vec![0; bytes_max]), bytes_max);
        seen.push(id.number());
    };
    (0..4).for_each(|_| sends(&mut peer));
    for stream in [7, 9, 11, 13] {
        let id = peer.gets(stream);
        peer.heads(id, Status::OK, BodyLength::Known(500));
        peer.is_ready(id);
        if stream > 7 {
            sends(&mut peer);
            sends(&mut peer);
        }
    }
    assert_eq!(seen, [1, 3, 5, 1, 3, 7, 9, 5, 11, 1]);
    assert_eq!(turns(&mut peer), [13, 3, 5]);
}

/// RFC 9218 §10
#[test]
fn the_urgent_go_first_and_the_incremental_share() {
    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    streams(&mut peer, &["u=5", "u=1, i", "u=3", "u=1, i", "u=0"], 2000);
    assert_eq!(turns(&mut peer), [9, 9, 3, 7, 3, 7, 5, 5, 1, 1]);

    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    streams(&mut peer, &["u=2", "u=2", "u=2, i", "u=2, i"], 2000);
    let seen = turns(&mut peer);
    let of = |stream| seen.iter().filter(move |other| **other == stream).count();
    assert!([1, 3, 5, 7].iter().all(|stream| of(*stream) == 2), "{seen:?}");
    let first_of_second = seen.iter().position(|stream| *stream == 3);
    let last_of_first = seen.iter().rposition(|stream| *stream == 1);
    assert!(last_of_first < first_of_second, "one after the other: {seen:?}");
    assert!(seen[..3].contains(&5), "and those that share are not kept waiting: {seen:?}");
}

#[test]
fn a_priority_can_be_changed_later() {
    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    streams(&mut peer, &["u=3", "u=3"], 1000);
    peer.sends(frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x03u=0"));
    assert_eq!(turns(&mut peer), [3, 1]);
}

/// M5: a stream that cannot or need not send has no turn.
#[test]
fn one_streams_stall_delays_no_other() {
    let mut peer = Peer::new(policy(|policy| policy.chunk_bytes = 1000));
    peer.sends([settings(&[(setting::INITIAL_WINDOW_SIZE, 1000)]), window(0, 100_000)].concat());
    let ids = streams(&mut peer, &["u=0", "u=1", "u=2"], 2000);
    peer.engine.set_ready(ids[1], false, peer.now);
    assert_eq!(turns(&mut peer), [1, 5]);
    peer.sends(window(5, 1000));
    assert_eq!(turns(&mut peer), [5]);
    peer.is_ready(ids[1]);
    peer.sends(window(1, 5000));
    assert_eq!(turns(&mut peer), [1, 3]);
}

#[test]
fn a_response_of_unknown_length_ends_when_it_is_finished() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    assert_eq!(peer.heads(id, Status::OK, BodyLength::Unknown), Sends::Stream);
    assert_eq!(peer.bodies(id, b"hello"), 5);
    peer.finishes(id);
    let frames = peer.flushes();
    assert_eq!(
        frames[1..],
        [
            Sent::Data { stream: 1, len: 5, ends: false },
            Sent::Data { stream: 1, len: 0, ends: true }
        ]
    );
    let id = peer.gets(3);
    peer.heads(id, Status::OK, BodyLength::Unknown);
    peer.bodies(id, b"x");
    let trailers: [(&[u8], &[u8]); 1] = [(b"Grpc-Status", b"0")];
    peer.engine.trailers(id, trailers, &mut peer.scratch, peer.now);
    assert_eq!(peer.bodies(id, b"late"), 0);
    peer.finishes(id);
    let fields = vec!["grpc-status: 0".to_string()];
    assert_eq!(peer.flushes()[2..], [Sent::Headers { stream: 3, fields, ends: true }]);
    assert_eq!(peer.engine.next_sent().map(StreamId::number), Some(1));
    assert_eq!(peer.engine.next_sent().map(StreamId::number), Some(3));
}

/// M3, L32: a response that is cut is cut visibly.
#[test]
fn a_cut_response_is_reset_and_never_ended() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(100));
    peer.bodies(id, b"half");
    peer.finishes(id);
    let frames = peer.flushes();
    assert_eq!(frames[1], Sent::Data { stream: 1, len: 4, ends: false });
    assert_eq!(frames[2], Sent::Reset(1, Code::Internal.number()));
    let id = peer.gets(3);
    peer.finishes(id);
    assert_eq!(peer.flushes(), [Sent::Reset(3, Code::Internal.number())]);
    let id = peer.gets(5);
    peer.heads(id, Status::OK, BodyLength::Unknown);
    peer.engine.reset(id, Code::Cancel, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes()[1], Sent::Reset(5, Code::Cancel.number()));
    assert_eq!(peer.engine.next_sent(), None, "none of them was sent");
    assert_eq!(peer.engine.open_streams(), 0);
}

#[test]
fn a_file_is_read_or_sent_right_behind_its_frame_header() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    peer.heads(id, Status::OK, BodyLength::Known(300));
    let at = peer.engine.open_frame(&mut peer.scratch);
    peer.scratch.out.extend_from_slice(&[7; 100]);
    peer.engine.close_frame(id, at, &mut peer.scratch, peer.now);
    let at = peer.engine.open_frame(&mut peer.scratch);
    peer.engine.close_frame(id, at, &mut peer.scratch, peer.now);
    assert_eq!(peer.flushes()[1..], [Sent::Data { stream: 1, len: 100, ends: false }]);
    // Something that waits for a scratch must not come between the header and the file.
    let other = peer.gets(3);
    peer.sends(frame(Kind::Ping, 0, 0, &[0; 8]));
    assert!(!peer.engine.file_frame(id, 201, &mut peer.scratch, peer.now), "longer than the rest");
    assert!(peer.engine.file_frame(id, 200, &mut peer.scratch, peer.now));
    let out = std::mem::take(&mut peer.scratch.out);
    let header = &out[out.len() - HEADER_BYTES..];
    assert_eq!(header, [0, 0, 200, 0, flag::END_STREAM, 0, 0, 0, 1]);
    peer.engine.transmitted(out.len() as u64, true, peer.now);
    assert_eq!(peer.engine.next_sent(), None, "the file has not left");
    peer.engine.transmitted(200, false, peer.now);
    assert_eq!(peer.engine.next_sent(), Some(id));
    peer.finishes(id);
    peer.answers(other, Status::OK);
    assert_eq!(peer.flushes().len(), 2);
}

#[test]
fn a_response_has_left_when_the_transport_took_its_last_byte() {
    // L5
    let mut peer = Peer::open();
    let ids = [peer.gets(1), peer.gets(3)];
    peer.answers(ids[0], Status::OK);
    let first = peer.scratch.out.len() as u64;
    peer.answers(ids[1], Status::OK);
    let both = peer.scratch.out.len() as u64;
    peer.engine.transmitted(first - 1, true, peer.now);
    assert_eq!(peer.engine.next_sent(), None);
    peer.engine.transmitted(1, true, peer.now);
    assert_eq!(peer.engine.next_sent(), Some(ids[0]));
    assert_eq!(peer.engine.next_sent(), None);
    peer.engine.transmitted(both - first, false, peer.now);
    assert_eq!(peer.engine.next_sent(), Some(ids[1]));
}

#[test]
fn a_long_head_goes_in_several_frames() {
    let mut peer = Peer::open();
    let id = peer.gets(1);
    let long = vec![b'\\'; 30_000];
    let fields: [(&[u8], &[u8]); 1] = [(b"x-long", &long)];
    let (scratch, now) = (&mut peer.scratch, peer.now);
    peer.engine.respond(id, Status::OK, BodyLength::Empty, fields, scratch, now);
    let out = std::mem::take(&mut peer.scratch.out);
    let first = sekisho_http2::frame::Header::read(&out).expect("a frame");
    assert_eq!((first.kind, first.flags, first.len), (Kind::Headers, flag::END_STREAM, 16_384));
    let second = &out[HEADER_BYTES + 16_384..];
    let header = sekisho_http2::frame::Header::read(second).expect("a frame");
    assert_eq!((header.kind, header.flags), (Kind::Continuation, flag::END_HEADERS));
    assert_eq!(second.len(), HEADER_BYTES + header.len as usize);
}
