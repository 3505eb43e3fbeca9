//! PUT and DELETE, one by one.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use sekisho_testkit::{Server, Tree};

use crate::common::{pattern, serve};

fn files(body: &str) -> Server {
    let tree = Tree::new();
    tree.file("root/old.txt", "old");
    tree.file("root/sub/deep/x.txt", "x");
    tree.folder("root/empty");
    serve(tree, body)
}

/// F5: 201 and `Location` for a new file, 204 for one that is replaced.
#[test]
fn a_body_becomes_the_file_of_that_name() {
    let server = files("dav_methods PUT DELETE;");
    let mut client = server.connect();
    let body = pattern(300_000);
    let created = client.request_with_body("PUT", "/a%20b.txt", "", &body);
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.field("location"), Some("/a%20b.txt"));
    assert_eq!(server.tree().read("root/a b.txt"), body);
    let there = client.get("/a%20b.txt");
    assert_eq!(there.body, body);
    assert_eq!(there.field("etag"), created.field("etag"));
    let replaced = client.request_with_body("PUT", "/a%20b.txt", "", "new");
    assert_eq!((replaced.status, replaced.field("location")), (204, None));
    assert_eq!(client.get("/a%20b.txt").body, b"new");
    let empty = client.request("PUT", "/nothing", "");
    assert_eq!(empty.status, 201);
    assert_eq!(server.tree().read("root/nothing"), b"");
    let chunked = "PUT /chunks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(client.send(chunked).read_response().status, 201);
    assert_eq!(client.get("/chunks").body, b"abcde");
    assert_eq!(client.request("DELETE", "/chunks", "").status, 204);
    assert_eq!(client.get("/chunks").status, 404);
    assert_eq!(
        server.tree().names("root"),
        ["a b.txt", "empty", "nothing", "old.txt", "sub"],
        "and nothing else"
    );
}

/// F5, F6, H12
#[test]
fn what_cannot_be_changed_is_refused_with_its_own_status() {
    let server = files(
        "dav_methods PUT DELETE; upload_delete_directories off;
         location /read/ { dav_methods off; }
         location /deep/ { dav_methods DELETE; min_delete_depth 3; }",
    );
    server.tree().file("root/deep/a/b.txt", "");
    server.tree().file("root/.sekisho-upload-00", "somebody's");
    let mut client = server.connect();
    let long = "x".repeat(300);
    for (method, target, fields, expected) in [
        ("PUT", "/sub/", "", 409),
        ("PUT", "/sub", "", 409),
        ("PUT", "/", "", 409),
        ("PUT", "/missing/x", "", 409),
        ("PUT", "/old.txt/x", "", 409),
        ("PUT", &format!("/{long}"), "", 414),
        ("PUT", "/old.txt", "Content-Range: bytes 0-1/2\r\n", 501),
        ("PUT", "/.sekisho-upload-1", "", 404),
        ("DELETE", "/.sekisho-upload-00", "", 404),
        ("GET", "/.sekisho-upload-00", "", 404),
        ("PUT", "/read/x", "", 405),
        ("DELETE", "/missing", "", 404),
        ("DELETE", "/old.txt/x", "", 404),
        ("DELETE", "/old.txt/", "", 404),
        ("DELETE", "/empty/", "", 403),
        ("DELETE", "/empty", "", 403),
        ("DELETE", "/", "", 403),
        ("DELETE", "/old.txt", "Depth: 1\r\n", 400),
        ("DELETE", "/deep/a", "", 409),
        ("DELETE", "/deep/a/b.txt", "", 204),
        ("PUT", "/deep/a/b.txt", "", 405),
    ] {
        let answer = client.request(method, target, fields);
        assert_eq!(answer.status, expected, "{method} {target} {fields}");
    }
    assert_eq!(client.request_with_body("DELETE", "/old.txt", "", "x").status, 415);
    let options = client.request("OPTIONS", "/deep/", "");
    assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS, DELETE"));
    let refused = client.request("PUT", "/read/x", "");
    assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(server.tree().read("root/old.txt"), b"old");
}

/// F6: folders go only where that is allowed, and how.
#[test]
fn folders_are_deleted_where_it_is_allowed() {
    let server = files(
        "dav_methods DELETE; upload_delete_directories empty;
         location /sub/ { upload_delete_directories recursive; }",
    );
    server.tree().file("outside/kept", "");
    server.tree().link("root/sub/deep/away", "../../../outside");
    server.tree().file("root/full/x", "");
    let mut client = server.connect();
    assert_eq!(client.request("DELETE", "/full/", "").status, 409);
    assert_eq!(client.request("DELETE", "/empty", "").status, 409, "a folder is named as one");
    assert_eq!(client.request("DELETE", "/empty/", "Depth: 0\r\n").status, 400);
    assert_eq!(client.request("DELETE", "/empty/", "").status, 204);
    assert_eq!(client.request("DELETE", "/sub/deep/", "").status, 204);
    assert_eq!(server.tree().names("root"), ["full", "old.txt", "sub"]);
    assert_eq!(server.tree().names("root/sub"), [""; 0]);
    assert!(server.tree().exists("outside/kept"), "a link goes, not what it leads to");
}

/// F6: where nothing else is said, DELETE has nginx's meaning: a folder goes with all that is in it, if its name ends with
/// a slash and it lies deep enough.
#[test]
fn a_folder_is_deleted_as_in_nginx() {
    let server =
        files("dav_methods DELETE; location /deep/ { dav_methods DELETE; min_delete_depth 3; }");
    server.tree().file("outside/kept", "");
    server.tree().link("root/sub/deep/away", "../../../outside");
    server.tree().file("root/sub/deep/more/x", "");
    server.tree().file("root/deep/a/b/c", "");
    let mut client = server.connect();
    for (target, fields, expected) in [
        ("/sub/deep", "", 409),
        ("/sub/deep/", "Depth: 0\r\n", 400),
        ("/sub/deep/", "Depth: 1\r\n", 400),
        ("/sub/deep/", "Depth: infinity\r\n", 204),
        ("/sub/deep/", "", 404),
        ("/sub/", "", 204),
        ("/deep/a/", "", 409),
        ("/deep/a/b/", "", 204),
        ("/", "", 403),
    ] {
        let answer = client.request("DELETE", target, fields);
        assert_eq!(answer.status, expected, "{target} {fields}");
    }
    assert_eq!(server.tree().names("root"), ["deep", "empty", "old.txt"]);
    assert_eq!(server.tree().names("root/deep"), ["a"]);
    assert!(server.tree().exists("outside/kept"), "a link goes, not what it leads to");
}

/// F5: permissions are those of `dav_access`, whatever the umask.
#[test]
fn new_files_and_folders_have_the_permissions_that_were_said() {
    let server = files(
        "dav_methods PUT; create_full_put_path on;
         location /open/ { dav_access user:rw group:rw all:r; }",
    );
    let mut client = server.connect();
    assert_eq!(client.request("PUT", "/new/folder/x", "").status, 201);
    assert_eq!(client.request("PUT", "/open/folder/x", "").status, 201);
    let mode = |name: &str| {
        let metadata = std::fs::metadata(server.tree().path(name)).expect("there");
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!([mode("root/new"), mode("root/new/folder")], [0o700; 2]);
    assert_eq!(mode("root/new/folder/x"), 0o600);
    assert_eq!([mode("root/open/folder"), mode("root/open/folder/x")], [0o775, 0o664]);
}

/// F5: conditions hold before the body is taken (H7: no 100 for one that fails).
#[test]
fn conditions_are_honoured_before_the_body_comes() {
    let server = files("dav_methods PUT DELETE;");
    let mut client = server.connect();
    let tag = client.get("/old.txt").field("etag").expect("a tag").to_owned();
    let other = "\"other\"";
    let long_ago = "Thu, 01 Jan 1970 00:00:10 GMT";
    for (target, fields, expected) in [
        ("/old.txt", format!("If-Match: {other}\r\n"), 412),
        ("/old.txt", format!("If-None-Match: {tag}\r\n"), 412),
        ("/old.txt", "If-None-Match: *\r\n".into(), 412),
        ("/old.txt", format!("If-Unmodified-Since: {long_ago}\r\n"), 412),
        ("/new.txt", "If-Match: *\r\n".into(), 412),
        ("/new.txt", format!("If-Match: {tag}\r\n"), 412),
    ] {
        let fields = format!("Content-Length: 3\r\nExpect: 100-continue\r\n{fields}");
        let head = format!("PUT {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let answer = server.connect().send(head).read_response();
        assert_eq!(answer.status, expected, "{target} {fields}");
    }
    assert_eq!(client.request("DELETE", "/old.txt", "If-Match: \"x\"\r\n").status, 412);
    assert_eq!(server.tree().names("root"), ["empty", "old.txt", "sub"]);
    for (target, fields, expected) in [
        ("/old.txt", format!("If-Match: {tag}\r\n"), 204),
        ("/old.txt", format!("If-Match: {tag}\r\n"), 412),
        ("/old.txt", "If-Match: *\r\n".into(), 204),
        ("/new.txt", "If-None-Match: *\r\n".into(), 201),
        ("/new.txt", "If-None-Match: *\r\n".into(), 412),
    ] {
        let answer = client.request_with_body("PUT", target, &fields, "new");
        assert_eq!(answer.status, expected, "{target} {fields}");
    }
    let mut waiting = server.connect();
    waiting.send("PUT /w HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(waiting.read_bytes(25), b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(waiting.send("ok").read_response().status, 201);
}

/// F5, V30: `upload_conflict`
#[test]
fn a_conflict_is_settled_as_configured() {
    let server = files(
        "dav_methods PUT;
         location /refuse/ { upload_conflict refuse; }
         location /rename/ { upload_conflict rename; }",
    );
    server.tree().file("root/refuse/a.txt", "old");
    server.tree().file("root/rename/a.txt", "old");
    let mut client = server.connect();
    assert_eq!(client.request_with_body("PUT", "/refuse/a.txt", "", "new").status, 409);
    assert_eq!(client.request_with_body("PUT", "/refuse/b.txt", "", "new").status, 201);
    for expected in ["/rename/a%20(1).txt", "/rename/a%20(2).txt"] {
        let answer = client.request_with_body("PUT", "/rename/a.txt", "", "new");
        assert_eq!((answer.status, answer.field("location")), (201, Some(expected)));
    }
    assert_eq!(server.tree().names("root/rename"), ["a (1).txt", "a (2).txt", "a.txt"]);
    assert_eq!(server.tree().read("root/rename/a.txt"), b"old");
    assert_eq!(server.tree().read("root/refuse/a.txt"), b"old");
}

/// F5: what is there and is no file stays what it is; a link is replaced and not followed.
#[test]
fn only_files_are_replaced() {
    let tree = Tree::new();
    tree.folder("root/sub");
    tree.file("outside/file", "kept");
    // There from the start: a link that comes later changes the places of the sandbox, and with them the workers.
    tree.link("root/link", "../outside/file");
    tree.link("root/null", "/dev/null");
    tree.link("root/out", "../outside");
    tree.link("root/in", "sub");
    let server = serve(tree, "dav_methods PUT DELETE;");
    let tree = server.tree();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.path("root/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(tree.path("root/socket")).expect("bound");
    let mut client = server.connect();
    for name in ["fifo", "socket"] {
        assert_eq!(client.request_with_body("PUT", &format!("/{name}"), "", "x").status, 409);
        assert_eq!(client.request("DELETE", &format!("/{name}"), "").status, 403, "{name}");
        assert!(tree.exists(&format!("root/{name}")));
    }
    for name in ["link", "null"] {
        assert_eq!(client.request_with_body("PUT", &format!("/{name}"), "", "x").status, 204);
        assert_eq!(tree.read(&format!("root/{name}")), b"x");
        let metadata = std::fs::symlink_metadata(tree.path(&format!("root/{name}")));
        assert!(metadata.expect("there").is_file(), "the link itself was replaced");
    }
    assert_eq!(client.request_with_body("PUT", "/out/new", "", "x").status, 403);
    assert_eq!(client.request("DELETE", "/out/file", "").status, 403);
    assert_eq!(client.request_with_body("PUT", "/in/new", "", "x").status, 201);
    assert_eq!(tree.read("root/sub/new"), b"x");
    assert_eq!(client.request("DELETE", "/out", "").status, 204, "the link goes");
    assert_eq!(tree.names("outside"), ["file"]);
    assert_eq!(tree.read("outside/file"), b"kept");
}

/// A client may say how old its file is, as with nginx.
#[test]
fn the_time_of_a_file_can_be_given() {
    let server = files("dav_methods PUT;");
    let mut client = server.connect();
    let time = |name: &str| std::fs::metadata(server.tree().path(name)).expect("there").mtime();
    client.request("PUT", "/a", "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    client.request("PUT", "/b", "X-OC-Mtime: 1000000000\r\n");
    assert_eq!((time("root/a"), time("root/b")), (784_111_777, 1_000_000_000));
}
