//! `return` and the addresses of redirects.

use crate::support::{Asked, ServerSpec, check, exact, named_server, prefix, returns, server};

/// F7: `return`
#[test]
fn return_answers_as_nginx_does() {
    let one = |path: &str, code, text: Option<&'static str>| {
        exact(path, move |own| own.rewriting.script = Some(returns(code, text)))
    };
    let table = server(vec![
        one("/text", 200, Some("hello $uri?$args")),
        one("/teapot", 418, Some("short")),
        one("/404", 404, None),
        one("/204", 204, None),
        one("/200", 200, None),
        one("/444", 444, None),
        one("/301", 301, Some("/new?$args")),
        one("/302", 302, Some("https://other/$uri")),
        one("/303", 303, Some("relative")),
        one("/307", 307, Some("/a b\r\nSet-Cookie: x")),
        one("/308", 308, Some("")),
        one("/304", 304, None),
        one("/bad", 99, None),
    ])
    .table();
    check(
        &table,
        &[],
        &[
            ("GET /text?a", "text 200 hello /text?a"),
            ("POST /teapot", "text 418 short"),
            ("GET /404", "error 404"),
            ("GET /204", "text 204 "),
            ("GET /200", "text 200 "),
            ("GET /444", "close"),
            ("GET /301?x", "redirect 301 http://example.org:8080/new?x"),
            ("GET /302", "redirect 302 https://other//302"),
            ("GET /303", "redirect 303 relative"),
            ("GET /307", "redirect 307 http://example.org:8080/a%20b%0D%0ASet-Cookie:%20x"),
            ("GET /308", "redirect 308 "),
            ("GET /304", "error 304"),
            ("GET /bad", "error 500"),
        ],
    );
}

#[test]
fn a_servers_return_comes_before_every_location() {
    let locations =
        || vec![prefix("/", |own| own.rewriting.script = Some(returns(200, Some("location"))))];
    let table = server(locations()).answers(301, Some("https://$host$request_uri")).table();
    check(
        &table,
        &[],
        &[
            ("GET /a%20b?c", "redirect 301 https://example.org/a%20b?c"),
            ("GET http://example.org?c", "redirect 301 https://example.org/?c"),
            ("GET /..", "error 400"),
        ],
    );
    check(&server(locations()).answers(444, None).table(), &[], &[("GET /", "close")]);
}

#[test]
fn a_servers_return_also_meets_its_error_page() {
    let table = server(Vec::new())
        .set(|own| own.error_pages = [crate::support::page("403", "", "/a")].into())
        .answers(403, None)
        .table();
    check(&table, &["/srv/a"], &[("GET /", "error 403")]);
}

fn location_of(server: ServerSpec, line: &str, change: impl FnOnce(&mut Asked)) -> String {
    let mut asked =
        Asked::new(line, &["/srv/dir/x", "/srv//dir/x", "/srv/a b?/x", "/srv/d\u{e4}r/x"]);
    change(&mut asked);
    let outcome = asked.decide(&server.table());
    outcome.strip_prefix("redirect 301 ").unwrap_or_else(|| panic!("{outcome}")).to_owned()
}

/// F3: a directory without its slash redirects.
#[test]
fn a_directory_redirect_names_this_server() {
    let plain = || server(Vec::new());
    let same = |_: &mut Asked| {};
    assert_eq!(location_of(plain(), "GET /dir", same), "http://example.org:8080/dir/");
    assert_eq!(location_of(plain(), "GET /dir?a=b&c", same), "http://example.org:8080/dir/?a=b&c");
    assert_eq!(location_of(plain(), "GET /a%20b%3f", same), "http://example.org:8080/a%20b%3F/");
    assert_eq!(location_of(plain(), "GET /d%c3%a4r", same), "http://example.org:8080/d%C3%A4r/");
    let on_80 = |asked: &mut Asked| asked.connection.local = Some(([10, 0, 0, 1], 80).into());
    assert_eq!(location_of(plain(), "GET /dir", on_80), "http://example.org/dir/");
    let tls = |asked: &mut Asked| {
        asked.connection.is_tls = true;
        asked.connection.local = Some(([10, 0, 0, 1], 443).into());
    };
    assert_eq!(location_of(plain(), "GET /dir", tls), "https://example.org/dir/");
}

#[test]
fn the_settings_for_redirects_have_nginx_meaning() {
    let same = |_: &mut Asked| {};
    let without_port = server(Vec::new()).set(|own| own.port_in_redirect = false);
    assert_eq!(location_of(without_port, "GET /dir", same), "http://example.org/dir/");
    let named = named_server(&["canonical.org", "example.org"], Vec::new())
        .set(|own| own.server_name_in_redirect = true);
    assert_eq!(location_of(named, "GET /dir", same), "http://canonical.org:8080/dir/");
    let relative = server(Vec::new()).set(|own| own.absolute_redirect = false);
    assert_eq!(location_of(relative, "GET /dir?a", same), "/dir/?a");
}

#[test]
fn without_a_host_the_address_of_the_connection_is_named() {
    let nameless = |local: Option<std::net::SocketAddr>| {
        move |asked: &mut Asked| {
            *asked = Asked::with_fields("GET /dir", &[], &["/srv/dir/x"]);
            asked.connection.local = local;
        }
    };
    let of = |local| location_of(server(Vec::new()), "GET /dir", nameless(local));
    assert_eq!(of(Some(([10, 0, 0, 1], 8080).into())), "http://10.0.0.1:8080/dir/");
    assert_eq!(of("[2001:db8::1]:80".parse().ok()), "http://[2001:db8::1]/dir/");
    assert_eq!(of(None), "http://localhost/dir/");
}

/// V48
#[test]
fn a_relative_redirect_never_leads_to_another_host() {
    let keeps = || server(Vec::new()).keeps_slashes();
    let relative = keeps().set(|own| own.absolute_redirect = false);
    assert_eq!(location_of(relative, "GET //dir", |_| {}), "/.//dir/");
    assert_eq!(location_of(keeps(), "GET //dir", |_| {}), "http://example.org:8080//dir/");
}
