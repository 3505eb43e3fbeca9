//! `upload_store` in a storage: files, forms, uploads that are resumed; MKCOL, COPY and MOVE; and listings.

use sekisho_testkit::{Client, Response, Server};

use crate::common::pattern;
use crate::store::{Kind, Store};

for_each_store! {
    posted_files_and_forms_are_stored_as_a_whole,
    an_upload_is_resumed_by_any_server_and_its_parts_are_parts,
    an_upload_with_large_parts_is_resumed,
    folders_are_made_copied_and_moved,
    a_folder_is_listed_page_by_page,
}

const MIB: usize = 1 << 20;

fn server(store: &Store) -> Server {
    let block = store.block("s", "part_size 5m; abandoned off;");
    store.serve(&format!(
        "{block} server {{ listen 127.0.0.1:{{port}}; root storage:s; client_max_body_size 1g;
             dav_methods PUT DELETE MKCOL COPY MOVE; upload_delete_directories recursive;
             location /up {{ upload_store storage:s/in; upload_conflict rename; upload_resumable on; }}
             location /list/ {{ autoindex on; index none; }}
             location /json/ {{ autoindex on; autoindex_format json; index none; rewrite ^/json/(.*) /list/$1 break; }}
             location /guarded/ {{ }}
             location /guarded/secret/ {{ deny all; }} }}"
    ))
}

fn posted_files_and_forms_are_stored_as_a_whole(mut store: Store) {
    let server = server(&store);
    let post =
        |fields: &str, body: &[u8]| server.connect().request_with_body("POST", "/up", fields, body);
    let one = post("Content-Disposition: attachment; filename=\"a.txt\"\r\n", b"one");
    assert_eq!(one.status, 201, "{}", server.log("error.log"));
    assert_eq!(
        one.text(),
        "{\"files\":[{\"name\":\"a.txt\",\"size\":3,\"location\":\"/in/a.txt\"}]}\n"
    );
    let two = post("Content-Disposition: attachment; filename=\"a.txt\"\r\n", b"two!");
    assert_eq!(two.status, 201);
    assert!(!two.text().contains("\"a.txt\""), "the first one stays: {}", two.text());
    let form = |end: &str| {
        let large = pattern(6 * MIB);
        let mut body =
            b"--x\r\nContent-Disposition: form-data; name=f; filename=\"large\"\r\n\r\n".to_vec();
        body.extend_from_slice(&large);
        body.extend_from_slice(b"\r\n--x\r\nContent-Disposition: form-data; name=t\r\n\r\ntext\r\n--x\r\nContent-Disposition: form-data; name=g; filename=\"small\"\r\n\r\nsmall\r\n--x");
        body.extend_from_slice(end.as_bytes());
        body
    };
    let kind = "Content-Type: multipart/form-data; boundary=x\r\n";
    let whole = post(kind, &form("--\r\n"));
    assert_eq!(whole.status, 201, "{} {}", whole.text(), server.log("error.log"));
    assert!(whole.text().contains("{\"name\":\"large\",\"size\":6291456"), "{}", whole.text());
    let before = store.keys();
    assert!(before.contains("pre/in/large") && before.contains("pre/in/small"), "{before}");
    // A form that is cut leaves nothing.
    assert_eq!(post(kind, &form("")).status, 400);
    assert_eq!(store.keys(), before);
    sekisho_testkit::eventually("nothing is left", crate::common::LONG, || store.has_no_uploads());
}

fn tus(client: &mut Client, method: &str, target: &str, fields: &str, body: &[u8]) -> Response {
    let fields = format!("Tus-Resumable: 1.0.0\r\n{fields}");
    client.request_with_body(method, target, &fields, body)
}

fn an_upload_is_resumed_by_any_server_and_its_parts_are_parts(mut store: Store) {
    const PIECE: &str = "Content-Type: application/offset+octet-stream\r\n";
    let first = server(&store);
    let second = server(&store);
    let whole = pattern(13 * MIB + 5);
    // `big.bin`
    let fields = format!(
        "Upload-Length: {}\r\nUpload-Metadata: filename YmlnLmJpbg==\r\nContent-Length: 0\r\n",
        whole.len()
    );
    let created =
        first.connect().request("POST", "/up", &format!("Tus-Resumable: 1.0.0\r\n{fields}"));
    assert_eq!(created.status, 201, "{}", first.log("error.log"));
    let target = created.field("location").expect("its address").to_owned();
    let mut offset = 0;
    // Pieces that are smaller than a part, larger than one, and end within one.
    for (server, bytes) in [(&first, MIB), (&second, 7 * MIB), (&first, 3), (&second, 5 * MIB + 2)]
    {
        let piece = &whole[offset..(offset + bytes).min(whole.len())];
        let told = tus(
            &mut server.connect(),
            "PATCH",
            &target,
            &format!("{PIECE}Upload-Offset: {offset}\r\n"),
            piece,
        );
        offset += piece.len();
        assert_eq!(told.status, 204, "at {offset}: {}", server.log("error.log"));
        assert_eq!(told.field("upload-offset"), Some(offset.to_string().as_str()));
        let mut client = first.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\n\r\n"));
        let asked = client.read_head_response();
        assert_eq!(
            (asked.status, asked.field("upload-offset")),
            (200, Some(offset.to_string().as_str()))
        );
    }
    assert_eq!(offset, whole.len());
    let given = first.connect().get("/in/big.bin");
    assert_eq!((given.status, given.body == whole), (200, true));
    let keys = store.keys();
    assert!(!keys.contains(".info"), "{keys}");
    assert_eq!(store.ask("{\"do\": \"uploads\"}"), "[]");
    assert!(!first.connect().get("/in/.sekisho-partial-x").text().contains("upload"));
    // Wrong offsets, too much, and giving up.
    let fields = "Tus-Resumable: 1.0.0\r\nUpload-Length: 4\r\nContent-Length: 0\r\n";
    let created = first.connect().request("POST", "/up", fields);
    let target = created.field("location").expect("its address").to_owned();
    for (offset, body, status) in [(1, &b"x"[..], 409), (0, b"12345", 413), (0, b"12", 204)] {
        let told = tus(
            &mut second.connect(),
            "PATCH",
            &target,
            &format!("{PIECE}Upload-Offset: {offset}\r\n"),
            body,
        );
        assert_eq!(told.status, status, "{offset}: {}", second.log("error.log"));
    }
    assert_eq!(tus(&mut first.connect(), "DELETE", &target, "", b"").status, 204);
    assert_eq!(tus(&mut first.connect(), "DELETE", &target, "", b"").status, 404);
    assert_eq!(store.ask("{\"do\": \"uploads\"}"), "[]");
}

/// The beginning of a part may be longer than any other answer that is read as a whole.
fn an_upload_with_large_parts_is_resumed(mut store: Store) {
    const PIECE: &str = "Content-Type: application/offset+octet-stream\r\n";
    let block = store.block("s", "part_size 16m; abandoned off;");
    let server = store.serve(&format!(
        "{block} server {{ listen 127.0.0.1:{{port}}; root storage:s; client_max_body_size 1g;
             location /up {{ upload_store storage:s/in; upload_resumable on; }} }}"
    ));
    let whole = pattern(20 * MIB + 3);
    // `big.bin`
    let fields = format!(
        "Upload-Length: {}\r\nUpload-Metadata: filename YmlnLmJpbg==\r\nContent-Length: 0\r\n",
        whole.len()
    );
    let created =
        server.connect().request("POST", "/up", &format!("Tus-Resumable: 1.0.0\r\n{fields}"));
    assert_eq!(created.status, 201, "{}", server.log("error.log"));
    let target = created.field("location").expect("its address").to_owned();
    for (offset, end) in [(0, 10 * MIB), (10 * MIB, 11 * MIB), (11 * MIB, whole.len())] {
        let fields = format!("{PIECE}Upload-Offset: {offset}\r\n");
        let told = tus(&mut server.connect(), "PATCH", &target, &fields, &whole[offset..end]);
        assert_eq!(told.status, 204, "at {offset}: {}", server.log("error.log"));
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\n\r\n"));
        let asked = client.read_head_response();
        assert_eq!(
            (asked.status, asked.field("upload-offset")),
            (200, Some(end.to_string().as_str()))
        );
    }
    let given = server.connect().get("/in/big.bin");
    assert_eq!((given.status, given.body == whole), (200, true));
    assert_eq!(store.ask("{\"do\": \"uploads\"}"), "[]");
}

/// The rules of a bucket, or another tool, may remove uploads that are not complete.
#[test]
fn an_upload_that_the_store_has_removed_is_gone() {
    const PIECE: &str = "Content-Type: application/offset+octet-stream\r\n";
    let Some(mut store) = Store::start(Kind::S3) else { return };
    let server = server(&store);
    let begin = || {
        let fields = "Tus-Resumable: 1.0.0\r\nUpload-Length: 20000000\r\nContent-Length: 0\r\n";
        let created = server.connect().request("POST", "/up", fields);
        assert_eq!(created.status, 201, "{}", server.log("error.log"));
        created.field("location").expect("its address").to_owned()
    };
    let told = |method: &str, target: &str, offset: usize, body: &[u8]| {
        let fields = format!("{PIECE}Upload-Offset: {offset}\r\n");
        tus(&mut server.connect(), method, target, &fields, body).status
    };
    let targets = [begin(), begin(), begin(), begin()];
    let piece = pattern(6 * MIB);
    for target in &targets {
        assert_eq!(told("PATCH", target, 0, &piece), 204);
    }
    store.ask("{\"do\": \"abort\"}");
    let mut client = server.connect();
    let asked = &targets[0];
    client.send(format!("HEAD {asked} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\n\r\n"));
    let asked = client.read_head_response();
    assert_eq!((asked.status, asked.field("tus-resumable")), (410, Some("1.0.0")));
    assert_eq!(told("PATCH", &targets[1], piece.len(), b"more"), 410);
    assert_eq!(told("DELETE", &targets[2], 0, b""), 204);
    for target in &targets[..3] {
        assert_eq!(told("PATCH", target, piece.len(), b"more"), 404, "nothing is known of it");
    }
    // Nobody asks for the last one: another server finds it among those that expire.
    let id = targets[3].rsplit('/').next().expect("its id");
    assert!(store.keys().contains(id));
    let other = self::server(&store);
    let fields = "Tus-Resumable: 1.0.0\r\nUpload-Length: 1\r\nContent-Length: 0\r\n";
    assert_eq!(other.connect().request("POST", "/up", fields).status, 201);
    sekisho_testkit::eventually("it is removed", crate::common::LONG, || {
        !store.keys().contains(id)
    });
    assert!(server.log("error.log").contains("404 NoSuchUpload"));
}

fn folders_are_made_copied_and_moved(mut store: Store) {
    let server = server(&store);
    store.put("pre/d/a.txt", "a");
    store.put("pre/d/e/b.txt", "b");
    store.put("pre/guarded/secret/x", "x");
    store.put("pre/guarded/y", "y");
    let to = |target: &str| format!("Destination: {target}\r\n");
    for (method, target, fields, status) in [
        ("MKCOL", "/new/", String::new(), 201),
        ("MKCOL", "/new/", String::new(), 405),
        ("MKCOL", "/d/", String::new(), 405),
        ("MKCOL", "/x", String::new(), 409),
        ("COPY", "/d/a.txt", to("/new/c.txt"), 201),
        ("COPY", "/d/a.txt", to("/new/c.txt"), 204),
        ("COPY", "/d/a.txt", to("/new/c.txt") + "Overwrite: F\r\n", 412),
        ("COPY", "/nothing", to("/z"), 404),
        ("MOVE", "/new/c.txt", to("/moved.txt"), 201),
        ("MOVE", "/d/", to("/f/"), 201),
        ("COPY", "/f/", to("/f/g/"), 403),
        ("COPY", "/guarded/", to("/free/"), 403),
        ("DELETE", "/guarded/", String::new(), 403),
    ] {
        let response = server.connect().request(method, target, &fields);
        assert_eq!(
            response.status,
            status,
            "{method} {target} {fields}: {}",
            server.log("error.log")
        );
    }
    let keys = store.keys();
    let expected = [
        "pre/f/a.txt",
        "pre/f/e/b.txt",
        "pre/guarded/secret/x",
        "pre/guarded/y",
        "pre/moved.txt",
        "pre/new/",
    ];
    let expected: Vec<String> = expected.iter().map(|key| format!("\"{key}\"")).collect();
    assert_eq!(keys, format!("[{}]", expected.join(", ")));
    assert_eq!(server.connect().get("/moved.txt").text(), "a");
}

fn a_folder_is_listed_page_by_page(mut store: Store) {
    let server = server(&store);
    store.put("pre/list/a&b.txt", "12345");
    store.put("pre/list/.hidden", "x");
    store.put("pre/list/sub/x", "x");
    let page = server.connect().get("/list/");
    let text = page.text();
    assert_eq!(page.status, 200, "{}", server.log("error.log"));
    assert!(
        text.contains("a&amp;b.txt") && text.contains("sub/") && !text.contains("href=\".hidden"),
        "{text}"
    );
    let json = server.connect().get("/json/");
    assert!(
        json.text().contains("\"name\":\"a&b.txt\", \"type\":\"file\"")
            && json.text().contains("\"size\":5"),
        "{}",
        json.text()
    );
    store.ask("{\"do\": \"fill\", \"prefix\": \"pre/list/many/\", \"count\": 1100}");
    let first = server.connect().get("/json/many/");
    let link = first.field("link").expect("a further page").to_owned();
    let next = link.trim_start_matches('<').split('>').next().expect("an address").to_owned();
    let second = server.connect().get(&format!("/json/many/{next}"));
    let count = |response: &Response| response.text().matches("\"type\":\"file\"").count();
    assert_eq!((count(&first), count(&second)), (1000, 100));
    assert!(second.field("link").is_none());
    assert!(server.connect().get("/list/many/").text().contains("rel=\"next\""));
}
