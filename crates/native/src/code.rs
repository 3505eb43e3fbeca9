//! The error codes. Their numbers are on the wire and never change; a new one gets a new number.

use std::fmt;

/// The kind of error, for programs. The text beside it is for humans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// Unknown: a handler went away without an answer, or the number is not known here.
    Unknown = 1,
    /// The server could not do its own part.
    SystemError = 2,
    /// Not offered, in this version or at all.
    UnsupportedOperation = 3,
    /// Not now, in this state.
    IllegalState = 4,
    /// The credential will not do.
    AuthenticationError = 5,
    /// The peer is known and may not.
    PermissionError = 6,
    /// Reading or writing something failed.
    IoError = 7,
    /// There are as many, or it is as large, as may be.
    ResourceLimitReached = 8,
    /// The session is being shut down, or is over.
    SessionClosed = 9,
    /// The session, or its handshake, took too long.
    SessionExpired = 10,
    /// No service has this number.
    ServiceNotFound = 11,
    /// The service is there and cannot work.
    ServiceUnavailable = 12,
    /// The request, or the frame, cannot be understood.
    InvalidRequest = 13,
    /// The request was cancelled before it was done.
    OperationCancelled = 14,
    /// The server does not want to.
    OperationDenied = 15,
    /// The request was not done when the time was over that its caller gave it.
    DeadlineExceeded = 16,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 16] = [
        Self::Unknown,
        Self::SystemError,
        Self::UnsupportedOperation,
        Self::IllegalState,
        Self::AuthenticationError,
        Self::PermissionError,
        Self::IoError,
        Self::ResourceLimitReached,
        Self::SessionClosed,
        Self::SessionExpired,
        Self::ServiceNotFound,
        Self::ServiceUnavailable,
        Self::InvalidRequest,
        Self::OperationCancelled,
        Self::OperationDenied,
        Self::DeadlineExceeded,
    ];

    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The code of a number; a number of a later version reads as `UNKNOWN`.
    pub fn of_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::SystemError => "SYSTEM_ERROR",
            Self::UnsupportedOperation => "UNSUPPORTED_OPERATION",
            Self::IllegalState => "ILLEGAL_STATE",
            Self::AuthenticationError => "AUTHENTICATION_ERROR",
            Self::PermissionError => "PERMISSION_ERROR",
            Self::IoError => "IO_ERROR",
            Self::ResourceLimitReached => "RESOURCE_LIMIT_REACHED",
            Self::SessionClosed => "SESSION_CLOSED",
            Self::SessionExpired => "SESSION_EXPIRED",
            Self::ServiceNotFound => "SERVICE_NOT_FOUND",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::OperationCancelled => "OPERATION_CANCELLED",
            Self::OperationDenied => "OPERATION_DENIED",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_are_written_down() {
        // E8
        let document = include_str!("../../../docs/protocol.md");
        for (index, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code.number() as usize, index + 1);
            assert_eq!(Code::of_number(code.number()), code);
            let row = format!("| {} | `{}` |", code.number(), code.name());
            assert!(document.contains(&row), "docs/protocol.md has no row {row}");
        }
        assert_eq!(Code::of_number(0), Code::Unknown);
        assert_eq!(Code::of_number(u32::MAX), Code::Unknown);
    }
}
