//! Request bodies: DATA in, bytes to the shell, credit back to the client (M5).
//!
//! The connection's window is given back as bytes come, a stream's only as its handler has consumed them: one
//! stream's stall delays no other, and what waits for handlers is bounded by the number of streams times the window
//! of one.

use sekisho_http::refusal::Cause;
use sekisho_http::stream::Tunnel;
use sekisho_http::{BodyLength, Malformed, Refusal, Status};
use sekisho_lifecycle::{Moment, Stage};

use super::receive::Looked;
use super::{Http2, Reading};
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Event, Loss, Scratch, StreamId};
use crate::frame::{self, HEADER_BYTES, Header, MAX_31, WINDOW_BYTES, flag};
use crate::stream::{Closed, Fate, Output};

impl Http2 {
    /// The body is wanted, up to `max` bytes: it comes as events, after a 100 where the client waits for one (H7).
    /// An error must be answered at once.
    pub fn take_body(
        &mut self,
        id: StreamId,
        max: Option<u64>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<(), Refusal> {
        let max = max.unwrap_or(u64::MAX);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.fate != Fate::Open || stream.output != Output::Awaited {
            return Ok(());
        }
        if stream.tunnel != Tunnel::No {
            if stream.tunnel == Tunnel::Asked {
                stream.tunnel = Tunnel::Waits;
                self.events.push_back(Event::BodyEnd(id));
            }
            return Ok(());
        }
        let stored = stream.stored.len() as u64;
        if stored.saturating_add(stream.missing.unwrap_or(0)) > max {
            stream.discard();
            return Err(Cause::BodyTooLarge.into());
        }
        (stream.fate, stream.allowance) = (Fate::Taken, max - stored);
        let expects = std::mem::take(&mut stream.expects);
        self.widen_window(id);
        if expects && stored == 0 {
            self.inform(id, Status::CONTINUE, [], scratch, now);
        }
        self.list(id);
        self.await_body(id, now);
        self.put_out(scratch.out.len(), scratch, now);
        Ok(())
    }

    /// Opens the tunnel that the client asks for: the response is 200, and what the client sends comes as events about
    /// a body. Not where it does not ask, or has a response: then nothing was written.
    pub fn upgrade<'f>(
        &mut self,
        id: StreamId,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        if self.stage != Stage::Open || !stream.open_tunnel() {
            return false;
        }
        self.respond(id, Status::OK, BodyLength::Unknown, fields, scratch, now);
        self.widen_window(id);
        self.list(id);
        self.put_out(scratch.out.len(), scratch, now);
        true
    }

    /// The bytes of a stream are taken: its window is made larger, unless they are known to fit.
    fn widen_window(&mut self, id: StreamId) {
        let upload_window = self.policy(id).upload_window_bytes.min(MAX_31);
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.has_ended {
            stream.announces_end = true;
            return;
        }
        let stored = stream.stored.len() as u64;
        let needed = stream.missing.map_or(u64::from(upload_window), |missing| missing + stored);
        if needed > u64::from(stream.window) && upload_window > stream.window {
            let more = upload_window - stream.window;
            stream.window = upload_window;
            stream.receive_window = stream.receive_window.saturating_add(more).min(MAX_31);
            frame::window_update(&mut self.control, id.number, more);
        }
    }

    /// Holds the body back while the handler cannot take more of it, and lets it come again. Meanwhile the
    /// client is not late, so no deadline of the client's runs (T9).
    pub fn hold_body(&mut self, id: StreamId, held: bool, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !stream.hold(held, now) {
            return;
        }
        if !held {
            self.list(id);
        }
        self.arm_body(id, now);
    }

    /// The handler has consumed so many bytes of what it was given: the client may send as many more (M5).
    pub fn consumed(&mut self, id: StreamId, bytes: u32, scratch: &mut Scratch, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.has_ended || stream.fate != Fate::Taken {
            return;
        }
        stream.owed = stream.owed.saturating_add(bytes);
        let out = stream.window.saturating_sub(stream.receive_window);
        stream.owed = stream.owed.min(out);
        if stream.owed < stream.window / 2 {
            return;
        }
        let owed = std::mem::take(&mut stream.owed);
        stream.receive_window += owed;
        let before = scratch.out.len();
        frame::window_update(&mut scratch.out, id.number, owed);
        self.arm_body(id, now);
        self.put_out(before, scratch, now);
    }

    /// Whether body bytes of the request may still come.
    pub fn request_has_body(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| {
            stream.has_body() || (stream.tunnel == Tunnel::No && !stream.stored.is_empty())
        })
    }

    /// The declared `Content-Length` of the request, less what has come.
    pub fn body_length(&self, id: StreamId) -> Option<u64> {
        let stream = self.streams.get(id)?;
        Some(stream.missing? + stream.stored.len() as u64)
    }

    /// The next event about a body that is not in the input.
    pub(super) fn next_body_event(&mut self, scratch: &mut Scratch) -> Option<Event> {
        while let Some(&id) = self.listed.last() {
            let Some(stream) = self.streams.get_mut(id) else {
                self.listed.pop();
                continue;
            };
            if stream.fate == Fate::Taken && stream.held.is_none() {
                if !stream.stored.is_empty() {
                    scratch.body = std::mem::take(&mut stream.stored);
                    return Some(Event::Stored(id));
                }
                if std::mem::take(&mut stream.announces_end) {
                    stream.is_listed = false;
                    self.listed.pop();
                    return Some(Event::BodyEnd(id));
                }
            }
            stream.is_listed = false;
            self.listed.pop();
        }
        None
    }

    /// The stream may have an event about its body.
    pub(super) fn list(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.is_listed
        {
            stream.is_listed = true;
            self.listed.push(id);
        }
    }

    /// A DATA frame whose header has come.
    pub(super) fn begin_data(&mut self, header: Header, input: &[u8], now: Moment) -> Looked {
        match self.try_begin_data(header, input, now) {
            Ok(looked) => looked,
            Err(code) => {
                self.violation(code);
                Looked::Taken(input.len(), None)
            }
        }
    }

    fn try_begin_data(
        &mut self,
        header: Header,
        input: &[u8],
        now: Moment,
    ) -> Result<Looked, Code> {
        if header.stream == 0 || self.is_unused(header.stream) {
            return Err(Code::Protocol);
        }
        let (mut front, mut padding) = (HEADER_BYTES, 0);
        if header.has(flag::PADDED) {
            if header.len == 0 {
                return Err(Code::FrameSize);
            }
            let Some(&length) = input.get(HEADER_BYTES) else { return Ok(Looked::TooShort) };
            (front, padding) = (HEADER_BYTES + 1, length);
        }
        let rest = header.len - (front - HEADER_BYTES) as u32;
        // RFC 9113 §6.1: the padding is shorter than what it pads.
        let left = rest.checked_sub(u32::from(padding)).ok_or(Code::Protocol)?;
        // RFC 9113 §6.9: everything counts, also what is then thrown away.
        self.receive_window =
            self.receive_window.checked_sub(header.len).ok_or(Code::FlowControl)?;
        self.owed += header.len;
        self.give_window();
        let ends = header.has(flag::END_STREAM);
        if left == 0 && !ends && !self.spend(Bound::EmptyFrames, now) {
            return Ok(Looked::Taken(front, None));
        }
        let id = self.admit_data(header, left, now);
        self.reading = match id {
            Some(id) => Reading::Data { id, left, padding, ends },
            None if rest > 0 => Reading::Skip(rest),
            None => Reading::Frame,
        };
        // A frame without bytes is over here: there may be no more input to look at.
        let event = if id.is_some() && left == 0 { self.end_data(now) } else { None };
        Ok(Looked::Taken(front, event))
    }

    /// Whether bytes may come on this stream; if not, they are skipped.
    fn admit_data(&mut self, header: Header, len: u32, now: Moment) -> Option<StreamId> {
        let open = self.streams.find(header.stream);
        let Some((id, stream)) = open.and_then(|id| Some((id, self.streams.get_mut(id)?))) else {
            match self.streams.closed(header.stream) {
                Some(Closed::ByUs) => {
                    self.spend_useless(header.len, now);
                }
                _ => self.stream_violation(header.stream, Code::StreamClosed, now),
            }
            return None;
        };
        if stream.output == Output::Gone {
            let is_ours = self.streams.closed(header.stream) == Some(Closed::ByUs);
            if !is_ours {
                self.stream_violation(header.stream, Code::StreamClosed, now);
            }
            return None;
        }
        let code = if stream.has_ended {
            Code::StreamClosed
        } else if header.len > stream.receive_window {
            Code::FlowControl
        } else if stream.missing.is_some_and(|missing| missing < u64::from(len)) {
            self.events.push_back(Event::Malformed(header.stream, Malformed::LengthDiffers));
            Code::Protocol
        } else {
            stream.receive_window -= header.len;
            // Padding is not delivered, so it counts as consumed.
            stream.owed += header.len - len;
            stream.missing = stream.missing.map(|missing| missing - u64::from(len));
            return Some(id);
        };
        self.stream_violation(header.stream, code, now);
        None
    }

    /// What a client had sent before it knew of our reset is no offence, as long as it is not nothing.
    fn spend_useless(&mut self, bytes: u32, now: Moment) {
        if bytes == 0 {
            self.spend(Bound::UselessFrames, now);
        }
    }

    /// Bytes of a DATA frame.
    pub(super) fn receive_data(&mut self, input: &[u8], now: Moment) -> Looked {
        let Reading::Data { id, left, padding, ends } = self.reading else {
            return Looked::Taken(0, None);
        };
        let len = (left as usize).min(input.len());
        self.reading = Reading::Data { id, left: left - len as u32, padding, ends };
        let event = self.take_data(id, &input[..len], now);
        if len as u32 == left {
            // A later call reports the end, in its turn.
            let ended = self.end_data(now);
            return Looked::Taken(len, event.or(ended));
        }
        Looked::Taken(len, event)
    }

    fn take_data(&mut self, id: StreamId, bytes: &[u8], now: Moment) -> Option<Event> {
        let stream = self.streams.get_mut(id)?;
        match stream.fate {
            Fate::Discarded => {
                if stream.output == Output::Finished && stream.receive_window < stream.window / 2 {
                    self.refuse_rest(id);
                }
            }
            Fate::Open => stream.stored.extend_from_slice(bytes),
            Fate::Taken => {
                // To the byte, so that it makes no difference how the input is cut.
                let len = stream.allowance.min(bytes.len() as u64) as usize;
                stream.allowance -= len as u64;
                let waits = stream.held.is_some() || !stream.stored.is_empty();
                if waits {
                    stream.stored.extend_from_slice(&bytes[..len]);
                }
                self.body_came(id, len, now);
                if len < bytes.len() {
                    self.exceed_body(id);
                }
                return (!waits && len > 0).then_some(Event::Body(id, 0..len));
            }
        }
        None
    }

    /// More came than the shell will take.
    fn exceed_body(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.discard();
        if stream.output == Output::Awaited {
            self.events.push_back(Event::Refused(id, Cause::BodyTooLarge.into()));
        } else {
            self.reset_number(id.number, Code::Cancel, Loss::Violation);
        }
    }

    /// The last byte of a DATA frame has come.
    fn end_data(&mut self, now: Moment) -> Option<Event> {
        let Reading::Data { id, padding, ends, .. } = self.reading else { return None };
        self.reading = match padding {
            0 => Reading::Frame,
            padding => Reading::Skip(u32::from(padding)),
        };
        if ends {
            self.end_body(id, now);
        }
        None
    }

    /// The client has ended its side of a stream.
    pub(super) fn end_body(&mut self, id: StreamId, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.output == Output::Gone || stream.has_ended {
            return;
        }
        if stream.missing.is_some_and(|missing| missing > 0) {
            self.events.push_back(Event::Malformed(id.number, Malformed::LengthDiffers));
            self.stream_violation(id.number, Code::Protocol, now);
            return;
        }
        if stream.output == Output::Finished {
            self.streams.remove(id, Closed::Otherwise);
            return self.settle(now);
        }
        stream.has_ended = true;
        stream.expects = false;
        (stream.read_at, stream.latest) = (None, None);
        if stream.fate == Fate::Taken {
            stream.announces_end = true;
            self.list(id);
        }
    }

    /// Gives the connection's window back, in halves.
    fn give_window(&mut self) {
        let window = self.policy.connection_window_bytes.clamp(WINDOW_BYTES, MAX_31);
        if self.owed >= window / 2 {
            let owed = std::mem::take(&mut self.owed);
            self.receive_window += owed;
            frame::window_update(&mut self.control, 0, owed);
        }
    }

    /// The client has sent FIN: incomplete requests stay incomplete, and a handler that has not answered counts as lost,
    /// unless the configuration says otherwise (H11).
    pub(super) fn end_input(&mut self) {
        let half_close = self.policy.half_close;
        for (id, stream) in self.streams.iter_mut() {
            let lacks_request = !stream.has_ended && stream.fate == Fate::Taken;
            let is_lost = match stream.output {
                Output::Awaited => !stream.has_ended || !half_close,
                // No window will ever be opened again.
                Output::Exactly(left) => {
                    lacks_request || i64::try_from(left).is_ok_and(|left| left > stream.send_window)
                }
                Output::Stream => lacks_request,
                Output::Ended | Output::Finished | Output::Gone => false,
            };
            if is_lost {
                self.schedule.set_ready(id, &mut stream.place, false, false);
                stream.leave();
                self.events.push_back(Event::ClientLost(id, Loss::Connection));
            }
        }
        self.streams.remove_finished();
        if self.streams.is_empty() {
            self.header_at = None;
        }
    }
}
