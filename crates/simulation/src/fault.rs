//! What can be wrong with the server of a world, on purpose: each of these must be seen, or the simulator
//! looks at nothing. They sit around the driver and the engine, never in them.

/// Something wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// HTTP: an answer leaves twice.
    AnswerTwice,
    /// HTTP: an answer never leaves, and all believe that it has.
    AnswerLost,
    /// HTTP: two answers of a batch change places.
    AnswersSwapped,
    /// HTTP: a body that breaks off ends as if it were whole.
    BreakLooksWhole,
    /// HTTP: one byte of a request body is left in the stream.
    ByteLeftBehind,
    /// HTTP: a deadline acts a millisecond before its time.
    DeadlineEarly,
    /// HTTP: a deadline acts a millisecond after its time.
    DeadlineLate,
    /// HTTP: each byte of a head gives its client the whole time again.
    DripExtends,
    /// HTTP: a lost client's task goes on.
    TaskForgotten,
    /// HTTP: a task is cancelled a second time.
    CancelTwice,
    /// HTTP: the buffers of a session that was reset are not given back.
    BuffersForgotten,
    /// HTTP: a graceful shutdown does not reach a session that is idle.
    IdleForgotten,
    /// HTTP: a reload closes idle sessions.
    ReloadCloses,
    /// HTTP: a forced end waits for a client that does not read.
    ForceWaits,
    /// HTTP: a session that has nothing to do wakes itself.
    BusyLoop,
    /// HTTP: a program is not swept.
    ProgramForgotten,
    /// HTTP: the connection closes with what the client still sends unread, right behind a refusal.
    NoLinger,
    /// HTTP/2: a body that breaks off ends as if it were whole.
    StreamBreakLooksWhole,
    /// HTTP/2: the task of a stream that was reset goes on.
    StreamTaskForgotten,
    /// HTTP/2: what is sent leaves twice.
    StreamSentTwice,
    /// HTTP/2: a GOAWAY never leaves.
    GoAwayLost,
    /// HTTP/2: a graceful shutdown does not reach a session without streams.
    StreamlessForgotten,
    /// Native: a result leaves twice.
    ResultTwice,
    /// Native: a result never leaves.
    ResultLost,
    /// Native: a record leaves twice.
    RecordTwice,
    /// Native: a record never leaves.
    RecordLost,
    /// Native: a producer writes beyond its window.
    CreditIgnored,
    /// Native: a cancel does not reach its handler.
    CancelLost,
    /// Native: a handle is never dropped.
    HandleForgotten,
    /// Native: a deadline acts a millisecond before its time.
    ExpiryEarly,
    /// Native: a deadline acts a millisecond after its time.
    ExpiryLate,
    /// Native: a graceful shutdown cancels what runs.
    GraceCancels,
    /// Native: what is left of a lost session is not reclaimed.
    NotReclaimed,
}

impl Fault {
    /// Those of the HTTP world.
    pub const HTTP: [Self; 17] = [
        Self::AnswerTwice,
        Self::AnswerLost,
        Self::AnswersSwapped,
        Self::BreakLooksWhole,
        Self::ByteLeftBehind,
        Self::DeadlineEarly,
        Self::DeadlineLate,
        Self::DripExtends,
        Self::TaskForgotten,
        Self::CancelTwice,
        Self::BuffersForgotten,
        Self::IdleForgotten,
        Self::ReloadCloses,
        Self::ForceWaits,
        Self::BusyLoop,
        Self::ProgramForgotten,
        Self::NoLinger,
    ];
    /// Those of the HTTP/2 world.
    pub const HTTP2: [Self; 5] = [
        Self::StreamBreakLooksWhole,
        Self::StreamTaskForgotten,
        Self::StreamSentTwice,
        Self::GoAwayLost,
        Self::StreamlessForgotten,
    ];
    /// Those of the native world.
    pub const NATIVE: [Self; 11] = [
        Self::ResultTwice,
        Self::ResultLost,
        Self::RecordTwice,
        Self::RecordLost,
        Self::CreditIgnored,
        Self::CancelLost,
        Self::HandleForgotten,
        Self::ExpiryEarly,
        Self::ExpiryLate,
        Self::GraceCancels,
        Self::NotReclaimed,
    ];
}
