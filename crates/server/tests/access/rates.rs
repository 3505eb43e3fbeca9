//! Rates and places over the wire: shared by all workers, kept by a reload, and given back however a request
//! ends.

use sekisho_testkit::{Client, Server, Tree, eventually, run};

use crate::common::{BINARY, LONG, http};

/// Larger than all buffers on the way.
const LARGE: usize = 16 << 20;

fn config(workers: usize, zones: &str, server: &str) -> String {
    let config = http(&format!(
        "access_log {{dir}}/access.log; {zones}
         server {{ listen 127.0.0.1:{{port}}; root {{root}}; {server} }}"
    ));
    let config = config.replace("processes 1", &format!("processes {workers}"));
    format!("pid {{dir}}/server.pid;\n{config}").replace("access_log off;", "")
}

fn start(config: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    std::fs::File::create(tree.path("root/large"))
        .expect("a file")
        .set_len(LARGE as u64)
        .expect("long");
    Server::start_in(tree, BINARY, config)
}

fn change(server: &Server, config: &str) {
    server.rewrite_config(config);
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    let path = server.config_path().display().to_string();
    let finished = run(BINARY, &["-s", "reload", "-c", &path], LONG);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
}

const ZONES: &str =
    "limit_req_zone $arg_k zone=one:1m rate=1r/m; limit_conn_zone $arg_k zone=places:1m;";

#[test]
fn workers_count_together() {
    let server =
        start(&config(2, ZONES, "limit_req zone=one burst=3 nodelay; limit_req_status 429;"));
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let statuses: Vec<u16> =
        clients.iter_mut().map(|client| client.get("/a.txt?k=x").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 4, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 16, "{statuses:?}");
    let line = "limiting requests, excess: 4.000 by zone \"one\", client: 127.0.0.1, server: , request: \"GET /a.txt?k=x HTTP/1.1\"";
    eventually("the log", LONG, || server.log("error.log").contains(line));
}

/// O3: counts survive a reload where name, key and size stay.
#[test]
fn a_reload_keeps_counts() {
    let limited = "limit_req zone=one; limit_conn places 1;";
    let server = start(&config(1, ZONES, limited));
    let status = |path: &str| server.connect().get(path).status;
    assert_eq!((status("/a.txt?k=x"), status("/a.txt?k=x")), (200, 503));
    let mut slow = server.connect();
    slow.shrink_receive_buffer(4096);
    slow.send("GET /large?k=slow HTTP/1.1\r\nHost: x\r\n\r\n");
    slow.read_bytes(1);
    change(&server, &config(2, ZONES, &format!("{limited} location /other {{ }}")));
    assert_eq!(status("/a.txt?k=x"), 503, "the rate is kept");
    assert_eq!(status("/a.txt?k=y"), 200);
    let faster = ZONES.replace("1r/m", "1000r/s");
    change(&server, &config(1, &faster, limited));
    assert_eq!(status("/a.txt?k=slow"), 503, "the place is taken");
    eventually("a rate that has changed", LONG, || status("/a.txt?k=x") == 200);
    drop(slow);
    eventually("the place", LONG, || status("/a.txt?k=slow") == 200);
    let other = ZONES.replace("$arg_k zone=one", "$arg_k$arg_l zone=one");
    change(&server, &config(1, &other, "limit_req zone=one;"));
    assert_eq!(status("/a.txt?k=x"), 200, "another key is another zone");
}

#[test]
fn a_permit_is_released_however_the_request_ends() {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    std::fs::File::create(tree.path("root/large"))
        .expect("a file")
        .set_len(LARGE as u64)
        .expect("long");
    tree.script("root/cgi/hang", "#!/bin/sh\nexec sleep 60\n");
    tree.script("root/cgi/dies", "#!/bin/sh\nexit 1\n");
    let config = config(
        1,
        ZONES,
        "limit_conn places 1; limit_conn_status 429; error_page 404 /nothing; \
         location /cgi/ { cgi on; } location /close { return 444; } location /only { client_max_body_size 3; error_page 403 /nothing; }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let status = |path: &str| server.connect().get(path).status;
    let free = || status("/a.txt?k=x") == 200;
    for path in ["/large", "/cgi/hang"] {
        for round in 0..20 {
            let mut client = server.connect();
            client.shrink_receive_buffer(4096);
            client.send(format!("GET {path}?k=x HTTP/1.1\r\nHost: x\r\n\r\n"));
            eventually("a taken place", LONG, || status("/a.txt?k=x") == 429);
            if round % 2 == 0 {
                client.reset();
            } else {
                drop(client);
            }
            eventually("a free place", LONG, free);
        }
    }
    for (path, expected) in [("/missing", 404), ("/cgi/dies", 502), ("/", 403), ("/a.txt", 200)] {
        for _ in 0..5 {
            assert_eq!(status(&format!("{path}?k=x")), expected, "{path}");
        }
    }
    let mut client = server.connect();
    for _ in 0..5 {
        let response = client.request_with_body("POST", "/only?k=x", "", "too large");
        assert_eq!(response.status, 413);
        assert_eq!(client.get("/a.txt?k=x").status, 200, "also on a connection that is kept");
    }
    eventually("a free place", LONG, free);
    // A request without a key is not limited.
    assert_eq!(status("/a.txt"), 200);
    let log = server.log("error.log");
    assert!(log.contains("limiting connections by zone \"places\", client: 127.0.0.1"), "{log}");
}

#[test]
fn pipelined_requests_take_one_permit_after_the_other() {
    let server = start(&config(1, ZONES, "limit_conn places 1;"));
    let mut client = server.connect();
    client.send("GET /a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50));
    for _ in 0..50 {
        assert_eq!(client.read_response().status, 200);
    }
}

#[test]
fn a_response_that_is_sent_slowly_keeps_its_permit_to_its_end() {
    let server = start(&config(
        1,
        ZONES,
        "limit_conn places 1; limit_conn_status 429; location /slow/ { alias {root}/; limit_rate 1; }",
    ));
    let status = |path: &str| server.connect().get(path).status;
    let mut slow = server.connect();
    slow.send("GET /slow/a.txt?k=x HTTP/1.1\r\nHost: x\r\n\r\n");
    slow.read_bytes(1);
    assert_eq!(status("/a.txt?k=x"), 429, "it is in memory, and on its way");
    assert_eq!(status("/a.txt?k=y"), 200);
    drop(slow);
    eventually("a free place", LONG, || status("/a.txt?k=x") == 200);
    let kept = start(&config(1, ZONES, "limit_conn places 1; limit_rate 20k;"));
    let mut client = kept.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/a.txt?k=x").status, 200, "what has left has left its place");
    }
}
