//! One QUIC connection: `quinn_proto`'s state, the datagrams that have come for it and those that are to leave. The
//! session's transport drives it; the HTTP/3 engine reads and writes its streams.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionEvent, ConnectionHandle, Event, Transmit, VarInt};
use rustls::pki_types::CertificateDer;
use sekisho_route::TlsFacts;

use super::acknowledged::Count;
use super::crypto::Handshake;
use super::endpoint::QuicEndpoint;
use crate::session::Token;
use crate::worker::Worker;

/// Datagrams made at once, at most: what the kernel takes in one call is larger, but a lost call loses all of them.
const BATCH: usize = 32;
/// Bytes sent in one turn before other sessions have theirs.
const TURN_BYTES: usize = 512 << 10;
/// Part of the idle time after which a peer that is silent during a request is asked whether it is there.
const PING_PARTS: u32 = 3;

/// Bytes of responses that may wait for acknowledgements: twice the congestion window, within these bounds.
const SEND_WINDOW_MIN: u64 = 64 << 10;
const SEND_WINDOW_MAX: u64 = 8 << 20;
/// `H3_NO_ERROR` (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;

/// What the listener has for a connection.
pub(crate) type Inbox = Rc<RefCell<VecDeque<ConnectionEvent>>>;

/// A connection.
pub(crate) struct QuicConnection {
    pub(crate) connection: quinn_proto::Connection,
    handle: ConnectionHandle,
    endpoint: Rc<QuicEndpoint>,
    inbox: Inbox,
    /// What has happened to streams and the engine does not know.
    events: VecDeque<Event>,
    /// The time of this turn.
    now: Instant,
    /// When something last came.
    heard: Instant,
    /// What the client acknowledges on its present path.
    acknowledged: Arc<Count>,
    path: IpAddr,
    /// Bytes acknowledged on earlier paths, and those that the engine knows of.
    acknowledged_before: u64,
    acknowledged_told: u64,
    /// Datagrams that the socket did not take.
    unsent: Option<Transmit>,
    unsent_bytes: Vec<u8>,
    facts: Option<Arc<TlsFacts>>,
    /// Why the connection has ended: the peer closed it, broke a rule or is gone.
    lost: Option<String>,
    /// More could leave when others have had their turn.
    has_more: bool,
    /// Requests are running.
    is_busy: bool,
    /// The handshake is not over.
    is_handshaking: bool,
}

impl std::fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuicConnection").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl QuicConnection {
    pub(super) fn new(
        endpoint: &Rc<QuicEndpoint>,
        handle: ConnectionHandle,
        connection: quinn_proto::Connection,
        inbox: Inbox,
        now: Instant,
    ) -> Self {
        Self {
            acknowledged: Count::of(&connection),
            path: connection.remote_address().ip(),
            acknowledged_before: 0,
            acknowledged_told: 0,
            connection,
            handle,
            endpoint: Rc::clone(endpoint),
            inbox,
            events: VecDeque::new(),
            now,
            heard: now,
            unsent: None,
            unsent_bytes: Vec::new(),
            facts: None,
            lost: None,
            has_more: false,
            is_busy: false,
            is_handshaking: true,
        }
    }

    /// Takes what has come and lets timers act.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = now;
        let inbox = Rc::clone(&self.inbox);
        while let Some(event) = inbox.borrow_mut().pop_front() {
            self.heard = now;
            self.connection.handle_event(event);
        }
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        // A client that acknowledges little has little in our memory.
        self.connection.set_send_window(self.send_window());
        let path = self.connection.remote_address().ip();
        if path != self.path {
            self.path = path;
            self.acknowledged_before += self.acknowledged.bytes();
            self.acknowledged = Count::of(&self.connection);
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.heard = now;
            self.connection.ping();
        }
        self.collect();
    }

    /// Moves what the state machine has to say to where it is wanted.
    fn collect(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(back) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(back);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::HandshakeDataReady | Event::Connected => {
                    self.note_handshake();
                    if matches!(event, Event::Connected) {
                        self.end_handshake();
                    }
                }
                Event::ConnectionLost { ref reason } => self.lost = Some(reason.to_string()),
                _ => {}
            }
            self.events.push_back(event);
        }
    }

    /// Facts about the handshake exist once it is over, or when early data may be read.
    fn note_handshake(&mut self) {
        let is_early = self.connection.has_0rtt();
        if self.connection.is_handshaking() && !is_early {
            return;
        }
        let data = self.connection.crypto_session().handshake_data();
        if let Some(handshake) = data.and_then(|data| data.downcast::<Handshake>().ok()) {
            self.facts = Some(Arc::new(handshake.facts));
        }
    }

    /// The handshake is over, or given up.
    fn end_handshake(&mut self) {
        if std::mem::take(&mut self.is_handshaking) {
            self.endpoint.end_handshake();
        }
    }

    /// Bytes of responses that may wait for acknowledgements.
    fn send_window(&self) -> u64 {
        let window = self.connection.congestion_state().window();
        (2 * window).clamp(SEND_WINDOW_MIN, SEND_WINDOW_MAX)
    }

    /// Where the engine does not know it: how many bytes the client has acknowledged, how many may wait for that at
    /// most, and whether none do.
    pub(crate) fn take_acknowledged(&mut self) -> Option<(u64, u64, bool)> {
        let bytes = self.acknowledged_before + self.acknowledged.bytes();
        if std::mem::replace(&mut self.acknowledged_told, bytes) == bytes {
            return None;
        }
        // Headers of packets count as well.
        let waiting_max = self.send_window() / 4 * 5;
        Some((bytes, waiting_max, self.acknowledged.is_all()))
    }

    /// Whether the engine does not know all that the client has acknowledged.
    pub(crate) fn has_acknowledged(&self) -> bool {
        self.acknowledged_before + self.acknowledged.bytes() != self.acknowledged_told
    }

    /// What the handshake came to.
    pub(crate) const fn facts(&self) -> Option<&Arc<TlsFacts>> {
        self.facts.as_ref()
    }

    /// The client's certificates.
    pub(crate) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let chain = self.connection.crypto_session().peer_identity()?;
        chain.downcast::<Vec<CertificateDer<'static>>>().ok().map(|chain| *chain)
    }

    /// Why it ended, if it has.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Whether the socket did not take what was to be sent.
    pub(crate) const fn is_full(&self) -> bool {
        self.unsent.is_some()
    }

    /// Bytes that came and that left.
    pub(crate) fn moved(&self) -> (u64, u64) {
        let stats = self.connection.stats();
        (stats.udp_rx.bytes, stats.udp_tx.bytes)
    }

    /// The client's present address.
    pub(crate) fn remote(&self) -> std::net::SocketAddr {
        self.connection.remote_address()
    }

    /// The session waits until the socket takes datagrams again.
    pub(crate) fn wait(&mut self, worker: &Rc<Worker>, token: Token) {
        self.endpoint.wait(worker, token);
    }

    /// Whether requests are running: then a silent peer is asked whether it is there.
    pub(crate) const fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    fn ping_at(&self) -> Option<Instant> {
        let is_up = !self.connection.is_handshaking() && !self.connection.is_closed();
        (self.is_busy && is_up).then(|| self.heard + self.endpoint.idle_timeout() / PING_PARTS)
    }

    /// When a timer is due.
    pub(crate) fn next_timer(&mut self) -> Option<Instant> {
        if self.has_more {
            return Some(self.now);
        }
        let own = self.ping_at();
        self.connection.poll_timeout().into_iter().chain(own).min()
    }

    /// Sends all that may leave now. `Pending` where the socket is full.
    pub(crate) fn flush(&mut self) -> Poll<io::Result<()>> {
        self.has_more = false;
        if let Some(transmit) = self.unsent.take()
            && !self.send(&transmit, None)
        {
            self.unsent = Some(transmit);
            return Poll::Pending;
        }
        let mut sent = 0;
        let endpoint = Rc::clone(&self.endpoint);
        let mut buffer = endpoint.buffer.borrow_mut();
        loop {
            buffer.clear();
            let most = endpoint.datagrams_max().min(BATCH);
            let Some(transmit) = self.connection.poll_transmit(self.now, most, &mut buffer) else {
                break;
            };
            sent += transmit.size;
            if !self.send(&transmit, Some(&buffer)) {
                self.unsent_bytes.clear();
                self.unsent_bytes.extend_from_slice(&buffer[..transmit.size]);
                self.unsent = Some(transmit);
                return Poll::Pending;
            }
            if sent >= TURN_BYTES {
                self.has_more = true;
                break;
            }
        }
        drop(buffer);
        self.collect();
        Poll::Ready(Ok(()))
    }

    /// Hands datagrams to the socket; `false` where it takes none now.
    fn send(&self, transmit: &Transmit, bytes: Option<&[u8]>) -> bool {
        self.endpoint.send(transmit, bytes.unwrap_or(&self.unsent_bytes))
    }

    /// What has happened next, for the engine.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the engine does not know all that has happened.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What it holds in memory, as far as that can be known.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.unsent_bytes.capacity()
    }

    /// Closes the connection, with this code of the application.
    pub(crate) fn close(&mut self, code: impl Into<VarInt>, reason: &'static str) {
        self.connection.close(self.now, code.into(), Bytes::from_static(reason.as_bytes()));
        self.collect();
    }

    /// The session is over: the peer is told, and the listener forgets the connection. Datagrams that come later get a
    /// stateless reset.
    pub(crate) fn end(&mut self) {
        if !self.connection.is_closed() {
            self.close(NO_ERROR, "");
        }
        // A full socket may lose it; a stateless reset follows then.
        let _ = self.flush();
        self.end_handshake();
        self.endpoint.forget(self.handle);
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.end();
    }
}
