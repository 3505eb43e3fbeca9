//! Answers that are kept (U5): when they are given, when a server is asked, and what is on the disk.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use sekisho_testkit::{Client, Response, Server, Tree, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, http, pattern};

/// A server with a cache in its folder; `path` are parameters of the cache, `body` is put into the server
/// block.
pub(crate) fn cached(path: &str, body: &str) -> Server {
    let text = format!(
        "proxy_cache_path {{dir}}/cache levels=1:2 keys_zone=one:1m {path};
         keepalive_requests 1000000; # `until` asks every 2 ms
         server {{ listen 127.0.0.1:{{port}}; proxy_cache one; add_header X-Cache $upstream_cache_status always;
         {body} }}"
    );
    Server::start_in(Tree::new(), BINARY, &http(&text))
}

pub(crate) fn status(response: &Response) -> &str {
    response.field("x-cache").unwrap_or_default()
}

/// A server that answers each request with its number, with these fields.
fn counting(fields: &'static str) -> Backend {
    let count = AtomicUsize::new(0);
    Backend::start(move |connection| {
        while connection.request().is_some() {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            connection.answer("200 OK", fields, format!("answer {number}"));
        }
    })
}

/// A backend that the test can make close instead of answer.
fn mortal(fields: &'static str) -> (Backend, Arc<AtomicBool>) {
    let is_down = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_down);
    let backend = Backend::start(move |connection| {
        while connection.request().is_some() {
            if flag.load(Ordering::SeqCst) {
                return connection.close();
            }
            connection.answer("200 OK", fields, "alive");
        }
    });
    (backend, is_down)
}

/// A backend whose requests after the first wait until the test releases them.
fn hesitant(fields: &'static str, free: usize) -> (Backend, Sender<()>) {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let count = AtomicUsize::new(0);
    let backend = Backend::start(move |connection| {
        while connection.request().is_some() {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            if number > free {
                let _ = wait.lock().expect("not poisoned").recv_timeout(LONG);
            }
            connection.answer("200 OK", fields, format!("answer {number}"));
        }
    });
    (backend, release)
}

/// Asks until the answer has this status of the cache.
pub(crate) fn until(client: &mut Client, target: &str, wanted: &str) -> Response {
    let mut last = None;
    eventually(wanted, LONG, || {
        let response = client.get(target);
        let is_it = status(&response) == wanted;
        last = Some(response);
        is_it
    });
    last.expect("there was one")
}

fn files(server: &Server) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![server.tree().path("cache")];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if item.path().is_dir() { folders.push(item.path()) } else { all.push(item.path()) }
        }
    }
    all
}

#[test]
fn an_answer_is_fetched_once() {
    let backend = counting("Cache-Control: max-age=600\r\nETag: \"e\"\r\n");
    let to = backend.address();
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_pass http://{to}; proxy_cache_bypass $arg_fresh; proxy_no_cache $arg_secret; }}
             location /off/ {{ proxy_cache off; proxy_pass http://{to}; }}"
        ),
    );
    let mut client = server.connect();
    let first = client.get("/a");
    assert_eq!((status(&first), first.text()), ("MISS", "answer 1".into()));
    let second = server.connect().get("/a");
    assert_eq!((status(&second), second.text()), ("HIT", "answer 1".into()));
    assert!(second.field("age").is_some() && first.field("age").is_none());
    // HEAD, conditions and ranges are answered from it.
    client.send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.read_head_response();
    assert_eq!((status(&head), head.field("content-length")), ("HIT", Some("8")));
    assert_eq!(client.request("GET", "/a", "If-None-Match: \"e\"\r\n").status, 304);
    let part = client.request("GET", "/a", "Range: bytes=0-2\r\n");
    assert_eq!(
        (part.status, part.text(), part.field("content-range")),
        (206, "ans".into(), Some("bytes 0-2/8"))
    );
    let beyond = client.request("GET", "/a", "Range: bytes=100-\r\n");
    assert_eq!((beyond.status, beyond.field("content-range")), (416, Some("bytes */8")));
    assert_eq!(backend.heads().len(), 1);
    // Not looked at, but stored.
    let fresh = client.get("/b?fresh=1");
    assert_eq!((status(&fresh), fresh.text()), ("BYPASS", "answer 2".into()));
    assert_eq!(client.get("/b?fresh=1").text(), "answer 3");
    // Looked at, but not stored.
    assert_eq!(status(&client.get("/c?secret=1")), "MISS");
    assert_eq!(status(&client.get("/c?secret=1")), "MISS");
    // Nothing to do with the cache.
    assert_eq!(status(&client.get("/off/")), "");
    assert_eq!(status(&client.request_with_body("POST", "/a", "", b"x")), "");
    // HEAD first: it is asked for by GET, and kept.
    client.send("HEAD /d HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status(&client.read_head_response()), "MISS");
    until(&mut client, "/d", "HIT");
    assert!(backend.heads().iter().all(|head| !head.starts_with("HEAD")));
}

#[test]
fn only_what_may_be_kept_is_kept() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let fields = match head.split(' ').nth(1).unwrap_or_default() {
                "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
                "/private" => "Cache-Control: private, max-age=60\r\n",
                "/says" => "Cache-Control: max-age=60\r\n",
                "/accel" => "X-Accel-Expires: 60\r\nCache-Control: no-store\r\n",
                _ => "",
            };
            let code = if head.contains("/lost") { "404 Not Found" } else { "200 OK" };
            connection.answer(code, fields, "x");
        }
    });
    let to = backend.address();
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_pass http://{to}; }}
             location /valid/ {{ proxy_cache_valid 1h; proxy_pass http://{to}; }}
             location /lost/ {{ proxy_cache_valid 200 1h; proxy_cache_valid 404 1h; proxy_pass http://{to}; }}
             location /often/ {{ proxy_cache_min_uses 3; proxy_cache_valid any 1h; proxy_pass http://{to}; }}
             location /post/ {{ proxy_cache_methods POST; proxy_cache_key $request_uri; proxy_cache_valid 1h; proxy_pass http://{to}; }}
             location = /cookie {{ proxy_pass http://{to}; }}
             location /ignore/ {{ proxy_ignore_headers Cache-Control Set-Cookie; proxy_cache_valid 1h; proxy_pass http://{to}/cookie?; }}"
        ),
    );
    let mut client = server.connect();
    let mut second = |target: &str| {
        client.get(target);
        status(&client.get(target)).to_owned()
    };
    for (target, expected) in [
        ("/says", "HIT"),
        ("/accel", "HIT"),
        ("/nothing", "MISS"),
        ("/cookie", "MISS"),
        ("/private", "MISS"),
        ("/valid/", "HIT"),
        ("/lost/", "HIT"),
        ("/often/", "MISS"),
        ("/ignore/", "HIT"),
    ] {
        assert_eq!(second(target), expected, "{target}");
    }
    assert_eq!(second("/often/"), "HIT", "the third was kept");
    let says = client.request("GET", "/says", "Authorization: Basic eDp5\r\n");
    assert_eq!(status(&says), "HIT");
    let key = client.request("GET", "/nothing?a", "Authorization: Basic eDp5\r\n");
    assert_eq!(status(&key), "MISS");
    assert_eq!(status(&client.request_with_body("POST", "/post/", "", b"x")), "MISS");
    assert_eq!(status(&client.request_with_body("POST", "/post/", "", b"x")), "HIT");
}

#[test]
fn what_has_expired_is_fetched_or_found_to_be_valid() {
    let backend = counting("Cache-Control: max-age=1\r\n");
    let valid = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let fields = "Cache-Control: max-age=1\r\nETag: \"e\"\r\n";
            if head.contains("If-None-Match: \"e\"") {
                connection.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"));
            } else {
                connection.answer("200 OK", fields, pattern(300_000));
            }
        }
    });
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_pass http://{}; }}
             location /valid {{ proxy_cache_revalidate on; proxy_pass http://{}; }}",
            backend.address(),
            valid.address()
        ),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    assert_eq!(until(&mut client, "/", "EXPIRED").text(), "answer 2");
    assert_eq!(status(&client.get("/valid")), "MISS");
    let again = until(&mut client, "/valid", "REVALIDATED");
    assert_eq!((again.status, again.body == pattern(300_000)), (200, true));
    // Its new lifetime is on the disk when the next one finds it.
    until(&mut client, "/valid", "HIT");
    until(&mut client, "/valid", "REVALIDATED");
    let fetched = valid.heads().iter().filter(|head| !head.contains("If-None-Match")).count();
    assert_eq!(fetched, 1);
    assert_eq!(valid.connections(), valid.heads().len(), "without keepalive each has its own");
}

#[test]
fn stale_answers_stand_in_for_a_server_that_is_down() {
    let (backend, is_down) = mortal("Cache-Control: max-age=1\r\n");
    let (strict, strict_down) = mortal("Cache-Control: max-age=1, must-revalidate\r\n");
    let (itself, itself_down) = mortal("Cache-Control: max-age=1, stale-if-error=600\r\n");
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_cache_use_stale error http_503; proxy_pass http://{}; }}
             location /plain {{ proxy_pass http://{}; }}
             location /strict {{ proxy_cache_use_stale error; proxy_pass http://{}; }}
             location /itself {{ proxy_pass http://{}; }}",
            backend.address(),
            backend.address(),
            strict.address(),
            itself.address(),
        ),
    );
    let mut client = server.connect();
    for target in ["/", "/plain", "/strict", "/itself"] {
        assert_eq!(client.get(target).text(), "alive", "{target}");
    }
    for flag in [&is_down, &strict_down, &itself_down] {
        flag.store(true, Ordering::SeqCst);
    }
    assert_eq!(until(&mut client, "/", "STALE").text(), "alive");
    assert_eq!(until(&mut client, "/itself", "STALE").text(), "alive");
    for target in ["/plain", "/strict"] {
        eventually("the error", LONG, || client.get(target).status == 502);
    }
    assert!(server.log("error.log").contains("upstream prematurely closed connection"));
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(status(&client.get("/")), "EXPIRED");
    assert_eq!(status(&client.get("/")), "HIT");
}

#[test]
fn an_error_of_the_server_is_replaced_too() {
    let count = AtomicUsize::new(0);
    let backend = Backend::start(move |connection| {
        while connection.request().is_some() {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => connection.answer("200 OK", "Cache-Control: max-age=1\r\n", "good"),
                _ => connection.answer("503 Busy", "", "bad"),
            }
        }
    });
    let to = backend.address();
    let server = cached(
        "",
        &format!("location / {{ proxy_cache_use_stale http_503; proxy_pass http://{to}; }}"),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "good");
    let stale = until(&mut client, "/", "STALE");
    assert_eq!((stale.status, stale.text()), (200, "good".into()));
}

#[test]
fn one_fetches_while_the_others_get_what_is_stale() {
    let (backend, release) = hesitant("Cache-Control: max-age=1\r\n", 1);
    let to = backend.address();
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_cache_use_stale updating; proxy_cache_lock_age 1h; proxy_pass http://{to}; }}"
        ),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    // The first request that finds it expired waits for the server: others do not.
    let mut all = Vec::new();
    eventually("a request at the server", LONG, || {
        let mut another = server.connect();
        another.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        all.push(another);
        backend.heads().len() == 2
    });
    let other = client.get("/");
    assert_eq!((status(&other), other.text()), ("UPDATING", "answer 1".into()));
    release.send(()).expect("the server waits");
    let all: Vec<Response> = all.iter_mut().map(Client::read_response).collect();
    let fetched: Vec<&Response> = all.iter().filter(|one| status(one) == "EXPIRED").collect();
    assert_eq!((fetched.len(), fetched[0].text()), (1, "answer 2".into()));
    assert_eq!(backend.heads().len(), 2);
}

#[test]
fn updates_beside_keep_nobody_waiting() {
    let (backend, release) =
        hesitant("Cache-Control: max-age=1, stale-while-revalidate=600\r\n", 1);
    let to = backend.address();
    let server = cached(
        "",
        &format!("location / {{ proxy_cache_background_update on; proxy_pass http://{to}; }}"),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    assert_eq!(until(&mut client, "/", "STALE").text(), "answer 1");
    eventually("a request at the server", LONG, || backend.heads().len() == 2);
    assert_eq!(status(&client.get("/")), "UPDATING");
    release.send(()).expect("the server waits");
    eventually("the new one", LONG, || client.get("/").text() == "answer 2");
}

#[test]
fn of_several_with_a_lock_one_is_passed_on() {
    let (backend, release) = hesitant("Cache-Control: max-age=600\r\n", 0);
    let to = backend.address();
    let server = cached(
        "",
        &format!(
            "location / {{ proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h; proxy_pass http://{to}; }}
             location /hasty {{ proxy_cache_lock on; proxy_cache_lock_timeout 50ms; proxy_cache_lock_age 1h; proxy_pass http://{to}; }}"
        ),
    );
    let ask = |target: &str| {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client
    };
    let mut first = ask("/");
    eventually("the first at the server", LONG, || backend.heads().len() == 1);
    let mut others: Vec<Client> = (0..8).map(|_| ask("/")).collect();
    release.send(()).expect("the server waits");
    assert_eq!(first.read_response().text(), "answer 1");
    for other in &mut others {
        let response = other.read_response();
        assert_eq!((status(&response), response.text()), ("HIT", "answer 1".into()));
    }
    assert_eq!(backend.heads().len(), 1);
    // One that has waited long enough is passed on, too.
    let (mut first, mut second) = (ask("/hasty"), ask("/hasty"));
    eventually("both at the server", LONG, || backend.heads().len() == 3);
    release.send(()).expect("the server waits");
    release.send(()).expect("the server waits");
    assert_eq!(status(&first.read_response()), "MISS");
    assert_eq!(status(&second.read_response()), "MISS");
}

/// `proxy_cache_convert_head off`: the response to a HEAD is stored with the length that it says.
#[test]
fn a_head_that_is_not_converted_has_its_own_entry() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let fields = "Cache-Control: max-age=600\r\nContent-Length: 5";
            let body = if head.starts_with("HEAD") { "" } else { "hello" };
            connection.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}"));
        }
    });
    let to = backend.address();
    let key = "proxy_cache_convert_head off; proxy_cache_key $request_method$uri;";
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; {key} }}"));
    let mut client = server.connect();
    for expected in ["MISS", "HIT", "HIT"] {
        client.send("HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = client.read_head_response();
        assert_eq!((status(&head), head.field("content-length")), (expected, Some("5")));
    }
    let get = client.get("/a");
    assert_eq!((status(&get), get.text()), ("MISS", "hello".into()));
}

/// The key does not know the body of a GET.
#[test]
fn a_get_with_a_body_is_not_cached() {
    let backend = counting("Cache-Control: max-age=600\r\n");
    let to = backend.address();
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    let with_body = |client: &mut Client| client.request_with_body("GET", "/a", "", b"query");
    for number in 1..3 {
        let response = with_body(&mut client);
        assert_eq!((status(&response), response.text()), ("", format!("answer {number}")));
    }
    assert_eq!(until(&mut client, "/a", "HIT").text(), "answer 3");
    assert_eq!(with_body(&mut client).text(), "answer 4");
    assert_eq!(client.get("/a").text(), "answer 3");
}

#[test]
fn variants_are_kept_apart() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let lower = head.to_ascii_lowercase();
            let language = lower.split("accept-language: ").nth(1).unwrap_or("none\r\n");
            let body = language.split("\r\n").next().unwrap_or_default().to_owned();
            connection.answer(
                "200 OK",
                "Cache-Control: max-age=600\r\nVary: Accept-Language\r\n",
                body,
            );
        }
    });
    let to = backend.address();
    let server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    for expected in ["MISS", "HIT", "HIT"] {
        for language in ["de", "en", "fr"] {
            let response = client.request("GET", "/", &format!("Accept-Language: {language}\r\n"));
            assert_eq!((status(&response), response.text()), (expected, language.into()));
        }
        assert_eq!(client.get("/").text(), "none");
    }
    assert_eq!((backend.heads().len(), files(&server).len()), (4, 4));
}

#[test]
fn entries_outlive_the_process_and_damage_is_noticed() {
    let big = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let body =
                if head.starts_with("GET /big") { pattern(1_000_000) } else { b"small".to_vec() };
            connection.answer("200 OK", "Cache-Control: max-age=600\r\n", body);
        }
    });
    let to = big.address();
    let mut server = cached("", &format!("location / {{ proxy_pass http://{to}; }}"));
    let mut client = server.connect();
    for target in ["/big", "/small"] {
        assert_eq!(status(&client.get(target)), "MISS");
        assert_eq!(status(&client.get(target)), "HIT");
    }
    server.quit();
    server.wait_exit(LONG);
    server.start_again(BINARY);
    let mut client = server.connect();
    let kept = client.get("/big");
    assert_eq!((status(&kept), kept.body == pattern(1_000_000)), ("HIT", true));
    assert_eq!((status(&client.get("/small")), big.heads().len()), ("HIT", 2));
    // A file that was cut short is none.
    for path in files(&server) {
        let bytes = std::fs::read(&path).expect("it can be read");
        std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("it can be written");
    }
    for target in ["/big", "/small"] {
        assert_eq!(status(&client.get(target)), "MISS", "{target}");
        assert_eq!(status(&client.get(target)), "HIT", "{target}");
    }
    assert!(server.log("error.log").contains("cache file is truncated or too long"));
    // So is one whose body has changed: a short one is fetched again, a long one is cut, and gone.
    for path in files(&server) {
        let mut bytes = std::fs::read(&path).expect("it can be read");
        *bytes.last_mut().expect("it is not empty") ^= 1;
        std::fs::write(&path, &bytes).expect("it can be written");
    }
    let small = client.get("/small");
    assert_eq!((status(&small), small.text()), ("MISS", "small".into()));
    client.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (cut, _) = client.read_to_end();
    assert!(cut.len() < 1_000_000, "{} bytes", cut.len());
    assert!(server.log("error.log").contains("cache file has a wrong checksum"));
    eventually("it is deleted", LONG, || files(&server).len() == 1);
    let again = server.connect().get("/big");
    assert_eq!((status(&again), again.body == pattern(1_000_000)), ("MISS", true));
}

#[test]
fn what_is_cut_is_not_kept_and_what_nobody_waits_for_is() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let count = AtomicUsize::new(0);
    let backend = Backend::start(move |connection| {
        while let Some(head) = connection.request() {
            if head.starts_with("GET /cut") && count.fetch_add(1, Ordering::SeqCst) == 0 {
                connection.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 10\r\n\r\nhalf");
                return connection.close();
            }
            connection.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 10\r\n\r\nwhole",
            );
            if head.starts_with("GET /gone") {
                let _ = wait.lock().expect("not poisoned").recv_timeout(LONG);
            }
            connection.send("whole");
        }
    });
    let to = backend.address();
    // A file has its name before the index knows it: a request in between waits for that.
    let server =
        cached("", &format!("location / {{ proxy_pass http://{to}; proxy_cache_lock on; }}"));
    let mut client = server.connect();
    client.send("GET /cut HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_to_end();
    assert!(files(&server).is_empty(), "{:?}", files(&server));
    let mut client = server.connect();
    assert_eq!(status(&client.get("/cut")), "MISS");
    assert_eq!(status(&client.get("/cut")), "HIT");
    let mut gone = server.connect();
    gone.send("GET /gone HTTP/1.1\r\nHost: localhost\r\n\r\n");
    eventually("it is at the server", LONG, || {
        backend.heads().iter().any(|head| head.contains("/gone"))
    });
    gone.reset();
    release.send(()).expect("the server waits");
    eventually("it is kept", LONG, || files(&server).len() == 2);
    let kept = client.get("/gone");
    assert_eq!((status(&kept), kept.text()), ("HIT", "wholewhole".into()));
}

#[test]
fn a_cache_is_bounded() {
    let backend = Backend::start(|connection| {
        while connection.request().is_some() {
            connection.answer("200 OK", "Cache-Control: max-age=600\r\n", pattern(10_000));
        }
    });
    let to = backend.address();
    let location = format!("location / {{ proxy_pass http://{to}; }}");
    let server = cached("max_size=50k", &location);
    let mut client = server.connect();
    for number in 0..20 {
        assert_eq!(client.get(&format!("/{number}")).body.len(), 10_000);
    }
    let bytes = |server: &Server| -> u64 {
        files(server).iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum()
    };
    eventually("no more than it may have", LONG, || bytes(&server) <= 50 << 10);
    assert_eq!(status(&client.get("/19")), "HIT");
    let server = cached("inactive=1s", &location);
    assert_eq!(status(&server.connect().get("/")), "MISS");
    eventually("nothing is left", LONG, || files(&server).is_empty());
}

/// The other protocols have the same directives.
#[test]
fn gateways_have_caches_too() {
    let backend = Backend::start(|connection| {
        // A netstring of parameters, and no body.
        while connection.more().is_some() {
            if connection.peek().ends_with(b",") {
                connection.send("Status: 200 OK\r\nCache-Control: max-age=600\r\n\r\nscgi");
                return connection.close();
            }
        }
    });
    let text = format!(
        "scgi_cache_path {{dir}}/cache keys_zone=one:1m use_temp_path=off;
         server {{ listen 127.0.0.1:{{port}}; add_header X-Cache $upstream_cache_status;
           scgi_cache one; scgi_cache_key $request_uri; location / {{ scgi_pass {}; }} }}",
        backend.address()
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&text));
    let mut client = server.connect();
    for expected in ["MISS", "HIT", "HIT"] {
        let response = client.get("/a");
        assert_eq!((status(&response), response.text()), (expected, "scgi".into()));
    }
    assert_eq!(backend.connections(), 1);
}

/// `proxy_cache_max_range_offset`: a range far behind is not worth fetching all of an answer.
#[test]
fn a_range_far_behind_is_passed_on() {
    let backend = Backend::start(|connection| {
        while let Some(head) = connection.request() {
            let fields = "Cache-Control: max-age=600\r\nETag: \"e\"\r\n";
            if head.to_ascii_lowercase().contains("\r\nrange: bytes=5-") {
                let fields = format!("{fields}Content-Range: bytes 5-9/10\r\n");
                connection.answer("206 Partial Content", &fields, "56789");
            } else {
                connection.answer("200 OK", fields, "0123456789");
            }
        }
    });
    let to = backend.address();
    let server = cached(
        "",
        &format!("location / {{ proxy_pass http://{to}; proxy_cache_max_range_offset 2; }}"),
    );
    let mut client = server.connect();
    for _ in 0..2 {
        let far = client.request("GET", "/a", "Range: bytes=5-\r\n");
        assert_eq!((far.status, status(&far), far.text()), (206, "MISS", "56789".into()));
    }
    assert!(backend.heads().iter().all(|head| head.contains("bytes=5-")));
    // A near one is cut of all of it, which is kept; then a far one is, too.
    let near = client.request("GET", "/a", "Range: bytes=1-2\r\n");
    assert_eq!((near.status, status(&near), near.text()), (206, "MISS", "12".into()));
    let far = client.request("GET", "/a", "Range: bytes=5-\r\n");
    assert_eq!((far.status, status(&far), far.text()), (206, "HIT", "56789".into()));
    assert_eq!(backend.heads().len(), 3);
}
