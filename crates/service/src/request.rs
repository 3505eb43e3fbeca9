//! A request as a service sees it: what is asked, by which caller, with which body.

use std::net::SocketAddr;
use std::rc::Rc;

use sekisho_http::Fields;
use sekisho_lifecycle::{Moment, RequestId};

use crate::body::BodyStream;
use crate::identity::{ControlAccess, Identity};

/// The peer, as far as the transport knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A process on this machine, as the kernel vouches for it.
    Local {
        /// Its user.
        uid: u32,
        /// Its number, where it is known.
        pid: Option<u32>,
    },
    /// This process itself.
    Loopback,
    /// Not known.
    Unknown,
}

/// The caller of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The number of its session or connection, unique in the process.
    pub session: u64,
    /// The peer.
    pub peer: Peer,
    /// Who it is, as far as it has proved it.
    pub identity: Identity,
    /// What it may do with the service `control`.
    pub control: ControlAccess,
}

impl Caller {
    /// A caller that has proved nothing beyond what its transport knows, and may not control.
    pub const fn unproved(session: u64, peer: Peer) -> Self {
        let identity = Identity::of_peer(&peer);
        Self { session, peer, identity, control: ControlAccess::None }
    }
}

/// The head of a request that came by HTTP.
#[derive(Clone, Debug, Default)]
pub struct HttpHead {
    /// The method.
    pub method: Vec<u8>,
    /// The target as it was sent: a path, perhaps with a query.
    pub target: Vec<u8>,
    /// The fields.
    pub fields: Fields,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    id: RequestId,
    service: u32,
    caller: Rc<Caller>,
    http: Option<Box<HttpHead>>,
    deadline: Option<Moment>,
    body: Vec<u8>,
    stream: Option<BodyStream>,
}

impl Request {
    /// A request for this service, whose body is all there.
    pub fn new(caller: &Rc<Caller>, id: RequestId, service: u32, body: Vec<u8>) -> Self {
        Self {
            id,
            service,
            caller: Rc::clone(caller),
            http: None,
            deadline: None,
            body,
            stream: None,
        }
    }

    /// It came by HTTP, with this head.
    #[must_use]
    pub fn with_http(mut self, head: HttpHead) -> Self {
        self.http = Some(Box::new(head));
        self
    }

    /// The caller waits until then, and no longer.
    #[must_use]
    pub fn with_deadline(mut self, at: Option<Moment>) -> Self {
        self.deadline = at;
        self
    }

    /// Its body comes while the service works.
    #[must_use]
    pub fn with_stream(mut self, stream: BodyStream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The bytes that the client sent; the service defines their meaning. None, where the service takes a stream.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The same, to keep.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// The body piece by piece, for services that take it so ([`crate::Service::takes_stream`]). Where it is all
    /// there, it is one piece.
    pub fn take_stream(&mut self) -> BodyStream {
        let whole = std::mem::take(&mut self.body);
        self.stream.take().unwrap_or_else(|| BodyStream::whole(whole))
    }

    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same, to keep.
    pub const fn shared_caller(&self) -> &Rc<Caller> {
        &self.caller
    }

    /// The session it came in.
    pub fn session(&self) -> u64 {
        self.caller.session
    }

    /// Its number in that session.
    pub const fn id(&self) -> RequestId {
        self.id
    }

    /// The number by which the service was called.
    pub const fn service(&self) -> u32 {
        self.service
    }

    /// Method, target and fields, where it came by HTTP.
    pub fn http(&self) -> Option<&HttpHead> {
        self.http.as_deref()
    }

    /// Until when the caller waits, where it said so.
    pub const fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}
