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
    /// An argument or an interpreter that the configuration takes from the request would be an option, or lie
    /// elsewhere.
    BadArgument,
    /// It cannot be started: a bad interpreter, too long an environment.
    NotStarted,
    /// It cannot be started now: no process, memory or descriptor is left (C12).
    NoResources,
    /// Too many requests wait for a program to end.
    QueueFull,
    /// This one has waited too long.
    QueueTimeout,
    /// It closed its output before the head was complete, and ended with this code, if it has ended.
    ClosedEarly(Option<i32>),
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
    /// The server cancelled it: an operator, or the end of the server.
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
    /// The status for the client, if no head has been sent yet.
    pub const fn status(self) -> Status {
        match self {
            Self::Missing => Status::NOT_FOUND,
            Self::NotExecutable => Status::FORBIDDEN,
            Self::BadArgument => Status::BAD_REQUEST,
            Self::NotStarted
            | Self::ClosedEarly(_)
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

    /// Its name in logs and metrics (T10).
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Missing => "cgi_missing",
            Self::NotExecutable => "cgi_not_executable",
            Self::BadArgument => "cgi_bad_argument",
            Self::NotStarted => "cgi_not_started",
            Self::NoResources => "cgi_no_resources",
            Self::QueueFull => "cgi_queue_full",
            Self::QueueTimeout => "cgi_queue_timeout",
            Self::ClosedEarly(_) => "cgi_closed_early",
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
            Self::Missing => "the program does not exist",
            Self::NotExecutable => "the program is not executable",
            Self::BadArgument => {
                "an argument from the request begins with \"-\", or a path has \"..\""
            }
            Self::NotStarted => "the program cannot be started",
            Self::NoResources => "no resources to start the program",
            Self::QueueFull => "too many requests wait for a program",
            Self::QueueTimeout => "waited too long for a program to end",
            Self::ClosedEarly(None) => "the program closed its output before its head was complete",
            Self::ClosedEarly(Some(code)) => {
                write!(f, "the program ended before its head was complete, with status {code}")?;
                // What a shell makes of the end of what it ran.
                return match code.checked_sub(SHELL_SAYS_SIGNAL).and_then(signal_name) {
                    Some(name) => write!(f, " (as after {name})"),
                    None => Ok(()),
                };
            }
            Self::Died(signal) => {
                write!(f, "the program was killed by signal {signal}")?;
                return match signal_name(*signal) {
                    Some(name) => write!(f, " ({name})"),
                    None => Ok(()),
                };
            }
            Self::BadHead(error) => return write!(f, "bad head from the program: {error}"),
            Self::BodyTooShort => "the program sent less than its Content-Length",
            Self::OutputLost => "the program's output cannot be read",
            Self::ReadTimeout => "the program was silent for too long",
            Self::RunTimeout => "the program ran for too long",
            Self::Cancelled => "the request was cancelled",
        })
    }
}

/// What a shell adds to the number of the signal that its command was killed by.
const SHELL_SAYS_SIGNAL: i32 = 128;

/// What a signal says about the end of a program; for the kernel's answer to a limit, which limit that is.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU: too long on a processor, see cgi_limits cpu",
        25 => "SIGXFSZ: too large a file, see cgi_limits file",
        31 => "SIGSYS",
        _ => return None,
    })
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
            (Cause::BadArgument, 400),
            (Cause::NotStarted, 502),
            (Cause::ClosedEarly(None), 502),
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

    /// C1, O6: the line says how it ended, and by which limit.
    #[test]
    fn the_end_of_a_program_is_told_with_its_signal_or_status() {
        for (cause, expected) in [
            (Cause::ClosedEarly(None), "closed its output before"),
            (Cause::ClosedEarly(Some(0)), "ended before its head was complete, with status 0"),
            (Cause::ClosedEarly(Some(127)), "with status 127"),
            (Cause::ClosedEarly(Some(153)), "with status 153 (as after SIGXFSZ: too large a file"),
            (Cause::ClosedEarly(Some(i32::MIN)), "with status -2147483648"),
            (Cause::Died(24), "by signal 24 (SIGXCPU: too long on a processor, see cgi_limits cpu"),
            (Cause::Died(9), "by signal 9 (SIGKILL)"),
            (Cause::Died(64), "by signal 64"),
        ] {
            let text = cause.to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
