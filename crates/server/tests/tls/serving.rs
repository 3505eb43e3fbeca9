//! What is served over TLS, and whose certificate is shown.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use rustls::version::{TLS12, TLS13};
use sekisho_testkit::{Server, Tree, run};

use crate::common::{BINARY, LONG, http, pattern};
use crate::support::{Speech, can_make_certificates, certificate, der, openssl, serve, site};

const ECHO: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n\
                    echo $HTTPS $REQUEST_SCHEME\ncat\n";

#[test]
fn files_ranges_programs_and_uploads_come_over_every_version() {
    // S1
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    let large = pattern(3 << 20);
    tree.file("root/large", &large);
    tree.folder("root/up");
    tree.script("root/echo.cgi", ECHO);
    let server = serve(
        tree,
        "client_max_body_size 64m; location /up { dav_methods PUT; }\n\
         location = /v { return 200 '$https $scheme $ssl_protocol $ssl_server_name $ssl_alpn_protocol'; }\n\
         location ~ cgi$ { cgi on; }",
    );
    for (version, name) in [(&TLS12, "TLSv1.2"), (&TLS13, "TLSv1.3")] {
        let speech = Speech::new(&[version]).alpn(&["http/1.1"]);
        let mut client = speech.connect(server.address(), "a.test").expect("a handshake");
        let (_, said) = client.get("/v", "a.test");
        assert_eq!(said, format!("on https {name} a.test http/1.1"));
        client.send("GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.response().1 == large, "{name}");
        client.send("GET /large HTTP/1.1\r\nHost: a.test\r\nRange: bytes=70000-1070000\r\n\r\n");
        assert!(client.response().1 == large[70_000..=1_070_000], "{name}");
        let length = large.len();
        let head = format!("PUT /up/{name} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}");
        client.send(&format!("{head}\r\n\r\n"));
        client.stream.write_all(&large).expect("sent");
        client.stream.flush().expect("sent");
        assert!(client.response().0.starts_with("HTTP/1.1 201"), "{name}");
        assert!(
            fs::read(server.tree().path(&format!("root/up/{name}"))).expect("it") == large,
            "{name}"
        );
        let head = "POST /echo.cgi HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3";
        client.send(&format!("{head}\r\nConnection: close\r\n\r\nabc"));
        let (rest, _) = client.rest();
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(rest.contains("on https\n") && rest.contains("abc"), "{rest}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), "location / { return 200 $uri; }");
    let mut client = Speech::default().connect(server.address(), "a.test").expect("a handshake");
    let request = |at| format!("GET /{at} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.send(&(0..300).map(request).collect::<Vec<_>>().concat());
    for at in 0..300 {
        assert_eq!(client.response().1, format!("/{at}").as_bytes());
    }
}

#[test]
fn a_hello_in_single_bytes_is_a_hello() {
    // V32
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), "location / { return 200 yes; }");
    let name = rustls::pki_types::ServerName::try_from("a.test").expect("a name");
    let config = std::sync::Arc::new(Speech::default().config);
    let mut keys = rustls::ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    keys.write_tls(&mut hello).expect("written");
    let mut socket = TcpStream::connect(server.address()).expect("connected");
    socket.set_nodelay(true).expect("an option");
    socket.set_read_timeout(Some(LONG)).expect("an option");
    for byte in hello {
        socket.write_all(&[byte]).expect("sent");
    }
    while keys.is_handshaking() {
        keys.complete_io(&mut socket).expect("a handshake");
    }
    let mut client = crate::support::Tls { stream: rustls::StreamOwned::new(keys, socket) };
    assert_eq!(client.get("/", "a.test").1, "yes");
}

#[test]
fn the_name_chooses_server_certificate_and_protocol() {
    // S1
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "b.test", "default.test"] {
        certificate(&tree, name, "30");
    }
    let one = |name: &str, more: &str| {
        format!(
            "server {{ listen 127.0.0.1:{{port}} ssl{more}; server_name {name};\n\
             ssl_certificate {{dir}}/{name}.pem; ssl_certificate_key {{dir}}/{name}.key;\n\
             location / {{ return 200 '{name} $ssl_server_name'; }} http2 {}; }}\n",
            if name == "a.test" { "on" } else { "off" }
        )
    };
    let config = [one("default.test", " default_server"), one("a.test", ""), one("b.test", "")];
    let server = Server::start_in(tree, BINARY, &http(&config.concat()));
    for (asked, shown) in
        [("a.test", "a.test"), ("B.test", "b.test"), ("other.test", "default.test")]
    {
        let mut client = Speech::default().connect(server.address(), asked).expect("a handshake");
        assert_eq!(client.shown(), der(server.tree(), shown), "{asked}");
        let said = client.get("/", asked).1;
        assert!(said.starts_with(shown), "{asked}: {said}");
    }
    for (name, expected) in [("a.test", &b"h2"[..]), ("b.test", b"http/1.1")] {
        let speech = Speech::default().alpn(&["h2", "http/1.1"]);
        let client = speech.connect(server.address(), name).expect("a handshake");
        assert_eq!(client.stream.conn.alpn_protocol(), Some(expected), "{name}");
    }
    let refused = Speech::default().alpn(&["spdy/3"]).connect(server.address(), "a.test");
    assert!(refused.is_err(), "no protocol in common");
}

#[test]
fn a_handshake_can_be_rejected_and_versions_be_left_out() {
    // S1, V32
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let config = http(
        "server { listen 127.0.0.1:{port} ssl default_server; ssl_reject_handshake on; }\n\
         server { listen 127.0.0.1:{port} ssl; server_name a.test; ssl_protocols TLSv1.3;\n\
         ssl_certificate {dir}/a.test.pem; ssl_certificate_key {dir}/a.test.key;\n\
         location / { return 200 a; } }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let speech = Speech::default();
    assert!(speech.connect(server.address(), "other.test").is_err());
    assert_eq!(speech.connect(server.address(), "a.test").expect("one").get("/", "a.test").1, "a");
    assert!(Speech::new(&[&TLS12]).connect(server.address(), "a.test").is_err());
    let address = server.address().to_string();
    for version in ["-tls1", "-tls1_1", "-tls1_2"] {
        let arguments = ["s_client", version, "-connect", &address, "-servername", "a.test"];
        assert_ne!(run("openssl", &arguments, LONG).code(), 0, "{version}");
    }
}

#[test]
fn curl_speaks_both_protocols() {
    if !can_make_certificates() || Command::new("curl").arg("-V").output().is_err() {
        println!("skipped: there is no curl");
        return;
    }
    let tree = Tree::new();
    let large = pattern(2 << 20);
    tree.file("root/large", &large);
    let server = serve(tree, "");
    let resolve = format!("a.test:{}:127.0.0.1", server.address().port());
    let url = format!("https://a.test:{}/large", server.address().port());
    let ca = server.tree().path("a.test.pem").display().to_string();
    let out = server.tree().path("out").display().to_string();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let how = ["-s", flag, "--cacert", &ca, "--resolve", &resolve];
        let what = ["-o", &out, "-w", "%{http_version}", &url];
        let finished = run("curl", &[&how[..], &what].concat(), LONG);
        assert_eq!(finished.code(), 0, "{finished:?}");
        if finished.stdout != version {
            println!("curl speaks {} where {version} was asked for", finished.stdout);
        }
        assert!(fs::read(&out).expect("it") == large, "{flag}");
    }
}

#[test]
fn rsa_stands_beside_a_curve() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "rsa.key"];
    let more = ["-out", "rsa.pem", "-days", "9", "-subj", "/CN=a.test"];
    openssl(&tree, &[&made[..], &more].concat());
    let more = "ssl_certificate {dir}/rsa.pem; ssl_certificate_key {dir}/rsa.key;";
    let server = Server::start_in(tree, BINARY, &site(more));
    let client = Speech::default().connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(client.shown(), der(server.tree(), "a.test"));
    let address = server.address().to_string();
    let arguments =
        ["s_client", "-connect", &address, "-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"];
    let finished = run("openssl", &arguments, LONG);
    assert!(finished.stdout.contains("ECDHE-RSA-AES128-GCM-SHA256"), "{}", finished.stdout);
}
