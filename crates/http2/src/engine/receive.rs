//! The receiving half: input into frames, frames into events, one at a time.

use sekisho_http::Priority;
use sekisho_lifecycle::{Moment, Stage, Step};

use super::{Http2, Phase, Reading};
use crate::budget::Bound;
use crate::code::Code;
use crate::event::{Event, Loss, Scratch};
use crate::frame::{
    self, HEADER_BYTES, Header, Kind, MAX_31, PAYLOAD_BYTES_MAX, PREFACE, WINDOW_BYTES, flag,
    setting,
};
use crate::stream::{Closed, Output};

/// How many settings of one frame count as one frame.
const SETTINGS_COUNTED: usize = 16;

/// The result of looking at the front of the input.
pub(super) enum Looked {
    /// So many bytes were taken, and perhaps something happened.
    Taken(usize, Option<Event>),
    /// More bytes are needed.
    TooShort,
}

impl Http2 {
    pub(super) fn step(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Step<Event> {
        if let Some(event) = self.next_event(scratch) {
            return Step { taken: 0, event: Some(event) };
        }
        if self.stage == Stage::Lingering && !input.is_empty() {
            self.arm_linger(now);
        }
        if self.phase == Phase::Fresh && self.stage == Stage::Open {
            self.greet(now);
        }
        let mut at = 0;
        while at < input.len() && !self.is_full() {
            if matches!(self.phase, Phase::Over(_)) {
                return Step { taken: input.len(), event: self.next_event(scratch) };
            }
            match self.look(&input[at..], scratch, now) {
                Looked::TooShort => {
                    // From its first byte on, a frame has a deadline for its last one.
                    self.await_frame(now);
                    return Step { taken: at, event: None };
                }
                Looked::Taken(taken, event) => {
                    let event = event.map(|event| shifted(event, at));
                    at += taken;
                    self.between_frames(now);
                    if let Some(event) = event.or_else(|| self.next_event(scratch)) {
                        return Step { taken: at, event: Some(event) };
                    }
                }
            }
        }
        if matches!(self.phase, Phase::Over(_)) {
            at = input.len();
        }
        Step { taken: at, event: None }
    }

    /// Our SETTINGS, and the connection's window (RFC 9113 §3.4).
    pub(super) fn greet(&mut self, now: Moment) {
        self.phase = Phase::Greeting;
        self.arm_settings(now);
        let policy = &self.policy;
        let values = [
            (setting::MAX_CONCURRENT_STREAMS, policy.streams_max),
            (setting::INITIAL_WINDOW_SIZE, self.stream_window),
            (setting::MAX_HEADER_LIST_SIZE, policy.head_bytes_max.try_into().unwrap_or(u32::MAX)),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
            (setting::NO_RFC7540_PRIORITIES, 1),
        ];
        frame::settings(&mut self.control, &values);
        let window = policy.connection_window_bytes.clamp(WINDOW_BYTES, MAX_31);
        if window > WINDOW_BYTES {
            frame::window_update(&mut self.control, 0, window - WINDOW_BYTES);
        }
        self.receive_window = window;
    }

    fn look(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Looked {
        match self.reading {
            Reading::Frame => self.look_at_frame(input, scratch, now),
            Reading::Data { .. } => self.receive_data(input, now),
            Reading::Skip(left) => {
                let taken = (left as usize).min(input.len());
                let left = left - taken as u32;
                self.reading = if left == 0 { Reading::Frame } else { Reading::Skip(left) };
                Looked::Taken(taken, None)
            }
            Reading::Preface(seen) => {
                let awaited = &PREFACE[usize::from(seen)..];
                let len = awaited.len().min(input.len());
                if input[..len] != awaited[..len] {
                    self.violation(Code::Protocol);
                    return Looked::Taken(input.len(), None);
                }
                self.reading = if len == awaited.len() {
                    Reading::Frame
                } else {
                    Reading::Preface(seen + len as u8)
                };
                Looked::Taken(len, None)
            }
        }
    }

    fn look_at_frame(&mut self, input: &[u8], scratch: &mut Scratch, now: Moment) -> Looked {
        let Some(header) = Header::read(input) else { return Looked::TooShort };
        if let Err(code) = self.check_order(header) {
            self.violation(code);
            return Looked::Taken(HEADER_BYTES, None);
        }
        // RFC 9113 §3.4 has SETTINGS come first. As in nginx, a client that sends none has the initial values: there
        // are clients that do so, and nothing here rests on the frame.
        if header.kind != Kind::Settings || header.has(flag::ACK) {
            self.open(now);
        }
        match header.kind {
            Kind::Data => return self.begin_data(header, input, now),
            Kind::Unknown => {
                self.reading = Reading::Skip(header.len);
                self.spend(Bound::UselessFrames, now);
                if header.len == 0 {
                    self.reading = Reading::Frame;
                }
                return Looked::Taken(HEADER_BYTES, None);
            }
            _ => {}
        }
        let end = HEADER_BYTES + header.len as usize;
        let Some(payload) = input.get(HEADER_BYTES..end) else { return Looked::TooShort };
        let event = match self.frame(header, payload, scratch, now) {
            Ok(event) => event,
            Err(code) => {
                self.violation(code);
                None
            }
        };
        Looked::Taken(end, event)
    }

    /// What may not come here, whatever it says.
    fn check_order(&self, header: Header) -> Result<(), Code> {
        if header.len > PAYLOAD_BYTES_MAX {
            return Err(Code::FrameSize);
        }
        // RFC 9113 §6.10: nothing else while a header block is not complete.
        match self.block {
            Some(block) if header.kind != Kind::Continuation || header.stream != block.stream => {
                Err(Code::Protocol)
            }
            None if header.kind == Kind::Continuation => Err(Code::Protocol),
            _ => Ok(()),
        }
    }

    fn frame(
        &mut self,
        header: Header,
        payload: &[u8],
        scratch: &mut Scratch,
        now: Moment,
    ) -> Result<Option<Event>, Code> {
        match header.kind {
            Kind::Headers => return self.receive_headers(header, payload, scratch, now),
            Kind::Continuation => return self.receive_continuation(header, payload, scratch, now),
            Kind::Priority => self.receive_priority(header, payload, now)?,
            Kind::RstStream => self.receive_reset(header, payload, now)?,
            Kind::Settings => self.receive_settings(header, payload, now)?,
            Kind::PushPromise => return Err(Code::Protocol),
            Kind::Ping => self.receive_ping(header, payload, now)?,
            Kind::GoAway => {
                if header.stream != 0 {
                    return Err(Code::Protocol);
                }
                if payload.len() < 8 {
                    return Err(Code::FrameSize);
                }
                // The client opens no more streams; those that are open go on.
                self.spend(Bound::UselessFrames, now);
            }
            Kind::WindowUpdate => self.receive_window_update(header, payload, now)?,
            Kind::PriorityUpdate => self.receive_priority_update(header, payload, now)?,
            // Handled before, since their payload need not be complete.
            Kind::Data | Kind::Unknown => {}
        }
        Ok(None)
    }

    /// Whether no stream of this number was ever used.
    pub(super) fn is_unused(&self, number: u32) -> bool {
        number > self.last || number.is_multiple_of(2)
    }

    /// RFC 9113 §6.3: its scheme of priorities is obsolete, only the form is checked.
    fn receive_priority(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<(), Code> {
        if header.stream == 0 {
            return Err(Code::Protocol);
        }
        if !self.spend(Bound::Priorities, now) {
            return Ok(());
        }
        let code = match frame::number(payload, 0) {
            _ if payload.len() != 5 => Code::FrameSize,
            Some(dependency) if dependency & MAX_31 == header.stream => Code::Protocol,
            _ => return Ok(()),
        };
        // A stream that was never used cannot be reset.
        if self.streams.find(header.stream).is_none() {
            return Err(code);
        }
        self.stream_violation(header.stream, code, now);
        Ok(())
    }

    /// RFC 9218 §7.1.
    fn receive_priority_update(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<(), Code> {
        let number = frame::number(payload, 0).ok_or(Code::FrameSize)? & MAX_31;
        if header.stream != 0 || number == 0 || number.is_multiple_of(2) {
            return Err(Code::Protocol);
        }
        if self.spend(Bound::Priorities, now)
            && let Some(id) = self.streams.find(number)
            && let Some(stream) = self.streams.get_mut(id)
        {
            let priority = Priority { is_given: true, ..Priority::parse(&payload[4..]) };
            self.schedule.set_priority(id, &mut stream.place, priority);
        }
        Ok(())
    }

    fn receive_reset(&mut self, header: Header, payload: &[u8], now: Moment) -> Result<(), Code> {
        let code = match <[u8; 4]>::try_from(payload) {
            Ok(code) => u32::from_be_bytes(code),
            Err(_) => return Err(Code::FrameSize),
        };
        if self.is_unused(header.stream) {
            return Err(Code::Protocol);
        }
        let open = self.streams.find(header.stream);
        let open = open.and_then(|id| Some((id, self.streams.get(id)?)));
        match open.map(|(id, stream)| (id, stream.output, stream.has_ended)) {
            // Both sides have said everything.
            None | Some((_, Output::Gone, _) | (_, Output::Ended, true)) => {
                self.spend(Bound::UselessFrames, now);
            }
            // The response has been given: the client only spares us the rest of its request.
            Some((id, Output::Finished, _)) => self.lose(id, Loss::Reset(code)),
            Some((id, ..)) => {
                self.streams.note_closed(header.stream, Closed::Otherwise);
                self.lose(id, Loss::Reset(code));
                // V7: what was begun for it is cancelled, and this cannot go on for long.
                self.spend(Bound::Resets, now);
            }
        }
        Ok(())
    }

    fn receive_settings(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<(), Code> {
        if header.stream != 0 {
            return Err(Code::Protocol);
        }
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(Code::FrameSize);
            }
            self.settings_at = None;
            if std::mem::replace(&mut self.is_acknowledged, true) {
                self.spend(Bound::UselessFrames, now);
            }
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Code::FrameSize);
        }
        // A frame with very many settings counts as several.
        for _ in 0..=payload.len() / (6 * SETTINGS_COUNTED) {
            if !self.spend(Bound::Settings, now) {
                return Ok(());
            }
        }
        for pair in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([pair[0], pair[1]]);
            let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
            self.set(id, value, now)?;
        }
        self.open(now);
        frame::header(&mut self.control, 0, Kind::Settings, flag::ACK, 0);
        Ok(())
    }

    /// The client's greeting is complete.
    fn open(&mut self, now: Moment) {
        if self.phase == Phase::Greeting {
            self.phase = Phase::Open;
            if self.drains_when_open {
                self.announce_end(sekisho_lifecycle::CloseReason::Draining, now);
            }
        }
    }

    fn set(&mut self, id: u16, value: u32, now: Moment) -> Result<(), Code> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.set_peer_max(value),
            setting::ENABLE_PUSH if value > 1 => return Err(Code::Protocol),
            setting::INITIAL_WINDOW_SIZE => {
                if value > MAX_31 {
                    return Err(Code::FlowControl);
                }
                let change = i64::from(value) - i64::from(self.peer_window);
                self.peer_window = value;
                // RFC 9113 §6.9.2: a window may become negative by this, but not too large.
                let open = self.streams.iter_mut();
                for (id, stream) in open.filter(|(_, stream)| stream.output != Output::Gone) {
                    stream.send_window += change;
                    self.schedule.set_able(id, &mut stream.request.place, stream.send_window > 0);
                    if stream.send_window > i64::from(MAX_31) {
                        return Err(Code::FlowControl);
                    }
                }
                self.watch_windows(now);
            }
            setting::MAX_FRAME_SIZE => {
                if !(PAYLOAD_BYTES_MAX..=0xff_ffff).contains(&value) {
                    return Err(Code::Protocol);
                }
                self.peer_frame_bytes_max = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn receive_ping(&mut self, header: Header, payload: &[u8], now: Moment) -> Result<(), Code> {
        if header.stream != 0 {
            return Err(Code::Protocol);
        }
        let opaque = <[u8; 8]>::try_from(payload).map_err(|_| Code::FrameSize)?;
        if header.has(flag::ACK) {
            if !self.echoed(opaque) {
                self.spend(Bound::UselessFrames, now);
            }
        } else if self.spend(Bound::Pings, now) {
            frame::ping(&mut self.control, flag::ACK, opaque);
        }
        Ok(())
    }

    fn receive_window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Moment,
    ) -> Result<(), Code> {
        let increment = match <[u8; 4]>::try_from(payload) {
            Ok(increment) => i64::from(u32::from_be_bytes(increment) & MAX_31),
            Err(_) => return Err(Code::FrameSize),
        };
        if !self.spend(Bound::WindowUpdates, now) {
            return Ok(());
        }
        if header.stream == 0 {
            if increment == 0 {
                return Err(Code::Protocol);
            }
            self.send_window += increment;
            if self.send_window > i64::from(MAX_31) {
                return Err(Code::FlowControl);
            }
            return Ok(());
        }
        if self.is_unused(header.stream) {
            return Err(Code::Protocol);
        }
        let Some(id) = self.streams.find(header.stream) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.output == Output::Gone {
            return Ok(());
        }
        if increment == 0 {
            self.stream_violation(header.stream, Code::Protocol, now);
            return Ok(());
        }
        stream.send_window += increment;
        self.schedule.set_able(id, &mut stream.request.place, stream.send_window > 0);
        if stream.send_window > i64::from(MAX_31) {
            self.stream_violation(header.stream, Code::FlowControl, now);
        }
        Ok(())
    }
}

/// The same event, in an input that begins so many bytes earlier.
fn shifted(event: Event, by: usize) -> Event {
    match event {
        Event::Body(id, range) => Event::Body(id, range.start + by..range.end + by),
        other => other,
    }
}
