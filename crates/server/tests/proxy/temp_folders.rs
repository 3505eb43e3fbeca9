//! The folders of temporary files: `client_body_temp_path`, `proxy_temp_path`, `fastcgi_temp_path` and their defaults.

use std::path::{Path, PathBuf};

use sekisho_testkit::{Client, Server, Tree, eventually, run};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, Process, pattern, serve};
use crate::gateways::record;

const BODY_BYTES: usize = 8 << 20;

/// The folders in which a process has files without a name.
fn unnamed(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let deleted = links.filter(|link| link.to_string_lossy().ends_with("(deleted)"));
    deleted.filter_map(|link| link.parent().map(Path::to_owned)).collect()
}

/// Answers HTTP and FastCGI with a large body.
fn backends() -> (Backend, Backend) {
    let http = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "", pattern(BODY_BYTES));
        }
    });
    let fastcgi = Backend::start(|connection| {
        if connection.more().is_some() {
            connection.send(record(6, b"Content-Type: text/plain\r\n\r\n"));
            for piece in pattern(BODY_BYTES).chunks(60_000) {
                connection.send(record(6, piece));
            }
            connection.send(record(6, b""));
            connection.send(record(3, &[0; 8]));
        }
        connection.wait_for_end();
    });
    (http, fastcgi)
}

/// A client that reads nothing for now.
fn slow(server: &Server, target: &str) -> Client {
    let mut client = server.connect().with_patience(LONG);
    client.shrink_receive_buffer(16 << 10);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// Each kind of temporary file is in the folder of its directive, which is made at the start.
#[test]
fn temporary_files_are_in_their_folders() {
    let (http, fastcgi) = backends();
    let server = serve(
        Tree::new(),
        &format!(
            "client_max_body_size 0; proxy_temp_path {{dir}}/t/proxy 1 2; fastcgi_temp_path {{dir}}/t/fastcgi;
             location /p {{ proxy_pass http://{}; }} location /f {{ fastcgi_pass {}; }}",
            http.address(),
            fastcgi.address()
        ),
    );
    for (target, name) in [("/p", "proxy"), ("/f", "fastcgi")] {
        let folder = server.tree().path(&format!("t/{name}"));
        assert!(folder.is_dir());
        let mut client = slow(&server, target);
        eventually("it is in its folder", LONG, || unnamed(server.worker()).contains(&folder));
        assert!(client.read_response().body == pattern(BODY_BYTES));
    }
}

/// A folder that cannot be made is reported at the start; requests that need it fail or go on in memory.
#[test]
fn a_folder_that_cannot_be_made_is_reported() {
    let (http, _) = backends();
    let tree = Tree::new();
    tree.file("file", "x");
    let server = serve(
        tree,
        &format!(
            "client_max_body_size 0; proxy_temp_path {{dir}}/file/p; client_body_temp_path {{dir}}/file/b;
             location / {{ proxy_pass http://{}; }}",
            http.address()
        ),
    );
    let log = server.log("error.log");
    assert!(log.contains("cannot make the folder for temporary files"), "{log}");
    let config = server.config_path().display().to_string();
    let tested = run(BINARY, &["-t", "-c", &config], LONG);
    assert_eq!(tested.stderr.matches("cannot be made").count(), 2, "{}", tested.stderr);
    assert!(slow(&server, "/").read_response().body == pattern(BODY_BYTES));
    let body = pattern(1 << 20);
    let mut client = server.connect().with_patience(LONG);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    let _ = client.try_send(&body);
    assert_eq!(client.read_response().status, 500);
}

/// With `-p` nginx's folders are made in the prefix; without it they are used where they exist.
#[test]
fn default_folders_are_in_the_prefix() {
    let (http, _) = backends();
    for has_prefix in [true, false] {
        let tree = Tree::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        tree.file(
            "nginx.conf",
            format!(
                "error_log stderr debug; events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{port};
                 location / {{ proxy_pass http://{}; }} }} }}",
                http.address()
            ),
        );
        if !has_prefix {
            tree.folder("proxy_temp");
        }
        let (dir, config) = (tree.path(""), tree.path("nginx.conf"));
        let (dir, config) = (dir.display().to_string(), config.display().to_string());
        let prefix: &[&str] = if has_prefix { &["-p", &dir] } else { &[] };
        let process = Process::start(tree, &[prefix, &["-c", &config]].concat());
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        eventually("it listens", LONG, || std::net::TcpStream::connect(address).is_ok());
        let tree = process.tree();
        let mut client = Client::connect(address).with_patience(LONG);
        client.shrink_receive_buffer(16 << 10);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let folder = tree.path("proxy_temp");
        eventually("it is in its folder", LONG, || unnamed(process.id()).contains(&folder));
        assert!(client.read_response().body == pattern(BODY_BYTES));
        assert_eq!(tree.exists("client_body_temp"), has_prefix, "made with a prefix alone");
        assert!(!tree.exists("fastcgi_temp"), "no location needs it");
        let tested = run(BINARY, &[prefix, &["-t", "-c", &config]].concat(), LONG);
        assert!(tested.status.success(), "{}", tested.stderr);
    }
}
