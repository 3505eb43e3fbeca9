//! The sending half: responses into frames, and which stream's turn it is.

use sekisho_http::response::{is_response_field, with_lower_name};
use sekisho_http::{BodyLength, Sends, Status};
use sekisho_lifecycle::{Moment, Stage};

use super::{Http3, Order};
use crate::code::Code;
use crate::event::StreamId;
use crate::frame::{self, kind};
use crate::qpack::encode::PREFIX_BYTES_MAX;
use crate::quic::Quic;
use crate::stream::{Fate, Output};

/// Room in front of the lines of a header block: its frame header and its prefix.
const ROOM_BYTES: usize = 16 + PREFIX_BYTES_MAX;

impl Http3 {
    /// Writes the head of the response and returns how its body is sent. A second response, or one for a stream that is
    /// over, is not written. Fields about the connection or the length of the body are left out: the engine writes them.
    pub fn respond<'f>(
        &mut self,
        id: StreamId,
        status: Status,
        length: BodyLength,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        quic: &mut impl Quic,
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
        self.write_block(id, quic, now, |engine, out| {
            engine.encoder.status(begun.status, out);
            if let Some(length) = begun.declared {
                let mut digits = itoa::Buffer::new();
                let digits = digits.format(length).as_bytes();
                if let Some(literal) = engine.encoder.indexed(b"content-length", digits, out) {
                    engine.encoder.literal(literal, b"content-length", digits, out);
                }
            }
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
            // One DATA frame for the whole body.
            match begun.sends {
                Sends::Exactly(length) => Some(length),
                Sends::Nothing | Sends::Stream => None,
            }
        });
        begun.sends
    }

    /// Writes an informational head: 100, 103. Any number of them may come before the response.
    pub fn inform<'f>(
        &mut self,
        id: StreamId,
        status: Status,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        quic: &mut impl Quic,
        now: Moment,
    ) {
        let is_awaited =
            self.streams.get(id).is_some_and(|stream| stream.output == Output::Awaited);
        // RFC 9114 §4.5: there is no 101 here.
        if !is_awaited || !matches!(status.code(), 100 | 102..=199) || self.stage != Stage::Open {
            return;
        }
        self.write_block(id, quic, now, |engine, out| {
            engine.encoder.status(status, out);
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
            None
        });
    }

    /// Ends a response of unknown length with trailers. Any other has ended already, or is not there.
    pub fn trailers<'f>(
        &mut self,
        id: StreamId,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        quic: &mut impl Quic,
        now: Moment,
    ) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.output != Output::Stream || self.stage != Stage::Open {
            return;
        }
        if stream.frame_left > 0 {
            // Nothing can follow within a DATA frame: the response is cut.
            return self.reset(id, Code::Internal, quic, now);
        }
        stream.output = Output::Ended;
        self.set_ready(id, false, now);
        self.write_block(id, quic, now, |engine, out| {
            for (name, value) in fields {
                engine.write_field(name, value, out);
            }
            None
        });
    }

    /// Whether the shell has body bytes of this stream to send: only such streams have their turn.
    pub fn set_ready(&mut self, id: StreamId, is_ready: bool, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let (can_send, is_able) = (stream.is_sending(), stream.is_able());
        self.schedule.set_ready(id, &mut stream.place, is_ready && can_send, is_able);
        self.watch(id, now);
    }

    /// The stream that has its turn to send. The same until it has sent or is not ready any more.
    ///
    /// Streams of a lower urgency number go first. Among equals, the first of those that the client wants one after
    /// the other takes turns with all those that may share the connection (RFC 9218 §10).
    pub fn next_sendable(&self) -> Option<StreamId> {
        if self.stage != Stage::Open {
            return None;
        }
        self.schedule.next(|id| Some(&self.streams.get(id)?.place))
    }

    /// How many body bytes may be offered now: none while QUIC takes none, or while bytes of the head wait.
    pub fn allowance(&self, id: StreamId) -> u64 {
        match self.streams.get(id) {
            Some(stream) if stream.is_able() => match stream.output {
                Output::Stream if stream.frame_left > 0 => stream.frame_left,
                _ => stream.unsent().min(frame::VARINT_MAX),
            },
            _ => 0,
        }
    }

    /// Sends body bytes; says how many were taken. The last byte of a body of known length ends the stream; what goes
    /// beyond that length is cut. Where the length is not known, each call begins a DATA frame, unless the last one was
    /// not complete: the rest of its bytes is offered first.
    pub fn body(&mut self, id: StreamId, bytes: &[u8], quic: &mut impl Quic, now: Moment) -> usize {
        let Some(stream) = self.streams.get_mut(id) else { return 0 };
        if bytes.is_empty() || !stream.is_able() || self.stage != Stage::Open {
            return 0;
        }
        let limit = match stream.output {
            Output::Exactly(left) => left,
            Output::Stream => {
                if stream.frame_left == 0 {
                    stream.frame_left = bytes.len() as u64;
                    let mut header = std::mem::take(&mut self.encoded);
                    header.clear();
                    frame::write_header(&mut header, kind::DATA, bytes.len() as u64);
                    self.write_out(id, &header, quic, now);
                    self.encoded = header;
                }
                self.streams.get(id).map_or(0, |stream| stream.frame_left)
            }
            Output::Awaited | Output::Ended | Output::Finished | Output::Gone => 0,
        };
        let len = limit.min(bytes.len() as u64) as usize;
        let taken = self.write_some(id, &bytes[..len], quic, now);
        let Some(stream) = self.streams.get_mut(id) else { return taken };
        if stream.has_sent(taken as u64) {
            self.set_ready(id, false, now);
            self.end_output(id, quic, now);
            return taken;
        }
        match stream.output {
            Output::Stream => stream.frame_left -= taken as u64,
            Output::Exactly(_) => {}
            Output::Awaited | Output::Ended | Output::Finished | Output::Gone => return taken,
        }
        let is_able = stream.is_able();
        self.schedule.has_sent(id, &mut stream.place, is_able);
        taken
    }

    /// The handler is done: the stream is over. A response that is shorter than it said, or was never given, is cut
    /// visibly; an unfinished request body is refused with NO_ERROR (M3).
    pub fn finish(&mut self, id: StreamId, quic: &mut impl Quic, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.output {
            Output::Awaited | Output::Exactly(_) => {
                return self.reset(id, Code::Internal, quic, now);
            }
            Output::Stream if stream.frame_left > 0 => {
                return self.reset(id, Code::Internal, quic, now);
            }
            Output::Stream => {
                stream.output = Output::Ended;
                self.set_ready(id, false, now);
                self.end_output(id, quic, now);
            }
            Output::Ended | Output::Gone => {}
            Output::Finished => return,
        }
        self.leave(id, quic, now);
    }

    /// The stream is over without a complete response: it is reset, unless the client has done so.
    pub fn reset(&mut self, id: StreamId, code: Code, quic: &mut impl Quic, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.output {
            Output::Finished => return,
            Output::Gone | Output::Ended => {}
            Output::Awaited | Output::Exactly(_) | Output::Stream => {
                self.orders.push(Order::Reset(id.number, code));
                self.stop_reading(id, code);
                self.remove(id);
            }
        }
        self.leave(id, quic, now);
    }

    /// The shell has ended a stream whose response is complete, or that is gone.
    fn leave(&mut self, id: StreamId, quic: &mut impl Quic, now: Moment) {
        let output = self.streams.get(id).map(|stream| (stream.output, stream.is_delivered));
        match output {
            Some((Output::Ended, is_delivered)) if self.stage == Stage::Open => {
                // The response is complete: the rest of the request is not wanted (RFC 9114 §4.1).
                self.stop_reading(id, Code::NoError);
                self.streams.finish(id);
                if is_delivered {
                    self.remove(id);
                }
            }
            Some(_) => self.remove(id),
            None => {}
        }
        self.settle(now);
        self.put_out(quic);
    }

    /// Writes a HEADERS frame, and behind it the header of a DATA frame where `encode` returns its length.
    fn write_block(
        &mut self,
        id: StreamId,
        quic: &mut impl Quic,
        now: Moment,
        encode: impl FnOnce(&mut Self, &mut Vec<u8>) -> Option<u64>,
    ) {
        let mut out = std::mem::take(&mut self.encoded);
        out.clear();
        out.resize(ROOM_BYTES, 0);
        self.encoder.begin();
        let data = encode(self, &mut out);
        // The prefix and the header are known only now; they are put before the lines, without a gap.
        let lines = out.len();
        self.encoder.end(id.number, &mut out);
        let prefix = out.len() - lines;
        let header = out.len();
        frame::write_header(&mut out, kind::HEADERS, (header - ROOM_BYTES) as u64);
        let start = ROOM_BYTES - (out.len() - lines);
        out.copy_within(header.., start);
        out.copy_within(lines..header, ROOM_BYTES - prefix);
        out.truncate(lines);
        if let Some(len) = data {
            frame::write_header(&mut out, kind::DATA, len);
        }
        self.write_out(id, &out[start..], quic, now);
        self.encoded = out;
        self.end_output(id, quic, now);
        self.put_out(quic);
    }

    /// Writes a field of a response, unless it is not allowed there.
    fn write_field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        with_lower_name(name, |name| {
            // Entries of the tables have been checked before; the length is ours, although a table has one.
            if name != b"content-length"
                && let Some(literal) = self.encoder.indexed(name, value, out)
                && is_response_field(name, value)
            {
                self.encoder.literal(literal, name, value, out);
            }
        });
    }

    /// Writes bytes that must leave; what QUIC does not take waits in the stream.
    fn write_out(&mut self, id: StreamId, bytes: &[u8], quic: &mut impl Quic, now: Moment) {
        let Some(stream) = self.streams.get(id) else { return };
        let taken = if stream.is_able() { self.write_some(id, bytes, quic, now) } else { 0 };
        if let Some(stream) = self.streams.get_mut(id)
            && stream.output != Output::Gone
        {
            stream.out.extend_from_slice(&bytes[taken..]);
            let is_able = stream.is_able();
            self.schedule.set_able(id, &mut stream.place, is_able);
            self.watch(id, now);
        }
    }

    /// Writes as many bytes as QUIC takes.
    fn write_some(
        &mut self,
        id: StreamId,
        bytes: &[u8],
        quic: &mut impl Quic,
        now: Moment,
    ) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            match quic.write(id.number, &bytes[taken..]) {
                Ok(0) => {
                    if let Some(stream) = self.streams.get_mut(id) {
                        stream.is_blocked = true;
                    }
                    break;
                }
                Ok(more) => taken += more,
                Err(stopped) => {
                    self.response_stopped(id, stopped.0, now);
                    return taken;
                }
            }
        }
        self.note_progress(id, taken, now);
        taken
    }

    /// Writes bytes of heads that had to wait.
    pub(super) fn flush_heads(&mut self, quic: &mut impl Quic, now: Moment) {
        while let Some(id) = self.flushes.pop() {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            let mut out = std::mem::take(&mut stream.out);
            let taken = self.write_some(id, &out, quic, now);
            out.drain(..taken.min(out.len()));
            let Some(stream) = self.streams.get_mut(id) else { continue };
            if stream.output == Output::Gone {
                continue;
            }
            stream.out = out;
            let is_able = stream.is_able();
            self.schedule.set_able(id, &mut stream.place, is_able);
            self.end_output(id, quic, now);
        }
    }

    /// Ends our side of a stream when all of a complete response was taken.
    fn end_output(&mut self, id: StreamId, quic: &mut impl Quic, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let is_complete = matches!(stream.output, Output::Ended | Output::Finished);
        if !is_complete || stream.has_finished || !stream.out.is_empty() {
            return;
        }
        stream.has_finished = true;
        stream.send_at = None;
        quic.finish(id.number);
        self.sent.push_back(id);
        self.undelivered += 1;
        if self.send_at.is_none() {
            self.send_at = self.send_by(now);
        }
    }
}
