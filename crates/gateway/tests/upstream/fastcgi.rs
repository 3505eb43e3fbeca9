//! FastCGI: records out, records back, and what is left of the connection.

use sekisho_gateway::fastcgi::FastCgi;
use sekisho_http::upstream::{
    BodyFault, Failure, HeadFault, NotReusable, Phase, Request, RequestBody, RequestFault,
    Timeouts, UpstreamProtocol,
};
use sekisho_http::{Fields, Version};
use sekisho_lifecycle::{DeadlineKind, Engine};

use crate::harness::{Seen, Task, pairs, seconds};

const STDOUT: u8 = 6;
const STDERR: u8 = 7;

pub(crate) fn task() -> Task<FastCgi> {
    Task::new(FastCgi::new(4096, Timeouts::default()))
}

fn asked() -> Task<FastCgi> {
    let mut task = task();
    task.starts("GET", &pairs(&[("REQUEST_METHOD", "GET")]), RequestBody::None);
    task
}

pub(crate) fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let header = [1, kind, 0, 1, high, low, padding, 0];
    [&header, content, &vec![0; usize::from(padding)]].concat()
}

/// The same records as parts of the response to another request of the connection.
fn for_request(id: u8, mut records: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at < records.len() {
        records[at + 3] = id;
        let length = usize::from(u16::from_be_bytes([records[at + 4], records[at + 5]]));
        at += 8 + length + usize::from(records[at + 6]);
    }
    records
}

pub(crate) fn end(protocol_status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, protocol_status, 0, 0, 0], 0)
}

/// Takes what was written apart: kinds with their contents, those of one kind together.
fn records(mut wire: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all: Vec<(u8, Vec<u8>)> = Vec::new();
    while let Some((header, rest)) = wire.split_first_chunk::<8>() {
        assert_eq!((header[0], header[2], header[3], header[7]), (1, 0, 1, 0));
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let padding = usize::from(header[6]);
        assert_eq!((len + padding) % 8, 0, "records are aligned");
        match all.last_mut() {
            Some((kind, before)) if *kind == header[1] && len > 0 => {
                before.extend_from_slice(&rest[..len]);
            }
            _ => all.push((header[1], rest[..len].to_vec())),
        }
        wire = &rest[len + padding..];
    }
    assert!(wire.is_empty());
    all
}

#[test]
fn a_request_is_begin_params_and_stdin() {
    let mut task = task();
    let long = "v".repeat(200);
    let params = pairs(&[("A", "b"), ("CONTENT_LENGTH", "77"), ("LONG", &long)]);
    task.starts("POST", &params, RequestBody::Known(5));
    task.body(b"hel");
    task.body(b"");
    task.body(b"lo and more");
    task.end_body();
    let mut expected = b"\x01\x01Ab\x0e\x01CONTENT_LENGTH5\x04\x80\0\0\xc8LONG".to_vec();
    expected.extend_from_slice(long.as_bytes());
    let written = records(&task.wire);
    assert_eq!(written[0], (1, vec![0, 1, 1, 0, 0, 0, 0, 0]), "responder, keep the connection");
    assert_eq!(written[1], (4, expected));
    assert_eq!(written[2], (4, vec![]));
    assert_eq!(written[3], (5, b"hello".to_vec()));
    assert_eq!(written[4..], [(5, vec![])]);
}

#[test]
fn what_is_longer_than_a_record_is_split() {
    let mut task = task();
    let value = "x".repeat(150_000);
    task.starts("POST", &pairs(&[("A", &value)]), RequestBody::Unknown);
    let body = vec![b'y'; 140_000];
    task.body(&body);
    task.end_body();
    let written = records(&task.wire);
    assert_eq!(written[1].1.len(), 1 + 4 + 1 + 150_000);
    assert_eq!(written[3..], [(5, body), (5, vec![])]);
}

/// `fastcgi_keep_conn off`
#[test]
fn the_application_is_told_whether_the_connection_stays() {
    let mut task = task();
    let params = Fields::default();
    let request = Request {
        method: b"GET",
        target: b"",
        version: Version::Http11,
        pairs: &params,
        body: RequestBody::None,
        keeps_alive: false,
    };
    task.engine.start(&request, &mut task.scratch, task.now).expect("sound");
    task.flush();
    assert_eq!(records(&task.wire)[0].1[2], 0);
    task.gets(record(STDOUT, b"Content-Length: 2\r\n\r\nhi", 0));
    let expected = [Seen::Head(200), Seen::Body(b"hi".to_vec()), Seen::End];
    assert_eq!(task.seen, expected, "the end of the request is not awaited");
    assert_eq!(task.reuse(), Err(NotReusable::CloseDelimited));
}

/// U4
#[test]
fn a_connection_carries_one_request_after_the_other() {
    let mut task = asked();
    for round in 1..=3 {
        assert_eq!(task.engine.phase(), Phase::ReadingHead);
        assert_eq!(task.wire[2..4], [0, round], "each request has its own id");
        task.gets(for_request(round, record(STDERR, b"PHP Notice", 6)));
        let head = record(STDOUT, b"Status: 404 Not Found\nX: y\n\nhel", 1);
        task.gets(for_request(round, head));
        task.gets(for_request(0, record(11, b"about the connection", 4)));
        task.gets(for_request(round, record(STDOUT, b"lo", 6)));
        task.gets(for_request(round, record(STDOUT, b"", 0)));
        task.gets(for_request(round, end(0)));
        let expected = [
            Seen::Stderr(b"PHP Notice".to_vec()),
            Seen::Head(404),
            Seen::Body(b"hello".to_vec()),
            Seen::End,
        ];
        assert_eq!(task.seen, expected, "round {round}");
        assert_eq!(task.scratch.head.fields, pairs(&[("Status", "404 Not Found"), ("X", "y")]));
        assert_eq!(task.reuse(), Ok(()));
        task.seen.clear();
        task.wire.clear();
        task.starts("GET", &pairs(&[("A", "b")]), RequestBody::None);
    }
}

/// U4: a second response to a request that is over is not given to the next one.
#[test]
fn a_late_response_is_not_taken_for_the_next() {
    let response = [record(STDOUT, b"A: b\n\nfirst", 0), end(0)].concat();
    for cut in [response.len(), 20] {
        let mut task = asked();
        task.gets(response.clone());
        assert_eq!(task.reuse(), Ok(()));
        task.starts("GET", &pairs(&[("A", "b")]), RequestBody::None);
        task.seen.clear();
        task.gets(&response[..cut]);
        let failure = Failure::BadBody(BodyFault::RecordRequest);
        assert_eq!(task.seen, [Seen::Failed(failure)]);
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
}

/// RFC 3875 §6, as nginx reads it.
#[test]
fn the_head_is_a_cgi_head() {
    type Row<'a> = (&'a str, u16, &'a [(&'a str, &'a str)]);
    let rows: [Row<'_>; 6] = [
        ("Content-Type: a\r\n\r\n", 200, &[("Content-Type", "a")]),
        (
            "Status: 201\r\nX-Accel-Expires: 5\r\n\r\n",
            201,
            &[("Status", "201"), ("X-Accel-Expires", "5")],
        ),
        ("Location: /a\r\n\r\n", 302, &[("Location", "/a")]),
        (
            "Status: 301 Moved\r\nLocation: /a\r\n\r\n",
            301,
            &[("Status", "301 Moved"), ("Location", "/a")],
        ),
        ("Server: x\r\nDate: y\r\n\r\n", 200, &[("Server", "x"), ("Date", "y")]),
        ("HTTP/1.1 403 No\r\nStatus: 404\r\nA: b\r\n\r\n", 403, &[("Status", "404"), ("A", "b")]),
    ];
    for (text, status, fields) in rows {
        let mut task = asked();
        task.gets(record(STDOUT, text.as_bytes(), 0));
        assert_eq!(task.seen, [Seen::Head(status)], "{text:?}");
        assert_eq!(task.scratch.head.fields, pairs(fields), "{text:?}");
    }
}

/// U2, U3: what is wrong with a head, by type.
#[test]
fn a_bad_head_is_told_by_its_cause() {
    use HeadFault as F;
    for (text, fault) in [
        ("Status: abc\r\n\r\n", F::StatusInvalid),
        ("Status: 200\r\nStatus: 404\r\n\r\n", F::StatusInvalid),
        ("A b\r\n\r\n", F::Field),
        ("A: b\x01\r\n\r\n", F::ControlByte),
        ("Content-Length: 1\r\nContent-Length: 2\r\n\r\n", F::LengthInvalid),
        ("Location:\r\n\r\n", F::LocationInvalid),
        ("HTTP/1.1 2x0 OK\r\n\r\n", F::StatusLine),
        (&"A: b\r\n".repeat(1000), F::TooLarge),
    ] {
        let mut task = asked();
        task.gets(record(STDOUT, text.as_bytes(), 0));
        assert_eq!(task.seen, [Seen::Failed(Failure::BadHead(fault))], "{text:?}");
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
}

#[test]
fn records_that_cannot_be_are_refused() {
    for (record, fault) in [
        (vec![2, 6, 0, 1, 0, 0, 0, 0], BodyFault::RecordVersion),
        (vec![1, 6, 0, 2, 0, 0, 0, 0], BodyFault::RecordRequest),
        (vec![1, 6, 1, 1, 0, 0, 0, 0], BodyFault::RecordRequest),
        (vec![1, 5, 0, 1, 0, 0, 0, 0], BodyFault::RecordType),
        (vec![1, 3, 0, 1, 0, 7, 0, 0], BodyFault::RecordLength),
        ([record(STDOUT, b"", 0), record(STDOUT, b"x", 0)].concat(), BodyFault::RecordType),
    ] {
        let mut task = asked();
        task.gets(&record);
        assert_eq!(task.seen, [Seen::Failed(Failure::BadBody(fault))], "{record:?}");
    }
}

/// U1, C5: a cut answer is visible as cut, an end of the request before its answer is a failure.
#[test]
fn a_cut_answer_is_seen_as_cut() {
    let head = record(STDOUT, b"A: b\n\n", 0);
    let sized = record(STDOUT, b"Content-Length: 5\n\nhell", 0);
    let rows: [(Vec<u8>, Failure); 7] = [
        (vec![], Failure::ClosedEarly),
        (record(STDOUT, b"A: b\n", 0), Failure::ClosedEarly),
        (end(0), Failure::ClosedEarly),
        (end(2), Failure::NotTaken),
        (head, Failure::BodyCut),
        (sized.clone(), Failure::BodyCut),
        ([sized, end(0)].concat(), Failure::BodyCut),
    ];
    for (bytes, failure) in rows {
        let mut task = asked();
        task.gets(&bytes);
        task.closes();
        assert_eq!(task.seen.last(), Some(&Seen::Failed(failure)), "{bytes:?}");
    }
}

#[test]
fn an_answer_is_whole_by_its_length_or_the_end_of_the_output() {
    for bytes in [
        record(STDOUT, b"Content-Length: 2\n\nhi", 0),
        [record(STDOUT, b"A: b\n\nhi", 0), record(STDOUT, b"", 0)].concat(),
    ] {
        let mut task = asked();
        task.gets(bytes);
        task.closes();
        assert_eq!(task.seen, [Seen::Head(200), Seen::Body(b"hi".to_vec()), Seen::End]);
        assert_eq!(task.reuse(), Err(NotReusable::CloseDelimited));
    }
}

/// C9: what goes beyond the declared length is cut; HEAD, 204 and 304 have none.
#[test]
fn no_more_body_leaves_than_there_is() {
    for (method, text, body) in [
        ("GET", "Content-Length: 2\n\nhiho", Some(b"hi".as_slice())),
        ("HEAD", "Content-Length: 2\n\nhi", None),
        ("GET", "Status: 204\n\nhi", None),
        ("GET", "Status: 304\nContent-Length: 9\n\nhi", None),
    ] {
        let mut task = task();
        task.starts(method, &pairs(&[("A", "b")]), RequestBody::None);
        task.gets([record(STDOUT, text.as_bytes(), 0), end(0)].concat());
        let bodies: Vec<_> = body.map(|body| Seen::Body(body.to_vec())).into_iter().collect();
        assert_eq!(task.seen[1..task.seen.len() - 1], bodies, "{text:?}");
        assert_eq!(task.seen.last(), Some(&Seen::End));
        assert_eq!(task.reuse(), Ok(()), "records keep the connection in step");
    }
}

#[test]
fn bytes_behind_an_answer_end_the_connection() {
    let mut task = asked();
    task.gets([record(STDOUT, b"A: b\n\n", 0), end(0), vec![1]].concat());
    assert_eq!(task.seen.last(), Some(&Seen::End));
    assert_eq!(task.reuse(), Err(NotReusable::Surplus));
}

#[test]
fn an_early_answer_ends_the_connection() {
    let mut task = task();
    task.starts("POST", &pairs(&[("A", "b")]), RequestBody::Known(9));
    task.body(b"abc");
    task.gets([record(STDOUT, b"Status: 413\n\n", 0), end(0)].concat());
    assert_eq!(task.reuse(), Err(NotReusable::RequestUnsent));
}

#[test]
fn a_short_body_and_a_bad_parameter_are_our_own_faults() {
    let mut task = task();
    for bad in [pairs(&[("", "b")]), pairs(&[("A", "b\0c")]), pairs(&[("A=", "b")])] {
        let fault = task.tries("GET", &bad, RequestBody::None);
        assert_eq!(fault, Err(RequestFault::Pair));
        assert!(task.scratch.out.is_empty());
    }
    task.starts("POST", &pairs(&[("A", "b")]), RequestBody::Known(9));
    let ended = task.engine.end_body(&mut task.scratch, task.now);
    assert_eq!(ended, Err(RequestFault::BodyShort));
    assert_eq!(task.reuse(), Err(NotReusable::Failed));
}

/// U2: standard error is a sign of life as well (T5: bytes that moved).
#[test]
fn a_silent_application_is_left() {
    let mut task = asked();
    assert_eq!(task.deadline(), Some((seconds(60), DeadlineKind::UpstreamRead)));
    task.now = seconds(50);
    task.gets(record(STDERR, b"still here", 0));
    assert_eq!(task.deadline(), Some((seconds(110), DeadlineKind::UpstreamRead)));
    task.engine.hold(true, task.now);
    assert_eq!(task.deadline(), None);
    task.engine.hold(false, task.now);
    task.expires(seconds(110));
    assert_eq!(task.seen.last(), Some(&Seen::Failed(Failure::ReadTimeout)));
    assert!(task.engine.next_deadline().is_none());
}
