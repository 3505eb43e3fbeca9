//! The same requests to nginx and to this server: the same status, challenge and variables.

use sekisho_testkit::{Client, Response, Server, Tree, have};

use crate::common::BINARY;
use crate::passwords::field;

const NGINX: &str = "/usr/sbin/nginx";

/// The configuration of both.
const SITE: &str = r#"
    limit_req_zone  $arg_k zone=one:1m rate=1r/m;
    limit_req_zone  $arg_m zone=two:1m rate=1r/m;
    limit_conn_zone $arg_k zone=places:1m;
    map $invalid_referer $referer { "" valid; default invalid; }
    server {
        listen 127.0.0.1:{port};
        root {root};
        auth_basic_user_file users;
        add_header X-Seen "$remote_user|$limit_req_status|$limit_conn_status" always;

        location /denied/    { deny all; }
        location /first/     { allow 127.0.0.0/8; deny all; }
        location /last/      { deny 127.0.0.1; allow all; }
        location /six/       { allow ::/0; deny all; }
        location /unix/      { allow unix:; deny all; }
        location /page/      { deny all; error_page 403 /open/page.txt; }
        location /closed/    { deny all; error_page 403 /closed/page.txt; }
        location /basic/     { auth_basic "basic"; }
        location /off/       { auth_basic $arg_realm; }
        location /missing/   { auth_basic x; auth_basic_user_file nothing; }
        location /folder/    { auth_basic x; auth_basic_user_file {root}; }
        location /shown/     { auth_basic shown; error_page 401 /open/page.txt; }
        location /turned/    { auth_basic turned; error_page 401 =200 /open/page.txt; }
        location /all/       { satisfy all; allow 127.0.0.1; deny all; auth_basic all; }
        location /none/      { satisfy all; deny all; auth_basic all; }
        location /any/       { satisfy any; allow 127.0.0.1; deny all; auth_basic any; }
        location /other/     { satisfy any; deny all; auth_basic any; }
        location /neither/   { satisfy any; deny all; }
        location /reads/     { limit_except GET { deny all; } }
        location /returns/   { limit_except GET { deny all; } return 200 ok; }
        location /writers/   { limit_except GET HEAD { auth_basic writers; } }
        location /inherits/  { deny all; limit_except GET { allow all; } }
        location /open/      { }
        location /rate/      { limit_req zone=one burst=2 nodelay; limit_req_status 429; }
        location /dry/       { limit_req zone=one; limit_req_dry_run on; }
        location /two/       { limit_req zone=one burst=3 nodelay; limit_req zone=two burst=1 nodelay; }
        location /order/     { limit_req zone=one; limit_req_status 429; limit_conn places 1; deny all; }
        location /again/     { limit_req zone=one; error_page 404 /rate/a.txt; }
        location /referer/   { valid_referers none blocked server_names *.example.com example.* www.example.org/galleries/ ~\.google\.; return 200 $referer; }
        location /blocked/   { valid_referers blocked example.com; return 200 $referer; }
        location /linked/    { secure_link $arg_md5,$arg_expires; secure_link_md5 "$secure_link_expires$uri secret"; return 200 "[$secure_link|$secure_link_expires]"; }
        location /p/         { secure_link_secret secret; return 200 "[$secure_link]"; }
    }
"#;

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("users", "# users\nann:$apr1$oskykXLA$ZsFdD1UvX0o3KU/J9.qbg1:x\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
                        cy:$2y$05$y7wA8OD9ISXrBZCgA34PhOT35iBSo1Px5803tONQl5sdBo5cg314y\npat:{PLAIN}secret\n");
    let folders = SITE.lines().filter_map(|line| line.trim().strip_prefix("location /"));
    for folder in folders.filter_map(|line| line.split('/').next()) {
        tree.file(&format!("root/{folder}/a.txt"), folder);
        tree.file(&format!("root/{folder}/page.txt"), "page");
    }
    // nginx may run as another user.
    tree.mode(".", 0o755);
    tree
}

/// What is compared.
fn seen(method: &str, response: &Response) -> String {
    let challenge = response.field("www-authenticate").unwrap_or_default();
    let marked = response.field("x-seen").unwrap_or_default();
    let body =
        if response.status == 200 && method == "GET" { response.text() } else { String::new() };
    format!("{} {challenge} {marked} {body}", response.status)
}

#[test]
fn both_answer_alike() {
    if !have("nginx") {
        return;
    }
    let frame =
        |first: &str| format!("{first}\nevents {{}}\nhttp {{\naccess_log off;\n{SITE}\n}}\n");
    let nginx = frame(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log info;",
    );
    let nginx = Server::start_in(tree(), NGINX, &nginx);
    let ours = Server::start_in(tree(), BINARY, &frame("error_log {dir}/error.log info;"));
    let mut nginx = nginx_clients(&nginx);
    let mut ours = nginx_clients(&ours);
    let mut differing = Vec::new();
    for (method, path, fields) in requests() {
        let [one, other] = [&mut nginx, &mut ours].map(|connect| {
            let mut client = connect();
            seen(&method, &client.request(&method, &path, &fields))
        });
        if one != other {
            differing.push(format!("{method} {path} {fields:?}\n  nginx: {one}\n  ours:  {other}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn nginx_clients(server: &Server) -> impl FnMut() -> Client {
    || server.connect()
}

fn requests() -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    let mut ask = |method: &str, path: &str, fields: &str| {
        all.push((method.to_owned(), path.to_owned(), fields.to_owned()));
    };
    let credentials = [
        String::new(),
        field("ann", "secret"),
        field("ann", "wrong"),
        field("bob", "secret"),
        field("cy", "secret"),
        field("cy", "Secret"),
        field("pat", "secret"),
        field("pat", ""),
        field("nobody", "secret"),
        field("", "secret"),
        "Authorization: Basic !!!\r\n".to_owned(),
        "Authorization: Basic YW5u\r\n".to_owned(),
        "Authorization: basic YW5uOnNlY3JldA==\r\n".to_owned(),
        "Authorization: Bearer YW5uOnNlY3JldA==\r\n".to_owned(),
    ];
    let folders = "denied first last six unix page closed basic missing folder shown turned all none any other \
                   neither reads writers inherits open";
    for folder in folders.split_whitespace() {
        for fields in &credentials {
            ask("GET", &format!("/{folder}/a.txt"), fields);
        }
        ask("HEAD", &format!("/{folder}/a.txt"), "");
        ask("GET", &format!("/{folder}/missing.txt"), &credentials[1]);
        ask("GET", &format!("/{folder}"), "");
    }
    for folder in ["reads", "returns", "writers", "inherits"] {
        for method in ["POST", "PUT", "DELETE"] {
            for fields in &credentials[..3] {
                ask(method, &format!("/{folder}/a.txt"), &format!("{fields}Content-Length: 0\r\n"));
            }
        }
    }
    for realm in ["off", "", "x"] {
        ask("GET", &format!("/off/a.txt?realm={realm}"), &credentials[1]);
        ask("GET", &format!("/off/a.txt?realm={realm}"), "");
    }
    for key in ["a", "b", ""] {
        for path in ["rate", "rate", "rate", "rate", "dry", "dry", "order", "again"] {
            ask("GET", &format!("/{path}/a.txt?k={key}"), "");
        }
    }
    for key in ["k=c&m=c", "k=d&m=c", "k=c&m=d", "k=e", "m=e", ""] {
        for _ in 0..3 {
            ask("GET", &format!("/two/a.txt?{key}"), "");
        }
    }
    for _ in 0..2 {
        ask("GET", "/order/a.txt?k=o", "");
        ask("GET", "/again/missing?k=p", "");
    }
    for referer in [
        "",
        "Referer: http://www.example.com/\r\n",
        "Referer: http://example.com/\r\n",
        "Referer: https://example.org:443/x\r\n",
        "Referer: http://www.example.org/galleries/x\r\n",
        "Referer: http://www.example.org/other\r\n",
        "Referer: http://www.google.de/x\r\n",
        "Referer: http://evil.test/\r\n",
        "Referer: blocked\r\n",
        "Referer: http://a\r\n",
    ] {
        ask("GET", "/referer/x", referer);
        ask("GET", "/blocked/x", referer);
    }
    for query in [
        "md5=YpSVwUTCpQI5B8xYl0pgzg&expires=2147483647",
        "md5=6p4J6d0yPpqDbkj9eIvKdQ&expires=2147483647",
        "md5=&expires=2147483647",
        "md5=x",
        "",
        "md5=COrpKoAYXdK91xSlQzZkSw&expires=700000000",
    ] {
        ask("GET", &format!("/linked/s?{query}"), "");
    }
    for path in
        ["5e814704a28d9bc1914ff19fa0c4a00a/link", "5E814704A28D9BC1914FF19FA0C4A00A/link", "x/link"]
    {
        ask("GET", &format!("/p/{path}"), "");
    }
    all
}
