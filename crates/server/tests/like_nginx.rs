//! The same configuration and the same requests for nginx and for this server: proxying, error pages, methods, paths and
//! logs. The answers are the same, and so are the lines of the access logs.
#![forbid(unsafe_code)]

mod common;

use common::{BINARY, LONG};
use sekisho_testkit::{Response, Server, Tree, eventually, have};

const NGINX: &str = "/usr/sbin/nginx";

/// What both are told.
const SITE: &str = r#"
    log_format own '$request_method "$request_uri" $uri $args $status $body_bytes_sent "$http_x_a" $upstream_status "$sent_http_x_from" $server_name';
    log_format json escape=json '{"uri":"$uri","agent":"$http_user_agent","status":"$status"}';
    access_log {dir}/own.log own;
    access_log {dir}/json.log json;
    map $arg_kind $kind { default other; ~^a(?<rest>.*)$ a-$rest; b two; }
    map $arg_charset $charset_of { default utf-8; k koi8-r; big KOI8-R; x nosuch; none ""; off off; }
    upstream group { server 127.0.0.1:{port2}; }
    server {
        listen 127.0.0.1:{port}; server_name front; root {root};
        proxy_http_version 1.1; proxy_set_header Connection "";

        location /whole/  { proxy_pass http://127.0.0.1:{port2}; }
        location /part/   { proxy_pass http://group/new/; }
        location /cut     { proxy_pass http://group/c; }
        location /break/  { rewrite ^/break/(.*)$ /b/$1 break; proxy_pass http://group/ignored/; }
        location /later/  { rewrite ^/later/(.*)$ /l/$1; break; proxy_pass http://group/ignored; }
        location /last/   { rewrite ^/last/(.*)$ /part/$1 last; proxy_pass http://group/never/; }
        location ~ ^/regex/(.*)$ { proxy_pass http://group/r/$1?k=$kind; }
        location = /exact { proxy_pass http://group; }
        location /set/    { set $to 127.0.0.1:{port2}; proxy_pass http://$to; }
        location /fields/ {
            proxy_pass http://group/say/; proxy_set_header X-A "a $http_x_a"; proxy_set_header X-Empty ""; proxy_set_header Host $host;
            proxy_pass_request_headers on; proxy_hide_header X-Secret;
        }
        location /redirect/ { proxy_pass http://group/move/; }
        location /kept/     { proxy_pass http://group/move/; proxy_redirect off; }
        location /changed/  { proxy_pass http://group/move/; proxy_redirect ~^(.*)/to/(.*)$ /elsewhere/$2; }
        location /fails/    { proxy_pass http://group/status/; proxy_intercept_errors on; error_page 404 /pages/404.html; error_page 502 503 = @plain; error_page 500 =200 /pages/500.html; }
        location /passes/   { proxy_pass http://group/status/; error_page 404 /pages/404.html; }
        location /dead/     { proxy_pass http://127.0.0.1:1; error_page 502 =503 /pages/dead.html; }
        location /nobody/   { proxy_pass http://127.0.0.1:1; }
        location /slash/    { proxy_pass http://group; }
        location /post/     { proxy_pass http://group; proxy_method POST; }
        location @plain     { return 200 "plain $uri $args $status"; }

        error_page 404 /pages/404.html;
        error_page 403 = @plain;
        error_page 410 =301 /pages/gone.html;
        error_page 418 https://example.org/tea?$args;
        location /pages/   { internal; }
        location /gone/    { return 410; }
        location /tea/     { return 418; }
        location /denied/  { deny all; }
        location /named/   { try_files $uri @plain; }
        location /coded/   { try_files $uri $uri/ =403; }
        location /nested/  { error_page 404 =204 /pages/none; recursive_error_pages on; }
        location /empty/   { return 444; }
        location /text/    { return 200 "$request_method $uri [$args] $kind $is_args"; }
        location /temp/    { return 302 http://example.org$request_uri; }
        location /here/    { return 301 /there$uri?$args; }
        location /only/    { limit_except GET { deny all; } }
        location /method/  { if ($request_method !~ ^(GET|HEAD|PURGE)$) { return 405; } return 200 $request_method; }
        location /files/   { alias {root}/f/; }
        location /listed   { alias {root}/f; }
        location /known/   { charset koi8-r; location /known/wide/ { charset utf-8; return 200 wide; } return 200 known; }
        location /chosen/  { charset $charset_of; alias {root}/f/; location /chosen/none/ { charset off; return 200 none; } }
        location /said/    { charset $charset_of; return 200 said; }
        location /asked/   { charset $charset_of; proxy_pass http://group; }
        location /page/    { charset $charset_of; return 404; }
        location /pixel    { empty_gif; error_page 405 = @plain; }
        location /off/     { access_log off; return 200 off; }
        location /some/    { access_log {dir}/some.log own if=$arg_log; return 200 some; }
    }
    server {
        listen 127.0.0.1:{port2}; access_log off; root {root};
        location /move/   { return 302 http://group/move/to/here; }
        location /say/    { add_header X-From back; add_header X-Secret s; return 200 "$http_host|$http_x_a|$http_x_empty|$http_x_b|$http_connection"; }
        location /status/ { if ($arg_s = 404) { return 404 missing; } if ($arg_s = 500) { return 500 broken; } if ($arg_s = 503) { return 503 busy; } return 200 fine; }
        location /        { add_header X-From back; return 200 "$request_method $request_uri $server_protocol"; }
    }
"#;

fn tree() -> Tree {
    let tree = Tree::new();
    for (file, text) in [
        ("pages/404.html", "page: none"),
        ("pages/500.html", "page: broken"),
        ("pages/dead.html", "page: dead"),
        ("pages/gone.html", "page: gone"),
        ("named/there.txt", "file: there"),
        ("coded/d/x.txt", "file: x"),
        ("only/a.txt", "file: only"),
        ("f/a b.txt", "file: blank"),
        ("f/d/index.html", "file: index"),
        ("f/plain.txt", "file: plain"),
        ("index.html", "file: root"),
    ] {
        tree.file(&format!("root/{file}"), text);
    }
    // nginx may run as somebody else.
    tree.mode(".", 0o755);
    tree
}

/// What is compared. Pages that the servers make themselves differ.
fn seen(server: &Server, method: &str, response: &Response) -> String {
    let port = format!(":{}", server.address().port());
    let location = response.field("location").unwrap_or("-").replace(&port, "");
    let from = response.field("x-from").unwrap_or("-");
    let secret = response.field("x-secret").unwrap_or("-");
    let kind = response.field("content-type").unwrap_or("-");
    let text = response.text();
    let is_own = text.contains("<h1>");
    let body = if is_own || method == "HEAD" { "" } else { &text };
    let kind = if is_own || response.status >= 300 { "" } else { kind };
    format!("{} {location} {from} {secret} {kind} {body:?}", response.status)
}

/// Method, target and fields.
#[expect(clippy::too_many_lines, reason = "a list")]
fn requests() -> Vec<(&'static str, String, &'static str)> {
    let mut all = Vec::new();
    let passing = [
        "/whole/", "/part/", "/cut", "/break/", "/later/", "/last/", "/regex/", "/set/", "/post/",
        "/slash/",
    ];
    let tails = [
        "",
        "a",
        "a/b?c=d",
        "a?",
        "a%20b",
        "a%2Fb",
        "a//b",
        "./a/../b",
        "%7Ea",
        "a%3Fb?x=%20",
        "a+b;c",
        "?kind=abc",
        "?kind=b",
        "a%1bb",
        "a%25b",
    ];
    for location in passing {
        for tail in tails {
            // There, a decoded path would be the target, and a `map` would change the groups.
            let is_odd = matches!(tail, "a%20b" | "a%1bb" | "a%3Fb?x=%20" | "?kind=abc");
            if location != "/regex/" || !is_odd {
                all.push(("GET", format!("{location}{tail}"), ""));
            }
        }
        for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "BREW"] {
            all.push((method, format!("{location}x"), "Content-Length: 0\r\n"));
        }
    }
    all.push(("GET", "/exact".to_owned(), ""));
    all.push(("GET", "/exact?a=b".to_owned(), ""));
    all.push(("GET", "/slash".to_owned(), ""));
    all.push(("GET", "/slash?a=b".to_owned(), ""));
    for fields in ["", "X-A: one\r\nX-B: two\r\nX-Empty: e\r\n", "X-A: \"q\"\\\r\n"] {
        all.push(("GET", "/fields/x".to_owned(), fields));
    }
    for location in ["/redirect/x", "/kept/x", "/changed/x", "/dead/", "/nobody/"] {
        all.push(("GET", location.to_owned(), ""));
        all.push(("HEAD", location.to_owned(), ""));
    }
    for location in ["/fails/", "/passes/"] {
        for status in ["", "404", "500", "503"] {
            all.push(("GET", format!("{location}?s={status}"), ""));
            all.push(("POST", format!("{location}?s={status}"), "Content-Length: 0\r\n"));
        }
    }
    let local = [
        "/",
        "/none",
        "/none?a=b",
        "/pages/404.html",
        "/gone/",
        "/tea/?milk=1",
        "/denied/x",
        "/named/there.txt",
        "/named/none",
        "/coded/d",
        "/coded/d/",
        "/coded/none",
        "/nested/x",
        "/text/",
        "/text/?a=1&kind=ax",
        "/text/a%20b?%20",
        "/temp/a?b",
        "/here/x?y=z",
        "/only/a.txt",
        "/only/none",
        "/method/",
        "/files/a%20b.txt",
        "/files/d",
        "/files/d/",
        "/files/plain.txt/",
        "/files/../files/plain.txt",
        "/listed/plain.txt",
        "/listed",
        "/files/none",
        "/pixel",
        "/pixel/x.gif?a",
        "/off/",
        "/some/?log=1",
        "/some/?log=0",
        "/some/",
        "//files//plain.txt",
        "/%66iles/plain.txt",
        "/files/%2e%2e/index.html",
        "/..",
        "/%",
        "/%zz",
        "/files%2Fplain.txt",
        "/text%3Fa",
    ];
    for target in local {
        all.push(("GET", target.to_owned(), ""));
        all.push(("HEAD", target.to_owned(), ""));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "PURGE", "BREW"] {
        // What is no file is answered alike; files have OPTIONS, and methods that nobody knows are a 501.
        let is_ours = matches!(method, "OPTIONS" | "PURGE" | "BREW");
        for target in [
            "/files/plain.txt",
            "/none",
            "/text/",
            "/method/",
            "/only/a.txt",
            "/gone/",
            "/named/none",
            "/pixel",
        ] {
            if !(is_ours && matches!(target, "/files/plain.txt" | "/none" | "/pixel")) {
                all.push((method, target.to_owned(), "Content-Length: 0\r\n"));
            }
        }
    }
    for chosen in ["", "k", "big", "x", "none", "off"] {
        for target in
            ["/chosen/plain.txt", "/chosen/d/", "/chosen/none/", "/said/", "/asked/x", "/page/"]
        {
            all.push(("GET", format!("{target}?charset={chosen}"), ""));
        }
    }
    for target in ["/known/", "/known/wide/"] {
        all.push(("GET", target.to_owned(), ""));
    }
    for condition in [
        "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n",
        "If-Modified-Since: Mon, 28 Sep 1970 06:00:01 GMT\r\n",
        "If-Unmodified-Since: Mon, 28 Sep 1970 05:59:59 GMT\r\n",
        "Range: bytes=0-3\r\n",
    ] {
        all.push(("GET", "/pixel".to_owned(), condition));
    }
    all
}

/// Lines of a log whose answers have the same length on both: pages of their own making have not.
fn lines(server: &Server, log: &str) -> Vec<String> {
    let port = format!(":{}", server.address().port());
    server.log(log).lines().map(|line| line.replace(&port, "")).collect()
}

#[test]
fn both_answer_and_log_alike() {
    if !have("nginx") {
        return;
    }
    let frame = |first: &str| {
        format!(
            "{first}\nevents {{}}\nhttp {{\ntypes {{ text/html html; text/plain txt; }}\n{SITE}\n}}\n"
        )
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {{dir}}/temporary;")).concat();
    let nginx = frame(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log info;",
    );
    let nginx = nginx.replace("http {\n", &format!("http {{\n{temporary}\n"));
    let nginx = Server::start_in(tree(), NGINX, &nginx);
    let ours = frame("worker_processes 1; error_log {dir}/error.log info;");
    let ours = Server::start_in(tree(), BINARY, &ours);
    let mut differing = Vec::new();
    let requests = requests();
    for (method, target, fields) in &requests {
        let [one, other] = [&nginx, &ours].map(|server| {
            let mut client = server.connect();
            client.send(format!(
                "{method} {target} HTTP/1.1\r\nHost: front\r\nUser-Agent: t\"\\\r\nConnection: close\r\n{fields}\r\n"
            ));
            match client.try_read_response(*method == "HEAD") {
                Ok(response) => seen(server, method, &response),
                Err(_) => "no answer".to_owned(),
            }
        });
        if one != other {
            differing
                .push(format!("{method} {target} {fields:?}\n  nginx: {one}\n  ours:  {other}"));
        }
    }
    assert!(differing.is_empty(), "{} differ\n{}", differing.len(), differing.join("\n"));
    for log in ["own.log", "json.log", "some.log"] {
        let expected = lines(&nginx, log);
        eventually("every line is written", LONG, || lines(&ours, log).len() >= expected.len());
        let found = lines(&ours, log);
        for (one, other) in expected.iter().zip(&found) {
            // Of what cannot be understood, nginx logs nothing but that.
            let is_bad = one.contains(" 400 ") || one.contains(r#""status":"400""#);
            if !is_bad && without_length(one) != without_length(other) {
                differing.push(format!("{log}\n  nginx: {one}\n  ours:  {other}"));
            }
        }
        assert_eq!(expected.len(), found.len(), "{log}");
    }
    assert!(differing.is_empty(), "{} differ\n{}", differing.len(), differing.join("\n"));
}

/// A line without the length of a page that the server has made itself.
fn without_length(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let status = words.iter().position(|word| word.len() == 3 && word.parse::<u16>().is_ok());
    if let Some(at) = status
        && words[at].parse::<u16>().is_ok_and(|status| status >= 300)
        && at + 1 < words.len()
    {
        words.remove(at + 1);
    }
    words.join(" ")
}

/// `more_set_headers` and `more_clear_headers`, beside nginx with the module headers-more where that is installed.
#[test]
fn fields_are_changed_as_the_module_does() {
    const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so";
    let site = r#"
        more_set_headers 'X-Outer: o' 'X-Both: outer';
        server {
            listen 127.0.0.1:{port}; root {root};
            location / { proxy_pass http://127.0.0.1:{port2}; }
            location /own/ {
                proxy_pass http://127.0.0.1:{port2}; more_set_headers 'X-Both: inner' "X-Uri: $uri" 'X-Back:'; add_header X-Added 1;
                more_clear_headers 'X-Secret-*';
            }
            location /some/ {
                proxy_pass http://127.0.0.1:{port2}; more_set_headers -s '404 500' 'X-Failed: 1'; more_set_headers -t 'text/plain' 'X-Text: 1';
                more_clear_headers -s 200 X-Back; more_set_headers "X-Empty: $arg_none" 'Content-Type: text/x-own';
            }
            location /missing/ { more_set_headers 'X-Missing: 1' 'Server: mine'; return 404; }
            location /text/ { default_type text/plain; more_clear_headers Server X-Outer; return 200 text; }
        }
        server {
            listen 127.0.0.1:{port2};
            add_header X-Back b always; add_header X-Secret-A s always; add_header X-Secret-B s always; default_type text/plain;
            location / { if ($arg_s) { return 404 missing; } return 200 back; }
        }"#;
    let mut binaries = vec![BINARY];
    if have("nginx") && std::path::Path::new(MODULE).exists() {
        binaries.push(NGINX);
    }
    for binary in binaries {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary =
            temporary.map(|name| format!("{name}_temp_path {{dir}}/temporary;")).concat();
        let config = if binary == NGINX {
            format!(
                "load_module {MODULE}; daemon off; master_process off; pid {{dir}}/nginx.pid; error_log {{dir}}/error.log;
                 events {{}} http {{ access_log off; {temporary} {site} }}"
            )
        } else {
            format!(
                "load_module {MODULE}; worker_processes 1; error_log {{dir}}/error.log; events {{}} http {{ access_log off; {site} }}"
            )
        };
        let server = Server::start_in(tree(), binary, &config);
        for (target, status, expected) in [
            ("/", 200, "text/plain|x-back=b x-both=outer x-outer=o x-secret-a=s x-secret-b=s"),
            ("/own/a", 200, "text/plain|x-added=1 x-both=inner x-outer=o x-uri=/own/a"),
            ("/own/a?s=1", 404, "text/plain|x-both=inner x-outer=o x-uri=/own/a"),
            ("/some/", 200, "text/x-own|x-both=outer x-outer=o x-secret-a=s x-secret-b=s x-text=1"),
            (
                "/some/?s=1",
                404,
                "text/x-own|x-back=b x-both=outer x-failed=1 x-outer=o x-secret-a=s x-secret-b=s x-text=1",
            ),
            ("/missing/", 404, "-|server=mine x-both=outer x-missing=1 x-outer=o"),
            ("/text/", 200, "text/plain|no server x-both=outer"),
        ] {
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            let response = client.read_response();
            let mut fields: Vec<String> = response
                .fields
                .iter()
                .filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-"))
                .map(|(name, value)| format!("{}={value}", name.to_ascii_lowercase()))
                .collect();
            fields.sort();
            let server_name = match response.field("server") {
                Some("mine") => "server=mine ",
                Some(_) => "",
                None => "no server ",
            };
            let kind = response.field("content-type").filter(|_| target != "/missing/");
            let found = format!("{}|{server_name}{}", kind.unwrap_or("-"), fields.join(" "));
            assert_eq!((response.status, found.as_str()), (status, expected), "{binary} {target}");
        }
    }
}

/// A log format of both, what is asked, and what the line is.
fn assert_lines(site: &str, format: &str, rows: &[(&str, &str, &str)]) {
    let mut binaries = vec![BINARY];
    if have("nginx") {
        binaries.push(NGINX);
    }
    for binary in binaries {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary =
            temporary.map(|name| format!("{name}_temp_path {{dir}}/temporary;")).concat();
        let first = match binary {
            NGINX => "daemon off; master_process off; pid {dir}/nginx.pid;",
            _ => "worker_processes 1;",
        };
        let config = format!(
            "{first} error_log {{dir}}/error.log; events {{}}
             http {{ {temporary} log_format own '{format}'; access_log {{dir}}/own.log own; default_type text/plain; {site} }}"
        );
        let server = Server::start_in(tree(), binary, &config);
        for (at, (head, fields, expected)) in rows.iter().enumerate() {
            let mut client = server.connect();
            client.send(format!("{head}\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"));
            let _ = client.try_read_response(head.starts_with("HEAD"));
            // nginx writes the line when the client has gone.
            drop(client);
            eventually("the line is written", LONG, || server.log("own.log").lines().count() > at);
            let log = server.log("own.log");
            assert_eq!(log.lines().nth(at), Some(*expected), "{binary} {head} {fields:?}");
        }
    }
}

/// What is not there is `-`, what is there and empty is empty.
#[test]
fn empty_values_are_told_from_missing_ones_in_the_log() {
    let site = r#"
        map $arg_e $mapped { default ""; 1 one; }
        map $arg_e $plain { 1 one; }
        server {
            listen 127.0.0.1:{port}; root {root};
            location /t { return 200 text; }
            location /set { set $own ""; return 200 text; }
            location /rewritten { rewrite ^ /t? last; }
            location ~ ^/group/(?<group>.*)$ { return 200 text; }
            location /error { error_page 410 /t; return 410; }
        }"#;
    let format = "$is_args|$https|$http2|$fastcgi_path_info|$mapped|$plain|$own|$args|$query_string|$arg_e|$cookie_c|$http_x|$http_referer|$content_type|$group|$remote_user|$upstream_addr|$sent_http_x";
    assert_lines(
        site,
        format,
        &[
            ("GET /t HTTP/1.1", "", "|||||||-|-|-|-|-|-|-|-|-|-|-"),
            ("GET /t?e= HTTP/1.1", "", "?|||||||e=|e=||-|-|-|-|-|-|-|-"),
            ("GET /t?e HTTP/1.1", "", "?|||||||e|e|-|-|-|-|-|-|-|-|-"),
            ("GET /t?e=1 HTTP/1.1", "", "?||||one|one||e=1|e=1|1|-|-|-|-|-|-|-|-"),
            ("GET /set HTTP/1.1", "", "|||||||-|-|-|-|-|-|-|-|-|-|-"),
            ("GET /rewritten?a=b HTTP/1.1", "", "|||||||||-|-|-|-|-|-|-|-|-"),
            ("GET /rewritten HTTP/1.1", "", "|||||||-|-|-|-|-|-|-|-|-|-|-"),
            ("GET /error?a=b HTTP/1.1", "", "|||||||-|-|-|-|-|-|-|-|-|-|-"),
            ("GET /group/ HTTP/1.1", "", "|||||||-|-|-|-|-|-|-||-|-|-"),
            ("GET /t HTTP/1.1", "X:\r\n", "|||||||-|-|-|-||-|-|-|-|-|-"),
            ("GET /t HTTP/1.1", "Referer: \r\n", "|||||||-|-|-|-|-||-|-|-|-|-"),
            ("GET /t HTTP/1.1", "Content-Type:\r\n", "|||||||-|-|-|-|-|-||-|-|-|-"),
            ("GET /t HTTP/1.1", "Cookie: c=\r\n", "|||||||-|-|-||-|-|-|-|-|-|-"),
        ],
    );
}

/// The fields that the protocol adds to a head are there for the log, too.
#[test]
fn the_framing_of_an_answer_is_in_the_log() {
    let site = r"server {
        listen 127.0.0.1:{port}; root {root};
        location /t { return 200 text; }
        location /none { return 204; }
        location /long { alias {root}/f/plain.txt; sub_filter_types *; sub_filter x y; }
        location /f/ { }
    }";
    let format = "$status $sent_http_content_length $sent_http_transfer_encoding $sent_http_connection $sent_http_keep_alive";
    assert_lines(
        site,
        format,
        &[
            ("GET /t HTTP/1.1", "", "200 4 - close -"),
            ("HEAD /t HTTP/1.1", "", "200 4 - close -"),
            ("GET /none HTTP/1.1", "", "204 - - close -"),
            ("GET /f/plain.txt HTTP/1.1", "", "200 11 - close -"),
            ("GET /f/plain.txt HTTP/1.1", "Range: bytes=0-1\r\n", "206 2 - close -"),
            ("GET /f/plain.txt HTTP/1.1", "If-None-Match: *\r\n", "304 - - close -"),
            ("GET /long HTTP/1.1", "", "200 - chunked close -"),
            ("GET /long HTTP/1.0", "", "200 - - close -"),
        ],
    );
}

/// What cannot be read as a request is in the log as it came.
#[test]
fn unreadable_request_lines_are_in_the_log() {
    let long = format!("GET /{} HTTP/1.1", "x".repeat(9000));
    let cut = format!("[GET /{}] 414", "x".repeat(8192 - 5));
    assert_lines(
        "server { listen 127.0.0.1:{port}; location / { return 200 text; } }",
        "[$request] $status",
        &[
            ("GET /a b HTTP/1.1", "", "[GET /a b HTTP/1.1] 400"),
            ("GET /a\x01b HTTP/1.1", "", r"[GET /a\x01b HTTP/1.1] 400"),
            ("\x16\x03\x01\x02\x01abc", "", r"[\x16\x03\x01\x02\x01abc] 400"),
            ("hello", "", "[hello] 400"),
            ("GET \"/a HTTP/1.1", "", r"[GET \x22/a HTTP/1.1] 400"),
            (&long, "", &cut),
        ],
    );
}
