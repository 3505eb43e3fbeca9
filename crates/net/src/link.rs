//! What an exchange sees of its connection: the protocol engine, input and output, the worker, and where the
//! connection came in. Independent of the transport.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use sekisho_config::ListenAddress;
use sekisho_http::{Head, ProxyHeader};
use sekisho_lifecycle::session::Fact;
use sekisho_lifecycle::{CloseReason, Moment, RequestId};
use sekisho_route::{Census, ConnectionCounts, ConnectionFacts, Request, RequestIdSeed, TlsFacts};

use crate::activity::Activity;
use crate::admission::Admitted;
use crate::buffers::Buffers;
use crate::exchange::{Accepted, Arrival};
use crate::protocol::{Protocol, ProtocolKind};
use crate::session::{Key, ShutdownRequest};
use crate::worker::{ListenerContext, Worker};

/// A connection without its transport and its requests.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) protocol: Protocol,
    /// Borrowed while there is something to do.
    pub(crate) buffers: Option<Box<Buffers>>,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener_context: Rc<ListenerContext>,
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) local: Option<IpAddr>,
    /// `tcp_nodelay` of the location that answered last.
    pub(crate) no_delay: bool,
    /// Its origin, if it is counted or came with a PROXY header; most connections have none.
    pub(crate) origin: Option<Box<Origin>>,
    /// The result of the handshake, if the connection is encrypted.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// It speaks in the clear where it was to be encrypted (S2).
    pub(crate) is_clear_by_mistake: bool,
    /// What it did when its last turn was over.
    pub(crate) activity: Activity,
}

/// Where a connection comes from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Counts the connection out when it is dropped.
    pub(crate) admitted: Option<Admitted>,
    /// The PROXY header that a balancer has sent.
    pub(crate) proxied: Option<Arc<ProxyHeader>>,
}

impl Link {
    /// The engine, and the buffers that it works with.
    pub(crate) fn parts(&mut self) -> (&mut Protocol, &mut Buffers) {
        let buffers = self.buffers.get_or_insert_with(|| self.worker.borrow_buffers());
        (&mut self.protocol, buffers)
    }

    /// Whether more may be put into the output before it leaves.
    pub(crate) fn has_room(&self, is_blocked: bool) -> bool {
        self.buffers.as_ref().is_none_or(|buffers| buffers.has_room(is_blocked))
    }

    /// What decisions and variables want to know of the connection.
    pub(crate) fn facts(&self) -> ConnectionFacts {
        let port = match &self.listener_context.address {
            ListenAddress::Tcp(address) | ListenAddress::Udp(address) => address.port(),
            ListenAddress::Unix(_) => 0,
        };
        let sessions = self.worker.sessions.borrow();
        let slot = sessions.slot(self.key);
        let since = slot.since;
        ConnectionFacts {
            id: self.id,
            remote: slot.remote(),
            local: self.local.map(|ip| SocketAddr::new(ip, port)),
            proxied: self.origin.as_ref().and_then(|origin| origin.proxied.clone()),
            requests: self.protocol.requests(),
            since,
            is_tls: self.tls.is_some(),
            tls: self.tls.clone(),
            is_clear_by_mistake: self.is_clear_by_mistake,
            is_udp: false,
        }
    }

    /// Whether responses may tell the client of HTTP/3: it speaks something else over TLS.
    pub(crate) fn announces_http3(&self) -> bool {
        self.tls.is_some() && self.protocol.kind() != ProtocolKind::Http3
    }

    /// Under which configuration a new request is served.
    pub(crate) fn accept(&self) -> Accepted {
        let request_id = RequestIdSeed(self.worker.next_request_id());
        Accepted { bound_site: self.listener_context.bound_site(), request_id }
    }

    /// A request begins (L2). Where the session was asked to end, this is its last one.
    pub(crate) fn admit(&mut self, now: Moment) {
        self.worker.shared.counters.requests.count(self.protocol.kind());
        let mut sessions = self.worker.sessions.borrow_mut();
        sessions.after(self.key, Fact::RequestReceived);
        let Some(manner) = sessions.shutdown(self.key).manner() else { return };
        drop(sessions);
        self.shut_down_gracefully(now);
        // A session that still takes requests is not closing (L6).
        if !self.protocol.is_multiplexed() || self.protocol.takes_no_request() {
            self.worker.sessions.borrow_mut().after(self.key, Fact::ShutdownAsked(manner));
        }
    }

    /// Takes no further request (O4).
    pub(crate) fn shut_down_gracefully(&mut self, now: Moment) {
        let (protocol, buffers) = self.parts();
        protocol.shut_down_gracefully(&mut buffers.scratch, now);
    }

    /// The response of a request cannot be completed (C5).
    pub(crate) fn break_off(&mut self, id: RequestId, reason: CloseReason, now: Moment) {
        let (protocol, buffers) = self.parts();
        protocol.break_off(id, reason, &mut buffers.scratch, now);
    }

    /// A request that was admitted, if one was, is over (L5, L9).
    pub(crate) fn release(&mut self) {
        let mut sessions = self.worker.sessions.borrow_mut();
        if sessions.slot(self.key).session().running() > 0 {
            sessions.after(self.key, Fact::ResponseSent);
        }
    }

    /// Whether the session is being ended by force.
    pub(crate) fn is_forced(&self) -> bool {
        self.worker.sessions.borrow().shutdown(self.key) == ShutdownRequest::Force
    }
}

impl Census for Link {
    fn connections(&self) -> ConnectionCounts {
        self.worker.shared.counters.activities.counts_with_request(self.activity)
    }
}

/// A request as decisions and variables see it.
pub(crate) fn request_view<'a>(
    head: &'a Head,
    accepted: &Accepted,
    arrival: Arrival,
    facts: &'a ConnectionFacts,
    link: &'a Link,
    now: Moment,
) -> Request<'a> {
    Request {
        head,
        listen: accepted.bound_site.listen(link.local),
        connection: facts,
        wall: link.worker.clock.wall(now),
        request_id: accepted.request_id,
        since: arrival.since,
        now,
        is_pipelined: arrival.is_pipelined,
        census: Some(link),
    }
}
