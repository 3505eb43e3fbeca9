//! The limits and timeouts of a connection. Shared by all connections of a server block or
//! location; a stream may have another one than its connection when `:authority` has chosen so (T8).

use std::time::Duration;

use sekisho_http::Rate;

use crate::budget::{Bound, RATES};

/// Limits and deadlines. `None` means none (T2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What holds for HTTP/1 as well.
    pub common: sekisho_http::Policy,
    /// How long the peer may take to acknowledge our SETTINGS.
    pub settings_timeout: Option<Duration>,
    /// How long the first GOAWAY of a graceful end may wait for its echo before the second one follows.
    pub goaway_timeout: Duration,
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
    /// Bytes of one header block as it is sent, beyond which the connection ends (V9).
    pub block_bytes_max: usize,
    /// How many frames one header block may come in.
    pub block_frames_max: u32,
    /// What the peer may do that brings it nothing, in the order of [`Bound`].
    pub rates: [Rate; RATES],
}

sekisho_http::policy_parts!();

impl Default for Policy {
    fn default() -> Self {
        const TEN: Option<Duration> = Some(Duration::from_secs(10));
        Self {
            common: sekisho_http::Policy {
                send_timeout: Some(Duration::from_mins(1)),
                ..sekisho_http::Policy::default()
            },
            settings_timeout: TEN,
            goaway_timeout: Duration::from_secs(1),
            streams_max: 128,
            stream_window_bytes: 64 * 1024,
            upload_window_bytes: 256 * 1024,
            connection_window_bytes: 8 * 1024 * 1024,
            chunk_bytes: 16 * 1024,
            block_bytes_max: 64 * 1024,
            block_frames_max: 16,
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
