//! Who the server is, and what it has given up.

use std::path::Path;

use sekisho_testkit::{Client, Server, Signal, eventually, run};

use crate::common::{BINARY, LONG, own_address, site};
use crate::steering::{ByPidFile, install};
use crate::{is_root, open_tree, status, threads};

const NOTHING: &str = "0000000000000000";
/// The right to listen on ports below 1024, alone.
const BIND: &str = "0000000000000400";
const SETS: [&str; 4] = ["CapEff", "CapPrm", "CapInh", "CapAmb"];

/// O8, V45: every thread, and not only the first one.
#[test]
fn a_server_of_root_becomes_somebody_with_no_rights_at_all() {
    if !is_root() {
        return;
    }
    for user in ["user nobody nogroup;", "user nobody;", ""] {
        let tree = open_tree();
        tree.file("root/a.txt", "hello");
        // Named where the testkit looks for it, so that it adds nothing of its own.
        let config = format!("{user}\n{}", site(""));
        let server =
            Server::try_start(tree, BINARY, &config, &["-g", "worker_shutdown_timeout 5s;"]);
        let server = server.expect("it starts");
        assert_eq!(server.connect().get("/a.txt").text(), "hello", "{user}");
        let threads = threads(server.id());
        assert!(threads.len() >= 3, "{threads:?}");
        for (task, name) in threads {
            assert_eq!(status(&task, "Uid"), "65534 65534 65534 65534", "{name} {user}");
            assert_eq!(status(&task, "Gid"), "65534 65534 65534 65534", "{name} {user}");
            assert_eq!(status(&task, "Groups"), "65534", "{name} {user}");
            for set in SETS.iter().chain(&["CapBnd"]) {
                assert_eq!(status(&task, set), NOTHING, "{name} {set} {user}");
            }
            assert_eq!(status(&task, "NoNewPrivs"), "1", "{name} {user}");
        }
    }
}

/// O8, V45: only whoever opens sockets can listen on a small port, now and at the next reload.
#[test]
fn a_small_port_is_the_one_right_that_is_kept_and_only_where_it_is_needed() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    // What is opened again, at a reload and by the next binary, is opened as nobody.
    tree.file("error.log", "");
    tree.mode("error.log", 0o666);
    tree.mode(".", 0o777);
    let (first, second) = (own_address(81), own_address(82));
    let config = |listens: &str| {
        let text = site("").replace("listen", &format!("{listens} listen"));
        format!("user nobody; pid {{dir}}/pid;\n{text}")
    };
    let server =
        Server::start_in(tree, &binary.display().to_string(), &config(&format!("listen {first};")));
    assert_eq!(Client::connect(first).get("/a.txt").text(), "hello");
    let check = |pid: u32| {
        for set in SETS {
            assert_eq!(status(&format!("{pid}"), set), BIND, "{set}");
        }
        let workers: Vec<_> =
            threads(pid).into_iter().filter(|(_, name)| name.starts_with("worker")).collect();
        assert!(!workers.is_empty());
        for (task, _) in workers {
            for set in SETS {
                assert_eq!(status(&task, set), NOTHING, "{set} of a worker");
            }
        }
    };
    check(server.id());
    server.rewrite_config(&config(&format!("listen {first}; listen {second};")));
    server.signal(Signal::HUP);
    eventually("the second port", LONG, || server.log("error.log").contains(" reloaded"));
    assert_eq!(Client::connect(second).get("/a.txt").text(), "hello");
    // It goes with the next binary, too, and the sockets with it.
    let current = ByPidFile::new(server.tree().path("pid"));
    server.signal(Signal::USR2);
    eventually("the upgrade", LONG, || server.log("error.log").contains("serves now"));
    let next = server.tree().text("pid").trim().parse().expect("a number");
    assert_ne!(next, server.id());
    assert_eq!(Client::connect(second).get("/a.txt").text(), "hello");
    check(next);
    drop(current);
}

/// O8, V45: whoever stays root keeps what concerns files, and is told.
#[test]
fn a_server_that_stays_root_gives_up_what_is_not_about_files() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    let server = Server::start_in(tree, BINARY, &format!("user root;\n{}", site("")));
    // It listens before it has given up anything; who is answered knows that it has.
    server.connect().get("/");
    let kept = u64::from_str_radix(&status(&server.id().to_string(), "CapEff"), 16);
    let kept = kept.expect("a number");
    // CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SETUID, CAP_MKNOD.
    for given_up in [21, 16, 19, 12, 13, 7, 27] {
        assert_eq!(kept & (1 << given_up), 0, "capability {given_up} of {kept:x}");
    }
    assert_ne!(kept & (1 << 1), 0, "the files of all can be read");
    eventually("the warning", LONG, || server.log("error.log").contains("the server is root"));
}

/// O8, C13, V45: `-t` says what a start would say.
#[test]
fn a_test_of_the_configuration_looks_for_users_and_for_programs_of_root() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    let path = tree.path("x.conf").display().to_string();
    for (text, expected) in [
        ("user nobody nogroup;", None),
        ("user no-such-user;", Some("there is no user \"no-such-user\"")),
        ("user nobody no-such-group;", Some("there is no group \"no-such-group\"")),
        ("user root; http { server { cgi on; } }", Some("programs would be run by root")),
        ("user nobody; http { server { cgi on; } }", None),
        ("http { server { cgi on; } }", None),
        ("user root; cgi_allow_root on; http { server { cgi on; } }", None),
    ] {
        tree.file("x.conf", text);
        let tested = run(BINARY, &["-t", "-c", &path], LONG);
        assert_eq!(tested.code(), i32::from(expected.is_some()), "{text}: {}", tested.stderr);
        let said = expected.is_none_or(|expected| tested.stderr.contains(expected));
        assert!(said, "{text}: {}", tested.stderr);
        if expected.is_some() {
            assert!(tested.stderr.contains("x.conf:1:"), "it says where: {}", tested.stderr);
            let started = run(BINARY, &["-c", &path], LONG);
            assert_eq!(started.code(), 1, "{text}: {}", started.stderr);
        }
    }
    let root = tree.root().display().to_string();
    let served = run(BINARY, &["serve", &root, "--cgi", "--listen", "127.0.0.1:1"], LONG);
    assert_eq!(served.code(), 1);
    assert!(served.stderr.contains("--cgi-allow-root"), "{}", served.stderr);
}
