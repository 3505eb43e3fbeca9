//! What the server is asked to do while calls fail: one round of each kind of work, and what may come of it.
//! Every answer is the right one, an error of ours (5xx), or a connection that visibly ends.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use prost::Message;
use sekisho_endpoint::ipc::BlockingStream;
use sekisho_endpoint::{Echo, blocking, http};
use sekisho_testkit::{Client, ReadError, Response, Server, Tree, eventually, run};

use crate::common::{BINARY, LONG, pattern, site};

/// Longer than the server's own deadlines in these scenarios.
const PATIENCE: Duration = Duration::from_mins(1);
const DEADLINES: &str = "client_header_timeout 10s; client_body_timeout 10s; send_timeout 10s;
    keepalive_timeout 10s; lingering_timeout 1s; cgi_read_timeout 10s; cgi_kill_grace 200ms;";

/// One kind of work.
pub(crate) trait Scenario {
    fn name(&self) -> &'static str;
    fn start(&self) -> Server;
    /// One round of it.
    fn run(&self, server: &Server, seen: &mut Seen);
    /// What lies where nothing should.
    fn leftovers(&self, _server: &Server) -> Vec<String> {
        Vec::new()
    }
}

/// What a round has seen.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    /// What failed as it may.
    pub(crate) failed: Vec<String>,
    /// What must never be.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    pub(crate) fn is_perfect(&self) -> bool {
        self.failed.is_empty() && self.wrong.is_empty()
    }

    fn fail(&mut self, what: impl Into<String>) {
        self.failed.push(what.into());
    }

    pub(crate) fn wrong(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    /// An answer must be this one, or an error of the server's own. Whether it is.
    fn expect(
        &mut self,
        what: &str,
        got: Option<&Response>,
        status: &[u16],
        body: Option<&[u8]>,
    ) -> bool {
        let Some(got) = got else { return false };
        if got.body.windows(6).any(|window| window == b"secret") {
            self.wrong(format!("{what}: the source of a program"));
        }
        if !status.contains(&got.status) {
            let line = format!("{what}: {} instead of {status:?}", got.status);
            if matches!(got.status, 500 | 502 | 503 | 504 | 507) {
                self.fail(line);
            } else {
                self.wrong(line);
            }
            return false;
        }
        if body.is_some_and(|body| body != got.body) {
            self.wrong(format!("{what}: {} with another body of {}", got.status, got.body.len()));
            return false;
        }
        true
    }
}

/// A client that comes back when its connection ends.
struct Talk<'a> {
    server: &'a Server,
    client: Option<Client>,
}

impl<'a> Talk<'a> {
    fn new(server: &'a Server) -> Self {
        Self { server, client: None }
    }

    fn ask(
        &mut self,
        seen: &mut Seen,
        method: &str,
        target: &str,
        fields: &str,
        body: &[u8],
    ) -> Option<Response> {
        let mut client =
            self.client.take().unwrap_or_else(|| self.server.connect().with_patience(PATIENCE));
        let length = if body.is_empty() && method != "PUT" && method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}{fields}\r\n");
        // A server that cannot take it says so or closes: that is what is read.
        let _ = client.try_send([head.as_bytes(), body].concat());
        match client.try_read_response(method == "HEAD") {
            Ok(response) => {
                if !response.says_close() {
                    self.client = Some(client);
                }
                Some(response)
            }
            Err(ReadError::Ended(end, bytes)) => {
                if bytes.windows(6).any(|window| window == b"secret") {
                    seen.wrong(format!("{method} {target}: the source of a program"));
                }
                seen.fail(format!("{method} {target}: {end:?} after {} bytes", bytes.len()));
                None
            }
            Err(error) => {
                seen.wrong(format!("{method} {target}: {error}"));
                None
            }
        }
    }

    fn get(&mut self, seen: &mut Seen, target: &str, fields: &str, body: &[u8]) {
        let got = self.ask(seen, "GET", target, fields, b"");
        let status = if fields.contains("Range") { 206 } else { 200 };
        seen.expect(target, got.as_ref(), &[status], Some(body));
    }
}

/// Files: small, large, a part, compressed, a listing, nothing.
pub(crate) struct Files;

const LARGE: usize = 300_000;

impl Scenario for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn start(&self) -> Server {
        let tree = Tree::new();
        for folder in ["root", "root/cached"] {
            tree.file(&format!("{folder}/small.txt"), "small");
            tree.file(&format!("{folder}/large.bin"), pattern(LARGE));
            tree.file(&format!("{folder}/text.txt"), "text ".repeat(40_000));
            tree.file(&format!("{folder}/sub/index.html"), "index");
            tree.file(&format!("{folder}/list/a"), "");
            tree.file(&format!("{folder}/list/b"), "");
        }
        let body = format!(
            "{DEADLINES} autoindex on; autoindex_format json; gzip_types text/plain; open_file_cache off;
             location /cached/ {{ open_file_cache auto; }} location = /gzip {{ alias {{root}}/text.txt; gzip on; default_type text/plain; }}"
        );
        let config = site(&body).replace("access_log off", "access_log {dir}/access.log");
        Server::start_in(tree, BINARY, &config)
    }

    fn run(&self, server: &Server, seen: &mut Seen) {
        let mut talk = Talk::new(server);
        for prefix in ["", "/cached"] {
            let at = |rest: &str| format!("{prefix}{rest}");
            talk.get(seen, &at("/small.txt"), "", b"small");
            talk.get(seen, &at("/large.bin"), "", &pattern(LARGE));
            let part = &pattern(LARGE)[100..200_000];
            talk.get(seen, &at("/large.bin"), "Range: bytes=100-199999\r\n", part);
            talk.get(seen, &at("/sub/"), "", b"index");
            let listing = talk.ask(seen, "GET", &at("/list/"), "", b"");
            if seen.expect("listing", listing.as_ref(), &[200], None) {
                let text = listing.map(|listing| listing.text()).unwrap_or_default();
                let names = serde_json::from_str::<serde_json::Value>(&text).ok();
                let names = names.as_ref().and_then(|names| names.as_array());
                if names.is_none_or(|names| names.len() != 2) {
                    seen.wrong(format!("an incomplete listing: {text}"));
                }
            }
            let none = talk.ask(seen, "GET", &at("/none"), "", b"");
            seen.expect("none", none.as_ref(), &[404], None);
        }
        let packed = talk.ask(seen, "GET", "/gzip", "Accept-Encoding: gzip\r\n", b"");
        if seen.expect("gzip", packed.as_ref(), &[200], None)
            && let Some(packed) = packed
        {
            let mut text = String::new();
            let is_packed = packed.field("content-encoding") == Some("gzip");
            let mut decoder = flate2::read::GzDecoder::new(&packed.body[..]);
            if is_packed && decoder.read_to_string(&mut text).is_err() {
                seen.wrong("gzip: cut short and presented as whole");
            } else if !is_packed {
                text = packed.text();
            }
            if text != "text ".repeat(40_000) {
                seen.wrong("gzip: another text");
            }
        }
    }
}

/// Programs: an answer, a body in and out, a death, a client that leaves.
pub(crate) struct Cgi;

impl Scenario for Cgi {
    fn name(&self) -> &'static str {
        "cgi"
    }

    fn start(&self) -> Server {
        let tree = Tree::new();
        let sh = |text: &str| format!("#!/bin/sh\n# secret\n{text}\n");
        tree.script("root/cgi-bin/quick", &sh("echo to the log >&2; printf 'X: 1\\n\\nhello'"));
        tree.script("root/cgi-bin/cat", &sh("printf 'X: 1\\n\\n'; exec cat"));
        tree.script("root/cgi-bin/dies", &sh("printf 'X: 1\\n\\nbegun'; kill -9 $$"));
        tree.script("root/cgi-bin/nothing", &sh("kill -9 $$"));
        tree.script("root/cgi-bin/sleeps", &sh("exec sleep 60"));
        tree.file("root/ok.txt", "ok");
        let body = format!("{DEADLINES} location /cgi-bin/ {{ cgi on; }}");
        Server::start_in(tree, BINARY, &site(&body))
    }

    fn run(&self, server: &Server, seen: &mut Seen) {
        let mut talk = Talk::new(server);
        talk.get(seen, "/cgi-bin/quick", "", b"hello");
        let body = pattern(100_000);
        let echoed = talk.ask(seen, "POST", "/cgi-bin/cat", "", &body);
        seen.expect("cat", echoed.as_ref(), &[200], Some(&body));
        let none = talk.ask(seen, "GET", "/cgi-bin/nothing", "", b"");
        if seen.expect("nothing", none.as_ref(), &[502], None) && none.is_none() {
            seen.fail("nothing");
        }
        // It is always cut: a whole answer would be a lie.
        let mut cut = Seen::default();
        if let Some(response) = talk.ask(&mut cut, "GET", "/cgi-bin/dies", "", b"")
            && response.status == 200
        {
            seen.wrong(format!("a dead program's answer is whole: {}", response.text()));
        }
        seen.wrong.append(&mut cut.wrong);
        let mut leaver = server.connect();
        leaver.send("GET /cgi-bin/sleeps HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut sender = server.connect();
        sender.send("POST /cgi-bin/cat HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n");
        sender.send(&body[..20_000]);
        talk.get(seen, "/ok.txt", "", b"ok");
        leaver.reset();
        drop(sender);
        talk.get(seen, "/cgi-bin/quick", "", b"hello");
    }
}

/// Uploads of every kind, and what else changes files.
pub(crate) struct Uploads;

impl Scenario for Uploads {
    fn name(&self) -> &'static str {
        "uploads"
    }

    fn start(&self) -> Server {
        let tree = Tree::new();
        tree.folder("store");
        let body = format!(
            "{DEADLINES} client_max_body_size 0; create_full_put_path on; upload_sync full;
             upload_delete_directories recursive;
             dav_methods PUT DELETE MKCOL COPY MOVE;
             location /direct/ {{ upload_direct 64k; }}
             location /store/ {{ upload_store {{dir}}/store; upload_resumable on; }}"
        );
        Server::start_in(tree, BINARY, &site(&body))
    }

    fn run(&self, server: &Server, seen: &mut Seen) {
        reset(server);
        let mut talk = Talk::new(server);
        let large = pattern(LARGE);
        let mut put = |seen: &mut Seen, target: &str, body: &[u8]| {
            let got = talk.ask(seen, "PUT", target, "", body);
            let is_done = seen.expect(target, got.as_ref(), &[201, 204], None);
            whole(server, seen, &format!("root{target}"), &[body, b"old"], is_done);
        };
        put(seen, "/small", b"small");
        put(seen, "/old", &large);
        put(seen, "/deep/er/large", &large);
        put(seen, "/direct/large", &large);
        form(server, seen, &mut talk, &large);
        tus(server, seen, &mut talk, &large);
        change(server, seen, &mut talk, &large);
    }

    fn leftovers(&self, server: &Server) -> Vec<String> {
        let mut found = Vec::new();
        walk(&server.tree().path("root"), &mut found);
        walk(&server.tree().path("store"), &mut found);
        found.retain(|name| name.contains(".sekisho-upload-"));
        found
    }
}

/// The folders as they are before a round. They stay the same ones, as the server is kept within them.
fn reset(server: &Server) {
    let tree = server.tree();
    for folder in ["root", "store"] {
        for entry in fs::read_dir(tree.path(folder)).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
    tree.file("root/old", "old");
}

/// A file is one of these, complete, or missing if no answer promised it.
fn whole(server: &Server, seen: &mut Seen, path: &str, bodies: &[&[u8]], is_promised: bool) {
    match fs::read(server.tree().path(path)) {
        Ok(found) if bodies.contains(&&found[..]) => {
            if is_promised && found != bodies[0] {
                seen.wrong(format!("{path}: said to be stored, and is the old one"));
            }
        }
        Ok(found) => seen.wrong(format!("{path}: {} bytes that no client sent", found.len())),
        Err(_) if is_promised => seen.wrong(format!("{path}: said to be stored, and is not there")),
        Err(_) => {}
    }
}

fn form(server: &Server, seen: &mut Seen, talk: &mut Talk<'_>, large: &[u8]) {
    let form = [
        b"--XX\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\n",
        large,
        b"\r\n--XX\r\nContent-Disposition: form-data; name=f; filename=b\r\n\r\nb\r\n--XX--\r\n",
    ]
    .concat();
    let kind = "Content-Type: multipart/form-data; boundary=XX\r\n";
    let got = talk.ask(seen, "POST", "/store/", kind, &form);
    let is_done = seen.expect("form", got.as_ref(), &[201], None);
    whole(server, seen, "store/a", &[large], is_done);
    whole(server, seen, "store/b", &[b"b"], is_done);
}

fn tus(server: &Server, seen: &mut Seen, talk: &mut Talk<'_>, large: &[u8]) {
    let fields = format!(
        "Tus-Resumable: 1.0.0\r\nUpload-Length: {}\r\nUpload-Metadata: filename dHVz\r\n",
        large.len()
    );
    let created = talk.ask(seen, "POST", "/store/", &fields, b"");
    if !seen.expect("tus", created.as_ref(), &[201], None) {
        return;
    }
    let Some(created) = created else { return };
    let Some(at) = created.field("location") else { return seen.wrong("tus: no location") };
    let kind = "Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\n";
    // As its clients do it: ask where it stands, and go on there.
    for _ in 0..3 {
        let stand = talk.ask(seen, "HEAD", at, "Tus-Resumable: 1.0.0\r\n", b"");
        let is_unknown = stand.as_ref().is_some_and(|stand| stand.status == 404);
        if is_unknown && !seen.is_perfect() {
            // It got its name, and what followed failed: a client that got the error may begin anew.
            return whole(server, seen, "store/tus", &[large], true);
        }
        if !seen.expect("tus HEAD", stand.as_ref(), &[200], None) {
            continue;
        }
        let offset = stand.and_then(|stand| stand.field("upload-offset")?.parse::<usize>().ok());
        let Some(offset) = offset else { return seen.wrong("tus: no offset") };
        if offset == large.len() {
            break;
        }
        let fields = format!("{kind}Upload-Offset: {offset}\r\n");
        let end = if offset == 0 { 100_000 } else { large.len() };
        let got = talk.ask(seen, "PATCH", at, &fields, &large[offset.min(end)..end]);
        // A request whose connection broke may still hold the lock.
        seen.expect("tus PATCH", got.as_ref(), &[204, 423], None);
        let at_end = large.len().to_string();
        if got.is_some_and(|got| got.field("upload-offset") == Some(&at_end)) {
            break;
        }
    }
    whole(server, seen, "store/tus", &[large], seen.is_perfect());
}

fn change(server: &Server, seen: &mut Seen, talk: &mut Talk<'_>, large: &[u8]) {
    let tree = server.tree();
    tree.file("root/from", large);
    let made = talk.ask(seen, "MKCOL", "/made/", "", b"");
    seen.expect("MKCOL", made.as_ref(), &[201], None);
    let copied = talk.ask(seen, "COPY", "/from", "Destination: /copied\r\n", b"");
    let is_done = seen.expect("COPY", copied.as_ref(), &[201, 204], None);
    whole(server, seen, "root/copied", &[large], is_done);
    whole(server, seen, "root/from", &[large], true);
    let moved = talk.ask(seen, "MOVE", "/from", "Destination: /moved\r\n", b"");
    let is_done = seen.expect("MOVE", moved.as_ref(), &[201, 204], None);
    whole(server, seen, "root/moved", &[large], is_done);
    if !tree.exists("root/moved") {
        whole(server, seen, "root/from", &[large], true);
    }
    tree.file("root/tree/a/b", "b");
    let got = talk.ask(seen, "COPY", "/tree/", "Destination: /twin/\r\n", b"");
    if seen.expect("COPY of a tree", got.as_ref(), &[201, 204], None) {
        whole(server, seen, "root/twin/a/b", &[b"b"], true);
    }
    for target in ["/tree/", "/old"] {
        let there = tree.exists(&format!("root{target}"));
        let gone = talk.ask(seen, "DELETE", target, "", b"");
        let statuses: &[u16] = if there { &[204] } else { &[204, 404] };
        let is_done = seen.expect("DELETE", gone.as_ref(), statuses, None);
        if is_done && tree.exists(&format!("root{target}")) {
            seen.wrong(format!("{target}: said to be deleted, and is there"));
        }
    }
}

fn walk(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), found);
        }
    }
}

/// A native session through shared memory with a call and a channel, and an operator.
pub(crate) struct Native;

impl Scenario for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn start(&self) -> Server {
        let tree = Tree::new();
        tree.file("root/large.bin", pattern(LARGE));
        let endpoint = "endpoint { listen unix:{dir}/ipc ipc; listen unix:{dir}/s; http_addresses 127.0.0.1:{port}; }";
        let config = format!("{endpoint}\n{}", site(DEADLINES));
        let server = Server::start_in(tree, BINARY, &config);
        let socket = || UnixStream::connect(server.tree().path("ipc"));
        eventually("the socket", LONG, || socket().is_ok());
        server
    }

    fn run(&self, server: &Server, seen: &mut Seen) {
        let connect = |name| UnixStream::connect(server.tree().path(name)).expect("it listens");
        let socket = connect("ipc");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes its options");
        match BlockingStream::connect(socket) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE));
                session(stream, seen);
            }
            Err(error) => broken(seen, "ipc", &error),
        }
        let socket = connect("s");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes its options");
        session(socket, seen);
        let pid = server.id().to_string();
        let done = run(BINARY, &["ctl", "--pid", &pid, "sessions", "--json"], LONG);
        match done.code() {
            0 if serde_json::from_str::<serde_json::Value>(&done.stdout).is_ok() => {}
            0 => seen.wrong(format!("ctl: {}", done.stdout)),
            // A peer whose credentials cannot be read may not control.
            1 | 3 | 4 => seen.fail(format!("ctl: {}", done.stderr)),
            code => seen.wrong(format!("ctl: {code}: {}{}", done.stdout, done.stderr)),
        }
    }
}

fn broken(seen: &mut Seen, what: &str, error: &dyn std::fmt::Display) {
    let line = format!("{what}: {error}");
    // A peer that gets no answer would wait for ever.
    if line.contains("timed out") || line.contains("would block") || line.contains("temporarily") {
        seen.wrong(line);
    } else {
        seen.fail(line);
    }
}

fn session<S: blocking::Transport>(stream: S, seen: &mut Seen) {
    let mut client = match blocking::Client::connect(stream, "faults") {
        Ok(client) => client,
        Err(error) => return broken(seen, "hello", &error),
    };
    let body = pattern(100_000);
    match client.call(Echo::NUMBER, &body) {
        Ok(answer) if answer == body => {}
        Ok(_) => seen.wrong("echo: another body"),
        Err(error) => broken(seen, "echo", &error),
    }
    let request = http::Request { target: "/large.bin".to_owned(), ..http::Request::default() };
    let ticket = match client.request(2, &request.encode_to_vec()) {
        Ok(ticket) => ticket,
        Err(error) => return broken(seen, "request", &error),
    };
    let mut records = Vec::new();
    loop {
        match client.next_record(&ticket) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break,
            Err(error) => return broken(seen, "record", &error),
        }
    }
    match client.answer(ticket) {
        Ok(_) => {
            let head = records.first().and_then(|head| http::Head::decode(&head[..]).ok());
            let status = head.map_or(0, |head| head.status);
            let body = records.get(1..).unwrap_or_default().concat();
            match status {
                200 if body == pattern(LARGE) => {}
                500..=599 => seen.fail(format!("http: {status}")),
                _ => seen.wrong(format!("http: {status} and {} bytes", body.len())),
            }
        }
        Err(error) => broken(seen, "answer", &error),
    }
    if let Err(error) = client.shut_down(sekisho_lifecycle::Manner::Graceful) {
        broken(seen, "shutdown", &error);
    }
}
