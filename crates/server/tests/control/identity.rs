//! Who a native client is, over the real binary: tokens, passwords, certificates and local users; what each may do.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use sekisho_endpoint::blocking::Client;
use sekisho_endpoint::{CallError, Code, Echo, Options, ipc};
use sekisho_testkit::{Finished, Server, Tree, eventually, run};

use crate::authority::authority;
use crate::common::{BINARY, LONG, site};
use crate::support::{ctl, ctl_ok, metric, sessions};

const CI: &[u8] = b"0123456789abcdef-ci";

fn token(credential: &[u8]) -> Options {
    Options { credential: credential.to_vec(), ..Options::from("shows") }
}

fn with_rules(rules: &str) -> String {
    format!(
        "endpoint {{ listen 127.0.0.1:{{port2}}; listen unix:{{dir}}/s; listen unix:{{dir}}/m ipc; {rules} }}\n{}",
        site("return 200;")
    )
}

/// Connects by each transport, does something with it, and says what came of it.
fn by_all<T>(
    server: &Server,
    options: &Options,
    with: impl Fn(&mut dyn FnMut(u32, &[u8]) -> Result<Vec<u8>, CallError>) -> T,
) -> [Result<T, CallError>; 3] {
    let tcp = TcpStream::connect(server.address_of(1)).expect("it listens");
    let unix = UnixStream::connect(server.tree().path("s")).expect("it listens");
    let memory = UnixStream::connect(server.tree().path("m")).expect("it listens");
    tcp.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    unix.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    let memory = ipc::BlockingStream::connect(memory).expect("shared");
    [
        Client::connect(tcp, options.clone()).map(|mut it| with(&mut |to, body| it.call(to, body))),
        Client::connect(unix, options.clone())
            .map(|mut it| with(&mut |to, body| it.call(to, body))),
        Client::connect(memory, options.clone())
            .map(|mut it| with(&mut |to, body| it.call(to, body))),
    ]
}

/// The same for a call of `echo`.
fn echo(server: &Server, options: &Options) -> [Option<Code>; 3] {
    let all = by_all(server, options, |call| call(Echo::NUMBER, b"x"));
    all.map(|outcome| match outcome.and_then(|answer| answer) {
        Ok(body) => {
            assert_eq!(body, b"x");
            None
        }
        Err(error) => Some(error.code().expect("a code")),
    })
}

fn ctl_at(address: &str, more: &[&str]) -> Finished {
    run(BINARY, &[&["ctl", "--socket", address], more].concat(), LONG)
}

#[test]
fn a_token_says_who_its_holder_is() {
    // E2, E13, V50
    let tree = Tree::new();
    tree.file("tokens", [b"# ours\nci:", CI, b"\nmonitor:fedcba9876543210\n"].concat());
    let rules = "token_file {dir}/tokens; allow_identity token:ci;";
    let server = Server::start_in(tree, BINARY, &with_rules(rules));
    assert_eq!(echo(&server, &token(CI)), [None; 3]);
    let shown = by_all(&server, &token(CI), |_| {
        let all = sessions(&server);
        let own = all.iter().find(|session| session["label"] == "shows").expect("listed");
        own["identity"].as_str().expect("text").to_owned()
    });
    for identity in shown {
        assert_eq!(identity.expect("admitted"), "token:ci");
    }
    let wrong = [Some(Code::AuthenticationError); 3];
    for credential in [&CI[1..], b"0123456789abcdef-cj", b"x"] {
        assert_eq!(echo(&server, &token(credential)), wrong);
    }
    let denied = [Some(Code::PermissionError); 3];
    assert_eq!(echo(&server, &token(b"fedcba9876543210")), denied, "known, and not allowed");
    assert_eq!(echo(&server, &token(b"")), denied, "a 1.0 client without a credential");
    assert!(metric(&server, "sekisho_native_refused_total", None) >= 15);
    let log = server.log("error.log");
    assert!(log.contains("identity token:ci"), "{log}");
    assert!(log.contains("refused: AUTHENTICATION_ERROR"), "{log}");
    assert!(!log.contains("0123456789abcde"), "no credential is logged");
    assert_eq!(
        ctl_ok(&server, &["sessions"]).lines().next().map(|it| it.contains("IDENTITY")),
        Some(true)
    );
}

#[test]
fn without_rules_a_client_needs_nothing() {
    // E2, E13: clients of the first version go on working.
    let server = Server::start(BINARY, &with_rules(""));
    assert_eq!(echo(&server, &token(b"")), [None; 3]);
    assert_eq!(echo(&server, &token(b"whatever")), [None; 3]);
    let user = Options { user: "ann".to_owned(), ..Options::from("x") };
    assert_eq!(echo(&server, &user), [Some(Code::AuthenticationError); 3]);
}

#[test]
fn a_local_user_is_known_by_the_kernel() {
    // E7, E13, E14
    let own = rustix::process::geteuid().as_raw();
    let ours = format!("permit echo unix:{own};");
    let server = Server::start(BINARY, &with_rules(&ours));
    assert_eq!(echo(&server, &token(b"")), [Some(Code::PermissionError), None, None]);
    let others = format!("permit echo unix:{};", own + 1);
    server.rewrite_config(&with_rules(&others));
    ctl_ok(&server, &["reload"]);
    assert_eq!(echo(&server, &token(b"")), [Some(Code::PermissionError); 3]);
    assert!(metric(&server, "sekisho_service_denied_total", None) >= 4);
    let log = server.log("error.log");
    assert!(log.contains("service \"echo\" denied"), "{log}");
}

#[test]
fn a_password_file_says_who_a_user_is_and_may_change() {
    // E2, E13
    let tree = Tree::new();
    tree.file("users", "ann:{PLAIN}correct horse\n");
    let rules = "password_file {dir}/users; permit echo user:ann;";
    let server = Server::start_in(tree, BINARY, &with_rules(rules));
    let user = |name: &str, password: &str| Options {
        user: name.to_owned(),
        credential: password.into(),
        ..Options::from("x")
    };
    assert_eq!(echo(&server, &user("ann", "correct horse")), [None; 3]);
    let wrong = [Some(Code::AuthenticationError); 3];
    assert_eq!(echo(&server, &user("ann", "wrong horse")), wrong);
    assert_eq!(echo(&server, &user("bob", "correct horse")), wrong);
    assert_eq!(echo(&server, &token(b"")), [Some(Code::PermissionError); 3]);
    fs::write(server.tree().path("new"), "ann:{PLAIN}battery staple\n").expect("written");
    fs::rename(server.tree().path("new"), server.tree().path("users")).expect("replaced");
    eventually("the new password", LONG, || {
        echo(&server, &user("ann", "battery staple")) == [None; 3]
    });
    assert_eq!(echo(&server, &user("ann", "correct horse")), wrong);
    fs::remove_file(server.tree().path("users")).expect("removed");
    let unable = [Some(Code::ServiceUnavailable); 3];
    assert_eq!(echo(&server, &user("ann", "battery staple")), unable);
    let log = server.log("error.log");
    assert!(log.contains("password_file"), "{log}");
    assert!(!log.contains("horse") && !log.contains("staple"), "no password is logged");
}

#[test]
fn tls_and_the_subject_of_a_certificate() {
    // S1, S4, E2, E13
    let tree = Tree::new();
    authority(&tree, "ours", "backup");
    authority(&tree, "theirs", "backup");
    tree.file("body", "hello");
    let rules = |verify: &str| {
        format!(
            "endpoint {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/ours-server.pem;
             ssl_certificate_key {{dir}}/ours-server.pem; ssl_client_certificate {{dir}}/ours.pem;
             ssl_verify_client {verify}; permit echo certificate:CN=backup; }}\n{}",
            site("return 200;")
        )
    };
    let server = Server::start_in(tree, BINARY, &rules("optional"));
    let address = server.address_of(1).to_string();
    let file = |name: &str| server.tree().path(name).display().to_string();
    let body = file("body");
    let call = |cacert: &str, cert: &str| {
        let is_shown = !cert.is_empty();
        let (cacert, cert) = (file(cacert), file(cert));
        let own: &[&str] = if is_shown { &["--cert", &cert] } else { &[] };
        ctl_at(&address, &[&["--cacert", &cacert], own, &["call", "echo", "-d", &body]].concat())
    };
    let good = call("ours.pem", "ours-client.pem");
    assert_eq!((good.code(), good.stdout.as_str()), (0, "hello"), "{}", good.stderr);
    let anonymous = call("ours.pem", "");
    assert_eq!(anonymous.code(), 4, "{}", anonymous.stderr);
    assert!(anonymous.stderr.contains("not permitted to anonymous"), "{}", anonymous.stderr);
    let stranger = call("ours.pem", "theirs-client.pem");
    assert_eq!(stranger.code(), 4, "{}", stranger.stderr);
    assert!(stranger.stderr.contains("certificate is not valid"), "{}", stranger.stderr);
    let theirs = call("theirs.pem", "ours-client.pem");
    assert_eq!(theirs.code(), 3, "not our server");
    assert!(theirs.stderr.contains("unknown authority"), "{}", theirs.stderr);
    let named = ["--cacert", &file("ours.pem"), "--servername", "other.example", "status"];
    let named = ctl_at(&address, &named);
    assert_eq!(named.code(), 3, "{}{}", named.stdout, named.stderr);
    assert!(named.stderr.contains("another name"), "{}", named.stderr);
    let clear = ctl_at(&address, &["call", "echo", "-d", &body]);
    assert_eq!(clear.code(), 3, "{}{}", clear.stdout, clear.stderr);
    assert!(clear.stderr.contains("use --cacert"), "{}", clear.stderr);
    // The other way round: TLS with an address that speaks none.
    let plain = server.address_of(0).to_string();
    let plain = ctl_at(&plain, &["--cacert", &file("ours.pem"), "status"]);
    assert_eq!(plain.code(), 3, "{}{}", plain.stdout, plain.stderr);
    assert!(plain.stderr.contains("no TLS is spoken there"), "{}", plain.stderr);
    server.rewrite_config(&rules("on"));
    ctl_ok(&server, &["reload"]);
    let none = call("ours.pem", "");
    assert_eq!(none.code(), 4, "{}", none.stderr);
    assert!(none.stderr.contains("a client certificate is needed"), "{}", none.stderr);
    assert_eq!(call("ours.pem", "ours-client.pem").code(), 0);
    // A new certificate is taken up by a reload, while sessions go on.
    let tree = Tree::new();
    authority(&tree, "ours", "backup");
    for name in ["ours.pem", "ours-server.pem", "ours-client.pem"] {
        fs::copy(tree.path(name), server.tree().path(name)).expect("replaced");
    }
    ctl_ok(&server, &["reload"]);
    let renewed = call("ours.pem", "ours-client.pem");
    assert_eq!(renewed.code(), 0, "{}", renewed.stderr);
    let log = server.log("error.log");
    assert!(log.contains("identity certificate:CN=backup"), "{log}");
}

#[test]
fn a_large_body_passes_tls_in_both_directions() {
    // S1, E1, E13
    let tree = Tree::new();
    authority(&tree, "ours", "backup");
    let body: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    tree.file("body", &body);
    let config = format!(
        "endpoint {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/ours-server.pem;
         ssl_certificate_key {{dir}}/ours-server.pem; http_addresses 127.0.0.1:{{port}}; }}\n{}",
        site("location / { return 200; } location /f { alias {dir}/body; }")
    );
    let server = Server::start_in(tree, BINARY, &config);
    let address = server.address_of(1).to_string();
    let file = |name: &str| server.tree().path(name).display().to_string();
    let (authority, sent) = (file("ours.pem"), file("body"));
    let to = |more: &[&str]| ctl_at(&address, &[&["--cacert", &authority, "call"], more].concat());
    let came = to(&["echo", "-d", &sent]);
    assert_eq!(came.code(), 0, "{}", came.stderr);
    assert_eq!(came.stdout.len(), String::from_utf8_lossy(&body).len());
    let fetched = to(&["http", "/f"]);
    assert_eq!(fetched.code(), 0, "{}", fetched.stderr);
    assert_eq!(fetched.stdout.len(), String::from_utf8_lossy(&body).len());
}

#[test]
fn control_may_be_read_only() {
    // E9, E14, V50
    let tree = Tree::new();
    let tokens = [("monitor", "fedcba9876543210"), ("deploy", "fedcba9876543211")];
    for (name, secret) in tokens {
        tree.file(name, secret);
    }
    let file = tokens.map(|(name, secret)| format!("{name}:{secret}\n")).concat();
    tree.file("ci", CI);
    tree.file("tokens", [file.as_bytes(), b"ci:", CI].concat());
    let rules = "token_file {dir}/tokens; allow_identity token:ci; permit control read token:monitor; permit control full token:deploy;";
    let server = Server::start_in(tree, BINARY, &with_rules(rules));
    let address = server.address_of(1).to_string();
    let as_token = |name: &str, more: &[&str]| {
        let file = server.tree().path(name).display().to_string();
        ctl_at(&address, &[more, &["--credential-file", &file]].concat())
    };
    let _idle = server.connect().get("/");
    for command in [&["sessions"][..], &["status"], &["metrics"], &["memory"], &["requests"]] {
        let done = as_token("monitor", command);
        assert_eq!(done.code(), 0, "{command:?}: {}", done.stderr);
        assert_eq!(as_token("ci", command).code(), 4, "{command:?}");
    }
    let changes = [
        &["session", "cancel", ":1"][..],
        &["session", "shutdown", ":1"],
        &["reload"],
        &["stop"],
        &["drain"],
        &["--node", "other", "reload"],
    ];
    for command in changes {
        let refused = as_token("monitor", command);
        assert_eq!(refused.code(), 4, "{command:?}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("read-only to token:monitor"), "{}", refused.stderr);
    }
    let reloaded = as_token("deploy", &["reload"]);
    assert_eq!(reloaded.code(), 0, "{}", reloaded.stderr);
    eventually("the log", LONG, || {
        server.log("error.log").contains("reload requested by token:deploy at 127.0.0.1:")
    });
    // An ordinary call needs no right to control.
    let body = server.tree().path("ci").display().to_string();
    let called = as_token("ci", &["call", "echo", "-d", &body]);
    assert_eq!((called.code(), called.stdout.as_bytes()), (0, CI), "{}", called.stderr);
    // The admin slot is no way around `allow_identity`: those that may read call nothing else.
    let slot = Options { admin: true, ..token(tokens[0].1.as_bytes()) };
    let tcp = TcpStream::connect(server.address_of(1)).expect("it listens");
    tcp.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    let mut monitor = Client::connect(tcp, slot).expect("it may read");
    let denied = monitor.call(Echo::NUMBER, b"x").expect_err("refused");
    assert_eq!(denied.code(), Some(Code::PermissionError));
    // Reading is not reaching: `http` goes on to be for the addresses that are named.
    assert_eq!(as_token("monitor", &["call", "http", "/"]).code(), 4);
}

#[test]
fn an_identity_has_its_share_of_sessions() {
    // E4, E14
    let tree = Tree::new();
    tree.file("tokens", [b"ci:", CI].concat());
    let rules = "token_file {dir}/tokens; sessions_per_identity 2;";
    let server = Server::start_in(tree, BINARY, &with_rules(rules));
    let open = |options: Options| {
        let unix = UnixStream::connect(server.tree().path("s")).expect("it listens");
        Client::connect(unix, options)
    };
    let first = open(token(CI)).expect("admitted");
    let tcp = TcpStream::connect(server.address_of(1)).expect("it listens");
    let _second = Client::connect(tcp, token(CI)).expect("admitted");
    let refused = open(token(CI)).expect_err("too many");
    assert_eq!(refused.code(), Some(Code::ResourceLimitReached));
    drop(first);
    eventually("a free place", LONG, || open(token(CI)).is_ok());
}

#[test]
fn mistakes_in_files_are_found_by_a_test() {
    // O2, E13
    let tree = Tree::new();
    tree.file("tokens", "ci:short\n");
    let config = with_rules("").replace("{port2}", "1").replace("{port}", "2");
    let dir = tree.path("").display().to_string();
    let test = |rules: &str| {
        let text = config.replace("ipc; ", &format!("ipc; {rules} "));
        let text = text.replace("{dir}", dir.trim_end_matches('/')).replace("{root}", &dir);
        let path = tree.file("test.conf", text);
        run(BINARY, &["-t", "-c", &path.display().to_string()], LONG)
    };
    for (rules, expected) in [
        ("token_file {dir}/tokens;", "tokens: line 1: a credential has from 16 to 2048 bytes"),
        ("token_file {dir}/none;", "none: No such file"),
        ("allow_identity unix:nosuchuser;", "user \"nosuchuser\" is not in /etc/passwd"),
        ("permit echo group:nosuchgroup;", "group \"nosuchgroup\" is not in /etc/group"),
    ] {
        let done = test(rules);
        assert_eq!(done.code(), 1, "{rules}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(expected), "{rules}: {}", done.stderr);
    }
    // What may be meant is a warning.
    tree.file("none-yet", "# ours\n");
    tree.file("users", "ann\nbob:$9$salt$x\ncarl:{PLAIN}good\n");
    for (rules, expected) in [
        ("token_file {dir}/none-yet;", "none-yet: there is no token in it"),
        (
            "allow_identity token:nosuch;",
            "no token is called \"nosuch\": there is no \"token_file\"",
        ),
        ("token_file {dir}/none-yet; permit echo token:ci;", "no token is called \"ci\""),
        ("permit echo user:ann;", "user \"ann\" has no password"),
        ("password_file {dir}/nofile;", "nofile: No such file"),
        ("password_file {dir}/users;", "users: line 1: a line has the form NAME:PASSWORD"),
        ("password_file {dir}/users;", "users: line 2: the form of the password is unknown"),
    ] {
        let done = test(rules);
        assert_eq!(done.code(), 0, "{rules}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(expected), "{rules}: {}", done.stderr);
        assert!(done.stderr.contains("--> "), "{rules}: {}", done.stderr);
    }
    assert_eq!(ctl(&Server::start(BINARY, &with_rules("")), &["sessions"]).code(), 0);
}

#[test]
fn all_mistakes_in_files_and_names_are_found_at_once_and_have_their_places() {
    // O2, E13
    let tree = Tree::new();
    tree.file("tokens", "ci:short\nmonitor:0123456789abcdef\nno colon\n");
    tree.file("short", "x");
    tree.file("empty", "");
    let text = "events {}
endpoint {
    listen unix:s;
    admin user nosuchuser1;
    admin group nosuchgroup1;
    credential_file short;
    token_file tokens;
    password_file nofile1; # a warning: it may come
    permit echo unix:nosuchuser2;
    allow_identity unix:nosuchuser3 group:nosuchgroup2;
}
cluster { name x; nats tls://127.0.0.1;
    credentials nofile2;
    trusted_certificate empty; }
http {
    storage a { url s3://b; endpoint https://127.0.0.1:1; credentials none;
        ssl_trusted_certificate empty; }
    storage b { url s3://b; endpoint https://127.0.0.1:1;
        credentials nofile3; }
    limit_req_zone $host zone=a:1m rate=1r/s store=rediss://127.0.0.1:1/0?ca=/nofile4;
    acme_store redis://127.0.0.1:1/0 key=nofile5;
    server { listen 127.0.0.1:1; location /a { root storage:a; } location /b { root storage:b; }
        location /c { grpc_pass grpcs://127.0.0.1:1; grpc_ssl_verify on;
            grpc_ssl_trusted_certificate nofile6; } }
}
";
    let path = tree.file("test.conf", text).display().to_string();
    let done = run(BINARY, &["-t", "-c", &path], LONG);
    assert_eq!(done.code(), 1, "{}{}", done.stdout, done.stderr);
    let shown = format!("\n{}", done.stderr);
    let reports: Vec<&str> = shown.split("\nerror: ").skip(1).collect();
    for (expected, line) in [
        ("user \"nosuchuser1\" is not in", 4),
        ("group \"nosuchgroup1\" is not in", 5),
        ("short: a credential has from", 6),
        ("tokens: line 1: a credential has", 7),
        ("tokens: line 3: a line has the form", 7),
        ("user \"nosuchuser2\" is not in", 9),
        ("user \"nosuchuser3\" is not in", 10),
        ("group \"nosuchgroup2\" is not in", 10),
        ("nofile2: No such file", 13),
        ("empty\" has no certificate in it", 14),
        ("empty\": has no certificate in it", 17),
        ("nofile3 cannot be read", 19),
        ("a store's authorities: \"/nofile4\"", 20),
        ("nofile5\" cannot be read", 21),
        ("grpc_ssl_trusted_certificate \"", 24),
    ] {
        let report = reports.iter().find(|report| report.contains(expected));
        let report = report.unwrap_or_else(|| panic!("{expected}: {}", done.stderr));
        assert!(report.contains(&format!("test.conf:{line}:")), "line {line}: {report}");
    }
    assert_eq!(reports.len(), 15, "{}", done.stderr);
}
