//! Listings over real sockets: the page, nginx's other forms, odd names, large folders (F4).
#![forbid(unsafe_code)]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{LONG, serve};
use sekisho_testkit::{Background, Framing, Server, Stopwatch, Tree, eventually, have};

/// The targets of all links in the body of a page's table, in their order.
fn links(page: &str) -> Vec<&str> {
    let table = page.split("<tbody>").nth(1).expect("a table");
    let table = table.split("</tbody>").next().expect("its end");
    table.split("href=\"").skip(1).map(|rest| rest.split('"').next().expect("a quote")).collect()
}

fn set_age(path: &std::path::Path, secs: u64) {
    let file = File::open(path).expect("a file");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).expect("a time");
}

/// F4: sorted by name, size and time, folders first, by links that need no script.
#[test]
fn the_links_of_the_page_sort_it() {
    let tree = Tree::new();
    for (name, size, secs) in
        [("file10", 3, 1_000_000), ("file2", 30, 3_000_000), ("File1", 300, 2_000_000)]
    {
        set_age(&tree.file(&format!("root/d/{name}"), "x".repeat(size)), secs);
    }
    tree.folder("root/d/z2");
    tree.folder("root/d/z10");
    let server = serve(tree, "location /d/ { autoindex on; autoindex_exact_size off; }");
    let mut client = server.connect();
    let (up, folders) = ("../", ["z2/", "z10/"]);
    for (query, files) in [
        ("", ["File1", "file2", "file10"]),
        ("?sort=name&order=asc", ["File1", "file2", "file10"]),
        ("?sort=name&order=desc", ["file10", "file2", "File1"]),
        ("?sort=size&order=asc", ["file10", "file2", "File1"]),
        ("?sort=size&order=desc", ["File1", "file2", "file10"]),
        ("?sort=time", ["file10", "File1", "file2"]),
        ("?sort=time&order=desc", ["file2", "File1", "file10"]),
        ("?sort=nonsense&order=x", ["File1", "file2", "file10"]),
    ] {
        let response = client.get(&format!("/d/{query}"));
        let page = response.text();
        let mut found = links(&page);
        assert_eq!(found.remove(0), up, "{query}");
        let mut first: Vec<&str> = found.drain(..2).collect();
        first.sort_unstable();
        assert_eq!(first, [folders[1], folders[0]], "{query}");
        assert_eq!(found, files, "{query}");
    }
    let page = client.get("/d/").text();
    assert_eq!(links(&page)[1..3], folders);
    for part in [
        "<td title=\"30 bytes\">30<td><time datetime=\"1970-02-04T17:20:00Z\">1970-02-04 17:20</time>",
        "2 folders, 3 files",
        "aria-sort=\"ascending\"><a href=\"?sort=name&amp;order=desc\">Name</a>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// V48: the page satisfies its own policy, which lets nothing else in.
#[test]
fn the_policy_of_the_page_is_strict() {
    let tree = Tree::new();
    tree.file("root/<img src=x onerror=alert(1)>.txt", "x");
    tree.file("root/README.md", "# Hi\n<script>alert(1)</script>\n");
    let server = serve(tree, "location / { autoindex on; }");
    let response = server.connect().get("/");
    let policy = response.field("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    let page = response.text();
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    let body = page.split("</head>").nth(1).expect("a body");
    let marked = body.split('<').skip(1).map(|tag| tag.split('>').next().unwrap_or_default());
    for tag in marked {
        assert!(!tag.contains("style=") && !tag.contains(" on"), "<{tag}>");
    }
    assert!(!body.contains("<img"), "{body}");
    assert!(page.contains("<h3>Hi</h3>\n<p>&lt;script&gt;"), "{page}");
}

/// F4: whatever a name is made of, its link leads to its file.
#[test]
fn every_name_in_a_listing_can_be_fetched_by_its_link() {
    let tree = Tree::new();
    tree.folder("root/names");
    let folder = tree.path("root/names");
    let make = |name: &[u8]| {
        if fs::write(folder.join(OsStr::from_bytes(name)), name).is_err() {
            println!("not a name here: {}", name.escape_ascii());
        }
    };
    for byte in 1..=255_u8 {
        if byte != b'/' {
            make(&[b'n', byte, b'm']);
            make(&[b'n', byte]);
            make(&[byte]);
        }
    }
    for name in [
        "a:b",
        "%41",
        "%2e%2e",
        "a?b=c#d",
        "..a",
        "a&amp;b",
        "&lt;",
        "&copy=1",
        "c:\\d",
        "a b ",
        "+",
        "http:x",
        "javascript:alert(1)",
        "-",
        "~",
        "ü",
        "日本",
        "\u{202e}x",
        "a;b",
        "'\"",
        "con.",
    ] {
        make(name.as_bytes());
    }
    make(b"\xff\xfe\x80");
    make(&[b'x'; 255]);
    let listed = |name: &[u8]| !name.starts_with(b".") && !name.iter().any(u8::is_ascii_control);
    let expected = fs::read_dir(&folder)
        .expect("a folder")
        .filter(|entry| listed(entry.as_ref().expect("an entry").file_name().as_bytes()))
        .count();
    let server = serve(tree, "keepalive_requests 100000; location / { autoindex on; }");
    let mut client = server.connect();
    let page = client.get("/names/").text();
    let links = links(&page);
    assert_eq!(links.len() - 1, expected);
    for link in &links[1..] {
        // As a browser does: the attribute's references, then the path; a link has no query of its own.
        assert!(!link.contains('&') && !link.contains('?') && !link.contains('#'), "{link}");
        // A colon or a slash in front would make an address of another kind of it.
        let is_relative = link.starts_with("./") || !link.contains(':') && !link.starts_with('/');
        assert!(is_relative, "{link}");
        let name = link.strip_prefix("./").unwrap_or(link);
        let response = client.get(&format!("/names/{name}"));
        assert_eq!(response.status, 200, "{link}");
        let given = response.body.escape_ascii();
        assert_eq!(percent_decoded(name), response.body, "{link} gave {given}");
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
        let digits = std::str::from_utf8(&digits).expect("digits");
        out.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
    }
    out
}

/// A peer to compare with; killed and waited for, by its id, when dropped.
fn nginx(server: &Server, locations: &str) -> Background {
    let dir = server.tree().dir().display().to_string();
    let address = server.address_of(1);
    let config = format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.err;\n\
         events {{}}\nhttp {{ access_log off; client_body_temp_path {dir}/t1; proxy_temp_path \
         {dir}/t2; fastcgi_temp_path {dir}/t3; uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;\n\
         server {{ listen {address}; root {dir}/root;\n{locations}\n}} }}\n"
    );
    let path = server.tree().file("nginx.conf", config);
    let nginx = Background::start(
        Command::new("nginx")
            .args(["-c", &path.display().to_string(), "-e", &format!("{dir}/nginx.err")])
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .stderr(Stdio::null()),
    );
    eventually("nginx listens", LONG, || std::net::TcpStream::connect(address).is_ok());
    nginx
}

/// F4: XML, JSON and JSONP are nginx's to the byte, but for names that make those invalid.
#[test]
fn the_other_forms_are_what_nginx_writes() {
    if !have("nginx") {
        return;
    }
    let tree = Tree::new();
    tree.folder("root/d/empty");
    tree.folder("root/d/a <dir>");
    for name in
        ["B", "a", "file10", "file2", "x&<>\"'y.txt", "ü.txt", "back\\slash", "Ünicode \u{1f600}"]
    {
        tree.file(&format!("root/d/{name}"), name);
    }
    fs::write(tree.path("root/d").join(OsStr::from_bytes(b"bad\xff\xc3")), "x").expect("a file");
    set_age(&tree.file("root/d/old", "old"), 0);
    tree.file("root/d/.hidden", "x");
    tree.link("root/d/link", "empty");
    let locations = "location / { autoindex on; autoindex_format json; }
         location /json/ { alias {root}/; autoindex on; autoindex_format json; }
         location /jsonp/ { alias {root}/; autoindex on; autoindex_format jsonp; }
         location /xml/ { alias {root}/; autoindex on; autoindex_format xml;
             autoindex_localtime on; autoindex_exact_size off; }";
    let server = serve(tree, locations);
    let root = server.tree().root().display().to_string();
    let _nginx = nginx(&server, &locations.replace("{root}", &root));
    let (mut ours, mut theirs) =
        (server.connect(), sekisho_testkit::Client::connect(server.address_of(1)));
    for target in [
        "/d/",
        "/json/d/",
        "/json/d/empty/",
        "/jsonp/d/",
        "/jsonp/d/?callback=a.b_C9",
        "/jsonp/d/empty/?x=y&callback=f",
        "/jsonp/d/?callback=",
        "/xml/d/",
        "/xml/d/empty/",
    ] {
        let (ours, theirs) = (ours.get(target), theirs.get(target));
        assert_eq!(ours.status, theirs.status, "{target}");
        assert_eq!(ours.field("content-type"), theirs.field("content-type"), "{target}");
        assert_eq!(ours.text(), theirs.text(), "{target}");
        // Names that are no UTF-8 have replacement marks: nginx's documents are invalid there.
        assert_eq!(ours.body, theirs.text().into_bytes(), "{target}");
    }
    for callback in ["a-b", "alert(1)", "%61", &"a".repeat(129)] {
        let target = format!("/jsonp/d/?callback={callback}");
        assert_eq!(ours.get(&target).status, 400, "{target}");
        assert_eq!(
            sekisho_testkit::Client::connect(server.address_of(1)).get(&target).status,
            400,
            "{target}"
        );
    }
}

/// F4: JSON by `Accept`.
#[test]
fn whoever_accepts_only_json_gets_json() {
    let tree = Tree::new();
    tree.file("root/d/a.txt", "x");
    let server = serve(tree, "location /d/ { autoindex on; }");
    let mut client = server.connect();
    let json = client.request("GET", "/d/", "Accept: application/json\r\n");
    assert_eq!(json.field("content-type"), Some("application/json"));
    assert_eq!(json.field("vary"), Some("Accept"));
    assert!(json.text().starts_with("[\r\n{ \"name\":\"a.txt\", \"type\":\"file\""), "{json:?}");
    let page = client.request("GET", "/d/", "Accept: text/html,*/*;q=0.8\r\n");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.field("vary"), Some("Accept"));
    let head = client.request("HEAD", "/d/", "");
    assert_eq!(head.field("content-length"), page.field("content-length"));
}

/// F4: bounded memory, and others are served meanwhile.
#[test]
fn a_hundred_thousand_entries_stream_in_bounded_memory() {
    const COUNT: usize = 100_000;
    let tree = Tree::new();
    tree.folder("root/many");
    tree.file("root/small.txt", "small");
    for number in 0..COUNT {
        fs::write(tree.path(&format!("root/many/entry-{number}.txt")), "").expect("a file");
    }
    let server = serve(tree, "location / { autoindex on; }");
    assert_eq!(server.connect().get("/small.txt").text(), "small");
    let before = server.rss_bytes();
    let mut client = server.connect().with_patience(LONG);
    let watch = Stopwatch::start();
    client.send("GET /many/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_bytes(1024);
    let first = watch.elapsed();
    // The client does not read the rest for now: the list must not pile up in memory, and others go on.
    let mut other = server.connect();
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let watch = Stopwatch::start();
        assert_eq!(other.get("/small.txt").text(), "small");
        slowest = slowest.max(watch.elapsed());
    }
    let during = server.rss_bytes();
    println!("first bytes {first:?}, slowest other {slowest:?}, memory {before} to {during}");
    assert!(during < before + (40 << 20), "from {before} to {during}");
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    drop(client);
    let mut client = server.connect().with_patience(LONG);
    let response = client.get("/many/");
    assert_eq!(response.framing, Framing::Chunked);
    let page = response.text();
    let links = links(&page);
    assert_eq!(links.len(), COUNT + 1);
    assert_eq!(links[1], "entry-0.txt");
    assert_eq!(links[COUNT], "entry-99999.txt");
    assert!(page.ends_with("100000 files</p>\n</main></body></html>\n"));
    // The same connection goes on.
    assert_eq!(client.get("/small.txt").text(), "small");
    assert_eq!(client.request("HEAD", "/many/", "").status, 200);
    assert_eq!(client.get("/small.txt").text(), "small");
    let json = client.request("GET", "/many/?sort=size", "Accept: application/json\r\n").text();
    assert_eq!(json.matches("\"type\":\"file\"").count(), COUNT);
    // HTTP/1.0 knows no chunks: the end of the connection is the end.
    let mut old = server.connect().with_patience(LONG);
    old.send("GET /many/ HTTP/1.0\r\n\r\n");
    assert!(old.read_to_close().ends_with(b"</html>\n"));
}

/// F4: a person sees the truth, however often the listing is asked for.
#[test]
fn a_change_is_seen_at_once_under_load() {
    let tree = Tree::new();
    let old = tree.file("root/d/old.txt", "x");
    set_age(&old, 1_000_000);
    let folder = tree.path("root/d");
    set_age(&folder, 1_000_000);
    let server = serve(tree, "keepalive_requests 100000; location /d/ { autoindex on; }");
    let mut client = server.connect();
    for round in 0..3 {
        // Long enough that the folder has not changed lately and the listing is kept.
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_millis(2500) {
            assert!(client.get("/d/").text().contains("old.txt"));
        }
        let name = format!("new-{round}.txt");
        server.tree().file(&format!("root/d/{name}"), "x");
        assert!(client.get("/d/").text().contains(&name), "{name}");
        fs::remove_file(server.tree().path(&format!("root/d/{name}"))).expect("removed");
        assert!(!client.get("/d/").text().contains(&name), "{name}");
    }
}

/// F4: the README of a folder is shown, but never one that another location guards.
#[test]
fn a_readme_is_shown_where_it_can_be_fetched() {
    let tree = Tree::new();
    for folder in ["open", "off", "guarded", "linked", "run"] {
        tree.file(&format!("root/{folder}/README.md"), "Some **words**");
        tree.file(&format!("root/{folder}/README.txt"), "other words");
    }
    tree.file("root/plain/readme.txt", "<b>plain</b>");
    tree.file("root/big/README", "x".repeat(200_000));
    fs::remove_file(tree.path("root/linked/README.md")).expect("removed");
    fs::remove_file(tree.path("root/linked/README.txt")).expect("removed");
    tree.file("secret", "the secret");
    tree.link("root/linked/README.md", "../../secret");
    let server = serve(
        tree,
        "autoindex on;
         location /off/ { autoindex_readme off; }
         location ~ ^/guarded/.*\\.md$ { return 403; }
         location /linked/ { disable_symlinks on; }
         location /run/ { cgi_extension .md; }",
    );
    let mut client = server.connect();
    let mut page = |target: &str| client.get(target).text();
    assert!(page("/open/").contains("<p>Some <strong>words</strong></p>"));
    assert!(page("/plain/").contains("<pre>&lt;b&gt;plain&lt;/b&gt;</pre>"));
    for closed in ["/off/", "/guarded/", "/linked/", "/run/"] {
        let page = page(closed);
        assert!(!page.contains("<article") && !page.contains("secret"), "{closed}: {page}");
    }
    assert!(page("/big/").len() < 100_000);
}

/// F4: names are searched in all folders below, by the rules of listings and archives.
#[test]
fn names_are_searched_below_a_folder() {
    let tree = Tree::new();
    for name in [
        "pub/Report one.txt",
        "pub/deep/er/my REPORT ü.pdf",
        "pub/reports/other.txt",
        "pub/.report",
        "pub/report.secret",
        "guarded/report.txt",
        "off/report.txt",
        "run/report.sh",
    ] {
        tree.file(&format!("root/{name}"), "x");
    }
    tree.link("root/pub/loop-report", ".");
    for number in 0..1100 {
        tree.file(&format!("root/many/{}/file{number}", number % 7), "");
    }
    let server = serve(
        tree,
        "autoindex on; autoindex_search on;
         location ~ \\.secret$ { return 403; }
         location /guarded/ { deny all; }
         location /off/ { autoindex_search off; }
         location /run/ { cgi_extension .sh; }",
    );
    let mut client = server.connect();
    let mut names = |target: &str| -> Vec<String> {
        let answer = client.request("GET", target, "Accept: application/json\r\n");
        assert_eq!(answer.status, 200, "{target}");
        let list: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let rows = list.as_array().expect("a list").iter();
        rows.map(|row| row["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let below = ["Report one.txt", "deep/er/my REPORT ü.pdf", "reports"];
    assert_eq!(names("/pub/?search=report"), below);
    assert_eq!(names("/pub/?search=%C3%9C+rep"), ["deep/er/my REPORT ü.pdf"]);
    assert_eq!(names("/pub/?search=nothing+like+it"), Vec::<String>::new());
    let all = ["pub/Report one.txt", "pub/deep/er/my REPORT ü.pdf", "pub/reports"];
    assert_eq!(names("/?search=report"), all);
    assert_eq!(names("/many/?search=file").len(), 1000);
    // Where it is off, or programs run, it is a plain listing.
    assert_eq!(names("/off/?search=nothing"), ["report.txt"]);
    assert_eq!(names("/run/?search=nothing"), ["report.sh"]);
    let page = server.connect().get("/pub/?search=report&sort=size").text();
    assert!(page.contains("href=\"deep/er/my%20REPORT%20%C3%BC.pdf\""), "{page}");
    assert!(page.contains("href=\"reports/\"") && page.contains("1 folder, 2 files"));
    let page = server.connect().get("/many/?search=file").text();
    assert!(page.contains("there may be more"));
    assert_eq!(server.connect().request("HEAD", "/pub/?search=report", "").status, 200);
}

/// F4: one odd name does not make the whole document invalid.
#[test]
fn a_name_that_is_not_utf8_leaves_json_valid_and_its_link_whole() {
    let tree = Tree::new();
    let folder = tree.folder("root/d");
    fs::write(folder.join(OsStr::from_bytes(b"a\xff\"b.txt")), "odd").expect("written");
    tree.file("root/d/c.txt", "plain");
    let server = serve(tree, "location /d/ { autoindex on; }");
    let mut client = server.connect();
    let json = client.request("GET", "/d/", "Accept: application/json\r\n");
    let listed: serde_json::Value = serde_json::from_slice(&json.body).expect("valid JSON");
    assert_eq!(listed[0]["name"], "a\u{fffd}\"b.txt");
    assert_eq!(listed[1]["name"], "c.txt");
    let page = client.get("/d/").text();
    assert!(page.contains("href=\"a%FF%22b.txt\""), "{page}");
    assert_eq!(client.get("/d/a%FF%22b.txt").text(), "odd");
}

/// F4: a browser that asks for an icon finds it in the page, and nothing about it in the log.
#[test]
fn the_page_brings_its_icon() {
    let tree = Tree::new();
    tree.folder("root/d");
    let server = serve(tree, "location /d/ { autoindex on; }");
    let page = server.connect().get("/d/").text();
    assert!(page.contains("<link rel=\"icon\" href=\"data:image/svg+xml,"), "{page}");
}
