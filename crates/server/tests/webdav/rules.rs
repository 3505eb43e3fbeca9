//! What clients do not try.

use sekisho_testkit::{Client, Response, Tree};

use crate::{share, share_with};

const EXCLUSIVE: &str = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype>\
     <owner>kim</owner></lockinfo>";

fn propfind(client: &mut Client, target: &str, depth: &str) -> Response {
    client.request("PROPFIND", target, &format!("Depth: {depth}\r\n"))
}

fn lock(client: &mut Client, target: &str, fields: &str) -> Response {
    client.request_with_body("LOCK", target, fields, EXCLUSIVE)
}

fn token(response: &Response) -> String {
    response.field("lock-token").expect("a token").trim_matches(['<', '>']).to_owned()
}

/// RFC 4918 §10.1: a server says what it is.
#[test]
fn options_name_the_classes_and_the_methods() {
    let server = share(Tree::new());
    let mut client = server.connect();
    let answer = client.request("OPTIONS", "/dav/", "");
    assert_eq!(answer.field("dav"), Some("1, 2"));
    let allowed = answer.field("allow").expect("methods");
    for method in ["PROPFIND", "PROPPATCH", "LOCK", "UNLOCK", "PUT", "MOVE"] {
        assert!(allowed.contains(method), "{allowed}");
    }
    assert_eq!(client.request("PROPFIND", "/", "Depth: 0\r\n").status, 405);
    assert_eq!(client.request("OPTIONS", "/", "").field("dav"), None);
}

/// V18, V26: PROPFIND lists what the location answers for, and nothing else.
#[test]
fn what_another_location_answers_for_is_not_told_of() {
    let tree = Tree::new();
    tree.file("root/dav/a.txt", "hello");
    tree.file("root/dav/key.secret", "secret");
    tree.file("root/dav/guarded/x.txt", "secret");
    tree.file("root/dav/run.php", "program");
    tree.file("root/dav/.sekisho-partial-x", "ours");
    tree.file("outside", "secret");
    tree.link("root/dav/link", "a.txt");
    tree.link("root/dav/strict/link", "../a.txt");
    let server = share_with(
        tree,
        "location /dav/ { WEBDAV }
         location /dav/strict/ { WEBDAV disable_symlinks on; }
         location /dav/guarded/ { return 403; }
         location ~ \\.secret$ { return 403; }
         location ~ \\.php$ { cgi_extension .php; }",
    );
    let mut client = server.connect();
    let all = propfind(&mut client, "/dav/", "1");
    assert_eq!(all.status, 207);
    let text = all.text();
    for shown in ["/dav/</D:href>", "/dav/a.txt<", "/dav/link<"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    for hidden in ["secret", "guarded", "run.php", "sekisho", "strict"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert!(!propfind(&mut client, "/dav/strict/", "1").text().contains("link"));
    assert_eq!(propfind(&mut client, "/dav/guarded/", "1").status, 403);
    assert_eq!(propfind(&mut client, "/dav/guarded", "1").status, 403, "also without its slash");
    assert_eq!(propfind(&mut client, "/dav/none", "0").status, 404);
    assert_eq!(propfind(&mut client, "/dav/a.txt", "infinity").status, 207);
    let deep = propfind(&mut client, "/dav/", "infinity");
    assert_eq!(deep.status, 403);
    assert!(deep.text().contains("propfind-finite-depth"));
    // Nothing becomes a program, by whatever name it is called.
    let denied = [
        ("MOVE", "/dav/a.txt", "/dav/b.php"),
        ("MOVE", "/dav/a.txt", "/dav/b.php/"),
        ("COPY", "/dav/a.txt", "/dav/b.php/"),
        ("COPY", "/dav/a.txt", "/dav/guarded/"),
        ("MOVE", "/dav/a.txt", "/dav/x.secret/"),
    ];
    for (method, from, to) in denied {
        let fields = format!("Destination: {to}\r\n");
        assert_eq!(client.request(method, from, &fields).status, 403, "{method} {from} {to}");
    }
    assert_eq!(client.request("MKCOL", "/dav/guarded2", "").status, 201);
    assert_eq!(client.request("DELETE", "/dav/guarded", "").status, 403);
    let made = lock(&mut client, "/dav/new.php", "");
    assert_eq!(made.status, 404, "another location");
}

/// RFC 4918 §6, §7: a lock holds for every method that changes something, on every worker, and for uploads by forms.
#[test]
fn a_lock_keeps_everybody_out_who_does_not_know_it() {
    let tree = Tree::new();
    tree.file("root/dav/a.txt", "hello");
    tree.file("root/dav/dir/x.txt", "x");
    tree.folder("root/dav/other");
    let server = share_with(tree, "location /dav/ { WEBDAV upload_store $request_filename; }");
    let mut client = server.connect();
    let locked = lock(&mut client, "/dav/a.txt", "Timeout: Second-100\r\n");
    assert_eq!(locked.status, 200);
    assert!(locked.text().contains("Second-100") && locked.text().contains("kim"));
    let own = token(&locked);
    let deep = lock(&mut client, "/dav/dir", "");
    assert_eq!(deep.status, 200, "{}", deep.text());
    for (method, target, fields, body) in [
        ("PUT", "/dav/a.txt", "", "new"),
        ("DELETE", "/dav/a.txt", "", ""),
        ("MOVE", "/dav/a.txt", "Destination: /dav/b.txt\r\n", ""),
        ("COPY", "/dav/dir/x.txt", "Destination: /dav/a.txt\r\n", ""),
        ("PUT", "/dav/dir/new", "", "new"),
        ("MKCOL", "/dav/dir/sub/", "", ""),
        ("DELETE", "/dav/dir/", "", ""),
        ("MOVE", "/dav/other/", "Destination: /dav/dir/other/\r\n", ""),
        ("LOCK", "/dav/a.txt", "", EXCLUSIVE),
        ("LOCK", "/dav/", "", EXCLUSIVE),
        ("POST", "/dav/?name=a.txt", "", "new"),
        ("POST", "/dav/dir/?name=new.txt", "", "new"),
    ] {
        let answer = client.request_with_body(method, target, fields, body);
        assert_eq!(answer.status, 423, "{method} {target}");
    }
    assert_eq!(server.tree().text("root/dav/a.txt"), "hello");
    assert_eq!(server.tree().names("root/dav/dir"), ["x.txt"]);
    // COPY from it takes nothing away.
    let copied = client.request("COPY", "/dav/a.txt", "Destination: /dav/copy.txt\r\n");
    assert_eq!(copied.status, 201);
    let known = format!("If: (<{own}>)\r\n");
    assert_eq!(client.request_with_body("PUT", "/dav/a.txt", &known, "new").status, 204);
    let shown = propfind(&mut client, "/dav/a.txt", "0").text();
    assert!(shown.contains(&own), "{shown}");
    let wrong = "Lock-Token: <urn:uuid:none>\r\n";
    assert_eq!(client.request("UNLOCK", "/dav/a.txt", wrong).status, 409);
    assert_eq!(client.request("UNLOCK", "/dav/a.txt", "").status, 400);
    let right = format!("Lock-Token: <{own}>\r\n");
    assert_eq!(client.request("UNLOCK", "/dav/a.txt", &right).status, 204);
    assert_eq!(client.request_with_body("PUT", "/dav/a.txt", "", "free").status, 204);
    // A client that has the lock token deletes the file and the lock with it.
    let known = format!("If: </dav/dir/> (<{}>)\r\n", token(&deep));
    assert_eq!(client.request("DELETE", "/dav/dir/", &known).status, 204);
    assert_eq!(client.request("MKCOL", "/dav/dir/", "").status, 201);
}

/// A lock ends by itself, and one on what is not there makes an empty file.
#[test]
fn a_lock_ends_with_its_time() {
    let server = share(Tree::new());
    let mut client = server.connect();
    let made = lock(&mut client, "/dav/new.txt", "Timeout: Second-1\r\n");
    assert_eq!((made.status, server.tree().text("root/dav/new.txt").as_str()), (201, ""));
    assert_eq!(client.request_with_body("PUT", "/dav/new.txt", "", "x").status, 423);
    sekisho_testkit::eventually("the lock ends", crate::common::LONG, || {
        client.request_with_body("PUT", "/dav/new.txt", "", "x").status == 204
    });
}

/// Properties go with their file: over a new upload, a copy and a move; and the server's own cannot be set.
#[test]
fn dead_properties_go_with_their_file() {
    let server = share(Tree::new());
    let mut client = server.connect();
    assert_eq!(client.request_with_body("PUT", "/dav/a.txt", "", "1").status, 201);
    let set = "<propertyupdate xmlns='DAV:'><set><prop><c xmlns='urn:x'>green &amp; <b/></c></prop></set></propertyupdate>";
    let answer = client.request_with_body("PROPPATCH", "/dav/a.txt", "", set);
    assert_eq!(answer.status, 207);
    assert!(answer.text().contains("200 OK"), "{}", answer.text());
    assert_eq!(client.request_with_body("PUT", "/dav/a.txt", "", "2").status, 204);
    for (method, from, to) in
        [("COPY", "/dav/a.txt", "/dav/b.txt"), ("MOVE", "/dav/b.txt", "/dav/c.txt")]
    {
        let fields = format!("Destination: {to}\r\n");
        assert_eq!(client.request(method, from, &fields).status, 201);
    }
    let asked =
        "<propfind xmlns='DAV:'><prop><c xmlns='urn:x'/><none xmlns='urn:x'/></prop></propfind>";
    for target in ["/dav/a.txt", "/dav/c.txt"] {
        let answer = client.request_with_body("PROPFIND", target, "Depth: 0\r\n", asked);
        let text = answer.text();
        assert!(text.contains("<c xmlns=\"urn:x\">green &amp; <b xmlns=\"urn:x\"/></c>"), "{text}");
        assert!(text.contains("<none xmlns=\"urn:x\"/></D:prop><D:status>HTTP/1.1 404"), "{text}");
    }
    let own = set.replace("<c xmlns='urn:x'>", "<getetag>x</getetag><c xmlns='urn:x'>");
    let answer = client.request_with_body("PROPPATCH", "/dav/a.txt", "", &own).text();
    assert!(
        answer.contains("403 Forbidden") && answer.contains("424 Failed Dependency"),
        "{answer}"
    );
    for (method, body) in [("PROPPATCH", "<x"), ("PROPFIND", "<x/>"), ("LOCK", "<!DOCTYPE a><a/>")]
    {
        assert_eq!(
            client.request_with_body(method, "/dav/a.txt", "", body).status,
            400,
            "{method}"
        );
    }
    let huge = format!("<propfind xmlns='DAV:'>{}</propfind>", " ".repeat(70_000));
    assert_eq!(client.request_with_body("PROPFIND", "/dav/a.txt", "", &huge).status, 413);
}
