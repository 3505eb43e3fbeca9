//! Clients that make the server hold memory, each kind by itself, in a control group of 64 MB (O9): the server is not
//! killed, a new client has a response every time, and everything is served again within five seconds after.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sekisho_testkit::{Client, Signal, Stopwatch, Tree, have, pause, process, wait_for};

use crate::common::{LONG, http};
use crate::limited::{Form, Limited};

/// The longest an attack goes on. What a machine that is busy with something else has not done by then is not done.
const ATTACK: Duration = Duration::from_secs(20);
/// A probe each.
const PROBE_EVERY: Duration = Duration::from_millis(100);
const BODY_BYTES: usize = 8 << 20;

/// A server behind ours: a long body for a GET, nothing for anything else. FastCGI where the first byte says so.
struct Backend(SocketAddr);

impl Backend {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let body: Arc<[u8]> =
            b"what foo is said again, 0123456789\n".repeat(BODY_BYTES / 35).into();
        let serve = move |stream: TcpStream, body: Arc<[u8]>| {
            let _ = answer(stream, &body);
        };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let body = Arc::clone(&body);
                let small = thread::Builder::new().stack_size(64 << 10);
                // Without a thread the connection closes, and the client has a 502.
                let _ = small.spawn(move || serve(stream, body));
            }
        });
        Self(address)
    }
}

fn answer(mut stream: TcpStream, body: &[u8]) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..count]);
        if count == 0 {
            return Ok(());
        }
        if head[0] == 1 {
            for part in
                [&b"Content-Type: text/plain\r\n\r\n"[..]].into_iter().chain(body.chunks(32_000))
            {
                let length = u16::try_from(part.len()).expect("a chunk").to_be_bytes();
                stream.write_all(&[1, 6, 0, 1, length[0], length[1], 0, 0])?;
                stream.write_all(part)?;
            }
            return Ok(());
        }
        if head.ends_with(b"\r\n\r\n") && head.starts_with(b"GET /small") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmall")?;
            head.clear();
        } else if head.ends_with(b"\r\n\r\n") && head.starts_with(b"GET /socket") {
            let switch =
                "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(switch.as_bytes())?;
            stream.write_all(body)?;
        } else if head.ends_with(b"\r\n\r\n") && head.starts_with(b"GET ") {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
            )?;
            stream.write_all(body)?;
            head.clear();
        }
    }
}

fn openssl(tree: &Tree, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(tree.dir()).stderr(Stdio::null());
    assert!(command.status().is_ok_and(|made| made.success()), "openssl makes a certificate");
}

/// A server in its group, with all that is attacked.
fn start() -> Option<(Limited, u32)> {
    if !have("openssl") {
        return None;
    }
    let tree = Tree::new();
    tree.file("root/small.txt", "small");
    let Backend(backend) = Backend::start();
    openssl(
        &tree,
        "req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=a -keyout a.key -out a.pem",
    );
    let server = format!(
        "client_header_timeout 10m; client_body_timeout 10m; client_max_body_size 0;
         server {{ listen 127.0.0.1:{{port}}; http2 on; root {{root}};
             location /p/ {{ proxy_pass http://{backend}/; proxy_http_version 1.1; }}
             location /gzip/ {{ proxy_pass http://{backend}/; gzip on; gzip_types *; }}
             location /sub/ {{ proxy_pass http://{backend}/; sub_filter foo bar; sub_filter_once off; }}
             location /unbuffered/ {{ proxy_pass http://{backend}/; proxy_request_buffering off; }}
             location /socket {{ proxy_pass http://{backend}; proxy_http_version 1.1;
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
             location /fastcgi/ {{ fastcgi_pass {backend}; fastcgi_param QUERY_STRING x; }}
         }}
         server {{ listen 127.0.0.1:{{port2}} ssl; root {{root}};
             ssl_certificate {{dir}}/a.pem; ssl_certificate_key {{dir}}/a.key; }}"
    );
    let limited = Limited::start(Form::Group, tree, &http(&server))?;
    let worker = limited.server.worker();
    Some((limited, worker))
}

/// Asks for a small file and for a small proxied response as a new client, again and again.
struct Probes(Arc<AtomicBool>, JoinHandle<Vec<String>>);

impl Probes {
    fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let probe = move || {
            let mut bad = Vec::new();
            while !until.load(Ordering::Relaxed) {
                for target in ["/small.txt", "/p/small"] {
                    match probe(address, target) {
                        Ok(200 | 503) => {}
                        other => bad.push(format!("{target}: {other:?}")),
                    }
                }
                pause(PROBE_EVERY);
            }
            bad
        };
        Self(is_over, thread::spawn(probe))
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        let bad = self.1.join().expect("no panic");
        assert!(bad.is_empty(), "probes without a response: {bad:?}");
    }
}

fn probe(address: SocketAddr, target: &str) -> Result<u16, String> {
    let mut client = Client::connect(address).with_patience(LONG);
    let sent =
        client.try_send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    sent.map_err(|error| error.to_string())?;
    let response = client.try_read_response(false).map_err(|error| format!("{error:?}"))?;
    Ok(response.status)
}

/// Opens `most` connections, which stay open, under the eyes of the probes.
fn attack(kind: &str, most: usize, mut open: impl FnMut(&Limited) -> Option<TcpStream>) {
    let Some((mut limited, worker)) = start() else { return };
    let watch = Stopwatch::start();
    let probes = Probes::start(limited.server.address());
    let mut crowd = Vec::new();
    for _ in 0..most {
        // One that is refused is tried again, as an attacker does.
        crowd.extend(open(&limited));
        if watch.elapsed() > ATTACK || !process::exists(worker) {
            break;
        }
    }
    // What the server does with it takes its time.
    let is_dead = wait_for(Duration::from_secs(2), || !process::exists(worker));
    println!("{kind}: {} connections in {:?}", crowd.len(), watch.elapsed());
    assert!(!is_dead, "{kind}: it was killed with {} connections", crowd.len());
    probes.end();
    drop(crowd);
    limited.recovers(kind);
    assert_eq!(limited.server.worker(), worker, "{kind}: it was killed");
    let address = limited.server.address();
    assert!(
        wait_for(LONG, || probe(address, "/p/small") == Ok(200)),
        "{kind}: nothing is passed on"
    );
}

fn connect(address: SocketAddr, receive_bytes: Option<usize>) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    if let Some(bytes) = receive_bytes {
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, bytes).expect("an option");
    }
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("an option");
    Some(stream)
}

/// Sends this, as far as the server takes it.
fn send(stream: Option<TcpStream>, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = stream?;
    let _ = stream.write_all(bytes);
    Some(stream)
}

fn slow_readers(kind: &str, target: &str, fields: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut opened = 0;
    attack(kind, 700, |limited| {
        opened += 1;
        // On a busy machine the servers behind ours go on sending while it waits for a processor.
        if opened % 100 == 0 {
            limited.server.signal(Signal::STOP);
            pause(PROBE_EVERY);
            limited.server.signal(Signal::CONT);
        }
        send(connect(limited.server.address(), Some(2048)), request.as_bytes())
    });
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn header_block(method: &str, target: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [(":method", method), (":scheme", "http"), (":path", target), (":authority", "a")]
    {
        for text in [name, value] {
            if text == name {
                block.push(0);
            }
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An HTTP/2 connection whose streams have this window.
fn preface(window: u32) -> Vec<u8> {
    let mut settings = vec![0, 4];
    settings.extend_from_slice(&window.to_be_bytes());
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [begin, frame(4, 0, 0, &settings), frame(4, 1, 0, &[])].concat()
}

/// O9, X8: 100 streams for each connection, none of which may send.
#[test]
fn stalled_proxied_streams() {
    let mut bytes = preface(0);
    for stream in (1..200).step_by(2) {
        bytes.extend(frame(1, 5, stream, &header_block("GET", "/p/file")));
    }
    attack("stalled streams", 12, |limited| send(connect(limited.server.address(), None), &bytes));
}

/// O9, X8
#[test]
fn slow_readers_of_proxied_responses() {
    slow_readers("slow readers", "/p/file", "");
}

/// O9, X8
#[test]
fn slow_readers_of_filtered_responses() {
    slow_readers("slow readers of gzip", "/gzip/file", "Accept-Encoding: gzip\r\n");
    slow_readers("slow readers of sub_filter", "/sub/file", "");
}

/// O9, X8
#[test]
fn slow_readers_of_fastcgi_and_tunnels() {
    slow_readers("slow readers of FastCGI", "/fastcgi/file", "");
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    slow_readers("slow readers of tunnels", "/socket", upgrade);
}

/// O9, X8, V32: half a hello costs what was sent of it, and all of them have their share.
#[test]
fn half_hellos() {
    let mut hello = b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb\x03\x03".to_vec();
    hello.resize(16_000, b'a');
    attack("half hellos", 2500, |limited| {
        let address = limited.server.address_of(1);
        send(connect(address, None), &hello)
    });
}

/// O9, X8: request bodies go to the disk when their share is used up.
#[test]
fn unfinished_request_bodies() {
    for target in ["/p/x", "/unbuffered/x"] {
        let mut bytes = preface(65_535);
        for stream in (1..200).step_by(2) {
            bytes.extend(frame(1, 4, stream, &header_block("POST", target)));
            bytes.extend(frame(0, 0, stream, &[b'x'; 16_000]));
        }
        let kind = format!("unfinished bodies of {target}");
        attack(&kind, 30, |limited| send(connect(limited.server.address(), None), &bytes));
    }
}

/// O9, X8
#[test]
fn half_header_blocks_of_http2() {
    let mut block = header_block("GET", "/");
    block.extend_from_slice(b"\x00\x01x\x7f\xff\x7f");
    block.resize(14_000, b'y');
    let bytes = [preface(65_535), frame(1, 0, 1, &block)].concat();
    attack("half header blocks", 3000, |limited| {
        send(connect(limited.server.address(), None), &bytes)
    });
}
