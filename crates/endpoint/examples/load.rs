//! Loads a service: so many sessions with so many calls in flight each, for some seconds.
//!
//! `cargo run --release -p sekisho-endpoint --example load -- ADDRESS SERVICE SESSIONS DEPTH SECONDS [BODY|http:TARGET]`
//!
//! The service `http1` is none: the same program then speaks HTTP/1 on so many connections, for a comparison in which
//! both sides are loaded by one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use prost::Message as _;
use sekisho_endpoint::{Client, http};
use tokio::net::TcpStream;
use tokio::time::Instant;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (sessions, depth, seconds) = (number(2), number(3), number(4));
    let body = words.get(5).map_or("x", String::as_str);
    let plain = (words[1] == "http1").then(|| body.strip_prefix("http:").expect("http:TARGET"));
    let service = if plain.is_some() { 0 } else { number(1) as u32 };
    let body: Vec<u8> = match body.strip_prefix("http:") {
        Some(target) => {
            http::Request { target: target.to_owned(), ..http::Request::default() }.encode_to_vec()
        }
        None => body.as_bytes().to_vec(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let taken: Rc<RefCell<Vec<u32>>> = Rc::default();
    let is_over = Rc::new(Cell::new(false));
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut lanes = Vec::new();
        for _ in 0..sessions {
            let stream = TcpStream::connect(&words[0]).await.expect("it listens");
            stream.set_nodelay(true).expect("set");
            if let Some(target) = plain {
                let (taken, is_over) = (Rc::clone(&taken), Rc::clone(&is_over));
                let target = target.to_owned();
                lanes.push(tokio::task::spawn_local(async move {
                    http1(stream, &target, &is_over, &taken).await;
                }));
                continue;
            }
            let client = Client::connect(stream, "load").await.expect("admitted");
            for _ in 0..depth {
                let (client, body) = (client.clone(), body.clone());
                let (taken, is_over) = (Rc::clone(&taken), Rc::clone(&is_over));
                lanes.push(tokio::task::spawn_local(async move {
                    while !is_over.get() {
                        let begun = Instant::now();
                        let mut call = client.request(service, &body).expect("made");
                        while call.next_record().await.expect("alive").is_some() {}
                        call.answer().await.expect("a result");
                        taken.borrow_mut().push(begun.elapsed().as_micros() as u32);
                    }
                }));
            }
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        is_over.set(true);
        for lane in lanes {
            lane.await.expect("no panic");
        }
    });
    let mut taken = taken.take();
    taken.sort_unstable();
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
    println!("calls {} p50 {} p99 {} max {} (µs)", taken.len(), at(0.5), at(0.99), at(1.0));
}

/// One request after the other on one connection.
async fn http1(stream: TcpStream, target: &str, is_over: &Cell<bool>, taken: &RefCell<Vec<u32>>) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut input = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while !is_over.get() {
        let begun = Instant::now();
        // It has room for so little.
        assert_eq!(stream.try_write(request.as_bytes()).expect("sent"), request.len());
        input.clear();
        let mut wanted = None;
        while wanted.is_none_or(|wanted| input.len() < wanted) {
            stream.readable().await.expect("alive");
            match stream.try_read(&mut buffer) {
                Ok(count) => {
                    assert!(count > 0, "cut off");
                    input.extend_from_slice(&buffer[..count]);
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    continue;
                }
            }
            let end = input.windows(4).position(|at| at == b"\r\n\r\n");
            wanted = wanted.or_else(|| end.map(|end| end + 4 + length(&input[..end])));
        }
        taken.borrow_mut().push(begun.elapsed().as_micros() as u32);
    }
}

/// The length of a body, as its head says.
fn length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).expect("text");
    let value = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    value.expect("a length").parse().expect("a number")
}
