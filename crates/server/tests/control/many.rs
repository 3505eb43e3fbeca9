//! Many sessions.

use std::net::TcpStream;
use std::time::Duration;

use prost::Message;
use sekisho_endpoint::control::{ControlRequest, List, Listed, Sessions, What};
use sekisho_testkit::{Server, Stopwatch, eventually};

use crate::common::{BINARY, LONG, site};
use crate::support::{admin, sessions};

/// How long a list may take.
const LIMIT: Duration = Duration::from_secs(1);

#[test]
fn ten_thousand_sessions_are_listed_in_under_a_second() {
    // E9; all of them with SEKISHO_LONG=1, as descriptors are few elsewhere.
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let count: usize = if is_long { 10_000 } else { 1_000 };
    // Ours may not be enough; the server raises its own.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).expect("a soft limit");
    let config = site("return 200;").replace("worker_processes 1", "worker_processes 2");
    let server = Server::start(BINARY, &config.replace("{port};", "{port} deferred=off;"));
    let clients: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.address()).expect("accepted")).collect();
    let mut admin_client = admin(&server);
    let mut listed = 0;
    eventually("all of them", LONG, || {
        let started = Stopwatch::start();
        let ask = ControlRequest::from(What::List(List {})).encode_to_vec();
        let ticket = admin_client.request(1, &ask).expect("asked");
        let mut seen = 0;
        while let Some(record) = admin_client.next_record(&ticket).expect("a record") {
            seen += Sessions::decode(&record[..]).expect("sessions").sessions.len();
        }
        let end =
            Listed::decode(&admin_client.answer(ticket).expect("an answer")[..]).expect("an end");
        let took = started.elapsed();
        assert!(took < LIMIT, "{took:?} for {seen}");
        assert_eq!((end.count, end.silent_workers), (seen as u64, 0));
        listed = seen;
        seen > count
    });
    assert_eq!(listed, count + 1, "and we");
    let started = Stopwatch::start();
    assert_eq!(sessions(&server).len(), count + 2);
    assert!(started.elapsed() < LIMIT * 2, "with a new process and JSON: {:?}", started.elapsed());
    drop(clients);
}
