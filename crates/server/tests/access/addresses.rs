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
    let line = "access forbidden by rule, client: 127.0.0.1, server: , request: \"GET /secret HTTP/1.1\", host: \"localhost\", request id: ";
    // The log is written by a thread of its own.
    eventually("three lines", LONG, || server.log("error.log").matches(line).count() == 3);
}

/// A database in the format of `MaxMind`: the lower half of IPv4 is at `LO`.
fn database() -> Vec<u8> {
    fn text(text: &str) -> Vec<u8> {
        [&[2 << 5 | text.len() as u8], text.as_bytes()].concat()
    }
    fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let pairs = pairs.iter().map(|(name, value)| [text(name), value.clone()].concat());
        let pairs: Vec<Vec<u8>> = pairs.collect();
        [vec![7 << 5 | pairs.len() as u8], pairs.concat()].concat()
    }
    let number = |number: u8| vec![5 << 5 | 1, number];
    let tree = [0, 0, 1 + 16, 0, 0, 1];
    let value = map(&[("country", map(&[("iso_code", text("LO"))]))]);
    let about = map(&[
        ("node_count", number(1)),
        ("record_size", number(24)),
        ("ip_version", number(4)),
        ("build_epoch", number(9)),
    ]);
    [&tree[..], &[0; 16], &value, b"\xab\xcd\xefMaxMind.com", &about].concat()
}

#[test]
fn a_database_says_where_clients_are() {
    let tree = Tree::new();
    tree.file("places.mmdb", database());
    let body = "geoip2 {dir}/places.mmdb {
            $country default=ZZ country iso_code; $other default=ZZ source=$arg_ip country iso_code;
            $name country names en; $made metadata build_epoch; }
        map $other $is_here { LO yes; default no; }
        server { listen 127.0.0.1:{port}; location / { return 200 '$country $other $is_here [$name] $made'; }
            location /here/ { if ($is_here = no) { return 403; } return 200 here; } }";
    let server = Server::start_in(tree, BINARY, &http(body));
    let mut client = server.connect();
    for (ip, said) in [
        ("10.0.0.1", "LO LO yes [] 9"),
        ("192.0.2.1", "LO ZZ no [] 9"),
        ("2001:db8::1", "LO ZZ no [] 9"),
        ("no-address", "LO ZZ no [] 9"),
    ] {
        assert_eq!(client.get(&format!("/?ip={ip}")).text(), said, "{ip}");
    }
    assert_eq!(client.get("/here/?ip=192.0.2.1").status, 403);
    assert_eq!(client.get("/here/?ip=10.0.0.1").status, 200);
}

#[test]
fn what_is_no_database_is_told_with_its_place() {
    let tree = Tree::new();
    tree.file("places.mmdb", "text");
    let config = tree.path("c.conf");
    let places = tree.path("places.mmdb");
    let text = format!(
        "events {{}} http {{ geoip2 {} {{ $a country; }} server {{ listen 127.0.0.1:1; }} }}",
        places.display()
    );
    tree.file("c.conf", text);
    let checked = run(BINARY, &["-t", "-c", config.to_str().expect("text")], LONG);
    assert_eq!(checked.code(), 1);
    assert!(checked.stderr.contains("is no database of addresses"), "{}", checked.stderr);
    assert!(checked.stderr.contains("c.conf:1:"), "{}", checked.stderr);
}
