//! Unidirectional streams: the client's control stream and QPACK streams, and ours (RFC 9114 §6.2, RFC 9204 §4.2).

use bytes::{Buf, Bytes};
use sekisho_http::Priority;
use sekisho_http::compression::prefixed::write_integer;
use sekisho_lifecycle::{Moment, Stage};

use super::{CONTROL_PRIORITY, Http3, Order};
use crate::budget::Bound;
use crate::code::Code;
use crate::event::StreamId;
use crate::frame::{PartialHeader, kind, read_varint, setting, stream_kind, write_varint};
use crate::quic::{Quic, Read};
use crate::stream::Reading;

/// The longest frame on the control stream that we look at.
const FRAME_BYTES_MAX: u64 = 4096;
/// How many settings may be in a frame.
const SETTINGS_MAX: usize = 64;
/// Maximum number of bytes read from a stream in one call.
const READ_BYTES_MAX: usize = 4096;
/// How many priorities are kept for streams that have not been opened.
const EARLY_PRIORITIES_MAX: usize = 16;

/// A stream of ours from which nothing comes.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) stream: Option<u64>,
    /// Bytes that QUIC did not take.
    pub(super) pending: Vec<u8>,
    pub(super) is_blocked: bool,
}

impl Sender {
    /// A stream of this type, which has not been opened.
    pub(super) fn new(kind: u64) -> Self {
        let mut pending = Vec::new();
        write_varint(&mut pending, kind);
        Self { stream: None, pending, is_blocked: false }
    }

    /// Whether there are bytes that can be tried.
    pub(super) const fn can_write(&self) -> bool {
        !self.pending.is_empty() && !self.is_blocked && self.stream.is_some()
    }

    /// Writes what can be written; returns whether the client lets the stream live.
    pub(super) fn write(&mut self, quic: &mut impl Quic) -> bool {
        if self.pending.is_empty() || self.is_blocked {
            return true;
        }
        if self.stream.is_none() {
            self.stream = quic.open_uni();
            if let Some(stream) = self.stream {
                quic.set_priority(stream, CONTROL_PRIORITY);
            }
        }
        let Some(stream) = self.stream else { return true };
        let mut taken = 0;
        while taken < self.pending.len() {
            match quic.write(stream, &self.pending[taken..]) {
                Ok(0) => {
                    self.is_blocked = true;
                    break;
                }
                Ok(more) => taken += more,
                Err(_) => return false,
            }
        }
        self.pending.drain(..taken.min(self.pending.len()));
        true
    }

    pub(super) fn shrink(&mut self) {
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
    }
}

/// What a unidirectional stream of the client is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UniKind {
    /// Its type has not come.
    Unknown,
    Control,
    Encoder,
    Decoder,
}

/// A unidirectional stream of the client.
#[derive(Debug)]
pub(super) struct Uni {
    pub(super) number: u64,
    kind: UniKind,
    header: PartialHeader,
    /// What the next bytes of the control stream are.
    reading: Reading,
    /// The type of the frame that is being read.
    frame: u64,
    /// A frame or an instruction that came in part.
    partial: Vec<u8>,
    pub(super) is_readable: bool,
}

impl Uni {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            kind: UniKind::Unknown,
            header: PartialHeader::default(),
            reading: Reading::Header,
            frame: 0,
            partial: Vec::new(),
            is_readable: true,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.partial.capacity()
    }
}

/// What the client's control stream has said.
#[derive(Debug, Default)]
pub(super) struct Settings {
    has_come: bool,
    push_id_max: Option<u64>,
    go_away: Option<u64>,
    /// Priorities of streams that have not been opened.
    early: Vec<(u64, Priority)>,
}

impl Settings {
    /// The priority that came before its stream, if one did.
    pub(super) fn take_early(&mut self, number: u64) -> Option<Priority> {
        let at = self.early.iter().position(|(other, _)| *other == number)?;
        Some(self.early.swap_remove(at).1)
    }
}

/// A connection error.
type Fatal = (Code, &'static str);

impl Http3 {
    /// Reads one unidirectional stream; returns whether there was one to read.
    pub(super) fn receive_uni(&mut self, quic: &mut impl Quic, now: Moment) -> bool {
        let Some(at) = self.unis.iter().position(|uni| uni.is_readable) else { return false };
        let number = self.unis[at].number;
        match quic.read(number, READ_BYTES_MAX) {
            Read::Blocked => self.unis[at].is_readable = false,
            Read::Bytes(bytes) => {
                // Out of its slot while it is fed: a violation drops all of them.
                let mut uni = self.unis.swap_remove(at);
                match self.feed_uni(&mut uni, bytes, now) {
                    Ok(true) if self.stage == Stage::Open => self.unis.push(uni),
                    Ok(_) => {}
                    Err((code, message)) => self.violation(code, message),
                }
            }
            Read::End | Read::Reset(_) => {
                let uni = self.unis.swap_remove(at);
                // RFC 9114 §6.2.1, RFC 9204 §4.2; a stream without a type is none of them.
                if uni.kind != UniKind::Unknown {
                    self.violation(
                        Code::ClosedCriticalStream,
                        "client closed its control or QPACK stream",
                    );
                }
            }
        }
        true
    }

    /// Takes bytes of a unidirectional stream; returns whether more are wanted.
    fn feed_uni(&mut self, uni: &mut Uni, mut bytes: Bytes, now: Moment) -> Result<bool, Fatal> {
        if uni.kind == UniKind::Unknown {
            let mut rest = &bytes[..];
            let kind = uni.header.take::<1>(&mut rest);
            let taken = bytes.len() - rest.len();
            bytes.advance(taken);
            let Some([kind]) = kind else { return Ok(true) };
            uni.kind = match kind {
                stream_kind::CONTROL => UniKind::Control,
                stream_kind::ENCODER => UniKind::Encoder,
                stream_kind::DECODER => UniKind::Decoder,
                stream_kind::PUSH => {
                    return Err((Code::StreamCreation, "client opened a push stream"));
                }
                _ => {
                    // RFC 9114 §6.2: an extension that we do not know.
                    self.orders.push(Order::Stop(uni.number, Code::StreamCreation));
                    self.spend(Bound::UselessFrames, now);
                    return Ok(false);
                }
            };
            if self.unis.iter().any(|other| other.kind == uni.kind) {
                return Err((
                    Code::StreamCreation,
                    "second stream of a type of which one is allowed",
                ));
            }
        }
        match uni.kind {
            UniKind::Control => self.feed_control(uni, bytes, now)?,
            UniKind::Encoder => self.feed_encoder(&bytes, now)?,
            UniKind::Decoder => self.feed_decoder(uni, &bytes)?,
            UniKind::Unknown => {}
        }
        Ok(true)
    }

    /// Carries out instructions of the client's encoder. A header block has its turn as soon as its entries have come:
    /// instructions behind them may evict these.
    pub(super) fn feed_encoder(&mut self, bytes: &[u8], now: Moment) -> Result<(), Fatal> {
        let before = self.decoder.inserted();
        let until = self.blocked.iter().filter_map(|id| self.required_inserts(*id)).min();
        let mut text = std::mem::take(&mut self.text);
        let received = self.decoder.receive(bytes, &mut text, until);
        self.text = text;
        let is_whole = received.map_err(|fault| (Code::EncoderStream, fault.message()))?;
        self.is_encoder_paused = !is_whole;
        let inserted = self.decoder.inserted();
        for _ in before..inserted {
            if !self.spend(Bound::Inserts, now) {
                return Ok(());
            }
        }
        let mut at = 0;
        while let Some(&id) = self.blocked.get(at) {
            if self.required_inserts(id).is_some_and(|required| required > inserted) {
                at += 1;
            } else {
                self.blocked.swap_remove(at);
                self.unblocked.push(id);
            }
        }
        Ok(())
    }

    /// How many entries must have been inserted for the header block that a stream holds.
    fn required_inserts(&self, id: StreamId) -> Option<u64> {
        match self.streams.get(id)?.reading {
            Reading::Blocked(required) => Some(required),
            _ => None,
        }
    }

    fn feed_decoder(&mut self, uni: &mut Uni, bytes: &[u8]) -> Result<(), Fatal> {
        uni.partial.extend_from_slice(bytes);
        let mut rest = &uni.partial[..];
        loop {
            match self.encoder.acknowledge(&mut rest) {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => return Err((Code::DecoderStream, fault.message())),
            }
        }
        let taken = uni.partial.len() - rest.len();
        uni.partial.drain(..taken);
        Ok(())
    }

    /// Tells the client how many entries of its encoder we have, where no acknowledgement of a header block has.
    pub(super) fn acknowledge_inserts(&mut self) {
        if self.stage == Stage::Open {
            let increment = self.decoder.take_increment();
            if increment > 0 {
                write_integer(&mut self.decoder_stream.pending, 0, 6, increment);
            }
        }
    }

    fn feed_control(&mut self, uni: &mut Uni, mut bytes: Bytes, now: Moment) -> Result<(), Fatal> {
        while !bytes.is_empty() && self.stage == Stage::Open {
            match uni.reading {
                Reading::Header => {
                    let mut rest = &bytes[..];
                    let header = uni.header.take::<2>(&mut rest);
                    let taken = bytes.len() - rest.len();
                    bytes.advance(taken);
                    let Some([kind, len]) = header else { return Ok(()) };
                    self.check_control(kind)?;
                    if kind::is_unknown(kind) {
                        self.spend(Bound::UselessFrames, now);
                        uni.reading = if len > 0 { Reading::Skip(len) } else { Reading::Header };
                    } else if len > FRAME_BYTES_MAX {
                        return Err((Code::ExcessiveLoad, "control frame is too long"));
                    } else if len == 0 {
                        self.control_frame(kind, &[], now)?;
                    } else {
                        (uni.reading, uni.frame) = (Reading::Data(len), kind);
                    }
                }
                Reading::Skip(left) => {
                    let len = left.min(bytes.len() as u64);
                    bytes.advance(len as usize);
                    let left = left - len;
                    uni.reading = if left > 0 { Reading::Skip(left) } else { Reading::Header };
                }
                Reading::Data(left) => {
                    let len = left.min(bytes.len() as u64);
                    let piece = bytes.split_to(len as usize);
                    uni.reading = Reading::Data(left - len);
                    if len < left {
                        uni.partial.extend_from_slice(&piece);
                        return Ok(());
                    }
                    uni.reading = Reading::Header;
                    if uni.partial.is_empty() {
                        self.control_frame(uni.frame, &piece, now)?;
                    } else {
                        let mut payload = std::mem::take(&mut uni.partial);
                        payload.extend_from_slice(&piece);
                        self.control_frame(uni.frame, &payload, now)?;
                    }
                }
                Reading::Headers(_) | Reading::Blocked(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// What may not come on the control stream, or not yet (RFC 9114 §7.2).
    fn check_control(&self, kind: u64) -> Result<(), Fatal> {
        match kind {
            kind::SETTINGS if self.settings.has_come => {
                Err((Code::FrameUnexpected, "second SETTINGS"))
            }
            kind::SETTINGS => Ok(()),
            _ if !self.settings.has_come => {
                Err((Code::MissingSettings, "first control frame is not SETTINGS"))
            }
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                Err((Code::FrameUnexpected, "frame of a request on the control stream"))
            }
            _ if kind::is_reserved(kind) => {
                Err((Code::FrameUnexpected, "frame type of HTTP/2 on the control stream"))
            }
            _ => Ok(()),
        }
    }

    fn control_frame(&mut self, kind: u64, payload: &[u8], now: Moment) -> Result<(), Fatal> {
        match kind {
            kind::SETTINGS => self.receive_settings(payload),
            kind::PRIORITY_UPDATE => self.receive_priority_update(payload, now),
            kind::GOAWAY => {
                let id = only_number(payload)?;
                if self.settings.go_away.is_some_and(|before| id > before) {
                    return Err((Code::Id, "identifier of GOAWAY was increased"));
                }
                // The client takes no more pushes, of which there are none.
                self.settings.go_away = Some(id);
                self.spend(Bound::UselessFrames, now);
                Ok(())
            }
            kind::MAX_PUSH_ID => {
                let id = only_number(payload)?;
                if self.settings.push_id_max.is_some_and(|before| id < before) {
                    return Err((Code::Id, "MAX_PUSH_ID was reduced"));
                }
                self.settings.push_id_max = Some(id);
                self.spend(Bound::UselessFrames, now);
                Ok(())
            }
            // RFC 9114 §7.2.3, RFC 9218 §7.2: nothing was ever promised.
            kind::CANCEL_PUSH => {
                only_number(payload)?;
                Err((Code::Id, "push that was not promised"))
            }
            kind::PRIORITY_UPDATE_PUSH => Err((Code::Id, "push that was not promised")),
            _ => Ok(()),
        }
    }

    fn receive_settings(&mut self, mut payload: &[u8]) -> Result<(), Fatal> {
        self.settings.has_come = true;
        let mut ids = Vec::new();
        let mut table_bytes = 0;
        while !payload.is_empty() {
            let id = read_varint(&mut payload);
            let value = read_varint(&mut payload);
            let (Some(id), Some(value)) = (id, value) else {
                return Err((Code::Frame, "SETTINGS ends within a setting"));
            };
            if setting::is_reserved(id) {
                return Err((Code::Settings, "setting of HTTP/2"));
            }
            if ids.contains(&id) || ids.len() >= SETTINGS_MAX {
                return Err((Code::Settings, "repeated setting, or too many of them"));
            }
            ids.push(id);
            if id == setting::QPACK_MAX_TABLE_CAPACITY {
                table_bytes = value;
            }
        }
        self.encoder.set_peer_max(table_bytes, self.policy.encoder_table_bytes);
        Ok(())
    }

    /// RFC 9218 §7.2.
    fn receive_priority_update(&mut self, payload: &[u8], now: Moment) -> Result<(), Fatal> {
        let mut value = payload;
        let number = read_varint(&mut value);
        let number = number.ok_or((Code::Frame, "PRIORITY_UPDATE without an identifier"))?;
        if number & 3 != 0 {
            return Err((Code::Id, "PRIORITY_UPDATE of a stream that is no request"));
        }
        if !self.spend(Bound::Priorities, now) {
            return Ok(());
        }
        let priority = Priority { is_given: true, ..Priority::parse(value) };
        match self.streams.find(number) {
            Some(id) => self.set_priority(id, priority),
            None if number >= self.next_stream => {
                let early = &mut self.settings.early;
                early.retain(|(other, _)| *other != number);
                if early.len() < EARLY_PRIORITIES_MAX {
                    early.push((number, priority));
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The client has changed the priority of a response.
    pub(super) fn set_priority(&mut self, id: StreamId, priority: Priority) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.schedule.set_priority(id, &mut stream.place, priority);
            self.orders.push(Order::Urgency(id.number, priority.urgency));
        }
    }
}

/// A payload that is one number and nothing else.
fn only_number(mut payload: &[u8]) -> Result<u64, Fatal> {
    match read_varint(&mut payload) {
        Some(number) if payload.is_empty() => Ok(number),
        _ => Err((Code::Frame, "control frame has a wrong length")),
    }
}
