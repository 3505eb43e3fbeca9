//! The server's user, and what it has given up.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sekisho_testkit::process::worker_of;
use sekisho_testkit::{Client, Server, Signal, eventually, have, run};

use crate::background_load::{ByPidFile, install};
use crate::common::{BINARY, LONG, own_address, site};
use crate::{is_root, open_tree, status, threads};

const NOTHING: &str = "0000000000000000";
const SETS: [&str; 4] = ["CapEff", "CapPrm", "CapInh", "CapAmb"];

/// O12, V45: every thread, and not only the first one.
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
        assert_eq!(status(&server.id().to_string(), "Uid"), "0 0 0 0", "the parent stays root");
        let threads = threads(server.worker());
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

/// O6, O8: logs that the server has made are its own, others keep their owner; a log that was rotated away is made
/// anew, in a folder that the server's user may not write to.
#[test]
fn logs_are_given_to_the_user_where_the_server_made_them() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    tree.file("logs/there.log", "");
    let logs = "access_log {dir}/logs/there.log; access_log {dir}/logs/new.log;";
    let server = Server::start_in(tree, BINARY, &format!("user nobody;\n{}", site(logs)));
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
    let owner =
        |name: &str| std::fs::metadata(server.tree().path(name)).expect("it is there").uid();
    assert_eq!((owner("logs/new.log"), owner("logs/there.log")), (65_534, 0));
    eventually("the line", LONG, || server.log("logs/new.log").lines().count() == 1);
    let moved = server.tree().path("logs/moved.log");
    std::fs::rename(server.tree().path("logs/new.log"), moved).expect("moved");
    server.tree().mode("logs", 0o755);
    server.signal(Signal::USR1);
    eventually("the word", LONG, || server.log("error.log").contains("logs reopened"));
    assert_eq!(owner("logs/new.log"), 65_534);
    server.connect().get("/a.txt");
    eventually("the line", LONG, || server.log("logs/new.log").lines().count() == 1);
    assert_eq!(server.log("logs/moved.log").lines().count(), 1);
    assert_eq!(server.log("logs/there.log").lines().count(), 2);
    // A log that cannot be opened is named.
    std::fs::remove_file(server.tree().path("logs/new.log")).expect("removed");
    server.tree().folder("logs/new.log");
    server.signal(Signal::USR1);
    eventually("the word", LONG, || {
        server.log("error.log").contains("some logs could not be reopened")
    });
}

/// O8, V45: the parent binds a small port, now, at the next reload and after an upgrade; the worker process has no
/// right to.
#[test]
fn a_small_port_is_bound_by_the_parent_and_the_worker_process_has_no_rights() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    let (first, second) = (own_address(81), own_address(82));
    let config = |listens: &str| {
        let text = site("").replace("listen", &format!("{listens} listen"));
        format!("user nobody; pid {{dir}}/pid;\n{text}")
    };
    let server =
        Server::start_in(tree, &binary.display().to_string(), &config(&format!("listen {first};")));
    assert_eq!(Client::connect(first).get("/a.txt").text(), "hello");
    let check = |pid: u32| {
        let kept = u64::from_str_radix(&status(&pid.to_string(), "CapEff"), 16);
        let kept = kept.expect("a number");
        // CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_MKNOD.
        for given_up in [21, 16, 19, 12, 13, 27] {
            assert_eq!(kept & (1 << given_up), 0, "capability {given_up} of the parent: {kept:x}");
        }
        let all = threads(worker_of(pid));
        assert!(all.len() >= 3, "{all:?}");
        for (task, name) in all {
            for set in SETS {
                assert_eq!(status(&task, set), NOTHING, "{set} of {name}");
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

/// O12, V45: a server that stays root keeps the capabilities about files, and warns.
#[test]
fn a_server_that_stays_root_gives_up_what_is_not_about_files() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    let server = Server::start_in(tree, BINARY, &format!("user root;\n{}", site("")));
    // It listens before it has given up anything; an answer shows that it has.
    server.connect().get("/");
    let kept = u64::from_str_radix(&status(&server.id().to_string(), "CapEff"), 16);
    let kept = kept.expect("a number");
    // CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SETUID, CAP_MKNOD.
    for given_up in [21, 16, 19, 12, 13, 7, 27] {
        assert_eq!(kept & (1 << given_up), 0, "capability {given_up} of {kept:x}");
    }
    assert_ne!(kept & (1 << 1), 0, "the files of all can be read");
    eventually("the warning", LONG, || server.log("error.log").contains("the server runs as root"));
}

/// O12, C13, V45: the server's user changes by a restart alone, and until then root runs no programs.
#[test]
fn a_reload_with_another_user_does_not_make_programs_of_root() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    tree.script("root/x.cgi", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; id -u\n");
    let server = Server::start_in(tree, BINARY, &format!("user root;\n{}", site("")));
    server.rewrite_config(&format!("user nobody;\n{}", site("cgi_extension .cgi;")));
    server.signal(Signal::HUP);
    eventually("the result", LONG, || server.log("error.log").contains("reload failed"));
    let log = server.log("error.log");
    assert!(log.contains("programs would run as root: a change of \"user\""), "{log}");
    assert_ne!(server.connect().get("/x.cgi").text(), "0\n");
    // Without programs it is used, and said.
    server.rewrite_config(&format!("user nobody;\n{}", site("")));
    server.signal(Signal::HUP);
    eventually("the reload", LONG, || server.log("error.log").contains(" reloaded"));
    let log = server.log("error.log");
    assert!(
        log.contains("the server keeps running as root: a change of \"user\" needs a restart"),
        "{log}"
    );
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
}

/// O12: root of a namespace of its own may not change its groups.
#[test]
fn a_root_who_cannot_change_groups_can_stay_root() {
    let has_namespaces = have("unshare") && run("unshare", &["-r", "true"], LONG).code() == 0;
    if !has_namespaces {
        println!("skipped: no namespaces");
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    let text = format!("#!/bin/sh\nexec unshare -r {BINARY} \"$@\"\n");
    let binary = tree.script("run", &text).display().to_string();
    let server = Server::start_in(tree, &binary, &format!("user root;\n{}", site("")));
    assert_eq!(server.connect().get("/a.txt").text(), "hello");
}

/// O12, O3: what cannot be had back cannot be changed by a reload, which works all the same.
#[test]
fn a_reload_that_changes_no_new_privs_is_told_so_and_used() {
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    let site = |body: &str| format!("pid {{dir}}/pid;\n{}", site(body));
    let server = Server::start_in(tree, BINARY, &format!("no_new_privs off;\n{}", site("")));
    let path = server.config_path().display().to_string();
    for (config, result, said) in [
        (site(""), " reloaded", "no_new_privs stays off: a change needs a restart"),
        (format!("sandbox on;\n{}", site("")), "reload failed", "restart the server"),
    ] {
        server.rewrite_config(&config);
        let asked = run(BINARY, &["-s", "reload", "-c", &path], LONG);
        assert_eq!(asked.code() == 0, result == " reloaded", "{}", asked.stderr);
        let log = server.log("error.log");
        assert!(log.contains(result), "{log}");
        // The caller gets it, too.
        for told in [log, asked.stderr] {
            assert!(told.contains(said), "{told}");
        }
        assert_eq!(server.connect().get("/a.txt").text(), "hello");
    }
}

/// O12: the log names the server's user for a 403, before and after.
#[test]
fn what_the_user_cannot_reach_is_told_at_the_start_and_at_each_refusal() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    tree.file("private/site/a.txt", "hello");
    tree.folder("root/up");
    tree.mode("private", 0o700);
    let log = tree.file("error.log", "");
    std::os::unix::fs::chown(log, Some(65_534), None).expect("it is theirs");
    let body = "location /p/ { alias {dir}/private/site/; autoindex on; }\n\
                location /missing/ { root {dir}/private/none; }\n\
                location /up/ { dav_methods PUT; }";
    let config = format!("user nobody;\n{}", site(body));
    let server = Server::start_in(tree, BINARY, &config);
    let dir = server.tree().dir().display().to_string();
    let path = server.tree().path("sekisho.conf").display().to_string();
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert_eq!(tested.code(), 0, "a warning is no error: {}", tested.stderr);
    // Only root sees that a folder in a private one is missing.
    let missing = format!("\"{dir}/private/none\" does not exist");
    assert!(tested.stderr.contains(&missing), "{}", tested.stderr);
    for (said, count) in [(&server.stderr(), 2), (&tested.stderr, 3)] {
        let enter = format!("user \"nobody\" cannot enter \"{dir}/private\"");
        assert!(said.contains(&enter), "{said}");
        assert!(said.contains(&format!("cannot write into \"{dir}/root/up/\"")), "{said}");
        assert_eq!(said.matches("sekisho.conf:").count(), count, "with their places: {said}");
        assert_eq!(said.matches("warning").count(), count, "and of nothing else: {said}");
    }
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").text(), "hello");
    assert_eq!(client.get("/p/a.txt").status, 403);
    assert_eq!(client.request_with_body("PUT", "/up/new", "", "x").status, 403);
    eventually("both refusals", LONG, || {
        let log = server.log("error.log");
        log.matches(" for user \"nobody\"").count() == 2
    });
    // As soon as it can, there is no warning.
    server.tree().mode("private", 0o755);
    server.tree().mode("root/up", 0o777);
    server.tree().folder("private/none");
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert!(!tested.stderr.contains("warning"), "{}", tested.stderr);
}

/// O8: programs are run by the user; logs and files of the configuration are opened by the parent, and by the user
/// where there is none.
#[test]
fn a_test_of_the_configuration_looks_at_logs_programs_and_includes_as_the_user() {
    if !is_root() {
        return;
    }
    let tree = open_tree();
    for (name, mode) in [("old.log", 0o644), ("more.conf", 0o600), ("tool", 0o700)] {
        tree.file(name, "");
        tree.mode(name, mode);
    }
    tree.folder("shut");
    tree.mode("shut", 0o700);
    tree.link("out.log", "/dev/stdout");
    let dir = tree.dir().display().to_string();
    let text = format!(
        "user nobody; master_process off;\nerror_log {dir}/shut/new.log;\nevents {{}}\nhttp {{\naccess_log {dir}/old.log;\n\
         access_log {dir}/out.log;\ninclude {dir}/more.conf;\nserver {{\n\
         location /a {{ cgi_pass {dir}/tool; }}\n\
         location /b {{ cgi_extension .x /usr/bin/no-such; }}\n\
         location /c {{ cgi_extension .sh /bin/sh; }}\n}} }}\n"
    );
    let path = tree.file("x.conf", &text).display().to_string();
    let tested = run(BINARY, &["-t", "-c", &path], LONG);
    assert_eq!(tested.code(), 0, "{}", tested.stderr);
    let said = &tested.stderr;
    for (message, line) in [
        (format!("user \"nobody\" cannot enter \"{dir}/shut\": the log"), 2),
        (format!("user \"nobody\" cannot write to \"{dir}/old.log\": the log"), 5),
        (format!("user \"nobody\" cannot read \"{dir}/more.conf\": a reload will fail"), 7),
        (format!("user \"nobody\" cannot run \"{dir}/tool\""), 9),
        ("\"/usr/bin/no-such\" does not exist".to_owned(), 10),
    ] {
        let report = said.split("warning: ").find(|report| report.starts_with(&message));
        let place = format!("x.conf:{line}:");
        assert!(report.is_some_and(|report| report.contains(&place)), "{message} {place}: {said}");
    }
    assert_eq!(said.matches("warning: ").count(), 5, "{said}");
    tree.file("x.conf", text.replace("master_process off;", ""));
    let said = run(BINARY, &["-t", "-c", &path], LONG).stderr;
    assert!(said.contains("cannot run") && said.contains("no-such"), "{said}");
    assert_eq!(said.matches("warning: ").count(), 2, "{said}");
}

/// O12, C13, V45: `-t` says what a start would say.
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
        ("user root; http { server { cgi on; } }", Some("programs would run as root")),
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
