//! FastCGI, SCGI and uwsgi, with php-fpm and uWSGI where they are installed, and scripted peers (U1).

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Command;

use sekisho_testkit::{Background, Tree, eventually, have};

use crate::backend::Backend;
use crate::common::{LONG, serve};

fn run(tree: &Tree, program: &str, arguments: &[&str]) -> Background {
    let output = || File::create(tree.path("peer.log")).expect("a file can be made");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(tree.dir());
    Background::start(command.stdout(output()).stderr(output()))
}

/// php-fpm, by nginx's own recipe.
#[test]
fn php_answers() {
    const FPM: &str = "php-fpm8.2";
    if !have(FPM) {
        return;
    }
    let tree = Tree::new();
    let socket = tree.path("fpm.sock");
    tree.file(
        "fpm.conf",
        format!(
            "[global]\nerror_log = {dir}/fpm.log\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = {socket}\n\
             listen.mode = 0666\npm = static\npm.max_children = 2\n",
            dir = tree.dir().display(),
            socket = socket.display()
        ),
    );
    tree.file(
        "root/index.php",
        "<?php header('X-Method: '.$_SERVER['REQUEST_METHOD']); echo $_SERVER['PATH_INFO'] ?? '-', '|', $_GET['a'] ?? '-', '|', \
         file_get_contents('php://input'), '|', $_SERVER['HTTP_X_MINE'] ?? '-', '|', basename($_SERVER['SCRIPT_FILENAME']); \
         if (isset($_GET['log'])) { error_log('a complaint'); } if (isset($_GET['status'])) { http_response_code(418); }",
    );
    let config = tree.path("fpm.conf").display().to_string();
    let _fpm = run(&tree, FPM, &["-R", "-F", "-y", &config]);
    eventually("php-fpm", LONG, || UnixStream::connect(&socket).is_ok());
    let server = serve(
        tree,
        &format!(
            "index index.php;
             location ~ ^(.+[.]php)(/|$) {{
               fastcgi_split_path_info ^(.+?[.]php)(/.*)$;
               fastcgi_pass unix:{};
               fastcgi_index index.php;
               fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
               fastcgi_param PATH_INFO $fastcgi_path_info;
               fastcgi_param QUERY_STRING $query_string;
               fastcgi_param REQUEST_METHOD $request_method;
               fastcgi_param CONTENT_TYPE $content_type;
               fastcgi_param CONTENT_LENGTH $content_length;
               fastcgi_param HTTPS $https if_not_empty;
             }}",
            socket.display()
        ),
    );
    let mut client = server.connect();
    let response = client.request("GET", "/index.php/more?a=1", "X-Mine: yes\r\n");
    assert_eq!(response.text(), "/more|1||yes|index.php", "{}", server.log("error.log"));
    assert_eq!(response.field("x-method"), Some("GET"));
    assert_eq!(client.get("/").text(), "|-||-|index.php");
    let long = "x".repeat(200_000);
    let response = client.request_with_body("POST", "/index.php", "", long.as_bytes());
    assert_eq!(response.text(), format!("|-|{long}|-|index.php"));
    assert_eq!(client.get("/index.php?status=1").status, 418);
    assert_eq!(client.get("/index.php?log=1").status, 200);
    let said = server.log("error.log");
    assert!(said.contains("FastCGI sent in stderr: \"PHP message: a complaint"), "{said}");
    assert_eq!(client.get("/nosuch.php").status, 404);
}

/// uWSGI with a Python application.
#[test]
fn a_python_application_answers() {
    if !have("uwsgi") {
        return;
    }
    let tree = Tree::new();
    tree.file(
        "app.py",
        "def application(env, start):\n    body = env['wsgi.input'].read()\n    start('200 OK', [('X-Path', env['PATH_INFO'])])\n    return [env['REQUEST_METHOD'].encode() + b' ' + body]\n",
    );
    let socket = tree.path("uwsgi.sock");
    let path = socket.display().to_string();
    let _uwsgi = run(
        &tree,
        "uwsgi",
        &[
            "--plugin",
            "python3",
            "--socket",
            &path,
            "--chmod-socket=666",
            "--wsgi-file",
            "app.py",
            "--need-app",
        ],
    );
    eventually("uWSGI", LONG, || UnixStream::connect(&socket).is_ok());
    let server = serve(
        tree,
        &format!(
            "location / {{ uwsgi_pass unix:{path};
               uwsgi_param QUERY_STRING $query_string; uwsgi_param REQUEST_METHOD $request_method;
               uwsgi_param CONTENT_LENGTH $content_length; uwsgi_param REQUEST_URI $request_uri;
               uwsgi_param PATH_INFO $document_uri; uwsgi_param SERVER_PROTOCOL $server_protocol;
               uwsgi_param SERVER_NAME $server_name; uwsgi_param SERVER_PORT $server_port; }}"
        ),
    );
    let mut client = server.connect();
    let response = client.get("/a/b?c");
    assert_eq!((response.text().as_str(), response.field("x-path")), ("GET ", Some("/a/b")));
    assert_eq!(client.request_with_body("POST", "/", "", b"hello").text(), "POST hello");
}

/// SCGI, read by a peer that is scripted.
#[test]
fn an_scgi_application_answers() {
    let backend = Backend::start(|connection| {
        let mut length = String::new();
        while let Some(byte) = connection.read(1) {
            if byte == b":" {
                break;
            }
            length.push(char::from(byte[0]));
        }
        let head = connection.read(length.parse().expect("a length")).expect("a head");
        connection.read(1).expect("a comma");
        let parts: Vec<String> = head
            .split(|byte| *byte == 0)
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect();
        assert_eq!(parts[0], "CONTENT_LENGTH");
        let body = connection.read(parts[1].parse().expect("a number")).expect("a body");
        let uri =
            parts.iter().position(|part| part == "REQUEST_URI").map(|at| parts[at + 1].clone());
        connection.send(format!(
            "Status: 201 Made\r\nContent-Type: text/plain\r\n\r\n{} {}",
            uri.unwrap_or_default(),
            String::from_utf8_lossy(&body)
        ));
        connection.close();
    });
    let server = serve(
        Tree::new(),
        &format!(
            "location / {{ scgi_pass {}; scgi_param REQUEST_URI $request_uri; }}",
            backend.address()
        ),
    );
    let response = server.connect().request_with_body("POST", "/x?y", "", b"hello");
    assert_eq!((response.status, response.text().as_str()), (201, "/x?y hello"));
}

/// A record of FastCGI.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

/// U4: an application that answers twice on a kept connection spoils no other client's response.
#[test]
fn a_late_second_response_of_an_application_is_noticed() {
    let backend = Backend::start(|connection| {
        let mut header = [0; 8];
        let mut id = 0;
        while let Some(bytes) = connection.read(8) {
            header.copy_from_slice(&bytes);
            let length = u16::from_be_bytes([header[4], header[5]]);
            connection.read(usize::from(length) + usize::from(header[6]));
            if header[1] == 1 {
                id = header[3];
            }
            // The end of its input.
            if header[1] == 5 && length == 0 {
                let text = format!("Content-Type: text/plain\r\n\r\n{id}");
                let all = [record(6, text.as_bytes()), record(6, b""), record(3, &[0; 8])];
                let all = all.map(|mut record| {
                    record[3] = id;
                    record
                });
                connection.send(all.concat());
                if id == 2 {
                    sekisho_testkit::pause(std::time::Duration::from_millis(20));
                    connection.send(all.concat());
                }
            }
        }
    });
    let to = backend.address();
    let server = sekisho_testkit::Server::start_in(
        Tree::new(),
        crate::common::BINARY,
        &crate::common::http(&format!(
            "upstream app {{ server {to}; keepalive 1; }}
             server {{ listen 127.0.0.1:{{port}}; location / {{ fastcgi_pass app; fastcgi_keep_conn on; }} }}"
        )),
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "1");
    assert_eq!(client.get("/").text(), "2");
    // It is seen while nobody asks, or by the next request, which is made again on another connection.
    let response = client.get("/");
    assert!(response.status == 502 || response.text() == "1", "{response:?}");
    assert_eq!(backend.connections(), 2, "the connection is given up");
}

/// O5, C10: an application cannot fill the disk with what it says about one request.
#[test]
fn what_an_application_says_for_the_log_is_bounded() {
    let backend = Backend::start(|connection| {
        if connection.more().is_some() {
            for _ in 0..200 {
                connection.send(record(7, &vec![b'x'; 60_000]));
            }
            connection.send(record(6, b"Content-Type: text/plain\r\n\r\nok"));
            connection.send(record(6, b""));
            connection.send(record(3, &[0; 8]));
        }
        connection.wait_for_end();
    });
    let to = backend.address();
    let location = format!(
        "location / {{ fastcgi_pass {to}; fastcgi_param HTTP_PROXY \"\"; fastcgi_param HTTP_EMPTY $arg_none; }}"
    );
    let server = serve(Tree::new(), &location);
    let response = server.connect().request("GET", "/", "Proxy: evil\r\n");
    assert_eq!(response.text(), "ok");
    let log = server.log("error.log");
    let lines = log.matches("FastCGI sent in stderr").count();
    assert!(lines < 40 && log.len() < 100_000, "{lines} lines, {} bytes", log.len());
    assert_eq!(log.matches("the rest is not logged").count(), 1);
}
