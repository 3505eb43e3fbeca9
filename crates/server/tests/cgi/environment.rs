//! What a program gets: its environment, arguments, folder and descriptors (C8), and nothing
//! that a client could turn against it (V22, V23).

use std::collections::BTreeMap;

use sekisho_testkit::{Tree, eventually, have};

use crate::common::LONG;
use crate::support::{Site, sh};

/// Prints its environment, one variable a line.
const ENV: &str = "printf 'X: 1\\n\\n'; exec /usr/bin/env";

fn site(settings: &str) -> Site {
    let tree = Tree::new();
    tree.script("root/cgi-bin/env.cgi", &sh(ENV));
    Site::start(tree, settings)
}

/// The environment of a program that is asked for with these fields.
#[track_caller]
fn environment(site: &Site, target: &str, fields: &str) -> BTreeMap<String, String> {
    let response = site.server.connect().request("GET", target, fields);
    assert_eq!(response.status, 200, "{response:?}");
    let text = response.text();
    let variables = text.lines().filter_map(|line| line.split_once('='));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_environment_is_that_of_the_standard_and_no_other() {
    // C8
    let site = site("");
    let target = "/cgi-bin/env.cgi/more/info?a=b&c";
    let seen = environment(&site, target, "User-Agent: test\r\nCookie: a=1\r\nCookie: b=2\r\n");
    let root = site.server.tree().root().display().to_string();
    let port = site.server.address().port().to_string();
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", &port),
        ("REQUEST_METHOD", "GET"),
        ("QUERY_STRING", "a=b&c"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_HOST", "127.0.0.1"),
        ("SCRIPT_NAME", "/cgi-bin/env.cgi"),
        ("PATH_INFO", "/more/info"),
        ("PATH_TRANSLATED", &format!("{root}/more/info")),
        ("DOCUMENT_ROOT", &root),
        ("SCRIPT_FILENAME", &format!("{root}/cgi-bin/env.cgi")),
        ("REQUEST_URI", target),
        ("REQUEST_SCHEME", "http"),
        ("REDIRECT_STATUS", "200"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HTTP_HOST", "localhost"),
        ("HTTP_USER_AGENT", "test"),
        ("HTTP_COOKIE", "a=1; b=2"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name} in {seen:#?}");
    }
    assert!(seen["SERVER_SOFTWARE"].starts_with("sekisho/"));
    // The server's own environment is not among it; the shell adds what it always does.
    for name in ["HOME", "USER", "CARGO_MANIFEST_DIR", "REMOTE_USER", "AUTH_TYPE", "CONTENT_LENGTH"]
    {
        assert!(!seen.contains_key(name), "{name} in {seen:#?}");
    }
}

#[test]
fn fields_cannot_pose_as_variables() {
    // C8, V22: httpoxy, and names that become one another
    let site = site("");
    let fields = "Proxy: http://evil/\r\nX-Good: 1\r\nX_Good: 2\r\nX.Good: 3\r\nContent_Length: 9\r\n\
                  Authorization: Basic eDp5\r\nProxy-Authorization: Basic eDp5\r\nX-Twice: a\r\nx-twice: b\r\n\
                  Script-Name: /evil\r\nPath: /evil\r\nSekisho-Run: 1\r\n";
    let seen = environment(&site, "/cgi-bin/env.cgi", fields);
    let http: Vec<(&str, &str)> = seen
        .iter()
        .filter(|(name, _)| name.starts_with("HTTP_"))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        http,
        [
            ("HTTP_HOST", "localhost"),
            ("HTTP_PATH", "/evil"),
            ("HTTP_SCRIPT_NAME", "/evil"),
            ("HTTP_SEKISHO_RUN", "1"),
            ("HTTP_X_GOOD", "1"),
            ("HTTP_X_TWICE", "a, b"),
        ]
    );
    assert_eq!(seen["PATH"], "/usr/local/bin:/usr/bin:/bin");
    assert_eq!(seen["SCRIPT_NAME"], "/cgi-bin/env.cgi");
}

#[test]
fn what_is_configured_wins() {
    // C8
    let site = site(
        "cgi_set_var REMOTE_USER kim; cgi_set_var HTTP_PROXY none; cgi_set_var WHO $remote_addr;\n\
         cgi_path /opt/bin; cgi_pass_authorization on; cgi_working_dir {dir};\n\
         location = /where { cgi_pass {root}/cgi-bin/where.cgi; }",
    );
    site.server.tree().script("root/cgi-bin/where.cgi", &sh("printf 'X: 1\\n\\n'; pwd"));
    let fields = "Authorization: Basic eDp5\r\nProxy: evil\r\n";
    let seen = environment(&site, "/cgi-bin/env.cgi", fields);
    for (name, value) in [
        ("REMOTE_USER", "kim"),
        ("HTTP_PROXY", "none"),
        ("WHO", "127.0.0.1"),
        ("PATH", "/opt/bin"),
        ("HTTP_AUTHORIZATION", "Basic eDp5"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name} in {seen:#?}");
    }
    let dir = site.server.tree().dir().display().to_string();
    assert_eq!(site.server.connect().get("/where").text(), format!("{dir}\n"));
}

#[test]
fn a_query_is_never_an_argument() {
    // C8, V23
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\n'; echo \"$#:$*:$QUERY_STRING\""));
    let site = Site::start(tree, "");
    for query in ["-s", "-d+allow_url_include%3don", "%ads", "a+b+c", "--version", "a"] {
        let response = site.server.connect().get(&format!("/cgi-bin/x.cgi?{query}"));
        assert_eq!(response.text(), format!("0::{query}\n"));
    }
}

#[test]
fn a_program_sees_three_descriptors_its_own_folder_and_its_own_group() {
    // C8
    let tree = Tree::new();
    // By `ls` and not by the shell, which keeps its script open. Number 3 is the folder that `ls` reads.
    let script = "printf 'X: 1\\n\\n'; pwd; cut -d' ' -f1,5 /proc/$$/stat; grep -E 'SigIgn|SigBlk' /proc/self/status\n\
                  exec ls -l /proc/self/fd";
    tree.script("root/cgi-bin/x.cgi", &sh(script));
    let site = Site::start(tree, "");
    // Others are connected meanwhile.
    let _idle: Vec<_> = (0..5).map(|_| site.server.connect()).collect();
    let text = site.server.connect().get("/cgi-bin/x.cgi").text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], site.server.tree().path("root/cgi-bin").display().to_string());
    let (own, group) = lines[1].split_once(' ').expect("two numbers");
    assert_eq!(own, group);
    // Signals are as a program expects them: none ignored, none blocked. (The two that the C library
    // keeps for itself may be.)
    for line in &lines[2..4] {
        let (_, mask) = line.split_once('\t').expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("a number");
        assert_eq!(mask & !0x1_8000_0000, 0, "{text}");
    }
    let open: Vec<&str> = lines[5..]
        .iter()
        .filter_map(|line| line.split_once(':')?.1.split_once(' '))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(open.len(), 4, "{text}");
    assert_eq!(open[0], "0 -> /dev/null", "{text}");
    assert!(open[1].starts_with("1 -> pipe:") && open[2].starts_with("2 -> pipe:"), "{text}");
    assert!(open[3].starts_with("3 -> /proc/"), "{text}");
}

#[test]
fn complaints_go_to_the_error_log_line_by_line_and_not_without_end() {
    // C10
    let tree = Tree::new();
    tree.script(
        "root/cgi-bin/x.cgi",
        &sh("printf 'one\\ntwo \\033[31m\\001\\r\\nlast' >&2; printf 'X: 1\\n\\nhello\\n'"),
    );
    tree.script(
        "root/cgi-bin/slow.cgi",
        &sh("echo early >&2; sleep 0.3; printf 'X: 1\\n\\nhello\\n'; sleep 0.3; echo late >&2"),
    );
    tree.script(
        "root/cgi-bin/flood.cgi",
        &sh("yes complaint | head -n 5000 >&2; printf 'X: 1\\n\\nhello\\n'"),
    );
    tree.script(
        "root/cgi-bin/long.cgi",
        &sh("head -c 100000 /dev/zero | tr '\\0' z >&2; printf 'X: 1\\n\\n'"),
    );
    let site = Site::start(
        tree,
        "location /quiet/ { alias {root}/cgi-bin/; cgi on; cgi_stderr off; }\n\
         location /file/ { alias {root}/cgi-bin/; cgi on; cgi_stderr {dir}/complaints; }",
    );
    let log = || site.server.log("error.log");
    let mut client = site.server.connect();
    assert_eq!(client.get("/cgi-bin/x.cgi").text(), "hello\n");
    eventually("the last line", LONG, || log().contains("cgi stderr: last"));
    let text = log();
    for line in text.lines().filter(|line| line.contains("cgi stderr: ")) {
        assert!(line.contains("request id: "), "{line}");
    }
    assert!(!text.bytes().any(|byte| byte < 0x20 && byte != b'\n'), "{text:?}");
    assert_eq!(client.get("/cgi-bin/slow.cgi").text(), "hello\n");
    eventually("late words", LONG, || {
        log().contains("stderr: early") && log().contains("stderr: late")
    });
    assert_eq!(client.get("/cgi-bin/flood.cgi").text(), "hello\n");
    eventually("the count", LONG, || log().contains("more lines were left out"));
    assert_eq!(log().matches("cgi stderr: complaint").count(), 100);
    assert_eq!(client.get("/cgi-bin/long.cgi").status, 200);
    eventually("a long line", LONG, || log().contains("cgi stderr: zzz"));
    assert!(log().lines().all(|line| line.len() < 2000), "a line is cut");
    assert_eq!(client.get("/quiet/x.cgi").text(), "hello\n");
    assert_eq!(client.get("/file/x.cgi").text(), "hello\n");
    assert!(site.server.tree().text("complaints").starts_with("one\ntwo"));
    assert_eq!(log().matches("cgi stderr: one").count(), 1);
    drop(client);
    site.assert_clean("complaints");
}

#[test]
fn several_languages_live_side_by_side() {
    // C8: `cgi_extension`
    if !have("python3") || !have("perl") {
        return;
    }
    let tree = Tree::new();
    tree.file(
        "root/a.py",
        "import os\nprint('X: 1\\n')\nprint('python', os.environ['PATH_INFO'])\n",
    );
    tree.file("root/a.pl", "print \"X: 1\\n\\nperl $ENV{PATH_INFO}\\n\";");
    tree.file("root/a.sh", "printf 'X: 1\\n\\n'; echo shell $PATH_INFO");
    tree.script("root/a.cgi", &sh("printf 'X: 1\\n\\n'; echo itself $PATH_INFO"));
    tree.file("root/a.txt", "text");
    let python = which("python3");
    let perl = which("perl");
    let site = Site::start(
        tree,
        &format!(
            "cgi_extension .py {python}; cgi_extension .pl {perl}; cgi_extension .sh /bin/sh; cgi_extension .cgi;"
        ),
    );
    let mut client = site.server.connect();
    for (target, text) in [
        ("/a.py/x", "python /x\n"),
        ("/a.pl/y/z", "perl /y/z\n"),
        ("/a.sh/w", "shell /w\n"),
        ("/a.cgi/v", "itself /v\n"),
        ("/a.txt", "text"),
    ] {
        assert_eq!(client.get(target).text(), text, "{target}");
    }
}

/// Where a program lies.
fn which(program: &str) -> String {
    let found = sekisho_testkit::run("sh", &["-c", &format!("command -v {program}")], LONG);
    found.stdout.trim().to_owned()
}

#[test]
fn the_forms_of_the_nginx_cgi_module_work() {
    // C8, C10, T4
    let tree = Tree::new();
    tree.script(
        "bin/app.sh",
        &sh("printf 'X: 1\\n\\n%s|%s|%s\\n' \"$PATH_INFO\" \"$1\" \"$2\"; echo complaint >&2"),
    );
    let trap = "trap 'printf \"X: 1\\n\\nasked\"; exit' TERM; while :; do sleep 0.05; done";
    tree.script("bin/trap.sh", &sh(trap));
    tree.file("root/plain.txt", "printf 'X: 1\\n\\n%s\\n' \"$URI\"");
    let site = Site::start(
        tree,
        "location /pass { cgi pass {dir}/bin/app.sh 111 $uri; cgi_stderr warn; }\n\
         location /old { cgi_pass {dir}/bin/app.sh 111; cgi_stderr file {dir}/cgi.log; }\n\
         location /plain.txt { cgi on; cgi_interpreter /usr/bin/env URI=$uri /bin/sh; }\n\
         location /kill { cgi pass {dir}/bin/trap.sh; cgi_timeout 0 500ms; cgi_read_timeout off; }",
    );
    let mut client = site.server.connect();
    assert_eq!(client.get("/pass/x").text(), "/x|111|/pass/x\n");
    assert_eq!(client.get("/old/y").text(), "/y|111|\n");
    assert_eq!(client.get("/plain.txt").text(), "/plain.txt\n");
    let killed = client.get("/kill");
    assert_eq!(killed.status, 504, "{}", killed.text());
    drop(client);
    site.assert_clean("the forms");
    let log = site.server.log("error.log");
    assert!(log.contains("[warn]") && log.contains("cgi stderr: complaint"), "{log}");
    assert!(!log.lines().any(|line| line.contains("[error]") && line.contains("complaint")));
    assert_eq!(site.server.tree().text("cgi.log"), "complaint\n");
}
