//! Loads a service: so many sessions with so many calls in flight each, for some seconds.
//!
//! `cargo run --release -p sekisho-endpoint --example load -- ADDRESS SERVICE SESSIONS DEPTH SECONDS [BODY|http:TARGET]`

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
    let (service, sessions, depth, seconds) = (number(1) as u32, number(2), number(3), number(4));
    let body = words.get(5).map_or("x", String::as_str);
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
