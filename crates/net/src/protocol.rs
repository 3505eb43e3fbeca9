//! The protocol of a connection: one engine behind verbs that are the same for all of them, by request id. The
//! only file of this crate that names a concrete protocol.

use std::ops::Range;
use std::sync::Arc;

use sekisho_http::{Policy, Refusal, Response, Scratch, Sends};
use sekisho_http1::{Event as Http1Event, Http1};
use sekisho_lifecycle::stay::RequestId;
use sekisho_lifecycle::{CloseReason, Deadline, Engine, Moment, Stage, Step};

/// What the driver must act on. Every event belongs to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A head is complete and lies in the scratch.
    Request(RequestId),
    /// Body bytes: this range of the input that was just offered.
    Body(RequestId, Range<usize>),
    /// The body that was taken is complete.
    BodyEnd(RequestId),
    /// The request is refused: to be answered with this status at once. The scratch holds as much of its head
    /// as could be parsed.
    Refused(RequestId, Refusal),
    /// The client is lost, or its request will never be complete.
    ClientLost(RequestId),
}

/// The protocols there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolKind {
    /// HTTP/1.0 and 1.1.
    Http1,
}

impl ProtocolKind {
    /// What it is called in logs, metrics and the live view.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
        }
    }
}

/// A connection's engine.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.0 and 1.1: one request in work at a time.
    Http1(Http1),
}

impl Protocol {
    /// What a connection speaks whose first bytes have not come.
    pub(crate) fn new(policy: Arc<Policy>, now: Moment) -> Self {
        Self::Http1(Http1::new(policy, now))
    }

    /// Which one it is.
    pub(crate) const fn kind(&self) -> ProtocolKind {
        match self {
            Self::Http1(_) => ProtocolKind::Http1,
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
        }
    }

    pub(crate) fn input_ended(&mut self, now: Moment) -> Option<Event> {
        match self {
            Self::Http1(engine) => engine.input_ended(now).map(|event| identified(engine, event)),
        }
    }

    /// The transport took so many bytes of output; `pending` says whether more wait to leave.
    pub(crate) fn transmitted(&mut self, moved: u64, pending: bool, now: Moment) {
        match self {
            Self::Http1(engine) => engine.transmitted(moved, pending, now),
        }
    }

    /// The client has acknowledged bytes since the send deadline was set (T4).
    pub(crate) fn acknowledged(&mut self, now: Moment) {
        match self {
            Self::Http1(engine) => engine.acknowledged(now),
        }
    }

    /// Output waits because we hold it back ourselves: no deadline of the client's runs for it.
    pub(crate) fn pause_output(&mut self) {
        match self {
            Self::Http1(engine) => engine.pause_output(),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        match self {
            Self::Http1(engine) => engine.next_deadline(),
        }
    }

    pub(crate) fn expire(&mut self, now: Moment) -> Option<Event> {
        match self {
            Self::Http1(engine) => engine.expire(now).map(|event| identified(engine, event)),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Http1(engine) => engine.stage(),
        }
    }

    /// Whether bytes would be taken; if not, they may wait in the transport.
    pub(crate) fn wants_input(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.wants_input(),
        }
    }

    /// Whether no byte of the next request has been seen.
    pub(crate) fn awaits_request(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.awaits_request(),
        }
    }

    /// Whether the connection is between requests, with everything sent.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.is_idle(),
        }
    }

    /// How many requests have come.
    pub(crate) fn requests(&self) -> u64 {
        match self {
            Self::Http1(engine) => engine.requests(),
        }
    }

    /// Whether the last bytes and the end of the stream can go together.
    pub(crate) fn ends_after_output(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.ends_after_output(),
        }
    }

    /// Whether a plain end of the connection would make a response look complete that is not (C5).
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Http1(engine) => engine.is_cut(),
        }
    }

    /// Whether an end of the client's input is the end of its requests, too (H11).
    pub(crate) fn ends_with_input(&self) -> bool {
        match self {
            Self::Http1(engine) => !engine.policy().half_close,
        }
    }

    // Shutdown.

    /// The connection is one too many: it is told so, and closed (H10).
    pub(crate) fn refuse_connection(&mut self) -> Event {
        match self {
            Self::Http1(engine) => {
                let event = engine.refuse_connection();
                identified(engine, event)
            }
        }
    }

    /// Answers one more request at the most, and says so in the answer (O4). Whether the answer in work, or the
    /// next one, is the last.
    pub(crate) fn close_after_next(&mut self) -> bool {
        match self {
            Self::Http1(engine) => {
                engine.close_after_next();
                engine.will_close()
            }
        }
    }

    /// Takes no further request: an idle connection ends now, a busy one after its responses (O4).
    pub(crate) fn shut_down_gracefully(&mut self, now: Moment) {
        match self {
            Self::Http1(engine) => engine.shut_down_gracefully(now),
        }
    }

    // The exchanges' side, by request id.

    /// The policy of the server or location that was chosen for this request (T8).
    pub(crate) fn set_policy(&mut self, _id: RequestId, policy: &Arc<Policy>) {
        match self {
            Self::Http1(engine) => engine.set_policy(policy),
        }
    }

    /// Whether body bytes follow the head, and how many, if that is known.
    pub(crate) fn request_body(&self, _id: RequestId) -> (bool, Option<u64>) {
        match self {
            Self::Http1(engine) => (engine.request_has_body(), engine.body_length()),
        }
    }

    /// The body is wanted, up to `max` bytes. An error must be answered at once (H6, H7).
    pub(crate) fn take_body(
        &mut self,
        _id: RequestId,
        max: Option<u64>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Refusal> {
        match self {
            Self::Http1(engine) => engine.take_body(max, scratch, now),
        }
    }

    /// Holds the body back while the handler cannot take more of it.
    pub(crate) fn hold_body(&mut self, _id: RequestId, held: bool, now: Moment) {
        match self {
            Self::Http1(engine) => engine.hold_body(held, now),
        }
    }

    /// How many of the next bytes of the transport are plain body bytes of this request: these may go past the
    /// engine.
    pub(crate) fn direct_body(&self, _id: RequestId) -> u64 {
        match self {
            Self::Http1(engine) => engine.direct_body(),
        }
    }

    /// So many bytes went past it.
    pub(crate) fn body_taken(&mut self, _id: RequestId, bytes: u64, now: Moment) {
        match self {
            Self::Http1(engine) => engine.body_taken(bytes, now),
        }
    }

    /// Whether a client that sends no more is lost to this request while its answer is awaited (H11).
    pub(crate) fn loses_by_fin(&self, _id: RequestId) -> bool {
        match self {
            Self::Http1(engine) => engine.loses_by_fin(),
        }
    }

    /// Frames the head of a response and says how its body leaves.
    pub(crate) fn respond(
        &mut self,
        _id: RequestId,
        response: &Response<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Sends {
        match self {
            Self::Http1(engine) => engine.respond(response, scratch, now),
        }
    }

    /// How many body bytes of this response may be framed now.
    pub(crate) fn body_allowance(&self, _id: RequestId) -> u64 {
        match self {
            Self::Http1(_) => u64::MAX,
        }
    }

    /// Frames body bytes.
    pub(crate) fn body(&mut self, _id: RequestId, bytes: &[u8], scratch: &mut Scratch) {
        match self {
            Self::Http1(engine) => engine.body(bytes, scratch),
        }
    }

    /// Whether bytes of a file may follow the output without passing through the engine; it is told of them by
    /// [`Protocol::file_sent`].
    pub(crate) fn takes_files(&self, _id: RequestId) -> bool {
        match self {
            Self::Http1(engine) => engine.takes_files(),
        }
    }

    pub(crate) fn file_sent(&mut self, _id: RequestId, bytes: u64) {
        match self {
            Self::Http1(engine) => engine.file_sent(bytes),
        }
    }

    /// The response is complete.
    pub(crate) fn finish(&mut self, _id: RequestId, scratch: &mut Scratch, now: Moment) {
        match self {
            Self::Http1(engine) => engine.finish(scratch, now),
        }
    }

    /// The response cannot be completed: the client must see that (C5). Without a head, nothing is answered.
    pub(crate) fn break_off(&mut self, _id: RequestId, reason: CloseReason, _now: Moment) {
        match self {
            Self::Http1(engine) => engine.abort(reason),
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
