//! Request bodies. What a handler does not take is not read, and so not acknowledged (M5): one stream's stall delays no
//! other, and what waits for handlers is bounded by the windows of the streams.

use bytes::Bytes;
use sekisho_http::refusal::Cause;
use sekisho_http::stream::Tunnel;
use sekisho_http::{BodyLength, Malformed, Refusal, Status};
use sekisho_lifecycle::{Moment, Stage};

use super::Http3;
use crate::code::Code;
use crate::event::{Event, Loss, StreamId};
use crate::quic::Quic;
use crate::stream::{Fate, Output};

impl Http3 {
    /// The body is wanted, up to `max` bytes: it comes as events, after a 100 where the client waits for one (H7).
    /// The client gets an error at once where it is refused.
    pub fn take_body(
        &mut self,
        id: StreamId,
        max: Option<u64>,
        quic: &mut impl Quic,
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
        if stream.missing.unwrap_or(0) > max {
            stream.discard();
            return Err(Cause::BodyTooLarge.into());
        }
        (stream.fate, stream.allowance) = (Fate::Taken, max);
        let expects = std::mem::take(&mut stream.expects);
        if stream.has_ended {
            self.events.push_back(Event::BodyEnd(id));
            return Ok(());
        }
        if expects && stream.pending.is_empty() {
            self.inform(id, Status::CONTINUE, [], quic, now);
        }
        self.list(id);
        self.await_body(id, now);
        Ok(())
    }

    /// Opens the tunnel that the client asks for: the response is 200, and what the client sends comes as events about
    /// a body. Not where it does not ask, or has a response: then nothing was written.
    pub fn upgrade<'f>(
        &mut self,
        id: StreamId,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        quic: &mut impl Quic,
        now: Moment,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        if self.stage != Stage::Open || !stream.open_tunnel() {
            return false;
        }
        let has_ended = stream.has_ended;
        self.respond(id, Status::OK, BodyLength::Unknown, fields, quic, now);
        if has_ended {
            self.events.push_back(Event::BodyEnd(id));
        }
        self.list(id);
        true
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

    /// Whether body bytes of the request may still come.
    pub fn request_has_body(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.has_body())
    }

    /// The declared `Content-Length` of the request, less what has come.
    pub fn body_length(&self, id: StreamId) -> Option<u64> {
        self.streams.get(id)?.missing
    }

    /// Bytes of a DATA frame.
    pub(super) fn take_data(
        &mut self,
        id: StreamId,
        mut bytes: Bytes,
        now: Moment,
    ) -> Option<Event> {
        let stream = self.streams.get_mut(id)?;
        // To the byte, so that it makes no difference how the input is cut.
        let len = stream.allowance.min(bytes.len() as u64) as usize;
        stream.allowance -= len as u64;
        let is_beyond = len < bytes.len();
        bytes.truncate(len);
        self.body_came(id, len, now);
        if is_beyond {
            self.exceed_body(id);
        }
        (len > 0).then_some(Event::Body(id, bytes))
    }

    /// More came than the shell will take.
    fn exceed_body(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.discard();
        if stream.output == Output::Awaited {
            self.events.push_back(Event::Refused(id, Cause::BodyTooLarge.into()));
        } else {
            self.break_off(id, Code::RequestCancelled, Loss::Violation);
        }
    }

    /// The client has ended its side of a stream behind the head.
    pub(super) fn end_body(&mut self, id: StreamId, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.expects = false;
        (stream.read_at, stream.latest) = (None, None);
        if stream.missing.is_some_and(|missing| missing > 0) {
            // RFC 9114 §4.1.2
            self.malformed(id, Malformed::LengthDiffers, now);
        } else if stream.fate == Fate::Taken {
            self.events.push_back(Event::BodyEnd(id));
        }
    }
}
