//! The client's side of a session: a connected transport, or the datagrams that a listener hands over.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;

use sekisho_handler::descriptors::DescriptorPermit;
use sekisho_http::ProxyHeader;
use sekisho_lifecycle::CloseReason;

use crate::listen::Acceptor;
use crate::scheduler::Scheduler;
use crate::session::Token;
use crate::transport::{ClientTransport, Ready, Secured, Stream, Transport};
use crate::worker::ListenerContext;

/// How many datagrams may wait for a session; more are dropped, as a full socket drops them.
const INBOX_MAX: usize = 64;

/// Datagrams of one client that have come.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: RefCell<VecDeque<Vec<u8>>>,
    /// How many have come, and how many may.
    count: Cell<u64>,
    max: Cell<Option<u64>>,
    /// The session ends: another one has its descriptor.
    is_evicted: Cell<bool>,
}

impl Inbox {
    /// Takes a datagram, unless too many wait.
    pub(crate) fn put(&self, datagram: &[u8]) {
        self.count.update(|count| count + 1);
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < INBOX_MAX {
            waiting.push_back(datagram.to_vec());
        }
    }

    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.waiting.borrow_mut().pop_front()
    }

    pub(super) fn evict(&self) {
        self.is_evicted.set(true);
    }

    /// Whether as many have come as belong together (`proxy_requests`): the next one begins a new session.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_evicted.get() || self.max.get().is_some_and(|max| self.count.get() >= max)
    }
}

/// The sessions of a listener for datagrams, by the addresses of both ends.
pub(crate) type DatagramSessions =
    RefCell<HashMap<(SocketAddr, Option<IpAddr>), (Token, Rc<Inbox>)>>;

/// A client that sends datagrams.
#[derive(Debug)]
pub(crate) struct DatagramClient {
    pub(crate) socket: Rc<Acceptor>,
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) inbox: Rc<Inbox>,
    /// The descriptor of the socket to the server.
    pub(crate) _permit: DescriptorPermit,
}

/// The client's side of a session.
#[derive(Debug)]
pub(crate) enum Client {
    Stream(Stream),
    Datagrams(DatagramClient),
}

impl Client {
    pub(super) fn awaits_proxy_header(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.awaits_proxy_header())
    }

    pub(super) fn read_proxy_header(&mut self) -> Poll<io::Result<ProxyHeader>> {
        match self {
            Self::Stream(stream) => stream.read_proxy_header(),
            Self::Datagrams(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    pub(super) fn secured(&self) -> Secured<'_> {
        match self {
            Self::Stream(stream) => stream.secured(),
            Self::Datagrams(_) => Secured::No,
        }
    }

    /// Reads as far as the room goes; 0 is the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Stream(stream) => stream.read(into),
            Self::Datagrams(_) => Poll::Pending,
        }
    }

    /// Sends what can leave now; a datagram leaves or is lost.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Stream(stream) => stream.send(bytes, false),
            Self::Datagrams(client) => {
                client.socket.send_to(bytes, client.remote, client.local);
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    pub(super) fn is_evicted(&self) -> bool {
        matches!(self, Self::Datagrams(client) if client.inbox.is_evicted.get())
    }

    /// So many datagrams belong to one session.
    pub(super) fn limit_datagrams(&self, max: Option<u64>) {
        if let Self::Datagrams(client) = self {
            client.inbox.max.set(max);
        }
    }

    pub(super) fn note(&mut self, ready: Ready) {
        if let Self::Stream(stream) = self {
            stream.note(ready);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_full())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Stream(stream) => stream.memory_bytes(),
            Self::Datagrams(_) => 0,
        }
    }

    pub(super) fn watch(&mut self, scheduler: &Scheduler, token: Token) -> io::Result<()> {
        match self {
            Self::Stream(stream) => scheduler.watch(stream, token),
            Self::Datagrams(_) => Ok(()),
        }
    }

    /// Tells the client that nothing follows.
    pub(super) fn shut_down_write(&mut self) {
        if let Self::Stream(stream) = self {
            stream.shut_down_write(true);
        }
    }

    /// The session ends: what was cut must not look complete (C5).
    pub(super) fn end(&mut self, reason: CloseReason) {
        let Self::Stream(stream) = self else { return };
        let is_cut = matches!(reason, CloseReason::BrokenOff | CloseReason::Panicked);
        if is_cut || reason.wants_reset() {
            stream.reset_on_close();
        } else {
            stream.end();
        }
    }

    /// The next datagram of the client begins another session.
    pub(super) fn leave(&self, listener_context: &ListenerContext, token: Token) {
        let Self::Datagrams(client) = self else { return };
        let mut sessions = listener_context.datagram_sessions.borrow_mut();
        let key = (client.remote, client.local);
        if sessions.get(&key).is_some_and(|(known, _)| *known == token) {
            sessions.remove(&key);
        }
    }
}
