//! What a request costs in the engine alone, in nanoseconds: head in, head and 1 KiB out, over a connection that takes
//! everything.
#![allow(missing_docs, reason = "a tool for measurements")]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sekisho_http::Status;
use sekisho_http3::{BodyLength, Event, Http3, Policy, Quic, Read, Scratch, Stopped};
use sekisho_lifecycle::Moment;

const REQUESTS: u64 = 1_000_000;
/// GET `/` of `127.0.0.1:8080` with `user-agent: h2load`, from the static table as far as possible.
const HEAD: &[u8] = b"\x01\x1e\0\0\xd1\xd7\xc1\x50\x0e127.0.0.1:8080\x5f\x50\x06h2load";

/// Each stream has the same request, of which each part is read once.
#[derive(Default)]
struct Sink {
    reads: u8,
    unis: u64,
    taken: u64,
    head: Bytes,
}

impl Quic for Sink {
    fn read(&mut self, stream: u64, _max: usize) -> Read {
        if stream == 2 {
            return Read::Blocked;
        }
        self.reads += 1;
        if self.reads == 1 { Read::Bytes(self.head.clone()) } else { Read::End }
    }

    fn write(&mut self, _stream: u64, bytes: &[u8]) -> Result<usize, Stopped> {
        self.taken += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn finish(&mut self, _stream: u64) {}

    fn reset(&mut self, _stream: u64, _code: u64) {}

    fn stop_sending(&mut self, _stream: u64, _code: u64) {}

    fn open_uni(&mut self) -> Option<u64> {
        self.unis += 4;
        Some(self.unis - 1)
    }

    fn set_priority(&mut self, _stream: u64, _priority: i32) {}

    fn close(&mut self, code: u64, reason: &'static str) {
        panic!("{code:x} {reason}");
    }
}

fn main() {
    let common = sekisho_http::Policy { keepalive_requests: u64::MAX, ..Default::default() };
    let policy = Policy { common, ..Policy::default() };
    let mut engine = Http3::new(Arc::new(policy), Moment::ZERO);
    let mut quic = Sink { head: Bytes::from_static(HEAD), ..Sink::default() };
    let mut scratch = Scratch::default();
    engine.start(&mut quic);
    let body = [b'x'; 1024];
    let fields: [(&[u8], &[u8]); 6] = [
        (b"Server", b"sekisho"),
        (b"Date", b"Sun, 15 Nov 2026 04:42:56 GMT"),
        (b"Content-Type", b"text/html"),
        (b"Last-Modified", b"Sun, 15 Nov 2026 04:00:00 GMT"),
        (b"ETag", b"\"65a8b9c0-400\""),
        (b"Accept-Ranges", b"bytes"),
    ];
    #[expect(clippy::disallowed_methods, reason = "this is a measurement")]
    let start = Instant::now();
    for stream in (0..4 * REQUESTS).step_by(4) {
        quic.reads = 0;
        engine.opened(stream);
        while let Some(event) = engine.poll(&mut quic, &mut scratch, Moment::ZERO) {
            let Event::Request(id) = event else { panic!("{event:?}") };
            let length = BodyLength::Known(body.len() as u64);
            engine.respond(id, Status::OK, length, fields, &mut quic, Moment::ZERO);
            engine.body(id, &body, &mut quic, Moment::ZERO);
            engine.finish(id, &mut quic, Moment::ZERO);
            engine.delivered(stream);
        }
        while engine.next_sent().is_some() {}
    }
    let nanos = start.elapsed().as_nanos() / u128::from(REQUESTS);
    println!(
        "{} requests, {nanos} ns each, {} bytes sent, {} + {} bytes held",
        engine.requests(),
        quic.taken,
        size_of::<Http3>(),
        engine.capacity()
    );
}
