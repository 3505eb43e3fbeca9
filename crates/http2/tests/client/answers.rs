//! Requests as they leave, and answers as they come.

use sekisho_http::upstream::{
    BodyFault, Failure, HeadFault, NotReusable, RequestBody, RequestFault, UpstreamProtocol,
};
use sekisho_http2::client::{Client, Limits};
use sekisho_http2::frame::{Kind, flag};
use sekisho_http2::hpack::Decoder;

use crate::frames::{TIMEOUTS, block, data, frame, headers, host, ok, sent, settings, task};
use crate::harness::{Seen, Task, pairs};

#[test]
fn a_request_is_built_from_pairs_and_the_next_has_the_next_number() {
    let mut task = task();
    let mut decoder = Decoder::default();
    let list = pairs(&[
        ("Accept", "*/*"),
        ("hOST", "a:81"),
        ("Content-Length", "99"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "keep-alive, x"),
        ("Keep-Alive", "9"),
        ("TE", "trailers, deflate"),
        ("Upgrade", "h2c"),
        ("Cookie", "a=b"),
    ]);
    task.starts("POST", &list, RequestBody::Known(3));
    task.body(b"abcd");
    let head = "HEADERS 1 :method=POST :scheme=http :path=/ :authority=a:81 content-length=3 te=trailers \
                accept=*/* cookie=a=b";
    let greeting = ["preface", "SETTINGS", "WINDOW 0 983041"];
    let all = sent(&mut task, &mut decoder);
    assert_eq!(all[..3], greeting);
    assert_eq!(all[3..], [head, "DATA 1 END 3"], "what goes beyond the length is cut");
    task.gets(settings(&[]));
    assert_eq!(sent(&mut task, &mut decoder), ["SETTINGS ACK"]);
    task.gets([ok(1), data(1, b"hello", true)].concat());
    assert_eq!(task.seen, [Seen::Head(200), Seen::Body(b"hello".to_vec()), Seen::End]);
    assert_eq!(task.reuse(), Ok(()));
    task.starts("GET", &host(), RequestBody::None);
    let expected = "HEADERS 3 END :method=GET :scheme=http :path=/ :authority=a";
    assert_eq!(sent(&mut task, &mut decoder), [expected]);
    task.gets(headers(3, &[(":status", "204")], true));
    assert_eq!(task.seen[3..], [Seen::Head(204), Seen::End]);
    assert_eq!(task.reuse(), Ok(()));
}

/// U3: what could be read in two ways never leaves.
#[test]
fn a_request_that_could_be_read_in_two_ways_is_not_sent() {
    use RequestFault as F;
    for (method, list, fault) in [
        ("G T", vec![("Host", "a")], F::Method),
        ("CONNECT", vec![("Host", "a")], F::Method),
        ("GET", vec![], F::Host),
        ("GET", vec![("Host", "a"), ("host", "a")], F::Host),
        ("GET", vec![("Host", "a b")], F::Host),
        ("GET", vec![("Host", "a"), ("X", "a\r\nb")], F::Pair),
        ("GET", vec![("Host", "a"), (":path", "/")], F::Pair),
    ] {
        let mut task = task();
        let tried = task.tries(method, &pairs(&list), RequestBody::None);
        assert_eq!(tried, Err(fault), "{method} {list:?}");
        assert!(task.scratch.out.is_empty());
        assert_eq!(task.reuse(), Ok(()), "and nothing has happened");
    }
}

#[test]
fn the_scheme_is_that_of_the_connection() {
    let mut task = Task::new(Client::new(Limits::default(), TIMEOUTS, true));
    task.starts("GET", &host(), RequestBody::None);
    let all = sent(&mut task, &mut Decoder::default());
    assert!(all[3].contains(" :scheme=https "), "{all:?}");
}

/// gRPC: a result follows the body, or there is nothing else.
#[test]
fn trailers_and_answers_without_a_body() {
    let mut both = task();
    both.starts("POST", &host(), RequestBody::None);
    both.gets([ok(1), data(1, b"x", false), headers(1, &[("grpc-status", "0")], true)].concat());
    assert_eq!(both.seen, [Seen::Head(200), Seen::Body(b"x".to_vec()), Seen::End]);
    assert_eq!(both.scratch.trailers.get("grpc-status"), Some(&b"0"[..]));
    assert_eq!(both.reuse(), Ok(()));

    let mut alone = task();
    alone.starts("POST", &host(), RequestBody::None);
    alone.gets(headers(1, &[(":status", "200"), ("grpc-status", "12")], true));
    assert_eq!(alone.seen, [Seen::Head(200), Seen::End]);
    assert!(!alone.scratch.head.has_body && alone.scratch.trailers.is_empty());
    assert_eq!(alone.scratch.head.fields.get("grpc-status"), Some(&b"12"[..]));

    // Informational answers, a block in pieces, padding and an old priority.
    let mut pieces = task();
    pieces.starts("GET", &host(), RequestBody::None);
    pieces.gets(headers(1, &[(":status", "103"), ("link", "x")], false));
    let split = block(&[(":status", "200"), ("a", "b")]);
    let padded = [&[2, 0, 0, 0, 0, 9][..], &split[..4], &[0, 0]].concat();
    pieces.gets(frame(Kind::Headers, flag::PADDED | flag::PRIORITY, 1, &padded));
    pieces.gets(frame(Kind::Continuation, flag::END_HEADERS, 1, &split[4..]));
    pieces.gets(frame(Kind::Data, flag::PADDED | flag::END_STREAM, 1, b"\x03abc\0\0\0"));
    let expected =
        [Seen::Informational(103), Seen::Head(200), Seen::Body(b"abc".to_vec()), Seen::End];
    assert_eq!(pieces.seen, expected);
    assert_eq!(pieces.reuse(), Ok(()));
}

/// HEAD, 204 and 304 have no body, whatever length they declare.
#[test]
fn some_answers_have_no_body() {
    for (method, status) in [("HEAD", "200"), ("GET", "304"), ("GET", "204")] {
        for ends in [true, false] {
            let mut task = task();
            task.starts(method, &host(), RequestBody::None);
            task.gets(headers(1, &[(":status", status), ("content-length", "9")], ends));
            if !ends {
                task.gets(data(1, b"", true));
            }
            assert_eq!(task.seen[1..], [Seen::End], "{method} {status}");
            assert!(!task.scratch.head.has_body);
            assert_eq!(task.reuse(), Ok(()));
        }
    }
}

/// U3: each head that another reader could read differently, and each body that is not what was declared.
#[test]
fn what_is_malformed_fails_and_ends_the_connection() {
    let head = |fault| Seen::Failed(Failure::BadHead(fault));
    let body = |fault| Seen::Failed(Failure::BadBody(fault));
    let with = |fields: &[(&str, &str)]| {
        let mut all = vec![(":status", "200")];
        all.extend_from_slice(fields);
        headers(1, &all, false)
    };
    let long = "y".repeat(120);
    let many: Vec<_> = (0..201).map(|_| ("x", "")).collect();
    let large: Vec<_> = (0..80).map(|_| ("x", long.as_str())).collect();
    let rows = [
        (headers(1, &[("a", "b")], true), head(HeadFault::StatusInvalid)),
        (headers(1, &[(":status", "20")], true), head(HeadFault::StatusInvalid)),
        (headers(1, &[(":status", "099")], true), head(HeadFault::StatusInvalid)),
        (with(&[(":status", "200")]), head(HeadFault::Pseudo)),
        (with(&[("a", "b"), (":x", "1")]), head(HeadFault::Pseudo)),
        (with(&[("A", "b")]), head(HeadFault::Field)),
        (with(&[("a b", "b")]), head(HeadFault::Field)),
        (with(&[("a:b", "b")]), head(HeadFault::Field)),
        (with(&[("", "b")]), head(HeadFault::Field)),
        (with(&[("a", "b\nc")]), head(HeadFault::ControlByte)),
        (with(&[("connection", "close")]), head(HeadFault::ConnectionField)),
        (with(&[("transfer-encoding", "chunked")]), head(HeadFault::ConnectionField)),
        (with(&[("content-length", "x")]), head(HeadFault::LengthInvalid)),
        (
            with(&[("content-length", "1"), ("content-length", "1")]),
            head(HeadFault::LengthRepeated),
        ),
        (with(&many), head(HeadFault::TooManyFields)),
        (with(&large), head(HeadFault::TooLarge)),
        (headers(1, &[(":status", "101")], false), head(HeadFault::UpgradeUnasked)),
        (headers(1, &[(":status", "103")], true), head(HeadFault::InformationalBody)),
        (frame(Kind::Headers, flag::END_HEADERS, 1, &[0x80]), head(HeadFault::Block)),
        (data(1, b"x", true), body(BodyFault::Frame)),
        (headers(3, &[(":status", "200")], true), body(BodyFault::Frame)),
        (headers(2, &[(":status", "200")], true), body(BodyFault::Frame)),
        (frame(Kind::PushPromise, flag::END_HEADERS, 1, &[0, 0, 0, 2]), body(BodyFault::Frame)),
        (frame(Kind::Continuation, flag::END_HEADERS, 1, &[]), body(BodyFault::Frame)),
        (frame(Kind::Settings, 0, 0, &[0; 5]), body(BodyFault::Frame)),
        (frame(Kind::Ping, 0, 0, &[0; 7]), body(BodyFault::Frame)),
        (frame(Kind::WindowUpdate, 0, 0, &[0; 4]), body(BodyFault::Frame)),
    ];
    for (bytes, expected) in rows {
        let mut task = task();
        task.starts("GET", &host(), RequestBody::None);
        task.gets(bytes);
        assert_eq!(task.seen, [expected]);
        assert_eq!(task.reuse(), Err(NotReusable::Failed));
    }
    let bodies = [
        (vec![with(&[("content-length", "3")]), data(1, b"abcd", true)], body(BodyFault::TooLong)),
        (
            vec![with(&[("content-length", "3")]), data(1, b"ab", true)],
            Seen::Failed(Failure::BodyCut),
        ),
        (
            vec![with(&[("content-length", "3")]), headers(1, &[("x", "y")], true)],
            Seen::Failed(Failure::BodyCut),
        ),
        (vec![ok(1), headers(1, &[("x", "y")], false)], body(BodyFault::Trailer)),
        (vec![ok(1), headers(1, &[(":status", "200")], true)], body(BodyFault::Trailer)),
    ];
    for (frames, expected) in bodies {
        let mut task = task();
        task.starts("GET", &host(), RequestBody::None);
        task.gets(frames.concat());
        assert_eq!(task.seen.last(), Some(&expected));
        assert!(!task.seen.contains(&Seen::End));
    }
}

/// U4: an answer that came before its request must not be taken for it.
#[test]
fn nothing_is_the_answer_to_a_request_that_has_not_left() {
    let mut task = task();
    task.tries("GET", &host(), RequestBody::None).expect("sound");
    task.gets([settings(&[]), ok(1)].concat());
    assert_eq!(task.seen, [Seen::Failed(Failure::BadHead(HeadFault::Unsolicited))]);
    assert!(!task.engine.is_answered());
}
