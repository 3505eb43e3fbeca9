//! Parameters out of a request head: what CGI calls its environment.

use sekisho_gateway::{cgi, push_environment, push_http_params};
use sekisho_http::{Fields, Head, Version};

use crate::harness::pairs;

/// V22, V23: no field becomes another variable, those of one name are one, and the configuration's stay.
#[test]
fn fields_become_parameters() {
    let mut head = Head::default();
    head.begin(b"GET", b"/", Version::Http11);
    for (name, value) in [
        ("Host", "a"),
        ("Proxy", "evil"),
        ("X_Forwarded_For", "evil"),
        ("Cookie", "a=1"),
        ("Accept", "x"),
        ("cookie", "b=2"),
        ("accept", "y"),
        ("Authorization", "Basic eDp5"),
        ("Connection", "close"),
        ("X-Set", "client"),
    ] {
        head.push(name.as_bytes(), value.as_bytes());
    }
    let mut params = pairs(&[("HTTP_X_SET", "configured")]);
    push_http_params(&head, |name| name == b"HTTP_X_SET", &mut params);
    let expected = pairs(&[
        ("HTTP_X_SET", "configured"),
        ("HTTP_ACCEPT", "x, y"),
        ("HTTP_AUTHORIZATION", "Basic eDp5"),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_HOST", "a"),
    ]);
    assert_eq!(params, expected);
}

#[test]
fn an_environment_becomes_parameters() {
    let mut environment = cgi::Environment::default();
    environment.add("A", b"b=c");
    environment.add("E", b"");
    let mut params = Fields::default();
    push_environment(&environment, &mut params);
    assert_eq!(params, pairs(&[("A", "b=c"), ("E", "")]));
}
