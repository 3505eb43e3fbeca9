//! Deadlines over real sockets: spot checks that the shell keeps what the engine promises. None falls
//! early; how late is bounded generously, as the machine may be busy with something else.
#![forbid(unsafe_code)]

mod common;

use std::time::Duration;

use common::{BINARY, LONG, http, pattern, serve};
use sekisho_testkit::{Client, End, ReadError, Server, Stopwatch, Tree, eventually, pause};

/// What the configurations below say where a deadline is to fall.
const SHORT: Duration = Duration::from_millis(300);
/// Until then it must have fallen.
const BOUND: Duration = Duration::from_secs(5);
const HOST: &str = "Host: localhost\r\n";

fn start(directives: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    serve(tree, &format!("{directives}\nlocation /n/ {{ return 200 $uri; }}"))
}

#[track_caller]
fn assert_in_time(watch: Stopwatch, what: &str) {
    let elapsed = watch.elapsed();
    assert!(elapsed >= SHORT, "{what}: early, after {elapsed:?}");
    assert!(elapsed < BOUND, "{what}: late, after {elapsed:?}");
}

/// T7: the answer to a head that did not come in time, and the end of the connection.
#[track_caller]
fn assert_408(client: &mut Client) {
    let response = client.read_response();
    assert_eq!(response.status, 408);
    assert!(response.field("content-length").is_some(), "{response:?}");
    assert_eq!(response.field("connection"), Some("close"));
    // What arrives later is ignored.
    client.try_send(format!("GET /n/late HTTP/1.1\r\n{HOST}\r\n")).ok();
    assert_eq!(client.read_to_end().0, b"", "one 408 and nothing else");
}

/// The log says once for each connection why it ended.
#[track_caller]
fn assert_closed_by(server: &Server, tag: &str, count: usize) {
    let lines = || server.log("error.log").matches(&format!("closed: {tag}")).count();
    eventually(tag, LONG, || lines() >= count);
    assert_eq!(lines(), count, "marked once: {}", server.log("error.log"));
}

#[test]
fn bytes_do_not_extend_the_header_deadline() {
    // T1, T4, T6, T10, V15
    let server = start("client_header_timeout 300ms;");
    let watch = Stopwatch::start();
    let mut client = server.connect().with_patience(Duration::from_millis(15));
    client.send(format!("GET /n/x HTTP/1.1\r\n{HOST}X: "));
    let response = loop {
        assert!(watch.elapsed() < BOUND, "bytes extend the deadline");
        client.try_send("y").ok();
        match client.try_read_response(false) {
            Ok(response) => break response,
            Err(ReadError::TimedOut(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_in_time(watch, "header");
    assert_eq!((response.status, response.says_close()), (408, true));
    assert!(response.field("content-length").is_some());
    drop(client);
    assert_closed_by(&server, "client_header_timeout", 1);
    assert_eq!(server.log("error.log").matches("refused with 408").count(), 1);
}

#[test]
fn a_connection_that_never_sends_a_byte_gets_408() {
    // T4, T7
    let server = start("client_header_timeout 300ms;");
    let watch = Stopwatch::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_408(client);
    }
    // Measured from before the first of them: early for the last would be early for none.
    assert_in_time(watch, "header");
    let watch = Stopwatch::start();
    let mut client = server.connect();
    assert_408(&mut client);
    assert_in_time(watch, "header");
    drop((clients, client));
    assert_closed_by(&server, "client_header_timeout", 101);
}

#[test]
fn every_request_on_a_kept_connection_has_a_header_deadline_of_its_own() {
    // T4: from the first byte of the request, and not from the end of the last one.
    let server = start("client_header_timeout 300ms; keepalive_timeout 60s;");
    let mut client = server.connect();
    assert_eq!(client.get("/n/1").status, 200);
    client.expect_open_for(SHORT * 2);
    assert_eq!(client.get("/n/2").status, 200, "idling is not its business");
    client.expect_open_for(SHORT / 2);
    let watch = Stopwatch::start();
    client.send("GET /n/3 HT");
    assert_408(&mut client);
    assert_in_time(watch, "the second request's head");
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    // T4, T10
    let server = start("keepalive_timeout 300ms;");
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/n/x").status, 200);
        // Measured anew for each request.
        client.expect_open_for(SHORT / 2);
    }
    assert_eq!(client.get("/a.txt").status, 200);
    let watch = Stopwatch::start();
    assert_eq!(client.expect_closed(BOUND), End::Closed);
    // The server began to count a little before us: its answer had to come here first.
    let slack = Duration::from_millis(20);
    assert!(watch.elapsed() + slack >= SHORT, "early, after {:?}", watch.elapsed());
    assert_closed_by(&server, "keepalive_timeout", 1);
}

#[test]
fn an_empty_line_is_no_request_and_buys_no_time() {
    // T4, H5
    let server = start("keepalive_timeout 300ms; client_header_timeout 60s;");
    let mut client = server.connect();
    assert_eq!(client.get("/n/x").status, 200);
    client.send("\r\n");
    assert_eq!(client.expect_closed(BOUND), End::Closed);
}

#[test]
fn keepalive_timeout_zero_keeps_nothing_alive() {
    // T2, H1
    let server = start("keepalive_timeout 0;");
    let mut client = server.connect();
    assert!(client.get("/n/x").says_close());
    assert_eq!(client.expect_closed(BOUND), End::Closed);
}

#[test]
fn a_timeout_of_zero_means_none() {
    // T2
    let server = start("client_header_timeout 0; send_timeout 0; client_body_timeout 0;");
    let mut silent = server.connect();
    let mut begun = server.connect();
    begun.send("GET /n/x HT");
    let mut posting = server.connect();
    let response = posting.request("POST", "/n/x", "Content-Length: 2\r\n");
    assert_eq!(response.status, 200);
    silent.expect_open_for(SHORT * 2);
    begun.expect_open_for(Duration::from_millis(1));
    posting.expect_open_for(Duration::from_millis(1));
    begun.send(format!("TP/1.1\r\n{HOST}\r\n"));
    assert_eq!(begun.read_response().status, 200);
    posting.send("ab");
    assert_eq!(posting.get("/n/next").text(), "/n/next");
    assert_eq!(silent.get("/n/x").status, 200);
}

/// A server that has little room for what a client does not take, and a large file.
fn start_with_large_file(bytes: usize) -> Server {
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(bytes));
    let config = http(
        "server { listen 127.0.0.1:{port} sndbuf=32k; root {root};
         client_header_timeout 300ms; send_timeout 300ms; keepalive_timeout 300ms; }",
    );
    Server::start_in(tree, BINARY, &config)
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    // T4, T10, V15
    let server = start_with_large_file(8 << 20);
    let mut client = server.connect();
    client.shrink_receive_buffer(4096);
    let watch = Stopwatch::start();
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    assert_closed_by(&server, "send_timeout", 1);
    assert_in_time(watch, "send");
    let (bytes, end) = client.read_to_end();
    assert!(bytes.len() < 8 << 20, "the body is cut");
    assert_eq!(end, End::Closed, "what was sent arrives; the length shows the cut");
    let log = server.log("error.log");
    assert!(log.contains("[info]") && log.contains("client timed out (send_timeout)"), "{log}");
}

/// T4: nginx's directive for operators who want the memory back at once.
#[test]
fn a_client_that_takes_nothing_is_reset_where_that_is_wanted() {
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(8 << 20));
    let config = http(
        "server { listen 127.0.0.1:{port} sndbuf=32k; root {root}; send_timeout 300ms;
         reset_timedout_connection on; }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    client.shrink_receive_buffer(4096);
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    assert_closed_by(&server, "send_timeout", 1);
    assert_eq!(client.read_to_end().1, End::Reset);
}

/// T4, T5: what counts is what the client acknowledges, not when the kernel takes more from us.
#[test]
fn a_client_that_reads_steadily_is_not_cut_off_however_slow_it_is() {
    const SIZE: usize = 16 << 20;
    let tree = Tree::new();
    tree.file("root/large.bin", pattern(SIZE));
    let config = http("server { listen 127.0.0.1:{port}; root {root}; send_timeout 1s; }");
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    client.shrink_receive_buffer(64 << 10);
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    // Far slower than the kernel's buffer empties in a second, for several seconds.
    for _ in 0..50 {
        client.read_bytes(30_000);
        pause(Duration::from_millis(100));
    }
    client.read_bytes(SIZE - 50 * 30_000);
}

#[test]
fn a_client_that_takes_a_little_at_a_time_is_served_to_the_end() {
    // T5, T7: bytes that move count, and no 408 gets into a response that has started.
    const SIZE: usize = 2 << 20;
    let server = start_with_large_file(SIZE);
    let mut client = server.connect();
    client.shrink_receive_buffer(16 * 1024);
    let watch = Stopwatch::start();
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    let mut received = Vec::new();
    while watch.elapsed() < SHORT * 4 {
        received.extend(client.read_bytes(32 * 1024));
        pause(Duration::from_millis(25));
    }
    received.extend(client.read_to_close());
    assert!(received.ends_with(&pattern(SIZE)), "the whole file came");
    let head = String::from_utf8_lossy(&received[..received.len() - SIZE]);
    assert_eq!(head.matches("HTTP/1.1").count(), 1, "{head}");
    assert_closed_by(&server, "keepalive_timeout", 1);
}

#[test]
fn a_body_that_is_only_read_past_has_a_deadline_too() {
    // T4, T5, T10
    let server = start("client_body_timeout 300ms; keepalive_timeout 60s;");
    let mut client = server.connect();
    let watch = Stopwatch::start();
    assert_eq!(client.request("POST", "/n/x", "Content-Length: 100\r\n").status, 200);
    assert_eq!(client.expect_closed(BOUND), End::Closed);
    assert_in_time(watch, "body");
    assert_closed_by(&server, "client_body_timeout", 1);

    // It limits inactivity: a client that goes on sending has unlimited time.
    let mut client = server.connect();
    assert_eq!(client.request("POST", "/n/x", "Content-Length: 30\r\n").status, 200);
    for _ in 0..30 {
        client.send("b");
        client.expect_open_for(Duration::from_millis(20));
    }
    assert_eq!(client.get("/n/next").text(), "/n/next");
}

#[test]
fn a_client_that_goes_on_sending_after_a_refusal_is_listened_to_for_a_while() {
    // T4, T6, T10
    let server = start("lingering_timeout 300ms; lingering_time 600ms;");
    let mut client = server.connect();
    let watch = Stopwatch::start();
    client.send("BAD\r\n\r\n");
    assert_eq!(client.read_response().status, 400);
    assert_eq!(client.expect_closed(BOUND), End::Closed);
    assert_closed_by(&server, "lingering_timeout", 1);
    assert_in_time(watch, "lingering");

    // However much comes, lingering ends.
    let mut client = server.connect();
    let watch = Stopwatch::start();
    client.send("BAD\r\n\r\n");
    eventually("lingering ends", BOUND, || client.try_send("more").is_err());
    assert!(watch.elapsed() >= SHORT * 2, "early, after {:?}", watch.elapsed());
}

#[test]
fn values_are_those_of_the_chosen_server_once_the_host_is_known() {
    // T8
    let config = http(
        "server { listen 127.0.0.1:{port}; server_name patient;
           client_header_timeout 60s; client_body_timeout 60s; keepalive_timeout 60s;
           location / { return 200 patient; } }
         server { listen 127.0.0.1:{port}; server_name hasty;
           client_header_timeout 300ms; client_body_timeout 300ms; keepalive_timeout 300ms;
           location / { return 200 hasty; } }",
    );
    let server = Server::start(BINARY, &config);
    let request =
        |host: &str, fields: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    let mut patient = server.connect();
    patient.send(request("patient", ""));
    assert_eq!(patient.read_response().text(), "patient");
    let mut patient_body = server.connect();
    patient_body.send(request("patient", "Content-Length: 9\r\n"));
    assert_eq!(patient_body.read_response().text(), "patient");
    // Before `Host` the default server's values hold, whatever comes then.
    let mut begun = server.connect();
    begun.send("GET / HTTP/1.1\r\nHost: hasty\r\n");

    for fields in ["", "Content-Length: 9\r\n"] {
        let watch = Stopwatch::start();
        let mut hasty = server.connect();
        hasty.send(request("hasty", fields));
        assert_eq!(hasty.read_response().text(), "hasty");
        assert_eq!(hasty.expect_closed(BOUND), End::Closed);
        assert_in_time(watch, "the hasty server");
    }
    begun.send("\r\n");
    assert_eq!(begun.read_response().text(), "hasty");
    begun.send("GET / HT");
    patient.expect_open_for(SHORT * 2);
    patient_body.expect_open_for(Duration::from_millis(1));
    begun.expect_open_for(Duration::from_millis(1));
}

#[test]
fn an_idle_server_uses_no_processor_time() {
    // T1: no fixed tick, nothing spins, with idle, silent and half-sent requests about.
    let server =
        start("keepalive_timeout 60s; client_header_timeout 60s; client_body_timeout 60s;");
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in clients.iter_mut().step_by(2) {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    for client in clients.iter_mut().step_by(3) {
        client.send("GET /n/x HT");
    }
    // A sample may just hit one late piece of work: a server that never rests hits every time.
    let is_quiet = (0..5).any(|_| {
        let before = server.cpu_ticks();
        pause(Duration::from_secs(1));
        server.cpu_ticks() == before
    });
    assert!(is_quiet, "an idle server uses processor time");
    assert_eq!(clients[1].get("/n/x").status, 200);
}

#[test]
fn a_408_without_a_head_says_nothing_of_another_clients_request() {
    // T7, V49: buffers are used again, what was in them is not
    let tree = Tree::new();
    let config = http(
        "log_format line '$status [$request] [$http_x]';\n\
         server { listen 127.0.0.1:{port}; client_header_timeout 300ms;\n\
         access_log {dir}/access.log line; location / { return 200 ok; } }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut first = server.connect();
    assert_eq!(first.request("GET", "/secret", "X: private\r\n").status, 200);
    drop(first);
    assert_408(&mut server.connect());
    eventually("both lines", LONG, || server.log("access.log").lines().count() == 2);
    let log = server.log("access.log");
    assert_eq!(log.lines().last(), Some("408 [-] [-]"), "{log}");
}
