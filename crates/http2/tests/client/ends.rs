//! How exchanges and connections end: resets, GOAWAY, cancels, closes, deadlines, floods.

use sekisho_http::upstream::{
    BodyFault, Failure, NotReusable, Phase, RequestBody, RequestFault, UpstreamProtocol,
};
use sekisho_http2::frame::{self, Kind, flag, setting};
use sekisho_http2::hpack::Decoder;
use sekisho_lifecycle::{DeadlineKind, Engine, Stage};

use crate::frames::{data, frame, go_away, headers, host, ok, reset, sent, settings, task};
use crate::harness::{Seen, seconds};

#[test]
fn a_reset_is_a_failure_and_tells_whether_the_request_was_processed() {
    for (code, expected) in
        [(7, Failure::NotTaken), (0, Failure::Rejected(0)), (8, Failure::Rejected(8))]
    {
        let mut task = task();
        task.starts("POST", &host(), RequestBody::None);
        task.gets(reset(1, code));
        assert_eq!(task.seen, [Seen::Failed(expected)]);
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
    // Within an answer it is cut, and may have been processed.
    let mut begun = task();
    begun.starts("POST", &host(), RequestBody::None);
    begun.gets([ok(1), data(1, b"part", false), reset(1, 7)].concat());
    assert_eq!(begun.seen.last(), Some(&Seen::Failed(Failure::Rejected(7))));
    // Behind a whole answer it says nothing more (RFC 9113 §8.1).
    let mut whole = task();
    whole.starts("POST", &host(), RequestBody::None);
    whole.gets([ok(1), data(1, b"x", true), reset(1, 0)].concat());
    assert_eq!(whole.seen.last(), Some(&Seen::End));
    assert_eq!(whole.reuse(), Ok(()));
}

#[test]
fn go_away_names_the_requests_that_were_not_taken() {
    // It is answered, and is the last one.
    let mut last = task();
    last.starts("GET", &host(), RequestBody::None);
    last.gets([go_away(1, 0), ok(1), data(1, b"x", true)].concat());
    assert_eq!(last.seen.last(), Some(&Seen::End));
    assert_eq!(last.reuse(), Err(NotReusable::PeerAsked));
    // It is not.
    let mut refused = task();
    refused.starts("GET", &host(), RequestBody::None);
    refused.gets(go_away(0, 0));
    assert_eq!(refused.seen, [Seen::Failed(Failure::NotTaken)]);
    // Between two requests.
    let mut idle = task();
    idle.starts("GET", &host(), RequestBody::None);
    idle.gets([ok(1), data(1, b"", true)].concat());
    assert_eq!(idle.reuse(), Ok(()));
    idle.gets(go_away(1, 0));
    assert_eq!(idle.reuse(), Err(NotReusable::PeerAsked));
    assert!(matches!(idle.engine.stage(), Stage::Closed(_)));
    assert_eq!(idle.seen.last(), Some(&Seen::End), "nobody has to know");
}

/// C6: what is given up is said, and the connection goes on; late frames of it mean nothing.
#[test]
fn a_cancelled_request_leaves_the_connection_usable() {
    let mut task = task();
    let mut decoder = Decoder::default();
    task.starts("POST", &host(), RequestBody::Unknown);
    task.body(b"abc");
    // In the midst of a DATA frame.
    let mut late = data(1, b"0123456789", false);
    let rest = late.split_off(14);
    task.gets([ok(1), late].concat());
    sent(&mut task, &mut decoder);
    assert!(task.engine.cancel(&mut task.scratch, task.now));
    assert_eq!(sent(&mut task, &mut decoder), ["RESET 1 8"]);
    assert_eq!(task.reuse(), Ok(()));
    assert_eq!(task.deadline(), None);
    task.gets([rest, headers(1, &[("x", "late")], true), reset(1, 8)].concat());
    task.starts("GET", &host(), RequestBody::None);
    task.gets([headers(3, &[(":status", "404")], false), data(3, b"z", true)].concat());
    let seen = [
        Seen::Head(200),
        Seen::Body(b"01234".to_vec()),
        Seen::Head(404),
        Seen::Body(b"z".to_vec()),
        Seen::End,
    ];
    assert_eq!(task.seen, seen);
    // What has not left cannot be taken back.
    task.tries("GET", &host(), RequestBody::None).expect("sound");
    assert!(!task.engine.cancel(&mut task.scratch, task.now));
}

#[test]
fn an_end_of_the_connection_is_never_the_end_of_an_answer() {
    let mut early = task();
    early.starts("GET", &host(), RequestBody::None);
    early.gets(settings(&[]));
    early.closes();
    assert_eq!(early.seen, [Seen::Failed(Failure::ClosedEarly)]);
    assert!(!early.engine.is_answered(), "another server may be asked");
    let mut cut = task();
    cut.starts("GET", &host(), RequestBody::None);
    cut.gets([ok(1), data(1, b"part", false)].concat());
    assert_eq!(cut.engine.phase(), Phase::ReadingBody);
    cut.closes();
    assert_eq!(cut.seen.last(), Some(&Seen::Failed(Failure::BodyCut)));
    let mut lost = task();
    lost.starts("GET", &host(), RequestBody::None);
    let event = lost.engine.lost(Some(104), lost.now);
    assert_eq!(event, Some(sekisho_http::upstream::Event::Failed(Failure::Lost(Some(104)))));
}

#[test]
fn a_silent_server_is_left_after_its_time() {
    let mut task = task();
    task.tries("GET", &host(), RequestBody::None).expect("sound");
    assert_eq!(task.deadline(), Some((seconds(10), DeadlineKind::UpstreamSend)));
    task.flush();
    assert_eq!(task.deadline(), Some((seconds(20), DeadlineKind::UpstreamRead)));
    // A PING is no sign of life of the request (T5).
    task.now = seconds(15);
    task.gets(frame(Kind::Ping, 0, 0, &[0; 8]));
    task.flush();
    assert_eq!(task.deadline(), Some((seconds(20), DeadlineKind::UpstreamRead)));
    task.gets(ok(1));
    assert_eq!(task.deadline(), Some((seconds(35), DeadlineKind::UpstreamRead)));
    task.expires(seconds(35));
    assert_eq!(task.seen, [Seen::Head(200), Seen::Failed(Failure::ReadTimeout)]);
}

/// A body that is longer in coming than the answer: the server is not late while the client is silent.
#[test]
fn nobody_is_late_while_the_client_has_nothing_to_say() {
    let mut task = task();
    task.starts("POST", &host(), RequestBody::Unknown);
    assert_eq!(task.deadline(), None);
    task.body(b"x");
    assert_eq!(task.deadline(), None);
    task.end_body();
    assert_eq!(task.deadline(), Some((seconds(20), DeadlineKind::UpstreamRead)));
}

/// A body that is shorter than was declared must not look whole.
#[test]
fn a_short_body_ends_the_connection() {
    let mut task = task();
    task.starts("POST", &host(), RequestBody::Known(5));
    task.body(b"abc");
    let ended = task.engine.end_body(&mut task.scratch, task.now);
    assert_eq!(ended, Err(RequestFault::BodyShort));
    assert!(task.scratch.out.is_empty(), "no END_STREAM");
    assert_eq!(task.reuse(), Err(NotReusable::Failed));
}

/// V10: frames that mean nothing are bounded, also between requests.
#[test]
fn a_flood_ends_the_connection() {
    let floods: [Vec<u8>; 6] = [
        frame(Kind::Ping, 0, 0, &[0; 8]),
        settings(&[]),
        frame(Kind::Unknown, 0, 0, b"x"),
        frame(Kind::Priority, 0, 1, &[0; 5]),
        data(1, b"", false),
        reset(1, 0),
    ];
    for (at, one) in floods.into_iter().enumerate() {
        let mut task = task();
        task.starts("GET", &host(), RequestBody::None);
        task.gets(ok(1));
        if at == 5 {
            task.gets(data(1, b"", true));
        }
        for _ in 0..1200 {
            task.gets(&one);
        }
        let is_over = matches!(task.engine.stage(), Stage::Closed(_));
        assert!(is_over, "{at}");
        if at != 5 {
            assert_eq!(task.seen.last(), Some(&Seen::Failed(Failure::BadBody(BodyFault::Flood))));
        }
        assert!(task.scratch.out.len() < 4096, "{at}: answers are bounded too");
    }
    // V9: a block that never ends.
    let mut endless = task();
    endless.starts("GET", &host(), RequestBody::None);
    endless.gets(frame(Kind::Headers, 0, 1, &[]));
    for _ in 0..200 {
        endless.gets(frame(Kind::Continuation, 0, 1, b""));
    }
    assert!(matches!(endless.seen[..], [Seen::Failed(Failure::BadHead(_))]));
}

#[test]
fn a_server_that_takes_no_stream_is_not_used_again() {
    let mut task = task();
    task.starts("GET", &host(), RequestBody::None);
    task.gets(settings(&[(setting::MAX_CONCURRENT_STREAMS, 0)]));
    task.gets([ok(1), data(1, b"", true)].concat());
    assert_eq!(task.seen.last(), Some(&Seen::End));
    assert_eq!(task.reuse(), Err(NotReusable::PeerAsked));
}

/// An idle connection holds little more than its tables.
#[test]
fn an_idle_connection_holds_little() {
    let mut task = task();
    for at in 0..20 {
        task.starts("GET", &host(), RequestBody::None);
        let stream = 2 * at + 1;
        let mut head = Vec::new();
        frame::header(&mut head, 0, Kind::Headers, 0, stream);
        task.gets(head);
        let block = crate::frames::block(&[(":status", "200"), ("x", "y")]);
        task.gets(frame(Kind::Continuation, flag::END_HEADERS, stream, &block));
        task.gets(data(stream, b"x", true));
    }
    assert_eq!(task.reuse(), Ok(()));
    assert!(task.engine.capacity() < 4096, "{}", task.engine.capacity());
    assert!(size_of_val(&task.engine) < 1024, "{}", size_of_val(&task.engine));
}
