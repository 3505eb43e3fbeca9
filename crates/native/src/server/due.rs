//! What falls due and needs output: `BYE`, a `PING`, the answer to a request whose caller waits no longer. A deadline
//! has no output at hand, so these are written when the engine is next offered input.

use std::time::Duration;

use sekisho_lifecycle::stay::Fact;
use sekisho_lifecycle::{Cause, Moment, RequestId, Stage};

use super::answer::Answer;
use super::{Phase, Server};
use crate::code::Code;
use crate::event::{Scratch, With};
use crate::frame::{self, Head, Kind};
use crate::message::{self, Failure, RequestOptions};

/// Whether the peer was asked if it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ping {
    /// It was not.
    Quiet,
    /// It is to be.
    Wanted,
    /// It was, then.
    Sent(Moment),
}

/// What a client said about its request, with its timeout as a moment.
pub(super) fn with(options: RequestOptions, now: Moment) -> With {
    let timeout = (options.timeout_micros > 0).then_some(options.timeout_micros);
    With {
        service: options.service,
        deadline: timeout.map(|micros| now + Duration::from_micros(micros)),
        body_follows: options.body_follows,
    }
}

impl Server {
    /// Whether nothing comes of a look without input: nothing is due, nothing happened, and no frame has begun.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        self.events.is_empty()
            && self.overdue.is_empty()
            && self.ping != Ping::Wanted
            && self.bye.is_none()
            && !self.reader.is_inside()
    }

    /// Writes what has fallen due.
    pub(super) fn put_due(&mut self, scratch: &mut Scratch, now: Moment) {
        while let Some(id) = self.overdue.pop() {
            self.end_overdue(id, scratch, now);
        }
        if self.ping == Ping::Wanted && self.phase == Phase::Open {
            self.ping = Ping::Sent(now);
            self.put_sign(Head::of_slot(Kind::Ping, 0), scratch, now);
        }
        if let Some(bye) = self.bye.take() {
            self.put_any(scratch, now, |out| message::write(out, Kind::Bye, 0, &*bye));
        }
    }

    /// When the peer is to be asked, or must have answered. What we do not take is not missed.
    pub(super) fn ping_at(&self) -> Option<Moment> {
        let every = self.agreed.keepalive?;
        if self.phase != Phase::Open || self.stage != Stage::Open || self.is_full() {
            return None;
        }
        match self.ping {
            Ping::Quiet => Some(self.heard_at + every),
            Ping::Wanted => None,
            Ping::Sent(at) => Some(at + every),
        }
    }

    /// Bytes came from the peer.
    pub(super) fn heard(&mut self, now: Moment) {
        self.heard_at = now;
        self.ping = Ping::Quiet;
    }

    /// Writes a sign of life, which is no traffic.
    pub(super) fn put_sign(&mut self, head: Head, scratch: &mut Scratch, now: Moment) {
        let traffic = self.traffic_written;
        self.put(scratch, now, |out| frame::write(out, head, &[]));
        self.traffic_written = traffic;
    }

    /// The callers of some requests wait no longer.
    pub(super) fn requests_are_due(&mut self, now: Moment) {
        while let Some((at, id)) = self.request_deadlines.first().copied()
            && at.is_due(now)
        {
            self.request_deadlines.pop_first();
            self.overdue.push(id);
        }
    }

    /// The answer was given, or is not wanted: its deadline means nothing any more.
    pub(super) fn forget_deadline(&mut self, id: RequestId) {
        if let Some(lane) = self.lanes.get(id)
            && let Some(at) = lane.deadline
        {
            self.request_deadlines.remove(&(at, id));
        }
    }

    /// Ends a request at its caller's deadline: it is cancelled, and its one answer says why.
    fn end_overdue(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) {
        let entry = self.stay.requests().get(id).filter(|entry| !entry.is_answered);
        let Some(entry) = entry else { return };
        let has_open_channel = entry.state.has_open_channel();
        self.tell_quietly(Fact::CancelAsked(id, Cause::Deadline), now);
        if has_open_channel {
            self.release_channel(id, scratch, now);
        }
        let failure = Failure::new(Code::DeadlineExceeded, "the request's deadline has passed");
        // It had no answer, and has no open channel.
        let _ = self.tell(Fact::Answered(id), Some(Answer::Error(&failure)), scratch, now);
    }
}
