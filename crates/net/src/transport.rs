//! The transport of an accepted connection: `sekisho-transport`'s contract, and what only the server's side has.

#[cfg(any(test, feature = "simulation"))]
pub mod contract;
mod quic;
mod stream;
mod tls;
mod within;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use sekisho_http::ProxyHeader;
use sekisho_lifecycle::Moment;
use sekisho_route::TlsFacts;
pub use sekisho_transport::{Capabilities, Ready, Socket, Transport};

pub use quic::QuicStream;
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
    fn awaits_proxy_header(&self) -> bool;

    /// Reads that header.
    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>>;

    /// Whether it is encrypted. Known for sure when the first bytes have been read.
    fn secured(&self) -> Secured<'_>;

    /// Bytes of the buffers that it has at the moment.
    fn buffer_bytes(&self) -> usize;

    /// The configuration has changed: the peer's certificate is verified anew (S4).
    fn judge_again(&mut self, chooser: &Chooser);

    /// What only a transport of datagrams has; `None` for a byte stream.
    fn datagrams(&mut self) -> Option<&mut dyn DatagramTransport>;
}

/// A transport without a byte stream: datagrams come and leave, and it has timers.
pub trait DatagramTransport {
    /// Why the handshake has failed, if it has.
    fn handshake_error(&self) -> Option<io::Error>;

    /// A turn begins: datagrams that have come are taken, and timers of the transport act.
    fn advance(&mut self, now: Moment);

    /// Sends the datagrams that may leave now. `Pending` where they are not taken.
    fn flush(&mut self) -> Poll<io::Result<()>>;

    /// When a timer of the transport is due. While requests are running, a peer that is silent is asked whether it is
    /// there.
    fn next_timer(&mut self, is_busy: bool) -> Option<Moment>;

    /// The number of bytes that came, and of those that left.
    fn moved(&self) -> (u64, u64);

    /// The peer's address, which can change.
    fn remote(&self) -> SocketAddr;
}

/// Implements [`ClientTransport`] for a byte stream without TLS and without a PROXY header.
#[macro_export]
macro_rules! plain_client_transport {
    ($transport:ty) => {
        impl $crate::transport::ClientTransport for $transport {
            fn awaits_proxy_header(&self) -> bool {
                false
            }

            fn read_proxy_header(
                &mut self,
            ) -> std::task::Poll<std::io::Result<sekisho_http::ProxyHeader>> {
                std::task::Poll::Ready(Err(std::io::ErrorKind::Unsupported.into()))
            }

            fn secured(&self) -> $crate::transport::Secured<'_> {
                $crate::transport::Secured::No
            }

            fn buffer_bytes(&self) -> usize {
                0
            }

            fn judge_again(&mut self, _: &$crate::tls::Chooser) {}

            fn datagrams(&mut self) -> Option<&mut dyn $crate::transport::DatagramTransport> {
                None
            }
        }
    };
}

impl ClientTransport for Socket {
    fn awaits_proxy_header(&self) -> bool {
        self.awaits_proxy_header()
    }

    fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        self.read_proxy_header()
    }

    fn secured(&self) -> Secured<'_> {
        Secured::No
    }

    fn buffer_bytes(&self) -> usize {
        0
    }

    fn judge_again(&mut self, _: &Chooser) {}

    fn datagrams(&mut self) -> Option<&mut dyn DatagramTransport> {
        None
    }
}
