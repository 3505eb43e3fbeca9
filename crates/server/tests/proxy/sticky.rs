//! `sticky`: clients come back to the server that they were sent to.

use std::sync::atomic::{AtomicUsize, Ordering};

use sekisho_testkit::{Server, Tree};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http};

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

/// U3: whatever a client claims, it is sent to a server of the group, and the cookie that it gets is ours.
#[test]
fn hostile_cookies_of_clients_name_no_server() {
    let (a, b) = (Backend::saying("a"), Backend::saying("b"));
    let long = "x".repeat(7000);
    let many = "srv=x; ".repeat(900);
    let values: [&str; 10] = [
        "srv=",
        "srv",
        "=a",
        "srv==a",
        "srv=\"a\"",
        "srv=a,b",
        "srv=%61",
        "srv=\u{e9}\u{2028}",
        &long,
        &many,
    ];
    let kinds = [
        "sticky cookie srv domain=$arg_d;",
        "sticky route $cookie_srv $arg_srv;",
        "sticky learn create=$upstream_cookie_srv lookup=$cookie_srv zone=z:64k;",
    ];
    for sticky in kinds {
        let server = two(sticky, &a, &b);
        for value in values {
            for cookie in [value.to_owned(), format!("srv={value}")] {
                let fields = format!("Cookie: {cookie}\r\n");
                let response = server.connect().request("GET", "/", &fields);
                assert_eq!(response.status, 200, "{sticky} {cookie:.40}");
                let own = response.text();
                assert!(matches!(&*own, "a" | "b"), "{own}");
                let expected = sticky.contains("cookie srv").then(|| format!("srv={own}"));
                assert_eq!(response.field("set-cookie"), expected.as_deref(), "{cookie:.40}");
            }
        }
        // An attribute ends at its semicolon: a client must not add another.
        let response = server.connect().get("/?d=a.test;path=/admin");
        let cookie = response.field("set-cookie").unwrap_or_default();
        assert!(!cookie.contains("path="), "{cookie}");
    }
}

/// O9: a server that makes a new session with each response, with long, many and odd cookies, fills neither memory
/// nor the log; its last sessions lead back, and those of the other server too.
#[test]
fn servers_that_lie_about_sessions_are_bounded() {
    const RESPONSES: usize = 3000;
    let count = AtomicUsize::new(0);
    let liar = Backend::start(move |connection| {
        while connection.request().is_some() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let long = "y".repeat(3000);
            let odd = "Set-Cookie: sid\r\nSet-Cookie: =x\r\nSet-Cookie: ; ;;\r\nSet-Cookie: x=; sid=z\r\n";
            let own = format!("Set-Cookie: sid={number}-{long}; path=/\r\n");
            connection.answer("200 OK", &format!("{odd}{own}"), format!("{number}"));
        }
    });
    // It gives every client the same session, which is another server's as well.
    let other = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "Set-Cookie: sid=0-shared\r\n", "other");
        }
    });
    let config = http(&format!(
        "upstream app {{ sticky learn create=$upstream_cookie_sid lookup=$cookie_sid zone=z:64k;
             server {} max_fails=0; server {} max_fails=0; keepalive 8; }}
         server {{ listen 127.0.0.1:{{port}}; keepalive_requests 100000; location / {{
             proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}",
        liar.address(),
        other.address()
    ));
    let config = config.replace("error.log debug", "error.log info");
    let server = Server::start_in(Tree::new(), BINARY, &config);
    let mut client = server.connect().with_patience(LONG);
    let (mut last, mut before) = (String::new(), 0);
    for number in 0..RESPONSES {
        if number == RESPONSES / 3 {
            before = server.rss_bytes();
        }
        let response = client.get("/");
        assert_eq!(response.status, 200);
        if response.text() != "other" {
            last = response.text();
        }
    }
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes");
    let with = |session: &str| {
        let fields = format!("Cookie: sid={session}\r\n");
        server.connect().request("GET", "/", &fields).text()
    };
    assert_ne!(with(&format!("{last}-{}", "y".repeat(3000))), "other");
    for _ in 0..4 {
        assert_eq!(with("0-shared"), "other");
    }
    let log = server.log("error.log");
    assert!(log.lines().count() < 20, "{} lines in the log", log.lines().count());
}

/// A server that sets the cookie itself, for another server, is passed on; ours comes last, which is what counts for
/// a client (RFC 6265 5.3).
#[test]
fn a_server_that_sets_the_cookie_of_another_has_no_say() {
    let liar = |name: &'static str, claims: &'static str| {
        Backend::start(move |connection| {
            while connection.request().is_some() {
                let field = format!("Set-Cookie: srv={claims}\r\n");
                connection.answer("200 OK", &field, name);
            }
        })
    };
    let (a, b) = (liar("a", "b"), liar("b", "a"));
    let server = two("sticky cookie srv;", &a, &b);
    for _ in 0..4 {
        let response = server.connect().get("/");
        let own = format!("srv={}", response.text());
        let cookies: Vec<_> = response.fields_named("set-cookie");
        assert_eq!((cookies.len(), cookies.last().copied()), (2, Some(&*own)));
    }
}
