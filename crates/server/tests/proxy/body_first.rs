//! What a server is told about a body that has to be read first (`$request_body`, `$request_body_file`), beside nginx.

use sekisho_testkit::{Server, Tree, eventually, have};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http, pattern, serve};

const NGINX: &str = "/usr/sbin/nginx";

/// Says what it was told, and what is in the file that it was told of.
fn reader() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let field = |name: &str| {
                let start = format!("{name}: ");
                let line = head.lines().find_map(|line| line.strip_prefix(start.as_str()));
                line.unwrap_or("-").to_owned()
            };
            let file = std::fs::read(field("X-File")).map_or(-1, |bytes| bytes.len() as i64);
            let is_get = head.starts_with("GET");
            let (said, mapped) = (field("X-Body"), field("X-Map"));
            let text = format!("{said}|{mapped}|{file}|{}|{is_get}", body.len());
            connection.answer("200 OK", "", text);
        }
    })
}

/// The same for SCGI: a netstring of pairs, then the body.
fn scgi_reader() -> Backend {
    Backend::start(|connection| {
        let mut length = Vec::new();
        while !matches!(length.last(), Some(b':')) {
            let Some(byte) = connection.read(1) else { return };
            length.extend(byte);
        }
        let length =
            String::from_utf8_lossy(&length[..length.len() - 1]).parse().expect("a number");
        let Some(pairs) = connection.read(length) else { return };
        let words: Vec<String> = pairs
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name);
            at.and_then(|at| words.get(at + 1)).cloned().unwrap_or_default()
        };
        // A comma ends the pairs; the body follows.
        let length = value("CONTENT_LENGTH").parse::<usize>().unwrap_or_default();
        let Some(body) = connection.read(1 + length) else { return };
        let file = std::fs::read(value("X_FILE")).map_or(-1, |bytes| bytes.len() as i64);
        let text = format!("{}|{file}|{}", value("X_BODY"), body.len() - 1);
        connection.send(format!("Status: 200 OK\r\n\r\n{text}"));
        connection.close();
    })
}

fn locations(to: &Backend, scgi: &Backend) -> String {
    let (to, scgi) = (to.address(), scgi.address());
    format!(
        "client_body_buffer_size 1k; client_max_body_size 0; client_body_temp_path {{dir}}/bodies;
         proxy_set_header X-Body \"$request_body\"; proxy_set_header X-Map $of_body; proxy_set_header X-File $request_body_file;
         location / {{ proxy_pass http://{to}; proxy_set_header X-Body $request_body; proxy_set_header X-Map $of_body; }}
         location /file {{ proxy_pass http://{to}; client_body_in_file_only clean; }}
         location /handed {{ proxy_pass http://{to}; client_body_in_file_only clean; proxy_pass_request_body off; proxy_set_header Content-Length \"\";
           proxy_set_header X-File $request_body_file; }}
         location /set {{ proxy_pass http://{to}; proxy_set_body \"<$request_body>\"; }}
         location /named {{ proxy_pass http://{to}; client_body_in_file_only clean; proxy_set_body \"$request_body_file\"; proxy_set_header X-File $request_body_file; }}
         location /scgi {{ scgi_pass {scgi}; scgi_param X_FILE $request_body_file; scgi_param X_BODY $request_body;
           scgi_param CONTENT_LENGTH $content_length; }}
         location /scgi/file {{ scgi_pass {scgi}; client_body_in_file_only clean; scgi_param X_FILE $request_body_file; scgi_param X_BODY $request_body;
           scgi_param CONTENT_LENGTH $content_length; }}"
    )
}

/// One after another, so that each has ports of its own.
#[test]
fn heads_say_what_the_body_is_as_with_nginx() {
    let maps = "map $request_body $of_body { default other; ~^m mine; '' none; }";
    let mut binaries = vec![BINARY];
    if have("nginx") {
        binaries.push(NGINX);
    }
    for binary in binaries {
        let (backend, scgi) = (reader(), scgi_reader());
        let site = format!(
            "server {{ listen 127.0.0.1:{{port}}; root {{root}};\n{}\n}}",
            locations(&backend, &scgi)
        );
        let config = if binary == NGINX {
            let temporary = ["proxy", "fastcgi", "uwsgi", "scgi"];
            let temporary =
                temporary.map(|name| format!("{name}_temp_path {{dir}}/{name};")).concat();
            format!(
                "daemon off; master_process off; pid {{dir}}/nginx.pid;\n{}",
                http(&format!("{temporary} {maps}\n{site}"))
            )
        } else {
            http(&format!("{maps}\n{site}"))
        };
        let server = Server::start_in(Tree::new(), binary, &config);
        let large = pattern(5000);
        let mut client = server.connect();
        for (path, body, expected) in [
            ("/", &b"mine"[..], "mine|mine|-1|4|false"),
            ("/", &large, "-|none|-1|5000|false"),
            ("/file", b"mine", "-|none|4|4|false"),
            ("/handed", b"mine", "-|-|4|0|false"),
            ("/handed", &large, "-|-|5000|0|false"),
            ("/set", b"mine", "mine|mine|-1|6|false"),
            ("/scgi", b"mine", "mine|-1|4"),
            ("/scgi/file", &large, "|5000|5000"),
            ("/scgi/file", b"mine", "|4|4"),
        ] {
            let response = client.request_with_body("POST", path, "", body);
            let bytes = body.len();
            assert_eq!(
                response.text(),
                expected,
                "{binary} {path} {bytes}\n{}",
                server.log("error.log")
            );
        }
        // In chunks, and a byte at a time.
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for byte in ["m", "i"] {
            client.send(format!("1\r\n{byte}\r\n"));
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.read_response().text(), "mi|mine|-1|2|false", "{binary}");
        assert_eq!(client.get("/").text(), "-|none|-1|0|true", "{binary}");
        let named = client.request_with_body("POST", "/named", "", b"mine").text();
        let [_, _, file, length, _] = named.split('|').collect::<Vec<_>>()[..] else {
            panic!("{named}")
        };
        assert!(
            file == "4" && length.parse::<usize>().is_ok_and(|length| length > 10),
            "{binary} {named}"
        );
        let files = || std::fs::read_dir(server.tree().path("bodies")).map_or(0, Iterator::count);
        eventually("the files go", LONG, || files() == 0);
    }
}

/// A key of the cache may be the body: one answer for each.
#[test]
fn bodies_tell_cached_answers_apart() {
    let backend = reader();
    let to = backend.address();
    let server = Server::start(
        BINARY,
        &http(&format!(
            "proxy_cache_path {{dir}}/cache keys_zone=c:1m;
             server {{ listen 127.0.0.1:{{port}}; location / {{
               proxy_pass http://{to}; proxy_set_header X-Body $request_body; proxy_cache c; proxy_cache_methods POST;
               proxy_cache_key $uri|$request_body; proxy_cache_valid 1m; add_header X-Cache $upstream_cache_status; }} }}"
        )),
    );
    let mut client = server.connect();
    for (body, cached) in [("one", "MISS"), ("two", "MISS"), ("one", "HIT"), ("two", "HIT")] {
        let response = client.request_with_body("POST", "/", "", body.as_bytes());
        assert_eq!(response.text(), format!("{body}|-|-1|3|false"));
        assert_eq!(response.field("x-cache"), Some(cached), "{body}");
    }
}

/// A program gets it, too, and its body as ever.
#[test]
fn programs_are_told_of_the_body() {
    let tree = Tree::new();
    tree.script(
        "root/app",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s|' \"$BODY\"; cat \"$FILE\"; printf '|'; cat\n",
    );
    let server = serve(
        tree,
        "client_body_temp_path {dir}/bodies; cgi_set_var BODY $request_body; cgi_set_var FILE $request_body_file;
         location /memory { cgi_pass {root}/app; cgi_set_var BODY $request_body; cgi_set_var FILE /dev/null; }
         location /file { cgi_pass {root}/app; client_body_in_file_only clean; }",
    );
    let mut client = server.connect();
    let mut post = |path| client.request_with_body("POST", path, "", b"mine").text();
    assert_eq!(post("/memory"), "mine||mine", "{}", server.log("error.log"));
    assert_eq!(post("/file"), "|mine|mine", "{}", server.log("error.log"));
}
