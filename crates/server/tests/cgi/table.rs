//! The table: one row for each way in which a program can behave, each asked for with HTTP/1.1, with
//! HTTP/1.0 and by HEAD. After each, nothing is left behind: no process, no dead process, no descriptor.

use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sekisho_testkit::{Client, End, ReadError, Response, Stopwatch, Tree};

use crate::support::{Site, sh};

/// Short, so that every deadline is met; `streams` outlives them all.
const SETTINGS: &str = "cgi_read_timeout 500ms; cgi_kill_grace 200ms; client_header_timeout 500ms; \
     client_body_timeout 500ms; send_timeout 500ms; keepalive_timeout 2s; client_max_body_size 8m;";
/// Longer than an answer may take whose program has to be killed first.
const PATIENCE: Duration = Duration::from_secs(8);
/// What a client sends to programs that are about their input.
const BODY_BYTES: usize = 3 << 20;

/// How an answer looks to a client.
#[derive(Clone, Copy, Debug)]
enum Seen<'a> {
    /// Complete, and the connection is kept if the length is known beforehand.
    Whole { status: u16, body: &'a str },
    /// Whole, of unknown length: HTTP/1.0 ends it by closing.
    Streamed { status: u16, body: &'a str },
    /// A page of the server's own.
    Page(u16),
    /// It begins like this and is then cut (C5). `has_length`: it has said how long it is.
    Broken { start: &'a str, has_length: bool },
}
use Seen::{Broken, Page, Streamed, Whole};

struct Row<'a> {
    /// Asked for.
    target: &'a str,
    /// What GET (or POST) sees.
    get: Seen<'a>,
    /// The status that HEAD sees.
    head: u16,
    /// Whether a large body is sent along.
    has_body: bool,
    /// A field that the answer has.
    field: Option<(&'a str, &'a str)>,
}

const ROW: Row<'_> =
    Row { target: "/cgi-bin/x.cgi", get: Page(500), head: 200, has_body: false, field: None };

/// A row whose program is this shell script.
#[track_caller]
fn check(script: &str, row: &Row<'_>) {
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh(script));
    check_in(tree, row);
}

#[track_caller]
fn check_in(tree: Tree, row: &Row<'_>) {
    let site = Site::start(tree, SETTINGS);
    ask(&site, row, "HTTP/1.1");
    ask(&site, row, "HTTP/1.0");
    ask_head(&site, row);
}

#[track_caller]
fn ask(site: &Site, row: &Row<'_>, version: &str) {
    let mut client = site.server.connect().with_patience(PATIENCE);
    let persists = if version == "HTTP/1.0" { "Connection: keep-alive\r\n" } else { "" };
    let (method, length) = if row.has_body {
        ("POST", format!("Content-Length: {BODY_BYTES}\r\n"))
    } else {
        ("GET", String::new())
    };
    let target = row.target;
    client.send(format!("{method} {target} {version}\r\nHost: a\r\n{persists}{length}\r\n"));
    if row.has_body {
        client.send(vec![b'x'; BODY_BYTES]);
    }
    let what = format!("{method} {target} {version}");
    let read = client.try_read_response(false);
    if let Broken { start, has_length } = row.get {
        let Err(ReadError::Ended(end, bytes)) = &read else { panic!("{what}: {read:?}") };
        let text = String::from_utf8_lossy(bytes);
        if has_length || version == "HTTP/1.1" {
            // The framing shows the cut: what was sent before it arrives.
            assert_eq!(*end, End::Closed, "{what}: {text}");
            assert!(text.contains(start), "{what}: {text}");
        } else {
            assert_eq!(*end, End::Reset, "{what}: {text}");
            assert!(text.is_empty() || text.contains(start), "{what}: {text}");
        }
        assert!(!text.contains("\r\n0\r\n"), "{what}: a last chunk: {text}");
    } else {
        let response = read.unwrap_or_else(|error| panic!("{what}: {error}"));
        let closes = matches!(row.get, Streamed { .. }) && version == "HTTP/1.0";
        check_response(&response, row, &what);
        assert_eq!(response.says_close(), closes, "{what}: {response:?}");
        if closes {
            assert_eq!(client.expect_closed(PATIENCE), End::Closed, "{what}");
        } else {
            assert_next_is_answered(&mut client, &what);
        }
    }
    drop(client);
    site.assert_clean(&what);
}

#[track_caller]
fn check_response(response: &Response, row: &Row<'_>, what: &str) {
    let (Whole { status, .. } | Streamed { status, .. } | Page(status)) = row.get else { return };
    assert_eq!(response.status, status, "{what}: {response:?}");
    if let Whole { body, .. } | Streamed { body, .. } = row.get {
        assert_eq!(response.text(), body, "{what}");
    } else {
        assert!(response.text().contains(&status.to_string()), "{what}: {response:?}");
    }
    if let Some((name, value)) = row.field {
        assert_eq!(response.field(name), Some(value), "{what}: {response:?}");
    }
}

#[track_caller]
fn ask_head(site: &Site, row: &Row<'_>) {
    let mut client = site.server.connect().with_patience(PATIENCE);
    let what = format!("HEAD {}", row.target);
    client.send(format!("{what} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let response = client.read_head_response();
    assert_eq!(response.status, row.head, "{what}: {response:?}");
    assert!(!response.says_close(), "{what}: {response:?}");
    assert_next_is_answered(&mut client, &what);
    drop(client);
    site.assert_clean(&what);
}

/// H2: whatever the status is, the connection is kept.
#[track_caller]
fn assert_next_is_answered(client: &mut Client, what: &str) {
    let next = client.get("/ok.txt");
    assert_eq!((next.status, next.text().as_str()), (200, "ok"), "after {what}");
}

const HELLO: Seen<'_> = Streamed { status: 200, body: "hello\n" };
const CUT: Seen<'_> = Broken { start: "one\n", has_length: false };
const HEAD: &str = "printf 'Content-Type: text/plain\\n\\n'";

#[test]
fn a_normal_program() {
    // C9, H1
    let field = Some(("Content-Type", "text/plain"));
    check(&format!("{HEAD}; echo hello"), &Row { get: HELLO, field, ..ROW });
}

#[test]
fn no_body_at_all() {
    // C3
    let script = "printf 'Status: 204 None\\nX: 1\\n\\n'";
    check(script, &Row { get: Whole { status: 204, body: "" }, head: 204, ..ROW });
    let script = "printf 'Content-Length: 0\\nX: 1\\n\\n'";
    check(script, &Row { get: Whole { status: 200, body: "" }, ..ROW });
}

#[test]
fn a_head_and_nothing_else() {
    // C3: the end of the output releases it, too.
    check(HEAD, &Row { get: Whole { status: 200, body: "" }, ..ROW });
}

#[test]
fn head_and_body_in_one_write() {
    // C3
    let script = "printf 'Content-Type: text/plain\\nContent-Length: 6\\n\\nhello\\n'";
    check(script, &Row { get: Whole { status: 200, body: "hello\n" }, ..ROW });
}

#[test]
fn a_head_that_comes_byte_by_byte() {
    // C9
    let script = "text='Content-Type: text/plain\nX-One: 1\n\nhello\n'\n\
                  while [ -n \"$text\" ]; do printf %c \"$text\"; text=${text#?}; done";
    let field = Some(("X-One", "1"));
    check(script, &Row { get: HELLO, field, ..ROW });
}

#[test]
fn lines_that_end_in_lf_or_in_crlf() {
    // C9
    for end in ["\\n", "\\r\\n"] {
        let script = format!("printf 'Content-Type: a/b{end}X-Two: 2{end}{end}hello\\n'");
        check(&script, &Row { get: HELLO, field: Some(("X-Two", "2")), ..ROW });
    }
}

#[test]
fn a_status_of_its_own() {
    // C9
    let script = "printf 'Status: 418 Teapot\\nContent-Type: a/b\\n\\nhello\\n'";
    check(script, &Row { get: Streamed { status: 418, body: "hello\n" }, head: 418, ..ROW });
}

#[test]
fn a_local_location_is_answered_in_its_stead() {
    // C9
    let get = Whole { status: 200, body: "ok" };
    check("printf 'Location: /ok.txt?x=1\\n\\n'", &Row { get, ..ROW });
    // Round and round: at most 10.
    check("printf 'Location: /cgi-bin/x.cgi\\n\\n'", &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn an_absolute_location_redirects_the_client() {
    // C9
    let to = "https://example.org/there?a=b";
    let row = Row {
        get: Whole { status: 302, body: "" },
        head: 302,
        field: Some(("Location", to)),
        ..ROW
    };
    check(&format!("printf 'Location: {to}\\n\\n'"), &row);
}

#[test]
fn a_program_that_is_missing() {
    // C1
    check_in(Tree::new(), &Row { get: Page(404), head: 404, ..ROW });
}

#[test]
fn a_directory() {
    // C1
    let tree = Tree::new();
    tree.folder("root/cgi-bin/x.cgi");
    check_in(tree, &Row { get: Page(404), head: 404, ..ROW });
    let tree = Tree::new();
    tree.folder("root/cgi-bin/x.cgi");
    check_in(tree, &Row { target: "/cgi-bin/x.cgi/", get: Page(404), head: 404, ..ROW });
}

#[test]
fn a_fifo() {
    // C1: the open does not wait for the FIFO's other end.
    let tree = Tree::new();
    let path = tree.folder("root/cgi-bin").join("x.cgi");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o755), 0).expect("a FIFO");
    check_in(tree, &Row { get: Page(404), head: 404, ..ROW });
}

#[test]
fn a_file_that_is_not_executable() {
    // C1, and its text is not shown
    let tree = Tree::new();
    tree.file("root/cgi-bin/x.cgi", sh("echo secret"));
    check_in(tree, &Row { get: Page(403), head: 403, ..ROW });
}

#[test]
fn an_interpreter_that_is_not_there() {
    // C1
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", "#!/no/such/interpreter\necho secret\n");
    check_in(tree, &Row { get: Page(502), head: 502, ..ROW });
    // Executable, but nothing the kernel knows.
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", "\0\x01\x02 secret");
    check_in(tree, &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn dies_before_the_head() {
    // C1
    for script in ["exit 1", "exit 0", "printf 'Content-Type: text/plain\\n'", "exec >&-; sleep 30"]
    {
        check(script, &Row { get: Page(502), head: 502, ..ROW });
    }
}

#[test]
fn dies_by_a_signal() {
    // C1, X1
    check("kill -9 $$", &Row { get: Page(502), head: 502, ..ROW });
    let script = "printf 'Content-Type: text/plain\\n\\n'; kill -SEGV $$";
    check(script, &Row { get: Page(502), ..ROW });
}

#[test]
fn prints_garbage() {
    // C1, C9
    check("echo this is no head; echo", &Row { get: Page(502), head: 502, ..ROW });
    let binary = "head -c 5000 /bin/sh";
    check(binary, &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn prints_timeout_and_dies() {
    // C2
    let script = "echo 'upstream timed out: timeout' >&2; echo 504 timeout; exit 1";
    check(script, &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn sleeps_before_the_head() {
    // C1, T9: 504, and not a 408 or silence.
    check("sleep 30", &Row { get: Page(504), head: 504, ..ROW });
}

#[test]
fn a_head_and_then_sleep() {
    // C3: still a 504; HEAD needs no body.
    check(&format!("{HEAD}; sleep 30"), &Row { get: Page(504), ..ROW });
}

#[test]
fn streams_for_longer_than_every_timeout() {
    // C4, T9
    // Short steps: on a busy machine each may take several times as long.
    let script =
        format!("{HEAD}; n=0; while [ $n -lt 25 ]; do echo $n; sleep 0.06; n=$((n+1)); done");
    let body = &(0..25).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    check(&script, &Row { get: Streamed { status: 200, body }, ..ROW });
}

#[test]
fn hangs_in_the_middle_of_the_body() {
    // C5
    check(&format!("{HEAD}; echo one; sleep 30"), &Row { get: CUT, ..ROW });
}

#[test]
fn dies_in_the_middle_of_the_body() {
    // C5, X1
    check(&format!("{HEAD}; echo one; kill -9 $$"), &Row { get: CUT, ..ROW });
}

#[test]
fn gives_less_than_its_content_length() {
    // C9
    let script = "printf 'Content-Type: a/b\\nContent-Length: 100\\n\\none\\n'";
    let get = Broken { start: "one\n", has_length: true };
    check(script, &Row { get, ..ROW });
    // Not a byte of it: nothing has left yet.
    let script = "printf 'Content-Type: a/b\\nContent-Length: 100\\n\\n'";
    check(script, &Row { get: Page(502), ..ROW });
}

#[test]
fn gives_more_than_its_content_length() {
    // C9
    let script = "printf 'Content-Type: a/b\\nContent-Length: 4\\n\\none\\ntwo\\n'";
    check(script, &Row { get: Whole { status: 200, body: "one\n" }, ..ROW });
    let script = "printf 'Content-Type: a/b\\nContent-Length: 4\\n\\none\\n'; exec yes";
    check(script, &Row { get: Whole { status: 200, body: "one\n" }, ..ROW });
}

#[test]
fn a_huge_head() {
    // C9
    let script = "printf 'X: '; head -c 200000 /dev/zero | tr '\\0' x; printf '\\n\\nhello\\n'";
    check(script, &Row { get: Page(502), head: 502, ..ROW });
    let script = "while :; do echo 'X: 1'; done";
    check(script, &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn a_control_byte_in_a_field() {
    // C9
    for byte in ["\\000", "\\001", "\\033", "\\r"] {
        let script = format!("printf 'X: a{byte}b\\n\\nhello\\n'");
        check(&script, &Row { get: Page(502), head: 502, ..ROW });
    }
}

#[test]
fn ignores_its_input() {
    // C7, X4
    check(&format!("{HEAD}; echo hello"), &Row { get: HELLO, has_body: true, ..ROW });
}

#[test]
fn closes_its_input() {
    // C7
    let script = format!("exec <&-; sleep 0.1; {HEAD}; echo hello");
    check(&script, &Row { get: HELLO, has_body: true, ..ROW });
}

#[test]
fn reads_slowly() {
    // C7, T9: the client is not late while the program is slow.
    let script = format!(
        "[ -z \"$CONTENT_LENGTH\" ] || for n in 1 2 3 4 5; do head -c 65536 >/dev/null; sleep 0.2; done\n\
         cat >/dev/null; {HEAD}; echo hello"
    );
    check(&script, &Row { get: HELLO, has_body: true, ..ROW });
}

#[test]
fn floods_stderr() {
    // C10
    let script = format!("yes complaint | head -c 2000000 >&2; {HEAD}; echo hello");
    check(&script, &Row { get: HELLO, ..ROW });
}

#[test]
fn leaves_a_child_that_keeps_stdout() {
    // C6, X2
    let script = format!("{HEAD}; echo hello; sleep 30 &");
    let watch = Stopwatch::start();
    check(&script, &Row { get: HELLO, ..ROW });
    assert!(watch.elapsed() < Duration::from_secs(20));
    let before_the_head = "sleep 30 & exit 0";
    check(before_the_head, &Row { get: Page(502), head: 502, ..ROW });
}

#[test]
fn ignores_term() {
    // C6, X3
    let script = "trap '' TERM; while :; do sleep 1; done";
    check(script, &Row { get: Page(504), head: 504, ..ROW });
}

#[test]
fn forks_twice() {
    // C6
    let script = format!("( ( sleep 30 ) & ) & {HEAD}; echo hello");
    check(&script, &Row { get: HELLO, ..ROW });
    let hangs = "( ( trap '' TERM; sleep 30 ) & ) & sleep 30";
    check(hangs, &Row { get: Page(504), head: 504, ..ROW });
}

#[test]
fn forks_twice_and_leaves_its_session() {
    // C6
    let script = format!("( setsid sh -c 'trap \"\" TERM HUP; sleep 30' & ) ; {HEAD}; echo hello");
    check(&script, &Row { get: HELLO, ..ROW });
}

/// C5, T4: in the middle of an answer that only the end of the connection ends, the rest of the request does not
/// come in time. What the client has must not look like all.
#[test]
fn an_answer_that_ends_with_the_connection_is_reset_when_its_request_is_late() {
    let tree = Tree::new();
    tree.script("root/cgi-bin/x.cgi", &sh("printf 'X: 1\\n\\nsome'; sleep 60"));
    let site = Site::start(
        tree,
        "client_body_timeout 300ms; cgi_kill_grace 300ms; cgi_request_buffering off;",
    );
    let mut client = site.server.connect().with_patience(PATIENCE);
    client.send("POST /cgi-bin/x.cgi HTTP/1.0\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    let read = client.try_read_response(false);
    let Err(ReadError::Ended(end, bytes)) = &read else { panic!("{read:?}") };
    assert_eq!(*end, End::Reset, "{}", String::from_utf8_lossy(bytes));
    drop(client);
    site.assert_clean("a late request");
}
