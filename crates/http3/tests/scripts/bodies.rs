//! Request bodies.

use sekisho_http::Status;
use sekisho_http3::{BodyLength, Cause, Code, Event, Loss, Malformed};

use crate::harness::{World, body_of, data, headers, post};

#[test]
fn a_body_is_read_only_when_it_is_taken() {
    // M5
    let mut world = World::default();
    world.quic.read_max = 16;
    world.send(0, &[post(&[]), data(&[b'x'; 100])].concat(), true);
    let id = world.request();
    assert!(world.engine.request_has_body(id));
    let unread = |world: &World| world.quic.unread(0);
    assert!(unread(&world) >= 80, "{}", unread(&world));
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    world.engine.hold_body(id, true, world.now);
    assert_eq!(world.poll(), []);
    assert!(unread(&world) >= 80);
    world.engine.hold_body(id, false, world.now);
    assert_eq!(body_of(&world.poll(), id), (vec![b'x'; 100], true));
    world.serve(id);
}

#[test]
fn an_empty_body_has_an_end() {
    let mut world = World::default();
    let id = world.get(0);
    world.engine.take_body(id, Some(0), &mut world.quic, world.now).expect("empty");
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
    world.send(4, &post(&[]), false);
    let id = world.request();
    world.engine.take_body(id, Some(0), &mut world.quic, world.now).expect("not known");
    world.send(4, &[], true);
    assert_eq!(world.poll(), [Event::BodyEnd(id)]);
}

#[test]
fn a_client_that_waits_gets_100_when_its_body_is_taken() {
    // H7
    let mut world = World::default();
    world.send(0, &post(&[("expect", "100-continue")]), false);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    assert_eq!(world.frames(0), ["HEADERS :status: 100"]);
    world.send(0, &data(b"x"), true);
    assert_eq!(body_of(&world.poll(), id), (b"x".to_vec(), true));
    world.serve(id);
}

#[test]
fn a_body_that_is_too_large_is_refused_and_not_read() {
    // M3: response, FIN, STOP_SENDING(H3_NO_ERROR)
    for is_known in [true, false] {
        let mut world = World::default();
        let head = post(if is_known { &[("content-length", "9")] } else { &[] });
        world.send(0, &head, false);
        let id = world.request();
        let taken = world.engine.take_body(id, Some(8), &mut world.quic, world.now);
        if is_known {
            assert_eq!(taken.map_err(|refusal| refusal.cause), Err(Cause::BodyTooLarge));
        } else {
            world.send(0, &data(b"123456789"), false);
            let events = world.poll();
            assert_eq!(body_of(&events, id), (b"12345678".to_vec(), false));
            assert_eq!(events.last(), Some(&Event::Refused(id, Cause::BodyTooLarge.into())));
        }
        world.respond(id, BodyLength::Empty);
        assert!(world.quic.stops.is_empty());
        world.finish(id);
        assert!(world.quic.outgoing[&0].has_ended);
        assert_eq!(world.quic.outgoing[&0].reset, None);
        assert_eq!(world.quic.stops[&0], Code::NoError.number());
        // The client resets what it was told to stop: the response is not harmed.
        world.client_resets(0, Code::NoError);
        assert_eq!(world.poll(), []);
        world.engine.delivered(0);
        world.poll();
        assert!(world.engine.is_idle());
    }
}

#[test]
fn a_client_that_cancels_is_lost() {
    for by_reset in [true, false] {
        let mut world = World::default();
        world.send(0, &post(&[]), false);
        let id = world.request();
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        if by_reset {
            world.client_resets(0, Code::RequestCancelled);
        } else {
            world.client_stops(0, Code::RequestCancelled);
        }
        let loss = Loss::Reset(Code::RequestCancelled.number());
        assert_eq!(world.poll(), [Event::ClientLost(id, loss)]);
        assert_eq!(world.quic.outgoing[&0].reset, Some(Code::RequestCancelled.number()));
        assert_eq!(world.quic.stops.contains_key(&0), !by_reset);
        assert_eq!(world.engine.open_streams(), 1, "until the shell has ended it");
        assert!(matches!(world.respond(id, BodyLength::Empty), sekisho_http3::Sends::Nothing));
        world.finish(id);
        assert_eq!(world.engine.open_streams(), 0);
        assert!(world.engine.is_idle());
    }
}

#[test]
fn a_client_that_stops_while_it_is_written_to_is_lost() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Known(10));
    world.quic.stop_quietly(0, Code::RequestCancelled);
    assert_eq!(world.body(id, b"0123456789"), 0);
    let loss = Loss::Reset(Code::RequestCancelled.number());
    assert_eq!(world.poll(), [Event::ClientLost(id, loss)]);
    world.finish(id);
    assert!(world.engine.is_idle());
}

#[test]
fn a_response_that_is_complete_is_not_lost_when_the_client_stops() {
    let mut world = World::default();
    let id = world.get(0);
    world.respond(id, BodyLength::Empty);
    world.client_stops(0, Code::NoError);
    assert_eq!(world.poll(), []);
    world.finish(id);
    assert!(world.engine.is_idle());
}

#[test]
fn trailers_are_checked_and_thrown_away() {
    // H13
    for (trailers, malformed) in [
        (&[(":path", "/")][..], Some(Malformed::PseudoInTrailers)),
        (&[("A", "b")], Some(Malformed::NameInvalid)),
        (&[("a", "b")], None),
    ] {
        let mut world = World::default();
        world.send(0, &[post(&[]), data(b"x"), headers(trailers)].concat(), true);
        let id = world.request();
        world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        let events = world.poll();
        match malformed {
            None => assert_eq!(body_of(&events, id), (b"x".to_vec(), true)),
            Some(malformed) => {
                assert!(events.contains(&Event::Malformed(0, malformed)), "{events:?}");
                assert!(events.contains(&Event::ClientLost(id, Loss::Violation)), "{events:?}");
                assert_eq!(world.quic.outgoing[&0].reset, Some(Code::Message.number()));
            }
        }
    }
}

#[test]
fn one_stall_delays_no_other_stream() {
    // M5
    let mut world = World::default();
    world.send(0, &[post(&[]), data(b"never taken")].concat(), true);
    world.request();
    world.send(4, &[post(&[]), data(b"taken")].concat(), true);
    let id = world.request();
    world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
    assert_eq!(body_of(&world.poll(), id), (b"taken".to_vec(), true));
    world.serve(id);
}

#[test]
fn an_error_response_needs_no_request_body() {
    let mut world = World::default();
    world.send(0, &[post(&[]), data(b"some")].concat(), false);
    let id = world.request();
    let sends = world.engine.respond(
        id,
        Status::NOT_FOUND,
        BodyLength::Known(3),
        [],
        &mut world.quic,
        world.now,
    );
    assert_eq!(sends, sekisho_http3::Sends::Exactly(3));
    world.body(id, b"no!");
    world.finish(id);
    assert_eq!(world.frames(0)[1], "DATA 3 no!");
    assert_eq!(world.quic.stops[&0], Code::NoError.number());
}
