//! Graceful and forceful shutdown of a connection (M2, L6, L7).

use sekisho_lifecycle::{CloseReason, Moment, Stage};

use super::{Drain, Http2, Phase};
use crate::code::Code;
use crate::event::Scratch;
use crate::frame::{self, MAX_31};
use crate::stream::Output;

/// What comes back when the client has seen the first GOAWAY.
const ECHO: [u8; 8] = *b"goaway 1";

impl Http2 {
    /// Takes no further request: a first GOAWAY announces the end; when the client must have seen it, a
    /// second one names the last stream; running streams end. Requests that were in flight are still taken,
    /// so that the client need not retry them.
    pub fn shut_down_gracefully(&mut self, scratch: &mut Scratch, now: Moment) {
        if self.stage != Stage::Open {
            return;
        }
        match self.phase {
            Phase::Fresh => self.abort(CloseReason::Draining),
            // The client has begun: its first requests are on their way, and most clients do not ask again for
            // what is refused before they could know. The deadline of the preface bounds the wait.
            Phase::Greeting => self.drains_when_open = true,
            Phase::Open => self.announce_end(CloseReason::Draining, now),
            Phase::Over(_) => {}
        }
        self.put_out(scratch.out.len(), scratch, now);
        self.settle(now);
    }

    /// Ends the connection now: every stream that the shell has not ended is reset.
    pub fn shut_down_forcefully(&mut self, scratch: &mut Scratch, now: Moment) {
        if self.stage != Stage::Open || matches!(self.phase, Phase::Over(_)) {
            return;
        }
        for (id, stream) in self.streams.iter() {
            if !matches!(stream.output, Output::Gone) {
                frame::rst_stream(&mut self.control, id.number, Code::Cancel.number());
            }
        }
        self.fail(Code::NoError, CloseReason::Forced);
        self.put_out(scratch.out.len(), scratch, now);
        self.settle(now);
    }

    /// The connection is one too many: it gets an error and is closed (H10). Its requests may be tried
    /// elsewhere.
    pub fn refuse_connection(&mut self, scratch: &mut Scratch, now: Moment) {
        if self.phase == Phase::Fresh {
            self.greet(now);
        }
        self.fail(Code::EnhanceYourCalm, CloseReason::TooMany);
        self.put_out(scratch.out.len(), scratch, now);
        self.settle(now);
    }

    /// Whether the connection takes no further requests, as far as is known.
    pub const fn will_close(&self) -> bool {
        !matches!(self.drain, Drain::No)
            || !matches!(self.stage, Stage::Open)
            || matches!(self.phase, Phase::Over(_))
    }

    /// Whether a request that comes now is not looked at: the client has been told which stream was the last. Until
    /// then requests are still taken, though the end has been announced.
    pub const fn takes_no_request(&self) -> bool {
        matches!(self.drain, Drain::Final(..))
            || !matches!(self.stage, Stage::Open)
            || matches!(self.phase, Phase::Over(_))
    }

    /// The first GOAWAY, and a PING whose echo says that it has arrived.
    pub(super) fn announce_end(&mut self, reason: CloseReason, now: Moment) {
        if self.drain != Drain::No {
            return;
        }
        self.drain = Drain::Announced(reason);
        self.idle_at = None;
        frame::go_away(&mut self.control, MAX_31, Code::NoError.number());
        frame::ping(&mut self.control, 0, ECHO);
        self.drain_at = Some(now + self.policy.goaway_timeout);
    }

    /// An answer to a PING; says whether it was one of ours.
    pub(super) fn echoed(&mut self, opaque: [u8; 8]) -> bool {
        let is_ours = opaque == ECHO && matches!(self.drain, Drain::Announced(_));
        if is_ours {
            self.say_last();
        }
        is_ours
    }

    /// The echo has come, or has been waited for long enough.
    pub(super) fn finish_drain(&mut self, now: Moment) {
        self.say_last();
        self.settle(now);
    }

    /// The second GOAWAY: no stream behind this one will be looked at.
    fn say_last(&mut self) {
        self.drain_at = None;
        if let Drain::Announced(reason) = self.drain {
            self.drain = Drain::Final(reason, self.last);
            frame::go_away(&mut self.control, self.last, Code::NoError.number());
        }
    }
}
