//! `add_header`, `expires` and media types.

use sekisho_config::{AddHeader, Expires, Settings};
use sekisho_http::Fields;
use sekisho_route::{added_fields, media_type};

use crate::support::{self, Asked, WALL, server, status, t};

fn fields(
    change: impl FnOnce(&mut Settings) + 'static,
    code: u16,
    modified: Option<i64>,
) -> String {
    let table = server(Vec::new()).set(change).table();
    let mut asked = Asked::with_fields(
        "GET /a.txt",
        &[("Host", "example.org"), ("X-Evil", "a\r\nSet-Cookie: b"), ("X-Tab", "a\tb")],
        &["/srv/a.txt"],
    );
    asked.decide(&table);
    let mut out = Fields::new();
    added_fields(&table, &asked.request(), &asked.route_state, status(code), modified, &mut out);
    String::from_utf8(out.as_lines().to_vec()).expect("text")
}

/// The same after these lines of a handler's.
fn fields_after(
    lines: &str,
    change: impl FnOnce(&mut Settings) + 'static,
    modified: Option<i64>,
) -> String {
    let table = server(Vec::new()).set(change).table();
    let mut asked = Asked::new("GET /a.txt", &["/srv/a.txt"]);
    asked.decide(&table);
    let mut out = support::fields(lines);
    added_fields(&table, &asked.request(), &asked.route_state, status(200), modified, &mut out);
    String::from_utf8(out.as_lines().to_vec()).expect("text")
}

/// F7: as nginx, whose handlers for these fields replace what is there.
#[test]
fn some_fields_take_the_place_of_what_is_there() {
    let lines = "Last-Modified: old\r\nETag: old\r\nX: y\r\n";
    let replaced = fields_after(
        lines,
        |own| {
            own.add_headers =
                [add("last-modified", "new", false), add("ETag", "$arg_none", false)].into();
        },
        None,
    );
    assert_eq!(replaced, "X: y\r\nlast-modified: new\r\n");
    let seen = fields_after(
        "",
        |own| {
            own.add_headers = [add("X-A", "a", false), add("X-B", "$sent_http_x_a", false)].into();
        },
        None,
    );
    assert_eq!(seen, "X-A: a\r\nX-B: a\r\n");
    let program = "Cache-Control: private\r\nExpires: 0\r\nX: y\r\n";
    let expires = fields_after(program, |own| own.expires = Expires::Epoch, None);
    assert_eq!(
        expires,
        "X: y\r\nExpires: Thu, 01 Jan 1970 00:00:01 GMT\r\nCache-Control: no-cache\r\n"
    );
}

/// RFC 9110 §8.8.2.1
#[test]
fn no_date_is_later_than_the_answer() {
    let lines = "Last-Modified: later\r\n";
    let later = fields_after(lines, |_| {}, Some(WALL.unix_secs + 1));
    assert_eq!(later, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    assert_eq!(fields_after(lines, |_| {}, Some(WALL.unix_secs)), lines);
}

fn add(name: &str, value: &str, always: bool) -> AddHeader {
    AddHeader { name: name.into(), value: t(value), always }
}

#[test]
fn expires_is_what_nginx_makes_of_it() {
    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let table = [
        (Expires::Off, None, None),
        (Expires::Epoch, None, Some(("Thu, 01 Jan 1970 00:00:01 GMT", "no-cache"))),
        (Expires::Max, None, Some(("Thu, 31 Dec 2037 23:55:55 GMT", "max-age=315360000"))),
        (Expires::After(0), None, Some((NOW, "max-age=0"))),
        (Expires::After(-1), None, Some(("Sun, 06 Nov 1994 08:49:36 GMT", "no-cache"))),
        (Expires::After(86_400), None, Some(("Mon, 07 Nov 1994 08:49:37 GMT", "max-age=86400"))),
        (
            Expires::After(i64::MAX),
            None,
            Some(("Fri, 31 Dec 9999 23:59:59 GMT", "max-age=9223372036854775807")),
        ),
        (
            Expires::Modified(3600),
            Some(-60),
            Some(("Sun, 06 Nov 1994 09:48:37 GMT", "max-age=3540")),
        ),
        (Expires::Modified(30), Some(-60), Some(("Sun, 06 Nov 1994 08:49:07 GMT", "no-cache"))),
        (Expires::Modified(3600), None, Some(("Sun, 06 Nov 1994 09:49:37 GMT", "max-age=3600"))),
        (Expires::Modified(0), Some(-60), Some((NOW, "max-age=0"))),
        (Expires::Daily(55_800), None, Some(("Sun, 06 Nov 1994 15:30:00 GMT", "max-age=24023"))),
        (Expires::Daily(3600), None, Some(("Mon, 07 Nov 1994 01:00:00 GMT", "max-age=58223"))),
    ];
    for (expires, modified, expected) in table {
        let label = format!("{expires:?} {modified:?}");
        let modified = modified.map(|ago| WALL.unix_secs + ago);
        let out = fields(move |own| own.expires = expires, 200, modified);
        let expected = expected.map_or_else(String::new, |(at, control)| {
            format!("Expires: {at}\r\nCache-Control: {control}\r\n")
        });
        assert_eq!(out, expected, "{label}");
    }
}

#[test]
fn only_good_answers_have_them_unless_always() {
    let change = |own: &mut Settings| {
        own.expires = Expires::Epoch;
        own.add_headers = [add("X-A", "a", false), add("X-B", "b $status", true)].into();
    };
    for code in 100..600 {
        let out = fields(change, code, None);
        let is_good = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308].contains(&code);
        assert_eq!(out.contains("X-A: a\r\n"), is_good, "{code}");
        assert_eq!(out.contains("Expires: "), is_good, "{code}");
        assert!(out.ends_with(&format!("X-B: b {code}\r\n")), "{code}");
    }
}

#[test]
fn a_value_never_splits_the_response() {
    let out = fields(
        |own| {
            own.add_headers = [
                add("X-Evil", "$http_x_evil", true),
                add("X-Empty", "", true),
                add("X-Missing", "$arg_none", true),
                add("X-Tab", "$http_x_tab", true),
                add("X-Nul", "a\0b", true),
                add("X-Good", "$host;$uri", true),
            ]
            .into();
        },
        200,
        None,
    );
    assert_eq!(out, "X-Tab: a\tb\r\nX-Good: example.org;/a.txt\r\n");
}

#[test]
fn the_media_type_follows_the_extension() {
    let table = server(Vec::new()).table();
    let default = "application/octet-stream";
    for (path, expected) in [
        ("/a.txt", "text/plain"),
        ("/a.TXT", "text/plain"),
        ("/a.b.png", "image/png"),
        ("/a.txt/b", default),
        ("/a", default),
        ("/.txt", default),
        ("/d/.txt", default),
        ("/a.", default),
        ("/", default),
        ("/..txt", "text/plain"),
    ] {
        let mut asked = Asked::new("GET /", &[]);
        asked.decide(&table);
        asked.route_state.path = path.into();
        assert_eq!(media_type(&table, &asked.route_state), expected, "{path}");
    }
    let mut asked = Asked::new("GET /", &[]);
    asked.decide(&table);
    asked.route_state.path = format!("/a.{}", "x".repeat(10_000)).into();
    assert_eq!(media_type(&table, &asked.route_state), default);
}
