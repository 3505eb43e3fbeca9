//! Flow control in both directions (RFC 9113 §5.2), and the deadlines of a server that does not open its window.

use sekisho_http::upstream::{BodyFault, Failure, RequestBody, UpstreamProtocol};
use sekisho_http2::client::RECEIVE_WINDOW_BYTES;
use sekisho_http2::frame::setting;
use sekisho_http2::hpack::Decoder;
use sekisho_lifecycle::DeadlineKind;

use crate::frames::{data, headers, host, ok, sent, settings, task, window};
use crate::harness::{Seen, seconds};

#[test]
fn a_body_waits_for_the_window_of_its_stream_and_of_the_connection() {
    let mut task = task();
    let mut decoder = Decoder::default();
    task.starts("POST", &host(), RequestBody::Unknown);
    task.gets(settings(&[(setting::INITIAL_WINDOW_SIZE, 5)]));
    sent(&mut task, &mut decoder);
    let take = |task: &mut crate::harness::Task<_>, bytes: &[u8]| {
        let client: &mut sekisho_http2::Client = &mut task.engine;
        client.body(bytes, &mut task.scratch, task.now)
    };
    assert_eq!(take(&mut task, b"hello world"), 5);
    assert_eq!(take(&mut task, b" world"), 0);
    assert_eq!(sent(&mut task, &mut decoder), ["DATA 1 5"]);
    // U2: it is the server that is late.
    assert_eq!(task.deadline(), Some((seconds(10), DeadlineKind::UpstreamSend)));
    task.now = seconds(3);
    task.gets(window(1, 2));
    assert_eq!(task.deadline(), None);
    assert_eq!(take(&mut task, b" world"), 2);
    assert_eq!(sent(&mut task, &mut decoder), ["DATA 1 2"]);
    // A smaller window may become negative.
    task.gets([settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]), window(1, 4)].concat());
    assert_eq!(take(&mut task, b"orld"), 0);
    task.gets(window(1, 4));
    assert_eq!(take(&mut task, b"orld"), 4);
    task.engine.end_body(&mut task.scratch, task.now).expect("whole");
    assert_eq!(sent(&mut task, &mut decoder), ["SETTINGS ACK", "DATA 1 END 4"]);
    assert_eq!(task.deadline(), Some((seconds(23), DeadlineKind::UpstreamRead)));
    task.gets([ok(1), data(1, b"", true)].concat());
    assert_eq!(task.seen, [Seen::Head(200), Seen::End]);
    // What was left of the connection's window is what the next request has.
    task.starts("POST", &host(), RequestBody::Known(70_000));
    task.gets(window(3, 100_000));
    sent(&mut task, &mut decoder);
    assert_eq!(take(&mut task, &vec![0; 70_000]), 65_535 - 11);
    assert_eq!(sent(&mut task, &mut decoder).len(), 4);
    task.gets(window(0, 100_000));
    assert_eq!(take(&mut task, &[0; 4476]), 4476);
    assert_eq!(sent(&mut task, &mut decoder), ["DATA 3 END 4476"]);
}

#[test]
fn a_window_that_stays_closed_is_a_timeout_of_sending() {
    let mut task = task();
    task.gets(settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]));
    task.starts("POST", &host(), RequestBody::Unknown);
    task.body(b"x");
    task.now = seconds(5);
    task.gets(window(0, 1));
    task.expires(seconds(9));
    assert_eq!(task.seen, []);
    task.expires(seconds(10));
    assert_eq!(task.seen, [Seen::Failed(Failure::SendTimeout)]);
}

#[test]
fn what_has_come_is_given_back_and_no_more_may_come_than_was_allowed() {
    let mut task = task();
    let mut decoder = Decoder::default();
    task.starts("GET", &host(), RequestBody::None);
    sent(&mut task, &mut decoder);
    task.gets(ok(1));
    let piece = vec![7; 16 * 1024];
    for _ in 0..31 {
        task.gets(data(1, &piece, false));
    }
    assert_eq!(sent(&mut task, &mut decoder), [""; 0]);
    task.gets(data(1, &piece, false));
    let half = RECEIVE_WINDOW_BYTES / 2;
    let updates = [format!("WINDOW 0 {half}"), format!("WINDOW 1 {half}")];
    assert_eq!(sent(&mut task, &mut decoder), updates);
    // While the answer is held back nothing is taken, so that nothing is given back (M5).
    task.engine.hold(true, task.now);
    for _ in 0..40 {
        task.gets(data(1, &piece, false));
    }
    assert_eq!(sent(&mut task, &mut decoder), [""; 0]);
    assert_eq!(task.deadline(), None, "and the server is not late (T9)");
    task.engine.hold(false, task.now);
    task.gets(data(1, b"", true));
    assert_eq!(task.seen.last(), Some(&Seen::End));
    assert_eq!(task.seen[1], Seen::Body(vec![7; 72 * 16 * 1024]));
}

/// A server that sends more than it may is told by the bytes alone, before they are kept.
#[test]
fn more_than_the_window_is_a_failure() {
    let mut task = task();
    task.starts("GET", &host(), RequestBody::None);
    task.gets(ok(1));
    // Windows are given back while frames are read, so that only a frame longer than any window overruns one.
    let header = [&[0, 64, 1, 0, 0][..], &1_u32.to_be_bytes()].concat();
    task.gets(header);
    assert_eq!(task.seen.last(), Some(&Seen::Failed(Failure::BadBody(BodyFault::Frame))));
}

/// Trailers may come though a body of an unknown length has not been sent whole: the rest of it is of no use.
#[test]
fn an_answer_may_end_before_its_request() {
    let mut task = task();
    let mut decoder = Decoder::default();
    task.starts("POST", &host(), RequestBody::Unknown);
    task.body(b"part");
    sent(&mut task, &mut decoder);
    task.gets([ok(1), headers(1, &[("grpc-status", "0")], true)].concat());
    assert_eq!(task.seen, [Seen::Head(200), Seen::End]);
    assert_eq!(sent(&mut task, &mut decoder), ["RESET 1 0"]);
    assert_eq!(task.reuse(), Ok(()), "each frame was whole");
    // More of the body is thrown away.
    task.body(b"more");
    task.end_body();
    assert_eq!(sent(&mut task, &mut decoder), [""; 0]);
}
