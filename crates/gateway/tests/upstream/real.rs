//! The engines and real applications: PHP by FastCGI, Python by uwsgi, SCGI and FastCGI. Skipped where they
//! are not installed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use sekisho_gateway::SingleRequest;
use sekisho_gateway::fastcgi::FastCgi;
use sekisho_gateway::uwsgi::Modifiers;
use sekisho_http::upstream::{NotReusable, Request, RequestBody, Timeouts, UpstreamProtocol};
use sekisho_http::{Fields, Version};

use crate::harness::pairs;
use crate::wire::{Answer, exchange, is_there, start};

const HEAD_BYTES_MAX: usize = 8192;

fn ask(
    stream: &mut UnixStream,
    engine: &mut dyn UpstreamProtocol,
    params: &Fields,
    method: &str,
    body: &[u8],
) -> Answer {
    let length = RequestBody::Known(body.len() as u64);
    let request = Request {
        method: method.as_bytes(),
        target: b"",
        version: Version::Http11,
        pairs: params,
        body: if body.is_empty() { RequestBody::None } else { length },
        keeps_alive: true,
    };
    exchange(stream, engine, &request, body)
}

fn params(method: &str, script: &Path) -> Fields {
    let mut params = pairs(&[
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "a"),
        ("SERVER_PORT", "80"),
        ("SCRIPT_NAME", ""),
        ("PATH_INFO", "/x"),
        ("REQUEST_URI", "/x?y"),
        ("QUERY_STRING", "y"),
        ("CONTENT_TYPE", "application/octet-stream"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_X", "z"),
    ]);
    params.push(b"REQUEST_METHOD", method.as_bytes());
    params.push(b"SCRIPT_FILENAME", script.display().to_string().as_bytes());
    params
}

#[test]
fn php_is_understood() {
    if !is_there("php-cgi", "-v") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("a.php");
    let text = "<?php http_response_code(201); header('X-Y: ' . $_SERVER['HTTP_X']);
        error_log('to the log'); $body = file_get_contents('php://input');
        echo $_SERVER['REQUEST_METHOD'], ' ', strlen($body), ' ', md5($body), ' ', str_repeat('x', 200000);";
    fs::write(&script, text).expect("written");
    let socket = folder.path().join("socket");
    let mut command = Command::new("php-cgi");
    let _php = start(command.arg("-b").arg(&socket), &socket);
    let mut stream = UnixStream::connect(&socket).expect("connected");
    let mut engine = FastCgi::new(HEAD_BYTES_MAX, Timeouts::default());
    for body in [vec![], vec![b'b'; 150_000], b"b".to_vec()] {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let answer = ask(&mut stream, &mut engine, &params(method, &script), method, &body);
        assert_eq!(answer.failure, None);
        assert_eq!(answer.head.status.code(), 201);
        assert_eq!(answer.head.fields.get("x-y"), Some(b"z".as_slice()));
        let start = format!("{method} {} ", body.len());
        assert!(answer.text().starts_with(&start), "{}", &answer.text()[..60]);
        assert_eq!(answer.body.len(), start.len() + 33 + 200_000);
        assert_eq!(engine.reuse(), Ok(()), "one connection for all");
    }
    let missing = params("GET", &folder.path().join("missing.php"));
    let answer = ask(&mut stream, &mut engine, &missing, "GET", b"");
    assert_eq!((answer.failure, answer.head.status.code()), (None, 404));
}

#[test]
fn python_is_understood_by_three_protocols() {
    if !is_there("uwsgi", "--version") || !is_there("uwsgi_python3", "--version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("app.py");
    let text = "def application(e, start):
    body = e['wsgi.input'].read(int(e.get('CONTENT_LENGTH') or 0))
    start('202 Accepted', [('X-Y', e['HTTP_X']), ('Content-Type', 'text/plain')])
    return [('%s %d %s ' % (e['REQUEST_METHOD'], len(body), e['PATH_INFO'])).encode(), b'x' * 100000]\n";
    fs::write(&script, text).expect("written");
    let socket = |name: &str| folder.path().join(name);
    let mut command = Command::new("uwsgi_python3");
    command.arg("--socket").arg(socket("uwsgi")).arg("--scgi-socket").arg(socket("scgi"));
    command.arg("--fastcgi-socket").arg(socket("fastcgi")).arg("--wsgi-file").arg(&script);
    let _uwsgi = start(&mut command, &socket("fastcgi"));
    let timeouts = Timeouts::default();
    for name in ["uwsgi", "scgi", "fastcgi"] {
        for body in [vec![], vec![b'b'; 150_000]] {
            let mut engine: Box<dyn UpstreamProtocol> = match name {
                "uwsgi" => {
                    let modifiers = Modifiers::default();
                    Box::new(SingleRequest::uwsgi(modifiers, HEAD_BYTES_MAX, timeouts))
                }
                "scgi" => Box::new(SingleRequest::scgi(HEAD_BYTES_MAX, timeouts)),
                _ => Box::new(FastCgi::new(HEAD_BYTES_MAX, timeouts)),
            };
            let mut stream = UnixStream::connect(socket(name)).expect("connected");
            let method = if body.is_empty() { "GET" } else { "PUT" };
            let answer = ask(&mut stream, &mut *engine, &params(method, &script), method, &body);
            assert_eq!(answer.failure, None, "{name}");
            assert_eq!(answer.head.status.code(), 202, "{name}");
            assert_eq!(answer.head.fields.get("x-y"), Some(b"z".as_slice()), "{name}");
            let start = format!("{method} {} /x ", body.len());
            assert!(answer.text().starts_with(&start), "{name}");
            assert_eq!(answer.body.len(), start.len() + 100_000, "{name}");
            let reuse = engine.reuse();
            assert!(name == "fastcgi" || reuse == Err(NotReusable::Protocol), "{name}");
        }
    }
}
