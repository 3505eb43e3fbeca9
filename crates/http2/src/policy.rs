//! The limits and timeouts of a connection. Shared by all connections of a server block or
//! location; a stream may have another one than its connection when `:authority` has chosen so (T8).

use std::time::Duration;

use crate::budget::{Bound, RATES};

/// How often something may happen: so often at once, and so often a second after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// A second.
    pub per_second: u32,
}

/// Limits and deadlines. `None` means none (T2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// `client_header_timeout`: from accept to the end of the first head, and for each later frame or header block
    /// from its first byte to its end.
    pub header_timeout: Option<Duration>,
    /// `client_body_timeout`
    pub body_timeout: Option<Duration>,
    /// `client_body_min_rate`, bytes a second.
    pub body_min_rate: Option<u64>,
    /// `keepalive_timeout`; `None` ends the connection when no stream is open.
    pub keepalive_timeout: Option<Duration>,
    /// `send_timeout`: for the connection's output to leave, and for a stream whose window is used up.
    pub send_timeout: Option<Duration>,
    /// `lingering_timeout`: quiet time while lingering.
    pub lingering_timeout: Option<Duration>,
    /// `lingering_time`: how long lingering may take in all.
    pub lingering_time: Option<Duration>,
    /// How long the peer may take to acknowledge our SETTINGS.
    pub settings_timeout: Option<Duration>,
    /// How long the first GOAWAY of a graceful end may wait for its echo before the second one follows.
    pub goaway_timeout: Duration,
    /// `keepalive_requests`
    pub keepalive_requests: u64,
    /// `http2_max_concurrent_streams`
    pub streams_max: u32,
    /// `http2_body_preread_size`: the window of a stream before its body is taken.
    pub stream_window_bytes: u32,
    /// The window of a stream whose body is being taken: how much may wait for a handler.
    pub upload_window_bytes: u32,
    /// The window of the connection.
    pub connection_window_bytes: u32,
    /// `http2_chunk_size`: the longest DATA frame that we send.
    pub chunk_bytes: u32,
    /// Bytes of `:path`, beyond which it is 414.
    pub line_bytes_max: usize,
    /// Bytes of one field, beyond which it is 431.
    pub field_bytes_max: usize,
    /// Bytes of the whole list of fields, counted as RFC 9113 §6.5.2 does, beyond which it is 431.
    pub head_bytes_max: usize,
    /// How many fields, beyond which it is 431.
    pub fields_max: usize,
    /// Bytes of one header block as it is sent, beyond which the connection ends (V9).
    pub block_bytes_max: usize,
    /// How many frames one header block may come in.
    pub block_frames_max: u32,
    /// `half_close`: FIN while a handler works does not count as a lost client (H11).
    pub half_close: bool,
    /// What the peer may do that brings it nothing, in the order of [`Bound`].
    pub rates: [Rate; RATES],
}

impl Policy {
    /// The rate of a bound.
    pub fn rate(&self, bound: Bound) -> Rate {
        self.rates.get(bound as usize).copied().unwrap_or(Rate { burst: 0, per_second: 0 })
    }
}

impl Default for Policy {
    fn default() -> Self {
        const TEN: Option<Duration> = Some(Duration::from_secs(10));
        Self {
            header_timeout: TEN,
            body_timeout: TEN,
            body_min_rate: None,
            keepalive_timeout: TEN,
            send_timeout: Some(Duration::from_mins(1)),
            lingering_timeout: TEN,
            lingering_time: Some(Duration::from_secs(30)),
            settings_timeout: TEN,
            goaway_timeout: Duration::from_secs(1),
            keepalive_requests: 1000,
            streams_max: 128,
            stream_window_bytes: 64 * 1024,
            upload_window_bytes: 256 * 1024,
            connection_window_bytes: 8 * 1024 * 1024,
            chunk_bytes: 16 * 1024,
            line_bytes_max: 8 * 1024,
            field_bytes_max: 8 * 1024,
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            block_bytes_max: 64 * 1024,
            block_frames_max: 16,
            half_close: false,
            rates: [
                Rate { burst: 200, per_second: 20 },   // resets
                Rate { burst: 100, per_second: 5 },    // own resets
                Rate { burst: 200, per_second: 20 },   // refused streams
                Rate { burst: 50, per_second: 5 },     // settings
                Rate { burst: 100, per_second: 10 },   // pings
                Rate { burst: 500, per_second: 50 },   // priorities
                Rate { burst: 100, per_second: 10 },   // empty frames
                Rate { burst: 1000, per_second: 100 }, // window updates
                Rate { burst: 200, per_second: 20 },   // useless frames
            ],
        }
    }
}
