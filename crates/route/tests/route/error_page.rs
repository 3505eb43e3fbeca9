//! `error_page`: which status, which method, and where it ends. F7

use sekisho_config::ErrorPage;

use crate::support::{
    Asked, FakeFiles, Spec, check, exact, named, page, prefix, returns, server, status,
};

const FILES: &[&str] = &["/srv/404.html", "/srv/a.txt", "/srv/dir/x", "!/srv/secret"];

fn pages(pages: Vec<ErrorPage>, locations: Vec<Spec>) -> sekisho_route::Table {
    server(locations).set(move |own| own.error_pages = pages.into()).table()
}

#[test]
fn the_status_is_kept_unless_it_is_changed() {
    let locations = || {
        vec![
            exact("/text", |own| own.rewriting.script = Some(returns(200, Some("text $uri")))),
            exact("/moved", |own| own.rewriting.script = Some(returns(302, Some("http://x/")))),
            exact("/gone", |own| own.rewriting.script = Some(returns(410, None))),
            exact("/said", |own| own.rewriting.script = Some(returns(410, Some("said")))),
            named("@named", |own| own.rewriting.script = Some(returns(200, Some("named $uri")))),
        ]
    };
    let of = |overwrite, target| pages(vec![page("404", overwrite, target)], locations());
    let table = [
        ("", "/404.html", "file /srv/404.html as 404"),
        ("=200", "/404.html", "file /srv/404.html as 200"),
        ("=", "/404.html", "file /srv/404.html"),
        ("", "/text", "text 404 text /text"),
        ("=", "/text", "text 200 text /text"),
        ("=503", "/text", "text 503 text /text"),
        ("", "@named", "text 404 named /nothing"),
        ("=200", "@named", "text 200 named /nothing"),
        ("", "@missing", "error 500"),
        // A redirect or an error of the target has its own status.
        ("", "/moved", "redirect 302 http://x/"),
        ("", "/gone", "error 410"),
        ("", "/said", "text 404 said"),
        ("", "/nothing", "error 404"),
        ("", "/secret", "error 403"),
        ("", "http://other/$uri", "redirect 302 http://other//nothing"),
        ("=301", "http://other/", "redirect 301 http://other/"),
        ("=200", "http://other/", "redirect 302 http://other/"),
    ];
    for (overwrite, target, expected) in table {
        let mut asked = Asked::new("GET /nothing", FILES);
        assert_eq!(
            asked.decide(&of(overwrite, target)),
            expected,
            "error_page 404 {overwrite} {target}"
        );
        if expected.starts_with("error") || expected.starts_with("redirect") {
            assert_eq!(asked.route_state.status, None, "{expected}");
        }
    }
}

#[test]
fn the_first_page_for_the_code_is_taken() {
    let table = pages(
        vec![page("403 500", "", "/a.txt"), page("404", "", "/404.html"), page("404", "", "/x")],
        Vec::new(),
    );
    check(
        &table,
        FILES,
        &[
            ("GET /no", "file /srv/404.html as 404"),
            ("GET /secret", "file /srv/a.txt as 403"),
            ("GET /dir/", "file /srv/a.txt as 403"),
            ("POST /a.txt", "error 405 GET, HEAD, OPTIONS"),
        ],
    );
}

#[test]
fn errors_found_before_a_location_have_the_servers_pages() {
    let table = pages(vec![page("400 405 501", "", "/a.txt")], Vec::new());
    check(
        &table,
        FILES,
        &[
            ("GET /..", "file /srv/a.txt as 400"),
            ("GET nonsense", "file /srv/a.txt as 400"),
            ("TRACE /", "file /srv/a.txt as 405"),
            ("BREW /", "file /srv/a.txt as 501"),
        ],
    );
}

#[test]
fn the_page_is_asked_for_with_get_and_head_stays_head() {
    let show = |own: &mut sekisho_config::Settings| {
        own.rewriting.script = Some(returns(200, Some("$request_method $args")));
    };
    let table = pages(
        vec![page("405 404", "=", "/show?a=1"), page("403", "=", "@show")],
        vec![exact("/show", show), named("@show", show)],
    );
    check(
        &table,
        FILES,
        &[
            ("POST /x?y", "text 200 GET a=1"),
            ("GET /x?y", "text 200 GET a=1"),
            ("HEAD /x", "text 200 HEAD a=1"),
            ("GET /secret?y", "text 200 GET y"), // a named location keeps path and arguments
        ],
    );
    let mut asked = Asked::new("DELETE /x", FILES);
    asked.decide(&table);
    assert_eq!(asked.route_state.method, sekisho_http::Method::Get);
}

#[test]
fn a_405_that_became_a_page_still_has_its_allow() {
    let table = pages(vec![page("405", "", "/a.txt")], Vec::new());
    let mut asked = Asked::new("PUT /x", FILES);
    assert_eq!(asked.decide(&table), "file /srv/a.txt as 405");
    assert_eq!(asked.route_state.allow, b"GET, HEAD, OPTIONS");
}

#[test]
fn pages_are_not_used_twice_unless_that_is_asked_for() {
    let locations = || vec![exact("/gone", |own| own.rewriting.script = Some(returns(410, None)))];
    let both = || vec![page("404", "", "/gone"), page("410", "", "/a.txt")];
    check(&pages(both(), locations()), FILES, &[("GET /no", "error 410")]);
    let recursive = server(locations())
        .set(move |own| {
            own.error_pages = both().into();
            own.recursive_error_pages = true;
        })
        .table();
    check(&recursive, FILES, &[("GET /no", "file /srv/a.txt as 410")]);
}

#[test]
fn pages_that_lead_to_each_other_come_to_an_end() {
    let table =
        server(vec![named("@again", |own| own.rewriting.script = Some(returns(403, None)))])
            .set(|own| {
                let circle =
                    [page("404", "", "/no"), page("403", "", "@again"), page("500", "", "/no")];
                own.error_pages = circle.into();
                own.recursive_error_pages = true;
            })
            .table();
    check(&table, FILES, &[("GET /no", "error 500"), ("GET /secret", "error 500")]);
    let climbing = server(Vec::new())
        .set(|own| {
            own.error_pages = [page("404", "", "/$arg_x")].into();
            own.recursive_error_pages = true;
        })
        .table();
    check(&climbing, FILES, &[("GET /no?x=../secret", "error 500")]);
}

#[test]
fn redirects_of_our_own_may_have_pages_too() {
    let table = pages(
        vec![page("301", "=200", "/a.txt")],
        vec![prefix("/old", |own| {
            own.rewriting.script = Some(returns(301, Some("/new")));
        })],
    );
    check(
        &table,
        FILES,
        &[("GET /dir", "file /srv/a.txt as 200"), ("GET /old", "file /srv/a.txt as 200")],
    );
}

#[test]
fn an_error_of_the_engine_or_a_handler_finds_its_page() {
    let table = pages(vec![page("413 500", "", "/a.txt")], Vec::new());
    // Before anything was decided.
    assert_eq!(Asked::new("POST /x", FILES).decide_error(413, &table), "file /srv/a.txt as 413");
    assert_eq!(Asked::new("POST /x", FILES).decide_error(408, &table), "error 408");
    // After a decision whose handler failed.
    let mut asked = Asked::new("GET /a.txt", FILES);
    assert_eq!(asked.decide(&table), "file /srv/a.txt");
    assert_eq!(asked.decide_error(500, &table), "file /srv/a.txt as 500");
    // The page failed as well: no third try.
    assert_eq!(asked.decide_error(500, &table), "error 500");
    // A head that could not be read has nothing in it.
    let mut asked = Asked::new("GET /", FILES);
    asked.head.clear();
    assert_eq!(asked.decide_error(500, &table), "file /srv/a.txt as 500");
}

#[test]
fn a_refusal_does_not_build_upon_the_request_before() {
    let table = pages(
        vec![page("404 413", "", "/a.txt")],
        vec![prefix("/x", |own| {
            own.error_pages = [].into();
        })],
    );
    let mut asked = Asked::new("GET /x?q", FILES);
    assert_eq!(asked.decide(&table), "error 404");
    let mut request = asked.request();
    request.request_id.0 += 1;
    let (mut route_state, mut files) =
        (sekisho_route::RouteState::default(), FakeFiles::new(FILES));
    table.decide(&asked.request(), &mut route_state, &mut files);
    let action = table.decide_error(status(413), &request, &mut route_state, &mut files);
    assert_eq!(action, sekisho_route::Action::File("/srv/a.txt".into()));
    assert_eq!(route_state.query, b"");
}

#[test]
fn a_page_may_be_internal() {
    let table = pages(
        vec![page("404", "", "/404.html")],
        vec![exact("/404.html", |own| own.internal = true)],
    );
    check(
        &table,
        FILES,
        &[("GET /no", "file /srv/404.html as 404"), ("GET /404.html", "file /srv/404.html as 404")],
    );
}
