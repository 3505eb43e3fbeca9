//! Where programs are run, and what becomes of their answers: `cgi_pass`, index files, `limit_except`,
//! `error_page`, `X-Accel-Redirect` (C1, C3, C9, V24, V25).

use std::time::Duration;

use sekisho_testkit::{End, Framing, Stopwatch, Tree, pause};

use crate::support::{Site, sh};

#[test]
fn failures_have_their_error_pages() {
    // C1, F7: all four go through `error_page`.
    let tree = Tree::new();
    tree.script("root/cgi-bin/dies.cgi", &sh("exit 1"));
    tree.script("root/cgi-bin/hangs.cgi", &sh("sleep 60"));
    tree.file("root/cgi-bin/plain.cgi", sh("echo"));
    for code in [403, 404, 502, 504] {
        tree.file(&format!("root/{code}.html"), format!("own {code}"));
    }
    tree.script("root/cgi-bin/page.cgi", &sh("printf 'Status: 200 OK\\n\\n'; echo by a program"));
    let site = Site::start(
        tree,
        "cgi_read_timeout 300ms; error_page 403 /403.html; error_page 404 /404.html;\n\
         error_page 502 /502.html; error_page 504 /504.html;\n\
         location /other/ { alias {root}/cgi-bin/; cgi on; error_page 502 =200 /cgi-bin/page.cgi;\n\
             error_page 504 /cgi-bin/page.cgi; error_page 404 @named; }\n\
         location @named { cgi_pass {root}/cgi-bin/page.cgi; }",
    );
    let mut client = site.server.connect();
    for (target, status, text) in [
        ("/cgi-bin/none.cgi", 404, "own 404"),
        ("/cgi-bin/plain.cgi", 403, "own 403"),
        ("/cgi-bin/dies.cgi", 502, "own 502"),
        ("/cgi-bin/hangs.cgi", 504, "own 504"),
        ("/other/dies.cgi", 200, "by a program\n"),
        ("/other/hangs.cgi", 504, "by a program\n"),
        ("/other/none.cgi", 404, "by a program\n"),
    ] {
        let response = client.get(target);
        assert_eq!((response.status, response.text().as_str()), (status, text), "{target}");
    }
    drop(client);
    site.assert_clean("error pages");
}

#[test]
fn programs_stand_where_they_are_put() {
    // C8, F3, F7
    let tree = Tree::new();
    let who =
        sh("printf 'X: 1\\n\\n'; echo \"$REQUEST_METHOD $SCRIPT_NAME|$PATH_INFO|$QUERY_STRING\"");
    tree.script("root/site/index.cgi", &who);
    tree.script("root/app", &who);
    tree.file("root/site/page.txt", "page");
    let site = Site::start(
        tree,
        "location /site/ { index index.cgi; cgi_extension .cgi; }\n\
         location /app/ { cgi_pass {root}/app; limit_except GET { deny all; } }\n\
         location = /exact { cgi_pass {root}/app; }\n\
         location ~ ^/user/(\\w+)/run { cgi_pass {root}/app; cgi_set_var WHO $1; }\n\
         location /try/ { try_files $uri @app; }\n\
         location @app { cgi_pass {root}/app; }\n\
         location /none/ { cgi on; cgi_pass off; location /none/off/ { cgi off; } }",
    );
    let mut client = site.server.connect();
    for (method, target, status, text) in [
        ("GET", "/site/", 200, "GET /site/index.cgi||\n"),
        ("POST", "/site/?a=b", 200, "POST /site/index.cgi||a=b\n"),
        ("GET", "/site/index.cgi/x%20y/z", 200, "GET /site/index.cgi|/x y/z|\n"),
        ("GET", "/site/page.txt", 200, "page"),
        ("GET", "/app/x/y?q", 200, "GET /app|/x/y|q\n"),
        ("GET", "/app/", 200, "GET /app|/|\n"),
        ("GET", "/exact", 200, "GET /exact||\n"),
        ("GET", "/try/some/page", 200, "GET |/try/some/page|\n"),
    ] {
        let response = client.request(method, target, "Content-Length: 0\r\n");
        assert_eq!(
            (response.status, response.text().as_str()),
            (status, text),
            "{method} {target}"
        );
    }
    assert_eq!(client.request("POST", "/app/x", "Content-Length: 0\r\n").status, 403);
    assert_eq!(client.request("HEAD", "/app/x", "").status, 200);
    drop(client);
    site.assert_clean("places");
}

#[test]
fn a_file_can_be_handed_over_only_where_that_is_configured() {
    // C9, V25
    let tree = Tree::new();
    tree.file("root/secret/file.bin", "the secret file");
    let give = "printf 'X-Accel-Redirect: %s\\nX-Accel-Buffering: no\\nX-Sendfile: /etc/passwd\\n\
                Content-Type: text/html\\n\\nown body\\n' \"$QUERY_STRING\"";
    tree.script("root/cgi-bin/give.cgi", &sh(give));
    tree.script("root/give/give.cgi", &sh(give));
    tree.script("root/give/local.cgi", &sh("printf 'Location: %s\\n\\n' \"$QUERY_STRING\""));
    let site = Site::start(
        tree,
        "location /secret/ { internal; }\n\
         location /give/ { cgi on; cgi_x_accel_redirect on; }\n\
         location @named { return 200 named; }",
    );
    let mut client = site.server.connect();
    assert_eq!(client.get("/secret/file.bin").status, 404, "internal");
    // Off by default: not heeded, and never passed on.
    let own = client.get("/cgi-bin/give.cgi?/secret/file.bin");
    assert_eq!((own.status, own.text().as_str()), (200, "own body\n"));
    for field in ["X-Accel-Redirect", "X-Accel-Buffering", "X-Sendfile"] {
        assert_eq!(own.field(field), None);
    }
    let given = client.get("/give/give.cgi?/secret/file.bin");
    assert_eq!((given.status, given.text().as_str()), (200, "the secret file"));
    assert_eq!(given.field("X-Accel-Redirect"), None);
    assert!(given.field("ETag").is_some(), "it is a file like any other");
    let part = client.request("GET", "/give/give.cgi?/secret/file.bin", "Range: bytes=4-9\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "secret"));
    assert_eq!(client.get("/give/give.cgi?@named").text(), "named");
    // A local redirect is no key to `internal`, and nothing leads out of the root.
    assert_eq!(client.get("/give/local.cgi?/secret/file.bin").status, 404);
    for target in ["/secret/../../etc/passwd", "/secret/%2e%2e/%2e%2e/etc/passwd", "/secret/none"] {
        let answer = client.get(&format!("/give/give.cgi?{target}"));
        assert!([400, 404, 502].contains(&answer.status), "{target}: {answer:?}");
    }
    assert_eq!(client.get("/give/give.cgi?http://elsewhere/").status, 502);
    drop(client);
    site.assert_clean("hand-overs");
}

#[test]
fn a_head_cannot_split_a_response_or_speak_for_the_connection() {
    // C9, V24
    let tree = Tree::new();
    let head = "printf 'Connection: close, X-Hop\\nX-Hop: 1\\nKeep-Alive: 5\\nTransfer-Encoding: chunked\\n\
                Upgrade: h2c\\nTrailer: X\\nServer: evil\\nDate: never\\nX-Kept: 1\\nSet-Cookie: a=1\\nSet-Cookie: b=2\\n\
                Content-Type: text/plain\\n\\nhello\\n'";
    tree.script("root/cgi-bin/hop.cgi", &sh(head));
    tree.script(
        "root/cgi-bin/both.cgi",
        &sh("printf 'Content-Length: 6\\nContent-Length: 7\\n\\nhello\\n'"),
    );
    tree.script("root/cgi-bin/status.cgi", &sh("printf 'Status: 101 Switch\\n\\n'"));
    tree.script(
        "root/cgi-bin/nph.cgi",
        &sh("printf 'HTTP/1.1 200 OK\\r\\nX: 1\\r\\n\\r\\nhello\\n'"),
    );
    tree.script("root/cgi-bin/fold.cgi", &sh("printf 'X: 1\\n folded\\n\\nhello\\n'"));
    tree.script("root/cgi-bin/blank.cgi", &sh("printf 'X : 1\\n\\nhello\\n'"));
    tree.script("root/cgi-bin/header.cgi", &sh("printf 'Location: http://a/\\rX: 1\\n\\n'"));
    let site =
        Site::start(tree, "location /lax/ { alias {root}/cgi-bin/; cgi on; cgi_strict off; }");
    let mut client = site.server.connect();
    let response = client.get("/cgi-bin/hop.cgi");
    assert_eq!((response.status, response.text().as_str()), (200, "hello\n"));
    assert_eq!(response.framing, Framing::Chunked);
    assert!(!response.says_close());
    for field in ["X-Hop", "Keep-Alive", "Upgrade", "Trailer"] {
        assert_eq!(response.field(field), None, "{response:?}");
    }
    assert!(response.field("Server").is_some_and(|server| server.starts_with("sekisho")));
    assert_ne!(response.field("Date"), Some("never"));
    assert_eq!(response.field("X-Kept"), Some("1"));
    assert_eq!(response.fields_named("Set-Cookie"), ["a=1", "b=2"]);
    for name in ["both", "status", "nph", "fold", "blank", "header"] {
        assert_eq!(client.get(&format!("/cgi-bin/{name}.cgi")).status, 502, "{name}");
    }
    // A lenient reading leaves the bad line out.
    for name in ["fold", "blank"] {
        let response = client.get(&format!("/lax/{name}.cgi"));
        assert_eq!((response.status, response.text().as_str()), (200, "hello\n"), "{name}");
    }
    drop(client);
    site.assert_clean("heads");
}

#[test]
fn a_body_byte_releases_the_head_at_once() {
    // C3
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X-Own: 1\\n\\nfirst\\n'; sleep 1; echo second"));
    tree.script("root/cgi-bin/held.cgi", &sh("printf 'X-Own: 1\\n\\n'; sleep 0.5; echo first"));
    let site = Site::start(tree, "");
    let mut client = site.server.connect();
    let watch = Stopwatch::start();
    client.send("GET /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\n\r\n") {
        seen.extend(client.read_bytes(1));
    }
    assert!(watch.elapsed() < Duration::from_millis(900), "{:?}", watch.elapsed());
    assert!(String::from_utf8_lossy(&seen).contains("X-Own: 1"));
    client.read_bytes(b"7\r\nsecond\n\r\n0\r\n\r\n".len());
    // And without one it is held.
    client.send("GET /cgi-bin/held.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect_open_for(Duration::from_millis(250));
    assert_eq!(client.read_response().text(), "first\n");
}

#[test]
fn a_program_may_print_its_body_only() {
    // C9: `cgi_body_only`
    let tree = Tree::new();
    tree.script("root/plain/x.cgi", &sh("echo no head at all"));
    tree.script("root/plain/silent.cgi", &sh("exit 0"));
    let site = Site::start(tree, "location /plain/ { cgi on; cgi_body_only on; }");
    let mut client = site.server.connect();
    let response = client.get("/plain/x.cgi");
    assert_eq!((response.status, response.text().as_str()), (200, "no head at all\n"));
    assert_eq!(response.field("Content-Type"), Some("text/plain"));
    assert_eq!(client.get("/plain/silent.cgi").status, 200);
}

#[test]
fn a_slow_reader_holds_its_program_back_and_gets_everything() {
    // C4, T9, X4
    const BYTES: usize = 40 << 20;
    let tree = Tree::new();
    let script = format!("printf 'X: 1\\n\\n'; exec head -c {BYTES} /dev/zero");
    tree.script("root/cgi-bin/x.cgi", &sh(&script));
    let site = Site::start(tree, "cgi_read_timeout 400ms; send_timeout 5s;");
    let before = site.server.rss_bytes();
    let mut client = site.server.connect().with_patience(Duration::from_secs(30));
    client.send("GET /cgi-bin/x.cgi HTTP/1.0\r\nHost: a\r\n\r\n");
    // Longer than a program may be silent: it is not the program's fault.
    pause(Duration::from_millis(1200));
    assert!(!site.processes().is_empty(), "it has not printed everything yet");
    let growth = site.server.rss_bytes().saturating_sub(before);
    assert!(growth < 4 << 20, "{growth} bytes are kept for a client that does not read");
    let (bytes, end) = client.read_to_end();
    assert_eq!(end, End::Closed, "after {} bytes: {}", bytes.len(), site.server.log("error.log"));
    assert!(bytes.len() > BYTES && bytes.len() < BYTES + 1000, "{}", bytes.len());
    drop(client);
    site.assert_clean("a slow reader");
}

#[test]
fn requests_behind_a_program_wait_their_turn() {
    // H8
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("sleep 0.2; printf 'X: 1\\n\\n'; echo $QUERY_STRING"));
    let site = Site::start(tree, "");
    let mut client = site.server.connect();
    let one = |query: &str| format!("GET /cgi-bin/x.cgi?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
    let file = "GET /ok.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{}{file}{}{file}", one("1"), one("2")));
    for text in ["1\n", "ok", "2\n", "ok"] {
        assert_eq!(client.read_response().text(), text);
    }
}
