//! The server's end of a simulated connection, for worlds with HTTP/2. Readiness is told as the kernel does it: once for
//! each change, and only after [`Transport::watch`].

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::Poll;

use sekisho_net::transport::{Capabilities, Ready, Transport};

use super::Shared;
use crate::Fault;
use crate::network::Read;

/// How a GOAWAY begins: length, kind, flags and stream.
const GO_AWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];
const GO_AWAY_BYTES: usize = GO_AWAY.len() + 8;

/// A client's end, as the server sees it.
#[derive(Debug)]
pub(super) struct SimulatedTransport {
    shared: Rc<Shared>,
    client: usize,
    ready: Ready,
    resets: bool,
}

impl SimulatedTransport {
    pub(super) fn new(shared: &Rc<Shared>, client: usize) -> Self {
        Self { shared: Rc::clone(shared), client, ready: Ready::BOTH, resets: false }
    }
}

/// What a fault makes of bytes that leave; nothing where there is none, or no room for it.
fn spoilt(bytes: &[u8], fault: Option<Fault>, room: usize) -> Option<Vec<u8>> {
    let whole = match fault? {
        Fault::StreamSentTwice => [bytes, bytes].concat(),
        Fault::GoAwayLost => {
            let at = bytes.windows(GO_AWAY.len()).position(|it| it == GO_AWAY)?;
            let rest = bytes.get(at + GO_AWAY_BYTES..)?;
            [&bytes[..at], rest].concat()
        }
        _ => return None,
    };
    (whole.len() <= room).then_some(whole)
}

impl Transport for SimulatedTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.ready.has(Ready::TO_READ) {
            return Poll::Pending;
        }
        let mut links = self.shared.links.borrow_mut();
        let mut bytes = Vec::new();
        match links[self.client].up.read(into.len(), &mut bytes) {
            Read::Nothing => {
                self.ready = self.ready.without(Ready::TO_READ);
                Poll::Pending
            }
            Read::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Read::End => Poll::Ready(Ok(0)),
            Read::Bytes(count) => {
                into[..count].copy_from_slice(&bytes);
                let client = self.client;
                self.shared.sim.borrow_mut().say(|| format!("server {client} reads {count} bytes"));
                Poll::Ready(Ok(count))
            }
        }
    }

    fn send(&mut self, bytes: &[u8], _more: bool) -> Poll<io::Result<usize>> {
        let shared = Rc::clone(&self.shared);
        let (mut links, mut sim) = (shared.links.borrow_mut(), shared.sim.borrow_mut());
        let link = &mut links[self.client];
        if !self.ready.has(Ready::TO_SEND) {
            return Poll::Pending;
        }
        if link.up.is_reset() || link.down.is_ended() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let (now, fault) = (sim.now, sim.fault);
        let sent = match spoilt(bytes, fault, link.down.room()) {
            Some(whole) if whole.is_empty() => Some(bytes.len()),
            Some(whole) => link.down.send(&whole, now, &mut sim.rng).map(|_| bytes.len()),
            None => link.down.send(bytes, now, &mut sim.rng),
        };
        let client = self.client;
        sim.say(|| format!("server {client} sends {sent:?} of {} bytes", bytes.len()));
        if sent.is_none_or(|sent| sent < bytes.len()) {
            self.ready = self.ready.without(Ready::TO_SEND);
            link.is_full = true;
        }
        sent.map_or(Poll::Pending, |sent| Poll::Ready(Ok(sent)))
    }

    fn unacknowledged(&self) -> Option<u64> {
        Some(self.shared.links.borrow()[self.client].down.bytes_on_the_way())
    }

    fn note(&mut self, ready: Ready) {
        self.ready |= ready;
    }

    fn is_full(&self) -> bool {
        !self.ready.has(Ready::TO_SEND)
    }

    fn has_ended(&self) -> bool {
        self.ready.has(Ready::ENDED)
    }

    fn is_lost(&self) -> bool {
        self.ready.has(Ready::LOST)
    }

    fn shut_down_write(&mut self, _: bool) {
        let mut sim = self.shared.sim.borrow_mut();
        let now = sim.now;
        self.shared.links.borrow_mut()[self.client].down.end(now, &mut sim.rng);
    }

    fn reset_on_close(&mut self) {
        self.resets = true;
    }

    fn watch(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        self.shared.links.borrow_mut()[self.client].is_watched = true;
        Ok(())
    }
}

sekisho_net::plain_client_transport!(SimulatedTransport);

impl Drop for SimulatedTransport {
    fn drop(&mut self) {
        let mut sim = self.shared.sim.borrow_mut();
        let link = &mut self.shared.links.borrow_mut()[self.client];
        let now = sim.now;
        // Bytes that nobody reads any more are answered by a reset.
        if link.up.close_reader() || self.resets {
            link.down.reset(now, &mut sim.rng);
        } else {
            link.down.end(now, &mut sim.rng);
        }
    }
}
