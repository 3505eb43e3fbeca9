//! What every transport promises the driver, as one suite of checks: over TCP, a Unix socket, TLS and the simulated
//! network alike. A transport joins by a [`Pair`].

#[cfg(test)]
mod tests;

use std::io;
use std::task::Poll;

use super::{Ready, Transport};

/// A transport and its peer.
pub trait Pair {
    /// The transport.
    fn transport(&mut self) -> &mut dyn Transport;
    /// The peer sends all of this.
    fn peer_sends(&mut self, bytes: &[u8]);
    /// The peer reads what has come for it, at least a byte; nothing is the end.
    fn peer_reads(&mut self) -> io::Result<Vec<u8>>;
    /// The peer ends its side.
    fn peer_ends(&mut self);
    /// The peer resets the connection, where that is possible.
    fn peer_resets(&mut self) -> bool;
    /// Waits until something has changed, and tells the transport.
    fn wait(&mut self);
    /// Drops the transport.
    fn close(&mut self);
    /// Whether a close can be a reset.
    fn can_reset(&self) -> bool;
    /// So many bytes may count as sent before the peer can read them (a record of TLS that is on its way).
    fn lag_bytes(&self) -> usize {
        0
    }
}

/// More than any transport takes at once.
const MUCH: usize = 8 << 20;
/// What is offered at a time.
const PIECE_BYTES: usize = 4096;
/// No check needs more waits than this.
const WAITS_MAX: usize = 200_000;

fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// Reads once, waiting where there is nothing.
fn read(pair: &mut dyn Pair, room: usize) -> io::Result<Vec<u8>> {
    let mut into = vec![0; room];
    for _ in 0..WAITS_MAX {
        match pair.transport().read(&mut into) {
            Poll::Ready(Ok(count)) => {
                into.truncate(count);
                return Ok(into);
            }
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => pair.wait(),
        }
    }
    panic!("nothing comes");
}

/// The peer reads so many bytes.
fn peer_reads_exactly(pair: &mut dyn Pair, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let more = pair.peer_reads().expect("bytes");
        assert!(!more.is_empty(), "the end came after {} of {count} bytes", all.len());
        all.extend(more);
    }
    all
}

fn read_exactly(pair: &mut dyn Pair, count: usize, room: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let more = read(pair, room.min(count - all.len())).expect("bytes");
        assert!(!more.is_empty(), "the end came after {} of {count} bytes", all.len());
        all.extend(more);
    }
    all
}

/// What was sent is read, in order, in portions of any size; and then there is nothing.
pub fn bytes_come_in_order_however_they_are_read(pair: &mut dyn Pair) {
    let sent: Vec<u8> = (0..1000).map(pattern).collect();
    pair.peer_sends(&sent);
    assert_eq!(read_exactly(pair, 400, 1), sent[..400]);
    assert_eq!(read_exactly(pair, 600, 64), sent[400..]);
    assert!(pair.transport().read(&mut [0; 16]).is_pending());
    // A spurious or repeated notification does no harm.
    pair.transport().note(Ready::TO_READ);
    assert!(pair.transport().read(&mut [0; 16]).is_pending());
    pair.peer_sends(b"more");
    assert_eq!(read_exactly(pair, 4, 16), b"more");
}

/// It takes what it can, says that it is full, and goes on when the peer has read.
pub fn a_full_transport_says_so_and_goes_on(pair: &mut dyn Pair) {
    pair.peer_sends(b"x");
    read_exactly(pair, 1, 1);
    let bytes: Vec<u8> = (0..MUCH).map(pattern).collect();
    let (mut sent, mut until, mut got) = (0, PIECE_BYTES, Vec::new());
    // Bytes that were offered and not taken are offered again: a transport may have encrypted them.
    while let Poll::Ready(count) = pair.transport().send(&bytes[sent..until], true) {
        sent += count.expect("it takes them");
        until = if sent == until { until + PIECE_BYTES } else { until };
        assert!(until <= MUCH, "{sent} bytes were taken without a reader");
    }
    assert!(sent > 0 && pair.transport().is_full());
    let (goal, lag) = (until, pair.lag_bytes());
    while sent < goal {
        if got.len() + lag < sent {
            got.extend(pair.peer_reads().expect("bytes"));
        }
        match pair.transport().send(&bytes[sent..goal], false) {
            Poll::Ready(count) => sent += count.expect("it takes them"),
            Poll::Pending if got.len() + lag < sent => {}
            Poll::Pending => pair.wait(),
        }
    }
    while got.len() < goal {
        got.extend(pair.peer_reads().expect("bytes"));
    }
    assert!(got.len() == goal && got == bytes[..goal], "{} of {goal} bytes came", got.len());
}

/// The end comes after all that was sent, and is reported.
pub fn the_end_comes_last(pair: &mut dyn Pair) {
    pair.peer_sends(b"last");
    pair.peer_ends();
    assert_eq!(read_exactly(pair, 4, 3), b"last");
    assert_eq!(read(pair, 8).expect("the end"), b"");
    for _ in 0..WAITS_MAX {
        if pair.transport().has_ended() {
            break;
        }
        pair.wait();
    }
    assert!(pair.transport().has_ended() && !pair.transport().is_lost());
    // The other direction goes on.
    assert!(matches!(pair.transport().send(b"answer", false), Poll::Ready(Ok(6))));
    assert_eq!(peer_reads_exactly(pair, 6), b"answer");
}

/// A peer that resets is lost, and that is reported.
pub fn a_reset_is_a_loss(pair: &mut dyn Pair) {
    pair.peer_sends(b"x");
    read_exactly(pair, 1, 1);
    if !pair.peer_resets() {
        return;
    }
    assert!(read(pair, 8).is_err(), "no read finds an orderly end");
    for _ in 0..WAITS_MAX {
        if pair.transport().is_lost() {
            return;
        }
        pair.wait();
    }
    panic!("the transport does not report the loss");
}

/// Our side ends, with all that was sent before; the peer's does not.
pub fn our_side_can_end_alone(pair: &mut dyn Pair) {
    pair.peer_sends(b"x");
    read_exactly(pair, 1, 1);
    assert!(matches!(pair.transport().send(b"bye", true), Poll::Ready(Ok(3))));
    pair.transport().shut_down_write(true);
    assert_eq!(peer_reads_exactly(pair, 3), b"bye");
    assert_eq!(pair.peer_reads().expect("the end"), b"");
    pair.peer_sends(b"still here");
    assert_eq!(read_exactly(pair, 10, 100), b"still here");
}

/// A close is an orderly end, after all that was sent.
pub fn a_close_is_an_end_in_order(pair: &mut dyn Pair) {
    pair.peer_sends(b"x");
    read_exactly(pair, 1, 1);
    assert!(matches!(pair.transport().send(b"all", false), Poll::Ready(Ok(3))));
    pair.transport().end();
    pair.close();
    assert_eq!(peer_reads_exactly(pair, 3), b"all");
    assert_eq!(pair.peer_reads().expect("the end"), b"");
}

/// A close that must not look complete does not.
pub fn a_close_can_be_a_reset(pair: &mut dyn Pair) {
    pair.peer_sends(b"x");
    read_exactly(pair, 1, 1);
    pair.transport().reset_on_close();
    pair.close();
    if pair.can_reset() {
        assert!(pair.peer_reads().is_err());
    }
}

/// All of it, each over a new pair.
pub fn check(mut pair: impl FnMut() -> Box<dyn Pair>) {
    let checks: [fn(&mut dyn Pair); 7] = [
        bytes_come_in_order_however_they_are_read,
        a_full_transport_says_so_and_goes_on,
        the_end_comes_last,
        a_reset_is_a_loss,
        our_side_can_end_alone,
        a_close_is_an_end_in_order,
        a_close_can_be_a_reset,
    ];
    for check in checks {
        check(&mut *pair());
    }
}
