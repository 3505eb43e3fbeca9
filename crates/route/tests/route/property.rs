//! Properties that hold for every path.

use std::sync::Arc;

use proptest::prelude::*;
use sekisho_config::{Cgi, Fallback, PathMapping, Programs};
use sekisho_http::target;
use sekisho_route::Table;

use crate::files::tries;
use crate::support::{Asked, exact, final_prefix, page, prefix, regex, returns, server, t};

const FILES: &[&str] = &[
    "/srv/index.html",
    "/srv/a/index.html",
    "/srv/a/b",
    "/srv/b",
    "/srv/404",
    "/srv/c/a",
    "/srv/c/index.html",
    "/data/a",
    "/data/b/index.html",
    "!/data/..",
];

/// A bit of everything.
fn busy_table(keeps_slashes: bool) -> Table {
    let spec = server(vec![
        exact("/a/b", |own| own.rewriting.script = Some(returns(200, Some("exact $uri")))),
        prefix("/a", |own| own.autoindex = true).with(vec![regex(r"(\.+)", |_| {})]),
        final_prefix("/i", |own| own.path_mapping = PathMapping::Alias(Arc::new(t("/data/")))),
        prefix("/b/", |own| own.path_mapping = PathMapping::Alias(Arc::new(t("/data")))),
        prefix("/t", |own| {
            own.try_files = Some(tries(&["$uri", "$uri/", "/$arg_x"], Fallback::Uri(t("/$arg_y"))));
        }),
        prefix("/c", |own| own.cgi = Some(all_programs())),
        regex("^/r/(.*)x(.*)$", |own| {
            own.path_mapping = PathMapping::Alias(Arc::new(t("/data/$1/$2")));
        }),
    ])
    .set(|own| own.error_pages = [page("404 400", "", "/404")].into());
    if keeps_slashes { spec.keeps_slashes().table() } else { spec.table() }
}

fn all_programs() -> Arc<Cgi> {
    Arc::new(Cgi { programs: Programs::All, ..Cgi::default() })
}

fn hostile_path() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "/",
        "/",
        ".",
        "..",
        "a",
        "b",
        "i",
        "t",
        "c",
        "r",
        "x",
        "%2e",
        "%2E%2e",
        "%2f",
        "%5c",
        "%25",
        "%20",
        ";",
        "//",
        "%00",
        "%",
        "index.html",
        "?x=..",
        "&y=../b",
    ]);
    prop::collection::vec(pieces, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Lines of a script that take what a client sends to every place it can go.
fn hostile_script() -> impl Strategy<Value = String> {
    let lines = prop::sample::select(vec![
        "rewrite ^/(.*)$ $1;",
        "rewrite ^/(.*)$ /$arg_x/$1 last;",
        "rewrite ^(.*)$ $arg_x$1 break;",
        "rewrite ^/a(.*)$ /b$1?$uri;",
        "rewrite (.)(.) $2/../$1;",
        "rewrite ^(.*)/ $1? last;",
        "rewrite b $scheme://x/$uri$arg_x;",
        "rewrite a $arg_x redirect;",
        "set $v $v$uri;",
        "set $v $arg_x;",
        "set $args $v;",
        "if ($arg_x) { rewrite ^ /$arg_x last; }",
        "if (-e $request_filename) { rewrite ^/(.*)$ ../$1 break; }",
        "if (!-f $document_root/$arg_x) { set $v x; }",
        "if (-d $v) { root /data; }",
        "if (-x /data/$1$arg_y) { break; }",
        "if ($uri ~ ^/(?<n>[^/]*)) { set $v $n; root /data/; }",
        "if ($v = a) { return 404; }",
        "break;",
        "return 302 $uri$v;",
    ]);
    prop::collection::vec(lines, 0..6).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// F2, F7, V14: whatever a script does with whatever a client sends, the decision ends; no file outside its
    /// root is asked for (the view of files checks each), and no address splits a field (V48).
    #[test]
    fn every_script_ends_and_keeps_below_its_root(
        path in hostile_path(),
        server in hostile_script(),
        first in hostile_script(),
        second in hostile_script(),
    ) {
        let server = server.replace("root /data;", "").replace("root /data/;", "");
        let table = crate::configured::configured(&format!(
            "server {{ listen 8080; root /srv; set $v ''; {server} error_page 404 = @none;
                location / {{ {first} }}
                location /a {{ alias /data; {second} }}
                location ~ ^/(i)(.*)$ {{ alias /data/$2; {first} }}
                location @none {{ {second} try_files $uri =410; }} }}"
        ));
        let mut asked = Asked::new(&format!("GET {path}"), FILES);
        let outcome = asked.decide(&table);
        let route_state = &asked.route_state;
        prop_assert!(target::is_dotless(&route_state.path), "{outcome}");
        let is_redirect = outcome.starts_with("redirect");
        prop_assert!(!is_redirect || route_state.text.iter().all(u8::is_ascii_graphic), "{outcome}");
        prop_assert!(asked.files.looks < 1000);
    }

    /// F2, V21: a path and its normal form are routed alike; and the files that are asked for (the view of
    /// files checks each) never climb out of their root.
    #[test]
    fn a_path_and_its_normal_form_are_routed_equally(path in hostile_path(), keeps in any::<bool>()) {
        let table = busy_table(keeps);
        let outcome = Asked::new(&format!("GET {path}"), FILES).decide(&table);
        let parts = target::split(path.as_bytes()).expect("a path");
        let mut resolved = Vec::new();
        if target::resolve(parts.path, !keeps, &mut resolved).is_err() {
            prop_assert_eq!(outcome, "file /srv/404 as 400");
            return Ok(());
        }
        let mut normal = b"GET ".to_vec();
        target::encode_path(&resolved, &mut normal);
        if let Some(query) = parts.query {
            normal.push(b'?');
            normal.extend_from_slice(query);
        }
        let normal = String::from_utf8(normal).expect("encoded");
        prop_assert_eq!(outcome, Asked::new(&normal, FILES).decide(&table));
    }

    #[test]
    fn no_target_makes_the_decision_panic(
        method in "[A-Z]{1,8}|GET|POST|OPTIONS|CONNECT",
        target in "[/.a%2eh:t*?#\\[\\]@ -]{0,20}",
        host in "[a.:\\[\\]% -]{0,10}",
    ) {
        let mut asked = Asked::with_fields(&format!("{method} {target}"), &[("Host", &host)], FILES);
        asked.decide(&busy_table(false));
    }
}
