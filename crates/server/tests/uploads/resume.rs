//! Uploads that are resumed: tus 1.0, by hand and with clients that others wrote.

use std::path::Path;
use std::process::Command;

use sekisho_testkit::{Client, Response, Signal, Tree, eventually};

use crate::common::{BINARY, LONG, pattern, serve};

const SITE: &str = "client_max_body_size 50m;
    location /up/ { upload_store {dir}/in; upload_resumable on; }
    location /here/ { upload_store $request_filename; upload_resumable on; dav_methods DELETE; }
    location /brief/ { upload_store {dir}/brief; upload_resumable on; upload_resumable_expires 1s; }
    location /refuse/ { upload_store {dir}/in; upload_resumable on; upload_conflict refuse; }";

fn tree() -> Tree {
    let tree = Tree::new();
    tree.folder("in");
    tree.folder("brief");
    tree.folder("root/here/d");
    tree
}

fn tus(client: &mut Client, method: &str, target: &str, fields: &str, body: &[u8]) -> Response {
    let fields = format!("Tus-Resumable: 1.0.0\r\n{fields}");
    if body.is_empty() {
        client.request(method, target, &fields)
    } else {
        client.request_with_body(method, target, &fields, body)
    }
}

fn create(client: &mut Client, target: &str, length: usize, fields: &str) -> String {
    let fields = format!("Upload-Length: {length}\r\n{fields}");
    let created = tus(client, "POST", target, &fields, b"");
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.field("tus-resumable"), Some("1.0.0"));
    assert!(created.field("upload-expires").is_some());
    created.field("location").expect("a location").to_owned()
}

const PATCH: &str = "Content-Type: application/offset+octet-stream\r\n";

fn patch(client: &mut Client, target: &str, offset: usize, body: &[u8]) -> Response {
    tus(client, "PATCH", target, &format!("{PATCH}Upload-Offset: {offset}\r\n"), body)
}

fn offset(client: &mut Client, target: &str) -> Option<String> {
    tus(client, "HEAD", target, "", b"").field("upload-offset").map(str::to_owned)
}

#[test]
fn an_upload_comes_in_pieces_and_appears_when_it_is_whole() {
    let server = serve(tree(), SITE);
    let mut client = server.connect();
    let options = client.request("OPTIONS", "/up/", "");
    assert_eq!(options.status, 204);
    assert_eq!(options.field("tus-version"), Some("1.0.0"));
    assert_eq!(options.field("tus-max-size"), Some("52428800"));
    let extensions = "creation,creation-with-upload,termination,expiration";
    assert_eq!(options.field("tus-extension"), Some(extensions));
    let body = pattern(100_000);
    // "a b.txt"
    let metadata = "Upload-Metadata: filename YSBiLnR4dA==,other\r\n";
    let at = create(&mut client, "/up/", body.len(), metadata);
    assert!(at.starts_with("/up/"), "{at}");
    let told = tus(&mut client, "HEAD", &at, "", b"");
    assert_eq!(told.status, 200);
    assert_eq!(told.field("upload-offset"), Some("0"));
    assert_eq!(told.field("upload-length"), Some("100000"));
    assert_eq!(told.field("upload-metadata"), Some("filename YSBiLnR4dA==,other"));
    assert_eq!(told.field("cache-control"), Some("no-store"));
    let first = patch(&mut client, &at, 0, &body[..40_000]);
    assert_eq!((first.status, first.field("upload-offset")), (204, Some("40000")));
    assert_eq!(patch(&mut client, &at, 0, b"again").status, 409);
    assert_eq!(patch(&mut client, &at, 50_000, b"a gap").status, 409);
    assert!(!server.tree().exists("in/a b.txt"));
    let last = patch(&mut client, &at, 40_000, &body[40_000..]);
    assert_eq!((last.status, last.field("upload-offset")), (204, Some("100000")));
    assert_eq!(server.tree().read("in/a b.txt"), body);
    assert_eq!(offset(&mut client, &at).as_deref(), Some("100000"), "it is known to be done");
    assert_eq!(tus(&mut client, "DELETE", &at, "", b"").status, 204);
    assert_eq!(tus(&mut client, "HEAD", &at, "", b"").status, 404);
    assert_eq!(server.tree().names("in"), ["a b.txt"]);
}

/// F6: files that clients cannot see do not keep a folder.
#[test]
fn a_folder_is_empty_when_only_notes_about_finished_uploads_are_in_it() {
    let server = serve(
        tree(),
        "location / { dav_methods DELETE MKCOL MOVE; upload_delete_directories empty;
           upload_store $request_filename; upload_resumable on; }",
    );
    let mut client = server.connect();
    let upload = |client: &mut Client| {
        // "x"
        let at = create(client, "/here/d/", 3, "Upload-Metadata: filename eA==\r\n");
        assert_eq!(patch(client, &at, 0, b"abc").status, 204);
    };
    upload(&mut client);
    assert_eq!(client.request("DELETE", "/here/d/", "").status, 409, "the file is there");
    assert_eq!(client.request("DELETE", "/here/d/x", "").status, 204);
    let unfinished = create(&mut client, "/here/d/", 3, "");
    assert_eq!(client.request("DELETE", "/here/d/", "").status, 409, "an upload is unfinished");
    assert_eq!(tus(&mut client, "DELETE", &unfinished, "", b"").status, 204);
    assert_eq!(client.request("DELETE", "/here/d/", "").status, 204);
    assert!(!server.tree().exists("root/here/d"));
    for folder in ["/here/d/", "/here/e/"] {
        assert_eq!(client.request("MKCOL", folder, "").status, 201);
    }
    upload(&mut client);
    assert_eq!(client.request("DELETE", "/here/d/x", "").status, 204);
    assert_eq!(client.request("MOVE", "/here/e/", "Destination: /here/d/\r\n").status, 204);
    assert_eq!(server.tree().names("root/here"), ["d"]);
}

#[test]
fn what_is_wrong_is_refused() {
    let server = serve(tree(), SITE);
    let mut client = server.connect();
    let at = create(&mut client, "/up/", 10, "");
    let none = format!("/up/{}", "0".repeat(32));
    for (method, target, fields, expected) in [
        ("POST", "/up/", "", 400),
        ("POST", "/up/", "Upload-Length: x\r\n", 400),
        ("POST", "/up/", "Upload-Length: -1\r\n", 400),
        ("POST", "/up/", "Upload-Length: +1\r\n", 400),
        ("POST", "/up/", "Upload-Length: 52428801\r\n", 413),
        ("HEAD", &none, "", 404),
        ("HEAD", "/up/../etc", "", 404),
        ("HEAD", "/up/.sekisho-partial-1", "", 404),
        ("PATCH", &none, PATCH, 404),
        ("PATCH", &at, "Upload-Offset: 0\r\n", 415),
        ("PATCH", &at, PATCH, 400),
        ("DELETE", &none, "", 404),
    ] {
        let answer = tus(&mut client, method, target, fields, b"");
        assert_eq!(answer.status, expected, "{method} {target} {fields}");
        if target.starts_with("/up/0") {
            assert_eq!(answer.field("tus-resumable"), Some("1.0.0"));
        }
    }
    let old = client.request("PATCH", &at, "Tus-Resumable: 0.2.2\r\n");
    assert_eq!((old.status, old.field("tus-version")), (412, Some("1.0.0")));
    assert_eq!(patch(&mut client, &at, 0, b"too long for it").status, 413);
    assert_eq!(offset(&mut client, &at).as_deref(), Some("0"));
    assert_eq!(client.request("PATCH", &at, "").status, 405, "without the protocol's field");
    // Without the protocol's field it is an upload like every other.
    assert_eq!(client.request_with_body("POST", "/up/?name=plain", "", "x").status, 201);
}

#[test]
fn bytes_may_come_with_the_creation_and_an_empty_file_is_one() {
    let server = serve(tree(), SITE);
    let mut client = server.connect();
    let fields = format!("Upload-Length: 6\r\nUpload-Metadata: filename eA==\r\n{PATCH}");
    let created = tus(&mut client, "POST", "/here/d/", &fields, b"abc");
    assert_eq!((created.status, created.field("upload-offset")), (201, Some("3")));
    let at = created.field("location").expect("a location").to_owned();
    assert!(at.starts_with("/here/d/"), "{at}");
    assert_eq!(patch(&mut client, &at, 3, b"def").status, 204);
    assert_eq!(server.tree().read("root/here/d/x"), b"abcdef");
    let empty = "Upload-Length: 0\r\nUpload-Metadata: filename eQ==\r\n";
    assert_eq!(tus(&mut client, "POST", "/here/d/", empty, b"").status, 201);
    assert_eq!(server.tree().read("root/here/d/y"), b"");
    let overridden = format!("X-HTTP-Method-Override: PATCH\r\n{PATCH}Upload-Offset: 0\r\n");
    let at = create(&mut client, "/up/", 2, "Upload-Metadata: filename eg==\r\n");
    assert_eq!(tus(&mut client, "POST", &at, &overridden, b"zz").status, 204);
    assert_eq!(server.tree().read("in/z"), b"zz");
}

/// F5: a client that goes, and a server that is killed, lose nothing of what had come.
#[test]
fn an_upload_goes_on_after_a_break_and_after_a_restart() {
    let mut server = serve(tree(), SITE);
    let body = pattern(60_000);
    let mut client = server.connect();
    let at = create(&mut client, "/up/", body.len(), "Upload-Metadata: filename eA==\r\n");
    let head = format!(
        "PATCH {at} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\n{PATCH}Upload-Offset: 0\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).send(&body[..20_000]);
    let mut other = server.connect();
    eventually("20,000 bytes", LONG, || offset(&mut other, &at).as_deref() == Some("20000"));
    assert_eq!(patch(&mut other, &at, 20_000, b"x").status, 423, "another request is at it");
    drop(client);
    eventually("the lock is free", LONG, || {
        patch(&mut other, &at, 20_000, &body[20_000..40_000]).status == 204
    });
    server.signal(Signal::KILL);
    server.wait_exit(LONG);
    let names = server.tree().names("in");
    assert_eq!(names.len(), 2, "{names:?}");
    // The same folder, another server.
    server.start_again(BINARY);
    let mut client = server.connect();
    assert_eq!(offset(&mut client, &at).as_deref(), Some("40000"));
    assert_eq!(patch(&mut client, &at, 40_000, &body[40_000..]).status, 204);
    assert_eq!(server.tree().read("in/x"), body);
}

#[test]
fn an_upload_that_nobody_goes_on_with_is_gone_in_time() {
    let server = serve(tree(), SITE);
    let mut client = server.connect();
    let at = create(&mut client, "/brief/", 10, "");
    assert_eq!(patch(&mut client, &at, 0, b"abc").status, 204);
    // Each by a connection of its own: there may be more than a connection may have.
    let look = || tus(&mut server.connect(), "HEAD", &at, "", b"").status;
    eventually("its time is over", LONG, || look() == 410);
    assert_eq!(patch(&mut client, &at, 3, b"abc").status, 410);
    eventually("it is swept", LONG, || server.tree().names("brief").is_empty());
}

/// A conflict that is found at the end loses nothing either.
#[test]
fn a_finished_upload_that_may_not_replace_stays_unfinished() {
    let server = serve(tree(), SITE);
    server.tree().file("in/x", "old");
    let mut client = server.connect();
    let at = create(&mut client, "/refuse/", 3, "Upload-Metadata: filename eA==\r\n");
    assert_eq!(patch(&mut client, &at, 0, b"new").status, 409);
    assert_eq!(server.tree().read("in/x"), b"old");
    assert_eq!(offset(&mut client, &at).as_deref(), Some("3"));
    std::fs::remove_file(server.tree().path("in/x")).expect("removed");
    let last = tus(&mut client, "PATCH", &at, &format!("{PATCH}Upload-Offset: 3\r\n"), b"");
    assert_eq!(last.status, 204);
    assert_eq!(server.tree().read("in/x"), b"new");
}

/// Runs a command in a folder; what it said, if it went well.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let limited = ["--kill-after=5", "240", program];
    let output = Command::new("timeout")
        .args(limited)
        .args(arguments)
        .current_dir(folder)
        .output()
        .map_err(|error| error.to_string())?;
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

#[test]
fn tuspy_uploads_and_resumes() {
    let server = serve(tree(), SITE);
    let tree = server.tree();
    let packages = tree.path("py");
    let target = packages.to_str().expect("UTF-8");
    let install = ["-m", "pip", "install", "-q", "--target", target, "tuspy"];
    if let Err(why) = run(tree.dir(), "python3", &install) {
        println!("skipped: tuspy cannot be had: {why}");
        return;
    }
    tree.file("source.bin", pattern(1_500_000));
    tree.file(
        "client.py",
        format!(
            "import sys\nsys.path.insert(0, {target:?})\nfrom tusclient import client\n\
             c = client.TusClient({:?})\n\
             u = c.uploader('source.bin', chunk_size=400000, metadata={{'filename': 'p.bin'}})\n\
             u.upload_chunk()\n\
             v = c.uploader('source.bin', chunk_size=400000, url=u.url)\n\
             assert v.get_offset() == 400000, v.get_offset()\n\
             v.upload()\n",
            server.url("/up/")
        ),
    );
    run(tree.dir(), "python3", &["client.py"]).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(tree.read("in/p.bin"), pattern(1_500_000));
}

#[test]
fn tus_js_client_uploads_and_resumes() {
    let server = serve(tree(), SITE);
    let tree = server.tree();
    tree.file("package.json", "{\"private\":true,\"type\":\"module\"}");
    let install = ["install", "--no-audit", "--no-fund", "--silent", "tus-js-client@4"];
    if let Err(why) = run(tree.dir(), "npm", &install) {
        println!("skipped: tus-js-client cannot be had: {why}");
        return;
    }
    tree.file("source.bin", pattern(1_500_000));
    tree.file(
        "client.js",
        "import * as tus from 'tus-js-client';\n\
         import { readFileSync } from 'node:fs';\n\
         const endpoint = process.argv[2];\n\
         const data = readFileSync('source.bin');\n\
         const options = { endpoint, chunkSize: 300000, metadata: { filename: 'j s.bin' } };\n\
         const begin = () => new Promise((done, fail) => {\n\
           const u = new tus.Upload(data, { ...options, onError: fail,\n\
             onChunkComplete: async () => { const url = u.url; await u.abort(); done(url); } });\n\
           u.start();\n\
         });\n\
         const goOn = (uploadUrl) => new Promise((done, fail) => {\n\
           let first = -1;\n\
           const u = new tus.Upload(data, { ...options, uploadUrl, onError: fail,\n\
             onProgress: (sent) => { if (first < 0) first = sent; },\n\
             onSuccess: () => done(first) });\n\
           u.start();\n\
         });\n\
         const url = await begin();\n\
         const first = await goOn(url);\n\
         if (first < 300000) throw new Error('began anew at ' + first);\n\
         const t = new tus.Upload(data, { ...options, metadata: { filename: 'never' } });\n\
         await new Promise((done, fail) => {\n\
           t.options.onError = fail;\n\
           t.options.onChunkComplete = async () => { await t.abort(true); done(); };\n\
           t.start();\n\
         });\n",
    );
    run(tree.dir(), "node", &["client.js", &server.url("/up/")])
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(tree.read("in/j s.bin"), pattern(1_500_000));
    let unfinished = |name: &String| name.contains("partial") && !name.contains(".done");
    eventually("what was given up is gone", LONG, || !tree.names("in").iter().any(unfinished));
}

/// V29: the metadata of an upload is kept unchanged, or the upload is refused at once.
#[test]
fn more_metadata_than_can_be_kept_is_refused() {
    let server = serve(tree(), &format!("large_client_header_buffers 4 256k; {SITE}"));
    let mut client = server.connect();
    let metadata = |bytes: usize| format!("Upload-Metadata: x {}\r\n", "A".repeat(bytes));
    let fields = format!("Upload-Length: 4\r\n{}", metadata(70_000));
    assert_eq!(tus(&mut client, "POST", "/up/", &fields, b"").status, 431);
    assert_eq!(server.tree().names("in"), [""; 0]);
    let upload = create(&mut client, "/up/", 4, &metadata(60_000));
    assert_eq!(offset(&mut client, &upload).as_deref(), Some("0"));
    assert_eq!(patch(&mut client, &upload, 0, b"body").status, 204);
}

/// F5: an upload that is not continued costs one note, and there is a bound for how many there are.
#[test]
fn unfinished_uploads_cost_little_and_have_a_bound() {
    let tree = tree();
    tree.folder("few");
    let server = serve(
        tree,
        "location /up/ { upload_store {dir}/few; upload_resumable on; upload_resumable_max 5 address=3; }",
    );
    let mut client = server.connect();
    let ask = |client: &mut Client| tus(client, "POST", "/up/", "Upload-Length: 3\r\n", b"");
    let first = create(&mut client, "/up/", 3, "Upload-Metadata: filename eA==\r\n");
    let names = server.tree().names("few");
    assert_eq!(names.len(), 1, "one inode: {names:?}");
    assert_eq!(offset(&mut client, &first).as_deref(), Some("0"));
    assert_eq!(patch(&mut client, &first, 1, b"x").status, 409);
    for _ in 0..2 {
        assert_eq!(ask(&mut client).status, 201);
    }
    let full = ask(&mut client);
    assert_eq!((full.status, full.field("tus-resumable")), (429, Some("1.0.0")));
    assert_eq!(server.tree().names("few").len(), 3);
    // One that is done makes room, and its note is another.
    assert_eq!(patch(&mut client, &first, 0, b"abc").status, 204);
    assert_eq!(offset(&mut client, &first).as_deref(), Some("3"));
    let names = server.tree().names("few");
    assert_eq!(names.iter().filter(|name| name.contains(".done")).count(), 1, "{names:?}");
    let again = create(&mut client, "/up/", 3, "");
    assert_eq!(ask(&mut client).status, 429);
    // So does one that is given up.
    assert_eq!(tus(&mut client, "DELETE", &again, "", b"").status, 204);
    assert_eq!(ask(&mut client).status, 201);
}
