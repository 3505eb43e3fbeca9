//! Scripts: `rewrite`, `set`, `if`, `break` and `return`, with nginx's meaning.

use sekisho_config::Level;
use sekisho_route::{LineFormat, LogEntry, Table, TimeTexts, log_line};

use crate::configured::configured;
use crate::support::{Asked, ask, check};

/// A server with these lines in it.
fn server(lines: &str) -> Table {
    configured(&format!("server {{ listen 8080; root /srv; {lines} }}"))
}

/// F7: the first examples of nginx's documentation.
#[test]
fn the_documented_conditions_hold() {
    let table = server(
        r#"if ($http_user_agent ~ MSIE) { rewrite ^(.*)$ /msie/$1 break; }
        if ($http_cookie ~* "id=([^;]+)(?:;|$)") { set $id $1; }
        if ($request_method = POST) { return 405; }
        location / { return 200 "$uri id=$id"; }"#,
    );
    let mut asked = Asked::with_fields("GET /a", &[("Cookie", "x=1; id=kim; y=2")], &[]);
    assert_eq!(asked.decide(&table), "text 200 /a id=kim");
    let mut asked = Asked::with_fields("GET /a", &[("Cookie", "ID=kim")], &[]);
    assert_eq!(asked.decide(&table), "text 200 /a id=kim");
    let mut asked = Asked::with_fields("GET /a", &[("User-Agent", "x MSIE y")], &[]);
    assert_eq!(asked.decide(&table), "text 200 /msie//a id=");
    assert_eq!(ask(&table, "POST /a", &[]), "error 405 ");
    assert_eq!(ask(&table, "GET /a", &[]), "text 200 /a id=");
}

/// F7: the canonical host, in the three ways that people write it.
#[test]
fn a_host_is_made_canonical() {
    let table = server(
        r"if ($host != example.org) { rewrite ^/(.*)$ https://example.org/$1 permanent; }
        location / { return 200 ok; }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /a", "text 200 ok"),
            ("GET http://www.example.org/a?x=1", "redirect 301 https://example.org/a?x=1"),
            ("GET http://www.example.org/", "redirect 301 https://example.org/"),
            ("GET http://www.example.org/a%20b%26c", "redirect 301 https://example.org/a%20b&c"),
        ],
    );
    let table = server("rewrite ^ $scheme://example.org$request_uri?;");
    check(&table, &[], &[("GET /a%20b?c", "redirect 302 http://example.org/a%20b?c")]);
}

/// F7: only a `rewrite` that matches opens `internal` locations.
#[test]
fn a_rewrite_that_does_not_match_opens_nothing() {
    let table = server(
        "rewrite ^/none /inside; rewrite ^/open /inside;
        location /inside { internal; return 200 in; }
        location /loc { rewrite ^/none /x break; rewrite ^/loc/open /inside; return 200 $uri; }
        location /if { if ($arg_a ~ x) { rewrite ^/none /inside last; } return 200 $uri; }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /inside", "error 404"),
            ("GET /open", "text 200 in"),
            ("GET /none", "text 200 in"),
            ("GET /loc/a", "text 200 /loc/a"),
            ("GET /if?a=x", "text 200 /if"),
        ],
    );
    // Also in the location itself.
    let table =
        server("location /inside { internal; rewrite ^/none /x; return 200 in; } return 200 $uri;");
    check(&table, &[], &[("GET /inside", "text 200 /inside")]);
}

/// F7: `last` looks for the location again, `break` stays in it.
#[test]
fn last_searches_and_break_stays() {
    let script = |flag: &str| {
        format!(
            r"rewrite ^(/download/.*)/media/(.*)\..*$ $1/mp3/$2.mp3 {flag};
            rewrite ^(/download/.*)/audio/(.*)\..*$ $1/mp3/$2.ra {flag};"
        )
    };
    let at_server =
        server(&format!("{} return 403; location / {{ return 200 $uri; }}", script("last")));
    check(
        &at_server,
        &[],
        &[
            ("GET /download/a/media/song.wav", "text 200 /download/a/mp3/song.mp3"),
            ("GET /download/a/audio/song.wav", "text 200 /download/a/mp3/song.ra"),
            ("GET /download/a/other/song.wav", "error 403"),
        ],
    );
    let files = &["/srv/download/a/mp3/song.mp3"];
    let in_location =
        |flag| server(&format!("location /download/ {{ {} return 403; }}", script(flag)));
    let asked = "GET /download/a/media/song.wav";
    assert_eq!(ask(&in_location("break"), asked, files), "file /srv/download/a/mp3/song.mp3");
    // Found again, it comes to the `return`: the documentation warns of it.
    assert_eq!(ask(&in_location("last"), asked, files), "error 403");
}

/// F7: arguments are added unless the replacement ends in a question mark.
#[test]
fn arguments_are_kept_or_dropped() {
    let table = server(
        r"rewrite ^/users/(.*)$ /show?user=$1? last;
        rewrite ^/people/(.*)$ /show?user=$1 last;
        rewrite ^/plain/(.*)$ /show last;
        rewrite ^/none/(.*)$ /show? last;
        rewrite ^/away/(.*)$ /show?user=$1 redirect;
        rewrite ^/gone/(.*)$ /show?user=$1? permanent;
        rewrite ^/two/(.*)$ /show?a?b=$1 last;
        location / { return 200 $uri?$args; }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /users/kim?x=1", "text 200 /show?user=kim"),
            ("GET /people/kim?x=1", "text 200 /show?user=kim&x=1"),
            ("GET /people/kim", "text 200 /show?user=kim"),
            ("GET /plain/kim?x=1", "text 200 /show?x=1"),
            ("GET /none/kim?x=1", "text 200 /show?"),
            ("GET /away/kim?x=1", "redirect 302 http://example.org:8080/show?user=kim&x=1"),
            ("GET /gone/kim?x=1", "redirect 301 http://example.org:8080/show?user=kim"),
            ("GET /two/x?y", "text 200 /show?a?b=x&y"),
            // What was captured encoded does not become another argument.
            ("GET /users/a%26admin=1%23", "text 200 /show?user=a%26admin=1%23"),
            ("GET /users/a&b", "text 200 /show?user=a&b"),
        ],
    );
}

/// F7: without a flag the script goes on, and a location is looked for at its end.
#[test]
fn without_a_flag_the_script_goes_on() {
    let table = server(
        r"location /a { rewrite ^/a(.*)$ /b$1; rewrite ^/b/x$ /c/x; set $seen a; }
        location /b { return 200 'b $uri $seen'; }
        location /c { return 200 'c $uri $seen'; }
        location /stay { rewrite ^ /b; break; return 500; }
        location /same { rewrite ^/same$ /same/x; rewrite ^/same/x$ /b; }",
    );
    check(
        &table,
        &["/srv/b"],
        &[
            ("GET /a/y", "text 200 b /b/y a"),
            ("GET /a/x", "text 200 c /c/x a"),
            ("GET /stay", "file /srv/b"),
            ("GET /same", "text 200 b /b "),
        ],
    );
}

/// F7: at most ten rounds.
#[test]
fn a_circle_ends_in_500() {
    let table = server(
        r#"error_page 500 /page;
        location /a { rewrite ^/a(.*)$ /a$1x last; }
        location /n { set $n $n.; if ($uri !~ "^/n.{10}$") { rewrite ^(.*)$ ${1}x last; } return 200 $uri$n; }
        location /m { if ($uri !~ "^/m.{11}$") { rewrite ^(.*)$ ${1}x last; } return 200 $uri; }
        location /page { return 200 page; }"#,
    );
    let mut asked = Asked::new("GET /a", &[]);
    assert_eq!(asked.decide(&table), "error 500");
    let text = "rewrite or internal redirection cycle while processing \"/axxxxxxxxxxx\"";
    assert_eq!(
        asked.route_state.take_log_entries(),
        [LogEntry { level: Level::Error, text: text.into() }]
    );
    check(&table, &[], &[("GET /n", "text 200 /nxxxxxxxxxx..........."), ("GET /m", "error 500")]);
}

/// F7: an `if` of a location takes over with its own settings, and the last one that holds wins.
#[test]
fn an_if_of_a_location_takes_over() {
    let table = server(
        r"location / {
            add_header X-Kind outer;
            try_files $uri =404;
            if ($arg_other) { root /other; }
            if ($arg_kind = a) { add_header X-Kind a; error_page 404 =200 /page; }
            if ($arg_kind = b) { add_header X-Kind b; set $b 1; }
            if ($b) { return 200 b; }
        }
        location = /page { return 200 page; }",
    );
    let files = &["/srv/x", "/other/x", "/srv/dir/index.html"];
    check(
        &table,
        files,
        &[
            ("GET /x", "file /srv/x"),
            ("GET /none", "error 404"),
            ("GET /dir", "error 404"),
            // Within an `if` there is no `try_files`, as in nginx.
            ("GET /dir?other=1", "error 404"),
            ("GET /x?other=1", "file /other/x"),
            ("GET /dir?kind=a", "redirect 301 http://example.org:8080/dir/?kind=a"),
            ("GET /x?other=1&kind=a", "file /srv/x"),
            ("GET /none?kind=a", "text 200 page"),
            ("GET /none?kind=b", "text 200 b"),
        ],
    );
    let fields = |line| {
        let mut asked = Asked::new(line, files);
        asked.decide(&table);
        let mut out = sekisho_http::Fields::new();
        let status = sekisho_http::Status::OK;
        let (request, route_state) = (asked.request(), &asked.route_state);
        sekisho_route::added_fields(&table, &request, route_state, status, None, &mut out);
        String::from_utf8(out.as_lines().to_vec()).unwrap()
    };
    assert_eq!(fields("GET /x"), "X-Kind: outer\r\n");
    assert_eq!(fields("GET /x?kind=a"), "X-Kind: a\r\n");
    assert_eq!(
        fields("GET /x?kind=b"),
        "X-Kind: outer\r\n",
        "the last one takes from the location"
    );
}

/// F7
#[test]
fn settings_that_follow_an_if_hold_in_it() {
    let table = server("location / { if ($arg_x) { add_header A b; } root /late; }");
    check(&table, &["/late/a"], &[("GET /a?x=1", "file /late/a"), ("GET /a", "file /late/a")]);
}

/// F7: `-f`, `-d`, `-e`, `-x` and their opposites.
#[test]
fn files_are_tested() {
    let tests = ["-f", "!-f", "-d", "!-d", "-e", "!-e", "-x", "!-x"];
    let lines =
        tests.map(|test| format!("if ({test} $request_filename) {{ set $all \"$all {test}\"; }}"));
    let table = server(&format!("location / {{ {} return 200 $all; }}", lines.concat()));
    check(
        &table,
        &["/srv/a.txt", "/srv/run.sh", "/srv/dir/x", "!/srv/secret", "?/srv/broken"],
        &[
            ("GET /a.txt", "text 200  -f !-d -e !-x"),
            ("GET /run.sh", "text 200  -f !-d -e -x"),
            ("GET /dir", "text 200  !-f -d -e -x"),
            ("GET /none", "text 200  !-f !-d !-e !-x"),
            ("GET /broken", "text 200  !-f !-d !-e !-x"),
            // A file that is not readable exists for the tests.
            ("GET /secret", "text 200  -f !-d -e !-x"),
        ],
    );
    let table = server(
        r"if (-f $document_root/maintenance.html) { return 503; }
        location / { if (!-e $request_filename) { rewrite ^(.*)$ /index.php?q=$1 last; } }
        location = /index.php { return 200 $args; }",
    );
    check(&table, &["/srv/maintenance.html"], &[("GET /a", "error 503")]);
    check(&table, &["/srv/a"], &[("GET /a", "file /srv/a"), ("GET /b?x=1", "text 200 q=/b&x=1")]);
}

/// F2: whatever is put together, nothing outside is asked for (the view of files checks each look).
#[test]
fn a_test_never_asks_for_what_has_dots_in_it() {
    let table = server(
        r"location / {
            rewrite ^/dots$ /a/../b;
            if (-e $request_filename) { return 200 file; }
            if (-e $document_root/$arg_x) { return 200 root; }
            if (-e /data/$arg_x) { return 200 data; }
            if (-e $arg_x) { return 200 any; }
            set $y $arg_x;
            if (-e /data$y) { return 200 set; }
            return 200 no;
        }",
    );
    let files = &["/srv/b", "/data/b", "/etc/passwd", "/srv/../b", "/data/../b"];
    check(
        &table,
        files,
        &[
            ("GET /dots?x=none", "text 200 no"),
            ("GET /x?x=../b", "text 200 no"),
            ("GET /x?x=/../b", "text 200 no"),
            ("GET /x?x=..", "text 200 no"),
            ("GET /x?x=b", "text 200 root"),
            ("GET /x?x=/etc/passwd", "text 200 any"),
            ("GET /x?x=etc/passwd", "text 200 no"),
        ],
    );
}

/// F2, V17: a path that a script has made is used only where it is resolved; errors go on with the last good one.
#[test]
fn a_path_with_dots_is_never_used() {
    let table = server(
        r"error_page 404 @missing;
        location /last/ { rewrite ^/last/(.*)$ /$arg_to/$1 last; }
        location /break/ { rewrite ^/break/(.*)$ /$arg_to/$1 break; }
        location /relative { rewrite ^/(.*)$ $1 last; }
        location /between { rewrite ^/(.*)$ $1; rewrite ^(.*)$ /x/$1 break; }
        location /leave { rewrite ^/(.*)$ ../$1; return 404; }
        location /nothing { rewrite ^ $arg_no last; }
        location @missing { try_files $uri =410; }",
    );
    let files = &["/srv/a/b", "/srv/x/between", "/b", "/srv/../leave"];
    check(
        &table,
        files,
        &[
            ("GET /break/b?to=a", "file /srv/a/b"),
            ("GET /last/b?to=a", "file /srv/a/b"),
            ("GET /break/b?to=..", "error 410"),
            ("GET /last/b?to=..", "error 410"),
            ("GET /last/b?to=%00", "error 410"),
            ("GET /last/b?to=a%0d", "error 410"),
            ("GET /relative", "error 410"),
            ("GET /between", "file /srv/x/between"),
            ("GET /leave", "error 410"),
            ("GET /nothing", "error 500"),
        ],
    );
    let mut asked = Asked::new("GET /break/b?to=..", files);
    asked.decide(&table);
    assert_eq!(asked.route_state.path, b"/break/b");
}

/// V48: no address splits the answer.
#[test]
fn no_redirect_splits_a_field() {
    let table = server(
        r"rewrite ^/1/(.*)$ http://x/$1 redirect;
        rewrite ^/2 http://x$uri redirect;
        rewrite ^/3 http://x/$arg_a? redirect;
        rewrite ^/4(.*)$ $1 redirect;
        location / { set $p $uri; if ($uri ~ ^/5) { return 302 http://x$p; } }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /1/a%0d%0aSet-Cookie:x", "error 400"),
            ("GET /2/a%20b%C3%A9", "redirect 302 http://x/2/a%20b%C3%A9"),
            ("GET /3?a=%0d%0ab", "redirect 302 http://x/%0d%0ab"),
            ("GET /4//evil", "redirect 302 http://example.org:8080/evil"),
            ("GET /5%20b", "redirect 302 http://x/5%20b"),
            ("GET /1/%e3%81%82?b=%0d", "redirect 302 http://x/%E3%81%82?b=%0d"),
        ],
    );
}

/// V48: a path of the client's does not become a host, where redirects are relative.
#[test]
fn no_redirect_leads_to_a_host_of_the_clients() {
    let table = server(
        r"merge_slashes off; absolute_redirect off;
        rewrite ^/1/(.*)$ /$1 redirect;
        rewrite ^/2(.*)$ $1 permanent;
        rewrite ^/3 //cdn.example/x redirect;
        location /4 { return 301 /$arg_x; }
        location /5 { return 301 //cdn.example$uri; }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /1//evil.example", "redirect 302 /.//evil.example"),
            ("GET /1/good", "redirect 302 /good"),
            ("GET /2//evil.example", "redirect 301 /.//evil.example"),
            ("GET /3", "redirect 302 //cdn.example/x"),
            ("GET /4?x=/evil.example", "redirect 301 /.//evil.example"),
            ("GET /5", "redirect 301 //cdn.example/5"),
        ],
    );
}

/// C1: an `if` may run a program.
#[test]
fn an_if_may_run_a_program() {
    let table = server(
        r"location /a/ { if ($arg_run) { cgi_pass /srv/run.sh; } }
        location /b/ { cgi on; if ($arg_run = no) { cgi off; } if ($arg_x) { set $y 1; } }",
    );
    check(
        &table,
        &["/srv/run.sh", "/srv/a/x", "/srv/b/x"],
        &[
            ("GET /a/x", "file /srv/a/x"),
            ("GET /a/x?run=1", "cgi /srv/run.sh /a|/x"),
            ("GET /b/x", "cgi /srv/b/x /b/x|"),
            ("GET /b/x?x=1", "cgi /srv/b/x /b/x|"),
            ("GET /b/x?run=no", "file /srv/b/x"),
        ],
    );
}

/// F7: the groups of the last expression that matched; one that fails takes them away.
#[test]
fn captures_are_of_the_last_match() {
    let table = server(
        r"location ~ ^/(\w+)/(\w+)$ {
            set $a $1;
            if ($args ~ ^(\d+)$) { set $b $1; }
            set $c $2;
            rewrite ^/(x)/ /r/$1;
            rewrite ^/never$ /r;
            return 200 '$a|$b|$c|$1';
        }
        location ~ ^/named/(?<who>\w+)/ {
            if ($args ~ (?<How>\w+)) { set $did 1; }
            set $who $who.;
            rewrite /(?<who>[^/]+)$ /r;
            return 200 '$who|$how|$did';
        }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /k/l?12", "text 200 k|12||"),
            ("GET /k/l?z", "text 200 k|||"),
            ("GET /k/l", "text 200 k|||"),
            ("GET /x/y", "text 200 x|||"),
            ("GET /named/kim/z?fast", "text 200 z|fast|1"),
            ("GET /named/kim/", "text 200 kim.||"),
        ],
    );
}

/// F7: what is captured from an encoded path is encoded in values until a path has been rewritten, as in nginx.
#[test]
fn captures_are_encoded_as_nginx_does() {
    let table = server(
        r"location ~ ^/a/(.*)$ { set $x $1; rewrite ^/a/(.*)$ /b/$1 ; set $y $1; return 200 '$x|$y|$1|$uri'; }",
    );
    check(
        &table,
        &[],
        &[
            ("GET /a/k%20l&m", "text 200 k%20l%26m|k l&m|k l&m|/b/k l&m"),
            ("GET /a/k+l", "text 200 k%2Bl|k+l|k+l|/b/k+l"),
            ("GET /a/k&l", "text 200 k&l|k&l|k&l|/b/k&l"),
        ],
    );
}

/// F7: variables are server-wide, live as long as the request, and are empty where no `set` was run.
#[test]
fn variables_live_as_long_as_the_request() {
    let table = configured(
        r"log_format own '$kind/$http_x/$mapped/$never';
        map $kind $mapped { default other; a A; }
        server {
            listen 8080; root /srv; access_log /log own;
            error_page 404 =200 @gone;
            set $kind $arg_kind;
            location / { if ($arg_x) { set $http_x $arg_x; } set $kind $kind; }
            location @gone { return 200 '$kind $http_x $mapped$never'; }
            location /args { set $args 'b=2'; return 200 '$arg_b $args $query_string $is_args'; }
            location /map { set $mapped own; return 200 $mapped; }
            location /never { set $never 1; }
            location /rate { set $limit_rate 4k; return 200 $limit_rate; }
        }",
    );
    let mut asked = Asked::with_fields("GET /x?kind=a", &[("X", "field")], &[]);
    assert_eq!(asked.decide(&table), "text 200 a field A");
    let mut asked = Asked::with_fields("GET /x?kind=b&x=set", &[("X", "field")], &[]);
    assert_eq!(asked.decide(&table), "text 200 b set other");
    let log = &table.location(asked.route_state.location).settings.access_logs[0];
    let mut line = Vec::new();
    let (format, mut times) = (LineFormat::new(&log.format), TimeTexts::new());
    let (request, route_state) = (asked.request(), &asked.route_state);
    log_line(&format, &table, &request, route_state, None, &mut times, &mut line);
    assert_eq!(line, b"b/set/other/");
    // Used again for the next request, nothing is left of the one before.
    let mut next = Asked { route_state: asked.route_state, ..Asked::new("GET /x", &[]) };
    assert_eq!(next.decide(&table), "text 200   other");
    check(
        &table,
        &[],
        &[
            ("GET /args?a=1", "text 200 2 b=2 b=2 ?"),
            ("GET /map?kind=a", "text 200 own"),
            ("GET /rate", "text 200 4096"),
        ],
    );
    let mut asked = Asked::new("GET /rate", &[]);
    asked.decide(&table);
    assert_eq!(asked.route_state.limit_rate, Some(4096));
}

/// F7: a server's script is run again after an internal redirect, and a rewritten path may be internal.
#[test]
fn scripts_and_internal_redirects_meet() {
    let table = server(
        r"set $n $n.;
        error_page 404 =200 /error;
        location / { try_files $uri /next?x; }
        location /next { return 404; }
        location /error { return 200 $n; }
        location /to { rewrite ^ /inside last; }
        location /inside { internal; return 200 inside; }
        location /dir/ { set $m $m,; add_header X $m; }",
    );
    check(
        &table,
        &["/srv/dir/index.html"],
        &[
            ("GET /a", "text 200 ..."),
            ("GET /to", "text 200 inside"),
            ("GET /inside", "text 200 .."),
            ("GET /dir/", "file /srv/dir/index.html"),
        ],
    );
    let mut asked = Asked::new("GET /dir/", &["/srv/dir/index.html"]);
    asked.decide(&table);
    let mut out = sekisho_http::Fields::new();
    let status = sekisho_http::Status::OK;
    let (request, route_state) = (asked.request(), &asked.route_state);
    sekisho_route::added_fields(&table, &request, route_state, status, None, &mut out);
    assert_eq!(out.as_lines(), b"X: ,,\r\n", "the index is looked for as if it had been asked for");
}

/// F7: the prefix that an alias replaces is gone when the path has been rewritten in place.
#[test]
fn an_alias_and_a_path_rewritten_in_place_do_not_go_together() {
    let table = server(
        r"location /a/ { alias /data/; rewrite ^/a/x$ /a/y break; }
        location /b/ { alias /data/; rewrite ^/b/x$ /b/y last; }
        location /c/ { alias /data/; if ($arg_x) { add_header X x; } }",
    );
    check(
        &table,
        &["/data/y", "/data/z"],
        &[
            ("GET /a/x", "error 500"),
            ("GET /a/y", "file /data/y"),
            ("GET /b/x", "file /data/y"),
            ("GET /c/z?x=1", "file /data/z"),
            ("GET /c/z", "file /data/z"),
        ],
    );
}

/// H12: the script of a location runs only for clients that `limit_except` admits.
#[test]
fn limit_except_comes_before_the_script() {
    let table = server(
        r"location / { limit_except GET { deny all; } if ($arg_x) { set $y 1; } rewrite ^ /b last; }
        location /b { return 200 b; }
        location /c { rewrite ^ /run.cgi last; }
        location /run.cgi { cgi on; }",
    );
    check(
        &table,
        &["/srv/run.cgi"],
        &[
            ("GET /a", "text 200 b"),
            ("POST /a", "error 403"),
            ("POST /a?x=1", "error 403"),
            ("PATCH /c", "cgi /srv/run.cgi /run.cgi|"),
            ("PATCH /b", "text 200 b"),
        ],
    );
}

/// `rewrite_log` and `uninitialized_variable_warn`
#[test]
fn steps_and_unset_variables_are_remarked_on() {
    let log_entries = |table: &Table, line| {
        let mut asked = Asked::new(line, &[]);
        asked.decide(table);
        let log_entries = asked.route_state.take_log_entries();
        assert_eq!(asked.route_state.take_log_entries(), [], "they are said once");
        log_entries
            .into_iter()
            .map(|one| format!("{} {}", one.level.name(), one.text))
            .collect::<Vec<_>>()
    };
    let lines = r#"location / {
            if ($args ~ "^x$") { set $y 1; }
            rewrite ^/a(.*)$ /b$1?c=1;
            rewrite ^/r(.*)$ http://x/$1;
            return 200 "$y$y";
        }"#;
    let logs = server(&format!("rewrite_log on; {lines}"));
    assert_eq!(
        log_entries(&logs, "GET /q%C3%A9"),
        [
            "notice \"^x$\" does not match \"\"",
            "notice \"^/a(.*)$\" does not match \"/q\\xc3\\xa9\"",
            "notice \"^/r(.*)$\" does not match \"/q\\xc3\\xa9\"",
            "warn using uninitialized \"y\" variable",
        ]
    );
    assert_eq!(
        log_entries(&logs, "GET /ab?x"),
        [
            "notice \"^x$\" matches \"x\"",
            "notice \"^/a(.*)$\" matches \"/ab\"",
            "notice rewritten data: \"/bb\", args: \"c=1&x\"",
            "notice \"^/r(.*)$\" does not match \"/bb\"",
        ]
    );
    assert_eq!(
        log_entries(&logs, "GET /r?x").last().unwrap(),
        "notice rewritten redirect: \"http://x/?x\""
    );
    assert_eq!(log_entries(&server(lines), "GET /ab"), ["warn using uninitialized \"y\" variable"]);
    let quiet = server(&format!("uninitialized_variable_warn off; {lines}"));
    assert_eq!(log_entries(&quiet, "GET /ab"), [""; 0]);
}

/// A value that doubles itself ends in 500, and soon.
#[test]
fn values_do_not_grow_without_end() {
    let twice = |line: &str| server(&format!("{} location / {{ return 200 x; }}", line.repeat(60)));
    for line in [
        "set $a a$a$a;",
        "rewrite ^(.*)$ $1$1;",
        "rewrite ^(.*)$ /x?a=$args$args;",
        "set $args a$args$args;",
    ] {
        assert_eq!(ask(&twice(line), "GET /x", &[]), "error 500", "{line}");
    }
}
