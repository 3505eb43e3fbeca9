//! The ways to a service: each calls it by another protocol or transport, and all bring the same back.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sekisho_endpoint::{CallError, Options, blocking};
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
    /// Calls a service, by its number or its name, as this user; the code of a refusal before that.
    fn call_as(
        &self,
        server: &Server,
        user: User<'_>,
        service: (u32, &str),
        body: &[u8],
    ) -> Result<Outcome, u32>;
    /// Calls it and goes away when `is_there` says that it works.
    fn leave_as(
        &self,
        server: &Server,
        user: User<'_>,
        service: (u32, &str),
        body: &[u8],
        is_there: &dyn Fn(),
    );

    /// Calls a service as nobody.
    #[track_caller]
    fn call(&self, server: &Server, service: (u32, &str), body: &[u8]) -> Outcome {
        self.call_as(server, None, service, body).expect("admitted")
    }

    /// The same and goes away.
    fn leave(&self, server: &Server, service: (u32, &str), body: &[u8], is_there: &dyn Fn()) {
        self.leave_as(server, None, service, body, is_there);
    }
}

/// A user and a password.
pub(crate) type User<'a> = Option<(&'a str, &'a str)>;

/// As HTTP writes them.
fn basic((user, password): (&str, &str)) -> String {
    use base64::Engine as _;
    let text = format!("{user}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Where a password is asked for, if there is one.
fn path(user: User<'_>, name: &str) -> String {
    if user.is_some() { format!("/as-user/{name}/") } else { format!("/{name}/") }
}

/// A refusal by HTTP, as the native code is called.
fn refused(status: u16) -> u32 {
    assert_eq!(status, 401, "the only one that comes before a service");
    sekisho::Code::AuthenticationError.number()
}

/// HTTP/1.1, with framed records.
pub(crate) struct Http1;

impl Way for Http1 {
    fn name(&self) -> &'static str {
        "http1"
    }

    fn call_as(
        &self,
        server: &Server,
        user: User<'_>,
        (_, name): (u32, &str),
        body: &[u8],
    ) -> Result<Outcome, u32> {
        let mut client = server.connect();
        client.send(head(user, name, body.len())).send(body);
        let response = client.read_response();
        if response.status != 200 {
            return Err(refused(response.status));
        }
        Ok(unframed(&response.body))
    }

    fn leave_as(
        &self,
        server: &Server,
        user: User<'_>,
        (_, name): (u32, &str),
        body: &[u8],
        is_there: &dyn Fn(),
    ) {
        let mut client: Client = server.connect();
        client.send(head(user, name, body.len())).send(body);
        is_there();
    }
}

fn head(user: User<'_>, name: &str, length: usize) -> String {
    let path = path(user, name);
    let field = user.map(|user| format!("Authorization: {}\r\n", basic(user))).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\n{field}Accept: application/x-sekisho-records\r\nContent-Length: {length}\r\n\r\n"
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

    async fn send(
        server: &Server,
        user: User<'_>,
        name: &str,
        body: &[u8],
    ) -> h2::client::ResponseFuture {
        let stream = tokio::net::TcpStream::connect(server.address()).await.expect("it listens");
        let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move {
            // The server ends it, or the test.
            let _ = connection.await;
        });
        let request = http::Request::builder()
            .method("POST")
            .uri(format!("http://x{}", path(user, name)))
            .header("accept", "application/x-sekisho-records");
        let request = match user {
            Some(user) => request.header("authorization", basic(user)),
            None => request,
        };
        let request = request.body(()).expect("a request");
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

    fn call_as(
        &self,
        server: &Server,
        user: User<'_>,
        (_, name): (u32, &str),
        body: &[u8],
    ) -> Result<Outcome, u32> {
        Self::run(async {
            let response = Self::send(server, user, name, body).await.await.expect("a head");
            if response.status() != 200 {
                return Err(refused(response.status().as_u16()));
            }
            let mut stream = response.into_body();
            let mut all = Vec::new();
            while let Some(data) = stream.data().await {
                let data = data.expect("data");
                stream.flow_control().release_capacity(data.len()).expect("room");
                all.extend_from_slice(&data);
            }
            Ok(unframed(&all))
        })
    }

    fn leave_as(
        &self,
        server: &Server,
        user: User<'_>,
        (_, name): (u32, &str),
        body: &[u8],
        is_there: &dyn Fn(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let response = Self::send(server, user, name, body).await;
            // The connection's own task has to send it.
            let _ = tokio::time::timeout(Duration::from_millis(50), response).await;
        });
        is_there();
    }
}

/// A native session over TCP.
pub(crate) struct NativeTcp;
/// The same with TLS.
pub(crate) struct NativeTls;
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

            fn call_as(
                &self,
                server: &Server,
                user: User<'_>,
                (number, _): (u32, &str),
                body: &[u8],
            ) -> Result<Outcome, u32> {
                let client = blocking::Client::connect($connect(server), options(user));
                let refused = |error: CallError| error.code().expect("a code").number();
                Ok(call_native(client.map_err(refused)?, number, body))
            }

            fn leave_as(
                &self,
                server: &Server,
                user: User<'_>,
                (number, _): (u32, &str),
                body: &[u8],
                is_there: &dyn Fn(),
            ) {
                let client = blocking::Client::connect($connect(server), options(user));
                leave_native(client.expect("admitted"), number, body, is_there);
            }
        }
    };
}

fn options(user: User<'_>) -> Options {
    let (user, credential) = user.unwrap_or_default();
    Options { user: user.into(), credential: credential.into(), ..Options::from("suite") }
}

fn tcp(server: &Server, index: usize) -> TcpStream {
    let stream = TcpStream::connect(server.address_of(index)).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    stream
}

/// Certificates are `authority.rs`'s.
fn tls(server: &Server) -> Tls {
    let authority = server.tree().path("ours.pem");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("they fit")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("a name");
    let keys = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    Tls(rustls::StreamOwned::new(keys, tcp(server, 2)))
}

/// TLS as a transport that blocks.
struct Tls(rustls::StreamOwned<rustls::ClientConnection, TcpStream>);

impl blocking::Transport for Tls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.0.flush()?;
        Ok(count)
    }

    fn wait(&mut self, wants_to_write: bool, timeout: Duration) -> io::Result<bool> {
        let state = self.0.conn.process_new_packets().map_err(io::Error::other)?;
        if state.plaintext_bytes_to_read() > 0 {
            return Ok(true);
        }
        self.0.sock.wait(wants_to_write, timeout)
    }
}

native!(NativeTcp, "native tcp", |server: &Server| tcp(server, 1));
native!(NativeTls, "native tls", tls);
native!(NativeUnix, "native unix", |server: &Server| {
    let path = server.tree().path("s");
    let stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    stream
});
native!(NativeIpc, "native shared memory", |server: &Server| {
    let path = server.tree().path("m");
    let stream = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    sekisho_endpoint::ipc::BlockingStream::connect(stream).expect("shared")
});
