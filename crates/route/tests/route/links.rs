//! `$invalid_referer` and `$secure_link`.

use sekisho_route::Table;

use crate::configured::configured;
use crate::support::{Asked, WALL};

fn server(directives: &str) -> Table {
    configured(&format!(
        "server {{ listen 8080; server_name www.example.org *.example.net ~^re[0-9]; {directives} }}"
    ))
}

fn answer(table: &Table, path: &str, referer: Option<&str>) -> String {
    let mut fields = vec![("Host", "www.example.org")];
    fields.extend(referer.map(|referer| ("Referer", referer)));
    let outcome = Asked::with_fields(&format!("GET {path}"), &fields, &[]).decide(table);
    outcome.strip_prefix("text 200 ").unwrap_or(&outcome).to_owned()
}

#[test]
fn referers_are_valid_as_configured() {
    let table = server(
        r"location / { valid_referers none server_names *.example.com example.* shop.example.de/galleries/ .both.org ~\.google\.;
            return 200 '[$invalid_referer]'; }
          location /blocked { valid_referers blocked example.com; return 200 '[$invalid_referer]'; }
          location /all { return 200 '[$invalid_referer]'; }",
    );
    for (path, referer, is_valid) in [
        ("/", None, true),
        ("/", Some("http://www.example.org/"), true),
        ("/", Some("https://WWW.Example.org:8443/x?y"), true),
        ("/", Some("http://a.example.net"), true),
        ("/", Some("http://example.net"), true),
        ("/", Some("http://re7.test/"), true),
        ("/", Some("http://a.example.com/x"), true),
        ("/", Some("http://example.com/x"), true),
        ("/", Some("http://notexample.com/x"), false),
        ("/", Some("http://shop.example.de/galleries/1"), true),
        ("/", Some("http://shop.example.de/other"), false),
        ("/", Some("http://shop.example.de"), false),
        ("/", Some("http://both.org"), true),
        ("/", Some("http://x.both.org"), true),
        ("/", Some("http://www.google.de/search"), true),
        ("/", Some("http://evil.test/?x=.google.de"), true),
        ("/", Some("http://evil.test/www.example.org/"), false),
        ("/", Some("http://evil.test"), false),
        ("/", Some("-"), false),
        ("/", Some("www.example.org"), false),
        ("/blocked", None, false),
        ("/blocked", Some("-"), true),
        ("/blocked", Some("XXXXXXXXXXXXXXXXXXXX"), true),
        ("/blocked", Some("http://example.com/"), true),
        ("/blocked", Some("http://evil.test/"), false),
        ("/all", Some("http://evil.test/"), true),
    ] {
        let expected = if is_valid { "[]" } else { "[1]" };
        assert_eq!(answer(&table, path, referer), expected, "{path} {referer:?}");
    }
}

/// The signatures were made with `openssl md5 -binary | openssl base64 | tr +/ -_ | tr -d =`, as nginx's
/// documentation shows.
#[test]
fn signed_values_are_right_too_late_or_wrong() {
    let table = server(
        "location / { secure_link $arg_md5,$arg_expires; secure_link_md5 '$secure_link_expires$uri secret';
            return 200 '[$secure_link|$secure_link_expires]'; }
         location /plain { secure_link $arg_md5; secure_link_md5 '$uri secret'; return 200 '[$secure_link]'; }
         location /half { secure_link $arg_md5; return 200 '[$secure_link]'; }
         location /loop { secure_link $secure_link; secure_link_md5 $secure_link; return 200 '[$secure_link]'; }",
    );
    // 2147483647 lies ahead of the tests' time of day, 700000000 behind it.
    assert!((700_000_000..2_147_483_647).contains(&WALL.unix_secs));
    for (path, expected) in [
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ&expires=2147483647", "[1|2147483647]"),
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ==&expires=2147483647", "[1|2147483647]"),
        ("/s?md5=NIWGb87gmYA8KsOIx-y4nQ&expires=2147483647", "[|2147483647]"),
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ&expires=2147483646", "[|2147483646]"),
        ("/s?md5=3RqR-4JTxjaAVrdu9pkcIA&expires=700000000", "[0|700000000]"),
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ&expires=x", "[|]"),
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ&expires=-1", "[|]"),
        ("/s?md5=nIWGb87gmYA8KsOIx-y4nQ", "[|]"),
        ("/s", "[|]"),
        ("/s?md5=&expires=", "[|]"),
        ("/plain/x?md5=rrNQxzVoxc0qy28RDaBmTA", "[1]"),
        ("/plain/y?md5=rrNQxzVoxc0qy28RDaBmTA", "[]"),
        ("/plain/x", "[]"),
        ("/half?md5=x", "[]"),
        ("/loop", "[]"),
    ] {
        assert_eq!(answer(&table, path, None), expected, "{path}");
    }
}

#[test]
fn signed_paths_are_the_link_or_nothing() {
    let table = server("location /p/ { secure_link_secret secret; return 200 '[$secure_link]'; }");
    for (path, expected) in [
        ("/p/5e814704a28d9bc1914ff19fa0c4a00a/link", "[link]"),
        ("/p/5e814704a28d9bc1914ff19fa0c4a00a/link?x", "[]"),
        ("/p/5e814704a28d9bc1914ff19fa0c4a00a/other", "[]"),
        ("/p/5e814704a28d9bc1914ff19fa0c4a00a/", "[]"),
        ("/p/5e814704a28d9bc1914ff19fa0c4a00a", "[]"),
        ("/p/short/link", "[]"),
        ("/p/", "[]"),
    ] {
        assert_eq!(answer(&table, path, None), expected, "{path}");
    }
}
