//! Real clients over real sockets: h2spec (strict), curl, nghttp and h2load, each where it is installed; `H2SPEC`
//! may name the first. The server is the small blocking one of `examples/serve.rs`.
#![allow(missing_docs, reason = "tests")]

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

#[allow(dead_code, unreachable_pub, reason = "an example that is borrowed")]
#[path = "../examples/serve.rs"]
mod serve;

/// How many bytes the server answers with: more than the windows of clients.
const BODY_BYTES: usize = 300_000;
/// What none of the clients needs.
const SECONDS_MAX: &str = "120";

/// Starts a server, which ends with the test; its port.
fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || serve::serve(&listener, BODY_BYTES));
    port.to_string()
}

/// Runs a client to its end; what it said. `None` where it is not installed.
fn output(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().ok()?;
    if !found.status.success() {
        println!("{program} is not installed");
        return None;
    }
    let mut child = Command::new("timeout")
        .arg(SECONDS_MAX)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let output = child.wait_with_output().expect("it ends");
    writer.join().ok();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{program} failed: {text}");
    Some(output.stdout)
}

/// M1, V13
#[test]
fn h2spec_finds_nothing() {
    let program = std::env::var("H2SPEC").unwrap_or_else(|_| "h2spec".into());
    let port = port();
    let arguments = ["-h", "127.0.0.1", "-p", &port, "--strict", "-o", "5"];
    if let Some(said) = output(&program, &arguments, b"") {
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("147 tests, 147 passed, 0 skipped, 0 failed"), "{said}");
    }
}

#[test]
fn curl_and_nghttp_send_and_receive_large_bodies() {
    let url = format!("http://127.0.0.1:{}", port());
    let text: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let get = ["-s", "--http2-prior-knowledge", &format!("{url}/file")];
    if let Some(body) = output("curl", &get, b"") {
        assert_eq!(body.len(), BODY_BYTES);
    }
    let echo = format!("{url}/echo");
    let put = ["-s", "--http2-prior-knowledge", "--data-binary", "@-", &echo];
    if let Some(body) = output("curl", &put, &text) {
        assert!(body == text, "{} bytes came back", body.len());
    }
    if let Some(body) = output("nghttp", &["-d", "-", &echo], &text) {
        assert!(body == text, "{} bytes came back", body.len());
    }
}

#[test]
fn h2load_fails_no_request() {
    let url = format!("http://127.0.0.1:{}/", port());
    let arguments = ["-n", "300", "-c", "3", "-m", "20", &url];
    if let Some(said) = output("h2load", &arguments, b"") {
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("300 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    }
}
