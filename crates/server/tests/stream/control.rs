//! Sessions of `stream` are sessions like all others: seen and cancelled by `ctl`, finished by a stop, kept by a reload.

use std::time::Duration;

use sekisho_testkit::{Server, eventually, run};
use serde_json::Value;

use crate::common::{BINARY, LONG};
use crate::{Backend, serve, stream};

fn ctl(server: &Server, arguments: &[&str]) -> String {
    let pid = server.id().to_string();
    let all = [&["ctl", "--pid", &pid], arguments].concat();
    let done = run(BINARY, &all, LONG);
    assert_eq!(done.code(), 0, "{arguments:?}: {}{}", done.stdout, done.stderr);
    done.stdout
}

fn session_of(server: &Server, peer: std::net::SocketAddr) -> Option<Value> {
    let all: Value = serde_json::from_str(&ctl(server, &["sessions", "--json"])).expect("JSON");
    let all = all["sessions"].as_array().expect("a list").clone();
    all.into_iter().find(|session| session["peer"] == peer.to_string())
}

#[test]
fn a_session_is_seen_and_cancelled() {
    let backend = Backend::echo("hello");
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; proxy_timeout 1h; }}",
        backend.address
    ));
    let mut client = server.connect();
    assert_eq!(client.read_bytes(5), b"hello");
    let session = session_of(&server, client.local_address()).expect("it is there");
    assert_eq!(
        (session["protocol"].as_str(), session["state"].as_str()),
        (Some("tcp"), Some("p_1"))
    );
    let running = &session["requests"][0];
    assert_eq!(running["handler"], "stream", "{session}");
    let upstream = &running["upstream"];
    assert_eq!(upstream["server"], backend.address.to_string(), "{session}");
    assert_eq!(upstream["deadline"]["kind"], "upstream_read_timeout", "{session}");
    let id = format!(":{}", session["id"]);
    ctl(&server, &["session", "cancel", &id]);
    assert_eq!(client.read_to_end().0, b"");
    eventually("it is gone", LONG, || session_of(&server, client.local_address()).is_none());
}

/// O4: a stop lets sessions finish; a reload lets them be, and newcomers have the new configuration.
#[test]
fn sessions_outlive_a_reload_and_are_finished_before_a_stop() {
    let (old, new) = (Backend::echo("old"), Backend::echo("new"));
    let body = |to: &Backend| {
        format!("server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; }}", to.address)
    };
    let mut server = serve(&body(&old));
    let mut first = server.connect();
    assert_eq!(first.read_bytes(3), b"old");
    server.rewrite_config(&stream(&body(&new)));
    ctl(&server, &["reload"]);
    let mut second = server.connect();
    assert_eq!(second.read_bytes(3), b"new");
    first.send("still");
    assert_eq!(first.read_bytes(5), b"still");
    server.quit();
    eventually("it drains", LONG, || server.log("error.log").contains("draining"));
    second.send("until the end");
    assert_eq!(second.read_bytes(13), b"until the end");
    assert!(server.is_running(), "there are sessions");
    drop((first, second));
    assert!(server.wait_exit(LONG).success());
}

/// `worker_shutdown_timeout` bounds that.
#[test]
fn a_stop_does_not_wait_for_ever() {
    let backend = Backend::echo("x");
    let config =
        stream(&format!("server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; }}", backend.address));
    let config = format!("worker_shutdown_timeout 300ms;\n{config}");
    let mut server = Server::start(BINARY, &config);
    let mut client = server.connect();
    assert_eq!(client.read_bytes(1), b"x");
    server.quit();
    client.expect_closed(Duration::from_secs(30));
    server.wait_exit(LONG);
    assert_eq!(backend.connections(), 1);
}
