//! The kinds of deadline there are. A deadline is data: which kind, and when. Waiting for it is the shell's
//! business.

use crate::time::Moment;

/// What a deadline limits. Each kind has its own log tag and counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeadlineKind {
    /// The request head must be complete: absolute, bytes do not extend it.
    Header,
    /// The next bytes of a request body must come.
    Body,
    /// The next request must begin.
    KeepAlive,
    /// The client must take bytes.
    Send,
    /// What is left of the client's input must end.
    Linger,
    /// The program that works on the request must be done, or end after its signal.
    Program,
    /// That program must say something.
    Silence,
    /// What the request waits for must come: a place for a program, its turn under a rate, a password's check.
    Wait,
    /// The first message of a native session must be complete: absolute.
    Handshake,
    /// A native frame that has begun must come to its end.
    Frame,
    /// Something must pass over a native session.
    Session,
    /// Channels must be drained before a graceful end.
    Drain,
    /// A native request must be done: its caller waits no longer.
    Request,
    /// A native peer from which nothing comes must answer a `PING`.
    Ping,
    /// Our own pause under `limit_rate` is over: no side is late.
    Rate,
    /// A session that is being ended must be over: its quiet moment while it drains, or what it has left by force.
    Shutdown,
    /// A connection to an upstream must be there, its handshake included.
    UpstreamConnect,
    /// An upstream must take bytes.
    UpstreamSend,
    /// An upstream must send bytes; in a tunnel, either side must.
    UpstreamRead,
}

impl DeadlineKind {
    /// Every kind, in the order of its counter.
    pub const ALL: [Self; 19] = [
        Self::Header,
        Self::Body,
        Self::KeepAlive,
        Self::Send,
        Self::Linger,
        Self::Program,
        Self::Silence,
        Self::Wait,
        Self::Handshake,
        Self::Frame,
        Self::Session,
        Self::Drain,
        Self::Request,
        Self::Ping,
        Self::Rate,
        Self::Shutdown,
        Self::UpstreamConnect,
        Self::UpstreamSend,
        Self::UpstreamRead,
    ];

    /// Its name in logs and metrics.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Header => "client_header_timeout",
            Self::Body => "client_body_timeout",
            Self::KeepAlive => "keepalive_timeout",
            Self::Send => "send_timeout",
            Self::Linger => "lingering_timeout",
            Self::Program => "cgi_timeout",
            Self::Silence => "cgi_read_timeout",
            Self::Wait => "wait",
            Self::Handshake => "handshake_timeout",
            Self::Frame => "frame_timeout",
            Self::Session => "session_timeout",
            Self::Drain => "drain_timeout",
            Self::Request => "request_deadline",
            Self::Ping => "ping_timeout",
            Self::Rate => "limit_rate",
            Self::Shutdown => "shutdown",
            Self::UpstreamConnect => "upstream_connect_timeout",
            Self::UpstreamSend => "upstream_send_timeout",
            Self::UpstreamRead => "upstream_read_timeout",
        }
    }
}

/// An armed deadline: at which moment, and what it limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// When it falls due.
    pub at: Moment,
    /// What it limits.
    pub kind: DeadlineKind,
}
