//! Which deadlines are armed, for the connection and for each stream, and what happens when they expire
//! (T1–T10).
//!
//! | Owner | Kind | Limits | At expiry |
//! |---|---|---|---|
//! | connection | `Header` | accept to the end of the first head; a later frame or header block from its first byte to its last | GOAWAY, close |
//! | connection | `Handshake` | quiet time without an open stream until our SETTINGS are acknowledged | GOAWAY(SETTINGS_TIMEOUT), close |
//! | connection | `KeepAlive` | quiet time without an open stream | GOAWAY, close |
//! | connection | `Send` | output that the transport does not take; a used-up window of the connection | abort |
//! | connection | `Drain` | first GOAWAY of a graceful end to its echo | the second GOAWAY |
//! | connection | `Linger` | what comes after the last word | close |
//! | stream | `Body` | inactivity while the body is awaited, and its rate | 408, or reset where the response has begun |
//! | stream | `Linger` | the end of a request whose response is complete | RST_STREAM(NO_ERROR) |
//! | stream | `Send` | a used-up window of the stream | reset, client lost |

use sekisho_http::refusal::Cause;
use sekisho_http::stream::{PROGRESS_BYTES, RATE_GRACE, earliest};
use sekisho_lifecycle::{CloseReason, Deadline, DeadlineKind, Moment, Stage};

use super::{Drain, Http2, Phase};
use crate::code::Code;
use crate::event::{Event, Loss, StreamId};
use crate::stream::{Output, Stream};

/// Whose deadline it is.
pub type Owner = sekisho_http::stream::Owner<StreamId>;

impl Http2 {
    /// The earliest deadline in effect, if any, and its owner (T2).
    pub fn next_owned_deadline(&self) -> Option<(Deadline, Owner)> {
        let of_connection = [
            (self.header_at, DeadlineKind::Header),
            (self.settings_at, DeadlineKind::Handshake),
            (self.idle_at, DeadlineKind::KeepAlive),
            (self.send_at, DeadlineKind::Send),
            (self.window_at, DeadlineKind::Send),
            (self.drain_at, DeadlineKind::Drain),
            (self.linger_at, DeadlineKind::Linger),
        ];
        earliest(of_connection, self.streams.iter().map(|(id, stream)| (id, of_stream(stream))))
    }

    /// The earliest deadline of one stream, for the live view.
    pub fn stream_deadline(&self, id: StreamId) -> Option<Deadline> {
        self.streams
            .get(id)
            .and_then(|stream| of_stream(stream).into_iter().flatten().min_by_key(|one| one.at))
    }

    /// Acts on the earliest deadline, if it is due; returns whether it was.
    pub(super) fn expire_one(&mut self, now: Moment) -> bool {
        let Some((due, owner)) = self.next_owned_deadline() else { return false };
        if !due.at.is_due(now) {
            return false;
        }
        match owner {
            Owner::Connection => self.connection_expired(due, now),
            Owner::Stream(id) if due.kind == DeadlineKind::Body => self.body_expired(id),
            Owner::Stream(id) if due.kind == DeadlineKind::Linger => self.refuse_rest(id),
            Owner::Stream(id) => self.window_expired(id),
        }
        true
    }

    fn connection_expired(&mut self, due: Deadline, now: Moment) {
        let reason = CloseReason::Expired(due.kind);
        match due.kind {
            DeadlineKind::Header | DeadlineKind::KeepAlive => self.fail(Code::NoError, reason),
            DeadlineKind::Handshake => self.fail(Code::SettingsTimeout, reason),
            DeadlineKind::Drain => self.finish_drain(now),
            DeadlineKind::Linger => {
                let reason = match self.phase {
                    Phase::Over(reason) => reason,
                    _ => reason,
                };
                self.close(reason);
            }
            // Output that the transport does not take, or a window that has been opened meanwhile.
            _ if self.window_at == Some(due.at) && !self.is_starved() => self.window_at = None,
            _ => self.abort(reason),
        }
    }

    /// The client sends its body too slowly.
    fn body_expired(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        (stream.read_at, stream.latest) = (None, None);
        if stream.output == Output::Awaited {
            stream.discard();
            self.events.push_back(Event::Refused(id, Cause::BodyTimedOut.into()));
        } else {
            self.reset_number(id.number, Code::Cancel, Loss::Expired(DeadlineKind::Body));
        }
    }

    /// The client does not open the window of a stream.
    fn window_expired(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if is_starved(stream) {
            self.reset_number(id.number, Code::Cancel, Loss::Expired(DeadlineKind::Send));
        } else {
            stream.send_at = None;
        }
    }

    pub(super) fn send_by(&self, now: Moment) -> Option<Moment> {
        self.policy.send_timeout.map(|timeout| now + timeout)
    }

    /// Output waits to leave; the deadline for it runs from now on.
    pub(super) fn note_unsent(&mut self, now: Moment) {
        self.unsent = true;
        if self.send_at.is_none() {
            self.send_at = self.send_by(now);
        }
    }

    /// A frame or a header block has begun and is not complete: bytes do not push its deadline.
    pub(super) fn await_frame(&mut self, now: Moment) {
        if self.header_at.is_none() && matches!(self.phase, Phase::Open) {
            self.header_at = self.policy.header_timeout.map(|timeout| now + timeout);
        }
    }

    /// A frame is complete. Before the first request its deadline stays: it is that of the first head.
    pub(super) fn between_frames(&mut self, now: Moment) {
        if self.requests > 0 && self.block.is_none() {
            self.header_at = None;
        }
        if self.settings_at.is_some() {
            self.arm_settings(now);
        }
    }

    /// The acknowledgement of our SETTINGS is awaited while nothing else comes and no stream is open: a client that
    /// uses the connection without it keeps its responses.
    pub(super) fn arm_settings(&mut self, now: Moment) {
        let is_awaited = !self.is_acknowledged && self.streams.running() == 0;
        let timeout = self.policy.settings_timeout.filter(|_| is_awaited);
        self.settings_at = timeout.map(|timeout| now + timeout);
    }

    /// A request has been received: the connection is not idle.
    pub(super) fn stream_opened(&mut self) {
        (self.header_at, self.idle_at, self.settings_at) = (None, None, None);
    }

    /// No stream is open: quiet time begins when all output has left.
    pub(super) fn arm_idle(&mut self, now: Moment) {
        if self.unsent || self.idle_at.is_some() || self.requests == 0 || self.drain != Drain::No {
            return;
        }
        match self.policy.keepalive_timeout {
            Some(timeout) => self.idle_at = Some(now + timeout),
            None => self.fail(Code::NoError, CloseReason::KeepAliveOff),
        }
    }

    pub(super) fn arm_linger(&mut self, now: Moment) {
        if self.stage == Stage::Lingering {
            let quiet = self.policy.lingering_timeout.map(|timeout| now + timeout);
            self.linger_at = quiet.into_iter().chain(self.linger_latest).min();
        }
    }

    /// Body bytes are awaited from now on.
    pub(super) fn await_body(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.await_body(&self.policy, now);
        }
        self.arm_body(id, now);
    }

    /// Body bytes came.
    pub(super) fn body_came(&mut self, id: StreamId, bytes: usize, now: Moment) {
        if bytes == 0 {
            return;
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.body_came(&self.policy, bytes);
        }
        self.arm_body(id, now);
    }

    /// Arms what is asked of the client for its body. While the handler has used the window up, the client is not
    /// late (T9).
    pub(super) fn arm_body(&mut self, id: StreamId, now: Moment) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.arm_body(&self.policy, now);
        if stream.receive_window == 0 {
            stream.read_at = None;
        }
    }

    /// The rest of a request whose response is complete is awaited for a while.
    pub(super) fn arm_rest(&mut self, id: StreamId, now: Moment) {
        let timeout = self.policy(id).lingering_timeout.unwrap_or(RATE_GRACE);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.read_at = Some(now + timeout);
        }
    }

    /// Looks whether a client keeps a stream, or all of them, from sending by small windows.
    pub(super) fn watch_window(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.streams.get_mut(id) {
            if stream.progress >= PROGRESS_BYTES || !is_starved(stream) {
                stream.send_at = None;
            }
            if is_starved(stream) {
                stream.arm_send(&self.policy, now);
            }
        }
        if self.progress >= PROGRESS_BYTES || !self.is_starved() {
            self.window_at = None;
        }
        if self.window_at.is_none() && self.is_starved() {
            self.progress = 0;
            self.window_at = self.send_by(now);
        }
    }

    /// The same for all streams, after a change of SETTINGS.
    pub(super) fn watch_windows(&mut self, now: Moment) {
        let ready = self.streams.iter().filter(|(_, stream)| stream.place.is_ready());
        for id in ready.map(|(id, _)| id).collect::<Vec<_>>() {
            self.watch_window(id, now);
        }
    }

    /// Whether the window of the connection keeps ready streams from sending.
    fn is_starved(&self) -> bool {
        self.send_window < i64::from(PROGRESS_BYTES) && !self.schedule.is_empty()
    }
}

/// What is armed for a stream.
fn of_stream(stream: &Stream) -> [Option<Deadline>; 2] {
    let awaited = match stream.output {
        Output::Finished => DeadlineKind::Linger,
        _ => DeadlineKind::Body,
    };
    stream.deadlines(awaited)
}

/// Whether the window of a stream keeps it from sending.
fn is_starved(stream: &Stream) -> bool {
    stream.place.is_ready()
        && stream.send_window < i64::from(PROGRESS_BYTES)
        && u64::try_from(stream.send_window).unwrap_or(0) < stream.unsent()
}
