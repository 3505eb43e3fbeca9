//! What clients were admitted for is asked for again at a reload: passwords and certificates that are withdrawn end the
//! sessions that began with them, and no others.

use std::fs;

use sekisho_endpoint::blocking::Client;
use sekisho_endpoint::{AnyBlockingStream, CallError, Code, Echo, Options, connect_blocking, http};
use sekisho_testkit::{Server, Tree, eventually};

use crate::authority::authority;
use crate::common::{BINARY, LONG, site};
use crate::support::{ctl_ok, metric, sessions};

type Session = Client<AnyBlockingStream>;

const USERS: &str = "ann:{PLAIN}one\nbob:{PLAIN}two\ncat:{PLAIN}three\n";

fn open(address: &str, label: &str, user: &str, credential: &[u8]) -> Session {
    let options =
        Options { user: user.to_owned(), credential: credential.to_vec(), ..Options::from(label) };
    connect_blocking(address, options).expect("admitted")
}

fn answers(session: &mut Session) {
    assert_eq!(session.call(Echo::NUMBER, b"x").expect("an answer"), b"x");
}

/// The session has ended: why, as its client sees it.
fn end(session: &mut Session) -> String {
    match session.call(Echo::NUMBER, b"x").expect_err("it has ended") {
        CallError::Ended { code: Some(Code::AuthenticationError), text } => text,
        other => panic!("{other:?}"),
    }
}

fn replace(server: &Server, name: &str, text: &[u8]) {
    fs::write(server.tree().path("new"), text).expect("written");
    fs::rename(server.tree().path("new"), server.tree().path(name)).expect("replaced");
}

fn is_listed(server: &Server, label: &str) -> bool {
    sessions(server).iter().any(|session| session["label"] == label)
}

#[test]
fn a_user_that_is_gone_or_has_another_password_loses_its_sessions_at_a_reload() {
    // E13, O3, L6
    let tree = Tree::new();
    tree.file("users", USERS);
    tree.file("tokens", "ci:0123456789abcdef");
    tree.script(
        "root/cgi-bin/wait",
        "#!/bin/sh\ncd \"$(dirname \"$0\")\"; touch ../begun; while [ ! -e ../go ]; do sleep 0.05; done\n\
         printf 'Content-Type: text/plain\\n\\ndone'\n",
    );
    let config = format!(
        "endpoint {{ listen unix:{{dir}}/s; password_file {{dir}}/users; token_file {{dir}}/tokens;
         http_addresses 127.0.0.1:{{port}}; }}\n{}",
        site("location /cgi-bin/ { cgi on; }")
    );
    let server = Server::start_in(tree, BINARY, &config);
    let address = format!("unix:{}", server.tree().path("s").display());
    let open = |user: &str, password: &str| open(&address, user, user, password.as_bytes());
    let (mut ann, mut bob, mut cat) =
        (open("ann", "one"), open("bob", "two"), open("cat", "three"));
    let mut token = self::open(&address, "token", "", b"0123456789abcdef");
    let mut local = self::open(&address, "local", "", b"");
    // What says the same as before ends nothing, whatever file it stands in.
    replace(&server, "users", format!("# the same\n{USERS}").as_bytes());
    ctl_ok(&server, &["reload"]);
    for session in [&mut ann, &mut bob, &mut cat, &mut token, &mut local] {
        answers(session);
    }
    // One of them has a request that runs.
    let request = http::Request { target: "/cgi-bin/wait".to_owned(), ..Default::default() };
    let body = prost::Message::encode_to_vec(&request);
    let running = ann.request(http::NUMBER, &body).expect("made");
    let begun = server.tree().path("root/begun");
    eventually("the program runs", LONG, || {
        answers(&mut ann);
        begun.exists()
    });
    replace(&server, "users", b"bob:{PLAIN}other\ncat:{PLAIN}three\n");
    ctl_ok(&server, &["reload"]);
    eventually("the end of bob's", LONG, || !is_listed(&server, "bob"));
    assert_eq!(end(&mut bob), "your password was withdrawn");
    // It is answered, and then the session ends.
    assert!(is_listed(&server, "ann"), "its request runs");
    let refused = ann.call(Echo::NUMBER, b"x").expect_err("nothing new");
    assert_eq!(refused.code(), Some(Code::SessionClosed), "{refused:?}");
    server.tree().file("root/go", "");
    let mut got = Vec::new();
    while let Some(record) = ann.next_record(&running).expect("a record") {
        got = record;
    }
    assert_eq!(got, b"done");
    ann.answer(running).expect("an answer");
    eventually("the end of ann's", LONG, || !is_listed(&server, "ann"));
    assert_eq!(end(&mut ann), "your password was withdrawn");
    for session in [&mut cat, &mut token, &mut local] {
        answers(session);
    }
    assert_eq!(metric(&server, "sekisho_native_withdrawn_total", None), 2);
    let log = server.log("error.log");
    assert!(log.contains("identity user:ann, ends: the user is no longer in"), "{log}");
    assert!(log.contains("identity user:bob, ends: the user has another password"), "{log}");
    assert!(log.contains("closed: withdrawn, native"), "{log}");
    // A file that cannot be read says nothing about anybody.
    fs::remove_file(server.tree().path("users")).expect("removed");
    ctl_ok(&server, &["reload"]);
    eventually("the report", LONG, || {
        server.log("error.log").contains("sessions of its users go on unchecked")
    });
    answers(&mut cat);
    assert_eq!(metric(&server, "sekisho_native_withdrawn_total", None), 2);
}

#[test]
fn what_takes_too_long_is_ended_by_force() {
    // E13, L7
    let tree = Tree::new();
    tree.file("users", USERS);
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    let config = format!(
        "worker_shutdown_timeout 300ms; endpoint {{ listen unix:{{dir}}/s; password_file {{dir}}/users;
         http_addresses 127.0.0.1:{{port}}; }}\n{}",
        site("location /cgi-bin/ { cgi on; }")
    );
    let server = Server::start_in(tree, BINARY, &config);
    let address = format!("unix:{}", server.tree().path("s").display());
    let mut ann = open(&address, "ann", "ann", b"one");
    let mut bob = open(&address, "bob", "bob", b"two");
    let request = http::Request { target: "/cgi-bin/slow".to_owned(), ..Default::default() };
    let body = prost::Message::encode_to_vec(&request);
    let running = ann.request(http::NUMBER, &body).expect("made");
    answers(&mut ann);
    replace(&server, "users", b"bob:{PLAIN}two\n");
    ctl_ok(&server, &["reload"]);
    let cancelled = ann.answer(running).expect_err("not for ever");
    assert_eq!(cancelled.code(), Some(Code::OperationCancelled), "{cancelled:?}");
    eventually("its end", LONG, || !is_listed(&server, "ann"));
    answers(&mut bob);
}

#[test]
fn a_certificate_that_is_revoked_loses_its_sessions_at_a_reload() {
    // E13, O3, S4
    let tree = Tree::new();
    authority(&tree, "ours", "backup");
    authority(&tree, "theirs", "backup");
    tree.file("tokens", "ci:0123456789abcdef");
    tree.file("crl", fs::read(tree.path("ours.crl")).expect("a list"));
    let config = |verify: &str| {
        format!(
            "endpoint {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/ours-server.pem;
             ssl_certificate_key {{dir}}/ours-server.pem; ssl_client_certificate {{dir}}/ours.pem;
             ssl_crl {{dir}}/crl; ssl_verify_client {verify}; token_file {{dir}}/tokens; }}\n{}",
            site("return 200;")
        )
    };
    let server = Server::start_in(tree, BINARY, &config("optional"));
    let file = |name: &str| server.tree().path(name).display().to_string();
    let (at, ca) = (server.address_of(1), file("ours.pem"));
    let with = |name: &str| format!("tls://{at}?ca={ca}&cert={}", file(name));
    let mut backup = open(&with("ours-client.pem"), "backup", "", b"");
    let mut other = open(&with("ours-server.pem"), "other", "", b"");
    // It is known by its token: the certificate says nothing about it.
    let mut token = open(&with("ours-client.pem"), "token", "", b"0123456789abcdef");
    ctl_ok(&server, &["reload"]);
    for session in [&mut backup, &mut other, &mut token] {
        answers(session);
    }
    replace(&server, "crl", &fs::read(server.tree().path("ours-client.crl")).expect("a list"));
    ctl_ok(&server, &["reload"]);
    eventually("the end of it", LONG, || !is_listed(&server, "backup"));
    assert_eq!(end(&mut backup), "your certificate was withdrawn");
    answers(&mut other);
    answers(&mut token);
    assert_eq!(metric(&server, "sekisho_native_withdrawn_total", None), 1);
    let log = server.log("error.log");
    assert!(log.contains("identity certificate:CN=backup, ends: the client certificate"), "{log}");
    let refused = connect_blocking(&with("ours-client.pem"), "again").expect_err("revoked");
    assert_eq!(refused.code(), Some(Code::AuthenticationError), "{refused:?}");
    // Where no certificate is asked for any more, none proves anything.
    server.rewrite_config(&config("off"));
    ctl_ok(&server, &["reload"]);
    eventually("the end of the other", LONG, || !is_listed(&server, "other"));
    assert_eq!(end(&mut other), "your certificate was withdrawn");
    answers(&mut token);
}
