//! What a request costs in the engine alone, in nanoseconds: head in, head and 1 KiB out, as `h2load` asks.
#![allow(missing_docs, reason = "a tool for measurements")]

use std::sync::Arc;
use std::time::Instant;

use sekisho_http::Status;
use sekisho_http2::frame::{self, Kind, PREFACE};
use sekisho_http2::{BodyLength, Event, Http2, Policy, Scratch};
use sekisho_lifecycle::{Engine, Moment};

const BATCH: u32 = 32;
const ROUNDS: u32 = 40_000;

fn main() {
    let mut policy = Policy::default();
    policy.common.keepalive_requests = u64::MAX;
    let policy = Arc::new(policy);
    let mut engine = Http2::new(policy, Moment::ZERO);
    let mut scratch = Scratch::default();
    let mut input = PREFACE.to_vec();
    frame::settings(&mut input, &[(4, 0x7fff_ffff)]);
    frame::header(&mut input, 0, Kind::Settings, 1, 0);
    frame::window_update(&mut input, 0, 0x3fff_0000);
    // :authority and user-agent are put into the table by the first request, and named by the others.
    let first = b"\x82\x86\x84\x41\x0e127.0.0.1:8080\x7a\x11h2load nghttp2/1.";
    frame::header(&mut input, first.len(), Kind::Headers, 5, 1);
    input.extend_from_slice(first);
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
    let (mut stream, mut requests) = (1, 0_u32);
    for _ in 0..ROUNDS {
        let mut at = 0;
        loop {
            let step = engine.receive(&input[at..], &mut scratch, Moment::ZERO);
            at += step.taken;
            if let Some(Event::Request(id)) = step.event {
                requests += 1;
                let length = BodyLength::Known(body.len() as u64);
                engine.respond(id, Status::OK, length, fields, &mut scratch, Moment::ZERO);
                engine.body(id, &body, &mut scratch, Moment::ZERO);
                engine.finish(id, &mut scratch, Moment::ZERO);
            } else if step.taken == 0 {
                break;
            }
        }
        let len = scratch.out.len();
        scratch.out.clear();
        engine.transmitted(len as u64, false, Moment::ZERO);
        while engine.next_sent().is_some() {}
        input.clear();
        frame::window_update(&mut input, 0, BATCH * 1024);
        for _ in 0..BATCH {
            stream += 2;
            frame::header(&mut input, 5, Kind::Headers, 5, stream);
            input.extend_from_slice(b"\x82\x86\x84\xbf\xbe");
        }
    }
    let nanos = start.elapsed().as_nanos() / u128::from(requests.max(1));
    println!(
        "{requests} requests, {nanos} ns each, {} + {} bytes",
        size_of::<Http2>(),
        engine.capacity()
    );
}
