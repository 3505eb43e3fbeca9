//! Files, directories, `index`, `autoindex` and `try_files`.

use std::sync::Arc;

use sekisho_config::{Fallback, PathMapping, TryFile, TryFiles};

use crate::support::{Asked, check, exact, named, prefix, regex, returns, server, status, t};

/// `try_files` in the words of the configuration, the last one apart.
pub(crate) fn tries(candidates: &[&str], fallback: Fallback) -> Arc<TryFiles> {
    let candidates = candidates.iter().map(|word| match word.strip_suffix('/') {
        Some(path) => TryFile { path: t(path), is_dir: true },
        None => TryFile { path: t(word), is_dir: false },
    });
    Arc::new(TryFiles { candidates: candidates.collect(), fallback })
}

const FILES: &[&str] = &[
    "/srv/index.html",
    "/srv/a.txt",
    "/srv/dir/index.html",
    "/srv/empty/",
    "/srv/php/index.php",
    "!/srv/secret",
    "?/srv/broken",
    "!/srv/locked/index.html",
    "?/srv/worse/index.html",
    "/srv/a b/x?y",
    "/srv/odd/index.html/x",
];

#[test]
fn what_is_there_decides() {
    check(
        &server(Vec::new()).table(),
        FILES,
        &[
            ("GET /a.txt", "file /srv/a.txt"),
            ("GET /a.txt?x=/../..", "file /srv/a.txt"),
            ("GET /nothing", "error 404"),
            ("GET /secret", "error 403"),
            ("GET /broken", "error 500"),
            ("GET /a%20b/x%3Fy", "file /srv/a b/x?y"),
            ("GET /A.txt", "error 404"),
        ],
    );
}

/// F3
#[test]
fn a_directory_is_answered_by_its_index_or_not_at_all() {
    check(
        &server(Vec::new()).table(),
        FILES,
        &[
            ("GET /", "file /srv/index.html"),
            ("GET /dir/", "file /srv/dir/index.html"),
            ("GET /dir", "redirect 301 http://example.org:8080/dir/"),
            ("GET /empty/", "error 403"),
            ("GET /nothing/", "error 404"),
            ("GET /locked/", "error 403"),
            ("GET /worse/", "error 500"),
            ("GET /odd/", "error 403"),
            // A file has no slash behind it.
            ("GET /a.txt/", "error 404"),
        ],
    );
}

/// F3: listing where `autoindex on`.
#[test]
fn a_directory_without_index_is_listed_where_that_is_on() {
    let table = server(Vec::new()).set(|own| own.autoindex = true).table();
    check(
        &table,
        FILES,
        &[
            ("GET /empty/", "listing /srv/empty/"),
            ("GET /dir/", "file /srv/dir/index.html"),
            ("GET /nothing/", "error 404"),
            ("GET /a.txt/", "error 404"),
            ("GET /empty", "redirect 301 http://example.org:8080/empty/"),
        ],
    );
    let table = server(Vec::new())
        .set(|own| {
            own.autoindex = true;
            own.index = [].into();
        })
        .table();
    check(&table, FILES, &[("GET /dir/", "listing /srv/dir/"), ("GET /no/", "error 404")]);
}

/// F3: `index` may name several files.
#[test]
fn several_index_files_are_tried_in_order() {
    let table = server(vec![
        regex(r"\.php$", |own| {
            own.rewriting.script = Some(returns(200, Some("php $uri $args $request_filename")));
        }),
        prefix("/fallback/", |own| own.index = [t("none.html"), t("/a.txt")].into()),
        prefix("/by-host/", |own| {
            own.index = [t("$host.html"), t("$arg_x"), t("index.html")].into();
        }),
    ])
    .set(|own| own.index = [t("index.php"), t("index.html")].into())
    .table();
    let files = [FILES, &["/srv/by-host/index.html", "/srv/fallback/x"]].concat();
    check(
        &table,
        &files,
        &[
            ("GET /dir/", "file /srv/dir/index.html"),
            // The index file is looked for in a location of its own.
            ("GET /php/?a=b", "text 200 php /php/index.php a=b /srv/php/index.php"),
            ("GET /fallback/", "file /srv/a.txt"),
            ("GET /by-host/", "file /srv/by-host/index.html"),
            ("GET /by-host/?x=../../etc/passwd", "file /srv/by-host/index.html"),
            ("GET /by-host/?x=/../etc/passwd", "error 404"),
        ],
    );
}

/// F2: the dots of an `index` never get into the path, even if the configuration has them.
#[test]
fn an_index_with_dots_is_not_there_and_the_next_one_is_tried() {
    let table = server(vec![
        prefix("/dir/", |own| own.index = [t("../a.txt"), t("index.html")].into()),
        prefix("/php/", |own| own.index = [t("$arg_x"), t("index.php")].into()),
    ])
    .set(|own| own.index = [t("../a.txt"), t("..")].into())
    .table();
    check(
        &table,
        FILES,
        &[
            ("GET /", "error 403"),
            ("GET /dir/", "file /srv/dir/index.html"),
            ("GET /php/?x=../a.txt", "file /srv/php/index.php"),
        ],
    );
}

#[test]
fn a_found_index_changes_the_path_and_is_looked_for_once() {
    let table = server(vec![prefix("/", |_| {})]).table();
    let mut asked = Asked::new("GET /dir/?q", FILES);
    assert_eq!(asked.decide(&table), "file /srv/dir/index.html");
    assert_eq!(asked.route_state.path, b"/dir/index.html");
    assert_eq!(asked.route_state.file, b"/srv/dir/index.html");
    assert_eq!(asked.route_state.query, b"q");
    assert_eq!(&asked.route_state.file[..asked.route_state.root_bytes], b"/srv");
    assert_eq!(asked.files.looks, 1);
}

#[test]
fn an_exchange_is_as_good_as_new_for_the_next_request() {
    let table = server(vec![regex("^/(x)", |own| own.rewriting.script = Some(returns(404, None)))])
        .set(|own| own.error_pages = [crate::support::page("404", "", "/a.txt")].into())
        .table();
    let mut first = Asked::new("POST /x?y", FILES);
    assert_eq!(first.decide(&table), "file /srv/a.txt as 404");
    let mut second = Asked::new("GET /", FILES);
    second.route_state = first.route_state;
    assert_eq!(second.decide(&table), "file /srv/index.html");
    assert_eq!(second.route_state.query, b"");
}

/// F7: `try_files`
#[test]
fn try_files_takes_the_first_that_is_there() {
    let table = server(vec![
        prefix("/", |own| {
            own.try_files =
                Some(tries(&["$uri", "$uri/", "$uri.html"], Fallback::Status(status(404))));
        }),
        prefix("/app/", |own| {
            own.try_files = Some(tries(&["$uri"], Fallback::Uri(t("/front.php?q=$uri&$args"))));
        }),
        prefix("/named/", |own| {
            own.try_files = Some(tries(&["$uri"], Fallback::Named("@app".into())));
        }),
        prefix("/lost/", |own| {
            own.try_files = Some(tries(&["$uri"], Fallback::Named("@none".into())));
        }),
        prefix("/wild/", |own| {
            own.try_files = Some(tries(&["/$arg_f"], Fallback::Uri(t("/$arg_g"))));
        }),
        prefix("/gone/", |own| {
            own.try_files = Some(tries(&["$uri"], Fallback::Status(status(204))));
        }),
        prefix("/noslash/", |own| {
            own.try_files = Some(tries(&["a.txt"], Fallback::Status(status(404))));
        }),
        exact("/front.php", |own| own.rewriting.script = Some(returns(200, Some("$uri $args")))),
        named("@app", |own| own.rewriting.script = Some(returns(200, Some("app $uri $args")))),
    ])
    .table();
    let files = [FILES, &["/srv/page.html", "/srv/app/x"]].concat();
    check(
        &table,
        &files,
        &[
            ("GET /a.txt", "file /srv/a.txt"),
            ("GET /page", "file /srv/page.html"),
            ("GET /dir/", "file /srv/dir/index.html"),
            ("GET /dir", "redirect 301 http://example.org:8080/dir/"),
            ("GET /empty/", "error 403"),
            ("GET /secret", "error 404"),
            ("GET /broken", "error 500"),
            ("GET /no", "error 404"),
            ("GET /app/x", "file /srv/app/x"),
            ("GET /app/y?a=b", "text 200 /front.php q=/app/y&a=b"),
            ("GET /named/y?a=b", "text 200 app /named/y a=b"),
            ("GET /lost/y", "error 500"),
            ("GET /gone/y", "text 204 "),
            // As in nginx, it is put right behind the root, where it is not.
            ("GET /noslash/y", "error 404"),
            ("GET /wild/?f=a.txt", "file /srv/a.txt"),
            // F2: variables cannot climb either.
            ("GET /wild/?f=../etc/passwd&g=page.html", "file /srv/page.html"),
            ("GET /wild/?f=../etc/passwd&g=../etc/passwd", "error 404"),
        ],
    );
}

#[test]
fn the_file_that_try_files_found_gives_the_media_type() {
    let table = server(vec![prefix("/", |own| {
        own.try_files = Some(tries(&["$uri.png"], Fallback::Status(status(404))));
    })])
    .table();
    let mut asked = Asked::new("GET /x", &["/srv/x.png"]);
    assert_eq!(asked.decide(&table), "file /srv/x.png");
    assert_eq!(asked.route_state.path, b"/x.png");
    assert_eq!(sekisho_route::media_type(&table, &asked.route_state), "image/png");
    assert_eq!(asked.files.looks, 1);
}

/// F7: `internal`
#[test]
fn an_internal_location_is_not_there_for_clients() {
    let table = server(vec![
        prefix("/", |own| own.try_files = Some(tries(&["$uri"], Fallback::Uri(t("/inside/a"))))),
        prefix("/inside/", |own| own.internal = true),
    ])
    .table();
    check(
        &table,
        &["/srv/inside/a"],
        &[
            ("GET /inside/a", "error 404"),
            ("GET /inside/../inside/a", "error 404"),
            ("GET /x", "file /srv/inside/a"),
        ],
    );
}

#[test]
fn redirects_within_end_after_ten() {
    let to = |next: &'static str| {
        move |own: &mut sekisho_config::Settings| {
            own.try_files = Some(tries(&[], Fallback::Uri(t(next))));
        }
    };
    let table = server(vec![
        prefix("/loop", to("/loop")),
        regex("^/(a{11}|b{12})$", |_| {}),
        prefix("/a", to("${uri}a")),
        prefix("/b", to("${uri}b")),
    ])
    .set(|own| own.error_pages = [crate::support::page("500", "", "/x")].into())
    .table();
    let files = ["/srv/aaaaaaaaaaa", "/srv/bbbbbbbbbbbb", "/srv/x"];
    check(
        &table,
        &files,
        &[
            ("GET /loop", "error 500"),
            ("GET /a", "file /srv/aaaaaaaaaaa"), // ten
            ("GET /b", "error 500"),             // eleven would be needed
            ("GET /bb", "file /srv/bbbbbbbbbbbb"),
        ],
    );
}

#[test]
fn an_index_file_is_routed_anew_where_that_may_make_a_difference() {
    let table = server(vec![
        prefix("/tried/", |own| {
            own.try_files = Some(tries(&["$uri.alt", "$uri/"], Fallback::Status(status(404))));
        }),
        regex("^/caught/(.*)$", |own| {
            own.path_mapping = PathMapping::Root(Arc::new(t("/data/$1")));
        }),
    ])
    .table();
    let files = [
        "/srv/tried/index.html",
        "/srv/tried/index.html.alt",
        "/data/caught/index.html",
        "/data/index.html/caught/index.html",
    ];
    check(
        &table,
        &files,
        &[
            ("GET /tried/", "file /srv/tried/index.html.alt"),
            ("GET /caught/", "file /data/index.html/caught/index.html"),
        ],
    );
}

#[test]
fn a_root_may_depend_on_the_request() {
    let table = server(vec![
        prefix("/", |own| {
            own.path_mapping = PathMapping::Root(Arc::new(t("/sites/$host/htdocs/")));
        }),
        prefix("/arg", |own| own.path_mapping = PathMapping::Root(Arc::new(t("/sites/x-$arg_r")))),
    ])
    .table();
    let files = ["/sites/example.org/htdocs/a", "/sites/x-1/arg", "/etc/arg"];
    let mut asked = Asked::new("GET /a", &files);
    assert_eq!(asked.decide(&table), "file /sites/example.org/htdocs/a");
    assert_eq!(&asked.route_state.file[..asked.route_state.root_bytes], b"/sites");
    // F2: only the configuration's own words are trusted.
    check(
        &table,
        &files,
        &[("GET /arg?r=1", "file /sites/x-1/arg"), ("GET /arg?r=/../../etc", "error 404")],
    );
}

#[test]
fn a_root_that_is_the_root_works() {
    let table = server(Vec::new())
        .set(|own| own.path_mapping = PathMapping::Root(Arc::new(t("/"))))
        .table();
    check(&table, &["/a", "/index.html"], &[("GET /a", "file /a"), ("GET /", "file /index.html")]);
}
