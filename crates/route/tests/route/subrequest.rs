//! Requests within a request: what they are decided to, and what becomes of their answers.

use sekisho_http::Status;
use sekisho_route::{Picked, SubrequestTarget, Table, named_variable};

use crate::configured::configured;
use crate::support::Asked;

/// What a request within `asked`, which has been decided, comes to.
fn within(asked: &mut Asked, table: &Table, path: &str) -> String {
    let outer = asked.route_state.clone();
    let target = SubrequestTarget::get(path.as_bytes());
    let inner = asked.decide_subrequest(&target, &outer, table);
    asked.route_state = outer;
    inner
}

#[test]
fn a_request_within_another_is_routed_as_any_but_for_access() {
    let table = configured(
        r"server { listen 8080; server_name example.org; root /srv;
            set $own outer;
            location / { return 200 '$uri $request_uri $request_method $args $own'; }
            location /closed/ { deny all; return 200 open; }
            location /denied/ { deny all; }
            location /inside/ { internal; return 200 inside; }
            location /moved/ { rewrite ^ /target last; }
            location /error/ { error_page 404 = @page; }
            location @page { return 200 page; }
            location /set/ { set $own inner; return 200 $own; }
            location /pass/ { proxy_pass http://127.0.0.1:9; }
        }",
    );
    for (path, expected) in [
        ("/a", "text 200 /a /main?x POST  outer"),
        ("/denied/a", "file /srv/denied/a"),
        ("/inside/a", "text 200 inside"),
        ("/moved/a", "text 200 /target /main?x POST  outer"),
        ("/error/none", "text 200 page"),
        ("/denied/none", "error 404"),
        ("/set/", "text 200 inner"),
        ("/pass/x", "pass"),
    ] {
        let mut asked = Asked::new("POST /main?x", &["/srv/denied/a"]);
        asked.decide(&table);
        assert_eq!(within(&mut asked, &table, path), expected, "{path}");
    }
}

#[test]
fn permission_is_asked_for_once_at_each_location_and_counts_as_satisfy_says() {
    let table = configured(
        r"server { listen 8080; root /srv;
            location /all/ { auth_request /auth; error_page 404 /other/b; }
            location /other/ { auth_request /auth; }
            location /any/ { satisfy any; deny all; auth_request /auth; }
            location /both/ { deny all; auth_request /auth; }
            location /off/ { auth_request /auth; location /off/here/ { auth_request off; } }
        }",
    );
    let files = ["/srv/all/a", "/srv/other/b", "/srv/any/a", "/srv/off/here/a"];
    let asked_with = |path: &str, code: u16| {
        let mut asked = Asked::new(&format!("GET {path}"), &files);
        let mut line = asked.decide(&table);
        for _ in 0..3 {
            if line == "wait for permission" {
                let status = Status::new(code).expect("a status");
                asked.route_state.note_auth(status, vec![b"Basic".to_vec()]);
                line = format!("asked, {}", asked.resume(&table));
            }
        }
        line
    };
    for (path, code, expected) in [
        ("/all/a", 200, "asked, file /srv/all/a"),
        ("/all/a", 204, "asked, file /srv/all/a"),
        ("/all/a", 401, "asked, error 401"),
        ("/all/a", 403, "asked, error 403"),
        ("/all/a", 404, "asked, error 500"),
        ("/all/a", 302, "asked, error 500"),
        ("/any/a", 200, "asked, file /srv/any/a"),
        ("/any/a", 403, "asked, error 403"),
        ("/any/a", 401, "asked, error 401"),
        ("/any/a", 500, "asked, error 500"),
        ("/both/a", 200, "error 403"),
        ("/off/here/a", 500, "file /srv/off/here/a"),
    ] {
        assert_eq!(asked_with(path, code), expected, "{path} {code}");
    }
    // A redirect leads to another location, which asks for itself.
    let mut asked = Asked::new("GET /all/none", &files);
    assert_eq!(asked.decide(&table), "wait for permission");
    asked.route_state.note_auth(Status::OK, Vec::new());
    assert_eq!(asked.resume(&table), "wait for permission");
    asked.route_state.note_auth(Status::OK, Vec::new());
    assert_eq!(asked.resume(&table), "file /srv/other/b as 404");
}

#[test]
fn copies_are_noted_where_content_is_looked_for() {
    let table = configured(
        r"server { listen 8080; root /srv;
            location /a/ { mirror /copy; }
            location /b/ { mirror /copy; return 200 b; }
            location /try/ { mirror /copy; try_files $uri /a/x; }
        }",
    );
    for (path, copies) in [("/a/x", 1), ("/b/x", 0), ("/try/y", 1), ("/try/z", 1), ("/a/", 2)] {
        let mut asked =
            Asked::new(&format!("GET {path}"), &["/srv/a/x", "/srv/try/y", "/srv/a/index.html"]);
        asked.decide(&table);
        assert_eq!(asked.route_state.mirrored.len(), copies, "{path}");
    }
    let mut asked = Asked::new("GET /b/x", &["/srv/a/x"]);
    asked.decide(&table);
    let outer = asked.route_state.clone();
    asked.decide_subrequest(&SubrequestTarget::get(b"/a/x"), &outer, &table);
    assert!(asked.route_state.mirrored.is_empty(), "a request within another has no copies");
}

#[test]
fn a_random_file_is_a_redirect_to_it() {
    let table = configured("server { listen 8080; root /srv; random_index on; }");
    let mut asked = Asked::new("GET /x/", &["/srv/x/b.txt", "/srv/x/index.html"]);
    assert_eq!(asked.decide(&table), "wait for a file");
    asked.route_state.picked = Picked::File(b"b.txt".to_vec());
    assert_eq!(asked.resume(&table), "file /srv/x/b.txt");
    assert_eq!(asked.decide(&table), "wait for a file");
    asked.route_state.picked = Picked::Nothing;
    assert_eq!(asked.resume(&table), "file /srv/x/index.html");
    assert_eq!(Asked::new("GET /x/b.txt", &["/srv/x/b.txt"]).decide(&table), "file /srv/x/b.txt");
}

#[test]
fn a_variable_is_found_by_its_name_and_an_empty_one_is_not_a_missing_one() {
    let table = configured(
        "map $arg_a $mapped { default ''; x y; } server { listen 8080; set $own ''; root /srv; }",
    );
    let mut asked = Asked::new("GET /p?a=x&e=", &[]);
    asked.decide(&table);
    let value = |name: &str| {
        let (request, route_state) = (asked.request(), &asked.route_state);
        named_variable(name.as_bytes(), &table, &request, route_state, None)
            .map(|value| String::from_utf8(value).expect("text"))
    };
    for (name, expected) in [
        ("uri", Some("/p")),
        ("URI", Some("/p")),
        ("arg_a", Some("x")),
        ("arg_e", Some("")),
        ("arg_b", None),
        ("mapped", Some("y")),
        ("own", Some("")),
        ("http_host", Some("example.org")),
        ("cookie_x", None),
        ("nothing", None),
        ("date_gmt", Some("Sunday, 06-Nov-1994 08:49:37 GMT")),
        ("date_local", Some("Sunday, 06-Nov-1994 10:49:37 +0200")),
    ] {
        assert_eq!(value(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn a_slice_is_asked_for_where_the_range_begins() {
    let table = configured(
        "server { listen 8080; slice 10; location / { return 200 '$slice_range'; } }
         server { listen 8080; server_name without; location / { return 200 '[$slice_range]'; } }",
    );
    for (range, expected) in
        [("", "bytes=0-9"), ("bytes=5-", "bytes=0-9"), ("bytes=25-26", "bytes=20-29")]
    {
        let mut asked = Asked::with_fields("GET /", &[("Host", "a"), ("Range", range)], &[]);
        assert_eq!(asked.decide(&table), format!("text 200 {expected}"), "{range}");
        assert!(asked.route_state.slice_start.get().is_some());
    }
    let mut asked = Asked::with_fields("GET /", &[("Host", "without")], &[]);
    assert_eq!(asked.decide(&table), "text 200 []");
    assert_eq!(asked.route_state.slice_start.get(), None);
    let target = SubrequestTarget { slice_start: Some(30), ..SubrequestTarget::get(b"/") };
    let mut asked = Asked::new("GET /", &[]);
    asked.decide(&table);
    let outer = asked.route_state.clone();
    asked.decide_subrequest(&target, &outer, &table);
    assert_eq!(asked.route_state.slice_start.get(), Some(30));
    assert_eq!(asked.route_state.location, outer.location, "it goes on where the other stands");
}
