//! Variables, maps and the lines of the access log.

use std::sync::{Arc, LazyLock};

use sekisho_config::{Escape, Level, LogFormat, PathMapping};
use sekisho_http::Fields;
use sekisho_route::{
    LineFormat, LogEntry, Machine, Sent, Table, TimeTexts, expand, log_line, wants_line,
};

use crate::configured::configured;
use crate::support::{
    Asked, check, fields, map, named_server, pattern, prefix, server, status, t, table_with_maps,
};

fn value(template: &str, table: &Table, asked: &Asked, sent: Option<&Sent<'_>>) -> String {
    let mut out = Vec::new();
    let (request, route_state) = (asked.request(), &asked.route_state);
    expand(&t(template), table, &request, route_state, sent, &mut out);
    // A compiled format says the same.
    let format = LogFormat { name: "test".into(), escape: Escape::None, line: t(template) };
    let (format, mut times, mut line) = (LineFormat::new(&format), TimeTexts::new(), Vec::new());
    log_line(&format, table, &request, route_state, sent, &mut times, &mut line);
    assert_eq!(line, out, "{template}");
    out.escape_ascii().to_string()
}

fn sent() -> Sent<'static> {
    static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
        fields("Content-Type: text/plain\r\nSet-Cookie: a\r\nX: y\r\nset-cookie: b\r\n")
    });
    Sent {
        status: Some(status(206)),
        bytes: 1234,
        body_bytes: 1000,
        fields: &FIELDS,
        trailers: None,
        request_bytes: 345,
        plain_bytes: Some(3256),
        completed: true,
        framing: None,
    }
}

const FIELDS: &[(&str, &str)] = &[
    ("Host", "Example.ORG:8080"),
    ("User-Agent", "curl \"7\""),
    ("Content-Type", "text/x"),
    ("Content-Length", "12"),
    ("Cookie", "a=1; session=xyz"),
    ("X-Multi", "one"),
    ("x_multi", "two"),
    ("Cookie", "b=2"),
    ("Authorization", "Basic a2ltOnNlY3JldA=="),
];

#[test]
fn every_variable_has_its_value() {
    let table =
        named_server(&["www.example.org", "example.org"], vec![prefix("/", |_| {})]).table();
    let table = table.with_machine(Machine { hostname: "barrier".into(), pid: 42 });
    let line = "GET /a%20b/../c.txt?x=1&Y=%202&xx=3";
    let mut asked = Asked::with_fields(line, FIELDS, &["/srv/c.txt"]);
    assert_eq!(asked.decide(&table), "file /srv/c.txt");
    let rows = [
        ("$arg_x", "1"),
        ("$arg_y", "%202"),
        ("$arg_xx", "3"),
        ("$arg_z", ""),
        ("$args", "x=1&Y=%202&xx=3"),
        ("$query_string", "x=1&Y=%202&xx=3"),
        ("$is_args", "?"),
        ("$binary_remote_addr", "\\xc0\\x00\\x02\\x01"),
        ("$body_bytes_sent", "1000"),
        ("$bytes_sent", "1234"),
        ("$gzip_ratio", "3.26"),
        ("$connection", "7"),
        ("$connection_requests", "3"),
        ("$connection_time", "1.002"),
        ("$connections_active", "0"),
        ("$is_request_port$request_port", ":8080"),
        ("$content_length", "12"),
        ("$content_type", "text/x"),
        ("$cookie_session", "xyz"),
        ("$cookie_b", "2"),
        ("$cookie_none", ""),
        ("$document_root", "/srv"),
        ("$realpath_root", "/srv"),
        ("$request_filename", "/srv/c.txt"),
        ("$document_uri", "/c.txt"),
        ("$uri", "/c.txt"),
        ("$host", "example.org"),
        ("$http_host", "Example.ORG:8080"),
        ("$http_x_multi", "one, two"),
        ("$http_cookie", "a=1; session=xyz; b=2"),
        ("$http_none", ""),
        ("$hostname", "barrier"),
        ("$https", ""),
        ("$scheme", "http"),
        ("$msec", "784111777.123"),
        ("$nginx_version", env!("CARGO_PKG_VERSION")),
        ("$pid", "42"),
        ("$pipe", "p"),
        ("$remote_addr", "192.0.2.1"),
        ("$remote_port", "4711"),
        ("$remote_user", "kim"),
        ("$request", "GET /a%20b/../c.txt?x=1&Y=%202&xx=3 HTTP/1.1"),
        ("$request_completion", "OK"),
        ("$request_id", "0000000000000000000000000000feed"),
        ("$request_length", "345"),
        ("$request_method", "GET"),
        ("$request_time", "1.002"),
        ("$request_uri", "/a%20b/../c.txt?x=1&Y=%202&xx=3"),
        ("$sent_http_content_type", "text/plain"),
        ("$sent_http_set_cookie", "a, b"),
        ("$sent_http_none", ""),
        ("$server_addr", "127.0.0.1"),
        ("$server_name", "www.example.org"),
        ("$server_port", "8080"),
        ("$server_protocol", "HTTP/1.1"),
        ("$status", "206"),
        ("$time_iso8601", "1994-11-06T10:49:37+02:00"),
        ("$time_local", "06/Nov/1994:10:49:37 +0200"),
        ("$1", ""),
        ("$none", ""),
        ("a${uri}b$host", "a/c.txtbexample.org"),
    ];
    for (template, expected) in rows {
        assert_eq!(value(template, &table, &asked, Some(&sent())), expected, "{template}");
    }
}

#[test]
fn what_is_not_known_is_nothing() {
    let table = named_server(&["*.example.org"], Vec::new()).table();
    let mut asked = Asked::with_fields("GET http://x.example.org", &[], &[]);
    asked.connection.remote = None;
    asked.connection.local = None;
    asked.connection.is_tls = true;
    asked.decide(&table);
    let rows = [
        ("$remote_addr", "unix:"),
        ("$remote_port", ""),
        ("$binary_remote_addr", ""),
        ("$server_addr", "unix:"),
        ("$server_port", ""),
        ("$https", "on"),
        ("$scheme", "https"),
        ("$status", "000"),
        ("$request_completion", ""),
        ("$request_time", "1.002"),
        ("$request_uri", "/"),
        ("$host", "x.example.org"),
        ("$server_name", "*.example.org"),
        ("$is_args$args", ""),
    ];
    for (template, expected) in rows {
        assert_eq!(value(template, &table, &asked, None), expected, "{template}");
    }
    let mut nameless = Asked::with_fields("GET /", &[], &[]);
    nameless.decide(&table);
    assert_eq!(value("$host", &table, &nameless, None), "*.example.org");
}

#[test]
fn times_west_of_greenwich_are_negative() {
    let table = server(Vec::new()).table();
    let mut asked = Asked::new("GET /", &[]);
    asked.decide(&table);
    let mut request = asked.request();
    request.wall.utc_offset_secs = -12_600;
    let mut out = Vec::new();
    expand(&t("$time_local $time_iso8601"), &table, &request, &asked.route_state, None, &mut out);
    assert_eq!(out, b"06/Nov/1994:05:19:37 -0330 1994-11-06T05:19:37-03:30");
}

#[test]
fn broken_credentials_name_nobody() {
    let table = server(Vec::new()).table();
    for (credentials, expected) in [
        ("Basic a2ltOnNlY3JldA==", "kim"),
        ("basic a2ltOg", "kim"),
        ("Basic a2lt", ""),
        ("Basic ", ""),
        ("Basic", ""),
        ("Basic !!!!", ""),
        ("Bearer a2ltOnNlY3JldA==", ""),
    ] {
        let fields = [("Host", "example.org"), ("Authorization", credentials)];
        let mut asked = Asked::with_fields("GET /", &fields, &[]);
        asked.decide(&table);
        assert_eq!(value("$remote_user", &table, &asked, None), expected, "{credentials}");
    }
}

#[test]
fn the_file_name_is_known_before_it_was_looked_for() {
    let table = server(vec![prefix("/i/", |own| {
        own.path_mapping = PathMapping::Alias(Arc::new(t("/data/$host/")));
        own.rewriting.script =
            Some(crate::support::returns(200, Some("$request_filename $document_root")));
    })])
    .table();
    let outcome = Asked::new("GET /i/x", &[]).decide(&table);
    assert_eq!(outcome, "text 200 /data/example.org/x /data/example.org/");
}

#[test]
fn maps_are_looked_up_as_nginx_does() {
    let mut by_host =
        map("name", "$host", &[("example.org", "exact"), ("", "empty")], "default $host");
    by_host.hostnames = true;
    by_host.leading =
        vec![(b".sub.example.org".into(), t("longer")), (b".example.org".into(), t("leading"))];
    by_host.trailing = vec![(b"www.".into(), t("trailing"))];
    by_host.patterns = vec![(pattern(r"^(?P<label>\w+)\.net$"), t("regex $1 $label"))].into();
    let table = table_with_maps(vec![server(Vec::new())], vec![by_host]);
    for (host, expected) in [
        ("example.org", "exact"),
        ("EXAMPLE.org.", "exact"),
        ("a.example.org", "leading"),
        ("a.sub.example.org", "longer"),
        ("www.x", "trailing"),
        ("kim.net", "regex kim kim"),
        ("other", "default other"),
    ] {
        let mut asked = Asked::with_fields("GET /", &[("Host", host)], &[]);
        asked.decide(&table);
        assert_eq!(value("$map0", &table, &asked, None), expected, "{host}");
    }
}

#[test]
fn an_empty_value_meets_no_regex_of_a_map() {
    let mut by_argument = map("name", "$arg_x", &[], "default");
    by_argument.patterns = vec![(pattern("^"), t("regex"))].into();
    let table = table_with_maps(vec![server(Vec::new())], vec![by_argument]);
    for (line, expected) in [("GET /", "default"), ("GET /?x=1", "regex")] {
        let mut asked = Asked::new(line, &[]);
        asked.decide(&table);
        assert_eq!(value("$map0", &table, &asked, None), expected, "{line}");
    }
}

/// V31: neither the default nor a later key holds, and nothing that was made with the value is used.
#[test]
fn an_expression_of_a_map_that_runs_out_of_steps_fails_the_request() {
    let deny = || {
        let mut deny = map("deny", "$arg_m", &[], "0");
        deny.patterns = vec![(pattern(r"(?=x)x(a+)+\1b"), t("1")), (pattern("^xa"), t("2"))].into();
        deny
    };
    let returned = server(vec![prefix("/", |own| {
        own.rewriting.script = Some(crate::support::returns(200, Some("deny $map0")));
    })]);
    let rooted = server(vec![prefix("/", |own| {
        own.path_mapping = PathMapping::Root(Arc::new(t("/srv/$map0")));
    })]);
    let text = "a regular expression of \"$deny\" took too many steps";
    let line = format!("GET /f?m=x{}", "a".repeat(60));
    for one in [returned, rooted] {
        let table = table_with_maps(vec![one], vec![deny()]);
        let mut asked = Asked::new(&line, &["/srv/0/f", "/srv/2/f"]);
        assert_eq!(asked.decide(&table), "error 500");
        let entries = asked.route_state.take_log_entries();
        assert_eq!(entries, [LogEntry { level: Level::Error, text: text.into() }]);
        let mut asked = Asked::new("GET /f?m=xa", &["/srv/2/f"]);
        assert!(["text 200 deny 2", "file /srv/2/f"].contains(&&*asked.decide(&table)));
    }
}

#[test]
fn maps_may_use_maps_but_not_without_end() {
    let maps = vec![
        map("a", "$arg_x", &[("1", "one"), ("2", "$map1")], "none"),
        map("b", "$arg_y", &[("1", "$uri")], "$map0$map0"),
    ];
    let table = table_with_maps(vec![server(Vec::new())], maps);
    for (line, expected) in [
        ("GET /?x=1", "one"),
        ("GET /", "none"),
        ("GET /?x=2&y=1", "/"),
        ("GET /?x=2", ""), // in a circle
    ] {
        let mut asked = Asked::new(line, &[]);
        asked.decide(&table);
        assert_eq!(value("$map0", &table, &asked, None), expected, "{line}");
    }
}

/// nginx's `combined`.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";

fn line(format: &str, escape: Escape, fields: &[(&str, &str)]) -> String {
    let table = server(Vec::new()).table();
    let mut asked = Asked::with_fields("GET /x", fields, &[]);
    asked.decide(&table);
    let format = LogFormat { name: "test".into(), escape, line: t(format) };
    let mut out = b"kept ".to_vec();
    let (format, mut times) = (LineFormat::new(&format), TimeTexts::new());
    let (request, route_state) = (asked.request(), &asked.route_state);
    log_line(&format, &table, &request, route_state, Some(&sent()), &mut times, &mut out);
    String::from_utf8(out)
        .expect("a log line is UTF-8")
        .strip_prefix("kept ")
        .expect("kept")
        .to_owned()
}

/// O6
#[test]
fn the_combined_line_is_nginx_own() {
    let fields = [("Host", "example.org"), ("User-Agent", "a \"b\" \\ \x01 \u{e4}")];
    assert_eq!(
        line(COMBINED, Escape::Default, &fields),
        "192.0.2.1 - - [06/Nov/1994:10:49:37 +0200] \"GET /x HTTP/1.1\" 206 1000 \"-\" \
         \"a \\x22b\\x22 \\x5C \\x01 \\xC3\\xA4\""
    );
}

/// O6: the text of a time is kept for the second and the offset that it is of, and for no other.
#[test]
fn the_time_of_a_line_is_that_of_the_request() {
    let table = server(Vec::new()).table();
    let mut asked = Asked::new("GET /", &[]);
    asked.decide(&table);
    let format = t("$time_local $time_iso8601");
    let format = LogFormat { name: "test".into(), escape: Escape::Default, line: format };
    let (format, mut times) = (LineFormat::new(&format), TimeTexts::new());
    let mut request = asked.request();
    for (secs, offset, expected) in [
        (0, 0, "06/Nov/1994:08:49:37 +0000 1994-11-06T08:49:37+00:00"),
        (0, 0, "06/Nov/1994:08:49:37 +0000 1994-11-06T08:49:37+00:00"),
        (1, 0, "06/Nov/1994:08:49:38 +0000 1994-11-06T08:49:38+00:00"),
        // The clock was set back; the summer ended.
        (0, 3600, "06/Nov/1994:09:49:37 +0100 1994-11-06T09:49:37+01:00"),
        (0, 0, "06/Nov/1994:08:49:37 +0000 1994-11-06T08:49:37+00:00"),
    ] {
        request.wall.unix_secs = 784_111_777 + secs;
        request.wall.utc_offset_secs = offset;
        let mut out = Vec::new();
        log_line(&format, &table, &request, &asked.route_state, None, &mut times, &mut out);
        assert_eq!(out.escape_ascii().to_string(), expected);
    }
}

/// O6: a request line that was not there, or not whole, is as it was before formats were compiled.
#[test]
fn a_request_without_a_target_or_without_a_line_is_written_as_it_is() {
    let table = server(Vec::new()).table();
    for (method, target, expected) in
        [("", "", "-"), ("GET", "", "GET  HTTP/1.1"), ("G\"", "/\\", "G\\x22 /\\x5C HTTP/1.1")]
    {
        let mut asked = Asked::new("GET /", &[]);
        asked.decide(&table);
        asked.head.begin(method.as_bytes(), target.as_bytes(), sekisho_http::Version::Http11);
        let format =
            LogFormat { name: "test".into(), escape: Escape::Default, line: t("$request") };
        let (format, mut times, mut out) = (LineFormat::new(&format), TimeTexts::new(), Vec::new());
        log_line(&format, &table, &asked.request(), &asked.route_state, None, &mut times, &mut out);
        assert_eq!(String::from_utf8(out).expect("ASCII"), expected);
    }
}

/// O6, V27: JSON too.
#[test]
fn a_json_line_stays_json() {
    let fields = [("Host", "example.org"), ("User-Agent", "a \"b\" \\ \x01\t \u{e4}")];
    let format = "{\"ua\":\"$http_user_agent\",\"ref\":\"$http_referer\",\"status\":$status}";
    assert_eq!(
        line(format, Escape::Json, &fields),
        "{\"ua\":\"a \\\"b\\\" \\\\ \\u0001\\t \u{e4}\",\"ref\":\"\",\"status\":206}"
    );
    assert_eq!(line("$binary_remote_addr", Escape::Json, &fields), "\\u00C0\\u0000\\u0002\\u0001");
}

#[test]
fn a_line_without_escaping_has_values_as_they_are() {
    let fields = [("Host", "example.org"), ("User-Agent", "a \"b\"")];
    assert_eq!(line("[$http_user_agent][$http_referer]", Escape::None, &fields), "[a \"b\"][]");
}

/// O6, V27: one request, one line.
#[test]
fn no_value_breaks_a_line() {
    let fields = [("Host", "example.org"), ("User-Agent", "a\r\nb\x7f\0")];
    for escape in [Escape::Default, Escape::Json] {
        let line = line("$http_user_agent $uri", escape, &fields);
        assert!(!line.contains(['\r', '\n', '\0']), "{line}");
    }
}

#[test]
fn a_condition_is_false_when_empty_or_zero() {
    let table = server(Vec::new()).table();
    for (query, expected) in
        [("x=1", true), ("x=00", true), ("x=0", false), ("x=", false), ("", false)]
    {
        let mut asked = Asked::new(&format!("GET /?{query}"), &[]);
        asked.decide(&table);
        let wants = wants_line(&t("$arg_x"), &table, &asked.request(), &asked.route_state, None);
        assert_eq!(wants, expected, "{query}");
    }
}

/// A `map` is looked up once for a request, as in nginx, unless it is volatile.
#[test]
fn what_a_map_found_first_holds() {
    let table = configured(
        r"map $uri $once { ~^/(.) $1; }
        map $uri $anew { volatile; ~^/(.) $1; }
        server { listen 8080; location / { set $x $once$anew; rewrite ^ /b; return 200 $x$once$anew; } }",
    );
    let mut asked = Asked::new("GET /a", &[]);
    assert_eq!(asked.decide(&table), "text 200 aaab");
    let mut next = Asked { route_state: asked.route_state, ..Asked::new("GET /c", &[]) };
    assert_eq!(next.decide(&table), "text 200 cccb", "nothing is left of the request before");
}

/// The named groups of a `map`'s key are variables of the request once it is looked up.
#[test]
fn a_map_sets_the_names_of_its_key() {
    let table = configured(
        r#"map $uri $m { ~^/map/(?<id>\w+)$ 1; default 0; }
        map $arg_n $n { volatile; ~^(?<id>\d+)$ "n$id"; default 0; }
        server { listen 8080;
            location /map/ { return 200 "$id|$m $id"; }
            location ~ ^/at/(?<id>.*)$ { return 200 "$id|$m|$n|$id"; }
            location /set { set $id own; set $before $id; set $x $n; return 200 "$before|$x|$id"; }
        }"#,
    );
    check(
        &table,
        &[],
        &[
            ("GET /map/77", "text 200 |1 77"),
            ("GET /map/7-7", "text 200 |0 "),
            ("GET /at/a", "text 200 a|0|0|a"),
            ("GET /at/a?n=5", "text 200 a|0|n5|5"),
            ("GET /set", "text 200 own|0|own"),
            ("GET /set?n=5", "text 200 own|n5|5"),
        ],
    );
}

#[test]
fn networks_and_shares_have_values() {
    let table = configured(
        r#"geo $near { default far; 192.0.2.0/24 near; 192.0.2.128/25 half; }
        geo $arg_ip $net { 10.0.0.0/8 ten; 2001:db8::/32 doc; 255.255.255.255 none; }
        split_clients "$arg_s" $part { 50% a; * b; }
        server { listen 8080; location / { return 200 "$near|$net"; } location /s { return 200 $part; } }"#,
    );
    check(
        &table,
        &[],
        &[
            ("GET /?ip=10.1.2.3", "text 200 near|ten"),
            ("GET /?ip=::ffff:10.1.2.3", "text 200 near|ten"),
            ("GET /?ip=11.1.2.3", "text 200 near|"),
            ("GET /?ip=2001:db8::1", "text 200 near|doc"),
            ("GET /?ip=nonsense", "text 200 near|none"),
            ("GET /s?s=a", "text 200 b"),
            ("GET /s?s=abcd", "text 200 a"),
        ],
    );
}
