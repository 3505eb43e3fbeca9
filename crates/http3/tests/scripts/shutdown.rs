//! Graceful and forceful ends (M2, Q5).

use std::time::Duration;

use sekisho_http3::{BodyLength, Code, Event, Loss, Policy};
use sekisho_lifecycle::{CloseReason, Stage};

use crate::harness::{World, frames, get, post};

const FIRST: &str = "GOAWAY 4611686018427387900";

/// What was sent on our control stream behind its type and SETTINGS.
fn control_frames(world: &World) -> Vec<String> {
    frames(&world.quic.outgoing[&3].bytes[1..]).split_off(1)
}

#[test]
fn a_graceful_end_lets_running_requests_end() {
    // RFC 9114 §5.2; M2, Q5
    let mut world = World::default();
    let id = world.get(0);
    world.engine.shut_down_gracefully(&mut world.quic, world.now);
    assert_eq!(control_frames(&world), [FIRST]);
    assert!(world.engine.will_close() && !world.engine.takes_no_request());
    // What was on its way is still taken.
    let other = world.get(4);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.expire(), []);
    assert_eq!(control_frames(&world), [FIRST, "GOAWAY 8"]);
    assert!(world.engine.takes_no_request());
    // What comes behind is not looked at, and may be tried again.
    world.send(8, &get(), true);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&8].reset, Some(Code::RequestRejected.number()));
    assert_eq!(world.quic.stops[&8], Code::RequestRejected.number());
    world.serve(id);
    assert_eq!(world.engine.stage(), Stage::Open);
    world.respond(other, BodyLength::Empty);
    world.finish(other);
    assert_eq!(world.poll(), []);
    assert_eq!(world.engine.stage(), Stage::Open, "its last bytes may be lost on the way");
    world.engine.delivered(4);
    assert_eq!(world.poll(), []);
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::Draining));
    assert!(world.is_closed_with(Code::NoError));
}

#[test]
fn an_idle_connection_ends_when_the_client_must_know() {
    let mut world = World::default();
    world.engine.shut_down_gracefully(&mut world.quic, world.now);
    world.engine.shut_down_gracefully(&mut world.quic, world.now);
    assert_eq!(world.poll(), []);
    assert_eq!(control_frames(&world), [FIRST]);
    assert_eq!(world.engine.stage(), Stage::Open);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.expire(), []);
    assert!(world.is_closed_with(Code::NoError));
    // Or as soon as the client has acknowledged it.
    let mut world = World::default();
    world.engine.announcement_delivered(&mut world.quic, world.now);
    assert_eq!(world.engine.stage(), Stage::Open);
    world.engine.shut_down_gracefully(&mut world.quic, world.now);
    assert!(world.engine.awaits_announcement());
    world.engine.announcement_delivered(&mut world.quic, world.now);
    assert!(world.is_closed_with(Code::NoError));
    assert!(!world.engine.awaits_announcement());
}

#[test]
fn a_used_up_connection_ends_gracefully() {
    let mut world = World::with(|policy| policy.keepalive_requests = 2);
    let one = world.get(0);
    world.serve(one);
    assert!(!world.engine.will_close());
    let two = world.get(4);
    assert!(world.engine.will_close());
    world.serve(two);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.expire(), []);
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::RequestsUsedUp));
    assert_eq!(world.engine.requests(), 2);
}

#[test]
fn a_forceful_end_resets_what_runs() {
    let mut world = World::default();
    let (one, two, three) = (world.get(0), world.get(4), world.get(8));
    world.respond(one, BodyLength::Unknown);
    world.respond(three, BodyLength::Empty);
    world.finish(three);
    world.engine.shut_down_forcefully(&mut world.quic, world.now);
    assert_eq!(world.quic.outgoing[&0].reset, Some(Code::RequestCancelled.number()));
    assert_eq!(world.quic.outgoing[&4].reset, Some(Code::RequestCancelled.number()));
    assert!(world.quic.outgoing[&8].has_ended && world.quic.outgoing[&8].reset.is_none());
    assert!(world.is_closed_with(Code::NoError));
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::Forced));
    let lost = [one, two].map(|id| Event::ClientLost(id, Loss::Connection));
    assert_eq!(world.poll(), lost);
    world.finish(one);
    assert_eq!(world.engine.open_streams(), 1);
    world.finish(two);
    assert_eq!(world.engine.open_streams(), 0);
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn a_lost_connection_loses_every_client() {
    let mut world = World::default();
    let id = world.get(0);
    world.send(4, &get()[..3], false);
    world.poll();
    world.engine.connection_lost();
    assert_eq!(world.poll(), [Event::ClientLost(id, Loss::Connection)]);
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::PeerClosedEarly));
    assert_eq!(world.quic.closed, None, "no one is there to be told");
    world.engine.reset(id, Code::Internal, &mut world.quic, world.now);
    assert_eq!(world.engine.open_streams(), 0);
    let mut world = World::default();
    let id = world.get(0);
    world.serve(id);
    world.engine.connection_lost();
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::PeerClosed));
}

#[test]
fn a_connection_too_many_is_closed() {
    let mut world = World::new(Policy::default());
    world.engine.refuse_connection(&mut world.quic, world.now);
    assert!(world.is_closed_with(Code::ExcessiveLoad));
    assert_eq!(world.engine.stage(), Stage::Closed(CloseReason::TooMany));
    world.send(0, &get(), true);
    assert_eq!(world.poll(), []);
}

#[test]
fn a_cut_response_is_reset_and_never_ended() {
    // Q5
    let mut world = World::default();
    let rows = [BodyLength::Known(5), BodyLength::Unknown];
    for (stream, length) in [0, 4].into_iter().zip(rows) {
        let id = world.get(stream);
        world.respond(id, length);
        if length == BodyLength::Unknown {
            world.quic.out(stream).window = 4;
        }
        world.body(id, b"abc");
        world.finish(id);
        let out = &world.quic.outgoing[&stream];
        assert_eq!((out.reset, out.has_ended), (Some(Code::Internal.number()), false));
    }
    // A handler that gives none.
    let id = world.get(8);
    world.finish(id);
    assert_eq!(world.quic.outgoing[&8].reset, Some(Code::Internal.number()));
    world.send(12, &post(&[]), false);
    let id = world.request();
    world.engine.reset(id, Code::RequestCancelled, &mut world.quic, world.now);
    assert_eq!(world.quic.outgoing[&12].reset, Some(Code::RequestCancelled.number()));
    assert_eq!(world.quic.stops[&12], Code::RequestCancelled.number());
    assert_eq!(world.poll(), []);
    assert!(world.engine.is_idle());
}
