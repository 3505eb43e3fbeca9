//! The engine and a real nginx. Skipped where there is none.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use sekisho_http::Version;
use sekisho_http::upstream::{NotReusable, Request, RequestBody, Timeouts, UpstreamProtocol};
use sekisho_http1::Client;
use sekisho_http1::client::Limits;

use crate::harness::pairs;
use crate::wire::{Answer, exchange, is_there, start};

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log /dev/null;
         events {{ worker_connections 100; }}
         http {{
             access_log off; client_max_body_size 0; keepalive_requests 100;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
             server {{
                 listen unix:{folder}/socket;
                 root {folder};
                 location /text {{ return 200 \"$request_method $http_x $content_length\"; }}
                 location /none {{ return 204; }}
                 location /chunked {{ gzip on; gzip_min_length 0; gzip_types *; gzip_http_version 1.0; alias {folder}/file; }}
                 location /echo {{ proxy_http_version 1.1; proxy_pass http://unix:{folder}/back:; }}
                 location /last {{ keepalive_timeout 0; return 200 last; }}
             }}
             server {{
                 listen unix:{folder}/back;
                 location / {{ return 200 \"$content_length $http_transfer_encoding\"; }}
             }}
         }}"
    )
}

#[test]
fn a_real_nginx_is_understood() {
    if !is_there("nginx", "-v") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("nginx.conf"), configuration(folder.path())).expect("written");
    fs::write(folder.path().join("file"), "x".repeat(300_000)).expect("written");
    let socket = folder.path().join("socket");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]);
    let _nginx = start(&mut command, &socket);

    let mut stream = UnixStream::connect(&socket).expect("connected");
    let mut client = Client::new(Limits::default(), Timeouts::default());
    let fields = pairs(&[("Host", "a"), ("X", "y"), ("Accept-Encoding", "gzip")]);
    let mut ask = |method: &str, target: &str, body: RequestBody, bytes: &[u8]| -> Answer {
        let request = Request {
            method: method.as_bytes(),
            target: target.as_bytes(),
            version: Version::Http11,
            pairs: &fields,
            body,
            keeps_alive: true,
        };
        let answer = exchange(&mut stream, &mut client, &request, bytes);
        assert_eq!(answer.failure, None, "{method} {target}");
        let expected = if target == "/last" { Err(NotReusable::PeerAsked) } else { Ok(()) };
        assert_eq!(client.reuse(), expected, "{method} {target}");
        answer
    };
    // All over one connection.
    let answer = ask("GET", "/text", RequestBody::None, b"");
    assert_eq!((answer.head.status.code(), answer.text()), (200, "GET y ".to_owned()));
    let answer = ask("HEAD", "/file", RequestBody::None, b"");
    assert_eq!((answer.head.content_length, answer.head.has_body), (Some(300_000), false));
    assert_eq!(ask("GET", "/file", RequestBody::None, b"").body, vec![b'x'; 300_000]);
    let answer = ask("GET", "/chunked", RequestBody::None, b"");
    assert_eq!((answer.head.content_length, answer.head.has_body), (None, true));
    assert!(answer.body.starts_with(&[0x1f, 0x8b]) && answer.body.len() < 10_000);
    assert_eq!(ask("GET", "/none", RequestBody::None, b"").head.status.code(), 204);
    assert_eq!(ask("GET", "/missing", RequestBody::None, b"").head.status.code(), 404);
    let body = vec![b'b'; 200_000];
    let answer = ask("POST", "/text", RequestBody::Known(200_000), &body);
    assert_eq!(answer.text(), "POST y 200000");
    // nginx reads the chunks and tells how long they were.
    let answer = ask("POST", "/echo", RequestBody::Unknown, &body);
    assert_eq!(answer.text(), "200000 ");
    assert_eq!(ask("GET", "/last", RequestBody::None, b"").text(), "last");
}
