//! Early data (`ssl_early_data`, RFC 8446 §2.3, RFC 8470): requests that come before the handshake is over.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use sekisho_testkit::{Server, Tree};

use crate::checks::s_client;
use crate::common::{BINARY, LONG, http};
use crate::support::{Speech, Tls, can_make_certificates, certificate};

const GET: &str = "GET /own HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// A server with TLS that passes requests on, the server behind it, and one beside it that wants no early data.
fn start(settings: &str) -> Server {
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let config = http(&format!(
        "ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;
         server {{ listen 127.0.0.1:{{port}} ssl; server_name a.test; {settings}
             location = /own {{ return 200 \"early=$ssl_early_data reused=$ssl_session_reused\"; }}
             location = /passed {{ proxy_pass http://127.0.0.1:{{port2}};
                 proxy_set_header Early-Data $ssl_early_data; }} }}
         server {{ listen 127.0.0.1:{{port}} ssl; server_name b.test; return 200 beside; }}
         server {{ listen 127.0.0.1:{{port2}}; return 200 \"told=$http_early_data.\"; }}"
    ));
    Server::start_in(tree, BINARY, &config)
}

/// Gets a session by `openssl`.
fn session(server: &Server) {
    let ask = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let arguments = ["-tls1_3", "-ign_eof", "-sess_out", "session"];
    let (_, said) = s_client(server, &arguments, &ask);
    assert!(said.contains("early= reused=."), "{said}");
}

/// Sends a request as early data of the session.
fn early(server: &Server, request: &str) -> String {
    let request = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    server.tree().file("request", request);
    let arguments = ["-tls1_3", "-ign_eof", "-sess_in", "session", "-early_data", "request"];
    s_client(server, &arguments, "").1
}

#[test]
fn a_request_may_come_before_the_handshake_is_over() {
    // S1
    if !can_make_certificates() {
        return;
    }
    let server = start("ssl_early_data on;");
    let table = [
        (GET, "early=1 reused=r"),
        // Who is asked behind is told, and may refuse.
        ("GET /passed HTTP/1.1\r\nHost: a.test\r\n\r\n", "told=1."),
        ("HEAD /own HTTP/1.1\r\nHost: a.test\r\n\r\n", "HTTP/1.1 200 "),
        // What would change something is not done twice.
        ("DELETE /own HTTP/1.1\r\nHost: a.test\r\n\r\n", "HTTP/1.1 425 Too Early"),
        (
            "POST /own HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 425 Too Early",
        ),
        // Nor is what a server gets that wants none.
        ("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "HTTP/1.1 425 Too Early"),
    ];
    for (request, expected) in table {
        session(&server);
        let said = early(&server, request);
        assert!(said.contains("Early data was accepted"), "{request}: {said}");
        assert!(said.contains(expected), "{request}: {said}");
    }
}

#[test]
fn early_data_counts_once() {
    // S4: a second hello with the same session may be somebody's repetition.
    if !can_make_certificates() {
        return;
    }
    let server = start("ssl_early_data on;");
    session(&server);
    let said = early(&server, GET);
    assert!(said.contains("Early data was accepted") && said.contains("early=1"), "{said}");
    for _ in 0..3 {
        server.tree().file("request", GET);
        let arguments = ["-tls1_3", "-sess_in", "session", "-early_data", "request"];
        let (_, said) = s_client(&server, &arguments, "");
        assert!(said.contains("Early data was rejected"), "{said}");
        assert!(!said.contains("early="), "{said}");
    }
}

#[test]
fn early_data_is_off_unless_it_is_wanted() {
    if !can_make_certificates() {
        return;
    }
    let server = start("");
    session(&server);
    let said = s_client(&server, &["-tls1_3", "-sess_in", "session"], "").1;
    assert!(said.contains("Max Early Data: 0") || !said.contains("Max Early Data"), "{said}");
}

#[test]
fn what_comes_after_the_handshake_is_not_early() {
    if !can_make_certificates() {
        return;
    }
    let server = start("ssl_early_data on;");
    let mut speech = Speech::new(&[&rustls::version::TLS13]);
    speech.config.enable_early_data = true;
    let config = Arc::new(speech.config);
    let connect = || {
        let name = ServerName::try_from("a.test").expect("a name");
        let keys = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let socket = TcpStream::connect(server.address()).expect("connected");
        socket.set_read_timeout(Some(LONG)).expect("an option");
        StreamOwned::new(keys, socket)
    };
    let mut first = Tls { stream: connect() };
    assert_eq!(first.get("/own", "a.test").1, "early= reused=.");
    for turn in 0..3 {
        let mut stream = connect();
        let mut early = stream.conn.early_data().expect("a session");
        early.write_all(GET.as_bytes()).expect("room");
        let mut client = Tls { stream };
        let (_, body) = client.response();
        assert_eq!(body, b"early=1 reused=r", "{turn}");
        assert!(client.stream.conn.is_early_data_accepted());
        assert_eq!(client.get("/own", "a.test").1, "early= reused=r", "{turn}");
        let (line, _) = {
            client.send("POST /own HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
            client.response()
        };
        assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    }
}
