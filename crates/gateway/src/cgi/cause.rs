//! Why a program gave no answer, or no whole one. The status follows from the variant and from nothing
//! that a program prints (C2).

use std::fmt;
use std::time::Duration;

use sekisho_http::Status;

/// Why a program gave no answer, or no whole one (C1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// There is no such program, or it is no regular file.
    Missing,
    /// It may not be run, and has no interpreter.
    NotExecutable,
    /// It cannot be started: a bad interpreter, too long an environment.
    NotStarted,
    /// It cannot be started now: no process, memory or descriptor is left (C12).
    NoResources,
    /// Too many requests wait for a program to end.
    QueueFull,
    /// This one has waited too long.
    QueueTimeout,
    /// It closed its output before the head was complete.
    ClosedEarly,
    /// It was killed by this signal before its answer was complete.
    Died(i32),
    /// Its head is none.
    BadHead(HeadError),
    /// It gave less than its `Content-Length` says.
    BodyTooShort,
    /// What it printed cannot be read.
    OutputLost,
    /// It was silent for too long: `cgi_read_timeout`.
    ReadTimeout,
    /// It ran for too long: `cgi_timeout`.
    RunTimeout,
    /// Somebody here wants no more of it: an operator, or the end of the server.
    Cancelled,
}

/// What is wrong with a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadError {
    /// Longer than `cgi_head_max`.
    TooLarge,
    /// A line that is not `name: value`.
    BadLine,
    /// A control byte in a value.
    ControlByte,
    /// A `Status` that is not a final status code.
    BadStatus,
    /// A `Content-Length` that is not a number, or is two.
    BadLength,
    /// A `Location` that is empty, or is two.
    BadLocation,
    /// No field at all.
    Empty,
}

impl Cause {
    /// What the client is told, while it can be told anything.
    pub const fn status(self) -> Status {
        match self {
            Self::Missing => Status::NOT_FOUND,
            Self::NotExecutable => Status::FORBIDDEN,
            Self::NotStarted
            | Self::ClosedEarly
            | Self::Died(_)
            | Self::BadHead(_)
            | Self::BodyTooShort
            | Self::OutputLost => Status::BAD_GATEWAY,
            Self::NoResources | Self::QueueFull | Self::QueueTimeout | Self::Cancelled => {
                Status::SERVICE_UNAVAILABLE
            }
            Self::ReadTimeout | Self::RunTimeout => Status::GATEWAY_TIMEOUT,
        }
    }

    /// When it may be worth trying again: `Retry-After` (C12).
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NoResources | Self::QueueFull | Self::QueueTimeout | Self::Cancelled => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }

    /// The word that stands for it in logs and metrics (T10).
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Missing => "cgi_missing",
            Self::NotExecutable => "cgi_not_executable",
            Self::NotStarted => "cgi_not_started",
            Self::NoResources => "cgi_no_resources",
            Self::QueueFull => "cgi_queue_full",
            Self::QueueTimeout => "cgi_queue_timeout",
            Self::ClosedEarly => "cgi_closed_early",
            Self::Died(_) => "cgi_died",
            Self::BadHead(_) => "cgi_bad_head",
            Self::BodyTooShort => "cgi_body_too_short",
            Self::OutputLost => "cgi_output_lost",
            Self::ReadTimeout => "cgi_read_timeout",
            Self::RunTimeout => "cgi_timeout",
            Self::Cancelled => "cgi_cancelled",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the program is not there",
            Self::NotExecutable => "the program is not executable",
            Self::NotStarted => "the program cannot be started",
            Self::NoResources => "no resources to start the program",
            Self::QueueFull => "too many requests wait for a program",
            Self::QueueTimeout => "waited too long for a program to end",
            Self::ClosedEarly => "the program closed its output before its head was complete",
            Self::Died(signal) => return write!(f, "the program was killed by signal {signal}"),
            Self::BadHead(error) => return write!(f, "bad head from the program: {error}"),
            Self::BodyTooShort => "the program gave less than its Content-Length",
            Self::OutputLost => "the program's output cannot be read",
            Self::ReadTimeout => "the program was silent for too long",
            Self::RunTimeout => "the program ran for too long",
            Self::Cancelled => "the request was cancelled",
        })
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "it is too large",
            Self::BadLine => "a line is not a field",
            Self::ControlByte => "a control byte in a field",
            Self::BadStatus => "invalid Status",
            Self::BadLength => "invalid Content-Length",
            Self::BadLocation => "invalid Location",
            Self::Empty => "it has no field",
        })
    }
}

impl std::error::Error for Cause {}
impl std::error::Error for HeadError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// C1, C2, C12: the ladder, by type.
    #[test]
    fn each_cause_has_its_status() {
        let table = [
            (Cause::Missing, 404),
            (Cause::NotExecutable, 403),
            (Cause::NotStarted, 502),
            (Cause::ClosedEarly, 502),
            (Cause::Died(9), 502),
            (Cause::BadHead(HeadError::TooLarge), 502),
            (Cause::BadHead(HeadError::ControlByte), 502),
            (Cause::BodyTooShort, 502),
            (Cause::NoResources, 503),
            (Cause::QueueFull, 503),
            (Cause::QueueTimeout, 503),
            (Cause::Cancelled, 503),
            (Cause::ReadTimeout, 504),
            (Cause::RunTimeout, 504),
        ];
        let mut tags = std::collections::HashSet::new();
        for (cause, code) in table {
            assert_eq!(cause.status().code(), code, "{cause}");
            assert_eq!(cause.retry_after().is_some(), code == 503, "{cause}");
            tags.insert(cause.tag());
        }
        assert_eq!(tags.len(), table.len() - 1, "each kind has its own tag");
    }
}
