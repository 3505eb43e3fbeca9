//! The target that an upstream gets, by the rules of `proxy_pass`.

use sekisho_http::target;
use sekisho_upstream::rewrite::{TargetParts, upstream_target};

use crate::server::Nginx;

const FRONT: &str = "
    location /name/ { proxy_pass BACK/remote/; }
    location /cut { proxy_pass BACK/r; }
    location /plain/ { proxy_pass BACK; }
    location /rw/ { rewrite ^/rw(/.*)$ /new$1 break; proxy_pass BACK; }
    location /rw/uri/ { rewrite ^/rw(/.*)$ /new$1 break; proxy_pass BACK/ignored/; }";

/// The same by our rules.
fn ours(asked: &str) -> String {
    let split = target::split(asked.as_bytes()).expect("a path");
    let mut path = Vec::new();
    target::resolve(split.path, true, &mut path).expect("resolved");
    let (pass, location): (Option<&[u8]>, &[u8]) = match () {
        () if path.starts_with(b"/name/") => (Some(b"/remote/"), b"/name/"),
        () if path.starts_with(b"/cut") => (Some(b"/r"), b"/cut"),
        () if path.starts_with(b"/rw/uri/") => (Some(b"/ignored/"), b"/rw/uri/"),
        () => (None, b""),
    };
    let is_rewritten = path.starts_with(b"/rw/");
    if is_rewritten {
        path.splice(..3, *b"/new");
    }
    let parts = TargetParts {
        pass,
        location,
        original: asked.as_bytes(),
        path: &path,
        query: split.query,
        is_rewritten,
        is_in_place: is_rewritten,
        is_computed: false,
    };
    let mut out = Vec::new();
    upstream_target(&parts, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn targets_are_nginx_s() {
    let Some(nginx) = Nginx::start("", FRONT, "return 200 $request_uri;") else { return };
    let tails = [
        "",
        "a",
        "a/b?c=d",
        "a?",
        "a%20b",
        "a%25b",
        "a%3Fb?c%20d",
        "a%23b",
        "%C3%A4",
        "a//b",
        "a/./b/../c",
        "a+b;c=d,e!'()*:@&$",
        "~a%7Eb",
        "a%22%3C%3E%5C%5E%60%7B%7C%7D",
        "a\"<>\\^`{|}",
    ];
    for location in ["/name/", "/cut", "/cut/", "/plain/", "/rw/", "/rw/uri/"] {
        for tail in tails {
            let target = format!("{location}{tail}");
            let answer = nginx.ask(&target, "");
            let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
            assert_eq!(ours(&target), body, "{target}");
        }
    }
}
