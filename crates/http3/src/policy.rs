//! The limits and timeouts of a connection. Shared by all connections of a server block or
//! location; a stream may have another one than its connection when `:authority` has chosen so (T8).

use std::time::Duration;

use sekisho_http::Rate;
use sekisho_http::compression::table::TABLE_BYTES;

use crate::budget::{Bound, RATES};

/// Limits and deadlines. `None` means none (T2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What holds for every version of HTTP.
    pub common: sekisho_http::Policy,
    /// How long requests are still taken behind the first GOAWAY of a graceful end before the second one follows.
    pub goaway_timeout: Duration,
    /// `http3_max_concurrent_streams`
    pub streams_max: u32,
    /// `http3_stream_buffer_size`: how much the client may send on a stream before its body is taken. The shell
    /// announces it as the window of a stream.
    pub stream_buffer_bytes: u32,
    /// Bytes of one header block as it is sent, beyond which the request gets 431.
    pub block_bytes_max: usize,
    /// Bytes of header blocks that are incomplete or wait for entries, on all streams of a connection.
    pub blocks_bytes_max: usize,
    /// The largest dynamic table of QPACK that the client may use.
    pub table_bytes: usize,
    /// How many streams may wait for entries of the dynamic table.
    pub blocked_streams_max: usize,
    /// The largest dynamic table of our own encoder, whatever the client allows.
    pub encoder_table_bytes: usize,
    /// What the peer may do that brings it nothing, in the order of [`Bound`].
    pub rates: [Rate; RATES],
}

sekisho_http::policy_parts!();

impl Default for Policy {
    fn default() -> Self {
        Self {
            common: sekisho_http::Policy {
                send_timeout: Some(Duration::from_mins(1)),
                ..sekisho_http::Policy::default()
            },
            goaway_timeout: Duration::from_secs(1),
            streams_max: 128,
            stream_buffer_bytes: 64 * 1024,
            block_bytes_max: 64 * 1024,
            blocks_bytes_max: 256 * 1024,
            table_bytes: TABLE_BYTES,
            blocked_streams_max: 16,
            encoder_table_bytes: 1024,
            rates: [
                Rate { burst: 200, per_second: 20 },   // resets
                Rate { burst: 100, per_second: 5 },    // own resets
                Rate { burst: 200, per_second: 20 },   // refused streams
                Rate { burst: 500, per_second: 50 },   // priorities
                Rate { burst: 100, per_second: 10 },   // empty frames
                Rate { burst: 200, per_second: 20 },   // useless frames
                Rate { burst: 1000, per_second: 100 }, // inserts
            ],
        }
    }
}
