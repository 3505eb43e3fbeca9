//! The transport of a QUIC session: datagrams, loss and the handshake. Its bytes are in streams, which the protocol
//! engine reads and writes by itself.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use sekisho_http::ProxyHeader;
use sekisho_lifecycle::Moment;
use sekisho_route::TlsFacts;

use super::{Capabilities, ClientTransport, DatagramTransport, Ready, Secured, Transport};
use crate::quic::QuicConnection;
use crate::session::Token;
use crate::tls::Chooser;
use crate::worker::Worker;

/// A session's side of a QUIC connection.
#[derive(Debug)]
pub struct QuicStream {
    quic: Rc<RefCell<QuicConnection>>,
    worker: Rc<Worker>,
    facts: Option<Arc<TlsFacts>>,
}

impl QuicStream {
    pub(crate) fn new(quic: Rc<RefCell<QuicConnection>>, worker: &Rc<Worker>) -> Self {
        Self { quic, worker: Rc::clone(worker), facts: None }
    }

    fn loss(&self) -> Option<io::Error> {
        let quic = self.quic.borrow();
        quic.lost().map(|why| io::Error::new(io::ErrorKind::ConnectionReset, why.to_owned()))
    }

    /// What it holds in memory beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.quic.borrow().memory_bytes()
    }
}

impl Transport for QuicStream {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn read(&mut self, _: &mut [u8]) -> Poll<io::Result<usize>> {
        self.loss().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }

    fn send(&mut self, _: &[u8], _: bool) -> Poll<io::Result<usize>> {
        // No engine over QUIC frames bytes for the transport.
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn note(&mut self, _: Ready) {}

    fn is_full(&self) -> bool {
        self.quic.borrow().is_full()
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn is_lost(&self) -> bool {
        self.quic.borrow().lost().is_some()
    }

    fn shut_down_write(&mut self, _: bool) {}

    fn reset_on_close(&mut self) {}

    fn watch(&mut self, _: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut quic = self.quic.borrow_mut();
        if quic.is_full() {
            quic.wait(&self.worker, Token::from_bits(token));
        }
        Ok(())
    }
}

impl ClientTransport for QuicStream {
    fn awaits_proxy_header(&self) -> bool {
        false
    }

    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn secured(&self) -> Secured<'_> {
        self.facts.as_ref().map_or(Secured::NotYet, Secured::By)
    }

    fn judge_again(&mut self, chooser: &Chooser) {
        let Some(facts) = &self.facts else { return };
        if let Some(server) = chooser.choose(&facts.server_name) {
            let chain = self.quic.borrow().certificates();
            self.facts = Some(Arc::new(server.judged_again(facts, chain.as_deref())));
        }
    }

    fn buffer_bytes(&self) -> usize {
        0
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramTransport> {
        Some(self)
    }
}

impl DatagramTransport for QuicStream {
    fn handshake_error(&self) -> Option<io::Error> {
        self.loss().filter(|_| self.facts.is_none())
    }

    fn advance(&mut self, now: Moment) {
        let mut quic = self.quic.borrow_mut();
        quic.advance(self.worker.clock.instant(now).into_std());
        let is_early = self.facts.as_ref().is_some_and(|facts| facts.is_early);
        if self.facts.is_none() || is_early {
            self.facts = quic.facts().cloned();
        }
    }

    fn flush(&mut self) -> Poll<io::Result<()>> {
        self.quic.borrow_mut().flush()
    }

    fn next_timer(&mut self, is_busy: bool) -> Option<Moment> {
        let mut quic = self.quic.borrow_mut();
        quic.set_busy(is_busy);
        quic.next_timer().map(|at| self.worker.clock.moment(at))
    }

    fn moved(&self) -> (u64, u64) {
        self.quic.borrow().moved()
    }

    fn remote(&self) -> SocketAddr {
        self.quic.borrow().remote()
    }
}
