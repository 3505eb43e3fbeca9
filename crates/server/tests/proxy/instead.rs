//! A body goes with its request to what answers instead: after a failure (`error_page`), an answer that is not passed on
//! (`proxy_intercept_errors`) or `X-Accel-Redirect`. Beside nginx, where it is installed.

use bytes::Bytes;
use sekisho_testkit::{Server, Tree, have};

use crate::backend::Backend;
use crate::common::{BINARY, http, pattern, serve};
use crate::http2_backend::{block_on, connect, read, send_whole};

const NGINX: &str = "/usr/sbin/nginx";

/// Says which method and how much of a body it got; paths say what else it answers.
fn teller() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let (line, _) = head.split_once("\r\n").unwrap_or_default();
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let is_same = body == pattern(body.len());
            let text = format!("{method} {} {is_same}", body.len());
            match path {
                "/busy" => connection.answer("503 Busy", "", text),
                "/handed" => connection.answer("200 OK", "X-Accel-Redirect: /plain\r\n", text),
                _ => connection.answer("200 OK", "", text),
            }
        }
    })
}

fn locations(to: &Backend) -> String {
    let to = to.address();
    format!(
        "client_max_body_size 0; proxy_http_version 1.1;
         location /dead {{ proxy_pass http://127.0.0.1:1; error_page 502 = @other; }}
         location /dead/page {{ proxy_pass http://127.0.0.1:1; error_page 502 = /plain; }}
         location /dead/twice {{ proxy_pass http://127.0.0.1:1; error_page 502 = @dead; recursive_error_pages on; }}
         location @dead {{ fastcgi_pass 127.0.0.1:1; error_page 502 = @other; recursive_error_pages on; }}
         location /dead/unpassed {{ proxy_pass http://127.0.0.1:1; proxy_pass_request_body off; error_page 502 = @other; }}
         location /dead/known {{ proxy_pass http://127.0.0.1:1; proxy_set_header X-Body $request_body; error_page 502 = @other; }}
         location /busy {{ proxy_pass http://{to}; proxy_intercept_errors on; error_page 503 = @changed; }}
         location /handed {{ proxy_pass http://{to}; }}
         location /returned {{ return 418; error_page 418 = /plain; }}
         location /streamed {{ proxy_pass http://127.0.0.1:1; proxy_request_buffering off; error_page 502 = @other; }}
         location /plain {{ proxy_pass http://{to}; }}
         location @other {{ proxy_pass http://{to}; }}
         location @changed {{ rewrite ^ /changed break; proxy_pass http://{to}; }}"
    )
}

fn config(binary: &str, to: &Backend) -> String {
    let site =
        format!("server {{ listen 127.0.0.1:{{port}}; root {{root}};\n{}\n}}", locations(to));
    if binary != NGINX {
        return http(&site);
    }
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = kinds.map(|name| format!("{name}_temp_path {{dir}}/{name};")).concat();
    format!("daemon off; master_process off; pid {{dir}}/nginx.pid;\n{}", http(&(paths + &site)))
}

#[test]
fn a_body_goes_to_what_answers_instead_as_with_nginx() {
    let mut binaries = vec![BINARY];
    if have("nginx") {
        binaries.push(NGINX);
    }
    for binary in binaries {
        let backend = teller();
        let server = Server::start_in(Tree::new(), binary, &config(binary, &backend));
        let mut client = server.connect();
        for (path, method) in [
            ("/dead", "POST"),
            ("/dead/page", "GET"),
            ("/dead/twice", "POST"),
            ("/dead/unpassed", "POST"),
            ("/dead/known", "POST"),
            ("/busy", "POST"),
            ("/handed", "GET"),
            ("/returned", "GET"),
            ("/streamed", "POST"),
        ] {
            // nginx cuts a streamed one where it does not come at once.
            if path == "/streamed" && binary == NGINX {
                continue;
            }
            // In memory and in a file.
            for bytes in [3, 300_000] {
                let body = pattern(bytes);
                let response = client.request_with_body("POST", path, "", &body);
                let expected = format!("{method} {bytes} true");
                let log = server.log("error.log");
                assert_eq!(response.text(), expected, "{binary} {path}\n{log}");
                // In chunks.
                client.send(format!(
                    "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n"
                ));
                client.send(body);
                client.send("\r\n0\r\n\r\n");
                assert_eq!(client.read_response().text(), expected, "{binary} {path} in chunks");
            }
        }
        // What follows on the connection is a request, and no body comes from elsewhere.
        assert_eq!(client.get("/dead").text(), "GET 0 true", "{binary}");
    }
}

#[test]
fn a_body_of_http2_goes_to_what_answers_instead() {
    let backend = teller();
    let site = format!(
        "server {{ listen 127.0.0.1:{{port}}; http2 on; root {{root}};\n{}\n}}",
        locations(&backend)
    );
    let server = Server::start_in(Tree::new(), BINARY, &http(&site));
    for (path, method) in [("/dead", "POST"), ("/busy", "POST"), ("/handed", "GET")] {
        for bytes in [3, 300_000] {
            let answer = block_on(async {
                let mut sender = connect(server.address()).await;
                let request = h2_request(path);
                let (response, stream) = sender.send_request(request, false).expect("sent");
                send_whole(stream, Bytes::from(pattern(bytes))).await;
                read(response).await.expect("an answer")
            });
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!((answer.status, text), (200, format!("{method} {bytes} true")), "{path}");
        }
    }
    // A body that is streamed and of which no server has got anything comes as it would have come there.
    let answer = block_on(async {
        let mut sender = connect(server.address()).await;
        let (response, stream) = sender.send_request(h2_request("/streamed"), false).expect("sent");
        send_whole(stream, Bytes::from(pattern(300_000))).await;
        read(response).await.expect("an answer")
    });
    assert_eq!(String::from_utf8_lossy(&answer.body), "POST 300000 true");
}

fn h2_request(path: &str) -> http::Request<()> {
    http::Request::post(format!("http://a.test{path}")).body(()).expect("sound")
}

/// Streamed, and a server has got a part of it: all of it is remembered, or nobody gets a part.
#[test]
fn a_body_that_cannot_be_sent_again_is_an_error_and_never_cut() {
    let backend = teller();
    let to = backend.address();
    let server = serve(
        Tree::new(),
        &format!(
            "client_max_body_size 0; client_body_buffer_size 8k;
             location /busy {{ proxy_pass http://{to}; proxy_request_buffering off; proxy_intercept_errors on; error_page 503 = @other; }}
             location /page {{ proxy_pass http://{to}/busy; proxy_request_buffering off; proxy_intercept_errors on; error_page 503 /plain; }}
             location /plain {{ proxy_pass http://{to}; }}
             location @other {{ rewrite ^ /other break; proxy_pass http://{to}; }}"
        ),
    );
    let mut client = server.connect();
    let small = client.request_with_body("POST", "/busy", "", pattern(5000));
    assert_eq!((small.status, small.text().as_str()), (200, "POST 5000 true"));
    let large = client.request_with_body("POST", "/busy", "", pattern(300_000));
    assert_eq!(large.status, 503);
    let others = backend.heads().iter().filter(|head| head.starts_with("POST /other")).count();
    assert_eq!(others, 1, "{:?}", backend.heads());
    // A page for the error is a GET, which has the same meaning without it.
    let page = client.request_with_body("POST", "/page", "", pattern(300_000));
    assert_eq!((page.status, page.text().as_str()), (503, "GET 0 true"));
    assert_eq!(client.get("/plain").text(), "GET 0 true");
}

/// A program in place of a server gets the body, too; what a program has used up is for nobody else.
#[test]
fn programs_get_the_body_that_a_server_could_not_be_given() {
    let backend = teller();
    let to = backend.address();
    let tree = Tree::new();
    tree.script(
        "root/app",
        "#!/bin/sh\nprintf 'X: 1\\n\\n%s %s ' \"$REQUEST_METHOD\" \"$CONTENT_LENGTH\"; wc -c\n",
    );
    tree.script("root/dies", "#!/bin/sh\ncat >/dev/null; exit 1\n");
    let server = serve(
        tree,
        &format!(
            "client_max_body_size 0;
             location /dead {{ proxy_pass http://127.0.0.1:1; error_page 502 = @program; }}
             location /page {{ proxy_pass http://127.0.0.1:1; error_page 502 = /program; }}
             location /dies {{ cgi_pass {{root}}/dies; error_page 502 = @server; }}
             location /program {{ cgi_pass {{root}}/app; }}
             location @program {{ cgi_pass {{root}}/app; }}
             location @server {{ proxy_pass http://{to}; }}"
        ),
    );
    let mut client = server.connect();
    for bytes in [3, 300_000] {
        let body = pattern(bytes);
        let response = client.request_with_body("POST", "/dead", "", &body);
        let expected = format!("POST {bytes} {bytes}\n");
        assert_eq!(response.text(), expected, "{}", server.log("error.log"));
        assert_eq!(client.request_with_body("POST", "/page", "", &body).text(), "GET  0\n");
        assert_eq!(client.request_with_body("POST", "/dies", "", &body).status, 502);
    }
    assert!(backend.heads().is_empty(), "{:?}", backend.heads());
    assert_eq!(client.request("POST", "/dies", "Content-Length: 0\r\n").text(), "POST 0 true");
}
