//! `mirror`: copies of requests, which change nothing for their client.

use sekisho_testkit::{Server, eventually};

use crate::backend::Backend;
use crate::common::{BINARY, LONG, site};

#[test]
fn a_copy_has_the_method_the_body_and_the_arguments() {
    let (told, seen) = std::sync::mpsc::channel();
    let mirror = Backend::start(move |connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let line = head.lines().next().unwrap_or_default().to_owned();
            let _ = told.send((line, body));
            connection.answer("500 Internal Server Error", "", "ignored");
        }
    });
    let application = Backend::start(|connection| {
        while let Some((_, body)) = connection.request_with_body() {
            connection.answer("200 OK", "", body.len().to_string());
        }
    });
    let server = Server::start(
        BINARY,
        &site(&format!(
            "client_body_buffer_size 8k; client_max_body_size 0;
             location / {{ mirror /_copy; mirror /_copy2; proxy_pass http://{0}; }}
             location /bodyless {{ mirror /_copy; mirror_request_body off; proxy_pass http://{0}; }}
             location = /_copy {{ internal; proxy_pass http://{1}/copy$is_args$args; }}
             location = /_copy2 {{ internal; proxy_pass http://{1}/second; }}",
            application.address(),
            mirror.address()
        )),
    );
    let mut client = server.connect();
    for bytes in [0, 10, 300_000] {
        let body = vec![b'x'; bytes];
        let response = client.request_with_body("POST", "/a?q", "", &body);
        assert_eq!((response.status, response.text()), (200, bytes.to_string()));
        let mut copies =
            [seen.recv_timeout(LONG).expect("a copy"), seen.recv_timeout(LONG).expect("another")];
        copies.sort();
        assert_eq!(copies[0].0, "POST /copy?q HTTP/1.1");
        assert_eq!(copies[1].0, "POST /second?q HTTP/1.1");
        assert!(copies.iter().all(|(_, copy)| *copy == body), "{bytes}");
    }
    assert_eq!(client.request_with_body("POST", "/bodyless", "", [b'x'; 10]).text(), "10");
    assert_eq!(seen.recv_timeout(LONG).expect("a copy").1, b"");
}

/// A copy that takes long holds up neither the answer nor the next request; a stop waits for it.
#[test]
fn a_slow_copy_holds_nobody_up() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let mirror = Backend::start(move |connection| {
        while connection.request().is_some() {
            let _ = wait.lock().expect("no panic").recv_timeout(LONG);
            connection.answer("200 OK", "", "late");
        }
    });
    let mut server = Server::start(
        BINARY,
        &site(&format!(
            "location / {{ mirror /_copy; return 404; }} location /a {{ mirror /_copy; alias {{root}}/; }}
             location = /_copy {{ internal; log_subrequest on; access_log {{dir}}/copies.log; proxy_pass http://{}; }}",
            mirror.address()
        )),
    );
    server.tree().file("root/x", "x");
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/a/x").text(), "x");
    }
    eventually("all copies are on their way", LONG, || mirror.heads().len() == 3);
    drop(client);
    server.quit();
    assert!(server.is_running());
    for _ in 0..3 {
        release.send(()).expect("it waits");
    }
    assert!(server.wait_exit(LONG).success());
    assert_eq!(server.log("copies.log").lines().count(), 3);
}
