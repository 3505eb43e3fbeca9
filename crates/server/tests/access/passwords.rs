//! Passwords: forms, files that change, what is logged, and which clients wait for a hash.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sekisho_testkit::{Client, Server, Tree, eventually, have, run};

use crate::common::{BINARY, LONG, http, serve};

/// `ann` has the password `secret`, in every form there is; made by `htpasswd`, `openssl passwd`, crypt(3).
const USERS: &str = "\
# Comments are fine.
plain:{PLAIN}secret
sha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=
ssha:{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0
apr1:$apr1$oskykXLA$ZsFdD1UvX0o3KU/J9.qbg1:a comment
md5:$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1
bcrypt:$2y$05$y7wA8OD9ISXrBZCgA34PhOT35iBSo1Px5803tONQl5sdBo5cg314y
sha256:$5$n/BlHtUEXvjGYA4k$ke/zeJBeLDfkh1lVB03.eTm2tezyHDyYbr4vnTgcrT/
sha512:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1
yescrypt:$y$j9T$abcdefghijklmnop$3dL1LkYnZM.OVXuVdnnaKVDlLYT92dRwOzDZ5XiVCe.
des:mCUZeMXtBQf46
";

/// `secret` with 2^12 rounds: a good part of a second.
pub(crate) const SLOW: &str = "slow:$2b$12$abcdefghijklmnopqrstuuT1Iwu6o8Wx7BoOyIMHfgVJq6JO/IJhW\n";

pub(crate) fn field(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64(format!("{user}:{password}").as_bytes()))
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(bits);
        for digit in 0..=chunk.len() {
            out.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    out + ["", "==", "="][bytes.len() % 3]
}

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("users", USERS);
    tree.file("slow", SLOW);
    tree.file("root/a.txt", "hello");
    tree.file("root/open/a.txt", "hello");
    tree
}

const LOCKED: &str =
    "auth_basic members; auth_basic_user_file users; location /open/ { auth_basic off; }";

fn status(client: &mut Client, user: &str, password: &str) -> u16 {
    client.request("GET", "/a.txt", &field(user, password)).status
}

#[test]
fn every_form_lets_its_user_in_and_nobody_else() {
    let server = serve(tree(), LOCKED);
    let mut client = server.connect();
    for line in USERS.lines().filter(|line| !line.starts_with(['#', 'd'])) {
        let user = line.split(':').next().expect("a name");
        assert_eq!(status(&mut client, user, "secret"), 200, "{user}");
        assert_eq!(status(&mut client, user, "wrong"), 401, "{user}");
        assert_eq!(status(&mut client, user, ""), 401, "{user}");
    }
    assert_eq!(status(&mut client, "nobody", "secret"), 401);
    assert_eq!(status(&mut client, "plain", &"x".repeat(5000)), 401);
    // A hash that cannot be compared admits no user, and the log says why.
    assert_eq!(status(&mut client, "des", "secret"), 401);
    let response = client.get("/a.txt");
    assert_eq!(response.status, 401);
    assert_eq!(response.field("www-authenticate"), Some("Basic realm=\"members\""));
    assert_eq!(client.get("/open/a.txt").status, 200);
    eventually("the log", LONG, || {
        let log = server.log("error.log");
        log.contains("the password of user \"des\" in") && log.contains("has an unknown form")
    });
}

#[test]
fn curl_gets_in() {
    if !have("curl") {
        return;
    }
    let server = serve(tree(), LOCKED);
    let url = server.url("/a.txt");
    let code = |user: &str| {
        let arguments =
            ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--anyauth", "-u", user, &url];
        run("curl", &arguments, LONG).stdout
    };
    assert_eq!([code("bcrypt:secret"), code("bcrypt:no")], ["200", "401"]);
}

#[test]
fn a_file_that_changes_is_read_again() {
    let server = serve(tree(), LOCKED);
    let mut client = server.connect();
    assert_eq!(status(&mut client, "bcrypt", "secret"), 200);
    server.tree().file("users", "other:{PLAIN}x\n");
    // Within a second at the most, even where the clock of the file system does not tell.
    eventually("the new file", LONG, || status(&mut client, "bcrypt", "secret") == 401);
    assert_eq!(status(&mut client, "other", "x"), 200);
    fs::remove_file(server.tree().path("users")).expect("it was there");
    assert_eq!(status(&mut client, "other", "x"), 403);
    server.tree().folder("users");
    assert_eq!(status(&mut client, "other", "x"), 500);
    fs::remove_dir(server.tree().path("users")).expect("it was there");
    server.tree().file("users", USERS);
    assert_eq!(status(&mut client, "bcrypt", "secret"), 200);
    let log = server.log("error.log");
    assert!(log.contains("[error]") && log.contains("users\" failed: No such file"), "{log}");
    assert!(log.contains("[crit]") && log.contains("users\" failed: Is a directory"), "{log}");
}

#[test]
fn logs_name_the_user_and_never_the_password() {
    let config = http(
        "log_format users '$remote_user $status';
         server { listen 127.0.0.1:{port}; access_log {dir}/access.log users; root {root}; auth_basic x; auth_basic_user_file users; }",
    );
    let server = Server::start_in(tree(), BINARY, &config);
    let mut client = server.connect();
    assert_eq!(status(&mut client, "bcrypt", "secret"), 200);
    assert_eq!(status(&mut client, "bcrypt", "tell-nobody"), 401);
    assert_eq!(status(&mut client, "stranger", "tell-nobody"), 401);
    assert_eq!(client.get("/a.txt").status, 401);
    eventually("the access log", LONG, || server.log("access.log").lines().count() == 4);
    assert_eq!(server.log("access.log"), "bcrypt 200\nbcrypt 401\nstranger 401\n- 401\n");
    let log = server.log("error.log");
    // Nothing follows the host: programs that ban clients read the line to its end.
    let line = "user \"bcrypt\": password mismatch, client: 127.0.0.1, server: , request: \"GET /a.txt HTTP/1.1\", host: \"localhost\"\n";
    assert!(log.contains(line), "{log}");
    let file = server.tree().path("users");
    assert!(log.contains(&format!("user \"stranger\" was not found in \"{}\"", file.display())));
    assert!(log.contains("no user/password was provided for basic authentication"));
    for text in [&log, &server.stderr()] {
        assert!(!text.contains("tell-nobody") && !text.contains(&base64(b"tell-nobody")[..12]));
        assert!(!text.contains("Authorization") && !text.contains("secret"));
    }
}

/// How many clients guess at once.
const GUESSES: usize = 20;

/// A slow hash never runs on a worker's own thread, and those whose clients have gone are not computed.
#[test]
fn slow_hashes_do_not_hold_up_others() {
    let server =
        serve(tree(), "location /slow { auth_basic x; auth_basic_user_file slow; } location / { }");
    let mut other = server.connect();
    let before = server.cpu_ticks();
    assert_eq!(other.request("GET", "/slow", &field("slow", "nobody")).status, 401);
    let one_hash = server.cpu_ticks() - before;
    let before = server.cpu_ticks();
    let mut guessing: Vec<Client> = (0..GUESSES).map(|_| server.connect()).collect();
    for (at, client) in guessing.iter_mut().enumerate() {
        let fields = field("slow", &format!("guess {at}"));
        client.send(format!("GET /slow HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
    }
    // All of them are here, and each hash takes a good part of a second: others are answered meanwhile.
    for _ in 0..GUESSES {
        assert_eq!(other.get("/a.txt").status, 200);
    }
    let answered = guessing
        .drain(..)
        .filter_map(|client| {
            let mut client = client.with_patience(std::time::Duration::ZERO);
            client.try_read_response(false).ok()
        })
        .count();
    assert!(answered < GUESSES / 2, "{answered} have been answered already");
    // Their clients have gone: a new client does not wait behind all of them.
    assert_eq!(other.request("GET", "/slow", &field("slow", "secret")).status, 404);
    let ticks = server.cpu_ticks() - before;
    assert!(ticks < one_hash * GUESSES as u64 / 2, "{ticks} ticks, {one_hash} for one hash");
}

/// A client that guesses makes others wait for a hash or two, and not for all of its guesses.
#[test]
fn guesses_from_one_address_do_not_make_others_wait() {
    let server = serve(tree(), "auth_basic x; auth_basic_user_file slow;");
    let right = field("slow", "secret");
    // A file that has just changed is read anew for each request.
    let changed = |name| fs::metadata(server.tree().path(name)).expect("it is there").ctime();
    eventually("the file has its age", LONG, || {
        server.tree().file("now", "");
        changed("now") > changed("slow") + 3
    });
    let mut guessing: Vec<Client> = (0..GUESSES).map(|_| server.connect()).collect();
    for (at, client) in guessing.iter_mut().enumerate() {
        let fields = field("slow", &format!("guess {at}"));
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
    }
    // One of them has its answer: the queue is there.
    let mismatches = || server.tree().text("error.log").matches("password mismatch").count();
    eventually("an answer", LONG, || mismatches() > 0);
    let elsewhere = std::net::Ipv4Addr::new(127, 0, 0, 2).into();
    let mut other = Client::connect_from(elsewhere, server.address()).with_patience(LONG);
    assert_eq!(other.request("GET", "/a.txt", &right).status, 200);
    let answered = mismatches();
    assert!(answered < GUESSES / 2, "{answered} guesses were computed before the right password");
}

/// A client that is kept alive pays for its password once, and not for each request. An unknown user costs
/// about as much time as a known user with a wrong password: the time does not tell them apart.
#[test]
fn a_password_check_is_cached_and_costs_the_same_for_every_client() {
    let tree = tree();
    tree.file("root/slow", "hello");
    let server = serve(tree, "auth_basic x; auth_basic_user_file slow;");
    let rows = [("slow", "secret", 200), ("slow", "wrong", 401), ("stranger", "secret", 401)];
    let firsts = rows.map(|(user, password, expected)| {
        let mut client = server.connect();
        let mut ask = || client.request("GET", "/slow", &field(user, password)).status;
        let before = server.cpu_ticks();
        assert_eq!(ask(), expected, "{user}");
        let first = server.cpu_ticks() - before;
        for _ in 0..50 {
            assert_eq!(ask(), expected, "{user}");
        }
        let rest = server.cpu_ticks() - before - first;
        assert!(rest < first * 10, "{user}: {rest} ticks for 50 requests, {first} for the first");
        first
    });
    let (least, most) = (firsts.iter().min(), firsts.iter().max());
    assert!(least.map(|least| least * 3) >= most.copied(), "{firsts:?}");
}

/// V3, H6: the body of a refused request does not become the next request.
#[test]
fn a_refused_body_is_thrown_away_and_the_connection_kept() {
    let server = serve(tree(), LOCKED);
    let mut client = server.connect();
    for user in ["bcrypt", "plain", "nobody"] {
        let body = "GET /open/a.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
        let response = client.request_with_body("POST", "/a.txt", &field(user, "no"), body);
        assert_eq!((response.status, response.says_close()), (401, false), "{user}");
    }
    assert_eq!(client.get("/open/a.txt").text(), "hello");
    let expects = format!("{}Content-Length: 9\r\nExpect: 100-continue\r\n", field("bcrypt", "no"));
    assert_eq!(client.request("POST", "/a.txt", &expects).status, 401, "and no 100 before it");
}

#[test]
fn a_body_reaches_the_program_that_was_asked_for_after_the_wait() {
    let tree = tree();
    tree.script("root/cgi/echo", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; cat\n");
    let server = serve(
        tree,
        "location /cgi/ { cgi on; auth_basic x; auth_basic_user_file users; client_max_body_size 1m; }",
    );
    let mut client = server.connect();
    for round in 0..3 {
        let body = format!("body {round} ").repeat(20_000);
        let fields = field("bcrypt", "secret");
        let response = client.request_with_body("POST", "/cgi/echo", &fields, &body);
        assert_eq!((response.status, response.text() == body), (200, true), "{round}");
    }
    let too_large = "x".repeat((1 << 20) + 1);
    let fields = field("sha512", "secret");
    let response = client.request_with_body("POST", "/cgi/echo", &fields, too_large);
    assert_eq!(response.status, 413);
    let fields = format!("{}Content-Length: 4\r\nExpect: 100-continue\r\n", field("md5", "secret"));
    client.send(format!("POST /cgi/echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
    assert_eq!(client.read_bytes(25), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body");
    assert_eq!(client.read_response().text(), "body");
}

/// C8: a program gets the authenticated user, never a name without a right password.
#[test]
fn a_program_is_told_whose_password_was_right() {
    let tree = tree();
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$AUTH_TYPE $REMOTE_USER $HTTP_AUTHORIZATION\"\n";
    tree.script("root/cgi/who", script);
    tree.script("root/open/who", script);
    let server =
        serve(tree, "cgi on; location /cgi/ { auth_basic x; auth_basic_user_file users; }");
    let mut client = server.connect();
    let fields = field("bcrypt", "secret");
    assert_eq!(client.request("GET", "/cgi/who", &fields).text(), "Basic bcrypt ");
    assert_eq!(client.request("GET", "/open/who", &fields).text().trim(), "");
    assert_eq!(client.request("GET", "/cgi/who", &fields).text(), "Basic bcrypt ");
}

#[test]
fn limit_except_takes_passwords_and_addresses() {
    let tree = tree();
    tree.script("root/cgi/echo", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; cat\n");
    let server = serve(
        tree,
        "location /cgi/ { cgi on; limit_except GET { auth_basic writers; auth_basic_user_file users; } }
         location / { limit_except GET { deny all; } }",
    );
    let mut client = server.connect();
    assert_eq!(client.get("/cgi/echo").status, 200);
    let refused = client.request_with_body("POST", "/cgi/echo", "", "x");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some("Basic realm=\"writers\""));
    let fields = field("bcrypt", "secret");
    let taken = client.request_with_body("POST", "/cgi/echo", &fields, "x");
    assert_eq!((taken.status, taken.text().as_str()), (200, "x"));
    assert_eq!(client.request_with_body("POST", "/a.txt", &fields, "x").status, 403);
    assert_eq!(client.get("/a.txt").status, 200);
}
