//! Logs that root opens and the server's user goes on with.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use sekisho_testkit::{Server, Signal, eventually, run};

use crate::background_load::{ByPidFile, install};
use crate::common::{BINARY, LONG, site};
use crate::{is_root, open_tree};

const NOBODY: u32 = 65_534;

/// O6, V45: logs of a container are links to its output, which the user could not open again.
#[test]
fn a_log_that_is_a_link_to_our_output_is_reopened_and_taken_over() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    // The folder is the user's, as many packages have it, and the link is root's.
    chown(tree.folder("logs"), Some(NOBODY), Some(NOBODY)).expect("it is theirs");
    symlink("/dev/stdout", tree.path("logs/access.log")).expect("a link");
    tree.file("error.log", "");
    chown(tree.path("error.log"), Some(NOBODY), Some(NOBODY)).expect("it is theirs");
    chown(tree.dir(), Some(NOBODY), Some(NOBODY)).expect("it is theirs");
    let body = "access_log {dir}/logs/access.log;";
    let config = format!("user nobody; pid {{dir}}/pid;\n{}", site(body));
    let server = Server::start_in(tree, &binary.display().to_string(), &config);
    let lines = || server.tree().text("stdout.log").lines().count();
    server.connect().get("/a.txt");
    eventually("the first line", LONG, || lines() == 1);
    server.signal(Signal::USR1);
    eventually("the word", LONG, || server.log("error.log").contains("logs reopened"));
    server.connect().get("/a.txt");
    eventually("the second line", LONG, || lines() == 2);
    let current = ByPidFile::new(server.tree().path("pid"));
    current.upgrade();
    server.connect().get("/a.txt");
    eventually("the third line", LONG, || lines() == 3);
}

/// V45: a folder on the way that the user has replaced by a link does not lead root anywhere.
#[test]
fn root_does_not_start_by_way_of_a_link_of_the_user() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.folder("secret");
    chown(tree.folder("theirs"), Some(NOBODY), Some(NOBODY)).expect("it is theirs");
    symlink(tree.path("secret"), tree.path("theirs/logs")).expect("a link");
    std::os::unix::fs::lchown(tree.path("theirs/logs"), Some(NOBODY), Some(NOBODY))
        .expect("theirs");
    let secret = tree.path("secret/access.log");
    let config = format!("user nobody;\n{}", site("access_log {dir}/theirs/logs/access.log;"));
    let failed = Server::try_start(tree, BINARY, &config, &[]).expect_err("it does not start");
    let said = failed.stderr;
    assert!(said.contains("theirs/logs\" is a link of another user"), "{said}");
    assert!(!secret.exists());
}

/// O6: the log shows the user, the addresses and the time of a start, and the end.
#[test]
fn the_log_has_a_line_for_the_start_and_one_for_the_end() {
    let tree = open_tree();
    let (user, who) = if is_root() { ("user nobody;", "user \"nobody\"") } else { ("", "as ") };
    let body = "listen unix:{dir}/socket;";
    let config = site(body).replace("error.log debug", "error.log notice");
    tree.file("error.log", "");
    let config =
        format!("{user} worker_processes 3;\n{}", config.replace("worker_processes 1;", ""));
    let mut server = Server::start_in(tree, BINARY, &config);
    eventually("the line", LONG, || server.log("error.log").contains(" serves on "));
    let log = server.log("error.log");
    let line = log.lines().find(|line| line.contains(" serves on ")).expect("just seen");
    let dir = server.tree().dir().display().to_string();
    let port = server.address().port();
    for part in [
        "[notice]",
        concat!("sekisho/", env!("CARGO_PKG_VERSION")),
        &format!("127.0.0.1:{port}"),
        &format!("unix:{dir}/socket"),
        who,
        "3 workers",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.contains("sandbox of ") || line.contains("no sandbox"), "{line}");
    server.quit();
    server.wait_exit(LONG);
    let log = server.log("error.log");
    assert!(log.contains("stopped: every session ended normally"), "{log}");
}

/// V45, O12: a server that stays root is reported, with the place in the configuration.
#[test]
fn a_server_that_is_to_be_root_is_warned_of() {
    if !is_root() {
        return;
    }
    let server = Server::start_in(open_tree(), BINARY, &format!("\nuser root;\n{}", site("")));
    let path = server.config_path().display().to_string();
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert_eq!(tested.code(), 0, "{}", tested.stderr);
    for said in [server.stderr(), tested.stderr] {
        assert!(said.contains("the server will run as root") && said.contains(".conf:2"), "{said}");
    }
}
