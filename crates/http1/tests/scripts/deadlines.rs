//! Deadlines on a virtual clock (T1–T9).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Cause, Event};
use sekisho_lifecycle::DeadlineKind::{Body, Header, KeepAlive, Linger, Send};
use sekisho_lifecycle::{CloseReason, Engine, Moment, Stage};

use crate::harness::{GET, Peer, policy, refused, seconds};

const SECOND: Duration = Duration::from_secs(1);
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";

fn expired(kind: sekisho_lifecycle::DeadlineKind) -> Stage {
    Stage::Closed(CloseReason::Expired(kind))
}

/// T4, T6, T7: a connection that never sends a byte gets one 408 and is closed.
#[test]
fn a_connection_that_never_sends_a_byte_gets_408() {
    let mut peer = Peer::default();
    assert_eq!(peer.deadline(), Some((Header, seconds(10))));
    peer.now = Moment::from_nanos(seconds(10).as_nanos() - 1);
    assert_eq!(peer.expires(), None, "never early");
    assert_eq!(
        refused(peer.at(seconds(10)).expires().as_ref()),
        Some((408, Cause::HeaderTimedOut))
    );
    assert_eq!(peer.expires(), None, "marked once");
    assert_eq!(peer.deadline(), None);
    peer.answers(Status::REQUEST_TIMEOUT);
    assert_eq!(peer.deadline(), Some((Send, seconds(15))), "it has a short deadline of its own");
    let answer = peer.flushes();
    assert!(answer.contains("Content-Length: 2\r\nConnection: close\r\n\r\n"), "{answer}");
    assert_eq!(peer.stage(), Stage::Lingering);
    assert_eq!(peer.sends(GET), None, "what arrives later is ignored");
    peer.ends_input();
    assert_eq!(peer.stage(), expired(Header));
}

/// T4: the header deadline is absolute: bytes do not extend it.
#[test]
fn bytes_do_not_extend_the_header_deadline() {
    let mut peer = Peer::default();
    for byte in "GET / HT".bytes() {
        assert_eq!(peer.after(SECOND).sends([byte]), None);
        assert_eq!(peer.deadline(), Some((Header, seconds(10))));
    }
    assert!(peer.at(seconds(10)).expires().is_some());
}

/// T4: it starts anew with the first byte of every request on a kept connection.
#[test]
fn the_header_deadline_starts_anew_for_every_request() {
    let mut peer = Peer::default();
    for round in 0..3 {
        let start = seconds(100 * round + 5);
        peer.at(start).sends("\r\nG");
        let begun = if round == 0 { Moment::ZERO } else { start };
        assert_eq!(peer.deadline(), Some((Header, begun + 10 * SECOND)));
        peer.after(SECOND).is_request(&GET[1..]);
        assert_eq!(peer.deadline(), None);
        peer.answers(Status::OK);
        peer.flushes();
        assert_eq!(peer.deadline(), Some((KeepAlive, start + 11 * SECOND)));
    }
    peer.at(seconds(300)).sends("G");
    assert_eq!(
        refused(peer.after(10 * SECOND).expires().as_ref()),
        Some((408, Cause::HeaderTimedOut))
    );
}

/// T4, T5: the quiet time starts when the response has left, and an empty line does not end it.
#[test]
fn the_keepalive_deadline_closes_in_silence() {
    let mut peer = Peer::default();
    peer.at(seconds(1)).is_request(GET);
    peer.answers(Status::OK);
    assert_eq!(peer.deadline(), Some((Send, seconds(11))), "it has not left");
    peer.at(seconds(3)).flushes();
    assert_eq!(peer.deadline(), Some((KeepAlive, seconds(13))));
    peer.at(seconds(5)).flushes();
    peer.sends("\r\n");
    assert_eq!(peer.deadline(), Some((KeepAlive, seconds(13))));
    assert_eq!(peer.at(seconds(13)).expires(), None);
    assert_eq!(peer.stage(), expired(KeepAlive));
    assert!(peer.scratch.out.is_empty());
}

/// T4: a response that left before it was known to be complete starts the quiet time at its end.
#[test]
fn the_keepalive_deadline_starts_at_the_end_of_a_sent_response() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    peer.heads(Status::OK, BodyLength::Known(2));
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.flushes();
    assert_eq!(peer.deadline(), None);
    peer.at(seconds(4)).finishes();
    assert_eq!(peer.deadline(), Some((KeepAlive, seconds(14))));
}

/// T3: data and deadline in the same turn: the data wins.
#[test]
fn data_wins_over_a_deadline_in_the_same_turn() {
    let mut peer = Peer::default();
    peer.at(seconds(10)).is_request(GET);
    assert_eq!(peer.expires(), None);
    peer.answers(Status::OK);
    peer.flushes();
    peer.at(seconds(20)).sends("G");
    assert_eq!(peer.expires(), None);
    assert_eq!(peer.deadline(), Some((Header, seconds(30))));
}

/// T9: while the handler works, the client is not late.
#[test]
fn no_deadline_of_the_clients_runs_while_the_handler_works() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    assert_eq!(peer.deadline(), None);
    assert_eq!(peer.at(seconds(1000)).expires(), None);
    peer.answers(Status::OK);
    peer.flushes();

    peer.is_request(POST);
    assert_eq!(peer.deadline(), None, "the body has not been asked for");
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.deadline(), Some((Body, seconds(1010))));
    peer.engine.hold_body(true, peer.now);
    assert_eq!(peer.deadline(), None, "the handler does not take it");
    peer.after(SECOND).engine.hold_body(false, seconds(1001));
    assert_eq!(peer.deadline(), Some((Body, seconds(1011))));
    peer.sends([b'x'; 100]);
    assert_eq!(peer.next(), Some(Event::BodyEnd));
    assert_eq!(peer.deadline(), None);
}

/// T4: a body may be slow but not silent.
#[test]
fn the_body_deadline_counts_silence() {
    let mut peer = Peer::default();
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    for _ in 0..10 {
        peer.after(9 * SECOND).sends("x");
        assert_eq!(peer.deadline(), Some((Body, peer.now + 10 * SECOND)));
        assert_eq!(peer.expires(), None);
    }
    assert_eq!(peer.sends(""), None, "an empty turn is no activity");
    assert_eq!(
        refused(peer.after(10 * SECOND).expires().as_ref()),
        Some((408, Cause::BodyTimedOut))
    );
    assert_eq!(peer.expires(), None);
    peer.answers(Status::REQUEST_TIMEOUT);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
    peer.ends_input();
    assert_eq!(peer.stage(), expired(Body));
}

/// T4, V15: with `client_body_min_rate`, dribbling is not enough.
#[test]
fn a_body_below_the_minimum_rate_is_late() {
    let mut peer = Peer::new(policy(|policy| policy.body_min_rate = Some(10)));
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    // Ten seconds of grace, and a tenth of a second for each byte.
    for second in 1..=10 {
        peer.at(seconds(second)).sends("x");
        assert_eq!(peer.expires(), None, "{second}");
    }
    assert_eq!(peer.deadline(), Some((Body, seconds(11))));
    assert!(peer.at(seconds(11)).expires().is_some());

    let mut peer = Peer::new(policy(|policy| {
        policy.body_min_rate = Some(10);
        policy.body_timeout = None;
    }));
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    for second in 1..=9 {
        peer.at(seconds(second)).sends("0123456789");
    }
    assert_eq!(peer.deadline(), Some((Body, seconds(19))));
}

/// T4: a body that may only pause for a short while has the same time to begin.
#[test]
fn the_grace_of_the_minimum_rate_is_ten_seconds_or_the_pause_that_is_allowed() {
    for (pause, grace) in [(1, 10), (10, 10), (60, 60)] {
        let mut peer = Peer::new(policy(|policy| {
            policy.body_min_rate = Some(10);
            policy.body_timeout = Some(SECOND * pause + SECOND / 2);
        }));
        peer.is_request(POST);
        peer.takes_body(None).expect("no limit");
        // A byte buys a tenth of a second.
        let mut late = None;
        for second in 0..90 {
            if peer.at(seconds(second)).expires().is_some() {
                late = Some(second);
                break;
            }
            peer.sends("x");
        }
        let late = late.expect("it is too slow");
        assert!((grace..=grace * 5 / 4).contains(&late), "{pause}: {late}");
    }
}

/// T4, T9, V15: a handler that takes a body piece by piece stops the clock, and does not set it back.
#[test]
fn a_body_below_the_minimum_rate_is_late_however_often_it_is_held() {
    let mut peer = Peer::new(policy(|policy| policy.body_min_rate = Some(10)));
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    for second in 1..=5 {
        peer.at(seconds(second * 2)).sends("x");
        peer.engine.hold_body(true, peer.now);
        assert_eq!(peer.deadline(), None, "{second}");
        peer.after(SECOND).engine.hold_body(false, seconds(second * 2 + 1));
        assert_eq!(peer.expires(), None, "{second}");
    }
    // Ten seconds of grace, half a second for five bytes, five seconds in which it was held.
    let late = seconds(15) + SECOND / 2;
    assert_eq!(peer.deadline(), Some((Body, late)));
    assert!(peer.at(late).expires().is_some());
}

/// H6, T4: a body that is only read to be refused is refused when it stops coming.
#[test]
fn a_too_large_body_that_stops_coming_gets_413() {
    let mut peer = Peer::default();
    peer.is_request(POST);
    peer.takes_body(Some(5)).expect("it is near enough to its end");
    peer.sends("0123456789");
    assert_eq!(refused(peer.at(seconds(10)).expires().as_ref()), Some((413, Cause::BodyTooLarge)));
    peer.answers(Status::CONTENT_TOO_LARGE);
    assert!(peer.flushes().contains("Connection: close"));
}

/// T7: a 408 is never put into a response that has started.
#[test]
fn a_late_body_behind_a_started_response_gets_no_408() {
    let mut peer = Peer::default();
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    peer.heads(Status::OK, BodyLength::Unknown);
    peer.flushes();
    assert_eq!(peer.at(seconds(10)).expires(), Some(Event::ClientLost));
    assert_eq!(peer.stage(), expired(Body));
    assert!(peer.scratch.out.is_empty());
}

/// T6, T7: nor into one that is complete while the unwanted rest of the body does not come.
#[test]
fn a_late_unwanted_body_does_not_cut_the_response() {
    let mut peer = Peer::default();
    peer.is_request(POST);
    peer.answers(Status::NOT_FOUND);
    peer.at(seconds(9)).engine.transmitted(10, true, seconds(9));
    assert_eq!(peer.at(seconds(10)).expires(), None);
    assert_eq!(peer.stage(), Stage::Open);
    peer.flushes();
    assert_eq!(peer.stage(), Stage::Lingering);

    let mut peer = Peer::default();
    peer.is_request(POST);
    peer.answers(Status::NOT_FOUND);
    peer.flushes();
    assert_eq!(peer.deadline(), Some((Body, seconds(10))));
    assert_eq!(peer.at(seconds(10)).expires(), None);
    assert_eq!(peer.stage(), expired(Body));
}

/// T4, T5: the send deadline counts the time in which the client takes nothing.
#[test]
fn the_send_deadline_aborts() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    peer.heads(Status::OK, BodyLength::Unknown);
    assert_eq!(peer.deadline(), Some((Send, seconds(10))));
    peer.at(seconds(2)).flushes();
    assert_eq!(peer.deadline(), None, "the handler is slow, not the client");
    peer.now = seconds(50);
    peer.engine.body(b"hello", &mut peer.scratch);
    peer.stalls();
    assert_eq!(peer.deadline(), Some((Send, seconds(60))));
    peer.at(seconds(55)).stalls();
    assert_eq!(peer.deadline(), Some((Send, seconds(60))), "an attempt is no activity");
    peer.engine.transmitted(1, true, peer.now);
    assert_eq!(peer.deadline(), Some((Send, seconds(65))));
    assert_eq!(peer.at(seconds(65)).expires(), Some(Event::ClientLost));
    assert_eq!(peer.stage(), expired(Send));
    assert_eq!(peer.deadline(), None);
}

/// T4: lingering ends after quiet time, and after its whole time whatever comes.
#[test]
fn lingering_is_bounded_twice() {
    let lingering = || {
        let mut peer = Peer::default();
        assert!(peer.sends("\0").is_some());
        peer.answers(Status::BAD_REQUEST);
        peer.flushes();
        assert_eq!(peer.stage(), Stage::Lingering);
        assert!(peer.engine.wants_input());
        peer
    };
    let mut peer = lingering();
    assert_eq!(peer.deadline(), Some((Linger, seconds(10))));
    assert_eq!(peer.at(seconds(10)).expires(), None);
    assert_eq!(peer.stage(), expired(Linger));

    let mut peer = lingering();
    for second in [9, 18, 27] {
        peer.at(seconds(second)).sends("x");
        assert_eq!(peer.expires(), None);
    }
    assert_eq!(peer.deadline(), Some((Linger, seconds(30))));
    peer.at(seconds(30)).expires();
    assert_eq!(peer.stage(), expired(Linger));
}

/// T2: no timeout means no deadline, and contributes nothing.
#[test]
fn deadlines_that_are_off_do_not_exist() {
    let mut peer = Peer::new(policy(|policy| {
        policy.header_timeout = None;
        policy.body_timeout = None;
        policy.send_timeout = None;
        policy.lingering_timeout = None;
        policy.lingering_time = None;
    }));
    assert_eq!(peer.deadline(), None);
    peer.is_request(POST);
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.deadline(), None);
    peer.heads(Status::OK, BodyLength::Empty);
    peer.stalls();
    assert_eq!(peer.deadline(), None);
    assert_eq!(peer.at(seconds(1_000_000)).expires(), None);
    peer.sends([b'x'; 100]);
    peer.next();
    peer.finishes();
    peer.flushes();
    assert_eq!(peer.deadline(), Some((KeepAlive, seconds(1_000_010))));
    peer.sends("(");
    peer.answers(Status::BAD_REQUEST);
    peer.flushes();
    assert_eq!((peer.stage(), peer.deadline()), (Stage::Lingering, None));
}

/// T8: the listener's values before `Host` is known, the chosen server's afterwards.
#[test]
fn the_chosen_policy_holds_until_the_next_request_begins() {
    let chosen = policy(|policy| {
        policy.header_timeout = Some(77 * SECOND);
        policy.body_timeout = Some(20 * SECOND);
        policy.keepalive_timeout = Some(30 * SECOND);
        policy.line_bytes_max = 1;
    });
    let mut peer = Peer::default();
    for _ in 0..2 {
        let start = peer.now;
        peer.is_request(POST);
        peer.engine.set_policy(&chosen);
        assert!(std::sync::Arc::ptr_eq(peer.engine.policy(), &chosen));
        peer.takes_body(None).expect("no limit");
        assert_eq!(peer.deadline(), Some((Body, start + 20 * SECOND)));
        peer.sends([b'x'; 100]);
        peer.next();
        peer.answers(Status::OK);
        peer.flushes();
        assert_eq!(peer.deadline(), Some((KeepAlive, start + 30 * SECOND)));
        peer.after(SECOND).sends(&POST[..1]);
        assert_eq!(peer.deadline(), Some((Header, start + 11 * SECOND)));
        peer.is_request(&POST[1..]);
        peer.answers(Status::OK);
        peer.sends([b'x'; 100]);
        peer.flushes();
    }
}

/// T6: with answers of a batch still waiting, a late head is refused behind them.
#[test]
fn a_late_pipelined_head_is_refused_behind_the_answers_before_it() {
    let mut peer = Peer::default();
    peer.is_request(GET.to_owned() + "GET /la");
    peer.answers(Status::OK);
    assert_eq!(peer.next(), None);
    peer.engine.transmitted(1, true, seconds(5));
    assert_eq!(peer.deadline(), Some((Header, seconds(10))));
    assert!(peer.at(seconds(10)).expires().is_some());
    peer.answers(Status::REQUEST_TIMEOUT);
    let out = peer.flushes();
    assert!(out.find("200 OK") < out.find("408 Request Timeout"), "{out}");
    assert_eq!(peer.stage(), Stage::Lingering);
}
