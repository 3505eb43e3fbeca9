//! Ways in which one request was hidden within another, collected from what was found in servers and proxies: each
//! holds a second request where a lax reading would find one, and that one is never answered.

use sekisho_testkit::{Client, Server, Tree};

use crate::common::serve;

const HOST: &str = "Host: localhost\r\n";
const SMUGGLED: &str = "GET /n/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn start() -> Server {
    serve(Tree::new(), "keepalive_requests 10000; location /n/ { return 200 $uri; }")
}

/// The statuses of all answers until the connection ends, and whether the hidden request was answered.
fn answers(mut client: Client) -> (Vec<u16>, bool) {
    let mut statuses = Vec::new();
    let mut is_smuggled = false;
    while let Ok(response) = client.try_read_response(false) {
        is_smuggled |= response.text() == "/n/smuggled";
        statuses.push(response.status);
    }
    (statuses, is_smuggled)
}

fn is_refused(server: &Server, request: &[u8]) {
    let shown = request.escape_ascii();
    let mut client = server.connect();
    client.send([request, SMUGGLED.as_bytes()].concat());
    // The server does not linger for a client that has closed its side.
    client.half_close();
    let (statuses, is_smuggled) = answers(client);
    assert!(matches!(statuses[..], [400 | 501 | 505]), "{shown}: {statuses:?}");
    assert!(!is_smuggled, "{shown}");
}

/// Each is a field or more, as bytes, without the last line end.
const FIELDS: &[&[u8]] = &[
    // Lengths that one reads as a number and another does not.
    b"Content-Length: +10",
    b"Content-Length: +1_0",
    b"Content-Length: 1_0",
    b"Content-Length: -48",
    b"Content-Length: 0x10",
    b"Content-Length: 0b10",
    b"Content-Length: 0o10",
    b"Content-Length: 1Z",
    b"Content-Length: 1e1",
    b"Content-Length: 10.",
    b"Content-Length: 10;a",
    b"Content-Length: \x0b10",
    b"Content-Length: 10\x0c",
    b"Content-Length: \xa010",
    b"Content-Length: 10\x85",
    b"Content-Length: 10\0",
    b"Content-Length: \xef\xbc\x91",
    b"Content-Length: '1'",
    b"Content-Length: 18446744073709551617",
    b"Content-Length:",
    b"Content-Length: ",
    b"Content-Length: ,",
    b"Content-Length: 47,",
    b"Content-Length: ,47",
    b"Content-Length: 47, 0",
    b"Content-Length: 47, 47",
    // More than one.
    b"Content-Length: 0\r\nContent-Length: 47",
    b"Content-Length: 47\r\nContent-Length: 0",
    b"Content-Length: \r\nContent-Length: 47",
    b"Content-Length: 47\r\nContent-Length: ",
    b"Content-Length: 47\r\ncontent-length: 47",
    // Names that one takes for another's.
    b"Content-Length : 47",
    b"Content-Length\t: 47",
    b"Content-Length\x0b: 47",
    b"Content-Length\x85: 47",
    b"Content-Length\xa0: 47",
    b"Content-Length\0: 47",
    b"\0Content-Length: 47",
    b"\rContent-Length: 47",
    b"Content-Length\r: 47",
    b"Content-Length 47",
    b"Content-\r\nLength: 47",
    b"Transfer-\r\nEncoding: chunked\r\nContent-Length: 47",
    b"Transfer-\nEncoding: chunked",
    b"X: y\r\n Transfer-Encoding: chunked",
    b"X: y\r\n\tContent-Length: 47",
    b"X:\r\n y",
    b": ignored",
    b":",
    b":\r\nContent-Length: 47",
    b"\xefoo: bar",
    b"a@b: c",
    b"a/b: c",
    b"a=b: c",
    b"a;b: c",
    b"[a]: b",
    b"{a}: b",
    b"\"a\": b",
    b"(a): b",
    // Values that end where one sees a line end, and another none.
    b"X: y\rContent-Length: 47",
    b"X: y\0\rz",
    b"X: y\0",
    b"X: \0Content-Length: 47",
    b"X: y\r\r\nContent-Length: 47",
    b"X: y\r\n\rZ: z",
    b"X: y\r\n\r\rContent-Length: 47",
    b"X: y\x01z",
    b"X: y\x7fz",
    // Codings that are chunked for one and nothing for another.
    b"Transfer-Encoding: ,chunked",
    b"Transfer-Encoding: chunked,",
    b"Transfer-Encoding: , chunked ,",
    b"Transfer-Encoding: \xa0chunked\xa0",
    b"Transfer-Encoding: \x85chunked",
    b"Transfer-Encoding: \xffchunked\xff",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: chunked\x0c",
    b"Transfer-Encoding: chunked\0",
    b"Transfer-Encoding: blegh",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunke",
    b"Transfer-Encoding: 'chunked'",
    b"Transfer-Encoding: \"chunked\"",
    b"Transfer-Encoding: chunked;a=b",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding:",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding:\n chunked",
    // Both.
    b"Transfer-Encoding: chunked\r\nContent-Length: 47",
    b"Content-Length: 47\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: ,chunked\r\nContent-Length: 5",
    b"Transfer-Encoding: blegh\r\nContent-Length: 5",
    b"Transfer-Encoding: identity\r\nContent-Length: 47",
    // Whose request it is.
    b"Host: other",
    b"Host: localhost",
    b"host:",
];

/// Whole heads that are none.
const HEADS: &[&[u8]] = &[
    b"GET /n/first HTTP/1.32\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/1.1.1\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/\r\r1.1\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/4294967295.255\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/257.1\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/1.1\x0c\r\nHost: a\r\n\r\n",
    b"GET /n/first\x0bHTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET\xa0/n/first HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /n/first\nHTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET\n/n/first HTTP/1.1\r\nHost: a\r\n\r\n",
    b"G=\":<>(e),[T];?\" /n/first HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\0 /n/first HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /n/first HTTP/1.1\r\nHost: \xffa\xff\r\n\r\n",
    b"GET /n/first HTTP/1.1\r\nHost: a\0.b\r\n\r\n",
    b"GET /n/first HTTP/1.1\r\nHost: a\r\n\rZ",
    b"GET /n/first HTTP/1.1\r\n\tHost: a\r\n\r\n",
    b"GET /n/first HTTP/1.1\r\n\r\n",
    b"POST /n/first HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /n/first HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
];

/// Chunked bodies whose end is not where another parser sees it.
const CHUNKS: &[&[u8]] = &[
    b"0_2e\r\n\r\n",
    b"0x2f\r\n",
    b"0X2f\r\n",
    b"+2f\r\n",
    b"-2f\r\n",
    b"2f \r\n",
    b" 2f\r\n",
    b"2f\t;a\r\n",
    b"2f\x0b\r\n",
    b"2f\0\r\n",
    b"2f,\r\n",
    b"2fthese-bytes-nobody-looks-at\r\n",
    b"2f\n",
    b"2f\r",
    b"5\r\r;abcd\r\n",
    b"5;a=b\r\rhello\r\n0\r\n\r\n",
    b"5;a=b\nhello\r\n0\r\n\r\n",
    b"5;\0\r\nhello\r\n0\r\n\r\n",
    b"1\r0\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhelloXX0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n",
    b"5\r\nhello\r\r0\r\n\r\n",
    b"\r\n\r\n",
    b"\r\n0\r\n\r\n",
    b";a=b\r\n\r\n",
    b"Z\r\nZZ\r\nZZZ\r\n\r\n",
    b"INVALID!!!\r\n",
    b"100000000000000002f\r\n",
    b"ffffffffffffffff0\r\n",
    b"\xef\xbc\x95\r\nhello\r\n0\r\n\r\n",
    b"0\n\r\n",
    b"0\r\n\n",
    b"0\r\nXX",
    b"0\r\n\rX",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\nX\r\n\r\n",
    b"0\r\n X: y\r\n\r\n",
    b"0\r\nX: y\rZ\r\n\r\n",
];

/// H9, V1: a hundred and twenty heads that somebody reads in two ways.
#[test]
fn a_head_of_two_readings_is_refused_with_all_that_follows() {
    let server = start();
    for fields in FIELDS {
        let line = format!("POST /n/first HTTP/1.1\r\n{HOST}");
        is_refused(&server, &[line.as_bytes(), fields, b"\r\n\r\n"].concat());
    }
    for head in HEADS {
        is_refused(&server, head);
    }
    assert_eq!(server.connect().get("/n/still").text(), "/n/still");
}

/// H9, V2: bodies whose end another parser sees elsewhere. The request was answered before, or is refused.
#[test]
fn a_chunk_of_two_readings_ends_the_connection() {
    let server = start();
    for body in CHUNKS {
        let head = format!("POST /n/first HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n");
        let mut client = server.connect();
        client.send([head.as_bytes(), body, SMUGGLED.as_bytes()].concat());
        client.half_close();
        let (statuses, is_smuggled) = answers(client);
        assert!(!is_smuggled, "{}: {statuses:?}", body.escape_ascii());
        assert!(matches!(statuses[..], [200 | 400]), "{}: {statuses:?}", body.escape_ascii());
    }
}

/// Fields and bodies that have one reading, and hold what looks like another request.
fn hidden_requests() -> [String; 13] {
    let length = SMUGGLED.len();
    let chunk = format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n");
    [
        format!("Content-Length: {length}\r\n\r\n{SMUGGLED}"),
        // A leading zero does not make it octal.
        format!("Content-Length: 0{length}\r\n\r\n{SMUGGLED}"),
        format!("Content-Length: 000000000000000000000{length}\r\n\r\n{SMUGGLED}"),
        format!("content-LENGTH:{length}\t \r\n\r\n{SMUGGLED}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}\r\n"),
        format!("Transfer-Encoding:\t CHUNKED \r\n\r\n{chunk}\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n000{chunk}\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}X:POST /n/smuggled HTTP/1.1\r\n\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}Content-Length: 47\r\nHost: b\r\n\r\n"),
        format!("Transfer-Encoding: chunked\r\n\r\n0;a=\"{length}\"\r\n\r\n"),
        format!(
            "Transfer_Encoding: chunked\r\nX-Content-Length: 3\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
        ),
        "Content-Length: 0\r\nUser: \u{85}admin\u{a0}\r\n\r\n".to_owned(),
        format!("Content-Length: {length}\r\nX: y\n\n{SMUGGLED}"),
    ]
}

/// What a client may send to have a request of its own making hidden in another: each is the bytes of one connection.
/// The first request asks for `/n/first`; what is hidden asks for `/n/smuggled`.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let post = format!("POST /n/first HTTP/1.1\r\n{HOST}");
    for fields in FIELDS {
        all.push([post.as_bytes(), fields, b"\r\n\r\n", SMUGGLED.as_bytes()].concat());
    }
    for head in HEADS {
        all.push([head, SMUGGLED.as_bytes()].concat());
    }
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    for body in CHUNKS {
        all.push([chunked.as_bytes(), body, SMUGGLED.as_bytes()].concat());
    }
    for method in ["GET", "POST", "DELETE"] {
        for rest in hidden_requests() {
            all.push(format!("{method} /n/first HTTP/1.1\r\n{HOST}{rest}").into_bytes());
        }
    }
    // Fields that one server takes out before the next one, and hop-by-hop fields that name what frames.
    for fields in [
        "Connection: content-length",
        "Connection: transfer-encoding",
        "Connection: close, host",
        "Connection: X-Forwarded-For, keep-alive",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        "Expect: 100-continue",
        "Trailer: Content-Length",
        "TE: trailers, chunked",
    ] {
        for rest in hidden_requests() {
            all.push(format!("{post}{fields}\r\n{rest}").into_bytes());
        }
    }
    all
}

/// V1, V2, V33: what has one reading only is read so, whatever it holds and however the method is called.
#[test]
fn what_looks_like_a_request_within_a_body_is_none() {
    let server = start();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let mut client = server.connect();
        for body in &hidden_requests() {
            let next = format!("GET /n/next HTTP/1.1\r\n{HOST}\r\n");
            client.send(format!("{method} /n/first HTTP/1.1\r\n{HOST}{body}{next}"));
            let first = client.try_read_response(method == "HEAD");
            let first = first.unwrap_or_else(|error| panic!("{method} {body:?}: {error:?}"));
            assert!(!first.says_close(), "{method} {body:?}: {first:?}");
            assert_eq!(client.read_response().text(), "/n/next", "{method} {body:?}");
        }
    }
}
