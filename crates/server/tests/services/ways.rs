//! The ways to a service: each calls it by another protocol or transport, and all bring the same back.

use std::net::TcpStream;

use sekisho_endpoint::{CallError, blocking};
use sekisho_testkit::{Client, Server};

use crate::LONG;

/// What a call came to: its records, and its one answer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) answer: Result<Vec<u8>, (u32, String)>,
}

impl Outcome {
    /// The result of a call without records.
    #[track_caller]
    pub(crate) fn result(self) -> Vec<u8> {
        assert_eq!(self.records, Vec::<Vec<u8>>::new());
        self.answer.expect("a result")
    }
}

/// A way to the services of a server.
pub(crate) trait Way {
    fn name(&self) -> &'static str;
    /// Calls a service, by its number or its name.
    fn call(&self, server: &Server, service: (u32, &str), body: &[u8]) -> Outcome;
    /// Calls it and goes away when `is_there` says that it works.
    fn leave(&self, server: &Server, service: (u32, &str), body: &[u8], is_there: &dyn Fn());
}

/// HTTP/1.1, with framed records.
pub(crate) struct Http1;

impl Way for Http1 {
    fn name(&self) -> &'static str {
        "http1"
    }

    fn call(&self, server: &Server, (_, name): (u32, &str), body: &[u8]) -> Outcome {
        let mut client = server.connect();
        client.send(head(name, body.len())).send(body);
        let response = client.read_response();
        assert_eq!(response.status, 200, "{}", response.text());
        unframed(&response.body)
    }

    fn leave(&self, server: &Server, (_, name): (u32, &str), body: &[u8], is_there: &dyn Fn()) {
        let mut client: Client = server.connect();
        client.send(head(name, body.len())).send(body);
        is_there();
    }
}

fn head(name: &str, length: usize) -> String {
    format!(
        "POST /{name}/ HTTP/1.1\r\nHost: x\r\nAccept: application/x-sekisho-records\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Frames of a kind, a length and bytes.
fn unframed(mut body: &[u8]) -> Outcome {
    let mut records = Vec::new();
    while let Some(([kind, length @ ..], rest)) = body.split_first_chunk::<5>() {
        let (bytes, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        body = rest;
        let answer = match kind {
            0 => {
                records.push(bytes.to_vec());
                continue;
            }
            1 => Ok(bytes.to_vec()),
            2 => {
                let (code, text) = bytes.split_first_chunk().expect("a code");
                Err((u32::from_be_bytes(*code), String::from_utf8_lossy(text).into_owned()))
            }
            other => panic!("no such kind: {other}"),
        };
        assert!(body.is_empty(), "nothing follows the answer");
        return Outcome { records, answer };
    }
    panic!("there is no answer");
}

/// HTTP/2 in the clear, with framed records.
pub(crate) struct Http2;

impl Http2 {
    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            tokio::time::timeout(LONG, work).await.expect("it comes to its end")
        })
    }

    async fn send(server: &Server, name: &str, body: &[u8]) -> h2::client::ResponseFuture {
        let stream = tokio::net::TcpStream::connect(server.address()).await.expect("it listens");
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move {
            // The server ends it, or the test.
            let _ = connection.await;
        });
        let request = http::Request::builder()
            .method("POST")
            .uri(format!("http://x/{name}/"))
            .header("accept", "application/x-sekisho-records")
            .body(())
            .expect("a request");
        let (response, mut upload) = client.send_request(request, body.is_empty()).expect("sent");
        if !body.is_empty() {
            upload.send_data(body.to_vec().into(), true).expect("queued");
        }
        response
    }
}

impl Way for Http2 {
    fn name(&self) -> &'static str {
        "http2"
    }

    fn call(&self, server: &Server, (_, name): (u32, &str), body: &[u8]) -> Outcome {
        Self::run(async {
            let response = Self::send(server, name, body).await.await.expect("a head");
            assert_eq!(response.status(), 200);
            let mut stream = response.into_body();
            let mut all = Vec::new();
            while let Some(data) = stream.data().await {
                let data = data.expect("data");
                stream.flow_control().release_capacity(data.len()).expect("room");
                all.extend_from_slice(&data);
            }
            unframed(&all)
        })
    }

    fn leave(&self, server: &Server, (_, name): (u32, &str), body: &[u8], is_there: &dyn Fn()) {
        Self::run(async {
            let response = Self::send(server, name, body).await;
            // The connection's own task has to send it.
            let _ = tokio::time::timeout(std::time::Duration::from_millis(50), response).await;
            is_there();
        });
    }
}

/// A native session over TCP.
pub(crate) struct NativeTcp;
/// A native session over a Unix socket.
pub(crate) struct NativeUnix;
/// A native session through shared memory.
pub(crate) struct NativeIpc;

fn call_native<S: blocking::Transport>(
    mut client: blocking::Client<S>,
    number: u32,
    body: &[u8],
) -> Outcome {
    let ticket = client.request(number, body).expect("made");
    let mut records = Vec::new();
    while let Some(record) = client.next_record(&ticket).expect("alive") {
        records.push(record);
    }
    let answer = match client.answer(ticket) {
        Ok(result) => Ok(result),
        Err(CallError::Failed { code, text }) => Err((code.number(), text)),
        Err(other) => panic!("{other}"),
    };
    Outcome { records, answer }
}

fn leave_native<S: blocking::Transport>(
    mut client: blocking::Client<S>,
    number: u32,
    body: &[u8],
    is_there: &dyn Fn(),
) {
    let _ticket = client.request(number, body).expect("made");
    assert_eq!(client.call(crate::ECHO.0, b"sent").expect("alive"), b"sent");
    is_there();
}

macro_rules! native {
    ($way:ident, $name:literal, $connect:expr) => {
        impl Way for $way {
            fn name(&self) -> &'static str {
                $name
            }

            fn call(&self, server: &Server, (number, _): (u32, &str), body: &[u8]) -> Outcome {
                call_native($connect(server), number, body)
            }

            fn leave(
                &self,
                server: &Server,
                (number, _): (u32, &str),
                body: &[u8],
                is_there: &dyn Fn(),
            ) {
                leave_native($connect(server), number, body, is_there);
            }
        }
    };
}

native!(NativeTcp, "native tcp", |server: &Server| {
    let stream = TcpStream::connect(server.address_of(1)).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    blocking::Client::connect(stream, "suite").expect("admitted")
});
native!(NativeUnix, "native unix", |server: &Server| {
    let path = server.tree().path("s");
    let stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    blocking::Client::connect(stream, "suite").expect("admitted")
});
native!(NativeIpc, "native shared memory", |server: &Server| {
    let path = server.tree().path("m");
    let stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    let stream = sekisho_endpoint::ipc::BlockingStream::connect(stream).expect("shared");
    blocking::Client::connect(stream, "suite").expect("admitted")
});
