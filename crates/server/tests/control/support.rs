//! What the scenarios share: asking a server by `ctl`, and by the client library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use sekisho_endpoint::Options;
use sekisho_endpoint::blocking::Client;
use sekisho_testkit::{Finished, Server, eventually, run};
use serde_json::Value;

use crate::common::{BINARY, LONG};

/// Runs `sekisho ctl` against this server.
#[track_caller]
pub(crate) fn ctl(server: &Server, arguments: &[&str]) -> Finished {
    let pid = server.id().to_string();
    let all = [&["ctl", "--pid", &pid], arguments].concat();
    run(BINARY, &all, LONG)
}

/// The same, where it must go well: what it says.
#[track_caller]
pub(crate) fn ctl_ok(server: &Server, arguments: &[&str]) -> String {
    let done = ctl(server, arguments);
    assert_eq!(done.code(), 0, "{arguments:?}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// Every session, as JSON.
#[track_caller]
pub(crate) fn sessions(server: &Server) -> Vec<Value> {
    let text = ctl_ok(server, &["sessions", "--json"]);
    let all: Value = serde_json::from_str(&text).expect("JSON");
    all["sessions"].as_array().expect("a list").clone()
}

/// The session of the HTTP client with this address.
#[track_caller]
pub(crate) fn session_of(server: &Server, peer: &std::net::SocketAddr) -> Option<Value> {
    sessions(server).into_iter().find(|session| session["peer"] == peer.to_string())
}

/// Waits until the session of this client runs a request, and says which it is: `:id`.
#[track_caller]
pub(crate) fn busy_session(server: &Server, peer: &std::net::SocketAddr) -> String {
    let mut found = String::new();
    eventually("a running request", LONG, || {
        let session = session_of(server, peer);
        let busy = session.filter(|session| {
            session["state"] == "p_1"
                && session["requests"].as_array().is_some_and(|r| r.len() == 1)
        });
        found = busy.map_or_else(String::new, |session| format!(":{}", session["id"]));
        !found.is_empty()
    });
    found
}

/// A number of `ctl metrics --json`.
#[track_caller]
pub(crate) fn metric(server: &Server, name: &str, label: Option<&str>) -> u64 {
    let text = ctl_ok(server, &["metrics", "--json"]);
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let families = all["metrics"].as_array().expect("a list");
    let samples = families.iter().flat_map(|family| family["samples"].as_array().expect("a list"));
    let is_meant = |sample: &&Value| {
        let labels = sample["labels"].as_object().expect("labels");
        sample["name"] == name && label.is_none_or(|value| labels.values().any(|of| of == value))
    };
    let values = samples.filter(is_meant).filter_map(|sample| sample["value"].as_f64());
    values.sum::<f64>() as u64
}

/// The control socket of a server, by the client library.
#[track_caller]
pub(crate) fn admin(server: &Server) -> Client<UnixStream> {
    let name = SocketAddr::from_abstract_name(format!("sekisho/{}", server.id())).expect("a name");
    let stream = UnixStream::connect_addr(&name).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    let options = Options { admin: true, ..Options::from("test") };
    Client::connect(stream, options).expect("admitted")
}

/// A session at a Unix socket of the server's.
#[track_caller]
pub(crate) fn native(server: &Server, socket: &str, label: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(server.tree().path(socket)).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    Client::connect(stream, label).expect("admitted")
}

/// A configuration with an endpoint at `{dir}/s`, and a site.
pub(crate) fn with_endpoint(endpoint: &str, site: &str) -> String {
    format!("endpoint {{ listen unix:{{dir}}/s; {endpoint} }}\n{}", crate::common::site(site))
}
