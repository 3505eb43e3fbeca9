//! Which connections are kept, which are closed and how, and what a client's FIN means (H1–H3, H8,
//! H10–H13).

use std::time::Duration;

use sekisho_http::Status;
use sekisho_http1::{BodyLength, Event, Http1, Sends};
use sekisho_lifecycle::{CloseReason, Engine, Stage};

use crate::harness::{GET, Peer, policy};

#[test]
fn an_engine_is_small() {
    println!("an Http1 is {} bytes", size_of::<Http1>());
    assert!(size_of::<Http1>() <= 160, "{}", size_of::<Http1>());
}

/// What a head says where the connection is kept.
const KEPT: &str = "Connection: keep-alive\r\n";

/// H1: which clients keep the connection, what the response says about it, and how it ends.
#[test]
fn version_and_connection_field_decide_whether_the_client_persists() {
    let rows = [
        ("HTTP/1.1", "", None, "keep-alive"),
        ("HTTP/1.1", "Connection: keep-alive\r\n", None, "keep-alive"),
        ("HTTP/1.1", "Connection: upgrade, TE\r\n", None, "keep-alive"),
        ("HTTP/1.1", "Connection: close\r\n", Some(CloseReason::ClientAsked), "close"),
        ("HTTP/1.1", "Connection: TE ,\tCLOSE\r\n", Some(CloseReason::ClientAsked), "close"),
        (
            "HTTP/1.1",
            "Connection: keep-alive\r\nConnection: close\r\n",
            Some(CloseReason::ClientAsked),
            "close",
        ),
        ("HTTP/1.0", "", Some(CloseReason::ClientAsked), "close"),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", None, "keep-alive"),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", Some(CloseReason::ClientAsked), "close"),
    ];
    for (version, field, reason, said) in rows {
        let mut peer = Peer::default();
        peer.is_request(format!("GET / {version}\r\nHost: a\r\n{field}\r\n"));
        peer.answers(Status::OK);
        let answer = peer.flushes();
        let connection = format!("Connection: {said}\r\n");
        let expected =
            format!("HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 2\r\n{connection}\r\nok");
        assert_eq!(answer, expected);
        // A client that said it would send no more is not listened to any longer.
        assert_eq!(peer.stage(), reason.map_or(Stage::Open, Stage::Closed), "{version} {field}");
    }
}

/// H1: a body that ends only at close closes, though the client wanted to keep the connection.
#[test]
fn an_unknown_length_closes_http10_and_chunks_http11() {
    let mut peer = Peer::default();
    peer.is_request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(peer.heads(Status::OK, BodyLength::Unknown), Sends::Stream);
    peer.engine.body(b"hello", &mut peer.scratch);
    peer.finishes();
    let answer = peer.flushes();
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nServer: s\r\nConnection: close\r\n\r\nhello");
    assert_eq!(peer.stage(), Stage::Lingering);
    peer.ends_input();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::CloseDelimited));

    let mut peer = Peer::default();
    peer.is_request(GET);
    assert_eq!(peer.heads(Status::OK, BodyLength::Unknown), Sends::Stream);
    peer.engine.body(b"hello", &mut peer.scratch);
    peer.engine.body(b"", &mut peer.scratch);
    peer.finishes();
    let answer = peer.flushes();
    let body = "5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(
        answer,
        format!("HTTP/1.1 200 OK\r\nServer: s\r\nTransfer-Encoding: chunked\r\n{KEPT}\r\n{body}")
    );
    assert_eq!(peer.stage(), Stage::Open);
}

/// H2, H3: the status code has no part in whether the connection is kept.
#[test]
fn no_status_closes_a_connection_after_a_complete_request() {
    let mut peer = Peer::default();
    for code in [200, 304, 400, 404, 405, 408, 413, 431, 500, 501, 502, 503, 504, 507] {
        peer.is_request(GET);
        peer.answers(Status::new(code).expect("a status"));
        assert!(!peer.flushes().contains("Connection: close"), "{code}");
        assert_eq!(peer.stage(), Stage::Open, "{code}");
    }
}

/// H12: HEAD has the head of GET and no body; 204 and 304 have neither body nor length.
#[test]
fn responses_without_a_body_have_none() {
    for (method, status, length) in [
        ("HEAD", Status::OK, "Content-Length: 2\r\n"),
        ("GET", Status::NO_CONTENT, ""),
        ("GET", Status::NOT_MODIFIED, ""),
    ] {
        let mut peer = Peer::default();
        peer.is_request(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(peer.heads(status, BodyLength::Known(2)), Sends::Nothing);
        peer.engine.body(b"ok", &mut peer.scratch);
        peer.finishes();
        let answer = peer.flushes();
        assert!(answer.ends_with(&format!("\r\nServer: s\r\n{length}{KEPT}\r\n")), "{answer}");
        assert!(peer.engine.is_idle());
    }
}

/// H13, C9: what goes beyond the declared length is cut; what stays below it is broken off.
#[test]
fn a_declared_length_is_kept_or_the_connection_broken_off() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    assert_eq!(peer.heads(Status::OK, BodyLength::Known(4)), Sends::Exactly(4));
    peer.engine.body(b"abc", &mut peer.scratch);
    peer.engine.body(b"def", &mut peer.scratch);
    peer.finishes();
    assert!(peer.flushes().ends_with("\r\n\r\nabcd"));
    assert_eq!(peer.stage(), Stage::Open);

    peer.is_request(GET);
    peer.heads(Status::OK, BodyLength::Known(4));
    peer.engine.body(b"abc", &mut peer.scratch);
    peer.finishes();
    assert_eq!(peer.stage(), Stage::Open, "what there is still leaves");
    assert!(peer.flushes().ends_with("\r\n\r\nabc"));
    assert_eq!(peer.stage(), Stage::Lingering);
    assert!(!peer.engine.is_cut(), "the length shows the cut");
}

/// C5: where the framing shows the cut, what was sent arrives and the connection ends behind it; where only the end
/// of the connection delimits the response, it is reset.
#[test]
fn a_broken_response_ends_behind_what_was_sent_or_is_reset() {
    // For each: the request, the length that is known, and whether the end must be a reset.
    let rows = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::Unknown, false),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyLength::Known(9), false),
        ("GET / HTTP/1.0\r\n\r\n", BodyLength::Known(9), false),
        ("GET / HTTP/1.0\r\n\r\n", BodyLength::Unknown, true),
    ];
    for (request, length, is_reset) in rows {
        let mut peer = Peer::default();
        peer.is_request(request);
        peer.heads(Status::OK, length);
        peer.engine.body(b"some", &mut peer.scratch);
        let now = peer.now;
        peer.engine.break_off(now);
        assert_eq!(peer.engine.is_cut(), is_reset, "{request}");
        if is_reset {
            assert_eq!(peer.stage(), Stage::Closed(CloseReason::BrokenOff));
            continue;
        }
        let sent = peer.flushes();
        assert!(sent.contains("some") && !sent.contains("\r\n0\r\n"), "{sent}");
        // FIN; then the client may take its time to read it.
        assert_eq!(peer.stage(), Stage::Lingering);
        assert_eq!(peer.engine.input_ended(now), None);
        assert_eq!(peer.stage(), Stage::Closed(CloseReason::BrokenOff));
        assert!(!peer.engine.is_cut());
    }
    assert!(!CloseReason::BrokenOff.wants_reset());
}

/// C5: a response that ends with the connection is not complete before all of it has been sent; an earlier
/// close, for whatever reason, must not make it look complete.
#[test]
fn a_response_that_only_the_end_of_the_connection_ends_is_cut_by_any_other_end() {
    // For each: the request, and whether a plain end would lie about its answer.
    let rows = [
        ("POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\nabc", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", false),
    ];
    for (request, would_lie) in rows {
        let mut peer = Peer::default();
        peer.is_request(request);
        peer.takes_body(None).expect("there is no limit");
        assert!(!peer.engine.is_cut());
        assert_eq!(peer.heads(Status::OK, BodyLength::Unknown), Sends::Stream);
        peer.engine.body(b"some", &mut peer.scratch);
        peer.flushes();
        // The rest of the request does not come, in the middle of the answer.
        let (kind, at) = peer.deadline().expect("the body is awaited");
        assert_eq!(peer.at(at).expires(), Some(Event::ClientLost));
        assert_eq!(peer.stage(), Stage::Closed(CloseReason::Expired(kind)));
        assert_eq!(peer.engine.is_cut(), would_lie, "{request}");
    }
    // Made is not sent: force may come between the two.
    let mut peer = Peer::default();
    peer.is_request("GET / HTTP/1.0\r\n\r\n");
    peer.heads(Status::OK, BodyLength::Unknown);
    peer.engine.body(b"all", &mut peer.scratch);
    peer.finishes();
    assert!(peer.engine.is_cut());
    assert!(peer.flushes().ends_with("all"));
    assert!(!peer.engine.is_cut());
}

#[test]
fn a_file_that_the_shell_sends_counts_as_body() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    assert_eq!(peer.heads(Status::OK, BodyLength::Known(1000)), Sends::Exactly(1000));
    peer.flushes();
    peer.engine.transmitted(600, true, peer.now);
    peer.engine.file_sent(600);
    peer.engine.transmitted(400, false, peer.now);
    peer.engine.file_sent(400);
    peer.finishes();
    assert!(peer.engine.is_idle());
}

/// An answer without a request changes nothing, and 1xx is no answer.
#[test]
fn commands_out_of_turn_are_harmless() {
    let mut peer = Peer::default();
    assert_eq!(peer.heads(Status::OK, BodyLength::Known(2)), Sends::Nothing);
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.finishes();
    assert_eq!(peer.takes_body(None), Ok(()));
    peer.engine.file_sent(7);
    assert!(peer.scratch.out.is_empty() && peer.engine.is_idle());
    peer.is_request(GET);
    peer.heads(Status::CONTINUE, BodyLength::Empty);
    assert_eq!(peer.heads(Status::OK, BodyLength::Known(2)), Sends::Nothing);
    peer.finishes();
    peer.finishes();
    assert_eq!(
        peer.flushes(),
        format!(
            "HTTP/1.1 500 Internal Server Error\r\nServer: s\r\nContent-Length: 0\r\n{KEPT}\r\n"
        )
    );
    peer.engine.abort(CloseReason::ByConfiguration);
    peer.engine.abort(CloseReason::Forced);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::ByConfiguration));
    assert_eq!(peer.sends(GET), None);
    assert_eq!(peer.ends_input(), None);
    assert_eq!(peer.deadline(), None);
}

/// H8: ten thousand requests in one buffer are answered in order without new input.
#[test]
fn pipelined_requests_are_answered_from_one_buffer() {
    const COUNT: usize = 10_000;
    let mut peer = Peer::new(policy(|policy| policy.keepalive_requests = u64::MAX));
    let input: Vec<u8> = (0..COUNT)
        .flat_map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n").into_bytes())
        .collect();
    let mut at = 0;
    for n in 0..COUNT {
        let step = peer.engine.receive(&input[at..], &mut peer.scratch, peer.now);
        assert_eq!(step.event, Some(Event::Request));
        assert_eq!(peer.scratch.head.target(), format!("/{n}").as_bytes());
        at += step.taken;
        // While a response is under way, what is behind it waits.
        assert!(!peer.engine.wants_input());
        assert!(peer.engine.receive(&input[at..], &mut peer.scratch, peer.now).is_rest());
        peer.answers(Status::OK);
    }
    assert_eq!(at, input.len());
    assert_eq!(peer.engine.requests(), COUNT as u64);
    assert_eq!(peer.flushes().matches("HTTP/1.1 200 OK\r\n").count(), COUNT);
    assert!(peer.engine.is_idle());
}

/// H10: the last request that a connection may carry says so.
#[test]
fn keepalive_requests_closes_with_the_last_one() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_requests = 2));
    peer.is_request(GET.repeat(3));
    peer.answers(Status::OK);
    assert!(!peer.flushes().contains("Connection: close"));
    assert_eq!(peer.next(), Some(Event::Request));
    peer.answers(Status::OK);
    assert_eq!(peer.next(), None, "the third is not served");
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering, "or the reset would eat the answer");
    peer.ends_input();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::RequestsUsedUp));
}

/// nginx's `keepalive_time`: an old connection closes with its next answer.
#[test]
fn an_old_connection_closes_with_its_next_answer() {
    let mut peer = Peer::new(policy(|policy| {
        policy.keepalive_time = Some(Duration::from_mins(1));
        policy.keepalive_timeout = Some(Duration::from_secs(100));
    }));
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(!peer.flushes().contains("Connection: close"));
    peer.after(Duration::from_secs(61));
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
}

/// The second value of `keepalive_timeout` is sent to the client if the connection is kept.
#[test]
fn a_client_is_told_how_long_it_may_be_idle() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_header_secs = Some(5)));
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n"));
    peer.is_request(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    peer.answers(Status::OK);
    let out = peer.flushes();
    assert!(out.contains("Connection: close") && !out.contains("Keep-Alive"), "{out}");
}

/// `chunked_transfer_encoding off`: the connection's end is the answer's.
#[test]
fn without_chunks_an_unknown_length_ends_with_the_connection() {
    let mut peer = Peer::new(policy(|policy| policy.sends_chunks = false));
    peer.is_request(GET);
    peer.heads(Status::OK, BodyLength::Unknown);
    let out = peer.flushes();
    assert!(out.contains("Connection: close") && !out.contains("chunked"), "{out}");
}

#[test]
fn keep_alive_switched_off_closes() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_timeout = None));
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
    peer.ends_input();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::KeepAliveOff));
}

/// H5: one empty line is ignored for each request, and begins none.
#[test]
fn a_lone_empty_line_gets_no_answer() {
    let mut peer = Peer::default();
    for _ in 0..3 {
        assert_eq!(peer.sends("\r"), None);
        assert_eq!(peer.sends("\n"), None);
        assert!(peer.inbox.is_empty() && peer.engine.is_idle());
        peer.is_request(GET);
        peer.answers(Status::OK);
        peer.flushes();
    }
    assert_eq!(peer.sends("\r\n"), None);
    assert_eq!(peer.ends_input(), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
}

/// H11: what FIN means, by where it comes.
#[test]
fn an_end_of_input_means_what_the_moment_says() {
    // Between requests.
    let mut peer = Peer::default();
    assert_eq!(peer.ends_input(), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));

    // Within a head.
    let mut peer = Peer::default();
    peer.sends("GET / HT");
    assert_eq!(peer.ends_input(), None);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosedEarly));

    // Within a body.
    let mut peer = Peer::default();
    peer.is_request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.next(), Some(Event::Body(0..3)));
    assert_eq!(peer.ends_input(), Some(Event::ClientLost));
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosedEarly));

    // While the handler works.
    let mut peer = Peer::default();
    peer.is_request(GET);
    assert_eq!(peer.ends_input(), Some(Event::ClientLost));
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
    peer.answers(Status::OK);
    assert!(peer.scratch.out.is_empty());

    // While the handler works, with `half_close on`.
    let mut peer = Peer::new(policy(|policy| policy.half_close = true));
    peer.is_request(GET);
    assert_eq!(peer.ends_input(), None);
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(
        peer.stage(),
        Stage::Closed(CloseReason::PeerClosed),
        "there is nothing to linger for"
    );

    // While the response is being sent.
    let mut peer = Peer::default();
    peer.is_request(GET);
    peer.heads(Status::OK, BodyLength::Known(2));
    assert_eq!(peer.ends_input(), None);
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.finishes();
    assert_eq!(peer.stage(), Stage::Open);
    assert!(peer.flushes().ends_with("ok"));
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
    assert!(!peer.engine.wants_input());
}

/// H8, H11: what was answered before FIN still leaves, whatever follows it.
#[test]
fn answers_that_are_ready_survive_an_end_of_input() {
    let half = "GET /2 HT";
    let whole = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let rows = [
        ("", None, CloseReason::PeerClosed),
        (half, None, CloseReason::PeerClosedEarly),
        (whole, Some(Event::ClientLost), CloseReason::PeerClosedEarly),
    ];
    for (behind, event, reason) in rows {
        let mut peer = Peer::default();
        peer.is_request(GET.to_owned() + behind);
        peer.answers(Status::OK);
        peer.next();
        assert_eq!(peer.ends_input(), event);
        assert_eq!(peer.stage(), Stage::Open);
        assert!(peer.flushes().ends_with("ok"), "{behind}");
        assert_eq!(peer.stage(), Stage::Closed(reason), "{behind}");
    }
}

/// O4: a client that has just had its answer may have sent the next request before it knows that we
/// drain; that one is answered, and the answer says that it is the last.
#[test]
fn one_more_request_is_answered_by_a_connection_that_drains() {
    let mut peer = Peer::default();
    peer.is_request(GET);
    // The head of this answer is sent without `Connection: close`, so another request may follow it.
    peer.heads(Status::OK, BodyLength::Known(2));
    peer.engine.close_after_next();
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.finishes();
    assert!(!peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Open);
    peer.engine.close_after_next();
    assert!(peer.engine.is_idle(), "and may be ended at any moment");
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// L6, O4: a graceful shutdown ends idle connections now and busy ones after their response.
#[test]
fn a_graceful_shutdown_waits_for_the_response() {
    // Never used.
    let mut peer = Peer::default();
    peer.engine.shut_down_gracefully(peer.now);
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Draining));

    // A request has begun.
    let mut peer = Peer::default();
    peer.sends("GET");
    peer.engine.shut_down_gracefully(peer.now);
    assert_eq!(peer.stage(), Stage::Open);
    assert!(peer.engine.will_close());
    peer.is_request(" / HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.answers(Status::OK);
    assert!(peer.flushes().contains("Connection: close"));
    peer.ends_input();
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::Draining));

    // The head of the response has left.
    let mut peer = Peer::default();
    peer.is_request(GET.repeat(2));
    peer.heads(Status::OK, BodyLength::Known(2));
    peer.flushes();
    peer.engine.shut_down_gracefully(peer.now);
    peer.engine.body(b"ok", &mut peer.scratch);
    peer.finishes();
    assert_eq!(peer.next(), None, "nothing new is taken");
    assert_eq!(peer.flushes(), "ok");
    assert_eq!(peer.stage(), Stage::Lingering);

    // The response is complete and has not left.
    let mut peer = Peer::default();
    peer.is_request(GET);
    peer.answers(Status::OK);
    assert!(!peer.engine.is_idle());
    peer.engine.shut_down_gracefully(peer.now);
    assert_eq!(peer.stage(), Stage::Open);
    assert!(peer.flushes().ends_with("ok"));
    assert_eq!(peer.stage(), Stage::Lingering);
}

/// H12, V3: nothing of a request is left for the next: neither HEAD, nor its version, nor a held body.
#[test]
fn a_request_leaves_nothing_behind_for_the_next() {
    let mut peer = Peer::default();
    peer.is_request("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n");
    peer.takes_body(None).expect("no limit");
    peer.engine.hold_body(true, peer.now);
    peer.answers(Status::OK);
    assert_eq!(peer.sends("x"), None);
    peer.flushes();
    assert!(peer.engine.is_idle());

    peer.is_request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    peer.takes_body(None).expect("no limit");
    assert_eq!(peer.next(), Some(Event::Body(0..1)));
    peer.next();
    peer.answers(Status::OK);
    assert!(peer.flushes().ends_with(&format!("Content-Length: 2\r\n{KEPT}\r\nok")));

    peer.is_request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.answers(Status::OK);
    peer.flushes();
    assert!(peer.sends("(").is_some());
    peer.answers(Status::BAD_REQUEST);
    assert!(peer.flushes().ends_with("ok"), "the refusal is not an answer to HEAD");
}

/// H11: with `half_close`, a FIN behind a request that is whole is no loss, though its handler has not taken all
/// of the body yet; behind one that is not, it is, as soon as that is known.
#[test]
fn a_fin_behind_a_body_that_is_held_back_waits_for_what_came_before_it() {
    const HEAD: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n";
    for (half_close, rest, is_lost_at_once, is_lost) in
        [(true, "def", false, false), (true, "de", false, true), (false, "def", true, true)]
    {
        let mut peer = Peer::new(policy(|policy| policy.half_close = half_close));
        peer.is_request(HEAD);
        peer.takes_body(None).expect("there is no limit");
        assert_eq!(peer.sends("abc"), Some(Event::Body(0..3)));
        peer.engine.hold_body(true, peer.now);
        assert_eq!(peer.sends(rest), None);
        let lost = |event: Option<Event>| event == Some(Event::ClientLost);
        assert_eq!(lost(peer.ends_input()), is_lost_at_once);
        if is_lost_at_once {
            continue;
        }
        assert_eq!(peer.deadline(), None);
        peer.engine.hold_body(false, peer.now);
        assert_eq!(peer.next(), Some(Event::Body(0..rest.len())));
        let event = peer.next();
        assert_eq!(event, Some(if is_lost { Event::ClientLost } else { Event::BodyEnd }));
        assert_eq!(peer.deadline(), None);
        if is_lost {
            assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
        } else {
            peer.answers(Status::OK);
            assert!(peer.flushes().contains("Connection: close"));
            assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosed));
        }
    }
    // The same where what waited turns out to be too much.
    let mut peer = Peer::new(policy(|policy| policy.half_close = true));
    peer.is_request("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.takes_body(Some(4)).expect("not known yet");
    assert_eq!(peer.sends("3\r\nabc"), Some(Event::Body(3..6)));
    peer.engine.hold_body(true, peer.now);
    assert_eq!(peer.sends("\r\n3\r\ndef"), None);
    assert_eq!(peer.ends_input(), None);
    peer.engine.hold_body(false, peer.now);
    assert_eq!(peer.next(), Some(Event::Body(5..6)));
    assert_eq!(peer.next(), Some(Event::ClientLost));
    assert_eq!(peer.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
}
