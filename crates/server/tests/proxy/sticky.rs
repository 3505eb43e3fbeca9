//! `sticky`: clients come back to the server that they were sent to.

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, http};

fn two(sticky: &str, a: &Backend, b: &Backend) -> Server {
    let config = http(&format!(
        "upstream app {{ {sticky} server {} route=a; server {} route=b; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app; }} }}",
        a.address(),
        b.address()
    ));
    let config = config.replace("worker_processes 1;", "worker_processes 2;");
    Server::start_in(Tree::new(), BINARY, &config)
}

#[test]
fn a_cookie_leads_back() {
    let (a, b) = (Backend::saying("a"), Backend::saying("b"));
    let server = two("sticky cookie srv expires=1h domain=.test path=/ httponly;", &a, &b);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let response = server.connect().get("/");
        let cookie = response.field("set-cookie").expect("one is set").to_owned();
        let own = response.text();
        assert!(cookie.starts_with(&format!("srv={own}; expires=")), "{cookie}");
        assert!(cookie.ends_with("; max-age=3600; domain=.test; path=/; httponly"), "{cookie}");
        for _ in 0..4 {
            let fields = format!("Cookie: x=1; srv={own}\r\n");
            assert_eq!(server.connect().request("GET", "/", &fields).text(), own);
        }
        seen.insert(own);
    }
    assert_eq!(seen.len(), 2, "newcomers are sent to both");
    let lone = two("sticky cookie srv domain=$arg_d samesite=$arg_s;", &a, &b);
    let response = lone.connect().get("/?d=own.test&s=lax");
    let cookie = response.field("set-cookie").expect("one is set").to_owned();
    assert!(cookie.ends_with("; domain=own.test; samesite=lax"), "{cookie}");
    let response = lone.connect().get("/?s=none;x");
    let cookie = response.field("set-cookie").expect("one is set").to_owned();
    assert!(!cookie.contains(';'), "what is no attribute is none: {cookie}");
    let unknown = server.connect().request("GET", "/", "Cookie: srv=none\r\n");
    assert_eq!(unknown.status, 200, "a route that nobody has is as good as none");
}

#[test]
fn a_route_names_the_server() {
    let (a, b) = (Backend::saying("a"), Backend::saying("b"));
    let server = two("sticky route $cookie_route $arg_route;", &a, &b);
    for name in ["a", "b", "b", "a", "a"] {
        assert_eq!(server.connect().get(&format!("/?route={name}")).text(), name);
        let fields = format!("Cookie: route={name}\r\n");
        let other = if name == "a" { "b" } else { "a" };
        let response = server.connect().request("GET", &format!("/?route={other}"), &fields);
        assert_eq!(response.text(), name, "the first that is said counts");
        assert_eq!(response.field("set-cookie"), None);
    }
}

/// `drain`: new clients are sent elsewhere, known clients come back.
#[test]
fn a_drained_server_keeps_its_clients() {
    let (a, b) = (Backend::saying("a"), Backend::saying("b"));
    let config = http(&format!(
        "upstream app {{ sticky route $arg_route; server {} route=a drain; server {} route=b; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app; }} }}",
        a.address(),
        b.address()
    ));
    let server = Server::start_in(Tree::new(), BINARY, &config);
    for _ in 0..4 {
        assert_eq!(server.connect().get("/").text(), "b");
        assert_eq!(server.connect().get("/?route=a").text(), "a");
    }
}

/// A session that a server makes is known to all workers.
#[test]
fn sessions_are_learned() {
    let backend = |name: &'static str| {
        Backend::start(move |connection| {
            while connection.request().is_some() {
                let field = format!("Set-Cookie: sid=session-{name}; path=/\r\n");
                connection.answer("200 OK", &field, name);
            }
        })
    };
    let (a, b) = (backend("a"), backend("b"));
    let server = two(
        "sticky learn create=$upstream_cookie_sid lookup=$cookie_sid zone=sessions:64k;",
        &a,
        &b,
    );
    let first = server.connect().get("/").text();
    let second = server.connect().get("/").text();
    assert_ne!(first, second, "newcomers are sent to both");
    for _ in 0..6 {
        for own in [&first, &second] {
            let fields = format!("Cookie: sid=session-{own}\r\n");
            assert_eq!(server.connect().request("GET", "/", &fields).text(), **own);
        }
    }
}
