//! Requests out, answers back, and what is left of the connection (U1–U4, U6).

use sekisho_http::upstream::{
    BodyFault, Failure, HeadFault, NotReusable, Phase, RequestBody, RequestFault, Timeouts,
    UpstreamProtocol,
};
use sekisho_http1::Client;
use sekisho_http1::client::Limits;

use crate::harness::{Seen, Task, pairs};

pub(crate) fn task() -> Task<Client> {
    Task::new(Client::new(Limits::default(), Timeouts::default()))
}

/// A task whose GET has left.
pub(crate) fn asked() -> Task<Client> {
    let mut task = task();
    task.starts("GET", &pairs(&[("Host", "a")]), RequestBody::None);
    task
}

fn body(bytes: &[u8]) -> Seen {
    Seen::Body(bytes.to_vec())
}

/// U4: an exchange that ended cleanly leaves the connection for the next one.
#[test]
fn a_connection_carries_one_request_after_the_other() {
    let mut task = asked();
    assert_eq!(task.engine.phase(), Phase::ReadingHead);
    assert_eq!(task.reuse(), Err(NotReusable::Busy));
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(task.seen, [Seen::Head(200), body(b"hello"), Seen::End]);
    assert_eq!((task.reuse(), task.engine.phase()), (Ok(()), Phase::Idle));
    task.seen.clear();
    task.starts("POST", &pairs(&[("Host", "a")]), RequestBody::Known(3));
    task.body(b"abcdef");
    task.end_body();
    assert!(task.wire.ends_with(b"Content-Length: 3\r\n\r\nabc"), "no more than was declared");
    task.gets("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n");
    assert_eq!(task.seen, [Seen::Head(201), body(b"xyz"), Seen::End]);
    assert_eq!(task.reuse(), Ok(()));
}

#[test]
fn a_body_of_unknown_length_leaves_in_chunks() {
    let mut task = task();
    task.starts("PUT", &pairs(&[("Host", "a")]), RequestBody::Unknown);
    task.body(b"0123456789abcdef");
    task.body(b"");
    task.end_body();
    assert!(task.wire.ends_with(b"\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"));
}

/// C5, U3: a request body that ends early must not look whole.
#[test]
fn a_request_body_that_is_too_short_ends_the_connection() {
    let mut task = task();
    task.starts("PUT", &pairs(&[("Host", "a")]), RequestBody::Known(9));
    task.body(b"abc");
    let ended = task.engine.end_body(&mut task.scratch, task.now);
    assert_eq!(ended, Err(RequestFault::BodyShort));
    assert_eq!(task.reuse(), Err(NotReusable::Failed));
    let again = task.tries("GET", &pairs(&[("Host", "a")]), RequestBody::None);
    assert_eq!(again, Err(RequestFault::Busy));
}

/// RFC 9110 §15.2: informational answers are events and do not end the exchange.
#[test]
fn informational_answers_are_events() {
    let mut task = asked();
    task.gets("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert_eq!(task.seen, [Seen::Informational(100), Seen::Informational(103)]);
    assert_eq!(task.scratch.head.fields.get("link"), Some(b"</a>".as_slice()));
    task.gets("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(task.seen[2..], [Seen::Head(204), Seen::End]);
    assert_eq!(task.scratch.head.fields.get("link"), None, "each head is its own");
    assert_eq!(task.reuse(), Ok(()));
}

#[test]
fn informational_answers_are_bounded() {
    let mut task = asked();
    task.gets("HTTP/1.1 100 Continue\r\n\r\n".repeat(40));
    assert_eq!(task.seen.len(), 17);
    let fault = Failure::BadHead(HeadFault::TooManyInformational);
    assert_eq!(task.seen.last(), Some(&Seen::Failed(fault)));
}

/// RFC 9112 §6.3: no body follows, whatever the fields say.
#[test]
fn answers_without_a_body_end_with_their_head() {
    let rows: [(&str, &str, Result<(), NotReusable>); 8] = [
        ("HEAD", "200 OK\r\nContent-Length: 5", Ok(())),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked", Ok(())),
        ("HEAD", "200 OK\r\nX: y", Ok(())),
        ("GET", "204 No Content\r\nX: y", Ok(())),
        ("GET", "304 Not Modified\r\nContent-Length: 5", Ok(())),
        ("GET", "200 OK\r\nContent-Length: 0", Ok(())),
        // Whether a body follows is unknown: the answer is sound, the connection is not.
        ("GET", "204 No Content\r\nContent-Length: 5", Err(NotReusable::DeclaredBody)),
        ("GET", "204 No Content\r\nTransfer-Encoding: chunked", Err(NotReusable::DeclaredBody)),
    ];
    for (method, head, reuse) in rows {
        let mut task = task();
        task.starts(method, &pairs(&[("Host", "a")]), RequestBody::None);
        task.gets(format!("HTTP/1.1 {head}\r\n\r\n"));
        assert_eq!(task.seen.len(), 2, "{method} {head}");
        assert_eq!(task.seen[1], Seen::End);
        assert!(!task.scratch.head.has_body);
        assert_eq!(task.reuse(), reuse, "{method} {head}");
    }
}

/// U4: surplus bytes answer no request.
#[test]
fn bytes_behind_an_answer_end_the_connection() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(task.seen, [Seen::Head(200), body(b"hi"), Seen::End]);
    assert_eq!(task.reuse(), Err(NotReusable::Surplus));
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    task.gets("x");
    assert_eq!(task.reuse(), Err(NotReusable::Surplus));
}

/// U3: what was there before the request left is not its answer.
#[test]
fn an_answer_before_its_request_is_refused() {
    let mut task = task();
    task.tries("GET", &pairs(&[("Host", "a")]), RequestBody::None).expect("sound");
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.seen, [Seen::Failed(Failure::BadHead(HeadFault::Unsolicited))]);
}

/// U4: an upstream that closes while idle costs nothing.
#[test]
fn a_close_between_requests_is_no_failure() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    task.closes();
    assert_eq!(task.seen, [Seen::Head(200), Seen::End]);
    assert_eq!(task.reuse(), Err(NotReusable::PeerClosed));
}

/// U1, U2: each way in which an answer is cut, visible as such.
#[test]
fn a_cut_answer_is_seen_as_cut() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rows = [
        ("", Failure::ClosedEarly),
        ("HTTP/1.1 200 OK\r\n", Failure::ClosedEarly),
        ("HTTP/1.1 100 Continue\r\n\r\n", Failure::ClosedEarly),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Failure::BodyCut),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Failure::BodyCut),
        (chunked, Failure::BodyCut),
        (&format!("{chunked}5\r\nhello\r\n"), Failure::BodyCut),
        (&format!("{chunked}5\r\nhello\r\n0\r\n"), Failure::BodyCut),
    ];
    for (text, failure) in rows {
        let mut task = asked();
        task.gets(text);
        task.closes();
        assert_eq!(task.seen.last(), Some(&Seen::Failed(failure)), "{text:?}");
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
}

#[test]
fn an_answer_that_ends_with_the_connection_is_whole_at_its_end() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\n\r\nhello");
    task.gets(" world");
    assert_eq!(task.engine.direct_body(), u64::MAX);
    task.closes();
    assert_eq!(task.seen, [Seen::Head(200), body(b"hello world"), Seen::End]);
    assert_eq!(task.reuse(), Err(NotReusable::CloseDelimited));
}

/// A reset is never a whole answer, also where the end of the connection would be.
#[test]
fn a_lost_connection_cuts_the_answer() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\n\r\nhello");
    let event = task.engine.lost(Some(104), task.now).expect("told");
    assert_eq!(event, sekisho_http::upstream::Event::Failed(Failure::Lost(Some(104))));
    assert_eq!(task.engine.lost(Some(104), task.now), None, "told once");
}

#[test]
fn bad_chunks_are_a_bad_body() {
    for (text, fault) in [
        ("x\r\n", BodyFault::Chunk),
        ("1\nx", BodyFault::Chunk),
        ("1\r\nxy", BodyFault::Chunk),
        ("0\r\nA b\r\n\r\n", BodyFault::Trailer),
        ("0\r\nA: b\x01\r\n\r\n", BodyFault::Trailer),
    ] {
        let mut task = asked();
        task.gets("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        task.gets(text);
        let failed = Seen::Failed(Failure::BadBody(fault));
        assert_eq!(task.seen.last(), Some(&failed), "{text:?}");
    }
}

#[test]
fn trailers_are_kept_without_those_of_the_connection() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n");
    task.gets("Grpc-Status: 0\r\nContent-Length: 7\r\nX:\r\n\r\n");
    assert_eq!(task.seen, [Seen::Head(200), body(b"x"), Seen::End]);
    assert_eq!(task.scratch.trailers, pairs(&[("Grpc-Status", "0"), ("X", "")]));
    assert_eq!(task.reuse(), Ok(()));
}

/// U6: after 101 both directions are a tunnel.
#[test]
fn an_upgrade_makes_a_tunnel() {
    let mut task = task();
    let fields = pairs(&[("Host", "a"), ("Connection", "Upgrade"), ("Upgrade", "websocket")]);
    task.starts("GET", &fields, RequestBody::None);
    task.gets("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nHTTP/1.1");
    assert_eq!(task.seen, [Seen::Upgraded, body(b"HTTP/1.1")]);
    assert_eq!(task.scratch.head.fields, pairs(&[("Upgrade", "websocket")]));
    assert_eq!(task.engine.phase(), Phase::Tunnelling);
    task.body(b"frame");
    assert!(task.wire.ends_with(b"\r\n\r\nframe"));
    task.closes();
    assert_eq!(task.seen.last(), Some(&Seen::End));
    assert_eq!(task.reuse(), Err(NotReusable::Tunnel));
}

#[test]
fn an_upgrade_that_nobody_asked_for_is_refused() {
    let mut task = asked();
    task.gets("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    assert_eq!(task.seen, [Seen::Failed(Failure::BadHead(HeadFault::UpgradeUnasked))]);
}

/// What was sent of a body must not become the beginning of a tunnel.
#[test]
fn an_upgrade_before_the_body_has_ended_is_refused() {
    let refused = Seen::Failed(Failure::BadHead(HeadFault::UpgradeUnasked));
    for (sent, last) in [("ab", refused), ("abc", Seen::Upgraded)] {
        let mut task = task();
        let fields = pairs(&[("Host", "a"), ("Connection", "Upgrade"), ("Upgrade", "x")]);
        task.starts("POST", &fields, RequestBody::Known(3));
        task.body(sent.as_bytes());
        task.gets("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
        assert_eq!(task.seen, [last]);
    }
}

/// An upgrade that the upstream does not take up is an answer as any other.
#[test]
fn an_upgrade_may_be_declined() {
    let mut task = task();
    let fields = pairs(&[("Host", "a"), ("Connection", "Upgrade"), ("Upgrade", "websocket")]);
    task.starts("GET", &fields, RequestBody::None);
    task.gets("HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.seen, [Seen::Head(426), Seen::End]);
    assert_eq!(task.reuse(), Ok(()));
}

/// U4: an answer that came before its request was sent leaves a connection that cannot be reused.
#[test]
fn an_early_answer_ends_the_connection() {
    let mut task = task();
    task.starts("POST", &pairs(&[("Host", "a")]), RequestBody::Known(10));
    task.body(b"abc");
    task.gets("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.seen, [Seen::Head(413), Seen::End]);
    assert_eq!(task.reuse(), Err(NotReusable::RequestUnsent));
    let before = task.wire.len();
    task.body(b"defg");
    assert_eq!(task.wire.len(), before, "nothing more is sent");
}

#[test]
fn either_side_may_ask_for_the_end() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.reuse(), Err(NotReusable::PeerAsked));
    let mut task = asked();
    task.gets("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.reuse(), Err(NotReusable::PeerAsked));
    let mut task = self::task();
    let fields = pairs(&[("Host", "a"), ("Connection", "close")]);
    task.starts("GET", &fields, RequestBody::None);
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(task.reuse(), Err(NotReusable::WeAsked));
}

/// A body that the shell moves itself, past the engine.
#[test]
fn a_body_may_be_taken_past_the_engine() {
    let mut task = asked();
    assert_eq!(task.engine.direct_body(), 0);
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab");
    assert_eq!(task.engine.direct_body(), 8);
    task.engine.body_taken(8, task.now);
    assert_eq!(task.engine.direct_body(), 0);
    task.gets("");
    assert_eq!(task.seen, [Seen::Head(200), body(b"ab"), Seen::End]);
    assert_eq!(task.reuse(), Ok(()));
}
