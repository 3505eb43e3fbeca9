//! HTTP/1 on the wire, over real sockets: which connections are kept, what is refused, and that every
//! request gets exactly one answer.
#![forbid(unsafe_code)]

mod common;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use common::{LONG, pattern, serve};
use sekisho_testkit::response::Context;
use sekisho_testkit::{Client, Framing, Response, Server, Tree, pause};

const HOST: &str = "Host: localhost\r\n";

/// A site with a small and a large file and a few answers.
fn start() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    tree.file("root/large.bin", pattern(3 << 20));
    tree.folder("root/empty");
    serve(
        tree,
        "location /n/ { return 200 $uri; }
         location /reads { limit_except GET { deny all; } return 200 ok; }
         location /exactly { allow_methods GET OPTIONS; return 200 ok; }",
    )
}

/// The connection is usable: another request gets its answer.
#[track_caller]
fn assert_kept(client: &mut Client) {
    let response = client.get("/n/kept");
    assert_eq!((response.status, response.text().as_str()), (200, "/n/kept"));
}

/// The connection ends, in good order, and nothing else comes before.
#[track_caller]
fn assert_closes(client: &mut Client) {
    assert_eq!(client.read_to_close(), b"", "nothing follows the last answer");
}

/// Sends bytes that are no acceptable request, and reads the answer before the close.
#[track_caller]
fn refused(server: &Server, bytes: impl AsRef<[u8]>) -> Response {
    let mut client = server.connect();
    client.send(bytes);
    let response = client.read_response();
    assert!(response.says_close(), "{response:?}");
    assert!(matches!(response.framing, Framing::Length(_)), "{response:?}");
    assert_closes(&mut client);
    response
}

#[test]
fn http_1_1_is_kept_and_http_1_0_is_closed_unless_they_say_otherwise() {
    // H1
    let server = start();
    let rows = [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: keep-alive\r\n", true),
        ("HTTP/1.1", "Connection: close\r\n", false),
        ("HTTP/1.1", "Connection: x, Close\r\n", false),
        ("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
        ("HTTP/1.0", "Connection: close\r\n", false),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for target in ["/a.txt", "/n/x", "/missing", "/large.bin"] {
        for (version, fields, is_kept) in rows {
            let mut client = server.connect();
            client.send(format!("GET {target} {version}\r\n{HOST}{fields}\r\n"));
            let response = client.read_response();
            let what = format!("{target} {version} {fields:?}");
            assert_eq!(response.says_close(), !is_kept, "{what}");
            if is_kept {
                assert_eq!(response.field("connection"), Some("keep-alive"), "{what}");
                assert_kept(&mut client);
            } else {
                assert_eq!(response.field("connection"), Some("close"), "{what}");
                assert_closes(&mut client);
            }
        }
    }
}

#[test]
fn the_status_does_not_decide_whether_the_connection_is_kept() {
    // H2, H3, V3
    let server = start();
    let mut client = server.connect();
    let rows = [
        ("GET", "/missing", "", 404),
        ("GET", "/empty/", "", 403),
        ("POST", "/a.txt", "Content-Length: 0\r\n", 405),
        ("PUT", "/a.txt", "Content-Length: 0\r\n", 405),
        ("PATCH", "/a.txt", "", 405),
        ("TRACE", "/a.txt", "", 405),
        ("BREW", "/a.txt", "", 501),
        ("GET", "/%zz", "", 400),
        ("GET", "/../..", "", 400),
        ("GET", "/a%00b", "", 400),
        ("GET", "/a.txt", "Range: bytes=99-\r\n", 416),
        ("GET", "/a.txt", "If-Match: \"other\"\r\n", 412),
        ("GET", "/a.txt", "Expect: tea\r\n", 417),
        ("GET", "/a.txt/x", "", 404),
        ("POST", "/reads", "Content-Length: 0\r\n", 403),
    ];
    for (method, target, fields, status) in rows {
        let response = client.request(method, target, fields);
        assert_eq!(response.status, status, "{method} {target}");
        assert!(!response.says_close(), "{method} {target}: {response:?}");
    }
    assert_kept(&mut client);
}

#[test]
fn input_may_come_byte_by_byte() {
    // H4
    let server = start();
    let mut client = server.connect();
    let request = format!("\r\nPOST /n/slow HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\n12345");
    let head = request.len() - 5 - 1;
    client.send_slowly(&request[..head], Duration::from_micros(300));
    client.expect_open_for(Duration::from_millis(30));
    client.send_slowly(&request[head..], Duration::from_micros(300));
    assert_eq!(client.read_response().text(), "/n/slow");
    client.send_slowly(format!("GET /n/next HTTP/1.1\n{HOST}\n"), Duration::from_micros(300));
    assert_eq!(client.read_response().text(), "/n/next", "a lone LF ends a line of the head");
    assert_kept(&mut client);
}

#[test]
fn one_empty_line_before_a_request_is_ignored_and_two_are_refused() {
    // H5
    let server = start();
    let mut client = server.connect();
    client.send("\r\n");
    client.expect_open_for(Duration::from_millis(30));
    for _ in 0..3 {
        client.send(format!("GET /n/x HTTP/1.1\r\n{HOST}\r\n\r\n"));
        assert_eq!(client.read_response().text(), "/n/x", "one for each request");
    }
    client.send("\r\n");
    let response = client.read_response();
    assert_eq!(response.status, 400);
    assert!(response.says_close());
    assert_closes(&mut client);
    let request = format!("GET /n/x HTTP/1.1\r\n{HOST}\r\n");
    assert_eq!(refused(&server, format!("\r\n\r\n{request}")).status, 400);
    assert_eq!(refused(&server, format!("\n\n{request}")).status, 400);
}

#[test]
fn ten_thousand_pipelined_requests_are_answered_in_order() {
    // H8
    const COUNT: usize = 10_000;
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let server = serve(tree, "keepalive_requests 20000; location /n/ { return 200 $uri; }");
    // Every tenth is a file, so that both ways are taken in one batch.
    let is_file = |at: usize| at % 10 == 9;
    let mut requests = String::new();
    for at in 0..COUNT {
        let target = if is_file(at) { "/a.txt".to_owned() } else { format!("/n/{at}") };
        let close = if at == COUNT - 1 { "Connection: close\r\n" } else { "" };
        write!(requests, "GET {target} HTTP/1.1\r\n{HOST}{close}\r\n").expect("a string takes all");
    }
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    let mut writer = stream.try_clone().expect("a second handle");
    let sending = thread::spawn(move || writer.write_all(requests.as_bytes()));
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("everything up to the close");
    sending.join().expect("no panic").expect("all was sent");
    let mut rest = received.as_slice();
    for at in 0..COUNT {
        let parsed = Response::parse(rest, Context { is_head: false, is_closed: true });
        let (response, taken) = parsed.expect("a response").expect("a whole one");
        rest = &rest[taken..];
        let awaited = if is_file(at) { "hello".to_owned() } else { format!("/n/{at}") };
        assert_eq!(response.text(), awaited);
    }
    assert!(rest.is_empty(), "one answer for each request");
}

#[test]
fn pipelined_requests_behind_a_large_file_and_before_a_close_are_answered() {
    // H8, H1
    let server = start();
    let mut client = server.connect();
    client.send(format!(
        "GET /large.bin HTTP/1.1\r\n{HOST}\r\nGET /n/1 HTTP/1.1\r\n{HOST}\r\n\
         GET /n/2 HTTP/1.1\r\n{HOST}Connection: close\r\n\r\nGET /n/3 HTTP/1.1\r\n{HOST}\r\n"
    ));
    assert_eq!(client.read_response().body, pattern(3 << 20));
    assert_eq!(client.read_response().text(), "/n/1");
    let last = client.read_response();
    assert_eq!((last.text().as_str(), last.says_close()), ("/n/2", true));
    assert_closes(&mut client);
}

#[test]
fn head_is_get_without_the_body() {
    // H12
    let server = start();
    let mut client = server.connect();
    let head_of = |response: &Response| {
        let mut fields = response.fields.clone();
        fields.retain(|(name, _)| name != "Date");
        (response.status, fields)
    };
    for (target, fields) in
        [("/a.txt", ""), ("/large.bin", ""), ("/missing", ""), ("/empty", ""), ("/n/text", "")]
    {
        let got = client.request("GET", target, fields);
        let head = client.request("HEAD", target, fields);
        assert_eq!(head_of(&head), head_of(&got), "{target} {fields:?}");
        assert_eq!(head.body, b"", "{target}");
    }
    // Ranges are for GET alone (RFC 9110 §14.2).
    for range in ["bytes=1-2", "bytes=0-0,2-2", "bytes=99-"] {
        let head = client.request("HEAD", "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!((head.status, head.field("content-length")), (200, Some("5")), "{range}");
    }
    assert_kept(&mut client);
}

#[test]
fn methods_are_allowed_named_or_unknown() {
    // H12, V4
    let server = start();
    let mut client = server.connect();
    for target in ["/a.txt", "*"] {
        let options = client.request("OPTIONS", target, "");
        assert_eq!(options.status, 200, "{target}");
        assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS"), "{target}");
    }
    for method in ["POST", "PUT", "DELETE", "TRACE", "PATCH"] {
        let response = client.request(method, "/a.txt", "Content-Length: 0\r\n");
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.field("allow"), Some("GET, HEAD, OPTIONS"), "{method}");
    }
    for method in ["BREW", "get", "G"] {
        assert_eq!(client.request(method, "/a.txt", "").status, 501, "{method}");
    }
    assert_eq!(client.request("CONNECT", "localhost:80", "").status, 405);
    assert_eq!(client.request("GET", "*", "").status, 400, "only OPTIONS is for all of the server");
    // `limit_except GET` lets HEAD pass, `allow_methods GET` does not.
    assert_eq!(client.request("HEAD", "/reads", "").status, 200);
    assert_eq!(client.request("POST", "/reads", "Content-Length: 0\r\n").status, 403);
    assert_eq!(client.request("GET", "/exactly", "").status, 200);
    let head = client.request("HEAD", "/exactly", "");
    assert_eq!((head.status, head.field("allow")), (405, Some("GET, OPTIONS")));
}

#[test]
fn an_expectation_gets_its_final_answer_and_no_100() {
    // H7, H6, V33
    let server = start();
    let mut client = server.connect();
    let expects = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    let response = client.request("POST", "/a.txt", expects);
    assert_eq!(response.status, 405);
    assert!(response.says_close(), "whether the body comes is not known");
    assert_closes(&mut client);

    let mut client = server.connect();
    let response = client.request("POST", "/a.txt", "Content-Length: 5\r\nExpect: tea\r\n");
    assert_eq!(response.status, 417);
    assert!(response.says_close(), "whether the body comes is not known");
    assert_closes(&mut client);

    // HTTP/1.0 knows no expectations.
    let mut client = server.connect();
    client.send("GET /n/x HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_response().status, 200);
}

#[test]
fn a_client_that_has_sent_fin_still_gets_its_answers() {
    // H11
    let server = start();
    for target in ["/a.txt", "/large.bin"] {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{HOST}\r\nGET /n/2 HTTP/1.1\r\n{HOST}\r\n"));
        client.half_close();
        assert_eq!(client.read_response().status, 200);
        assert_eq!(client.read_response().text(), "/n/2");
        assert_closes(&mut client);
    }
    let mut client = server.connect();
    client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
    let start = client.read_bytes(100_000);
    client.half_close();
    let rest = client.read_to_close();
    assert!([start, rest].concat().ends_with(&pattern(3 << 20)), "the whole file came");
    // FIN in the middle of a head, or before any byte, is just an end.
    for bytes in ["", "GET / HT", "POST /n/ HTTP/1.1\r\n"] {
        let mut client = server.connect();
        client.send(bytes);
        client.half_close();
        assert_closes(&mut client);
    }
}

#[test]
fn doubtful_framing_is_refused_and_the_connection_closed() {
    // H9, V1
    let server = start();
    let fields = [
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 4\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: \r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length : 3\r\n",
        " Folded: x\r\n",
        "X: a\r\n folded\r\n",
        "X: a\rb\r\n",
        "X: a\0b\r\n",
        "X\0: a\r\n",
        "X: a\x01b\r\n",
        "No colon\r\n",
        ": no name\r\n",
        "X(y): a\r\n",
        "Host: other\r\n",
        "Host: localhost\r\n",
    ];
    for field in fields {
        let request = format!("POST /n/x HTTP/1.1\r\n{HOST}{field}\r\n");
        let response = refused(&server, request);
        let codings = field.contains("identity");
        let allowed: &[u16] = if codings { &[400, 501] } else { &[400] };
        assert!(allowed.contains(&response.status), "{field:?}: {}", response.status);
    }
    for coding in ["gzip", "gzip, chunked", "x-y", "chunked;q=1, deflate"] {
        let field = format!("Transfer-Encoding: {coding}\r\n");
        let response = refused(&server, format!("POST /n/x HTTP/1.1\r\n{HOST}{field}\r\n"));
        assert!(matches!(response.status, 400 | 501), "{coding}: {}", response.status);
    }
    assert_eq!(
        refused(&server, format!("POST /n/ HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip\r\n\r\n"))
            .status,
        501
    );
    assert_eq!(
        refused(&server, "POST /n/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").status,
        400
    );
}

#[test]
fn doubtful_request_lines_and_hosts_are_refused() {
    // H9, V1
    let server = start();
    let lines = [
        "GET /n/x",
        "GET",
        "GET  /n/x HTTP/1.1",
        "GET /n/x  HTTP/1.1",
        "GET /n/x HTTP/1.1 ",
        "GET /n/ x HTTP/1.1",
        " GET /n/x HTTP/1.1",
        "GET\t/n/x HTTP/1.1",
        "G(T /n/x HTTP/1.1",
        "GET /n/\x01 HTTP/1.1",
        "GET /n/\rx HTTP/1.1",
        "GET /n/\0 HTTP/1.1",
        "GET /n/x http/1.1",
        "GET /n/x HTTP/1",
        "GET /n/x HTTP/1.10",
    ];
    for line in lines {
        let response = refused(&server, format!("{line}\r\n{HOST}\r\n"));
        assert_eq!(response.status, 400, "{line:?}");
    }
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9"] {
        let response = refused(&server, format!("GET /n/x {version}\r\n{HOST}\r\n"));
        assert_eq!(response.status, 505, "{version}");
    }
    for host in ["", "a b", "a/b", "a,b", "..", "a..b", "[::1", "[x]", "a:x", "a:99999", "a@b"] {
        let response = refused(&server, format!("GET /n/x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 400, "{host:?}");
    }
    assert_eq!(refused(&server, "GET /n/x HTTP/1.1\r\n\r\n").status, 400, "Host is missing");
    // Bytes that are no request are refused at once.
    assert_eq!(refused(&server, "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03").status, 400);
}

#[test]
fn bad_chunks_end_the_connection() {
    // H9, V2: the answer to the request is out already; what follows must not be taken for a request.
    let server = start();
    let smuggled = format!("GET /n/smuggled HTTP/1.1\r\n{HOST}\r\n");
    let bodies = [
        "x\r\n",
        "-1\r\n",
        "+3\r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "\r\n",
        "10000000000000000\r\nabc\r\n",
        "3;\x01\r\nabc\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\n\n",
    ];
    for body in bodies {
        let mut client = server.connect();
        client.send(format!(
            "POST /n/first HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}{smuggled}"
        ));
        let (bytes, _) = client.read_to_end();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{body:?}: {text}");
        assert!(!text.contains("smuggled"), "{body:?}: {text}");
    }
}

#[test]
fn a_body_that_nobody_wants_is_read_past() {
    // H2, H13, V3, V33: chunks, extensions and trailers of an unwanted body end where the next request begins.
    let server = start();
    let mut client = server.connect();
    let next = format!("GET /n/next HTTP/1.1\r\n{HOST}\r\n");
    for (target, status) in [("/a.txt", 405), ("/missing", 404), ("/n/x", 200), ("/reads", 403)] {
        let head = format!("POST {target} HTTP/1.1\r\n{HOST}");
        client.send(format!("{head}Content-Length: 40\r\n\r\n{}{next}", "x".repeat(40)));
        assert_eq!(client.read_response().status, status, "{target}");
        assert_eq!(client.read_response().text(), "/n/next", "{target}");
        client.send(format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n\
             0\r\nX-Trailer: y\r\n\r\n{next}"
        ));
        assert_eq!(client.read_response().status, status, "{target}");
        assert_eq!(client.read_response().text(), "/n/next", "{target}");
    }
    // The answer does not wait for the body.
    client.send(format!("POST /n/early HTTP/1.1\r\n{HOST}Content-Length: 100000\r\n\r\n"));
    assert_eq!(client.read_response().text(), "/n/early");
    for _ in 0..10 {
        client.send("y".repeat(10_000));
        pause(Duration::from_millis(1));
    }
    assert_kept(&mut client);
    // GET may have one as well.
    client.send(format!("GET /a.txt HTTP/1.1\r\n{HOST}Content-Length: 4\r\n\r\nGET {next}"));
    assert_eq!(client.read_response().text(), "hello");
    assert_eq!(client.read_response().text(), "/n/next");
}

#[test]
fn responses_say_when_and_by_whom() {
    // H13
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let server = serve(tree, "location /quiet { server_tokens off; return 200 ok; }");
    let mut client = server.connect();
    for target in ["/a.txt", "/missing", "/quiet", "/%zz"] {
        let response = client.get(target);
        let date = response.field("date").expect("every response has one");
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        let server = response.field("server").expect("every response has one");
        let is_named = if target == "/quiet" {
            server == "sekisho"
        } else {
            server.strip_prefix("sekisho/").is_some_and(|version| !version.is_empty())
        };
        assert!(is_named, "{target}: {server}");
    }
}

#[test]
fn an_absolute_target_outweighs_the_host_field() {
    // H9, V34: RFC 9112 §3.2.2
    let server = start();
    let mut client = server.connect();
    assert_eq!(client.get("http://other.example/n/x?y").text(), "/n/x");
    assert_eq!(client.get("HTTP://other.example").status, 403, "the root without an index");
    for target in ["n/x", "ftp://other.example/n/x", "http:///n/x", "http://a b/"] {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{HOST}\r\n"));
        assert_eq!(client.read_response().status, 400, "{target}");
    }
}

#[test]
fn a_client_that_resets_harms_nobody() {
    // H2, X5
    let server = start();
    for _ in 0..50 {
        let mut client = server.connect();
        client.send(format!("GET /large.bin HTTP/1.1\r\n{HOST}\r\n"));
        client.reset();
        drop(TcpStream::connect(server.address()).expect("the server listens"));
    }
    assert_kept(&mut server.connect());
}
