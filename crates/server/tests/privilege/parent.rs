//! The parent that stays root (O8): a reload, a rotation and an upgrade can do whatever the first start could, and a
//! worker process that dies is replaced.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sekisho_testkit::process::{exists, worker_of};
use sekisho_testkit::{Client, Server, Signal, Stopwatch, Tree, eventually, run};

use crate::authority::authority;
use crate::background_load::{ByPidFile, install};
use crate::common::{BINARY, LONG, own_address};
use crate::{is_root, open_tree};

const NOBODY: u32 = 65_534;

/// A tree with certbot's folders and modes: `live/` and `archive/` 0700, keys 0600, links between them.
fn certbot_tree() -> Tree {
    let tree = open_tree();
    tree.file("root/a.txt", "hello");
    for name in ["first", "second"] {
        authority(&tree, name, "x");
        let own = fs::read(tree.path(&format!("{name}-server.pem"))).expect("made just now");
        tree.file(&format!("archive/{name}.pem"), own);
        tree.mode(&format!("archive/{name}.pem"), 0o600);
    }
    tree.folder("live");
    for folder in ["archive", "live"] {
        tree.mode(folder, 0o700);
    }
    renew(&tree, "first");
    tree
}

/// Has the links lead to another certificate, as a renewal does.
fn renew(tree: &Tree, name: &str) {
    let link = tree.path("live/fullchain.pem");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(format!("../archive/{name}.pem"), link).expect("a link");
}

/// Whether the certificate that is served is one of this authority.
fn serves(tree: &Tree, address: SocketAddr, name: &str) -> bool {
    let mut roots = RootCertStore::empty();
    let own = CertificateDer::from_pem_file(tree.path(&format!("{name}.pem"))).expect("PEM");
    roots.add(own).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = address.ip().into();
    let client = ClientConnection::new(Arc::new(config), server).expect("a client");
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(LONG)).expect("an option");
    let mut stream = StreamOwned::new(client, stream);
    let mut response = Vec::new();
    stream.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_end(&mut response).is_ok()
        && response.ends_with(b"hello")
}

/// A server of user `nobody` with certbot's certificate; `body` and `more` are put into the blocks.
fn config(body: &str, more: &str) -> String {
    format!(
        "user nobody; pid {{dir}}/pid;\nworker_processes 1;\nerror_log {{dir}}/error.log debug;\nevents {{}}\n\
         http {{\naccess_log off;\n{more}\nserver {{ listen 127.0.0.1:{{port}}; root {{root}};\n\
         listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/live/fullchain.pem;\n\
         ssl_certificate_key {{dir}}/live/fullchain.pem; location = /pid {{ return 200 $pid; }}\n{body} }} }}\n"
    )
}

/// `-s reload`; its exit status and what it says.
fn reload(server: &Server) -> (i32, String) {
    let path = server.config_path().display().to_string();
    let done = run(BINARY, &["-s", "reload", "-c", &path], LONG);
    (done.code(), done.stderr)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

/// O8, O3: what needs root at a reload: a renewed certificate, a new log, a new cache folder, a private configuration, a
/// small port.
#[test]
fn a_reload_can_do_whatever_the_first_start_could() {
    if !is_root() {
        return;
    }
    let tree = certbot_tree();
    tree.folder("logs");
    tree.folder("caches");
    for folder in ["logs", "caches"] {
        tree.mode(folder, 0o755);
    }
    let server = Server::start_in(tree, BINARY, &config("", ""));
    let tree = server.tree();
    let tls = server.address_of(1);
    assert!(serves(tree, tls, "first"));
    let small = own_address(83);
    for (what, body, more) in [
        ("a renewed certificate", String::new(), ""),
        ("a new log", "access_log {dir}/logs/new.log;".to_owned(), ""),
        (
            "a new cache folder",
            "location /c { proxy_cache z; proxy_pass http://127.0.0.1:1; }".to_owned(),
            "proxy_cache_path {dir}/caches/new/deep keys_zone=z:1m;",
        ),
        ("a port below 1024", format!("listen {small};"), ""),
        ("a private file", "include {dir}/private.conf;".to_owned(), ""),
    ] {
        renew(tree, "second");
        tree.file("private.conf", "location = /private { return 200 private; }");
        tree.mode("private.conf", 0o600);
        server.rewrite_config(&config(&body, more));
        mode(&server.config_path(), 0o600);
        let (code, said) = reload(&server);
        assert_eq!((code, said.as_str()), (0, ""), "{what}");
        assert!(serves(tree, tls, "second"), "{what}");
        let owner = |name: &str| fs::metadata(tree.path(name)).expect("it is there").uid();
        match what {
            "a new log" => {
                assert_eq!(server.connect().get("/a.txt").text(), "hello");
                eventually("a line", LONG, || server.log("logs/new.log").lines().count() > 0);
                assert_eq!(owner("logs/new.log"), NOBODY);
            }
            "a new cache folder" => {
                assert_eq!((owner("caches/new/deep"), owner("caches/new")), (NOBODY, 0));
            }
            "a port below 1024" => assert_eq!(Client::connect(small).get("/a.txt").text(), "hello"),
            "a private file" => assert_eq!(server.connect().get("/private").text(), "private"),
            _ => {}
        }
    }
}

/// O8, O3: a bad configuration changes nothing, is reported to the caller, and the next good one is used.
#[test]
fn a_bad_reload_has_its_verdict_and_changes_nothing() {
    if !is_root() {
        return;
    }
    let server = Server::start_in(certbot_tree(), BINARY, &config("", ""));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|at| (at, taken)).expect("an address");
    for (body, said) in [
        ("no_such_directive on;".to_owned(), "unknown directive"),
        (format!("listen {};", taken.0), "in use by another program"),
        ("access_log {dir}/none/x.log;".to_owned(), "its folder does not exist"),
        ("ssl_verify_client on; ssl_client_certificate {dir}/none.pem;".to_owned(), "none.pem"),
    ] {
        server.rewrite_config(&config(&body, ""));
        let (code, text) = reload(&server);
        assert_eq!(code, 1, "{body}: {text}");
        assert!(text.contains(said), "{body}: {text}");
        assert!(serves(server.tree(), server.address_of(1), "first"));
    }
    server.rewrite_config(&config("location = /new { return 200 new; }", ""));
    assert_eq!(reload(&server).0, 0);
    assert_eq!(server.connect().get("/new").text(), "new");
}

/// O8, V52: a link that the server's user has made, or a folder that it can change, does not lead the parent to another file.
#[test]
fn a_taken_over_user_cannot_have_the_parent_open_another_file() {
    if !is_root() {
        return;
    }
    let tree = certbot_tree();
    tree.file("secret", "nobody:{PLAIN}x\n");
    tree.mode("secret", 0o600);
    tree.folder("theirs");
    std::os::unix::fs::chown(tree.path("theirs"), Some(NOBODY), None).expect("it is theirs");
    std::os::unix::fs::symlink(tree.path("secret"), tree.path("theirs/users")).expect("a link");
    let locked = |file: &str| {
        config(&format!("location / {{ auth_basic x; auth_basic_user_file {{dir}}/{file}; }}"), "")
    };
    let server = Server::start_in(tree, BINARY, &locked("theirs/users"));
    let ask = |server: &Server| {
        let key = "Authorization: Basic bm9ib2R5Ong=\r\n";
        server.connect().request("GET", "/a.txt", key).status
    };
    assert_ne!(ask(&server), 200, "the file of root is not given by way of the link");
    let given = fs::read_dir(format!("/proc/{}/fd", server.worker())).expect("it runs").flatten();
    let given: Vec<_> = given.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(!given.contains(&server.tree().path("secret")), "{given:?}");
    // That file is given by root's own path.
    server.rewrite_config(&locked("secret"));
    assert_eq!(reload(&server).0, 0);
    assert_eq!(ask(&server), 200);
}

/// O8, X22: connections wait in the listening socket while a worker process is started again; none is refused.
#[test]
fn a_killed_worker_process_is_replaced_and_nobody_is_refused() {
    if !is_root() {
        return;
    }
    let server = Server::start_in(certbot_tree(), BINARY, &config("", ""));
    let mut quickest = LONG;
    for round in 0..20 {
        let old = server.worker();
        assert_eq!(server.connect().get("/pid").text(), old.to_string());
        // It lives a while: one that dies at once, again and again, is started after a pause.
        let life = Stopwatch::start();
        eventually("some requests", LONG, || {
            assert_eq!(server.connect().get("/a.txt").status, 200);
            life.elapsed() > Duration::from_millis(300)
        });
        let watch = Stopwatch::start();
        let pid = Pid::from_raw(old.cast_signed()).expect("a process");
        kill_process(pid, Signal::KILL).expect("killed");
        let mut waiting: Vec<Client> =
            (0..5).map(|_| server.connect().with_patience(LONG)).collect();
        eventually("a new process", LONG, || {
            let new = worker_of(server.id());
            new != old && new != server.id()
        });
        quickest = quickest.min(watch.elapsed());
        for client in &mut waiting {
            assert_eq!(client.get("/a.txt").text(), "hello", "round {round}");
        }
    }
    println!("a new process after {quickest:?}");
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
    eventually("the line", LONG, || {
        server.log("error.log").matches("ended unexpectedly: signal: 9").count() == 20
    });
    assert!(serves(server.tree(), server.address_of(1), "first"));
}

/// O8: a worker process is started again with the configuration that was in use, whatever the file says by then.
#[test]
fn a_new_worker_process_has_the_configuration_in_use() {
    if !is_root() {
        return;
    }
    let server = Server::start_in(certbot_tree(), BINARY, &config("", ""));
    server.rewrite_config("this is no configuration");
    let old = server.worker();
    let pid = Pid::from_raw(old.cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("killed");
    // Until it is gone, it may accept a connection, which is reset with it.
    eventually("it is gone", LONG, || !exists(old));
    let mut client = server.connect().with_patience(LONG);
    assert_eq!(client.get("/a.txt").text(), "hello");
    assert_ne!(server.worker(), old);
}

/// O8, O4: the pid file is gone at the end, with a graceful and a forceful one; a stop by `ctl` ends the parent, too.
#[test]
fn the_pid_file_goes_with_the_server() {
    if !is_root() {
        return;
    }
    let tree = certbot_tree();
    tree.folder("run");
    tree.mode("run", 0o755);
    let config = config("", "").replace("{dir}/pid", "{dir}/run/pid");
    let mut server = Server::start_in(tree, BINARY, &config);
    for how in ["quit", "term", "ctl"] {
        let pid = server.id().to_string();
        eventually("it serves", LONG, || {
            server.connect().with_patience(LONG).get("/a.txt").text() == "hello"
        });
        assert_eq!(server.tree().text("run/pid").trim(), pid);
        let worker = server.worker();
        match how {
            "quit" => server.quit(),
            "term" => server.term(),
            _ => assert_eq!(run(BINARY, &["ctl", "--pid", &pid, "stop"], LONG).code(), 0),
        }
        assert_eq!(server.wait_exit(LONG).code(), Some(0), "{how}");
        assert!(!server.tree().exists("run/pid") && !exists(worker), "{how}");
        server.start_again(BINARY);
    }
}

/// O8, O6: the folder that the server was started from does not matter, even one that its user may not enter.
#[test]
fn a_start_from_a_private_folder_can_rotate_reload_and_upgrade() {
    if !is_root() {
        return;
    }
    let tree = certbot_tree();
    let binary = tree.path("sekisho");
    install(Path::new(BINARY), &binary);
    tree.folder("home");
    tree.mode("home", 0o700);
    tree.folder("logs");
    tree.mode("logs", 0o755);
    let address = own_address(8080);
    let dir = tree.dir().display().to_string();
    let text = format!(
        "user nobody; pid {dir}/pid; worker_processes 1; error_log {dir}/error.log notice; events {{}}
         http {{ access_log {dir}/logs/access.log; server {{ listen {address}; root {dir}/root; }} }}"
    );
    tree.file("x.conf", text);
    let current = ByPidFile::new(tree.path("pid"));
    let mut child = Command::new(&binary)
        .args(["-c", "../x.conf"])
        .current_dir(tree.path("home"))
        .spawn()
        .expect("it starts");
    eventually("it serves", LONG, || TcpStream::connect(address).is_ok());
    let conf = tree.path("x.conf").display().to_string();
    assert_eq!(run(BINARY, &["-s", "reload", "-c", &conf], LONG).code(), 0);
    fs::rename(tree.path("logs/access.log"), tree.path("logs/old")).expect("moved");
    assert_eq!(run(BINARY, &["-s", "reopen", "-c", &conf], LONG).code(), 0);
    eventually("the file", LONG, || tree.exists("logs/access.log"));
    current.upgrade();
    assert_eq!(Client::connect(address).get("/a.txt").text(), "hello");
    eventually("a line", LONG, || !tree.text("logs/access.log").is_empty());
    child.wait().expect("the first one ends");
    current.signal(Signal::QUIT);
    eventually("its end", LONG, || !tree.exists("pid"));
}

/// O8: worker processes of a parent that is killed do not stay behind.
#[test]
fn a_worker_process_ends_with_its_parent() {
    if !is_root() {
        return;
    }
    let mut server = Server::start_in(certbot_tree(), BINARY, &config("", ""));
    let worker = server.worker();
    server.signal(Signal::KILL);
    server.wait_exit(LONG);
    eventually("its end", LONG, || !exists(worker));
}

/// O8, M: what the parent itself holds in memory.
#[test]
fn the_parent_is_small() {
    if !is_root() {
        return;
    }
    let server = Server::start_in(certbot_tree(), BINARY, &config("", ""));
    assert_eq!(reload(&server).0, 0);
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.id())).expect("it runs");
    let of = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let (own, shared) = (of("Pss_Anon:"), of("Pss:"));
    println!("the parent holds {own} kB of its own, {shared} kB with its share of the program");
    assert!(own < 3 << 10, "{own} kB");
}
