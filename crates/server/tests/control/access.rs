//! Which clients may control, and that they can when all sessions are taken.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use sekisho_endpoint::blocking::Client;
use sekisho_endpoint::{Code, Options};
use sekisho_testkit::{Background, Server, Tree, eventually, have, run};

use crate::common::{BINARY, LONG, http};
use crate::support::{admin, ctl, ctl_ok, metric, native, sessions, with_endpoint};

#[test]
fn a_full_server_refuses_others_and_can_still_be_steered() {
    // E4, E5, E9
    let config = format!(
        "endpoint {{ listen unix:{{dir}}/s; sessions_max 1; admin_sessions 1; }}\n{}",
        http("server { listen 127.0.0.1:{port}; return 200; }")
    )
    .replace("events {}", "events { connections_max 2; }");
    let server = Server::start(BINARY, &config);
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    assert_eq!(server.connect().get("/").status, 503);
    let mut holds = native(&server, "s", "holds");
    let again = UnixStream::connect(server.tree().path("s")).expect("it listens");
    let refused = Client::connect(again, "late").expect_err("it is full");
    assert_eq!(refused.code(), Some(Code::ResourceLimitReached));
    // At the server's own control socket, and at the full address.
    let listed = sessions(&server);
    assert_eq!(listed.iter().filter(|session| session["protocol"] == "http1").count(), 2);
    assert!(listed.iter().any(|session| session["label"] == "holds"));
    let path = server.tree().path("s").display().to_string();
    let there = run(BINARY, &["ctl", "--socket", &path, "session", "shutdown", "holds"], LONG);
    assert_eq!(there.code(), 0, "{}", there.stderr);
    assert!(holds.call(3, b"x").is_err());
    eventually("a free slot", LONG, || {
        let stream = UnixStream::connect(server.tree().path("s")).expect("it listens");
        Client::connect(stream, "next").is_ok()
    });
    assert!(metric(&server, "sekisho_native_refused_total", None) >= 1);
}

#[test]
fn an_ordinary_session_may_not_control_the_server() {
    // E9, V50
    use prost::Message;
    use sekisho_endpoint::control::{ControlRequest, List, What};
    let server = Server::start(BINARY, &with_endpoint("", ""));
    let mut client = native(&server, "s", "ordinary");
    let body = ControlRequest::from(What::List(List {})).encode_to_vec();
    let refused = client.call(1, &body).expect_err("not allowed");
    assert_eq!(refused.code(), Some(Code::PermissionError));
    assert_eq!(client.call(3, b"x").expect("it goes on"), b"x");
}

#[test]
fn another_user_is_refused_unless_the_configuration_names_them() {
    // E9, V50: permission by socket credentials
    if !rustix::process::geteuid().is_root() || !have("setpriv") {
        println!("skipped: only root can change its user");
        return;
    }
    let tree = Tree::new();
    tree.mode(".", 0o755);
    let binary = tree.path("sekisho");
    fs::copy(BINARY, &binary).expect("copied");
    let config = with_endpoint("", "").replace("{dir}/s;", "{dir}/s mode=0666;");
    let server = Server::start_in(tree, BINARY, &config);
    let as_nobody = |arguments: &[&str]| {
        let binary = binary.display().to_string();
        let first = ["--reuid=65534", "--regid=65534", "--clear-groups", &binary, "ctl"];
        run("setpriv", &[&first, arguments].concat(), LONG)
    };
    let pid = server.id().to_string();
    let socket = server.tree().path("s").display().to_string();
    for target in [["--pid", &pid], ["--socket", &socket]] {
        let refused = as_nobody(&[&target[..], &["sessions"]].concat());
        assert_eq!(refused.code(), 4, "{target:?}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("may control"), "{}", refused.stderr);
    }
    assert_eq!(ctl(&server, &["sessions"]).code(), 0, "root goes on");
    server.rewrite_config(&config.replace("mode=0666;", "mode=0666; admin uid 65534;"));
    ctl_ok(&server, &["reload"]);
    for target in [["--pid", &pid], ["--socket", &socket]] {
        let allowed = as_nobody(&[&target[..], &["sessions"]].concat());
        assert_eq!(allowed.code(), 0, "{target:?}: {}", allowed.stderr);
    }
    // Whoever loses a right at a reload loses the session that has it, at the control socket, too; others keep theirs.
    let mut own = admin(&server);
    let watching = || sessions(&server).iter().any(|session| session["identity"] == "unix:65534");
    for less in ["mode=0666; permit control read unix:65534;", "mode=0666;"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.args(["ctl", "--pid", &pid, "sessions", "--watch", "--json"]);
        let _watches = Background::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        eventually("their session", LONG, watching);
        server.rewrite_config(&config.replace("mode=0666;", less));
        ctl_ok(&server, &["reload"]);
        eventually("its end", LONG, || !watching());
    }
    assert_eq!(own.call(3, b"x").expect("it goes on"), b"x");
}

#[test]
fn over_tcp_the_credential_decides() {
    // E2, E9, V50
    let tree = Tree::new();
    tree.file("secret", "correct horse battery\n");
    tree.file("wrong", "incorrect horse battery\n");
    let config = format!(
        "endpoint {{ listen 127.0.0.1:{{port2}}; credential_file {{dir}}/secret; }}\n{}",
        crate::common::site("return 200;")
    );
    let server = Server::start_in(tree, BINARY, &config);
    let address = server.address_of(1).to_string();
    let over_tcp = |more: &[&str]| {
        run(BINARY, &[&["ctl", "--socket", &address, "sessions"], more].concat(), LONG)
    };
    let file = |name: &str| server.tree().path(name).display().to_string();
    assert_eq!(over_tcp(&[]).code(), 4);
    assert_eq!(over_tcp(&["--credential-file", &file("wrong")]).code(), 4);
    let good = over_tcp(&["--credential-file", &file("secret")]);
    assert_eq!(good.code(), 0, "{}", good.stderr);
    // A client that does not want to control needs none.
    let stream = TcpStream::connect(server.address_of(1)).expect("it listens");
    let mut client = Client::connect(stream, Options::from("plain")).expect("admitted");
    assert_eq!(client.call(3, b"x").expect("answered"), b"x");
    server.rewrite_config(&config.replace("/secret", "/missing"));
    assert_eq!(ctl(&server, &["reload"]).code(), 1, "a missing credential is an error");
}
