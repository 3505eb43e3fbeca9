//! A waiting request is watched, has a deadline, and leaves nothing behind.

use std::time::Duration;

use sekisho_testkit::{Client, Server, Stopwatch, Tree, eventually};

use crate::common::{BINARY, LONG, http};
use crate::passwords::{SLOW, field};

/// How many delayed requests are aborted, in all and at once.
const ABORTED: usize = 1000;
const AT_ONCE: usize = 100;

fn start(server: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("slow", SLOW);
    tree.file("users", "ann:{PLAIN}secret\n");
    let config = http(&format!(
        "log_format short '$status $limit_req_status $uri';
         limit_req_zone $arg_k zone=one:1m rate=1r/m;
         limit_req_zone $arg_k zone=ten:1m rate=10r/s;
         server {{ listen 127.0.0.1:{{port}}; access_log {{dir}}/access.log short; root {{root}}; {server} }}"
    ));
    Server::start_in(tree, BINARY, &config)
}

fn lines(server: &Server, beginning: &str) -> usize {
    server.log("access.log").lines().filter(|line| line.starts_with(beginning)).count()
}

/// L12, C6: a client that goes while it is delayed is noticed at once, and is counted once.
#[test]
fn aborted_delays_leave_nothing() {
    let server = start("limit_req zone=one burst=5000;");
    let before = server.fds();
    assert_eq!(server.connect().get("/a.txt?k=x").status, 200);
    for round in 1..=ABORTED / AT_ONCE {
        let clients: Vec<Client> = (0..AT_ONCE)
            .map(|_| {
                let mut client = server.connect();
                client.send("GET /a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\n");
                client
            })
            .collect();
        // Each of them is delayed: the log says so before a client goes.
        eventually("the delays", LONG, || {
            server.log("error.log").matches("delaying request, excess: ").count() == round * AT_ONCE
        });
        for (at, client) in clients.into_iter().enumerate() {
            if at % 2 == 0 { client.reset() } else { drop(client) }
        }
        let expected = round * AT_ONCE;
        eventually("the lines", LONG, || lines(&server, "499 DELAYED") == expected);
    }
    eventually("the descriptors", LONG, || server.fds() <= before);
    assert_eq!(server.connect().get("/a.txt?k=y").status, 200, "others are not delayed");
    // Each was counted, and counted once: at a rate of one a minute hardly any excess drains meanwhile.
    let log = server.log("error.log");
    let excesses = log.split("excess: ").skip(1).filter_map(|rest| rest.split('.').next());
    let most = excesses.filter_map(|whole| whole.parse::<usize>().ok()).max();
    assert!(most.is_some_and(|most| (ABORTED * 9 / 10..=ABORTED).contains(&most)), "{most:?}");
}

#[test]
fn a_delay_is_as_long_as_it_must_be_and_the_connection_goes_on() {
    let server = start("limit_req zone=ten burst=5;");
    let watch = Stopwatch::start();
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.read_response().text(), "hello");
    }
    // The last of four waits for three tenths of a second, and never less (T1).
    assert!(watch.elapsed() >= Duration::from_millis(280), "{:?}", watch.elapsed());
    for client in &mut clients {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    // Pipelined behind a delay, the next one waits for its turn.
    let client = &mut clients[0];
    client.send("GET /a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((client.read_response().status, client.read_response().status), (200, 404));
}

#[test]
fn auth_delay_holds_refusals_back_and_nobody_else() {
    let server = start("auth_basic x; auth_basic_user_file users; auth_delay 300ms;");
    let mut client = server.connect();
    let watch = Stopwatch::start();
    assert_eq!(client.request("GET", "/a.txt", &field("ann", "secret")).status, 200);
    let quick = watch.elapsed();
    let watch = Stopwatch::start();
    let response = client.request("GET", "/a.txt", &field("ann", "wrong"));
    assert_eq!((response.status, response.says_close()), (401, false));
    assert!(response.field("www-authenticate").is_some());
    assert!(watch.elapsed() >= Duration::from_millis(300), "{quick:?}");
}

/// O4, L7: a request that waits when the server ends gets an answer.
#[test]
fn a_forced_end_answers_those_who_wait() {
    for fields in [String::new(), field("slow", "guess")] {
        let mut server = start(
            "limit_req zone=one burst=99; location /slow { auth_basic x; auth_basic_user_file slow; }",
        );
        let path = if fields.is_empty() { "/a.txt?k=x" } else { "/slow" };
        assert_eq!(server.connect().get("/a.txt?k=x").status, 200);
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        if fields.is_empty() {
            eventually("the delay", LONG, || server.log("error.log").contains("delaying request"));
        }
        // A later request has been answered: the request above has been read.
        for _ in 0..3 {
            assert_eq!(server.connect().get("/a.txt").status, 200);
        }
        server.term();
        // A hash may have been ready just then.
        let status = client.read_response().status;
        assert!(status == 503 || (status == 401 && !fields.is_empty()), "{status}");
        server.wait_exit(LONG);
    }
}

/// O4, L6: nothing is cancelled by a graceful end.
#[test]
fn a_graceful_end_waits_for_those_who_are_delayed() {
    let mut server = start("limit_req zone=ten burst=99;");
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    eventually("the delays", LONG, || {
        server.log("error.log").matches("delaying request").count() == 5
    });
    server.quit();
    for client in &mut clients {
        assert_eq!(client.read_response().status, 200);
    }
    drop(clients);
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}
