//! SCGI and uwsgi: one request for each connection.

use sekisho_gateway::SingleRequest;
use sekisho_gateway::uwsgi::Modifiers;
use sekisho_http::upstream::{
    Failure, HeadFault, NotReusable, Phase, RequestBody, RequestFault, Timeouts, UpstreamProtocol,
};
use sekisho_lifecycle::DeadlineKind;

use crate::harness::{Seen, Task, pairs, seconds};

pub(crate) fn scgi() -> Task<SingleRequest> {
    Task::new(SingleRequest::scgi(4096, Timeouts::default()))
}

fn uwsgi() -> Task<SingleRequest> {
    Task::new(SingleRequest::uwsgi(Modifiers(5, 9), 4096, Timeouts::default()))
}

/// The example of the SCGI specification.
#[test]
fn an_scgi_request_is_a_netstring_and_its_body() {
    let mut task = scgi();
    let params = pairs(&[
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_LENGTH", "1"),
        ("SCGI", "7"),
        ("REQUEST_URI", "/deepthought"),
    ]);
    task.starts("POST", &params, RequestBody::Known(27));
    task.body(b"What is the answer to life?");
    task.end_body();
    let expected =
        b"70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,\
                     What is the answer to life?";
    assert_eq!(task.wire, expected, "{}", task.wire.escape_ascii());
}

#[test]
fn an_scgi_request_without_a_body_says_so() {
    let mut task = scgi();
    task.starts("GET", &pairs(&[]), RequestBody::None);
    assert_eq!(task.wire, b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,");
}

#[test]
fn a_uwsgi_request_is_a_packet_and_its_body() {
    let mut task = uwsgi();
    task.starts("POST", &pairs(&[("A", "bc"), ("E", "")]), RequestBody::Known(2));
    task.body(b"hi");
    task.end_body();
    let expected = b"\x05\x1f\0\x09\x01\0A\x02\0bc\x01\0E\0\0\x0e\0CONTENT_LENGTH\x01\x002hi";
    assert_eq!(task.wire, expected, "{}", task.wire.escape_ascii());
}

#[test]
fn what_the_protocols_cannot_say_is_not_sent() {
    let long = "x".repeat(40_000);
    let longer = "x".repeat(70_000);
    for mut task in [scgi(), uwsgi()] {
        let fault = task.tries("PUT", &pairs(&[("A", "b")]), RequestBody::Unknown);
        assert_eq!(fault, Err(RequestFault::LengthUnknown));
        let fault = task.tries("PUT", &pairs(&[("A", "b\0")]), RequestBody::None);
        assert_eq!(fault, Err(RequestFault::Pair));
        assert!(task.scratch.out.is_empty());
    }
    for params in [pairs(&[("A", &long), ("B", &long)]), pairs(&[("A", &longer)])] {
        assert_eq!(uwsgi().tries("GET", &params, RequestBody::None), Err(RequestFault::TooLarge));
        scgi().starts("GET", &params, RequestBody::None);
    }
}

/// The answer is a CGI head, or begins with a status line; it ends with its length or the connection.
#[test]
fn an_answer_ends_with_its_length_or_the_connection() {
    for mut task in [scgi(), uwsgi()] {
        task.starts("GET", &pairs(&[("A", "b")]), RequestBody::None);
        assert_eq!(task.engine.phase(), Phase::ReadingHead);
        task.gets("HTTP/1.0 201 Created\r\nA: b\r\n\r\nhel");
        task.gets("lo");
        assert_eq!(task.reuse(), Err(NotReusable::Protocol));
        task.closes();
        assert_eq!(task.seen, [Seen::Head(201), Seen::Body(b"hello".to_vec()), Seen::End]);
        let again = task.tries("GET", &pairs(&[]), RequestBody::None);
        assert_eq!(again, Err(RequestFault::Busy));
    }
    for mut task in [scgi(), uwsgi()] {
        task.starts("GET", &pairs(&[("A", "b")]), RequestBody::None);
        task.gets("Status: 404\nContent-Length: 2\n\nhi and more");
        assert_eq!(task.seen, [Seen::Head(404), Seen::Body(b"hi".to_vec()), Seen::End]);
    }
    for (method, text) in [("HEAD", "A: b\n\nhi"), ("GET", "HTTP/1.1 304 Same\n\nhi")] {
        let mut task = uwsgi();
        task.starts(method, &pairs(&[("A", "b")]), RequestBody::None);
        task.gets(text);
        assert_eq!((task.seen.len(), task.seen.last()), (2, Some(&Seen::End)), "{text:?}");
    }
}

/// U1, U2: by type.
#[test]
fn failures_are_told_by_their_cause() {
    for (text, failure) in [
        ("", Failure::ClosedEarly),
        ("HTT", Failure::ClosedEarly),
        ("A: b\r\n", Failure::ClosedEarly),
        ("Content-Length: 5\r\n\r\nhell", Failure::BodyCut),
        ("HTTP/1.1 abc\r\n", Failure::BadHead(HeadFault::StatusLine)),
        ("HTTP/1.1 100 Continue\r\n", Failure::BadHead(HeadFault::StatusLine)),
        ("<html>\r\n", Failure::BadHead(HeadFault::Field)),
        (&"x".repeat(5000), Failure::BadHead(HeadFault::TooLarge)),
        (&format!("HTTP/{}", "x".repeat(5000)), Failure::BadHead(HeadFault::TooLarge)),
    ] {
        let mut task = scgi();
        task.starts("GET", &pairs(&[("A", "b")]), RequestBody::None);
        task.gets(text);
        task.closes();
        assert_eq!(task.seen.last(), Some(&Seen::Failed(failure)), "{text:.20}");
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
}

#[test]
fn an_answer_before_its_request_is_refused() {
    let mut task = scgi();
    task.tries("GET", &pairs(&[]), RequestBody::None).expect("sound");
    task.gets("A: b\n\n");
    assert_eq!(task.seen, [Seen::Failed(Failure::BadHead(HeadFault::Unsolicited))]);
}

#[test]
fn deadlines_are_those_of_every_upstream() {
    let mut task = scgi();
    task.tries("POST", &pairs(&[]), RequestBody::Known(3)).expect("sound");
    assert_eq!(task.deadline(), Some((seconds(60), DeadlineKind::UpstreamSend)));
    task.flush();
    assert_eq!(task.deadline(), None, "the client's body is what is waited for");
    task.now = seconds(70);
    task.body(b"abc");
    task.end_body();
    assert_eq!(task.deadline(), Some((seconds(130), DeadlineKind::UpstreamRead)));
    task.expires(seconds(130));
    assert_eq!(task.seen, [Seen::Failed(Failure::ReadTimeout)]);
}
