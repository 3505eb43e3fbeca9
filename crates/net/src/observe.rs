//! What the driver reports about a session. The simulation compares it with its own model. Without the
//! feature `simulation` there is no observer and reporting compiles to nothing.

use sekisho_http::Status;
use sekisho_lifecycle::{CloseReason, DeadlineKind, Moment, RequestId, Stage};

use crate::link::Link;

/// What is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// What the client asked for.
    Request,
    /// The engine refuses with this status.
    Refused(Status),
    /// A handler failed with this status.
    Failed(Status),
    /// Something else in its place, or the same once more.
    Instead,
}

/// Something that happened in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact<'a> {
    /// A request, or what became of it, is about to be answered.
    Asked(Asked, &'a [u8]),
    /// The body is wanted from now on; whether a 100 was sent.
    BodyWanted {
        /// By a 100.
        is_continued: bool,
    },
    /// The engine is offered so many bytes of the input.
    Offered(usize),
    /// The engine took so many bytes of the input.
    Taken(usize),
    /// The head of the response has been made.
    Responded,
    /// The response cannot be completed.
    BrokenOff,
    /// The client was found to be lost to this request.
    ClientLost,
    /// The request is over.
    Ended {
        /// Whether its response is complete.
        is_complete: bool,
    },
    /// A deadline of the protocol fell.
    Expired {
        /// Which.
        kind: DeadlineKind,
        /// Whether a request is refused for it.
        is_refused: bool,
        /// Whether the connection was about to close anyway.
        would_close: bool,
    },
    /// The transport takes nothing from here on, and the client's acknowledgements are looked at.
    Stalled,
    /// The client was found to have acknowledged bytes: its send deadline starts anew.
    Acknowledged,
    /// The session has ended.
    Closed(CloseReason),
}

/// Where the protocol stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineView {
    /// Its stage.
    pub stage: Stage,
    /// Whether the connection closes after the response in work.
    pub will_close: bool,
}

impl Link {
    /// Tells of something that happened.
    #[cfg(not(feature = "simulation"))]
    #[expect(clippy::unused_self, reason = "nobody listens outside of simulations")]
    #[inline(always)]
    pub(crate) fn tell<'a>(&self, _: RequestId, _: impl FnOnce() -> Fact<'a>, _: Moment) {}

    /// Tells of something that happened.
    #[cfg(feature = "simulation")]
    pub(crate) fn tell<'a>(&self, id: RequestId, fact: impl FnOnce() -> Fact<'a>, now: Moment) {
        if let Some(seam) = self.worker.simulation.get() {
            seam.script.tell(self.id, id, fact(), self.engine_view(), now);
        }
    }

    /// Where the protocol stands.
    #[cfg(feature = "simulation")]
    pub(crate) fn engine_view(&self) -> EngineView {
        EngineView { stage: self.protocol.stage(), will_close: self.protocol.will_close() }
    }
}
