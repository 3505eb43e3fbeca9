//! A scripted server behind the one under test: each connection is given to a function of the test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::common::LONG;

/// A server of the test's own. Its thread ends with the test.
#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

/// A connection to it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
    heads: Arc<Mutex<Vec<String>>>,
    /// The how many-th it is, from 0.
    pub(crate) number: usize,
}

impl Backend {
    pub(crate) fn start(serve: impl Fn(&mut Connection) + Send + Sync + 'static) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a port is free"), serve)
    }

    fn start_on(
        listener: TcpListener,
        serve: impl Fn(&mut Connection) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("it has an address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let backend =
            Self { address, heads: Arc::clone(&heads), connections: Arc::clone(&connections) };
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                stream.set_read_timeout(Some(LONG)).expect("it can be set");
                stream.set_nodelay(true).expect("it can be set");
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (heads, serve) = (Arc::clone(&heads), Arc::clone(&serve));
                let mut connection = Connection { stream, unread: Vec::new(), heads, number };
                std::thread::spawn(move || serve(&mut connection));
            }
        });
        backend
    }

    /// One that answers every request with this text.
    pub(crate) fn saying(body: &'static str) -> Self {
        Self::saying_on(TcpListener::bind("127.0.0.1:0").expect("a port is free"), body)
    }

    /// The same where this one listens.
    pub(crate) fn saying_on(listener: TcpListener, body: &'static str) -> Self {
        Self::start_on(listener, move |connection| {
            while connection.request().is_some() {
                connection.answer("200 OK", "", body);
            }
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of all requests that have come.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Connection {
    /// The head of the next request; `None` at the end.
    pub(crate) fn request(&mut self) -> Option<String> {
        let head = self.read_until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).expect("text");
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
        Some(head)
    }

    /// A request with its body.
    pub(crate) fn request_with_body(&mut self) -> Option<(String, Vec<u8>)> {
        let head = self.request()?;
        let lower = head.to_ascii_lowercase();
        let body = if lower.contains("transfer-encoding: chunked") {
            let mut body = Vec::new();
            loop {
                let line = self.read_until(b"\r\n")?;
                let size = std::str::from_utf8(&line).expect("text").trim();
                let size = usize::from_str_radix(size, 16).expect("a size");
                body.extend(self.read(size)?);
                self.read(2)?;
                if size == 0 {
                    break body;
                }
            }
        } else {
            let length = lower.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            self.read(length.unwrap_or(0))?
        };
        Some((head, body))
    }

    fn read_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|part| part == end) {
                return Some(self.unread.drain(..at + end.len()).collect());
            }
            self.more()?;
        }
    }

    pub(crate) fn read(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            self.more()?;
        }
        Some(self.unread.drain(..count).collect())
    }

    /// Whatever comes next; `None` at the end.
    pub(crate) fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 16 * 1024];
        let count = self.stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        self.unread.extend_from_slice(&buffer[..count]);
        Some(())
    }

    /// What has come and was not taken.
    pub(crate) fn peek(&self) -> &[u8] {
        &self.unread
    }

    /// What has come and was not asked for.
    pub(crate) fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // If the peer has gone, the bytes are dropped.
        let _ = self.try_send(bytes);
    }

    /// Sends, and says whether the peer takes it.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    pub(crate) fn answer(&mut self, status: &str, fields: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        self.send(format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len()));
        self.send(body);
    }

    pub(crate) fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits until the other side has gone.
    pub(crate) fn wait_for_end(&mut self) {
        while self.more().is_some() {}
    }
}

/// An address without a listener: it was free a moment ago.
pub(crate) fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address")
}
