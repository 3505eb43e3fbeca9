//! From an address to a file over real sockets: indexes, folders, links, odd names, and that nothing
//! outside the root is ever sent.
#![forbid(unsafe_code)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::lchown;
use std::os::unix::net::UnixListener;

use common::{BINARY, LONG, http, serve, site};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sekisho_testkit::{Server, Tree, eventually};

const SECRET: &str = "the secret beside the root";

/// A root with a few files, a secret beside it, and locations that map paths in every way there is.
fn start() -> Server {
    let tree = Tree::new();
    tree.file("secret.txt", SECRET);
    tree.file("root/a.txt", "hello");
    tree.file("root/folder/b.txt", "below");
    tree.file("root/secret.html", "not the one");
    serve(
        tree,
        "keepalive_requests 100000;
         location /alias { alias {root}/; }
         location /slash/ { alias {root}/; }
         location /try/ { try_files $uri /$arg_f =404; }
         location /named/ { alias {root}/folder/; try_files $uri $arg_f =404; }
         location ~ ^/re/(.*)$ { alias {root}/$1; }
         location /by-arg { root {root}/$arg_d; }
         location /by-host/ { root {dir}/$http_x_root; }
         location /page { error_page 404 /$arg_p; return 404; }
         location /listed/ { alias {root}/; autoindex on; }",
    )
}

#[test]
fn nothing_outside_the_root_is_sent_however_it_is_asked_for() {
    // F2, V17
    let server = start();
    let up = [
        "..",
        "%2e%2e",
        "%2E%2E",
        ".%2e",
        "%2e.",
        "..%2f",
        "%2e%2e%2f",
        "..%2F",
        "..%5c",
        "..\\",
        "..;",
        "..%00",
        "..%01",
        "..%09",
        "..%20",
        "..%c0%af",
        "%c0%ae%c0%ae",
        "%e0%80%ae%e0%80%ae",
        "..%252f",
        "%252e%252e",
        "%252e%252e%252f",
        "..%ef%bc%8f",
        "%ef%bc%8e%ef%bc%8e",
        "%uff0e%uff0e",
        "%u002e%u002e",
        ".../",
        "....",
        "./..",
        "../.",
        "..//",
        ".//..",
    ];
    let mut targets = Vec::new();
    for up in up {
        for base in
            ["/", "//", "/./", "/folder/../", "/slash/", "/alias", "/alias/", "/re/", "/try/"]
        {
            targets.push(format!("{base}{up}/secret.txt"));
            targets.push(format!("{base}{up}secret.txt"));
        }
        targets.push(format!("/folder/{up}/{up}/secret.txt"));
        targets.push(format!("/a.txt/{up}/{up}/secret.txt"));
        targets.push(format!("/listed/{up}/"));
        targets.push(format!("/try/x?f={up}/secret.txt"));
        targets.push(format!("/named/x?f={up}/{up}/secret.txt"));
        targets.push(format!("/page?p={up}/secret.txt"));
        targets.push(format!("/by-arg/secret.txt?d={up}"));
        targets.push(format!("http://localhost/{up}/secret.txt"));
    }
    for target in ["/../root/../secret.txt", "/folder/../../root/a.txt", "/../root/a.txt"] {
        targets.push(target.to_owned());
    }
    let mut client = server.connect();
    for target in targets {
        let response = client.get(&target);
        assert!(!response.text().contains(SECRET), "{target}: {}", response.text());
        assert!(!response.text().contains("secret.txt</a>"), "{target} is listed");
        assert!(matches!(response.status, 200 | 301 | 400 | 403 | 404), "{target}: {response:?}");
    }
    for up in ["..", "../", "root/..", "/..", "root/../../", "./.."] {
        let response =
            client.request("GET", "/by-host/../secret.txt", &format!("X-Root: {up}\r\n"));
        assert_ne!(response.text(), SECRET, "{up}");
        let response = client.request("GET", "/by-host/secret.txt", &format!("X-Root: {up}\r\n"));
        assert_ne!(response.text(), SECRET, "{up}");
    }
}

#[test]
fn dots_within_the_root_are_resolved_once() {
    // F2
    let server = start();
    let mut client = server.connect();
    for target in [
        "/folder/../a.txt",
        "/./a.txt",
        "//a.txt",
        "/folder/%2e%2e/a.txt",
        "/%61.txt",
        "/x/y/../../a.txt",
        "/folder/./../a.txt",
        "/slash/a.txt",
        "/slash/folder/../a.txt",
        "/re/a.txt",
        "/try/../a.txt",
    ] {
        assert_eq!(client.get(target).text(), "hello", "{target}");
    }
    for target in ["/%2561.txt", "/a.txt%2f", "/a%2etxt/", "/a.txt/.", "/a.txt/..%2f..%2f"] {
        assert!(matches!(client.get(target).status, 400 | 404), "{target}");
    }
    // NUL is refused, not cut; an encoded slash is a slash, and leads no further up than one.
    for target in
        ["/a.txt%00", "/%00", "/a.txt%00.html", "/..%2fa.txt", "/folder%2f..%2f..%2fa.txt"]
    {
        assert_eq!(client.get(target).status, 400, "{target}");
    }
    assert_eq!(client.get("/folder%2f..%2Fa.txt").text(), "hello");
}

#[test]
fn every_name_can_be_asked_for_except_one_with_control_bytes() {
    // F2, V20
    let server = start();
    let mut client = server.connect();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        let name = [b'n', byte, b'x'];
        let path = server.tree().root().join(OsStr::from_bytes(&name));
        fs::write(&path, [byte]).expect("the file system takes it");
        let target = format!("/n%{byte:02x}x");
        let response = client.get(&target);
        if byte.is_ascii_control() {
            let is_line_end = matches!(byte, b'\n' | b'\r');
            let expected = if is_line_end { 400 } else { 404 };
            assert_eq!(response.status, expected, "{target}");
        } else {
            assert_eq!((response.status, response.body), (200, vec![byte]), "{target}");
        }
    }
    // A listing shows and escapes whatever there is, and its links lead there.
    server.tree().file("root/<b>&\"'.txt", "odd");
    let page = client.get("/listed/").text();
    assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;.txt"), "{page}");
    assert!(!page.contains("<b>"), "{page}");
    let href = page.split("href=\"").find(|rest| rest.contains(".txt\">&lt;b"));
    let href = href.and_then(|rest| rest.split('"').next()).expect("a link");
    assert_eq!(client.get(&format!("/listed/{href}")).text(), "odd", "{href}");
    assert_eq!(client.get("/%e2%98%83").status, 404);
    assert_eq!(client.get(&format!("/{}", "n".repeat(300))).status, 404, "too long for a name");
    assert_eq!(client.get(&format!("/{}", "n/".repeat(3000))).status, 404, "too long for a path");
}

#[test]
fn what_is_no_regular_file_is_forbidden_and_nothing_hangs() {
    // F2
    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    mknodat(CWD, tree.path("root/fifo"), FileType::Fifo, Mode::from(0o644), 0).expect("a FIFO");
    let _listener = UnixListener::bind(tree.path("root/socket")).expect("a socket");
    tree.link("root/device", "/dev/zero");
    tree.link("root/nowhere", "nothing");
    tree.link("root/loop", "loop");
    let server = serve(tree, "");
    let mut client = server.connect();
    for (name, statuses) in [
        ("fifo", &[403][..]),
        ("socket", &[403]),
        ("device", &[403]),
        ("nowhere", &[404]),
        ("loop", &[403, 404]),
    ] {
        for target in [format!("/{name}"), format!("/{name}/"), format!("/{name}/x")] {
            let status = client.get(&target).status;
            let is_whole = target == format!("/{name}");
            assert!(
                statuses.contains(&status) || (!is_whole && status == 404),
                "{target}: {status}"
            );
        }
    }
    assert_eq!(client.get("/a.txt").text(), "hello");
}

#[test]
fn links_are_followed_by_policy() {
    // F2, V19
    let tree = Tree::new();
    tree.file("outside/file.txt", "outside");
    tree.file("root/real/file.txt", "inside");
    tree.link("root/link.txt", "real/file.txt");
    tree.link("root/dir", "real");
    tree.link("root/out.txt", tree.path("outside/file.txt"));
    tree.link("root/up.txt", "../outside/file.txt");
    tree.link("root/outdir", tree.path("outside"));
    let config = site(
        "location /strict/ { alias {root}/; disable_symlinks on; }
         location /owner/ { alias {root}/; disable_symlinks if_not_owner; }",
    );
    // The sandbox would refuse the links as well.
    let server = Server::start_in(tree, BINARY, &format!("sandbox off;\n{config}"));
    let mut client = server.connect();
    for (target, text) in [
        ("/real/file.txt", "inside"),
        ("/link.txt", "inside"),
        ("/dir/file.txt", "inside"),
        ("/out.txt", "outside"),
        ("/up.txt", "outside"),
        ("/outdir/file.txt", "outside"),
        ("/strict/real/file.txt", "inside"),
        ("/owner/link.txt", "inside"),
        ("/owner/dir/file.txt", "inside"),
        ("/owner/out.txt", "outside"),
        ("/owner/real/file.txt", "inside"),
    ] {
        assert_eq!(client.get(target).text(), text, "{target}");
    }
    for target in
        ["link.txt", "dir/file.txt", "out.txt", "up.txt", "outdir/file.txt", "dir/", "dir"]
    {
        // Asked for where it is allowed first: what one location may open another may not.
        assert!(client.get(&format!("/{target}")).status < 404, "{target}");
        let response = client.get(&format!("/strict/{target}"));
        assert_eq!(response.status, 403, "{target}: {}", response.text());
    }
    // A link and its target with different owners; only root can give a file away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lchown(server.tree().path("root/out.txt"), Some(12_345), Some(12_345)).expect("given away");
    lchown(server.tree().path("root/outdir"), Some(12_345), Some(12_345)).expect("given away");
    assert_eq!(client.get("/owner/out.txt").status, 403);
    assert_eq!(client.get("/owner/outdir/file.txt").status, 403);
    assert_eq!(client.get("/owner/link.txt").text(), "inside");
}

#[test]
fn a_folder_gives_its_index_or_its_listing_or_nothing() {
    // F3
    let tree = Tree::new();
    tree.file("root/index.html", "top");
    tree.file("root/second/b.html", "second");
    tree.file("root/both/a.html", "first of both");
    tree.file("root/both/b.html", "second of both");
    tree.file("root/none/x.txt", "x");
    tree.file("root/none/.hidden", "x");
    tree.folder("root/none/sub");
    tree.folder("root/trap/a.html");
    tree.file("root/trap/b.html", "a folder is no index");
    let server = serve(
        tree,
        "index index.html a.html b.html;
         location /elsewhere/ { index /second/b.html; }
         location /listed/ { alias {root}/; index no.html; autoindex on; }",
    );
    let mut client = server.connect();
    for (target, text) in [
        ("/", "top"),
        ("/second/", "second"),
        ("/both/", "first of both"),
        ("/trap/", "a folder is no index"),
        ("/elsewhere/", "second"),
    ] {
        assert_eq!(client.get(target).text(), text, "{target}");
    }
    assert_eq!(client.get("/").field("content-type"), Some("text/html"));
    assert_eq!(client.get("/none/").status, 403);
    assert_eq!(client.get("/nothing/").status, 404);
    assert_eq!(client.get("/index.html/").status, 404);
    let listing = client.get("/listed/none/");
    assert_eq!(listing.status, 200);
    assert_eq!(listing.field("content-type"), Some("text/html; charset=utf-8"));
    let page = listing.text();
    assert!(page.find("sub/</a>") < page.find("x.txt</a>"), "folders first: {page}");
    assert!(page.contains("../") && !page.contains("hidden</a>"), "{page}");
    assert_eq!(client.request("HEAD", "/listed/none/", "").status, 200);
    assert_eq!(client.get("/listed/none/x.txt").text(), "x");
    assert_eq!(client.get("/listed/nothing/").status, 404);
}

#[test]
fn a_folder_without_its_slash_redirects() {
    // F3
    let tree = Tree::new();
    tree.file("root/dir/index.html", "x");
    tree.file("root/a b<c>/index.html", "x");
    let server = serve(
        tree,
        "server_name named.example;
         location /relative/ { alias {root}/; absolute_redirect off; }
         location /named/ { alias {root}/; server_name_in_redirect on; }
         location /portless/ { alias {root}/; port_in_redirect off; }",
    );
    let port = server.address().port();
    let mut client = server.connect();
    let rows = [
        ("/dir", format!("http://localhost:{port}/dir/")),
        ("/dir?a=b&c", format!("http://localhost:{port}/dir/?a=b&c")),
        ("/a%20b%3cc%3e", format!("http://localhost:{port}/a%20b%3Cc%3E/")),
        ("/relative/dir", "/relative/dir/".to_owned()),
        ("/relative/dir?a=b", "/relative/dir/?a=b".to_owned()),
        ("/named/dir", format!("http://named.example:{port}/named/dir/")),
        ("/portless/dir", "http://localhost/portless/dir/".to_owned()),
    ];
    for (target, location) in rows {
        let response = client.get(target);
        assert_eq!(response.status, 301, "{target}");
        assert_eq!(response.field("location"), Some(location.as_str()), "{target}");
    }
    // A path that begins with two slashes must not become another host.
    let location = client.get("//dir").field("location").map(str::to_owned);
    assert!(location.is_some_and(|location| !location.starts_with("//")));
}

#[test]
fn open_file_cache_off_and_on_serve_the_same() {
    // F1
    for setting in ["off", "max=10 inactive=60s"] {
        let tree = Tree::new();
        tree.file("root/large.bin", vec![b'l'; 100_000]);
        for at in 0..30 {
            tree.file(&format!("root/{at}.txt"), format!("file {at}"));
        }
        let server = serve(tree, &format!("open_file_cache {setting};"));
        let mut client = server.connect();
        for turn in 0..90 {
            let at = turn % 30;
            assert_eq!(client.get(&format!("/{at}.txt")).text(), format!("file {at}"), "{setting}");
            assert_eq!(client.get("/large.bin").body.len(), 100_000, "{setting}");
            assert_eq!(client.get(&format!("/{at}.not")).status, 404, "{setting}");
        }
        assert!(server.fds() < 60, "{} descriptors", server.fds());
    }
}

#[test]
fn control_bytes_go_to_answers_logs_and_servers_as_escapes() {
    let tree = Tree::new();
    let config = http(
        "log_format own '$uri';
         server { listen 127.0.0.1:{port}; access_log {dir}/paths.log own;
             location /there/ { return 302 /new$uri; absolute_redirect off; }
             location /by/ { return 200 $status; add_header X-Path $uri; }
             location /on/ { proxy_pass http://127.0.0.1:{port2}/at/; }
             location /on/whole/ { proxy_pass http://127.0.0.1:{port2}; }
             location /program/ { cgi_pass /bin/true; }
         }
         server { listen 127.0.0.1:{port2}; return 200 $request_uri; }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    let moved = client.get("/there/a%1bb%7f");
    assert_eq!((moved.status, moved.field("Location")), (302, Some("/new/there/a%1Bb%7F")));
    let by = client.get("/by/a%1bb");
    assert_eq!((by.status, by.field("X-Path")), (200, None), "no field holds such a byte");
    assert_eq!(client.get("/on/a%1bb").text(), "/at/a%1Bb");
    assert_eq!(client.get("/on/whole/a%1bb").text(), "/on/whole/a%1bb");
    assert_eq!(client.get("/program/a%1bb").status, 404);
    assert_eq!(client.get("/by/a%0ab").status, 400);
    eventually("a line in the log", LONG, || {
        server.log("paths.log").starts_with("/there/a\\x1Bb\\x7F\n")
    });
}
