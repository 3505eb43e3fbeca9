//! TLS around a native session over TCP: the certificates and settings of the `endpoint` block, and the subject of the
//! client's certificate, if it has shown one.

use std::io;
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;
use sekisho_config::VerifyClient;
use sekisho_endpoint::{Peer, PeerCertificate, Stream, tls};
use sekisho_route::ClientVerdict;
use tokio::net::TcpStream;

use crate::tls::ServerTls;
use crate::worker::Worker;

/// The settings, ready to be used.
#[derive(Debug)]
pub struct NativeTls {
    pub(crate) server: ServerTls,
    pub(crate) verify: VerifyClient,
}

impl NativeTls {
    /// A connection that was just accepted. If there can be none with these settings, it ends with its first read.
    pub(super) fn accept(self: &Arc<Self>, tcp: TcpStream, worker: Weak<Worker>) -> TlsStream {
        let stream = match ServerConnection::new(Arc::clone(&self.server.config)) {
            Ok(keys) => Ok(tls::Stream::new(tcp, keys)),
            Err(_) => Err(tcp),
        };
        TlsStream { stream, tls: Arc::clone(self), worker }
    }

    /// Whose certificate this is, if it proves anything; an error says why it will not do.
    pub(super) fn judge(
        &self,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Result<Option<String>, String> {
        let Some(judged) = self.server.judge(chain) else {
            return if self.verify == VerifyClient::On {
                Err("a client certificate is needed".to_owned())
            } else {
                Ok(None)
            };
        };
        match judged.result {
            ClientVerdict::Valid => Ok(Some(judged.subject)),
            // It is not ours, and proves nothing (`optional_no_ca`).
            ClientVerdict::Unjudged(_) => Ok(None),
            ClientVerdict::Invalid(why) => {
                Err(format!("the client certificate is not valid: {why}"))
            }
        }
    }
}

/// A client's connection with TLS.
#[derive(Debug)]
pub(super) struct TlsStream {
    stream: Result<tls::Stream, TcpStream>,
    tls: Arc<NativeTls>,
    worker: Weak<Worker>,
}

impl Stream for TlsStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Ok(stream) => stream.poll_read(cx, into),
            Err(_) => Poll::Ready(Ok(0)),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Ok(stream) => stream.poll_write(cx, bytes),
            Err(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Ok(stream) => stream.poll_shut_down(cx),
            Err(tcp) => tcp.poll_shut_down(cx),
        }
    }

    fn reset_on_close(&mut self) {
        match &mut self.stream {
            Ok(stream) => stream.reset_on_close(),
            Err(tcp) => tcp.reset_on_close(),
        }
    }

    fn peer(&self) -> Peer {
        match &self.stream {
            Ok(stream) => stream.peer(),
            Err(tcp) => Stream::peer(tcp),
        }
    }

    fn certificate(&self) -> Result<Option<PeerCertificate>, String> {
        let chain = self.stream.as_ref().ok().and_then(tls::Stream::peer_certificates);
        // A reload since the connection was accepted counts.
        let site = self.worker.upgrade().and_then(|worker| worker.native.site());
        let tls = site.and_then(|site| site.native_tls.clone());
        let subject = tls.as_ref().unwrap_or(&self.tls).judge(chain)?;
        Ok(subject.map(|subject| PeerCertificate {
            subject: subject.into(),
            chain: chain.unwrap_or_default().iter().map(|one| one.to_vec()).collect(),
        }))
    }
}
