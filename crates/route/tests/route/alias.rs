//! `alias`: with and without closing slashes, with escapes, and with paths that want out.

use std::sync::Arc;

use sekisho_config::{Fallback, PathMapping};

use crate::files::tries;
use crate::support::{Asked, check, exact, prefix, regex, server, status, t};

fn alias(path: &'static str) -> impl FnOnce(&mut sekisho_config::Settings) {
    move |own| own.path_mapping = PathMapping::Alias(Arc::new(t(path)))
}

const FILES: &[&str] = &[
    "/data/img/x.png",
    "/data/img/a b.png",
    "/data/img/index.html",
    "/data/img/sub/index.html",
    "/data/secret",
    "/data/imgx",
    "/data/img..",
    "/etc/passwd",
];

/// F2, F7, V18: location and alias, each with and without a closing slash.
#[test]
fn alias_replaces_the_prefix_whatever_the_slashes() {
    let both = server(vec![prefix("/i/", alias("/data/img/"))]).table();
    check(
        &both,
        FILES,
        &[
            ("GET /i/x.png", "file /data/img/x.png"),
            ("GET /i/a%20b.png", "file /data/img/a b.png"),
            ("GET /%69/x.png", "file /data/img/x.png"),
            ("GET /i//x.png", "file /data/img/x.png"),
            ("GET /i/", "file /data/img/index.html"),
            ("GET /i/sub", "redirect 301 http://example.org:8080/i/sub/"),
            ("GET /i/sub/", "file /data/img/sub/index.html"),
            ("GET /i/../i/x.png", "file /data/img/x.png"),
            ("GET /i/../secret", "error 404"),
            ("GET /i/%2e%2e/secret", "error 404"),
            ("GET /i/..%2fsecret", "error 404"),
            ("GET /i/%252e%252e/secret", "error 404"),
            ("GET /i../secret", "error 404"),
            ("GET /i", "error 404"),
        ],
    );
    let only_alias = server(vec![prefix("/i", alias("/data/img/"))]).table();
    check(
        &only_alias,
        FILES,
        &[
            ("GET /i/x.png", "file /data/img/x.png"),
            ("GET /ix.png", "file /data/img/x.png"),
            ("GET /i/", "file /data/img/index.html"),
            // The classic mistake in a configuration does not open the parent directory.
            ("GET /i../secret", "error 404"),
            ("GET /i%2e%2e/secret", "error 404"),
            ("GET /i../../etc/passwd", "error 404"),
            ("GET /i..", "error 404"),
            ("GET /i.", "error 404"),
        ],
    );
    let only_location = server(vec![prefix("/i/", alias("/data/img"))]).table();
    check(
        &only_location,
        FILES,
        &[
            ("GET /i/x.png", "error 404"),
            ("GET /i/x", "file /data/imgx"),
            ("GET /i/../secret", "error 404"),
        ],
    );
    let neither = server(vec![prefix("/i", alias("/data/img"))]).table();
    check(
        &neither,
        FILES,
        &[
            ("GET /i/x.png", "file /data/img/x.png"),
            ("GET /i", "redirect 301 http://example.org:8080/i/"),
            ("GET /ix", "file /data/imgx"),
            ("GET /i..", "file /data/img.."), // a name like any other
            ("GET /i../secret", "error 404"),
        ],
    );
}

#[test]
fn what_follows_the_trusted_directory_begins_with_a_slash() {
    let table = server(vec![
        prefix("/i/", alias("/data/img/")),
        prefix("/j", alias("/data/img")),
        exact("/one", alias("/data/secret")),
    ])
    .table();
    for (line, root) in [
        ("GET /i/x.png", "/data/img"),
        ("GET /j/x.png", "/data/img"),
        ("GET /jx", "/data"),
        ("GET /one", "/data"),
    ] {
        let mut asked = Asked::new(line, FILES);
        assert!(asked.decide(&table).starts_with("file "), "{line}");
        let route_state = &asked.route_state;
        assert_eq!(&route_state.file[..route_state.root_bytes], root.as_bytes(), "{line}");
    }
}

#[test]
fn the_alias_of_a_regex_is_the_whole_name() {
    let table = server(vec![
        regex(r"^/u/(\w+)/(.+\.png)$", alias("/data/$1/$2")),
        regex(r"^/fixed", alias("/data/secret")),
        regex(r"^/up/(.*)x$", alias("/data/img/$1/passwd")),
    ])
    .table();
    check(
        &table,
        FILES,
        &[
            ("GET /u/img/x.png", "file /data/img/x.png"),
            ("GET /u/img/a%20b.png", "file /data/img/a b.png"),
            ("GET /u/etc/x.png", "error 404"),
            ("GET /fixed/what/ever", "file /data/secret"),
            // F2: a capture may cut a harmless name into a dot segment.
            ("GET /up/..x", "error 404"),
        ],
    );
}

#[test]
fn a_nested_location_inherits_the_alias_with_its_prefix() {
    let outer = || prefix("/i/", alias("/data/img/"));
    let nested = server(vec![outer().with(vec![prefix("/i/sub/", |_| {}), regex("png$", |_| {})])]);
    check(
        &nested.table(),
        FILES,
        &[
            ("GET /i/sub/", "file /data/img/sub/index.html"),
            ("GET /i/x.png", "file /data/img/x.png"),
        ],
    );
    let of_parent = |own: &mut sekisho_config::Settings| {
        own.path_mapping =
            PathMapping::AliasOfParent { alias: Arc::new(t("/data/img/")), prefix_bytes: 3 };
    };
    let table = server(vec![prefix("/i/", |_| {}).with(vec![regex("png$", of_parent)])]).table();
    check(&table, FILES, &[("GET /i/x.png", "file /data/img/x.png")]);
}

#[test]
fn try_files_behind_an_alias_takes_the_prefix_off() {
    let table = server(vec![prefix("/i/", |own| {
        alias("/data/img/")(own);
        own.try_files = Some(tries(&["$uri", "$uri/", "x.png"], Fallback::Status(status(404))));
    })])
    .table();
    check(
        &table,
        FILES,
        &[
            ("GET /i/a%20b.png", "file /data/img/a b.png"),
            ("GET /i/sub/", "file /data/img/sub/index.html"),
            ("GET /i/none", "file /data/img/x.png"),
        ],
    );
}
