//! A fleet: three nodes in network namespaces, `HAProxy` with the PROXY protocol in front, Redis, NATS and an S3 server, under load
//! while parts of it are upgraded, restarted and killed. What is done and what must hold is in `fleet.py`.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../storage/store.rs"]
#[allow(dead_code, reason = "the server itself is started by the script")]
mod store;

use common::{BINARY, LONG};
use sekisho_testkit::{Tree, have, run};

#[test]
fn a_fleet_loses_nothing_while_its_parts_come_and_go() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let needed = ["unshare", "nsenter", "ip", "haproxy", "redis-server", "nats-server", "h2load"];
    if !needed.iter().all(|program| have(program)) {
        return;
    }
    if run("unshare", &["--net", "ip", "link", "add", "b", "type", "bridge"], LONG).code() != 0 {
        println!("skipped: no network namespaces here");
        return;
    }
    let Some(python) = store::python() else { return };
    let tree = Tree::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleet/fleet.py");
    let folder = tree.dir().display().to_string();
    let done = run("unshare", &["--net", &python, script, BINARY, &folder], 8 * LONG);
    println!("{}", done.stdout);
    assert_eq!(done.code(), 0, "{}", done.stderr);
}
