//! GET and HEAD: ranges, validators, the cache, index files and `try_files`; and what clients get when the store fails.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use sekisho_testkit::{Server, Signal, Stopwatch, Tree, eventually, free_port, run};

use crate::common::{BINARY, LONG, http};
use crate::store::{Kind, Store};

for_each_store! {
    objects_are_given_with_ranges_and_the_validators_of_the_store,
    folders_have_index_files_and_try_files_looks_into_the_store,
    a_cache_answers_without_the_store_and_asks_whether_an_object_has_changed,
    what_is_stale_is_given_where_the_location_says_so,
    a_store_that_fails_is_told_to_clients_by_its_cause,
}

fn fill(store: &mut Store) {
    store.put("pre/a.txt", "hello world");
    store.put("pre/d/index.html", "<h1>index</h1>");
    store.put("pre/e/x y+\u{fc}.txt", "odd");
    store.put("secret.txt", "outside the prefix");
}

fn objects_are_given_with_ranges_and_the_validators_of_the_store(mut store: Store) {
    fill(&mut store);
    let block = store.block("s", "");
    let server = store.serve(&format!(
        "{block} gzip on; gzip_types text/plain; gzip_min_length 1;
         server {{ listen 127.0.0.1:{{port}}; root storage:s; }}"
    ));
    let mut client = server.connect();
    let whole = client.get("/a.txt");
    assert_eq!(
        (whole.status, whole.text().as_str()),
        (200, "hello world"),
        "{}",
        server.log("error.log")
    );
    assert_eq!(whole.field("content-type"), Some("text/plain"), "by `types`: the store has none");
    assert_eq!(whole.field("accept-ranges"), Some("bytes"));
    assert!(whole.field("last-modified").is_some());
    assert!(
        whole.fields_named("x-amz-request-id").is_empty()
            && whole.field("server") != Some("amazon.com")
    );
    let tag = whole.field("etag").expect("the store's").to_owned();
    let head = server.connect().request("HEAD", "/a.txt", "");
    assert_eq!((head.status, head.field("content-length")), (200, Some("11")));
    for (fields, status, body) in [
        ("Range: bytes=1-3\r\n".to_owned(), 206, "ell"),
        ("Range: bytes=-5\r\n".to_owned(), 206, "world"),
        ("Range: bytes=0-1,3-4\r\n".to_owned(), 200, "hello world"),
        (format!("If-None-Match: {tag}\r\n"), 304, ""),
        (format!("If-None-Match: W/{tag}\r\n"), 304, ""),
        (format!("If-None-Match: \"other\", W/{tag}\r\n"), 304, ""),
        ("If-None-Match: \"other\", \"another\"\r\n".to_owned(), 200, "hello world"),
        ("If-None-Match: *\r\n".to_owned(), 304, ""),
        ("If-None-Match: *\r\nRange: bytes=1-3\r\n".to_owned(), 304, ""),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304, ""),
        ("If-None-Match: \"other\"\r\n".to_owned(), 200, "hello world"),
        (format!("If-Match: {tag}\r\n"), 200, "hello world"),
        (format!("Range: bytes=1-3\r\nIf-Range: {tag}\r\n"), 206, "ell"),
        ("Range: bytes=1-3\r\nIf-Range: \"other\"\r\n".to_owned(), 200, "hello world"),
    ] {
        let response = server.connect().request("GET", "/a.txt", &fields);
        assert_eq!((response.status, response.text().as_str()), (status, body), "{fields}");
    }
    let odd = server.connect().get("/e/x%20y+%c3%bc.txt");
    assert_eq!((odd.status, odd.text().as_str()), (200, "odd"));
    let zipped = server.connect().request("GET", "/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.field("content-encoding"), Some("gzip"));
    for (fields, status) in [("Range: bytes=100-\r\n", 416), ("If-Match: \"other\"\r\n", 412)] {
        let response = server.connect().request("GET", "/a.txt", fields);
        assert_eq!(response.status, status, "{fields}");
        assert!(!response.text().contains("<Error>"), "no page of the store is shown");
        let range = response.field("content-range");
        assert_eq!(range, (status == 416).then_some("bytes */11"), "{fields}");
    }
    // The tag of what was compressed is weak; the connection goes on behind a 304.
    let weak = zipped.field("etag").expect("a tag");
    assert!(weak.starts_with("W/"), "{weak}");
    let mut client = server.connect();
    for tags in [weak, "*"] {
        let fields = format!("Accept-Encoding: gzip\r\nIf-None-Match: {tags}\r\n");
        assert_eq!(client.request("GET", "/a.txt", &fields).status, 304, "{tags}");
        assert_eq!(client.request("HEAD", "/a.txt", &fields).status, 304, "{tags}");
        assert_eq!(client.get("/a.txt").text(), "hello world");
    }
    for target in ["/nothing", "/../secret.txt", "/%2e%2e/secret.txt", "/.sekisho-x"] {
        let response = server.connect().get(target);
        assert!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
        assert!(!response.text().contains("NoSuchKey"));
    }
    assert_eq!(server.connect().request("PUT", "/a.txt", "Content-Length: 0\r\n").status, 405);
    let log = server.log("error.log");
    assert!(!log.contains(&store.secret) && !log.contains("Signature="), "{log}");
}

fn folders_have_index_files_and_try_files_looks_into_the_store(mut store: Store) {
    fill(&mut store);
    let block = store.block("s", "");
    let server = store.serve(&format!(
        "{block} server {{ listen 127.0.0.1:{{port}}; root storage:s;
             location /try/ {{ rewrite ^/try(/.*) $1 break; try_files $uri $uri/ /a.txt; }}
             location /none/ {{ rewrite ^/none(/.*) $1 break; try_files $uri =410; }}
             location /named/ {{ try_files $uri @other; }}
             location @other {{ return 200 other; }}
             location /page {{ error_page 404 /d/index.html; }} }}"
    ));
    for (target, status, body) in [
        ("/d/", 200, "<h1>index</h1>"),
        ("/d", 301, ""),
        ("/e/", 403, ""),
        ("/nowhere/", 404, ""),
        ("/try/a.txt", 200, "hello world"),
        ("/try/d/", 200, "<h1>index</h1>"),
        ("/try/nothing", 200, "hello world"),
        ("/none/nothing", 410, ""),
        ("/named/x", 200, "other"),
        ("/page", 404, "<h1>index</h1>"),
    ] {
        let response = server.connect().get(target);
        let text = response.text();
        assert_eq!(response.status, status, "{target}: {text} {}", server.log("error.log"));
        assert!(body.is_empty() || text == body, "{target}: {text}");
    }
    let moved = server.connect().get("/d");
    assert!(moved.field("location").is_some_and(|it| it.ends_with("/d/")));
}

fn a_cache_answers_without_the_store_and_asks_whether_an_object_has_changed(mut store: Store) {
    fill(&mut store);
    let block = store.block("s", "cache one 1s;") + &store.block("long", "cache one 1h;");
    let server = store.serve(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m; {block}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; add_header X-Cache $upstream_cache_status;
             location /d/ {{ root storage:long; }} }}"
    ));
    let cached = |target: &str, fields: &str| {
        let response = server.connect().request("GET", target, fields);
        let cache = response.field("x-cache").unwrap_or_default().to_owned();
        (response.status, response.text(), cache)
    };
    let (status, text, first) = cached("/a.txt", "");
    assert_eq!((status, text.as_str(), first.as_str()), (200, "hello world", "MISS"));
    eventually("an answer from the cache", LONG, || cached("/a.txt", "").2 == "HIT");
    // A range is cut of what is kept.
    let part = cached("/a.txt", "Range: bytes=6-\r\n");
    assert_eq!((part.0, part.1.as_str()), (206, "world"));
    eventually("the store is asked again", LONG, || cached("/a.txt", "").2 == "REVALIDATED");
    store.put("pre/a.txt", "changed");
    eventually("the new object", LONG, || cached("/a.txt", "").1 == "changed");
    // What is fresh is given while the store is away.
    eventually("it is kept", LONG, || cached("/d/index.html", "").2 == "HIT");
    store.signal(Signal::STOP);
    assert_eq!(cached("/d/index.html", "").2, "HIT");
    store.signal(Signal::CONT);
}

fn what_is_stale_is_given_where_the_location_says_so(mut store: Store) {
    for name in ["stale", "beside", "plain"] {
        store.put(&format!("pre/{name}/index.html"), name);
    }
    let block = store.block("s", "cache one 1s;").replace("timeout 5s", "timeout 1s");
    let server = store.serve(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m; {block}
         server {{ listen 127.0.0.1:{{port}}; root storage:s; add_header X-Cache $upstream_cache_status always;
             proxy_cache_use_stale error timeout;
             location /beside/ {{ proxy_cache_use_stale updating; proxy_cache_background_update on; }}
             location /plain/ {{ proxy_cache_use_stale off; }} }}"
    ));
    let cached = |target: &str| {
        let response = server.connect().get(target);
        let cache = response.field("x-cache").unwrap_or_default().to_owned();
        (response.status, response.text(), cache)
    };
    let stale = |name: &str| (200, name.to_owned(), "STALE".to_owned());
    let targets = ["/stale/index.html", "/stale/", "/beside/index.html", "/plain/index.html"];
    for target in targets {
        assert_eq!(cached(target).0, 200, "{}", server.log("error.log"));
    }
    // It does not answer.
    store.signal(Signal::STOP);
    eventually("updated beside", LONG, || cached("/beside/index.html") == stale("beside"));
    store.signal(Signal::CONT);
    store.put("pre/beside/index.html", "new");
    eventually("the new object", LONG, || cached("/beside/index.html").1 == "new");
    store.signal(Signal::STOP);
    eventually("stale", LONG, || cached("/stale/index.html") == stale("stale"));
    // It is away.
    drop(store);
    eventually("stale", LONG, || cached("/stale/index.html") == stale("stale"));
    eventually("stale", LONG, || cached("/stale/") == stale("stale"));
    eventually("an error", LONG, || cached("/plain/index.html").0 == 502);
}

fn a_store_that_fails_is_told_to_clients_by_its_cause(mut store: Store) {
    fill(&mut store);
    let fast = store.block("fast", "").replace("timeout 5s", "timeout 1s");
    let wrong = store.block("wrong", "").replace("{dir}/keys", "{dir}/wrong");
    let gone = store.block("gone", "").replace("://bucket/pre/", "://other-bucket");
    let tree = store.tree();
    let access = store.access();
    tree.file("wrong", store.keys_file("TOPSECRET123"));
    let cached = wrong.replace("storage wrong {", "storage cached { cache one 1m;");
    let config = http(&format!(
        "proxy_cache_path {{dir}}/cache keys_zone=one:1m; {fast} {wrong} {cached} {gone}
         server {{ listen 127.0.0.1:{{port}}; root storage:fast; index index.html; autoindex on;
             dav_methods PUT DELETE MKCOL COPY; dav_ext_methods PROPFIND OPTIONS;
             location /wrong {{ root storage:wrong; }} location /cached {{ root storage:cached; }}
             location /gone {{ root storage:gone; }} }}"
    ));
    let server = Server::start_in(tree, BINARY, &config);
    assert_eq!(server.connect().get("/a.txt").status, 200);
    let wrong = server.connect().get("/wrong");
    assert_eq!(wrong.status, 502);
    assert!(!wrong.text().contains(access.as_str()));
    assert_eq!(server.connect().get("/gone").status, 502, "the bucket is not there");
    for place in ["wrong", "cached", "gone"] {
        for (method, name) in [
            ("HEAD", "x"),
            ("PUT", "x"),
            ("DELETE", "x"),
            ("COPY", "x"),
            ("PROPFIND", "x"),
            ("MKCOL", "d/"),
            ("GET", "d/"),
            ("HEAD", "d/"),
        ] {
            let fields = format!("Content-Length: 0\r\nDestination: /{place}/y\r\n");
            let log = server.log("error.log").len();
            let answer = server.connect().request(method, &format!("/{place}/{name}"), &fields);
            let said = server.log("error.log").split_off(log);
            assert_eq!(answer.status, 502, "{method} /{place}/{name}: {said}");
            let code = match (store.kind, place) {
                (Kind::S3, "gone") => "404 NoSuchBucket",
                (Kind::Azure, "gone") => "404 ContainerNotFound",
                (Kind::S3, _) => "403 SignatureDoesNotMatch",
                (Kind::Azure, _) => "403 AuthorizationFailure",
            };
            assert!(said.contains(code), "{method} /{place}/{name}: {said}");
        }
    }
    // It does not answer.
    store.signal(Signal::STOP);
    let watch = Stopwatch::start();
    assert_eq!(server.connect().get("/a.txt").status, 504);
    assert!(watch.elapsed() < Duration::from_secs(20));
    store.signal(Signal::CONT);
    assert_eq!(server.connect().get("/a.txt").status, 200);
    // It is away, and comes back at the same place.
    let (kind, port) = (store.kind, store.port);
    store.put("pre/a.txt", "before");
    drop(store);
    assert_eq!(server.connect().get("/a.txt").status, 502);
    let log = server.log("error.log");
    let (gone, wrong) = match kind {
        Kind::S3 => ("/other-bucket/gone: 404 NoSuchBucket", "403 SignatureDoesNotMatch"),
        Kind::Azure => {
            ("/sekishotest/other-bucket/gone: 404 ContainerNotFound", "403 AuthorizationFailure")
        }
    };
    assert!(log.contains(&format!("storage \"gone\" refused GET {gone}")), "{log}");
    assert!(log.contains(wrong), "{log}");
    assert!(log.contains("Connection refused") && log.contains("timed out"), "{log}");
    assert!(!log.contains("TOPSECRET") && !log.contains("Signature="), "{log}");
    let Some(mut store) = Store::start_at(kind, port) else { return };
    store.put("pre/a.txt", "after");
    assert_eq!(server.connect().get("/a.txt").text(), "after");
}

/// One that is away for a moment is waited for: no real store can be that quick, so this one is a socket.
#[test]
fn a_request_waits_for_a_store_that_is_away_for_a_moment() {
    let port = free_port();
    let server = Server::start(
        BINARY,
        &http(&format!(
            "storage s {{ url s3://bucket; endpoint http://127.0.0.1:{port}; }}
             server {{ listen 127.0.0.1:{{port}}; root storage:s; }}"
        )),
    );
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("a first try", LONG, || server.log("error.log").contains("Connection refused"));
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let (mut peer, _) = listener.accept().expect("another try");
    let mut asked = [0; 1024];
    let count = peer.read(&mut asked).expect("a request");
    assert!(asked[..count].starts_with(b"GET /bucket/x HTTP/1.1\r\n"));
    peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Secret: of the store\r\n\r\nok")
        .expect("it is taken");
    let response = client.read_response();
    assert_eq!((response.status, response.text().as_str()), (200, "ok"));
    assert_eq!(response.field("x-secret"), None);
}

#[test]
fn the_live_view_shows_the_store_that_a_request_waits_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let server = Server::start(
        BINARY,
        &http(&format!(
            "storage s {{ url s3://bucket; endpoint http://{address}; }}
             server {{ listen 127.0.0.1:{{port}}; root storage:s; dav_methods PUT; }}"
        )),
    );
    for request in [
        "GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
        "PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = server.connect();
        client.send(request);
        let id = server.id().to_string();
        eventually("the view", LONG, || {
            let view = run(BINARY, &["ctl", "--pid", &id, "sessions", "--json"], LONG).stdout;
            view.contains("storage") && view.contains(&address.to_string())
        });
        drop(client);
    }
}

#[test]
fn keys_that_cannot_be_had_are_told_by_the_test_of_the_configuration() {
    let tree = Tree::new();
    for (credentials, expected) in [
        ("{dir}/nothing", "nothing cannot be read: No such file"),
        ("{dir}/bad", "bad needs aws_access_key_id and aws_secret_access_key"),
    ] {
        let tree_path = tree.dir().display().to_string();
        tree.file("bad", "aws_access_key_id = SECRETKEY\n");
        let text = http(&format!(
            "storage s {{ url s3://bucket; endpoint http://127.0.0.1:9; credentials {credentials}; }}
             server {{ listen 127.0.0.1:1; root storage:s; }}"
        ));
        let path = tree.file("c.conf", text.replace("{dir}", &tree_path)).display().to_string();
        let tested = run(BINARY, &["-t", "-c", &path], LONG);
        assert_ne!(tested.code(), 0);
        let said = format!("{}{}", tested.stdout, tested.stderr);
        assert!(said.contains(expected) && !said.contains("SECRETKEY"), "{said}");
    }
}
