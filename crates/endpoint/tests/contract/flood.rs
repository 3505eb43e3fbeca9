//! A peer that never stops sending: there is always more to read. Shared memory can be like that, when the peer
//! has a core of its own.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use sekisho_endpoint::{CloseReason, Peer, SessionSlots, Stream};
use sekisho_native::frame::{Head, Kind};
use sekisho_native::message::{self, Hello};

use crate::world::{ECHO, Loopback, World, run};

/// So many reads in one turn are too many.
const READS_MAX: u32 = 1000;

/// Says hello, and then one frame without end.
struct Flood {
    hello: Vec<u8>,
    frame: Vec<u8>,
    phase: usize,
    reads: Rc<Cell<u32>>,
}

impl Flood {
    fn new(frame: Vec<u8>, reads: &Rc<Cell<u32>>) -> Self {
        let mut hello = Vec::new();
        message::write(&mut hello, Kind::Hello, 0, &Hello { major: 1, ..Hello::default() });
        Self { hello, frame, phase: 0, reads: Rc::clone(reads) }
    }
}

impl Stream for Flood {
    fn poll_read(&mut self, _: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() < READS_MAX, "no other session gets a turn");
        if !self.hello.is_empty() {
            let hello = std::mem::take(&mut self.hello);
            into[..hello.len()].copy_from_slice(&hello);
            return Poll::Ready(Ok(hello.len()));
        }
        for byte in &mut *into {
            *byte = self.frame[self.phase];
            self.phase = (self.phase + 1) % self.frame.len();
        }
        Poll::Ready(Ok(into.len()))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_shut_down(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn peer(&self) -> Peer {
        Peer::Unknown
    }
}

/// Serves such a peer and lets others take their turns; its session, if it ends, ends for this reason.
async fn others_are_served(frame: Vec<u8>, end: Option<CloseReason>) {
    let world = World::<Loopback>::with(
        |policy| policy.linger_timeout = Duration::from_millis(20),
        SessionSlots::new(9, 1, 9),
    );
    let client = world.connect("honest").await;
    let reads = Rc::new(Cell::new(0));
    let flood = tokio::task::spawn_local(world.endpoint.serve(Flood::new(frame, &reads)));
    for _ in 0..50 {
        assert_eq!(client.call(ECHO, b"x").await.expect("served"), b"x");
        reads.set(0);
    }
    // Its deadlines fall, though there is always something to read.
    while end.is_some() && !flood.is_finished() {
        tokio::task::yield_now().await;
        reads.set(0);
    }
    flood.abort();
    let outcome = flood.await;
    assert!(!outcome.is_err_and(|error| error.is_panic()), "no other session got a turn");
    let reason = end.unwrap_or(CloseReason::TransportLost);
    assert_eq!(world.shared.ends.borrow()[..], [reason]);
}

#[test]
fn frames_without_end_that_mean_nothing_hold_nobody_up() {
    // E7, L15, V14: a cancel for a slot that is free is void.
    let mut frame = Vec::new();
    Head::of_slot(Kind::Cancel, 7).write(&mut frame);
    run(others_are_served(frame, None));
}

#[test]
fn bytes_without_end_after_the_last_word_hold_nobody_up() {
    // E7, L15: this is no frame, so the session is over with the first of them.
    run(others_are_served(vec![255], Some(CloseReason::OutOfSync)));
}
