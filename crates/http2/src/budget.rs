//! Bounds on frames that cost us work and make no progress: beyond a bound the connection ends with
//! GOAWAY(ENHANCE_YOUR_CALM) (M4, V7–V10).

sekisho_http::bounds! {
    /// Streams that the client reset before they were answered: rapid reset (V7).
    Resets "http2_resets";
    /// Streams that we had to reset for what the client sent on them: `MadeYouReset` (V8).
    OwnResets "http2_own_resets";
    /// Streams beyond the number that may be open at a time.
    RefusedStreams "http2_refused_streams";
    /// SETTINGS.
    Settings "http2_settings";
    /// PING.
    Pings "http2_pings";
    /// PRIORITY and PRIORITY_UPDATE.
    Priorities "http2_priorities";
    /// DATA, HEADERS and CONTINUATION that carry nothing and end nothing.
    EmptyFrames "http2_empty_frames";
    /// WINDOW_UPDATE beyond what our DATA gives cause for.
    WindowUpdates "http2_window_updates";
    /// Frames of kinds that we do not know, or for streams that are over.
    UselessFrames "http2_useless_frames";
    /// A header block that is too long, or comes in too many pieces (V9).
    HeaderBlock "http2_header_block";
}

/// How many of the bounds are rates; the last one is not.
pub const RATES: usize = Bound::ALL.len() - 1;

/// The buckets of one connection.
pub(crate) type Budget = sekisho_http::Buckets<RATES>;
