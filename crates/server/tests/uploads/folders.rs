//! Operations on whole folders: nothing in them is taken along past the rules of another location.

use std::fmt::Write as _;
use std::thread;

use sekisho_testkit::{Client, Tree, eventually};

use crate::common::{LONG, serve};

#[track_caller]
fn go(client: &mut Client, method: &str, from: &str, to: &str) -> u16 {
    client.request(method, from, &format!("Destination: {to}\r\n")).status
}

/// V26: a client that may store files may not run them, by way of a folder neither.
#[test]
fn a_folder_with_a_script_is_not_moved_to_where_it_is_run() {
    let tree = Tree::new();
    tree.folder("root/apps");
    tree.folder("root/up/deep");
    let server = serve(
        tree,
        "location / { dav_methods PUT MKCOL COPY MOVE; create_full_put_path on; }
         location ~ ^/apps/.*\\.py$ { cgi_extension .py /bin/sh; }
         location ~ ^/late/.*\\.py/ { cgi_extension .py /bin/sh; }",
    );
    let mut client = server.connect();
    let script = b"echo Content-Type: text/plain; echo; echo run";
    assert_eq!(client.request_with_body("PUT", "/up/deep/x.py", "", script).status, 201);
    assert_eq!(client.request_with_body("PUT", "/late/x.py", "", script).status, 403);
    for method in ["MOVE", "COPY"] {
        assert_eq!(go(&mut client, method, "/up/", "/apps/up/"), 403, "{method}");
        assert_eq!(go(&mut client, method, "/up/deep/", "/apps/deep/"), 403, "{method}");
        assert_eq!(go(&mut client, method, "/up/deep/x.py", "/apps/x.py"), 403, "{method}");
    }
    assert!(server.tree().exists("root/up/deep/x.py"));
    assert!(server.tree().names("root/apps").is_empty());
    // Elsewhere it may go.
    assert_eq!(go(&mut client, "MOVE", "/up/", "/moved/"), 201);
    assert_eq!(server.tree().read("root/moved/deep/x.py"), script);
}

/// V18, V26: what another location guards is neither copied out nor deleted.
#[test]
fn what_another_location_guards_stays_where_it_is() {
    let tree = Tree::new();
    tree.file("root/app/team/secret/x.txt", "TOPSECRET");
    tree.file("root/app/team/y.txt", "y");
    tree.file("root/app/scripts/a.sh", "password");
    tree.file("root/app/t3/priv/x", "private");
    tree.file("root/app/t4/one", "exact");
    tree.file("root/app/t5/in/x", "nested");
    tree.file("root/app/free/x", "free");
    tree.file("root/app/old/secret/x", "in the way");
    tree.link("root/app/linked/secret", "../team/secret");
    let server = serve(
        tree,
        "location /app/ {
             dav_methods PUT DELETE MKCOL COPY MOVE; upload_delete_directories recursive;
             location /app/t5/in/ { deny all; }
         }
         location ~ ^/app/(team|old)/secret/ { deny all; }
         location ~ ^/app/linked/secret/x { deny all; }
         location ~ ^/app/scripts/.*\\.sh$ { cgi on; }
         location /app/t3/priv/ { deny all; }
         location = /app/t4/one { deny all; }",
    );
    let mut client = server.connect();
    for folder in ["team", "scripts", "t3", "t4", "t5", "linked"] {
        let from = format!("/app/{folder}/");
        for method in ["COPY", "MOVE"] {
            assert_eq!(go(&mut client, method, &from, "/app/new/"), 403, "{method} {from}");
            assert!(!server.tree().exists("root/app/new"), "{method} {from}");
        }
        if folder != "linked" {
            assert_eq!(client.request("DELETE", &from, "").status, 403, "{from}");
        }
        // What would be there after is guarded as well.
        assert_eq!(go(&mut client, "COPY", "/app/free/", &from), 403, "{from}");
    }
    // What is in the way is not deleted past its rules either.
    for method in ["COPY", "MOVE"] {
        assert_eq!(go(&mut client, method, "/app/free/", "/app/old/"), 403, "{method}");
    }
    for (file, content) in [
        ("team/secret/x.txt", "TOPSECRET"),
        ("team/y.txt", "y"),
        ("scripts/a.sh", "password"),
        ("t3/priv/x", "private"),
        ("t4/one", "exact"),
        ("t5/in/x", "nested"),
        ("old/secret/x", "in the way"),
        ("free/x", "free"),
    ] {
        assert_eq!(server.tree().text(&format!("root/app/{file}")), content);
    }
    let names = server.tree().names("root/app");
    assert!(!names.iter().any(|name| name.starts_with(".sekisho-")), "{names:?}");
    // A link is deleted, not what it leads to.
    assert_eq!(client.request("DELETE", "/app/linked/", "").status, 204);
    assert_eq!(go(&mut client, "COPY", "/app/free/", "/app/free2/"), 201);
    assert_eq!(client.request("DELETE", "/app/free/", "").status, 204);
    assert!(server.tree().exists("root/app/team/secret/x.txt"));
    eventually("the reason is in the log", LONG, || {
        server.log("error.log").contains("another location is responsible for \"secret/\" in it")
    });
}

/// V26: a body that was begun under one path does not end under another.
#[test]
fn an_upload_does_not_follow_its_folder_elsewhere() {
    let tree = Tree::new();
    tree.folder("root/apps");
    tree.folder("root/up");
    let server = serve(
        tree,
        "location / { dav_methods PUT MKCOL MOVE DELETE; upload_delete_directories recursive; }
         location ~ ^/apps/.*\\.py$ { cgi_extension .py /bin/sh; }",
    );
    for (method, status) in [("MOVE", 201), ("DELETE", 204)] {
        let mut slow = server.connect();
        slow.send("PUT /up/evil.py HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nev");
        let mut client = server.connect();
        // The first bytes are there when the server waits for more.
        eventually("the upload has begun", LONG, || client.get("/").status == 403);
        assert_eq!(go(&mut client, method, "/up/", "/apps/up/"), status, "{method}");
        assert_eq!(slow.send("il").read_response().status, 409, "{method}");
        assert!(!server.tree().exists("root/apps/up/evil.py"), "{method}");
        if method == "MOVE" {
            assert_eq!(go(&mut client, "MOVE", "/apps/up/", "/up/"), 201);
        }
    }
}

/// V26: nor is there a moment between looking and moving in which something may slip in.
#[test]
fn what_appears_while_a_folder_is_moved_is_looked_at_too() {
    let tree = Tree::new();
    tree.folder("root/apps");
    tree.folder("root/up");
    for number in 0..300 {
        tree.file(&format!("root/up/{number}.txt"), "");
    }
    let server = serve(
        tree,
        "location / { dav_methods PUT MKCOL MOVE DELETE; }
         location ~ ^/apps/.*\\.py$ { cgi_extension .py /bin/sh; }",
    );
    thread::scope(|scope| {
        let uploads = scope.spawn(|| {
            let mut client = server.connect();
            for _ in 0..200 {
                client.request_with_body("PUT", "/up/evil.py", "", b"evil");
                client.request("DELETE", "/up/evil.py", "");
            }
        });
        let mut client = server.connect();
        while !uploads.is_finished() {
            if go(&mut client, "MOVE", "/up/", "/apps/up/") == 201 {
                assert!(!server.tree().exists("root/apps/up/evil.py"));
                assert_eq!(go(&mut client, "MOVE", "/apps/up/", "/up/"), 201);
            }
        }
    });
}

/// F6: however deep.
#[test]
fn a_folder_is_deleted_however_deep_it_is() {
    let tree = Tree::new();
    let mut path = String::from("root/d");
    for _ in 0..400 {
        let _ = write!(path, "/n");
    }
    tree.file(&format!("{path}/x"), "x");
    let server = serve(
        tree,
        "dav_methods DELETE; upload_delete_directories recursive; location ~ never { }",
    );
    assert_eq!(server.connect().request("DELETE", "/d/", "").status, 204);
    assert!(server.tree().names("root").is_empty());
}
