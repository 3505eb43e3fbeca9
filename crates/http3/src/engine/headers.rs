//! Header blocks: requests and trailers.

use sekisho_http::compression::prefixed::write_integer;
use sekisho_http::refusal::Cause;
use sekisho_http::request::{Assembly, Message, Wrong, check_trailer};
use sekisho_http::{Malformed, Priority, Scratch, Version};
use sekisho_lifecycle::{CloseReason, Moment};

use super::Http3;
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Event, StreamId};
use crate::qpack::{Fault, Section};
use crate::stream::{Part, Reading};

impl Http3 {
    /// The header of a HEADERS frame has come.
    pub(super) fn begin_headers(
        &mut self,
        id: StreamId,
        len: u64,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        let is_long = len > self.policy.block_bytes_max as u64;
        let stream = self.streams.get_mut(id)?;
        if !is_long && len > 0 {
            stream.reading = Reading::Headers(len);
            return None;
        }
        stream.reading = Reading::Header;
        if !is_long {
            return self.receive_block(id, &[], scratch, now);
        }
        // Such a head is never read: nothing of it is known but that it is too large.
        if stream.part == Part::Body {
            self.stream_violation(id, Code::ExcessiveLoad, now);
            return None;
        }
        scratch.head.clear();
        stream.part = Part::Body;
        stream.discard();
        Some(self.give(id, Message::default(), Some(Cause::HeadTooLarge), now))
    }

    /// A header block is complete.
    pub(super) fn receive_block(
        &mut self,
        id: StreamId,
        block: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        let received = match self.streams.get(id)?.part {
            Part::Head => self.receive_request(id, block, scratch, now),
            Part::Body | Part::End => {
                self.receive_trailers(id, block, now).map(|section| (section, None))
            }
        };
        match received {
            Ok((Section::Decoded(required), event)) => {
                if required > 0 {
                    // RFC 9204 §4.4.1
                    self.decoder.note_acknowledged(required);
                    write_integer(&mut self.decoder_stream.pending, 0x80, 7, id.number);
                }
                event
            }
            Ok((Section::Blocked(required), _)) => {
                self.block_stream(id, block, required);
                None
            }
            Err(fault) => {
                self.violation(Code::DecompressionFailed, fault.message());
                None
            }
        }
    }

    /// A header block waits for entries of the dynamic table.
    fn block_stream(&mut self, id: StreamId, block: &[u8], required: u64) {
        if self.blocked.len() >= self.policy.blocked_streams_max {
            // RFC 9204 §2.1.2
            return self.violation(Code::DecompressionFailed, "too many blocked streams");
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.block = block.to_vec();
            stream.reading = Reading::Blocked(required);
            self.blocked.push(id);
        }
        self.check_blocks();
    }

    /// What a connection holds of heads is bounded, on however many streams they come.
    pub(super) fn check_blocks(&mut self) {
        if self.streams.block_bytes() > self.policy.blocks_bytes_max {
            self.exceed(Bound::HeaderBlocks);
        }
    }

    /// Looks again at a header block that was blocked.
    pub(super) fn retry_block(
        &mut self,
        id: StreamId,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        let stream = self.streams.get_mut(id)?;
        match stream.reading {
            Reading::Blocked(required) if required <= self.decoder.inserted() => {
                let block = std::mem::take(&mut stream.block);
                stream.reading = Reading::Header;
                self.blocked.retain(|other| *other != id);
                self.receive_block(id, &block, scratch, now)
            }
            _ => None,
        }
    }

    fn receive_request(
        &mut self,
        id: StreamId,
        block: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(Section, Option<Event>), Fault> {
        let common = &self.policy.common;
        let mut assembly =
            Assembly::new(&mut scratch.head, &mut self.parts, common, Version::Http3);
        let section = self.decoder.decode(block, &mut self.text, |field| assembly.take(field))?;
        let assembled = assembly.finish();
        if let Section::Blocked(_) = section {
            return Ok((section, None));
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.part = Part::Body;
        }
        let event = match assembled {
            Ok(message) => Some(self.give(id, message, None, now)),
            Err((Wrong::Refused(cause), message)) => Some(self.give(id, message, Some(cause), now)),
            Err((Wrong::Malformed(malformed), _)) => {
                self.malformed(id, malformed, now);
                None
            }
        };
        Ok((section, event))
    }

    /// The shell is given a request, or the cause why it is refused.
    fn give(
        &mut self,
        id: StreamId,
        message: Message,
        refused: Option<Cause>,
        now: Moment,
    ) -> Event {
        self.streams.give(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.begin_request(&message);
            stream.read_at = None;
            let is_updated = stream.place.priority().is_given;
            // A PRIORITY_UPDATE that came before the head says more (RFC 9218 §7).
            if message.priority != Priority::default() && !is_updated {
                self.set_priority(id, message.priority);
            }
        }
        self.requests += 1;
        (self.header_at, self.idle_at) = (None, None);
        // Each request may come with a few frames and entries about it.
        self.budget.earn(Bound::Priorities as usize, 2);
        self.budget.earn(Bound::UselessFrames as usize, 1);
        self.budget.earn(Bound::Inserts as usize, 16);
        if self.requests >= self.policy.keepalive_requests {
            self.announce_end(CloseReason::RequestsUsedUp, now);
        }
        match refused {
            None => Event::Request(id),
            Some(cause) => Event::Refused(id, cause.into()),
        }
    }

    fn receive_trailers(
        &mut self,
        id: StreamId,
        block: &[u8],
        now: Moment,
    ) -> Result<Section, Fault> {
        let mut checked = Ok(());
        let mut allowance = self.policy.head_bytes_max;
        let section = self.decoder.decode(block, &mut self.text, |field| {
            // Trailers are discarded: beyond the limit they are not even checked (V12).
            allowance = allowance.saturating_sub(field.name.len() + field.value.len());
            if checked.is_ok() && allowance > 0 {
                checked = check_trailer(field);
            }
        })?;
        if let Section::Decoded(_) = section {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.part = Part::End;
            }
            if let Err(malformed) = checked {
                self.malformed(id, malformed, now);
            }
        }
        Ok(section)
    }

    /// Resets a stream whose request is malformed; the shell gets only a line for its log.
    pub(super) fn malformed(&mut self, id: StreamId, malformed: Malformed, now: Moment) {
        self.events.push_back(Event::Malformed(id.number, malformed));
        self.stream_violation(id, Code::Message, now);
    }
}
