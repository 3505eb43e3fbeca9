//! A QUIC connection made of byte queues, for the properties of HTTP/3. It panics where the engine does something to a
//! stream that cannot be done.

use std::collections::{BTreeMap, VecDeque};

use sekisho_http3::{Quic, Read, Stopped};

/// What the client has sent on a stream.
#[derive(Default, Debug)]
pub(crate) struct Incoming {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<u64>,
    is_stopped: bool,
}

/// What the server has sent on a stream.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) window: usize,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<u64>,
    pub(crate) stopped: Option<u64>,
    pub(crate) is_blocked: bool,
}

/// All streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) incoming: BTreeMap<u64, Incoming>,
    pub(crate) outgoing: BTreeMap<u64, Outgoing>,
    pub(crate) closed: Option<u64>,
    /// How much a read gives at the most.
    pub(crate) read_max: usize,
    /// The window of a new stream.
    pub(crate) window: usize,
}

impl Streams {
    pub(crate) const fn new(read_max: usize, window: usize) -> Self {
        Self {
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            closed: None,
            read_max,
            window,
        }
    }

    pub(crate) fn out(&mut self, stream: u64) -> &mut Outgoing {
        let window = self.window;
        self.outgoing.entry(stream).or_insert_with(|| Outgoing { window, ..Outgoing::default() })
    }
}

impl Quic for Streams {
    fn read(&mut self, stream: u64, max: usize) -> Read {
        let read_max = self.read_max.min(max);
        let incoming = self.incoming.get_mut(&stream).expect("a stream that was opened");
        assert!(!incoming.is_stopped, "{stream} is read no further");
        if let Some(code) = incoming.reset {
            return Read::Reset(code);
        }
        let len = incoming.bytes.len().min(read_max);
        if len > 0 {
            return Read::Bytes(incoming.bytes.drain(..len).collect::<Vec<_>>().into());
        }
        if incoming.has_ended { Read::End } else { Read::Blocked }
    }

    fn write(&mut self, stream: u64, bytes: &[u8]) -> Result<usize, Stopped> {
        assert!(self.closed.is_none(), "{stream}: written to a closed connection");
        let out = self.out(stream);
        assert!(!out.has_ended && out.reset.is_none(), "{stream}: written behind its end");
        if let Some(code) = out.stopped {
            return Err(Stopped(code));
        }
        let len = bytes.len().min(out.window);
        out.bytes.extend_from_slice(&bytes[..len]);
        out.window -= len;
        out.is_blocked = len == 0;
        Ok(len)
    }

    fn finish(&mut self, stream: u64) {
        let out = self.out(stream);
        assert!(!out.has_ended && out.reset.is_none(), "{stream}: ended twice");
        out.has_ended = true;
    }

    fn reset(&mut self, stream: u64, code: u64) {
        let out = self.out(stream);
        assert!(!out.has_ended || out.stopped.is_some(), "{stream}: reset behind FIN");
        assert!(out.reset.replace(code).is_none(), "{stream}: reset twice");
    }

    fn stop_sending(&mut self, stream: u64, _code: u64) {
        let incoming = self.incoming.get_mut(&stream).expect("a stream that was opened");
        assert!(!std::mem::replace(&mut incoming.is_stopped, true), "{stream}: stopped twice");
    }

    fn open_uni(&mut self) -> Option<u64> {
        let own = self.outgoing.keys().filter(|stream| *stream & 3 == 3).count() as u64;
        let stream = 4 * own + 3;
        self.out(stream);
        Some(stream)
    }

    fn set_priority(&mut self, _stream: u64, _priority: i32) {}

    fn close(&mut self, code: u64, _reason: &'static str) {
        assert!(self.closed.replace(code).is_none(), "closed twice");
    }
}
