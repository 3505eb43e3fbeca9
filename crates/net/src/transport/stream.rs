//! What a client's connection runs over: a socket, in the clear or with TLS.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use sekisho_http::ProxyHeader;

use super::{
    Capabilities, ClientTransport, DatagramTransport, QuicStream, Ready, Secured, Socket,
    TlsStream, Transport, Within,
};
use crate::tls::Chooser;

/// A client's end.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(Socket),
    /// Encrypted. Behind a pointer, so that a plain connection does not pay for its size.
    Tls(Box<TlsStream>),
    /// The streams of a QUIC connection.
    Quic(Box<QuicStream>),
    /// None: a request from within the process.
    Within(Within),
    /// No socket at all. Behind a thin pointer, so that the size is that of a server without simulations.
    #[cfg(feature = "simulation")]
    Simulated(Box<Box<dyn ClientTransport>>),
}

impl Stream {
    /// What it holds in memory beside itself.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Within(_) => 0,
            Self::Tls(tls) => tls.memory_bytes(),
            Self::Quic(quic) => quic.memory_bytes(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => 0,
        }
    }
}

macro_rules! forward {
    ($self:ident, $it:ident => $call:expr) => {
        match $self {
            Self::Plain($it) => $call,
            Self::Tls($it) => $call,
            Self::Quic($it) => $call,
            Self::Within($it) => $call,
            #[cfg(feature = "simulation")]
            Self::Simulated($it) => $call,
        }
    };
}

impl Transport for Stream {
    fn capabilities(&self) -> Capabilities {
        forward!(self, it => it.capabilities())
    }

    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        forward!(self, it => it.read(into))
    }

    fn send(&mut self, bytes: &[u8], more: bool) -> Poll<io::Result<usize>> {
        forward!(self, it => it.send(bytes, more))
    }

    fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        forward!(self, it => it.send_file(file, offset, count))
    }

    fn splice_in(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        forward!(self, it => it.splice_in(pipe, count))
    }

    fn splice_out(&mut self, pipe: BorrowedFd<'_>, count: usize) -> Poll<io::Result<usize>> {
        forward!(self, it => it.splice_out(pipe, count))
    }

    fn unacknowledged(&self) -> Option<u64> {
        forward!(self, it => it.unacknowledged())
    }

    fn note(&mut self, ready: Ready) {
        forward!(self, it => it.note(ready));
    }

    fn is_full(&self) -> bool {
        forward!(self, it => it.is_full())
    }

    fn has_ended(&self) -> bool {
        forward!(self, it => it.has_ended())
    }

    fn is_lost(&self) -> bool {
        forward!(self, it => it.is_lost())
    }

    fn cork(&self, is_corked: bool) {
        forward!(self, it => it.cork(is_corked));
    }

    fn set_no_delay(&self, is_on: bool) {
        forward!(self, it => it.set_no_delay(is_on));
    }

    fn stay_local(&self) {
        forward!(self, it => it.stay_local());
    }

    fn lift_unsent_limit(&self) {
        forward!(self, it => it.lift_unsent_limit());
    }

    fn end(&mut self) {
        forward!(self, it => it.end());
    }

    fn shut_down_write(&mut self, is_complete: bool) {
        forward!(self, it => it.shut_down_write(is_complete));
    }

    fn reset_on_close(&mut self) {
        forward!(self, it => it.reset_on_close());
    }

    fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        forward!(self, it => it.watch(epoll, token))
    }
}

impl ClientTransport for Stream {
    fn awaits_proxy_header(&self) -> bool {
        forward!(self, it => it.awaits_proxy_header())
    }

    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        forward!(self, it => it.read_proxy_header())
    }

    fn secured(&self) -> Secured<'_> {
        forward!(self, it => it.secured())
    }

    fn buffer_bytes(&self) -> usize {
        forward!(self, it => it.buffer_bytes())
    }

    fn judge_again(&mut self, chooser: &Chooser) {
        forward!(self, it => it.judge_again(chooser));
    }

    #[inline]
    fn datagrams(&mut self) -> Option<&mut dyn DatagramTransport> {
        forward!(self, it => it.datagrams())
    }
}
