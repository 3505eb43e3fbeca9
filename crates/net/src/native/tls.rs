//! TLS around a native session over TCP: the certificates and settings of the `endpoint` block, and the subject of the
//! client's certificate, if it has shown one.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use sekisho_config::VerifyClient;
use sekisho_endpoint::{Peer, Stream};
use sekisho_route::ClientVerdict;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::ServerTls;

/// So much is encrypted in one go: no more waits here to leave.
const SEND_BYTES: usize = 64 << 10;

/// The settings, ready to be used.
#[derive(Debug)]
pub struct NativeTls {
    pub(crate) server: ServerTls,
    pub(crate) verify: VerifyClient,
}

impl NativeTls {
    /// A connection that was just accepted. If there can be none with these settings, it ends with its first read.
    pub(super) fn accept(self: &Arc<Self>, tcp: TcpStream) -> TlsStream {
        let keys = ServerConnection::new(Arc::clone(&self.server.config)).ok();
        TlsStream { tcp, keys, tls: Arc::clone(self), is_shut: false }
    }
}

/// A client's connection with TLS.
#[derive(Debug)]
pub(super) struct TlsStream {
    tcp: TcpStream,
    keys: Option<ServerConnection>,
    tls: Arc<NativeTls>,
    is_shut: bool,
}

/// The socket, as rustls reads from and writes to it.
struct Socket<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

fn blocking<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Socket<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(into);
        let polled = AsyncRead::poll_read(Pin::new(self.tcp), self.cx, &mut buffer);
        blocking(polled)?;
        Ok(buffer.filled().len())
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(AsyncWrite::poll_write(Pin::new(self.tcp), self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn polled<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl TlsStream {
    /// Sends the records that wait.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(keys) = &mut self.keys else { return Poll::Ready(Ok(())) };
        while keys.wants_write() {
            let tcp = &mut self.tcp;
            if ready!(polled(keys.write_tls(&mut Socket { tcp, cx })))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for TlsStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // What the handshake has to say; if the peer does not take it, its bytes are read all the same.
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            let Some(keys) = &mut self.keys else { return Poll::Ready(Ok(0)) };
            match keys.reader().read(into) {
                Ok(count) => return Poll::Ready(Ok(count)),
                // An end without a last word is an end: the client had one of its own to say.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let tcp = &mut self.tcp;
            ready!(polled(keys.read_tls(&mut Socket { tcp, cx })))?;
            if let Err(error) = keys.process_new_packets() {
                // The peer is told why, if it takes it.
                let _ = self.poll_flush(cx);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let Some(keys) = &mut self.keys else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let count = keys.writer().write(&bytes[..bytes.len().min(SEND_BYTES)])?;
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What did not leave leaves before the next, or when the session reads.
            _ => Poll::Ready(Ok(count)),
        }
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_shut, true)
            && let Some(keys) = &mut self.keys
        {
            keys.send_close_notify();
        }
        ready!(self.poll_flush(cx))?;
        AsyncWrite::poll_shutdown(Pin::new(&mut self.tcp), cx)
    }

    fn reset_on_close(&mut self) {
        self.tcp.reset_on_close();
    }

    fn peer(&self) -> Peer {
        Stream::peer(&self.tcp)
    }

    fn certificate(&self) -> Result<Option<Arc<str>>, String> {
        let chain = self.keys.as_ref().and_then(|keys| keys.peer_certificates());
        let Some(judged) = self.tls.server.judge(chain) else {
            return if self.tls.verify == VerifyClient::On {
                Err("a client certificate is needed".to_owned())
            } else {
                Ok(None)
            };
        };
        match judged.result {
            ClientVerdict::Valid => Ok(Some(judged.subject.as_str().into())),
            // It is not ours, and proves nothing (`optional_no_ca`).
            ClientVerdict::Unjudged(_) => Ok(None),
            ClientVerdict::Invalid(why) => {
                Err(format!("the client certificate is not valid: {why}"))
            }
        }
    }
}
