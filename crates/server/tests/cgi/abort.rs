//! Clients that go away, and servers that end: no process stays behind (C6, L12).

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use sekisho_testkit::{Client, End, Server, Stopwatch, Tree, eventually, pause, run, wait_for};

use crate::common::{BINARY, LONG, site};
use crate::support::{Site, in_work, is_long, marked_processes, sessions, sh};

const GRACE: Duration = Duration::from_millis(300);

/// Programs of every temper; all would outlive their client if they were let.
const PROGRAMS: [(&str, &str); 8] = [
    ("quick", "printf 'X: 1\\n\\nhello\\n'"),
    ("asleep", "sleep 60"),
    ("head", "printf 'X: 1\\n\\n'; sleep 60"),
    ("streams", "printf 'X: 1\\n\\n'; while :; do echo line; sleep 0.01; done"),
    ("floods", "printf 'X: 1\\n\\n'; exec yes"),
    ("reads", "cat >/dev/null; printf 'X: 1\\n\\n'; sleep 60"),
    ("deaf", "trap '' TERM; printf 'X: 1\\n\\nhello\\n'; sleep 60"),
    ("family", "sleep 60 & ( setsid sleep 60 & ) ; printf 'X: 1\\n\\nhello\\n'; sleep 60"),
];

fn tree() -> Tree {
    let tree = Tree::new();
    for (name, script) in PROGRAMS {
        tree.script(&format!("root/cgi-bin/{name}.cgi"), &sh(script));
    }
    tree
}

/// Numbers that look random and are the same in every run.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn nothing_is_left_of_thousands_of_aborted_requests() {
    // C6, X5, V40
    const CLIENTS: u64 = 16;
    let requests = if is_long() { 10_000 } else { 1_000 };
    let site = Site::start(
        tree(),
        "cgi_kill_grace 300ms; cgi_read_timeout 5s; cgi_max_processes 40; cgi_queue 100 2s;",
    );
    let seed = u64::from(std::process::id()) | 1 << 40;
    println!("seed {seed}");
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let site = &site;
            scope.spawn(move || {
                let mut rng = Rng(seed.wrapping_mul(number + 1));
                for _ in 0..requests / CLIENTS {
                    abort_one(site, &mut rng);
                }
            });
        }
    });
    site.assert_clean(&format!("{requests} aborted requests, seed {seed}"));
    assert_eq!(site.server.connect().get("/ok.txt").text(), "ok");
}

/// One request that is not waited for.
fn abort_one(site: &Site, rng: &mut Rng) {
    let (name, _) = PROGRAMS[rng.roll(PROGRAMS.len() as u64) as usize];
    let mut client = site.server.connect();
    let request = if rng.roll(3) == 0 {
        let body = "x".repeat(rng.roll(100_000) as usize);
        let length = body.len() + rng.roll(2) as usize * 1000;
        format!(
            "POST /cgi-bin/{name}.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    } else {
        format!("GET /cgi-bin/{name}.cgi HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    // A server that has answered already may have closed.
    let _ = client.try_send(request);
    pause(Duration::from_micros(rng.roll(20_000)));
    match rng.roll(3) {
        0 => client.reset(),
        1 => {
            client.half_close();
            pause(Duration::from_micros(rng.roll(2_000)));
        }
        _ => drop(client),
    }
}

#[test]
fn a_lost_client_ends_its_program_at_once_and_a_deaf_one_after_the_grace() {
    // C6, L12, X5
    let site = Site::start(tree(), "cgi_kill_grace 300ms; cgi_read_timeout 60s;");
    for name in ["asleep", "head", "streams", "family", "deaf"] {
        let mut client = site.server.connect();
        client.send(format!("GET /cgi-bin/{name}.cgi HTTP/1.1\r\nHost: a\r\n\r\n"));
        eventually("the program runs", LONG, || !site.processes().is_empty());
        // The shell has set its trap when it has printed.
        if name == "deaf" {
            client.read_bytes(10);
        }
        let watch = Stopwatch::start();
        client.reset();
        site.assert_clean(name);
        let took = watch.elapsed();
        // One of the family may have left the group with the output: it is waited for as long.
        assert!(took >= GRACE || name != "deaf", "{name} took {took:?}");
        assert!(took < GRACE || ["deaf", "family"].contains(&name), "{name} took {took:?}");
        assert!(took < GRACE + Duration::from_secs(1), "{name} took {took:?}");
    }
}

/// C6, H11, L12: it makes no difference that the answer has begun, nor how the client goes.
#[test]
fn a_client_that_goes_in_the_middle_of_an_answer_ends_a_silent_program() {
    let tree = tree();
    let silent = sh("printf 'X: 1\\n\\nstart\\n'; sleep 600");
    tree.script("root/cgi-bin/silent.cgi", &silent);
    let site =
        Site::start(tree, "cgi_kill_grace 300ms; cgi_read_timeout 10m; gzip on; gzip_types *;");
    for coding in ["", "Accept-Encoding: gzip\r\n"] {
        for ending in ["reset", "close", "half-close"] {
            let mut client = site.server.connect();
            let head = format!("GET /cgi-bin/silent.cgi HTTP/1.1\r\nHost: a\r\n{coding}\r\n");
            client.send(head);
            eventually("the program runs", LONG, || !site.processes().is_empty());
            // All that has been sent is read: a close is a FIN then, and not a reset.
            let begun = if coding.is_empty() { "start" } else { "\r\n\r\n" };
            let mut text = String::new();
            while !text.contains(begun) {
                text.push(char::from(client.read_bytes(1)[0]));
            }
            match ending {
                "reset" => client.reset(),
                "close" => drop(client),
                _ => {
                    client.half_close();
                    site.assert_clean(&format!("{ending} {coding}"));
                }
            }
            site.assert_clean(&format!("{ending} {coding}"));
        }
    }
}

/// How many bytes of a client are in the server's socket, not read yet.
fn unread_by_server(client: SocketAddr) -> usize {
    let SocketAddr::V4(v4) = client else { panic!("{client} is of another kind") };
    let [a, b, c, d] = v4.ip().octets();
    let peer = format!("{d:02X}{c:02X}{b:02X}{a:02X}:{:04X}", v4.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("a kernel that tells");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(2) == Some(&peer.as_str()));
    let queue = row.and_then(|row| row.get(4)?.split_once(':'));
    queue.and_then(|(_, bytes)| usize::from_str_radix(bytes, 16).ok()).unwrap_or(0)
}

#[test]
fn a_client_that_goes_is_noticed_while_its_body_is_not_read() {
    // C6, L12, X5: more of it has come than is read.
    let site = Site::start(
        tree(),
        "cgi_kill_grace 300ms; cgi_read_timeout 60s; cgi_request_buffering off;",
    );
    let head = "POST /cgi-bin/asleep.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n";
    for ending in ["reset", "close", "half-close"] {
        let mut client = site.server.connect();
        // The pipe to the program, the buffer of the connection, and something in the socket.
        client.send(head).send(vec![b'x'; 64 << 10 | 40 << 10]);
        eventually("the program runs", LONG, || !site.processes().is_empty());
        // Until nothing moves any more: the rest is in the socket, and does not become less.
        let peer = client.local_address();
        let (mut last, mut looks) = (0, 0);
        eventually("no more is read", LONG, || {
            let now = unread_by_server(peer);
            let is_same = now > 0 && now == last;
            (last, looks) = (now, if is_same { looks + 1 } else { 0 });
            looks == 10
        });
        let watch = Stopwatch::start();
        match ending {
            "reset" => client.reset(),
            "close" => drop(client),
            _ => client.half_close(),
        }
        site.assert_clean(ending);
        assert!(watch.elapsed() < Duration::from_secs(2), "{ending}: {:?}", watch.elapsed());
    }
}

/// A phase of a request: its name, what is sent for it, what the client must have seen before, and how many processes
/// there are then.
type Phase = (&'static str, &'static str, &'static [u8], usize);

/// The shell and its sleep are two processes.
const PHASES: [Phase; 6] = [
    (
        "body being gathered",
        "POST /cgi-bin/asleep.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nsome",
        b"",
        0,
    ),
    ("waits for a place", "GET /narrow/taken.cgi HTTP/1.1\r\nHost: a\r\n\r\n", b"", 0),
    ("before the head", "GET /cgi-bin/asleep.cgi HTTP/1.1\r\nHost: a\r\n\r\n", b"", 2),
    ("head that is held back", "GET /cgi-bin/head.cgi HTTP/1.1\r\nHost: a\r\n\r\n", b"", 2),
    ("silent body", "GET /cgi-bin/silent.cgi HTTP/1.1\r\nHost: a\r\n\r\n", b"some\r\n", 2),
    (
        "silent body of a large request",
        "POST /streamed/silent.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
        b"some\r\n",
        2,
    ),
];

/// A server for the phases, whose place in `/narrow/` is taken by the client that comes with it.
fn phases() -> (Site, Client) {
    let tree = tree();
    tree.script("root/cgi-bin/silent.cgi", &sh("printf 'X: 1\\n\\nsome'; sleep 60"));
    tree.script("root/narrow/taken.cgi", &sh("sleep 60"));
    let site = Site::start(
        tree,
        "cgi_kill_grace 300ms; cgi_read_timeout 10m; client_body_timeout 10m;\n\
         location /streamed/ { alias {root}/cgi-bin/; cgi on; cgi_request_buffering off; }\n\
         location /narrow/ { cgi on; cgi_max_processes 1; cgi_queue 9 60s; }",
    );
    let mut first = site.server.connect();
    first.send("GET /narrow/taken.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it runs", LONG, || site.processes().len() == 2);
    (site, first)
}

/// Brings a request to a phase.
fn reach(site: &Site, (name, request, seen, processes): Phase) -> Client {
    let mut client = site.server.connect();
    client.send(request);
    let mut received = Vec::new();
    while !received.ends_with(seen) {
        received.extend(client.read_bytes(1));
    }
    eventually(name, LONG, || site.processes().len() == 2 + processes && in_work(site) == 2);
    client
}

/// C6, L12, X5: whatever it does just then.
#[test]
fn a_reset_client_ends_its_program_in_every_phase() {
    let (site, first) = phases();
    for phase in PHASES {
        let client = reach(&site, phase);
        let watch = Stopwatch::start();
        client.reset();
        eventually(phase.0, LONG, || site.processes().len() == 2 && in_work(&site) == 1);
        assert!(watch.elapsed() < Duration::from_secs(2), "{}: {:?}", phase.0, watch.elapsed());
    }
    drop(first);
    site.assert_clean("clients that were reset");
}

/// C6, H11, L12: a client that closes without a reset.
#[test]
fn a_client_that_closes_ends_its_program_in_every_phase() {
    let (site, first) = phases();
    for phase in PHASES {
        let client = reach(&site, phase);
        let watch = Stopwatch::start();
        drop(client);
        eventually(phase.0, LONG, || site.processes().len() == 2 && in_work(&site) == 1);
        assert!(watch.elapsed() < Duration::from_secs(2), "{}: {:?}", phase.0, watch.elapsed());
    }
    drop(first);
    site.assert_clean("clients that closed");
}

/// C6, L31, E9: an operator's cancel ends the program, and the client has its one answer or sees the cut.
#[test]
fn a_cancel_ends_the_program_in_every_phase() {
    let (site, first) = phases();
    let pid = site.server.id().to_string();
    for phase in PHASES {
        let mut client = reach(&site, phase);
        let peer = client.local_address().to_string();
        let id = sessions(&site).into_iter().find(|one| one["peer"] == peer.as_str());
        let id = format!(":{}", id.expect("it is listed")["id"]);
        let watch = Stopwatch::start();
        let said = run(BINARY, &["ctl", "--pid", &pid, "session", "cancel", &id], LONG);
        assert!(said.stdout.contains("1 cancelled"), "{}: {said:?}", phase.0);
        eventually(phase.0, LONG, || site.processes().len() == 2);
        assert!(watch.elapsed() < Duration::from_secs(3), "{}: {:?}", phase.0, watch.elapsed());
        if phase.2.is_empty() {
            assert_eq!(client.read_response().status, 503, "{}", phase.0);
        } else {
            let (bytes, end) = client.read_to_end();
            assert_eq!((bytes.as_slice(), end), (&b""[..], End::Closed), "{}", phase.0);
        }
        drop(client);
        eventually(phase.0, LONG, || in_work(&site) == 1);
    }
    drop(first);
    site.assert_clean("requests that were cancelled");
}

#[test]
fn a_half_closed_client_is_a_lost_one() {
    // H11: while a program works, FIN counts as a lost client.
    let site = Site::start(tree(), "cgi_read_timeout 60s;");
    let mut client = site.server.connect();
    client.send("GET /cgi-bin/asleep.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the program runs", LONG, || !site.processes().is_empty());
    client.half_close();
    site.assert_clean("a half-close");
}

#[test]
fn what_a_program_leaves_in_its_group_ends_with_its_request() {
    // C6, X2, V40: the answer is whole after the grace, and nothing spins meanwhile.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\nhello\\n'; sleep 60 &"));
    let site = Site::start(tree, "cgi_read_timeout 60s;");
    let ticks = site.server.cpu_ticks();
    let watch = Stopwatch::start();
    let response = site.server.connect().get("/cgi-bin/x.cgi");
    assert_eq!(response.text(), "hello\n");
    assert!(watch.elapsed() < Duration::from_secs(2), "{:?}", watch.elapsed());
    site.assert_clean("a child with stdout");
    assert!(site.server.cpu_ticks() - ticks < 20, "it span");
}

#[test]
fn a_process_that_tries_to_join_the_servers_group_is_ended_and_leaves_no_zombie() {
    // C6, V40: in a session of its own, a program cannot leave for a group where no sweep would look.
    const PROGRAM: &str = r"#!/usr/bin/env python3
import os, time
server = os.getppid()
print('Content-Type: text/plain\n', flush=True)
if os.fork() == 0:
    try:
        group = os.getpgid(server)
        if group == 0:
            raise PermissionError('led from outside of this container: it has no number here')
        os.setpgid(0, group)
        print('joined', flush=True)
    except PermissionError:
        print('refused', flush=True)
    os.setpgid(0, 0)
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
print('done')
";
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", PROGRAM);
    let site = Site::start(tree, "cgi_read_timeout 60s;");
    for _ in 0..3 {
        let text = site.server.connect().get("/cgi-bin/x.cgi").text();
        assert_eq!(text, "refused\ndone\n");
    }
    site.assert_clean("programs that changed their group");
}

#[test]
fn in_a_session_of_no_number_programs_end_like_elsewhere() {
    // C6: in a container, the server's session may be led from outside: its number is 0 there.
    const UNSHARE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let tree = Tree::new();
    let tried = run("unshare", &[&UNSHARE[..], &["true"]].concat(), LONG);
    if tried.code() != 0 {
        return;
    }
    tree.script(
        "root/cgi-bin/x.cgi",
        &sh("( setsid sleep 60 >/dev/null 2>&1 & ); printf 'X: 1\\n\\nhello\\n'"),
    );
    let text = format!("#!/bin/sh\nexec unshare {} {BINARY} \"$@\"\n", UNSHARE.join(" "));
    let wrapper = tree.script("contained", &text);
    let body = "cgi_set_var TEST_MARK {dir};\nlocation /cgi-bin/ { cgi on; }";
    let wrapper = wrapper.to_str().expect("a name").to_owned();
    let mark = format!("TEST_MARK={}", tree.dir().display());
    let server = Server::start_in(tree, &wrapper, &site(body));
    for _ in 0..3 {
        assert_eq!(server.connect().get("/cgi-bin/x.cgi").text(), "hello\n");
    }
    eventually("the daemons are gone", LONG, || marked_processes(&mark).is_empty());
    assert_eq!(server.connect().get("/cgi-bin/x.cgi").text(), "hello\n");
}

#[test]
fn a_daemon_may_stay_where_that_is_configured_and_is_waited_for() {
    // C6
    let tree = Tree::new();
    // One that has not left its group when its program ends is ended with it.
    let daemon = "( setsid sleep 1.5 >/dev/null 2>&1 & ); sleep 0.3; printf 'X: 1\\n\\nhello\\n'";
    tree.script("root/daemons/x.cgi", &sh(daemon));
    let site = Site::start(tree, "location /daemons/ { cgi on; cgi_leave_daemons on; }");
    assert_eq!(site.server.connect().get("/daemons/x.cgi").text(), "hello\n");
    pause(Duration::from_millis(300));
    assert_eq!(site.processes().len(), 1, "it goes on");
    // Another request does not end it, and its own end leaves no dead process.
    assert_eq!(site.server.connect().get("/cgi-bin/warm.cgi").status, 200);
    assert_eq!(site.processes().len(), 1, "it goes on");
    site.assert_clean("a daemon that ended");
}

#[test]
fn a_daemon_of_a_running_program_is_not_ended_with_another() {
    // C6
    let tree = Tree::new();
    let script = "( setsid sleep 60 >/dev/null 2>&1 & ); sleep 1; printf 'X: 1\\n\\nhello\\n'";
    tree.script("root/cgi-bin/x.cgi", &sh(script));
    let site = Site::start(tree, "");
    let mut client = site.server.connect();
    client.send("GET /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    // The shell, its own sleep and the daemon.
    eventually("the daemon runs", LONG, || site.processes().len() == 3);
    assert_eq!(site.server.connect().get("/cgi-bin/warm.cgi").status, 200);
    assert_eq!(site.processes().len(), 3);
    assert_eq!(client.read_response().text(), "hello\n");
    drop(client);
    site.assert_clean("the daemon's program");
}

#[test]
fn the_total_time_is_kept_by_programs_that_never_pause() {
    // T4, C5: output does not extend `cgi_timeout`.
    let site = Site::start(tree(), "cgi_timeout 400ms 200ms;");
    let mut client = site.server.connect();
    let watch = Stopwatch::start();
    client.send("GET /cgi-bin/floods.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    let (bytes, end) = client.read_to_end();
    assert_eq!(end, End::Closed);
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "it must not look complete");
    assert!(bytes.len() > 10_000);
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    site.assert_clean("a flood");
    // The same for a client that does not read.
    let mut client = site.server.connect();
    client.shrink_receive_buffer(4096);
    client.send("GET /cgi-bin/floods.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    let is_ended = wait_for(Duration::from_secs(5), || site.processes().is_empty());
    assert!(is_ended, "{:?}", site.left());
    let _ = client.read_to_end();
    drop(client);
    site.assert_clean("a flood that is not read");
}

#[test]
fn a_forceful_end_answers_and_leaves_nobody() {
    // C6, O4, X13
    let mut site = Site::start(tree(), "cgi_kill_grace 300ms; cgi_read_timeout 60s;");
    let names = ["asleep", "head", "deaf", "family", "streams"];
    let mut clients: Vec<_> = names
        .iter()
        .map(|name| {
            let mut client = site.server.connect();
            client.send(format!("GET /cgi-bin/{name}.cgi HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    eventually("the programs run", LONG, || site.processes().len() >= 8);
    let watch = Stopwatch::start();
    site.server.term();
    for (name, client) in names.iter().zip(&mut clients) {
        match client.try_read_response(false) {
            Ok(response) => assert_eq!(response.status, 503, "{name}"),
            // What had begun cannot be completed, and must not look as if it were.
            Err(error) => assert!(["deaf", "family", "streams"].contains(name), "{name}: {error}"),
        }
    }
    drop(clients);
    site.server.wait_exit(Duration::from_secs(10));
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    eventually("no process is left", Duration::from_secs(2), || site.processes().is_empty());
}

#[test]
fn a_graceful_end_waits_for_the_program() {
    // C6, O4
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("sleep 0.5; printf 'X: 1\\n\\nhello\\n'"));
    let mut site = Site::start(tree, "");
    let mut client = site.server.connect();
    client.send("GET /cgi-bin/x.cgi HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the program runs", LONG, || !site.processes().is_empty());
    site.server.quit();
    assert_eq!(client.read_response().text(), "hello\n");
    // The server lingers for a client that might still send something.
    drop(client);
    assert_eq!(site.server.wait_exit(LONG).code(), Some(0));
}
