//! The configurations and the requests: nested locations with access rules, passwords, `satisfy`, `limit_except`,
//! `error_page`, `try_files`, `index`, `internal`, `rewrite`, `return`, `if`, `root` and `alias`.

use std::fmt::Write as _;

use crate::random::Random;

/// One server.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) seed: u64,
    pub(crate) host: String,
    pub(crate) text: String,
}

const ACCESS: &[&str] = &[
    "deny all;",
    "allow 127.0.0.1; deny all;",
    "deny 127.0.0.1; allow all;",
    "allow 10.0.0.0/8; deny all;",
    "allow all;",
    "deny 10.0.0.0/8;",
];
const PASSWORDS: &[&str] =
    &["auth_basic one;", "auth_basic two;", "auth_basic off;", "auth_basic $arg_realm;"];
const LIMITS: &[&str] = &[
    "limit_except GET { deny all; }",
    "limit_except GET { allow all; }",
    "limit_except POST { deny all; }",
    "limit_except GET { auth_basic writers; }",
    "limit_except GET { auth_basic off; }",
    "limit_except GET HEAD { allow 127.0.0.1; deny all; }",
];
const PAGES: &[&str] = &[
    "error_page 403 /pages/403.html;",
    "error_page 403 =200 /secret.txt;",
    "error_page 403 404 = /p/a.txt;",
    "error_page 401 /pages/403.html;",
    "error_page 404 @named;",
    "error_page 403 =404 /pages/404.html;",
    "error_page 404 = @named;",
    "error_page 405 =200 $uri;",
    "error_page 403 404 405 http://elsewhere.test/x;",
    "error_page 404 =301 /p/;",
    "error_page 403 /p/; error_page 404 /missing;",
    "error_page 301 302 /pages/index.html;",
    "error_page 418 = @named;",
    "error_page 403 $uri.html;",
    "error_page 404 =403 /nope.html; error_page 403 @named;",
    "error_page 500 =200 /a.txt;",
];
const TRIES: &[&str] = &[
    "try_files $uri $uri/ =404;",
    "try_files $uri /p/a.txt;",
    "try_files $uri @named;",
    "try_files /nope.txt $uri/index.html =403;",
    "try_files $uri/ /index.html;",
    "try_files /secret.txt =404;",
    "try_files $uri $uri.html /p/q/;",
    "try_files /p$uri p/a.txt;",
    "try_files $uri =418;",
    "try_files a.txt $uri/a.txt /p/?x=1;",
    "try_files $uri$args $uri/index.html @missing;",
];
const INDEXES: &[&str] = &[
    "index a.txt;",
    "index nope.html a.txt;",
    "index index.html /secret.txt;",
    "index /p/a.txt;",
    "index only.txt index.html;",
    "index b.html;",
];
const SCRIPTS: &[&str] = &[
    "rewrite ^/x/(.*)$ /p/$1 last;",
    "rewrite ^/p/q/(.*)$ /p/$1 last;",
    "rewrite ^/p/b(.*)$ /secret.txt break;",
    "rewrite ^/p/(.*)$ /$1 break;",
    "rewrite ^(.*)/q/(.*)$ $1/$2;",
    "rewrite ^/e/(.*)$ /p/$1 redirect;",
    "rewrite ^/(.*)\\.html$ /$1.txt permanent;",
    "rewrite ^/a.txt$ http://elsewhere.test/y;",
    "if ($arg_x = 1) { return 403; }",
    "if ($arg_x) { rewrite ^ /secret.txt last; }",
    "if ($request_method = POST) { return 404; }",
    "if ($arg_y) { return 200 text:if; }",
    "if ($arg_y = 1) { break; }",
    "if (-f $request_filename) { break; } rewrite ^ /p/a.txt last;",
    "if ($uri ~ q) { set $v 1; } if ($v) { return 404; }",
    "if (!-e $request_filename) { rewrite ^ /index.html last; }",
    "if ($http_authorization) { return 404; }",
    "if (-d $request_filename) { set $args x=1; }",
    "rewrite ^/p/(.*)$ /al/$1 last;",
    "rewrite ^/al/(.*)$ /p/q/$1 last;",
    "rewrite ^/e/(.*)$ /p/$1? break;",
    "rewrite ^(.*)$ $1.html break;",
    "rewrite ^/p/b$ p/a.txt last;",
    "return 444;",
    "return 403;",
    "return 404;",
    "return 200 text:return;",
    "return 302 /p/;",
    "return 418;",
];
/// What an `if` of a location may hold, and one of a server may not.
const BRANCHES: &[&str] = &[
    "if ($arg_y) { root {files}/other; }",
    "if ($arg_x) { error_page 404 /secret.txt; }",
    "if ($arg_x) { error_page 403 =200 /p/b.html; set $w 1; }",
    "if ($uri ~ a) { break; }",
];
const OTHERS: &[&str] = &[
    "recursive_error_pages on;",
    "absolute_redirect off;",
    "autoindex on;",
    "root {files}/other;",
    "satisfy any;",
    "satisfy any;",
    "satisfy all;",
    "server_name_in_redirect on;",
    "log_not_found off;",
    "port_in_redirect off;",
    "disable_symlinks on;",
    "limit_rate 10m;",
];
/// What is allowed at the level of a server.
const PLACES: &[&str] = &[
    "/",
    "= /",
    "/p/",
    "/p",
    "^~ /p/",
    "/p/q/",
    "^~ /p/q/",
    "= /p/a.txt",
    "= /secret.txt",
    "/e/",
    "/pages/",
    "= /index.html",
    "~ \\.txt$",
    "~* \\.HTML$",
    "~ ^/p/(.*)$",
    "~ /q/",
    "/al/",
    "/al",
    "= /p",
    "/p/q",
    "^~ /pages/",
    "~ (?<!b)\\.html$",
];
/// What may stand within a prefix of `/p/`.
const WITHIN: &[&str] = &[
    "/p/",
    "/p/q/",
    "^~ /p/q/",
    "= /p/a.txt",
    "= /p/",
    "/p/q/r/",
    "~ \\.txt$",
    "~ /q/",
    "~ ^/p/(.*)$",
    "~ html$",
];
const WITHIN_REGEX: &[&str] = &["~ \\.txt$", "~ a", "~ /q/", "~ ^/p/(.*)$", "~ html$"];

/// The configuration of a seed.
pub(crate) fn site(seed: u64) -> Site {
    let mut random = Random::new(seed);
    let host = format!("s{seed}.test");
    let mut text = format!(
        "server {{ listen 127.0.0.1:{{port}}; server_name {host};\n  auth_basic_user_file {{files}}/users;\n"
    );
    let mut own = String::new();
    settings(&mut random, &mut own, 1, Kind::Server);
    if !has_root(&own) {
        text.push_str("  root {files}/root;\n");
    }
    text.push_str(&own);
    locations(&mut random, &mut text, 1, PLACES);
    text.push_str("  location @named {");
    settings(&mut random, &mut text, 2, Kind::Named);
    text.push_str("  }\n}\n");
    Site { seed, host, text }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Prefix,
    Other,
    Named,
}

fn settings(random: &mut Random, text: &mut String, depth: usize, kind: Kind) {
    let mut line = |random: &mut Random, percent: usize, of: &[&str]| {
        if random.chance(percent) {
            let directive = random.pick(of);
            let _ = writeln!(text, "{:1$}{directive}", "", depth * 2);
        }
    };
    let is_server = kind == Kind::Server;
    let is_location = !is_server;
    line(random, 30, ACCESS);
    line(random, 20, PASSWORDS);
    line(random, 20, INDEXES);
    line(random, 35, PAGES);
    line(random, if is_server { 10 } else { 25 }, SCRIPTS);
    line(random, 35, OTHERS);
    if is_location {
        line(random, 10, BRANCHES);
        line(random, 20, TRIES);
        line(random, 15, LIMITS);
        line(random, if kind == Kind::Named { 0 } else { 18 }, &["internal;"]);
    }
}

fn locations(random: &mut Random, text: &mut String, depth: usize, of: &[&str]) {
    let mut chosen: Vec<&str> = Vec::new();
    let count = if depth == 1 { 2 + random.below(5) } else { random.below(3) };
    for _ in 0..count {
        let place = random.pick(of);
        // nginx takes `/x` and `^~ /x` for the same.
        let path = place.trim_start_matches("^~ ");
        if chosen.contains(&path) {
            continue;
        }
        chosen.push(path);
        location(random, text, depth, place);
    }
}

fn location(random: &mut Random, text: &mut String, depth: usize, place: &str) {
    let _ = writeln!(text, "{:1$}location {place} {{", "", depth * 2);
    let kind = if place.contains(['=', '~']) && !place.starts_with('^') {
        Kind::Other
    } else {
        Kind::Prefix
    };
    let mut own = String::new();
    settings(random, &mut own, depth + 1, kind);
    let is_alias = place.starts_with("/al") || random.chance(8);
    if is_alias && !has_root(&own) {
        let alias = match place {
            "/al" => "alias {files}/other;",
            _ if place.starts_with('~') => "alias {files}/other/a.txt;",
            _ if place.ends_with('/') => "alias {files}/other/p/;",
            _ => "alias {files}/other/a.txt;",
        };
        let _ = writeln!(own, "{:1$}{alias}", "", depth * 2 + 2);
    }
    text.push_str(&own);
    if depth < 4 && random.chance(45) {
        if place.starts_with('~') {
            locations(random, text, depth + 1, WITHIN_REGEX);
        } else if place == "/" {
            locations(random, text, depth + 1, PLACES);
        } else if place.trim_start_matches("^~ ") == "/p/" {
            locations(random, text, depth + 1, WITHIN);
        } else if place.trim_start_matches("^~ ") == "/p/q/" {
            locations(random, text, depth + 1, &["/p/q/r/", "= /p/q/a.txt", "~ \\.txt$", "~ q"]);
        } else if place == "/al/" {
            locations(random, text, depth + 1, &["/al/q/", "= /al/a.txt", "~ \\.txt$", "~ q"]);
        }
    }
    let _ = writeln!(text, "{:1$}}}", "", depth * 2);
}

fn has_root(settings: &str) -> bool {
    settings.lines().any(|line| line.trim().starts_with("root "))
}

const TARGETS: &[&str] = &[
    "/",
    "/a.txt",
    "/secret.txt",
    "/index.html",
    "/missing",
    "/p",
    "/p/",
    "/p/a.txt",
    "/p/b.html",
    "/p/b",
    "/p/missing.txt",
    "/p/q",
    "/p/q/",
    "/p/q/a.txt",
    "/p/q/r/",
    "/p/q/r/a.txt",
    "/p/q/r/none.txt",
    "/e",
    "/e/",
    "/e/only.txt",
    "/e/x",
    "/x/a.txt",
    "/al/",
    "/al/a.txt",
    "/al/q/a.txt",
    "/al/q/",
    "/al",
    "/pages/403.html",
    "/pages/",
    "/p/../secret.txt",
    "/p//a.txt",
    "/p%2fa.txt",
];

/// The requests for a configuration: method, target and more fields.
pub(crate) fn requests(seed: u64) -> Vec<(String, String, String)> {
    let mut random = Random::new(seed ^ 0xA5A5);
    let mut all = Vec::new();
    for target in TARGETS {
        for _ in 0..2 {
            let method = random
                .pick(&["GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]);
            let query = random.pick(&["", "", "", "?x=1", "?y=1", "?realm=off"]);
            // ann:secret, ann:wrong
            let credentials = random.pick(&[
                "",
                "Authorization: Basic YW5uOnNlY3JldA==\r\n",
                "Authorization: Basic YW5uOndyb25n\r\n",
            ]);
            let length = if matches!(method, "POST" | "PUT" | "PATCH") {
                "Content-Length: 0\r\n"
            } else {
                ""
            };
            all.push((
                method.to_owned(),
                format!("{target}{query}"),
                format!("{credentials}{length}"),
            ));
        }
    }
    all
}
