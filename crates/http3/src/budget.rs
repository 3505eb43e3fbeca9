//! Bounds on what costs us work and brings the peer nothing: beyond a bound the connection ends with
//! H3_EXCESSIVE_LOAD (M4, V7–V10).

sekisho_http::bounds! {
    /// Streams that the client cancelled before their responses were complete: rapid reset (V7).
    Resets "http3_resets";
    /// Streams that we had to reset for what the client sent on them (V8).
    OwnResets "http3_own_resets";
    /// Streams beyond the number that may be open at a time.
    RefusedStreams "http3_refused_streams";
    /// PRIORITY_UPDATE.
    Priorities "http3_priorities";
    /// DATA frames without a byte.
    EmptyFrames "http3_empty_frames";
    /// Frames and streams of types that we do not know, and frames that change nothing.
    UselessFrames "http3_useless_frames";
    /// Entries put into the dynamic table of QPACK, beyond what requests give cause for.
    Inserts "http3_inserts";
    /// QPACK acknowledgements that the client does not let us send.
    Acknowledgements "http3_acknowledgements";
    /// Bytes of header blocks that are incomplete or wait for entries, on all streams.
    HeaderBlocks "http3_header_blocks";
}

/// How many of the bounds are rates; the last two are not.
pub const RATES: usize = Bound::ALL.len() - 2;

/// The buckets of one connection.
pub(crate) type Budget = sekisho_http::Buckets<RATES>;
