//! CGI: which program, and which part of the path is its own. Outcomes are
//! `cgi file SCRIPT_NAME|PATH_INFO`.

use sekisho_route::{Handover, Table};

use crate::configured::configured;
use crate::support::{Asked, check};

const FILES: &[&str] = &[
    "/srv/a.cgi",
    "/srv/a.txt",
    "/srv/b.py",
    "/srv/d/index.cgi",
    "/srv/d/x.py",
    "/srv/d.py/e.py",
    "/srv/d.py/f.txt",
    "/srv/.py",
    "/srv/empty/",
    "!/srv/denied.cgi",
    "!/srv/denied.py",
    "?/srv/broken.py",
    "/data/p/q.cgi",
    "/opt/app",
    "/opt/kim",
    "/srv/404.html",
];

fn server(directives: &str) -> Table {
    configured(&format!(
        "server {{ listen 8080; root /srv; index index.html index.cgi; {directives} }}"
    ))
}

/// C1: the longest part of the path that is a regular file is the program; without one: 404, before any
/// process is made.
#[test]
fn cgi_on_runs_the_file_that_the_path_leads_to() {
    let table = server("cgi on;");
    check(
        &table,
        FILES,
        &[
            ("GET /a.cgi", "cgi /srv/a.cgi /a.cgi|"),
            ("GET /a.cgi/", "cgi /srv/a.cgi /a.cgi|/"),
            ("GET /a.cgi/x/y.cgi", "cgi /srv/a.cgi /a.cgi|/x/y.cgi"),
            ("GET /a%2ecgi/%78?q", "cgi /srv/a.cgi /a.cgi|/x"),
            ("GET /d/x.py/z", "cgi /srv/d/x.py /d/x.py|/z"),
            ("GET /a.txt", "cgi /srv/a.txt /a.txt|"),
            ("GET /missing", "error 404"),
            ("GET /missing/x/y", "error 404"),
            ("GET /d/missing/x", "error 404"),
            ("GET /denied.cgi", "error 403"),
            ("GET /denied.cgi/x", "error 403"),
            ("GET /d", "redirect 301 http://example.org:8080/d/"),
            ("GET /d/", "cgi /srv/d/index.cgi /d/index.cgi|"),
            ("POST /d/", "cgi /srv/d/index.cgi /d/index.cgi|"),
            ("POST /d", "redirect 301 http://example.org:8080/d/"),
            ("GET /empty/", "error 404"),
            ("GET /empty", "error 404"),
        ],
    );
}

/// C1: only listed extensions are programs; the rest is as ever. What is a program is never sent.
#[test]
fn cgi_extension_runs_what_it_lists_and_sends_the_rest() {
    let table = server("cgi_extension .py /usr/bin/python3; cgi_extension .cgi;");
    check(
        &table,
        FILES,
        &[
            ("GET /b.py", "cgi /srv/b.py /b.py|"),
            ("GET /b.py/x.txt", "cgi /srv/b.py /b.py|/x.txt"),
            ("GET /b.py/x.py", "cgi /srv/b.py /b.py|/x.py"),
            ("GET /d.py/e.py/f", "cgi /srv/d.py/e.py /d.py/e.py|/f"),
            ("GET /d.py/f.txt", "file /srv/d.py/f.txt"),
            ("GET /d.py", "redirect 301 http://example.org:8080/d.py/"),
            ("GET /a.txt", "file /srv/a.txt"),
            ("POST /a.txt", "error 405 GET, HEAD, OPTIONS"),
            ("OPTIONS /a.txt", "options GET, HEAD, OPTIONS"),
            ("GET /a.txt/x", "error 404"),
            ("GET /.py", "file /srv/.py"),
            ("GET /d/", "cgi /srv/d/index.cgi /d/index.cgi|"),
            ("GET /denied.py", "error 403"),
            ("GET /broken.py/x", "error 500"),
            ("GET /missing.py", "error 404"),
            ("GET /missing.py/x.py", "error 404"),
            ("GET /B.PY", "error 404"),
        ],
    );
}

/// C1: `cgi_pass` names the program; its share of the path is the location's prefix.
#[test]
fn cgi_pass_runs_one_program_for_everything() {
    let table = server(
        r"location /git/ { cgi_pass /opt/app; location ~ \.pack$ { expires 1h; } }
          location = /one { cgi_pass /opt/app; }
          location /part { cgi_pass /opt/app; }
          location ~ ^/u/(\w+) { cgi_pass /opt/$1; }
          location /gone/ { cgi_pass /opt/none; }
          location /folder/ { cgi_pass /srv/d; }
          location /try/ { try_files $uri @app; }
          location @app { cgi_pass /opt/app; }
          location /static/ { cgi_pass /opt/app; try_files /a.txt =404; }",
    );
    check(
        &table,
        FILES,
        &[
            ("GET /git/x/y?z", "cgi /opt/app /git|/x/y"),
            ("GET /git/x.pack", "cgi /opt/app /git|/x.pack"),
            ("GET /git/", "cgi /opt/app /git|/"),
            ("POST /one", "cgi /opt/app /one|"),
            ("GET /part/x", "cgi /opt/app /part|/x"),
            ("GET /partial/x", "cgi /opt/app /partial/x|"),
            ("GET /u/kim/x", "cgi /opt/kim |/u/kim/x"),
            ("GET /u/lee", "error 404"),
            ("GET /gone/x", "error 404"),
            ("GET /folder/x", "error 404"),
            ("GET /try/x", "cgi /opt/app |/try/x"),
            ("GET /static/x", "file /srv/a.txt"),
        ],
    );
}

#[test]
fn an_alias_is_cut_where_file_and_path_are_the_same() {
    let table = server(
        r"location /p/ { alias /data/p/; cgi on; }
          location ~ ^/r/(.*)$ { alias /data/p/$1; cgi on; }
          location ~ ^/w$ { alias /data/p/q.cgi; cgi_extension .cgi; }",
    );
    check(
        &table,
        FILES,
        &[
            ("GET /p/q.cgi/x", "cgi /data/p/q.cgi /p/q.cgi|/x"),
            ("GET /p/x", "error 404"),
            ("GET /r/q.cgi/x/y", "cgi /data/p/q.cgi /r/q.cgi|/x/y"),
            ("GET /w", "cgi /data/p/q.cgi /w|"),
        ],
    );
}

/// H12: programs get the methods that files do not know; an unknown method is still 501.
#[test]
fn a_program_gets_every_known_method() {
    let table = server(
        "location /c/ { cgi_pass /opt/app; } location /g/ { cgi_pass /opt/app; limit_except GET { deny all; } }
         location /r/ { return 200 x; }",
    );
    for method in
        ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "MKCOL", "PROPFIND", "LOCK"]
    {
        let outcome = crate::support::ask(&table, &format!("{method} /c/x"), FILES);
        assert_eq!(outcome, "cgi /opt/app /c|/x", "{method}");
    }
    check(
        &table,
        FILES,
        &[
            ("TRACE /c/x", "error 405 GET, HEAD, OPTIONS"),
            ("CONNECT /c/x", "error 405 GET, HEAD, OPTIONS"),
            ("BREW /c/x", "cgi /opt/app /c|/x"),
            ("HEAD /g/x", "cgi /opt/app /g|/x"),
            ("POST /g/x", "error 403"),
            ("PATCH /a.txt", "error 405 GET, HEAD, OPTIONS"),
            ("PATCH /r/", "text 200 x"),
        ],
    );
}

/// C1: all of the ladder goes through `error_page`, which may be a program itself.
#[test]
fn errors_of_programs_have_pages() {
    let table = server(
        "error_page 404 /404.html; error_page 502 503 504 /a.cgi/error; error_page 403 =200 @app;
         location /c/ { cgi on; } location = /404.html { cgi off; } location /a.cgi { cgi on; }
         location @app { cgi_pass /opt/app; }",
    );
    check(&table, FILES, &[("POST /c/x", "file /srv/404.html as 404")]);
    let mut asked = Asked::new("POST /a.cgi", FILES);
    assert_eq!(asked.decide(&table), "cgi /srv/a.cgi /a.cgi|");
    assert_eq!(asked.decide_error(504, &table), "cgi /srv/a.cgi /a.cgi|/error as 504");
    assert_eq!(asked.route_state.method.name(), Some("GET"));
    // The page has failed, too: that is the end.
    assert_eq!(asked.decide_error(502, &table), "error 502");
    let mut asked = Asked::new("POST /a.cgi", FILES);
    asked.decide(&table);
    assert_eq!(asked.decide_error(403, &table), "cgi /opt/app |/a.cgi as 200");
}

/// C9: a local `Location` is answered as if the client had asked for it; `X-Accel-Redirect` opens
/// `internal` locations and named ones.
#[test]
fn a_program_hands_over_to_another_target() {
    let table = server(
        "location /c/ { cgi_pass /opt/app; } location /in/ { internal; alias /srv/; }
         location /d/ { cgi on; } location @app { cgi_pass /opt/kim; } location /p { limit_except POST { deny all; } }",
    );
    let both = [
        ("/a.txt?x=1", "file /srv/a.txt"),
        ("/x/../%61.txt", "file /srv/a.txt"),
        ("/d/x.py/i", "cgi /srv/d/x.py /d/x.py|/i"),
        ("/p", "error 403"),
        ("/missing", "error 404"),
        ("/../x", "error 502"),
        ("/%00", "error 502"),
        ("/..%2f", "error 502"),
        ("http://example.org/a.txt", "error 502"),
        ("*", "error 502"),
        ("a.txt", "error 502"),
        ("", "error 502"),
    ];
    for handover in [Handover::Location, Handover::Accel] {
        for (target, expected) in both {
            let mut asked = Asked::new("POST /c/?q", FILES);
            asked.decide(&table);
            assert_eq!(asked.hand_over(handover, target, &table), expected, "{target}");
            assert_eq!(asked.route_state.method.name(), Some("GET"));
        }
    }
    let differing = [
        (Handover::Location, "/in/a.txt", "error 404"),
        (Handover::Accel, "/in/a.txt", "file /srv/a.txt"),
        (Handover::Location, "@app", "error 502"),
        (Handover::Accel, "@app", "cgi /opt/kim |/c/"),
        (Handover::Accel, "@none", "error 502"),
    ];
    for (handover, target, expected) in differing {
        let mut asked = Asked::new("HEAD /c/", FILES);
        asked.decide(&table);
        assert_eq!(asked.hand_over(handover, target, &table), expected, "{target}");
        assert_eq!(asked.route_state.method.name(), Some("HEAD"));
    }
    // An `internal` location stays closed after an open one has been reached by a hand-over.
    let mut asked = Asked::new("GET /c/", FILES);
    asked.decide(&table);
    asked.hand_over(Handover::Accel, "/c/x", &table);
    assert_eq!(asked.hand_over(Handover::Location, "/in/a.txt", &table), "error 404");
}

/// C9, V25: at most 10.
#[test]
fn a_program_hands_over_ten_times_and_no_more() {
    let table = server("error_page 502 /a.txt; location /c/ { cgi_pass /opt/app; }");
    let mut asked = Asked::new("GET /c/", FILES);
    asked.decide(&table);
    for _ in 0..10 {
        assert_eq!(asked.hand_over(Handover::Location, "/c/x", &table), "cgi /opt/app /c|/x");
    }
    assert_eq!(asked.hand_over(Handover::Location, "/c/x", &table), "error 502");
}

/// A hand-over belongs to the request that was decided, and to no other.
#[test]
fn nothing_is_handed_over_before_a_decision() {
    let table = server("cgi on;");
    let mut asked = Asked::new("GET /", FILES);
    assert_eq!(asked.hand_over(Handover::Accel, "/a.txt", &table), "error 500");
}

/// A long path costs no more looks than there are directories.
#[test]
fn a_long_path_is_not_looked_for_piece_by_piece() {
    for directives in ["cgi on;", "cgi_extension .cgi;"] {
        let table = server(directives);
        let mut asked = Asked::new(&format!("GET {}", "/x.cgi".repeat(1000)), FILES);
        assert_eq!(asked.decide(&table), "error 404");
        assert!(asked.files.looks <= 3, "{}", asked.files.looks);
    }
}
