//! Clients that cost work and bring nothing (M4, V7–V12), and what an idle connection holds.

use sekisho_http3::frame::kind;
use sekisho_http3::{BodyLength, Bound, Code, Event};

use crate::harness::{CONTROL, ENCODER, World, data, frame_of, get, headers, number, post};

/// Repeats something until the connection ends; how often, and by which bound.
fn until_it_ends(mut step: impl FnMut(&mut World, u64)) -> (u64, Bound) {
    let mut world = World::with(|policy| policy.keepalive_requests = u64::MAX);
    for turn in 0..3000 {
        step(&mut world, turn);
        for event in world.poll() {
            match event {
                Event::BoundExceeded(bound) => {
                    assert!(world.is_closed_with(Code::ExcessiveLoad));
                    return (turn, bound);
                }
                Event::ClientLost(id, _) => world.finish(id),
                _ => {}
            }
        }
        assert!(world.engine.capacity() < 384 * 1024, "{}", world.engine.capacity());
    }
    panic!("the connection lives");
}

#[test]
fn what_brings_nothing_is_bounded() {
    let (turns, bound) = until_it_ends(|world, turn| {
        world.send(4 * turn, &get(), false);
        world.poll();
        world.client_stops(4 * turn, Code::RequestCancelled);
    });
    assert_eq!((turns, bound), (200, Bound::Resets));
    let (turns, bound) = until_it_ends(|world, turn| {
        world.send(4 * turn, &post(&[]), false);
        world.client_resets(4 * turn, Code::RequestCancelled);
    });
    assert_eq!((turns, bound), (200, Bound::Resets));
    let (turns, bound) =
        until_it_ends(|world, turn| world.send(4 * turn, &headers(&[("a", "b")]), true));
    assert_eq!((turns, bound), (100, Bound::OwnResets));
    let (turns, bound) = until_it_ends(|world, turn| world.send(4 * turn, &get(), true));
    assert_eq!((turns, bound), (128 + 200, Bound::RefusedStreams));
    let (_, bound) = until_it_ends(|world, _| {
        world.send(CONTROL, &frame_of(kind::PRIORITY_UPDATE, b"\0u=1"), false);
    });
    assert_eq!(bound, Bound::Priorities);
    let (turns, bound) =
        until_it_ends(|world, _| world.send(CONTROL, &frame_of(0x21, b"grease"), false));
    assert_eq!((turns, bound), (200, Bound::UselessFrames));
    let (turns, bound) =
        until_it_ends(|world, turn| world.send(6 + 4 * turn, &number(0x21), false));
    assert_eq!((turns, bound), (200, Bound::UselessFrames));
    let (_, bound) = until_it_ends(|world, turn| {
        let bytes: &[u8] = if turn == 0 { &[2, 0x3f, 0xe1, 0x1f] } else { &[0xc1, 0] };
        world.send(ENCODER, bytes, false);
    });
    assert_eq!(bound, Bound::Inserts);
    let (_, bound) = until_it_ends(|world, turn| {
        if turn == 0 {
            world.send(0, &post(&[]), false);
            let id = world.request();
            world.engine.take_body(id, None, &mut world.quic, world.now).expect("no limit");
        }
        world.send(0, &data(b""), false);
    });
    assert_eq!(bound, Bound::EmptyFrames);
}

#[test]
fn streams_without_a_type_are_bounded() {
    let mut world = World::default();
    for at in 0..100 {
        world.send(6 + 4 * at, &[], false);
    }
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.stops.len(), 100 - 15);
    assert_eq!(world.quic.stops[&402], Code::StreamCreation.number());
    world.get(0);
}

#[test]
fn heads_that_do_not_end_are_bounded() {
    // V9
    let mut header = Vec::new();
    sekisho_http3::frame::write_header(&mut header, kind::HEADERS, 60_000);
    let (turns, bound) = until_it_ends(|world, turn| {
        world.send(4 * turn, &[&header[..], &vec![0; 50_000]].concat(), false);
    });
    assert_eq!((turns, bound), (5, Bound::HeaderBlocks));
}

#[test]
fn every_bound_has_a_name() {
    for bound in Bound::ALL {
        assert!(bound.tag().starts_with("http3_"), "{bound:?}");
    }
}

#[test]
fn streams_beyond_the_limit_are_rejected_and_may_be_tried_again() {
    let mut world = World::with(|policy| policy.streams_max = 2);
    let one = world.get(0);
    world.get(4);
    world.send(8, &get(), true);
    assert_eq!(world.poll(), []);
    assert_eq!(world.quic.outgoing[&8].reset, Some(Code::RequestRejected.number()));
    world.serve(one);
    world.get(12);
    assert_eq!(world.engine.requests(), 3);
}

#[test]
fn an_idle_connection_is_small() {
    let mut world = World::default();
    for stream in 0..100 {
        world.send(4 * stream, &post(&[("a", "b")]), false);
    }
    let ids: Vec<_> = world
        .poll()
        .into_iter()
        .map(|event| match event {
            Event::Request(id) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    for id in ids {
        world.respond(id, BodyLength::Known(3));
        world.body(id, b"abc");
        world.finish(id);
        world.engine.delivered(id.number());
    }
    assert_eq!(world.poll(), []);
    while world.engine.next_sent().is_some() {}
    assert!(world.engine.is_idle());
    world.engine.shrink();
    let held = world.engine.capacity() + size_of_val(&world.engine);
    assert!(held <= 3 * 1024, "{held}");
    let id = world.get(400);
    world.serve(id);
}
