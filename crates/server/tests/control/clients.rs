//! Other clients: the one in Python, and the live view in a terminal.

use std::path::Path;

use sekisho_testkit::{Server, Tree, have, run};

use crate::common::{BINARY, LONG};
use crate::support::with_endpoint;

fn python(script: &str, arguments: &[&str]) -> sekisho_testkit::Finished {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python");
    let script = folder.join(script).display().to_string();
    run("python3", &[&["-B", script.as_str()], arguments].concat(), LONG * 3)
}

#[test]
fn the_python_client_speaks_with_the_server() {
    // E10
    if !have("python3") {
        return;
    }
    let tree = Tree::new();
    tree.file("root/a.txt", "from a file");
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    let config = with_endpoint(
        "listen 127.0.0.1:{port2}; listen unix:{dir}/shared ipc; sessions_max 3; sessions_per_address 3; \
         http_addresses 127.0.0.1:{port};",
        "location /cgi-bin/ { cgi on; } location / { }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let socket = server.tree().path("s").display().to_string();
    let shared = format!("ipc:{}", server.tree().path("shared").display());
    let tcp = server.address_of(1).to_string();
    for address in [format!("unix:{socket}"), socket, format!("tcp://{tcp}"), tcp, shared] {
        let done = python("tests/test_client.py", &[&address]);
        assert_eq!(done.code(), 0, "{address}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("OK"), "{}", done.stderr);
    }
}

#[test]
fn a_wheel_of_the_python_client_is_built_by_one_command() {
    if !have("python3") || run("python3", &["-m", "pip", "--version"], LONG).code() != 0 {
        return;
    }
    let tree = Tree::new();
    let (folder, target) = (tree.path("dist"), tree.path("installed"));
    let built = python("build_wheel.py", &[&folder.display().to_string()]);
    assert_eq!(built.code(), 0, "{}", built.stderr);
    let wheel = built.stdout.trim().to_owned();
    let target = target.display().to_string();
    let install = ["-m", "pip", "install", "--no-index", "--no-deps", "--target", &target, &wheel];
    let installed = run("python3", &install, LONG * 3);
    assert_eq!(installed.code(), 0, "{}", installed.stderr);
    let script = format!(
        "import sys; sys.path.insert(0, {target:?}); import sekisho; print(sekisho.__file__)"
    );
    let used = run("python3", &["-B", "-c", &script], LONG);
    assert!(used.stdout.starts_with(&target), "{}{}", used.stdout, used.stderr);
}

#[test]
fn the_python_client_copes_with_servers_that_misbehave() {
    // E10
    if !have("python3") {
        return;
    }
    let done = python("tests/test_wire.py", &[]);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("OK"), "{}", done.stderr);
}

#[test]
fn the_live_view_shows_sessions_and_leaves_the_terminal_as_it_was() {
    // E10
    if !have("python3") {
        return;
    }
    let server = Server::start(BINARY, &with_endpoint("", "return 200;"));
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control/terminal.py");
    let (script, pid) = (script.display().to_string(), server.id().to_string());
    let peer = client.local_address().to_string();
    let done = run("python3", &["-B", &script, BINARY, &pid, &peer], LONG * 3);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    client.expect_closed(LONG);
    // Without a terminal there is nothing to show it on.
    let none = crate::support::ctl(&server, &["top"]);
    assert_eq!(none.code(), 1, "{}", none.stderr);
}

#[test]
fn a_program_in_c_calls_services() {
    // E10
    if !have("cc") || !have("cargo") {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/c");
    let at = |path: &str| folder.join(path).display().to_string();
    // Beside what other tests build, so that it is built once.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    let (manifest, target) = (at("Cargo.toml"), built.display().to_string());
    let build = ["build", "--quiet", "--locked", "--manifest-path", &manifest];
    let done = run("cargo", &[&build[..], &["--target-dir", &target]].concat(), LONG * 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let tree = Tree::new();
    tree.file("root/a.txt", "from a file");
    let config = with_endpoint(
        "listen 127.0.0.1:{port2}; listen unix:{dir}/shared ipc; spin 20us; \
         http_addresses 127.0.0.1:{port};",
        "location / { }",
    );
    let server = Server::start_in(tree, BINARY, &config);
    let program = server.tree().path("example").display().to_string();
    let library = built.join("debug/libsekisho.a").display().to_string();
    let (source, include) = (at("example.c"), format!("-I{}", at("")));
    let warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror", &include];
    let links = [&source, &library, "-lpthread", "-ldl", "-lm", "-o", &program];
    let compiled = run("cc", &[&warnings[..], &links].concat(), LONG * 3);
    assert_eq!(compiled.code(), 0, "{}", compiled.stderr);
    let path = |name: &str| server.tree().path(name).display().to_string();
    let tcp = format!("tcp://{}", server.address_of(1));
    for address in [tcp, format!("unix:{}", path("s")), format!("ipc:{}", path("shared"))] {
        let ran = run(&program, &[&address], LONG);
        assert_eq!(ran.code(), 0, "{address}: {}", ran.stderr);
        assert_eq!(ran.stdout, "hello\npart 0;part 1;part 2;\nfrom a file\n11\n", "{address}");
    }
}
