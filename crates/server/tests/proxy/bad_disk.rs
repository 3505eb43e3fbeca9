//! Responses and uploads by the thousand while the disk is full and not full, and fails now and then (O10): what a peer
//! takes for complete has every byte. `SEKISHO_LONG=1` makes 10,000 exchanges, `SEKISHO_SEED=N` chooses the random numbers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sekisho_testkit::{Client, Injected, ReadError, Response, Server, have};

use crate::backend::{Backend, Connection};
use crate::common::{LONG, pattern};
use crate::full_disk::Limited;

/// Exchanges between two changes of the disk.
const BATCH: usize = 50;
const CLIENTS: usize = 4;
/// The longest body. It is longer than the buffers on its way.
const BODY_BYTES_MAX: usize = 400_000;

/// Random numbers (xorshift).
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    /// The start is mixed: generators that begin with successive numbers of another one would repeat each other.
    const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Sends a body of the length that the target ends with, and what it was sent to every POST.
fn backend() -> Backend {
    Backend::start(|connection: &mut Connection| {
        while let Some((head, sent)) = connection.request_with_body() {
            let target = head.split(' ').nth(1).unwrap_or_default();
            let length = target.rsplit('/').next().and_then(|length| length.parse().ok());
            let fields = "Cache-Control: max-age=600\r\n";
            if head.starts_with("POST") {
                connection.answer("200 OK", "", sent);
            } else if target.contains("length") {
                connection.answer("200 OK", fields, pattern(length.unwrap_or(0)));
            } else {
                let head = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n");
                connection.send(head);
                for piece in pattern(length.unwrap_or(0)).chunks(7000) {
                    connection.send(format!("{:x}\r\n", piece.len()));
                    connection.send(piece);
                    connection.send("\r\n");
                }
                connection.send("0\r\n\r\n");
            }
        }
    })
}

/// A response that is complete; `None` where it was cut or is an error of the server.
fn complete(response: Result<Response, ReadError>) -> Option<Response> {
    let response = response.ok()?;
    let is_refusal = response.status >= 500 || response.status == 413;
    assert!(is_refusal || matches!(response.status, 200 | 201 | 204), "{response:?}");
    (!is_refusal).then_some(response)
}

/// One exchange. Whether it was complete.
fn exchange(server: &Server, random: &mut Random) -> bool {
    let length = random.below(BODY_BYTES_MAX) + 1;
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(32 << 10);
    let get = |client: &mut Client, target: &str| {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        complete(client.try_read_response(false))
    };
    let send = |client: &mut Client, line: &str, body: &[u8]| {
        let fields = format!("Host: a\r\nConnection: close\r\nContent-Length: {length}\r\n");
        client.send(format!("{line} HTTP/1.1\r\n{fields}\r\n"));
        // A refusal may come before all of it has been sent.
        let _ = client.try_send(body);
        complete(client.try_read_response(false))
    };
    match random.below(5) {
        kind @ 0..3 => {
            let target = ["/length", "/chunked", "/cached/length"][kind];
            // Entries of a cache are asked for again: few lengths.
            let length = if kind == 2 { length / 50_000 * 50_000 + 1 } else { length };
            let Some(response) = get(&mut client, &format!("{target}/{length}")) else {
                return false;
            };
            assert!(response.body == pattern(length), "{target} of {length} bytes");
        }
        3 => {
            let body = pattern(length);
            let Some(echoed) = send(&mut client, "POST /echo", &body) else { return false };
            assert!(echoed.body == body, "a body of {length} bytes");
        }
        _ => {
            let name = format!("up/{}", random.below(1_000_000_000));
            let body = pattern(length);
            let is_stored = send(&mut client, &format!("PUT /{name}"), &body).is_some();
            let path = format!("root/{name}");
            assert!(is_stored || !server.tree().exists(&path), "{name}: refused, and there");
            if !is_stored {
                return false;
            }
            assert!(server.tree().read(&path) == body, "{name} of {length} bytes");
            std::fs::remove_file(server.tree().path(&path)).expect("removed");
        }
    }
    true
}

/// O10
#[test]
fn what_is_complete_has_every_byte_on_bad_disks() {
    let seed = std::env::var("SEKISHO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEKISHO_SEED={seed}");
    let mut random = Random::new(seed);
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let exchanges = if is_long { 10_000 } else { 400 };
    let to = backend().address();
    let limited = Limited::start(&format!(
        "client_max_body_size 0; client_body_buffer_size 8k; proxy_buffer_size 4k; proxy_buffers 4 4k;
         location / {{ proxy_pass http://{to}; }}
         location /cached/ {{ proxy_pass http://{to}; proxy_cache one; }}
         location /up/ {{ root {{root}}; dav_methods PUT; create_full_put_path on; }}
         }} proxy_cache_path {{dir}}/cache keys_zone=one:1m; server {{ listen 127.0.0.1:{{port2}};"
    ));
    let server = &limited.server;
    let (complete, traces) = (AtomicUsize::new(0), have("strace"));
    for _ in 0..exchanges / BATCH {
        let limit = [None, Some(random.below(BODY_BYTES_MAX) as u64), Some(0)][random.below(3)];
        server.limit_files(limit);
        let every = 2 + random.below(20);
        let is_failing = traces && random.below(3) == 0;
        let failing = is_failing.then(|| {
            let when = format!("error=EIO:when={}+{every}", 1 + random.below(10));
            Injected::into(server, "pwrite64,pread64,ftruncate,fallocate,copy_file_range", &when)
        });
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut random = Random::new(random.below(usize::MAX) as u64);
                let complete = &complete;
                scope.spawn(move || {
                    for _ in 0..BATCH.div_ceil(CLIENTS) {
                        complete.fetch_add(exchange(server, &mut random).into(), Ordering::Relaxed);
                    }
                });
            }
        });
        drop(failing);
    }
    let complete = complete.into_inner();
    println!("{exchanges} exchanges, {complete} complete");
    assert!(complete > exchanges / 4, "{complete} of {exchanges}");
    server.limit_files(None);
    for _ in 0..20 {
        assert!(exchange(server, &mut random), "all is well on a good disk");
    }
}
