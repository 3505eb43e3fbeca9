//! Authorities that lie: the certificate in use stays, one line of the log says what is wrong, and nothing grows.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sekisho_testkit::{Server, Tree, eventually, have};
use sha2::{Digest, Sha256};

use crate::common::{BINARY, LONG};
use crate::shown;

/// What an authority does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    GarbageDirectory,
    EndlessDirectory,
    PlainDirectory,
    RedirectForEver,
    LongProblem,
    NeverReady,
    OtherName,
    RunOut,
    OtherKey,
    NoCertificate,
}

/// Each with what the log says of it.
const LIES: &[(Lie, &str)] = &[
    (Lie::GarbageDirectory, "expected"),
    (Lie::EndlessDirectory, "length limit exceeded"),
    (Lie::PlainDirectory, "is no https:// URL"),
    (Lie::RedirectForEver, "no certificate for"),
    (Lie::LongProblem, "xxxxxxxx"),
    (Lie::NeverReady, "no certificate for"),
    (Lie::OtherName, "what was issued is not for a.test"),
    (Lie::RunOut, "what was issued is not valid now"),
    (Lie::OtherKey, "what was issued cannot be used"),
    (Lie::NoCertificate, "what was issued has no certificate in it"),
];

/// An authority with one lie. Its thread ends with the test.
fn authority(folder: PathBuf, lie: Lie) -> u16 {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let secret = rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            socket.set_read_timeout(Some(LONG)).expect("an option");
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            serve(StreamOwned::new(connection, socket), port, &folder, lie);
        }
    });
    port
}

/// One request.
fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    port: u16,
    folder: &Path,
    lie: Lie,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?;
    let base = format!("https://localhost:{port}");
    if lie == Lie::EndlessDirectory && path == "/dir" {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok()?;
        // Far more than anybody should take.
        for _ in 0..4096 {
            stream.write_all(&[b' '; 16 << 10]).ok()?;
        }
        return Some(());
    }
    let (status, more, text) = respond(path, &base, &body, folder, lie)?;
    let response = format!(
        "HTTP/1.1 {status}\r\nReplay-Nonce: bm9uY2U\r\nContent-Type: application/json\r\nConnection: close\r\n{more}Content-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(response.as_bytes()).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

fn respond(
    path: &str,
    base: &str,
    body: &[u8],
    folder: &Path,
    lie: Lie,
) -> Option<(&'static str, String, String)> {
    let order = |status: &str| {
        format!(
            r#"{{"status":"{status}","identifiers":[{{"type":"dns","value":"a.test"}}],"authorizations":["{base}/authz"],"finalize":"{base}/finalize","certificate":"{base}/certificate"}}"#
        )
    };
    let at = |path: &str| format!("Location: {base}{path}\r\n");
    Some(match (path, lie) {
        ("/dir", Lie::GarbageDirectory) => ("200 OK", String::new(), "<html>".to_owned()),
        ("/dir", Lie::RedirectForEver) => ("302 Found", at("/dir"), String::new()),
        ("/dir", _) => {
            let base = if lie == Lie::PlainDirectory { "http://localhost:1" } else { base };
            let text = format!(
                r#"{{"newNonce":"{base}/nonce","newAccount":"{base}/account","newOrder":"{base}/order"}}"#
            );
            ("200 OK", String::new(), text)
        }
        ("/nonce", _) => ("200 OK", String::new(), String::new()),
        ("/account", _) => ("201 Created", at("/account/1"), r#"{"status":"valid"}"#.to_owned()),
        ("/order", Lie::LongProblem) => {
            let detail = "x".repeat(900_000);
            let kind = "urn:ietf:params:acme:error:malformed";
            let text = format!(r#"{{"type":"{kind}","detail":"{detail}","status":400}}"#);
            ("400 Bad Request", String::new(), text)
        }
        ("/order", _) => ("201 Created", at("/order/1"), order("pending")),
        ("/authz", _) => {
            let text = r#"{"status":"valid","identifier":{"type":"dns","value":"a.test"},"challenges":[]}"#;
            ("200 OK", String::new(), text.to_owned())
        }
        ("/order/1", Lie::NeverReady) => {
            ("200 OK", format!("Retry-After: {}\r\n", u64::MAX), order("processing"))
        }
        ("/order/1", _) => {
            let is_issued = folder.join("issued.pem").exists();
            ("200 OK", String::new(), order(if is_issued { "valid" } else { "ready" }))
        }
        ("/finalize", _) => {
            issue(body, folder, lie)?;
            ("200 OK", String::new(), order("valid"))
        }
        ("/certificate", _) => {
            let chain = std::fs::read_to_string(folder.join("issued.pem")).ok()?;
            ("200 OK", String::new(), chain)
        }
        _ => return None,
    })
}

/// Signs what was asked for, wrongly.
fn issue(body: &[u8], folder: &Path, lie: Lie) -> Option<()> {
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let envelope: serde_json::Value = serde_json::from_slice(body).ok()?;
    let payload: serde_json::Value =
        serde_json::from_slice(&decoded(envelope["payload"].as_str()?)?).ok()?;
    std::fs::write(folder.join("csr.der"), decoded(payload["csr"].as_str()?)?).ok()?;
    let name = if lie == Lie::OtherName { "evil.test" } else { "a.test" };
    std::fs::write(folder.join("names"), format!("subjectAltName=DNS:{name}")).ok()?;
    let days = if lie == Lie::RunOut { "0" } else { "90" };
    let script = match lie {
        Lie::OtherKey => "cp ca.pem issued.pem".to_owned(),
        Lie::NoCertificate => "echo nothing > issued.pem".to_owned(),
        _ => format!(
            "openssl x509 -req -inform DER -in csr.der -CA ca.pem -CAkey ca.key -CAcreateserial \
             -days {days} -extfile names -out issued.pem"
        ),
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    shell.status().ok()?.success().then_some(())
}

/// A certificate that is to be renewed, as an earlier run has left it.
fn leave_old(tree: &Tree, uri: &str) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(1975, 1, 1);
    params.not_after = rcgen::date_time_ymd(2045, 1, 1);
    let old = params.self_signed(&key).expect("a certificate");
    let hash = Sha256::digest(format!("{uri} a.test P256"));
    let hash = hash.first_chunk().copied().map_or(0, u32::from_be_bytes);
    let file = format!("state/a.test-{hash:08x}.pem");
    tree.file(&file, format!("{}{}", key.serialize_pem(), old.pem()));
    tree.mode("state", 0o700);
}

#[test]
fn a_lying_authority_replaces_no_certificate() {
    if !have("openssl") {
        return;
    }
    std::thread::scope(|scope| {
        for (lie, said) in LIES {
            scope.spawn(move || lied_to(*lie, said));
        }
    });
}

fn lied_to(lie: Lie, said: &str) {
    let tree = Tree::new();
    let folder = tree.folder("authority");
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a.test \
                  -keyout ca.key -out ca.pem -days 30";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(&folder).stdin(Stdio::null()).stderr(Stdio::null());
    assert!(shell.status().expect("a shell runs").success());
    let port = authority(folder, lie);
    let uri = format!("https://localhost:{port}/dir");
    leave_old(&tree, &uri);
    let config = format!(
        "worker_processes 1; error_log {{dir}}/error.log info; events {{}}
         http {{ access_log off;
           acme_issuer test {{ uri {uri}; ssl_verify off; accept_terms_of_service; state_path {{dir}}/state; }}
           acme_shared_zone zone=certificates:1M;
           server {{ listen 127.0.0.1:{{port}} ssl; server_name a.test; acme_certificate test;
             ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; return 200 served; }} }}"
    );
    let server = Server::start_in(tree, BINARY, &config);
    let port = server.address().port();
    let old = shown(port, "a.test").expect("the old certificate");
    let before = server.rss_bytes();
    let lines = || {
        let log = server.tree().text("error.log");
        let lines = log.lines().filter(|line| line.contains("no certificate for a.test: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually(&format!("{lie:?}"), LONG, || !lines().is_empty());
    let lines = lines();
    // One for each attempt, and these become rarer.
    assert!(lines.len() <= 3 && lines[0].contains(said), "{lie:?}: {lines:?}");
    assert!(lines[0].len() < 1000 && lines[0].contains("next try in"), "{lie:?}: {lines:?}");
    assert_eq!(shown(port, "a.test").as_deref(), Some(&*old), "{lie:?}");
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{lie:?}: {grown} bytes");
}
