//! Request heads and the framing of bodies against another server: every request that we take whole is taken by
//! hyper, too, with the same method, target, version, fields and body, one after the other, and so is where the next
//! one begins. That we are stricter is fine; that we are laxer, or differ, is how requests are smuggled (V1, V2).
//!
//! hyper reads heads with httparse, as we do, but for request lines, and frames bodies and chunks with code of its
//! own; `tests/h11.rs` asks a parser that shares nothing with us.
//!
//! Differences that are known and wanted, each asked for by name below:
//! - a target that is no URI to hyper's types (they take no `"`, `<`, `^`, `{`, … and no empty authority): we keep
//!   targets as bytes, and routing refuses what it cannot read;
//! - a `Content-Length` of more than `u64::MAX - 2`: hyper keeps two numbers for itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, Uri};
use sekisho_http::{Head, Version};
use sekisho_http1::Policy;
use sekisho_http1::body::{Decoder, Progress};
use sekisho_http1::frame::Framer;
use sekisho_http1::parse::{self, Expectation, Framing};

/// As many requests of one stream are looked at.
const REQUESTS_MAX: usize = 8;
const HYPERS_LENGTH_MAX: u64 = u64::MAX - 2;

/// A request as a server has understood it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Understood {
    /// The method.
    pub method: Vec<u8>,
    /// The target.
    pub target: Vec<u8>,
    /// Whether the version is 1.1, not 1.0.
    pub is_11: bool,
    /// The fields: by name, in lower case, the values in their order.
    pub fields: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// The whole body.
    pub body: Vec<u8>,
    /// Where in the stream it ended; 0 where that is not told.
    pub end: usize,
}

/// Holds us to it.
pub fn check(data: &[u8]) {
    let ours = ours(data);
    if ours.is_empty() {
        return;
    }
    let theirs = hypers(data);
    for (at, request) in ours.iter().enumerate() {
        if is_known_difference(request) {
            return;
        }
        let shown = || data.escape_ascii();
        let other = theirs.get(at).unwrap_or_else(|| panic!("refused: {request:?} of {}", shown()));
        let found = Understood { end: 0, ..request.clone() };
        assert_eq!(found, *other, "request {at} of {}", shown());
    }
}

fn is_known_difference(request: &Understood) -> bool {
    Uri::try_from(request.target.as_slice()).is_err() || !is_same_uri(&request.target)
}

/// Whether hyper's types keep a target as it came: they drop fragments.
fn is_same_uri(target: &[u8]) -> bool {
    Uri::try_from(target).is_ok_and(|uri| target_of(&uri).as_bytes() == target)
}

fn target_of(uri: &Uri) -> String {
    uri.to_string()
}

/// The requests that we take whole, up to the first doubt or the end of the connection.
pub fn ours(mut stream: &[u8]) -> Vec<Understood> {
    let limits = Policy::default();
    let whole = stream.len();
    let mut requests = Vec::new();
    while requests.len() < REQUESTS_MAX {
        let mut framer = Framer::default();
        let Ok(blank) = framer.skip_blank(stream) else { break };
        stream = &stream[blank..];
        let mut head = Head::default();
        let read = parse::head(&mut framer, stream, &limits, &mut head);
        let Ok(Some((len, message))) = read else { break };
        let is_too_long = matches!(message.framing, Framing::Length(n) if n > HYPERS_LENGTH_MAX);
        if is_too_long || message.expectation == Expectation::Unknown {
            break;
        }
        stream = &stream[len..];
        let Some(body) = body(message.framing, &mut stream) else { break };
        let mut fields: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for (name, value) in head.fields() {
            fields.entry(name.to_ascii_lowercase()).or_default().push(value.to_vec());
        }
        requests.push(Understood {
            method: head.method_name().to_vec(),
            target: head.target().to_vec(),
            is_11: head.version() == Version::Http11,
            fields,
            body,
            end: whole - stream.len(),
        });
        if !message.persists {
            break;
        }
    }
    requests
}

/// The body at the front of a stream, if it is whole.
fn body(framing: Framing, stream: &mut &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let Some(mut decoder) = Decoder::new(framing) else { return Some(body) };
    loop {
        let decoded = decoder.advance(stream, u64::MAX).ok()?;
        body.extend_from_slice(&stream[decoded.data]);
        *stream = &stream[decoded.taken..];
        match decoded.state {
            Progress::End => return Some(body),
            Progress::More if decoded.taken > 0 => {}
            _ => return None,
        }
    }
}

/// The requests that hyper gives to its service and whose bodies it gives whole.
fn hypers(stream: &[u8]) -> Vec<Understood> {
    let seen: Arc<Mutex<Vec<Understood>>> = Arc::default();
    let taken = Arc::clone(&seen);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let seen = Arc::clone(&taken);
        async move {
            let (parts, incoming) = request.into_parts();
            // Where an upgrade would begin, it is refused, so that the stream goes on.
            let is_connect = parts.method == Method::CONNECT;
            if let Some(body) = collected(incoming).await {
                let mut fields: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
                for (name, value) in &parts.headers {
                    let values = fields.entry(name.as_str().as_bytes().to_vec()).or_default();
                    values.push(value.as_bytes().to_vec());
                }
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(Understood {
                    method: parts.method.as_str().as_bytes().to_vec(),
                    target: target_of(&parts.uri).into_bytes(),
                    is_11: parts.version == hyper::Version::HTTP_11,
                    fields,
                    body,
                    end: 0,
                });
            }
            let mut response = Response::new(Nothing);
            if is_connect {
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_headers(200)
        .serve_connection(Wire { stream, at: 0 }, service);
    let mut context = Context::from_waker(Waker::noop());
    let mut connection = pin!(connection);
    // Nothing in it waits for anything, but it may give way now and then.
    for _ in 0..1000 {
        if connection.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A body, if it comes to its end.
async fn collected(incoming: Incoming) -> Option<Vec<u8>> {
    let mut incoming = pin!(incoming);
    let mut body = Vec::new();
    loop {
        match std::future::poll_fn(|context| incoming.as_mut().poll_frame(context)).await {
            None => return Some(body),
            Some(Err(_)) => return None,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    body.extend_from_slice(&data);
                }
            }
        }
    }
}

struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

/// A peer that has sent all of its input, and reads everything.
struct Wire<'a> {
    stream: &'a [u8],
    at: usize,
}

impl Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let rest = &self.stream[self.at..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
