//! Names that are looked up while the server runs (`resolver`), with a DNS server of the test's own.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::Ordering;

use sekisho_testkit::{Dns, Server, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A host in a variable is looked up; what is not found is 502 in nginx's words, and an answer is believed for its time.
#[test]
fn a_host_in_a_variable_is_looked_up() {
    let dns = Dns::start();
    let backend = Backend::saying("found");
    dns.set("app.example", &[HERE]);
    let port = backend.address().port();
    let body = format!(
        "resolver {};
         server {{ listen 127.0.0.1:{{port}};
                  location / {{ proxy_pass http://$arg_to:{port}; }} }}",
        dns.address
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/?to=app.example").text(), "found", "{}", server.log("error.log"));
    assert!(backend.heads()[0].contains(&format!("Host: app.example:{port}\r\n")));
    let asked = dns.asked();
    assert_eq!(asked, 2, "one for each kind of address");
    assert_eq!(client.get("/?to=APP.example").text(), "found");
    assert_eq!(dns.asked(), asked, "what is known is not asked for");
    // The server of another name is asked for that one.
    let aliased = client.get("/?to=alias-of-alias-of-app.example");
    assert_eq!(aliased.text(), "found", "{}", server.log("error.log"));
    assert_eq!(client.get("/?to=gone.example").status, 502);
    let log = server.log("error.log");
    assert!(log.contains("gone.example could not be resolved (3: Host not found)"), "{log}");
    // An answer that is too long for a datagram comes by TCP.
    dns.is_cut.store(true, Ordering::SeqCst);
    dns.set("long.example", &[HERE]);
    assert_eq!(client.get("/?to=long.example").text(), "found", "{}", server.log("error.log"));
}

/// A server that says nothing is waited for no longer than `resolver_timeout`, and delays no request
/// afterwards.
#[test]
fn a_silent_dns_server_is_left_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let body = format!(
        "resolver {} ipv6=off; resolver_timeout 300ms;
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://$arg_to:1; }} }}",
        silent.local_addr().expect("it has an address")
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let mut client = server.connect();
    assert_eq!(client.get("/?to=app.example").status, 502);
    let log = server.log("error.log");
    assert!(log.contains("could not be resolved (110: Operation timed out)"), "{log}");
}

/// `server name resolve`: the group follows the name, also where it was not known at the start.
#[test]
fn a_server_of_a_group_follows_its_name() {
    let dns = Dns::start();
    // One port at two addresses, which some other program may have at one of them.
    let both = (0..100).find_map(|_| {
        let here = TcpListener::bind((HERE, 0)).ok()?;
        let port = here.local_addr().ok()?.port();
        Some((here, TcpListener::bind((ELSEWHERE, port)).ok()?, port))
    });
    let (here, elsewhere, port) = both.expect("a port is free");
    let _backends = [Backend::saying_on(here, "here"), Backend::saying_on(elsewhere, "elsewhere")];
    let body = format!(
        "resolver {} valid=1s ipv6=off;
         upstream app {{ server app.example:{port} resolve; keepalive 4; }}
         server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://app; }} }}",
        dns.address
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let get = || server.connect().get("/");
    assert_eq!(get().status, 502, "not found yet");
    dns.set("app.example", &[HERE]);
    eventually("the name is found", LONG, || get().text() == "here");
    dns.set("app.example", &[ELSEWHERE]);
    eventually("the group follows", LONG, || get().text() == "elsewhere");
    dns.set("app.example", &[HERE, ELSEWHERE]);
    eventually("both take turns", LONG, || {
        let mut both = [get().text(), get().text()];
        both.sort();
        both == ["elsewhere", "here"]
    });
}

/// O5: names that are being looked up take an eighth of the descriptors at most; the others wait, and fail in time.
#[test]
fn lookups_leave_descriptors_for_connections() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let body = format!(
        "resolver {} ipv6=off; resolver_timeout 2s;
         server {{ listen 127.0.0.1:{{port}}; location = /ok {{ return 200 ok; }}
                  location / {{ proxy_pass http://$arg_to:1; }} }}",
        silent.local_addr().expect("it has an address")
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&body));
    let before = server.fds();
    server.limit_descriptors(400);
    let ask = |at: usize| {
        let mut client = server.connect().with_patience(LONG);
        client.send(format!("GET /?to=name{at}.example HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    let mut waiting: Vec<_> = (0..200).map(ask).collect();
    eventually("questions are asked", LONG, || server.fds() > before + 240);
    assert!(server.fds() <= before + 255, "{}: a connection each, and 50 questions", server.fds());
    assert_eq!(server.connect().get("/ok").text(), "ok");
    for client in &mut waiting {
        assert_eq!(client.read_response().status, 502);
    }
    drop(waiting);
    eventually("all is free", LONG, || server.fds() <= before + 2);
}
