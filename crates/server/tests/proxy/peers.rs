//! A real nginx behind us, by TCP and by a Unix socket.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use sekisho_testkit::{Background, Server, Tree, eventually, have};

use crate::common::{BINARY, LONG, http, pattern};

#[test]
fn nginx_answers_behind_us() {
    if !have("nginx") {
        return;
    }
    let tree = Tree::new();
    let dir = tree.dir().display().to_string();
    tree.file("back/large.bin", pattern(3 << 20));
    tree.file("back/small.txt", "small");
    tree.folder("temp");
    tree.file(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log; worker_processes 1; events {{ }}
             http {{ access_log off; client_body_temp_path {dir}/temp/a; proxy_temp_path {dir}/temp/b; fastcgi_temp_path {dir}/temp/c;
               uwsgi_temp_path {dir}/temp/d; scgi_temp_path {dir}/temp/e;
               server {{ listen unix:{dir}/nginx.sock; root {dir}/back; location /host {{ return 200 $host; }}
                 location /gone {{ return 301 /else; }} }} }}"
        ),
    );
    let socket = tree.path("nginx.sock");
    let config = tree.path("nginx.conf");
    let _nginx = Background::start(
        Command::new("nginx").arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()),
    );
    eventually("nginx", LONG, || UnixStream::connect(&socket).is_ok());
    let body = format!(
        "upstream back {{ server unix:{dir}/nginx.sock; keepalive 4; }}
         server {{ listen 127.0.0.1:{{port}}; gzip on; gzip_types text/plain; gzip_min_length 1;
           location / {{ proxy_pass http://back; proxy_set_header Host $host; }}
           location /direct/ {{ proxy_pass http://unix:{dir}/nginx.sock:/; }} }}"
    );
    let server = Server::start_in(tree, BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/small.txt").text(), "small", "{}", server.log("error.log"));
    assert!(client.get("/large.bin").body == pattern(3 << 20));
    assert_eq!(client.get("/direct/small.txt").text(), "small");
    assert_eq!(client.get("/host").text(), "localhost");
    let part = client.request("GET", "/large.bin", "Range: bytes=10-19\r\n");
    assert_eq!((part.status, part.body.as_slice()), (206, &pattern(20)[10..]));
    let etag = client.get("/small.txt").field("etag").expect("one").to_owned();
    let response = client.request("GET", "/small.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(response.status, 304);
    let zipped = client.request("GET", "/small.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.field("content-encoding"), Some("gzip"));
    assert_eq!(client.get("/gone").field("location"), Some("http://localhost/else"));
    assert_eq!(client.get("/nosuch").status, 404);
}

/// `https://`: with a certificate that is trusted, one that is not, and one that is not verified.
#[test]
fn servers_are_asked_by_tls() {
    if !have("nginx") || !have("openssl") {
        return;
    }
    let tree = Tree::new();
    let dir = tree.dir().display().to_string();
    for name in ["good", "other"] {
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ])
            .args(["-keyout", &format!("{dir}/{name}.key"), "-out", &format!("{dir}/{name}.pem")])
            .args([
                "-days",
                "3",
                "-subj",
                "/CN=back.test",
                "-addext",
                "subjectAltName=DNS:back.test",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("openssl runs").success());
    }
    tree.file("back/large.bin", pattern(1 << 20));
    tree.folder("temp");
    tree.file(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log; worker_processes 1; events {{ }}
             http {{ access_log off; client_body_temp_path {dir}/temp/a; proxy_temp_path {dir}/temp/b; fastcgi_temp_path {dir}/temp/c;
               uwsgi_temp_path {dir}/temp/d; scgi_temp_path {dir}/temp/e;
               server {{ listen unix:{dir}/nginx.sock ssl; root {dir}/back; ssl_certificate {dir}/good.pem;
                 ssl_certificate_key {dir}/good.key; ssl_verify_client optional_no_ca;
                 location /sni {{ return 200 \"$ssl_server_name|$ssl_client_s_dn|$ssl_session_reused\"; }} }} }}"
        )
        .replace('\\', ""),
    );
    let socket = tree.path("nginx.sock");
    let _nginx = Background::start(
        Command::new("nginx")
            .arg("-c")
            .arg(tree.path("nginx.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    eventually("nginx", LONG, || UnixStream::connect(&socket).is_ok());
    let body = format!(
        "upstream back {{ server unix:{dir}/nginx.sock; keepalive 2; }}
         server {{ listen 127.0.0.1:{{port}};
           location / {{ proxy_pass https://back; }}
           location /named/ {{ proxy_pass https://back/; proxy_ssl_server_name on; proxy_ssl_name back.test; proxy_ssl_verify on;
             proxy_ssl_trusted_certificate {dir}/good.pem; proxy_ssl_certificate {dir}/other.pem; proxy_ssl_certificate_key {dir}/other.key; }}
           location /wrong {{ proxy_pass https://back; proxy_ssl_verify on; proxy_ssl_name back.test; proxy_ssl_trusted_certificate {dir}/other.pem; }}
           location /misnamed {{ proxy_pass https://back; proxy_ssl_verify on; proxy_ssl_name else.test; proxy_ssl_trusted_certificate {dir}/good.pem; }} }}"
    );
    let server = Server::start_in(tree, BINARY, &http(&body));
    let ask = |target: &str| server.connect().get(target);
    assert!(ask("/large.bin").body == pattern(1 << 20), "{}", server.log("error.log"));
    assert!(ask("/sni").text().starts_with("||"));
    let named = ask("/named/sni").text();
    assert!(named.starts_with("back.test|CN=back.test|"), "{named} {}", server.log("error.log"));
    for wrong in ["/wrong", "/misnamed"] {
        assert_eq!(ask(wrong).status, 502, "{wrong}");
    }
    let log = server.log("error.log");
    assert!(log.contains("SSL_do_handshake() failed"), "{log}");
}
