//! Deadlines on virtual time (T1–T10, Q4).

use std::time::Duration;

use sekisho_http3::{BodyLength, Cause, Code, Event, Loss, Owner};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Stage};

use crate::harness::{World, body_of, data, get, post};

const TEN: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_mins(1);

fn is_over(world: &World, kind: DeadlineKind) -> bool {
    world.engine.stage() == Stage::Closed(CloseReason::Expired(kind))
        && world.is_closed_with(Code::NoError)
}

/// The earliest deadline falls in so much time.
fn expects(world: &World, owner: Owner, kind: DeadlineKind, length: Duration) {
    let at = world.now + length;
    assert_eq!(world.engine.next_owned_deadline(), Some((Deadline { at, kind }, owner)));
}

#[test]
fn the_first_head_has_a_deadline_from_the_handshake_on() {
    // Q4
    let mut world = World::default();
    world.pass(Duration::from_secs(9));
    world.send(0, &get()[..5], false);
    assert_eq!(world.poll(), []);
    expects(&world, Owner::Connection, DeadlineKind::Header, Duration::from_secs(1));
    world.pass(Duration::from_millis(999));
    assert_eq!(world.expire(), []);
    assert_eq!(world.engine.stage(), Stage::Open);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.expire(), []);
    assert!(is_over(&world, DeadlineKind::Header));
}

#[test]
fn a_later_head_has_its_own_and_bytes_do_not_push_it() {
    let mut world = World::default();
    let id = world.get(0);
    world.pass(MINUTE);
    world.send(4, &get()[..5], false);
    assert_eq!(world.poll(), []);
    world.pass(Duration::from_secs(9));
    world.send(4, &get()[5..7], false);
    assert_eq!(world.poll(), []);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.expire(), []);
    assert_eq!(world.quic.outgoing[&4].reset, Some(Code::RequestIncomplete.number()));
    assert_eq!(world.quic.stops[&4], Code::RequestIncomplete.number());
    world.serve(id);
    expects(&world, Owner::Connection, DeadlineKind::KeepAlive, TEN);
}

#[test]
fn a_body_that_does_not_come_is_408_or_a_reset() {
    // T7
    for has_begun in [false, true] {
        let mut world = World::default();
        world.send(0, &post(&[]), false);
        let id = world.request();
        assert_eq!(world.engine.next_deadline(), None, "nothing is awaited");
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        world.pass(Duration::from_secs(9));
        world.send(0, &data(b"x"), false);
        assert_eq!(body_of(&world.poll(), id), (b"x".to_vec(), false));
        expects(&world, Owner::Stream(id), DeadlineKind::Body, TEN);
        if has_begun {
            world.respond(id, BodyLength::Unknown);
        }
        world.pass(TEN);
        if has_begun {
            let loss = Loss::Expired(DeadlineKind::Body);
            assert_eq!(world.expire(), [Event::ClientLost(id, loss)]);
            assert_eq!(world.quic.outgoing[&0].reset, Some(Code::RequestCancelled.number()));
            assert!(!world.quic.outgoing[&0].has_ended);
            world.finish(id);
        } else {
            assert_eq!(world.expire(), [Event::Refused(id, Cause::BodyTimedOut.into())]);
            world.respond(id, BodyLength::Empty);
            world.finish(id);
            assert!(world.quic.outgoing[&0].has_ended);
            assert_eq!(world.quic.stops[&0], Code::NoError.number());
        }
        assert_eq!(world.engine.open_streams(), 0);
    }
}

#[test]
fn a_handler_that_holds_the_body_stops_the_clock() {
    // T9
    let mut world = World::default();
    world.send(0, &post(&[]), false);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    world.engine.hold_body(id, true, world.now);
    assert_eq!(world.engine.next_deadline(), None);
    world.pass(MINUTE);
    world.engine.hold_body(id, false, world.now);
    expects(&world, Owner::Stream(id), DeadlineKind::Body, TEN);
    world.send(0, &[], true);
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn a_body_has_a_least_rate() {
    let mut world = World::with(|policy| policy.body_min_rate = Some(100));
    world.send(0, &post(&[]), false);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    let mut passed = Duration::ZERO;
    // Ten bytes a second buy a tenth of the time that passes.
    while world.expire().is_empty() {
        world.pass(Duration::from_secs(1));
        passed += Duration::from_secs(1);
        world.send(0, &data(&[0; 10]), false);
        world.poll();
        assert!(passed < MINUTE);
    }
    assert!((11..=13).contains(&passed.as_secs()), "{passed:?}");
}

#[test]
fn a_client_that_takes_nothing_of_a_response_is_lost() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Known(10_000));
    world.engine.set_ready(id, true, world.now);
    world.quic.out(0).window = 2000;
    assert_eq!(world.body(id, &[0; 10_000]), 2000);
    assert_eq!(world.engine.next_sendable(), None);
    expects(&world, Owner::Stream(id), DeadlineKind::Send, MINUTE);
    // A window that is opened byte by byte counts as closed (V11).
    world.pass(Duration::from_secs(30));
    world.open_window(0, 1);
    assert_eq!(world.engine.next_sendable(), Some(id));
    assert_eq!(world.body(id, &[0; 8000]), 1);
    expects(&world, Owner::Stream(id), DeadlineKind::Send, Duration::from_secs(30));
    world.open_window(0, 2000);
    assert_eq!(world.body(id, &[0; 7999]), 2000);
    expects(&world, Owner::Stream(id), DeadlineKind::Send, MINUTE);
    world.pass(MINUTE);
    let loss = Loss::Expired(DeadlineKind::Send);
    assert_eq!(world.expire(), [Event::ClientLost(id, loss)]);
    assert_eq!(world.quic.outgoing[&0].reset, Some(Code::RequestCancelled.number()));
    assert!(!world.quic.outgoing[&0].has_ended, "Q5: a cut response has no FIN");
}

/// T4: what QUIC has taken leaves later; the deadline counts from the client's last acknowledgement of it.
#[test]
fn a_stalled_response_counts_from_its_last_acknowledgement() {
    let mut world = World::default();
    let id = world.get(0);
    world.acknowledge(100, true);
    world.respond(id, BodyLength::Known(10_000));
    world.engine.set_ready(id, true, world.now);
    world.quic.out(0).window = 2000;
    assert_eq!(world.body(id, &[0; 10_000]), 2000);
    for (bytes, is_all) in [(1000, false), (1000, true)] {
        world.pass(Duration::from_secs(20));
        world.acknowledge(bytes, is_all);
        expects(&world, Owner::Stream(id), DeadlineKind::Send, MINUTE);
    }
    // Nothing of this stream waits any more: these are for others.
    world.pass(Duration::from_secs(10));
    world.acknowledge(1000, false);
    expects(&world, Owner::Stream(id), DeadlineKind::Send, Duration::from_secs(50));
}

/// V11: neither many bytes of other streams nor a packet that is never acknowledged keep a stalled stream for ever.
#[test]
fn acknowledgements_of_others_end_the_wait() {
    let mut world = World::default();
    let id = world.get(0);
    world.acknowledge(100, false);
    world.respond(id, BodyLength::Known(10_000));
    world.engine.set_ready(id, true, world.now);
    world.quic.out(0).window = 2000;
    assert_eq!(world.body(id, &[0; 10_000]), 2000);
    for left in [60, 60, 59] {
        world.pass(Duration::from_secs(1));
        world.acknowledge(3000, false);
        expects(&world, Owner::Stream(id), DeadlineKind::Send, Duration::from_secs(left));
    }
    world.open_window(0, 2000);
    assert_eq!(world.body(id, &[0; 8000]), 2000);
    for left in [60, 60, 30] {
        expects(&world, Owner::Stream(id), DeadlineKind::Send, Duration::from_secs(left));
        world.pass(Duration::from_secs(30));
        world.acknowledge(1, false);
    }
}

#[test]
fn a_handler_that_is_slow_is_not_the_clients_fault() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Known(10));
    assert_eq!(world.engine.next_deadline(), None);
    world.engine.set_ready(id, true, world.now);
    assert_eq!(world.engine.next_deadline(), None, "it can send");
    world.body(id, b"01234");
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn complete_responses_are_acknowledged_in_time() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Empty);
    world.finish(id);
    assert!(world.engine.has_unsent());
    expects(&world, Owner::Connection, DeadlineKind::Send, MINUTE);
    world.pass(Duration::from_secs(30));
    world.acknowledge(1, true);
    expects(&world, Owner::Connection, DeadlineKind::Send, MINUTE);
    world.pass(MINUTE);
    assert_eq!(world.expire(), []);
    assert!(is_over(&world, DeadlineKind::Send));
    assert_eq!(world.engine.open_streams(), 0);
}

#[test]
fn an_idle_connection_is_closed_without_an_error() {
    // Q4
    let mut world = World::default();
    let id = world.get(0);
    world.serve(id);
    assert!(!world.engine.has_unsent());
    expects(&world, Owner::Connection, DeadlineKind::KeepAlive, TEN);
    world.pass(Duration::from_secs(5));
    let id = world.get(4);
    assert_eq!(world.engine.next_deadline(), None);
    world.serve(id);
    expects(&world, Owner::Connection, DeadlineKind::KeepAlive, TEN);
    world.pass(TEN);
    assert_eq!(world.expire(), []);
    assert!(is_over(&world, DeadlineKind::KeepAlive));
}

#[test]
fn without_keep_alive_the_connection_ends_with_its_response() {
    let mut world = World::with(|policy| policy.keepalive_timeout = None);
    let id = world.get(0);
    world.respond(id, BodyLength::Empty);
    world.finish(id);
    assert_eq!(world.engine.stage(), Stage::Open, "not acknowledged");
    world.engine.delivered(0);
    assert_eq!(world.poll(), []);
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::KeepAliveOff));
    assert!(world.is_closed_with(Code::NoError));
}

#[test]
fn without_timeouts_nothing_is_armed() {
    // T2
    let mut world = World::with(|policy| {
        (policy.header_timeout, policy.body_timeout, policy.send_timeout) = (None, None, None);
    });
    assert_eq!(world.engine.next_deadline(), None);
    world.send(0, &post(&[]), false);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    world.quic.out(0).window = 0;
    world.respond(id, BodyLength::Known(5));
    world.engine.set_ready(id, true, world.now);
    assert_eq!(world.engine.next_deadline(), None);
}
