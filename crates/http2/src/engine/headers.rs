//! Header blocks: requests and trailers.

use sekisho_http::request::{Assembly, Message, Wrong, check_trailer};
use sekisho_http::stream::{RequestState, Tunnel};
use sekisho_http::{Malformed, Place, Version};
use sekisho_lifecycle::{CloseReason, Moment};

use super::{Block, Drain, Http2};
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Event, Loss, Scratch};
use crate::frame::{self, Header, MAX_31, WINDOW_BYTES, flag};
use crate::stream::{Closed, Output, Stream};

impl Http2 {
    pub(super) fn receive_headers(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Code> {
        if header.stream.is_multiple_of(2) {
            return Err(Code::Protocol);
        }
        let mut fragment = payload;
        let mut padding = 0;
        if header.has(flag::PADDED) {
            let (&first, rest) = fragment.split_first().ok_or(Code::FrameSize)?;
            (padding, fragment) = (usize::from(first), rest);
        }
        let mut depends_on_itself = false;
        if header.has(flag::PRIORITY) {
            let dependency = frame::number(fragment, 0).ok_or(Code::FrameSize)? & MAX_31;
            depends_on_itself = dependency == header.stream;
            fragment = fragment.get(5..).ok_or(Code::FrameSize)?;
        }
        // V13: after each optional part, what is left is looked at again.
        let len = fragment.len().checked_sub(padding).ok_or(Code::Protocol)?;
        let fragment = &fragment[..len];
        let block = Block {
            stream: header.stream,
            ends: header.has(flag::END_STREAM),
            depends_on_itself,
            frames: 1,
        };
        if header.has(flag::END_HEADERS) {
            return self.receive_block(block, fragment, scratch, now);
        }
        if fragment.is_empty() && !self.spend(Bound::EmptyFrames, now) {
            return Ok(None);
        }
        scratch.work.block.clear();
        scratch.work.block.extend_from_slice(fragment);
        self.block = Some(block);
        // One deadline for the whole block, which the frames of it do not push.
        self.await_frame(now);
        Ok(None)
    }

    pub(super) fn receive_continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Code> {
        let Some(block) = &mut self.block else { return Err(Code::Protocol) };
        block.frames += 1;
        let block = *block;
        let is_end = header.has(flag::END_HEADERS);
        // V9: counted before anything is decoded.
        if block.frames > self.policy.block_frames_max
            || scratch.work.block.len() + payload.len() > self.policy.block_bytes_max
        {
            self.exceed(Bound::HeaderBlock);
            return Ok(None);
        }
        if payload.is_empty() && !is_end && !self.spend(Bound::EmptyFrames, now) {
            return Ok(None);
        }
        scratch.work.block.extend_from_slice(payload);
        if !is_end {
            return Ok(None);
        }
        self.block = None;
        let fragment = std::mem::take(&mut scratch.work.block);
        let event = self.receive_block(block, &fragment, scratch, now);
        scratch.work.block = fragment;
        event
    }

    fn receive_block(
        &mut self,
        block: Block,
        fragment: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Code> {
        if block.stream <= self.last {
            let open = self.streams.find(block.stream).and_then(|id| self.streams.get(id));
            let is_gone = open.map(|stream| stream.output == Output::Gone);
            return match (is_gone, self.streams.closed(block.stream)) {
                (Some(false), _) => self.receive_trailers(block, fragment, scratch, now),
                (_, Some(Closed::Otherwise)) => Err(Code::StreamClosed),
                (Some(true), None) | (_, Some(Closed::ByUs)) => self.skip_block(fragment, scratch),
                // RFC 9113 §5.1.1: numbers rise.
                (None, None) => Err(Code::Protocol),
            }
            .map(|()| None);
        }
        self.last = block.stream;
        if let Drain::Final(..) = self.drain {
            // GOAWAY told the client that this stream would not be processed.
            self.streams.note_closed(block.stream, Closed::ByUs);
            return self.skip_block(fragment, scratch).map(|()| None);
        }
        self.receive_request(block, fragment, scratch, now)
    }

    fn receive_request(
        &mut self,
        block: Block,
        fragment: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Code> {
        let mut text = std::mem::take(&mut scratch.work.text);
        let parts = &mut scratch.work.parts;
        let mut assembly =
            Assembly::new(&mut scratch.head, parts, &self.policy.common, Version::Http2);
        let decoded = self.decoder.decode(fragment, &mut text, |field| assembly.take(field));
        let assembled = assembly.finish();
        scratch.work.text = text;
        decoded.map_err(|_| Code::Compression)?;
        if self.streams.len() >= self.streams_max() {
            // RFC 9113 §5.1.2: it has not been looked at, so that the client may ask again.
            if self.spend(Bound::RefusedStreams, now) {
                self.reset_number(block.stream, Code::RefusedStream, Loss::Violation);
            }
            return Ok(None);
        }
        let (message, refused) = match assembled {
            Ok(message) if !block.depends_on_itself => (message, None),
            Err((Wrong::Refused(cause), message)) if !block.depends_on_itself => {
                (message, Some(cause))
            }
            Err((Wrong::Malformed(malformed), _)) => {
                return Ok(Some(self.malformed(block.stream, malformed, now)));
            }
            _ => return Ok(Some(self.malformed(block.stream, Malformed::DependsOnItself, now))),
        };
        if block.ends && message.length.is_some_and(|length| length > 0) {
            return Ok(Some(self.malformed(block.stream, Malformed::LengthDiffers, now)));
        }
        let stream = self.new_stream(block, message);
        let id = self.streams.insert(block.stream, stream);
        self.requests += 1;
        self.stream_opened();
        // Each request may come with a few frames about it.
        self.budget.earn(Bound::Priorities as usize, 2);
        self.budget.earn(Bound::UselessFrames as usize, 1);
        if self.requests >= self.policy.keepalive_requests {
            self.announce_end(CloseReason::RequestsUsedUp, now);
        }
        Ok(Some(match refused {
            None => Event::Request(id),
            Some(cause) => Event::Refused(id, cause.into()),
        }))
    }

    fn streams_max(&self) -> usize {
        (self.policy.streams_max as usize).min(usize::from(u16::MAX) - 1)
    }

    fn new_stream(&self, block: Block, message: Message) -> Stream {
        let window = self.stream_window;
        let mut request = RequestState {
            has_ended: block.ends,
            place: Place::new(u64::from(block.stream), message.priority),
            ..RequestState::new(u64::from(block.stream))
        };
        request.begin_request(&message);
        Stream {
            request,
            send_window: i64::from(self.peer_window),
            // Until the client knows our SETTINGS it goes by the default.
            receive_window: if self.is_acknowledged { window } else { window.max(WINDOW_BYTES) },
            window,
            ..Stream::new(block.stream)
        }
    }

    /// Resets a stream whose request is malformed; the shell gets only a line for its log.
    fn malformed(&mut self, number: u32, malformed: Malformed, now: Moment) -> Event {
        self.stream_violation(number, Code::Protocol, now);
        Event::Malformed(number, malformed)
    }

    fn receive_trailers(
        &mut self,
        block: Block,
        fragment: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Code> {
        let mut checked = Ok(());
        let mut allowance = self.policy.head_bytes_max;
        self.decoder
            .decode(fragment, &mut scratch.work.text, |field| {
                // Trailers are discarded: beyond the limit they are not even checked (V12).
                allowance = allowance.saturating_sub(field.name.len() + field.value.len());
                if checked.is_ok() && allowance > 0 {
                    checked = check_trailer(field);
                }
            })
            .map_err(|_| Code::Compression)?;
        let Some(id) = self.streams.find(block.stream) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.has_ended {
            self.stream_violation(block.stream, Code::StreamClosed, now);
            return Ok(());
        }
        let malformed = match checked {
            Err(malformed) => malformed,
            Ok(()) if stream.tunnel != Tunnel::No => Malformed::TrailersInTunnel,
            Ok(()) if block.depends_on_itself => Malformed::DependsOnItself,
            Ok(()) if !block.ends => Malformed::TrailersWithoutEnd,
            Ok(()) => {
                self.end_body(id, now);
                return Ok(());
            }
        };
        let event = self.malformed(block.stream, malformed, now);
        self.events.push_back(event);
        Ok(())
    }

    /// Decodes a block and discards its fields: the HPACK tables of both sides must stay in step.
    fn skip_block(&mut self, fragment: &[u8], scratch: &mut Scratch) -> Result<(), Code> {
        self.decoder.decode(fragment, &mut scratch.work.text, |_| {}).map_err(|_| Code::Compression)
    }
}
