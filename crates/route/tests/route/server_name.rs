//! Which server answers: nginx's order of names.

use crate::support::{Asked, ServerSpec, check, named_server, server, table};

/// A server that answers with what it is called here.
fn labelled(label: &str, names: &[&str]) -> ServerSpec {
    named_server(names, Vec::new()).answers(200, Some(label))
}

fn chosen(servers: Vec<ServerSpec>, rows: &[(&str, &str)]) {
    let table = table(servers);
    for (host, expected) in rows {
        let outcome = Asked::with_fields("GET /", &[("Host", host)], &[]).decide(&table);
        assert_eq!(outcome, format!("text 200 {expected}"), "{host}");
    }
}

#[test]
fn names_are_tried_in_nginx_order() {
    chosen(
        vec![
            labelled("default", &["_"]),
            labelled("exact", &["www.example.org", "example.org"]),
            labelled("leading", &["*.example.org"]),
            labelled("longer leading", &["*.sub.example.org"]),
            labelled("trailing", &["mail.*"]),
            labelled("longer trailing", &["mail.example.*"]),
            labelled("regex", &["~^www\\d+\\.example\\.net$"]),
            labelled("later regex", &["~^www", "~org$"]),
            labelled("dotted", &[".nginx.org"]),
        ],
        &[
            ("example.org", "exact"),
            ("EXAMPLE.org", "exact"),
            ("example.org.", "exact"),
            ("example.org:8080", "exact"),
            ("www.example.org", "exact"),
            ("a.example.org", "leading"),
            ("a.b.example.org", "leading"),
            ("a.sub.example.org", "longer leading"),
            ("sub.example.org", "leading"),
            ("mail.net", "trailing"),
            ("mail.example.net", "longer trailing"),
            ("mail.example.co.uk", "longer trailing"),
            ("mail.example.org", "leading"), // a leading wildcard comes before a trailing one
            ("www1.example.net", "regex"),
            ("www.example.net", "later regex"),
            ("example2.org", "later regex"),
            ("nginx.org", "dotted"),
            ("docs.nginx.org", "dotted"),
            ("example.com", "default"),
            ("mail", "default"),
            ("127.0.0.1", "default"),
            ("[::1]:80", "default"),
        ],
    );
}

#[test]
fn of_two_servers_with_one_name_the_first_has_it() {
    chosen(
        vec![labelled("a", &["x.org"]), labelled("b", &["y.org"]), labelled("c", &["y.org"])],
        &[("y.org", "b")],
    );
}

#[test]
fn a_request_without_host_goes_to_the_server_without_a_name() {
    let table = table(vec![labelled("default", &["x.org"]), labelled("nameless", &[""])]);
    assert_eq!(Asked::with_fields("GET /", &[], &[]).decide(&table), "text 200 nameless");
    assert_eq!(Asked::new("GET /", &[]).decide(&table), "text 200 default");
}

/// V34
#[test]
fn the_authority_of_an_absolute_target_comes_before_the_host() {
    let table =
        table(vec![labelled("default", &["example.org"]), labelled("other", &["other.org"])]);
    check(
        &table,
        &[],
        &[
            ("GET http://other.org/x", "text 200 other"),
            ("GET http://OTHER.org:99?x", "text 200 other"),
            ("GET http://third.org/x", "text 200 default"),
            ("GET http://user@other.org/x", "error 400"),
            ("GET http:///x", "error 400"),
        ],
    );
}

/// H3, V49: found while routing.
#[test]
fn a_bad_host_is_a_400_of_the_default_server() {
    let table = server(Vec::new())
        .set(|own| own.error_pages = [crate::support::page("400", "", "/400.html")].into())
        .table();
    for host in ["a..b", "a b", "", "a/b", "a:b"] {
        let mut asked = Asked::with_fields("GET /", &[("Host", host)], &["/srv/400.html"]);
        assert_eq!(asked.decide(&table), "file /srv/400.html as 400", "{host:?}");
        assert_eq!(asked.route_state.host, b"");
    }
}

#[test]
fn a_regex_name_fills_variables() {
    let table = table(vec![
        labelled("default", &[]),
        named_server(&["~^(?P<user>\\w+)\\.(example)\\.net$"], Vec::new())
            .answers(200, Some("$user $2 $server_name")),
    ]);
    let mut asked = Asked::with_fields("GET /", &[("Host", "Kim.example.net")], &[]);
    let name = "~^(?P<user>\\\\w+)\\\\.(example)\\\\.net$";
    assert_eq!(asked.decide(&table), format!("text 200 kim example {name}"));
}

#[test]
fn a_listen_address_that_is_not_there_is_our_own_error() {
    let table = server(Vec::new()).table();
    let mut asked = Asked::new("GET /", &[]);
    let head = std::mem::take(&mut asked.head);
    let chosen = table.choose_server(1, &head, &mut asked.route_state);
    assert_eq!(chosen.map_err(sekisho_http::Status::code), Err(500));
    assert!(!asked.route_state.is_routed());
}
