//! Least privilege (V40, V45): the server's user, what it can still do, where the kernel keeps it, and what
//! its programs may use.
#![forbid(unsafe_code)]

#[path = "../common/authority.rs"]
mod authority;
#[path = "../background_load/mod.rs"]
mod background_load;
#[path = "../common/mod.rs"]
mod common;
mod identity;
mod logs;
mod parent;
mod programs;
mod sandbox;
mod sockets;

use std::fs;

use sekisho_testkit::Tree;

/// What the kernel says of a process, or of one of its threads.
fn status(task: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The threads of a process, as paths below `/proc`, with their names.
fn threads(pid: u32) -> Vec<(String, String)> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&folder).expect("it runs");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ids.map(|id| {
        let task = format!("{pid}/task/{id}");
        let name = status(&task, "Name");
        (task, name)
    })
    .collect()
}

/// A tree that others may look into, too.
fn open_tree() -> Tree {
    let tree = Tree::new();
    for folder in [".", "root"] {
        tree.mode(folder, 0o755);
    }
    tree
}

/// Only root can change its user.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can change its user");
    }
    is_root
}
