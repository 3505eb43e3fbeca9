//! Configurations and requests of our own choice, the same to nginx and to this server: what has once differed.
//! A request is its head without `Host` (that is the case's) and without the empty line; `\n` stands for CRLF.

use sekisho_testkit::{Client, Response, Server, Tree, have};

use crate::common::BINARY;
use crate::{NGINX, own_config, their_config};

/// A part of a `server` block, and requests to it.
type Case = (&'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    // Fields with odd names.
    (
        "return 200 \"text:$http_x_auth|$http_x_plain\";",
        &["GET / HTTP/1.1\nX_Auth: a\nX-Plain: b", "GET / HTTP/1.1\nX.Plain: a\nX-Auth: b"],
    ),
    (
        "underscores_in_headers on; return 200 \"text:$http_x_auth|$http_x_plain\";",
        &["GET / HTTP/1.1\nX_Auth: a\nX-Plain: b", "GET / HTTP/1.1\nX.Plain: a\nX!: b"],
    ),
    (
        "ignore_invalid_headers off; return 200 \"text:$http_x_auth\";",
        &["GET / HTTP/1.1\nX_Auth: a", "GET / HTTP/1.1\nX.Auth: a"],
    ),
    // Methods are judged by the handler that is reached.
    (
        "location /r { return 308 /x; } location /c { return 444; } location /f/ { error_page 405 =200 /a.txt; }
         location /i { if ($request_method = PROPFIND) { return 200 text:propfind; } }
         location /m/ { error_page 404 = @app; } location @app { return 200 text:app; }",
        &[
            "PATCH /r HTTP/1.1",
            "BREW /r HTTP/1.1",
            "PROPFIND /c HTTP/1.1",
            "PROPFIND /i HTTP/1.1",
            "POST /m/x HTTP/1.1\nContent-Length: 0",
            "POST /a.txt HTTP/1.1\nContent-Length: 0",
            "PUT /f/x HTTP/1.1\nContent-Length: 0",
            "TRACE / HTTP/1.1",
        ],
    ),
    // Encoded slashes, and what is made of them.
    (
        "location /r/ { return 301 /x$uri; } location /p/ { return 200 text:$uri|$request_uri; }",
        &[
            "GET /r/a%2Fb HTTP/1.1",
            "GET /p%2fa%2F%2e%2e%2Fb HTTP/1.1",
            "GET /p/a%2F%2Fb HTTP/1.1",
            "GET /p%2F..%2fa.txt HTTP/1.1",
            "GET /..%2fa.txt HTTP/1.1",
        ],
    ),
    // `try_files` and `rewrite` to a path without a slash find its location.
    (
        "location / { try_files $uri app.php; } location ~ \\.php$ { return 200 text:$uri; }
         location /w/ { rewrite ^/w/(.*)$ $1.php last; }",
        &["GET /missing HTTP/1.1", "GET /w/x HTTP/1.1"],
    ),
];

fn files() -> Tree {
    let tree = Tree::new();
    for (name, content) in [
        ("root/a.txt", "file:a"),
        ("root/index.html", "file:index"),
        ("root/sub/index.html", "file:sub"),
        ("root/page.html", "file:page"),
        ("root/large.txt", &*"file:large ".repeat(200)),
    ] {
        tree.file(name, content);
    }
    tree.mode(".", 0o755);
    tree
}

/// What is compared of an answer; pages for errors and redirects are each server's own.
fn seen(server: &Server, response: &Response) -> String {
    let port = format!(":{}", server.address().port());
    let names = [
        "location",
        "x-a",
        "x-b",
        "x-c",
        "cache-control",
        "expires",
        "last-modified",
        "content-range",
        "keep-alive",
        "www-authenticate",
    ];
    let mut lines = vec![response.status.to_string()];
    for name in names {
        let values = response.fields_named(name);
        lines.extend(values.iter().map(|value| format!("{name}: {}", value.replace(&port, ""))));
    }
    let text = response.text();
    let is_told = ["file:", "text:"].iter().any(|start| text.starts_with(start));
    lines.push(if is_told || response.status == 206 { text } else { "page".to_owned() });
    lines.join("; ")
}

fn ask(server: &Server, host: usize, request: &str) -> String {
    let mut client: Client = server.connect();
    let is_head = request.starts_with("HEAD ");
    let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
    let mut head = format!("{line}\nHost: c{host}\n");
    if !fields.is_empty() {
        head += fields;
        head.push('\n');
    }
    client.send((head + "\n").replace('\n', "\r\n"));
    match client.try_read_response(is_head) {
        Ok(response) => seen(server, &response),
        Err(_) => "no answer".to_owned(),
    }
}

/// F7: the same configuration and the same requests give the same answers.
#[test]
fn what_has_once_differed_does_not_differ() {
    if !have(NGINX) {
        return;
    }
    let files = files();
    let mut body =
        "access_log off; default_type text/plain; types { text/html html; text/plain txt; }\n"
            .to_owned();
    for (at, (text, _)) in CASES.iter().enumerate() {
        body += &format!(
            "server {{ listen 127.0.0.1:{{port}}; server_name c{at}; root {{files}}/root; {text} }}\n"
        );
    }
    let body = body.replace("{files}", &files.dir().display().to_string());
    let theirs = Server::start_in(Tree::new(), NGINX, &their_config(&body));
    let own = Server::start_in(Tree::new(), BINARY, &own_config(&body));
    let mut differing = Vec::new();
    for (at, (text, requests)) in CASES.iter().enumerate() {
        for request in *requests {
            let (theirs, own) = (ask(&theirs, at, request), ask(&own, at, request));
            if theirs != own {
                differing.push(format!("{text}\n  {request:?}\n  nginx: {theirs}\n  ours:  {own}"));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
