//! What the engine tells the shell.

use std::ops::Range;

use sekisho_http::Refusal;

/// What the shell must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The head is complete and is in `scratch.head`. The shell routes it and then calls
    /// [`set_policy`](crate::Http1::set_policy), perhaps [`take_body`](crate::Http1::take_body), and at some time [`respond`](crate::Http1::respond).
    Request,
    /// Body bytes: this range of the input that was just offered.
    Body(Range<usize>),
    /// The body that was taken is complete; also reported for one that is empty or absent.
    BodyEnd,
    /// The request is refused: the shell answers with this status by [`respond`](crate::Http1::respond) at once.
    /// `scratch.head` holds as much as could be parsed, perhaps nothing.
    Refused(Refusal),
    /// The client is lost, or its request will never be complete: the shell cancels the handler. The
    /// connection is over as soon as what was answered before has left.
    ClientLost,
}
