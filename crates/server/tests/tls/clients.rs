//! Certificates of clients, and sessions that are resumed (S4).

use std::sync::{Arc, Mutex};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use sekisho_testkit::{Server, Tree};

use crate::common::{BINARY, http};
use crate::support::{Speech, can_make_certificates, certificate, serve, signed};

fn authorities() -> Tree {
    let tree = Tree::new();
    for name in ["a.test", "b.test", "ca", "other-ca"] {
        certificate(&tree, name, "30");
    }
    signed(&tree, "friend", "ca");
    signed(&tree, "stranger", "other-ca");
    tree
}

#[test]
fn clients_show_who_they_are() {
    // S1: 400 with nginx's 495 and 496 for `error_page`.
    if !can_make_certificates() {
        return;
    }
    let (ok, bad) = ("HTTP/1.1 200 OK", "HTTP/1.1 400 Bad Request");
    for (how, nobody, stranger) in
        [("on", bad, bad), ("optional", ok, bad), ("optional_no_ca", ok, ok), ("off", ok, ok)]
    {
        let body = format!(
            "ssl_verify_client {how}; ssl_client_certificate {{dir}}/ca.pem;\n\
             location / {{ return 200 '$ssl_client_verify $ssl_client_s_dn'; }}"
        );
        let server = serve(authorities(), &body);
        let tree = server.tree();
        let get = |speech: &Speech| {
            speech.connect(server.address(), "a.test").expect("a handshake").get("/", "a.test")
        };
        let (line, said) = get(&Speech::default());
        assert_eq!(line, nobody, "{how}");
        if line == ok {
            assert_eq!(said, "NONE ", "{how}");
        }
        let (line, said) = get(&Speech::shows(tree, "friend"));
        assert_eq!(line, ok, "{how}: {said}");
        let expected = if how == "off" { "NONE " } else { "SUCCESS O=Test,CN=friend" };
        assert_eq!(said, expected, "{how}");
        let (line, said) = get(&Speech::shows(tree, "stranger"));
        assert_eq!(line, stranger, "{how}: {said}");
        if how == "optional_no_ca" {
            let expected = "FAILED:unable to get local issuer certificate O=Test,CN=stranger";
            assert_eq!(said, expected);
        }
    }
}

#[test]
fn sessions_are_resumed_with_the_server_they_belong_to_and_no_other() {
    // S4, V32: CVE-2025-23419.
    if !can_make_certificates() {
        return;
    }
    let one = |name: &str, more: &str| {
        format!(
            "server {{ listen 127.0.0.1:{{port}} ssl; server_name {name}; {more}\n\
             ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;\n\
             location / {{ return 200 '{name} $ssl_session_reused $ssl_client_verify'; }} }}\n"
        )
    };
    let verify = "ssl_verify_client on; ssl_client_certificate {dir}/ca.pem;";
    for more in ["", "ssl_session_tickets off; ssl_session_cache shared:x:1m;"] {
        let servers = [one("a.test", more), one("b.test", &format!("{verify} {more}"))];
        let server = Server::start_in(authorities(), BINARY, &http(&servers.concat()));
        for version in [&TLS12, &TLS13] {
            let mut speech = Speech::new(&[version]);
            speech.config.resumption = Resumption::in_memory_sessions(8);
            let get = |name: &str, host: &str| {
                let mut client = speech.connect(server.address(), name).expect("a handshake");
                client.get("/", host)
            };
            assert_eq!(get("a.test", "a.test").1, "a.test . NONE", "{version:?}");
            assert_eq!(get("a.test", "a.test").1, "a.test r NONE", "{version:?} {more}");
            // The session of one name is nothing to another, nor is another's request on it.
            assert!(get("b.test", "b.test").0.contains("400"), "{version:?}");
            assert!(get("a.test", "b.test").0.contains("421"), "{version:?}");
        }
        // A client that moves its session by force gets no further.
        let mut speech = Speech::new(&[&TLS13]);
        speech.config.resumption = Resumption::store(Arc::new(OneForAll::default()));
        let get = |name: &str| {
            let mut client = speech.connect(server.address(), name).expect("a handshake");
            client.get("/", name)
        };
        assert_eq!(get("a.test").1, "a.test . NONE");
        assert!(get("b.test").0.contains("400"));
    }
}

/// Offers the session of any server to every other.
#[derive(Debug, Default)]
struct OneForAll(Mutex<Vec<Tls13ClientSessionValue>>);

impl ClientSessionStore for OneForAll {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.lock().expect("one thread").push(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().expect("one thread").pop()
    }
}
