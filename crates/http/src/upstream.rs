//! The client side of a protocol, as an upstream task sees it: the same methods for HTTP/1, HTTP/2, FastCGI, SCGI
//! and uwsgi. The engines stand beside their protocols; the task around them is written once.
//! Nothing here owns a socket or a clock.
//!
//! An engine is one connection to an upstream. It carries one request at a time; after a clean end it may
//! carry the next one, if [`UpstreamProtocol::reuse`] says so.

mod failure;
mod timers;

use std::ops::Range;

use sekisho_lifecycle::{Engine, Moment};

use crate::fields::Fields;
pub use crate::fields::{is_hop_by_hop, is_nomination, is_trailer, push_end_to_end};
pub use failure::{BodyFault, Failure, HeadFault, Origin, Phase};
pub use timers::{Timeouts, Timers};

use crate::{Status, Version};

/// The methods every upstream protocol has, beside those of [`Engine`].
///
/// The order of one exchange: [`start`](Self::start), [`body`](Self::body) as often as there is some,
/// [`end_body`](Self::end_body); meanwhile `receive` until [`Event::End`], [`Event::Failed`] or
/// [`Event::Upgraded`]. An answer may come before the body has ended: the task then stops sending.
pub trait UpstreamProtocol: Engine<Event = Event, Scratch = Scratch> {
    /// Writes the head of a request to `scratch.out`. On an error nothing was written and the connection is
    /// as it was.
    fn start(
        &mut self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), RequestFault>;

    /// Body bytes of the request, framed into `scratch.out`; says how many were taken. What goes beyond the declared
    /// length is taken and cut. Where not all were taken, the upstream does not accept more for now: the rest is
    /// offered again when [`receive`](Engine::receive) has taken something.
    fn body(&mut self, bytes: &[u8], scratch: &mut Scratch, now: Moment) -> usize;

    /// The body of the request is complete. One that is shorter than was declared is an error, after which
    /// the connection cannot be used: the upstream must not take it for whole.
    fn end_body(&mut self, scratch: &mut Scratch, now: Moment) -> Result<(), RequestFault>;

    /// Whether the task takes no more of the answer for now. While it does not, the upstream is not late
    ///.
    fn hold(&mut self, is_held: bool, now: Moment);

    /// The transport failed: a reset, a broken pipe, a TLS connection that ended without `close_notify`.
    fn lost(&mut self, errno: Option<i32>, now: Moment) -> Option<Event>;

    /// How many bytes of the answer's body the shell may take from the transport itself, past the engine:
    /// none unless a body is awaited and nothing of it waits to be offered.
    fn direct_body(&self) -> u64 {
        0
    }

    /// The shell has taken so many bytes of the body itself, no more than
    /// [`direct_body`](Self::direct_body) said.
    fn body_taken(&mut self, _bytes: u64, _now: Moment) {}

    /// The exchange is given up. Where the protocol can tell the upstream so and go on with the next request over the
    /// same connection, the message is written to `scratch.out`: the connection is usable when that has left.
    fn cancel(&mut self, scratch: &mut Scratch, now: Moment) -> bool {
        let _ = (scratch, now);
        false
    }

    /// Whether an idle connection of this protocol may be sent something that concerns no request.
    fn is_attended_when_idle(&self) -> bool {
        false
    }

    /// Whether a byte of the answer to the present request has come: until then a kept connection may have
    /// been closed before the request reached the upstream.
    fn is_answered(&self) -> bool;

    /// What the exchange is doing.
    fn phase(&self) -> Phase;

    /// Whether the connection may carry another request, or why not.
    fn reuse(&self) -> Result<(), NotReusable>;

    /// Whether the connection may carry another request.
    fn is_reusable(&self) -> bool {
        self.reuse().is_ok()
    }
}

/// What a busy upstream connection borrows.
#[derive(Default, Debug)]
pub struct Scratch {
    /// The head of the answer: informational or final, as the last event said.
    pub head: ResponseHead,
    /// Trailer fields of the answer, once it has ended.
    pub trailers: Fields,
    /// Bytes that are to leave.
    pub out: Vec<u8>,
}

/// A request as the task knows it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The request target; only HTTP sends it, the others have it among their parameters.
    pub target: &'a [u8],
    /// `proxy_http_version`
    pub version: Version,
    /// Header fields for HTTP, parameters (`REQUEST_METHOD`, `HTTP_HOST`, …) for the others.
    pub pairs: &'a Fields,
    /// The body.
    pub body: RequestBody,
    /// Whether the connection is to be kept for another request (`keepalive`, `fastcgi_keep_conn`).
    pub keeps_alive: bool,
}

/// How long a request body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestBody {
    /// There is none.
    None,
    /// So many bytes.
    Known(u64),
    /// Not known before the end.
    Unknown,
}

/// Why a request cannot be sent. It is our own side that erred, or the configuration: nothing has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The connection still carries another request, or can carry none.
    Busy,
    /// The method is not a token.
    Method,
    /// The target is empty or has a byte that is not allowed in it.
    Target,
    /// There is not exactly one valid `Host`.
    Host,
    /// A name is not a token, or a value has a line end or another control byte.
    Pair,
    /// The protocol cannot say that the length of a body is unknown.
    LengthUnknown,
    /// Parameters are longer than the protocol can say.
    TooLarge,
    /// The body is shorter than was declared.
    BodyShort,
}

impl RequestFault {
    /// The fault in words, for the error log.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Busy => "the connection cannot carry another request",
            Self::Method => "method is not a token",
            Self::Target => "request target is empty or has an invalid byte",
            Self::Host => "not exactly one valid Host field",
            Self::Pair => "a field name is not a token or a value has a control byte",
            Self::LengthUnknown => "the protocol needs the length of the request body",
            Self::TooLarge => "the parameters are longer than the protocol allows",
            Self::BodyShort => "the request body is shorter than was declared",
        }
    }
}

/// What the task must act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An informational answer (1xx but 101) lies in `scratch.head`; another head follows.
    Informational,
    /// The head of the answer lies in `scratch.head`.
    Head,
    /// Body bytes: this range of the input that was just offered.
    Body(Span),
    /// What a FastCGI application says for the error log: this range of the input.
    Stderr(Span),
    /// The answer is complete; trailers lie in `scratch.trailers`.
    End,
    /// 101: its head lies in `scratch.head`. From here on both directions are a tunnel, whose bytes come as
    /// [`Event::Body`] and leave by [`UpstreamProtocol::body`].
    Upgraded,
    /// The exchange is over without a whole answer, and the connection with it.
    Failed(Failure),
}

/// A range of input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Span {
    /// As a range.
    pub const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// The head of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: Status,
    /// The version the upstream speaks.
    pub version: Version,
    /// The reason phrase as it came; empty where there was none.
    pub reason: Vec<u8>,
    /// End-to-end fields as they came, without `Content-Length`; `X-Accel-*` are among them.
    pub fields: Fields,
    /// `Content-Length`, also of an answer without a body (HEAD, 304).
    pub content_length: Option<u64>,
    /// Whether body bytes follow.
    pub has_body: bool,
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self {
            status: Status::OK,
            version: Version::Http11,
            reason: Vec::new(),
            fields: Fields::default(),
            content_length: None,
            has_body: false,
        }
    }
}

impl ResponseHead {
    /// Empties it; the storage stays.
    pub fn clear(&mut self) {
        self.status = Status::OK;
        self.version = Version::Http11;
        self.reason.clear();
        self.fields.clear();
        self.content_length = None;
        self.has_body = false;
    }

    /// How long the body is, where that was declared and one follows.
    pub fn body_length(&self) -> Option<u64> {
        self.content_length.filter(|_| self.has_body)
    }
}

/// Why an upstream connection carries no further request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotReusable {
    /// An exchange is still running.
    Busy,
    /// It failed.
    Failed,
    /// We said that it would be the last one.
    WeAsked,
    /// The upstream said so (`Connection: close`, HTTP/1.0).
    PeerAsked,
    /// The end of the answer was the end of the connection.
    CloseDelimited,
    /// The answer came before the request was sent whole.
    RequestUnsent,
    /// The upstream sent bytes that no request asked for.
    Surplus,
    /// An answer that has no body declared one: where the next answer begins is not known.
    DeclaredBody,
    /// It is a tunnel.
    Tunnel,
    /// The upstream has closed it.
    PeerClosed,
    /// The protocol has one request for each connection (SCGI, uwsgi).
    Protocol,
}

impl NotReusable {
    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::WeAsked => "we_asked",
            Self::PeerAsked => "peer_asked",
            Self::CloseDelimited => "close_delimited",
            Self::RequestUnsent => "request_unsent",
            Self::Surplus => "surplus_bytes",
            Self::DeclaredBody => "declared_body",
            Self::Tunnel => "tunnel",
            Self::PeerClosed => "peer_closed",
            Self::Protocol => "one_request_each",
        }
    }
}
