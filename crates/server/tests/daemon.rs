//! `daemon on`, and the program called as `nginx` (O11).
#![forbid(unsafe_code)]

#[path = "background_load/mod.rs"]
mod background_load;
mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use background_load::{ByPidFile, is_over};
use common::{BINARY, LONG, own_address};
use sekisho_testkit::{Client, Signal, Tree, as_root, eventually, run};

/// A link to the binary by nginx's name.
fn nginx(tree: &Tree) -> String {
    let link = tree.path("nginx");
    symlink(BINARY, &link).expect("a link");
    link.display().to_string()
}

fn config(tree: &Tree, main: &str, body: &str) -> String {
    let dir = tree.dir().display();
    let text = format!(
        "{main} pid {dir}/pid; worker_processes 1; error_log {dir}/error.log notice; events {{}}\n\
         http {{ access_log off; server {{ root {dir}/root; {body} }} }}\n"
    );
    tree.file("x.conf", text).display().to_string()
}

/// Runs a command that may leave a server behind: its output must not be waited for.
fn start(binary: &str, tree: &Tree, arguments: &[&str]) -> (i32, String) {
    let stderr = fs::File::create(tree.path("stderr")).expect("a file");
    let status = Command::new(binary)
        .args(arguments)
        .args(as_root(&tree.text("x.conf"), arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .status();
    (status.expect("it runs").code().unwrap_or(-1), tree.text("stderr"))
}

/// O11: the command ends with status 0 when the server serves, with and without a parent; and as `nginx` by itself.
#[test]
fn a_daemon_serves_when_the_command_has_ended() {
    let is_root = rustix::process::geteuid().is_root();
    for (at, (name, main)) in [
        ("sekisho", "daemon on;"),
        ("nginx", ""),
        ("sekisho", "daemon on; user nobody;"),
        ("nginx", "user nobody;"),
        ("sekisho", "daemon on; master_process on;"),
    ]
    .into_iter()
    .enumerate()
    {
        if main.contains("user") && !is_root {
            println!("skipped: only root can change its user");
            continue;
        }
        let tree = Tree::new();
        tree.file("root/a.txt", "hello");
        tree.mode(".", 0o755);
        tree.mode("root", 0o755);
        let binary = if name == "nginx" { nginx(&tree) } else { BINARY.to_owned() };
        let address = own_address(8100 + at as u16);
        let path = config(&tree, main, &format!("listen {address};"));
        let (code, said) = start(&binary, &tree, &["-c", &path]);
        assert_eq!(code, 0, "{name} {main}: {said}");
        // At once: that is what the status says.
        assert_eq!(Client::connect(address).get("/a.txt").text(), "hello", "{name} {main}");
        let current = ByPidFile::new(tree.path("pid"));
        let pid = current.pid().expect("the pid file is there");
        let session = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let session = session.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
        assert_eq!(session, Some(pid.to_string().as_str()), "it has a session of its own");
        assert_eq!(start(&binary, &tree, &["-s", "reload", "-c", &path]).0, 0);
        assert_eq!(Client::connect(address).get("/a.txt").text(), "hello");
        current.signal(Signal::QUIT);
        eventually("its end", LONG, || is_over(pid));
        assert!(!tree.exists("pid"), "{name} {main}");
    }
}

/// O11: a server that cannot start is an error of the command.
#[test]
fn a_daemon_that_cannot_start_is_an_error_of_the_command() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|at| (at, taken)).expect("an address");
    for (body, expected) in [
        ("no_such_directive;".to_owned(), "no_such_directive"),
        (format!("listen {};", taken.0), "in use by another program"),
        ("ssl_certificate /none.pem; listen 127.0.0.1:1 ssl;".to_owned(), "none.pem"),
    ] {
        let tree = Tree::new();
        let path = config(&tree, "daemon on;", &body);
        let (code, said) = start(BINARY, &tree, &["-c", &path]);
        assert_eq!(code, 1, "{body}: {said}");
        assert!(said.contains(expected), "{body}: {said}");
        assert!(!tree.exists("pid"));
    }
}

/// O11: what certbot, init scripts and facts of machines look for.
#[test]
fn called_as_nginx_it_has_the_texts_and_paths_of_nginx() {
    let tree = Tree::new();
    let nginx = nginx(&tree);
    let version = run(&nginx, &["-v"], LONG);
    assert_eq!((version.code(), version.stdout.as_str()), (0, ""));
    let first = format!("nginx version: nginx/1.31.5 (Sekisho {})\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version.stderr, first);
    let build = run(&nginx, &["-V"], LONG);
    assert!(build.stderr.starts_with(&first), "{}", build.stderr);
    for line in
        ["TLS SNI support enabled\n", "configure arguments: --conf-path=/etc/nginx/nginx.conf"]
    {
        assert!(build.stderr.contains(line), "{}", build.stderr);
    }
    let path = config(&tree, "", "listen 127.0.0.1:1;");
    let tested = run(&nginx, &["-t", "-c", &path], LONG);
    let expected = format!("nginx: the configuration file {path} syntax is ok\n");
    assert!(tested.stderr.contains(&expected), "{}", tested.stderr);
    if !Path::new("/etc/nginx/nginx.conf").exists() {
        let tested = run(&nginx, &["-t"], LONG);
        assert_eq!(tested.code(), 1);
        assert!(tested.stderr.contains("/etc/nginx/nginx.conf"), "{}", tested.stderr);
    }
    // By its own name nothing has changed.
    assert!(run(BINARY, &["-v"], LONG).stdout.starts_with("sekisho version: "));
}
