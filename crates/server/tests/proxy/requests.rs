//! What a server is asked: the target, the fields, the host (N1, U3).

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, http, serve};

fn echo() -> Backend {
    Backend::start(|connection| {
        while let Some(head) = connection.request() {
            connection.answer("200 OK", "", head);
        }
    })
}

/// N1: nginx's rules for the URI of `proxy_pass`.
#[test]
fn the_target_is_made_by_the_rules_of_nginx() {
    let backend = echo();
    let to = backend.address();
    let tree = Tree::new();
    tree.file("root/tried/secret.txt", "<?php source");
    let server = serve(
        tree,
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /tried/ {{ try_files $uri =404; proxy_pass http://{to}; }}
             location /name/ {{ proxy_pass http://{to}/remote/; }}
             location /bare {{ proxy_pass http://{to}/; }}
             location /some/path/ {{ proxy_pass http://{to}; }}
             location /moved/ {{ rewrite ^/moved/(.*)$ /to/$1?more=1 break; proxy_pass http://{to}; }}
             location /var/ {{ set $where /there; proxy_pass http://{to}$where$is_args$args; }}
             location ~ [.]php$ {{ proxy_pass http://{to}; }}
             location /args/ {{ set $args new=$arg_old; proxy_pass http://{to}; }}
             location @named {{ proxy_pass http://{to}; }}
             location /try/ {{ try_files $uri @named; }}"
        ),
    );
    let mut client = server.connect();
    for (asked, expected) in [
        ("/a%20b/../c?x=%20", "/a%20b/../c?x=%20"),
        ("/name/one/two?x", "/remote/one/two?x"),
        ("/name/a%20b", "/remote/a%20b"),
        ("/name/../name/z", "/remote/z"),
        ("/bare", "/"),
        ("/bare/x", "//x"),
        ("/some/path/x", "/some/path/x"),
        ("/moved/a%20b", "/to/a%20b?more=1"),
        ("/var/x?q=1", "/there?q=1"),
        ("/args/x?old=1", "/args/x?new=1"),
        ("/a.php/../b.php?z", "/a.php/../b.php?z"),
        ("/try/not%2fthere?q", "/try/not%2fthere?q"),
        // A file that `try_files` finds is for the server to run, and not sent.
        ("/tried/secret.txt?q", "/tried/secret.txt?q"),
    ] {
        let response = client.get(asked);
        assert_eq!(response.status, 200, "{asked}: {}", server.log("error.log"));
        let line = response.text().lines().next().unwrap_or_default().to_owned();
        assert_eq!(line, format!("GET {expected} HTTP/1.1"), "{asked}");
    }
    assert_eq!(client.get("/tried/other.txt").status, 404);
}

/// As in nginx, the address behind the others is that of the client, not of the balancer before us.
#[test]
fn the_forwarded_address_is_the_real_one() {
    let backend = echo();
    let server = serve(
        Tree::new(),
        &format!(
            "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;
             proxy_set_header X-F $proxy_add_x_forwarded_for;
             location / {{ proxy_pass http://{}; }}",
            backend.address()
        ),
    );
    for (sent, told) in [
        ("X-Forwarded-For: 10.0.0.1\r\n", "X-F: 10.0.0.1, 10.0.0.1\r\n"),
        ("X-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n", "X-F: 10.0.0.1, 10.0.0.2, 10.0.0.2\r\n"),
        ("", "X-F: 127.0.0.1\r\n"),
    ] {
        let said = server.connect().request("GET", "/", sent).text();
        assert!(said.contains(told), "{told} not in {said}");
    }
}

/// A client of HTTP/1.0 need not send `Host` (checks of load balancers do not), and `proxy_set_header` may leave it out: a server of
/// HTTP/1.1 is told its own name then, as without `proxy_set_header`.
#[test]
fn a_request_without_a_host_is_passed_on() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location /client {{ proxy_pass http://{to}; proxy_set_header Host $http_host; }}
             location /none {{ proxy_pass http://{to}; proxy_set_header Host \"\"; }}
             location /client/ten {{ proxy_pass http://{to}; proxy_set_header Host $http_host; proxy_http_version 1.0; }}
             location /none/ten {{ proxy_pass http://{to}; proxy_set_header Host \"\"; proxy_http_version 1.0; }}"
        ),
    );
    let own = format!("\r\nHost: {to}\r\n");
    for (path, field, expected) in [
        ("/client", "", own.as_str()),
        ("/client", "Host: a.test:81\r\n", "\r\nHost: a.test:81\r\n"),
        ("/none", "", &own),
        ("/none", "Host: a.test\r\n", &own),
        ("/client/ten", "", ""),
        ("/client/ten", "Host: a.test\r\n", "\r\nHost: a.test\r\n"),
        ("/none/ten", "Host: a.test\r\n", ""),
    ] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.0\r\n{field}\r\n"));
        let answer = String::from_utf8(client.read_to_close()).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        let said = answer.matches("\r\nHost: ").count();
        assert_eq!(said, usize::from(!expected.is_empty()), "{path}: {answer}");
        assert!(answer.contains(expected), "{path}: {answer}");
    }
}

/// U3: what is about the client's connection goes no further; what `proxy_set_header` says takes the place of the
/// client's.
#[test]
fn fields_are_passed_on_and_replaced() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "proxy_set_header X-Outer outer;
             location / {{ proxy_pass http://{to}; }}
             location /own/ {{
               proxy_pass http://{to};
               proxy_set_header Host $host:$server_port;
               proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
               proxy_set_header X-Forwarded-Proto $scheme;
               proxy_set_header Cookie \"\";
               proxy_set_header X-Empty $arg_nothing;
             }}
             location /none/ {{ proxy_pass http://{to}; proxy_pass_request_headers off; }}
             location /ten/ {{ proxy_pass http://{to}; proxy_http_version 1.0; proxy_method patch; }}"
        ),
    );
    let mut client = server.connect();
    let fields = "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nKeep-Alive: 9\r\nUpgrade: h2c\r\n\
                  X-Forwarded-For: 10.0.0.1\r\nCookie: a=b\r\nX-Mine: yes\r\n";
    let plain = client.request("GET", "/", fields).text();
    for gone in ["x-hop", "te:", "keep-alive:", "upgrade:"] {
        assert!(!plain.to_ascii_lowercase().contains(gone), "{gone} in {plain}");
    }
    for kept in ["X-Mine: yes", "Cookie: a=b", "X-Outer: outer", "X-Forwarded-For: 10.0.0.1"] {
        assert!(plain.contains(kept), "{kept} not in {plain}");
    }
    assert!(plain.contains(&format!("Host: {to}\r\n")), "{plain}");
    let own = client.request("GET", "/own/", fields).text();
    let port = server.address().port();
    for kept in [
        "X-Mine: yes",
        "X-Forwarded-For: 10.0.0.1, 127.0.0.1",
        "X-Forwarded-Proto: http",
        &format!("Host: localhost:{port}"),
    ] {
        assert!(own.contains(kept), "{kept} not in {own}");
    }
    // A list of its own takes the place of the one around it.
    assert!(
        !own.contains("X-Outer") && !own.contains("Cookie") && !own.contains("X-Empty"),
        "{own}"
    );
    let none = client.request("GET", "/none/", fields).text();
    assert!(!none.contains("X-Mine") && none.contains("X-Outer"), "{none}");
    let ten = client.request("GET", "/ten/", "").text();
    assert!(ten.starts_with("PATCH /ten/ HTTP/1.0\r\n"), "{ten}");
}

/// Variables name the server: a group, an address.
#[test]
fn variables_name_a_group_or_an_address() {
    let (one, two) = (Backend::saying("one"), Backend::saying("two"));
    let body = format!(
        "upstream first {{ server {}; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://$arg_to; add_header X-To \"$proxy_host $proxy_port\"; }} }}",
        one.address(),
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    let response = client.get("/?to=first");
    assert_eq!((response.text().as_str(), response.field("x-to")), ("one", Some("first 80")));
    let address = two.address();
    let response = client.get(&format!("/?to={address}"));
    assert_eq!(response.text(), "two");
    assert_eq!(response.field("x-to"), Some(format!("{address} {}", address.port()).as_str()));
    assert_eq!(client.get("/?to=nosuch.invalid").status, 502);
    assert_eq!(client.get("/?to=").status, 500);
    let log = server.log("error.log");
    assert!(log.contains("no resolver defined to resolve nosuch.invalid"), "{log}");
}

/// As in nginx, `limit_except` says who may use other methods, and not who answers them.
#[test]
fn other_methods_are_passed_on_within_limit_except() {
    let backend = echo();
    let to = backend.address();
    let tree = Tree::new();
    tree.file("root/a/index.html", "a file");
    let server = serve(
        tree,
        &format!(
            "location /a/ {{ proxy_pass http://{to}; limit_except GET {{ allow all; }} }}
             location /b/ {{ proxy_pass http://{to}; limit_except GET {{ deny all; }} }}
             location /c/ {{ proxy_pass http://{to}/reads/; limit_except GET {{ proxy_pass http://{to}; }} }}
             location /d/ {{ alias {{root}}/a/; limit_except GET {{ proxy_pass http://{to}; }} }}"
        ),
    );
    let mut client = server.connect();
    for (method, target, status) in
        [("POST", "/a/", 200), ("GET", "/a/", 200), ("POST", "/b/", 403), ("GET", "/b/", 200)]
    {
        let response = client.request_with_body(method, target, "", b"");
        assert_eq!(response.status, status, "{method} {target}");
        if status == 200 {
            assert!(
                response.text().starts_with(&format!("{method} {target} ")),
                "{method} {target}"
            );
        }
    }
    // The block may name a server of its own.
    for (method, target, expected) in [
        ("GET", "/c/x", "GET /reads/x "),
        ("POST", "/c/x", "POST /c/x "),
        ("POST", "/d/", "POST /d/ "),
        ("GET", "/d/", "a file"),
    ] {
        let response = client.request_with_body(method, target, "", b"");
        assert!(response.text().starts_with(expected), "{method} {target}: {}", response.text());
    }
}

/// N1: Debian's `proxy_params` sets `Host`, and recipes set it again.
#[test]
fn the_last_host_of_a_block_counts() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "proxy_set_header Host outer; location / {{ proxy_set_header Host first; proxy_set_header X-A 1;
             proxy_set_header host second; proxy_pass http://{to}; }}"
        ),
    );
    let head = server.connect().get("/").text();
    assert!(
        head.contains("second") && !head.contains("first") && head.contains("X-A: 1"),
        "{head}"
    );
    let warning = "Host is set a second time: this value counts";
    assert_eq!(server.stderr().matches(warning).count(), 1, "{}", server.stderr());
}

/// U3, V6: a client removes fields of the connection, and none that says where a request comes from.
#[test]
fn a_client_does_not_have_the_fields_of_a_front_server_removed() {
    let backend = echo();
    let server =
        serve(Tree::new(), &format!("location / {{ proxy_pass http://{}; }}", backend.address()));
    let fields = "Connection: X-Forwarded-For, Cookie, X-Hop\r\nX-Forwarded-For: 192.0.2.1\r\nCookie: a=1\r\nX-Hop: 1\r\n";
    let head = server.connect().request("GET", "/", fields).text();
    assert!(head.contains("X-Forwarded-For: 192.0.2.1") && head.contains("Cookie: a=1"), "{head}");
    assert!(!head.contains("X-Hop"), "{head}");
}

/// O6: in nginx's words, at its level.
#[test]
fn a_body_that_is_too_large_is_in_the_error_log() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!("client_max_body_size 1k; location / {{ proxy_pass http://{to}; }}"),
    );
    let response = server.connect().request_with_body("POST", "/", "", vec![b'x'; 20_000]);
    assert_eq!(response.status, 413);
    let log = server.log("error.log");
    assert!(
        log.contains("[error]")
            && log.contains("client intended to send too large body: 20000 bytes, client: "),
        "{log}"
    );
}
