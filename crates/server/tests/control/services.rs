//! The services `echo`, `http` and `control`, called from the command line and from programs.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use prost::Message;
use sekisho_endpoint::control::{ControlRequest, Measure, Metrics, What};
use sekisho_endpoint::http::{Done, Field, Head, Request};
use sekisho_endpoint::ipc::BlockingStream;
use sekisho_endpoint::{Code, Echo, blocking};
use sekisho_testkit::{Server, Tree, eventually};

use crate::common::{BINARY, LONG, http, pattern, serve};
use crate::support::{admin, ctl, ctl_ok, metric, native, sessions, with_endpoint};

/// An HTTP request by the service: the head, the body, and the end or its error.
fn ask_http<S: std::io::Read + std::os::fd::AsFd>(
    client: &mut blocking::Client<S>,
    request: &Request,
) -> (Option<Head>, Vec<u8>, Result<Done, Code>) {
    let ticket = client.request(2, &request.encode_to_vec()).expect("asked");
    let (mut head, mut body) = (None, Vec::new());
    while let Some(record) = client.next_record(&ticket).expect("a record") {
        if head.is_none() {
            head = Some(Head::decode(&record[..]).expect("a head"));
        } else {
            body.extend_from_slice(&record);
        }
    }
    let end = client.answer(ticket).map_err(|error| error.code().expect("a code"));
    (head, body, end.map(|end| Done::decode(&end[..]).expect("an end")))
}

fn get(target: &str) -> Request {
    Request { target: target.to_owned(), ..Request::default() }
}

/// What ordinary sessions reach by `http`.
const NAMED: &str = "http_addresses 127.0.0.1:{port};";

fn site() -> Server {
    let tree = Tree::new();
    tree.file("root/big", pattern(3 << 20));
    tree.file("root/a.txt", "a");
    tree.script(
        "root/cgi-bin/cat",
        "#!/bin/sh\nprintf 'X-Method: %s\\n\\n' $REQUEST_METHOD\nexec cat\n",
    );
    tree.script("root/cgi-bin/die", "#!/bin/sh\nprintf 'X: y\\n\\nbegun'\nsleep 0.1\nkill -9 $$\n");
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    let config =
        with_endpoint(NAMED, "location /cgi-bin/ { cgi on; } location /gone { return 404 no; }");
    Server::start_in(tree, BINARY, &config)
}

#[test]
fn echo_answers_with_its_body_from_a_file_or_from_standard_input() {
    // E9, E10
    let server = serve(Tree::new(), "");
    server.tree().file("body", pattern(100_000));
    let path = server.tree().path("body").display().to_string();
    let pid = server.id().to_string();
    let arguments = ["ctl", "--pid", &pid, "call", "echo"];
    let output = Command::new(BINARY).args(arguments).args(["-d", &path]).output().expect("run");
    assert!(output.status.success() && output.stdout == pattern(100_000));
    let mut child = Command::new(BINARY)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("a pipe").write_all(b"by standard input").expect("written");
    let output = child.wait_with_output().expect("run");
    assert_eq!(output.stdout, b"by standard input");
    let unknown = ctl(&server, &["call", "4711"]);
    assert!(
        unknown.code() == 1 && unknown.stderr.contains("SERVICE_NOT_FOUND"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn http_requests_without_http_are_answered_as_the_others_are() {
    // E9
    let server = site();
    let mut client = native(&server, "s", "web");
    let (head, body, end) = ask_http(&mut client, &get("/big"));
    let head = head.expect("a head");
    assert_eq!((head.status, body.len()), (200, 3 << 20));
    assert!(body == pattern(3 << 20));
    assert_eq!(end, Ok(Done { status: 200, body_bytes: 3 << 20 }));
    // The same fields as over HTTP.
    let answer = server.connect().get("/big");
    for name in ["ETag", "Last-Modified", "Content-Type", "Content-Length"] {
        let field = head.fields.iter().find(|field| field.name == name);
        let value = field.map(|field| String::from_utf8_lossy(&field.value).into_owned());
        assert_eq!(value.as_deref(), answer.field(name), "{name}");
    }
    let (head, body, _) = ask_http(&mut client, &get("/gone"));
    assert_eq!((head.expect("a head").status, &body[..]), (404, &b"no"[..]));
    let request = Request { method: "HEAD".to_owned(), ..get("/big") };
    let (head, body, end) = ask_http(&mut client, &request);
    assert_eq!((head.expect("a head").status, body.len(), end.is_ok()), (200, 0, true));
    let range = Field { name: "Range".to_owned(), value: b"bytes=3-5".to_vec() };
    let (head, body, _) = ask_http(&mut client, &Request { fields: vec![range], ..get("/big") });
    assert_eq!((head.expect("a head").status, &body[..]), (206, &pattern(6)[3..]));
    for bad in ["/a b", "/\r\nX: y"] {
        assert_eq!(ask_http(&mut client, &get(bad)).2, Err(Code::InvalidRequest), "{bad:?}");
    }
    let elsewhere = Request { address: "127.0.0.1:1".to_owned(), ..get("/") };
    assert_eq!(ask_http(&mut client, &elsewhere).2, Err(Code::PermissionError));
    assert_eq!(ask_http(&mut admin(&server), &elsewhere).2, Err(Code::ServiceUnavailable));
}

#[test]
fn a_body_goes_through_a_program_while_its_answer_comes_back() {
    // E9: neither side waits for the other's end
    let server = site();
    let mut client = native(&server, "s", "web");
    let body = pattern(900_000);
    let request =
        Request { method: "POST".to_owned(), body: body.clone().into(), ..get("/cgi-bin/cat") };
    let (head, answer, end) = ask_http(&mut client, &request);
    let head = head.expect("a head");
    assert!(head.fields.iter().any(|field| field.name == "X-Method" && field.value == b"POST"));
    assert!(answer == body, "{} bytes", answer.len());
    assert_eq!(end, Ok(Done { status: 200, body_bytes: 900_000 }));
    let (_, answer, end) = ask_http(&mut client, &get("/cgi-bin/die"));
    assert_eq!((&answer[..], end), (&b"begun"[..], Err(Code::IoError)), "cut short is no success");
}

#[test]
fn a_cancelled_request_of_the_service_ends_its_program() {
    // E9, L31
    let server = site();
    let mut client = native(&server, "s", "web");
    let ticket = client.request(2, &get("/cgi-bin/slow").encode_to_vec()).expect("asked");
    client.extend(std::time::Duration::from_secs(1)).expect("it leaves with the next wait");
    eventually("the program", LONG, || !server.children().is_empty());
    // It is seen twice: as a request of the native session, and as what runs for it.
    let all = sessions(&server);
    let inner =
        all.iter().find(|session| session["peer"] == format!("session :{}", client.session()));
    assert_eq!(inner.expect("it is listed")["requests"][0]["target"], "/cgi-bin/slow");
    client.cancel(&ticket);
    let error = client.answer(ticket).expect_err("cancelled");
    assert_eq!(error.code(), Some(Code::OperationCancelled));
    eventually("the end of the program", LONG, || server.children().is_empty());
}

#[test]
fn http_is_called_from_the_command_line() {
    // E10
    let server = site();
    assert_eq!(ctl_ok(&server, &["call", "http", "/a.txt"]), "a");
    let shown = ctl_ok(&server, &["call", "http", "-i", "/gone", "-H", "Accept: */*"]);
    assert!(shown.starts_with("HTTP 404\n") && shown.ends_with("\n\nno"), "{shown}");
    let path = server.tree().path("root/a.txt").display().to_string();
    let posted = ctl_ok(&server, &["call", "http", "/cgi-bin/cat", "-X", "POST", "-d", &path]);
    assert_eq!(posted, "a");
}

#[test]
fn who_has_retired_is_not_asked_to_serve() {
    // E9, O3
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    tree.file("second/a.txt", "b");
    let site = |workers: usize, root: &str| {
        let body = format!("server {{ listen 127.0.0.1:{{port}}; root {root}; }}");
        http(&body).replace("worker_processes 1;", &format!("worker_processes {workers};"))
    };
    let server = Server::start_in(tree, BINARY, &site(3, "{root}"));
    // Fewer of them; and then, as the place is another one, all of them are new where there is a sandbox.
    for (workers, root, expected) in [(1, "{root}", "a"), (2, "{dir}/second", "b")] {
        server.rewrite_config(&site(workers, root));
        ctl_ok(&server, &["reload"]);
        for turn in 0..6 {
            let answer = ctl_ok(&server, &["call", "http", "/a.txt"]);
            assert_eq!(answer, expected, "turn {turn} with {workers} workers");
        }
    }
}

#[test]
fn metrics_say_what_happened_once_or_as_a_stream() {
    // O7, E9
    let server = site();
    for target in ["/a.txt", "/a.txt", "/gone"] {
        server.connect().get(target);
    }
    assert_eq!(metric(&server, "sekisho_requests_total", Some("http1")), 3);
    assert_eq!(metric(&server, "sekisho_responses_total", Some("2xx")), 2);
    assert_eq!(metric(&server, "sekisho_responses_total", Some("4xx")), 1);
    assert_eq!(metric(&server, "sekisho_request_seconds_count", None), 3);
    assert!(metric(&server, "sekisho_sent_bytes_total", None) > 300);
    let text = ctl_ok(&server, &["metrics", "--prometheus"]);
    for line in [
        "# TYPE sekisho_sessions gauge",
        "# TYPE sekisho_request_seconds histogram",
        "sekisho_request_seconds_bucket{le=\"+Inf\"} 3",
        "sekisho_deadlines_total{kind=\"client_header_timeout\"} 0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
    let mut admin_client = admin(&server);
    let ask = ControlRequest::from(What::Measure(Measure { every_millis: 50 })).encode_to_vec();
    let ticket = admin_client.request(1, &ask).expect("asked");
    for _ in 0..3 {
        let record =
            admin_client.next_record(&ticket).expect("a record").expect("the stream goes on");
        assert!(Metrics::decode(&record[..]).expect("metrics").families.len() > 10);
    }
    admin_client.cancel(&ticket);
    while admin_client.next_record(&ticket).expect("a record").is_some() {}
    admin_client.answer(ticket).expect("its one answer");
}

#[test]
fn a_status_page_shows_the_sessions_and_prometheus_gets_its_numbers() {
    // O7
    let tree = Tree::new();
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    let server = serve(
        tree,
        "location /cgi-bin/ { cgi on; } location = /status { status page; } \
         location = /metrics { status prometheus; } location = /counts { stub_status; } \
         location = /denied { status page; deny all; }",
    );
    let mut busy = server.connect();
    busy.send("GET /cgi-bin/slow?<b> HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("the program", LONG, || !server.children().is_empty());
    let mut client = server.connect();
    let page = client.get("/status");
    assert_eq!((page.status, page.field("Cache-Control")), (200, Some("no-store")));
    assert!(page.field("Content-Type").is_some_and(|value| value.starts_with("text/html")));
    let policy = page.field("Content-Security-Policy");
    assert!(
        policy.is_some_and(|value| value.starts_with("default-src 'none'; style-src 'sha256-"))
    );
    let text = page.text();
    assert!(text.contains("GET /cgi-bin/slow?&lt;b&gt;"), "{text}");
    assert!(
        text.contains(&busy.local_address().to_string()) && text.contains("cgi_read_timeout"),
        "{text}"
    );
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("sekisho_cgi_running 1\n"), "{metrics}");
    assert!(
        metrics.contains("sekisho_sessions{protocol=\"http1\",state=\"processing\"} 2\n"),
        "{metrics}"
    );
    let counts = client.get("/counts").text();
    assert!(
        counts.starts_with("Active connections: 2 \nserver accepts handled requests\n 2 2 "),
        "{counts}"
    );
    let head = client.send("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").read_head_response();
    assert!(head.status == 200 && head.body.is_empty());
    assert_eq!(client.get("/denied").status, 403);
    assert_eq!(client.request("POST", "/status", "Content-Length: 0\r\n").status, 405);
}

#[test]
fn rules_about_addresses_hold_for_whoever_asks_by_the_service() {
    // E9
    let config = with_endpoint(
        "listen 127.0.0.1:{port2}; http_addresses 127.0.0.1:{port};",
        "location /who { return 200 $remote_addr; }\
         location /deny { deny 127.0.0.1; }",
    );
    let tree = Tree::new();
    tree.file("root/deny/a.txt", "a");
    let server = Server::start_in(tree, BINARY, &config);
    let stream = std::net::TcpStream::connect(server.address_of(1)).expect("it listens");
    let mut over_tcp = blocking::Client::connect(stream, "tcp").expect("admitted");
    let mut local = native(&server, "s", "local");
    assert_eq!(ask_http(&mut over_tcp, &get("/who")).1, b"127.0.0.1");
    assert_eq!(ask_http(&mut local, &get("/who")).1, b"unix:");
    let status = |head: Option<Head>| head.expect("a head").status;
    assert_eq!(status(ask_http(&mut over_tcp, &get("/deny/a.txt")).0), 403);
    assert_eq!(status(ask_http(&mut local, &get("/deny/a.txt")).0), 200);
}

#[test]
fn a_session_through_shared_memory_is_one_like_the_others() {
    // E7, E9
    let config = "endpoint { listen unix:{dir}/ipc ipc; services echo; }";
    let server = Server::start(
        BINARY,
        &format!("{config}\n{}", http("server { listen 127.0.0.1:{port}; }")),
    );
    let socket = || UnixStream::connect(server.tree().path("ipc"));
    eventually("the socket", LONG, || socket().is_ok());
    let stream = BlockingStream::connect(socket().expect("a socket")).expect("shared memory");
    let mut client = blocking::Client::connect(stream, "through memory").expect("a session");
    for bytes in [0, 64, 300_000] {
        assert_eq!(client.call(Echo::NUMBER, &pattern(bytes)).expect("an answer"), pattern(bytes));
    }
    let listed = ctl_ok(&server, &["sessions"]);
    assert!(listed.contains("through memory"), "{listed}");
    assert!(ctl_ok(&server, &["session", "shutdown", "--graceful", "through memory"]).len() < 1000);
    eventually("its end", LONG, || !ctl_ok(&server, &["sessions"]).contains("through memory"));
}

#[test]
fn services_are_listed_and_called_by_name() {
    // E9, E10
    let server = site();
    let list = ctl_ok(&server, &["services"]);
    for name in ["control", "http", "echo"] {
        assert!(list.contains(name), "{list}");
    }
    let schema = ctl_ok(&server, &["services", "control"]);
    assert!(schema.contains("message ControlRequest"), "{schema}");
    let all: serde_json::Value =
        serde_json::from_str(&ctl_ok(&server, &["services", "--json"])).expect("JSON");
    assert_eq!(all["services"][0]["name"], "control");
    let missing = ctl(&server, &["services", "nobody"]);
    assert_eq!(missing.code(), 1);
    assert!(missing.stderr.contains("no service is called \"nobody\""), "{}", missing.stderr);
    let mut client = native(&server, "s", "by name");
    let request = sekisho_endpoint::NewRequest::to_name("echo").body(b"hello");
    assert_eq!(client.call_with(&request).expect("an answer"), b"hello");
    // A body that goes on, to a service of the server.
    let ticket = client.start(&request.with_upload()).expect("made");
    client.send(&ticket, b" and more").expect("sent");
    client.finish(&ticket);
    assert_eq!(client.answer(ticket).expect("an answer"), b"hello and more");
    // A deadline, at a program that sleeps.
    let body = get("/cgi-bin/slow").encode_to_vec();
    let late = sekisho_endpoint::NewRequest::to_name("http").body(&body);
    let late = late.timeout(std::time::Duration::from_millis(50));
    let error = client.call_with(&late).expect_err("too late");
    assert_eq!(error.code(), Some(Code::DeadlineExceeded));
}
