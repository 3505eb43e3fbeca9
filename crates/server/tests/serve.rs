//! `sekisho serve`: what its options do, by the program itself.
#![forbid(unsafe_code)]

mod common;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use common::{BINARY, LONG, Process, own_address};
use rustix::process::Signal;
use sekisho_testkit::{Client, Tree, eventually, free_port, have, run};

/// A server of `root`, with these options, and what it has said.
fn serve(tree: Tree, options: &[&str]) -> (Process, String) {
    let process = Process::start(tree, &[&["serve", "root", "--quiet"], options].concat());
    eventually("it says where it serves", LONG, || {
        process.tree().text("stdout").contains("http://")
            || process.tree().text("stderr").contains("sekisho:")
    });
    let said = process.tree().text("stdout");
    assert!(said.contains("http://"), "{}", process.tree().text("stderr"));
    (process, said)
}

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("root/a.txt", "hello ".repeat(1000));
    tree.file("root/sub/b.txt", "below");
    tree
}

/// O1: a port alone means this machine's every address, of both families, and those that are printed work.
#[test]
fn a_port_alone_is_every_address_and_each_that_is_printed_works() {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    for form in ["PORT", "[::]:PORT", ":PORT"] {
        let port = free_port();
        let listen = form.replace("PORT", &port.to_string());
        let (_server, said) = serve(tree(), &["-l", &listen]);
        let addresses: Vec<SocketAddr> = said
            .split("http://")
            .skip(1)
            .filter_map(|rest| rest.split('/').next()?.parse().ok())
            .collect();
        assert!(addresses.contains(&SocketAddr::from((Ipv4Addr::LOCALHOST, port))), "{said}");
        let is_there = addresses.contains(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        assert_eq!(is_there, has_ipv6, "{said}");
        for address in addresses {
            assert_eq!(Client::connect(address).get("/sub/b.txt").text(), "below", "{address}");
        }
    }
}

/// O1: any free port, and this machine only by default.
#[test]
fn a_port_may_be_any_that_is_free() {
    for options in [&["-p", "0"][..], &["--port", "0", "-l", "127.0.0.1"], &["-l", "127.0.0.1:0"]] {
        let (mut server, said) = serve(tree(), options);
        let address = server.address();
        assert!(address.ip().is_loopback() && address.port() != 0, "{said}");
        assert_eq!(Client::connect(address).get("/sub/b.txt").text(), "below");
    }
}

/// O1: a password is asked for; nothing of it is left when the server ends.
#[test]
fn a_password_is_asked_for_and_leaves_nothing() {
    let temp = Tree::new();
    let folder = temp.folder("temp");
    let address = own_address(18_090);
    let tree = tree();
    tree.file("word", "secret word\n");
    let line = format!(
        "cd '{}' && TMPDIR='{}' exec {BINARY} serve root --quiet -l {address} --password kim < word",
        tree.dir().display(),
        folder.display()
    );
    let mut child = std::process::Command::new("sh").args(["-c", &line]).spawn().expect("started");
    eventually("it listens", LONG, || std::net::TcpStream::connect(address).is_ok());
    let mut client = Client::connect(address);
    assert_eq!(client.get("/sub/b.txt").status, 401);
    // kim:secret word, kim:wrong
    for (credentials, status) in [("a2ltOnNlY3JldCB3b3Jk", 200), ("a2ltOndyb25n", 401)] {
        let fields = format!("Authorization: Basic {credentials}\r\n");
        assert_eq!(client.request("GET", "/sub/b.txt", &fields).status, status);
    }
    assert_eq!(temp.names("temp").len(), 1);
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, Signal::QUIT).expect("it runs");
    assert!(child.wait().expect("ended").success());
    assert_eq!(temp.names("temp"), [""; 0]);
}

/// O1: a folder that the whole network may change is warned of, unless there is a password.
#[test]
fn an_open_folder_that_may_be_changed_is_warned_of() {
    let port = free_port().to_string();
    for (options, is_warned) in [
        (&["-l", &port, "--upload"][..], true),
        (&["-l", &port, "--webdav"], true),
        (&["-l", &port, "--delete", "--password", "kim:x"], false),
        (&["-l", &port], false),
        (&["-p", &port, "--upload", "--delete"], false),
    ] {
        let (server, _) = serve(tree(), options);
        let warned = server.tree().text("stderr").contains("WARNING: everyone");
        assert_eq!(warned, is_warned, "{options:?}");
    }
}

/// O1: `--read-only` is the default, and does not go with an option that writes.
#[test]
fn read_only_excludes_the_options_that_write() {
    let (mut server, _) = serve(tree(), &["-p", "0", "--read-only"]);
    let put = Client::connect(server.address()).request_with_body("PUT", "/new.txt", "", b"x");
    assert_eq!(put.status, 405);
    assert!(!server.tree().exists("root/new.txt"));
    for option in ["--upload", "--delete", "--webdav"] {
        let refused = run(BINARY, &["serve", "--read-only", option], LONG);
        assert_eq!(refused.code(), 1, "{option}");
        assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
    }
}

/// O1: the other options.
#[test]
fn options_do_what_they_say() {
    let listen = own_address(18_091).to_string();
    let with = |options: &[&str]| {
        let files = tree();
        files.file("root/index.html", "the page");
        let (mut server, said) = serve(files, &[&["-l", &listen], options].concat());
        let client = Client::connect(server.address());
        (server, client, said)
    };
    let (server, mut client, _) = with(&["--spa"]);
    assert_eq!(client.get("/some/route").text(), "the page");
    assert_eq!(client.get("/sub/b.txt").text(), "below");
    // A browser would take the page for a script.
    assert_eq!(client.get("/assets/gone.js").status, 404);
    drop(server);

    let (server, mut client, _) = with(&["--cors"]);
    let answer = client.request("GET", "/sub/b.txt", "Origin: https://app.example\r\n");
    assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.field("access-control-allow-methods"), None);
    let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n";
    let answer = client.request("OPTIONS", "/sub/b.txt", preflight);
    assert_eq!(answer.status, 204);
    assert_eq!(answer.field("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(answer.field("access-control-allow-headers"), Some("range"));
    drop(server);

    for (option, coding) in
        [("--compress", Some("gzip")), ("--compress=on", Some("gzip")), ("--compress=off", None)]
    {
        let (_server, mut client, _) = with(&[option]);
        let answer = client.request("GET", "/a.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(answer.field("content-encoding"), coding, "{option}");
    }

    let (server, mut client, _) = with(&["--archive", "--title", "Kim's <files>", "--qr"]);
    let page = client.get("/sub/").text();
    assert!(page.contains("<title>Kim&#39;s &lt;files&gt; /sub/</title>"), "{page}");
    assert!(page.contains("?download=zip"));
    assert_eq!(client.get("/sub/?download=tar").field("content-type"), Some("application/x-tar"));
    eventually("the code is shown, after the address", LONG, || {
        let said = server.tree().text("stdout");
        said.contains('\u{2580}') && said.contains("\u{1b}[30;47m")
    });
    drop(server);

    let (server, mut client, _) = with(&["--upload", "--delete"]);
    let put = |client: &mut Client, fields: &str| {
        client.request_with_body("PUT", "/sub/b.txt", fields, "new").status
    };
    assert_eq!(put(&mut client, ""), 201, "beside the old one");
    assert_eq!(server.tree().text("root/sub/b.txt"), "below");
    assert_eq!(put(&mut client, "If-Match: *\r\n"), 204, "in its place");
    assert_eq!(server.tree().text("root/sub/b.txt"), "new");
    assert_eq!(client.request("DELETE", "/sub/", "").status, 204, "with its content");
    drop(server);

    let (server, mut client, _) = with(&["--upload"]);
    assert_eq!(
        put(&mut client, "If-Match: *\r\n"),
        201,
        "a client that may not delete replaces nothing"
    );
    assert_eq!(server.tree().text("root/sub/b.txt"), "below");
}

/// O1, RFC 4918
#[test]
fn webdav_needs_no_configuration() {
    if !have("rclone") {
        return;
    }
    let listen = own_address(18_092).to_string();
    let (mut server, _) = serve(tree(), &["-l", &listen, "--webdav", "--password", "kim:secret"]);
    eventually("it is said", LONG, || server.tree().text("stdout").contains("WebDAV"));
    // A browser sees the files, too.
    let signed_in = "Authorization: Basic a2ltOnNlY3JldA==\r\n";
    let page = Client::connect(server.address()).request("GET", "/", signed_in);
    assert!(page.status == 200 && page.text().contains("a.txt"), "{}", page.text());
    let url = format!("--webdav-url=http://{}/", server.address());
    let back = server.tree().path("back").display().to_string();
    let hidden = run("rclone", &["obscure", "secret"], LONG).stdout.trim().to_owned();
    let pass = format!("--webdav-pass={hidden}");
    let arguments =
        ["--config=/dev/null", &url, "--webdav-user=kim", &pass, "copy", ":webdav:", &back];
    let copied = run("rclone", &arguments, LONG);
    assert_eq!(copied.code(), 0, "{}", copied.stderr);
    assert_eq!(server.tree().text("back/sub/b.txt"), "below");
}

/// O1: a folder that is mistyped is not taken for a public name.
#[test]
fn a_name_for_https_needs_a_folder_beside_it() {
    // If it were taken for one, nobody else should notice.
    let near = ["-l", "127.0.0.1:0", "--acme-directory", "https://127.0.0.1:1/"];
    let refused = run(BINARY, &[&["serve", "--https", "my.photos"][..], &near].concat(), LONG);
    assert_eq!(refused.code(), 1);
    let told = "there is no such folder";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    assert!(refused.stderr.contains("sekisho serve --https my.photos DIR"), "{}", refused.stderr);
}

/// O1: the address that others can use is the one to show to a phone.
#[test]
fn a_qr_code_leads_to_this_machine_from_others_with_https_too() {
    let data = Tree::new();
    let port = free_port().to_string();
    let arguments = ["serve", "root", "-q", "--https", "-l", &port, "--qr"];
    let process = Process::start_with(tree(), &arguments, &[("XDG_DATA_HOME", data.dir())]);
    let shown = || process.tree().text("stdout").trim_end().rsplit('\n').next().map(str::to_owned);
    eventually("the link below the code", LONG, || {
        shown().is_some_and(|line| line.starts_with("https://") && line.ends_with('/'))
    });
    let said = process.tree().text("stdout");
    let is_near = |line: &str| line.contains("//127.") || line.contains("//[::1]");
    let has_others = said.lines().any(|line| line.contains(" on https://") && !is_near(line));
    let shown = shown().expect("just seen");
    assert_eq!(!is_near(&shown), has_others, "{said}");
}

/// O1: a wrong value is reported with the name of its option.
#[test]
fn wrong_values_are_reported_with_their_options() {
    for (option, value) in [("--workers", "0"), ("--timeout", "foo"), ("--host", "a b")] {
        let refused = run(BINARY, &["serve", "--cgi", option, value], LONG);
        assert_eq!(refused.code(), 1, "{option}");
        assert!(refused.stderr.contains(&format!("'{value}' for '{option}")), "{}", refused.stderr);
    }
}

/// O1: what is printed may have no reader.
#[test]
fn a_closed_standard_output_ends_no_server_and_no_command_by_a_panic() {
    let tree = tree();
    let address = own_address(18_093);
    let mut server = std::process::Command::new(BINARY)
        .args(["serve", "root", "-l", &address.to_string()])
        .current_dir(tree.dir())
        .stdout(closed_pipe())
        .spawn()
        .expect("started");
    eventually("it listens", LONG, || std::net::TcpStream::connect(address).is_ok());
    assert_eq!(Client::connect(address).get("/sub/b.txt").text(), "below");
    let id = server.id().to_string();
    let quiet = |arguments: &[&str]| {
        let mut command = std::process::Command::new(BINARY);
        let output = command.args(arguments).stdout(closed_pipe()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    };
    quiet(&["-v"]);
    // A kept connection is a session.
    let kept = Client::connect(address);
    let peer = kept.local_address().to_string();
    let mut session = String::new();
    eventually("the session", LONG, || {
        let listed = run(BINARY, &["ctl", "--pid", &id, "sessions"], LONG).stdout;
        let line = listed.lines().find(|line| line.contains(&peer));
        session = line.and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
        !session.is_empty()
    });
    quiet(&["ctl", "--pid", &id, "session", "show", &session]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), Signal::QUIT)
        .expect("it runs");
    assert_eq!(server.wait().expect("ended").code(), Some(0));

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let output = std::process::Command::new(BINARY).arg("-v").stdout(full).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("standard output: No space left"), "{said}");
}

/// A pipe that nobody reads from.
fn closed_pipe() -> std::process::Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe");
    writer.into()
}

/// O1: another name is refused on loopback addresses, and the client and the operator are told what to do.
#[test]
fn another_host_name_is_refused_with_the_option_that_allows_it() {
    let listen = own_address(18_094).to_string();
    let process = Process::start(tree(), &["serve", "root", "-l", &listen]);
    let address = listen.parse().expect("an address");
    eventually("it listens", LONG, || std::net::TcpStream::connect(address).is_ok());
    let mut client = Client::connect(address);
    client.send("GET /a.txt HTTP/1.1\r\nHost: files.test\r\n\r\n");
    let answer = client.read_response();
    assert_eq!(answer.status, 421);
    assert!(answer.text().contains("--host files.test"), "{}", answer.text());
    eventually("the line on the terminal", LONG, || {
        process.tree().text("stderr").contains("start it with --host files.test")
    });
}

/// O1, F5: a folder that is shared for a while has no notes about uploads when that is over.
#[test]
fn a_finished_upload_leaves_no_note_behind_when_the_server_ends() {
    let listen = own_address(18_095).to_string();
    let (mut server, _) = serve(tree(), &["-l", &listen, "--upload"]);
    let mut client = Client::connect(server.address());
    let begun = "Tus-Resumable: 1.0.0\r\nUpload-Length: 3\r\nUpload-Metadata: filename bmV3\r\n";
    let created = client.request("POST", "/sub/", begun);
    assert_eq!(created.status, 201, "{created:?}");
    let at = created.field("location").expect("a location").to_owned();
    let part = "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n";
    assert_eq!(client.request_with_body("PATCH", &at, part, "abc").status, 204);
    assert_eq!(server.tree().names("root/sub").len(), 3, "a note for clients that ask again");
    drop(client);
    server.signal(Signal::INT);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(server.tree().names("root/sub"), ["b.txt", "new"]);
}

/// The response to a GET for a path of the first address that a process has printed.
fn get(process: &Process, path: &str) -> sekisho_testkit::Response {
    let said = process.tree().text("stdout");
    let at = said.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next());
    let port: u16 = at.and_then(|port| port.parse().ok()).expect("an address");
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).get(path)
}

/// A process with these arguments that has printed its address.
fn started(tree: Tree, arguments: &[&str]) -> Process {
    let process = Process::start(tree, arguments);
    eventually("an address", LONG, || process.tree().text("stdout").contains("http://"));
    process
}

/// O1: a folder is listed for this machine and with `--upload`, without a flag; not for a network.
#[test]
fn a_folder_without_an_index_is_listed() {
    let by_name = started(tree(), &["root", "-q", "-p", "0"]);
    assert!(get(&by_name, "/").text().contains("a.txt"));
    let port = free_port().to_string();
    let shared = started(tree(), &["serve", "root", "-q", "-l", &port]);
    assert_eq!(get(&shared, "/").status, 403);
    let port = free_port().to_string();
    let uploads = started(tree(), &["serve", "root", "-q", "-l", &port, "--upload"]);
    assert!(get(&uploads, "/").text().contains("a.txt"));
}

/// O1: one file is served as that file, whatever its name is, and nothing beside it.
#[test]
fn one_file_is_served_by_itself() {
    let tree = tree();
    tree.file("root/o d'd $x%.txt", "odd");
    let server = started(tree, &["root/o d'd $x%.txt", "-q", "-p", "0"]);
    let redirect = get(&server, "/");
    assert_eq!(redirect.status, 302);
    let path = "/o%20d%27d%20%24x%25.txt";
    assert!(redirect.field("location").is_some_and(|to| to.ends_with(path)), "{redirect:?}");
    assert_eq!(get(&server, path).text(), "odd");
    assert_eq!((get(&server, "/a.txt").status, get(&server, "/sub/").status), (404, 404));
    let refused = run(BINARY, &["serve", BINARY, "--upload"], LONG);
    assert!(refused.code() == 1 && refused.stderr.contains("needs a folder"), "{}", refused.stderr);
}

/// U1: `proxy` passes requests on to servers that respond, `--proxy` those below a path.
#[test]
fn requests_are_passed_on_by_one_command() {
    let behind = started(tree(), &["root", "-q", "-p", "0"]);
    let said = behind.tree().text("stdout");
    let port = said.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next());
    let to = format!(":{}", port.expect("a port"));
    let dead = format!(":{}", free_port());
    let front = started(Tree::new(), &["proxy", &to, "--to", &dead, "-q", "-p", "0"]);
    for _ in 0..4 {
        assert_eq!(get(&front, "/sub/b.txt").text(), "below");
    }
    let from = format!("127.0.0.1:{}", free_port());
    let front = started(Tree::new(), &["proxy", &from, &to, "-q", "--header", "X-By: 1$a"]);
    let response = get(&front, "/sub/b.txt");
    assert_eq!((response.text(), response.field("x-by")), ("below".into(), Some("1$a")));
    let below = format!("/api/={to}/sub/");
    let both = started(tree(), &["serve", "root", "-q", "-p", "0", "--proxy", &below]);
    assert_eq!(get(&both, "/api/b.txt").text(), "below");
    assert_eq!(get(&both, "/sub/b.txt").text(), "below");
    for wrong in
        [&["proxy"][..], &["proxy", "host:port"], &["proxy", ":1", ":2", "--to", "https://a"]]
    {
        let refused = run(BINARY, wrong, LONG);
        assert!(refused.code() == 1 && !refused.stderr.is_empty(), "{wrong:?}");
    }
}

/// O1: `passwd` writes the file that `--password-file` reads; a hash and the environment do as well.
#[test]
fn passwords_need_not_stand_on_the_command_line() {
    let tree = tree();
    let users = tree.path("users").display().to_string();
    let passwd = |word: &str, file: &str| {
        let script = format!("printf '%s\\n' {word} | {BINARY} passwd kim {file}");
        let made = run("sh", &["-c", &script], LONG);
        assert_eq!(made.code(), 0, "{}", made.stderr);
        made.stdout
    };
    passwd("first", &users);
    passwd("second", &users);
    assert_eq!(tree.text("users").lines().count(), 1, "the line is replaced");
    let line = passwd("hashed", "");
    let ask = |process: &Process, password: &str| {
        let said = process.tree().text("stdout");
        let url = said.split_whitespace().find(|word| word.starts_with("http://")).expect("a link");
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u"];
        let user = format!("kim:{password}");
        run("curl", &[&arguments[..], &[&user, url]].concat(), LONG).stdout
    };
    if !have("curl") {
        return;
    }
    let by_file = started(tree, &["root", "-q", "-p", "0", "--password-file", &users]);
    assert_eq!([ask(&by_file, "first"), ask(&by_file, "second")], ["401", "200"]);
    let by_hash = started(self::tree(), &["root", "-q", "-p", "0", "--password", line.trim()]);
    assert_eq!([ask(&by_hash, "second"), ask(&by_hash, "hashed")], ["401", "200"]);
    let variable = [("SEKISHO_PASSWORD", std::path::Path::new("kim:env"))];
    let by_variable = Process::start_with(self::tree(), &["root", "-q", "-p", "0"], &variable);
    eventually("an address", LONG, || by_variable.tree().text("stdout").contains("http://"));
    assert_eq!([ask(&by_variable, "hashed"), ask(&by_variable, "env")], ["401", "200"]);
}

/// O1: words of other servers get the word of this one; a port that is taken gets a way out.
#[test]
fn habits_of_other_servers_are_answered() {
    for (arguments, expected) in [
        (&["serve", "-A"][..], "--upload --delete"),
        (&["serve", "--auth", "kim:x"], "--password"),
        (&["serve", "--tls-cert", "x"], "--certificate"),
        (&["reload"], "ctl reload"),
    ] {
        let refused = run(BINARY, arguments, LONG);
        assert!(refused.code() == 1 && refused.stderr.contains(expected), "{}", refused.stderr);
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let refused = run(BINARY, &["serve", "/", "-p", &port], LONG);
    assert!(refused.code() == 1 && refused.stderr.contains("-p 0"), "{}", refused.stderr);
}

/// S1: an own certificate.
#[test]
fn https_with_a_certificate_of_the_operator() {
    if !have("openssl") || !have("curl") {
        return;
    }
    let tree = tree();
    let dir = tree.dir().display();
    let make = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=own -keyout {dir}/k -out {dir}/c"
    );
    assert_eq!(run("sh", &["-c", &make], LONG).code(), 0);
    let server =
        Process::start(tree, &["root", "-q", "-p", "0", "--certificate", "c", "--key", "k"]);
    eventually("an address", LONG, || server.tree().text("stdout").contains("https://"));
    let said = server.tree().text("stdout");
    let url = said.split_whitespace().find(|word| word.starts_with("https://")).expect("a link");
    let seen = run("curl", &["-skv", &format!("{url}sub/b.txt")], LONG);
    assert!(seen.stdout == "below" && seen.stderr.contains("CN=own"), "{}", seen.stderr);
}
