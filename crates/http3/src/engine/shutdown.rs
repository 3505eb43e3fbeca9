//! Graceful and forceful shutdown of a connection (M2, L6, L7, Q5).

use sekisho_lifecycle::{CloseReason, Moment, Stage};

use super::{Drain, Http3, Order};
use crate::code::Code;
use crate::event::StreamId;
use crate::frame;
use crate::quic::Quic;
use crate::stream::Output;

/// The stream of the first GOAWAY: one that the client will never open.
const STREAM_MAX: u64 = frame::VARINT_MAX - 3;

impl Http3 {
    /// Takes no further request: a first GOAWAY announces the end; when the client must have seen it, a second one
    /// names the first stream that is not taken; running streams end, and the connection is closed (RFC 9114 §5.2).
    pub fn shut_down_gracefully(&mut self, quic: &mut impl Quic, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        if self.has_started {
            self.announce_end(CloseReason::Draining, now);
        } else {
            self.fail(Code::NoError, "", CloseReason::Draining);
        }
        self.put_out(quic);
    }

    /// Ends the connection now: every stream that the shell has not ended is reset.
    pub fn shut_down_forcefully(&mut self, quic: &mut impl Quic, _now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        let running: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| !matches!(stream.output, Output::Gone) && !stream.has_finished)
            .map(|(id, _)| id)
            .collect();
        for id in running {
            self.orders.push(Order::Reset(id.number, Code::RequestCancelled));
        }
        self.fail(Code::NoError, "", CloseReason::Forced);
        self.put_out(quic);
    }

    /// The connection is one too many: it is closed (H10). Its requests may be tried elsewhere.
    pub fn refuse_connection(&mut self, quic: &mut impl Quic, _now: Moment) {
        self.fail(Code::ExcessiveLoad, "too many connections", CloseReason::TooMany);
        self.put_out(quic);
    }

    /// Ends the connection at once, with a CONNECTION_CLOSE that names no error.
    pub fn abort(&mut self, reason: CloseReason, quic: &mut impl Quic) {
        self.fail(Code::NoError, "", reason);
        self.put_out(quic);
    }

    /// The client has acknowledged all that was sent before this call. Behind the first GOAWAY of a graceful end, the
    /// second one need not wait for its deadline then.
    pub fn announcement_delivered(&mut self, quic: &mut impl Quic, now: Moment) {
        if let (Drain::Announced(_), Stage::Open) = (self.drain, self.stage) {
            self.finish_drain(now);
            self.put_out(quic);
        }
    }

    /// Whether the first GOAWAY has been sent and its arrival is awaited.
    pub const fn awaits_announcement(&self) -> bool {
        matches!(self.drain, Drain::Announced(_)) && matches!(self.stage, Stage::Open)
    }

    /// Whether the connection takes no further requests, as far as is known.
    pub const fn will_close(&self) -> bool {
        !matches!(self.drain, Drain::No) || !matches!(self.stage, Stage::Open)
    }

    /// Whether a request that comes now is not looked at: the client has been told which stream was the last. Until
    /// then requests are still taken, though the end has been announced.
    pub const fn takes_no_request(&self) -> bool {
        matches!(self.drain, Drain::Final(..)) || !matches!(self.stage, Stage::Open)
    }

    /// The first GOAWAY. There is no frame whose echo says that it has arrived, so that a deadline does.
    pub(super) fn announce_end(&mut self, reason: CloseReason, now: Moment) {
        if self.drain != Drain::No {
            return;
        }
        self.drain = Drain::Announced(reason);
        self.idle_at = None;
        frame::write_go_away(&mut self.control.pending, STREAM_MAX);
        self.drain_at = Some(now + self.policy.goaway_timeout);
    }

    /// The second GOAWAY: no stream from this one on will be looked at.
    pub(super) fn finish_drain(&mut self, now: Moment) {
        self.drain_at = None;
        if let Drain::Announced(reason) = self.drain {
            self.drain = Drain::Final(reason, self.next_stream);
            frame::write_go_away(&mut self.control.pending, self.next_stream);
        }
        self.settle(now);
    }
}
