//! How connections end (S2, S3), and what those cost that never begin.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use sekisho_testkit::{Server, Stopwatch, Tree, eventually};

use crate::common::{BINARY, LONG, http};
use crate::support::{Speech, TlsEnd, can_make_certificates, certificate, serve};

const CUT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n\
                   head -c 300000 /dev/zero\nkill -9 $$\n";
const SHORT: &str =
    "#!/bin/sh\nprintf 'Content-Length: 9\\r\\nContent-Type: text/plain\\r\\n\\r\\nshort'\n";
/// The beginning of a hello.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

#[test]
fn a_complete_answer_ends_with_a_close_notify_and_a_cut_one_without() {
    // S3
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    tree.file("root/whole", "whole");
    tree.script("root/cut.cgi", CUT);
    tree.script("root/short.cgi", SHORT);
    let server = serve(tree, "location ~ cgi$ { cgi on; } keepalive_timeout 300ms;");
    let end_of = |target: &str, version: &str, fields: &str| {
        let mut client =
            Speech::default().connect(server.address(), "a.test").expect("a handshake");
        client.send(&format!("GET {target} HTTP/{version}\r\nHost: a.test\r\n{fields}\r\n"));
        client.rest().1
    };
    assert_eq!(end_of("/whole", "1.1", "Connection: close\r\n"), TlsEnd::Complete);
    assert_eq!(end_of("/whole", "1.0", ""), TlsEnd::Complete);
    assert_eq!(end_of("/whole", "1.1", ""), TlsEnd::Complete, "when it was idle for too long");
    assert_eq!(end_of("/short.cgi", "1.1", ""), TlsEnd::Cut);
    assert_eq!(end_of("/cut.cgi", "1.0", ""), TlsEnd::Cut);
    assert_eq!(end_of("/cut.cgi", "1.1", ""), TlsEnd::Cut);
}

#[test]
fn a_request_in_the_clear_is_told_so() {
    // S2
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let one = |port: &str, more: &str| {
        format!(
            "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {{dir}}/a.test.pem;\n\
             ssl_certificate_key {{dir}}/a.test.key; {more} }}\n"
        )
    };
    let redirect = "error_page 497 =301 https://$host$request_uri;";
    let config = http(&[one("{port}", ""), one("{port2}", redirect)].concat());
    let server = Server::start_in(tree, BINARY, &config);
    for (at, expected) in [(0, "HTTP/1.1 400"), (1, "HTTP/1.1 301")] {
        let mut client = TcpStream::connect(server.address_of(at)).expect("connected");
        client.set_read_timeout(Some(LONG)).expect("an option");
        client.write_all(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        let mut said = String::new();
        client.read_to_string(&mut said).expect("an answer and the end");
        assert!(said.starts_with(expected), "{said}");
        let told = said.contains("The plain HTTP request was sent to an HTTPS port");
        assert_eq!(told, at == 0, "{said}");
        assert_eq!(said.contains("Location: https://a.test/x\r\n"), at == 1, "{said}");
    }
}

#[test]
fn a_stalled_handshake_ends_at_the_deadline_of_the_head_without_a_word() {
    // S2, V32
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), "client_header_timeout 400ms;");
    for begun in [&b"\x16"[..], b"\x16\x03\x01", HELLO] {
        let mut client = TcpStream::connect(server.address()).expect("connected");
        client.set_read_timeout(Some(LONG)).expect("an option");
        client.write_all(begun).expect("sent");
        let mut said = Vec::new();
        client.read_to_end(&mut said).expect("the end");
        assert!(said.is_empty(), "{said:?}");
    }
    // A hello that is none gets an alert, if anything.
    let mut client = TcpStream::connect(server.address()).expect("connected");
    client.write_all(b"\x16\x03\x01\x00\x04rubb").expect("sent");
    client.shutdown(Shutdown::Write).expect("shut");
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said);
    assert!(said.is_empty() || said[0] == 21, "{said:?}");
    eventually("a line", LONG, || server.log("error.log").contains("TLS handshake failed"));
}

/// `SEKISHO_LONG=1` takes ten thousand.
#[test]
fn a_thousand_stalled_handshakes_delay_nobody() {
    // V32
    if !can_make_certificates() {
        return;
    }
    let is_long = std::env::var_os("SEKISHO_LONG").is_some_and(|value| value != "0");
    let count = if is_long { 9_500 } else { 1000 };
    let server = serve(Tree::new(), "client_header_timeout 10m; location / { return 200 yes; }");
    let ask = || {
        let begun = Stopwatch::start();
        let mut client =
            Speech::default().connect(server.address(), "a.test").expect("a handshake");
        assert_eq!(client.get("/", "a.test").1, "yes");
        begun.elapsed()
    };
    // The first handshake of a process, on either side, has more to do than any other.
    ask();
    let alone = (0..20).map(|_| ask()).max().unwrap_or_default();
    let before = server.rss_bytes();
    let mut stalled = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(server.address()).expect("connected");
        client.write_all(HELLO).expect("sent");
        stalled.push(client);
    }
    eventually("they are accepted", LONG, || server.fds() >= count);
    let beside = (0..20).map(|_| ask()).max().unwrap_or_default();
    println!("served within {beside:?} beside {count} stalled handshakes, {alone:?} without");
    // Other tests may have the machine for a moment; a long run has it to itself.
    assert!(beside < if is_long { Duration::from_millis(50) } else { LONG / 20 }, "{beside:?}");
    let each = server.rss_bytes().saturating_sub(before) / count as u64;
    println!("{each} bytes for each of them");
    assert!(each < 16 << 10, "{each}");
}
