//! Scripts over real sockets: `rewrite`, `set`, `if`, `break`, `return`, `map`, compared with nginx where it is
//! installed.
#![forbid(unsafe_code)]

mod common;

use common::{BINARY, LONG, http, serve};
use sekisho_testkit::{Client, Response, Server, Tree, eventually, have};

const NGINX: &str = "nginx";

/// The same files for both servers.
fn files() -> Tree {
    let tree = Tree::new();
    for (path, content) in [
        ("root/index.html", "index"),
        ("root/a.txt", "a"),
        ("root/a b.txt", "a b"),
        ("root/download/x/mp3/song.mp3", "mp3"),
        ("root/dir/index.html", "dir index"),
        ("root/dir/inner.txt", "inner"),
        ("root/page.html", "page"),
        ("root/stay.txt", "stay"),
        ("root/a.png", "png"),
        ("root/style.css", "css"),
        ("other/a.txt", "other a"),
        ("other/z.txt", "other z"),
        ("data/y", "data y"),
    ] {
        tree.file(path, content);
    }
    tree.script("root/run.sh", "#!/bin/sh\n");
    tree.file("root/secret.txt", "secret");
    tree
}

/// nginx with this `http` block, as a plain process in the foreground.
fn nginx(body: &str) -> Server {
    let tree = files();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {{dir}}/temporary;")).concat();
    let config = format!(
        "daemon off; master_process off; pid {{dir}}/nginx.pid; error_log {{dir}}/error.log notice;\n\
         events {{}}\nhttp {{\naccess_log off;\n{temporary}{body}\n}}\n"
    );
    Server::start_in(tree, NGINX, &config)
}

/// What the two must have in common.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    status: u16,
    location: Option<String>,
    fields: Vec<String>,
    body: Option<String>,
}

impl Seen {
    fn of(server: &Server, response: &Response) -> Self {
        let port = format!(":{}", server.address().port());
        let dir = server.tree().dir().display().to_string();
        let plain = |text: &str| text.replace(&port, ":PORT").replace(&dir, "DIR");
        let kind = response.field("content-type").unwrap_or_default();
        let is_page = response.status >= 300 && kind.starts_with("text/html");
        let own = ["x-a", "x-b", "x-c", "cache-control"];
        Self {
            status: response.status,
            location: response.field("location").map(plain),
            fields: own
                .iter()
                .filter_map(|name| Some(format!("{name}: {}", plain(response.field(name)?))))
                .collect(),
            // The pages for errors and redirects are each server's own.
            body: (!is_page).then(|| plain(&response.text())),
        }
    }
}

fn ask(server: &Server, row: &str) -> Seen {
    let mut words = row.splitn(3, ' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fields: String = words.next().map(|field| format!("{field}\r\n")).unwrap_or_default();
    let mut client: Client = server.connect();
    Seen::of(server, &client.request(method, target, &fields))
}

/// F7: nginx's meaning in every detail: the same configuration, the same requests, the same answers.
#[test]
fn nginx_answers_the_same() {
    if !have(NGINX) {
        return;
    }
    let body = include_str!("rewrite/same.conf");
    let own = Server::start_in(files(), BINARY, &http(body));
    let theirs = nginx(body);
    let rows = include_str!("rewrite/requests.txt");
    let rows = rows.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    let mut differing = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        let (own, theirs) = (ask(&own, row), ask(&theirs, row));
        if own != theirs {
            differing.push(format!("{row}\n  nginx: {theirs:?}\n  ours:  {own:?}"));
        }
    }
    assert!(count > 100, "{count}");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    // F2: where we are stricter on purpose.
    for (row, status) in [
        ("GET /canonical/a%0d%0aX-A:b", 400),
        ("GET /dot/a.txt?d=.", 404),
        ("GET /dot/other/a.txt?d=..", 404),
    ] {
        assert_eq!(ask(&own, row).status, status, "{row}");
        assert_ne!(ask(&theirs, row).status, status, "{row}");
    }
}

/// F7: the recipe for CORS that half of the web has copied: one type, no length, no body.
#[test]
fn a_preflight_by_if_has_the_fields_of_the_if_alone() {
    let server = serve(
        files(),
        "location / {
             if ($request_method = 'OPTIONS') {
                 add_header 'Access-Control-Allow-Origin' '*';
                 add_header 'Content-Type' 'text/plain; charset=utf-8';
                 add_header 'Content-Length' 0;
                 return 204;
             }
         }",
    );
    let answer = server.connect().request("OPTIONS", "/a.txt", "");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
    let types = answer.fields_named("content-type");
    assert_eq!(types, ["text/plain; charset=utf-8"]);
    assert_eq!(answer.field("content-length"), None);
}

/// F7: a front controller, a canonical host and a maintenance page, seen on the wire.
#[test]
fn a_site_as_people_write_it_is_rewritten() {
    let server = serve(
        files(),
        r#"if ($http_host ~* ^www\.(.+)$) { set $plain $1; return 301 http://$plain$request_uri; }
         if (-f $document_root/maintenance.html) { return 503 "back soon\n"; }
         location / { try_files $uri @front; }
         location @front { rewrite ^/(.*)$ /app?path=$1 last; }
         location = /app { add_header X-A $args; return 200 "$request_uri"; }
         location /user/ {
             if ($http_cookie ~* "id=([^;]+)(?:;|$)") { set $id $1; add_header X-A $id; }
             rewrite ^ /a.txt break;
         }"#,
    );
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").text(), "a");
    let front = client.get("/blog/post%20one?page=2");
    assert_eq!(front.field("x-a"), Some("path=blog/post%20one&page=2"));
    assert_eq!(front.text(), "/blog/post%20one?page=2");
    let user = client.request("GET", "/user/x", "Cookie: id=kim; other=1\r\n");
    assert_eq!((user.text(), user.field("x-a")), ("a".to_owned(), Some("kim")));
    assert_eq!(client.get("/user/x").field("x-a"), None, "nothing is left of the request before");
    let moved = client.send("GET /x?y HTTP/1.1\r\nHost: WWW.Example.org\r\n\r\n").read_response();
    assert_eq!((moved.status, moved.field("location")), (301, Some("http://Example.org/x?y")));
    server.tree().file("root/maintenance.html", "");
    let closed = client.get("/a.txt");
    assert_eq!((closed.status, closed.text()), (503, "back soon\n".to_owned()));
}

/// O6: `rewrite_log` and errors are in the error log, with their request.
#[test]
fn steps_stand_in_the_error_log() {
    let server = serve(
        files(),
        "rewrite_log on;
         location /a { rewrite ^/a/(.*)$ /b/$1 last; }
         location /b { return 200 $never; set $never 1; }
         location /loop { rewrite_log off; rewrite ^ /loop last; }",
    );
    let mut client = server.connect();
    assert_eq!(client.get("/a/%C3%A9").status, 200);
    assert_eq!(client.get("/loop").status, 500);
    let expected = [
        "[notice] ",
        r#""^/a/(.*)$" matches "/a/\xc3\xa9", client: 127.0.0.1"#,
        r#"rewritten data: "/b/\xc3\xa9", args: "", client: 127.0.0.1"#,
        r#"using uninitialized "never" variable, client: 127.0.0.1"#,
        r#"rewrite or internal redirection cycle while processing "/loop", client: 127.0.0.1"#,
        r#"request: "GET /loop HTTP/1.1""#,
    ];
    eventually("the lines in the log", LONG, || {
        let log = server.log("error.log");
        expected.iter().all(|line| log.contains(line))
    });
    assert_eq!(server.log("error.log").matches("\"^\"").count(), 0);
}

/// F7: an `if` has its own logs and error pages, and variables that were set can be logged.
#[test]
fn an_if_has_its_own_log() {
    let config = http(
        "log_format own '$kind $uri $status $unset';
         server { listen 127.0.0.1:{port}; root {root}; access_log {dir}/access.log own;
             location / {
                 set $kind plain;
                 if ($arg_kind) { set $kind $arg_kind; access_log {dir}/other.log own; error_page 404 /page.html; }
                 if ($arg_quiet) { access_log off; }
                 if ($kind = none) { set $unset x; }
             }
         }",
    );
    let server = Server::start_in(files(), BINARY, &config);
    let mut client = server.connect();
    for (target, status, text) in [
        ("/a.txt", 200, Some("a")),
        ("/a.txt?kind=b", 200, Some("a")),
        ("/none?kind=c", 404, Some("page")),
        ("/none", 404, None),
        ("/a.txt?quiet=1", 200, Some("a")),
    ] {
        let response = client.get(target);
        assert_eq!(response.status, status, "{target}");
        assert!(text.is_none_or(|text| response.text() == text), "{target}: {response:?}");
    }
    eventually("the lines in the logs", LONG, || {
        server.log("access.log") == "plain /a.txt 200 \nplain /page.html 404 \nplain /none 404 \n"
            && server.log("other.log") == "b /a.txt 200 \n"
            && server.log("error.log").matches("uninitialized \"unset\"").count() == 4
    });
}

/// V48: nothing that a client sends splits a redirect, and nothing leads out of the root.
#[test]
fn a_hostile_path_neither_splits_an_answer_nor_climbs() {
    let tree = files();
    tree.file("secret", "secret");
    let server = serve(
        tree,
        r"location /r/ { rewrite ^/r/(.*)$ http://example.org/$1 redirect; }
         location /u/ { rewrite ^ http://example.org$uri$arg_x? redirect; }
         location /p/ { rewrite ^/p/(.*)$ /$arg_x/$1 break; }
         location /l/ { rewrite ^/l/(.*)$ $arg_x$1 last; }
         location /f/ { if (-f $document_root/$arg_x) { return 200 found; } return 200 none; }",
    );
    for row in [
        "/r/a%0d%0aX-A:%20b",
        "/r/a%0aX-A:%20b",
        "/u/a%0d%0aX-A:%20b",
        "/u/?x=%0d%0aX-A:%20b",
        "/r/%e5%98%8a%e5%98%8dX-A:%20b",
        "/p/secret?x=..",
        "/p/secret?x=a/../..",
        "/p/secret?x=%2e%2e",
        "/l/secret?x=/../",
        "/l/secret?x=",
        "/l/../../secret?x=/",
        "/f/?x=../secret",
        "/f/?x=/../secret",
    ] {
        let response = server.connect().get(row);
        assert_eq!(response.field("x-a"), None, "{row}");
        assert!(
            matches!(response.status, 302 | 400 | 404) || response.text() == "none",
            "{row}: {response:?}"
        );
        assert_ne!(response.text(), "secret", "{row}");
    }
}

/// V31: neither the default nor a later key of a `map` holds where an expression runs out of steps.
#[test]
fn a_map_that_runs_out_of_steps_fails_the_request() {
    let server = Server::start_in(
        Tree::new(),
        BINARY,
        &http(
            r#"map $arg_m $deny { "~(?=x)x(a+)+\1b" 1; default 0; }
            server { listen 127.0.0.1:{port}; root {root};
                location /if { if ($deny) { return 403; } return 200 passed; }
                location /field { add_header X-Deny $deny; return 200 passed; }
                location /to { proxy_set_header X-Deny $deny; proxy_pass http://127.0.0.1:{port}/ok; }
                location /ok { return 200 passed; } }"#,
        ),
    );
    let mut client = server.connect();
    let hostile = format!("x{}", "a".repeat(60));
    for path in ["/if", "/to"] {
        assert_eq!(client.get(&format!("{path}?m=xa")).text(), "passed", "{path}");
        assert_eq!(client.get(&format!("{path}?m={hostile}")).status, 500, "{path}");
    }
    assert_eq!(client.get("/if?m=xaab").status, 403);
    assert_eq!(client.get(&format!("/field?m={hostile}")).field("X-Deny"), None);
    let log = server.log("error.log");
    let told = log.lines().filter(|line| line.contains("\"$deny\" took too many steps"));
    let told: Vec<_> = told.collect();
    assert!(told.len() == 3 && told.iter().all(|line| line.contains("[error]")), "{log}");
}
