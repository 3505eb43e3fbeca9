//! OCSP responses that are sent with certificates (`ssl_stapling`): the responder is `openssl ocsp`, and so is the client.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sekisho_testkit::process::is_listening;
use sekisho_testkit::{Dns, Server, Signal, Tree, eventually, free_port, have, pause};

use crate::checks::s_client;
use crate::common::{BINARY, LONG};
use crate::support::{can_make_certificates, openssl, site};

/// What the responder says of the certificate of `a.test`.
const GOOD: &str = "V\t400101000000Z\t\t1001\tunknown\t/CN=a.test\n";
const REVOKED: &str = "R\t400101000000Z\t261101000000Z\t1001\tunknown\t/CN=a.test\n";
const FETCHED: &str = "Cert Status: good";
const NONE: &str = "OCSP response: no response sent";

/// An authority `ca` and, signed by it, `a.test` with the address of a responder, and two signers of responses: `signer`
/// is authorized, `stranger` is not. The chain is not in the file.
fn authority(responder: &str) -> Tree {
    let tree = Tree::new();
    let key = |name: &str| {
        let file = format!("{name}.key");
        openssl(&tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &file]);
    };
    key("ca");
    let own = ["-out", "ca.pem", "-days", "30", "-subj", "/CN=ca.test"];
    openssl(&tree, &[&["req", "-x509", "-new", "-key", "ca.key"][..], &own].concat());
    let access = format!("authorityInfoAccess=OCSP;URI:{responder}\nsubjectAltName=DNS:a.test\n");
    let parts = [
        ("a.test", "0x1001", access.as_str()),
        ("signer", "0x1002", "extendedKeyUsage=OCSPSigning\n"),
        ("stranger", "0x1003", "extendedKeyUsage=serverAuth\n"),
    ];
    for (name, serial, extensions) in parts {
        key(name);
        let [key, csr, pem] = ["key", "csr", "pem"].map(|end| format!("{name}.{end}"));
        let subject = format!("/CN={name}");
        openssl(&tree, &["req", "-new", "-key", &key, "-out", &csr, "-subj", &subject]);
        tree.file("ext.cnf", extensions);
        let from = ["x509", "-req", "-in", &csr, "-CA", "ca.pem", "-CAkey", "ca.key"];
        let into = ["-set_serial", serial, "-days", "30", "-extfile", "ext.cnf", "-out", &pem];
        openssl(&tree, &[&from[..], &into].concat());
    }
    tree.file("index.txt", GOOD);
    tree
}

/// `openssl ocsp` as a responder.
struct Responder(Child);

impl Responder {
    fn start(tree: &Tree, port: u16, signer: &str) -> Self {
        let mut command = Command::new("openssl");
        command
            .args(["ocsp", "-index", "index.txt", "-CA", "ca.pem", "-nmin", "60", "-port"])
            .arg(port.to_string())
            .args(["-rsigner", &format!("{signer}.pem"), "-rkey", &format!("{signer}.key")])
            .current_dir(tree.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let responder = Self(command.spawn().expect("openssl runs"));
        // Not by a connection: it waits for the request of each for ever.
        eventually("the responder", LONG, || is_listening(port));
        responder
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(tree: Tree, more: &str) -> Server {
    let body =
        format!("ssl_stapling on; ssl_trusted_certificate {{dir}}/ca.pem; {more} return 200;");
    Server::start_in(tree, BINARY, &site(&body))
}

/// Whether a client of each version is sent such a response.
fn is_sent(server: &Server, expected: &str) -> bool {
    ["-tls1_2", "-tls1_3"].iter().all(|version| {
        let (_, said) = s_client(server, &[version, "-status"], "");
        said.contains(expected)
    })
}

#[test]
fn a_response_is_fetched_from_the_responder_that_the_certificate_names() {
    // S1
    if !can_make_certificates() {
        return;
    }
    let port = free_port();
    let tree = authority(&format!("http://127.0.0.1:{port}/"));
    let responder = Responder::start(&tree, port, "ca");
    let server = start(tree, "ssl_stapling_verify on;");
    eventually("a response", LONG, || is_sent(&server, FETCHED));
    // One that was fetched outlives a reload, and its responder.
    drop(responder);
    server.signal(Signal::HUP);
    eventually("a reload", LONG, || server.tree().text("error.log").contains("reloaded"));
    assert!(is_sent(&server, FETCHED), "{}", server.tree().text("error.log"));
}

#[test]
fn a_responder_is_named_by_the_configuration_and_found_by_the_resolver() {
    if !can_make_certificates() {
        return;
    }
    let (port, dns) = (free_port(), Dns::start());
    let tree = authority("http://127.0.0.1:9/");
    let _responder = Responder::start(&tree, port, "signer");
    let settings = format!(
        "resolver {} ipv6=off; ssl_stapling_responder http://ocsp.test:{port}/; ssl_stapling_verify on;",
        dns.address
    );
    let server = start(tree, &settings);
    // What fails is told, keeps nobody waiting and is tried again.
    eventually("a failure", LONG, || {
        server.tree().text("error.log").contains("ocsp.test has no address")
    });
    assert!(is_sent(&server, NONE));
    dns.set("ocsp.test", &[Ipv4Addr::LOCALHOST]);
    server.signal(Signal::HUP);
    eventually("a response", LONG, || is_sent(&server, FETCHED));
    assert!(dns.asked() >= 2);
}

#[test]
fn a_response_that_does_not_count_is_not_sent() {
    if !can_make_certificates() {
        return;
    }
    let table = [
        (GOOD, "stranger", "on", Some("the issuer has not authorized")),
        (GOOD, "stranger", "off", None),
        (REVOKED, "ca", "off", Some("the certificate has been revoked")),
    ];
    for (index, signer, verifies, refusal) in table {
        let port = free_port();
        let tree = authority(&format!("http://127.0.0.1:{port}"));
        tree.file("index.txt", index);
        let _responder = Responder::start(&tree, port, signer);
        let server = start(tree, &format!("ssl_stapling_verify {verifies};"));
        match refusal {
            Some(why) => {
                eventually("a refusal", LONG, || server.tree().text("error.log").contains(why));
                assert!(is_sent(&server, NONE), "{why}");
            }
            None => eventually("a response", LONG, || is_sent(&server, FETCHED)),
        }
    }
}

/// Responders that lie: one line says what is wrong, no response is sent, handshakes go on and memory is bounded.
#[test]
fn a_lying_responder_is_named_and_its_response_is_not_sent() {
    if !can_make_certificates() {
        return;
    }
    let rows: [(&str, usize, &str); 5] = [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n0\u{1}\u{2}\u{3}",
            0,
            "what it sent is no OCSP response",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", 64 << 20, "length limit exceeded"),
        ("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 0, "it answers 302"),
        ("SSH-2.0-OpenSSH_9.2\r\n", 0, "invalid HTTP version"),
        ("HTTP/1.1 200 OK\r\nX: ", 64 << 20, "message head is too large"),
    ];
    for (head, more, said) in rows {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("an address").port();
        // It ends with the test.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(head.as_bytes());
                let mut sent = 0;
                while sent < more && stream.write_all(&[b'a'; 16 << 10]).is_ok() {
                    sent += 16 << 10;
                }
            }
        });
        let server = start(authority(&format!("http://127.0.0.1:{port}/")), "");
        let before = server.rss_bytes();
        let line = || {
            let log = server.tree().text("error.log");
            log.lines().find(|line| line.contains("no OCSP response for")).map(str::to_owned)
        };
        eventually(said, LONG, || line().is_some());
        let line = line().unwrap_or_default();
        assert!(line.contains(said) && line.len() < 1000, "{said}: {line}");
        assert!(is_sent(&server, NONE), "{said}");
        let grown = server.rss_bytes().saturating_sub(before);
        assert!(grown < 16 << 20, "{said}: {grown} bytes");
    }
}

/// Makes a response to the question about `a.test` that is valid for 20 seconds more: its file.
fn ageing_response(tree: &Tree) -> Vec<u8> {
    openssl(tree, &["ocsp", "-issuer", "ca.pem", "-cert", "a.test.pem", "-reqout", "request"]);
    let made = Command::new("faketime")
        .args(["-f", "-40s", "openssl", "ocsp", "-index", "index.txt", "-CA", "ca.pem"])
        .args(["-rsigner", "ca.pem", "-rkey", "ca.key", "-reqin", "request"])
        .args(["-respout", "response", "-nmin", "1"])
        .current_dir(tree.dir())
        .stdin(Stdio::null())
        .output()
        .expect("faketime runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    tree.read("response")
}

/// S1: a responder that hangs when it is asked again. The response that is there is sent while it is valid, handshakes
/// go on without one after that, the log says why, and neither connections nor memory grow.
#[test]
fn a_responder_that_hangs_keeps_the_old_response_in_use() {
    if !can_make_certificates() || !have("faketime") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    let tree = authority(&format!("http://127.0.0.1:{port}/"));
    let response = ageing_response(&tree);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // It ends with the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            let length = if is_first { response.len() } else { 60_000 };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            if is_first {
                let _ = stream.write_all(&response);
                continue;
            }
            // A byte from time to time, and never the last one.
            std::thread::spawn(move || {
                while stream.write_all(b"0").is_ok() {
                    pause(Duration::from_millis(50));
                }
            });
        }
    });
    let server = start(tree, "ssl_stapling_verify on;");
    eventually("a response", LONG, || is_sent(&server, FETCHED));
    let (memory, descriptors) = (server.rss_bytes(), server.fds());
    eventually("a second request", LONG, || asked.load(Ordering::SeqCst) == 2);
    assert!(is_sent(&server, FETCHED), "{}", server.tree().text("error.log"));
    let log = || server.tree().text("error.log");
    eventually("a line about it", LONG, || log().contains("no answer within 30s; next try in"));
    assert!(is_sent(&server, NONE), "{}", log());
    eventually("its connection is closed", LONG, || server.fds() <= descriptors + 1);
    let grown = server.rss_bytes().saturating_sub(memory);
    assert!(grown < 4 << 20, "{grown} bytes");
    assert!(asked.load(Ordering::SeqCst) <= 4, "it is asked again and again");
}

#[test]
fn a_response_is_read_from_a_file() {
    if !can_make_certificates() {
        return;
    }
    let tree = authority("http://127.0.0.1:9/");
    openssl(&tree, &["ocsp", "-issuer", "ca.pem", "-cert", "a.test.pem", "-reqout", "request"]);
    let by = ["ocsp", "-index", "index.txt", "-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey"];
    let made = ["ca.key", "-reqin", "request", "-respout", "response", "-ndays", "1"];
    openssl(&tree, &[&by[..], &made].concat());
    let server = start(tree, "ssl_stapling_file {dir}/response;");
    assert!(is_sent(&server, FETCHED));
    assert!(
        !server.tree().text("error.log").contains("OCSP"),
        "{}",
        server.tree().text("error.log")
    );
}

#[test]
fn what_cannot_be_stapled_is_said_at_a_test() {
    if !can_make_certificates() {
        return;
    }
    let tree = authority("ftp://127.0.0.1/");
    tree.file("odd", "no response");
    let table = [
        ("", "warning", "is no http:// URL"),
        ("ssl_trusted_certificate {dir}/signer.pem;", "warning", "its issuer is not there"),
        ("ssl_stapling_file {dir}/odd;", "error", "is no OCSP response"),
        ("ssl_stapling_responder https://a.test/;", "error", "must begin with \"http://\""),
    ];
    for (settings, level, expected) in table {
        let trusted = "ssl_trusted_certificate {dir}/ca.pem;";
        let trusted = if settings.contains("trusted") { "" } else { trusted };
        let config = site(&format!("ssl_stapling on; {trusted} {settings} return 200;"));
        let dir = tree.dir().display().to_string();
        let text = config.replace("{dir}", &dir).replace("{root}", &dir).replace("{port}", "443");
        let path = tree.file("test.conf", text);
        let output = Command::new(BINARY).arg("-t").arg("-c").arg(&path).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected) && said.contains(level), "{settings}: {said}");
        assert_eq!(output.status.success(), level == "warning", "{said}");
    }
}
