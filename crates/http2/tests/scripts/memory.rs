//! What a connection costs while nothing happens, and that requests cost no allocation of their own.

use sekisho_http::Status;
use sekisho_http2::{BodyLength, Http2};

use crate::harness::{Peer, policy};

const IDLE_BYTES_MAX: usize = 2048;

#[test]
fn an_idle_connection_is_small() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_requests = u64::MAX));
    let mut stream = 1;
    for many in [1, 100, 3] {
        let ids: Vec<_> = (0..many)
            .map(|_| {
                stream += 2;
                peer.gets(stream)
            })
            .collect();
        for id in ids {
            peer.answers(id, Status::OK);
        }
        peer.flushes();
        while peer.engine.next_sent().is_some() {}
        assert!(peer.engine.is_idle());
        peer.engine.shrink();
        let held = size_of::<Http2>() + peer.engine.capacity();
        assert!(
            held <= IDLE_BYTES_MAX,
            "{held} bytes, of which {} beside itself",
            peer.engine.capacity()
        );
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let mut peer = Peer::new(policy(|policy| policy.keepalive_requests = u64::MAX));
    let mut held = Vec::new();
    for turn in 0..2000 {
        let ids: Vec<_> = (0..4).map(|at| peer.gets(8 * turn + 2 * at + 1)).collect();
        for id in ids {
            peer.heads(id, Status::OK, BodyLength::Known(3));
            peer.bodies(id, b"abc");
            peer.finishes(id);
        }
        peer.sends(crate::harness::window(0, 12));
        peer.flushes();
        while peer.engine.next_sent().is_some() {}
        held.push(peer.engine.capacity());
    }
    assert_eq!(held[10], held[1999], "{} {}", held[10], held[1999]);
}
