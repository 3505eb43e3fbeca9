//! A UDP socket of a worker with its QUIC connections: datagrams that come in are handed to the session of their
//! connection, or begin a new one; those of another worker's connections are passed on to it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
    EndpointEvent, IdleTimeout, Incoming, ServerConfig, Transmit, TransportConfig, VarInt,
};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use sekisho_config::ListenAddress;
use sekisho_handler::memory;
use tokio::io::Interest;

use super::acknowledged::CountingConfig;
use super::connection::{Inbox, QuicConnection};
use super::crypto::Crypto;
use super::route::{Forwarded, Route, RoutedIds};
use super::{keys, tokens};
use crate::connection::Connection;
use crate::listen::{Acceptor, pause};
use crate::panic_report::Vital;
use crate::protocol::{Protocol, ProtocolKind};
use crate::session::Token;
use crate::tls::Chooser;
use crate::transport::{QuicStream, Stream};
use crate::worker::{ListenerContext, Worker};

/// Buffers for one call that receives. Each holds a train of datagrams from one sender (GRO).
const RECEIVE_BUFFERS: usize = 8;
const RECEIVE_BYTES: usize = 64 << 10;
/// Unfinished handshakes of a worker from which on clients must prove their address first (Q3).
const UNPROVED_MAX: usize = 256;
/// Unfinished handshakes of a worker, at most.
const HANDSHAKES_MAX: usize = 8192;
/// The shortest time after which a silent connection is given up; a shorter `keepalive_timeout` closes it before.
const IDLE_MIN: Duration = Duration::from_secs(30);
/// Bytes that clients may send on one connection before handlers have read them.
const RECEIVE_WINDOW_BYTES: u32 = 2 << 20;
/// Streams that a client may open for control; HTTP/3 has three of them, and some clients open more for practice.
const CONTROL_STREAMS_MAX: u32 = 16;

/// A socket and its connections.
pub(crate) struct QuicEndpoint {
    endpoint: RefCell<Endpoint>,
    connections: RefCell<HashMap<usize, (Token, Inbox)>>,
    acceptor: Rc<Acceptor>,
    state: UdpSocketState,
    /// Room for datagrams that are being made.
    pub(super) buffer: RefCell<Vec<u8>>,
    /// The configuration of new connections, and the number of the site that it is of.
    config: RefCell<(u64, ServerConfig)>,
    idle_timeout: Cell<Duration>,
    gso: Cell<bool>,
    /// Sessions that wait for room in the socket.
    waiting: RefCell<Vec<Token>>,
    /// Unfinished handshakes.
    handshakes: Cell<usize>,
    route: Rc<Route>,
}

impl std::fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicEndpoint").finish_non_exhaustive()
    }
}

/// A datagram and its addresses.
pub(super) struct Datagram {
    pub(super) remote: SocketAddr,
    pub(super) local: Option<IpAddr>,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: BytesMut,
}

impl QuicEndpoint {
    /// For a socket that was bound.
    pub(super) fn new(
        context: &ListenerContext,
        acceptor: &Rc<Acceptor>,
        route: &Rc<Route>,
    ) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(acceptor.registered()?))?;
        let host_key = host_key(context);
        let mut config = EndpointConfig::new(Arc::new(keys::reset_key(host_key.as_deref())));
        let (slot, process) = (route.slot(), route.process());
        config.cid_generator(move || Box::new(RoutedIds { slot, process }));
        let server = server_config(context);
        let endpoint =
            Endpoint::new(Arc::new(config), Some(Arc::new(server.1.clone())), true, None);
        let made = Self {
            endpoint: RefCell::new(endpoint),
            connections: RefCell::default(),
            acceptor: Rc::clone(acceptor),
            state,
            buffer: RefCell::default(),
            config: RefCell::new(server),
            idle_timeout: Cell::new(IDLE_MIN),
            gso: Cell::new(true),
            waiting: RefCell::default(),
            handshakes: Cell::new(0),
            route: Rc::clone(route),
        };
        made.note_settings(context);
        Ok(made)
    }

    /// Takes the settings of the site that is served now.
    fn refresh(&self, context: &ListenerContext) {
        let serial = context.bound_site().site.serial();
        if self.config.borrow().0 != serial {
            let server = server_config(context);
            let known = Arc::new(server.1.clone());
            self.endpoint.borrow_mut().set_server_config(Some(known));
            *self.config.borrow_mut() = server;
            self.note_settings(context);
        }
    }

    fn note_settings(&self, context: &ListenerContext) {
        let settings = Settings::of(context);
        self.idle_timeout.set(settings.idle);
        self.gso.set(settings.gso);
    }

    /// The time after which a silent connection is given up.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.idle_timeout.get()
    }

    /// How many datagrams the kernel takes in one call.
    pub(super) fn datagrams_max(&self) -> usize {
        if self.gso.get() { self.state.max_gso_segments() } else { 1 }
    }

    /// What a connection says to the table of connections, and what that says to it.
    pub(super) fn handle_event(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        // The listener forgets a connection when its session ends, and not before.
        if event.is_drained() {
            return None;
        }
        self.endpoint.borrow_mut().handle_event(handle, event)
    }

    /// A session has ended.
    pub(super) fn forget(&self, handle: ConnectionHandle) {
        if self.connections.borrow_mut().remove(&handle.0).is_some() {
            self.endpoint.borrow_mut().handle_event(handle, EndpointEvent::drained());
        }
    }

    /// A handshake is over, or given up.
    pub(super) fn end_handshake(&self) {
        self.handshakes.update(|count| count.saturating_sub(1));
    }

    /// Sends datagrams; `false` where the socket takes none now. Other errors lose them, as the network may.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> bool {
        let Ok(socket) = self.acceptor.registered() else { return true };
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size.min(bytes.len())],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let send = || self.state.try_send(UdpSockRef::from(socket), &transmit);
        !matches!(socket.try_io(Interest::WRITABLE, send),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// A session waits until the socket takes datagrams again.
    pub(crate) fn wait(self: &Rc<Self>, worker: &Rc<Worker>, token: Token) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(token);
        if waiting.len() > 1 {
            return;
        }
        let (endpoint, worker) = (Rc::clone(self), Rc::clone(worker));
        tokio::task::spawn_local(async move {
            if let Ok(socket) = endpoint.acceptor.registered() {
                // An error is told again by the next call that sends.
                let _ = socket.writable().await;
            }
            for token in std::mem::take(&mut *endpoint.waiting.borrow_mut()) {
                worker.give_due_turn(token);
            }
            worker.access_log.hand_over();
        });
    }

    /// Whether there are connections.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    /// Takes one datagram. Returns the session that it is for, if that is to have its turn.
    pub(super) fn take(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        context: &Rc<ListenerContext>,
        datagram: Datagram,
        now: Instant,
        is_draining: bool,
    ) -> Option<Token> {
        let datagram = self.route.pass_on(context, datagram)?;
        let Datagram { remote, local, ecn, bytes } = datagram;
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        let event =
            self.endpoint.borrow_mut().handle(now, remote, local, ecn, bytes, &mut buffer)?;
        match event {
            DatagramEvent::ConnectionEvent(handle, event) => {
                let connections = self.connections.borrow();
                let (token, inbox) = connections.get(&handle.0)?;
                inbox.borrow_mut().push_back(event);
                Some(*token)
            }
            DatagramEvent::NewConnection(incoming) => {
                drop(buffer);
                self.begin(worker, context, incoming, now, is_draining);
                None
            }
            DatagramEvent::Response(transmit) => {
                self.send(&transmit, &buffer);
                None
            }
        }
    }

    /// A client that is not known begins a handshake.
    fn begin(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        context: &Rc<ListenerContext>,
        incoming: Incoming,
        now: Instant,
        is_draining: bool,
    ) {
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        let settings = Settings::of(context);
        let handshakes = self.handshakes.get();
        let is_full = worker.sessions.borrow().len() >= worker.sessions_max.get()
            || handshakes >= HANDSHAKES_MAX
            || memory::is_critical();
        if is_draining || is_full {
            if is_full {
                worker.shared.counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
            }
            let refusal = self.endpoint.borrow_mut().refuse(incoming, &mut buffer);
            self.send(&refusal, &buffer);
            return;
        }
        let wants_proof = settings.retry || handshakes >= UNPROVED_MAX;
        if wants_proof && !incoming.remote_address_validated() && incoming.may_retry() {
            let retry = self.endpoint.borrow_mut().retry(incoming, &mut buffer);
            match retry {
                Ok(transmit) => _ = self.send(&transmit, &buffer),
                Err(error) => self.endpoint.borrow_mut().ignore(error.into_incoming()),
            }
            return;
        }
        let (remote, told) = (incoming.remote_address(), incoming.local_ip());
        let local = match context.address {
            ListenAddress::Udp(address) if !address.ip().is_unspecified() => Some(address.ip()),
            _ => told,
        };
        let bound_site = context.bound_site();
        let chooser =
            Chooser { site: Arc::clone(&bound_site.site), listen: bound_site.listen(local) };
        let mut config = self.config.borrow().1.clone();
        config.crypto = Arc::new(Crypto { chooser, remote });
        let accepted =
            self.endpoint.borrow_mut().accept(incoming, now, &mut buffer, Some(Arc::new(config)));
        let (handle, connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.send(&transmit, &buffer);
                }
                return;
            }
        };
        drop(buffer);
        self.handshakes.update(|count| count + 1);
        let inbox = Inbox::default();
        let quic = QuicConnection::new(self, handle, connection, Rc::clone(&inbox), now);
        let quic = Rc::new(RefCell::new(quic));
        let stream = Stream::Quic(Box::new(QuicStream::new(Rc::clone(&quic), worker)));
        let mut connection =
            Connection::new(Rc::clone(worker), Rc::clone(context), stream, Some(remote), local);
        let policies = bound_site.site.first_policy(bound_site.listen(local));
        let accepted = worker.sessions.borrow().slot(connection.link.key).since;
        connection.link.protocol = Protocol::http3(policies, quic, accepted);
        let token = worker.sessions.borrow().token(connection.link.key);
        self.connections.borrow_mut().insert(handle.0, (token, inbox));
        worker.shared.counters.accepted.count(ProtocolKind::Http3);
        worker.begin(connection);
    }
}

/// What the default server of an address says about QUIC.
struct Settings {
    retry: bool,
    gso: bool,
    idle: Duration,
    streams_max: u32,
    stream_bytes: u32,
}

impl Settings {
    fn of(context: &ListenerContext) -> Self {
        let bound_site = context.bound_site();
        let http = &bound_site.site.config().http;
        let listen = &http.listens[bound_site.listen(None)];
        let server = &http.servers[listen.default_server.0 as usize];
        let location = &http.locations[server.root.0 as usize];
        let idle = location.settings.keepalive_timeout.unwrap_or_default().max(IDLE_MIN);
        let http3 = &server.http3;
        Self {
            retry: http3.retry,
            gso: http3.gso,
            idle,
            streams_max: http3.streams_max,
            stream_bytes: http3.stream_buffer_bytes,
        }
    }
}

/// The secret that the default server of an address has for tokens and stateless resets.
fn host_key(context: &ListenerContext) -> Option<Arc<[u8]>> {
    let bound_site = context.bound_site();
    let server = bound_site.site.tls_of(bound_site.listen(None), "")?;
    server.quic.as_ref()?.host_key.clone()
}

/// The configuration of new connections.
fn server_config(context: &ListenerContext) -> (u64, ServerConfig) {
    let bound_site = context.bound_site();
    let settings = Settings::of(context);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(settings.streams_max.into())
        .max_concurrent_uni_streams(CONTROL_STREAMS_MAX.into())
        .stream_receive_window(settings.stream_bytes.into())
        .receive_window(RECEIVE_WINDOW_BYTES.max(settings.stream_bytes).into())
        .datagram_receive_buffer_size(None)
        .enable_segmentation_offload(settings.gso)
        .congestion_controller_factory(Arc::new(CountingConfig::default()))
        .max_idle_timeout(Some(
            IdleTimeout::try_from(settings.idle).unwrap_or(VarInt::from_u32(30_000).into()),
        ));
    let chooser = Chooser { site: Arc::clone(&bound_site.site), listen: bound_site.listen(None) };
    // Only the keys of first packets are taken from this one; each connection has its own.
    let remote = SocketAddr::from(([0, 0, 0, 0], 0));
    let crypto = Arc::new(Crypto { chooser, remote });
    let token_key = keys::token_key(host_key(context).as_deref());
    let mut config = ServerConfig::new(crypto, Arc::new(token_key));
    config.transport_config(Arc::new(transport));
    config.validation_token_config(tokens::config());
    (bound_site.site.serial(), config)
}

/// Takes datagrams at a socket: for as long as it is open, or, where it drains, until its last connection has ended.
pub(crate) async fn receive(
    worker: Rc<Worker>,
    context: Rc<ListenerContext>,
    acceptor: Rc<Acceptor>,
    is_draining: bool,
) {
    let _vital = Vital(Rc::clone(&worker));
    worker.shared.quic_routes.wait_for_release().await;
    let endpoint = loop {
        match worker.quic.endpoint(&worker, &context, &acceptor) {
            Ok(endpoint) => break endpoint,
            Err(error) => pause(&worker, &context, &error.to_string()).await,
        }
    };
    let mut buffers = vec![0; RECEIVE_BUFFERS * RECEIVE_BYTES];
    let mut due = Vec::new();
    while !(is_draining && endpoint.is_empty()) {
        let received = tokio::select! {
            biased;
            received = endpoint.receive(&worker, &context, &mut buffers, &mut due, is_draining) => received,
            () = worker.vacated.notified(), if is_draining => continue,
        };
        for token in due.drain(..) {
            // At once: a train of datagrams is one turn.
            worker.give_due_turn(token);
        }
        worker.access_log.hand_over();
        match received {
            Ok(()) => tokio::task::yield_now().await,
            // What an earlier datagram met on its way is told here, and concerns nobody else.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => pause(&worker, &context, &error.to_string()).await,
        }
    }
    worker.quic.forget(&acceptor);
}

impl QuicEndpoint {
    /// Waits for datagrams and takes those that are there.
    async fn receive(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        context: &Rc<ListenerContext>,
        buffers: &mut [u8],
        due: &mut Vec<Token>,
        is_draining: bool,
    ) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); RECEIVE_BUFFERS];
        let socket = self.acceptor.registered()?;
        let receive = || {
            let mut slices = buffers.chunks_mut(RECEIVE_BYTES).map(IoSliceMut::new);
            let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
                std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            self.state.recv(UdpSockRef::from(socket), &mut slices, &mut metas)
        };
        let count = socket.async_io(Interest::READABLE, receive).await?;
        self.refresh(context);
        let now = worker.clock.now();
        let now = worker.clock.instant(now).into_std();
        for (meta, train) in metas[..count].iter().zip(buffers.chunks(RECEIVE_BYTES)) {
            let train = &train[..meta.len.min(train.len())];
            for bytes in train.chunks(meta.stride.max(1)) {
                let datagram = Datagram {
                    remote: meta.addr,
                    local: meta.dst_ip,
                    ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
                    bytes: BytesMut::from(bytes),
                };
                let token = self.take(worker, context, datagram, now, is_draining);
                if let Some(token) = token.filter(|token| due.last() != Some(token)) {
                    due.push(token);
                }
            }
        }
        due.sort_unstable_by_key(|token| token.bits());
        due.dedup();
        Ok(())
    }

    /// Takes a datagram that came at another worker's socket.
    pub(super) fn take_forwarded(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        context: &Rc<ListenerContext>,
        forwarded: Forwarded,
    ) {
        let now = worker.clock.instant(worker.clock.now()).into_std();
        if let Some(token) = self.take(worker, context, forwarded.into_datagram(), now, true) {
            worker.give_due_turn(token);
            worker.access_log.hand_over();
        }
    }
}
