//! The command line over the real binary: nginx's flags, the stock start, `serve`, and the errors when the
//! server cannot do what it was asked to.
#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use common::{BINARY, LONG, Process, http, own_address, site};
use sekisho_testkit::{
    Client, End, Finished, Server, Signal, Stopwatch, Tree, eventually, run, wait_for,
};

/// Runs the binary to its end.
#[track_caller]
fn sekisho(arguments: &[&str]) -> Finished {
    run(BINARY, arguments, LONG)
}

/// It refuses, with one clear line that has all of these words.
#[track_caller]
fn assert_refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert_eq!(finished.stderr.trim_end().lines().count(), 1, "{}", finished.stderr);
    for word in words {
        assert!(finished.stderr.contains(word), "no {word:?} in {}", finished.stderr);
    }
}

#[test]
fn a_good_configuration_passes_its_test() {
    // O1
    let tree = Tree::new();
    tree.file("good.conf", "events {}\nhttp { include more.conf; }\n");
    tree.file("more.conf", "server { listen 127.0.0.1:1; } # included\n");
    let path = tree.path("good.conf").display().to_string();
    let tested = sekisho(&["-t", "-c", &path]);
    assert_eq!(tested.code(), 0, "{tested:?}");
    assert!(tested.stderr.contains("syntax is ok") && tested.stderr.contains("test is successful"));
    let quiet = sekisho(&["-q", "-t", "-c", &path]);
    assert_eq!((quiet.code(), quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""));
    let dumped = sekisho(&["-T", "-c", &path]);
    assert_eq!(dumped.code(), 0);
    for text in ["# configuration file", "include more.conf;", "more.conf:", "# included"] {
        assert!(dumped.stdout.contains(text), "no {text:?} in {}", dumped.stdout);
    }
    // A test opens nothing: an ordinary user may not listen on port 1, and it was not tried.
    assert!(!tree.exists("logs"));
}

#[test]
fn every_error_of_a_bad_configuration_is_told_in_one_run() {
    // O1, O2
    let tree = Tree::new();
    tree.file(
        "bad.conf",
        "worker_processess 1;\nevents {}\nhttp {\n  include more.conf;\n  server {\n\
         \x20   listen 127.0.0.1:99999;\n    rooot /x;\n    keepalive_timeout ten;\n  }\n\
         \x20 server {\n    listen 127.0.0.1:8443 ssl;\n    ssl_certificate gone.pem;\n    ssl_certificate_key gone.key;\n\
         \x20 }\n}\n",
    );
    tree.file("more.conf", "server {\n  location / { retrun 200; }\n}\n");
    let path = tree.path("bad.conf").display().to_string();
    for flag in ["-t", "-T"] {
        let tested = sekisho(&[flag, "-c", &path]);
        assert_eq!(tested.code(), 1);
        assert_eq!(tested.stdout, "");
        for text in [
            "bad.conf:1:1",
            "worker_processess",
            "did you mean \"worker_processes\"?",
            "bad.conf:6:",
            "99999",
            "bad.conf:7:5",
            "rooot",
            "did you mean \"root\"?",
            "bad.conf:8:23",
            "ten",
            "more.conf:2:16",
            "retrun",
            // What the machine says, of a text that is wrong elsewhere.
            "bad.conf:12:21",
            "gone.pem",
            "test failed",
        ] {
            assert!(tested.stderr.contains(text), "no {text:?} in {}", tested.stderr);
        }
    }
    let started = sekisho(&["-c", &path]);
    assert_eq!(started.code(), 1);
    assert!(started.stderr.contains("rooot") && started.stderr.contains("retrun"), "{started:?}");
}

#[test]
fn the_version_is_told() {
    // O1
    for flag in ["-v", "-V"] {
        let told = sekisho(&[flag]);
        assert_eq!(told.code(), 0);
        let text = [told.stdout, told.stderr].concat();
        assert!(text.contains("sekisho/"), "{text}");
    }
}

#[test]
fn a_start_that_cannot_succeed_says_why_in_one_line() {
    // O1
    let tree = Tree::new();
    let path = |name: &str| tree.path(name).display().to_string();
    assert_refused(&sekisho(&["-c", &path("missing.conf")]), &["missing.conf", "no such file"]);
    assert_refused(&sekisho(&["serve", &path("missing")]), &["missing"]);

    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let root = tree.root().display().to_string();
    let words = [&*address, "in use"];
    assert_refused(&sekisho(&["serve", &root, "--listen", &address]), &words);
    for (listen, why) in [("foo", "names are not resolved"), ("99999", "invalid port")] {
        let refused = sekisho(&["serve", &root, "--listen", listen]);
        assert_refused(&refused, &[&format!("--listen {listen}: "), why]);
    }
    tree.file("taken.conf", format!("events {{}} http {{ server {{ listen {address}; }} }}"));
    assert_refused(&sekisho(&["-c", &path("taken.conf")]), &words);

    let own = own_address(18_080);
    let server = format!("events {{}} http {{ server {{ listen {own}; }} }}");
    tree.file("pid.conf", format!("pid nowhere/x.pid; {server}"));
    assert_refused(&sekisho(&["-c", &path("pid.conf")]), &["nowhere/x.pid"]);
    tree.file("log.conf", format!("error_log nowhere/x.log; {server}"));
    let refused = sekisho(&["-c", &path("log.conf")]);
    assert_eq!(refused.code(), 1);
    let place = "log.conf:1:11";
    assert!(refused.stderr.contains(place) && refused.stderr.contains("mkdir -p"), "{refused:?}");
    tree.file("address.conf", "events {} http { server { listen 192.0.2.1:80; } }");
    assert_refused(&sekisho(&["-c", &path("address.conf")]), &["192.0.2.1:80", "no such address"]);
    assert!(!tree.path("nowhere").exists());

    for arguments in [&["--nonsense"][..], &["-s", "dance"], &["serve", "--nonsense"]] {
        assert_eq!(sekisho(arguments).code(), 1, "{arguments:?}");
    }
}

#[test]
fn the_stock_start_of_nginx_works_as_it_is() {
    // O1, O4
    let tree = Tree::new();
    let address = own_address(18_080);
    let dir = tree.dir().display().to_string();
    tree.file(
        "nginx.conf",
        format!(
            "daemon off;\npid {dir}/nginx.pid;\nerror_log {dir}/error.log debug;\nevents {{}}\n\
             http {{\n  access_log {dir}/access.log;\n  client_body_temp_path {dir}/client_body;\n\
             \x20 proxy_temp_path {dir}/proxy;\n  fastcgi_temp_path {dir}/fastcgi;\n\
             \x20 uwsgi_temp_path {dir}/uwsgi;\n  scgi_temp_path {dir}/scgi;\n\
             \x20 server {{ listen {address}; root {dir}/root; }}\n}}\n"
        ),
    );
    tree.file("root/a.txt", "hello");
    let prefix = format!("{dir}/");
    let mut server = Process::start(tree, &["-p", &prefix, "-c", "nginx.conf", "-e", "error.log"]);
    eventually("the pid file", LONG, || server.tree().text("nginx.pid").ends_with('\n'));
    assert!(server.tree().exists("error.log"), "the log is there before the pid file");
    assert_eq!(server.tree().text("nginx.pid").trim(), server.id().to_string());
    // It listens by then.
    let mut client = Client::connect(address);
    assert_eq!(client.get("/a.txt").text(), "hello");
    let mut silent = Client::connect(address);
    assert_eq!(Client::connect(address).get("/a.txt").status, 200, "the silent one is accepted");
    let watch = Stopwatch::start();
    server.signal(Signal::QUIT);
    assert_eq!(client.expect_closed(LONG), End::Closed);
    assert_eq!(silent.read_to_close(), b"");
    assert_eq!(server.wait_exit(), Some(0));
    assert!(watch.elapsed() < Duration::from_secs(5), "at once, and not at a deadline");
    assert!(!server.tree().exists("nginx.pid"));
    assert_eq!(server.tree().text("access.log").lines().count(), 2);
    assert!(!server.tree().text("stderr").contains("error"), "{}", server.tree().text("stderr"));
}

#[test]
fn signals_are_sent_by_flag_to_whom_the_pid_file_names() {
    // O1, O3, O4
    let config = format!("pid {{dir}}/server.pid;\n{}", site("location / { return 200 one; }"));
    let mut server = Server::start(BINARY, &config);
    let path = server.config_path().display().to_string();
    let send = |name: &str| sekisho(&["-s", name, "-c", &path]);
    assert_eq!(server.connect().get("/").text(), "one");
    server.rewrite_config(&config.replace("one", "two"));
    assert_eq!(send("reload").code(), 0);
    eventually("the new configuration", LONG, || server.connect().get("/").text() == "two");

    let log = server.tree().path("error.log");
    fs::rename(&log, server.tree().path("old.log")).expect("renamed");
    assert_eq!(send("reopen").code(), 0);
    eventually("the new log", LONG, || log.exists());

    server.rewrite_config("nonsense;");
    assert_eq!(send("reload").code(), 1);
    server.rewrite_config(&config);
    assert_eq!(send("quit").code(), 0);
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert_refused(&send("stop"), &["server.pid"]);
    server.tree().file("server.pid", "not a number\n");
    assert_refused(&send("stop"), &["server.pid"]);

    let mut server = Server::start(BINARY, &config);
    let path = server.config_path().display().to_string();
    assert_eq!(sekisho(&["-s", "stop", "-c", &path]).code(), 0);
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
}

#[test]
fn reload_by_flag_exits_with_the_result() {
    // O3: also where only the running server can know it.
    let config = format!("pid {{dir}}/server.pid;\n{}", site("location / { return 200 one; }"));
    let server = Server::start(BINARY, &config);
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    server.rewrite_config(&config.replace("127.0.0.1:{port}", &address));
    let path = server.config_path().display().to_string();
    assert_ne!(sekisho(&["-s", "reload", "-c", &path]).code(), 0, "the address is taken");
    assert_eq!(server.connect().get("/").text(), "one");
}

#[test]
fn directives_and_the_error_log_can_be_given_by_flag() {
    // O1
    let config = site("").replace("error_log {dir}/error.log debug;\n", "");
    let tree = Tree::new();
    let pid = format!("user root; pid {}/by-flag.pid;", tree.dir().display());
    let arguments = ["-g", &pid, "-e", "early.log"];
    let mut server = Server::try_start(tree, BINARY, &config, &arguments).expect("it starts");
    eventually("the pid file", LONG, || server.tree().exists("by-flag.pid"));
    assert_eq!(server.connect().get("/missing").status, 404);
    eventually("the line", LONG, || server.log("early.log").contains("/missing"));
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(!server.tree().exists("by-flag.pid"));
    // What root is warned of comes before there is a log.
    assert!(!server.stderr().contains("/missing"), "{}", server.stderr());
}

#[test]
fn a_folder_is_served_without_any_configuration() {
    // O1
    let tree = Tree::new();
    tree.file("root/a b.txt", "hello");
    tree.file("root/sub/index.html", "index");
    let listen = own_address(18_080).to_string();
    let mut server = Process::start(tree, &["serve", "root", "--listen", &listen]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/a%20b.txt").text(), "hello");
    assert_eq!(client.get("/sub/").text(), "index");
    assert!(client.get("/").text().contains("a b.txt"), "only this machine sees the listing");
    assert!(wait_for(LONG, || server.tree().text("stderr").contains("GET /a%20b.txt")));
    server.signal(Signal::INT);
    assert_eq!(server.wait_exit(), Some(0));

    let tree = Tree::new();
    tree.file("root/a.txt", "hello");
    let arguments = ["serve", "root", "--listen", &listen, "--no-listing", "--quiet"];
    let mut server = Process::start(tree, &arguments);
    let mut client = Client::connect(server.address());
    assert_eq!(client.get("/a.txt").text(), "hello");
    assert!(server.tree().text("stdout").contains("--open-listing"));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(server.tree().text("stderr"), "");
}

/// O1, F5, F6
#[test]
fn serve_takes_uploads_and_deletes_where_it_is_told_to() {
    let listen = own_address(18_081).to_string();
    let run = |more: &[&str]| {
        let tree = Tree::new();
        tree.file("root/old.txt", "old");
        tree.folder("root/empty");
        let arguments = [&["serve", "root", "--quiet", "--listen", &listen], more].concat();
        let mut server = Process::start(tree, &arguments);
        let client = Client::connect(server.address());
        (server, client)
    };
    let (server, mut client) = run(&[]);
    assert_eq!(client.request_with_body("PUT", "/new", "", "x").status, 405);
    assert_eq!(client.request("DELETE", "/old.txt", "").status, 405);
    drop(server);
    let (server, mut client) = run(&["--upload"]);
    let large = vec![b'x'; 3 << 20];
    assert_eq!(client.request_with_body("PUT", "/a/b/new", "", &large).status, 201);
    assert_eq!(client.request_with_body("POST", "/empty/?name=raw", "", "x").status, 201);
    assert_eq!(client.request("OPTIONS", "/", "").field("tus-version"), Some("1.0.0"));
    assert_eq!(client.request("DELETE", "/old.txt", "").status, 405);
    assert_eq!(server.tree().names("root/empty"), ["raw"]);
    drop(server);
    let (server, mut client) = run(&["--delete"]);
    assert_eq!(client.request_with_body("PUT", "/new", "", "x").status, 405);
    assert_eq!(client.request("DELETE", "/old.txt", "").status, 204);
    assert_eq!(client.request("DELETE", "/empty/", "").status, 204);
    assert_eq!(server.tree().names("root"), [""; 0]);
}

/// O1, V51: a page of another site can neither write nor pose as this machine, and nothing is overwritten or given out
/// by accident.
#[test]
fn serve_is_for_this_machine_and_its_own_pages() {
    let address = own_address(18_082);
    let listen = address.to_string();
    let run = |more: &[&str]| {
        let tree = Tree::new();
        tree.file("root/notes.txt", "mine");
        tree.file("root/.git/config", "secret");
        tree.file("root/.env", "secret");
        let arguments = [&["serve", "root", "--quiet", "--listen", &listen], more].concat();
        let mut server = Process::start(tree, &arguments);
        let client = Client::connect(server.address());
        (server, client)
    };
    let get = |client: &mut Client, host: &str| {
        client.send(format!("GET /notes.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.read_response().status
    };
    let (server, mut client) = run(&["--upload", "--delete"]);
    for host in ["localhost", "LOCALHOST:1234", "127.0.0.1:18082", "[::1]:18082", &listen] {
        assert_eq!(get(&mut client, host), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:18082", "localhost.evil.example"] {
        assert_eq!(get(&mut client, host), 421, "{host}");
    }
    let foreign = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    let raw = client.request_with_body("POST", "/?name=notes.txt", foreign, "pwn");
    assert_eq!(raw.status, 403);
    let origin = "Origin: https://evil.example\r\n";
    assert_eq!(client.request("DELETE", "/notes.txt", origin).status, 403);
    assert_eq!(client.request_with_body("PUT", "/notes.txt", origin, "x").status, 403);
    let own = "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n";
    let stored = client.request_with_body("POST", "/?name=notes.txt", own, "second");
    assert_eq!(stored.status, 201);
    assert_eq!(server.tree().text("root/notes.txt"), "mine", "nothing is overwritten silently");
    assert_eq!(server.tree().text("root/notes (1).txt"), "second");
    for hidden in ["/.git/config", "/.env", "/.git/"] {
        assert_eq!(client.get(hidden).status, 404, "{hidden}");
        assert_eq!(client.request_with_body("PUT", hidden, "", "x").status, 404, "{hidden}");
    }
    drop(server);
    let (_server, mut client) = run(&["--hidden", "--host", "box.example"]);
    assert_eq!(client.get("/.git/config").text(), "secret");
    assert_eq!(get(&mut client, "box.example:80"), 200);
    assert_eq!(get(&mut client, "evil.example"), 421);
}

#[test]
fn plain_sekisho_says_where_it_is_and_answers_there() {
    // O1: also where another program has the usual port.
    let _usual = TcpListener::bind("127.0.0.1:8080");
    let mut server = Process::start(Tree::new(), &[]);
    let mut client = Client::connect(server.address());
    let page = client.get("/");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(client.get("/missing").status, 404);
    assert_eq!(server.tree().names("."), ["root", "stderr", "stdout"], "no file is left anywhere");
    server.signal(Signal::QUIT);
    assert_eq!(server.wait_exit(), Some(0));
}

/// One request over a Unix socket, as bytes.
fn ask_unix(path: &std::path::Path) -> String {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket takes its options");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_unix_socket_is_a_listen_address_like_another() {
    // O1
    let config = http(
        "server { listen unix:{dir}/socket; listen 127.0.0.1:{port};
           location / { return 200 \"from $remote_addr\"; } }",
    );
    let tree = Tree::new();
    let path = tree.path("socket");
    // Left over by a server that was killed.
    drop(UnixListener::bind(&path).expect("bound"));
    let mut server = Server::start_in(tree, BINARY, &config);
    assert!(ask_unix(&path).ends_with("\r\n\r\nfrom unix:"), "{}", ask_unix(&path));
    // Every user that reaches it may connect, as with nginx.
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    // A second server must not take it away from the first.
    let second = server.tree().file(
        "second.conf",
        format!("events {{}} http {{ server {{ listen unix:{}; }} }}", path.display()),
    );
    assert_refused(&sekisho(&["-c", &second.display().to_string()]), &["socket", "in use"]);
    assert!(ask_unix(&path).contains("200 OK"));
    server.quit();
    assert_eq!(server.wait_exit(LONG).code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_not_removed_for_one() {
    // O1
    let tree = Tree::new();
    tree.file("precious", "data");
    let config = format!(
        "events {{}} http {{ server {{ listen unix:{}; }} }}",
        tree.path("precious").display()
    );
    let path = tree.file("x.conf", config).display().to_string();
    assert_refused(&sekisho(&["-c", &path]), &["precious"]);
    assert_eq!(tree.text("precious"), "data");
    assert!(!fs::metadata(tree.path("precious")).expect("there").file_type().is_socket());
}

/// O1: `-t` reports what would surprise an operator who comes from nginx.
#[test]
fn what_will_not_do_what_it_seems_to_is_warned_of() {
    let tree = Tree::new();
    tree.folder("root");
    let dir = tree.dir().display().to_string();
    for (main, body, told) in [
        ("daemon on;", String::new(), None),
        ("daemon off;", String::new(), None),
        ("", format!("root {dir}/missing;"), Some("/missing\" does not exist")),
        (
            "",
            format!("location /up/ {{ alias {dir}/none/; dav_methods PUT; }}"),
            Some("/none/\" does not exist"),
        ),
        (
            "",
            "location ~ \\.php$ { cgi_pass /usr/bin/php-cgi8.2; }".to_owned(),
            Some("cgi_extension .php /usr/bin/php-cgi8.2;"),
        ),
        (
            "",
            "location ~ \\.py$ { cgi_pass /usr/bin/python3; }".to_owned(),
            Some("cgi_extension .py /usr/bin/python3;"),
        ),
        ("", "location /x { cgi_pass /bin/true; }".to_owned(), None),
    ] {
        let config = format!(
            "user root; cgi_allow_root on; {main} events {{}}\nhttp {{ server {{ listen 127.0.0.1:1; root {dir}/root;\n{body} }} }}\n"
        );
        let config = if body.starts_with("root") {
            config.replace(&format!("root {dir}/root;"), "")
        } else {
            config
        };
        let path = tree.file("test.conf", config).display().to_string();
        let tested = sekisho(&["-t", "-c", &path]);
        assert_eq!(tested.code(), 0, "{main}{body}\n{}", tested.stderr);
        if let Some(text) = told {
            assert_eq!(tested.stderr.matches(text).count(), 1, "{main}{body}\n{}", tested.stderr);
        } else {
            let rest = tested.stderr.replace("warning: the server will run as root", "");
            assert!(!rest.contains("warning: "), "{main}{body}\n{rest}");
        }
    }
    // One line, and not one for each worker that could not be started.
    let root = tree.path("root").display().to_string();
    let refused = sekisho(&["serve", &root, "--workers", "999999"]);
    assert_refused(&refused, &["999999 workers need about", "file descriptors"]);
}

/// V26: what is stored by one location and run by another, where no check of an upload can see it, is
/// reported.
#[test]
fn a_folder_that_is_written_here_and_run_there_is_warned_of() {
    let tree = Tree::new();
    tree.folder("root/files/sub");
    tree.folder("apart");
    tree.link("linked", tree.path("root/files"));
    let dir = tree.dir().canonicalize().expect("there").display().to_string();
    let store = "location /files/ { dav_methods PUT; }";
    let python = "cgi_extension .py /bin/sh;";
    for (body, is_told) in [
        (format!("{store} location /site/ {{ alias {dir}/root/files/; {python} }}"), true),
        (format!("{store} location /site/ {{ alias {dir}/root/files/sub/; cgi on; }}"), true),
        (format!("{store} location /site/ {{ alias {dir}/root/; {python} }}"), true),
        (format!("{store} location /site/ {{ alias {dir}/linked/; {python} }}"), true),
        (format!("{store} location /site/ {{ alias {dir}/apart/; {python} }}"), false),
        (format!("{store} location /one {{ cgi_pass {dir}/root/files/run; }}"), true),
        (format!("{store} location /one {{ cgi_pass {dir}/apart/run; }}"), false),
        (format!("{store} location ~ \\.py$ {{ {python} }}"), false),
        (
            format!(
                "location /up {{ upload_store {dir}/root/files; }} location /files/ {{ cgi on; }}"
            ),
            false,
        ),
        (
            format!(
                "location /up {{ upload_store {dir}/apart; }} location /x/ {{ alias {dir}/apart/; cgi on; }}"
            ),
            true,
        ),
        (format!("{store} }} server {{ listen 127.0.0.1:2; root {dir}/root; {python}"), true),
        (
            format!(
                "location /a/ {{ alias {dir}/apart/; dav_methods PUT; location ~ \\.py$ {{ {python} }} }}"
            ),
            false,
        ),
        (
            format!(
                "location /a/ {{ alias {dir}/apart/; dav_methods PUT; }} location /b/ {{ alias {dir}/apart/; {python} }}"
            ),
            true,
        ),
    ] {
        let config = format!(
            "user root; cgi_allow_root on; events {{}}\nhttp {{ server {{ listen 127.0.0.1:1; root {dir}/root; {body} }} }}\n"
        );
        let path = tree.file("test.conf", config).display().to_string();
        let tested = sekisho(&["-t", "-c", &path]);
        let said = tested.stderr.contains("clients can run programs");
        assert_eq!(said, is_told, "{body}\n{}", tested.stderr);
        assert_eq!(tested.code(), 0, "{body}\n{}", tested.stderr);
    }
}

/// O2
#[test]
fn migrate_tells_what_becomes_of_an_nginx_configuration() {
    let tree = Tree::new();
    for (text, code, awaited) in [
        ("events { } http { server { listen 80; root /srv; } }", 0, "means the same"),
        ("events { } http { server { listen 80; autoindex on; } }", 2, "autoindex: listings"),
        ("events { } http { server { listen 80; image_filter test; } }", 1, "Missing: 1"),
        (
            "events { } http { server { listen 443 ssl; ssl_certificate /none/x.pem; ssl_certificate_key /none/x.key; } }",
            1,
            "Differs on this machine: 1\n  ssl_certificate \"/none/x.pem\": cannot be read",
        ),
        (
            "events { } http { server { listen 80; root /none/root; } }",
            2,
            "Differs on this machine: 1\n  \"/none/root\" does not exist",
        ),
    ] {
        let path = tree.file("nginx.conf", text);
        let done = run(BINARY, &["migrate", path.to_str().expect("a path")], LONG);
        assert_eq!(done.code(), code, "{}", done.stdout);
        assert!(done.stdout.contains(awaited), "{}", done.stdout);
    }
}

/// O1: what the start would fail for is a fault of the machine that `-t` finds, as nginx's does.
#[test]
fn a_log_whose_folder_is_missing_is_reported_by_t() {
    let tree = Tree::new();
    let dir = tree.dir().display().to_string();
    let text = format!(
        "error_log {dir}/gone/error.log;\nevents {{}}\n\
         http {{ access_log {dir}/away/access.log; server {{ listen 127.0.0.1:1; }} }}\n"
    );
    let path = tree.file("test.conf", text).display().to_string();
    let tested = sekisho(&["-t", "-c", &path]);
    assert_eq!(tested.code(), 1, "{}", tested.stderr);
    for (folder, place) in [("gone", "test.conf:1:"), ("away", "test.conf:3:")] {
        assert!(tested.stderr.contains(&format!("`mkdir -p {dir}/{folder}`")), "{}", tested.stderr);
        assert!(tested.stderr.contains(place), "{}", tested.stderr);
        tree.folder(folder);
    }
    let tested = sekisho(&["-t", "-c", &path]);
    assert_eq!(tested.code(), 0, "{}", tested.stderr);
}
