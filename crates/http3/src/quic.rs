//! The QUIC connection as the engine sees it: streams of bytes that are read, written and ended. The shell implements
//! it over a QUIC library.

use bytes::Bytes;

/// A QUIC connection.
pub trait Quic {
    /// Reads the next bytes of a stream, in order, at most `max`.
    fn read(&mut self, stream: u64, max: usize) -> Read;

    /// Writes to a stream; how many bytes were taken. After `Ok(0)` the stream is blocked until
    /// [`writable`](crate::Http3::writable).
    fn write(&mut self, stream: u64, bytes: &[u8]) -> Result<usize, Stopped>;

    /// Ends our side of a stream: FIN.
    fn finish(&mut self, stream: u64);

    /// Breaks our side of a stream off: RESET_STREAM.
    fn reset(&mut self, stream: u64, code: u64);

    /// Reads a stream no further: STOP_SENDING.
    fn stop_sending(&mut self, stream: u64, code: u64);

    /// Opens a stream from us to the client, if the client allows one more.
    fn open_uni(&mut self) -> Option<u64>;

    /// Streams of a higher priority send first. That of a new stream is 0.
    fn set_priority(&mut self, stream: u64, priority: i32);

    /// Closes the connection: CONNECTION_CLOSE of the application.
    fn close(&mut self, code: u64, reason: &'static str);
}

/// What a client has acknowledged of a connection, whatever the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// Bytes in all.
    pub bytes: u64,
    /// Maximum number of bytes that were written and not acknowledged.
    pub waiting_max: u64,
    /// Nothing waits for an acknowledgement.
    pub is_all: bool,
}

/// What reading a stream gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The next bytes, never none.
    Bytes(Bytes),
    /// Nothing until [`readable`](crate::Http3::readable).
    Blocked,
    /// The client has ended its side: FIN.
    End,
    /// The client has broken its side off, with this code.
    Reset(u64),
}

/// The client reads a stream no further (STOP_SENDING, with this code), or the stream is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped(pub u64);
