//! Access: addresses, passwords, and both together.

use std::net::SocketAddr;

use sekisho_http::{Fields, Status};
use sekisho_route::{Table, added_fields};

use crate::configured::configured;
use crate::support::Asked;

fn server(directives: &str) -> Table {
    configured(&format!("server {{ listen 8080; root /srv; {directives} }}"))
}

/// `None` means a Unix socket.
fn from(client: Option<&str>, path: &str) -> Asked {
    let mut asked = Asked::new(&format!("GET {path}"), &["/srv/a", "/srv/page"]);
    asked.connection.remote = client.map(|client| {
        let ip = client.parse().expect("an address");
        SocketAddr::new(ip, 4711)
    });
    asked
}

/// `ann:secret` and the like are `Basic` credentials of base64.
fn with(credentials: &str, path: &str) -> Asked {
    let field = format!("Basic {credentials}");
    let fields = [("Host", "example.org"), ("Authorization", &field)];
    Asked::with_fields(&format!("GET {path}"), &fields, &["/srv/a", "/srv/page"])
}

const ANN: &str = "YW5uOnNlY3JldA==";
const ANN_WRONG: &str = "YW5uOndyb25n";
const BOB: &str = "Ym9iOnNlY3JldA==";
const SLOW: &str = "c2xvdzpzZWNyZXQ=";

/// What `WWW-Authenticate` says.
fn challenge(asked: &Asked, table: &Table) -> Option<String> {
    let mut fields = Fields::new();
    let status = Status::UNAUTHORIZED;
    added_fields(table, &asked.request(), &asked.route_state, status, None, &mut fields);
    fields.get("WWW-Authenticate").map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The first rule that matches decides.
#[test]
fn addresses_are_let_in_by_the_first_rule_that_matches() {
    let rules = "deny 192.168.1.1; allow 192.168.1.0/24; allow 10.1.1.0/16; allow 2001:db8::/32; \
                 deny 2001:0db8:1::/48; allow unix:; deny all;";
    let table = server(rules);
    for (client, is_in) in [
        (Some("192.168.1.1"), false),
        (Some("192.168.1.2"), true),
        (Some("192.168.2.1"), false),
        (Some("10.1.255.255"), true),
        (Some("10.2.0.0"), false),
        (Some("2001:db8::1"), true),
        (Some("2001:db8:1::1"), true),
        (Some("2001:db9::1"), false),
        (Some("::ffff:192.168.1.2"), true),
        (Some("::ffff:192.168.1.1"), false),
        (Some("::1"), false),
        (None, true),
    ] {
        let expected = if is_in { "file /srv/a" } else { "error 403" };
        let mut asked = from(client, "/a");
        assert_eq!(asked.decide(&table), expected, "{client:?}");
        let told = if is_in { vec![] } else { vec!["error access forbidden by rule".to_owned()] };
        assert_eq!(asked.files.access_checks.lines, told, "{client:?}");
    }
}

#[test]
fn networks_are_as_wide_as_they_say() {
    for (rule, client, is_in) in [
        ("0.0.0.0/0", "203.0.113.9", true),
        ("0.0.0.0/0", "::ffff:203.0.113.9", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "192.0.2.1", false),
        ("192.0.2.1/32", "192.0.2.1", true),
        ("192.0.2.1/32", "192.0.2.2", false),
        ("192.0.2.0/31", "192.0.2.1", true),
        ("::1/128", "::1", true),
        ("::1", "::2", false),
        ("::ffff:10.0.0.0/104", "10.9.9.9", true),
        ("::ffff:10.0.0.0/104", "11.9.9.9", false),
        ("unix:", "192.0.2.1", false),
    ] {
        let table = server(&format!("allow {rule}; deny all;"));
        let expected = if is_in { "file /srv/a" } else { "error 403" };
        assert_eq!(from(Some(client), "/a").decide(&table), expected, "{rule} {client}");
    }
}

#[test]
fn rules_of_an_inner_level_take_the_place_of_all_outer_ones() {
    let table = server(
        "deny all; location /open { allow 192.0.2.1; } location /same { } \
         location /in { location /in/deep { allow all; } }",
    );
    for (path, expected) in [
        ("/a", "error 403"),
        ("/open", "error 404"),
        ("/same", "error 403"),
        ("/in/a", "error 403"),
        ("/in/deep", "error 404"),
    ] {
        assert_eq!(from(Some("192.0.2.1"), path).decide(&table), expected, "{path}");
    }
    // A client that no rule matches is not denied.
    assert_eq!(from(Some("192.0.2.2"), "/open").decide(&table), "error 404");
}

#[test]
fn a_refusal_has_its_error_page_where_that_may_be_had() {
    let table = server(
        "error_page 403 /page; error_page 401 /page; auth_basic_user_file /users; \
         location = /page { allow all; } location /d { deny all; } \
         location /p { auth_basic x; } location /closed { deny all; error_page 403 /d/page; }",
    );
    assert_eq!(from(Some("192.0.2.1"), "/d").decide(&table), "file /srv/page as 403");
    assert_eq!(from(Some("192.0.2.1"), "/p").decide(&table), "file /srv/page as 401");
    // As in nginx, a page that is refused too is not shown.
    assert_eq!(from(Some("192.0.2.1"), "/closed").decide(&table), "error 403");
}

#[test]
fn a_password_is_asked_for_and_the_log_says_what_came_of_it() {
    let table = server("auth_basic 'the \"cellar\"'; auth_basic_user_file users;");
    let realm = Some("Basic realm=\"the \\\"cellar\\\"\"");
    for (credentials, expected, line) in [
        (ANN, "file /srv/a", None),
        (ANN_WRONG, "error 401", Some("error user \"ann\": password mismatch")),
        (BOB, "error 401", Some("error user \"bob\" was not found in \"/etc/users\"")),
        ("!", "error 401", Some("info no user/password was provided for basic authentication")),
    ] {
        let mut asked = with(credentials, "/a");
        assert_eq!(asked.decide(&table), expected, "{credentials}");
        let told: Vec<String> = line.into_iter().map(str::to_owned).collect();
        assert_eq!(asked.files.access_checks.lines, told);
        let is_asked = expected != "file /srv/a";
        assert_eq!(challenge(&asked, &table).as_deref(), realm.filter(|_| is_asked));
    }
    let mut asked = from(Some("192.0.2.1"), "/a");
    assert_eq!(asked.decide(&table), "error 401");
}

#[test]
fn realm_and_file_may_be_variables() {
    let table = server(
        "auth_basic $arg_realm; auth_basic_user_file $arg_file;
         location /half { auth_basic_user_file /etc/$arg_file; }
         location /off { auth_basic off; }",
    );
    for (path, expected, file) in [
        ("/a?realm=x&file=/users", "file /srv/a", Some("/users")),
        ("/a?realm=x&file=users", "file /srv/a", Some("/etc/users")),
        ("/a?realm=off&file=users", "file /srv/a", None),
        ("/a?realm=x&file=/missing", "error 403", Some("/missing")),
        ("/a?realm=x&file=/broken", "error 500", Some("/broken")),
        ("/half?realm=x&file=users", "error 404", Some("/etc/users")),
        ("/off?realm=x&file=users", "error 404", None),
    ] {
        let mut asked = with(ANN, path);
        assert_eq!(asked.decide(&table), expected, "{path}");
        assert_eq!(asked.files.access_checks.asked.first().map(String::as_str), file, "{path}");
    }
    // A file is not looked for before there is a password to compare.
    let mut asked = from(Some("192.0.2.1"), "/a?realm=x&file=/missing");
    assert_eq!(asked.decide(&table), "error 401");
}

#[test]
fn a_password_without_a_file_is_not_asked_for() {
    // nginx's meaning; the configuration gets a warning.
    let table = server("auth_basic x;");
    assert_eq!(from(Some("192.0.2.1"), "/a").decide(&table), "file /srv/a");
}

#[test]
fn satisfy_puts_address_and_password_together() {
    let table = |satisfy: &str, rule: &str| {
        server(&format!("satisfy {satisfy}; {rule} auth_basic x; auth_basic_user_file /users;"))
    };
    let (near, far) = ("allow 192.0.2.1; deny all;", "deny 192.0.2.1;");
    let elsewhere = "deny 198.51.100.1;";
    for (satisfy, rule, credentials, expected) in [
        ("all", near, ANN, "file /srv/a"),
        ("all", near, ANN_WRONG, "error 401"),
        ("all", far, ANN, "error 403"),
        ("all", far, ANN_WRONG, "error 403"),
        ("all", elsewhere, ANN, "file /srv/a"),
        ("any", near, ANN, "file /srv/a"),
        ("any", near, ANN_WRONG, "file /srv/a"),
        ("any", far, ANN, "file /srv/a"),
        ("any", far, ANN_WRONG, "error 401"),
        ("any", elsewhere, ANN, "file /srv/a"),
        ("any", elsewhere, ANN_WRONG, "error 401"),
    ] {
        let table = table(satisfy, rule);
        let mut asked = with(credentials, "/a");
        let row = format!("{satisfy} {rule} {credentials}");
        assert_eq!(asked.decide(&table), expected, "{row}");
        assert_eq!(challenge(&asked, &table).is_some(), expected == "error 401", "{row}");
    }
    // Without a password to ask for, the address decides.
    let table = server("satisfy any; deny all; auth_basic off; auth_basic_user_file /users;");
    let mut asked = with(ANN, "/a");
    assert_eq!(asked.decide(&table), "error 403");
    assert_eq!(asked.files.access_checks.lines, ["error access forbidden by rule"]);
}

#[test]
fn a_slow_password_is_waited_for_and_asked_again() {
    let table = server("auth_basic x; auth_basic_user_file /users;");
    let mut asked = with(SLOW, "/a");
    assert_eq!(asked.decide(&table), "wait for a password");
    assert_eq!(challenge(&asked, &table), None, "nothing is refused yet");
    asked.files.access_checks.has_waited = true;
    assert_eq!(asked.resume(&table), "file /srv/a");
}

#[test]
fn waiting_for_a_password_comes_to_an_end() {
    let table = server("auth_basic x; auth_basic_user_file /users;");
    let mut asked = with(SLOW, "/a");
    assert_eq!(asked.decide(&table), "wait for a password");
    let rounds = (0..99).take_while(|_| asked.resume(&table) == "wait for a password").count();
    assert!(rounds < 10, "{rounds}");
    assert_eq!(asked.decide(&table), "wait for a password", "another request has its own");
}

#[test]
fn auth_delay_holds_a_refusal_back() {
    let table = server("auth_basic x; auth_basic_user_file /users; auth_delay 250ms;");
    let mut asked = with(ANN_WRONG, "/a");
    assert_eq!(asked.decide(&table), "wait 250ms");
    assert_eq!(asked.resume(&table), "error 401");
    assert!(challenge(&asked, &table).is_some());
    assert_eq!(asked.files.access_checks.asked.len(), 1, "asked once");
    assert_eq!(with(ANN, "/a").decide(&table), "file /srv/a");
}

/// F7, V25: what is not to be had by its own path is not to be had by another.
#[test]
fn internal_redirects_pass_the_access_checks_of_their_target() {
    let table = server(
        "location /t { try_files /nothing /secret; } location /secret { deny all; } \
         location /named { try_files /nothing @back; } location @back { deny all; }
         location /dir/ { index /secret; }",
    );
    for path in ["/t", "/secret", "/named", "/dir/"] {
        assert_eq!(from(Some("192.0.2.1"), path).decide(&table), "error 403", "{path}");
    }
}

#[test]
fn resuming_what_was_never_decided_is_an_error() {
    let table = server("deny all;");
    assert_eq!(from(None, "/a").resume(&table), "error 500");
}
