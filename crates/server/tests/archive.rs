//! A listed folder as one file, as real unpackers see it (`autoindex_archive`).
#![forbid(unsafe_code)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use common::{BINARY, LONG, pattern, serve, site};
use sekisho_testkit::response::Context;
use sekisho_testkit::{Client, Framing, Response, Server, Tree, eventually, have, run};

fn start(tree: Tree) -> Server {
    serve(
        tree,
        "autoindex on;
         location / { autoindex_archive zip tar; }
         location /guarded/ { return 403; }
         location ~ \\.secret$ { return 403; }
         location /none/ { }
         location /run/ { autoindex_archive zip; cgi_extension .sh; }
         location /strict/ { autoindex_archive tar; disable_symlinks on; }",
    )
}

fn plain(tree: &Tree) {
    tree.file("root/pub/a.txt", "hello");
    tree.file("root/pub/empty", "");
    tree.file("root/pub/big.bin", pattern(300_000));
    tree.file("root/pub/sub/ü \u{1f600}.txt", "names");
    tree.file(&format!("root/pub/sub/{}/x.txt", "long".repeat(40)), "deep");
    tree.folder("root/pub/sub/nothing");
    tree.file("root/pub/.hidden", "hidden");
    tree.file("root/pub/key.secret", "guarded by another location");
    tree.link("root/pub/back", "..");
    tree.link("root/pub/link.txt", "a.txt");
}

fn download(client: &mut Client, target: &str, to: &Path) {
    let response = client.get(target);
    assert_eq!(response.status, 200, "{target}");
    assert_eq!(response.framing, Framing::Chunked);
    fs::write(to, &response.body).expect("written");
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("below").display().to_string();
            if path.is_dir() {
                found.push(name + "/");
                waiting.push(path);
            } else {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

fn assert_unpacked(server: &Server, to: &Path) {
    let long = "long".repeat(40);
    let list = to.join("pub/NOT-READABLE.txt");
    let left_out = fs::read_to_string(&list).expect("the link to a folder is named");
    assert!(left_out.contains("back/\n"), "{left_out}");
    fs::remove_file(list).expect("removed");
    let mut expected = vec![
        "pub/".to_owned(),
        "pub/a.txt".to_owned(),
        "pub/big.bin".to_owned(),
        "pub/empty".to_owned(),
        "pub/link.txt".to_owned(),
        "pub/sub/".to_owned(),
        format!("pub/sub/{long}/"),
        format!("pub/sub/{long}/x.txt"),
        "pub/sub/nothing/".to_owned(),
        "pub/sub/ü \u{1f600}.txt".to_owned(),
    ];
    expected.sort();
    assert_eq!(files_below(to), expected);
    for name in expected.iter().filter(|name| !name.ends_with('/')) {
        let (there, here) = (server.tree().read(&format!("root/{name}")), fs::read(to.join(name)));
        assert_eq!(there, here.expect("unpacked"), "{name}");
    }
}

/// F4: what a listing shows can be fetched whole.
#[test]
fn a_zip_is_whole_for_real_unpackers() {
    let tree = Tree::new();
    plain(&tree);
    let server = start(tree);
    let mut client = server.connect();
    let path = server.tree().path("pub.zip");
    download(&mut client, "/pub/?download=zip", &path);
    let name = path.display().to_string();
    if have("unzip") {
        let tested = run("unzip", &["-t", &name], LONG);
        assert_eq!(tested.code(), 0, "{tested:?}");
        assert!(tested.stdout.contains("No errors detected"), "{tested:?}");
    }
    if have("python3") {
        let to = server.tree().folder("unzipped");
        let out = to.display().to_string();
        let tested = run("python3", &["-m", "zipfile", "-t", &name], LONG);
        assert_eq!(tested.code(), 0, "{tested:?}");
        assert_eq!(run("python3", &["-m", "zipfile", "-e", &name, &out], LONG).code(), 0);
        assert_unpacked(&server, &to);
    }
    let head = client.request("HEAD", "/pub/?download=zip", "");
    assert_eq!((head.status, head.field("content-type")), (200, Some("application/zip")));
    let disposition = head.field("content-disposition").expect("a name");
    assert!(disposition.starts_with("attachment; filename=\"pub.zip\""), "{disposition}");
    // The connection goes on.
    assert_eq!(client.get("/pub/a.txt").text(), "hello");
}

/// F4
#[test]
fn a_tar_is_whole_for_real_unpackers() {
    if !have("tar") {
        return;
    }
    let tree = Tree::new();
    plain(&tree);
    let server = start(tree);
    let path = server.tree().path("pub.tar");
    download(&mut server.connect(), "/pub/?download=tar", &path);
    let to = server.tree().folder("untarred");
    let (name, out) = (path.display().to_string(), to.display().to_string());
    let unpacked = run("tar", &["-xf", &name, "-C", &out], LONG);
    assert_eq!((unpacked.code(), unpacked.stderr.as_str()), (0, ""), "{unpacked:?}");
    assert_unpacked(&server, &to);
}

/// F4: what the listing shows and the server cannot read is named, in the log and in the archive.
#[test]
fn an_archive_names_what_it_lacks() {
    if !rustix::process::geteuid().is_root() || !have("python3") {
        println!("skipped: only root can start a server as another user");
        return;
    }
    let tree = Tree::new();
    fs::set_permissions(tree.dir(), fs::Permissions::from_mode(0o755)).expect("open");
    tree.file("root/pub/a.txt", "hello");
    tree.file("root/pub/m-secret.txt", "secret");
    tree.file("root/pub/shut/x.txt", "secret");
    tree.link("root/pub/way", "../other");
    tree.file("root/pub/two\nlines", "odd");
    tree.file("root/other/x.txt", "elsewhere");
    for (name, mode) in [("root/pub/m-secret.txt", 0o600), ("root/pub/shut", 0o700)] {
        fs::set_permissions(tree.path(name), fs::Permissions::from_mode(mode)).expect("shut");
    }
    let config = site("autoindex on; autoindex_archive zip tar;");
    let server = Server::start_in(tree, BINARY, &format!("user nobody;\n{config}"));
    for kind in ["zip", "tar"] {
        let path = server.tree().path(&format!("pub.{kind}"));
        download(&mut server.connect(), &format!("/pub/?download={kind}"), &path);
        let to = server.tree().folder(&format!("un{kind}"));
        let (name, out) = (path.display().to_string(), to.display().to_string());
        let module = if kind == "zip" { "zipfile" } else { "tarfile" };
        assert_eq!(run("python3", &["-m", module, "-e", &name, &out], LONG).code(), 0);
        let list = fs::read_to_string(to.join("pub/NOT-READABLE.txt")).expect("the list");
        assert!(list.contains("m-secret.txt\n") && list.contains("shut/\n"), "{list}");
        assert!(list.contains("could not read 2"), "{list}");
        assert!(list.contains("Links to folders") && list.contains("way/\n"), "{list}");
        assert!(list.contains("control characters") && list.contains("two\\nlines"), "{list}");
        assert_eq!(fs::read_to_string(to.join("pub/a.txt")).expect("there"), "hello");
    }
    let log = server.tree().text("error.log");
    assert_eq!(log.matches("lacks \"m-secret.txt\"").count(), 2, "{log}");
}

/// V26, F2: an archive has nothing that could not be fetched by itself.
#[test]
fn what_is_not_offered_is_not_packed() {
    let tree = Tree::new();
    plain(&tree);
    tree.file("root/guarded/x", "guarded");
    tree.file("root/none/x", "x");
    tree.file("root/run/x.sh", "the source of a program");
    tree.file("root/strict/own.txt", "own");
    tree.file("secret", "the secret beside the root");
    tree.link("root/strict/link.txt", "../../secret");
    let server = start(tree);
    let mut client = server.connect();
    let missing =
        ["/strict/?download=zip", "/pub/?download=rar", "/pub/?download=tar&name=nope&name=.."];
    for target in missing {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    for target in ["/none/?download=zip", "/run/?download=zip"] {
        let response = client.get(target);
        assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"), "{target}");
        assert!(!response.text().contains("source of a program"), "{target}");
    }
    let strict = client.get("/strict/?download=tar").text();
    assert!(strict.contains("own.txt") && !strict.contains("secret"), "{strict}");
    let all = client.get("/?download=tar").text();
    for word in ["guarded", "source of a program", "the secret", "hidden", "none/x"] {
        assert!(!all.contains(word), "{word}");
    }
    assert!(all.contains("files/pub/a.txt"));
}

/// F4, X9: a file that becomes shorter while it is read does not make an archive that looks whole.
#[test]
fn a_file_that_shrinks_breaks_a_tar_off_and_a_zip_tells_the_truth() {
    const SIZE: u64 = 64 << 20;
    let tree = Tree::new();
    let path = tree.file("root/d/big.bin", "");
    let server = start(tree);
    for kind in ["tar", "zip"] {
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_len(SIZE).expect("a length");
        file.write_all_at(b"x", SIZE - 1).expect("written");
        let mut client = server.connect().with_patience(LONG);
        client.send(format!(
            "GET /d/?download={kind} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        // The first bytes have come: the file has been opened.
        let mut bytes = client.read_bytes(4096);
        file.set_len(SIZE / 2).expect("a length");
        bytes.extend(client.read_to_end().0);
        let context = Context { is_head: false, is_closed: true };
        let parsed = Response::parse(&bytes, context);
        if kind == "tar" {
            assert!(parsed.is_err(), "an archive that lacks something looks whole");
            let said = "is incomplete and was cut off: a file became shorter";
            eventually("the log says so", LONG, || server.log("error.log").contains(said));
            continue;
        }
        let (response, _) = parsed.expect("well formed").expect("whole");
        let zip = server.tree().file("shrunk.zip", &response.body).display().to_string();
        if have("python3") {
            let listed = run("python3", &["-m", "zipfile", "-l", &zip], LONG);
            let size = (SIZE / 2).to_string();
            assert!(listed.stdout.contains(&size), "{listed:?}");
            assert_eq!(run("python3", &["-m", "zipfile", "-t", &zip], LONG).code(), 0);
        }
    }
}

/// F4: an archive is made as it is taken, in bounded memory.
#[test]
fn a_large_archive_needs_little_memory() {
    let tree = Tree::new();
    for number in 0..3000 {
        tree.file(&format!("root/many/{}/{number}", number % 7), format!("{number}"));
    }
    let big = File::create(tree.path("root/many/big.bin")).expect("a file");
    big.set_len(512 << 20).expect("a length");
    let server = start(tree);
    let mut client = server.connect().with_patience(LONG);
    let before = server.rss_bytes();
    client.send("GET /many/?download=zip HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_bytes(1 << 20);
    let mut other = server.connect();
    for _ in 0..50 {
        assert_eq!(other.get("/many/0/0").text(), "0");
    }
    let during = server.rss_bytes();
    assert!(during < before + (16 << 20), "from {before} to {during}");
}

/// F4: what a script or a password keeps back by its path is in no archive and shown as no README, and
/// neither is offered; a script that checks only the client does not depend on the path.
#[test]
fn an_archive_has_nothing_that_a_script_keeps_back() {
    let tree = Tree::new();
    for folder in ["script", "inner", "rewritten", "password", "client"] {
        tree.file(&format!("root/{folder}/a.key"), "guarded");
        tree.file(&format!("root/{folder}/README"), "guarded");
    }
    tree.file("users", "u:{PLAIN}p\n");
    let config = common::http(
        "map $uri $realm { ~key$ keys; default off; }
         server {
         listen 127.0.0.1:{port}; root {root}; autoindex on; autoindex_archive zip tar; autoindex_readme on;
         if ($host = other) { return 403; }
         location /script/ { if ($uri ~ (key|README)$) { return 403; } }
         location /inner/ { if ($http_x_who) { rewrite (key|README)$ /none; } }
         location /rewritten/ { rewrite ^/rewritten/(a.key|README)$ /none; }
         location /password/ { auth_basic $realm; auth_basic_user_file {dir}/users; }
         location /client/ { if ($http_x_who = nobody) { return 403; } }
         }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let mut client = server.connect();
    for (folder, is_open) in [
        ("script", false),
        ("inner", false),
        ("rewritten", false),
        ("password", false),
        ("client", true),
    ] {
        let page = client.request("GET", &format!("/{folder}/"), "").text();
        assert_eq!(page.contains("href=\"?download="), is_open, "{folder}: {page}");
        assert_eq!(page.contains("guarded"), is_open, "{folder}: {page}");
        let archive = client.get(&format!("/{folder}/?download=tar")).text();
        assert_eq!(archive.contains("guarded"), is_open, "{folder}");
    }
}

/// V18: a backslash in a name is no slash, whatever unpacks it.
#[test]
fn a_backslash_does_not_climb_out_of_a_zip() {
    let tree = Tree::new();
    tree.file("root/pub/a\\..\\..\\x", "x");
    let server = start(tree);
    let response = server.connect().get("/pub/?download=zip");
    assert_eq!(response.status, 200);
    assert!(!response.body.contains(&b'\\'));
    let name = b"pub/a_.._.._x";
    let count = response.body.windows(name.len()).filter(|window| window == name).count();
    assert_eq!(count, 2, "once before the file, once at the end");
}

/// F4: selected entries of a folder as one file, and nothing else of it.
#[test]
fn an_archive_holds_what_was_selected() {
    if !have("tar") {
        return;
    }
    let tree = Tree::new();
    plain(&tree);
    let server = start(tree);
    let mut client = server.connect();
    let to = server.tree().folder("selected");
    let file = server.tree().path("selected.tar");
    download(
        &mut client,
        "/pub/?download=tar&name=a.txt&name=sub&name=key.secret&name=..%2Fx",
        &file,
    );
    let arguments = ["-xf", &file.display().to_string(), "-C", &to.display().to_string()];
    assert_eq!(run("tar", &arguments, LONG).code(), 0);
    let long = "long".repeat(40);
    let mut expected = vec![
        "pub/".to_owned(),
        "pub/a.txt".to_owned(),
        "pub/sub/".to_owned(),
        format!("pub/sub/{long}/"),
        format!("pub/sub/{long}/x.txt"),
        "pub/sub/nothing/".to_owned(),
        "pub/sub/ü \u{1f600}.txt".to_owned(),
    ];
    expected.sort();
    assert_eq!(files_below(&to), expected);
}
