//! The client's frames: one function for each kind.

use std::ops::Range;
use std::time::Duration;

use prost::Message;
use sekisho_lifecycle::stay::{Fact, Refusal};
use sekisho_lifecycle::{Cause, CloseReason, DeadlineKind, Manner, Moment, Step};

use super::body::Inbound;
use super::{AdmitResult, Ending, Lane, Phase, Server, due};
use crate::code::Code;
use crate::event::{Event, Scratch};
use crate::frame::{Form, Head, Kind, Side};
use crate::handshake;
use crate::message::{self, Extension, Failure, Hello, Shutdown};
use crate::policy::Agreed;
use crate::reader::Part;
use crate::violation::Violation;

impl Server {
    /// Takes one frame, or one part of it.
    pub(super) fn take(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        let mut reader = self.reader;
        let timeout = self.policy.frame_timeout;
        let next = reader.next(input, now, timeout, |head| self.check(head));
        self.reader = reader;
        let (taken, part) = match next {
            Ok(next) => next,
            Err(violation) => {
                self.fail(violation, CloseReason::OutOfSync, now);
                return Step { taken: input.len(), event: self.events.pop_front() };
            }
        };
        let done = match part {
            Part::Nothing => Ok(None),
            Part::Piece(head, range) => {
                self.live(now);
                Ok(self.is_piece_wanted(head).then_some(Event::Piece(range)))
            }
            Part::Whole(head, range) => {
                if self.phase == Phase::Open && !matches!(head.kind, Kind::Ping | Kind::Pong) {
                    self.live(now);
                }
                self.frame(head, input, range, scratch, now)
            }
        };
        match done {
            Ok(event) => Step { taken, event: event.or_else(|| self.events.pop_front()) },
            Err(violation) => {
                self.fail(violation, CloseReason::OutOfSync, now);
                Step { taken, event: self.events.pop_front() }
            }
        }
    }

    /// What can be checked of a frame from its head, before anything is done about it.
    fn check(&self, head: Head) -> Result<(), Violation> {
        let kind = head.kind;
        if !kind.is_sent_by(Side::Client) {
            return Err(Violation::WrongDirection(kind));
        }
        match (self.phase, kind) {
            (Phase::Open, Kind::Hello) => return Err(Violation::GreetedTwice),
            (Phase::Open, _) | (_, Kind::Hello) => {}
            (_, kind) => return Err(Violation::NotGreeted(kind)),
        }
        if kind.minor() > self.agreed.minor {
            return Err(Violation::NotNegotiated(kind));
        }
        if let Some((slot, _)) = self.options.as_deref()
            && (kind, head.slot) != (Kind::Request, *slot)
        {
            return Err(Violation::OptionsAlone(*slot));
        }
        let max = self.agreed.frame_bytes_max;
        if kind.form() == Form::Bulk && head.length > max {
            return Err(Violation::TooLong { length: head.length, max });
        }
        let is_new = matches!(kind, Kind::Request | Kind::Options);
        if is_new && (self.in_slot(head.slot).is_some() || self.bodies.contains_key(&head.slot)) {
            return Err(Violation::SlotInUse(head.slot));
        }
        if kind == Kind::Data { self.check_data(head) } else { Ok(()) }
    }

    fn frame(
        &mut self,
        head: Head,
        input: &[u8],
        range: Range<usize>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Violation> {
        let payload = &input[range.clone()];
        match head.kind {
            Kind::Hello => self.hello(payload, now),
            Kind::Request => Ok(Some(self.request(head, range, scratch, now))),
            Kind::Cancel => {
                // A cancel for a finished request is void (L31).
                if let Some(id) = self.in_slot(head.slot) {
                    self.cancel(id, Cause::ClientAsked, now);
                    // What there is of the body is not all of it.
                    self.discard_body(id);
                }
                Ok(None)
            }
            Kind::Credit => self.credit(head, now),
            Kind::Drained => self.drained(head, now),
            Kind::Shutdown => self.shutdown(payload, now),
            Kind::Extend => self.extension(payload, scratch, now),
            Kind::Options => self.take_options(head.slot, payload),
            Kind::Data => Ok(Some(self.data(head, range))),
            Kind::DataEnd => self.data_end(head.slot, now),
            Kind::Ping => {
                let pong = Head { word: head.word, ..Head::of_slot(Kind::Pong, 0) };
                self.put_sign(pong, scratch, now);
                Ok(None)
            }
            Kind::Pong => Ok(None),
            kind => Err(Violation::WrongDirection(kind)),
        }
    }

    fn hello(&mut self, payload: &[u8], now: Moment) -> Result<Option<Event>, Violation> {
        let hello = Hello::decode(payload).map_err(|_| Violation::Malformed(Kind::Hello))?;
        match handshake::read(hello) {
            Ok(greeting) => {
                self.phase = Phase::Deciding(Agreed::of(&self.policy, &greeting));
                self.handshake_at = Some(now + self.policy.decide_timeout);
                Ok(Some(Event::Hello(greeting)))
            }
            Err(misfit) => {
                let (code, text) = misfit.answer();
                self.refuse(code, text);
                Ok(None)
            }
        }
    }

    fn request(
        &mut self,
        head: Head,
        body: Range<usize>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Event {
        let Head { slot, word: service, .. } = head;
        let with = self.options.take().map(|options| Box::new(due::with(options.1, now)));
        let body_follows = with.as_ref().is_some_and(|with| with.body_follows);
        if body_follows {
            self.bodies.insert(slot, Inbound::new(self.agreed.channel_bytes));
        }
        let admitted = self.tell(Fact::RequestReceived, None, scratch, now);
        match admitted {
            Ok(Some(AdmitResult::Admitted(id))) => {
                let deadline = with.as_ref().and_then(|with| with.deadline);
                let lane = Lane {
                    id,
                    slot,
                    service,
                    since: now,
                    purse: None,
                    waits_for: None,
                    waits_for_body: false,
                    channels: 0,
                    deadline,
                };
                self.lanes.push(id, lane);
                self.slots.insert(slot, id);
                if let Some(at) = deadline {
                    self.request_deadlines.insert((at, id));
                }
                if let Some(inbound) = self.bodies.get_mut(&slot) {
                    inbound.id = Some(id);
                }
                Event::Request { id, service, with, body }
            }
            Ok(Some(AdmitResult::Refused(Refusal::TooMany))) => {
                let text = "the session has as many requests as it may have";
                self.refuse_request(slot, Code::ResourceLimitReached, text, scratch, now)
            }
            // Also a session that is over, of which the tables know no requests.
            _ => {
                let expired = CloseReason::Expired(DeadlineKind::Session);
                let code = match self.ending.as_deref() {
                    Some(ending) if ending.reason == expired => Code::SessionExpired,
                    _ => Code::SessionClosed,
                };
                self.refuse_request(slot, code, "the session takes no more requests", scratch, now)
            }
        }
    }

    /// A refusal is an answer, but was never counted in.
    fn refuse_request(
        &mut self,
        slot: u16,
        code: Code,
        text: &str,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Event {
        let failure = Failure::new(code, text);
        self.put(scratch, now, |out| message::write(out, Kind::Error, slot, &failure));
        Event::Refused(code)
    }

    fn credit(&mut self, head: Head, now: Moment) -> Result<Option<Event>, Violation> {
        let Some(id) = self.channel_in_slot(head)? else { return Ok(None) };
        // After its last record, or after force, credit is void: the client could not know.
        let Some(purse) = self.purse_mut(id, head.channel) else { return Ok(None) };
        if !purse.earn(head.word) {
            return Err(Violation::TooMuchCredit(head.slot));
        }
        if !self.is_full() {
            self.wait_may_be_over(id);
            self.arm_drain(now);
        }
        Ok(Some(Event::ChannelMoved(id)))
    }

    fn drained(&mut self, head: Head, now: Moment) -> Result<Option<Event>, Violation> {
        let Some(id) = self.channel_in_slot(head)? else { return Ok(None) };
        if head.channel > 0 {
            // One that was released is gone already.
            if self.side_channels.remove(&(id, head.channel)).is_some() {
                self.channels -= 1;
                self.wait_may_be_over(id);
            }
            return Ok(Some(Event::ChannelMoved(id)));
        }
        if self.tell_quietly(Fact::ChannelDrained(id), now) {
            return Ok(None);
        }
        let entry = self.stay.requests().get(id);
        if self.agreed.drains_at_end && entry.is_some_and(|entry| !entry.state.has_open_channel()) {
            // It was released meanwhile, which the client did not know yet.
            return Ok(None);
        }
        Err(Violation::OutOfOrder(Kind::Drained, head.slot))
    }

    /// The request with the channel that the frame is about. After force there is none any more, and the
    /// client may not know it yet; nor that it is over, where the end of a channel needs no word from the client.
    fn channel_in_slot(
        &self,
        head: Head,
    ) -> Result<Option<sekisho_lifecycle::RequestId>, Violation> {
        match self.in_slot(head.slot) {
            _ if self.stay.asked() == Some(Manner::Forceful) => Ok(None),
            Some(id) => {
                let has_channel = self.stay.requests().get(id).is_some_and(|entry| {
                    !matches!(
                        entry.state,
                        sekisho_lifecycle::Request::Nil | sekisho_lifecycle::Request::Processing
                    )
                });
                let has_number =
                    self.lanes.get(id).is_some_and(|lane| u16::from(head.channel) < lane.channels);
                if has_channel && (head.channel == 0 || has_number) {
                    Ok(Some(id))
                } else if has_channel {
                    Err(Violation::NoSuchChannel(head.slot, head.channel))
                } else {
                    Err(Violation::OutOfOrder(head.kind, head.slot))
                }
            }
            None if self.agreed.drains_at_end => Ok(None),
            None => Err(Violation::NoSuchRequest(head.slot)),
        }
    }

    fn shutdown(&mut self, payload: &[u8], now: Moment) -> Result<Option<Event>, Violation> {
        let shutdown =
            Shutdown::decode(payload).map_err(|_| Violation::Malformed(Kind::Shutdown))?;
        let manner = if shutdown.forceful { Manner::Forceful } else { Manner::Graceful };
        let ending = Ending { reason: CloseReason::ClientAsked, code: 0, text: "as you asked" };
        self.end_by(manner, ending, now);
        Ok(None)
    }

    fn extension(
        &mut self,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Violation> {
        let asked = Extension::decode(payload).map_err(|_| Violation::Malformed(Kind::Extend))?;
        let life = self.extend(Duration::from_millis(asked.millis), now);
        let given = Extension { millis: u64::try_from(life.as_millis()).unwrap_or(u64::MAX) };
        self.put(scratch, now, |out| message::write(out, Kind::Extended, 0, &given));
        Ok(None)
    }
}
