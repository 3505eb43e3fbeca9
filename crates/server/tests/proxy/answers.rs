//! What a client gets: fields, places with another name, errors, `X-Accel-…` (U1, U5).

use sekisho_testkit::{Server, Tree, have};

use crate::backend::Backend;
use crate::common::{BINARY, http, serve};

/// A server that answers as the query of the request says: `status` and a field.
fn told() -> Backend {
    Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let target = head.split(' ').nth(1).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let decoded = query.replace("%20", " ").replace("%7C", "\r\n").replace('|', "\r\n");
            let status = path.rsplit('/').next().unwrap_or_default();
            let fields = if decoded.is_empty() { String::new() } else { format!("{decoded}\r\n") };
            connection.answer(&format!("{status} Told"), &fields, "body");
        }
    })
}

/// The media type of an answer with `X-Accel-Redirect` is that of the file, as in nginx: not of an error page, a 304 or
/// several ranges.
#[test]
fn the_type_of_a_file_that_was_handed_over_is_not_that_of_an_error() {
    let mut binaries = vec![BINARY];
    if have("nginx") {
        binaries.push("/usr/sbin/nginx");
    }
    for binary in binaries {
        let backend = told();
        let to = backend.address();
        let tree = Tree::new();
        tree.file("root/kept/file.txt", "from the disk");
        tree.file("root/pages/none.html", "a page");
        tree.mode(".", 0o755);
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = kinds.map(|name| format!("{name}_temp_path {{dir}}/{name};")).concat();
        let site = format!(
            "types {{ text/x-plain txt; text/html html; }}
             server {{ listen 127.0.0.1:{{port}}; root {{root}};
               location / {{ proxy_pass http://{to}; }}
               location /kept/ {{ internal; }}
               location /paged/ {{ internal; error_page 404 /pages/none.html; }}
               location /changed/ {{ internal; error_page 404 =200 /pages/none.html; }}
               location /pages/ {{ internal; }}
               location /gone/ {{ return 301 /else; }} }}"
        );
        let is_nginx = binary != BINARY;
        let config = if is_nginx {
            let site = http(&(paths + &site));
            format!("daemon off; master_process off; pid {{dir}}/nginx.pid;\n{site}")
        } else {
            http(&site)
        };
        let server = Server::start_in(tree, binary, &config);
        let mut client = server.connect();
        let fields = "Content-Type:%20image/x-own|Set-Cookie:%20a=b|Cache-Control:%20no-cache";
        for (path, asked, status, kind) in [
            ("/kept/file.txt", "", 200, "image/x-own"),
            ("/kept/file.txt", "Range: bytes=1-2\r\n", 206, "image/x-own"),
            ("/kept/file.txt", "Range: bytes=1-2,4-5\r\n", 206, "multipart/byteranges"),
            ("/kept/file.txt", "Range: bytes=99-\r\n", 416, "text/html"),
            ("/kept/file.txt", "If-None-Match: *\r\n", 304, "-"),
            ("/kept/none", "", 404, "text/html"),
            ("/paged/none", "", 404, "text/html"),
            ("/changed/none", "", 200, "text/html"),
            ("/gone/", "", 301, "text/html"),
        ] {
            let target = format!("/200?X-Accel-Redirect:%20{path}|{fields}");
            let response = client.request("GET", &target, asked);
            let said = response.field("content-type").unwrap_or("-");
            let said = said.split(';').next().unwrap_or_default();
            assert_eq!((response.status, said), (status, kind), "{binary} {path} {asked}");
            // What it says of the client goes with any answer.
            assert_eq!(response.field("set-cookie"), Some("a=b"), "{binary} {path} {asked}");
        }
    }
}

#[test]
fn fields_are_hidden_passed_and_renamed() {
    let backend = told();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             set $flag samesite=lax;
             location /aged/ {{ proxy_pass http://{to}; expires modified 1h; }}
             location /app/ {{
               proxy_pass http://{to}/inner/;
               proxy_hide_header X-Secret; proxy_pass_header Server;
               proxy_cookie_path /inner/ /app/; proxy_cookie_domain inner.example outer.example;
               proxy_cookie_flags session secure $arg_none httponly $flag;
             }}
             location /redirect/ {{
               proxy_pass http://{to};
               proxy_redirect http://elsewhere/ /here/;
               proxy_redirect ~^(http://[^:]+):\\d+(/.+)$ $1$2?from=$host;
             }}
             location /off/ {{ proxy_pass http://{to}; proxy_redirect off; }}"
        ),
    );
    let mut client = server.connect();
    let response = client.get("/200?X-Secret:%20s|Date:%20never|X-Pad:%20p|X-Accel-Expires:%200");
    assert_eq!(response.field("x-secret"), Some("s"));
    assert_ne!(response.field("date"), Some("never"));
    assert_eq!((response.field("x-pad"), response.field("x-accel-expires")), (None, None));
    let response = client.get("/app/200?X-Secret:%20s|Server:%20inner");
    assert_eq!(response.field("x-secret"), None);
    assert_eq!(response.fields_named("server"), ["inner"]);
    let aged = client.get("/aged/200?Last-Modified:%20Mon,%2028%20Sep%201970%2006:00:00%20GMT");
    assert_eq!(aged.field("expires"), Some("Mon, 28 Sep 1970 07:00:00 GMT"));
    let cookie = |client: &mut sekisho_testkit::Client, value: &str| {
        let response = client.get(&format!("/app/200?Set-Cookie:%20{value}"));
        response.field("set-cookie").unwrap_or_default().to_owned()
    };
    assert_eq!(
        cookie(&mut client, "session=1;%20Path=/inner/x;%20Domain=inner.example"),
        "session=1; Path=/app/x; Domain=outer.example; Secure; HttpOnly; SameSite=Lax"
    );
    assert_eq!(cookie(&mut client, "other=1;%20Path=/"), "other=1; Path=/");
    let location = |client: &mut sekisho_testkit::Client, path: &str, place: &str| {
        let response = client.get(&format!("{path}302?Location:%20{place}"));
        assert_eq!(response.status, 302);
        response.field("location").unwrap_or_default().to_owned()
    };
    // As nginx does: what was changed into a path is an address, what was one stays as it is.
    let port = server.address().port();
    let own = |path: &str| format!("http://localhost:{port}{path}");
    let inner = format!("http://{to}/inner/next");
    assert_eq!(location(&mut client, "/app/", &inner), own("/app/next"));
    assert_eq!(location(&mut client, "/", &format!("http://{to}/next")), own("/next"));
    assert_eq!(location(&mut client, "/redirect/", "http://elsewhere/a"), own("/here/a"));
    assert_eq!(location(&mut client, "/redirect/", "/as/it/is"), "/as/it/is");
    assert_eq!(
        location(&mut client, "/redirect/", "http://a.example:81/b"),
        "http://a.example/b?from=localhost"
    );
    let same = format!("http://{to}/next");
    assert_eq!(location(&mut client, "/off/", &same), same);
}

#[test]
fn names_in_an_expression_are_in_what_takes_its_place() {
    let backend = told();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{
               proxy_pass http://{to};
               proxy_redirect ~^http://(?<hh>[^:/]+)(?<rest>/.+)$ http://outer.example/$hh$rest;
               proxy_cookie_path ~^/inner/(?<cp>.*)$ /outer/$cp;
               proxy_cookie_domain ~^(?<cd>[a-z]+)[.]inner[.]example$ $cd.outer.example;
             }}"
        ),
    );
    let mut client = server.connect();
    let response = client.get("/302?Location:%20http://a.example/b");
    assert_eq!(response.field("location"), Some("http://outer.example/a.example/b"));
    let response = client.get("/200?Set-Cookie:%20s=1;%20Path=/inner/x;%20Domain=a.inner.example");
    assert_eq!(response.field("set-cookie"), Some("s=1; Path=/outer/x; Domain=a.outer.example"));
}

#[test]
fn errors_of_a_server_are_its_own_or_ours() {
    let backend = told();
    let to = backend.address();
    let tree = Tree::new();
    tree.file("root/own.html", "own page");
    let server = serve(
        tree,
        &format!(
            "error_page 404 502 /own.html; location = /own.html {{ }}
             location / {{ proxy_pass http://{to}; }}
             location /ours/ {{ proxy_pass http://{to}; proxy_intercept_errors on; }}"
        ),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/404").text(), "body");
    let response = client.get("/ours/404");
    assert_eq!((response.status, response.text().as_str()), (404, "own page"));
    // There is no page for it.
    assert_eq!(client.get("/ours/403").text(), "body");
    assert_eq!(client.get("/ours/200").text(), "body");
}

/// U5: a bad `X-Accel-Redirect` and one that leads in a circle are logged, in nginx's words.
#[test]
fn a_target_that_leads_nowhere_is_logged() {
    let backend = told();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /loop {{ rewrite ^ /200?X-Accel-Redirect:%20/loop? break; proxy_pass http://{to}; }}"
        ),
    );
    let rows = [
        ("/../../etc/passwd", "unsafe URI \"/../../etc/passwd\" was detected"),
        ("http://other.test/", "unsafe URI \"http://other.test/\" was detected"),
        ("@none", "could not find named location \"@none\""),
    ];
    for (target, line) in rows {
        let response = server.connect().get(&format!("/200?X-Accel-Redirect:%20{target}"));
        let log = server.log("error.log");
        assert_eq!((response.status, log.matches(line).count()), (502, 1), "{target}: {log}");
    }
    assert_eq!(server.connect().get("/loop").status, 502);
    let log = server.log("error.log");
    assert_eq!(log.matches("rewrite or internal redirection cycle").count(), 1, "{log}");
}

/// V31: an expression that runs out of steps leaves no field as it is: the response fails, with a line in the log.
#[test]
fn an_expression_without_a_result_fails_the_response() {
    let backend = told();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            r#"location /flags/ {{ proxy_pass http://{to}; proxy_cookie_flags "~(?=x)x(a+)+\1b" secure; }}
               location /path/ {{ proxy_pass http://{to}; proxy_cookie_path "~(?=x)x(a+)+\1b" /; }}
               location /place/ {{ proxy_pass http://{to}; proxy_redirect "~(?=x)x(a+)+\1b" /; }}
               location /referer/ {{ valid_referers "~x(?=a)(a+)+\1b"; if ($invalid_referer) {{ return 403; }} return 200 in; }}"#
        ),
    );
    let long = format!("x{}c", "a".repeat(60));
    let rows = [
        ("/flags/200?Set-Cookie:%20a=b".to_owned(), 200),
        (format!("/flags/200?Set-Cookie:%20{long}=b"), 500),
        (format!("/path/200?Set-Cookie:%20a=b;%20path={long}"), 500),
        (format!("/place/302?Location:%20{long}"), 500),
    ];
    let count = || server.log("error.log").matches("took too many steps").count();
    for (target, status) in rows {
        let before = count();
        let response = server.connect().get(&target);
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.field("set-cookie").is_some(), status == 200, "{target}");
        assert_eq!(count() - before, usize::from(status == 500), "{target}");
    }
    let before = count();
    let referer = format!("Referer: http://{long}\r\n");
    assert_eq!(server.connect().request("GET", "/referer/", &referer).status, 500);
    assert_eq!(count() - before, 1);
    assert_eq!(server.connect().get("/referer/").status, 403);
}

/// What a server asks of us by fields.
#[test]
fn a_server_hands_over_to_a_file() {
    let backend = told();
    let to = backend.address();
    let tree = Tree::new();
    tree.file("root/kept/file.txt", "from the disk");
    let server = serve(
        tree,
        &format!(
            "location /kept/ {{ internal; }}
             location / {{ proxy_pass http://{to}; source_charset koi8-r; }}
             location /ignored/ {{ proxy_pass http://{to}; proxy_ignore_headers X-Accel-Redirect; }}"
        ),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/200?X-Accel-Redirect:%20/kept/file.txt").text(), "from the disk");
    assert_eq!(client.get("/ignored/200?X-Accel-Redirect:%20/kept/file.txt").text(), "body");
    // What the application says about the file stands, as in nginx.
    let kept = client.get(
        "/200?X-Accel-Redirect:%20/kept/file.txt|Content-Type:%20image/x-own|\
         Content-Disposition:%20attachment|X-Lost:%20yes",
    );
    assert_eq!(kept.fields_named("content-type"), ["image/x-own"]);
    assert_eq!(kept.field("content-disposition"), Some("attachment"));
    assert_eq!((kept.field("x-lost"), kept.text().as_str()), (None, "from the disk"));
    assert_eq!(client.get("/kept/file.txt").status, 404);
    let typed = client.get("/200?Content-Type:%20text/html|X-Accel-Charset:%20koi8-r");
    assert_eq!(typed.field("content-type"), Some("text/html; charset=koi8-r"));
}

/// As in nginx: `charset` is for what names none, `override_charset` for what does, `X-Accel-Charset` for both.
#[test]
fn texts_are_given_in_the_charset_of_the_location() {
    let backend = told();
    let to = backend.address();
    let config = http(&format!(
        "charset_map one two {{ 62 42; }} charset_map one utf-8 {{ 62 C3BC; }} map $uri $chosen {{ default two; ~/wide utf-8; }}
         server {{ listen 127.0.0.1:{{port}}; error_log {{dir}}/charset.log error; gzip_types *;
           location / {{ proxy_pass http://{to}; }}
           location /named/ {{ proxy_pass http://{to}; charset utf-8; }}
           location /two/ {{ proxy_pass http://{to}; charset two; override_charset on; }}
           location /wide/ {{ proxy_pass http://{to}; charset utf-8; override_charset on; gzip on; gzip_min_length 1; }}
           location /back/ {{ proxy_pass http://{to}; charset one; override_charset on; sub_filter dy \u{fc}; }}
           location /source/ {{ proxy_pass http://{to}; charset two; source_charset one; }}
           location /chosen/ {{ proxy_pass http://{to}; charset $chosen; source_charset one; }}
           location /text/ {{ charset $chosen; source_charset one; default_type text/plain; return 200 body; }}
           location /files/ {{ root {{root}}; charset $chosen; source_charset one; types {{ text/plain txt; }} }} }}"
    ));
    let tree = Tree::new();
    tree.file("root/files/a.txt", "body");
    tree.file("root/files/wide/a.txt", "body");
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    for (target, shown, body) in [
        ("/text/", "text/plain; charset=two", "Body"),
        ("/text/wide", "text/plain; charset=utf-8", "\u{fc}ody"),
        ("/files/a.txt", "text/plain; charset=two", "Body"),
        ("/files/wide/a.txt", "text/plain; charset=utf-8", "\u{fc}ody"),
    ] {
        let response = client.get(target);
        assert_eq!(response.field("content-type"), Some(shown), "{target}");
        assert_eq!(response.text(), body, "{target}");
    }
    for (location, said, shown, length, body) in [
        ("/", "text/html; charset=one", "text/html; charset=one", Some("4"), "body"),
        (
            "/",
            "text/html; charset=one|X-Accel-Charset:%20two",
            "text/html; charset=two",
            Some("4"),
            "Body",
        ),
        (
            "/",
            "text/html; charset=one|X-Accel-Charset:%20none",
            "text/html; charset=one",
            Some("4"),
            "body",
        ),
        ("/named/", "text/html", "text/html; charset=utf-8", Some("4"), "body"),
        ("/named/", "text/html; charset=one", "text/html; charset=one", Some("4"), "body"),
        ("/named/", "image/png", "image/png", Some("4"), "body"),
        ("/two/", "text/html; charset=one", "text/html; charset=two", Some("4"), "Body"),
        ("/two/", "image/svg; charset=\"ONE\"", "image/svg; charset=two", Some("4"), "Body"),
        ("/two/", "text/html; charset=two", "text/html; charset=two", Some("4"), "body"),
        ("/two/", "text/html; charset=other", "text/html; charset=other", Some("4"), "body"),
        ("/two/", "text/html", "text/html; charset=two", Some("4"), "body"),
        ("/wide/", "text/html; charset=one", "text/html; charset=utf-8", None, "\u{fc}ody"),
        ("/back/", "text/html; charset=utf-8", "text/html; charset=one", None, "bob"),
        ("/source/", "text/html", "text/html; charset=two", Some("4"), "Body"),
        ("/chosen/", "text/html", "text/html; charset=two", Some("4"), "Body"),
        ("/chosen/wide/", "text/html", "text/html; charset=utf-8", None, "\u{fc}ody"),
        ("/source/", "text/html|Content-Encoding:%20x", "text/html", Some("4"), "body"),
    ] {
        let target = format!("{location}200?Content-Type:%20{}", said.replace(' ', "%20"));
        let response = client.get(&target);
        assert_eq!(response.field("content-type"), Some(shown), "{target}");
        assert_eq!(response.field("content-length"), length, "{target}");
        assert_eq!(response.text(), body, "{target}");
        let head = client.request("HEAD", &target, "");
        assert_eq!(head.field("content-type"), Some(shown), "HEAD {target}");
    }
    let redirect = client.get("/two/302?Content-Type:%20text/html;%20charset=one");
    assert_eq!(redirect.field("content-type"), Some("text/html"));
    let zipped = "/wide/200?Content-Type:%20text/html;%20charset=one";
    let zipped = client.request("GET", zipped, "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.field("content-encoding"), Some("gzip"));
    let log = server.log("charset.log");
    assert!(log.contains("no \"charset_map\" between the charsets \"other\" and \"two\""), "{log}");
    assert!(log.contains("unknown charset \"none\" to override"), "{log}");
}

/// HEAD, bodies without a length, and answers without a body.
#[test]
fn answers_have_the_form_that_they_had() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            match head.split(' ').nth(1) {
                Some("/chunks") => {
                    connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
                }
                Some("/close") => {
                    connection.send("HTTP/1.1 200 OK\r\n\r\nto the end");
                    return connection.close();
                }
                Some("/none") => connection.send("HTTP/1.1 204 No Content\r\n\r\n"),
                Some("/not") => connection.send("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"),
                Some("/early") => {
                    connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                    connection.answer("200 OK", "", "late");
                }
                _ if head.starts_with("HEAD") => {
                    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
                }
                _ => connection.answer("200 OK", "", "plain"),
            }
        }
    });
    let to = backend.address();
    let body = format!(
        "upstream back {{ server {to}; keepalive 2; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://back; }} }}"
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/chunks").text(), "abcde");
    assert_eq!(client.get("/close").text(), "to the end");
    assert_eq!(client.get("/none").status, 204);
    assert_eq!(client.get("/not").field("etag"), Some("\"x\""));
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head_response().field("content-length"), Some("77"));
    assert_eq!(client.get("/plain").text(), "plain");
    // One before it, and the one.
    client.send("GET /early HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = client.read_head_response();
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a>")));
    assert_eq!(client.read_response().text(), "late");
    assert_eq!(backend.connections(), 2, "all but the closed one were kept");
}

/// The access log has the servers that were asked, and how long they took.
#[test]
fn servers_are_logged() {
    let backend = Backend::saying("x");
    let (to, dead) = (backend.address(), crate::backend::nobody());
    let body = format!(
        "log_format up '$upstream_addr|$upstream_status|$upstream_response_time|$upstream_connect_time|$upstream_http_x_a|$upstream_response_length';
         upstream back {{ server {dead}; server {to} backup; }}
         server {{ listen 127.0.0.1:{{port}}; access_log {{dir}}/up.log up; location / {{ proxy_pass http://back; }} }}"
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    assert_eq!(server.connect().get("/").text(), "x");
    let mut line = String::new();
    sekisho_testkit::eventually("the line", crate::common::LONG, || {
        line = server.log("up.log");
        !line.is_empty()
    });
    let parts: Vec<&str> = line.trim().split('|').collect();
    assert_eq!(parts[0], format!("{dead}, {to}"), "{line}");
    assert_eq!(parts[1], "502, 200", "{line}");
    assert!(parts[2].starts_with("0.") && parts[3].starts_with("-, 0."), "{line}");
    assert_eq!((parts[4], parts[5]), ("-", "0, 1"), "{line}");
}

/// The time of a server whose client leaves is logged, also in a location with a cache.
#[test]
fn a_client_that_leaves_settles_the_times_of_its_server() {
    let backend = Backend::start(|connection| {
        connection.request();
        connection
            .send("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 9\r\n\r\nhalf");
        let _ = connection.request();
    });
    let to = backend.address();
    let body = format!(
        "log_format up '$upstream_addr $upstream_response_time';
         proxy_cache_path {{dir}}/cache keys_zone=one:1m;
         server {{ listen 127.0.0.1:{{port}}; access_log {{dir}}/up.log up; proxy_buffering off;
             location / {{ proxy_pass http://{to}; }}
             location /cached {{ proxy_pass http://{to}; proxy_cache one; proxy_buffering on; }} }}"
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    for (number, path) in ["/", "/cached"].into_iter().enumerate() {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.read_head_response().status, 200);
        drop(client);
        let mut lines = String::new();
        sekisho_testkit::eventually("the line", crate::common::LONG, || {
            lines = server.log("up.log");
            lines.lines().count() > number
        });
        let line = lines.lines().last().expect("a line");
        assert!(line.starts_with(&format!("{to} 0.")), "{path}: {line}");
    }
}

/// The rate that an application names comes before that of the location which it hands the request to.
#[test]
fn a_rate_is_kept_where_a_request_is_handed_over() {
    let body = "server { listen 127.0.0.1:{port}; root {root};
            location / { proxy_pass http://127.0.0.1:{port2}; }
            location /files/ { internal; limit_rate 7; add_header X-Rate $limit_rate; } }
        server { listen 127.0.0.1:{port2}; add_header X-Accel-Redirect /files/a;
            add_header X-Accel-Limit-Rate $arg_rate; return 200 x; }";
    let tree = Tree::new();
    tree.file("root/files/a", "file");
    let server = Server::start_in(tree, BINARY, &http(body));
    let mut client = server.connect();
    let response = client.get("/?rate=9000");
    assert_eq!((response.text(), response.field("x-rate")), ("file".to_owned(), Some("9000")));
    assert_eq!(client.get("/").field("x-rate"), Some("0"), "no rate but the location's");
}
