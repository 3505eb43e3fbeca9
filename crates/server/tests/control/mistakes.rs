//! The errors of `ctl` for impossible requests.

use std::fs::File;
use std::process::{Command, Stdio};

use sekisho_testkit::{Server, Tree, run};

use crate::common::{BINARY, LONG, site};
use crate::support::{ctl, ctl_ok, with_endpoint};

fn server(endpoint: &str) -> Server {
    let tree = Tree::new();
    tree.file("body", "a body");
    tree.script("root/cgi-bin/late", "#!/bin/sh\nsleep 3\nprintf 'X: y\\n\\nlate'\n");
    Server::start_in(tree, BINARY, &with_endpoint(endpoint, "location /cgi-bin/ { cgi on; }"))
}

#[test]
fn a_mistake_is_named_and_has_its_exit_status() {
    // E10
    let server = server("listen unix:{dir}/memory ipc;");
    let memory = server.tree().path("memory").display().to_string();
    let web = server.address().to_string();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["call", "nosuch"], 1, "nosuch"),
        (&["call", "echo", "/target"], 1, "for the service \"http\" only"),
        (&["call", "echo", "-X", "GET"], 1, "for the service \"http\" only"),
        (&["call", "control", "-i"], 1, "for the service \"http\" only"),
        (&["call", "echo", "-d", "/nowhere"], 1, "/nowhere: "),
        (&["top", "--every", "0"], 1, "from 0.1 to 3600 seconds"),
        (&["top", "--every", "soon"], 1, "a number of seconds"),
        (&["--credential-file", "/dev/zero", "sessions"], 1, "too long for a credential"),
        (&["session", "show", ":"], 5, "no session :"),
    ];
    for (arguments, code, text) in cases {
        let done = ctl(&server, arguments);
        assert_eq!(done.code(), code, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(text), "{arguments:?}: {}", done.stderr);
    }
    // Addresses at which something else is spoken.
    for address in [memory, web] {
        let done = run(BINARY, &["ctl", "--socket", &address, "sessions"], LONG);
        assert_eq!(done.code(), 3, "{address}: {}", done.stderr);
        assert!(done.stderr.contains("does not speak the native protocol"), "{}", done.stderr);
    }
}

#[test]
fn a_session_without_control_rights_may_still_call() {
    // E9, E10: over TCP no client is authenticated.
    let server = server("listen 127.0.0.1:{port2};");
    let address = server.address_of(1).to_string();
    let body = server.tree().path("body").display().to_string();
    let call = |service: &str| {
        run(BINARY, &["ctl", "--socket", &address, "call", service, "-d", &body], LONG)
    };
    let called = call("echo");
    assert_eq!((called.code(), called.stdout.as_str()), (0, "a body"), "{}", called.stderr);
    assert_eq!(call("control").code(), 4);
    assert_eq!(run(BINARY, &["ctl", "--socket", &address, "sessions"], LONG).code(), 4);
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_not_a_panic() {
    // E10
    let server = Server::start(BINARY, &site(""));
    let pid = server.id().to_string();
    let cases: [&[&str]; 5] =
        [&["reload"], &["sessions"], &["metrics"], &["sessions", "--watch"], &["call", "echo"]];
    for arguments in cases {
        let full = File::options().write(true).open("/dev/full").expect("there");
        let output = Command::new(BINARY)
            .args(["ctl", "--pid", &pid])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if arguments == ["call", "echo"] {
            // An empty answer has room everywhere.
            assert_eq!(output.status.code(), Some(0), "{stderr}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("No space left"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_service_that_is_silent_for_long_keeps_its_caller() {
    // E6, E10: longer than a session lives without traffic.
    let server = server("session_timeout 1s;");
    assert_eq!(ctl_ok(&server, &["call", "http", "/cgi-bin/late"]), "late");
}
