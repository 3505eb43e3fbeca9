//! `proxy_redirect`, `proxy_cookie_domain`, `_path` and `_flags`.

use sekisho_upstream::rewrite::{
    CookieFlags, SameSite, refresh, replace_domain, replace_prefix, set_cookie,
};

use crate::server::{Nginx, field};

const FRONT: &str = "
    proxy_redirect http://back/one/ /two/;
    proxy_redirect /three /four;
    proxy_cookie_domain back.local example.org;
    proxy_cookie_path /one/ /;
    proxy_cookie_flags a secure samesite=lax;
    proxy_cookie_flags b nosecure nohttponly nosamesite;
    proxy_cookie_flags c httponly samesite=strict;
    location / { proxy_pass BACK; }";
const BACK: &str = "
    add_header Location $http_x_location always;
    add_header Refresh $http_x_refresh always;
    add_header Set-Cookie $http_x_cookie always;
    location / { return 201; }";

fn place(value: &[u8]) -> Option<Vec<u8>> {
    replace_prefix(value, b"http://back/one/", b"/two/")
        .or_else(|| replace_prefix(value, b"/three", b"/four"))
}

fn flags(cookie: &str) -> CookieFlags {
    let none = CookieFlags::default();
    match cookie.split('=').next() {
        Some("a") => CookieFlags { secure: Some(true), same_site: Some(SameSite::Lax), ..none },
        Some("b") => CookieFlags {
            secure: Some(false),
            http_only: Some(false),
            same_site: Some(SameSite::Removed),
        },
        Some("c") => {
            CookieFlags { http_only: Some(true), same_site: Some(SameSite::Strict), ..none }
        }
        _ => none,
    }
}

#[test]
fn places_are_nginx_s() {
    let Some(nginx) = Nginx::start("", FRONT, BACK) else { return };
    let text = |new: Option<Vec<u8>>, old: &str| {
        new.map_or(old.to_owned(), |new| String::from_utf8(new).expect("text"))
    };
    for location in [
        "http://back/one/x?y",
        "http://back/one",
        "http://other/one/",
        "/three/x",
        "/threefold",
        "/",
    ] {
        let answer = nginx.ask("/", &format!("X-Location: {location}\r\n"));
        let ours = text(place(location.as_bytes()), location);
        // nginx adds its own address to a local place, unless it was rewritten.
        let found = field(&answer, "Location").expect("a place");
        assert!(found == ours || found.ends_with(&ours), "{location}: {found} {ours}");
    }
    for value in ["5; url=http://back/one/x", "5;URL=/three", "5; url=/x", "5", "url=/three; x"] {
        let answer = nginx.ask("/", &format!("X-Refresh: {value}\r\n"));
        let ours = text(refresh(value.as_bytes(), place), value);
        assert_eq!(field(&answer, "Refresh"), Some(ours.as_str()), "{value}");
    }
    for cookie in [
        "x=y; Domain=back.local; Path=/one/z",
        "x=y; domain=.BACK.LOCAL; path=/one",
        "x=y; domain=a.back.local; path=/two/",
        "x=y;Secure;HttpOnly",
        "a=1",
        "a=1; Secure; SameSite=Strict",
        "a=1; secure; samesite=LAX; HttpOnly",
        "b=1; Secure; HttpOnly; SameSite=None; Max-Age=5",
        "b=1",
        "c=1; Path=/one/; Max-Age=5",
        "c=1; HTTPONLY; samesite=None",
    ] {
        let answer = nginx.ask("/", &format!("X-Cookie: {cookie}\r\n"));
        let new = set_cookie(
            cookie.as_bytes(),
            |domain| replace_domain(domain, b"back.local", b"example.org"),
            |path| replace_prefix(path, b"/one/", b"/"),
            flags(cookie),
        );
        assert_eq!(field(&answer, "Set-Cookie"), Some(text(new, cookie).as_str()), "{cookie}");
    }
}
