//! The protocol of a connection: one engine behind verbs that are the same for all of them, by request id. The
//! only module of this crate that names a concrete protocol.

mod framing;
mod http2;
mod http3;
mod internal;
pub(crate) mod parts;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sekisho_config::{Server, Settings};
use sekisho_http::{Fields, Policy, Refusal, Response, Scratch, Sends, Status};
use sekisho_http1::{Event as Http1Event, Http1};
use sekisho_lifecycle::stay::RequestId;
use sekisho_lifecycle::{CloseReason, Deadline, Engine, Moment, Stage, Step};
use sekisho_service::Caller;

use crate::quic::QuicConnection;

use std::cell::RefCell;
use std::rc::Rc;

use http2::Http2Connection;
pub(crate) use http2::PREFACE;
use http3::Http3Connection;
use internal::Internal;
pub(crate) use internal::{AskedRequest, InternalRequest};

/// What the driver must act on. Every event belongs to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A head is complete and lies in the scratch.
    Request(RequestId),
    /// Body bytes: this range of the input that was just offered.
    Body(RequestId, Range<usize>),
    /// Body bytes that the engine had stored, or that came by a stream of their own.
    Stored(RequestId, Bytes),
    /// The body that was taken is complete.
    BodyEnd(RequestId),
    /// The request is refused: to be answered with this status at once. The scratch holds as much of its head
    /// as could be parsed.
    Refused(RequestId, Refusal),
    /// The client is lost, or its request will never be complete.
    ClientLost(RequestId),
    /// The peer broke a rule and the engine has dealt with it: for the log.
    Violation(&'static str),
}

/// What the configuration says about the connections of a server block or location, for each protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policies {
    pub(crate) common: Arc<Policy>,
    http2: Arc<sekisho_http2::Policy>,
    http3: Arc<sekisho_http3::Policy>,
}

impl Policies {
    /// Those of a location.
    pub(crate) fn new(server: &Server, settings: &Settings) -> Self {
        let common = Policy {
            header_timeout: server.client_header_timeout,
            body_timeout: settings.client_body_timeout,
            body_min_rate: settings.client_body_min_rate,
            keepalive_timeout: settings.keepalive_timeout,
            keepalive_header_secs: settings.keepalive_header.map(|time| time.as_secs()),
            keepalive_time: settings.keepalive_time,
            sends_chunks: settings.chunked_transfer_encoding,
            send_timeout: settings.send_timeout,
            lingering_timeout: settings.lingering_timeout,
            lingering_time: settings.lingering_time,
            keepalive_requests: settings.keepalive_requests,
            line_bytes_max: server.head_limits.line_bytes_max,
            field_bytes_max: server.head_limits.field_bytes_max,
            head_bytes_max: server.head_limits.head_bytes_max,
            fields_max: server.head_limits.fields_max,
            body_discard_max: settings.client_body_discard_max,
            half_close: settings.half_close,
        };
        let http2 = http2::policy(&common, server, settings);
        let http3 = http3::policy(&common, server);
        Self { common: Arc::new(common), http2: Arc::new(http2), http3: Arc::new(http3) }
    }
}

/// The protocols there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ProtocolKind {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
    /// A connection that is passed on as it is.
    Tcp,
    /// Datagrams that are passed on as they are.
    Udp,
    /// One request of a native session, from within the process.
    Internal,
}

impl ProtocolKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Http1, Self::Http2, Self::Http3, Self::Tcp, Self::Udp, Self::Internal];

    /// What it is called in logs, metrics and the live view.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Internal => "native",
        }
    }
}

/// A connection's engine.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.0 and 1.1: one request in work at a time.
    Http1(Http1),
    /// HTTP/2: many. Behind a pointer, so that an idle HTTP/1 connection does not pay for its size.
    Http2(Box<Http2Connection>),
    /// HTTP/3: many, each in a stream of its own.
    Http3(Box<Http3Connection>),
    /// One request from within the process.
    Internal(Box<Internal>),
}

impl Protocol {
    /// HTTP/1: what a connection is taken for whose first bytes have not come.
    pub(crate) fn http1(policies: &Policies, now: Moment) -> Self {
        Self::Http1(Http1::new(Arc::clone(&policies.common), now))
    }

    /// HTTP/2, for a connection that was accepted then.
    pub(crate) fn http2(policies: &Policies, accepted: Moment) -> Self {
        Self::Http2(Box::new(Http2Connection::new(&policies.http2, accepted)))
    }

    /// HTTP/3 over a QUIC connection that began then.
    pub(crate) fn http3(
        policies: &Policies,
        quic: Rc<RefCell<QuicConnection>>,
        accepted: Moment,
    ) -> Self {
        Self::Http3(Box::new(Http3Connection::new(&policies.http3, quic, accepted)))
    }

    /// Who makes the requests, where that is known beforehand: they come from within the process.
    pub(crate) fn caller(&self) -> Option<Rc<Caller>> {
        match self {
            Self::Http1(_) | Self::Http2(_) | Self::Http3(_) => None,
            Self::Internal(engine) => engine.caller(),
        }
    }

    /// Whether what is answered is not wanted any more: the caller of a request from within has gone.
    pub(crate) fn has_lost_caller(&self) -> bool {
        match self {
            Self::Http1(_) | Self::Http2(_) | Self::Http3(_) => false,
            Self::Internal(engine) => engine.has_lost_caller(),
        }
    }

    /// A request from within the process.
    pub(crate) fn internal(policies: &Policies, request: &Rc<RefCell<InternalRequest>>) -> Self {
        let (request, policy) = (Rc::clone(request), Arc::clone(&policies.common));
        Self::Internal(Box::new(Internal::new(request, policy)))
    }

    /// Which one it is.
    pub(crate) const fn kind(&self) -> ProtocolKind {
        match self {
            Self::Http1(_) => ProtocolKind::Http1,
            Self::Http2(_) => ProtocolKind::Http2,
            Self::Http3(_) => ProtocolKind::Http3,
            Self::Internal(_) => ProtocolKind::Internal,
        }
    }

    /// Whether several requests may be in work at a time.
    pub(crate) const fn is_multiplexed(&self) -> bool {
        match self {
            Self::Http1(_) | Self::Internal(_) => false,
            Self::Http2(_) | Self::Http3(_) => true,
        }
    }

    // The transport's side.

    pub(crate) fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Step<Event> {
        match self {
            Self::Http1(engine) => {
                let Step { taken, event } = engine.receive(input, scratch, now);
                Step { taken, event: event.map(|event| identified(engine, event)) }
            }
            Self::Http2(connection) => connection.receive(input, scratch, now),
            Self::Http3(connection) => connection.receive(scratch, now),
            Self::Internal(engine) => engine.receive(scratch),
        }
    }

    pub(crate) fn input_ended(&mut self, now: Moment) -> Option<Event> {
        match self {
            Self::Http1(engine) => engine.input_ended(now).map(|event| identified(engine, event)),
            Self::Http2(connection) => connection.input_ended(now),
            Self::Http3(_) | Self::Internal(_) => None,
        }
    }

    /// The transport took so many bytes of output; `pending` says whether more wait to leave.
    pub(crate) fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        match self {
            Self::Http1(engine) => engine.transmitted(moved, pending, now),
            Self::Http2(connection) => connection.engine.transmitted(moved, pending, now),
            // What has left is known stream by stream.
            Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    /// Whether something is to be done that needs buffers, though no bytes have come: events to be reported,
    /// frames to be written.
    pub(crate) fn has_work(&self) -> bool {
        match self {
            Self::Http1(_) => false,
            Self::Http2(connection) => connection.has_work(),
            Self::Http3(connection) => connection.has_work(),
            Self::Internal(engine) => engine.has_work(),
        }
    }

    /// Whether output may have become possible though nothing is to be reported: a stream's window is open again. Asked
    /// once for each time.
    pub(crate) fn may_send_more(&mut self) -> bool {
        match self {
            Self::Http3(connection) => connection.take_told(),
            // Their windows open by bytes that are taken.
            Self::Http1(_) | Self::Http2(_) | Self::Internal(_) => false,
        }
    }

    /// The client has acknowledged bytes since the send deadline was set (T4).
    pub(crate) fn acknowledged(&mut self, now: Moment) {
        match self {
            Self::Http1(engine) => engine.acknowledged(now),
            Self::Http2(connection) => connection.engine.acknowledged(now),
            // HTTP/3 hears of each acknowledgement from QUIC.
            Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    /// Whether output waits that the client must take in time: its send deadline runs.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.has_unsent(),
            Self::Http2(connection) => connection.engine.has_unsent(),
            Self::Http3(connection) => connection.engine.has_unsent(),
            Self::Internal(_) => false,
        }
    }

    /// Output waits because we hold it back ourselves: no deadline of the client's runs for it.
    pub(crate) fn pause_output(&mut self) {
        match self {
            Self::Http1(engine) => engine.pause_output(),
            // Its output is what is framed; bodies that wait for their turn are none.
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        match self {
            Self::Http1(engine) => engine.next_deadline(),
            Self::Http2(connection) => connection.engine.next_deadline(),
            Self::Http3(connection) => connection.engine.next_deadline(),
            Self::Internal(_) => None,
        }
    }

    pub(crate) fn expire(&mut self, now: Moment) -> Option<Event> {
        match self {
            Self::Http1(engine) => engine.expire(now).map(|event| identified(engine, event)),
            Self::Http2(connection) => connection.expire(now),
            Self::Http3(connection) => connection.expire(now),
            Self::Internal(_) => None,
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Http1(engine) => engine.stage(),
            Self::Http2(connection) => connection.engine.stage(),
            Self::Http3(connection) => connection.engine.stage(),
            Self::Internal(engine) => engine.stage(),
        }
    }

    /// Whether bytes would be taken; if not, they may wait in the transport.
    pub(crate) fn wants_input(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.wants_input(),
            Self::Http2(connection) => connection.engine.wants_input(),
            // Datagrams are taken when they come.
            Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    /// Whether no byte of the next request has been seen.
    pub(crate) fn awaits_request(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.awaits_request(),
            Self::Http2(connection) => !connection.has_work(),
            Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    /// Whether the connection is between requests, with everything sent.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.is_idle(),
            Self::Http2(connection) => connection.engine.is_idle(),
            Self::Http3(connection) => connection.engine.is_idle(),
            Self::Internal(engine) => engine.stage() != Stage::Open,
        }
    }

    /// Gives memory back that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Http1(_) | Self::Internal(_) => {}
            Self::Http2(connection) => connection.shrink(),
            Self::Http3(connection) => connection.engine.shrink(),
        }
    }

    /// What it holds in memory beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Http1(_) => 0,
            Self::Http2(connection) => connection.memory_bytes(),
            Self::Http3(connection) => connection.memory_bytes(),
            Self::Internal(_) => size_of::<Internal>(),
        }
    }

    /// How many requests have come.
    pub(crate) fn requests(&self) -> u64 {
        match self {
            Self::Http1(engine) => engine.requests(),
            Self::Http2(connection) => connection.engine.requests(),
            Self::Http3(connection) => connection.engine.requests(),
            Self::Internal(_) => 1,
        }
    }

    /// The number of a request as people see it.
    pub(crate) fn number(&self, id: RequestId) -> u64 {
        match self {
            Self::Http1(_) | Self::Internal(_) => id.0,
            Self::Http2(_) => sekisho_http2::StreamId::from(id).number().into(),
            Self::Http3(_) => sekisho_http3::StreamId::from(id).number(),
        }
    }

    /// Whether the connection closes after the response in work.
    #[cfg(feature = "simulation")]
    pub(crate) fn will_close(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.will_close(),
            Self::Http2(connection) => connection.engine.stage() != Stage::Open,
            Self::Http3(connection) => connection.engine.stage() != Stage::Open,
            Self::Internal(_) => true,
        }
    }

    /// Whether the last bytes and the end of the stream can go together.
    pub(crate) fn ends_after_output(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.ends_after_output(),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    /// Whether the last response ended before it was complete (S3).
    pub(crate) fn is_broken_off(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.is_broken_off(),
            // A stream that is not ended says so.
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    /// Whether a plain end of the connection would make a response look complete that is not (C5).
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.is_cut(),
            // A stream that is not ended says so.
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    /// Whether an end of the client's input is the end of its requests, too (H11).
    pub(crate) fn ends_with_input(&self, id: RequestId) -> bool {
        match self {
            Self::Http1(engine) => !engine.policy().half_close,
            Self::Http2(connection) => !connection.engine.policy(id.into()).half_close,
            Self::Http3(_) | Self::Internal(_) => true,
        }
    }

    // Shutdown.

    /// The connection is one too many: it gets an error and is closed (H10). Ends the session without further
    /// output.
    pub(crate) fn abort(&mut self, reason: CloseReason) {
        match self {
            Self::Http1(engine) => engine.abort(reason),
            Self::Http2(connection) => connection.engine.abort(reason),
            Self::Http3(connection) => connection.with(|engine, quic| engine.abort(reason, quic)),
            Self::Internal(engine) => engine.abort(reason),
        }
    }

    pub(crate) fn refuse_connection(&mut self) -> Option<Event> {
        match self {
            Self::Http1(engine) => {
                let event = engine.refuse_connection();
                Some(identified(engine, event))
            }
            Self::Http2(connection) => {
                connection.engine.abort(CloseReason::TooMany);
                None
            }
            Self::Http3(connection) => {
                connection.with(|engine, quic| engine.abort(CloseReason::TooMany, quic));
                None
            }
            Self::Internal(engine) => Some(engine.refuse()),
        }
    }

    /// The connection ends after the answer in work (`keepalive_disable`); HTTP/2 has no such thing.
    pub(crate) fn keep_alive_off(&mut self) {
        match self {
            Self::Http1(engine) => engine.keep_alive_off(),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    /// Answers one more request at the most, and says so in the answer (O4). Whether the answer in work, or the
    /// next one, is the last.
    pub(crate) fn close_after_next(&mut self, scratch: &mut Scratch, now: Moment) -> bool {
        match self {
            Self::Http1(engine) => {
                engine.close_after_next();
                engine.will_close()
            }
            Self::Http2(connection) => {
                connection.with(scratch, |engine, own| engine.shut_down_gracefully(own, now));
                self.takes_no_request()
            }
            Self::Http3(connection) => {
                // A client that is shaking hands does not know yet, and has its first requests answered (M2).
                if connection.engine.has_started() {
                    connection.with(|engine, quic| engine.shut_down_gracefully(quic, now));
                }
                self.takes_no_request()
            }
            Self::Internal(_) => true,
        }
    }

    /// Whether requests that come from now on are not taken. Over HTTP/2 they are for a while after the end was
    /// announced, as the client may have sent them before it knew (M2).
    pub(crate) const fn takes_no_request(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.will_close(),
            Self::Http2(connection) => connection.engine.takes_no_request(),
            Self::Http3(connection) => connection.engine.takes_no_request(),
            Self::Internal(_) => true,
        }
    }

    /// Takes no further request: an idle connection ends now, a busy one after its responses (O4).
    pub(crate) fn shut_down_gracefully(&mut self, scratch: &mut Scratch, now: Moment) {
        match self {
            Self::Http1(engine) => engine.shut_down_gracefully(now),
            Self::Http2(connection) => {
                connection.with(scratch, |engine, own| engine.shut_down_gracefully(own, now));
            }
            Self::Http3(connection) => {
                connection.with(|engine, quic| engine.shut_down_gracefully(quic, now));
            }
            Self::Internal(_) => {}
        }
    }

    /// Whether an idle connection that drains is closed by us after a quiet moment; another one ends itself.
    pub(crate) const fn closes_when_quiet(&self) -> bool {
        match self {
            Self::Http1(_) => true,
            Self::Http3(connection) => !connection.engine.has_started(),
            Self::Http2(_) | Self::Internal(_) => false,
        }
    }

    // The exchanges' side, by request id.

    /// The policies of the server or location that was chosen for this request (T8).
    pub(crate) fn set_policy(&mut self, id: RequestId, policies: &Policies) {
        match self {
            Self::Http1(engine) => engine.set_policy(&policies.common),
            Self::Http2(connection) => connection.engine.set_policy(id.into(), &policies.http2),
            Self::Http3(connection) => connection.engine.set_policy(id.into(), &policies.http3),
            Self::Internal(_) => {}
        }
    }

    /// Whether body bytes follow the head, and how many, if that is known.
    pub(crate) fn request_body(&self, id: RequestId) -> (bool, Option<u64>) {
        match self {
            Self::Http1(engine) => (engine.request_has_body(), engine.body_length()),
            Self::Http2(connection) => {
                let engine = &connection.engine;
                (engine.request_has_body(id.into()), engine.body_length(id.into()))
            }
            Self::Http3(connection) => {
                let engine = &connection.engine;
                (engine.request_has_body(id.into()), engine.body_length(id.into()))
            }
            Self::Internal(engine) => engine.request_body(),
        }
    }

    /// The body is wanted, up to `max` bytes. An error must be answered at once (H6, H7).
    pub(crate) fn take_body(
        &mut self,
        id: RequestId,
        max: Option<u64>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Refusal> {
        match self {
            Self::Http1(engine) => engine.take_body(max, scratch, now),
            Self::Http2(connection) => {
                connection.with(scratch, |engine, own| engine.take_body(id.into(), max, own, now))
            }
            Self::Http3(connection) => connection.take_body(id, max, now),
            Self::Internal(engine) => engine.take_body(max),
        }
    }

    /// Holds the body back while the handler cannot take more of it.
    pub(crate) fn hold_body(&mut self, id: RequestId, held: bool, now: Moment) {
        match self {
            Self::Http1(engine) => engine.hold_body(held, now),
            Self::Http2(connection) => connection.engine.hold_body(id.into(), held, now),
            Self::Http3(connection) => connection.engine.hold_body(id.into(), held, now),
            Self::Internal(engine) => engine.hold_body(held),
        }
    }

    /// The handler has taken so many bytes: the client may send as many more.
    pub(crate) fn consumed(
        &mut self,
        id: RequestId,
        bytes: usize,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        match self {
            // The window of TCP, or of QUIC's stream, opens when bytes are read.
            Self::Http1(_) | Self::Http3(_) | Self::Internal(_) => {}
            Self::Http2(connection) => connection
                .with(scratch, |engine, own| engine.consumed(id.into(), bytes as u32, own, now)),
        }
    }

    /// How many of the next bytes of the transport are plain body bytes of this request: these may go past the
    /// engine.
    pub(crate) fn direct_body(&self, _id: RequestId) -> u64 {
        match self {
            Self::Http1(engine) => engine.direct_body(),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => 0,
        }
    }

    /// So many bytes went past it.
    pub(crate) fn body_taken(&mut self, _id: RequestId, bytes: u64, now: Moment) {
        match self {
            Self::Http1(engine) => engine.body_taken(bytes, now),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    /// Whether a client that sends no more is lost to this request while its answer is awaited (H11).
    pub(crate) fn loses_by_fin(&self, id: RequestId) -> bool {
        match self {
            Self::Http1(engine) => engine.loses_by_fin(),
            Self::Http2(connection) => !connection.engine.policy(id.into()).half_close,
            Self::Http3(_) | Self::Internal(_) => true,
        }
    }

    /// Frames the head of a response and says how its body leaves.
    pub(crate) fn respond(
        &mut self,
        id: RequestId,
        response: &Response<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Sends {
        match self {
            Self::Http1(engine) => engine.respond(response, scratch, now),
            Self::Http2(connection) => connection.respond(id, response, scratch, now),
            Self::Http3(connection) => connection.respond(id, response, now),
            Self::Internal(engine) => engine.respond(response),
        }
    }

    /// Sends an informational response, where the protocol can; the final one follows.
    pub(crate) fn inform(
        &mut self,
        id: RequestId,
        status: Status,
        fields: &Fields,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        match self {
            Self::Http1(engine) => engine.inform(status, fields, scratch, now),
            Self::Http3(connection) => connection
                .with(|engine, quic| engine.inform(id.into(), status, fields.iter(), quic, now)),
            Self::Http2(_) | Self::Internal(_) => {}
        }
    }

    /// Switches to another protocol; the status that says so, where that can be. From then on bytes come and leave as
    /// they are.
    pub(crate) fn upgrade(
        &mut self,
        id: RequestId,
        protocol: &[u8],
        fields: &Fields,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Status> {
        // RFC 8441 §5: the field belongs to the handshake of HTTP/1.1.
        let others =
            fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"sec-websocket-accept"));
        let (is_open, status) = match self {
            Self::Http1(engine) => {
                let is_open = engine.upgrade(protocol, fields, scratch, now);
                (is_open, Status::SWITCHING_PROTOCOLS)
            }
            Self::Http2(connection) => {
                let is_open = connection
                    .with(scratch, |engine, own| engine.upgrade(id.into(), others, own, now));
                (is_open, Status::OK)
            }
            Self::Http3(connection) => {
                let is_open =
                    connection.with(|engine, quic| engine.upgrade(id.into(), others, quic, now));
                (is_open, Status::OK)
            }
            Self::Internal(_) => return None,
        };
        is_open.then_some(status)
    }

    /// How many body bytes of this response may be framed now.
    pub(crate) fn body_allowance(&self, id: RequestId) -> u64 {
        match self {
            Self::Http1(_) => u64::MAX,
            Self::Http2(connection) => connection.engine.quota(id.into()) as u64,
            Self::Http3(connection) => connection.engine.allowance(id.into()),
            Self::Internal(engine) => engine.body_allowance(),
        }
    }

    /// Whether there are body bytes of this response to send: only such requests have their turn.
    pub(crate) fn set_ready(&mut self, id: RequestId, is_ready: bool, now: Moment) {
        match self {
            Self::Http2(connection) => connection.engine.set_ready(id.into(), is_ready, now),
            Self::Http3(connection) => connection.engine.set_ready(id.into(), is_ready, now),
            Self::Http1(_) | Self::Internal(_) => {}
        }
    }

    /// Which request has its turn to send a part of its body; `None` where the protocol leaves that to the driver.
    pub(crate) fn next_to_send(&self) -> Option<RequestId> {
        match self {
            Self::Http1(_) | Self::Internal(_) => None,
            Self::Http2(connection) => connection.engine.next_sendable().map(|next| next.id.into()),
            Self::Http3(connection) => connection.engine.next_sendable().map(RequestId::from),
        }
    }

    /// Frames body bytes, not more than [`Protocol::body_allowance`]. Returns how many were taken: fewer only where
    /// a stream's window is full.
    pub(crate) fn body(
        &mut self,
        id: RequestId,
        bytes: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> usize {
        match self {
            Self::Http1(engine) => engine.body(bytes, scratch),
            Self::Http2(connection) => {
                connection.with(scratch, |engine, own| engine.body(id.into(), bytes, own, now));
            }
            Self::Http3(connection) => return connection.body(id, bytes, now),
            Self::Internal(engine) => engine.body(bytes),
        }
        bytes.len()
    }

    /// Whether bytes of a file may follow the output without passing through the engine;
    /// [`Protocol::file_sent`] reports them to it.
    pub(crate) fn takes_files(&self, _id: RequestId) -> bool {
        match self {
            Self::Http1(engine) => engine.takes_files(),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => false,
        }
    }

    pub(crate) fn file_sent(&mut self, _id: RequestId, bytes: u64) {
        match self {
            Self::Http1(engine) => engine.file_sent(bytes),
            Self::Http2(_) | Self::Http3(_) | Self::Internal(_) => {}
        }
    }

    /// Whether the response in work can have trailers, if it has no length.
    pub(crate) fn can_have_trailers(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.can_have_trailers(),
            Self::Http2(_) | Self::Http3(_) => true,
            Self::Internal(_) => false,
        }
    }

    /// The response is complete, and these fields follow its body.
    pub(crate) fn finish_with(
        &mut self,
        id: RequestId,
        trailers: &Fields,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        match self {
            Self::Http1(engine) => engine.finish_with(Some(trailers), scratch, now),
            Self::Http2(connection) => connection.with(scratch, |engine, own| {
                engine.trailers(id.into(), trailers.iter(), own, now);
                engine.finish(id.into(), own, now);
            }),
            Self::Http3(connection) => connection.finish(id, Some(trailers), now),
            Self::Internal(engine) => engine.finish(),
        }
    }

    /// The response is complete.
    pub(crate) fn finish(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) {
        match self {
            Self::Http1(engine) => engine.finish(scratch, now),
            Self::Http2(connection) => {
                connection.with(scratch, |engine, own| engine.finish(id.into(), own, now));
            }
            Self::Http3(connection) => connection.finish(id, None, now),
            Self::Internal(engine) => engine.finish(),
        }
    }

    /// The response cannot be completed: the client must see that (C5, M3). Without a head, nothing is answered.
    pub(crate) fn break_off(
        &mut self,
        id: RequestId,
        reason: CloseReason,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        match self {
            Self::Http1(engine) if reason == CloseReason::BrokenOff => engine.break_off(now),
            Self::Http1(engine) => engine.abort(reason),
            Self::Http2(connection) => connection.break_off(id, reason, scratch, now),
            Self::Http3(connection) => connection.break_off(id, reason, now),
            Self::Internal(engine) => engine.abort(reason),
        }
    }
}

/// One request is in work at a time: its number is its id.
fn identified(engine: &Http1, event: Http1Event) -> Event {
    let id = RequestId(engine.requests());
    match event {
        Http1Event::Request => Event::Request(id),
        Http1Event::Body(range) => Event::Body(id, range),
        Http1Event::BodyEnd => Event::BodyEnd(id),
        Http1Event::Refused(refusal) => Event::Refused(id, refusal),
        Http1Event::ClientLost => Event::ClientLost(id),
    }
}
