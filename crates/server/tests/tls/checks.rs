//! What scanners look for, asked by OpenSSL: versions, suites, renegotiation, resumption, encrypted keys.

use std::io::Write;
use std::process::{Command, Stdio};

use sekisho_testkit::{Server, Tree, eventually};

use crate::common::{BINARY, LONG};
use crate::support::{Speech, can_make_certificates, certificate, openssl, serve, signed, site};

/// What `openssl s_client` says, and whether it was content.
pub(crate) fn s_client(server: &Server, arguments: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new("openssl")
        .args(["s_client", "-servername", "a.test", "-connect"])
        .arg(server.address().to_string())
        .args(arguments)
        .current_dir(server.tree().dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("openssl ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn only_versions_and_suites_that_are_safe_are_spoken() {
    // S1, V32
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), "location / { return 200 yes; }");
    let weak =
        "AES128-SHA:AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA@SECLEVEL=0";
    let table: [(&[&str], bool); 6] = [
        (&["-tls1_3"], true),
        (&["-tls1_2"], true),
        (&["-tls1_1", "-cipher", "ALL@SECLEVEL=0"], false),
        (&["-tls1", "-cipher", "ALL@SECLEVEL=0"], false),
        (&["-tls1_2", "-cipher", weak], false),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], true),
    ];
    for (arguments, expected) in table {
        let (is_good, said) = s_client(&server, arguments, "");
        assert_eq!(is_good, expected, "{arguments:?}: {said}");
        assert!(!is_good || said.contains("Compression: NONE"), "{said}");
    }
}

#[test]
fn a_session_is_not_negotiated_anew_and_is_resumed() {
    // S1, S4, V32
    if !can_make_certificates() {
        return;
    }
    let server = serve(Tree::new(), "location / { return 200 answered; }");
    let (_, said) = s_client(&server, &["-tls1_2"], "R\nGET / HTTP/1.0\r\n\r\n");
    assert!(said.contains("RENEGOTIATING"), "{said}");
    assert!(!said.contains("answered"), "{said}");
    let ask = "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        let first = s_client(&server, &[version, "-ign_eof", "-sess_out", "session"], ask);
        assert!(first.1.contains("answered") && first.1.contains("New, TLSv1."), "{}", first.1);
        let again = s_client(&server, &[version, "-ign_eof", "-sess_in", "session"], ask);
        assert!(again.1.contains("answered") && again.1.contains("Reused, TLSv1."), "{}", again.1);
    }
}

#[test]
fn variables_say_what_was_offered_and_which_session_it_is() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "ca", "30");
    signed(&tree, "client", "ca");
    let server = serve(
        tree,
        "ssl_client_certificate {dir}/ca.pem; ssl_verify_client optional;
         ssl_session_tickets off; ssl_session_cache shared:a:1m;
         location / { return 200 \"$ssl_ciphers|$ssl_curves|$ssl_session_id|$ssl_client_s_dn_legacy|$ssl_client_i_dn_legacy|\"; }",
    );
    let ask = "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n";
    let show = ["-cert", "client.pem", "-key", "client.key", "-groups", "X25519:secp521r1:P-256"];
    let old = ["-ign_eof", "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256:AES128-SHA"];
    let offered = "ECDHE-ECDSA-AES128-GCM-SHA256:AES128-SHA:0x00ff|X25519:secp521r1:prime256v1|";
    let (_, said) = s_client(&server, &[&old[..], &show, &["-sess_out", "s"]].concat(), ask);
    let id = said.lines().find_map(|line| line.trim().strip_prefix("Session-ID: "));
    let id = id.expect("a line").to_ascii_lowercase();
    let line = format!("{offered}{id}|/CN=client/O=Test|/CN=ca|");
    assert!(id.len() == 64 && said.contains(&line), "{line} in {said}");
    let (_, said) = s_client(&server, &[&old[..], &["-sess_in", "s"]].concat(), ask);
    assert!(said.contains("Reused") && said.contains(&format!("\n||{id}|")), "{said}");
    let new = ["-ign_eof", "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"];
    let (_, said) = s_client(&server, &[&new[..], &show].concat(), ask);
    let line =
        "TLS_AES_128_GCM_SHA256:0x00ff|X25519:secp521r1:prime256v1||/CN=client/O=Test|/CN=ca|";
    assert!(said.contains(line), "{line} in {said}");
}

#[test]
fn sessions_end_with_their_time() {
    // S4
    if !can_make_certificates() {
        return;
    }
    let settings = [
        "ssl_session_timeout 1s;",
        "ssl_session_timeout 1s; ssl_session_tickets off; ssl_session_cache shared:a:1m;",
    ];
    for settings in settings {
        let server = serve(Tree::new(), &format!("{settings} return 200 answered;"));
        let ask = "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n";
        for version in ["-tls1_2", "-tls1_3"] {
            s_client(&server, &[version, "-ign_eof", "-sess_out", "session"], ask);
            eventually("an end", LONG, || {
                // A client that has not been given another one shows the same again.
                let arguments = [version, "-ign_eof", "-sess_in", "session"];
                let (_, said) = s_client(&server, &arguments, ask);
                assert!(said.contains("answered"), "{said}");
                said.contains("New, TLSv1.")
            });
        }
    }
}

/// What `openssl` makes without extensions is a certificate of version 1, which rustls does not read.
#[test]
fn a_certificate_of_version_1_is_shown() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    openssl(
        &tree,
        &["req", "-new", "-key", "a.test.key", "-subj", "/CN=a.test", "-out", "new.csr"],
    );
    let sign = ["x509", "-req", "-in", "new.csr", "-signkey", "a.test.key", "-out", "a.test.pem"];
    openssl(&tree, &sign);
    let server = serve(tree, "location / { return 200 answered; }");
    let ask = "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n";
    let (_, said) = s_client(&server, &["-ign_eof"], ask);
    assert!(said.contains("answered"), "{said}");
}

#[test]
fn a_key_with_a_password_is_opened() {
    if !can_make_certificates() {
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let to =
        ["pkcs8", "-topk8", "-in", "a.test.key", "-out", "new.key", "-passout", "pass:se cret"];
    openssl(&tree, &to);
    std::fs::rename(tree.path("new.key"), tree.path("a.test.key")).expect("renamed");
    tree.file("passwords", "wrong\nse cret\n");
    tree.file("others", "wrong\n");
    let failed = |tree: Tree, body: &str| {
        let failed = Server::try_start(tree, BINARY, &site(body), &[]).expect_err("it ends");
        failed.stderr
    };
    let copy = |tree: &Tree| {
        let other = Tree::new();
        for name in ["a.test.key", "a.test.pem", "others"] {
            other.file(name, tree.read(name));
        }
        other
    };
    let said = failed(copy(&tree), "");
    assert!(said.contains("is encrypted: set its password with \"ssl_password_file\""), "{said}");
    let said = failed(copy(&tree), "ssl_password_file {dir}/others;");
    assert!(said.contains("cannot be decrypted with any password in"), "{said}");
    let server = serve(tree, "ssl_password_file {dir}/passwords; return 200 opened;");
    let mut client = Speech::default().connect(server.address(), "a.test").expect("a handshake");
    assert_eq!(client.get("/", "a.test").1, "opened");
}
