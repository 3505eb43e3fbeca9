//! Bodies in both directions: small, large, of unknown length, slow (C7, U4).

use std::io::Read as _;
use std::time::Duration;

use sekisho_testkit::{Server, Tree, eventually, noise, pause};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http, pattern, serve};

fn echo() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let has_length = head.to_ascii_lowercase().contains("content-length:");
            connection.answer("200 OK", &format!("X-Length: {has_length}\r\n"), body);
        }
    })
}

#[test]
fn bodies_arrive_as_they_were_sent() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "client_max_body_size 0;
             location / {{ proxy_pass http://{to}; }}
             location /stream {{ proxy_pass http://{to}; proxy_request_buffering off; }}
             location /set {{ proxy_pass http://{to}; proxy_set_body \"of $request_method\"; }}
             location /without {{ proxy_pass http://{to}; proxy_pass_request_body off; }}"
        ),
    );
    let mut client = server.connect();
    for bytes in [0, 1, 16 * 1024, 1 << 20] {
        let body = pattern(bytes);
        for path in ["/", "/stream"] {
            let response = client.request_with_body("POST", path, "", &body);
            assert_eq!(response.status, 200, "{}", server.log("error.log"));
            assert!(response.body == body, "{path} {bytes}");
        }
    }
    // Without a length: gathered, it has one; streamed, it has none.
    for (path, has_length) in [("/", "true"), ("/stream", "false")] {
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        ));
        let response = client.read_response();
        assert_eq!(response.text(), "hello");
        assert_eq!(response.field("x-length"), Some(has_length), "{path}");
    }
    assert_eq!(client.request_with_body("POST", "/set", "", b"mine").text(), "of POST");
    assert_eq!(client.request_with_body("POST", "/without", "", b"mine").text(), "");
}

/// `$request_body` and `$request_body_file`, and the files that stay or go.
#[test]
fn variables_say_what_the_body_was() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "client_body_buffer_size 1k; client_body_temp_path {{dir}}/bodies;
             add_header X-Body $request_body; add_header X-File $request_body_file;
             location / {{ proxy_pass http://{to}; }}
             location /stream {{ proxy_pass http://{to}; proxy_request_buffering off; }}
             location /on {{ proxy_pass http://{to}; client_body_in_file_only on; }}
             location /clean {{ proxy_pass http://{to}; client_body_in_file_only clean; }}
             location /around {{ proxy_pass http://{to}; proxy_set_body \"<$request_body>\"; }}
             location /unread {{ return 200 [$request_body]; }}"
        ),
    );
    let files = || {
        let entries = std::fs::read_dir(server.tree().path("bodies")).expect("it was made");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let mut client = server.connect();
    for path in ["/", "/stream"] {
        let response = client.request_with_body("POST", path, "", b"small");
        assert_eq!((response.field("x-body"), response.field("x-file")), (Some("small"), None));
    }
    assert_eq!(client.request_with_body("POST", "/around", "", b"mine").text(), "<mine>");
    assert_eq!(client.request_with_body("POST", "/unread", "", b"mine").text(), "[]");
    let large = pattern(5000);
    for (path, body) in [("/", &large[..]), ("/clean", b"small")] {
        let response = client.request_with_body("POST", path, "", body);
        assert!(response.body == body && response.field("x-body").is_none(), "{path}");
        assert!(response.field("x-file").is_some_and(|name| name.contains("/bodies/")), "{path}");
        eventually("the file goes", LONG, || files().is_empty());
    }
    let response = client.request_with_body("POST", "/on", "", b"it stays");
    let name = response.field("x-file").expect("a name").to_owned();
    assert_eq!(files(), [std::path::PathBuf::from(&name)]);
    assert_eq!(std::fs::read(name).expect("it is there"), b"it stays");
    assert_eq!(client.get("/").field("x-body"), None, "of the request before");
}

/// C7: a slow body occupies no server; streamed, it reaches one at once.
#[test]
fn a_slow_body_occupies_no_server_unless_it_is_streamed() {
    let backend = echo();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /stream {{ proxy_pass http://{to}; proxy_request_buffering off; }}"
        ),
    );
    let mut slow = server.connect();
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let mut streamed = server.connect();
    streamed.send("POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    eventually("the streamed one", LONG, || backend.heads().len() == 1);
    assert!(backend.heads()[0].starts_with("POST /stream"));
    slow.send("lo");
    assert_eq!(slow.read_response().text(), "hello");
    streamed.send("lo");
    assert_eq!(streamed.read_response().text(), "hello");
}

/// A large answer to a slow client arrives whole, and does not grow the server.
#[test]
fn a_large_answer_reaches_a_slow_client_whole() {
    const BYTES: usize = 24 << 20;
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "", pattern(BYTES));
        }
    });
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /unbuffered {{ proxy_pass http://{to}; proxy_buffering off; }}"
        ),
    );
    let before = server.rss_bytes();
    for path in ["/", "/unbuffered"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        pause(Duration::from_millis(300));
        let after = server.rss_bytes();
        assert!(after < before + (12 << 20), "{path}: {before} {after}");
        let response = client.read_response();
        assert!(response.body == pattern(BYTES), "{path}");
    }
}

/// `proxy_buffering`: a slow client does not hold the server, compressed responses included.
#[test]
fn a_slow_client_does_not_hold_a_server() {
    const BYTES: usize = 24 << 20;
    let (told, done) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let backend = Backend::start(move |connection| {
        connection.request();
        connection.answer("200 OK", "Content-Type: text/html\r\n", noise(BYTES));
        let _ = told.lock().expect("no panic").send(());
    });
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /gzip {{ proxy_pass http://{to}; gzip on; gzip_comp_level 1; }}
             location /filter {{ proxy_pass http://{to}; sub_filter never-found x; }}"
        ),
    );
    for path in ["/", "/gzip", "/filter"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        // The client has read nothing.
        done.recv_timeout(LONG).unwrap_or_else(|_| panic!("{path}: the server waits"));
        let response = client.read_response();
        let is_coded = response.field("content-encoding") == Some("gzip");
        assert_eq!(is_coded, path == "/gzip");
        let mut body = Vec::new();
        if is_coded {
            let mut decoder = flate2::read::GzDecoder::new(&response.body[..]);
            decoder.read_to_end(&mut body).expect("gzip");
        } else {
            body = response.body;
        }
        assert!(body == noise(BYTES), "{path}");
    }
}

/// `proxy_limit_rate`: no more is read in a second.
#[test]
fn a_server_is_read_as_slowly_as_is_said() {
    let backend = Backend::start(|connection| {
        connection.request();
        connection.answer("200 OK", "", pattern(60_000));
    });
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!("location / {{ proxy_pass http://{to}; proxy_limit_rate 20k; }}"),
    );
    let watch = sekisho_testkit::Stopwatch::start();
    let response = server.connect().get("/");
    assert!(response.body == pattern(60_000));
    assert!(watch.elapsed() > Duration::from_secs(1), "{:?}", watch.elapsed());
}

/// U4: connections are kept and used again, and one that the server has closed costs nothing.
#[test]
fn connections_are_kept_and_used_again() {
    let backend = Backend::start(|connection| {
        // The first connection is closed after three requests, without an announcement.
        let most = if connection.number == 0 { 3 } else { usize::MAX };
        for _ in 0..most {
            if connection.request().is_none() {
                return;
            }
            connection.answer("200 OK", "", "x");
        }
        connection.close();
    });
    let body = format!(
        "upstream back {{ server {}; keepalive 2; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; }} }}",
        backend.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "x");
    }
    assert_eq!(backend.connections(), 2);
    assert_eq!(backend.heads().len(), 10);
    assert!(!backend.heads()[0].contains("Connection:"), "{}", backend.heads()[0]);
    // A POST is not lost to it either.
    let response = client.request_with_body("POST", "/", "", b"");
    assert_eq!(response.text(), "x");
}
