//! A QUIC client for tests, over `quinn_proto` and a plain UDP socket: what it sends is in the hands of the test, and
//! every wait is bounded.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, StreamEvent, StreamId, Transmit, VarInt,
};
use rustls::crypto::aws_lc_rs;
use sekisho_handler::upstream::AnyCertificate;
use sekisho_http3::frame;
use sekisho_http3::qpack::decode::{Decoder, Section};

use sekisho_testkit::now;

use crate::common::LONG;
use crate::path::Path;

/// What has come of a response.
#[derive(Default, Debug)]
pub(crate) struct Response {
    raw: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The stream has ended by FIN.
    pub(crate) is_complete: bool,
    /// The stream was reset, with this code.
    pub(crate) reset: Option<u64>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// A connection.
pub(crate) struct Client {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) connection: Connection,
    responses: HashMap<StreamId, Response>,
    /// Frames of the server's control stream: type and payload.
    pub(crate) control: Vec<(u64, Vec<u8>)>,
    control_raw: HashMap<StreamId, Vec<u8>>,
    pub(crate) is_connected: bool,
    /// How the connection ended.
    pub(crate) lost: Option<ConnectionError>,
    /// Retry packets that came.
    pub(crate) retries: usize,
    /// Responses are left in the streams: their windows fill.
    pub(crate) reads_nothing: bool,
    /// What happens to datagrams on their way out and in, if anything does.
    pub(crate) path: Option<(Path, Path)>,
    authority: String,
}

/// What a client says about TLS.
pub(crate) fn tls_config() -> rustls::ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate::new()))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls
}

/// A client with these settings. Connections that share it share sessions and tokens.
pub(crate) fn client_config(tls: rustls::ClientConfig) -> ClientConfig {
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a suite for QUIC")))
}

impl Client {
    /// Begins a handshake for this name.
    pub(crate) fn begin(to: SocketAddr, name: &str) -> Self {
        Self::begin_with(client_config(tls_config()), to, name)
    }

    /// The same with settings of the test's own.
    pub(crate) fn begin_with(config: ClientConfig, to: SocketAddr, name: &str) -> Self {
        Self::begin_at([127, 0, 0, 1], config, to, name)
    }

    /// The same from another address of this machine.
    pub(crate) fn begin_at(
        from: [u8; 4],
        config: ClientConfig,
        to: SocketAddr,
        name: &str,
    ) -> Self {
        let socket = UdpSocket::bind((IpAddr::from(from), 0)).expect("a socket");
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let (handle, connection) = endpoint.connect(now(), config, to, name).expect("a connection");
        Self {
            socket,
            endpoint,
            handle,
            connection,
            responses: HashMap::new(),
            control: Vec::new(),
            control_raw: HashMap::new(),
            is_connected: false,
            lost: None,
            retries: 0,
            reads_nothing: false,
            path: None,
            authority: format!("{name}:{}", to.port()),
        }
    }

    /// A connection whose handshake is over and whose control stream is open.
    #[track_caller]
    pub(crate) fn connect(to: SocketAddr, name: &str) -> Self {
        Self::connect_with(client_config(tls_config()), to, name)
    }

    /// The same with settings of the test's own.
    #[track_caller]
    pub(crate) fn connect_with(config: ClientConfig, to: SocketAddr, name: &str) -> Self {
        let mut client = Self::begin_with(config, to, name);
        client.until("the handshake", |client| client.is_connected);
        client.open_control(&[]);
        client
    }

    /// Opens the control stream, with SETTINGS and these bytes behind them.
    pub(crate) fn open_control(&mut self, behind: &[u8]) -> StreamId {
        let mut bytes = vec![0];
        frame::write_settings(&mut bytes, &[]);
        bytes.extend_from_slice(behind);
        self.open_uni(&bytes)
    }

    /// Writes all of it, waiting for windows.
    #[track_caller]
    pub(crate) fn write(&mut self, id: StreamId, mut bytes: &[u8]) {
        let begun = now();
        while !bytes.is_empty() {
            match self.connection.send_stream(id).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(quinn_proto::WriteError::Blocked) => self.turn(Duration::from_millis(20)),
                // A server that has responded already may want no more (RFC 9114 §4.1).
                Err(quinn_proto::WriteError::Stopped(_)) => break,
                Err(error) => panic!("cannot write: {error}"),
            }
            assert!(begun.elapsed() < LONG, "the server does not read");
        }
        self.turn(Duration::ZERO);
    }

    /// Ends our side of a stream.
    pub(crate) fn finish(&mut self, id: StreamId) {
        // A server that has responded already may want no more (RFC 9114 §4.1).
        let _ = self.connection.send_stream(id).finish();
        self.turn(Duration::ZERO);
    }

    /// Sends the head of a request, whose body may follow.
    pub(crate) fn head(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> StreamId {
        let authority = self.authority.clone();
        let pseudo = [
            (":method", method),
            (":scheme", "https"),
            (":authority", &authority),
            (":path", path),
        ];
        self.open_request(&headers(&[&pseudo, fields].concat()))
    }

    /// Opens a request stream with these bytes.
    pub(crate) fn open_request(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.connection.streams().open(Dir::Bi).expect("a stream");
        // Before anything is sent: the response may be here when the last byte has left.
        self.responses.insert(id, Response::default());
        self.write(id, bytes);
        id
    }

    /// Opens a unidirectional stream with these bytes.
    pub(crate) fn open_uni(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.connection.streams().open(Dir::Uni).expect("a stream");
        self.write(id, bytes);
        id
    }

    /// Sends a request.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> StreamId {
        let id = self.head(method, path, fields);
        if !body.is_empty() {
            self.data(id, body);
        }
        self.finish(id);
        id
    }

    /// Sends a piece of a body.
    pub(crate) fn data(&mut self, id: StreamId, body: &[u8]) {
        self.write(id, &framed(0, body));
    }

    /// A GET and its complete response.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Response {
        let id = self.request("GET", path, &[], &[]);
        self.response(id)
    }

    /// Waits for the end of a response, complete or not.
    #[track_caller]
    pub(crate) fn response(&mut self, id: StreamId) -> Response {
        self.until("a response", |client| {
            let response = &client.responses[&id];
            response.is_complete || response.reset.is_some() || client.lost.is_some()
        });
        self.responses.remove(&id).unwrap_or_default()
    }

    /// What has come so far.
    pub(crate) fn so_far(&self, id: StreamId) -> &Response {
        &self.responses[&id]
    }

    /// Waits until something is so, within [`LONG`].
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = now();
        loop {
            self.turn(Duration::from_millis(5));
            if is_so(self) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{what} did not come, lost: {:?}", self.lost);
        }
    }

    /// Goes to another port, as behind a NAT that forgets (RFC 9000 §9), and says something from there.
    pub(crate) fn rebind(&mut self) {
        self.socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        self.connection.ping();
    }

    /// Sends what is to be sent, and takes what comes within this time.
    pub(crate) fn turn(&mut self, wait: Duration) {
        self.flush();
        let mut buffer = vec![0; 65_536];
        let mut wait = wait;
        loop {
            if wait.is_zero() {
                self.socket.set_nonblocking(true).expect("set");
            } else {
                self.socket.set_nonblocking(false).expect("set");
                self.socket.set_read_timeout(Some(wait)).expect("set");
            }
            let Ok((count, from)) = self.socket.recv_from(&mut buffer) else { break };
            wait = Duration::ZERO;
            // RFC 9000 §17.2.5
            self.retries += usize::from(buffer[0] & 0xf0 == 0xf0);
            match &mut self.path {
                None => self.take(from, &buffer[..count]),
                Some((_, inwards)) => {
                    for datagram in inwards.carry(&buffer[..count]) {
                        self.take(from, &datagram);
                    }
                }
            }
        }
        if self.connection.poll_timeout().is_some_and(|at| at <= now()) {
            self.connection.handle_timeout(now());
        }
        self.collect();
        self.flush();
    }

    /// Takes a datagram.
    fn take(&mut self, from: SocketAddr, datagram: &[u8]) {
        let mut out = Vec::new();
        match self.endpoint.handle(now(), from, None, None, BytesMut::from(datagram), &mut out) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection.handle_event(event),
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit, &out),
            Some(DatagramEvent::NewConnection(_)) | None => {}
        }
        self.collect();
    }

    fn flush(&mut self) {
        self.send_only();
    }

    fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let datagram = &bytes[..transmit.size];
        let arrived = match &mut self.path {
            None => vec![datagram.to_vec()],
            Some((outwards, _)) => outwards.carry(datagram),
        };
        for datagram in arrived {
            // What cannot be sent is lost, as on the way.
            let _ = self.socket.send_to(&datagram, transmit.destination);
        }
    }

    fn collect(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(back) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(back);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                // A stateless reset may come behind the close, and says nothing more.
                Event::ConnectionLost { reason } => drop(self.lost.get_or_insert(reason)),
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = self.connection.streams().accept(dir) {
                        self.read(id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(id),
                _ => {}
            }
        }
    }

    /// Takes what a stream has.
    fn read(&mut self, id: StreamId) {
        if self.reads_nothing && self.responses.contains_key(&id) {
            return;
        }
        let mut recv = self.connection.recv_stream(id);
        let Ok(mut chunks) = recv.read(true) else { return };
        let mut bytes = Vec::new();
        let (mut is_complete, mut reset) = (false, None);
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => break is_complete = true,
                Err(quinn_proto::ReadError::Reset(code)) => break reset = Some(code.into_inner()),
                Err(quinn_proto::ReadError::Blocked) => break,
            }
        }
        let _ = chunks.finalize();
        if let Some(response) = self.responses.get_mut(&id) {
            response.raw.extend_from_slice(&bytes);
            response.is_complete |= is_complete;
            response.reset = response.reset.or(reset);
            response.parse();
        } else {
            let raw = self.control_raw.entry(id).or_default();
            raw.extend_from_slice(&bytes);
            // Type 0 is the control stream.
            if raw.first() == Some(&0) {
                self.control = frames(&raw[1..]);
            }
        }
    }

    /// Reads a response that was left in its stream.
    pub(crate) fn read_now(&mut self, id: StreamId) {
        self.reads_nothing = false;
        self.read(id);
    }

    /// Takes the datagrams that have come, and does nothing with them: their sizes.
    pub(crate) fn received_sizes(&self) -> Vec<(u8, usize)> {
        self.socket.set_nonblocking(true).expect("set");
        let mut buffer = vec![0; 65_536];
        std::iter::from_fn(|| self.socket.recv(&mut buffer).ok().map(|count| (buffer[0], count)))
            .collect()
    }

    /// Sends what is to be sent, and takes nothing. Returns how many bytes that were.
    pub(crate) fn send_only(&mut self) -> usize {
        let mut sent = 0;
        let mut out = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now(), 1, &mut out) {
            self.send(&transmit, &out);
            sent += transmit.size;
            out.clear();
        }
        sent
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.connection.close(now(), VarInt::from_u32(0x100), Bytes::new());
        self.flush();
    }
}

impl Response {
    /// Reads the frames that are complete, and the DATA frame that is not.
    fn parse(&mut self) {
        self.body.clear();
        let raw = std::mem::take(&mut self.raw);
        let mut input = &raw[..];
        loop {
            let mut rest = input;
            let (Some(kind), Some(length)) =
                (frame::read_varint(&mut rest), frame::read_varint(&mut rest))
            else {
                break;
            };
            let have = rest.len().min(length as usize);
            let payload = &rest[..have];
            match kind {
                0 => self.body.extend_from_slice(payload),
                1 if have == length as usize => self.head(payload),
                _ => {}
            }
            if have < length as usize {
                break;
            }
            input = &rest[have..];
        }
        self.raw = raw;
    }

    fn head(&mut self, block: &[u8]) {
        let decoder = Decoder::new(0);
        let mut text = Vec::new();
        let mut fields = Vec::new();
        let section = decoder.decode(block, &mut text, |field| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push((text(field.name), text(field.value)));
        });
        assert!(matches!(section, Ok(Section::Decoded(_))), "a head that cannot be read");
        if let Some((_, status)) = fields.iter().find(|(name, _)| name == ":status") {
            self.status = status.parse().expect("a number");
        }
        self.fields = fields;
    }
}

/// The complete frames of a stream.
fn frames(mut input: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut rest = input;
        let (Some(kind), Some(length)) =
            (frame::read_varint(&mut rest), frame::read_varint(&mut rest))
        else {
            return all;
        };
        let Some(payload) = rest.get(..length as usize) else { return all };
        all.push((kind, payload.to_vec()));
        input = &rest[length as usize..];
    }
}

/// A HEADERS frame without any table.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0, 0];
    for (name, value) in fields {
        literal(&mut block, name, value);
    }
    framed(1, &block)
}

/// A frame.
pub(crate) fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_header(&mut bytes, kind, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// A field without any table (RFC 9204 §4.5.6).
fn literal(out: &mut Vec<u8>, name: &str, value: &str) {
    prefixed(out, 0x20, 3, name.len());
    out.extend_from_slice(name.as_bytes());
    prefixed(out, 0, 7, value.len());
    out.extend_from_slice(value.as_bytes());
}

/// An integer with a prefix of so many bits (RFC 7541 §5.1).
fn prefixed(out: &mut Vec<u8>, first: u8, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        out.push(first | number as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = number - most;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
