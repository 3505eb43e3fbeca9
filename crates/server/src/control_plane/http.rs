//! The service `http` (E9): an HTTP request without HTTP's connection. It goes through a connection within
//! the process to a worker, which serves it as it serves any other, so that there is no second code path.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::time::Duration;

use prost::Message;
use rustix::net::sockopt;
use sekisho_config::{ListenAddress, listen};
use sekisho_endpoint::http::{Done, Field, Head, Request as Asked};
use sekisho_endpoint::{Channel, Code, Peer, Request, Response, Service, Work, WriteError};
use sekisho_handler::memory;
use sekisho_net::query::InternalConnection;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::host::Host;

/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 256 * 1024;
const FIELDS_MAX: usize = 256;
/// Bodies are sent in records of at most this size.
const RECORD_BYTES: usize = 32 * 1024;
/// The longest line of a chunked body.
const LINE_BYTES_MAX: usize = 4096;
/// How often a worker that is about to end may hand the request to the next.
const TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// What a request holds while it is relayed, beside its body: our buffer, the worker's, and the socket between
/// them, which is kept small.
const RELAY_BYTES: usize = 128 * 1024;
const SOCKET_BYTES: usize = 32 * 1024;

type Failure = (Code, String);

/// The service.
pub(super) struct HttpService {
    host: Rc<Host>,
    /// The addresses that clients other than operators reach; `None` if only operators call the service.
    named: Option<Vec<ListenAddress>>,
}

impl HttpService {
    /// For the control socket: only operators call it, and they reach every address.
    pub(super) fn for_operators(host: Rc<Host>) -> Self {
        Self { host, named: None }
    }

    /// For all clients: operators reach every address, others the named ones.
    pub(super) fn for_all(host: Rc<Host>, named: Vec<ListenAddress>) -> Self {
        Self { host, named: Some(named) }
    }
}

/// The session for which a request is made, and where it goes.
#[derive(Clone)]
struct Visitor {
    session: u64,
    remote: Option<SocketAddr>,
    /// The first address where none is named.
    address: Option<ListenAddress>,
}

/// Why an answer is not relayed to its end.
enum RelayError {
    /// The caller wants no more of it.
    Unwanted,
    Failed(Failure),
}

impl From<Failure> for RelayError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Service for HttpService {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        Work::later(async move {
            let outcome = self.serve(request, &response).await;
            // If the client has gone, the answer is dropped.
            let _ = match outcome {
                Ok(done) => response.body(&done.encode_to_vec()),
                Err((code, text)) => response.error(code, &text),
            };
        })
    }
}

impl HttpService {
    async fn serve(&self, request: Request, response: &Response) -> Result<Done, Failure> {
        let over = |why: &dyn std::fmt::Display| (Code::ResourceLimitReached, why.to_string());
        if memory::is_short() {
            return Err(over(&"memory is short"));
        }
        let _held = response.hold(RELAY_BYTES).map_err(|error| over(&error))?;
        let session = request.session();
        // The body is kept once: the bytes it was decoded from are dropped here.
        let asked = Asked::decode(&*request.into_body())
            .map_err(|error| (Code::InvalidRequest, error.to_string()))?;
        let (head, is_head) = written(&asked)?;
        let visitor = self.visitor(session, read_address(&asked.address)?)?;
        let channel = response.acquire_channel().map_err(|error| over(&error))?;
        let message = Rc::new(Wire { head, body: asked.body });
        let outcome = tokio::select! {
            done = self.relay(&visitor, message, is_head, &channel) => done,
            () = response.cancelled() => {
                Err((Code::OperationCancelled, "the request was cancelled".to_owned()))
            }
        };
        response.release_channel(channel);
        outcome
    }

    /// Whether the caller may reach the address, or which one it reaches where it names none. A worker cannot
    /// check that: for it the connection comes from this process.
    fn visitor(&self, session: u64, wanted: Option<ListenAddress>) -> Result<Visitor, Failure> {
        let Some((_, info)) = self.host.native(session) else {
            return Err((Code::SessionClosed, "the session has ended".to_owned()));
        };
        // Rules about addresses apply to the address of the client, not to the control plane's connection.
        let remote = match info.peer {
            Peer::Tcp(address) => Some(address),
            _ => None,
        };
        let address = match &self.named {
            Some(named) if !info.is_admin => Some(reachable(named, wanted.as_ref())?),
            _ => wanted,
        };
        Ok(Visitor { session, remote, address })
    }

    async fn relay(
        &self,
        visitor: &Visitor,
        message: Rc<Wire>,
        is_head: bool,
        channel: &Channel,
    ) -> Result<Done, Failure> {
        for _ in 0..TRIES {
            let stream = Rc::new(self.connect(visitor.clone())?);
            // The request is sent while the answer comes: a streaming handler reads on only as its answer is
            // taken.
            let _sending = Sending::start(Rc::clone(&stream), Rc::clone(&message));
            let mut answer = Answer::new(stream);
            if let Some(head) = answer.head().await? {
                // It is not sent a second time: the body goes when it has been sent.
                drop(message);
                return answer.relay(head, is_head, channel).await;
            }
            // The worker that it was given to has closed its listeners: a reload has made it one too many.
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let text = "no server listens on this address".to_owned();
        Err((Code::ServiceUnavailable, text))
    }

    /// A connection to a worker.
    fn connect(&self, visitor: Visitor) -> Result<UnixStream, Failure> {
        let failed = |error: std::io::Error| (Code::SystemError, error.to_string());
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        for end in [&ours, &theirs] {
            // What waits in it is the kernel's memory, and ours to answer for.
            sockopt::set_socket_send_buffer_size(end, SOCKET_BYTES)
                .map_err(|it| failed(it.into()))?;
        }
        let Visitor { session, remote, address } = visitor;
        let visit = InternalConnection { stream: theirs, on_behalf_of: session, remote, address };
        if !self.host.worker_registry.connect(visit) {
            return Err((Code::ServiceUnavailable, "there is no worker".to_owned()));
        }
        UnixStream::from_std(ours).map_err(failed)
    }
}

/// A request as it is on the wire.
struct Wire {
    head: Vec<u8>,
    body: Vec<u8>,
}

/// The request on its way; dropping this stops it.
struct Sending(JoinHandle<()>);

impl Sending {
    fn start(stream: Rc<UnixStream>, message: Rc<Wire>) -> Self {
        Self(tokio::task::spawn_local(async move {
            if send(&stream, &message.head).await {
                send(&stream, &message.body).await;
            }
        }))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a part of the request; returns whether all of it was taken. A server that does not take all may have
/// answered already; if not, it must not wait for the rest.
async fn send(stream: &UnixStream, mut bytes: &[u8]) -> bool {
    use std::io::ErrorKind;
    while !bytes.is_empty() && stream.writable().await.is_ok() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
                return false;
            }
        }
    }
    bytes.is_empty()
}

/// The address that a caller without the right to control reaches.
fn reachable(
    named: &[ListenAddress],
    wanted: Option<&ListenAddress>,
) -> Result<ListenAddress, Failure> {
    let found = match wanted {
        Some(wanted) => named.iter().find(|address| *address == wanted),
        None => named.first(),
    };
    found.cloned().ok_or_else(|| {
        let text = "this address is not among those of \"http_addresses\"";
        (Code::PermissionError, text.to_owned())
    })
}

fn read_address(text: &str) -> Result<Option<ListenAddress>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = listen::addresses(text.as_bytes())
        .map_err(|why| (Code::InvalidRequest, format!("address: {why}")))?;
    Ok(found.into_iter().next())
}

/// The head of the request as it is on the wire, and whether its answer has no body.
fn written(asked: &Asked) -> Result<(Vec<u8>, bool), Failure> {
    let wrong = |what: &str| (Code::InvalidRequest, format!("{what} is not in order"));
    let or = |text: &str, other: &str| if text.is_empty() { other } else { text }.to_owned();
    let (method, target) = (or(&asked.method, "GET"), or(&asked.target, "/"));
    if !method.bytes().all(is_token) {
        return Err(wrong("the method"));
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("the target"));
    }
    let mut out = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n").into_bytes();
    let mut has_host = false;
    for Field { name, value } in &asked.fields {
        let is_value = value.iter().all(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
        if name.is_empty() || !name.bytes().all(is_token) || !is_value {
            return Err(wrong("a field"));
        }
        let lower = name.to_ascii_lowercase();
        let framing = ["connection", "content-length", "transfer-encoding", "keep-alive", "expect"];
        if framing.contains(&lower.as_str()) || lower == "upgrade" || lower == "te" {
            let text = format!("the field \"{name}\" frames the message and is ours to write");
            return Err((Code::InvalidRequest, text));
        }
        has_host |= lower == "host";
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !has_host {
        out.extend_from_slice(b"Host: localhost\r\n");
    }
    if !asked.body.is_empty() || matches!(method.as_str(), "POST" | "PUT") {
        out.extend_from_slice(format!("Content-Length: {}\r\n", asked.body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    Ok((out, method == "HEAD"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// How the end of a body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The answer, as it comes.
struct Answer {
    stream: Rc<UnixStream>,
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes of the body that were sent on.
    sent: u64,
}

impl Answer {
    fn new(stream: Rc<UnixStream>) -> Self {
        Self { stream, bytes: Vec::new(), taken: 0, sent: 0 }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Reads more; `false` at the end.
    async fn read(&mut self) -> Result<bool, Failure> {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        loop {
            self.stream.readable().await.map_err(|error| broken(&error))?;
            let before = self.bytes.len();
            self.bytes.resize(before + RECORD_BYTES, 0);
            let read = self.stream.try_read(&mut self.bytes[before..]);
            self.bytes.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(false);
                }
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    /// The head; `None` when nothing came at all.
    async fn head(&mut self) -> Result<Option<(Head, Framing)>, Failure> {
        loop {
            while let Some((status, head, length)) = read_head(self.rest())? {
                self.taken += length;
                // What comes before the answer is none.
                if status >= 200 {
                    return Ok(Some(head));
                }
            }
            if self.rest().len() > HEAD_BYTES_MAX {
                return Err((Code::IoError, "the head of the answer is too long".to_owned()));
            }
            if !self.read().await? {
                return if self.bytes.is_empty() { Ok(None) } else { Err(cut()) };
            }
        }
    }

    async fn relay(
        mut self,
        (head, framing): (Head, Framing),
        is_head: bool,
        channel: &Channel,
    ) -> Result<Done, Failure> {
        let status = head.status;
        let has_body = !is_head && status != 204 && status != 304;
        match self.relay_parts(&head, framing, has_body, channel).await {
            // The caller has what it wanted; the worker sees its client go.
            Ok(()) | Err(RelayError::Unwanted) => Ok(Done { status, body_bytes: self.sent }),
            Err(RelayError::Failed(failure)) => Err(failure),
        }
    }

    async fn relay_parts(
        &mut self,
        head: &Head,
        framing: Framing,
        has_body: bool,
        channel: &Channel,
    ) -> Result<(), RelayError> {
        write(channel, &head.encode_to_vec()).await?;
        match framing {
            _ if !has_body => Ok(()),
            Framing::Length(length) => self.relay_bytes(length, channel).await,
            Framing::UntilClose => self.relay_all(channel).await,
            Framing::Chunked => self.relay_chunks(channel).await,
        }
    }

    async fn relay_bytes(&mut self, length: u64, channel: &Channel) -> Result<(), RelayError> {
        let most = RECORD_BYTES.min(channel.record_bytes_max());
        let mut left = length;
        while left > 0 {
            if self.rest().is_empty() && !self.read().await? {
                return Err(cut().into());
            }
            let count = self.rest().len().min(most).min(usize::try_from(left).unwrap_or(most));
            write(channel, &self.rest()[..count]).await?;
            self.taken += count;
            self.sent += count as u64;
            left -= count as u64;
        }
        Ok(())
    }

    async fn relay_all(&mut self, channel: &Channel) -> Result<(), RelayError> {
        while !self.rest().is_empty() || self.read().await? {
            self.relay_bytes(self.rest().len() as u64, channel).await?;
        }
        Ok(())
    }

    async fn relay_chunks(&mut self, channel: &Channel) -> Result<(), RelayError> {
        loop {
            let line = self.line().await?;
            let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let size = std::str::from_utf8(size).ok();
            let size = size.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(cut)?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(());
            }
            self.relay_bytes(size, channel).await?;
            if !self.line().await?.is_empty() {
                return Err(cut().into());
            }
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(end) = self.rest().iter().position(|byte| *byte == b'\n') {
                let line = self.rest()[..end].trim_ascii_end().to_vec();
                self.taken += end + 1;
                return Ok(line);
            }
            if self.rest().len() > LINE_BYTES_MAX || !self.read().await? {
                return Err(cut());
            }
        }
    }
}

/// A status, its head, and how long that was.
type ReadHead = (u32, (Head, Framing), usize);

/// The head, if it is all there.
fn read_head(bytes: &[u8]) -> Result<Option<ReadHead>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err((Code::IoError, format!("the answer: {error}"))),
    };
    let status = u32::from(parsed.code.unwrap_or_default());
    let mut framing = Framing::UntilClose;
    let mut kept = Vec::new();
    for field in parsed.headers {
        let value = field.value;
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
            continue;
        }
        if field.name.eq_ignore_ascii_case("content-length") && framing != Framing::Chunked {
            let text = std::str::from_utf8(value).ok();
            framing = Framing::Length(text.and_then(|text| text.parse().ok()).ok_or_else(cut)?);
        }
        if !field.name.eq_ignore_ascii_case("connection") {
            kept.push(Field { name: field.name.to_owned(), value: value.to_vec() });
        }
    }
    Ok(Some((status, (Head { status, fields: kept }, framing), length)))
}

async fn write(channel: &Channel, record: &[u8]) -> Result<(), RelayError> {
    channel.write(record).await.map_err(|error| match error {
        WriteError::Unwanted => RelayError::Unwanted,
        error => RelayError::Failed((Code::ResourceLimitReached, error.to_string())),
    })
}

fn broken(error: &std::io::Error) -> Failure {
    (Code::IoError, error.to_string())
}

fn cut() -> Failure {
    (Code::IoError, "the answer was broken off".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), value: value.into() }
    }

    #[test]
    fn a_request_is_written_whole_or_not_at_all() {
        // E9, H9
        let asked = |target: &str, fields: Vec<Field>| Asked {
            target: target.to_owned(),
            fields,
            ..Asked::default()
        };
        let (bytes, is_head) = written(&asked("", Vec::new())).expect("in order");
        let expected = "GET / HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n";
        assert_eq!((String::from_utf8_lossy(&bytes).as_ref(), is_head), (expected, false));
        for bad in [
            asked("/a b", Vec::new()),
            asked("/\r\nX: y", Vec::new()),
            asked("/", vec![field("X", "y\r\nZ: 1")]),
            asked("/", vec![field("X:", "y")]),
            asked("/", vec![field("", "y")]),
            asked("/", vec![field("Content-Length", "3")]),
            asked("/", vec![field("transfer-encoding", "chunked")]),
            Asked { method: "GET /x".to_owned(), ..Asked::default() },
        ] {
            assert_eq!(written(&bad).expect_err("refused").0, Code::InvalidRequest, "{bad:?}");
        }
    }

    #[test]
    fn the_end_of_an_answer_is_known_by_its_head() {
        let framing = |fields: &str| {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let (_, (_, framing), _) = read_head(text.as_bytes()).expect("good").expect("complete");
            framing
        };
        assert_eq!(framing("Content-Length: 3\r\n"), Framing::Length(3));
        assert_eq!(framing("Transfer-Encoding: chunked\r\n"), Framing::Chunked);
        assert_eq!(framing("X: y\r\n"), Framing::UntilClose);
        assert_eq!(read_head(b"HTTP/1.1 200 OK\r\nX").expect("good so far"), None);
        assert!(read_head(b"nonsense\r\n\r\n").is_err());
    }
}
