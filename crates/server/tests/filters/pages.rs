//! Server-side includes.

use sekisho_testkit::{Server, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, serve, site};

#[test]
fn a_page_is_put_together_of_files_programs_and_other_servers() {
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer(
                "200 OK",
                "Content-Type: text/html\r\n",
                "<!--#echo var=\"arg_q\" -->",
            );
        }
    });
    let tree = Tree::new();
    tree.file("root/page.html", "[<!--#include virtual=\"part.html?q=1\" -->|<!--#include virtual=\"/cgi/hello?x\" -->|<!--# include virtual=\"/up?q=2\" -->]");
    tree.file("root/part.html", "<!--#echo var=\"arg_q\" --> of <!--#echo var=\"uri\" -->");
    tree.script("root/cgi/hello", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s' \"$REQUEST_METHOD\" \"$QUERY_STRING\"\n");
    let server = serve(
        tree,
        &format!(
            "ssi on; location /cgi/ {{ cgi on; }} location /up {{ proxy_pass http://{}; }}",
            backend.address()
        ),
    );
    let response = server.connect().get("/page.html");
    assert_eq!(response.text(), "[1 of /part.html|GET x|2]");
    for gone in ["last-modified", "etag", "accept-ranges", "content-length"] {
        assert_eq!(response.field(gone), None, "{gone}");
    }
    // The same in another protocol, and compressed.
    let url = server.url("/page.html");
    let curl = sekisho_testkit::run("curl", &["-s", "--http1.0", &url], LONG);
    assert_eq!(curl.stdout, "[1 of /part.html|GET x|2]");
}

/// Those that need not wait are asked for at once, and come in the order of the page.
#[test]
fn includes_are_asked_for_side_by_side_and_come_in_order() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let backend = Backend::start(move |connection| {
        while let Some(head) = connection.request() {
            if head.starts_with("GET /slow") {
                let _ = wait.lock().expect("no panic").recv_timeout(LONG);
            }
            let name = head.split(' ').nth(1).unwrap_or_default().to_owned();
            connection.answer("200 OK", "", name);
        }
    });
    let tree = Tree::new();
    tree.file(
        "root/page.html",
        "<!--#include virtual=\"/slow\" -->,<!--#include virtual=\"/fast\" -->.",
    );
    tree.file(
        "root/waits.html",
        "<!--#include virtual=\"/slow\" wait=\"yes\" -->,<!--#include virtual=\"/late\" -->.",
    );
    let to = backend.address();
    let server = serve(
        tree,
        &format!("ssi on; location ~ ^/(slow|fast|late) {{ proxy_pass http://{to}; }}"),
    );
    let asked =
        |name: &str| backend.heads().iter().any(|head| head.starts_with(&format!("GET {name}")));
    let mut client = server.connect();
    client.send("GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("both are asked for", LONG, || asked("/slow") && asked("/fast"));
    release.send(()).expect("it waits");
    assert_eq!(client.read_response().text(), "/slow,/fast.");
    client.send("GET /waits.html HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the first is asked for", LONG, || {
        backend.heads().iter().filter(|head| head.starts_with("GET /slow")).count() == 2
    });
    assert!(!asked("/late"), "the second waits for it");
    release.send(()).expect("it waits");
    assert_eq!(client.read_response().text(), "/slow,/late.");
}

/// An include of itself, and a page that includes without end, come to an end.
#[test]
fn includes_that_would_never_end_do() {
    let tree = Tree::new();
    tree.file("root/self.html", "x<!--#include virtual=\"/self.html\" -->");
    tree.file("root/twice.html", "x<!--#include virtual=\"/twice.html\" wait=\"yes\" --><!--#include virtual=\"/twice.html\" wait=\"yes\" -->");
    let server = serve(tree, "ssi on; ssi_silent_errors on;");
    assert_eq!(server.connect().get("/self.html").text(), "x".repeat(51));
    let twice = server.connect().get("/twice.html").text();
    assert_eq!(twice.len(), 10_001, "so many requests within one, and no more");
    let log = server.log("error.log");
    assert!(log.contains("subrequests cycle while processing \"/self.html\""));
    assert!(log.contains("too many subrequests while processing \"/twice.html\""));
}

#[test]
fn a_stub_stands_in_for_what_is_empty_or_fails_and_a_variable_keeps_a_body() {
    let tree = Tree::new();
    tree.file("root/stub.html", "<!--#block name=\"one\" -->(<!--#echo var=\"arg_a\" -->)<!--#endblock --><!--#include virtual=\"/none\" stub=\"one\" -->|<!--#include virtual=\"/empty\" stub=\"one\" -->|<!--#include virtual=\"/full\" stub=\"one\" -->");
    tree.file("root/empty", "");
    tree.file("root/full", "full");
    tree.file("root/set.html", "<!--#include virtual=\"/full\" set=\"x\" -->x=<!--#echo var=\"x\" --><!--#if expr=\"$x = full\" -->!<!--#endif -->");
    let server = serve(tree, "ssi on;");
    assert_eq!(server.connect().get("/stub.html?a=1").text(), "(1)|(1)|full");
    assert_eq!(server.connect().get("/set.html").text(), "x=full!");
}

/// C5: what is included and cut does not look complete.
#[test]
fn a_part_that_is_cut_cuts_the_page() {
    let backend = Backend::start(|connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart");
        connection.close();
    });
    let tree = Tree::new();
    tree.file("root/page.html", "a<!--#include virtual=\"/up\" -->b");
    let body = format!("ssi on; location /up {{ proxy_pass http://{}; }}", backend.address());
    let server = Server::start_in(tree, BINARY, &site(&body));
    let mut client = server.connect();
    client.send("GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_read_response(false).is_err(), "it must not look complete");
}

/// A page of many megabytes is held in pieces.
#[test]
fn a_large_page_takes_little_memory() {
    let tree = Tree::new();
    let line = "0123456789abcdef".repeat(4096);
    let page = format!("{line}<!--#echo var=\"arg_a\" -->").repeat(500);
    tree.file("root/page.html", &page);
    let server = serve(tree, "ssi on; sub_filter_once off; sub_filter 89ab 98BA;");
    server.connect().get("/page.html?a=1");
    let before = server.rss_bytes();
    let text = server.connect().get("/page.html?a=1").text();
    let expected = page.replace("89ab", "98BA").replace("<!--#echo var=\"arg_a\" -->", "1");
    assert!(text == expected);
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown}");
}
