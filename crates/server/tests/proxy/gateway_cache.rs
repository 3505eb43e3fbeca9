//! `fastcgi_cache`, `scgi_cache` and `uwsgi_cache` over real sockets (U5): hit, miss, key, bypass, stale, purge, one request
//! for many; by three applications that are scripted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sekisho_testkit::{Response, Server, Tree, eventually, run};

use crate::backend::{Backend, Connection};
use crate::common::{BINARY, LONG, http};

/// The next request of a protocol: its parameters as they came; `None` at the end.
type Read = fn(&mut Connection) -> Option<Vec<u8>>;
/// An answer in its records, the end included.
type Write = fn(&mut Connection, &str);

fn read_fastcgi(connection: &mut Connection) -> Option<Vec<u8>> {
    let mut params = Vec::new();
    loop {
        let header = connection.read(8)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let content = connection.read(length)?;
        connection.read(usize::from(header[6]))?;
        match (header[1], content.is_empty()) {
            (4, _) => params.extend(content),
            (5, true) => return Some(params),
            _ => {}
        }
    }
}

fn write_fastcgi(connection: &mut Connection, text: &str) {
    let record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
    };
    let all = [record(6, text.as_bytes()), record(6, b""), record(3, &[0; 8])].concat();
    connection.send(all);
}

fn read_scgi(connection: &mut Connection) -> Option<Vec<u8>> {
    let mut length = String::new();
    loop {
        match connection.read(1)?[0] {
            b':' => break,
            digit => length.push(char::from(digit)),
        }
    }
    let params = connection.read(length.parse().ok()?)?;
    connection.read(1)?;
    Some(params)
}

fn read_uwsgi(connection: &mut Connection) -> Option<Vec<u8>> {
    let header = connection.read(4)?;
    connection.read(usize::from(u16::from_le_bytes([header[1], header[2]])))
}

fn write_plain(connection: &mut Connection, text: &str) {
    connection.send(text);
    connection.close();
}

const FAMILIES: [(&str, Read, Write); 3] = [
    ("fastcgi", read_fastcgi, write_fastcgi),
    ("scgi", read_scgi, write_plain),
    ("uwsgi", read_uwsgi, write_plain),
];

/// An application that answers with its count; it breaks the connection while it is down, and says what the parameter
/// `FIELDS` says.
fn application(read: Read, write: Write) -> (Backend, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let is_down = Arc::<AtomicBool>::default();
    let count = Arc::<AtomicUsize>::default();
    let (flag, counter) = (Arc::clone(&is_down), Arc::clone(&count));
    let backend = Backend::start(move |connection| {
        while let Some(params) = read(connection) {
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            if flag.load(Ordering::SeqCst) {
                return connection.close();
            }
            let params = String::from_utf8_lossy(&params);
            let age = if params.contains("short=1") { 1 } else { 600 };
            write(
                connection,
                &format!(
                    "Status: 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age={age}\r\n\
                     ETag: \"e\"\r\n\r\nanswer {number}"
                ),
            );
        }
    });
    (backend, is_down, count)
}

fn start(family: &str, backend: &Backend) -> Server {
    let to = backend.address();
    let text = format!(
        "{family}_cache_path {{dir}}/cache levels=1:2 keys_zone=one:1m;
         server {{ listen 127.0.0.1:{{port}}; {family}_cache one; {family}_cache_key $uri?k=$arg_k;
           {family}_cache_bypass $arg_fresh; {family}_no_cache $arg_secret;
           {family}_cache_use_stale error updating; {family}_cache_lock on; {family}_cache_methods GET HEAD POST;
           {family}_param REQUEST_METHOD $request_method; {family}_param QUERY_STRING $query_string;
           add_header X-Cache $upstream_cache_status always;
           location / {{ {family}_pass {to}; }}
           location /method/ {{ {family}_pass {to}; {family}_cache_key $request_method$uri; }}
           location /twice/ {{ {family}_pass {to}; {family}_cache_min_uses 2; }}
           location /off/ {{ {family}_pass {to}; {family}_cache off; }} }}"
    );
    Server::start_in(Tree::new(), BINARY, &http(&text))
}

fn said(response: &Response) -> (String, String) {
    (response.field("x-cache").unwrap_or("-").to_owned(), response.text())
}

fn is(response: &Response, cache: &str, text: &str) {
    assert_eq!(said(response), (cache.to_owned(), text.to_owned()));
}

/// A HEAD is cached where the key tells it from a GET.
#[test]
fn a_head_is_cached_by_its_own_key() {
    for (family, read, write) in FAMILIES {
        let (backend, _, count) = application(read, write);
        let server = start(family, &backend);
        let mut client = server.connect();
        let mut head = |path: &str| {
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let response = client.read_head_response();
            (response.status, said(&response).0)
        };
        let mut own = server.connect();
        for expected in ["MISS", "HIT"] {
            assert_eq!(head("/method/"), (200, expected.to_owned()), "{family}");
        }
        is(&own.get("/method/"), "MISS", "answer 2");
        is(&own.get("/method/"), "HIT", "answer 2");
        assert_eq!(head("/method/"), (200, "HIT".to_owned()), "{family}");
        assert_eq!(count.load(Ordering::SeqCst), 2);
        // Without the method in it the entry of a GET is for both.
        assert_eq!([head("/a").1, head("/a").1], ["MISS", "MISS"]);
        own.get("/a");
        assert_eq!(head("/a").1, "HIT");
    }
}

#[test]
fn answers_of_applications_are_cached() {
    for (family, read, write) in FAMILIES {
        let (backend, _, count) = application(read, write);
        let server = start(family, &backend);
        let mut client = server.connect();
        is(&client.get("/a?k=1"), "MISS", "answer 1");
        is(&server.connect().get("/a?k=1"), "HIT", "answer 1");
        // The key alone counts.
        is(&client.get("/a?k=1&other=2"), "HIT", "answer 1");
        is(&client.get("/a?k=2"), "MISS", "answer 2");
        // Conditions and ranges are answered from it.
        assert_eq!(client.request("GET", "/a?k=1", "If-None-Match: \"e\"\r\n").status, 304);
        let part = client.request("GET", "/a?k=1", "Range: bytes=0-5\r\n");
        assert_eq!((part.status, part.text().as_str()), (206, "answer"));
        // A bypass asks, and its answer takes the place of the old one.
        is(&client.get("/a?k=1&fresh=1"), "BYPASS", "answer 3");
        is(&client.get("/a?k=1"), "HIT", "answer 3");
        // What must not be kept is not.
        is(&client.get("/b?secret=1"), "MISS", "answer 4");
        is(&client.get("/b?secret=1"), "MISS", "answer 5");
        is(&client.get("/twice/x"), "MISS", "answer 6");
        is(&client.get("/twice/x"), "MISS", "answer 7");
        is(&client.get("/twice/x"), "HIT", "answer 7");
        is(&client.get("/off/x"), "-", "answer 8");
        is(&client.get("/off/x"), "-", "answer 9");
        assert_eq!(count.load(Ordering::SeqCst), 9, "{family}");
    }
}

#[test]
fn a_stale_answer_stands_in_and_a_purge_forgets() {
    for (family, read, write) in FAMILIES {
        let (backend, is_down, _) = application(read, write);
        let server = start(family, &backend);
        let mut client = server.connect();
        is(&client.get("/a?short=1"), "MISS", "answer 1");
        is(&client.get("/kept"), "MISS", "answer 2");
        is_down.store(true, Ordering::SeqCst);
        eventually("a stale answer", LONG, || {
            let response = client.get("/a?short=1");
            assert_eq!((response.status, response.text().as_str()), (200, "answer 1"), "{family}");
            response.field("x-cache") == Some("STALE")
        });
        assert!(server.log("error.log").contains("prematurely closed connection"), "{family}");
        assert_eq!(client.get("/unknown").status, 502, "there is nothing to stand in");
        is(&client.get("/kept"), "HIT", "answer 2");
        let purge = |key: &str| {
            let pid = server.id().to_string();
            run(BINARY, &["ctl", "--pid", &pid, "cache", "purge", key], LONG).code()
        };
        assert_eq!(purge("/kept?k="), 0);
        assert_eq!(client.get("/kept").status, 502, "{family}: it was forgotten");
        is_down.store(false, Ordering::SeqCst);
        let back = client.get("/kept");
        assert_eq!(back.field("x-cache"), Some("MISS"));
        eventually("a fresh answer", LONG, || {
            client.get("/a?short=1").field("x-cache") != Some("STALE")
        });
    }
}

/// `_cache_lock`: of several requests for one answer only one is passed on.
#[test]
fn an_application_is_asked_once_for_many() {
    for (family, read, write) in FAMILIES {
        let (backend, _, count) = application(read, write);
        let server = start(family, &backend);
        let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send("GET /many HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.read_response().text(), "answer 1", "{family}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1, "{family}");
    }
}

/// Variables may say which cache is meant, or that none is.
#[test]
fn a_cache_may_be_chosen_by_variables() {
    let (backend, ..) = application(read_fastcgi, write_fastcgi);
    let to = backend.address();
    let server = Server::start_in(
        Tree::new(),
        BINARY,
        &http(&format!(
            "fastcgi_cache_path {{dir}}/one keys_zone=one:1m; fastcgi_cache_path {{dir}}/two keys_zone=two:1m;
             scgi_cache_path {{dir}}/other keys_zone=other:1m;
             server {{ listen 127.0.0.1:{{port}}; add_header X-Cache $upstream_cache_status always;
               location / {{ fastcgi_pass {to}; fastcgi_cache $arg_c; fastcgi_cache_key $uri; }} }}"
        )),
    );
    let mut client = server.connect();
    is(&client.get("/a?c=one"), "MISS", "answer 1");
    is(&client.get("/a?c=two"), "MISS", "answer 2");
    is(&client.get("/a?c=one"), "HIT", "answer 1");
    is(&client.get("/a?c=two"), "HIT", "answer 2");
    is(&client.get("/a?c=off"), "-", "answer 3");
    is(&client.get("/a"), "-", "answer 4");
    // One that is not there, or for a different use, is a mistake of the configuration.
    for name in ["none", "other"] {
        assert_eq!(client.get(&format!("/a?c={name}")).status, 500);
        assert!(server.log("error.log").contains(&format!("cache \"{name}\" not found")));
    }
}
