//! Properties that hold for every path.

use std::sync::Arc;

use proptest::prelude::*;
use sekisho_config::{Cgi, Fallback, Place, Programs};
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
        final_prefix("/i", |own| own.place = Place::Alias(Arc::new(t("/data/")))),
        prefix("/b/", |own| own.place = Place::Alias(Arc::new(t("/data")))),
        prefix("/t", |own| {
            own.try_files = Some(tries(&["$uri", "$uri/", "/$arg_x"], Fallback::Uri(t("/$arg_y"))));
        }),
        prefix("/c", |own| own.cgi = Some(all_programs())),
        regex("^/r/(.*)x(.*)$", |own| own.place = Place::Alias(Arc::new(t("/data/$1/$2")))),
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

proptest! {
    /// F2: a path and its normal form are routed alike; and the files that are asked for (the view of
    /// files checks each) never climb out of their root.
    #[test]
    fn a_path_and_its_normal_form_are_routed_alike(path in hostile_path(), keeps in any::<bool>()) {
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
