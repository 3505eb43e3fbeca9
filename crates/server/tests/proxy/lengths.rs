//! What servers are told of a body that is empty, and which fields they and clients get beside it. The same as with nginx, where that
//! is installed.

use sekisho_testkit::{Server, Tree, have};

use crate::backend::{Backend, Connection};
use crate::common::{BINARY, http};

const NGINX: &str = "/usr/sbin/nginx";

/// An HTTP server that says which length it was told of.
fn plain() -> Backend {
    Backend::start(|connection| {
        while let Some((head, body)) = connection.request_with_body() {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let text = format!("<{}> {}", length.unwrap_or("none"), body.len());
            connection.answer("200 OK", "Status: 299 own\r\n", text);
        }
    })
}

/// A number of a length before a name or a value.
fn length(bytes: &mut &[u8]) -> usize {
    let (first, rest) = bytes.split_first().expect("a length");
    if *first < 128 {
        *bytes = rest;
        return usize::from(*first);
    }
    let (long, rest) = bytes.split_at(4);
    *bytes = rest;
    u32::from_be_bytes([long[0] & 127, long[1], long[2], long[3]]) as usize
}

type Pairs = Vec<(String, String)>;

/// The parameters and the body of a FastCGI request.
fn fastcgi_request(connection: &mut Connection) -> Option<(Pairs, Vec<u8>)> {
    let (mut params, mut body) = (Vec::new(), Vec::new());
    loop {
        let head = connection.read(8)?;
        let content = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let bytes = connection.read(content + usize::from(head[6]))?;
        match (head[1], content) {
            (4, _) => params.extend_from_slice(&bytes[..content]),
            (5, 0) => break,
            (5, _) => body.extend_from_slice(&bytes[..content]),
            _ => {}
        }
    }
    let (mut rest, mut pairs) = (params.as_slice(), Vec::new());
    while !rest.is_empty() {
        let lengths = (length(&mut rest), length(&mut rest));
        let (name, after) = rest.split_at(lengths.0);
        let (value, after) = after.split_at(lengths.1);
        rest = after;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        pairs.push((text(name), text(value)));
    }
    Some((pairs, body))
}

/// A FastCGI application that says what it was told.
fn application() -> Backend {
    Backend::start(|connection| {
        let Some((pairs, body)) = fastcgi_request(connection) else { return };
        let value = |name: &str| {
            let found = pairs.iter().find(|(own, _)| own == name);
            found.map_or("none", |(_, value)| value.as_str())
        };
        let text = format!(
            "Status: 201 Made\r\n\r\n<{}> <{}> <{}> {}",
            value("CONTENT_LENGTH"),
            value("HTTP_CONTENT_LENGTH"),
            value("HTTP_CONTENT_TYPE"),
            body.len()
        );
        let record = |kind: u8, content: &[u8]| {
            let length = u16::try_from(content.len()).expect("short").to_be_bytes();
            [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
        };
        connection.send([record(6, text.as_bytes()), record(6, b""), record(3, &[0; 8])].concat());
        connection.close();
    })
}

/// An SCGI application that says which length it was told of.
fn scgi_application() -> Backend {
    Backend::start(|connection| {
        let mut length = String::new();
        while let Some(byte) = connection.read(1).filter(|byte| byte != b":") {
            length.push(char::from(byte[0]));
        }
        let Some(pairs) = connection.read(length.parse().unwrap_or(0)) else { return };
        let words: Vec<_> =
            pairs.split(|byte| *byte == 0).map(|it| String::from_utf8_lossy(it)).collect();
        let at = words.iter().position(|word| word == "HTTP_CONTENT_LENGTH");
        let own = at.map_or("none", |at| &words[at + 1]);
        connection.send(format!("Status: 200 OK\r\n\r\n<{}> <{own}>", words[1]));
        connection.close();
    })
}

#[test]
fn servers_are_told_of_an_empty_body_as_with_nginx() {
    let mut binaries = vec![BINARY];
    if have("nginx") {
        binaries.push(NGINX);
    }
    for binary in binaries {
        let (plain, fastcgi, scgi) = (plain(), application(), scgi_application());
        let (to, fast, single) = (plain.address(), fastcgi.address(), scgi.address());
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = kinds.map(|name| format!("{name}_temp_path {{dir}}/{name};")).concat();
        let site = format!(
            "server {{ listen 127.0.0.1:{{port}};
               location / {{ proxy_pass http://{to}; proxy_http_version 1.1; }}
               location /hidden {{ proxy_pass http://{to}; proxy_hide_header Status; }}
               location /fast {{ fastcgi_pass {fast}; fastcgi_param CONTENT_LENGTH $content_length; }}
               location /fast/status {{ fastcgi_pass {fast}; fastcgi_pass_header Status; }}
               location /scgi {{ scgi_pass {single}; scgi_param CONTENT_LENGTH $content_length; }}
             }}"
        );
        let config = if binary == NGINX {
            let site = http(&(paths + &site));
            format!("daemon off; master_process off; pid {{dir}}/nginx.pid;\n{site}")
        } else {
            http(&site)
        };
        let server = Server::start_in(Tree::new(), binary, &config);
        let mut client = server.connect();
        for method in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
            let mut ask = |path, fields| client.request(method, path, fields).text();
            assert_eq!(ask("/", "Content-Length: 0\r\n"), "<0> 0", "{binary} {method}");
            assert_eq!(ask("/", ""), "<none> 0", "{binary} {method}");
            let fields = "Content-Length: 0\r\nContent-Type: a/b\r\n";
            assert_eq!(ask("/fast", fields), "<0> <0> <a/b> 0", "{binary} {method}");
            assert_eq!(ask("/fast", ""), "<> <none> <none> 0", "{binary} {method}");
            assert_eq!(ask("/scgi", "Content-Length: 0\r\n"), "<0> <0>", "{binary} {method}");
        }
        let sent = client.request_with_body("POST", "/fast", "Content-Type: a/b\r\n", "abc");
        assert_eq!(sent.text(), "<3> <3> <a/b> 3", "{binary}");
        assert_eq!(sent.field("status"), None, "{binary}");
        assert_eq!(client.get("/fast/status").field("status"), Some("201 Made"), "{binary}");
        assert_eq!(client.get("/").field("status"), Some("299 own"), "{binary}");
        assert_eq!(client.get("/hidden").field("status"), None, "{binary}");
    }
}
