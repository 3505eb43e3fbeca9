//! One contract for services, whatever the way to them (E1, E9): the same rows over HTTP/1, HTTP/2 and native sessions.
//! This program is the server, too: when it is started with a configuration, it serves with the services of
//! `services.rs`.
#![forbid(unsafe_code)]

#[path = "../common/authority.rs"]
mod authority;
mod services;
mod ways;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use prost::Message as _;
use sekisho::Code;
use sekisho_endpoint::http;
use sekisho_testkit::{Server, Stopwatch, Tree, eventually, python_with, run};

use services::{BLOCK, COUNT, FORGET, GUARDED, KV, PANIC, PATIENT, SUM, WHOAMI};
use ways::{Http1, Http2, NativeIpc, NativeTcp, NativeTls, NativeUnix, Outcome, User, Way};

/// Longer than anything takes that is going to happen at all, on a loaded machine too.
const LONG: Duration = Duration::from_mins(1);

const CONFIG: &str = "worker_processes 2;
    error_log {dir}/error.log debug;
    events {}
    endpoint {
        listen 127.0.0.1:{port2};
        listen 127.0.0.1:{port3} ssl;
        listen unix:{dir}/s;
        listen unix:{dir}/m ipc;
        ssl_certificate {dir}/ours-server.pem;
        ssl_certificate_key {dir}/ours-server.pem;
        password_file {dir}/users;
        permit guarded user:ann;
        requests_per_identity 4;
    }
    http {
        access_log {dir}/access.log;
        server {
            listen 127.0.0.1:{port}; http2 on; client_max_body_size 4m;
            location /echo/ { service echo; }
            location /kv/ { service kv; }
            location /count/ { service count; }
            location /forget/ { service forget; }
            location /panic/ { service panic; }
            location /block/ { service block; }
            location /patient/ { service patient; }
            location /sum/ { service sum; client_max_body_size 64m; }
            location /slow/ { service slow; }
            location /whoami/ { service whoami; }
            location /guarded/ { service guarded; }
            location /as-user/ {
                auth_basic x;
                auth_basic_user_file {dir}/users;
                location /as-user/whoami/ { service whoami; }
                location /as-user/guarded/ { service guarded; }
                location /as-user/patient/ { service patient; }
                location /as-user/echo/ { service echo; }
            }
        }
    }";

const ECHO: (u32, &str) = (sekisho_endpoint::Echo::NUMBER, "echo");

fn failed(outcome: &Outcome) -> u32 {
    outcome.answer.as_ref().expect_err("an error").0
}

/// E9: what was sent comes back, in every size.
fn echo(server: &Server, way: &dyn Way) {
    for length in [0, 1, 100, 4096, 100_000, 1 << 20] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let came = way.call(server, ECHO, &body).result();
        assert!(came == body, "{length} bytes, and {} came", came.len());
    }
}

/// E1: one store for all ways and workers; records, and the answer behind them.
fn one_store(server: &Server, way: &dyn Way) {
    let kv = |text: String| way.call(server, (KV, "kv"), text.as_bytes());
    let own = way.name().replace(' ', "-");
    assert_eq!(kv(format!("put all-{own} 1")).result(), b"");
    for number in 0..5 {
        assert_eq!(kv(format!("put {own}-{number} v{number}")).result(), b"");
    }
    assert_eq!(kv(format!("get {own}-3")).result(), b"v3");
    let Outcome { records, answer } = kv(format!("scan {own}-"));
    let expected: Vec<_> = (0..5).map(|at| format!("{own}-{at}=v{at}").into_bytes()).collect();
    assert_eq!((records, answer), (expected, Ok(b"5".to_vec())));
    let missing = kv("get nothing".to_owned());
    let text = "there is no such key".to_owned();
    assert_eq!(missing.answer, Err((Code::IllegalState.number(), text)));
    assert_eq!(failed(&kv("dance".to_owned())), Code::InvalidRequest.number());
}

/// E1: more records than there is room for wait; each comes once, in order.
fn many_records(server: &Server, way: &dyn Way) {
    for (count, size) in [(0, 0), (1, 0), (3000, 1), (300, 5000), (20, 60_000)] {
        let asked = format!("{count} {size}");
        let Outcome { records, answer } = way.call(server, (COUNT, "count"), asked.as_bytes());
        assert_eq!(answer, Ok(b"done".to_vec()), "{asked}");
        assert_eq!(records.len(), count, "{asked}");
        let is_right = |(at, record): (usize, &Vec<u8>)| *record == vec![at as u8; size];
        assert!(records.iter().enumerate().all(is_right), "{asked}");
    }
    let Outcome { records, answer } = way.call(server, (COUNT, "count"), b"7 10 then fail");
    assert_eq!((records.len(), answer.expect_err("it fails").0), (7, Code::IoError.number()));
}

/// L32: a service that gives no answer has given one.
fn no_answer_is_one(server: &Server, way: &dyn Way) {
    for service in [(FORGET, "forget"), (PANIC, "panic")] {
        let outcome = way.call(server, service, b"x");
        assert_eq!(failed(&outcome), Code::Unknown.number(), "{service:?}");
    }
    // Its author wants to know.
    eventually("the panic in the log", LONG, || {
        server.log("error.log").contains("panicked: as was asked")
    });
}

/// E1: what blocks is done elsewhere, and its result is the answer.
fn blocking(server: &Server, way: &dyn Way) {
    assert_eq!(way.call(server, (BLOCK, "block"), b"abc").result(), b"cba");
    let outcome = way.call(server, (BLOCK, "block"), b"fail");
    assert_eq!(failed(&outcome), Code::OperationDenied.number());
}

/// L12, C6: a client that goes away cancels its call.
fn leaving_cancels(server: &Server, way: &dyn Way) {
    let key = format!("left-{}", way.name().replace(' ', "-"));
    let state = || {
        let outcome = Http1.call(server, (KV, "kv"), format!("get {key}").as_bytes());
        outcome.answer.unwrap_or_default()
    };
    way.leave(server, (PATIENT, "patient"), key.as_bytes(), &|| {
        eventually("the call", LONG, || state() == b"waits");
    });
    eventually("its cancel", LONG, || state() == b"cancelled");
}

/// E4: a service that takes a stream gets all of it.
fn streams(server: &Server, way: &dyn Way) {
    for length in [0, 1, 1 << 20] {
        let body = vec![7; length];
        let came = way.call(server, (SUM, "sum"), &body).result();
        assert_eq!(came, length.to_string().into_bytes());
    }
}

const ANN: User<'static> = Some(("ann", "correct horse"));
const BOB: User<'static> = Some(("bob", "battery staple"));

/// E13: a caller is who it has proved to be, and the same by every way.
fn identities(server: &Server, way: &dyn Way) {
    let who = |user| {
        let outcome = way.call_as(server, user, (WHOAMI, "whoami"), b"")?;
        Ok::<_, u32>(String::from_utf8(outcome.result()).expect("text"))
    };
    let local = format!("unix:{}", rustix::process::geteuid().as_raw());
    let is_local = matches!(way.name(), "native unix" | "native shared memory");
    let nobody = if is_local { local } else { "anonymous".to_owned() };
    assert_eq!(who(None), Ok(nobody));
    assert_eq!(who(ANN), Ok("user:ann".to_owned()));
    assert_eq!(who(BOB), Ok("user:bob".to_owned()));
    let wrong = Err(Code::AuthenticationError.number());
    assert_eq!(who(Some(("ann", "battery staple"))), wrong);
    assert_eq!(who(Some(("carl", "correct horse"))), wrong);
}

/// E14: one rule about a service holds for every way to it.
fn permissions(server: &Server, way: &dyn Way) {
    let call = |user| way.call_as(server, user, (GUARDED, "guarded"), b"").expect("known");
    assert_eq!(call(ANN).result(), b"user:ann");
    for user in [None, BOB] {
        let (code, text) = call(user).answer.expect_err("refused");
        assert_eq!(code, Code::PermissionError.number());
        assert!(text.starts_with("service \"guarded\" is not permitted to "), "{text}");
    }
    eventually("the log", LONG, || server.log("error.log").contains("service \"guarded\" denied"));
}

/// E4, E14: running calls of an identity count together, by whatever way they came.
fn limits(server: &Server, way: &dyn Way) {
    let key = |at: usize| format!("limit-{at}-{}", way.name().replace(' ', "-"));
    let waits = |key: &str| {
        let outcome = Http1.call(server, (KV, "kv"), format!("get {key}").as_bytes());
        outcome.answer.unwrap_or_default() == b"waits"
    };
    let echo = |user: User<'_>| way.call_as(server, user, ECHO, b"x").expect("known");
    let patient = (PATIENT, "patient");
    // This way holds one of the four places, others the rest.
    let others: [&dyn Way; 3] = [&Http1, &NativeTcp, &Http1];
    let hold = |at: usize, by: &dyn Way, inner: &dyn Fn()| {
        by.leave_as(server, BOB, patient, key(at).as_bytes(), &|| {
            eventually("the call", LONG, || waits(&key(at)));
            inner();
        });
    };
    hold(0, way, &|| {
        hold(1, others[1], &|| {
            hold(2, others[0], &|| {
                hold(3, others[2], &|| {
                    assert_eq!(failed(&echo(BOB)), Code::ResourceLimitReached.number());
                    assert_eq!(echo(ANN).result(), b"x", "another identity");
                });
            });
        });
    });
    eventually("room again", LONG, || echo(BOB).answer.is_ok());
}

/// E4, E14: a call that goes through the service `http` to another service is one call, and the rules hold for both.
fn through_http(_: &Server, _: &dyn Way) {
    let limits = "requests_per_identity 1; http_addresses 127.0.0.1:{port}";
    let server = serve(&CONFIG.replace("requests_per_identity 4", limits));
    let get = |user: User<'_>, target: &str| {
        let request = http::Request { target: target.to_owned(), ..http::Request::default() };
        let service = (http::NUMBER, "http");
        let outcome = NativeTcp.call_as(&server, user, service, &request.encode_to_vec());
        let records = outcome.expect("known").records;
        let (head, body) = records.split_first().expect("a head");
        let head = http::Head::decode(&head[..]).expect("it can be read");
        (head.status, String::from_utf8(body.concat()).expect("text"))
    };
    assert_eq!(get(ANN, "/whoami/"), (200, "user:ann".to_owned()));
    assert_eq!(get(ANN, "/guarded/"), (200, "user:ann".to_owned()));
    assert_eq!(get(BOB, "/guarded/").0, 403);
}

/// What only HTTP has: statuses, plain bodies, bodies larger than any frame, methods, logs.
fn http_alone(server: &Server, _: &dyn Way) {
    let mut client = server.connect();
    let plain = client.request_with_body("POST", "/kv/", "", b"put plain 7");
    assert_eq!((plain.status, plain.body.len()), (200, 0));
    let got = client.request_with_body("POST", "/kv/", "", b"get plain");
    assert_eq!((got.status, got.text().as_str()), (200, "7"));
    assert_eq!(got.field("content-type"), Some("application/octet-stream"));
    let failed = client.request_with_body("POST", "/kv/", "", b"dance");
    assert_eq!((failed.status, failed.text().as_str()), (400, "get, put or scan is wanted"));
    assert_eq!(failed.field("sekisho-error"), Some("INVALID_REQUEST"));
    let records = client.request_with_body("POST", "/count/", "", b"3 2");
    assert_eq!(records.body, [0, 0, 1, 1, 2, 2], "one after the other");
    assert_eq!(client.get("/echo/").status, 200);
    let large = vec![9; 20 << 20];
    let sum = client.request_with_body("POST", "/sum/", "", &large);
    assert_eq!(sum.text(), large.len().to_string(), "a stream has no bound of its own");
    let refused = server.connect().request_with_body("POST", "/echo/", "", &large);
    assert_eq!(refused.status, 413);
    // A response that cannot be completed does not look complete (C5).
    let mut cut = server.connect();
    cut.send("POST /count/ HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n3 2 then fail");
    assert!(cut.try_read_response(false).is_err());
    eventually("the log", LONG, || server.log("access.log").contains("POST /kv/"));
}

/// E4: a connection whose requests keep a service busy lets others have their turn after a while. Both wait when the only
/// worker comes back to them, the busy one first.
fn turns_of_http(_: &Server, _: &dyn Way) {
    const PIPELINED: usize = 100;
    let server = serve(&CONFIG.replace("worker_processes 2", "worker_processes 1"));
    let (mut holds, mut busy, mut other) = (server.connect(), server.connect(), server.connect());
    for client in [&mut holds, &mut busy, &mut other] {
        assert_eq!(client.get("/whoami/").status, 200);
    }
    holds.send("POST /slow/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n300");
    busy.send("GET /slow/ HTTP/1.1\r\nHost: x\r\n\r\n".repeat(PIPELINED));
    other.send("GET /slow/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let before: usize = other.read_response().text().parse().expect("a number");
    assert!(before < PIPELINED / 2, "{before} calls of another came first");
    for _ in 0..PIPELINED {
        assert_eq!(busy.read_response().status, 200);
    }
    assert_eq!(holds.read_response().status, 200);
}

/// E4: a body that takes longer than a turn of services goes on when the others had theirs.
fn long_bodies(_: &Server, _: &dyn Way) {
    const AT_ONCE: Duration = Duration::from_secs(8);
    let server = serve(&CONFIG.replace("worker_processes 2", "worker_processes 1"));
    let body = vec![7; 1 << 20];
    for number in 0..12 {
        let since = Stopwatch::start();
        let way: &dyn Way = if number % 2 == 0 { &Http1 } else { &Http2 };
        assert_eq!(way.call(&server, ECHO, &body).result().len(), body.len());
        // It hung until the client's next timeout.
        assert!(since.elapsed() < AT_ONCE, "{}, call {number}: {:?}", way.name(), since.elapsed());
    }
}

/// L7, L31: a service that does not heed that it was cancelled is answered for, and its session ends.
fn deaf(server: &Server, _: &dyn Way) {
    let ctl = |arguments: &[&str]| {
        let pid = server.id().to_string();
        let all = [&["ctl", "--pid", &pid], arguments].concat();
        run(env!("CARGO_BIN_EXE_sekisho"), &all, LONG).stdout
    };
    let mut client = server.connect();
    client.send("POST /patient/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ndeaf");
    let address = client.local_address().to_string();
    let mut id = String::new();
    eventually("it runs", LONG, || {
        let all: serde_json::Value =
            serde_json::from_str(&ctl(&["sessions", "--json"])).expect("JSON");
        let of = all["sessions"].as_array().expect("a list").iter().find(|session| {
            session["peer"] == address.as_str() && session["requests"] != serde_json::json!([])
        });
        let Some(session) = of else { return false };
        id = format!(":{}", session["id"]);
        true
    });
    ctl(&["session", "shutdown", "--forceful", &id]);
    let answer = client.read_response();
    assert!(answer.status == 503 && answer.says_close(), "{answer:?}");
    client.expect_closed(LONG);
}

/// A stock gRPC client, from the Python package index: unary calls, server streams, statuses, deadlines and cancel.
fn grpc(server: &Server, _: &dyn Way) {
    let python =
        match python_with("grpcio", "grpc", concat!(env!("CARGO_TARGET_TMPDIR"), "/grpcio")) {
            Ok(python) => python,
            Err(why) => return println!("skipped: {why}"),
        };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/stock_client.py");
    let done = run(&python, &[script, &server.address().to_string()], LONG);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    print!("{}", done.stdout);
}

/// E10: `ctl call` knows nothing of a program's own services, and passes their names on.
fn by_name(server: &Server, _: &dyn Way) {
    let body = server.tree().file("called", "abc").display().to_string();
    let address = server.address_of(1).to_string();
    let call = |name: &str| {
        let arguments = ["ctl", "--socket", &address, "call", name, "-d", &body];
        run(env!("CARGO_BIN_EXE_sekisho"), &arguments, LONG)
    };
    let done = call("block");
    assert_eq!((done.code(), done.stdout.as_str()), (0, "cba"), "{}", done.stderr);
    let done = call("nosuch");
    assert_eq!((done.code(), done.stdout.as_str()), (1, ""), "{}", done.stderr);
}

/// `battery staple`, by bcrypt.
const BOB_HASH: &str = "$2y$05$o0jnZvHTpzYfQoymBQQ8lO3DoEEBq7sA2y80fCgzDa7kFDDHXF6Ge";

type Check = fn(&Server, &dyn Way);
type Row = (&'static str, Check);

const ROWS: [Row; 10] = [
    ("what_was_sent_comes_back", echo),
    ("one_store_for_all_ways", one_store),
    ("records_come_once_and_in_order", many_records),
    ("no_answer_is_one", no_answer_is_one),
    ("what_blocks_is_done_elsewhere", blocking),
    ("a_client_that_goes_away_cancels", leaving_cancels),
    ("a_stream_is_taken_whole", streams),
    ("a_caller_is_who_it_has_proved_to_be", identities),
    ("one_rule_about_a_service_for_all_ways", permissions),
    ("calls_of_an_identity_count_together", limits),
];

/// This program as a server.
fn serve(config: &str) -> Server {
    let own = std::env::current_exe().expect("this program");
    let tree = Tree::new();
    authority::authority(&tree, "ours", "client");
    // A password that is known at once, and one that takes its time.
    tree.file("users", format!("ann:{{PLAIN}}correct horse\nbob:{BOB_HASH}\n"));
    Server::start_in(tree, own.to_str().expect("a path"), config)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "-c") {
        return sekisho::run(services::factory());
    }
    let filter = arguments.iter().find(|word| !word.starts_with('-'));
    let ways: [&dyn Way; 6] = [&Http1, &Http2, &NativeTcp, &NativeTls, &NativeUnix, &NativeIpc];
    let mut all: Vec<(String, &dyn Way, Check)> = Vec::new();
    for (name, row) in ROWS {
        all.extend(ways.iter().map(|way| (format!("{name} over {}", way.name()), *way, row)));
    }
    all.push(("what_only_http_has".to_owned(), &Http1, http_alone));
    all.push(("services_do_not_take_the_turns_of_others".to_owned(), &Http1, turns_of_http));
    all.push(("a_long_body_does_not_stall".to_owned(), &Http1, long_bodies));
    all.push(("a_service_that_is_deaf_does_not_hold_its_session".to_owned(), &Http1, deaf));
    all.push(("a_call_through_http_counts_once".to_owned(), &NativeTcp, through_http));
    all.push(("a_stock_grpc_client".to_owned(), &Http2, grpc));
    all.push(("the_command_line_calls_by_name".to_owned(), &NativeTcp, by_name));
    all.retain(|(name, ..)| filter.is_none_or(|filter| name.contains(filter.as_str())));
    if arguments.iter().any(|word| word == "--list") {
        for (name, ..) in &all {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let server = serve(CONFIG);
    let mut failures = 0;
    for (name, way, row) in &all {
        let outcome = catch_unwind(AssertUnwindSafe(|| row(&server, *way)));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failures += usize::from(outcome.is_err());
    }
    println!("\ntest result: {} passed; {failures} failed", all.len() - failures);
    if failures > 0 {
        println!("{}", server.log("error.log"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
