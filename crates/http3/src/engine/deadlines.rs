//! Which deadlines are armed, for the connection and for each stream, and what happens when they expire
//! (T1–T10, Q4).
//!
//! | Owner | Kind | Limits | At expiry |
//! |---|---|---|---|
//! | connection | `Header` | accept, and so the handshake, to the end of the first head | close |
//! | connection | `KeepAlive` | quiet time without an open stream | close with H3_NO_ERROR |
//! | connection | `Send` | complete responses of which the client acknowledges nothing | close |
//! | connection | `Drain` | first GOAWAY of a graceful end to the second one | the second GOAWAY |
//! | stream | `Header` | its first byte to the end of its head, entries of the dynamic table included | reset |
//! | stream | `Body` | inactivity while the body is awaited, and its rate | 408, or reset where the response has begun |
//! | stream | `Send` | a response that QUIC does not take and of which the client acknowledges nothing | reset, client lost |

use sekisho_http::refusal::Cause;
use sekisho_http::stream::{PROGRESS_BYTES, earliest};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Moment, Stage};

use super::{Drain, Http3};
use crate::code::Code;
use crate::event::{Event, Loss, StreamId};
use crate::quic::{Acknowledged, Quic};
use crate::stream::{Output, Part, Stream};

/// Whose deadline it is.
pub type Owner = sekisho_http::stream::Owner<StreamId>;

impl Http3 {
    /// The earliest deadline in effect, if any.
    pub fn next_deadline(&self) -> Option<Deadline> {
        self.next_owned_deadline().map(|(deadline, _)| deadline)
    }

    /// The earliest deadline in effect, if any, and its owner (T2).
    pub fn next_owned_deadline(&self) -> Option<(Deadline, Owner)> {
        let of_connection = [
            (self.header_at, DeadlineKind::Header),
            (self.idle_at, DeadlineKind::KeepAlive),
            (self.send_at, DeadlineKind::Send),
            (self.drain_at, DeadlineKind::Drain),
        ];
        earliest(of_connection, self.streams.iter().map(|(id, stream)| (id, of_stream(stream))))
    }

    /// The earliest deadline of one stream, for the live view.
    pub fn stream_deadline(&self, id: StreamId) -> Option<Deadline> {
        self.streams
            .get(id)
            .and_then(|stream| of_stream(stream).into_iter().flatten().min_by_key(|one| one.at))
    }

    /// Lets deadlines that are due act, up to one event; called again until none is due. Data that came in the same
    /// turn has been received before this is called (T3).
    pub fn expire(&mut self, quic: &mut impl Quic, now: Moment) -> Option<Event> {
        while self.events.is_empty() && self.expire_one(now) {}
        self.settle(now);
        self.put_out(quic);
        self.events.pop_front()
    }

    /// Acts on the earliest deadline, if it is due; returns whether it was.
    fn expire_one(&mut self, now: Moment) -> bool {
        let Some((due, owner)) = self.next_owned_deadline() else { return false };
        if !due.at.is_due(now) {
            return false;
        }
        match (owner, due.kind) {
            (Owner::Connection, DeadlineKind::Drain) => self.finish_drain(now),
            (Owner::Connection, kind) => {
                self.fail(Code::NoError, kind.tag(), CloseReason::Expired(kind));
            }
            (Owner::Stream(id), DeadlineKind::Header) => {
                // No one waits for a response to half a head; the others go on.
                self.stream_violation(id, Code::RequestIncomplete, now);
            }
            (Owner::Stream(id), DeadlineKind::Body) => self.body_expired(id),
            (Owner::Stream(id), _) => self.send_expired(id),
        }
        true
    }

    /// The client sends its body too slowly.
    fn body_expired(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.output == Output::Awaited {
            stream.discard();
            self.events.push_back(Event::Refused(id, Cause::BodyTimedOut.into()));
        } else {
            self.break_off(id, Code::RequestCancelled, Loss::Expired(DeadlineKind::Body));
        }
    }

    /// The client does not take a response.
    fn send_expired(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if is_stalled(stream) {
            self.break_off(id, Code::RequestCancelled, Loss::Expired(DeadlineKind::Send));
        } else {
            stream.send_at = None;
        }
    }

    /// The client has acknowledged bytes: deadlines for sending count from now on, of the connection and of streams
    /// that may have had bytes among them (T4).
    pub fn acknowledged(&mut self, acknowledged: Acknowledged, now: Moment) {
        if self.send_at.is_some() {
            self.send_at = self.send_by(now);
        }
        let before = std::mem::replace(&mut self.acknowledged, acknowledged).bytes;
        for (_, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.send_at.is_some()) {
            let awaited = stream.awaits_acknowledged.take_if(|_| acknowledged.is_all);
            let awaited = awaited.or(stream.awaits_acknowledged);
            if awaited.is_some_and(|(bytes, until)| before < bytes && now < until) {
                stream.send_at = None;
                stream.arm_send(&self.policy, now);
            }
        }
    }

    /// Whether the client has not acknowledged complete responses, and their deadline runs.
    pub const fn has_unsent(&self) -> bool {
        self.send_at.is_some()
    }

    pub(super) fn send_by(&self, now: Moment) -> Option<Moment> {
        self.policy.send_timeout.map(|timeout| now + timeout)
    }

    /// A stream has been opened: its head is awaited, and bytes do not push its deadline.
    pub(super) fn await_head(&mut self, id: StreamId, now: Moment) {
        let timeout = self.policy.header_timeout;
        if let Some(stream) = self.streams.get_mut(id)
            && stream.part == Part::Head
            && stream.read_at.is_none()
        {
            stream.read_at = timeout.map(|timeout| now + timeout);
        }
    }

    /// No stream is open: quiet time begins.
    pub(super) fn arm_idle(&mut self, now: Moment) {
        if self.idle_at.is_some() || self.requests == 0 || self.drain != Drain::No {
            return;
        }
        match self.policy.keepalive_timeout {
            Some(timeout) => self.idle_at = Some(now + timeout),
            None => self.fail(Code::NoError, "", CloseReason::KeepAliveOff),
        }
    }

    /// Body bytes are awaited from now on.
    pub(super) fn await_body(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.await_body(&self.policy, now);
        }
        self.arm_body(id, now);
    }

    /// Body bytes came.
    pub(super) fn body_came(&mut self, id: StreamId, bytes: usize, now: Moment) {
        if bytes == 0 {
            return;
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.body_came(&self.policy, bytes);
        }
        self.arm_body(id, now);
    }

    /// Arms what is asked of the client for its body.
    pub(super) fn arm_body(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.part != Part::Head
        {
            stream.arm_body(&self.policy, now);
        }
    }

    /// QUIC has taken bytes of a response.
    pub(super) fn note_progress(&mut self, id: StreamId, bytes: usize, now: Moment) {
        if let Some(stream) = self.streams.get_mut(id) {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            stream.progress = stream.progress.saturating_add(bytes);
            if stream.progress >= PROGRESS_BYTES {
                (stream.progress, stream.send_at) = (0, None);
            }
        }
        self.watch(id, now);
    }

    /// Looks whether a client keeps a stream from sending.
    pub(super) fn watch(&mut self, id: StreamId, now: Moment) {
        let is_open = self.stage == Stage::Open;
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !is_open || !wants_to_send(stream) {
            stream.send_at = None;
        } else if stream.is_blocked && stream.send_at.is_none() {
            let bytes = self.acknowledged.bytes + self.acknowledged.waiting_max;
            stream.arm_send(&self.policy, now);
            stream.awaits_acknowledged = stream.send_at.map(|until| (bytes, until));
        }
    }
}

/// What is armed for a stream.
fn of_stream(stream: &Stream) -> [Option<Deadline>; 2] {
    let awaited = match stream.part {
        Part::Head => DeadlineKind::Header,
        Part::Body | Part::End => DeadlineKind::Body,
    };
    stream.deadlines(awaited)
}

/// Whether there are bytes to send.
fn wants_to_send(stream: &Stream) -> bool {
    stream.output != Output::Gone && (stream.place.is_ready() || !stream.out.is_empty())
}

/// Whether QUIC keeps a stream from sending.
fn is_stalled(stream: &Stream) -> bool {
    stream.is_blocked && wants_to_send(stream)
}
