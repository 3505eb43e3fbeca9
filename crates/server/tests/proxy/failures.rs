//! Servers that refuse, die, are late or never answer, and clients that go (U1, U2, C5, L12).

use std::sync::mpsc;
use std::time::Duration;

use sekisho_testkit::{Server, Stopwatch, Tree, eventually};

use crate::backend::{Backend, nobody};
use crate::common::{BINARY, LONG, http, serve};

/// U2: each failure has its status and is logged in nginx's words.
#[test]
fn failures_have_a_status_and_words() {
    let silent = Backend::start(|connection| {
        connection.request();
        connection.wait_for_end();
    });
    let slow_head = Backend::start(|connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nX-Slow: 1\r\n");
        connection.wait_for_end();
    });
    let closing = Backend::start(|connection| {
        connection.request();
        connection.close();
    });
    let nonsense = Backend::start(|connection| {
        connection.request();
        connection.send("SSH-2.0-x\r\n\r\n");
    });
    let both = Backend::start(|connection| {
        connection.request();
        connection
            .send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx");
    });
    let large = Backend::start(|connection| {
        connection.request();
        connection.send(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(9000)));
    });
    let rows = [
        (nobody(), 502, "connect() failed (111: Connection refused) while connecting to upstream"),
        (
            silent.address(),
            504,
            "upstream timed out (110: Connection timed out) while reading response header from upstream",
        ),
        (
            slow_head.address(),
            504,
            "upstream timed out (110: Connection timed out) while reading response header from upstream",
        ),
        (
            closing.address(),
            502,
            "upstream prematurely closed connection while reading response header from upstream",
        ),
        (nonsense.address(), 502, "upstream sent invalid header"),
        (both.address(), 502, "\"Content-Length\" and \"Transfer-Encoding\" at the same time"),
        (large.address(), 502, "upstream sent too big header"),
    ];
    for (to, status, words) in rows {
        let tree = Tree::new();
        tree.file("root/gone.html", "our page");
        let server = serve(
            tree,
            &format!(
                "error_page 502 504 /gone.html; location = /gone.html {{ }}
                 location / {{ proxy_pass http://{to}; proxy_read_timeout 300ms; }}"
            ),
        );
        let mut client = server.connect();
        let response = client.get("/asked");
        let log = server.log("error.log");
        assert_eq!(response.status, status, "{words}: {log}");
        assert_eq!(response.text(), "our page");
        assert!(log.contains(words), "{words}: {log}");
        assert!(log.contains(&format!("upstream: \"http://{to}/asked\"")), "{log}");
        // The client's connection goes on.
        assert_eq!(client.get("/gone.html").text(), "our page");
    }
}

/// C5: a body that is cut must not look whole, however it is framed.
#[test]
fn a_body_that_is_cut_is_cut_for_the_client() {
    for head in
        ["Content-Length: 1000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"]
    {
        let backend = Backend::start(move |connection| {
            connection.request();
            connection.send(format!("HTTP/1.1 200 OK\r\n{head}"));
            connection.close();
        });
        let server = serve(
            Tree::new(),
            &format!("location / {{ proxy_pass http://{}; }}", backend.address()),
        );
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.try_read_response(false).is_err(), "{head}");
        // A request does not wait for its line.
        let line = "upstream prematurely closed connection while reading upstream";
        eventually("the line", LONG, || server.log("error.log").contains(line));
    }
}

/// A server that goes on sending slowly is not late; one that stops is.
#[test]
fn a_server_that_stops_in_its_body_is_late() {
    let backend = Backend::start(|connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome");
        connection.wait_for_end();
    });
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!("location / {{ proxy_pass http://{to}; proxy_read_timeout 300ms; }}"),
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_read_response(false).is_err());
    let log = server.log("error.log");
    let words = "upstream timed out (110: Connection timed out) while reading upstream";
    assert!(log.contains(words), "{log}");
}

/// U1: another server is asked where that is safe.
#[test]
fn another_server_is_asked_only_where_that_is_safe() {
    let dying = Backend::start(|connection| {
        connection.request_with_body();
        connection.close();
    });
    let good = Backend::start(|connection| {
        while let Some((_, body)) = connection.request_with_body() {
            connection.answer("200 OK", "", body);
        }
    });
    let (bad, to, dead) = (dying.address(), good.address(), nobody());
    let body = format!(
        "upstream dies {{ server {bad}; server {to} backup; }}
         upstream refuses {{ server {dead} max_fails=0; server {to} backup; }}
         server {{ listen 127.0.0.1:{{port}}; location /dies {{ proxy_pass http://dies; }}
           location /refuses {{ proxy_pass http://refuses; }}
           location /twice {{ proxy_pass http://dies; proxy_next_upstream error non_idempotent; }}
           location /off {{ proxy_pass http://refuses; proxy_next_upstream off; }} }}"
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    // Nothing of it has left: it may go anywhere.
    assert_eq!(client.request_with_body("POST", "/refuses", "", b"hello").text(), "hello");
    assert_eq!(client.get("/refuses").status, 200);
    assert_eq!(client.get("/off").status, 502);
    // It may have been done: it is not done twice.
    let before = good.heads().len();
    let response = client.request_with_body("POST", "/dies", "", b"hello");
    assert_eq!((response.status, good.heads().len()), (502, before), "{}", server.log("error.log"));
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    assert_eq!(server.connect().request_with_body("POST", "/twice", "", b"hello").text(), "hello");
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    assert_eq!(server.connect().get("/dies").status, 200);
    let log = server.log("error.log");
    assert!(log.contains("upstream server temporarily disabled"), "{log}");
}

/// U2, N1: 502 if no server may be asked, so that one `error_page 502` is for every request.
#[test]
fn a_group_without_a_live_server_says_so() {
    let (one, two) = (nobody(), nobody());
    let body = format!(
        "upstream back {{ server {one}; server {two}; }}
         server {{ listen 127.0.0.1:{{port}}; error_page 502 /page; location / {{ proxy_pass http://back; }}
           location = /page {{ internal; return 200 page; }} }}"
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.get("/");
        assert_eq!((response.status, response.text().as_str()), (502, "page"));
    }
    let log = server.log("error.log");
    let words = "no live upstreams while connecting to upstream, client: 127.0.0.1, server: , request: \"GET / HTTP/1.1\", upstream: \"http://back/\", host: \"localhost\", request id: ";
    assert!(log.contains(words), "{log}");
}

/// A status sends a request on, where the configuration says so.
#[test]
fn a_status_sends_a_request_on() {
    let busy = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("503 Busy", "", "busy");
        }
    });
    let good = Backend::saying("good");
    let body = format!(
        "upstream back {{ server {}; server {} backup; }}
         server {{ listen 127.0.0.1:{{port}};
           location / {{ proxy_pass http://back; proxy_next_upstream http_503; }}
           location /one {{ proxy_pass http://back; proxy_next_upstream http_503; proxy_next_upstream_tries 1; }} }}",
        busy.address(),
        good.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    assert_eq!(server.connect().get("/one").text(), "busy");
    assert_eq!(server.connect().get("/").text(), "good");
}

/// L12, C6: a client that goes cancels the request.
#[test]
fn a_client_that_goes_cancels_the_request() {
    let (told, gone) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let backend = Backend::start(move |connection| {
        connection.request();
        connection.wait_for_end();
        let _ = told.lock().expect("no panic").send(());
    });
    let to = backend.address();
    let server = serve(Tree::new(), &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request", LONG, || !backend.heads().is_empty());
    let watch = Stopwatch::start();
    drop(client);
    gone.recv_timeout(LONG).expect("the connection was closed");
    assert!(watch.elapsed() < Duration::from_secs(30));
}

/// `proxy_ignore_client_abort`: the server is asked to the end.
#[test]
fn a_client_that_goes_is_ignored_where_that_is_said() {
    let (go, gate) = mpsc::channel::<()>();
    let (told, ended) = mpsc::channel();
    let shared = std::sync::Mutex::new((gate, told));
    let backend = Backend::start(move |connection| {
        connection.request();
        if connection.number > 0 {
            return connection.answer("200 OK", "Connection: close\r\n", "another");
        }
        let shared = shared.lock().expect("no panic");
        let _ = shared.0.recv_timeout(LONG);
        connection.answer("200 OK", "", "late");
        // The next request comes by the same connection: nothing was cut.
        let again = connection.request();
        connection.answer("200 OK", "", "again");
        let _ = shared.1.send(again.is_some());
    });
    let body = format!(
        "upstream back {{ server {}; keepalive 1; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; proxy_ignore_client_abort on; }} }}",
        backend.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request", LONG, || !backend.heads().is_empty());
    let with_client = server.fds();
    drop(client);
    eventually("the client's end", LONG, || server.fds() < with_client);
    go.send(()).expect("it waits");
    eventually("a kept connection", LONG, || server.connect().get("/").text() == "again");
    assert_eq!(ended.recv_timeout(LONG), Ok(true));
}

/// O4: a stop lets requests finish.
#[test]
fn a_graceful_stop_waits_for_the_answer() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let backend = Backend::start(move |connection| {
        connection.request();
        let _ = gate.lock().expect("no panic").recv_timeout(LONG);
        connection.answer("200 OK", "", "late");
    });
    let to = backend.address();
    let mut server = serve(Tree::new(), &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request", LONG, || !backend.heads().is_empty());
    server.quit();
    eventually("the stop", LONG, || server.log("error.log").contains("finish"));
    go.send(()).expect("it waits");
    assert_eq!(client.read_response().text(), "late");
    assert!(server.wait_exit(LONG).success());
}
