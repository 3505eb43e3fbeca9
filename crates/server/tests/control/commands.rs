//! Orders for one session, and for the server.

use std::time::Duration;

use sekisho_testkit::{End, Server, Tree, eventually};

use crate::common::{BINARY, LONG, serve, site};
use crate::support::{
    admin, busy_session, ctl, ctl_ok, metric, native, session_of, sessions, with_endpoint,
};

const PROGRAMS: &str = "location /cgi-bin/ { cgi on; } location / { }";

/// A server with a program that says that it runs, and answers when `{dir}/go` is there.
fn with_program() -> Server {
    let tree = Tree::new();
    tree.file("root/a.txt", "a");
    let dir = tree.dir().display().to_string();
    tree.script(
        "root/cgi-bin/wait",
        &format!(
            "#!/bin/sh\necho $$ > {dir}/runs\nwhile ! test -e {dir}/go; do sleep 0.02; done\n\
             printf 'Content-Type: text/plain\\n\\ndone'\n"
        ),
    );
    serve(tree, PROGRAMS)
}

fn program(server: &Server) -> Option<u32> {
    server.tree().text("runs").trim().parse().ok()
}

#[test]
fn a_running_program_of_an_http_client_is_cancelled_and_the_client_gets_one_answer() {
    // E9, L31
    let server = with_program();
    let mut client = server.connect();
    client.send("GET /cgi-bin/wait?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    let id = busy_session(&server, &client.local_address());
    eventually("the program", LONG, || program(&server).is_some());
    let running = program(&server).expect("it runs");
    let shown = ctl_ok(&server, &["requests"]);
    assert!(shown.contains("GET /cgi-bin/wait?x=1") && shown.contains("cgi"), "{shown}");
    let text = ctl_ok(&server, &["session", "cancel", &id]);
    assert!(text.contains("1 cancelled"), "{text}");
    let answer = client.read_response();
    assert_eq!(answer.status, 503, "{}", server.log("error.log"));
    eventually("the end of the program", LONG, || !sekisho_testkit::process::exists(running));
    // The start of the next request is known: the connection goes on (H2), and nothing else came.
    assert_eq!(client.get("/a.txt").text(), "a");
    assert_eq!(ctl(&server, &["session", "cancel", &id]).code(), 7, "nothing runs there");
    assert_eq!(metric(&server, "sekisho_requests_cancelled_total", None), 1);
    assert_eq!(metric(&server, "sekisho_responses_total", Some("5xx")), 1);
    let line = format!("cancel of session {id} by uid");
    eventually("the line in the log", LONG, || server.log("error.log").contains(&line));
    let log = server.log("error.log");
    assert!(
        log.contains("cgi-bin/wait\": the request was cancelled") && !log.contains("stopping"),
        "{log}"
    );
}

#[test]
fn a_download_that_is_cancelled_is_broken_off_and_not_taken_for_whole() {
    // E9, L31, C5
    let tree = Tree::new();
    tree.file("root/big", vec![b'x'; 32 << 20]);
    let server = serve(tree, "location / { }");
    let mut client = server.connect();
    client.shrink_receive_buffer(4096);
    client.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    let id = busy_session(&server, &client.local_address());
    ctl_ok(&server, &["session", "cancel", &id]);
    let (bytes, end) = client.read_to_end();
    assert!(end == End::Closed && bytes.len() < 32 << 20, "{end:?} after {}", bytes.len());
    // Counted when the client has closed, too.
    drop(client);
    eventually("it is counted", LONG, || {
        metric(&server, "sekisho_responses_broken_off_total", None) == 1
    });
}

#[test]
fn a_kept_connection_that_is_ended_gracefully_says_so_in_its_next_answer() {
    // E9, L6, L9
    let server = with_program();
    let mut client = server.connect();
    client.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
    let id = busy_session(&server, &client.local_address());
    ctl_ok(&server, &["session", "shutdown", "--graceful", &id]);
    let mut state = String::new();
    eventually("c_1", LONG, || {
        let session = session_of(&server, &client.local_address()).expect("it is there");
        state = format!("{} {}", session["state"], session["shutdown"]);
        state == "\"c_1\" \"graceful\""
    });
    server.tree().file("go", "");
    let answer = client.read_response();
    assert!(answer.status == 200 && answer.text() == "done" && answer.says_close(), "{answer:?}");
    assert_eq!(client.expect_closed(LONG), End::Closed);
}

#[test]
fn an_idle_connection_that_is_ended_closes_and_others_stay() {
    // E9, L3
    let server = with_program();
    let (mut one, mut other, mut stays) = (server.connect(), server.connect(), server.connect());
    for client in [&mut one, &mut other, &mut stays] {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    let id = |client: &sekisho_testkit::Client| {
        let session = session_of(&server, &client.local_address()).expect("it is there");
        assert_eq!(
            (&session["state"], &session["deadline"]["kind"]),
            (&"idle".into(), &"keepalive_timeout".into())
        );
        format!(":{}", session["id"])
    };
    let (graceful, forceful) = (id(&one), id(&other));
    ctl_ok(&server, &["session", "shutdown", &graceful]);
    ctl_ok(&server, &["session", "shutdown", "--forceful", &forceful]);
    assert_eq!(one.expect_closed(LONG), End::Closed);
    other.expect_closed(LONG);
    assert_eq!(stays.get("/a.txt").status, 200);
    assert_eq!(ctl(&server, &["session", "shutdown", &graceful]).code(), 5, "it is gone");
}

#[test]
fn a_session_that_is_ended_by_force_still_answers_its_running_request_once() {
    // E9, L7
    let server = with_program();
    let mut client = server.connect();
    client.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
    let id = busy_session(&server, &client.local_address());
    ctl_ok(&server, &["session", "shutdown", "--forceful", &id]);
    let answer = client.read_response();
    assert!(answer.status == 503 && answer.says_close(), "{answer:?}");
    client.expect_closed(LONG);
    eventually("the end of the program", LONG, || server.children().is_empty());
}

#[test]
fn a_native_session_is_found_by_its_label_unless_several_have_it() {
    // E9, E10
    let server = Server::start(BINARY, &with_endpoint("", ""));
    let mut first = native(&server, "s", "twin");
    let mut other = native(&server, "s", "twin");
    let mut alone = native(&server, "s", "alone");
    for client in [&mut first, &mut other, &mut alone] {
        assert_eq!(client.call(3, b"x").expect("answered"), b"x");
    }
    let ambiguous = ctl(&server, &["session", "show", "twin"]);
    assert_eq!(ambiguous.code(), 6, "{}", ambiguous.stderr);
    for client in [&first, &other] {
        assert!(
            ambiguous.stderr.contains(&format!(":{} ", client.session())),
            "{}",
            ambiguous.stderr
        );
    }
    let shown = ctl_ok(&server, &["session", "show", "alone"]);
    assert!(shown.contains("native") && shown.contains("requests     1"), "{shown}");
    ctl_ok(&server, &["session", "shutdown", "alone"]);
    assert!(alone.call(3, b"x").is_err(), "it is over");
    assert_eq!(first.call(3, b"x").expect("answered"), b"x");
    let mixed = ctl(&server, &["session", "show", "nobody", &format!(":{}", first.session())]);
    assert_eq!(mixed.code(), 5);
    assert!(mixed.stdout.contains("twin"), "the others are shown: {}", mixed.stdout);
}

#[test]
fn an_order_acts_within_milliseconds() {
    // L15, E9
    use prost::Message;
    use sekisho_endpoint::control::{ControlRequest, Outcome, ShutDown, What};
    let server = serve(Tree::new(), "return 200;");
    let mut admin_client = admin(&server);
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        let session = session_of(&server, &client.local_address()).expect("it is there");
        let order = ShutDown { reference: format!(":{}", session["id"]), forceful: true };
        let started = sekisho_testkit::Stopwatch::start();
        let answer = admin_client
            .call(1, &ControlRequest::from(What::ShutDown(order)).encode_to_vec())
            .expect("answered");
        client.expect_closed(LONG);
        best = best.min(started.elapsed());
        assert_eq!(Outcome::decode(&answer[..]).expect("an outcome").finding, 0);
    }
    // The machine may be busy with other things in some of the rounds.
    assert!(best < Duration::from_millis(10), "{best:?}");
}

#[test]
fn a_reload_is_requested_and_its_result_is_the_exit_status() {
    // O3, E9
    let config = with_endpoint("", "return 200 old;");
    let mut server = Server::start(BINARY, &config);
    let mut before = native(&server, "s", "before");
    assert_eq!(before.call(3, b"x").expect("answered"), b"x");
    server.rewrite_config(&config.replace("return 200 old", "retrun 200"));
    let bad = ctl(&server, &["reload"]);
    assert_eq!(bad.code(), 1);
    assert!(bad.stderr.contains("unknown directive \"retrun\""), "{}", bad.stderr);
    server.rewrite_config(&config.replace("old", "new"));
    assert_eq!(ctl_ok(&server, &["reload"]), "reloaded\n");
    assert_eq!(server.connect().get("/").text(), "new");
    assert_eq!(before.call(3, b"x").expect("the block is as it was"), b"x");
    // Another address under the same rules: existing sessions go on.
    server.rewrite_config(&config.replace("{dir}/s;", "{dir}/t;"));
    ctl_ok(&server, &["reload"]);
    assert_eq!(before.call(3, b"x").expect("answered"), b"x");
    assert!(!server.tree().exists("s") && server.tree().exists("t"));
    assert_eq!(native(&server, "t", "after").call(3, b"y").expect("answered"), b"y");
    // Other rules: sessions under the old ones end gracefully.
    server.rewrite_config(&with_endpoint("services echo; sessions_max 3;", "return 200;"));
    ctl_ok(&server, &["reload"]);
    assert!(before.call(3, b"x").is_err(), "drained");
    let mut after = native(&server, "s", "after");
    assert_eq!(after.call(3, b"x").expect("answered"), b"x");
    assert!(after.call(2, b"").is_err(), "http is not offered any more");
    let text = ctl_ok(&server, &["stop"]);
    assert_eq!((text.as_str(), server.wait_exit(LONG).code()), ("draining\n", Some(0)));
    assert!(!server.tree().exists("s"), "the socket's file is gone");
    assert_eq!(ctl(&server, &["sessions"]).code(), 3, "there is no server");
}

#[test]
fn a_server_that_drains_can_still_be_seen_and_forced() {
    // O4, E9
    let mut server = with_program();
    let mut client = server.connect();
    client.send("GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\n\r\n");
    busy_session(&server, &client.local_address());
    assert_eq!(ctl_ok(&server, &["stop"]), "draining\n");
    let left = sessions(&server);
    assert!(
        left.iter().any(|session| session["peer"] == client.local_address().to_string()),
        "{left:?}"
    );
    assert_eq!(ctl_ok(&server, &["stop", "--forceful"]), "stopping\n");
    assert_eq!(client.read_response().status, 503);
    server.wait_exit(LONG);
}

#[test]
fn a_server_without_a_name_is_found_when_it_is_the_only_one_or_by_its_configuration() {
    // E10
    let config = format!("pid {{dir}}/pid;\n{}", site("return 200;"));
    let server = Server::start(BINARY, &config);
    let by_file = |arguments: &[&str]| {
        let path = server.config_path().display().to_string();
        let dir = server.tree().dir().display().to_string();
        let all = [&["ctl", "-p", &dir, "-c", &path], arguments].concat();
        sekisho_testkit::run(BINARY, &all, LONG)
    };
    let found = by_file(&["sessions"]);
    assert!(found.code() == 0 && found.stdout.contains("native"), "{}", found.stderr);
    // Other tests may run servers at the same time: then several could be meant, and they are named.
    let any = sekisho_testkit::run(BINARY, &["ctl", "sessions"], LONG);
    let names_it = any.stderr.contains(&server.id().to_string());
    assert!(any.code() == 0 || (any.code() == 6 && names_it), "{} {}", any.code(), any.stderr);
    let nobody = sekisho_testkit::run(BINARY, &["ctl", "--pid", "1", "sessions"], LONG);
    assert_eq!(nobody.code(), 3, "{}", nobody.stderr);
    let nowhere = sekisho_testkit::run(BINARY, &["ctl", "--socket", "/nowhere", "sessions"], LONG);
    assert_eq!(nowhere.code(), 3, "{}", nowhere.stderr);
}
