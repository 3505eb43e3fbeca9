//! Addresses as they come in by real sockets.

use sekisho_testkit::{Server, Tree, eventually, have, run};

use crate::common::{BINARY, LONG, http};

fn start(listen: &str, rules: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let server = format!("server {{ listen {listen}; root {{root}}; {rules} }}");
    Server::start_in(tree, BINARY, &http(&server))
}

#[test]
fn an_ipv4_client_of_an_ipv6_socket_is_an_ipv4_client() {
    let listen = "[::]:{port} ipv6only=off";
    for (rules, expected) in [
        ("allow 127.0.0.1; deny all;", 200),
        ("deny 127.0.0.0/8; allow all;", 403),
        ("allow ::/0; deny all;", 403),
    ] {
        let server = start(listen, rules);
        assert_eq!(server.connect().get("/a.txt").status, expected, "{rules}");
    }
}

#[test]
fn clients_of_a_unix_socket_have_a_rule_of_their_own() {
    if !have("curl") {
        return;
    }
    for (rules, expected) in
        [("allow unix:; deny all;", ["200", "403"]), ("deny unix:;", ["403", "200"])]
    {
        let server = start("127.0.0.1:{port}; listen unix:{dir}/socket", rules);
        let socket = server.tree().path("socket").display().to_string();
        let url = server.url("/a.txt");
        let common = ["-s", "-o", "/dev/null", "-w", "%{http_code}", url.as_str()];
        let by_unix = [&["--unix-socket", socket.as_str()], &common[..]].concat();
        let codes = [&by_unix[..], &common].map(|arguments| run("curl", arguments, LONG).stdout);
        assert_eq!(codes, expected, "{rules}");
    }
}

/// H2, H3: a refusal keeps the connection.
#[test]
fn whoever_is_refused_may_ask_again_and_the_log_says_why() {
    let server = start("127.0.0.1:{port}", "location /secret { deny all; } location / { }");
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.get("/secret");
        assert_eq!((response.status, response.says_close()), (403, false));
        assert_eq!(client.get("/a.txt").status, 200);
    }
    let line = "access forbidden by rule, client: 127.0.0.1, request id: ";
    // The log is written by a thread of its own.
    eventually("three lines", LONG, || server.log("error.log").matches(line).count() == 3);
}
