//! A client that keeps several streams on one HTTP/2 connection and honours GOAWAY (RFC 9113 §6.8): what the server
//! says it has not processed is asked for again on a new connection, everything else must be answered. The protocol
//! is spoken by the `h2` crate, which is no code of ours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::Speech;

/// What became of the requests of all clients.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: AtomicUsize,
    /// Refused by GOAWAY or `REFUSED_STREAM`: not processed, and asked for again.
    pub(crate) refused: AtomicUsize,
    pub(crate) connections: AtomicUsize,
}

/// Asks for `/` until it is told to stop: so many clients, each with so many streams at a time. Whatever fails panics.
pub(crate) fn ask(
    to: SocketAddr,
    (clients, streams): (usize, usize),
    is_over: &AtomicBool,
    tally: &Tally,
) {
    let config = Arc::new(Speech::default().alpn(&["h2"]).config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let one = || async {
            while !is_over.load(Ordering::SeqCst) {
                connection(to, streams, &config, is_over, tally).await;
            }
        };
        futures_util::future::join_all((0..clients).map(|_| one())).await;
    });
}

/// One connection, for as long as the server wants it.
async fn connection(
    to: SocketAddr,
    streams: usize,
    config: &Arc<ClientConfig>,
    is_over: &AtomicBool,
    tally: &Tally,
) {
    let socket = TcpStream::connect(to).await.expect("connected");
    socket.set_nodelay(true).expect("an option");
    let name = ServerName::try_from("a.test").expect("a name");
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, socket).await;
    let (sender, connection) =
        h2::client::handshake(stream.expect("a handshake")).await.expect("HTTP/2");
    let driven = tokio::spawn(connection);
    tally.connections.fetch_add(1, Ordering::SeqCst);
    let one = || stream_after_stream(to, sender.clone(), is_over, tally);
    futures_util::future::join_all((0..streams).map(|_| one())).await;
    drop(sender);
    // Every stream has its answer; how the connection ends after that is nobody's loss.
    let _ = driven.await;
}

/// One request after the other, until the connection takes no more.
async fn stream_after_stream(
    to: SocketAddr,
    mut sender: SendRequest<Bytes>,
    is_over: &AtomicBool,
    tally: &Tally,
) {
    while !is_over.load(Ordering::SeqCst) {
        sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(error) => return unsent(&error),
        };
        let request = http::Request::get(format!("https://a.test:{}/", to.port()));
        let response = match sender.send_request(request.body(()).expect("a request"), true) {
            Ok((response, _)) => response,
            Err(error) => return unsent(&error),
        };
        match answer(response).await {
            Ok(body) => {
                assert_eq!(body, b"answered");
                tally.answered.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
                assert!(error.is_go_away() || is_refused, "a request failed: {error:?}");
                tally.refused.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// A request that could not be sent is not lost: it goes to the next connection.
fn unsent(error: &h2::Error) {
    assert!(error.is_go_away(), "the connection failed: {error:?}");
}

async fn answer(response: h2::client::ResponseFuture) -> Result<Vec<u8>, h2::Error> {
    let response = response.await?;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        all.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    Ok(all)
}
