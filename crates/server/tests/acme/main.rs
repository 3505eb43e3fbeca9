//! Certificates from a real authority: ordered, kept, renewed, and what happens when it says no or is gone.
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod fleet;
mod lies;
mod pebble;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Process;
use common::{BINARY, LONG};
use pebble::Pebble;
use sekisho_testkit::{Server, Signal, Tree, eventually, free_port, wait_for};

/// A server for `name` with TLS at one port and HTTP at another.
fn config(issuer: &str, (http, tls): (u16, u16), more: &str) -> String {
    format!(
        "worker_processes 2; error_log {{dir}}/error.log info; pid {{dir}}/server.pid; events {{}}
         http {{
             access_log off;
             {issuer}
             acme_shared_zone zone=certificates:1M;
             server {{
                 listen 127.0.0.1:{http};
                 server_name a.example.org b.example.org;
                 return 301 https://$host$request_uri;
             }}
             server {{
                 listen 127.0.0.1:{tls} ssl; http2 on;
                 server_name a.example.org b.example.org;
                 acme_certificate test;
                 ssl_certificate $acme_certificate;
                 ssl_certificate_key $acme_certificate_key;
                 return 200 'served';
             }}
             {more}
         }}"
    )
}

/// The text of the certificate that is shown for a name; `None` if the handshake fails.
fn shown(port: u16, name: &str) -> Option<String> {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername {name} </dev/null 2>/dev/null \
         | openssl x509 -noout -issuer -serial -ext subjectAltName 2>/dev/null"
    );
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output();
    let text = String::from_utf8_lossy(&output.expect("a shell runs").stdout).into_owned();
    Some(text).filter(|text| text.contains("serial="))
}

fn has_log(server: &Server, text: &str) -> bool {
    server.tree().text("error.log").contains(text)
}

/// Starts authority and server, and waits for the certificate.
fn issued(challenge: &str) -> (Server, Pebble, (u16, u16), String) {
    let tree = Tree::new();
    let ports = (free_port(), free_port());
    // Many nonces are refused.
    let mut authority =
        Pebble::new(&tree, ports.0, ports.1, "").with("PEBBLE_WFE_NONCEREJECT", "15");
    authority.start(&tree);
    let issuer = authority.issuer(&format!("challenge {challenge};"));
    let server = Server::start_in(tree, BINARY, &config(&issuer, ports, ""));
    eventually("a certificate", LONG, || shown(ports.1, "a.example.org").is_some());
    let text = shown(ports.1, "b.example.org").expect("a certificate");
    (server, authority, ports, text)
}

#[test]
fn a_certificate_is_ordered_by_http_and_kept() {
    if !pebble::is_there() {
        return;
    }
    let (mut server, mut authority, ports, text) = issued("http-01");
    assert!(text.contains("Pebble Intermediate CA"), "{text}");
    assert!(text.contains("DNS:a.example.org, DNS:b.example.org"), "{text}");
    let folder = server.tree().path("state");
    for name in server.tree().names("state") {
        let mode = std::fs::metadata(folder.join(&name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o700);
    // A restart needs no authority.
    authority.stop();
    server.quit();
    server.wait_exit(LONG);
    server.start_again(BINARY);
    eventually("the same certificate", LONG, || {
        shown(ports.1, "a.example.org").is_some_and(|again| again == text)
    });
    let body = Command::new("curl")
        .args(["-sk", "--connect-to", &format!("a.example.org:443:127.0.0.1:{}", ports.1)])
        .arg("https://a.example.org/")
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&body.stdout), "served");
}

#[test]
fn a_certificate_is_ordered_by_handshakes() {
    if !pebble::is_there() {
        return;
    }
    let (_server, _authority, ports, text) = issued("tls-alpn-01");
    assert!(text.contains("DNS:a.example.org, DNS:b.example.org"), "{text}");
    // A client that asks for the protocol of the check gets no certificate when there is no check.
    let output = Command::new("openssl")
        .args(["s_client", "-alpn", "acme-tls/1", "-servername", "a.example.org", "-connect"])
        .arg(format!("127.0.0.1:{}", ports.1))
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_authority_that_is_gone_is_asked_again_and_others_are_served_meanwhile() {
    if !pebble::is_there() {
        return;
    }
    let tree = Tree::new();
    let ports = (free_port(), free_port());
    let other = free_port();
    let mut authority = Pebble::new(&tree, ports.0, ports.1, "");
    let more = format!("server {{ listen 127.0.0.1:{other}; return 200 'other'; }}");
    let config = config(&authority.issuer(""), ports, &more);
    let server = Server::start_in(tree, BINARY, &config);
    eventually("the log tells what to do", LONG, || {
        has_log(&server, "see that \"uri\" can be reached from here; next try in")
    });
    assert_eq!(shown(ports.1, "a.example.org"), None, "a clear error, and no other certificate");
    let mut client = sekisho_testkit::Client::connect(([127, 0, 0, 1], other).into());
    assert_eq!(client.get("/").text(), "other");
    authority.start(server.tree());
    eventually("a certificate", LONG, || shown(ports.1, "a.example.org").is_some());
}

#[test]
fn a_refused_challenge_is_told_and_tried_again_after_a_reload() {
    if !pebble::is_there() {
        return;
    }
    let tree = Tree::new();
    let ports = (free_port(), free_port());
    let elsewhere = free_port();
    // The authority looks at a port without a listener.
    let mut authority = Pebble::new(&tree, elsewhere, ports.1, "");
    authority.start(&tree);
    let issuer = authority.issuer("");
    let server = Server::start_in(tree, BINARY, &config(&issuer, ports, ""));
    eventually("the refusal is logged", LONG, || {
        has_log(&server, "the authority refuses") && has_log(&server, "port 80 is served")
    });
    assert_eq!(shown(ports.1, "a.example.org"), None);
    // Now a server listens there.
    let more = format!("server {{ listen 127.0.0.1:{elsewhere}; return 404; }}");
    server.rewrite_config(&config(&issuer, ports, &more));
    server.signal(Signal::HUP);
    eventually("a certificate", LONG, || shown(ports.1, "a.example.org").is_some());
}

#[test]
fn a_certificate_is_renewed_before_it_ends_and_by_an_authority_that_forgot_us() {
    if !pebble::is_there() {
        return;
    }
    let tree = Tree::new();
    let ports = (free_port(), free_port());
    let short = r#", "certificateValidityPeriod": 15"#;
    let mut authority = Pebble::new(&tree, ports.0, ports.1, short);
    authority.start(&tree);
    let issuer = authority.issuer("");
    let server = Server::start_in(tree, BINARY, &config(&issuer, ports, ""));
    eventually("a certificate", LONG, || shown(ports.1, "a.example.org").is_some());
    let first = shown(ports.1, "a.example.org");
    // It has lost our account, and everything else.
    authority.start(server.tree());
    let is_new =
        || shown(ports.1, "a.example.org").is_some_and(|text| Some(&text) != first.as_ref());
    assert!(wait_for(LONG, is_new), "{}", server.log("error.log"));
    assert!(wait_for(Duration::from_secs(5), || has_log(&server, "issued: valid for 0 days")));
}

/// RFC 9773. Pebble of Debian does not know it: a server in front says when to renew, and passes everything else on.
#[test]
fn a_certificate_is_renewed_when_its_authority_says_so() {
    if !pebble::is_there() {
        return;
    }
    let tree = Tree::new();
    let (ports, front) = ((free_port(), free_port()), free_port());
    let mut authority =
        Pebble::new(&tree, ports.0, ports.1, "").with("PEBBLE_WFE_NONCEREJECT", "0");
    authority.start(&tree);
    let at = format!("https://localhost:{front}");
    let issuer = authority.issuer("").replace(&authority.uri(), &format!("{at}/dir"));
    let directory = format!(
        r#"{{"newNonce": "{at}/nonce-plz", "newAccount": "{at}/sign-me-up",
            "newOrder": "{at}/order-plz", "revokeCert": "{at}/revoke-cert",
            "keyChange": "{at}/rollover-account-key", "renewalInfo": "{at}/renewal"}}"#
    );
    let window =
        r#"{"suggestedWindow": {"start": "2021-01-01T00:00:00Z", "end": "2021-01-02T00:00:00Z"}}"#;
    let behind = authority.uri().replace("localhost", "127.0.0.1").replace("/dir", "");
    let more = format!(
        "log_format asked '$request_method $uri $status'; server {{
             listen 127.0.0.1:{front} ssl; access_log {{dir}}/asked.log asked;
             ssl_certificate {{dir}}/p.pem; ssl_certificate_key {{dir}}/p.key;
             default_type application/json;
             location = /dir {{ return 200 '{directory}'; }}
             location /renewal/ {{ add_header Retry-After 21600; return 200 '{window}'; }}
             location / {{ proxy_pass {behind}; proxy_set_header Host $http_host; }} }}"
    );
    let server = Server::start_in(tree, BINARY, &config(&issuer, ports, &more));
    let said = |text: &str| server.tree().text("error.log").matches(text).count();
    let count = || said("issued: valid for");
    // A busy machine may miss the time that the authority has for a check. The next attempt would come after a minute;
    // after a reload it comes at once.
    let mut failures = 0;
    eventually("a second certificate", LONG, || {
        if said("no certificate for") > failures {
            failures += 1;
            server.signal(Signal::HUP);
        }
        count() == 2
    });
    let asked = || server.log("asked.log").matches("GET /renewal/").count();
    // The window of the second one lies in the past as well: it is asked for, and waits.
    eventually("a question about the second one", LONG, || asked() >= 2);
    assert_eq!(count(), 2, "{}", server.log("asked.log"));
    let renewals = server.log("asked.log");
    let renewals = renewals.lines().filter(|line| line.contains("/renewal/"));
    let names: std::collections::BTreeSet<_> = renewals.collect();
    assert!(names.len() == 2 && names.iter().all(|it| it.contains('.')), "{names:?}");
}

/// A folder by HTTPS with this machine's own authority.
#[test]
fn serve_https_has_an_authority_of_its_own() {
    let is_there =
        |name: &str| Command::new(name).arg("version").stdout(Stdio::null()).status().is_ok();
    if !is_there("curl") || !is_there("openssl") {
        println!("skipped: there is no curl or openssl");
        return;
    }
    let data = Tree::new();
    let mut authorities = Vec::new();
    for _ in 0..2 {
        let tree = Tree::new();
        tree.file("root/index.html", "by HTTPS");
        let listen = format!("127.0.0.1:{}", free_port());
        let process = Process::start_with(
            tree,
            &["serve", "--https", "root", "--listen", &listen, "-q"],
            &[("XDG_DATA_HOME", data.dir())],
        );
        let authority = data.path("sekisho/ca.pem");
        eventually("it says where it is and how to trust it", LONG, || {
            let said = process.tree().text("stdout");
            said.contains(&format!("on https://{listen}/"))
                && said.contains("update-ca-certificates")
        });
        let ask = |url: String| {
            let output =
                Command::new("curl").arg("-s").arg("--cacert").arg(&authority).arg(url).output();
            String::from_utf8_lossy(&output.expect("curl runs").stdout).into_owned()
        };
        let port = listen.rsplit(':').next().expect("a port");
        assert_eq!(ask(format!("https://localhost:{port}/")), "by HTTPS");
        assert_eq!(ask(format!("https://127.0.0.1:{port}/")), "by HTTPS");
        authorities.push(std::fs::read(&authority).expect("an authority"));
        let mode =
            std::fs::metadata(data.path("sekisho/ca.key")).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // What it shows can be seen from outside.
        let pid = process.id().to_string();
        let shown = sekisho_testkit::run(BINARY, &["ctl", "--pid", &pid, "certificates"], LONG);
        assert!(shown.stdout.contains("localhost"), "{} {}", shown.stdout, shown.stderr);
        assert!(shown.stdout.contains("CN=Sekisho on "), "{}", shown.stdout);
        let metrics = sekisho_testkit::run(BINARY, &["ctl", "--pid", &pid, "metrics"], LONG);
        assert!(metrics.stdout.contains("certificate_days_left{"), "{}", metrics.stdout);
    }
    assert_eq!(authorities[0], authorities[1], "made once");
}

#[test]
fn serve_https_orders_a_certificate_for_a_name() {
    if !pebble::is_there() {
        return;
    }
    let (tree, data) = (Tree::new(), Tree::new());
    tree.file("root/index.html", "by name");
    let port = free_port();
    let mut authority = Pebble::new(&tree, free_port(), port, "");
    authority.start(&tree);
    let listen = format!("127.0.0.1:{port}");
    let (uri, root) = (authority.uri(), tree.path("ca.pem").display().to_string());
    let arguments = ["serve", "--https", "a.example.org", "root", "--listen", &listen];
    let more = ["--acme-directory", &uri, "--acme-root", &root];
    let arguments = [&arguments[..], &more].concat();
    let process = Process::start_with(tree, &arguments, &[("XDG_DATA_HOME", data.dir())]);
    assert!(
        wait_for(LONG, || shown(port, "a.example.org").is_some()),
        "{}",
        process.tree().text("stderr")
    );
    let said = process.tree().text("stdout");
    assert!(said.contains(&format!(" on https://a.example.org:{port}/\n")), "{said}");
    let output = Command::new("curl")
        .args([
            "-sk",
            "--connect-to",
            &format!("a.example.org:443:{listen}"),
            "https://a.example.org/",
        ])
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "by name");
}
