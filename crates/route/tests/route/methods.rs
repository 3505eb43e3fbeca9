//! Methods: which are there, and which a location lets through.

use sekisho_config::Fallback;
use sekisho_http::Method;

use crate::configured::configured;
use crate::support::{check, exact, prefix, returns, server, t};

const FILES: &[&str] = &["/srv/a.txt"];

/// H12
#[test]
fn files_are_for_get_and_head() {
    let table = server(Vec::new()).table();
    let allow = "GET, HEAD, OPTIONS";
    check(
        &table,
        FILES,
        &[
            ("GET /a.txt", "file /srv/a.txt"),
            ("HEAD /a.txt", "file /srv/a.txt"),
            ("POST /a.txt", &format!("error 405 {allow}")),
            ("PUT /a.txt", &format!("error 405 {allow}")),
            ("DELETE /a.txt", &format!("error 405 {allow}")),
            ("OPTIONS /a.txt", &format!("options {allow}")),
            ("OPTIONS *", &format!("options {allow}")),
            ("GET *", "error 400"),
        ],
    );
}

/// H12: known but not offered is 405, unknown is 501.
#[test]
fn other_methods_are_405_where_known_and_501_where_not() {
    let table = server(vec![
        prefix("/r/", |own| own.rewriting.script = Some(returns(200, Some("x")))),
        prefix("/c/", |own| own.rewriting.script = Some(returns(444, None))),
    ])
    .table();
    let refused = "error 405 GET, HEAD, OPTIONS";
    check(
        &table,
        FILES,
        &[
            ("TRACE /", refused),
            ("CONNECT example.org:443", refused),
            ("CONNECT /", refused),
            ("CONNECT *", "error 400"),
            ("CONNECT example.org", "error 400"),
            ("PATCH /a.txt", refused),
            ("MKCOL /a.txt", refused),
            ("PROPFIND /missing", refused),
            ("BREW /a.txt", "error 501"),
            ("get /a.txt", "error 501"),
            ("BREW /..", "error 400"),
            // As in nginx, what is not there is not there for POST, too.
            ("POST /missing", "error 404"),
            ("POST /a.txt", refused),
            // A `return` does not ask for the method.
            ("POST /r/", "text 200 x"),
            ("DELETE /r/", "text 200 x"),
            ("OPTIONS /r/", "text 200 x"),
            ("PATCH /r/", "text 200 x"),
            ("BREW /r/", "text 200 x"),
            ("BREW /c/", "close"),
        ],
    );
}

/// H12: GET includes HEAD for `limit_except`, as in nginx.
#[test]
fn limit_except_denies_the_rest() {
    let table = configured(
        "server { listen 8080; root /srv;
            location /get/ { limit_except GET { deny all; } }
            location /post/ { limit_except POST { deny all; } return 200 posted; }
            location /some/ { limit_except GET { allow 10.0.0.0/8; deny all; } return 200 got; }
            location /all/ { limit_except GET { allow all; } return 200 got; }
            location /inherits/ { deny all; limit_except GET { allow all; } }
            location /neither/ { deny all; limit_except GET { auth_basic off; } } }",
    );
    check(
        &table,
        &["/srv/get/a"],
        &[
            ("GET /get/a", "file /srv/get/a"),
            ("HEAD /get/a", "file /srv/get/a"),
            ("POST /get/a", "error 403"),
            ("OPTIONS /get/a", "error 403"),
            ("POST /post/a", "text 200 posted"),
            ("GET /post/a", "error 403"),
            ("HEAD /post/a", "error 403"),
            ("GET /some/a", "text 200 got"),
            ("POST /some/a", "error 403"),
            // As in nginx, `return` is the location's and not the block's.
            ("POST /all/a", "error 404"),
            ("PUT /all/a", "error 405 GET, HEAD, OPTIONS"),
            ("GET /inherits/a", "error 403"),
            ("POST /inherits/a", "error 404"),
            ("POST /neither/a", "error 403"),
        ],
    );
}

/// H12: GET does not include HEAD for `allow_methods`.
#[test]
fn allow_methods_lists_exactly_what_is_allowed() {
    let table = server(vec![
        prefix("/", |own| own.allow_methods = Some([Method::Get, Method::Options].into())),
        exact("/post", |own| own.allow_methods = Some([Method::Post, Method::Head].into())),
    ])
    .table();
    check(
        &table,
        FILES,
        &[
            ("GET /a.txt", "file /srv/a.txt"),
            ("HEAD /a.txt", "error 405 GET, OPTIONS"),
            ("POST /a.txt", "error 405 GET, OPTIONS"),
            ("OPTIONS /a.txt", "options GET, OPTIONS"),
            ("GET /post", "error 405 POST, HEAD"),
            ("OPTIONS /post", "error 405 POST, HEAD"),
            ("POST /post", "error 404"), // allowed, but there is nothing to post to
        ],
    );
}

#[test]
fn try_files_is_tried_for_every_method() {
    let table = server(vec![
        prefix("/", |own| {
            own.try_files = Some(crate::files::tries(&["$uri"], Fallback::Uri(t("/app"))));
        }),
        exact("/app", |own| own.rewriting.script = Some(returns(200, Some("$request_method")))),
    ])
    .table();
    check(
        &table,
        FILES,
        &[
            ("POST /x", "text 200 POST"),
            ("POST /a.txt", "error 405 GET, HEAD, OPTIONS"),
            ("OPTIONS /a.txt", "options GET, HEAD, OPTIONS"),
        ],
    );
}
