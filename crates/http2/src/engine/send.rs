//! The sending half: responses into frames, and which stream's turn it is.

use sekisho_http::response::{is_response_field, with_lower_name};
use sekisho_http::stream::Tunnel;
use sekisho_http::{BodyLength, Sends, Status};
use sekisho_lifecycle::{Moment, Stage};

use super::Http2;
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Scratch, StreamId};
use crate::frame::{self, HEADER_BYTES, Header, Kind, flag};
use crate::stream::{Closed, Fate, Output, Stream};

/// Which stream may send, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sendable {
    /// The stream.
    pub id: StreamId,
    /// The longest DATA frame that it may send now; never 0.
    pub bytes_max: usize,
}

impl Http2 {
    /// Writes the head of the response to `scratch.out` and returns how its body is sent. A second
    /// response, or one for a stream that is over, is not written. Fields about the connection or the length
    /// of the body are left out: the engine writes them.
    pub fn respond<'f>(
        &mut self,
        id: StreamId,
        status: Status,
        length: BodyLength,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Sends {
        if self.stage != Stage::Open {
            return Sends::Nothing;
        }
        let Some(stream) = self.streams.get_mut(id) else { return Sends::Nothing };
        let Some(begun) = stream.begin_response(status, length) else { return Sends::Nothing };
        if !stream.has_ended && stream.fate != Fate::Taken {
            stream.discard();
        }
        let before = scratch.out.len();
        let ends = begun.sends == Sends::Nothing;
        let flags = if ends { flag::END_STREAM } else { 0 };
        self.write_block(id, flags, scratch, |engine, out| {
            engine.encoder.status(begun.status, out);
            if let Some(length) = begun.declared {
                let mut digits = itoa::Buffer::new();
                let digits = digits.format(length).as_bytes();
                engine.encoder.field(b"content-length", digits, out);
            }
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
        });
        self.put_out(before, scratch, now);
        if ends {
            self.leaving.push_back((self.written, id));
        }
        begun.sends
    }

    /// Writes an informational head: 100, 103. Any number of them may come before the response.
    pub fn inform<'f>(
        &mut self,
        id: StreamId,
        status: Status,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        let is_awaited =
            self.streams.get(id).is_some_and(|stream| stream.output == Output::Awaited);
        // RFC 9113 §8.6: there is no 101 here.
        if !is_awaited || !matches!(status.code(), 100 | 102..=199) || self.stage != Stage::Open {
            return;
        }
        let before = scratch.out.len();
        self.write_block(id, 0, scratch, |engine, out| {
            engine.encoder.status(status, out);
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
        });
        self.put_out(before, scratch, now);
    }

    /// Whether the shell has body bytes of this stream to send: only such streams have their turn.
    pub fn set_ready(&mut self, id: StreamId, is_ready: bool, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !is_ready || !stream.is_sending() {
            stream.send_at = None;
            return self.unready(id);
        }
        if !stream.place.is_ready() {
            let is_able = stream.send_window > 0;
            self.schedule.set_ready(id, &mut stream.place, true, is_able);
            self.watch_window(id, now);
        }
    }

    /// The stream that has its turn to send. The same until it has sent or is not ready any more.
    ///
    /// Streams of a lower urgency number go first. Among equals, the first of those that the client wants one after
    /// the other takes turns with all those that may share the connection (RFC 9218 §10).
    pub fn next_sendable(&self) -> Option<Sendable> {
        if self.send_window <= 0 || self.stage != Stage::Open {
            return None;
        }
        let id = self.schedule.next(|id| Some(&self.streams.get(id)?.place))?;
        let stream = self.streams.get(id)?;
        Some(Sendable { id, bytes_max: self.quota_of(stream) })
    }

    /// How long a DATA frame this stream may send now, regardless of turns: a short body can leave
    /// together with its head.
    pub fn quota(&self, id: StreamId) -> usize {
        self.streams.get(id).map_or(0, |stream| self.quota_of(stream))
    }

    fn quota_of(&self, stream: &Stream) -> usize {
        let window = self.send_window.min(stream.send_window).max(0) as u64;
        let policy = stream.policy.as_ref().unwrap_or(&self.policy);
        let frame = policy.chunk_bytes.clamp(1, self.peer_frame_bytes_max);
        window.min(u64::from(frame)).min(stream.unsent()) as usize
    }

    /// Sends body bytes, as many as the windows allow; says how many. The last byte of a body of known length ends
    /// the stream; what goes beyond that length is cut.
    pub fn body(
        &mut self,
        id: StreamId,
        bytes: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let len = self.quota(id).min(bytes.len() - taken);
            if len == 0 {
                break;
            }
            let at = self.open_frame(scratch);
            scratch.out.extend_from_slice(&bytes[taken..taken + len]);
            self.close_frame(id, at, scratch, now);
            taken += len;
        }
        taken
    }

    /// Makes room for the header of a DATA frame. The caller puts body bytes behind it, no more than
    /// [`quota`](Self::quota), and closes the frame.
    pub fn open_frame(&self, scratch: &mut Scratch) -> usize {
        let at = scratch.out.len();
        scratch.out.extend_from_slice(&[0; HEADER_BYTES]);
        at
    }

    /// Ends a DATA frame that begins at `at` in the output: everything behind its header is its body. One that may
    /// not be sent, or is empty, is taken back.
    pub fn close_frame(&mut self, id: StreamId, at: usize, scratch: &mut Scratch, now: Moment) {
        let Some(len) = scratch.out.len().checked_sub(at + HEADER_BYTES) else { return };
        let quota = self.quota(id);
        debug_assert!(len <= quota || quota == 0, "a frame of {len} bytes for a quota of {quota}");
        if len == 0 || len > quota {
            return scratch.out.truncate(at);
        }
        let header = self.data_header(id, len as u32, now);
        if let Some(place) = scratch.out.get_mut(at..at + HEADER_BYTES) {
            place.copy_from_slice(&header.to_bytes());
        }
        self.put_out(at, scratch, now);
        self.note_end(id);
    }

    /// Writes the header of a DATA frame whose body, no longer than [`quota`](Self::quota), the shell sends itself
    /// when all output before it has left.
    pub fn file_frame(
        &mut self,
        id: StreamId,
        len: usize,
        scratch: &mut Scratch,
        now: Moment,
    ) -> bool {
        if len == 0 || len > self.quota(id) {
            return false;
        }
        // Nothing may come between the header and its body.
        self.put_out(scratch.out.len(), scratch, now);
        let header = self.data_header(id, len as u32, now);
        scratch.out.extend_from_slice(&header.to_bytes());
        self.written += (HEADER_BYTES + len) as u64;
        self.note_unsent(now);
        self.note_end(id);
        true
    }

    /// Takes the bytes of a DATA frame out of the windows; its header.
    fn data_header(&mut self, id: StreamId, len: u32, now: Moment) -> Header {
        self.send_window -= i64::from(len);
        let mut flags = 0;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send_window -= i64::from(len);
            self.schedule.has_sent(id, &mut stream.request.place, stream.send_window > 0);
            stream.progress = stream.progress.saturating_add(len);
            if stream.has_sent(u64::from(len)) {
                flags = flag::END_STREAM;
            }
        }
        self.progress = self.progress.saturating_add(len);
        // Each frame may be acknowledged on its stream and on the connection.
        self.budget.earn(Bound::WindowUpdates as usize, 2);
        if flags != 0 {
            self.set_ready(id, false, now);
        } else {
            self.watch_window(id, now);
        }
        Header { len, kind: Kind::Data, flags, stream: id.number }
    }

    /// If the response has just been written to its end, notes where that is.
    fn note_end(&mut self, id: StreamId) {
        if self.streams.get(id).is_some_and(|stream| stream.output == Output::Ended) {
            self.leaving.push_back((self.written, id));
        }
    }

    /// Ends a response of unknown length with trailers. Any other has ended already, or is not there.
    pub fn trailers<'f>(
        &mut self,
        id: StreamId,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        scratch: &mut Scratch,
        now: Moment,
    ) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.output != Output::Stream || self.stage != Stage::Open {
            return;
        }
        stream.output = Output::Ended;
        self.set_ready(id, false, now);
        let before = scratch.out.len();
        self.write_block(id, flag::END_STREAM, scratch, |engine, out| {
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
        });
        self.put_out(before, scratch, now);
        self.leaving.push_back((self.written, id));
    }

    /// The handler is done: the stream is over. A response that is shorter than it said, or was never given, is cut
    /// visibly; an unfinished request body is refused with NO_ERROR (M3).
    pub fn finish(&mut self, id: StreamId, scratch: &mut Scratch, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.output {
            Output::Awaited | Output::Exactly(_) => {
                return self.reset(id, Code::Internal, scratch, now);
            }
            Output::Stream => {
                stream.output = Output::Ended;
                if self.stage == Stage::Open {
                    let before = scratch.out.len();
                    frame::header(&mut scratch.out, 0, Kind::Data, flag::END_STREAM, id.number);
                    self.put_out(before, scratch, now);
                }
                self.leaving.push_back((self.written, id));
            }
            Output::Ended | Output::Gone => {}
            Output::Finished => return,
        }
        let Some(stream) = self.streams.get(id) else { return };
        if stream.output == Output::Ended && !stream.has_ended {
            self.unready(id);
            return self.await_end(id, scratch, now);
        }
        self.remove(id, scratch, now);
    }

    /// The response is complete and the request is not. A short rest of it may come; a long one is refused (M3).
    fn await_end(&mut self, id: StreamId, scratch: &mut Scratch, now: Moment) {
        let Some(stream) = self.streams.get(id) else { return };
        // Nothing can come through a window that is closed.
        let is_long = stream.expects
            || matches!(stream.tunnel, Tunnel::Asked | Tunnel::Waits)
            || stream.receive_window == 0
            || stream.missing.is_some_and(|missing| missing > u64::from(stream.receive_window));
        self.streams.finish(id);
        if is_long {
            self.refuse_rest(id);
        } else {
            self.arm_rest(id, now);
        }
        self.put_out(scratch.out.len(), scratch, now);
        self.settle(now);
    }

    /// Refuses the rest of a request whose response is complete (RFC 9113 §8.1).
    pub(super) fn refuse_rest(&mut self, id: StreamId) {
        frame::rst_stream(&mut self.control, id.number, Code::NoError.number());
        self.streams.remove(id, Closed::ByUs);
    }

    /// The stream is over without a complete response: it is reset, unless the client has done so.
    pub fn reset(&mut self, id: StreamId, code: Code, scratch: &mut Scratch, now: Moment) {
        let Some(stream) = self.streams.get(id) else { return };
        let is_over = match stream.output {
            Output::Finished => return,
            Output::Gone => true,
            Output::Ended => stream.has_ended,
            Output::Awaited | Output::Exactly(_) | Output::Stream => false,
        };
        if !is_over {
            frame::rst_stream(&mut self.control, id.number, code.number());
            self.streams.note_closed(id.number, Closed::ByUs);
        }
        self.remove(id, scratch, now);
    }

    fn remove(&mut self, id: StreamId, scratch: &mut Scratch, now: Moment) {
        self.unready(id);
        self.streams.remove(id, Closed::Otherwise);
        self.put_out(scratch.out.len(), scratch, now);
        self.settle(now);
    }

    pub(super) fn unready(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.schedule.set_ready(id, &mut stream.place, false, false);
        }
        if self.schedule.is_empty() {
            self.window_at = None;
        }
    }

    /// Writes HEADERS, and CONTINUATION where the block is longer than a frame of the peer may be.
    fn write_block(
        &mut self,
        id: StreamId,
        flags: u8,
        scratch: &mut Scratch,
        encode: impl FnOnce(&mut Self, &mut Vec<u8>),
    ) {
        let out = &mut scratch.out;
        let at = out.len();
        frame::header(out, 0, Kind::Headers, flags | flag::END_HEADERS, id.number);
        self.encoder.begin(out);
        encode(self, out);
        frame::close_block(out, at, self.peer_frame_bytes_max as usize, flags, id.number);
    }

    /// Writes a field of a response, unless it is not allowed there.
    fn write_field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        with_lower_name(name, |name| {
            // Entries of the table have been checked before.
            if !self.encoder.indexed(name, value, out) && is_response_field(name, value) {
                self.encoder.literal(name, value, out);
            }
        });
    }
}
