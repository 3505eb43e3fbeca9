//! Certificates that change, and those that cannot be used (S4).

use std::fs;

use rustls::client::Resumption;
use sekisho_testkit::{Finished, Server, Tree, eventually, run};

use crate::common::{BINARY, LONG};
use crate::support::{Speech, can_make_certificates, certificate, der, signed, site};

fn start(tree: Tree, body: &str) -> Server {
    let config = format!("pid {{dir}}/server.pid;\n{}", site(body));
    let server = Server::start_in(tree, BINARY, &config);
    eventually("the pid file", LONG, || server.tree().text("server.pid").ends_with('\n'));
    server
}

fn reload(server: &Server) -> Finished {
    run(BINARY, &["-s", "reload", "-c", &server.config_path().display().to_string()], LONG)
}

#[test]
fn a_reload_shows_the_new_certificate_and_drops_nobody() {
    // S4
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let server = start(tree, "location / { return 200 '$ssl_session_reused'; }");
    let mut speech = Speech::default();
    speech.config.resumption = Resumption::in_memory_sessions(8);
    let mut kept = speech.connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(kept.get("/", "a.test").1, ".");
    let old = kept.shown();
    certificate(server.tree(), "a.test", "60");
    let new = der(server.tree(), "a.test");
    assert_ne!(old, new);
    let finished = reload(&server);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert_eq!(kept.get("/", "a.test").1, ".", "a connection goes on");
    let mut client = speech.connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(client.get("/", "a.test").1, "r", "tickets outlive a reload");
    let fresh = Speech::default().connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(fresh.shown(), new);

    // A pair that does not match changes nothing.
    certificate(server.tree(), "other", "30");
    fs::copy(server.tree().path("other.key"), server.tree().path("a.test.key")).expect("copied");
    let finished = reload(&server);
    assert_ne!(finished.code(), 0);
    assert!(finished.stderr.contains("is not the key of the certificate"), "{}", finished.stderr);
    assert_eq!(kept.get("/", "a.test").1, ".");
    let fresh = Speech::default().connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(fresh.shown(), new);
}

#[test]
fn a_reload_judges_clients_anew() {
    // S4
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "ca", "other-ca"] {
        certificate(&tree, name, "30");
    }
    signed(&tree, "friend", "ca");
    let body =
        "ssl_verify_client on; ssl_client_certificate {dir}/ca.pem; location / { return 200 yes; }";
    let server = start(tree, body);
    let speech = Speech::shows(server.tree(), "friend");
    let mut kept = speech.connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(kept.get("/", "a.test").1, "yes");
    assert_eq!(reload(&server).code(), 0);
    assert_eq!(kept.get("/", "a.test").1, "yes");
    fs::copy(server.tree().path("other-ca.pem"), server.tree().path("ca.pem")).expect("copied");
    assert_eq!(reload(&server).code(), 0);
    assert_eq!(kept.get("/", "a.test").0, "HTTP/1.1 400 Bad Request");
}

#[test]
fn a_test_of_the_configuration_reads_certificates() {
    // S4
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    certificate(&tree, "b.test", "30");
    tree.file("empty.pem", "nothing\n");
    let test = |certificate: &str, key: &str, more: &str| {
        let config = site(more)
            .replace("{dir}/a.test.pem", &tree.path(certificate).display().to_string())
            .replace("{dir}/a.test.key", &tree.path(key).display().to_string())
            .replace("{port}", "1")
            .replace("{root}", &tree.root().display().to_string())
            .replace("{dir}", &tree.dir().display().to_string());
        let file = tree.file("test.conf", config).display().to_string();
        run(BINARY, &["-t", "-c", &file], LONG)
    };
    assert_eq!(test("a.test.pem", "a.test.key", "").code(), 0);
    for (certificate, key, expected) in [
        ("a.test.pem", "b.test.key", "is not the key of the certificate"),
        ("missing.pem", "a.test.key", "No such file"),
        ("empty.pem", "a.test.key", "has no certificate in it"),
        ("a.test.pem", "empty.pem", "has no private key in it"),
    ] {
        let finished = test(certificate, key, "");
        assert_eq!(finished.code(), 1, "{expected}");
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
        assert!(finished.stderr.contains("test.conf:"), "with its place: {}", finished.stderr);
    }
    for (more, expected) in [
        ("ssl_protocols TLSv1.1 TLSv1.2;", (0, "TLSv1.1")),
        ("ssl_protocols TLSv1;", (1, "is not supported")),
        ("ssl_ciphers HIGH:DHE-RSA-AES128-SHA;", (0, "DHE-RSA-AES128-SHA")),
        ("ssl_dhparam x;", (0, "ssl_dhparam")),
        ("ssl_verify_client on;", (1, "no \"ssl_client_certificate\"")),
        ("ssl_session_ticket_key empty.pem;", (1, "48 or 80")),
    ] {
        let finished = test("a.test.pem", "a.test.key", more);
        assert_eq!(finished.code(), expected.0, "{more}: {}", finished.stderr);
        assert!(finished.stderr.contains(expected.1), "{more}: {}", finished.stderr);
    }
}
