//! uwsgi over TLS (`suwsgi://`, `uwsgi_ssl_*`): `stream` takes TLS off before the application.

use std::io::{Read, Write};

use sekisho_testkit::{Server, have};

use crate::Backend;
use crate::common::BINARY;
use crate::secured::certified;

/// Reads the head of a uwsgi request and answers with what it was asked for.
fn application() -> Backend {
    Backend::start(|mut stream| {
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let mut params = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]]))];
        let _ = stream.read_exact(&mut params);
        let text = String::from_utf8_lossy(&params).into_owned();
        let found = if text.contains("/hello") { "hello" } else { "nothing" };
        let answer = format!("Status: 200 OK\r\nContent-Length: {}\r\n\r\n{found}", found.len());
        let _ = stream.write_all(answer.as_bytes());
    })
}

#[test]
fn applications_are_asked_by_tls() {
    if !have("openssl") {
        return;
    }
    let tree = certified(&["one.test", "two.test"]);
    let backend = application();
    let config = format!(
        "worker_processes 1; error_log {{dir}}/error.log debug; events {{ }}
         stream {{ server {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/one.test.crt;
           ssl_certificate_key {{dir}}/one.test.key; proxy_pass {}; }} }}
         http {{ access_log off; server {{ listen 127.0.0.1:{{port}};
           uwsgi_param REQUEST_URI $request_uri; uwsgi_ssl_verify on; uwsgi_ssl_server_name on;
           uwsgi_ssl_trusted_certificate {{dir}}/one.test.crt;
           location / {{ uwsgi_pass suwsgi://127.0.0.1:{{port2}}; uwsgi_ssl_name one.test; }}
           location /other {{ uwsgi_pass suwsgi://127.0.0.1:{{port2}}; uwsgi_ssl_name two.test; }} }} }}",
        backend.address
    );
    let server = Server::start_in(tree, BINARY, &config);
    assert_eq!(server.connect().get("/hello").text(), "hello", "{}", server.log("error.log"));
    assert_eq!(server.connect().get("/other").status, 502, "its certificate has another name");
}
