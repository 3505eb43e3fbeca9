//! MKCOL, COPY and MOVE.

use sekisho_testkit::{Client, Server, Tree, eventually};

use crate::common::{LONG, pattern, serve};

const ALL: &str = "dav_methods PUT DELETE MKCOL COPY MOVE;";

fn files(body: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    tree.file("root/b.txt", "b");
    tree.file("root/d/x.txt", "x");
    tree.file("root/d/e/y.txt", "y");
    tree.file("outside/secret", "secret");
    tree.link("root/d/link", "../../outside/secret");
    tree.link("root/out", "../outside");
    tree.folder("root/target");
    serve(tree, body)
}

#[track_caller]
fn go(client: &mut Client, method: &str, from: &str, to: &str, fields: &str) -> u16 {
    client.request(method, from, &format!("Destination: {to}\r\n{fields}")).status
}

/// O6: one status has several causes; the log tells them apart.
#[test]
fn why_a_change_was_refused_is_in_the_log() {
    let server = files(&format!(
        "error_log {{dir}}/why.log info; {ALL} upload_store $request_filename; upload_delete_directories off;"
    ));
    let mut client = server.connect();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (method, target, fields, status, why) in [
        ("PUT", "/new/", "", 409, "PUT was refused: the path ends with a slash"),
        ("PUT", "/d", "", 409, "PUT was refused: the name is taken, by a folder"),
        ("DELETE", "/d/", "", 403, "upload_delete_directories is off"),
        ("MKCOL", "/new", "", 409, "MKCOL was refused: no slash at the end"),
        ("MOVE", "/a.txt", "Destination: /a.txt\r\n", 403, "source and destination are the same"),
        ("COPY", "/d/", "Destination: /d/f/\r\n", 409, "a folder cannot be put into itself"),
        ("POST", "/d/", form, 415, "no file name for them"),
    ] {
        let seen = match method {
            "PUT" | "POST" => client.request_with_body(method, target, fields, b"a=b"),
            _ => client.request(method, target, fields),
        };
        assert_eq!(seen.status, status, "{method} {target}");
        eventually(why, LONG, || {
            let log = server.log("why.log");
            let line = log.lines().find(|line| line.contains(why));
            line.is_some_and(|line| line.contains(", client: 127.0.0.1, server: , request: \""))
        });
    }
}

#[test]
fn a_folder_is_made_once() {
    let server = files(ALL);
    let mut client = server.connect();
    let made = client.request("MKCOL", "/new%20one/", "");
    assert_eq!((made.status, made.field("location")), (201, Some("/new%20one/")));
    let again = client.request("MKCOL", "/new%20one/", "");
    assert_eq!(again.status, 405);
    assert_eq!(again.field("allow"), Some("GET, HEAD, OPTIONS, PUT, DELETE, MKCOL, COPY, MOVE"));
    for (target, expected) in [
        ("/other", 409),
        ("/missing/x/", 409),
        ("/a.txt/", 405),
        ("/a.txt/x/", 409),
        ("/out/x/", 403),
        ("/", 405),
    ] {
        assert_eq!(client.request("MKCOL", target, "").status, expected, "{target}");
    }
    assert_eq!(client.request_with_body("MKCOL", "/z/", "", "body").status, 415);
    assert_eq!(server.tree().names("outside"), ["secret"]);
}

#[test]
fn files_are_copied_and_moved() {
    let server = files(ALL);
    let tree = server.tree();
    let large = pattern(3_000_000);
    tree.file("root/large", &large);
    let mut client = server.connect();
    assert_eq!(go(&mut client, "COPY", "/large", "/copy", ""), 201);
    assert_eq!(tree.read("root/copy"), large);
    assert_eq!(client.get("/copy").body.len(), large.len());
    let time = |name: &str| std::fs::metadata(tree.path(name)).and_then(|it| it.modified());
    let whole = |name: &str| {
        let since = time(name).expect("a time").duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    };
    assert_eq!(whole("root/copy"), whole("root/large"));
    assert_eq!(go(&mut client, "COPY", "/a.txt", "/b.txt", "Overwrite: F\r\n"), 412);
    assert_eq!(tree.read("root/b.txt"), b"b");
    assert_eq!(go(&mut client, "COPY", "/a.txt", "/b.txt", ""), 204);
    assert_eq!((tree.read("root/a.txt"), tree.read("root/b.txt")), (b"a".into(), b"a".into()));
    assert_eq!(go(&mut client, "MOVE", "/a.txt", "/c.txt", "Overwrite: F\r\n"), 201);
    assert_eq!(go(&mut client, "MOVE", "/c.txt", "/b.txt", "Overwrite: T\r\n"), 204);
    assert_eq!(client.get("/c.txt").status, 404);
    assert_eq!(go(&mut client, "MOVE", "/b.txt", "/d/b.txt", ""), 201);
    for (method, from, to, fields, expected) in [
        ("COPY", "/missing", "/m", "", 404),
        ("MOVE", "/missing", "/m", "", 404),
        ("COPY", "/copy", "/missing/m", "", 409),
        ("COPY", "/copy", "/copy", "", 403),
        ("COPY", "/copy", "/target", "", 409),
        ("COPY", "/copy", "/d/", "", 409),
        ("COPY", "/copy", "/m", "Overwrite: X\r\n", 400),
        ("COPY", "/copy", "/m", "Depth: 1\r\n", 400),
        ("MOVE", "/copy", "/m", "Depth: 0\r\n", 400),
        ("COPY", "/copy", "http://elsewhere/m", "", 400),
        ("COPY", "/copy", "/out/m", "", 403),
        ("MOVE", "/copy", "/out/m", "", 403),
        ("COPY", "/out/secret", "/m", "", 403),
        ("MOVE", "/out/secret", "/m", "", 403),
        ("COPY", "/copy", "/../m", "", 400),
    ] {
        assert_eq!(go(&mut client, method, from, to, fields), expected, "{method} {from} {to}");
    }
    assert_eq!(go(&mut client, "COPY", "/d/link", "/link", ""), 201);
    assert_eq!(
        std::fs::read_link(tree.path("root/link")).expect("a link").to_str(),
        Some("../../outside/secret"),
        "a link is copied as a link"
    );
    assert_eq!(tree.names("outside"), ["secret"]);
    assert_eq!(tree.names("root"), ["copy", "d", "large", "link", "out", "target"]);
}

#[test]
fn folders_are_copied_and_moved_whole() {
    let server = files(&format!(
        "{ALL} upload_delete_directories off; location /r/ {{ upload_delete_directories recursive; }}"
    ));
    let tree = server.tree();
    tree.file("root/r/one/1", "1");
    tree.file("root/r/two/2", "2");
    tree.file("root/d/.sekisho-upload-0", "somebody's");
    let mut client = server.connect();
    assert_eq!(go(&mut client, "COPY", "/d/", "/copy/", ""), 201);
    assert_eq!(tree.names("root/copy"), ["e", "link", "x.txt"]);
    assert_eq!(tree.read("root/copy/e/y.txt"), b"y");
    assert!(tree.path("root/copy/link").is_symlink(), "a link stays a link");
    assert_eq!(go(&mut client, "COPY", "/d/", "/flat/", "Depth: 0\r\n"), 201);
    assert_eq!(tree.names("root/flat"), [""; 0]);
    assert_eq!(go(&mut client, "COPY", "/d/", "/d/e/f/", ""), 409, "not into itself");
    assert_eq!(go(&mut client, "MOVE", "/d/", "/d/e/f/", ""), 409);
    assert_eq!(go(&mut client, "MOVE", "/copy/", "/target/", ""), 409, "a folder may not go here");
    assert_eq!(go(&mut client, "MOVE", "/copy/", "/moved/", ""), 201);
    assert_eq!(go(&mut client, "MOVE", "/d", "/moved2", ""), 409, "a folder is named as one");
    assert_eq!(go(&mut client, "COPY", "/r/one/", "/r/two/", "Overwrite: F\r\n"), 412);
    assert_eq!(go(&mut client, "COPY", "/r/one/", "/r/two/", ""), 204);
    assert_eq!(
        (tree.names("root/r/one"), tree.names("root/r/two")),
        (vec!["1".into()], vec!["1".into()])
    );
    tree.file("root/r/one/more", "");
    assert_eq!(go(&mut client, "MOVE", "/r/one/", "/r/two/", ""), 204);
    assert_eq!(tree.names("root/r"), ["two"]);
    assert_eq!(tree.names("root/r/two"), ["1", "more"]);
    assert_eq!(tree.names("root"), ["a.txt", "b.txt", "d", "flat", "moved", "out", "r", "target"]);
}

/// O4, F5: a copy that takes long ends with the server; it is answered for, and leaves nothing.
#[test]
fn a_forced_end_does_not_wait_for_a_copy() {
    let mut server = files(ALL);
    let large = std::fs::File::create(server.tree().path("root/d/large")).expect("a file");
    large.set_len(32 << 30).expect("a length");
    let mut client = server.connect();
    client.send("COPY /d/ HTTP/1.1\r\nHost: localhost\r\nDestination: /target/copy/\r\n\r\n");
    let is_at_work = |server: &Server| !server.tree().names("root/target").is_empty();
    eventually("the copy", LONG, || is_at_work(&server));
    server.term();
    let status = client.read_response().status;
    server.wait_exit(LONG);
    let names = server.tree().names("root/target");
    // A file system that shares blocks is done before the copy can be stopped.
    let expected: &[&str] = if status == 201 { &["copy"] } else { &[] };
    assert!(matches!(status, 201 | 503), "{status}");
    assert_eq!(names, expected);
}

/// F6: a listing shows a link to a folder as a folder; what is deleted and renamed is the link itself.
#[test]
fn a_link_to_a_folder_is_renamed_and_deleted_as_the_link_that_it_is() {
    let server = files(ALL);
    let mut client = server.connect();
    server.tree().link("root/way", "d");
    assert_eq!(go(&mut client, "MOVE", "/way/", "/path/", "Overwrite: F\r\n"), 201);
    let path = server.tree().path("root/path");
    let target = std::fs::read_link(&path).expect("still a link");
    assert_eq!(target, std::path::Path::new("d"));
    assert!(!server.tree().exists("root/way"));
    assert_eq!(client.request("DELETE", "/path/", "").status, 204);
    assert!(std::fs::symlink_metadata(&path).is_err());
    assert_eq!(server.tree().text("root/d/x.txt"), "x");
    // One that leads out of the root, too; but a link to a file is no folder.
    assert_eq!(client.request("DELETE", "/out/", "").status, 204);
    assert_eq!(server.tree().text("outside/secret"), "secret");
    assert_eq!(client.request("DELETE", "/d/link/", "").status, 404);
}
