//! Limits: how many programs at once, which requests wait for them, and what happens when the machine has no
//! more to give (C12, O5). And while programs sleep, everything else goes on.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sekisho_testkit::{Client, Injected, Server, Stopwatch, Tree, eventually, have, pause};

use crate::common::LONG;
use crate::support::{Site, in_work, sh};

fn tree() -> Tree {
    let tree = Tree::new();
    tree.script("root/cgi-bin/quick.cgi", &sh("# secret\nprintf 'X: 1\\n\\nhello\\n'"));
    let held = "until [ -e ../go ]; do sleep 0.02; done; printf 'X: 1\\n\\nhello\\n'";
    tree.script("root/cgi-bin/held.cgi", &sh(held));
    tree.script("root/cgi-bin/asleep.cgi", &sh("sleep 60"));
    tree
}

fn ask(site: &Site, name: &str) -> Client {
    let mut client = site.server.connect();
    client.send(format!("GET /cgi-bin/{name}.cgi HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

#[test]
fn who_finds_no_place_waits_and_who_finds_no_room_to_wait_is_told_to_come_back() {
    // C12, V40
    let site = Site::start(tree(), "cgi_max_processes 2; cgi_queue 2 10s;");
    let mut running = [ask(&site, "held"), ask(&site, "held")];
    eventually("both run", LONG, || site.server.children().len() == 2);
    let mut waiting = [ask(&site, "quick"), ask(&site, "quick")];
    eventually("both wait", LONG, || in_work(&site) == 4);
    let refused = ask(&site, "quick").read_response();
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    assert!(!refused.says_close(), "H2");
    assert_eq!(site.server.children().len(), 2, "no more than two at once");
    site.server.tree().file("root/go", "");
    for client in running.iter_mut().chain(&mut waiting) {
        assert_eq!(client.read_response().text(), "hello\n");
    }
    drop((running, waiting));
    site.assert_clean("a queue");
}

#[test]
fn who_waits_too_long_is_told_so() {
    // C12, T9
    let site = Site::start(tree(), "cgi_max_processes 1; cgi_queue 5 300ms; cgi_read_timeout 5s;");
    let first = ask(&site, "asleep");
    eventually("it runs", LONG, || !site.processes().is_empty());
    let watch = Stopwatch::start();
    let refused = ask(&site, "quick").read_response();
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    assert!(watch.elapsed() >= Duration::from_millis(300));
    assert!(watch.elapsed() < Duration::from_secs(3));
    // A client that gives up waiting takes no place from those behind.
    let gone = ask(&site, "quick");
    eventually("it waits", LONG, || in_work(&site) == 2);
    drop(gone);
    drop(first);
    assert_eq!(ask(&site, "quick").read_response().text(), "hello\n");
    site.assert_clean("a queue");
    assert!(site.server.log("error.log").contains("waited too long"));
}

#[test]
fn one_address_or_one_location_does_not_take_all_places() {
    // C7, C12, V40
    let site = Site::start(
        tree(),
        "cgi_max_processes 8; cgi_queue 4 60s; cgi_read_timeout 60s;\n\
         location /fair/ { alias {root}/cgi-bin/; cgi on; cgi_max_processes_per_address auto; }\n\
         location /one/ { alias {root}/cgi-bin/; cgi on; cgi_reserved_processes auto; }\n\
         location /two/ { alias {root}/cgi-bin/; cgi on; cgi_reserved_processes auto; }",
    );
    let from = |address: &str, target: &str| {
        let address = address.parse().expect("an address");
        let mut client = Client::connect_from(address, site.server.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    let sleepers = || site.server.children().len();
    // A quarter of eight.
    let greedy: Vec<Client> = (0..6).map(|_| from("127.0.0.1", "/fair/asleep.cgi")).collect();
    eventually("two run and four wait", LONG, || sleepers() == 2 && in_work(&site) == 6);
    assert_eq!(from("127.0.0.2", "/fair/quick.cgi").read_response().text(), "hello\n");
    // The queue is full, and takes a request of another address: the newest request of the address with most
    // of them is refused.
    let others: Vec<Client> = (0..3).map(|_| from("127.0.0.3", "/fair/asleep.cgi")).collect();
    eventually("two more run", LONG, || sleepers() == 4);
    let refused = greedy.into_iter().next_back().expect("six").read_response();
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    drop(others);
    eventually("all have ended", LONG, || sleepers() == 0);
    // Seven of eight, and the last is another's.
    let greedy: Vec<Client> = (0..9).map(|_| from("127.0.0.1", "/one/asleep.cgi")).collect();
    eventually("seven run", LONG, || sleepers() == 7 && in_work(&site) == 9);
    assert_eq!(from("127.0.0.1", "/two/quick.cgi").read_response().text(), "hello\n");
    assert_eq!(sleepers(), 7);
    drop(greedy);
    site.assert_clean("shares");
}

#[test]
fn while_programs_sleep_files_are_served_at_full_rate() {
    // C4, O5
    let site = Site::start(tree(), "cgi_read_timeout 60s; keepalive_requests 10000000;");
    let mut client = site.server.connect();
    let mut rate = || {
        let watch = Stopwatch::start();
        let (mut count, mut slowest) = (0_u32, Duration::ZERO);
        while watch.elapsed() < Duration::from_millis(700) {
            let one = Stopwatch::start();
            assert_eq!(client.get("/ok.txt").status, 200);
            slowest = slowest.max(one.elapsed());
            count += 1;
        }
        (count, slowest)
    };
    let (alone, _) = rate();
    let sleepers: Vec<Client> = (0..64).map(|_| ask(&site, "asleep")).collect();
    // Each a shell and its sleep.
    eventually("64 sleep", LONG, || site.processes().len() >= 128);
    let ticks = site.server.cpu_ticks();
    let (mut beside, mut slowest) = rate();
    if beside * 2 < alone {
        // The machine may have been busy with something else.
        (beside, slowest) = rate();
    }
    println!("alone {alone}, beside 64 sleepers {beside}, slowest {slowest:?}");
    assert!(beside * 2 >= alone, "{beside} instead of {alone}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // Without requests nothing is done.
    let idle = site.server.cpu_ticks();
    pause(Duration::from_millis(500));
    assert!(site.server.cpu_ticks() - idle <= 5, "it spins");
    assert!(site.server.cpu_ticks() >= ticks);
    drop((client, sleepers));
    site.assert_clean("64 sleepers");
}

/// Lets a running server have no more than so many of something; it can be given more again.
#[track_caller]
fn limit(server: &Server, what: Resource, most: Option<u64>) {
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: most, maximum: getrlimit(what).maximum };
    prlimit(pid, what, limit).expect("a child of ours can be limited");
}

#[test]
fn without_descriptors_it_is_a_503_and_the_server_goes_on() {
    // C12, O5, V26, V39, X7
    let site = Site::start(tree(), "");
    let mut client = site.server.connect();
    assert_eq!(client.get("/ok.txt").text(), "ok");
    let held = site.server.fds() as u64;
    for room in 0..6 {
        limit(&site.server, Resource::Nofile, Some(held + room));
        let response = client.get("/cgi-bin/quick.cgi");
        // Numbers below the highest may be free, so it is not known which one is the first that does.
        let is_well = room > 0 && response.status == 200;
        assert!(is_well || response.status == 503, "{room} left: {}", response.text());
        assert_eq!(response.field("Retry-After").is_some(), response.status == 503);
        assert!(!response.text().contains("secret"), "V26");
        assert_eq!(client.get("/ok.txt").text(), "ok");
    }
    limit(&site.server, Resource::Nofile, Some(held + 100));
    assert_eq!(client.get("/cgi-bin/quick.cgi").text(), "hello\n");
    drop(client);
    site.assert_clean("no descriptors");
}

#[test]
fn without_processes_it_is_a_503_and_the_server_goes_on() {
    // C12, O5, V26, X17, V40
    if !have("strace") {
        return;
    }
    let site = Site::start(tree(), "");
    for (call, error, status) in [
        ("clone,clone3,vfork,fork", "EAGAIN", 503),
        ("clone,clone3,vfork,fork", "ENOMEM", 503),
        ("execve", "ENOMEM", 503),
        ("execve", "EIO", 502),
        ("setsid", "EPERM", 502),
        ("pipe2", "EMFILE", 503),
    ] {
        let Some(injected) = Injected::into(&site.server, call, &format!("error={error}")) else {
            return;
        };
        let mut client = site.server.connect();
        for _ in 0..3 {
            let response = client.get("/cgi-bin/quick.cgi");
            assert_eq!(response.status, status, "{call} {error}: {}", response.text());
            assert_eq!(response.field("Retry-After").is_some(), status == 503, "{call} {error}");
            assert!(!response.text().contains("secret"), "{call} {error}: V26");
            assert_eq!(client.get("/ok.txt").text(), "ok");
        }
        drop(client);
        drop(injected);
        assert_eq!(site.server.connect().get("/cgi-bin/quick.cgi").text(), "hello\n");
        site.assert_clean(call);
    }
}

#[test]
fn a_spawn_that_fails_shows_nobody_the_source() {
    // C1, V26
    let tree = Tree::new();
    tree.script("root/cgi-bin/interpreter.cgi", "#!/no/such/secret\n# secret\n");
    tree.script("root/cgi-bin/no-format.cgi", "\u{1}secret");
    tree.script("root/cgi-bin/empty.cgi", "");
    tree.file("root/cgi-bin/plain.cgi", sh("# secret"));
    tree.file("root/a.py", "# secret");
    tree.folder("root/cgi-bin/folder.cgi");
    let site = Site::start(
        tree,
        "cgi_extension .py /no/such/interpreter;\n\
         location /nowhere/ { alias {root}/cgi-bin/; cgi on; cgi_working_dir {dir}/none; }",
    );
    for (target, status) in [
        ("/cgi-bin/interpreter.cgi", 502),
        ("/cgi-bin/no-format.cgi", 502),
        ("/cgi-bin/empty.cgi", 502),
        ("/cgi-bin/plain.cgi", 403),
        ("/cgi-bin/plain.cgi/", 403),
        ("/cgi-bin/plain%2ecgi", 403),
        ("/nowhere/warm.cgi", 502),
        ("/a.py", 502),
        ("/a.py/", 502),
        ("/a%2Epy", 502),
        ("//a.py", 502),
        ("/./cgi-bin/../a.py", 502),
    ] {
        for fields in ["", "Range: bytes=0-\r\n", "If-None-Match: \"x\"\r\n"] {
            let response = site.server.connect().request("GET", target, fields);
            assert_eq!(response.status, status, "{target}: {}", response.text());
            assert!(!response.text().contains("secret"), "{target}");
        }
    }
    site.assert_clean("failed spawns");
}
