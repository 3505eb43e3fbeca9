//! The server's end of a simulated connection, as a transport of the driver. Readiness is reported as the
//! kernel does it: once for each change, and only after [`Transport::watch`].

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::Poll;

use sekisho_net::transport::{Capabilities, Ready, Transport};

use super::Shared;
use super::spoil;
use crate::Fault;
use crate::network::Read;

/// A client's end, as the server sees it.
#[derive(Debug)]
pub(super) struct SimulatedTransport {
    shared: Rc<Shared>,
    client: usize,
    ready: Ready,
    resets: bool,
}

impl SimulatedTransport {
    /// The connection of a client.
    pub(super) fn new(shared: &Rc<Shared>, client: usize) -> Self {
        Self { shared: Rc::clone(shared), client, ready: Ready::BOTH, resets: false }
    }

    /// Sends bytes; `is_file`: they come from the file.
    fn put(&mut self, bytes: &[u8], is_file: bool) -> Poll<io::Result<usize>> {
        let shared = Rc::clone(&self.shared);
        if !self.ready.has(Ready::TO_SEND) {
            let now = shared.sim.borrow().now;
            if let Some(watch) = &mut shared.watches.borrow_mut()[self.client] {
                watch.sent(0, bytes.len(), now);
            }
            return Poll::Pending;
        }
        let (mut links, mut sim) = (shared.links.borrow_mut(), shared.sim.borrow_mut());
        let link = &mut links[self.client];
        if link.up.is_reset() || link.down.is_ended() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let spoilt = spoil::output(bytes, is_file, link.down.room(), &sim);
        let now = sim.now;
        let whole = spoilt.as_deref().unwrap_or(bytes);
        let sent = if whole.is_empty() && spoilt.is_some() {
            Some(0)
        } else {
            link.down.send(whole, now, &mut sim.rng)
        };
        // What a fault has made of them leaves whole or not at all, as far as the server knows.
        let sent = sent.map(|sent| if spoilt.is_some() { bytes.len() } else { sent });
        if sent.is_none_or(|sent| sent < bytes.len()) {
            self.ready = self.ready.without(Ready::TO_SEND);
        }
        if let Some(watch) = &mut shared.watches.borrow_mut()[self.client] {
            watch.sent(sent.unwrap_or(0), bytes.len(), now);
        }
        match sent {
            Some(sent) => Poll::Ready(Ok(sent)),
            None => Poll::Pending,
        }
    }
}

impl Transport for SimulatedTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities { send_file: self.shared.planned[self.client].sends_files, splice: false }
    }

    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.ready.has(Ready::TO_READ) {
            return Poll::Pending;
        }
        let shared = Rc::clone(&self.shared);
        let mut links = shared.links.borrow_mut();
        let (mut sim, mut watches) = (shared.sim.borrow_mut(), shared.watches.borrow_mut());
        let link = &mut links[self.client];
        let Some(watch) = &mut watches[self.client] else { return Poll::Pending };
        if sim.has(Fault::ByteLeftBehind)
            && let Some(byte) = watch.left_behind(&shared.planned[self.client])
        {
            into[0] = byte;
            return Poll::Ready(Ok(1));
        }
        let mut bytes = Vec::new();
        match link.up.read(into.len(), &mut bytes) {
            Read::Nothing => {
                self.ready = self.ready.without(Ready::TO_READ);
                Poll::Pending
            }
            Read::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Read::End => {
                watch.read_end();
                Poll::Ready(Ok(0))
            }
            Read::Bytes(count) => {
                into[..count].copy_from_slice(&bytes);
                sim.say(|| format!("server {} reads {count} bytes", self.client));
                watch.read(count, sim.now);
                Poll::Ready(Ok(count))
            }
        }
    }

    fn send(&mut self, bytes: &[u8], _more: bool) -> Poll<io::Result<usize>> {
        self.put(bytes, false)
    }

    fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = vec![0; count];
        let read = sekisho_net::simulation::read_at(file, &mut bytes, offset)?;
        self.put(&bytes[..read], true)
    }

    fn unacknowledged(&self) -> Option<u64> {
        let is_counted = self.shared.planned[self.client].is_counted;
        is_counted.then(|| self.shared.links.borrow()[self.client].down.bytes_on_the_way())
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
        let shared = Rc::clone(&self.shared);
        let mut sim = shared.sim.borrow_mut();
        let link = &mut shared.links.borrow_mut()[self.client];
        let now = sim.now;
        if sim.has(Fault::NoLinger) && link.up.close_reader() {
            link.down.reset(now, &mut sim.rng);
        }
        link.down.end(now, &mut sim.rng);
        if let Some(watch) = &mut shared.watches.borrow_mut()[self.client] {
            watch.shut(now);
        }
    }

    fn reset_on_close(&mut self) {
        self.resets = true;
    }

    fn watch(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        if let Some(watch) = &mut self.shared.watches.borrow_mut()[self.client] {
            watch.is_told_of_changes = true;
        }
        Ok(())
    }
}

sekisho_net::plain_client_transport!(SimulatedTransport);

impl Drop for SimulatedTransport {
    fn drop(&mut self) {
        let mut sim = self.shared.sim.borrow_mut();
        let link = &mut self.shared.links.borrow_mut()[self.client];
        let now = sim.now;
        // Bytes that come after the close are answered by a reset.
        if link.up.close_reader() || self.resets {
            link.down.reset(now, &mut sim.rng);
        } else {
            link.down.end(now, &mut sim.rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use sekisho_net::transport::contract::{Pair, check};

    use super::*;
    use crate::Scope;
    use crate::http::plan::Plan;
    use crate::http::watch::Watch;
    use crate::http::{Sim, World};
    use crate::rng::Rng;

    struct Simulated {
        shared: Rc<Shared>,
        transport: Option<SimulatedTransport>,
        /// What the peer has not sent yet, and whether its end follows.
        unsent: Vec<u8>,
        ends: bool,
    }

    impl Simulated {
        fn new(seed: u64) -> Self {
            let sim = Sim::new(Rng::new(seed), None, false);
            let shared = World::new(Plan::draw(seed, Scope::WHOLE), sim).shared;
            let token = sekisho_net::session::Token::from_bits(7);
            let watch = {
                let (mut server, mut sim) = (shared.server.borrow_mut(), shared.sim.borrow_mut());
                Watch::new(0, (1, token), false, &mut server, &mut sim)
            };
            shared.watches.borrow_mut()[0] = Some(watch);
            let transport = Some(SimulatedTransport::new(&shared, 0));
            Self { shared, transport, unsent: Vec::new(), ends: false }
        }

        /// Sends what there is room for.
        fn pump(&mut self) {
            let (links, sim) =
                (&mut self.shared.links.borrow_mut()[0], &mut *self.shared.sim.borrow_mut());
            while !self.unsent.is_empty() {
                let Some(sent) = links.up.send(&self.unsent, sim.now, &mut sim.rng) else { return };
                self.unsent.drain(..sent);
            }
            if self.ends {
                links.up.end(sim.now, &mut sim.rng);
            }
        }

        /// Lets the time go on to what arrives next, in either direction.
        fn go_on(&self) -> bool {
            let (links, sim) =
                (&mut self.shared.links.borrow_mut()[0], &mut *self.shared.sim.borrow_mut());
            let next = [links.up.next_arrival(), links.down.next_arrival()];
            let Some(next) = next.into_iter().flatten().min() else { return false };
            sim.now = sim.now.max(next);
            links.up.deliver(sim.now, &mut sim.rng);
            links.down.deliver(sim.now, &mut sim.rng);
            true
        }
    }

    impl Pair for Simulated {
        fn transport(&mut self) -> &mut dyn Transport {
            self.transport.as_mut().expect("it is open")
        }

        fn peer_sends(&mut self, bytes: &[u8]) {
            self.unsent.extend_from_slice(bytes);
            self.pump();
        }

        fn peer_reads(&mut self) -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            loop {
                let read = self.shared.links.borrow_mut()[0].down.read(usize::MAX, &mut bytes);
                match read {
                    Read::Bytes(_) | Read::End => return Ok(bytes),
                    Read::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                    Read::Nothing => assert!(self.go_on(), "nothing comes"),
                }
            }
        }

        fn peer_ends(&mut self) {
            self.ends = true;
            self.pump();
        }

        fn peer_resets(&mut self) -> bool {
            let sim = &mut *self.shared.sim.borrow_mut();
            self.shared.links.borrow_mut()[0].up.reset(sim.now, &mut sim.rng);
            true
        }

        fn wait(&mut self) {
            self.pump();
            self.go_on();
            let mut ready = Ready::NOTHING;
            {
                let links = &self.shared.links.borrow()[0];
                if links.up.unread() > 0 {
                    ready |= Ready::TO_READ;
                }
                if links.up.has_fin() {
                    ready |= Ready::TO_READ | Ready::ENDED;
                }
                if links.up.is_reset() {
                    ready = Ready::ALL;
                }
                if links.down.room() > 0 {
                    ready |= Ready::TO_SEND;
                }
            }
            self.transport().note(ready);
        }

        fn close(&mut self) {
            self.transport = None;
        }

        fn can_reset(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_simulated_transport_keeps_the_contract() {
        for seed in 0..40 {
            check(|| Box::new(Simulated::new(seed)));
        }
    }
}
