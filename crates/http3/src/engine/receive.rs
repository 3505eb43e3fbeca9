//! The receiving half: facts about streams, and the bytes of request streams into frames and events.

use bytes::{Buf, Bytes};
use sekisho_http::compression::prefixed::write_integer;
use sekisho_http::stream::Tunnel;
use sekisho_http::{Malformed, Scratch};
use sekisho_lifecycle::{CloseReason, Moment, Stage};

use super::control::Uni;
use super::{Drain, Http3, Order};
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Event, Loss, StreamId};
use crate::frame::kind;
use crate::quic::{Quic, Read};
use crate::stream::{Fate, Output, Part, Reading, Stream};

/// Maximum number of bytes read from a stream in one call.
const READ_BYTES_MAX: usize = 64 * 1024;
/// The two lowest bits of a stream's number say who opened it and whether both sides send (RFC 9000 §2.1).
const KIND_BITS: u64 = 3;
/// How many unidirectional streams the client may have open: its control and QPACK streams, and some whose type has not
/// come.
const UNIS_MAX: usize = 16;
const REQUEST: u64 = 0;
const CLIENT_UNI: u64 = 2;

impl Http3 {
    /// The client has opened a stream, which may have bytes.
    pub fn opened(&mut self, stream: u64) {
        if self.stage != Stage::Open {
            return;
        }
        match stream & KIND_BITS {
            REQUEST => self.open_request(stream),
            CLIENT_UNI if self.unis.len() < UNIS_MAX => self.unis.push(Uni::new(stream)),
            CLIENT_UNI => {
                self.refused += 1;
                self.orders.push(Order::Stop(stream, Code::StreamCreation));
            }
            _ => {}
        }
    }

    fn open_request(&mut self, stream: u64) {
        self.next_stream = self.next_stream.max(stream + 4);
        let is_behind = matches!(self.drain, Drain::Final(_, limit) if stream >= limit);
        let streams_max = (self.policy.streams_max as usize).min(usize::from(u16::MAX) - 1);
        if is_behind || self.streams.len() >= streams_max {
            // RFC 9114 §4.1.1: it has not been looked at, so that the client may ask again.
            self.refused += u32::from(!is_behind);
            self.orders.push(Order::Reset(stream, Code::RequestRejected));
            self.orders.push(Order::Stop(stream, Code::RequestRejected));
            return;
        }
        self.idle_at = None;
        let id = self.streams.insert(stream, Stream::new(stream));
        if let Some(priority) = self.settings.take_early(stream) {
            self.set_priority(id, priority);
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_readable = true;
        }
        self.list(id);
    }

    /// A stream has bytes, or was ended or reset by the client.
    pub fn readable(&mut self, stream: u64) {
        if let Some(id) = self.streams.find(stream) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.is_readable = true;
            }
            self.list(id);
        } else if let Some(uni) = self.unis.iter_mut().find(|uni| uni.number == stream) {
            uni.is_readable = true;
        }
    }

    /// A stream that was blocked can be written to again.
    pub fn writable(&mut self, stream: u64) {
        if let Some(id) = self.streams.find(stream) {
            let Some(stream) = self.streams.get_mut(id) else { return };
            stream.is_blocked = false;
            if stream.out.is_empty() {
                self.schedule.set_able(id, &mut stream.place, true);
            } else {
                self.flushes.push(id);
            }
        }
        for sender in [&mut self.control, &mut self.encoder_stream, &mut self.decoder_stream] {
            sender.is_blocked &= sender.stream != Some(stream);
        }
    }

    /// The client reads a stream no further: STOP_SENDING.
    pub fn stopped(&mut self, stream: u64, code: u64) {
        if self.stage == Stage::Open {
            self.stopped.push((stream, code));
        }
    }

    /// The client has acknowledged all bytes of a stream, its FIN included.
    pub fn delivered(&mut self, stream: u64) {
        let Some(id) = self.streams.find(stream) else { return };
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.is_delivered || !stream.has_finished {
            return;
        }
        stream.is_delivered = true;
        self.undelivered = self.undelivered.saturating_sub(1);
        self.settles = true;
        if stream.output == Output::Finished {
            self.remove(id);
        }
    }

    /// The connection is gone: closed by the client, or timed out.
    pub fn connection_lost(&mut self) {
        if self.stage == Stage::Open {
            let is_idle = self.streams.running() == 0;
            self.end(if is_idle { CloseReason::PeerClosed } else { CloseReason::PeerClosedEarly });
        }
    }

    /// Acts on facts that need the time.
    pub(super) fn take_facts(&mut self, now: Moment) {
        for _ in 0..std::mem::take(&mut self.refused) {
            if !self.spend(Bound::RefusedStreams, now) {
                return;
            }
        }
        for (stream, code) in std::mem::take(&mut self.stopped) {
            if self.senders().iter().any(|sender| sender.stream == Some(stream)) {
                self.violation(Code::ClosedCriticalStream, "client stopped a stream of ours");
            } else if let Some(id) = self.streams.find(stream) {
                self.response_stopped(id, code, now);
            }
        }
    }

    /// The client does not want the rest of a response.
    pub(super) fn response_stopped(&mut self, id: StreamId, code: u64, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.output == Output::Gone {
            return;
        }
        self.orders.push(Order::Reset(id.number, Code::RequestCancelled));
        if stream.has_finished {
            // The response is complete on our side: there is nothing left to cancel.
            return self.delivered(id.number);
        }
        self.stop_reading(id, Code::RequestCancelled);
        self.lose(id, Loss::Reset(code));
        self.spend(Bound::Resets, now);
    }

    /// The stream may have bytes that are wanted.
    pub(super) fn list(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.is_listed
            && (stream.is_readable || !stream.pending.is_empty() || !stream.block.is_empty())
            && (stream.wants_input() || matches!(stream.reading, Reading::Blocked(_)))
        {
            stream.is_listed = true;
            self.readable.push_back(id);
        }
    }

    /// Reads a request stream until something happens or nothing more is there or wanted.
    pub(super) fn receive(
        &mut self,
        id: StreamId,
        quic: &mut impl Quic,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        self.streams.get_mut(id)?.is_listed = false;
        if let Some(event) = self.retry_block(id, scratch, now) {
            return self.look_ahead(id, event, quic, now);
        }
        while self.stage == Stage::Open && self.events.is_empty() {
            let stream = self.streams.get_mut(id)?;
            if !stream.wants_input() {
                return None;
            }
            let mut bytes = std::mem::take(&mut stream.pending);
            if bytes.is_empty() {
                self.await_head(id, now);
                bytes = match quic.read(id.number, READ_BYTES_MAX) {
                    Read::Bytes(bytes) => bytes,
                    Read::Blocked => {
                        self.streams.get_mut(id)?.is_readable = false;
                        return None;
                    }
                    Read::End => {
                        self.input_ended(id, now);
                        return None;
                    }
                    Read::Reset(code) => {
                        self.input_reset(id, code, now);
                        return None;
                    }
                };
            }
            let event = self.feed(id, &mut bytes, scratch, now);
            let stream = self.streams.get_mut(id)?;
            if stream.fate != Fate::Discarded {
                stream.pending = bytes;
            }
            if let Some(event) = event {
                return self.look_ahead(id, event, quic, now);
            }
        }
        self.list(id);
        None
    }

    /// Behind a head: whether the request has a body should be known when its handler begins. Gives the event of the
    /// stream, unless the request is malformed or cancelled already.
    fn look_ahead(
        &mut self,
        id: StreamId,
        event: Event,
        quic: &mut impl Quic,
        now: Moment,
    ) -> Option<Event> {
        let stream = self.streams.get_mut(id)?;
        if matches!(event, Event::Request(_)) && stream.pending.is_empty() {
            match quic.read(id.number, READ_BYTES_MAX) {
                Read::Bytes(bytes) => stream.pending = bytes,
                Read::Blocked => stream.is_readable = false,
                Read::End => self.input_ended(id, now),
                Read::Reset(code) => self.input_reset(id, code, now),
            }
            if self.streams.get(id)?.output == Output::Gone {
                self.events
                    .retain(|other| !matches!(other, Event::ClientLost(lost, _) if *lost == id));
                self.requests -= 1;
                self.remove(id);
                return self.events.pop_front();
            }
        }
        self.list(id);
        Some(event)
    }

    /// Takes bytes of a request stream, up to the first event.
    fn feed(
        &mut self,
        id: StreamId,
        bytes: &mut Bytes,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        while !bytes.is_empty() && self.stage == Stage::Open {
            let stream = self.streams.get_mut(id)?;
            let available = bytes.len() as u64;
            let event = match stream.reading {
                Reading::Header => {
                    let mut rest = &bytes[..];
                    let header = stream.header.take::<2>(&mut rest);
                    let taken = bytes.len() - rest.len();
                    bytes.advance(taken);
                    let [kind, len] = header?;
                    self.begin_frame(id, kind, len, scratch, now)
                }
                Reading::Skip(left) => {
                    let len = left.min(available);
                    bytes.advance(len as usize);
                    stream.reading = after(left - len, Reading::Skip);
                    None
                }
                Reading::Data(left) => {
                    let len = left.min(available);
                    let piece = bytes.split_to(len as usize);
                    stream.reading = after(left - len, Reading::Data);
                    self.take_data(id, piece, now)
                }
                Reading::Headers(left) => {
                    let len = left.min(available);
                    let piece = bytes.split_to(len as usize);
                    if len < left {
                        stream.block.extend_from_slice(&piece);
                        stream.reading = Reading::Headers(left - len);
                        self.check_blocks();
                        None
                    } else if stream.block.is_empty() {
                        stream.reading = Reading::Header;
                        self.receive_block(id, &piece, scratch, now)
                    } else {
                        let mut block = std::mem::take(&mut stream.block);
                        block.extend_from_slice(&piece);
                        stream.reading = Reading::Header;
                        self.receive_block(id, &block, scratch, now)
                    }
                }
                Reading::Blocked(_) => return None,
            };
            if event.is_some() || !self.events.is_empty() {
                return event;
            }
            if !self.streams.get(id)?.wants_input() {
                return None;
            }
        }
        None
    }

    /// A frame header is complete (RFC 9114 §4.1, §7.2).
    fn begin_frame(
        &mut self,
        id: StreamId,
        kind: u64,
        len: u64,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<Event> {
        let stream = self.streams.get_mut(id)?;
        match (kind, stream.part) {
            (kind::HEADERS, Part::Head | Part::Body) if stream.tunnel == Tunnel::No => {
                return self.begin_headers(id, len, scratch, now);
            }
            (kind::DATA, Part::Body) => {
                // RFC 9114 §4.1.2
                if stream.missing.is_some_and(|missing| missing < len) {
                    self.malformed(id, Malformed::LengthDiffers, now);
                    return None;
                }
                stream.missing = stream.missing.map(|missing| missing - len);
                stream.reading = after(len, Reading::Data);
                if len == 0 {
                    self.spend(Bound::EmptyFrames, now);
                }
            }
            _ if kind::is_unknown(kind) => {
                stream.reading = after(len, Reading::Skip);
                self.spend(Bound::UselessFrames, now);
            }
            (kind::DATA, Part::Head) => {
                self.violation(Code::FrameUnexpected, "DATA before HEADERS");
            }
            (kind::DATA | kind::HEADERS, _) => {
                self.violation(Code::FrameUnexpected, "frame behind trailers or in a tunnel");
            }
            _ => self.violation(Code::FrameUnexpected, "frame that a request stream cannot have"),
        }
        None
    }

    /// The client has ended its side of a request stream.
    fn input_ended(&mut self, id: StreamId, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.reading != Reading::Header || !stream.header.is_empty() {
            // RFC 9114 §7.1
            return self.violation(Code::Frame, "request stream ends within a frame");
        }
        stream.has_ended = true;
        if stream.part == Part::Head {
            // RFC 9114 §4.1
            self.stream_violation(id, Code::RequestIncomplete, now);
        } else {
            self.end_body(id, now);
        }
    }

    /// The client has reset its side of a request stream.
    fn input_reset(&mut self, id: StreamId, code: u64, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let is_unwanted = stream.fate == Fate::Discarded;
        self.cancel_section(id);
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.has_ended = true;
        if is_unwanted {
            return;
        }
        self.reset_output(id, Code::RequestCancelled);
        self.lose(id, Loss::Reset(code));
        self.spend(Bound::Resets, now);
    }

    /// Resets a stream for what the client sent on it, whether or not the shell knows it (V8).
    pub(super) fn stream_violation(&mut self, id: StreamId, code: Code, now: Moment) {
        if self.spend(Bound::OwnResets, now) {
            self.break_off(id, code, Loss::Violation);
        }
    }

    /// Breaks both sides of a stream off; the shell, if it knows the stream, loses its client.
    pub(super) fn break_off(&mut self, id: StreamId, code: Code, loss: Loss) {
        self.reset_output(id, code);
        self.stop_reading(id, code);
        self.lose(id, loss);
    }

    /// Resets our side of a stream, unless all of its response was taken.
    fn reset_output(&mut self, id: StreamId, code: Code) {
        if self.streams.get(id).is_some_and(|stream| !stream.has_finished) {
            self.orders.push(Order::Reset(id.number, code));
        }
    }

    /// Nothing more of a stream is read.
    pub(super) fn stop_reading(&mut self, id: StreamId, code: Code) {
        let Some(stream) = self.streams.get(id) else { return };
        if !stream.has_ended {
            self.orders.push(Order::Stop(id.number, code));
            self.cancel_section(id);
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.has_ended = true;
            stream.discard();
        }
    }

    /// Tells the client's encoder that header blocks of a stream are not decoded (RFC 9204 §4.4.2).
    fn cancel_section(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if matches!(stream.reading, Reading::Blocked(_)) {
            stream.reading = Reading::Header;
            self.blocked.retain(|other| *other != id);
        }
        if !stream.has_ended && self.decoder.is_used() {
            write_integer(&mut self.decoder_stream.pending, 0x40, 6, id.number);
        }
    }
}

/// The state of a frame of which this many bytes are missing.
fn after(left: u64, reading: impl FnOnce(u64) -> Reading) -> Reading {
    if left > 0 { reading(left) } else { Reading::Header }
}
