//! Logs that root opens and the server's user goes on with.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use sekisho_testkit::{Server, Signal, eventually};

use crate::common::{BINARY, LONG, site};
use crate::steering::{ByPidFile, install};
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
