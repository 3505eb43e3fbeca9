//! What a transport is to a session: an ordered stream of bytes in both directions. TCP and Unix sockets
//! are here; the loopback has its own file; rings in shared memory are one more implementation.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sekisho_service::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

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
    /// The peer's certificate, where it has shown one and that was verified. It is asked for when the peer's greeting
    /// has come. An error is why the peer is refused.
    fn certificate(&self) -> Result<Option<PeerCertificate>, String> {
        Ok(None)
    }
}

/// A certificate that a peer has shown, and that was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerCertificate {
    /// Its subject.
    pub subject: Arc<str>,
    /// The certificate (DER), and those that came with it.
    pub chain: Arc<[Vec<u8>]>,
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
