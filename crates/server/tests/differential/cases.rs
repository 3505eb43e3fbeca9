//! Configurations and requests of our own choice, the same to nginx and to this server: what has once differed.
//! A request is its head without `Host` (that is the case's) and without the empty line; `\n` means CRLF.

use std::fmt::Write as _;

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
    // Fields that are added.
    (
        "add_header Last-Modified \"Mon, 28 Sep 1970 06:00:00 GMT\"; add_header ETag x; add_header X-A a;
         add_header X-B $sent_http_x_a; add_header X-C $sent_http_last_modified;
         location /none { add_header Last-Modified \"\"; add_header ETag $arg_none; return 200 text:; }
         location /a.txt { add_header last-modified $arg_none; }",
        &["GET /a.txt HTTP/1.1", "GET /page.html HTTP/1.1", "GET /none HTTP/1.1", "HEAD /page.html HTTP/1.1"],
    ),
    ("return 200 \"text:$cookie_a|$cookie_b\";", &["GET / HTTP/1.1\nCookie: a=1,2; b=\"x, y\"", "GET / HTTP/1.1\nCookie: b=1; A=2"]),
    ("return 405;", &["GET / HTTP/1.1", "POST / HTTP/1.1\nContent-Length: 0"]),
    (
        "error_page 301 302 308 /page.html; location /r { return 302 http://elsewhere.test/; } location /s { return 308 /t; }
         location /n { error_page 302 = @named; return 302 /o; } location @named { return 200 text:named; }
         location /d { error_page 302 =200 /a.txt; return 302 /o; }",
        &["GET /r HTTP/1.1", "GET /s HTTP/1.1", "GET /n HTTP/1.1", "GET /d HTTP/1.1", "GET /sub HTTP/1.1"],
    ),
    // Fields that may come once.
    (
        "return 200 text:;",
        &[
            "GET / HTTP/1.1\nAuthorization: Basic YTpi\nAuthorization: Basic YTpi",
            "GET / HTTP/1.1\nIf-Modified-Since: x\nIf-Modified-Since: x",
            "GET / HTTP/1.1\nIf-Unmodified-Since: x\nIf-Unmodified-Since: x",
            "GET / HTTP/1.1\nIf-Range: x\nIf-Range: x",
            "PUT / HTTP/1.1\nContent-Length: 0\nContent-Range: x\nContent-Range: x",
            "GET / HTTP/1.1\nReferer: x\nReferer: y",
        ],
    ),
    // Ranges, good and bad.
    (
        "",
        &[
            "GET /a.txt HTTP/1.1\nRange: bytes=0-3",
            "GET /a.txt HTTP/1.1\nRange: bytes=-1",
            "GET /a.txt HTTP/1.1\nRange: bytes=",
            "GET /a.txt HTTP/1.1\nRange: bytes=a-b",
            "GET /a.txt HTTP/1.1\nRange: bytes=3-1",
            "GET /a.txt HTTP/1.1\nRange: bytes=-",
            "GET /a.txt HTTP/1.1\nRange: bytes=0-1-2",
            "GET /a.txt HTTP/1.1\nRange: bytes=100-",
            "GET /a.txt HTTP/1.1\nRange: lines=0-3",
            "GET /a.txt HTTP/1.1\nRange: bytes",
        ],
    ),
    // Expressions that linear matching cannot do.
    (
        "location ~ ^/(?:build|config(?!uration))(?:$|/) { return 200 text:no; }
         location ~ ^/(.)\\1(?<!x)$ { return 200 text:$1; }
         location ~ \"^/(?>a+)b\" { return 200 text:atomic; }
         location ~ ^/\\Qq.r\\E$ { return 200 text:quoted; } location / { return 200 text:other; }",
        &[
            "GET /config/x HTTP/1.1",
            "GET /configuration/x HTTP/1.1",
            "GET /zz HTTP/1.1",
            "GET /xx HTTP/1.1",
            "GET /%ff%ff HTTP/1.1",
            "GET /aab HTTP/1.1",
            "GET /q.r HTTP/1.1",
            "GET /qxr HTTP/1.1",
        ],
    ),
    ("location / { try_files $uri @missing; }", &["GET /none HTTP/1.1", "GET /a.txt HTTP/1.1"]),
    ("keepalive_timeout 7s 5s;", &["GET /a.txt HTTP/1.1", "GET /a.txt HTTP/1.1\nConnection: close", "GET /a.txt HTTP/1.0"]),
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

fn ask(server: &Server, host: &str, request: &str) -> String {
    let mut client: Client = server.connect();
    let is_head = request.starts_with("HEAD ");
    let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
    let mut head = format!("{line}\nHost: {host}\n");
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
    // Two maps of one variable: the last one has it. `.name` is called by its name.
    body += "map $uri $twice { default first; } map $uri $twice { default last; }\n\
             server { listen 127.0.0.1:{port}; server_name .dot.test; server_name_in_redirect on;\n\
             location /s { return 200 text:$server_name|$twice; } location /r { return 301 /x; } }\n";
    for (at, (text, _)) in CASES.iter().enumerate() {
        let _ = writeln!(
            body,
            "server {{ listen 127.0.0.1:{{port}}; server_name c{at}; root {{files}}/root; {text} }}"
        );
    }
    let body = body.replace("{files}", &files.dir().display().to_string());
    let theirs = Server::start_in(Tree::new(), NGINX, &their_config(&body));
    let own = Server::start_in(Tree::new(), BINARY, &own_config(&body));
    let mut differing = Vec::new();
    for (at, (text, requests)) in CASES.iter().enumerate() {
        for request in *requests {
            let host = format!("c{at}");
            let (theirs, own) = (ask(&theirs, &host, request), ask(&own, &host, request));
            if theirs != own {
                differing.push(format!("{text}\n  {request:?}\n  nginx: {theirs}\n  ours:  {own}"));
            }
        }
    }
    for (host, target) in [("dot.test", "/s"), ("a.dot.test", "/s"), ("a.dot.test", "/r")] {
        let request = format!("GET {target} HTTP/1.1");
        let (theirs, own) = (ask(&theirs, host, &request), ask(&own, host, &request));
        if theirs != own {
            differing.push(format!("{host}{target}\n  nginx: {theirs}\n  ours:  {own}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
