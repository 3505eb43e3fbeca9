//! The access log and the error log over the real binary: the content of a line, and that every request and
//! every close has one.
#![forbid(unsafe_code)]

mod common;

use std::time::Duration;

use common::{BINARY, LONG, http, pattern};
use sekisho_testkit::{Client, Server, Signal, Stopwatch, Tree, eventually, have, run};

const HOST: &str = "Host: localhost\r\n";

/// A server with these directives in its block.
fn start(formats: &str, body: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let config = http(&format!(
        "{formats}\nserver {{ listen 127.0.0.1:{{port}}; root {{root}};\n{body}\n}}"
    ));
    Server::start_in(tree, BINARY, &config)
}

/// Waits until a log has so many lines, and takes them.
#[track_caller]
fn lines(server: &Server, log: &str, count: usize) -> Vec<String> {
    let read = || server.log(log).lines().map(str::to_owned).collect::<Vec<_>>();
    eventually(log, LONG, || read().len() >= count && server.log(log).ends_with('\n'));
    let lines = read();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[test]
fn the_combined_format_is_that_of_nginx() {
    // O6
    let server = start("", "access_log {dir}/access.log combined;");
    let mut client = server.connect();
    client.request("GET", "/a.txt?b=c", "Referer: http://x/\r\nUser-Agent: te\"st\\ \u{e9}\r\n");
    client.request("HEAD", "/a.txt", "");
    client.request("GET", "/a.txt", "If-None-Match: *\r\n");
    client.request("GET", "/missing%20x", "");
    client.send("nonsense\r\n\r\n");
    client.read_response();
    let lines = lines(&server, "access.log", 5);
    let awaited = [
        r#""GET /a.txt?b=c HTTP/1.1" 200 5 "http://x/" "te\x22st\x5C \xC3\xA9""#,
        r#""HEAD /a.txt HTTP/1.1" 200 0 "-" "-""#,
        r#""GET /a.txt HTTP/1.1" 304 0 "-" "-""#,
    ];
    for (line, awaited) in lines.iter().zip(awaited) {
        let (start, rest) = line.split_once("] ").expect("a time in brackets");
        assert_eq!(rest, awaited);
        let time = start.strip_prefix("127.0.0.1 - - [").expect("the address");
        // 15/Nov/2026:10:00:00 +0000
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        let shape = shape.replace('-', "+");
        assert!(shape.starts_with("99/") && shape.ends_with("/9999:99:99:99 +9999"), "{time}");
    }
    assert!(lines[3].contains(r#""GET /missing%20x HTTP/1.1" 404 "#), "{}", lines[3]);
    assert!(lines[4].contains(r#"" 400 "#), "a refused request has its line too: {}", lines[4]);
}

#[test]
fn json_lines_are_json() {
    // O6
    let server = start(
        r#"log_format j escape=json '{"uri":"$request_uri","agent":"$http_user_agent","none":"$arg_x"}';"#,
        "access_log {dir}/access.log j;",
    );
    let mut client = server.connect();
    client.request("GET", "/a.txt?q=%22", "User-Agent: a\"b\\c\td \u{e9}\r\n");
    let lines = lines(&server, "access.log", 1);
    let awaited = "{\"uri\":\"/a.txt?q=%22\",\"agent\":\"a\\\"b\\\\c\\td \u{e9}\",\"none\":\"\"}";
    assert_eq!(lines[0], awaited);
    if have("python3") {
        let log = server.tree().path("access.log").display().to_string();
        let script =
            "import json,sys; [json.loads(l) for l in open(sys.argv[1], encoding='utf-8')]";
        let parsed = run("python3", &["-c", script, &log], LONG);
        assert_eq!(parsed.code(), 0, "{}", parsed.stderr);
    }
}

#[test]
fn a_format_may_have_any_variable() {
    // O6
    let server = start(
        "log_format all '$remote_addr $remote_port|$request_method $uri $args|$status|$body_bytes_sent|'
           '$bytes_sent|$host $server_port $server_protocol $scheme|$http_x_own|$sent_http_content_type|'
           '$request_completion|$connection_requests|$cookie_c|$arg_b|$document_root|$request_filename|'
           '$request_time|$msec|$request_id';",
        "access_log {dir}/access.log all;",
    );
    let mut client = server.connect();
    client.request("GET", "/x/../a.txt?b=c&d", "X-Own: mine\r\nCookie: a=b; c=d\r\n");
    let head = client.request("GET", "/a.txt", "");
    let lines = lines(&server, "access.log", 2);
    let fields: Vec<&str> = lines[0].split('|').collect();
    let root = server.tree().root().display().to_string();
    let port = client.local_address().port();
    let server_port = server.address().port();
    assert_eq!(fields[0], format!("127.0.0.1 {port}"));
    assert_eq!(fields[1], "GET /a.txt b=c&d");
    assert_eq!(fields[2..4], ["200", "5"]);
    let sent: usize = fields[4].parse().expect("a number");
    assert!(sent > 5 + head.fields.len() * 5, "the head counts too: {sent}");
    assert_eq!(fields[5], format!("localhost {server_port} HTTP/1.1 http"));
    assert_eq!(fields[6..12], ["mine", "text/plain", "OK", "1", "d", "c"]);
    assert_eq!(fields[12..14], [root.clone(), format!("{root}/a.txt")]);
    assert!(fields[14].parse::<f64>().is_ok_and(|secs| secs < 20.0), "{}", fields[14]);
    assert!(fields[15].parse::<f64>().is_ok_and(|secs| secs > 1.6e9), "{}", fields[15]);
    assert!(fields[16].len() == 32 && fields[16].bytes().all(|b| b.is_ascii_hexdigit()));
    let second: Vec<&str> = lines[1].split('|').collect();
    assert_eq!(second[9], "2", "requests on this connection");
    assert_ne!(second[16], fields[16], "no id comes twice");
}

#[test]
fn the_length_of_a_request_is_that_of_head_and_body() {
    // O6
    let server = start("log_format l '$request_length';", "access_log {dir}/access.log l;");
    let mut client = server.connect();
    let request = format!("GET /a.txt HTTP/1.1\r\n{HOST}\r\n");
    client.send(&request);
    client.read_response();
    client.send(format!("{request}{request}"));
    client.read_response();
    client.read_response();
    let length = request.len().to_string();
    assert_eq!(lines(&server, "access.log", 3), [&*length, &*length, &*length]);
}

#[test]
fn lines_are_written_where_and_when_they_are_wanted() {
    // O6
    let server = start(
        "log_format s '$status $uri'; map $status $is_bad { ~^[23] 0; default 1; }",
        "access_log {dir}/all.log s; access_log {dir}/bad.log s if=$is_bad;
         location /quiet { access_log off; return 200 ok; }
         location /own { access_log {dir}/own.log s; return 200 ok; }
         location /silent { return 444; }
         location /agent { access_log {dir}/agent.log s if=$http_x_log; return 200 ok; }",
    );
    let mut client = server.connect();
    for target in ["/a.txt", "/missing", "/quiet", "/own", "/agent"] {
        client.get(target);
    }
    client.request("GET", "/agent", "X-Log: 0\r\n");
    client.request("GET", "/agent", "X-Log: 1\r\n");
    client.send(format!("GET /silent HTTP/1.1\r\n{HOST}\r\n"));
    client.expect_closed(LONG);
    assert_eq!(lines(&server, "all.log", 3), ["200 /a.txt", "404 /missing", "444 /silent"]);
    assert_eq!(lines(&server, "bad.log", 2), ["404 /missing", "444 /silent"]);
    assert_eq!(lines(&server, "own.log", 1), ["200 /own"]);
    assert_eq!(lines(&server, "agent.log", 1), ["200 /agent"]);
}

#[test]
fn every_request_has_exactly_one_line() {
    // O6
    let server = start(
        "log_format n '$uri $request_completion';",
        "keepalive_requests 10000; access_log {dir}/access.log n;
         access_log {dir}/buffered.log n buffer=64k flush=100ms;
         location /n/ { return 200 ok; }",
    );
    let mut client = server.connect();
    for batch in 0..10 {
        let targets = (0..100).map(|at| format!("GET /n/{batch}-{at} HTTP/1.1\r\n{HOST}\r\n"));
        client.send(targets.collect::<String>());
        for _ in 0..100 {
            client.read_response();
        }
    }
    let awaited: Vec<String> =
        (0..1000).map(|at| format!("/n/{}-{} OK", at / 100, at % 100)).collect();
    for log in ["access.log", "buffered.log"] {
        assert_eq!(lines(&server, log, 1000), awaited, "{log}");
    }
}

#[test]
fn a_download_that_was_cut_is_logged_with_what_had_left() {
    // O6
    const SIZE: usize = 16 << 20;
    let server = start(
        "log_format c '$status $body_bytes_sent $request_completion.';",
        "access_log {dir}/access.log c;",
    );
    server.tree().file("root/large.bin", pattern(SIZE));
    let mut client = server.connect();
    client.shrink_receive_buffer(16 * 1024);
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    client.read_bytes(100_000);
    client.reset();
    let line = lines(&server, "access.log", 1).remove(0);
    let sent = line.strip_prefix("200 ").and_then(|rest| rest.strip_suffix(" ."));
    let sent = sent.and_then(|sent| sent.parse().ok());
    assert!(sent.is_some_and(|sent: usize| (90_000..SIZE).contains(&sent)), "{line}");
}

#[test]
fn every_close_has_its_reason_in_the_log() {
    // O6, L12
    let server = start(
        "",
        "keepalive_requests 2; lingering_timeout 100ms;
         location /n/ { return 200 ok; }
         location /silent { return 444; }
         location /off { keepalive_timeout 0; return 200 ok; }",
    );
    let path = server.tree().file("root/large.bin", pattern(8 << 20));
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\n{HOST}{fields}\r\n");
    let closed = |reason: &str, act: &mut dyn FnMut(Client)| {
        let count = || server.log("error.log").matches(&format!("closed: {reason}\n")).count();
        let before = count();
        act(server.connect());
        eventually(&format!("{reason} in {}", server.log("error.log")), LONG, || {
            count() == before + 1
        });
    };
    closed("peer_closed", &mut |client| drop(client));
    closed("peer_closed", &mut |mut client| drop(client.get("/n/x")));
    closed("peer_closed_early", &mut |mut client| {
        client.send("GET /n/");
    });
    closed("transport_lost", &mut |mut client| {
        client.shrink_receive_buffer(4096);
        client.send(get("/large.bin", ""));
        client.read_bytes(1000);
        client.reset();
    });
    closed("client_asked", &mut |mut client| {
        client.send(get("/n/x", "Connection: close\r\n"));
        client.read_to_close();
    });
    closed("out_of_sync", &mut |mut client| {
        client.send("nonsense\r\n\r\n");
        client.read_to_close();
    });
    closed("keepalive_requests", &mut |mut client| {
        client.get("/n/1");
        client.get("/n/2");
        client.read_to_close();
    });
    closed("keepalive_off", &mut |mut client| {
        client.get("/off");
        client.read_to_close();
    });
    closed("by_configuration", &mut |mut client| {
        client.send(get("/silent", ""));
        client.expect_closed(LONG);
    });
    closed("broken_off", &mut |mut client| {
        client.shrink_receive_buffer(64 * 1024);
        client.send(get("/large.bin", ""));
        client.read_bytes(1000);
        let file = std::fs::File::options().write(true).open(&path).expect("it is there");
        file.set_len(10).expect("it shrinks");
        client.read_to_end();
    });
    let mut idle = server.connect();
    assert_eq!(idle.get("/n/x").status, 200);
    server.signal(Signal::QUIT);
    idle.expect_closed(LONG);
    eventually("draining", LONG, || server.log("error.log").contains("closed: draining\n"));
}

#[test]
fn the_error_log_says_what_went_wrong_in_one_line_each() {
    // O6, V27
    let server = start(
        "",
        "location /quiet/ { log_not_found off; }
         location /own/ { error_log {dir}/own.log; }",
    );
    let mut client = server.connect();
    client.get("/missing.txt?q");
    client.get("/quiet/missing");
    client.get("/own/missing");
    client.get("/a%0ab");
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
    client.read_response();
    let log = || server.log("error.log");
    eventually("the refusal", LONG, || log().contains("refused with 400"));
    let text = log();
    let line = text.lines().find(|line| line.contains("missing.txt")).expect("a line");
    for part in ["[error]", "*", "open() \"", "/root/missing.txt\" failed", "client: 127.0.0.1"] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    let ending = "failed (2: No such file or directory), client: 127.0.0.1, server: , request: \"GET /missing.txt?q HTTP/1.1\", host: \"localhost\", request id: ";
    assert!(line.contains(ending), "{line}");
    assert!(!text.contains("/quiet/missing") && !text.contains("/own/missing"), "{text}");
    eventually("own", LONG, || server.log("own.log").contains("/own/missing"));
    let refusal = text.lines().find(|line| line.contains("refused with")).expect("a line");
    assert!(
        refusal.contains("[info]") && refusal.contains("white space before the colon"),
        "{refusal}"
    );
    // 2026/11/15 10:00:00 [
    for line in text.lines() {
        assert!(line.as_bytes().get(4) == Some(&b'/') && line.contains("] "), "{line:?}");
    }
}

#[test]
fn the_error_log_names_a_request_by_its_id() {
    // O6
    let server = start("log_format i '$request_id';", "access_log {dir}/access.log i;");
    server.connect().get("/missing");
    let id = lines(&server, "access.log", 1).remove(0);
    eventually("the line", LONG, || server.log("error.log").contains("/missing"));
    let log = server.log("error.log");
    let line = log.lines().find(|line| line.contains("/missing")).expect("a line");
    assert!(line.contains(&id), "no {id} in {line}");
}

#[test]
fn a_flood_of_missing_files_does_not_flood_the_log() {
    // O6
    let server = start("", "keepalive_requests 10000;");
    let mut client = server.connect();
    let watch = Stopwatch::start();
    for at in 0..500 {
        client.get(&format!("/missing-{at}"));
    }
    client.request("GET", "/a.txt", "Connection: close\r\n");
    eventually("the end", LONG, || server.log("error.log").contains("closed: client_asked"));
    let log = server.log("error.log");
    let count = log.lines().filter(|line| line.contains("/missing-")).count();
    // Twenty a second; the machine may have taken some seconds for it.
    let most = 20 * (watch.elapsed().as_secs() as usize + 2);
    assert!((1..=most).contains(&count), "{count} lines, {most} at most");
    assert!(client.with_patience(Duration::from_secs(1)).received().is_empty());
}

#[test]
fn the_length_of_a_request_counts_a_body_that_goes_straight_into_its_file() {
    // O6
    const BYTES: usize = 1 << 20;
    let server = start(
        "log_format l '$request_length';",
        "access_log {dir}/access.log l; client_max_body_size 0; dav_methods PUT;",
    );
    let mut client = server.connect();
    let head = format!(
        "PUT /long HTTP/1.1\r\n{HOST}Content-Length: {BYTES}\r\nExpect: 100-continue\r\n\r\n"
    );
    client.send(&head);
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read_bytes(go_on.len()), go_on.as_bytes());
    client.send(vec![b'x'; BYTES]);
    assert_eq!(client.read_response().status, 201);
    assert_eq!(lines(&server, "access.log", 1), [(head.len() + BYTES).to_string()]);
}

/// Requests, all in one packet.
fn pipelined(count: usize) -> String {
    let one = |at| format!("GET /n/{at} HTTP/1.1\r\n{HOST}\r\n");
    (0..count).map(one).collect::<Vec<_>>().concat()
}

/// Lines that wait in a worker's buffer, in a queue or for `buffer=` are written before the process ends.
#[test]
fn at_an_orderly_end_no_line_is_lost() {
    // O4, O6
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 150;
    for signal in [Signal::QUIT, Signal::TERM] {
        let mut server = start(
            "log_format n '$uri';",
            "keepalive_requests 10000; location /n/ { return 200 ok; }
             access_log {dir}/access.log n; access_log {dir}/buffered.log n buffer=1m flush=1h;",
        );
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(pipelined(REQUESTS));
        }
        for client in &mut clients {
            for _ in 0..REQUESTS {
                assert_eq!(client.read_response().status, 200);
            }
        }
        server.signal(signal);
        server.wait_exit(LONG);
        for log in ["access.log", "buffered.log"] {
            let text = server.log(log);
            assert_eq!(text.lines().count(), CLIENTS * REQUESTS, "{log} after {signal:?}");
            assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with("/n/")));
        }
    }
}

#[test]
fn no_line_is_lost_while_logs_are_opened_again_and_configurations_change() {
    // O4, O5, O6
    const ROUNDS: usize = 6;
    const REQUESTS: usize = 100;
    let config = |log: usize| {
        http(&format!(
            "log_format n '$uri'; server {{ listen 127.0.0.1:{{port}}; keepalive_requests 10000;
             location /n/ {{ return 200 ok; }} access_log {{dir}}/access{log}.log n; }}"
        ))
    };
    let server = Server::start(BINARY, &config(0));
    let path = |name: &str| server.tree().path(name);
    let mut client = server.connect();
    let mut written = Vec::new();
    for round in 0..ROUNDS {
        let log = format!("access{}.log", round / 2);
        client.send(pipelined(REQUESTS));
        // In the middle of them.
        client.read_response();
        if round % 2 == 0 {
            let old = format!("old{round}");
            std::fs::rename(path(&log), path(&old)).expect("renamed");
            server.signal(Signal::USR1);
            eventually("the new file", LONG, || server.tree().exists(&log));
            written.extend([old, log]);
        } else {
            server.rewrite_config(&config(round / 2 + 1));
            server.signal(Signal::HUP);
            let new = format!("access{}.log", round / 2 + 1);
            eventually("the new file", LONG, || server.tree().exists(&new));
            written.push(new);
        }
        for _ in 1..REQUESTS {
            assert_eq!(client.read_response().status, 200);
        }
    }
    written.sort();
    written.dedup();
    let count = || {
        let exists = |log: &&String| server.tree().exists(log);
        written.iter().filter(exists).map(|log| server.log(log).lines().count()).sum::<usize>()
    };
    eventually("all lines", LONG, || count() >= ROUNDS * REQUESTS);
    assert_eq!(count(), ROUNDS * REQUESTS, "and none of them twice");
}

#[test]
fn a_panic_takes_no_line_with_it() {
    // O6, O14, V47
    let server = start(
        "log_format n '$uri';",
        "access_log {dir}/access.log n; location /n/ { return 200 ok; }",
    );
    let mut neighbour = server.connect();
    neighbour.get("/n/before");
    let mut unlucky = server.connect();
    // In one turn: what was answered in it before the panic has its line.
    let last = format!("GET /n/x HTTP/1.1\r\n{HOST}X-Inject-Fault: panic\r\n\r\n");
    unlucky.send(pipelined(5) + &last);
    unlucky.read_to_end();
    neighbour.get("/n/after");
    let found = lines(&server, "access.log", 7);
    assert_eq!(found, ["/n/before", "/n/0", "/n/1", "/n/2", "/n/3", "/n/4", "/n/after"]);
}

/// A line is in its file soon after the answer, also where nothing else happens.
#[test]
fn a_single_line_is_written_soon() {
    // O6
    let server = start("log_format n '$uri';", "access_log {dir}/access.log n;");
    let mut quickest = LONG;
    for at in 1..=20 {
        // Each on a connection of its own: the first turn of a connection is not one of the event loop's.
        server.connect().get("/a.txt");
        let watch = Stopwatch::start();
        eventually("the line", LONG, || server.log("access.log").lines().count() == at);
        quickest = quickest.min(watch.elapsed());
    }
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}

#[test]
fn variables_in_a_path_choose_the_file() {
    // O6
    let server = start(
        "log_format u $uri;",
        "location / { access_log {dir}/of_$arg_name.log u; }
         location /alias { alias {root}/a.txt; access_log {dir}/of_$arg_name.log u; }
         location /elsewhere { root /nowhere/at/all; access_log {dir}/of_$arg_name.log u; }",
    );
    let mut client = server.connect();
    for target in ["/a.txt?name=one", "/a.txt?name=two", "/b?name=one", "/elsewhere?name=three"] {
        client.get(target);
    }
    client.get("/alias?name=four");
    client.get("/a.txt?name=../../out");
    client.get("/a.txt?name=last");
    assert_eq!(lines(&server, "of_last.log", 1), ["/a.txt"]);
    assert_eq!(lines(&server, "of_one.log", 2), ["/a.txt", "/b"]);
    assert_eq!(lines(&server, "of_two.log", 1), ["/a.txt"]);
    assert_eq!(lines(&server, "of_four.log", 1), ["/alias"]);
    // nginx's rule: no log where the root is not there.
    assert!(!server.tree().exists("of_three.log"));
}

#[test]
fn a_compressed_log_is_gzip() {
    // O6
    use std::io::Read;
    let server = start("log_format u $uri;", "access_log {dir}/a.gz u gzip=5 flush=20ms;");
    let mut client = server.connect();
    let text = || {
        let file = std::fs::File::open(server.tree().path("a.gz")).expect("the log");
        let mut text = String::new();
        // Half a member is not there: it is written at once.
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).map(|_| text)
    };
    client.get("/a.txt");
    eventually("the first member", LONG, || text().is_ok_and(|text| text == "/a.txt\n"));
    client.get("/b");
    eventually("the second", LONG, || text().is_ok_and(|text| text == "/a.txt\n/b\n"));
}

#[test]
fn both_logs_go_to_a_syslog_server() {
    // O6
    let syslog = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    syslog.set_read_timeout(Some(LONG)).expect("set");
    let address = syslog.local_addr().expect("bound");
    let server = start(
        "log_format u $uri:$status;",
        &format!(
            "location /a {{ access_log syslog:server={address},facility=user,tag=web,nohostname u; }}
             location /e {{ access_log off; error_log syslog:server={address},nohostname; }}"
        ),
    );
    let mut client = server.connect();
    let mut next = |target| {
        client.get(target);
        let mut room = [0; 2048];
        let count = syslog.recv(&mut room).expect("a datagram");
        String::from_utf8_lossy(&room[..count]).into_owned()
    };
    let line = next("/a.txt");
    assert!(line.starts_with("<14>") && line.ends_with(" web: /a.txt:200"), "{line}");
    let line = next("/e");
    assert!(line.starts_with("<187>") && line.contains(" nginx: "), "{line}");
    assert!(line.contains("[error]") && line.contains("/e\" failed"), "{line}");
}

/// A line for each phase of a request, in order; none of them without `debug`.
#[test]
fn the_error_log_at_debug_tells_the_phases_of_a_request() {
    let body = "location /to/ { proxy_pass http://127.0.0.1:{port}/; } location ~ \\.txt$ { }";
    let server = start("", body);
    let mut client = server.connect();
    assert_eq!(client.get("/to/a.txt").status, 404, "the expression goes before the prefix");
    assert_eq!(client.get("/to/").status, 403);
    drop(client);
    let phases = |log: &str| -> Vec<String> {
        let debug = log.lines().filter_map(|line| line.split_once("[debug] ")).map(|(_, it)| it);
        let said = debug.filter_map(|line| Some(line.split_once(": *")?.1.split_once(' ')?.1));
        said.map(str::to_owned).collect()
    };
    let port = server.address().port();
    let seen = || phases(&server.whole_log("error.log"));
    eventually("the last close", LONG, || {
        seen().iter().filter(|line| line.starts_with("closed: ")).count() >= 1
    });
    let seen = seen();
    let begins = [
        "request: \"GET /to/a.txt HTTP/1.1\", ".to_owned(),
        "location \"~ \\.txt$\" for \"/to/a.txt\": error 404".to_owned(),
        "response: 404".to_owned(),
        "request is over: 404".to_owned(),
        "request: \"GET /to/ HTTP/1.1\", ".to_owned(),
        "location \"/to/\" for \"/to/\": pass to a server".to_owned(),
        format!("upstream \"127.0.0.1:{port}\": 403, "),
    ];
    let mut rest = seen.iter();
    for begin in begins {
        assert!(rest.any(|line| line.starts_with(&begin)), "{begin} in {seen:#?}");
    }
    assert!(rest.any(|line| line.starts_with("request is over: 403")), "{seen:#?}");
}
