//! What an upstream may take its time for, and for how long (U2, T2, T3, T5, T9).

use std::time::Duration;

use sekisho_http::upstream::{Failure, RequestBody, Timeouts, UpstreamProtocol};
use sekisho_http1::Client;
use sekisho_http1::client::Limits;
use sekisho_lifecycle::{CloseReason, DeadlineKind, Engine, Stage};

use crate::exchanges::asked;
use crate::harness::{Seen, Task, pairs, seconds};

fn task(send: Option<u64>, read: Option<u64>) -> Task<Client> {
    let timeouts =
        Timeouts { send: send.map(Duration::from_secs), read: read.map(Duration::from_secs) };
    Task::new(Client::new(Limits::default(), timeouts))
}

/// `proxy_send_timeout` counts from the last bytes that moved.
#[test]
fn an_upstream_that_takes_nothing_is_left() {
    let mut task = task(Some(5), Some(7));
    task.tries("GET", &pairs(&[("Host", "a")]), RequestBody::None).expect("sound");
    assert_eq!(task.deadline(), Some((seconds(5), DeadlineKind::UpstreamSend)));
    task.now = seconds(3);
    task.engine.transmitted(0, true, task.now);
    assert_eq!(task.deadline(), Some((seconds(5), DeadlineKind::UpstreamSend)), "nothing moved");
    task.engine.transmitted(4, true, task.now);
    assert_eq!(task.deadline(), Some((seconds(8), DeadlineKind::UpstreamSend)));
    task.expires(seconds(7));
    assert_eq!(task.seen, []);
    task.expires(seconds(8));
    assert_eq!(task.seen, [Seen::Failed(Failure::SendTimeout)]);
    assert_eq!(
        task.engine.stage(),
        Stage::Closed(CloseReason::Expired(DeadlineKind::UpstreamSend))
    );
    assert_eq!(task.deadline(), None);
}

/// `proxy_read_timeout` begins when the request has left, and counts from the last bytes that came.
#[test]
fn an_upstream_that_says_nothing_is_left() {
    let mut task = task(Some(5), Some(7));
    task.starts("POST", &pairs(&[("Host", "a")]), RequestBody::Known(3));
    assert_eq!(task.deadline(), None, "the client's body is what is waited for (T9)");
    task.now = seconds(100);
    task.body(b"ab");
    assert_eq!(task.deadline(), None);
    task.body(b"c");
    task.end_body();
    assert_eq!(task.deadline(), Some((seconds(107), DeadlineKind::UpstreamRead)));
    task.now = seconds(106);
    task.gets("HTTP/1.1 ");
    assert_eq!(task.deadline(), Some((seconds(113), DeadlineKind::UpstreamRead)));
    task.now = seconds(110);
    task.gets("");
    assert_eq!(task.deadline(), Some((seconds(113), DeadlineKind::UpstreamRead)), "no bytes came");
    task.gets("200 OK\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(task.deadline(), Some((seconds(117), DeadlineKind::UpstreamRead)));
    task.expires(seconds(117));
    assert_eq!(task.seen.last(), Some(&Seen::Failed(Failure::ReadTimeout)));
}

/// T9: while we hold the answer back, the upstream is not late.
#[test]
fn an_answer_that_is_held_back_has_no_deadline() {
    let mut task = asked();
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    task.engine.hold(true, task.now);
    assert_eq!(task.deadline(), None);
    task.gets("def");
    assert_eq!(task.seen.len(), 2, "what is held back is not taken");
    task.now = seconds(500);
    task.engine.hold(false, task.now);
    assert_eq!(task.deadline(), Some((seconds(560), DeadlineKind::UpstreamRead)));
    task.gets("ghi");
    assert_eq!(task.seen[1..], [Seen::Body(b"abcdefghi".to_vec()), Seen::End]);
    assert_eq!(task.deadline(), None, "how long a connection is kept is the pool's business");
}

/// U6: bytes in either direction keep a tunnel.
#[test]
fn a_tunnel_ends_when_both_sides_are_silent() {
    let mut task = task(None, Some(10));
    let fields = pairs(&[("Host", "a"), ("Connection", "upgrade"), ("Upgrade", "x")]);
    task.starts("GET", &fields, RequestBody::None);
    task.gets("HTTP/1.1 101 Ok\r\nUpgrade: x\r\n\r\n");
    task.now = seconds(8);
    task.body(b"ping");
    assert_eq!(task.deadline(), Some((seconds(18), DeadlineKind::UpstreamRead)));
    task.now = seconds(17);
    task.gets("pong");
    assert_eq!(task.deadline(), Some((seconds(27), DeadlineKind::UpstreamRead)));
    task.expires(seconds(27));
    assert_eq!(task.seen.last(), Some(&Seen::Failed(Failure::ReadTimeout)));
}

/// T2: no timeout is no deadline.
#[test]
fn without_timeouts_nothing_expires() {
    let mut task = task(None, None);
    task.tries("GET", &pairs(&[("Host", "a")]), RequestBody::None).expect("sound");
    assert_eq!(task.deadline(), None);
    task.flush();
    assert_eq!(task.deadline(), None);
    task.expires(seconds(1 << 20));
    assert_eq!(task.seen, []);
}

/// T3: bytes that came in the same turn are received before deadlines act.
#[test]
fn data_wins_over_a_deadline_that_is_due() {
    let mut task = asked();
    task.now = seconds(60);
    task.gets("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    task.expires(seconds(60));
    assert_eq!(task.seen, [Seen::Head(200), Seen::End]);
}
