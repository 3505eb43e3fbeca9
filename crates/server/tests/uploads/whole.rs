//! Nothing is ever half there: aborts, kills, deadlines, full disks, races.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sekisho_testkit::{Server, Signal, Stopwatch, Tree, eventually};

use crate::common::{BINARY, LONG, http, pattern, serve};

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn is_long() -> bool {
    std::env::var_os("SEKISHO_LONG").is_some()
}

fn put_head(target: &str, length: usize) -> String {
    format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
}

/// F5, V30, X5: 1,000 uploads that stop at any point leave nothing and harm nothing.
#[test]
fn aborted_uploads_leave_nothing_and_never_harm_the_old_file() {
    aborts_harm_nothing("", 100_000, 1000);
}

/// F5: the same past the page cache, where a thread may still write when the client has gone.
#[test]
fn aborted_uploads_straight_to_the_disk_leave_nothing() {
    aborts_harm_nothing("upload_direct 64k;", 3_000_000, 300);
}

fn aborts_harm_nothing(setting: &str, length: usize, turns: usize) {
    let tree = Tree::new();
    tree.file("root/old", "old");
    let config =
        format!("client_max_body_size 0; dav_methods PUT; create_full_put_path on; {setting}");
    let server = serve(tree, &config);
    let body = pattern(length);
    let mut random = Random(0x5eed_0001);
    // After an answer: the worker has all that it needs.
    assert_eq!(server.connect().get("/old").status, 200);
    let before = server.fds();
    for turn in 0..turns {
        let target = ["/old", "/new", "/folder/new"][random.below(3)];
        let whole = [put_head(target, body.len()).as_bytes(), &body].concat();
        let sent = random.below(whole.len());
        let mut client = server.connect();
        client.send(&whole[..sent]);
        match turn % 3 {
            0 => client.reset(),
            1 => client.half_close(),
            _ => drop(client),
        }
    }
    eventually("all of them are over", LONG, || server.fds() <= before);
    assert_eq!(server.tree().names("root"), ["old"]);
    assert_eq!(server.tree().read("root/old"), b"old");
    let mut client = server.connect();
    assert_eq!(client.request_with_body("PUT", "/old", "", &body).status, 204);
    assert_eq!(server.tree().read("root/old"), body);
}

/// F5, and X16: a server that is killed in the middle leaves nothing, and the old file is
/// the old file.
#[test]
fn a_server_that_is_killed_leaves_nothing_half_there() {
    let tree = Tree::new();
    tree.file("root/old", "old");
    tree.folder("store");
    let mut server = serve(
        tree,
        "client_max_body_size 0; dav_methods PUT COPY;
         location /store/ { upload_store {dir}/store; }",
    );
    let turns = if is_long() { 50 } else { 8 };
    let body = pattern(400_000);
    let form = [
        b"--XX\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\n",
        body.as_slice(),
        b"\r\n--XX\r\nContent-Disposition: form-data; name=f; filename=b\r\n\r\nb\r\n--XX--\r\n",
    ]
    .concat();
    let mut random = Random(0x5eed_0002);
    for _ in 0..turns {
        let mut clients = Vec::new();
        for at in 0..6 {
            let (head, body) = if at % 3 == 2 {
                let length = form.len();
                let head = format!(
                    "POST /store/ HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\
                     Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
                );
                (head, &form)
            } else {
                (put_head(["/old", "/new"][at % 2], body.len()), &body)
            };
            let mut client = server.connect();
            client.send(head).send(&body[..random.below(body.len() - 1)]);
            clients.push(client);
        }
        server.signal(Signal::KILL);
        server.wait_exit(LONG);
        assert_eq!(server.tree().names("root"), ["old"]);
        assert_eq!(server.tree().read("root/old"), b"old");
        assert_eq!(server.tree().names("store"), [""; 0]);
        server.start_again(BINARY);
    }
    assert_eq!(server.connect().get("/old").body, b"old");
}

/// V30: whole or not at all, also when the kill comes in the very moment in which a file is replaced; what is
/// left of that is swept.
#[test]
fn a_kill_while_files_are_replaced_leaves_one_or_the_other() {
    let tree = Tree::new();
    let (one, two) = (pattern(50_000), vec![7; 80_000]);
    tree.file("root/d/x", &one);
    let mut server = serve(tree, "client_max_body_size 0; dav_methods PUT;");
    let turns = if is_long() { 50 } else { 8 };
    let mut random = Random(0x5eed_0003);
    for _ in 0..turns {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for body in [&one, &two].into_iter().cycle() {
                        let Ok(stream) = std::net::TcpStream::connect(server.address()) else {
                            return;
                        };
                        let mut stream = stream;
                        let message = [put_head("/d/x", body.len()).as_bytes(), body].concat();
                        let sent = std::io::Write::write_all(&mut stream, &message);
                        let mut answer = [0; 12];
                        let read = std::io::Read::read_exact(&mut stream, &mut answer);
                        if sent.is_err() || read.is_err() || stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            sekisho_testkit::pause(Duration::from_millis(random.below(40) as u64));
            server.signal(Signal::KILL);
            stop.store(true, Ordering::Relaxed);
        });
        server.wait_exit(LONG);
        let there = server.tree().read("root/d/x");
        assert!(there == one || there == two, "{} bytes", there.len());
        server.start_again(BINARY);
        eventually("nothing else is there", LONG, || server.tree().names("root/d") == ["x"]);
    }
}

/// What a server of another time left is swept; what a living one works on is not.
#[test]
fn leftovers_are_swept_at_the_start_and_what_is_in_use_is_not() {
    let tree = Tree::new();
    let name = ".sekisho-upload-0123456789abcdef0123456789abcdef";
    tree.file(&format!("root/{name}"), "dead");
    tree.file(&format!("root/a/b/{name}"), "dead");
    tree.file(&format!("root/c/{name}/copy/x"), "dead");
    tree.file(&format!("store/{name}"), "dead");
    tree.file(&format!("root/kept/{name}"), "alive");
    tree.file("root/.sekisho-uploaded", "somebody's own");
    let held = std::fs::File::open(tree.path(&format!("root/kept/{name}"))).expect("opened");
    held.lock().expect("locked");
    let server = serve(
        tree,
        "error_log {dir}/notes.log notice; dav_methods PUT;
         location /s/ { upload_store {dir}/store; }",
    );
    let tree = server.tree();
    eventually("they are gone", LONG, || {
        ["root", "root/a/b", "root/c", "store"]
            .iter()
            .all(|folder| !tree.names(folder).iter().any(|other| other == name))
    });
    assert_eq!(tree.names("root/kept"), [name]);
    assert!(tree.exists("root/.sekisho-uploaded"));
    drop(held);
    // The next upload into the folder finds it.
    assert_eq!(server.connect().request("PUT", "/kept/x", "").status, 201);
    eventually("that one too", LONG, || tree.names("root/kept") == ["x"]);
}

/// T4, H6: a deadline, a limit and an end of the server end an upload, and nothing is left of it.
#[test]
fn an_upload_that_is_cut_short_by_us_leaves_nothing() {
    let tree = Tree::new();
    tree.file("root/old", "old");
    let mut server = serve(
        tree,
        "dav_methods PUT; client_body_timeout 300ms;
         location /slow/ { client_body_timeout 10s; client_body_min_rate 100000; }
         location /limit/ { client_max_body_size 10; }
         location /stop/ { client_body_timeout 60s; }",
    );
    server.tree().folder("root/slow");
    server.tree().folder("root/limit");
    server.tree().folder("root/stop");
    let mut client = server.connect();
    client.send(put_head("/old", 10)).send("abc");
    assert_eq!(client.read_response().status, 408);
    let mut client = server.connect();
    client.send(put_head("/slow/x", 1_000_000)).send("abc");
    assert_eq!(client.read_response().status, 408);
    let mut client = server.connect();
    client.send("PUT /limit/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n");
    assert_eq!(client.read_response().status, 413);
    let mut client = server.connect();
    client.send(put_head("/stop/x", 10)).send("abc");
    eventually("it is being written", LONG, || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", server.id())).expect("descriptors");
        let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.into_iter().any(|link| link.to_string_lossy().contains("root/stop"))
    });
    server.term();
    assert_eq!(client.read_response().status, 503);
    server.wait_exit(LONG);
    let tree = server.tree();
    assert_eq!(tree.names("root"), ["limit", "old", "slow", "stop"]);
    for folder in ["root/limit", "root/slow", "root/stop"] {
        assert_eq!(tree.names(folder), [""; 0]);
    }
    assert_eq!(tree.read("root/old"), b"old");
}

/// A mounted file system, unmounted when dropped.
pub(crate) struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(at: &'a Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "sekisho-test"])
            .arg(at)
            .output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }

    /// A disk of so many bytes, in a file.
    pub(crate) fn ext4(at: &'a Path, image: &Path, bytes: u64) -> Option<Self> {
        let file = std::fs::File::create(image).ok()?;
        file.set_len(bytes).ok()?;
        let is_done =
            |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = is_done(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(image))
            && is_done(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at));
        made.then_some(Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// F5, V41, X6: 507, and gone.
#[test]
fn a_full_disk_is_a_507_and_nothing_is_left() {
    let tree = Tree::new();
    let disk = tree.folder("root/disk");
    let Some(_mounted) = Mounted::tmpfs(&disk, "size=2m") else {
        println!("skipped: a file system cannot be mounted here");
        return;
    };
    tree.file("root/disk/old", "old");
    let server = serve(
        tree,
        "client_max_body_size 0; dav_methods PUT COPY MOVE;
         location /disk/post/ { upload_store {root}/disk; upload_resumable on; }",
    );
    let large = pattern(4 << 20);
    let mut client = server.connect();
    for target in ["/disk/old", "/disk/new"] {
        let answer = client.request_with_body("PUT", target, "", &large);
        assert_eq!(answer.status, 507, "{target}");
    }
    let answer = client.request_with_body("POST", "/disk/post/?name=new", "", &large);
    assert_eq!(answer.status, 507);
    server.tree().file("root/large", &large);
    let fields = "Destination: /disk/copy\r\n";
    assert_eq!(server.connect().request("COPY", "/large", fields).status, 507);
    assert_eq!(server.connect().request("MOVE", "/large", fields).status, 507);
    assert!(server.tree().exists("root/large"), "what could not be moved is where it was");
    assert_eq!(server.tree().names("root/disk"), ["old"]);
    assert_eq!(server.tree().read("root/disk/old"), b"old");
    let small = pattern(1 << 20);
    let answer = server.connect().request_with_body("PUT", "/disk/new", "", &small);
    assert_eq!(answer.status, 201, "there is room again");
    // To another file system a file is copied, and goes then.
    server.tree().file("root/small", "small");
    let moved = server.connect().request("MOVE", "/small", "Destination: /disk/small\r\n");
    assert_eq!(moved.status, 201);
    assert_eq!(server.tree().read("root/disk/small"), b"small");
    assert!(!server.tree().exists("root/small"));
}

/// F5, V41: the same where bytes go to the disk past the page cache.
#[test]
fn a_full_disk_that_is_written_to_directly_is_a_507() {
    let tree = Tree::new();
    let disk = tree.folder("root/disk");
    let Some(_mounted) = Mounted::ext4(&disk, &tree.path("image"), 16 << 20) else {
        println!("skipped: a disk cannot be mounted here");
        return;
    };
    tree.file("root/disk/old", "old");
    let server = serve(
        tree,
        "client_max_body_size 0; upload_direct 64k; dav_methods PUT;
         location /disk/post/ { upload_store {root}/disk; }",
    );
    let large = pattern(20 << 20);
    for (method, target) in
        [("PUT", "/disk/old"), ("PUT", "/disk/new"), ("POST", "/disk/post/?name=new")]
    {
        let answer = server.connect().request_with_body(method, target, "", &large);
        assert_eq!(answer.status, 507, "{target}");
    }
    assert_eq!(server.tree().names("root/disk"), ["lost+found", "old"]);
    assert_eq!(server.tree().read("root/disk/old"), b"old");
    let small = pattern((3 << 20) + 5);
    for (method, target) in [("PUT", "/disk/new"), ("POST", "/disk/post/?name=other")] {
        let answer = server.connect().request_with_body(method, target, "", &small);
        assert_eq!(answer.status, 201, "there is room for {target}");
    }
    for name in ["new", "other"] {
        assert!(server.tree().read(&format!("root/disk/{name}")) == small, "{name}");
    }
}

/// F5, T5: a slow client takes little memory, and is waited for as long as bytes come; the disk's time is not
/// the client's.
#[test]
fn a_slow_body_goes_to_the_disk_as_it_comes() {
    let server = serve(
        Tree::new(),
        "client_max_body_size 0; upload_direct 64k; dav_methods PUT; client_body_timeout 3s;",
    );
    let body = pattern(100_000);
    let mut client = server.connect();
    client.send(put_head("/slow", body.len()));
    let watch = Stopwatch::start();
    let (last, pieces) = body.split_at(10_000);
    for piece in pieces.chunks(10_000) {
        client.send(piece);
        client.expect_open_for(Duration::from_millis(400));
    }
    client.send(last);
    assert_eq!(client.read_response().status, 201);
    assert!(watch.elapsed() > Duration::from_secs(3), "longer than one silence may last");
    assert!(server.tree().read("root/slow") == [pieces, last].concat());
    // And not for longer.
    let mut client = server.connect();
    client.send(put_head("/silent", body.len()));
    client.send(&body[..70_000]);
    assert_eq!(client.read_response().status, 408);
    assert_eq!(server.tree().names("root"), ["slow"]);
}

/// What may not be written to is a 403.
#[test]
fn a_file_system_that_cannot_be_written_is_a_403() {
    let tree = Tree::new();
    let disk = tree.folder("root/disk");
    let Some(_mounted) = Mounted::tmpfs(&disk, "size=1m,ro") else {
        println!("skipped: a file system cannot be mounted here");
        return;
    };
    let server = serve(tree, "dav_methods PUT MKCOL;");
    assert_eq!(server.connect().request_with_body("PUT", "/disk/x", "", "x").status, 403);
    assert_eq!(server.connect().request("MKCOL", "/disk/x/", "").status, 403);
}

/// V19: a folder that turns into a link and back, all the time, leads no request out of the root: none reads
/// there under `disable_symlinks`, and whatever that says none writes or deletes there.
#[test]
fn a_link_that_comes_and_goes_leads_nowhere() {
    race("on");
    race("off");
}

fn race(disable_symlinks: &str) {
    let reads = disable_symlinks == "on";
    let tree = Tree::new();
    tree.file("outside/secret", "secret");
    tree.file("root/real/secret", "public");
    tree.folder("root/real/sub");
    // There from the start: a link that comes later changes the places of the sandbox, and with them the workers.
    tree.link("root/link", "../outside");
    let server = Server::start_in(
        tree,
        BINARY,
        &http(&format!(
            "server {{ listen 127.0.0.1:{{port}}; root {{root}};
             dav_methods PUT DELETE MKCOL COPY MOVE; upload_delete_directories recursive;
             create_full_put_path on; disable_symlinks {disable_symlinks};
             keepalive_requests 1000000; }}"
        )),
    );
    let tree = server.tree();
    let (real, link, swap) = (tree.path("root/real"), tree.path("root/link"), tree.path("root/at"));
    std::fs::rename(&real, &swap).expect("renamed");
    let requests = if is_long() { 100_000 } else { 4_000 };
    let is_over = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let route_state = rustix::fs::RenameFlags::EXCHANGE;
            while !is_over.load(Ordering::Relaxed) {
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &link, cwd, &swap, route_state).expect("exchanged");
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let workers: Vec<_> = (0..2)
            .map(|which| {
                let server = &server;
                scope.spawn(move || {
                    let mut random = Random(0x5eed_0100 + which);
                    let mut client = server.connect();
                    for _ in 0..requests / 2 {
                        let answer = match random.below(if reads { 7 } else { 6 }) {
                            0 => client.request_with_body("PUT", "/at/put", "", "x"),
                            1 => client.request_with_body("PUT", "/at/sub/new/deep", "", "x"),
                            2 => client.request("DELETE", "/at/secret", "If-Match: \"no\"\r\n"),
                            3 => client.request("DELETE", "/at/put", ""),
                            4 => client.request("DELETE", "/at/sub/new/", ""),
                            5 => client.request("COPY", "/at/secret", "Destination: /copy\r\n"),
                            _ => client.get("/at/secret"),
                        };
                        assert_ne!(answer.body, b"secret", "it was read");
                    }
                })
            })
            .collect();
        for worker in workers {
            let ended = worker.join();
            is_over.store(true, Ordering::Relaxed);
            ended.expect("a client came to its end");
        }
    });
    assert!(swaps.load(Ordering::Relaxed) > 100);
    assert_eq!(tree.names("outside"), ["secret"], "nothing was written or deleted there");
    assert_eq!(tree.read("outside/secret"), b"secret");
    assert_ne!(tree.text("root/copy"), "secret");
}

/// F2, V20: what a name may hold, it holds through all of it; the rest is refused by all alike.
#[test]
fn every_byte_of_a_name_makes_the_round_trip() {
    let server = serve(Tree::new(), "dav_methods PUT DELETE;");
    let mut client = server.connect();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        let target = format!("/x%{byte:02X}y");
        let is_refused = byte.is_ascii_control();
        let status = |good: u16| match byte {
            b'\n' | b'\r' => 400,
            _ if is_refused => 403,
            _ => good,
        };
        let put = client.request_with_body("PUT", &target, "", [byte]);
        assert_eq!(put.status, status(201), "PUT {target}");
        if !is_refused {
            let location = put.field("location").expect("a location").to_owned();
            assert_eq!(client.get(&location).body, [byte], "GET {location}");
            let name = std::os::unix::ffi::OsStringExt::from_vec(vec![b'x', byte, b'y']);
            let name: std::ffi::OsString = name;
            assert_eq!(std::fs::read(server.tree().root().join(name)).expect("there"), [byte]);
        }
        assert_eq!(client.request("DELETE", &target, "").status, status(204), "DELETE {target}");
    }
    assert_eq!(server.tree().names("root"), [""; 0]);
}

/// V30: of many requests that want to be the first, one is; of many that count up, none is lost.
#[test]
fn conditions_hold_until_the_file_takes_its_place() {
    let tree = Tree::new();
    tree.file("root/count", "0");
    let config = http("server { listen 127.0.0.1:{port}; root {root}; dav_methods PUT; }");
    let server =
        Server::start_in(tree, BINARY, &config.replace("worker_processes 1", "worker_processes 4"));
    let created = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.connect();
                for name in 0..50 {
                    let target = format!("/first-{name}");
                    let fields = "If-None-Match: *\r\n";
                    match client.request_with_body("PUT", &target, fields, "x").status {
                        201 => created.fetch_add(1, Ordering::Relaxed),
                        412 => 0,
                        other => panic!("{other}"),
                    };
                }
                let mut done = 0;
                while done < 10 {
                    let there = client.get("/count");
                    let tag = there.field("etag").expect("a tag").to_owned();
                    let count: usize =
                        String::from_utf8_lossy(&there.body).parse().expect("a number");
                    let fields = format!("If-Match: {tag}\r\n");
                    let body = (count + 1).to_string();
                    match client.request_with_body("PUT", "/count", &fields, body).status {
                        204 => done += 1,
                        412 => {}
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(created.load(Ordering::Relaxed), 50);
    assert_eq!(server.tree().read("root/count"), b"80");
}

/// A client that has changed a file sees the change, whichever worker answers, however hot the old one was.
#[test]
fn a_change_is_seen_at_once_by_every_worker() {
    let tree = Tree::new();
    tree.file("root/hot", "old");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(tree.path("root/hot")).expect("opened");
    file.set_modified(old).expect("made older");
    let config = http(
        "open_file_cache max=100 inactive=60s; open_file_cache_valid 60s; open_file_cache_errors on;
         server { listen 127.0.0.1:{port}; root {root}; dav_methods PUT DELETE;
         location /auto/ { alias {root}/; open_file_cache auto; } }",
    );
    let server =
        Server::start_in(tree, BINARY, &config.replace("worker_processes 1", "worker_processes 4"));
    let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for (turn, prefix) in ["/", "/auto/"].iter().cycle().take(20).enumerate() {
        let target = format!("{prefix}hot");
        for client in &mut clients {
            for _ in 0..40 {
                client.get(&target);
            }
        }
        let writer = turn % clients.len();
        let body = format!("version {turn}");
        if turn % 3 == 2 {
            assert_eq!(clients[writer].request("DELETE", &target, "").status, 204);
            for client in &mut clients {
                assert_eq!(client.get(&target).status, 404, "turn {turn}");
            }
        }
        clients[writer].request_with_body("PUT", &target, "", &body);
        for client in &mut clients {
            assert_eq!(client.get(&target).body, body.as_bytes(), "turn {turn}");
        }
    }
}

/// F1: what was broken off is gone on with, by the clients that people have.
#[test]
fn downloads_are_resumed() {
    let tree = Tree::new();
    tree.file("root/large", pattern(1_000_000));
    tree.file("curl", &pattern(1_000_000)[..300_000]);
    tree.file("wget", &pattern(1_000_000)[..300_000]);
    let server = serve(tree, "");
    let url = server.url("/large");
    for (program, arguments) in [
        ("curl", &["-sS", "-C", "-", "-o", "curl", &url][..]),
        ("wget", &["-q", "-c", "-O", "wget", &url]),
    ] {
        let run = Command::new(program).args(arguments).current_dir(server.tree().dir()).output();
        let Ok(output) = run else {
            println!("skipped: {program} is not installed");
            continue;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(server.tree().read(program), pattern(1_000_000));
    }
}

/// F5, H3: bytes that go from the socket straight into the file stop where the body does.
#[test]
fn a_body_that_goes_straight_into_its_file_ends_where_it_ends() {
    bodies_end_where_they_end("upload_direct off;");
}

/// F5, H3: the same past the page cache, for some of those that come at once.
#[test]
fn a_body_that_goes_straight_to_the_disk_ends_where_it_ends() {
    bodies_end_where_they_end("upload_direct 64k;");
}

fn bodies_end_where_they_end(setting: &str) {
    let config = format!("client_max_body_size 0; dav_methods PUT; {setting}");
    let server = serve(Tree::new(), &config);
    let mut random = Random(0x5eed_0002);
    thread::scope(|scope| {
        for number in 0..6 {
            let (server, seed) = (&server, random.below(1 << 30) as u64 + 1);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut client = server.connect();
                for turn in 0..6 {
                    let body = pattern((60 << 10) + random.below(3 << 20));
                    let target = format!("/{number}");
                    let head = put_head(&target, body.len());
                    let next = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
                    let all = [head.as_bytes(), &body, next.as_bytes()].concat();
                    // In pieces of any size, the next request right behind.
                    let mut rest = all.as_slice();
                    while !rest.is_empty() {
                        let piece = (1 + random.below(400 << 10)).min(rest.len());
                        client.send(&rest[..piece]);
                        rest = &rest[piece..];
                    }
                    let status = if turn == 0 { 201 } else { 204 };
                    assert_eq!(client.read_response().status, status);
                    assert!(client.read_response().body == body, "{number}, turn {turn}");
                }
            });
        }
    });
}

/// F5, H11: a client that closes its side after a complete body has sent a complete body, also while the disk
/// is at work.
#[test]
fn the_end_behind_a_whole_body_harms_nothing() {
    for setting in ["upload_direct off;", "upload_direct 64k;"] {
        let config = format!("client_max_body_size 0; dav_methods PUT; {setting}");
        let server = serve(Tree::new(), &config);
        for (turn, length) in
            [1 << 20, (3 << 20) + 5, 2 << 20].into_iter().cycle().take(9).enumerate()
        {
            let (body, target) = (pattern(length), format!("/{turn}"));
            let mut client = server.connect();
            client.send([put_head(&target, length).as_bytes(), &body].concat());
            client.half_close();
            assert_eq!(client.read_response().status, 201, "{length} bytes, {setting}");
            assert!(
                server.tree().read(&format!("root/{turn}")) == body,
                "{length} bytes, {setting}"
            );
        }
        // Behind half of one it is the end.
        let mut client = server.connect();
        client.send([put_head("/half", 4 << 20).as_bytes(), &pattern(2 << 20)].concat());
        client.half_close();
        client.expect_closed(LONG);
        assert!(!server.tree().exists("root/half"));
    }
}

/// What came of a body counts, whichever way it went.
#[test]
fn bytes_of_a_body_are_counted_whichever_way_they_go() {
    for setting in ["upload_direct off;", "upload_direct 64k;"] {
        let config = format!(
            "client_max_body_size 0; dav_methods PUT; {setting} location = /metrics {{ status prometheus; }}"
        );
        let server = serve(Tree::new(), &config);
        let length = (3 << 20) + 5;
        let answer = server.connect().request_with_body("PUT", "/a", "", pattern(length));
        assert_eq!(answer.status, 201);
        let received = || {
            let text = server.connect().get("/metrics").text();
            let line =
                text.lines().find_map(|line| line.strip_prefix("sekisho_received_bytes_total "));
            line.expect("counted").parse::<usize>().expect("a number")
        };
        // They are added when the connection ends.
        eventually("the body is counted", LONG, || received() > length);
        assert!(received() < length + 100_000, "once");
    }
}
