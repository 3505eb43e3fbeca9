//! The transport of an accepted connection: `sekisho-transport`'s contract, and what only the server's side has.

#[cfg(any(test, feature = "simulation"))]
pub mod contract;
mod stream;
mod tls;
mod within;

use std::io;
use std::sync::Arc;
use std::task::Poll;

use sekisho_http::ProxyHeader;
use sekisho_route::TlsFacts;
pub use sekisho_transport::{Capabilities, Ready, Socket, Transport};

pub use stream::Stream;
pub use tls::TlsStream;
pub use within::Within;

use crate::tls::Chooser;

/// Whether a transport is encrypted.
#[derive(Clone, Copy, Debug)]
pub enum Secured<'a> {
    /// It is not.
    No,
    /// It will be; the peer has had no chance to say anything yet.
    NotYet,
    /// It is.
    By(&'a Arc<TlsFacts>),
    /// It was to be, and the peer speaks in the clear (S2).
    NotThoughItShould,
}

/// The transport of a client that has connected.
pub trait ClientTransport: Transport {
    /// Whether the header of a balancer comes first, and has not been read. Nothing else is read before it.
    fn awaits_proxy_header(&self) -> bool {
        false
    }

    /// Reads that header.
    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Whether it is encrypted. Known for sure when the first bytes have been read.
    fn secured(&self) -> Secured<'_> {
        Secured::No
    }

    /// The configuration has changed: the peer's certificate is verified anew (S4).
    fn judge_again(&mut self, chooser: &Chooser) {
        let _ = chooser;
    }
}

impl ClientTransport for Socket {
    fn awaits_proxy_header(&self) -> bool {
        self.awaits_proxy_header()
    }

    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        self.read_proxy_header()
    }
}
