//! Behind a balancer: the PROXY protocol before HTTP and TLS, and whose address counts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use sekisho_testkit::{Client, Server, Tree};

use crate::common::{BINARY, LONG};
use crate::support::{Speech, can_make_certificates, certificate};

const V1: &str = "PROXY TCP4 192.0.2.7 192.0.2.9 4711 443\r\n";

fn v2() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x17".to_vec();
    header.extend([192, 0, 2, 7, 192, 0, 2, 9, 0x12, 0x67, 1, 0xbb]);
    // A value of an unknown type.
    header.extend([0xe0, 0, 0]);
    // The name that the client has asked the balancer for.
    header.extend(b"\x02\x00\x05a.org");
    header
}

fn start(inside: &str) -> Server {
    let config = format!(
        "events {{ connections_per_address 8; }}
         error_log {{dir}}/error.log info;
         http {{
             log_format own '$remote_addr $remote_port $realip_remote_addr $status';
             access_log {{dir}}/access.log own;
             limit_req_zone $binary_remote_addr zone=rate:1m rate=1r/m;
             server {{
                 listen 127.0.0.1:{{port}} proxy_protocol;
                 client_header_timeout 1s;
                 {inside}
                 location / {{
                     return 200 '$remote_addr $remote_port $realip_remote_addr $proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port';
                 }}
                 location /values/ {{ return 200 '$proxy_protocol_tlv_authority $proxy_protocol_tlv_0x02 $proxy_protocol_tlv_ssl_cn'; }}
                 location /inside/ {{ deny 192.0.2.7; try_files /none =204; }}
                 location /rate/ {{ limit_req zone=rate; try_files /none =204; }}
             }}
         }}"
    );
    Server::start_in(Tree::new(), BINARY, &config)
}

const BELIEVED: &str = "set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol;";

#[test]
fn both_versions_say_who_the_client_is() {
    let server = start(BELIEVED);
    for header in [V1.as_bytes().to_vec(), v2()] {
        let mut client = server.connect();
        client.send(&header);
        for _ in 0..2 {
            let said = client.get("/").text();
            assert_eq!(said, "192.0.2.7 4711 127.0.0.1 192.0.2.7 4711 192.0.2.9 443");
        }
        let name = if header[0] == b'P' { "  " } else { "a.org a.org " };
        assert_eq!(client.get("/values/").text(), name);
        assert_eq!(client.get("/inside/").status, 403, "access sees the real address");
    }
    let log = server.log("access.log");
    assert_eq!(log.lines().filter(|line| line.starts_with("192.0.2.7 4711 127.0.0.1 ")).count(), 8);
    let log = server.log("error.log");
    assert!(log.contains("access forbidden by rule, client: 192.0.2.7"), "{log}");
}

#[test]
fn a_header_counts_however_it_is_cut() {
    let server = start(BELIEVED);
    for header in [V1.as_bytes().to_vec(), v2()] {
        let mut client = server.connect();
        let mut bytes = header;
        bytes.extend(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n");
        client.send_slowly(&bytes, Duration::from_millis(1));
        assert!(client.read_response().text().starts_with("192.0.2.7 4711 "));
    }
}

#[test]
fn who_is_not_believed_is_the_client_itself() {
    let server = start("set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol;");
    let mut client = server.connect();
    client.send(V1);
    let said = client.get("/").text();
    let port = client.local_address().port();
    assert_eq!(said, format!("127.0.0.1 {port} 127.0.0.1 192.0.2.7 4711 192.0.2.9 443"));
    // One that says nothing, as balancers do to see whether we live.
    let mut client = server.connect();
    client.send("PROXY UNKNOWN\r\n");
    let port = client.local_address().port();
    assert_eq!(client.get("/").text(), format!("127.0.0.1 {port} 127.0.0.1    "));
}

#[test]
fn what_is_no_header_closes_the_connection() {
    let server = start(BELIEVED);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"PROXY TCP4 192.0.2.7 192.0.2.9 4711\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x00",
    ] {
        let mut client = server.connect();
        client.send(bytes);
        let (answer, _) = client.read_to_end();
        assert_eq!(answer, b"", "{}", bytes.escape_ascii());
    }
    // One that ends within it.
    let mut client = server.connect();
    client.send("PROXY TCP4 192");
    client.half_close();
    assert_eq!(client.read_to_end().0, b"");
    let log = server.log("error.log");
    assert!(log.contains("does not begin with a PROXY header, client: 127.0.0.1"), "{log}");
    assert!(log.contains("the PROXY header is malformed"), "{log}");
}

#[test]
fn a_header_that_stays_away_is_as_late_as_a_request_head() {
    let server = start(BELIEVED);
    for begun in ["", "PROXY TCP4 192.0"] {
        let mut client = server.connect();
        client.send(begun);
        client.expect_open_for(Duration::from_millis(500));
        client.expect_closed(LONG);
    }
}

#[test]
fn limits_count_the_real_client() {
    let server = start(BELIEVED);
    let status = |from: &str| {
        let mut client = server.connect();
        client.send(format!("PROXY TCP4 {from} 192.0.2.9 1 443\r\n"));
        client.get("/rate/").status
    };
    assert_eq!([status("192.0.2.1"), status("192.0.2.1"), status("192.0.2.2")], [204, 503, 204]);
    // Connections are counted by the real address, too: eight of one, and still one of another.
    let open = |from: &str| {
        let mut client = server.connect();
        client.send(format!("PROXY TCP4 {from} 192.0.2.9 1 443\r\n"));
        let status = client.get("/").status;
        (client, status)
    };
    let kept: Vec<(Client, u16)> = (0..8).map(|_| open("192.0.2.3")).collect();
    assert!(kept.iter().all(|(_, status)| *status == 200));
    assert_eq!(open("192.0.2.3").1, 503);
    assert_eq!(open("192.0.2.4").1, 200);
}

#[test]
fn a_field_names_the_client_where_its_sender_is_believed() {
    let config = "events {} http {
         server {
             listen 127.0.0.1:{port};
             set_real_ip_from 127.0.0.1;
             set_real_ip_from 10.0.0.0/8;
             real_ip_header X-Forwarded-For;
             location / { return 200 '$remote_addr,$remote_port,$realip_remote_addr'; }
             location /inside { deny 192.0.2.7; try_files /none =204; }
             location /far/ { real_ip_recursive on; try_files /none =204; }
         }
         server {
             listen 127.0.0.1:{port2};
             set_real_ip_from 127.0.0.1;
             set_real_ip_from 10.0.0.0/8;
             real_ip_header X-Forwarded-For;
             real_ip_recursive on;
             return 200 $remote_addr;
         }
         server {
             listen 127.0.0.1:{port3};
             location / { return 200 $remote_addr; }
             location /there/ { set_real_ip_from 127.0.0.1; try_files /none @there; }
             location @there { return 200 $remote_addr; }
         }
     }";
    let server = Server::start(BINARY, config);
    let mut client = server.connect();
    let ask = |client: &mut Client, target: &str, fields: &str| {
        let response = client.request("GET", target, fields);
        format!("{} {}", response.status, response.text())
    };
    let port = client.local_address().port();
    let table = [
        ("X-Forwarded-For: 192.0.2.7\r\n", "200 192.0.2.7,,127.0.0.1".to_owned()),
        ("X-Forwarded-For: 192.0.2.7:81\r\n", "200 192.0.2.7,81,127.0.0.1".to_owned()),
        ("X-Forwarded-For: 1.1.1.1, 10.0.0.1\r\n", "200 10.0.0.1,,127.0.0.1".to_owned()),
        ("X-Forwarded-For: nobody\r\n", format!("200 127.0.0.1,{port},127.0.0.1")),
        ("", format!("200 127.0.0.1,{port},127.0.0.1")),
    ];
    for (fields, expected) in table {
        assert_eq!(ask(&mut client, "/", fields), expected, "{fields}");
    }
    assert_eq!(ask(&mut client, "/inside", "X-Forwarded-For: 192.0.2.7\r\n")[..3], *"403");
    let mut far = Client::connect(server.address_of(1));
    let fields = "X-Forwarded-For: 9.9.9.9, 1.1.1.1\r\nX-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n";
    assert_eq!(ask(&mut far, "/", fields), "200 1.1.1.1");
    // What a location says holds from there on.
    let mut there = Client::connect(server.address_of(2));
    assert_eq!(ask(&mut there, "/", "X-Real-IP: 1.1.1.1\r\n"), "200 127.0.0.1");
    assert_eq!(ask(&mut there, "/there/", "X-Real-IP: 1.1.1.1\r\n"), "200 1.1.1.1");
    assert_eq!(ask(&mut there, "/", "X-Real-IP: 1.1.1.1\r\n"), "200 127.0.0.1", "one request long");
}

/// The header comes before the handshake, in the clear.
#[test]
fn the_header_comes_before_tls_and_http2() {
    if !can_make_certificates()
        || Command::new("curl").arg("-V").stdout(Stdio::null()).status().is_err()
    {
        println!("skipped: there is no curl");
        return;
    }
    let tree = Tree::new();
    certificate(&tree, "a.test", "30");
    let config = format!(
        "events {{}} http {{ server {{
             listen 127.0.0.1:{{port}} ssl proxy_protocol; http2 on; {BELIEVED}
             ssl_certificate {{dir}}/a.test.pem; ssl_certificate_key {{dir}}/a.test.key;
             return 200 '$remote_addr $proxy_protocol_addr $server_protocol';
         }} }}"
    );
    let server = Server::start_in(tree, BINARY, &config);
    for (option, expected) in
        [("--http1.1", "127.0.0.1 127.0.0.1 HTTP/1.1"), ("--http2", "127.0.0.1 127.0.0.1 HTTP/2.0")]
    {
        let output = Command::new("curl")
            .args(["-sk", option, "--haproxy-protocol"])
            .arg(format!("https://{}/", server.address()))
            .stderr(Stdio::inherit())
            .output()
            .expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
    for header in [V1.as_bytes().to_vec(), v2()] {
        let tls = Speech::default().connect_behind(&header, server.address(), "a.test");
        let said = tls.expect("a handshake").get("/", "a.test").1;
        assert_eq!(said, "192.0.2.7 192.0.2.7 HTTP/1.1");
    }
    // Without it, the handshake is no header.
    let mut plain = TcpStream::connect(server.address()).expect("connected");
    plain.write_all(b"\x16\x03\x01\x00\x05hello").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert_eq!(answer, b"");
}
