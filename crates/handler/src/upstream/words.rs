//! What the error log says about a server that failed, in nginx's words: operators search for them.

use std::fmt;

use sekisho_http::upstream::{Failure, Phase};

/// A failure, and what was being done.
pub(super) struct Words(pub(super) Failure, pub(super) Phase);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(failure, phase) = *self;
        match failure {
            Failure::NotConnected(Some(errno)) => {
                write!(f, "connect() failed ({errno}: {})", Errno(errno))?;
            }
            Failure::Lost(Some(errno)) if phase == Phase::Sending => {
                write!(f, "send() failed ({errno}: {})", Errno(errno))?;
            }
            Failure::Lost(Some(errno)) => {
                write!(f, "recv() failed ({errno}: {})", Errno(errno))?;
            }
            Failure::ConnectTimeout | Failure::SendTimeout | Failure::ReadTimeout => {
                write!(f, "{failure} (110: Connection timed out)")?;
            }
            _ => write!(f, "{failure}")?,
        }
        write!(f, " while {}", phase.words())
    }
}

/// What the system calls an error, without its number.
struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U2: what tools look for.
    #[test]
    fn failures_are_worded_as_in_nginx() {
        let rows = [
            (
                Failure::NotConnected(Some(111)),
                Phase::Connecting,
                "connect() failed (111: Connection refused) while connecting to upstream",
            ),
            (
                Failure::ReadTimeout,
                Phase::ReadingHead,
                "upstream timed out (110: Connection timed out) while reading response header from upstream",
            ),
            (
                Failure::ClosedEarly,
                Phase::ReadingHead,
                "upstream prematurely closed connection while reading response header from upstream",
            ),
            (
                Failure::Lost(Some(104)),
                Phase::ReadingBody,
                "recv() failed (104: Connection reset by peer) while reading upstream",
            ),
            (Failure::NoLive, Phase::Connecting, "no live upstreams while connecting to upstream"),
        ];
        for (failure, phase, expected) in rows {
            assert_eq!(Words(failure, phase).to_string(), expected);
        }
    }
}
