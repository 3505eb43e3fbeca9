//! Requests within a request as an operator sees them, and how they end.

use std::time::Duration;

use sekisho_testkit::{Server, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, site};

fn silent() -> Backend {
    Backend::start(|connection| {
        connection.request();
        while connection.more().is_some() {}
    })
}

/// L34
#[test]
fn requests_within_a_request_are_shown_with_it() {
    let backend = silent();
    let tree = Tree::new();
    tree.file("root/page.html", "<!--#include virtual=\"/inner.html\" -->");
    tree.file("root/inner.html", "<!--#include virtual=\"/up\" -->");
    let config = site(&format!(
        "ssi on; location /up {{ proxy_pass http://{}; proxy_read_timeout 1h; }}",
        backend.address()
    ));
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    client.send("GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let shown = || {
        let id = server.id().to_string();
        let arguments = ["ctl", "--pid", &id, "requests", "--json"];
        sekisho_testkit::run(BINARY, &arguments, LONG).stdout
    };
    eventually("all three are shown", LONG, || {
        let text = shown();
        text.contains("/page.html") && text.contains("\"/inner.html\"") && text.contains("\"/up\"")
    });
    let text = shown();
    assert!(text.contains("\"depth\":2") || text.contains("\"depth\": 2"), "{text}");
}

/// T9: the deadline of what is within is that of its own handler.
#[test]
fn a_part_that_does_not_come_has_its_own_deadline() {
    let backend = silent();
    let tree = Tree::new();
    tree.file("root/page.html", "a<!--#include virtual=\"/up\" -->b");
    let config = site(&format!(
        "ssi on; location /up {{ proxy_pass http://{}; proxy_read_timeout 50ms; error_page 504 = @late; }}
         location @late {{ return 200 late; }}",
        backend.address()
    ));
    let server = Server::start_in(tree, BINARY, &config);
    assert_eq!(server.connect().get("/page.html").text(), "alateb");
}

/// O4: a forced end does not wait for what is within.
#[test]
fn a_stop_ends_what_is_within() {
    let backend = silent();
    let tree = Tree::new();
    tree.file("root/page.html", "a<!--#include virtual=\"/up\" -->b");
    let config = site(&format!(
        "ssi on; location /up {{ proxy_pass http://{0}; }}
         location /guarded {{ auth_request /up; }}",
        backend.address()
    ));
    let mut server = Server::start_in(tree, BINARY, &config);
    let mut page = server.connect();
    page.send("GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut guarded = server.connect();
    guarded.send("GET /guarded HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("both are asked for", LONG, || backend.heads().len() == 2);
    server.term();
    server.wait_exit(Duration::from_secs(30));
    assert!(page.try_read_response(false).is_err());
}

/// L34: a copy of a request is shown with the session that made it, also when its request is over, or the session.
#[test]
fn copies_are_shown_while_they_run() {
    let backend = silent();
    let to = backend.address();
    let config = site(&format!(
        "location /files/ {{ mirror /copy; alias {{root}}/; }}
         location /copy {{ internal; proxy_pass http://{to}/there; proxy_read_timeout 1h; }}"
    ));
    let tree = Tree::new();
    tree.file("root/a.txt", "a file");
    let server = Server::start_in(tree, BINARY, &config);
    let shown = |what: &str| {
        let id = server.id().to_string();
        sekisho_testkit::run(BINARY, &["ctl", "--pid", &id, what, "--json"], LONG).stdout
    };
    let mut client = server.connect();
    assert_eq!(client.get("/files/a.txt").text(), "a file");
    eventually("the copy is sent", LONG, || backend.heads().len() == 1);
    for what in ["sessions", "requests"] {
        eventually(what, LONG, || {
            let text = shown(what);
            text.contains("mirror") && text.contains("/copy") && text.contains(&to.to_string())
        });
    }
    let peer = client.local_address().to_string();
    assert!(shown("sessions").contains(&peer));
    // The client has gone, and the copy goes on.
    drop(client);
    eventually("the session is over", LONG, || {
        let text = shown("sessions");
        text.contains("mirror") && text.contains("shutdown")
    });
}
