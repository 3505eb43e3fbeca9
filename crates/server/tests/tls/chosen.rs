//! Certificates that variables choose, on both sides of the server, and certificates of version 1.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sekisho_testkit::{Server, Tree, have, run};

use crate::common::{BINARY, LONG, http};
use crate::support::{Speech, can_make_certificates, certificate, der, openssl, signed};

/// What the server answers to a client that asks for a name; nothing where the handshake fails.
fn get(server: &Server, speech: &Speech, name: &str) -> Option<(Vec<u8>, String)> {
    let mut client = speech.connect(server.address(), name).ok()?;
    let shown = client.shown();
    Some((shown, client.get("/", name).1))
}

#[test]
fn the_name_that_is_asked_for_chooses_the_file() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "b.test", "c.test"] {
        certificate(&tree, name, "30");
    }
    let text = |file: &str| tree.text(file);
    let maps = format!(
        "map $ssl_server_name $own {{ default ''; c.test '{}'; }}\n\
         map $ssl_server_name $own_key {{ default ''; c.test '{}'; }}\n",
        text("c.test.pem"),
        text("c.test.key")
    );
    let body = format!(
        "{maps}
         server {{ listen 127.0.0.1:{{port}} ssl; root {{root}};
             ssl_certificate {{dir}}/$ssl_server_name.pem;
             ssl_certificate_key {{dir}}/$ssl_server_name.key;
             location / {{ return 200 default; }} }}
         server {{ listen 127.0.0.1:{{port}} ssl; server_name c.test; root {{root}};
             ssl_certificate data:$own; ssl_certificate_key data:$own_key;
             ssl_certificate_cache max=10;
             location / {{ return 200 text; }} }}
         server {{ listen 127.0.0.1:{{port}} ssl; server_name b.test; root {{root}};
             location / {{ return 200 bare; }} }}"
    );
    let server = Server::start_in(tree, BINARY, &http(&body));
    let speech = Speech::default();
    for (name, said) in [("a.test", "default"), ("c.test", "text"), ("b.test", "bare")] {
        for _ in 0..2 {
            let found = get(&server, &speech, name);
            let expected = (der(server.tree(), name), said.to_owned());
            assert_eq!(found, Some(expected), "{name}");
        }
    }
    assert_eq!(get(&server, &speech, "none.test"), None, "there is no such file");
    assert!(server.log("error.log").contains("cannot load certificate"), "and the log says so");
    // The files are read in each handshake.
    certificate(server.tree(), "a.test", "31");
    let renewed = get(&server, &Speech::default(), "a.test").expect("a handshake").0;
    assert_eq!(renewed, der(server.tree(), "a.test"));
}

#[test]
fn certificates_of_version_1_are_judged_by_their_issuer() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "ca", "other-ca"] {
        certificate(&tree, name, "30");
    }
    for (name, authority) in [("friend", "ca"), ("stranger", "other-ca")] {
        let (key, request, file) =
            (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        let (ca, ca_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        openssl(&tree, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        let subject = format!("/CN={name}");
        openssl(&tree, &["req", "-new", "-key", &key, "-out", &request, "-subj", &subject]);
        let from =
            ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"];
        openssl(&tree, &[&from[..], &["-out", &file, "-days", "30"]].concat());
    }
    let body = "server { listen 127.0.0.1:{port} ssl; root {root};
        ssl_certificate {dir}/a.test.pem; ssl_certificate_key {dir}/a.test.key;
        ssl_verify_client on; ssl_client_certificate {dir}/ca.pem;
        error_page 495 = @bad; location @bad { return 200 '$ssl_client_verify'; }
        location / { return 200 '$ssl_client_verify $ssl_client_s_dn'; } }";
    let server = Server::start_in(tree, BINARY, &http(body));
    for (certificate, key, said) in [
        ("friend", "friend", Some("SUCCESS CN=friend")),
        ("stranger", "stranger", Some("FAILED:unable to get local issuer certificate")),
        // The authority itself, which is marked as one.
        ("ca", "ca", Some("SUCCESS CN=ca")),
        // Who shows the certificate of another has not its key.
        ("friend", "stranger", None),
    ] {
        let mut speech = Speech::default();
        let file = |end: &str| server.tree().path(end);
        let chain = CertificateDer::from_pem_file(file(&format!("{certificate}.pem")));
        let key = PrivateKeyDer::from_pem_file(file(&format!("{key}.key"))).expect("a key");
        let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).expect("a key");
        let pair = CertifiedKey::new(vec![chain.expect("a certificate")], key);
        speech.config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair));
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut speech = speech.clone();
            let resolver = Arc::clone(&speech.config.client_auth_cert_resolver);
            speech.config = Speech::new(&[version]).config;
            speech.config.client_auth_cert_resolver = resolver;
            let found = speech.connect(server.address(), "a.test").ok().and_then(|mut client| {
                // With TLS 1.3 the client has finished before the server has judged.
                client
                    .stream
                    .write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
                    .ok()?;
                let mut answer = String::new();
                client.stream.read_to_string(&mut answer).ok()?;
                answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
            });
            assert_eq!(found.as_deref(), said, "{certificate} {version:?}");
        }
    }
}

/// `ssl_crl` with lists of both versions, for certificates of both: `openssl` makes the first where no extensions are asked for.
#[test]
fn revoked_certificates_are_refused_whatever_the_versions() {
    if !can_make_certificates() || !have("curl") {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "ca", "other-ca"] {
        certificate(&tree, name, "30");
    }
    for name in ["new", "new-revoked"] {
        signed(&tree, name, "ca");
    }
    // Of the first version, as above.
    for name in ["old", "old-revoked"] {
        signed(&tree, name, "ca");
        let (request, file) = (format!("{name}.csr"), format!("{name}.pem"));
        let from = ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key"];
        openssl(
            &tree,
            &[&from[..], &["-CAserial", "ca.srl", "-out", &file, "-days", "30"]].concat(),
        );
    }
    // The last one is signed by another key, in the name of the authority.
    let other = ["req", "-x509", "-new", "-key", "other-ca.key", "-out", "fake.pem"];
    openssl(&tree, &[&other[..], &["-days", "30", "-subj", "/CN=ca"]].concat());
    for (list, extensions, signer, key, version) in [
        ("first", "", "ca.pem", "ca.key", "Version 1"),
        ("second", "crlnumber=number\ncrl_extensions=more", "ca.pem", "ca.key", "Version 2"),
        ("foreign", "", "fake.pem", "other-ca.key", "Version 1"),
    ] {
        tree.file("index.txt", "");
        tree.file("number", "01\n");
        let own = "[own]\ndatabase=index.txt\ndefault_md=sha256\ndefault_crl_days=7";
        let config = format!(
            "[ca]\ndefault_ca=own\n{own}\n{extensions}\n[more]\nauthorityKeyIdentifier=keyid\n"
        );
        tree.file("ca.cnf", config);
        let own = ["-config", "ca.cnf", "-cert", signer, "-keyfile", key];
        for revoked in ["new-revoked.pem", "old-revoked.pem"] {
            openssl(&tree, &[&["ca", "-revoke", revoked][..], &own].concat());
        }
        let out = tree.path(&format!("{list}.crl")).display().to_string();
        openssl(&tree, &[&["ca", "-gencrl", "-out", &out][..], &own].concat());
        let text = run("openssl", &["crl", "-in", &out, "-noout", "-text"], LONG).stdout;
        assert!(text.contains(version), "{text}");
    }
    let server = |name: &str| {
        format!(
            "server {{ listen 127.0.0.1:{{port}} ssl; server_name {name}.test;
               ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;
               ssl_verify_client on; ssl_client_certificate {{dir}}/ca.pem; ssl_crl {{dir}}/{name}.crl;
               error_page 495 = @bad; location @bad {{ return 200 '$ssl_client_verify'; }}
               location / {{ return 200 '$ssl_client_verify'; }} }}\n"
        )
    };
    let body = ["first", "second", "foreign"].map(server);
    let server = Server::start_in(tree, BINARY, &http(&body.concat()));
    let get = |name: &str, client: &str| {
        let file = |end: &str| server.tree().path(&format!("{client}.{end}")).display().to_string();
        let (cert, key) = (file("pem"), file("key"));
        let to = format!("{name}:443:{}", server.address());
        let url = format!("https://{name}/");
        let arguments = ["-sk", "--connect-to", &to, "--cert", &cert, "--key", &key, &url];
        run("curl", &arguments, LONG).stdout
    };
    for name in ["first.test", "second.test"] {
        for (client, said) in [
            ("new", "SUCCESS"),
            ("old", "SUCCESS"),
            ("new-revoked", "FAILED:certificate revoked"),
            ("old-revoked", "FAILED:certificate revoked"),
        ] {
            assert_eq!(get(name, client), said, "{name} {client}");
        }
    }
    assert_eq!(get("foreign.test", "new"), "FAILED:CRL signature failure");
}

/// S1, O3: a list of revoked certificates that cannot be used fails a reload, and the list in use stays.
#[test]
fn a_broken_list_of_revoked_certificates_changes_nothing() {
    if !have("curl") {
        return;
    }
    let tree = Tree::new();
    crate::authority::authority(&tree, "ours", "ann");
    let good = tree.text("ours.crl");
    tree.file("list", &good);
    let server = Server::start_in(
        tree,
        BINARY,
        &format!(
            "pid {{dir}}/pid;\n{}",
            http(
                "server { listen 127.0.0.1:{port} ssl; ssl_certificate {dir}/ours-server.pem;
               ssl_certificate_key {dir}/ours-server.pem; ssl_verify_client on;
               ssl_client_certificate {dir}/ours.pem; ssl_crl {dir}/list;
               error_page 495 = @bad; location @bad { return 200 $ssl_client_verify; }
               location / { return 200 $ssl_client_verify; } }",
            )
        ),
    );
    let path = |name: &str| server.tree().path(name).display().to_string();
    let client = path("ours-client.pem");
    let url = format!("https://{}/", server.address());
    let verified = || run("curl", &["-sk", "--cert", &client, "--key", &client, &url], LONG).stdout;
    let dir = server.tree().dir().display().to_string();
    let config = server.config_path().display().to_string();
    let reload = || run(BINARY, &["-p", &dir, "-c", &config, "-s", "reload"], LONG);
    assert_eq!(verified(), "SUCCESS");
    let half = &good[..good.len() / 2];
    let certificate = server.tree().text("ours.pem");
    let pem = |text: &str| format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n");
    let nested = pem(&"MIAw".repeat(10_000));
    let broken =
        ["", "garbage", half, &certificate, &pem("AAAA"), &pem("MIL///8="), &nested, &pem("")];
    for text in broken {
        server.tree().file("list", text);
        let said = reload();
        assert_eq!(said.code(), 1, "{text:.60}: {}", said.stderr);
        assert!(said.stderr.contains("list"), "{text:.60}: {}", said.stderr);
        assert_eq!(verified(), "SUCCESS", "{text:.60}");
    }
    server.tree().file("list", server.tree().text("ours-client.crl"));
    assert_eq!(reload().code(), 0);
    assert_eq!(verified(), "FAILED:certificate revoked");
}

#[test]
fn servers_are_shown_the_certificate_that_variables_choose() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    for name in ["a.test", "one", "two"] {
        certificate(&tree, name, "30");
    }
    openssl(
        &tree,
        &["pkcs8", "-topk8", "-in", "two.key", "-out", "two.enc", "-passout", "pass:x y"],
    );
    std::fs::rename(tree.path("two.enc"), tree.path("two.key")).expect("renamed");
    tree.file("words", "no\nx y\n");
    let body = "
        server { listen 127.0.0.1:{port}; root {root};
            location / {
                proxy_pass https://127.0.0.1:{port2}; proxy_ssl_name $arg_name; proxy_ssl_server_name on;
                proxy_ssl_certificate {dir}/$arg_who.pem; proxy_ssl_certificate_key {dir}/$arg_who.key;
                proxy_ssl_password_file {dir}/words; proxy_http_version 1.1; proxy_set_header Connection '';
            }
            location /nobody/ { proxy_ssl_certificate ''; proxy_pass https://127.0.0.1:{port2}; }
        }
        server { listen 127.0.0.1:{port2} ssl; root {root};
            ssl_certificate {dir}/a.test.pem; ssl_certificate_key {dir}/a.test.key;
            ssl_verify_client optional_no_ca;
            location / { return 200 '$ssl_server_name $ssl_client_s_dn'; } }";
    let server = Server::start_in(tree, BINARY, &http(body));
    let mut client = server.connect();
    for (target, said) in [
        ("/?who=one&name=x.test", "x.test CN=one"),
        ("/?who=two&name=y.test", "y.test CN=two"),
        ("/?who=one&name=y.test:443", "y.test CN=one"),
        ("/nobody/?who=one&name=x.test", " "),
    ] {
        assert_eq!(client.get(target).text(), said, "{target}");
    }
    assert_eq!(client.get("/?who=three&name=x.test").status, 500);
}
