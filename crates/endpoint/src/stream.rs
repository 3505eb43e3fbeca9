//! What a transport is to a session: an ordered stream of bytes in both directions. TCP and Unix sockets
//! are here; the loopback has its own file; rings in shared memory are one more implementation.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sekisho_service::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The key of limits by address: an IPv4 address, an IPv6 network of 64 bits, a local user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AddressKey {
    V4(Ipv4Addr),
    V6([u16; 4]),
    User(u32),
}

impl AddressKey {
    /// That of a peer, where it has one.
    pub(crate) fn of(peer: &Peer) -> Option<Self> {
        match peer {
            Peer::Tcp(address) => Some(match address.ip().to_canonical() {
                IpAddr::V4(address) => Self::V4(address),
                IpAddr::V6(address) => {
                    let [a, b, c, d, ..] = address.segments();
                    Self::V6([a, b, c, d])
                }
            }),
            Peer::Local { uid, .. } => Some(Self::User(*uid)),
            Peer::Loopback | Peer::Unknown => None,
        }
    }
}

/// A connected transport. The engine takes any cut of the bytes, so whatever is there may be given.
pub trait Stream: Unpin {
    /// Reads what is there, at least one byte; zero is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Writes what the transport takes, at least one byte.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Ends our side; the peer sees the end of the stream.
    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Makes the coming close throw away what the peer did not take, where the transport would go on trying.
    fn reset_on_close(&mut self) {}
    /// The peer.
    fn peer(&self) -> Peer;
}

macro_rules! stream_of {
    ($type:ty, $peer:expr) => {
        impl Stream for $type {
            fn poll_read(
                &mut self,
                cx: &mut Context<'_>,
                into: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let mut buffer = ReadBuf::new(into);
                ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }

            fn poll_write(
                &mut self,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write(Pin::new(self), cx, bytes)
            }

            fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_shutdown(Pin::new(self), cx)
            }

            fn reset_on_close(&mut self) {
                // Where it fails, the kernel gives up by itself.
                let zero = Some(std::time::Duration::ZERO);
                let _ = rustix::net::sockopt::set_socket_linger(self, zero);
            }

            fn peer(&self) -> Peer {
                $peer(self).unwrap_or(Peer::Unknown)
            }
        }
    };
}

stream_of!(TcpStream, |tcp: &TcpStream| tcp.peer_addr().map(Peer::Tcp));
stream_of!(UnixStream, |unix: &UnixStream| unix.peer_cred().map(|of| Peer::Local {
    uid: of.uid(),
    pid: of.pid().and_then(|pid| u32::try_from(pid).ok()),
}));
