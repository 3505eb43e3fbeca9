//! What handlers do: answer, send records, end a channel, drop their handle.

use std::fmt;

use sekisho_lifecycle::stay::Fact;
use sekisho_lifecycle::{Cause, Moment, Request, RequestId};

use super::Server;
use crate::channel::{Purse, cost};
use crate::code::Code;
use crate::event::Scratch;
use crate::frame::{self, Head, Kind};
use crate::message::{self, Failure};

/// A request's one answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer<'a> {
    Result(&'a [u8]),
    Error(&'a Failure),
}

/// Why an answer was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerError {
    /// It is longer than a frame may be: give it in pieces through a channel, or give an error.
    TooLarge,
    /// The request has its one answer.
    AnsweredAlready,
}

/// Why there is no channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcquireError {
    /// The session has as many undrained channels as it may have.
    TooMany,
    /// The request has one, had one, or has its answer.
    OutOfOrder,
    /// The client knows only one channel for each request.
    Unsupported,
    /// The client has gone, or wants no more of this request's channels.
    Unwanted,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is on its way.
    Sent,
    /// There is no credit for it yet, or too much waits to leave: [`Event::ChannelMoved`](crate::Event::ChannelMoved) says when to try
    /// again.
    Full,
}

/// Why a record was not taken, and never will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// It is longer than a record may be.
    TooLarge,
    /// The channel is not open.
    NotOpen,
    /// The client has gone, or wants no more records. The request has not failed: it gives its one answer as ever
    ///.
    Unwanted,
}

impl Server {
    /// The handler's answer is a result.
    pub fn result(
        &mut self,
        id: RequestId,
        body: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), AnswerError> {
        if body.len() > self.agreed.frame_bytes_max as usize {
            return Err(AnswerError::TooLarge);
        }
        self.answer(id, Answer::Result(body), scratch, now)
    }

    /// The handler's answer is an error.
    pub fn error(
        &mut self,
        id: RequestId,
        code: Code,
        text: &str,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), AnswerError> {
        self.answer(id, Answer::Error(&Failure::new(code, text)), scratch, now)
    }

    /// The handler opens its channel.
    pub fn acquire_channel(
        &mut self,
        id: RequestId,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), AcquireError> {
        let lane = self.lanes.get_mut(id).ok_or(AcquireError::OutOfOrder)?;
        if lane.purse.is_some() {
            return Err(AcquireError::OutOfOrder);
        }
        if self.channels >= self.policy.channels_max {
            return Err(AcquireError::TooMany);
        }
        let slot = lane.slot;
        // First the purse: where force has come already, the channel is dropped at once.
        lane.purse = Some(Purse::new(self.agreed.channel_bytes));
        // One that has had channels before gets an error below, and the client may still speak of those.
        lane.channels = lane.channels.max(1);
        self.channels += 1;
        if !self.tell_quietly(Fact::ChannelAcquired(id), now) {
            self.drop_purse(id);
            return Err(AcquireError::OutOfOrder);
        }
        self.put_bare(Head::of_slot(Kind::Acquired, slot), scratch, now);
        Ok(())
    }

    /// The handler opens one more channel beside its first (1.1); returns its number. It ends with the first at the
    /// latest, for both sides.
    pub fn add_channel(
        &mut self,
        id: RequestId,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<u8, AcquireError> {
        if self.agreed.minor == 0 {
            return Err(AcquireError::Unsupported);
        }
        let entry = self.stay.requests().get(id);
        let is_open =
            entry.is_some_and(|entry| entry.state.has_open_channel() && !entry.is_answered);
        let lane = self.lanes.get_mut(id).filter(|_| is_open).ok_or(AcquireError::OutOfOrder)?;
        if lane.purse.is_none() {
            return Err(AcquireError::Unwanted);
        }
        let number = u8::try_from(lane.channels).map_err(|_| AcquireError::TooMany)?;
        if self.channels >= self.policy.channels_max {
            return Err(AcquireError::TooMany);
        }
        let slot = lane.slot;
        lane.channels += 1;
        self.channels += 1;
        self.side_channels.insert((id, number), Purse::new(self.agreed.channel_bytes));
        self.put_bare(Head::of_channel(Kind::Acquired, slot, number), scratch, now);
        Ok(number)
    }

    /// The producer has one more record for this channel.
    pub fn write(
        &mut self,
        id: RequestId,
        channel: u8,
        record: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Written, WriteError> {
        let entry = self.stay.requests().get(id);
        let is_open =
            entry.is_some_and(|entry| entry.state.has_open_channel() && !entry.is_answered);
        let is_overdue = entry.is_some_and(|entry| entry.cancelled == Some(Cause::Deadline));
        let is_full = self.is_full();
        let (true, Some(lane)) = (is_open, self.lanes.get(id)) else {
            return Err(if is_overdue { WriteError::Unwanted } else { WriteError::NotOpen });
        };
        if record.len() > self.agreed.record_bytes_max() as usize {
            return Err(WriteError::TooLarge);
        }
        let (slot, cost) = (lane.slot, cost(record.len()));
        let Some(purse) = self.purse_mut(id, channel) else { return Err(WriteError::Unwanted) };
        // Whatever credit there is: a client that does not read holds no more than so much (E4).
        let is_paid = !is_full && purse.spend(cost);
        self.has_writers_waiting |= is_full;
        if !is_paid {
            self.wait_for_client(id, channel, cost);
            self.arm_drain(now);
            return Ok(Written::Full);
        }
        self.wait_is_over(id);
        self.note_progress(cost, now);
        self.put(scratch, now, |out| {
            frame::write(out, Head::of_channel(Kind::Record, slot, channel), record);
        });
        Ok(Written::Sent)
    }

    /// The producer has sent all that one of the further channels has.
    pub fn release_side_channel(
        &mut self,
        id: RequestId,
        channel: u8,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        // One that the client drained has no credit any more, and needs no end.
        if self.side_channels.remove(&(id, channel)).is_some() {
            self.channels -= 1;
            self.wait_may_be_over(id);
            // It has ended with the first, if that was released before.
            let entry = self.stay.requests().get(id);
            let is_open = entry.is_some_and(|entry| entry.state.has_open_channel());
            if let Some(slot) = self.lanes.get(id).filter(|_| is_open).map(|lane| lane.slot) {
                self.put_bare(Head::of_channel(Kind::Released, slot, channel), scratch, now);
            }
        }
    }

    /// The producer has sent all, in all channels; says whether there was an open channel.
    pub fn release_channel(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) -> bool {
        let is_released = self.tell(Fact::ChannelReleased(id), None, scratch, now).is_ok();
        if is_released {
            self.put_released(id, scratch, now);
            self.drain_at_end(id, now);
        }
        is_released
    }

    /// A channel was released. Where the client takes all that it gave credit for, it is drained as well.
    pub(super) fn drain_at_end(&mut self, id: RequestId, now: Moment) {
        let entry = self.stay.requests().get(id);
        let is_left = entry.is_some_and(|entry| {
            matches!(entry.state, Request::ChannelReleased | Request::Lingering)
        });
        if self.agreed.drains_at_end && is_left {
            self.tell_quietly(Fact::ChannelDrained(id), now);
        }
    }

    /// The last handle of a request is gone.
    pub fn handle_dropped(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) {
        let _ = self.tell(Fact::HandleDropped(id), None, scratch, now);
    }

    /// Cancels a request; returns whether it was not cancelled before.
    pub fn cancel(&mut self, id: RequestId, cause: Cause, now: Moment) -> bool {
        let entry = self.stay.requests().get(id);
        let is_new = entry.is_some_and(|entry| !entry.is_answered && entry.cancelled.is_none());
        self.tell_quietly(Fact::CancelAsked(id, cause), now);
        is_new
    }

    fn answer(
        &mut self,
        id: RequestId,
        answer: Answer<'_>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), AnswerError> {
        match self.tell(Fact::Answered(id), Some(answer), scratch, now) {
            Ok(_) => Ok(()),
            Err(_) => Err(AnswerError::AnsweredAlready),
        }
    }

    pub(super) fn put_answer(
        &mut self,
        id: RequestId,
        answer: Option<Answer<'_>>,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        let (Some(lane), Some(answer)) = (self.lanes.get(id), answer) else { return };
        let slot = lane.slot;
        self.forget_deadline(id);
        self.discard_body(id);
        self.put(scratch, now, |out| match answer {
            Answer::Result(body) => frame::write(out, Head::of_slot(Kind::Result, slot), body),
            Answer::Error(failure) => message::write(out, Kind::Error, slot, failure),
        });
        if self.leaving.capacity() == 0 {
            // Many sessions only ever have one request at a time.
            self.leaving.reserve_exact(1);
        }
        self.leaving.push_back((self.written, id));
    }

    pub(super) fn put_released(&mut self, id: RequestId, scratch: &mut Scratch, now: Moment) {
        self.wait_is_over(id);
        if let Some(slot) = self.lanes.get(id).map(|lane| lane.slot) {
            self.put_bare(Head::of_slot(Kind::Released, slot), scratch, now);
        }
    }

    /// Counts the answers whose last byte the transport has taken.
    pub(super) fn answers_left(&mut self, now: Moment) {
        while let Some((_, id)) = self.leaving.pop_front_if(|(end, _)| *end <= self.sent) {
            let is_told = self.tell_quietly(Fact::ResponseSent(id), now);
            debug_assert!(is_told, "an answer on its way was given and not sent");
        }
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::TooLarge => "the answer is longer than a frame may be",
            Self::AnsweredAlready => "the request has its answer",
        })
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::TooMany => "the session has as many channels as it may have",
            Self::OutOfOrder => "the request has a channel or its answer already",
            Self::Unsupported => "the client knows one channel for each request",
            Self::Unwanted => "nobody reads the channels of this request any more",
        })
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::TooLarge => "the record is longer than a record may be",
            Self::NotOpen => "the channel is not open",
            Self::Unwanted => "nobody reads the channel any more",
        })
    }
}

impl std::error::Error for AnswerError {}
impl std::error::Error for AcquireError {}
impl std::error::Error for WriteError {}
