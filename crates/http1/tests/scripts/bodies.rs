//! Request bodies: taken, unwanted, too large, expected (H2, H6, H7, H9).

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Cause, Event};
use sekisho_lifecycle::{CloseReason, Engine, Stage};

use crate::harness::{GET, Peer, Seen, policy, refused};

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
const EXPECT: &str = "Expect: 100-continue\r\n";

/// The connection is in step: the next request is understood.
fn goes_on(peer: &mut Peer) {
    peer.is_request("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(peer.scratch.head.target(), b"/next");
}

#[test]
fn a_taken_body_comes_as_ranges_of_the_input_and_then_ends() {
    let mut peer = Peer::default();
    peer.is_request(post("Content-Length: 5\r\n", "hel"));
    assert!(peer.engine.request_has_body());
    assert_eq!(peer.engine.body_length(), Some(5));
    assert_eq!(peer.next(), None, "nothing is taken before it is wanted");
    assert!(!peer.engine.wants_input());
    assert_eq!(peer.takes_body(Some(5)), Ok(()));
    assert!(peer.engine.wants_input());
    assert_eq!(peer.next(), Some(Event::Body(0..3)));
    assert_eq!(peer.sends("loGET"), Some(Event::Body(0..2)));
    assert_eq!(peer.next(), Some(Event::BodyEnd));
    assert_eq!(peer.next(), None);
    peer.answers(Status::OK);
    peer.is_request(" /next HTTP/1.1\r\nHost: a\r\n\r\n");

    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, "3;x\r\nhel\r\n2\r\nlo\r\n0\r\nT: u\r\n\r\n"));
    assert_eq!(peer.engine.body_length(), None);
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.next(), Some(Event::Body(5..8)));
    assert_eq!(peer.next(), Some(Event::Body(5..7)));
    assert_eq!(peer.next(), Some(Event::BodyEnd));
    assert!(peer.inbox.is_empty());
}

#[test]
fn an_absent_body_that_is_taken_ends_too() {
    for request in [GET.to_owned(), post("Content-Length: 0\r\n", "")] {
        let mut peer = Peer::default();
        peer.is_request(request);
        assert!(!peer.engine.request_has_body());
        assert_eq!(peer.next(), None);
        peer.takes_body(Some(0)).expect("nothing is not too much");
        assert_eq!(peer.next(), Some(Event::BodyEnd));
        assert_eq!(peer.next(), None);
    }
}

/// H2: an unread body is thrown away behind the response, and the connection kept.
#[test]
fn an_unwanted_body_is_discarded_and_the_connection_kept() {
    for (fields, first, rest) in [
        ("Content-Length: 10\r\n", "", "0123456789"),
        ("Content-Length: 10\r\n", "01234", "56789"),
        (CHUNKED, "5\r\n01", "234\r\n5\r\n56789\r\n0\r\n\r\n"),
    ] {
        let mut peer = Peer::default();
        peer.is_request(post(fields, first));
        peer.answers(Status::NOT_FOUND);
        assert!(!peer.flushes().contains("Connection: close"));
        assert_eq!(peer.next(), None);
        assert!(peer.engine.wants_input());
        assert!(!peer.engine.is_idle());
        assert_eq!(peer.sends(rest), None);
        assert!(peer.engine.is_idle());
        goes_on(&mut peer);
        assert_eq!(peer.seen.len(), 2, "{:?}", peer.seen);
    }
}

/// H2: what is too much to be thrown away closes the connection.
#[test]
fn an_unwanted_body_beyond_the_discard_limit_closes() {
    let small = policy(|policy| policy.body_discard_max = 8);
    let mut peer = Peer::new(small.clone());
    peer.is_request(post("Content-Length: 9\r\n", ""));
    peer.answers(Status::NOT_FOUND);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
    assert_eq!(peer.sends("012345678"), None);
    assert!(peer.inbox.is_empty());
    peer.ends_input();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::OutOfSync));

    let mut peer = Peer::new(small.clone());
    peer.is_request(post("Content-Length: 8\r\n", "01234567"));
    peer.answers(Status::NOT_FOUND);
    assert!(!peer.flushes().contains("Connection: close"));
    goes_on(&mut peer);

    // A chunked one is found out on the way, when the response has left.
    let mut peer = Peer::new(small);
    peer.is_request(post(CHUNKED, "8\r\n01234567\r\n"));
    peer.answers(Status::NOT_FOUND);
    assert!(!peer.flushes().contains("Connection: close"));
    assert_eq!(peer.next(), None);
    assert_eq!(peer.stage(), Stage::Open);
    assert_eq!(peer.sends("1\r\n8"), None);
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// H2: a body that breaks while it is thrown away ends the connection, not the response.
#[test]
fn a_discarded_body_that_breaks_does_not_break_the_response() {
    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, "x"));
    peer.heads(Status::OK, BodyLength::Known(2));
    assert_eq!(peer.next(), None);
    assert!(peer.engine.will_close());
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.finishes();
    assert!(peer.flushes().ends_with("ok"));
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// T7: when the response has begun, a broken body can only be reported to the handler.
#[test]
fn a_taken_body_that_breaks_behind_a_begun_response_loses_the_client() {
    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, "5\r\nhello\r\n"));
    peer.takes_body(Some(5)).expect("not known to be too large");
    assert_eq!(peer.next(), Some(Event::Body(3..8)));
    peer.heads(Status::OK, BodyLength::Unknown);
    assert_eq!(peer.sends("6\r\nworld!"), Some(Event::ClientLost));
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::OutOfSync));
}

/// A handler may answer while it still reads, and stop reading when it has answered.
#[test]
fn a_taken_body_comes_until_the_response_is_finished() {
    let mut peer = Peer::default();
    peer.is_request(post("Content-Length: 6\r\n", "ab"));
    peer.takes_body(None).expect("no limit");
    peer.next();
    peer.heads(Status::OK, BodyLength::Unknown);
    assert_eq!(peer.sends("cd"), Some(Event::Body(0..2)));
    peer.finishes();
    assert_eq!(peer.sends("ef"), None);
    goes_on(&mut peer);
}

/// H6: too large by its length: read to its end, then refused, and the connection kept.
#[test]
fn a_discarded_body_keeps_the_connection_after_413() {
    let mut peer = Peer::default();
    peer.is_request(post("Content-Length: 10\r\n", "012"));
    assert_eq!(peer.takes_body(Some(9)), Ok(()));
    assert_eq!(peer.next(), None);
    assert_eq!(peer.sends("345678"), None, "nothing is answered before its end");
    let event = peer.sends("9");
    assert_eq!(refused(event.as_ref()), Some((413, Cause::BodyTooLarge)));
    peer.answers(Status::CONTENT_TOO_LARGE);
    assert!(!peer.flushes().contains("Connection: close"));
    goes_on(&mut peer);
}

/// H6: the same for chunks, once the limit is crossed; what came before it was handed over.
#[test]
fn a_chunked_body_keeps_the_connection_after_413() {
    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, ""));
    peer.takes_body(Some(7)).expect("not known to be too large");
    for piece in ["5\r\n01234\r\n", "5\r\n56789\r\n", "0\r\n\r\n"] {
        while peer.sends("").is_some() {}
        peer.inbox.extend_from_slice(piece.as_bytes());
        while peer.next().is_some() {}
    }
    assert_eq!(
        peer.seen[1..],
        [
            Seen::Body(b"01234".to_vec()),
            Seen::Body(b"56".to_vec()),
            Seen::Refused(413, Cause::BodyTooLarge)
        ]
    );
    peer.answers(Status::CONTENT_TOO_LARGE);
    assert!(!peer.flushes().contains("Connection: close"));
    goes_on(&mut peer);

    // Exactly as large as allowed is not too large.
    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, "5\r\n01234\r\n0\r\n\r\n"));
    peer.takes_body(Some(5)).expect("not known to be too large");
    assert_eq!(peer.next(), Some(Event::Body(3..8)));
    assert_eq!(peer.next(), Some(Event::BodyEnd));
}

/// H6: beyond what is thrown away, 413 comes at once, with close and lingering.
#[test]
fn a_body_beyond_the_discard_limit_is_refused_at_once() {
    let small = policy(|policy| policy.body_discard_max = 8);
    let mut peer = Peer::new(small.clone());
    peer.is_request(post("Content-Length: 9\r\n", ""));
    let refusal = peer.takes_body(Some(5)).expect_err("it is too large");
    assert_eq!((refusal.status.code(), refusal.cause), (413, Cause::BodyTooLarge));
    peer.answers(refusal.status);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);

    let mut peer = Peer::new(small);
    peer.is_request(post(CHUNKED, "5\r\n01234\r\n"));
    peer.takes_body(Some(5)).expect("not known to be too large");
    peer.next();
    assert_eq!(peer.sends("9\r\n01234567"), None);
    assert_eq!(refused(peer.sends("8").as_ref()), Some((413, Cause::BodyTooLarge)));
    peer.answers(Status::CONTENT_TOO_LARGE);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// H6, H9: a body that breaks while it is read to be refused is malformed before it is too large.
#[test]
fn a_too_large_body_that_breaks_is_a_400() {
    let mut peer = Peer::default();
    peer.is_request(post(CHUNKED, "5\r\n01234\r\nx"));
    peer.takes_body(Some(1)).expect("not known to be too large");
    assert_eq!(peer.next(), Some(Event::Body(3..4)));
    assert_eq!(refused(peer.next().as_ref()), Some((400, Cause::ChunkSizeInvalid)));
}

/// H7: 100 when the body is wanted, exactly once.
#[test]
fn a_wanted_body_that_is_waited_for_gets_one_100() {
    for fields in ["Content-Length: 5\r\n", CHUNKED] {
        let mut peer = Peer::default();
        peer.is_request(post(&format!("{fields}expect: 100-Continue\r\n"), ""));
        assert_eq!(peer.flushes(), "");
        peer.takes_body(None).expect("no limit");
        peer.takes_body(None).expect("asking twice changes nothing");
        assert_eq!(peer.flushes(), "HTTP/1.1 100 Continue\r\n\r\n");
        let body = if fields == CHUNKED { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        assert!(matches!(peer.sends(body), Some(Event::Body(_))));
        assert_eq!(peer.next(), Some(Event::BodyEnd));
        peer.answers(Status::OK);
        let answer = peer.flushes();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && !answer.contains("Connection: close"));
        goes_on(&mut peer);
    }
}

/// H7: no 100 for a client that does not wait for it, or cannot understand it.
#[test]
fn a_100_is_not_sent_in_vain() {
    for request in [
        post(&format!("Content-Length: 5\r\n{EXPECT}"), "h"),
        post(EXPECT, ""),
        post(&format!("Content-Length: 0\r\n{EXPECT}"), ""),
        format!("POST / HTTP/1.0\r\nContent-Length: 5\r\n{EXPECT}\r\n"),
        "POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: more\r\n\r\n".to_owned(),
    ] {
        let mut peer = Peer::default();
        peer.is_request(&request);
        peer.takes_body(None).expect("no limit");
        assert_eq!(peer.flushes(), "", "{request}");
    }
    // The bytes may also come between the head and the decision.
    let mut peer = Peer::default();
    peer.is_request(post(&format!("Content-Length: 5\r\n{EXPECT}"), ""));
    assert_eq!(peer.sends("h"), None);
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.flushes(), "");
}

/// H6, H7: a refusal instead of the 100 comes at once and closes, as it is not known whether the body will
/// still come.
#[test]
fn an_answer_instead_of_the_100_closes() {
    let mut peer = Peer::default();
    peer.is_request(post(&format!("Content-Length: 5\r\n{EXPECT}"), ""));
    let refusal = peer.takes_body(Some(4)).expect_err("it is too large");
    assert_eq!(refusal.cause, Cause::BodyTooLarge);
    peer.answers(refusal.status);
    let answer = peer.flushes();
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);

    let mut peer = Peer::default();
    peer.is_request(post(&format!("Content-Length: 5\r\n{EXPECT}"), ""));
    peer.answers(Status::UNAUTHORIZED);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// H7: an expectation we do not know.
#[test]
fn an_unknown_expectation_gets_417() {
    for value in ["more", "100-continue, more", "", "100-continue\r\nExpect: more"] {
        let mut peer = Peer::default();
        let event = peer.sends(post(&format!("Expect: {value}\r\n"), ""));
        assert_eq!(refused(event.as_ref()), Some((417, Cause::ExpectationUnknown)), "{value}");
        peer.answers(Status::EXPECTATION_FAILED);
        assert!(!peer.flushes().contains("Connection: close"));
        goes_on(&mut peer);

        let mut peer = Peer::default();
        let event = peer.sends(post(&format!("Content-Length: 5\r\nExpect: {value}\r\n"), ""));
        assert_eq!(refused(event.as_ref()), Some((417, Cause::ExpectationUnknown)), "{value}");
        peer.answers(Status::EXPECTATION_FAILED);
        assert!(peer.flushes().contains("Connection: close"));
        assert_eq!(peer.stage(), Stage::Lingering);
    }
}

/// A handler that cannot take more stops the input, not the connection.
#[test]
fn a_body_that_is_held_waits() {
    let mut peer = Peer::default();
    peer.is_request(post("Content-Length: 5\r\n", "hello"));
    peer.takes_body(None).expect("no limit");
    peer.engine.hold_body(true, peer.now);
    assert!(!peer.engine.wants_input());
    assert_eq!(peer.next(), None);
    assert_eq!(peer.engine.next_deadline(), None);
    peer.engine.hold_body(false, peer.now);
    assert_eq!(peer.next(), Some(Event::Body(0..5)));
}

/// H2: an answer that closes anyhow does not wait for the rest of the body.
#[test]
fn a_closing_answer_lingers_instead_of_discarding() {
    let mut peer = Peer::default();
    peer.is_request(post("Connection: close\r\nContent-Length: 5\r\n", "he"));
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
    assert_eq!(peer.sends("llo"), None);
    assert_eq!(peer.ends_input(), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::ClientAsked));
}

/// H3, T4: what the shell takes itself counts as if it had come through the engine.
#[test]
fn a_body_may_be_taken_past_the_engine() {
    let mut peer = Peer::default();
    peer.sends("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
    assert_eq!(peer.engine.direct_body(), 0, "the handler has not taken it");
    peer.takes_body(Some(1000)).expect("it is not too large");
    assert_eq!(peer.engine.direct_body(), 100);
    assert_eq!(peer.sends("0123456789"), Some(Event::Body(0..10)));
    assert_eq!(peer.engine.direct_body(), 90);
    let before = peer.deadline();
    peer.after(std::time::Duration::from_secs(3));
    peer.engine.body_taken(60, peer.now);
    assert!(peer.deadline().map(|(_, at)| at) > before.map(|(_, at)| at), "the client was here");
    peer.engine.hold_body(true, peer.now);
    assert_eq!(peer.engine.direct_body(), 0, "it is held back");
    peer.engine.hold_body(false, peer.now);
    peer.engine.body_taken(30, peer.now);
    assert_eq!(peer.engine.direct_body(), 0);
    assert_eq!(peer.next(), Some(Event::BodyEnd));
    peer.answers(Status::OK);
    peer.flushes();
    peer.is_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // Chunks are the engine's business.
    let mut peer = Peer::default();
    peer.sends("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.takes_body(None).expect("it is not too large");
    assert_eq!(peer.engine.direct_body(), 0);
}
