//! PROPFIND on a storage root, by hand and by a client of its own.

use sekisho_testkit::{have, run};

use crate::common::{LONG, pattern};
use crate::store::Store;

for_each_store! {
    properties_are_those_of_the_store,
    rclone_copies_a_tree_both_ways,
}

fn config(store: &Store) -> String {
    let block = store.block("s", "part_size 5m;");
    format!(
        "{block} server {{ listen 127.0.0.1:{{port}}; root storage:s; client_max_body_size 1g;
             dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS;
             upload_delete_directories recursive;
             location ~ ^/d/guarded/ {{ deny all; }} }}"
    )
}

fn properties_are_those_of_the_store(mut store: Store) {
    let server = store.serve(&config(&store));
    for key in ["a & b.txt", "d/x.txt", "d/e/y", "d/guarded/z", "d/.sekisho-partial-1"] {
        store.put(&format!("pre/{key}"), "12345");
    }
    let ask = |target: &str, depth: &str, body: &str| {
        let fields = format!("Depth: {depth}\r\n");
        server.connect().request_with_body("PROPFIND", target, &fields, body)
    };
    let options = server.connect().request("OPTIONS", "/", "");
    assert_eq!(options.field("dav"), Some("1"));
    assert!(options.field("allow").is_some_and(|it| it.contains("PROPFIND")));
    let one = ask("/d/x.txt", "0", "");
    assert_eq!(one.status, 207, "{}", server.log("error.log"));
    let tag = server.connect().get("/d/x.txt").field("etag").expect("a tag").to_owned();
    let said = format!("<D:getetag>{}</D:getetag>", tag.replace('"', "&quot;"));
    for expected in [
        "<D:href>/d/x.txt</D:href>",
        "<D:getcontentlength>5</D:getcontentlength>",
        "<D:getcontenttype>text/plain</D:getcontenttype>",
        "<D:displayname>x.txt</D:displayname>",
        "<D:getlastmodified>",
        &said,
    ] {
        assert!(one.text().contains(expected), "{expected}: {}", one.text());
    }
    // What is in a folder, with or without its slash; and nothing of what another location guards.
    for target in ["/d/", "/d"] {
        let folder = ask(target, "1", "").text();
        let hrefs: Vec<&str> =
            folder.split("<D:href>").skip(1).filter_map(|it| it.split('<').next()).collect();
        assert_eq!(hrefs, ["/d/", "/d/e/", "/d/x.txt"], "{folder}");
        assert!(folder.contains(&said), "the same tag as in its head: {folder}");
        assert_eq!(folder.matches("<D:collection/>").count(), 2);
    }
    let root = ask("/", "1", "").text();
    assert!(root.contains("<D:href>/a%20&amp;%20b.txt</D:href>"), "{root}");
    let named =
        "<propfind xmlns=\"DAV:\"><prop><getcontentlength/><x xmlns=\"y\"/></prop></propfind>";
    let named = ask("/d/x.txt", "0", named).text();
    assert!(named.contains(">5<") && named.contains("404 Not Found"), "{named}");
    for (target, depth, body, status) in [
        ("/d/", "infinity", "", 403),
        ("/d/x.txt", "infinity", "", 207),
        ("/d/", "0", "", 207),
        ("/d/", "2", "", 400),
        ("/d/", "1", "<no", 400),
        ("/d/x.txt/", "1", "", 404),
        ("/nothing", "1", "", 404),
        ("/nothing/", "0", "", 404),
        ("/d/guarded", "0", "", 403),
        ("/d/guarded/", "0", "", 403),
    ] {
        assert_eq!(ask(target, depth, body).status, status, "{target} {depth} {body}");
    }
    let much = "x".repeat(2 << 20);
    assert_eq!(ask("/d/", "1", &much).status, 413);
    for method in ["PROPPATCH", "LOCK"] {
        assert_eq!(server.connect().request(method, "/d/x.txt", "").status, 405);
    }
    // More than a page.
    store.ask("{\"do\": \"fill\", \"prefix\": \"pre/many/\", \"count\": 1100}");
    let many = ask("/many", "1", "").text();
    assert_eq!(many.matches("<D:response>").count(), 1101);
}

fn rclone_copies_a_tree_both_ways(mut store: Store) {
    if !have("rclone") {
        println!("skipped: there is no rclone");
        return;
    }
    let server = store.serve(&config(&store));
    let tree = sekisho_testkit::Tree::new();
    tree.file("from/a.txt", "a");
    tree.file("from/b/c d.txt", "cd");
    tree.file("from/b/large", pattern(6 << 20));
    let (from, to) = (tree.dir().join("from"), tree.dir().join("to"));
    let (from, to) = (from.display().to_string(), to.display().to_string());
    let url = format!("--webdav-url={}", server.url("/tree/"));
    let rclone = |args: &[&str]| {
        let common = ["--config=/dev/null", "--webdav-vendor=other", "--retries=1", &url];
        let done = run("rclone", &[args, &common].concat(), LONG);
        assert_eq!(done.code(), 0, "{args:?}: {} {}", done.stderr, server.log("error.log"));
        done.stdout
    };
    rclone(&["copy", &from, ":webdav:"]);
    assert_eq!(rclone(&["lsf", "-R", ":webdav:"]), "a.txt\nb/\nb/c d.txt\nb/large\n");
    rclone(&["copy", ":webdav:", &to]);
    rclone(&["check", "--download", &from, &to]);
    rclone(&["moveto", ":webdav:a.txt", ":webdav:b/moved.txt"]);
    rclone(&["purge", ":webdav:b"]);
    let keys = store.keys();
    assert!(!keys.contains("large") && !keys.contains("moved"), "{keys}");
}
