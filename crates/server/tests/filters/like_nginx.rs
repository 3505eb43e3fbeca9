//! The same requests to nginx and to this server: the same status, body and fields.

use sekisho_testkit::{Response, Server, Tree, have};

use crate::common::BINARY;

const NGINX: &str = "/usr/sbin/nginx";

/// What both are told.
const SITE: &str = r#"
    server {
        listen 127.0.0.1:{port};
        root {root};
        location /plain/   { }
        location /sub/     { alias {root}/plain/; sub_filter one 1; sub_filter TWO 2$arg_x; }
        location /many/    { alias {root}/plain/; sub_filter_once off; sub_filter o 0; sub_filter one 1; sub_filter_types text/plain; }
        location /kept/    { alias {root}/plain/; sub_filter one 1; sub_filter_last_modified on; }
        location /empty/   { sub_filter x y; return 200 ""; }
        location /text/    { sub_filter_types *; sub_filter text TEXT; return 404 "some text"; }
        location /error/   { sub_filter nothing y; error_page 404 /plain/a.html; }
        location /around/  { alias {root}/plain/; add_before_body /part/b; add_after_body /part/a; }
        location /part/    { return 200 "<$uri $request_uri $request_method $args>"; }
        location /ssi/     { ssi on; }
        location /types/   { alias {root}/ssi/; ssi on; ssi_types text/plain; ssi_last_modified on; }
        location /silent/  { alias {root}/ssi/; ssi on; ssi_silent_errors on; }
        location /auth/    { auth_request /_auth; auth_request_set $who $sent_http_x_who; add_header X-Who "$who" always; alias {root}/plain/; }
        location /shared/  { auth_request /_auth; add_header X-Set "$inner" always; alias {root}/plain/; }
        location = /_auth  {
            internal; set $inner "inner $arg_s"; add_header X-Who "me $request_method $uri $args" always;
            if ($http_x_say = 401) { add_header WWW-Authenticate Basic always; return 401; }
            if ($http_x_say = 403) { return 403; }
            if ($http_x_say = 302) { return 302 /elsewhere; }
            if ($http_x_say = 500) { return 500; }
            return 200 body;
        }
        location /gunzip/  { gunzip on; gzip_static always; gzip_vary on; }
        location /packed/  { alias {root}/gunzip/; gunzip on; gzip_static on; gzip_vary on; }
        location /mirror/  { alias {root}/plain/; mirror /part/m; }
    }
"#;

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("root/plain/a.html", "one two three one");
    tree.file("root/plain/a.txt", "one two three one");
    tree.file("root/plain/z.html", "");
    let pages = [
        (
            "echo",
            "<!--#echo var=\"uri\" -->,<!--#echo var=\"arg_a\" -->,<!--#echo var=\"nothing\" default=\"d$arg_a\" -->,<!--#echo var=\"args\" encoding=\"url\" -->,<!--#echo var=\"request_method\" -->",
        ),
        (
            "set",
            "<!--#set var=\"x\" value=\"$arg_a-\\$\\\"'\" --><!--#echo var=\"x\" -->|<!--#echo var=\"X\" encoding=\"none\" -->",
        ),
        (
            "if",
            "<!--#if expr=\"$arg_a\" -->a<!--#elif expr=\"$arg_b = 2\" -->b<!--#elif expr=\"$arg_b != /^[0-9]/\" -->c<!--#else -->d<!--#endif -->",
        ),
        (
            "regex",
            "<!--#if expr=\"$arg_a = /(.)(?P<second>.)/\" --><!--#echo var=\"1\" --><!--#echo var=\"second\" --><!--#endif -->",
        ),
        (
            "include",
            "[<!--#include virtual=\"/part/x?a=b\" -->][<!--#include virtual=\"echo.html?z&$args\" -->][<!--#include file=\"if.html\" -->]",
        ),
        ("missing", "[<!--#include virtual=\"/ssi/none.html\" wait=\"yes\" -->]"),
        (
            "stub",
            "<!--#block name=\"s\" -->stub<!--#endblock -->[<!--#include virtual=\"/none\" stub=\"s\" -->][<!--#include virtual=\"/plain/z.html\" stub=\"s\" -->]",
        ),
        (
            "kept",
            "<!--#include virtual=\"/part/k\" set=\"k\" -->[<!--#echo var=\"k\" encoding=\"none\" -->]",
        ),
        (
            "wrong",
            "a<!--#nothing -->b<!--#echo -->c<!--#echo var=\"uri\" encoding=\"odd\" -->d<!--#include -->e<!--#if expr=\"$arg_a ~ x\" -->f<!--#endif -->g",
        ),
        (
            "words",
            "<!--#config errmsg=\"[oh]\" timefmt=\"%Y\" --><!--#nothing -->|<!--# echo   var='uri' -->|<!-- # no -->|<!--#echo var=\"uri\"-->",
        ),
        ("zero", "<!--#if expr=\"$arg_a\" -->yes<!--#else -->no<!--#endif -->"),
        ("deep", "<!--#include virtual=\"/ssi/include.html?a=1\" -->"),
    ];
    for (name, text) in pages {
        tree.file(&format!("root/ssi/{name}.html"), text);
        tree.file(&format!("root/ssi/{name}.txt"), text);
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, "packed text ".repeat(1000).as_bytes())
        .expect("memory");
    tree.file("root/gunzip/a.txt.gz", encoder.finish().expect("memory"));
    tree.file("root/gunzip/a.txt", "plain");
    // nginx may run as somebody else.
    tree.mode(".", 0o755);
    tree
}

/// What is compared: tags differ in what they are made of, so only their form counts; pages for errors differ.
fn seen(method: &str, response: &Response) -> String {
    let tag = match response.field("etag") {
        None => "no tag",
        Some(tag) if tag.starts_with("W/") => "weak tag",
        Some(_) => "strong tag",
    };
    let is_there = |name: &str| response.field(name).is_some();
    let fields = ["last-modified", "accept-ranges", "content-encoding", "content-range", "vary"];
    // A part need not say that there are parts.
    let is_shown = |name: &&str| *name != "accept-ranges" || response.status == 200;
    let fields: Vec<&str> =
        fields.into_iter().filter(|name| is_there(name)).filter(is_shown).collect();
    let said = ["x-who", "x-set", "www-authenticate", "content-type"];
    let said: Vec<&str> = said.iter().map(|name| response.field(name).unwrap_or("-")).collect();
    let text = response.text();
    let is_page = text.contains("<h1>") || response.status >= 400;
    let body = if is_page || method == "HEAD" { String::new() } else { text };
    let length = if is_page { None } else { response.field("content-length") };
    let said = if is_page { said[..3].to_vec() } else { said };
    format!("{} {tag} {fields:?} {said:?} {length:?} {body:?}", response.status)
}

fn requests() -> Vec<(&'static str, String, String)> {
    let mut all = Vec::new();
    let mut ask = |method: &'static str, path: &str, fields: &str| {
        all.push((method, path.to_owned(), fields.to_owned()));
    };
    for folder in ["plain", "sub", "many", "kept", "empty", "text", "error", "around", "mirror"] {
        for file in ["a.html", "a.txt", "z.html", "a.html?x=y", "none.html"] {
            let path = format!("/{folder}/{file}");
            ask("GET", &path, "");
            ask("HEAD", &path, "");
            // A file without a byte has no range that is not satisfiable (RFC 9110 §14.1.1), and a text of the
            // configuration is no representation with a validator.
            if !file.starts_with('z') {
                ask("GET", &path, "Range: bytes=2-4\r\n");
            }
            if folder != "empty" {
                ask("GET", &path, "If-None-Match: *\r\n");
            }
        }
    }
    for folder in ["ssi", "types", "silent"] {
        for page in [
            "echo", "set", "if", "regex", "include", "stub", "kept", "wrong", "words", "zero",
            "deep",
        ] {
            for args in ["", "?a=1", "?a=", "?b=2", "?b=x", "?a=%3Cb%3E&c=d", "?a=0"] {
                ask("GET", &format!("/{folder}/{page}.html{args}"), "");
            }
            ask("GET", &format!("/{folder}/{page}.txt?a=1"), "");
            ask("HEAD", &format!("/{folder}/{page}.html"), "");
        }
        ask("POST", &format!("/{folder}/echo.html"), "Content-Length: 0\r\n");
    }
    for folder in ["auth", "shared"] {
        for say in ["", "401", "403", "302", "500"] {
            for method in ["GET", "HEAD", "POST"] {
                let fields = format!("X-Say: {say}\r\nContent-Length: 0\r\n");
                ask(method, &format!("/{folder}/a.html?s=t"), &fields);
            }
        }
        ask("GET", &format!("/{folder}/none.html"), "");
    }
    for folder in ["gunzip", "packed"] {
        for fields in
            ["", "Accept-Encoding: gzip\r\n", "Accept-Encoding: br\r\n", "Range: bytes=0-3\r\n"]
        {
            ask("GET", &format!("/{folder}/a.txt"), fields);
            // Ranges are for GET alone (RFC 9110 §14.2).
            if !fields.starts_with("Range") {
                ask("HEAD", &format!("/{folder}/a.txt"), fields);
            }
        }
    }
    ask("GET", "/_auth", "");
    all
}

#[test]
fn both_answer_alike() {
    if !have("nginx") {
        return;
    }
    let frame = |first: &str| {
        format!(
            "{first}\nevents {{}}\nhttp {{\naccess_log off;\ntypes {{ text/html html; text/plain txt; }}\n{SITE}\n}}\n"
        )
    };
    let nginx = frame(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log info;",
    );
    let nginx = Server::start_in(tree(), NGINX, &nginx);
    let ours = Server::start_in(tree(), BINARY, &frame("error_log {dir}/error.log info;"));
    let mut differing = Vec::new();
    for (method, path, fields) in requests() {
        let [one, other] = [&nginx, &ours]
            .map(|server| seen(method, &server.connect().request(method, &path, &fields)));
        if one != other {
            differing.push(format!("{method} {path} {fields:?}\n  nginx: {one}\n  ours:  {other}"));
        }
    }
    assert!(differing.is_empty(), "{} differ\n{}", differing.len(), differing.join("\n"));
}
