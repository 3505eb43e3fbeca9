//! A client that sends exactly the given bytes and sees exactly those that come back. Every
//! wait has a limit; at the limit the test fails with what had come until then.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::clock::{Stopwatch, pause};
use crate::response::{Context, Malformed, Response};

/// How long an answer may take, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// A read timeout of zero means for ever to the kernel; this is the least that does not.
const INSTANT: Duration = Duration::from_millis(1);
/// The most that one read takes.
const READ_MAX: usize = 16 * 1024;

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What has come and was not taken yet.
    received: Vec<u8>,
    /// The peer's end of the connection, once seen.
    end: Option<End>,
    patience: Duration,
}

/// How a peer ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// In good order (FIN).
    Closed,
    /// By a reset.
    Reset,
}

/// Why no response could be read.
#[derive(Debug)]
pub enum ReadError {
    /// Nothing whole came in time.
    TimedOut(Vec<u8>),
    /// The connection ended before a response was complete.
    Ended(End, Vec<u8>),
    /// What came is not a response.
    Malformed(Malformed, Vec<u8>),
}

impl Client {
    /// Connects; fails the test when there is no listener.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        stream.set_nodelay(true).expect("a socket takes its options");
        Self { stream, received: Vec::new(), end: None, patience: PATIENCE }
    }

    /// Connects from an address of this machine.
    ///
    /// # Panics
    /// When that cannot be done: the test cannot go on.
    #[track_caller]
    pub fn connect_from(from: std::net::IpAddr, to: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .and_then(|socket| {
                    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
                    rustix::net::connect(&socket, &to)?;
                    Ok(socket)
                })
                .unwrap_or_else(|error| panic!("connect from {from} to {to}: {error}"));
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("a socket takes its options");
        Self { stream, received: Vec::new(), end: None, patience: PATIENCE }
    }

    /// Waits this long for answers from here on.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends all of it; fails the test when the peer does not take it.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap_or_else(|error| panic!("send: {error}"));
        self
    }

    /// Sends all of it, or says why not: a peer may well have closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.set_write_timeout(Some(self.patience.max(INSTANT)))?;
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends byte by byte, with a pause after each.
    #[track_caller]
    pub fn send_slowly(&mut self, bytes: impl AsRef<[u8]>, gap: Duration) -> &mut Self {
        for byte in bytes.as_ref() {
            self.send([*byte]);
            pause(gap);
        }
        self
    }

    /// Sends a plain request of HTTP/1.1 and reads its answer.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Sends a request without a body, with more field lines (each ended by CRLF), and reads its
    /// answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        self.expect_response(method == "HEAD")
    }

    /// Sends a request with a body of known length and reads its answer.
    #[track_caller]
    pub fn request_with_body(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: impl AsRef<[u8]>,
    ) -> Response {
        let body = body.as_ref();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{fields}\r\n"
        );
        self.send([head.as_bytes(), body].concat());
        self.expect_response(method == "HEAD")
    }

    /// Reads one whole response; fails the test when there is none in time.
    #[track_caller]
    pub fn read_response(&mut self) -> Response {
        self.expect_response(false)
    }

    /// Reads one whole response to a HEAD request.
    #[track_caller]
    pub fn read_head_response(&mut self) -> Response {
        self.expect_response(true)
    }

    /// Reads one whole response, or says why there is none.
    pub fn try_read_response(&mut self, is_head: bool) -> Result<Response, ReadError> {
        let watch = Stopwatch::start();
        loop {
            let context = Context { is_head, is_closed: self.end == Some(End::Closed) };
            match Response::parse(&self.received, context) {
                Ok(Some((response, taken))) => {
                    self.received.drain(..taken);
                    return Ok(response);
                }
                // A cut response is reported as the end of the connection, with all that had come.
                Err(_) | Ok(None) if self.end.is_some() => {
                    let end = self.end.unwrap_or(End::Closed);
                    return Err(ReadError::Ended(end, std::mem::take(&mut self.received)));
                }
                Err(why) => {
                    return Err(ReadError::Malformed(why, std::mem::take(&mut self.received)));
                }
                Ok(None) => {}
            }
            if !self.fill(watch.left_of(self.patience)) {
                return Err(ReadError::TimedOut(self.received.clone()));
            }
        }
    }

    /// Waits until so many bytes have come, and takes them.
    #[track_caller]
    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let watch = Stopwatch::start();
        while self.received.len() < count {
            let is_more = self.end.is_none() && self.fill(watch.left_of(self.patience));
            assert!(is_more, "{count} bytes awaited, then {:?}: {}", self.end, self.so_far());
        }
        self.received.drain(..count).collect()
    }

    /// Takes everything up to the peer's end of the connection, and says how it ended.
    #[track_caller]
    pub fn read_to_end(&mut self) -> (Vec<u8>, End) {
        let watch = Stopwatch::start();
        loop {
            if let Some(end) = self.end {
                return (std::mem::take(&mut self.received), end);
            }
            let is_more = self.fill(watch.left_of(self.patience));
            assert!(is_more, "not closed within {:?}: {}", self.patience, self.so_far());
        }
    }

    /// Takes everything up to a close in good order; a reset fails the test.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        let (bytes, end) = self.read_to_end();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(end, End::Closed, "the connection was reset after {text:?}");
        bytes
    }

    /// The peer ends the connection within this time and sends nothing before; says how it ended.
    #[track_caller]
    pub fn expect_closed(&mut self, within: Duration) -> End {
        let watch = Stopwatch::start();
        loop {
            assert!(self.received.is_empty(), "bytes instead of a close: {}", self.so_far());
            if let Some(end) = self.end {
                return end;
            }
            assert!(self.fill(watch.left_of(within)), "not closed within {within:?}");
        }
    }

    /// For so long the peer neither sends anything nor ends the connection.
    #[track_caller]
    pub fn expect_open_for(&mut self, length: Duration) {
        let watch = Stopwatch::start();
        loop {
            assert!(self.received.is_empty(), "bytes instead of silence: {}", self.so_far());
            assert_eq!(self.end, None, "ended after {:?}", watch.elapsed());
            if !self.fill(watch.left_of(length)) {
                return;
            }
        }
    }

    /// Ends our side (FIN) and goes on reading.
    #[track_caller]
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is there");
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("lingers");
    }

    /// Keeps the kernel's receive buffer small, so that a client that does not read is soon felt.
    pub fn shrink_receive_buffer(&self, bytes: usize) {
        SockRef::from(&self.stream).set_recv_buffer_size(bytes).expect("a buffer can shrink");
    }

    /// What has come and was not taken yet; reads nothing.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Our own address, as the server sees it.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket has an address")
    }

    #[track_caller]
    fn expect_response(&mut self, is_head: bool) -> Response {
        self.try_read_response(is_head).unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// Waits for bytes or the peer's end; says whether either came.
    fn fill(&mut self, limit: Duration) -> bool {
        let watch = Stopwatch::start();
        let mut buffer = [0; READ_MAX];
        loop {
            let left = watch.left_of(limit).max(INSTANT);
            self.stream.set_read_timeout(Some(left)).expect("a socket takes its options");
            match self.stream.read(&mut buffer) {
                Ok(0) => self.end = Some(End::Closed),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        if watch.elapsed() >= limit {
                            return false;
                        }
                        continue;
                    }
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        self.end = Some(End::Reset);
                    }
                    _ => panic!("read: {error}"),
                },
            }
            return true;
        }
    }

    fn so_far(&self) -> String {
        shown(&self.received)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(bytes) => write!(out, "timed out after {}", shown(bytes)),
            Self::Ended(end, bytes) => write!(out, "{end:?} after {}", shown(bytes)),
            Self::Malformed(why, bytes) => write!(out, "{why} in {}", shown(bytes)),
        }
    }
}

impl std::error::Error for ReadError {}

/// Enough of the bytes to understand a failure by.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 2000;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]);
    format!("{} bytes {text:?}", bytes.len())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    /// A client and what a scripted peer does with the other side.
    fn against(peer: impl FnOnce(TcpStream) + Send + 'static) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || peer(listener.accept().expect("accepted").0));
        Client::connect(address)
    }

    #[test]
    fn responses_are_read_one_by_one_and_then_the_close() {
        let mut client = against(|mut stream| {
            let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.0 404 No\r\n\r\nbc";
            stream.write_all(two.as_bytes()).expect("written");
        });
        assert_eq!(client.read_response().text(), "a");
        let second = client.read_response();
        assert_eq!((second.status, second.text().as_str()), (404, "bc"));
        assert_eq!(client.expect_closed(PATIENCE), End::Closed);
    }

    #[test]
    fn a_cut_response_is_not_taken_for_a_whole_one() {
        let mut client = against(|mut stream| {
            let cut = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
            stream.write_all(cut.as_bytes()).expect("written");
        });
        let read = client.try_read_response(false);
        assert!(matches!(read, Err(ReadError::Ended(End::Closed, _))), "{read:?}");
    }

    #[test]
    fn silence_and_a_reset_are_told_apart() {
        let mut client = against(|stream| {
            let mut byte = [0];
            (&stream).read_exact(&mut byte).expect("the word to go on");
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("lingers");
        });
        client.expect_open_for(SOON);
        client.send("x");
        assert_eq!(client.expect_closed(PATIENCE), End::Reset);
    }

    #[test]
    fn a_reset_of_ours_reaches_the_peer() {
        let (said, heard) = std::sync::mpsc::channel();
        let client = against(move |mut stream| {
            said.send(stream.read(&mut [0]).map_err(|error| error.kind())).expect("awaited");
        });
        client.reset();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Err(ErrorKind::ConnectionReset)));
    }

    #[test]
    fn patience_has_an_end() {
        let (_keep, wait) = std::sync::mpsc::channel::<()>();
        let mut client = against(move |_stream| assert!(wait.recv().is_err())).with_patience(SOON);
        let watch = Stopwatch::start();
        assert!(matches!(client.try_read_response(false), Err(ReadError::TimedOut(_))));
        assert!(watch.elapsed() >= SOON);
    }
}
