//! What a session may use and how long it may take. One value for all sessions of an endpoint.

use std::time::Duration;

use crate::frame::HEAD_BYTES;
use crate::handshake::{Greeting, VERSION};
use crate::message::Welcome;

/// Limits and timeouts. `None` is "no such deadline".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The longest payload of a request, a result or a record.
    pub frame_bytes_max: u32,
    /// Requests per session: running, or with an undrained channel, or still held.
    pub requests_max: u32,
    /// Undrained channels per session.
    pub channels_max: u32,
    /// The window of each channel: what the server holds of it at the most.
    pub channel_bytes_max: u32,
    /// With so much waiting to leave, nothing more is taken in, and no record is taken from a handler.
    pub output_bytes_max: u64,
    /// From connecting to the end of the handshake: absolute.
    pub handshake_timeout: Option<Duration>,
    /// How long the shell may take to decide on a peer that has sent its handshake.
    pub decide_timeout: Duration,
    /// From a frame's first byte to its last; each [`PROGRESS_BYTES`] buy the same time again.
    pub frame_timeout: Option<Duration>,
    /// While the peer does not take bytes.
    pub send_timeout: Option<Duration>,
    /// Without traffic.
    pub session_timeout: Option<Duration>,
    /// How far from now an explicit extension reaches at the most.
    pub session_extension_max: Duration,
    /// How long a graceful end waits for channels.
    pub drain_timeout: Option<Duration>,
    /// No client is asked more often than this whether it is there (`PING`).
    pub keepalive_min: Duration,
    /// How long the peer may take to close after `BYE`.
    pub linger_timeout: Duration,
}

/// So many bytes of a long frame show that it goes on.
pub const PROGRESS_BYTES: u32 = 16 * 1024;

/// The smallest window that makes sense.
pub const CHANNEL_BYTES_MIN: u32 = 64;

impl Default for Policy {
    fn default() -> Self {
        Self {
            frame_bytes_max: 1 << 20,
            requests_max: 256,
            channels_max: 64,
            channel_bytes_max: 256 << 10,
            output_bytes_max: 256 << 10,
            handshake_timeout: Some(Duration::from_secs(10)),
            decide_timeout: Duration::from_secs(10),
            frame_timeout: Some(Duration::from_secs(10)),
            send_timeout: Some(Duration::from_secs(10)),
            session_timeout: Some(Duration::from_mins(5)),
            session_extension_max: Duration::from_hours(1),
            drain_timeout: Some(Duration::from_secs(10)),
            keepalive_min: Duration::from_secs(1),
            linger_timeout: Duration::from_secs(2),
        }
    }
}

/// What both sides have agreed upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The longest payload in both directions.
    pub frame_bytes_max: u32,
    /// The window of each channel, and of the body of each request.
    pub channel_bytes: u32,
    /// The minor version.
    pub minor: u32,
    /// After so long without a byte from the peer it is asked whether it is there.
    pub keepalive: Option<Duration>,
    /// A channel that is released counts as drained: the client takes all that it gave credit for.
    pub drains_at_end: bool,
}

impl Agreed {
    /// What comes of the server's limits and the client's wishes, of which zero is none.
    pub fn new(policy: &Policy, frame_bytes_max: u32, channel_bytes: u32) -> Self {
        let or_all = |wanted: u32| if wanted == 0 { u32::MAX } else { wanted };
        Self {
            frame_bytes_max: policy.frame_bytes_max.min(or_all(frame_bytes_max)),
            channel_bytes: policy
                .channel_bytes_max
                .min(or_all(channel_bytes))
                .max(CHANNEL_BYTES_MIN),
            minor: 0,
            keepalive: None,
            drains_at_end: false,
        }
    }

    /// What comes of a handshake.
    pub fn of(policy: &Policy, greeting: &Greeting) -> Self {
        let keepalive = match (greeting.minor, greeting.keepalive_millis) {
            (0, _) | (_, 0) => None,
            (_, millis) => Some(Duration::from_millis(u64::from(millis)).max(policy.keepalive_min)),
        };
        Self {
            minor: greeting.minor,
            keepalive,
            drains_at_end: greeting.minor > 0 && greeting.drains_at_end,
            ..Self::new(policy, greeting.frame_bytes_max, greeting.channel_bytes)
        }
    }

    /// The same as its client knows it, from the server's answer.
    #[must_use]
    pub fn welcomed(self, welcome: &Welcome) -> Self {
        Self {
            frame_bytes_max: self.frame_bytes_max.min(welcome.frame_bytes_max),
            channel_bytes: welcome.channel_bytes.max(CHANNEL_BYTES_MIN),
            minor: VERSION.common_minor(welcome.minor),
            keepalive: (welcome.keepalive_millis > 0)
                .then(|| Duration::from_millis(u64::from(welcome.keepalive_millis))),
            drains_at_end: welcome.drains_at_end,
        }
    }

    /// The longest record: one that a whole window has room for.
    pub const fn record_bytes_max(self) -> u32 {
        let room = self.channel_bytes.saturating_sub(HEAD_BYTES as u32);
        if room < self.frame_bytes_max { room } else { self.frame_bytes_max }
    }
}
