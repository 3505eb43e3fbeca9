//! Memory goes back without a limit, too.

use sekisho_testkit::{Server, Tree, eventually};

use crate::common::{BINARY, LONG, site};
use crate::{many, slow_reader, small};

/// X8: what a peak has left in the heap is the system's again, soon after.
#[test]
fn what_a_peak_has_left_goes_back_without_a_limit() {
    let tree = Tree::new();
    small(&tree);
    many(&tree, 6000);
    let server = Server::start_in(tree, BINARY, &site("autoindex on; send_timeout 10m;"));
    assert_eq!(server.connect().get("/small.txt").status, 200);
    let before = server.rss_bytes();
    let readers: Vec<_> = (0..60).map(|_| slow_reader(&server, "/many/?sort=size", "")).collect();
    let peak = server.rss_bytes();
    assert!(peak > before + (14 << 20), "no peak: {before} to {peak}");
    drop(readers);
    eventually("it goes back", LONG, || server.rss_bytes() < before + (8 << 20));
    println!("{} MiB, {} MiB, {} MiB", before >> 20, peak >> 20, server.rss_bytes() >> 20);
}
