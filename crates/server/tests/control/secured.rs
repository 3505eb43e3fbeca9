//! Clients that connect by `tls://…`: whom they trust, how they are known, and that they come back.

use std::path::Path;
use std::time::Duration;

use sekisho_endpoint::{
    Address, Backoff, CallError, Code, Echo, NewRequest, Options, ReconnectingClient, connect,
    connect_blocking,
};
use sekisho_testkit::{Server, Tree, eventually, have, run};

use crate::authority::authority;
use crate::common::{BINARY, LONG, site};
use crate::support::{ctl_ok, sessions};

const CI: &[u8] = b"0123456789abcdef-ci";

fn config(more: &str) -> String {
    format!(
        "endpoint {{ listen 127.0.0.1:{{port2}} ssl; ssl_certificate {{dir}}/ours-server.pem;
         ssl_certificate_key {{dir}}/ours-server.pem; ssl_client_certificate {{dir}}/ours.pem;
         ssl_verify_client optional; token_file {{dir}}/tokens; {more} }}\n{}",
        site("location / { } location /cgi-bin/ { cgi on; }")
    )
}

fn start(more: &str) -> Server {
    let tree = Tree::new();
    authority(&tree, "ours", "backup");
    authority(&tree, "theirs", "backup");
    tree.file("tokens", [b"ci:", CI].concat());
    tree.file("root/a.txt", "from a file");
    tree.script("root/cgi-bin/slow", "#!/bin/sh\nsleep 600\n");
    // A folder whose name has to be encoded.
    std::fs::create_dir(tree.path("a & b")).expect("a folder");
    std::fs::copy(tree.path("ours.pem"), tree.path("a & b/ours.pem")).expect("a copy");
    Server::start_in(tree, BINARY, &config(more))
}

/// The address with these options, where `{dir}` is the server's folder.
fn address(server: &Server, query: &str) -> String {
    let folder = server.tree().path("").display().to_string();
    let query = query.replace("{dir}", folder.trim_end_matches('/'));
    let mark = if query.is_empty() { "" } else { "?" };
    format!("tls://{}{mark}{query}", server.address_of(1))
}

fn token() -> Options {
    Options { credential: CI.to_vec(), ..Options::from("shows") }
}

/// Who the server takes the session with the label "shows" for.
fn identity(server: &Server) -> String {
    let all = sessions(server);
    let own = all.iter().find(|session| session["label"] == "shows").expect("listed");
    own["identity"].as_str().expect("text").to_owned()
}

/// What comes of connecting, by either client: who it is, or why not.
fn known_as(server: &Server, address: &str, options: &Options) -> [Result<String, String>; 2] {
    let why = |error: CallError| match error {
        CallError::Transport(error) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asynchronous = runtime.expect("a runtime").block_on(async {
        let client = connect(address, options.clone()).await.map_err(why)?;
        assert_eq!(client.call(Echo::NUMBER, b"x").await.expect("an answer"), b"x");
        let identity = identity(server);
        client.shut_down(sekisho_endpoint::Manner::Graceful).await.expect("in order");
        Ok(identity)
    });
    let blocking = connect_blocking(address, options.clone()).map_err(why).map(|mut client| {
        assert_eq!(client.call(Echo::NUMBER, b"x").expect("an answer"), b"x");
        let identity = identity(server);
        client.shut_down(sekisho_endpoint::Manner::Graceful).expect("in order");
        identity
    });
    [asynchronous, blocking]
}

#[test]
fn a_client_with_tls_knows_its_server_and_is_known_to_it() {
    // S1, E1, E2, E13
    let server = start("");
    let anonymous = Options::from("shows");
    let rows = [
        ("ca={dir}/ours.pem", &anonymous, "anonymous"),
        ("ca={dir}/a%20%26%20b/ours.pem", &anonymous, "anonymous"),
        ("ca={dir}/ours.pem&name=127.0.0.1", &anonymous, "anonymous"),
        ("ca={dir}/ours.pem&cert={dir}/ours-client.pem", &anonymous, "certificate:CN=backup"),
        (
            "ca={dir}/ours.pem&cert={dir}/ours-client.pem&key={dir}/ours-client.pem",
            &anonymous,
            "certificate:CN=backup",
        ),
        ("ca={dir}/ours.pem", &token(), "token:ci"),
        // A credential counts before a certificate.
        ("ca={dir}/ours.pem&cert={dir}/ours-client.pem", &token(), "token:ci"),
    ];
    for (query, options, expected) in rows {
        for known in known_as(&server, &address(&server, query), options) {
            assert_eq!(known.as_deref(), Ok(expected), "{query}");
        }
    }
}

#[test]
fn a_client_with_tls_speaks_to_no_other_server() {
    // S1, E2, E13
    let server = start("");
    let anonymous = Options::from("shows");
    let rows = [
        ("ca={dir}/theirs.pem", "UnknownIssuer"),
        // The system does not know our authority, if it trusts any.
        ("", "certificate"),
        ("ca={dir}/ours.pem&name=localhost", "not valid for name"),
        ("ca={dir}/ours.pem&name=127.0.0.2", "not valid for name"),
        ("ca={dir}/none.pem", "none.pem"),
        ("ca={dir}/tokens", "tokens: no certificate is in it"),
        ("ca={dir}/ours.pem&cert={dir}/ours.pem", "ours.pem"),
    ];
    for (query, expected) in rows {
        for known in known_as(&server, &address(&server, query), &anonymous) {
            let why = known.expect_err("refused");
            assert!(why.contains(expected), "{query}: {why}");
        }
    }
    // A server that does not speak TLS, and one that speaks nothing else.
    let http = format!("tls://{}", server.address());
    assert!(known_as(&server, &http, &anonymous).iter().all(Result::is_err));
    let plain = connect_blocking(&format!("tcp://{}", server.address_of(1)), "plain");
    assert!(matches!(plain, Err(CallError::Transport(_) | CallError::Broken(_))), "{plain:?}");
    // A certificate of another authority is refused by the server, with its own word.
    let query = "ca={dir}/ours.pem&cert={dir}/theirs-client.pem";
    let refused = connect_blocking(&address(&server, query), "stranger").expect_err("refused");
    assert_eq!(refused.code(), Some(Code::AuthenticationError), "{refused:?}");
}

#[test]
fn much_passes_tls_in_both_directions_at_once() {
    // S1, E1
    let server = start("");
    let address = address(&server, "ca={dir}/ours.pem");
    let body: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = connect(&address, "much").await.expect("admitted");
        let calls: Vec<_> = (0..6)
            .map(|_| client.request(Echo::NUMBER, &body).expect("there is room for it"))
            .collect();
        for mut call in calls {
            assert!(call.answer().await.expect("an answer") == body);
        }
    });
    let mut client = connect_blocking(&address, "much").expect("admitted");
    let tickets: Vec<_> = (0..6)
        .map(|_| client.request(Echo::NUMBER, &body).expect("there is room for it"))
        .collect();
    for ticket in tickets {
        assert!(client.answer(ticket).expect("an answer") == body);
    }
}

#[test]
fn a_client_with_tls_comes_back_when_its_server_does() {
    // E1, S1, S4
    let mut server = start("");
    let query = "ca={dir}/ours.pem&cert={dir}/ours-client.pem";
    let known: Address = address(&server, query).parse().expect("an address");
    let backoff = Backoff {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(100),
        attempts: 1000,
    };
    let client = ReconnectingClient::new(known, "shows", backoff);
    let request = NewRequest::to(Echo::NUMBER).body(b"hello");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let call = || runtime.block_on(client.call(&request));
    assert_eq!(call().expect("an answer"), b"hello");
    let first = runtime.block_on(client.session()).expect("connected").session();
    // An operator ends the session.
    ctl_ok(&server, &["session", "shutdown", &format!(":{first}")]);
    eventually("another session", LONG, || {
        call().is_ok_and(|answer| answer == b"hello")
            && runtime.block_on(client.session()).is_ok_and(|it| it.session() != first)
    });
    // The server goes and comes back with other certificates, while the client tries.
    let tree = Tree::new();
    authority(&tree, "ours", "renewed");
    server.term();
    server.wait_exit(LONG);
    for name in ["ours.pem", "ours-server.pem", "ours-client.pem"] {
        std::fs::copy(tree.path(name), server.tree().path(name)).expect("replaced");
    }
    std::thread::scope(|scope| {
        // Its own session is over; the first call may still find that out.
        let coming = scope.spawn(|| {
            let comes = async {
                loop {
                    match client.call(&request).await {
                        Ok(answer) => return answer,
                        Err(error) => assert!(error.is_session_over(), "{error:?}"),
                    }
                }
            };
            runtime.block_on(async { tokio::time::timeout(LONG, comes).await.expect("in time") })
        });
        server.start_again(BINARY);
        assert_eq!(coming.join().expect("it ran"), b"hello");
    });
    assert_eq!(identity(&server), "certificate:CN=renewed");
    // A server that it must not trust is not asked again, whatever the backoff says.
    let other: Address = address(&server, "ca={dir}/theirs.pem").parse().expect("an address");
    let endless = Backoff { attempts: u32::MAX, ..backoff };
    let client = ReconnectingClient::new(other, "shows", endless);
    let refused = runtime.block_on(client.session()).expect_err("refused");
    assert!(matches!(refused, CallError::Transport(_)), "{refused:?}");
}

#[test]
fn the_python_client_speaks_tls() {
    // E10, E13, S1
    if !have("python3") {
        return;
    }
    let server = start("sessions_max 3; sessions_per_address 3; http_addresses 127.0.0.1:{port};");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/tests");
    let python = |script: &str, argument: &str| {
        let script = folder.join(script).display().to_string();
        run("python3", &["-B", &script, argument], LONG * 3)
    };
    let known = address(&server, "ca={dir}/a%20%26%20b/ours.pem");
    let done = python("test_client.py", &known);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    let folder = server.tree().path("").display().to_string();
    let at = format!("{}={}", server.address_of(1), folder.trim_end_matches('/'));
    let done = python("test_tls.py", &at);
    assert_eq!(done.code(), 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("OK"), "{}", done.stderr);
}
