//! As many requests in one session as there are slots: each costs what the first one costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho_lifecycle::{Engine, Manner, Moment, RequestId, Stage};
use sekisho_native::frame::{self, Head, Kind};
use sekisho_native::message::{self, Hello};
use sekisho_native::{Event, Policy, Scratch, Server};

const REQUESTS: u32 = 1 << 16;
/// A bound for a slow machine and a build without optimization; a cost that grows with the number of requests
/// is at minutes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A session in which all of these run.
fn full() -> (Server, Scratch, Vec<RequestId>) {
    let policy = Policy {
        requests_max: REQUESTS,
        output_bytes_max: u64::MAX,
        session_timeout: None,
        ..Policy::default()
    };
    let mut wire = Vec::new();
    message::write(&mut wire, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
    for slot in 0..REQUESTS {
        let head = Head { word: 1, ..Head::of_slot(Kind::Request, slot as u16) };
        frame::write(&mut wire, head, b"");
    }
    let mut engine = Server::new(Arc::new(policy), Moment::ZERO);
    let (mut scratch, mut ids, mut taken) = (Scratch::default(), Vec::new(), 0);
    loop {
        let step = engine.receive(&wire[taken..], &mut scratch, Moment::ZERO);
        if step.is_rest() {
            break;
        }
        taken += step.taken;
        match step.event {
            Some(Event::Hello(_)) => engine.admit(1, &mut scratch, Moment::ZERO),
            Some(Event::Request { id, .. }) => ids.push(id),
            _ => {}
        }
    }
    assert_eq!(ids.len(), REQUESTS as usize);
    (engine, scratch, ids)
}

#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn start() -> Instant {
    Instant::now()
}

/// The ids in an order that looks random.
fn shuffled(mut ids: Vec<RequestId>) -> Vec<RequestId> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..ids.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ids.swap(at, (state >> 33) as usize % (at + 1));
    }
    ids
}

#[test]
fn many_requests_end_in_any_order_at_the_cost_of_each() {
    // E4
    for manner in [None, Some(Manner::Graceful), Some(Manner::Forceful)] {
        let since = start();
        let (mut engine, mut scratch, ids) = full();
        if let Some(manner) = manner {
            engine.shut_down(manner, Moment::ZERO);
        }
        for id in shuffled(ids) {
            engine.result(id, b"", &mut scratch, Moment::ZERO).expect("the one answer");
            engine.handle_dropped(id, &mut scratch, Moment::ZERO);
            let moved = scratch.out.len() as u64;
            scratch.out.clear();
            engine.transmitted(moved, false, Moment::ZERO);
        }
        assert!(engine.lanes().is_empty() && engine.stay().requests().is_empty());
        assert!(since.elapsed() < PATIENCE, "{manner:?}: {:?}", since.elapsed());
    }
}

#[test]
fn many_requests_of_a_lost_client_are_let_go_at_the_cost_of_each() {
    // E4, L12
    let since = start();
    let (mut engine, mut scratch, ids) = full();
    engine.input_ended(Moment::ZERO);
    while engine.next_event().is_some() {}
    for id in shuffled(ids) {
        engine.handle_dropped(id, &mut scratch, Moment::ZERO);
    }
    assert!(matches!(engine.stage(), Stage::Closed(_)) && engine.reclaim(Moment::ZERO));
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
}
