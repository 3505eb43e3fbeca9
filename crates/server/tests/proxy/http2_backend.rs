//! A server and a client of HTTP/2 around the one under test, spoken by the `h2` crate, which is no code of ours.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::common::LONG;

/// What the backend was asked, and how its streams ended.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) connections: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    lines: Mutex<Vec<String>>,
}

impl Said {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A gRPC-like server that does what the path says. Its thread ends with the test.
#[derive(Debug)]
pub(crate) struct Http2Backend {
    pub(crate) address: SocketAddr,
    pub(crate) said: Arc<Said>,
}

/// Runs a client's part of a test to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let limited = async { tokio::time::timeout(LONG, future).await };
    runtime.expect("a runtime").block_on(limited).expect("it ends in time")
}

impl Http2Backend {
    pub(crate) fn start() -> Self {
        let said = Arc::<Said>::default();
        let (told, address) = std::sync::mpsc::channel();
        let own = Arc::clone(&said);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
                told.send(listener.local_addr().expect("an address")).expect("awaited");
                while let Ok((socket, _)) = listener.accept().await {
                    own.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(socket, Arc::clone(&own)));
                }
            });
        });
        Self { address: address.recv().expect("it listens"), said }
    }
}

async fn serve(socket: TcpStream, said: Arc<Said>) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        said.requests.fetch_add(1, Ordering::SeqCst);
        let number = said.requests.load(Ordering::SeqCst);
        tokio::spawn(answer(request, respond, number, Arc::clone(&said)));
    }
}

fn trailers(status: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", status.parse().expect("a value"));
    fields.insert("grpc-message", "it went well".parse().expect("a value"));
    fields
}

fn head() -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    head.header("x-mine", "yes").body(()).expect("a head")
}

async fn next(body: &mut RecvStream) -> Option<Bytes> {
    let piece = body.data().await?.ok()?;
    let _ = body.flow_control().release_capacity(piece.len());
    Some(piece)
}

async fn whole(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = next(body).await {
        all.extend_from_slice(&piece);
    }
    all
}

/// Sends bytes as the windows allow.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(Ok(room)) = room else { return };
        let piece = bytes.split_to(room.min(bytes.len()));
        if stream.send_data(piece, false).is_err() {
            return;
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    number: usize,
    said: Arc<Said>,
) {
    let (parts, mut body) = request.into_parts();
    let field = |name: &str| {
        let value = parts.headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
        value.unwrap_or_else(|| "-".to_owned())
    };
    said.note(format!("{} {} te={} x={}", parts.method, parts.uri, field("te"), field("x")));
    match parts.uri.path() {
        "/refused-first" if number == 1 => respond.send_reset(Reason::REFUSED_STREAM),
        "/unary" | "/refused-first" => {
            let all = whole(&mut body).await;
            let mut stream = respond.send_response(head(), false).expect("a head");
            send(&mut stream, Bytes::from(all)).await;
            let _ = stream.send_trailers(trailers("0"));
        }
        "/down" => {
            let mut stream = respond.send_response(head(), false).expect("a head");
            for at in 0..5 {
                send(&mut stream, Bytes::from(format!("message {at};"))).await;
            }
            let _ = stream.send_trailers(trailers("0"));
        }
        "/up" => {
            let mut count = 0;
            while let Some(piece) = next(&mut body).await {
                count += piece.len();
                said.note(format!("so far {count}"));
            }
            let mut stream = respond.send_response(head(), false).expect("a head");
            send(&mut stream, Bytes::from(count.to_string())).await;
            let _ = stream.send_trailers(trailers("0"));
        }
        "/both" => {
            let mut stream = respond.send_response(head(), false).expect("a head");
            while let Some(piece) = next(&mut body).await {
                send(&mut stream, piece).await;
            }
            let _ = stream.send_trailers(trailers("0"));
        }
        "/error" => {
            let mut head = head();
            head.headers_mut().extend(trailers("12"));
            let _ = respond.send_response(head, true);
        }
        "/cut" => {
            let mut stream = respond.send_response(head(), false).expect("a head");
            send(&mut stream, Bytes::from_static(b"a part")).await;
            tokio::task::yield_now().await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        "/hang" => {
            let mut stream = respond.send_response(head(), false).expect("a head");
            send(&mut stream, Bytes::from_static(b"begun")).await;
            let reset = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            said.note(format!("reset: {:?}", reset.ok()));
        }
        "/silent" => {
            let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            said.note(format!("reset: {:?}", reset.ok()));
        }
        _ => {
            let missing = Response::builder().status(404).body(()).expect("a head");
            let _ = respond.send_response(missing, true);
        }
    }
}

/// A client's connection to the server under test.
pub(crate) async fn connect(to: SocketAddr) -> h2::client::SendRequest<Bytes> {
    let socket = TcpStream::connect(to).await.expect("connected");
    socket.set_nodelay(true).expect("an option");
    let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.expect("it is ready")
}

pub(crate) fn call(path: &str) -> Request<()> {
    let request = Request::post(format!("http://a.test{path}")).header("te", "trailers");
    request.header("content-type", "application/grpc").header("x", "y").body(()).expect("sound")
}

/// An answer with all that belongs to it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Reads one to its end; an error is a reset.
pub(crate) async fn read(response: h2::client::ResponseFuture) -> Result<Answer, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?;
    Ok(Answer { status: parts.status.as_u16(), head: parts.headers, body: all, trailers })
}

/// Sends all of a body as the windows allow, and ends it.
pub(crate) async fn send_whole(mut stream: SendStream<Bytes>, bytes: Bytes) {
    send(&mut stream, bytes).await;
    let _ = stream.send_data(Bytes::new(), true);
}
