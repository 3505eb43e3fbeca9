//! The receiving half: frames into events, one at a time.

use sekisho_http::upstream::{BodyFault, Event, Failure, HeadFault, NotReusable, Scratch, Span};
use sekisho_lifecycle::{CloseReason, Moment, Step};

use super::response::{Assembly, Trailers};
use super::{
    Block, Client, INFORMATIONAL_MAX, Input, Output, RECEIVE_WINDOW_BYTES, Reading, bad_frame,
    bad_head,
};
use crate::budget::Bound;
use crate::code::Code;
use crate::frame::{self, HEADER_BYTES, Header, Kind, MAX_31, PAYLOAD_BYTES_MAX, flag, setting};

/// In how many frames one header block may come.
const BLOCK_FRAMES_MAX: u32 = 128;
/// How much longer a header block may be than the head that it makes.
const BLOCK_SPARE_BYTES: usize = 4 * 1024;

/// The result of looking at the front of the input.
enum Looked {
    /// So many bytes were taken, and perhaps something happened.
    Taken(usize, Option<Event>),
    /// More bytes are needed.
    TooShort,
}

impl Client {
    pub(super) fn step(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if !self.is_greeted && !input.is_empty() {
            // A server may speak first; what we answer comes behind our preface all the same.
            self.greet(&mut scratch.out);
            self.timers.wrote(now);
        }
        let mut at = 0;
        loop {
            if self.input == Input::Complete {
                let event = Some(self.complete(scratch, now));
                return Step { taken: at, event };
            }
            if at >= input.len() {
                return Step { taken: at, event: None };
            }
            match self.look(&input[at..], scratch, now) {
                Ok(Looked::TooShort) => return Step { taken: at, event: None },
                Ok(Looked::Taken(taken, event)) => {
                    let event = event.map(|event| shifted(event, at));
                    at += taken;
                    if event.is_some() {
                        return Step { taken: at, event };
                    }
                }
                Err(failure) => {
                    let event = self.fail(failure, CloseReason::OutOfSync);
                    return Step { taken: input.len(), event };
                }
            }
        }
    }

    fn look(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Looked, Failure> {
        match self.reading {
            Reading::Frame => self.look_at_frame(input, scratch, now),
            Reading::Data { left, padding, ends } => {
                Ok(self.receive_data(input, (left, padding, ends), now))
            }
            Reading::Skip(left) => {
                let taken = (left as usize).min(input.len());
                self.reading = match left - taken as u32 {
                    0 => Reading::Frame,
                    left => Reading::Skip(left),
                };
                Ok(Looked::Taken(taken, None))
            }
        }
    }

    fn look_at_frame(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Looked, Failure> {
        let Some(header) = Header::read(input) else { return Ok(Looked::TooShort) };
        if header.len > PAYLOAD_BYTES_MAX {
            return Err(bad_frame());
        }
        // RFC 9113 §6.10: nothing else while a header block is not complete.
        match self.block {
            Some(block) if header.kind != Kind::Continuation || header.stream != block.stream => {
                return Err(bad_frame());
            }
            None if header.kind == Kind::Continuation => return Err(bad_frame()),
            _ => {}
        }
        match header.kind {
            Kind::Data => return self.begin_data(header, input, scratch, now),
            Kind::Unknown => {
                self.spend(Bound::UselessFrames, now)?;
                self.skip(header.len);
                return Ok(Looked::Taken(HEADER_BYTES, None));
            }
            _ => {}
        }
        let end = HEADER_BYTES + header.len as usize;
        let Some(payload) = input.get(HEADER_BYTES..end) else { return Ok(Looked::TooShort) };
        let event = match header.kind {
            Kind::Headers => self.receive_headers(header, payload, scratch, now)?,
            Kind::Continuation => self.receive_continuation(header, payload, scratch, now)?,
            Kind::RstStream => self.receive_reset(header, payload, now)?,
            Kind::GoAway => self.receive_go_away(header, payload, now)?,
            Kind::Settings => self.receive_settings(header, payload, scratch, now)?,
            Kind::Ping => self.receive_ping(header, payload, scratch, now)?,
            Kind::WindowUpdate => self.receive_window_update(header, payload, scratch, now)?,
            Kind::Priority | Kind::PriorityUpdate => {
                self.spend(Bound::Priorities, now)?;
                None
            }
            // Push is switched off by our SETTINGS.
            Kind::PushPromise => return Err(bad_frame()),
            // Handled before, since their payload need not be complete.
            Kind::Data | Kind::Unknown => None,
        };
        Ok(Looked::Taken(end, event))
    }

    const fn skip(&mut self, bytes: u32) {
        self.reading = if bytes == 0 { Reading::Frame } else { Reading::Skip(bytes) };
    }

    /// Whether frames of this stream are about the present exchange. An error for a stream that was never opened.
    fn is_present(&self, stream: u32) -> Result<bool, Failure> {
        if stream == 0 || stream.is_multiple_of(2) || stream > self.stream {
            return Err(bad_frame());
        }
        let is_under_way = matches!(self.input, Input::Head | Input::Body(_));
        Ok(stream == self.stream && is_under_way)
    }

    fn begin_data(
        &mut self,
        header: Header,
        input: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Looked, Failure> {
        let mut taken = HEADER_BYTES;
        let (mut left, mut padding) = (header.len, 0);
        if header.has(flag::PADDED) && header.len > 0 {
            let Some(&first) = input.get(HEADER_BYTES) else { return Ok(Looked::TooShort) };
            taken += 1;
            padding = u32::from(first);
            left = (header.len - 1).checked_sub(padding).ok_or_else(bad_frame)?;
        } else if header.has(flag::PADDED) {
            return Err(bad_frame());
        }
        let is_present = self.is_present(header.stream)?;
        let ends = header.has(flag::END_STREAM);
        self.count_received(header.len, is_present && !ends, scratch, now)?;
        if !is_present {
            self.spend(Bound::UselessFrames, now)?;
            self.skip(left + padding);
            return Ok(Looked::Taken(taken, None));
        }
        let Input::Body(missing) = &mut self.input else { return Err(bad_frame()) };
        if let Some(missing) = missing {
            let rest = missing.checked_sub(u64::from(left));
            *missing = rest.ok_or(Failure::BadBody(BodyFault::TooLong))?;
        }
        if left == 0 && !ends {
            self.spend(Bound::EmptyFrames, now)?;
        }
        if ends && matches!(self.input, Input::Body(Some(1..))) {
            return Err(Failure::BodyCut);
        }
        self.reading = Reading::Data { left, padding, ends };
        if left + padding == 0 {
            self.end_data(ends, now);
        }
        Ok(Looked::Taken(taken, None))
    }

    /// Takes a frame's bytes out of the windows and gives them back in time: what has come is handed on at once, and an
    /// answer that is held back is not read.
    fn count_received(
        &mut self,
        len: u32,
        is_stream_open: bool,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Failure> {
        const OVERRUN: Failure = Failure::BadBody(BodyFault::FlowControl);
        self.receive_window = self.receive_window.checked_sub(len).ok_or(OVERRUN)?;
        self.owed += len;
        if self.owed >= RECEIVE_WINDOW_BYTES / 2 {
            let owed = std::mem::take(&mut self.owed);
            self.receive_window += owed;
            frame::window_update(&mut scratch.out, 0, owed);
            self.timers.wrote(now);
        }
        if !is_stream_open {
            return Ok(());
        }
        self.stream_receive_window = self.stream_receive_window.checked_sub(len).ok_or(OVERRUN)?;
        self.stream_owed += len;
        if self.stream_owed >= RECEIVE_WINDOW_BYTES / 2 {
            let owed = std::mem::take(&mut self.stream_owed);
            self.stream_receive_window += owed;
            frame::window_update(&mut scratch.out, self.stream, owed);
            self.timers.wrote(now);
        }
        Ok(())
    }

    fn receive_data(
        &mut self,
        input: &[u8],
        (left, padding, ends): (u32, u32, bool),
        now: Moment,
    ) -> Looked {
        if left > 0 {
            let taken = (left as usize).min(input.len());
            let left = left - taken as u32;
            self.reading = Reading::Data { left, padding, ends };
            self.rearm(true, now);
            if left + padding == 0 {
                self.end_data(ends, now);
            }
            return Looked::Taken(taken, Some(Event::Body((0..taken).into())));
        }
        let taken = (padding as usize).min(input.len());
        let padding = padding - taken as u32;
        self.reading = Reading::Data { left, padding, ends };
        if padding == 0 {
            self.end_data(ends, now);
        }
        Looked::Taken(taken, None)
    }

    /// All of a DATA frame has come.
    fn end_data(&mut self, ends: bool, now: Moment) {
        self.reading = Reading::Frame;
        if ends {
            self.input = Input::Complete;
        }
        self.rearm(ends, now);
    }

    fn receive_headers(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let mut fragment = payload;
        let mut padding = 0;
        if header.has(flag::PADDED) {
            let (&first, rest) = fragment.split_first().ok_or_else(bad_frame)?;
            (padding, fragment) = (usize::from(first), rest);
        }
        if header.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or_else(bad_frame)?;
        }
        let len = fragment.len().checked_sub(padding).ok_or_else(bad_frame)?;
        let fragment = &fragment[..len];
        let ends = header.has(flag::END_STREAM);
        let block = Block { stream: header.stream, ends, frames: 1 };
        if header.has(flag::END_HEADERS) {
            return self.receive_block(block, fragment, scratch, now);
        }
        self.block_bytes.clear();
        self.block_bytes.extend_from_slice(fragment);
        self.block = Some(block);
        Ok(None)
    }

    fn receive_continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let Some(block) = &mut self.block else { return Err(bad_frame()) };
        block.frames += 1;
        let block = *block;
        // V9: counted before anything is decoded.
        if block.frames > BLOCK_FRAMES_MAX
            || self.block_bytes.len() + payload.len()
                > self.limits.head_bytes_max.saturating_add(BLOCK_SPARE_BYTES)
        {
            return Err(bad_head(HeadFault::TooLarge));
        }
        self.block_bytes.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            return Ok(None);
        }
        self.block = None;
        let fragment = std::mem::take(&mut self.block_bytes);
        self.receive_block(block, &fragment, scratch, now)
    }

    fn receive_block(
        &mut self,
        block: Block,
        fragment: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let is_present = self.is_present(block.stream)?;
        if is_present && !self.is_sent {
            // It must not become the answer to a request that has not been sent yet.
            return Err(bad_head(HeadFault::Unsolicited));
        }
        match self.input {
            Input::Head if is_present => self.receive_head(block, fragment, scratch, now),
            Input::Body(missing) if is_present => {
                if !block.ends {
                    return Err(Failure::BadBody(BodyFault::Trailer));
                }
                let mut trailers = Trailers::new(&mut scratch.trailers, self.limits);
                let decoded =
                    self.decoder.decode(fragment, &mut self.text, |field| trailers.take(field));
                let checked = trailers.finish();
                decoded.map_err(|_| bad_head(HeadFault::Block))?;
                checked.map_err(|_| Failure::BadBody(BodyFault::Trailer))?;
                if missing.is_some_and(|missing| missing > 0) {
                    return Err(Failure::BodyCut);
                }
                self.input = Input::Complete;
                self.rearm(true, now);
                Ok(None)
            }
            _ => {
                // Late for a stream that is over: the tables of both sides must stay in step.
                self.spend(Bound::UselessFrames, now)?;
                let decoded = self.decoder.decode(fragment, &mut self.text, |_| {});
                decoded.map_err(|_| bad_head(HeadFault::Block))?;
                Ok(None)
            }
        }
    }

    fn receive_head(
        &mut self,
        block: Block,
        fragment: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        self.is_answered = true;
        let mut assembly = Assembly::new(&mut scratch.head, self.limits);
        let decoded = self.decoder.decode(fragment, &mut self.text, |field| assembly.take(field));
        let assembled = assembly.finish();
        decoded.map_err(|_| bad_head(HeadFault::Block))?;
        assembled.map_err(bad_head)?;
        let head = &mut scratch.head;
        match head.status.code() {
            // RFC 9113 §8.6: there is no such thing in HTTP/2.
            101 => return Err(bad_head(HeadFault::UpgradeUnasked)),
            100..200 => {
                if block.ends || head.content_length.is_some_and(|length| length > 0) {
                    return Err(bad_head(HeadFault::InformationalBody));
                }
                if self.informational == INFORMATIONAL_MAX {
                    return Err(bad_head(HeadFault::TooManyInformational));
                }
                self.informational += 1;
                self.rearm(true, now);
                return Ok(Some(Event::Informational));
            }
            _ => {}
        }
        scratch.trailers.clear();
        let may_have_body = !self.is_head && !head.status.is_bodyless();
        head.has_body = may_have_body && !block.ends && head.content_length != Some(0);
        if block.ends {
            // RFC 9113 §8.1.1: a length without a body is malformed, unless there can be none.
            if may_have_body && head.content_length.is_some_and(|length| length > 0) {
                return Err(Failure::BodyCut);
            }
            self.input = Input::Complete;
        } else {
            let missing = if may_have_body { head.content_length } else { Some(0) };
            self.input = Input::Body(missing);
        }
        self.rearm(true, now);
        Ok(Some(Event::Head))
    }

    fn receive_reset(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let code = <[u8; 4]>::try_from(payload).map_err(|_| bad_frame())?;
        if !self.is_present(header.stream)? {
            self.spend(Bound::UselessFrames, now)?;
            return Ok(None);
        }
        let code = u32::from_be_bytes(code);
        let failure = if code == Code::RefusedStream.number() && !self.is_answered {
            Failure::NotTaken
        } else {
            Failure::Rejected(code)
        };
        Ok(self.end_stream_by_reset(failure))
    }

    /// The exchange is over without a whole answer. The connection is not used again: what made the server reset one
    /// stream may well hold for the next.
    fn end_stream_by_reset(&mut self, failure: Failure) -> Option<Event> {
        self.fail(failure, CloseReason::PeerClosedEarly)
    }

    fn receive_go_away(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let last = frame::number(payload, 0).ok_or_else(bad_frame)? & MAX_31;
        if header.stream != 0 || payload.len() < 8 {
            return Err(bad_frame());
        }
        self.spend(Bound::UselessFrames, now)?;
        self.not_reusable = self.not_reusable.or(Some(NotReusable::PeerAsked));
        match self.input {
            Input::Idle => {
                self.close(NotReusable::PeerAsked, CloseReason::PeerClosed);
                Ok(None)
            }
            // RFC 9113 §6.8: it was not and will not be processed.
            Input::Head | Input::Body(_) if self.stream > last => {
                let failure = if self.is_answered { bad_frame() } else { Failure::NotTaken };
                Ok(self.fail(failure, CloseReason::PeerClosedEarly))
            }
            _ => Ok(None),
        }
    }

    fn receive_settings(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        if header.stream != 0 || (header.has(flag::ACK) && !payload.is_empty()) {
            return Err(bad_frame());
        }
        self.spend(Bound::Settings, now)?;
        if header.has(flag::ACK) {
            return Ok(None);
        }
        if !payload.len().is_multiple_of(6) {
            return Err(bad_frame());
        }
        for pair in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([pair[0], pair[1]]);
            let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
            self.set(id, value)?;
        }
        self.unblock(scratch, now);
        frame::header(&mut scratch.out, 0, Kind::Settings, flag::ACK, 0);
        self.timers.wrote(now);
        Ok(None)
    }

    fn set(&mut self, id: u16, value: u32) -> Result<(), Failure> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.set_peer_max(value),
            setting::MAX_CONCURRENT_STREAMS => self.peer_streams_max = value,
            setting::INITIAL_WINDOW_SIZE => {
                if value > MAX_31 {
                    return Err(bad_frame());
                }
                // RFC 9113 §6.9.2: a window may become negative by this, but not too large.
                self.stream_send_window += i64::from(value) - i64::from(self.peer_window);
                self.peer_window = value;
                if self.stream_send_window > i64::from(MAX_31) {
                    return Err(bad_frame());
                }
            }
            setting::MAX_FRAME_SIZE => {
                if !(PAYLOAD_BYTES_MAX..=0xff_ffff).contains(&value) {
                    return Err(bad_frame());
                }
                self.peer_frame_bytes_max = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn receive_ping(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let opaque = <[u8; 8]>::try_from(payload).map_err(|_| bad_frame())?;
        if header.stream != 0 {
            return Err(bad_frame());
        }
        self.spend(Bound::Pings, now)?;
        if !header.has(flag::ACK) {
            frame::ping(&mut scratch.out, flag::ACK, opaque);
            self.timers.wrote(now);
        }
        Ok(None)
    }

    fn receive_window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Failure> {
        let increment = <[u8; 4]>::try_from(payload).map_err(|_| bad_frame())?;
        let increment = i64::from(u32::from_be_bytes(increment) & MAX_31);
        self.spend(Bound::WindowUpdates, now)?;
        let window = if header.stream == 0 {
            &mut self.send_window
        } else if self.is_present(header.stream)? {
            &mut self.stream_send_window
        } else {
            return Ok(None);
        };
        *window += increment;
        if increment == 0 || *window > i64::from(MAX_31) {
            return Err(bad_frame());
        }
        self.unblock(scratch, now);
        Ok(None)
    }

    /// Body bytes that waited for a window may be offered again: the upstream has done its part.
    fn unblock(&mut self, scratch: &Scratch, now: Moment) {
        if self.is_blocked && self.send_window.min(self.stream_send_window) > 0 {
            self.is_blocked = false;
            self.timers.transmitted(1, !scratch.out.is_empty(), now);
            debug_assert!(self.output != Output::Done);
        }
    }
}

/// The same event, in an input that begins so many bytes earlier.
fn shifted(event: Event, by: usize) -> Event {
    match event {
        Event::Body(Span { start, end }) => Event::Body(Span { start: start + by, end: end + by }),
        other => other,
    }
}
