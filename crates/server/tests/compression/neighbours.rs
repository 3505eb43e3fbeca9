//! `gzip_static`, `brotli_static`, `zstd_static`, and how all of it compares with nginx.

use std::process::Command;

use sekisho_testkit::{Background, Client, Response, Server, Tree, have, run, wait_for};

use crate::common::{LONG, own_address, serve};
use crate::decode::{decoded, text};
use crate::{ALL, get};

const STATIC: &str = "gzip_static on; brotli_static on; zstd_static on;";

/// `a.css` with all its neighbours; each says in its own words what it is.
fn neighbours() -> Tree {
    let tree = Tree::new();
    tree.file("root/a.css", text(5000));
    tree.file("root/a.css.zst", "zstd, so to speak");
    tree.file("root/a.css.br", "brotli, so to speak");
    tree.file("root/a.css.gz", "gzip, so to speak");
    tree.file("root/b.css", text(5000));
    tree
}

/// F1: precompressed neighbours.
#[test]
fn a_neighbour_is_served_with_the_type_of_its_original() {
    let server = serve(neighbours(), STATIC);
    let plain = server.connect().get("/a.css");
    assert_eq!((plain.field("content-encoding"), &plain.body[..]), (None, &text(5000)[..]));
    assert_eq!(plain.field("vary"), Some("Accept-Encoding"));
    let mut tags = vec![plain.field("etag").expect("a tag").to_owned()];
    for (coding, said) in [
        ("zstd", "zstd, so to speak"),
        ("br", "brotli, so to speak"),
        ("gzip", "gzip, so to speak"),
    ] {
        let response = get(&server, "/a.css", coding);
        assert_eq!((response.status, response.text().as_str()), (200, said));
        assert_eq!(response.field("content-encoding"), Some(coding));
        assert_eq!(response.field("content-type"), Some("text/css"));
        assert_eq!(response.field("vary"), Some("Accept-Encoding"));
        assert_eq!(response.field("accept-ranges"), None);
        assert!(response.field("last-modified").is_some());
        let tag = response.field("etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"'), "its bytes do not change: {tag}");
        let fields = format!("Accept-Encoding: {coding}\r\nIf-None-Match: {tag}\r\n");
        let same = server.connect().request("GET", "/a.css", &fields);
        assert_eq!((same.status, same.field("etag")), (304, Some(tag.as_str())));
        assert_eq!(same.field("vary"), Some("Accept-Encoding"));
        tags.push(tag);
        // As in nginx, a coded file comes as a whole.
        let fields = format!("Accept-Encoding: {coding}\r\nRange: bytes=0-3\r\n");
        let part = server.connect().request("GET", "/a.css", &fields);
        assert_eq!((part.status, part.text().as_str()), (200, said));
        let head =
            server.connect().request("HEAD", "/a.css", &format!("Accept-Encoding: {coding}\r\n"));
        assert_eq!(head.field("content-length"), Some(said.len().to_string().as_str()));
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{tags:?}");
    // Where there is none, nothing depends on the client.
    assert_eq!(get(&server, "/b.css", "gzip").field("vary"), None);
}

#[test]
fn neighbours_of_one_length_and_time_have_tags_of_their_own() {
    let tree = Tree::new();
    for name in ["a.css", "a.css.zst", "a.css.br", "a.css.gz"] {
        let path = tree.file(&format!("root/{name}"), "12345");
        let file = std::fs::File::options().write(true).open(path).expect("it is there");
        file.set_modified(std::time::UNIX_EPOCH).expect("times can be set");
    }
    let server = serve(tree, STATIC);
    let mut tags: Vec<_> = ["identity", "gzip", "br", "zstd"]
        .map(|coding| get(&server, "/a.css", coding).field("etag").expect("a tag").to_owned())
        .into();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{tags:?}");
}

#[test]
fn a_neighbour_comes_before_compressing_and_is_not_compressed_again() {
    let server = serve(neighbours(), &format!("{ALL} gzip_static on;"));
    let response = get(&server, "/a.css", "gzip");
    assert_eq!(response.text(), "gzip, so to speak");
    assert_eq!(response.fields_named("content-encoding"), ["gzip"]);
    assert_eq!(response.fields_named("vary"), ["Accept-Encoding"]);
    let response = get(&server, "/b.css", "gzip");
    assert_eq!(response.field("content-encoding"), Some("gzip"));
    assert_eq!(decoded(&response), text(5000));
}

/// F2, V19: the policy for symbolic links holds for neighbours.
#[test]
fn a_neighbour_obeys_the_policy_for_links() {
    let tree = neighbours();
    // Within the root, or the sandbox would have its say as well.
    tree.file("root/elsewhere/secret", "outside");
    tree.file("root/c.css", "plain");
    tree.link("root/c.css.gz", "elsewhere/secret");
    let server = serve(
        tree,
        "gzip_static on; disable_symlinks on; location /open/ { alias {root}/; disable_symlinks off; }",
    );
    assert_eq!(get(&server, "/c.css", "gzip").text(), "plain");
    assert_eq!(get(&server, "/open/c.css", "gzip").text(), "outside");
    assert_eq!(get(&server, "/a.css", "gzip").text(), "gzip, so to speak");
}

#[test]
fn a_neighbour_that_comes_and_goes_is_seen() {
    let server = serve(neighbours(), "gzip_static on;");
    let tree = server.tree();
    for _ in 0..30 {
        assert_eq!(get(&server, "/b.css", "gzip").field("content-encoding"), None);
    }
    tree.file("root/b.css.gz", "now it is here");
    let is_here = || get(&server, "/b.css", "gzip").text() == "now it is here";
    assert!(wait_for(LONG, is_here));
    std::fs::remove_file(tree.path("root/b.css.gz")).expect("it was there");
    assert!(wait_for(LONG, || !is_here()));
}

#[test]
fn a_missing_neighbour_is_not_what_the_log_complains_about() {
    let server = serve(neighbours(), STATIC);
    assert_eq!(get(&server, "/missing.css", "gzip, br, zstd").status, 404);
    let log = || server.log("error.log");
    assert!(wait_for(LONG, || log().contains("missing.css\" failed")), "{}", log());
    assert!(!log().contains("missing.css."), "{}", log());
}

/// C1, V26: what is a program is never sent as a file, nor is its neighbour.
#[test]
fn a_program_is_run_whatever_lies_beside_it() {
    let tree = neighbours();
    tree.script("root/run.cgi", "#!/bin/sh\nprintf 'X: y\\n\\nit was run'\n");
    tree.file("root/run.cgi.gz", "not for you");
    tree.file("root/gone.cgi.gz", "not for you");
    let server = serve(tree, "gzip_static always; cgi_extension .cgi;");
    assert!(get(&server, "/run.cgi", "gzip").text().contains("it was run"));
    let gone = get(&server, "/gone.cgi", "gzip");
    assert_eq!(gone.status, 404, "{}", gone.text());
}

/// nginx with the same files, where it is installed.
struct Nginx {
    _process: Background,
    address: std::net::SocketAddr,
}

impl Nginx {
    fn start(server: &Server, body: &str) -> Option<Self> {
        if !have("nginx") {
            eprintln!("left out: nginx is not installed");
            return None;
        }
        let address = own_address(8080);
        let dir = server.tree().dir().display();
        let config = format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;\n\
             events {{}} http {{ access_log off; types {{ text/css css; text/plain txt; text/html html; }}\n\
             client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;\n\
             uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;\n\
             server {{ listen {address}; root {dir}/root; {body} }} }}"
        );
        let path = server.tree().file("nginx.conf", config);
        let process = Background::start(
            Command::new("nginx").args(["-e", &format!("{dir}/nginx.log"), "-c"]).arg(path),
        );
        let nginx = Self { _process: process, address };
        let is_up = wait_for(LONG, || std::net::TcpStream::connect(address).is_ok());
        assert!(is_up, "{}", server.log("nginx.log"));
        Some(nginx)
    }
}

/// What a client can rely on, apart from values that differ between servers.
fn essence(response: &Response) -> Vec<String> {
    let tag = response.field("etag").map(|tag| tag.starts_with("W/"));
    let mut lines = vec![format!("{} weak {tag:?}", response.status)];
    for name in ["content-encoding", "content-type", "vary", "last-modified", "accept-ranges"] {
        lines.push(format!("{name}: {:?}", response.field(name)));
    }
    lines
}

/// F1: the heads are those of nginx.
#[test]
fn heads_are_like_those_of_nginx() {
    let tree = Tree::new();
    for name in ["a.css", "b.css", "b.html", "b.txt"] {
        tree.file(&format!("root/{name}"), text(50_000));
    }
    tree.file("root/a.css.gz", "gzip, so to speak");
    tree.file("root/alone.css.gz", "gzip, so to speak");
    tree.file("root/short.css", "short");
    tree.file("root/empty.css", "");
    let body = "gzip on; gzip_vary on; gzip_static on; gzip_types text/css;";
    let server = serve(tree, body);
    let Some(nginx) = Nginx::start(&server, body) else { return };
    let targets = [
        "/a.css",
        "/b.css",
        "/b.html",
        "/b.txt",
        "/alone.css",
        "/short.css",
        "/empty.css",
        "/missing",
    ];
    let asks = [
        "gzip",
        "gzip;q=0",
        "gzip;q=0.5",
        "br",
        "identity",
        "",
        "GZIP",
        "gzip;q=3",
        "identity;q=0, gzip",
    ];
    for target in targets {
        for accept in asks {
            for more in ["", "Via: 1.1 x\r\n", "If-Match: \"no\"\r\n"] {
                let fields = format!("Accept-Encoding: {accept}\r\n{more}");
                let ask = |mut client: Client| client.request("GET", target, &fields);
                let (ours, theirs) = (ask(server.connect()), ask(Client::connect(nginx.address)));
                let mut expected = essence(&theirs);
                let mut seen = essence(&ours);
                if ours.status >= 400 {
                    // Error pages are our own, and name their charset.
                    expected.truncate(1);
                    seen.truncate(1);
                }
                assert_eq!(seen, expected, "{target} {fields:?}");
                let is_text = target.starts_with("/b") || !theirs.body.starts_with(b"gzip,");
                if ours.status == 200 && is_text {
                    assert!(decoded(&ours) == decoded(&theirs), "{target} {fields:?}");
                }
            }
        }
    }
}

#[test]
fn real_tools_make_neighbours_that_real_clients_read() {
    let tree = Tree::new();
    let path = tree.file("root/a.css", text(100_000));
    let path = path.to_string_lossy();
    for (tool, arguments) in [("gzip", ["-k", "-9"]), ("zstd", ["-q", "-19"])] {
        if !have(tool) {
            eprintln!("left out: {tool} is not installed");
            continue;
        }
        let done = run(tool, &[arguments[0], arguments[1], &path], LONG);
        assert_eq!(done.code(), 0, "{}", done.stderr);
    }
    let server = serve(tree, STATIC);
    for coding in ["gzip", "zstd", "br"] {
        assert!(decoded(&get(&server, "/a.css", coding)) == text(100_000), "{coding}");
    }
}
