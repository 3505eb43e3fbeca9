//! Servers that die and come back under load: no idempotent request fails, no other one is done twice (U1). A short run
//! always; 100,000 requests with a death each second with `SEKISHO_LONG=1`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sekisho_testkit::{Server, Stopwatch, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all backends have been asked.
#[derive(Default)]
struct Asked {
    requests: AtomicUsize,
    /// How often each POST came.
    posts: Mutex<HashMap<String, usize>>,
}

/// A backend that can be killed: its listener and all its connections are gone at once.
struct Mortal {
    address: SocketAddr,
    is_dead: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepting: JoinHandle<()>,
}

impl Mortal {
    fn start(at: SocketAddr, asked: &Arc<Asked>) -> Self {
        // While it was dead, a connection of some other program may have had its port.
        let mut bound = None;
        eventually("the port is free", LONG, || {
            bound = TcpListener::bind(at).ok();
            bound.is_some()
        });
        let listener = bound.expect("it is bound");
        let address = listener.local_addr().expect("it has an address");
        let is_dead = Arc::<AtomicBool>::default();
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (dead, all, asked) = (Arc::clone(&is_dead), Arc::clone(&streams), Arc::clone(asked));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if dead.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let Ok(own) = stream.try_clone() else { continue };
                lock(&all).push(stream);
                let asked = Arc::clone(&asked);
                std::thread::spawn(move || answer(own, &asked));
            }
        });
        Self { address, is_dead, streams, accepting }
    }

    fn kill(self) {
        self.is_dead.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        self.accepting.join().expect("it does not panic");
        for stream in lock(&self.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Answers requests without a body, each answer in one piece.
fn answer(mut stream: TcpStream, asked: &Asked) {
    let (mut unread, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        unread.extend_from_slice(&buffer[..count]);
        while let Some(end) = unread.windows(4).position(|part| part == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head);
            let line = head.lines().next().unwrap_or_default().to_owned();
            if line.starts_with("POST") {
                *lock(&asked.posts).entry(line).or_default() += 1;
            }
            asked.requests.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

#[test]
fn no_request_fails_or_is_doubled_while_a_server_dies_and_comes_back() {
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let (clients, each, pause) = if is_long {
        (10, 10_000, Duration::from_secs(1))
    } else {
        (4, 400, Duration::from_millis(50))
    };
    let asked = Arc::<Asked>::default();
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut mortals: Vec<Mortal> = (0..3).map(|_| Mortal::start(anywhere, &asked)).collect();
    let lines: Vec<String> = mortals
        .iter()
        .map(|mortal| format!("server {} fail_timeout=100ms;", mortal.address))
        .collect();
    let body = format!(
        "keepalive_requests 1000000;
         upstream back {{ {} keepalive 16; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; }} }}",
        lines.concat()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let done = AtomicUsize::new(0);
    let answered = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (server, done, answered) = (&server, &done, &answered);
            scope.spawn(move || {
                let mut connection = server.connect();
                for number in 0..each {
                    if number % 4 == 3 {
                        let target = format!("/{client}/{number}");
                        connection.send(format!(
                            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
                        ));
                        let status = connection.read_response().status;
                        assert!(matches!(status, 200 | 502), "POST {target}: {status}");
                        lock(answered).push((format!("POST {target} HTTP/1.1"), status));
                    } else {
                        let response = connection.get("/");
                        let log = || server.log("error.log");
                        assert_eq!((response.status, &*response.text()), (200, "ok"), "{}", log());
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let is_over = || done.load(Ordering::SeqCst) == clients * each;
        let go_on = |what: &str| {
            let before = asked.requests.load(Ordering::SeqCst);
            let watch = Stopwatch::start();
            eventually(what, LONG, || {
                let is_asked = asked.requests.load(Ordering::SeqCst) > before + 10;
                is_over() || (is_asked && watch.elapsed() >= pause)
            });
        };
        let mut deaths = 0;
        while !is_over() {
            let mortal = mortals.remove(0);
            let address = mortal.address;
            mortal.kill();
            deaths += 1;
            go_on("others are asked while one is dead");
            mortals.insert(0, Mortal::start(address, &asked));
            go_on("requests go on when it is back");
        }
        assert!(deaths > 1, "{deaths}");
    });
    let posts = lock(&asked.posts);
    for (line, status) in lock(&answered).iter() {
        let times = posts.get(line).copied().unwrap_or_default();
        match status {
            200 => assert_eq!(times, 1, "{line}"),
            _ => assert!(times <= 1, "{line} came {times} times"),
        }
    }
}

/// A server that accepts and never answers costs one deadline; then it is left alone.
#[test]
fn a_server_that_never_answers_is_left_after_one_deadline() {
    let silent = Backend::start(|connection| {
        connection.request();
        connection.wait_for_end();
    });
    let good = Backend::saying("good");
    let body = format!(
        "upstream back {{ server {}; server {}; }}
         server {{ listen 127.0.0.1:{{port}};
                  location / {{ proxy_pass http://back; proxy_read_timeout 300ms; }} }}",
        silent.address(),
        good.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "good");
    }
    assert_eq!(silent.heads().len(), 1, "it is asked once");
}
