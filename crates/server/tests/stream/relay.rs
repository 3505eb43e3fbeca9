//! TCP: bytes pass both ways, ends and resets are told, deadlines fall, rates hold.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use sekisho_testkit::{Client, Stopwatch, eventually};

use crate::common::{LONG, pattern};
use crate::{Backend, serve};

/// A server that speaks first is heard at once: nobody waits for the client's first bytes.
#[test]
fn a_server_may_speak_first() {
    let backend = Backend::echo("220 ready\r\n");
    let server =
        serve(&format!("server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; }}", backend.address));
    let mut client = server.connect();
    assert_eq!(client.read_bytes(11), b"220 ready\r\n", "{}", server.log("error.log"));
    client.send("hello");
    assert_eq!(client.read_bytes(5), b"hello");
    drop(client);
    let line = format!("TCP 200 5 16 {} 5 16\n", backend.address);
    eventually("its line", LONG, || server.log("access.log") == line);
}

/// Long transfers, through buffers first and through the kernel alone later, come whole and in order.
#[test]
fn large_transfers_come_whole_in_both_directions() {
    let backend = Backend::echo("");
    let server =
        serve(&format!("server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; }}", backend.address));
    let sent = pattern(24 << 20);
    let stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("it can be set");
    let mut writer = stream.try_clone().expect("a descriptor is free");
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy).expect("it is taken"));
    let mut received = vec![0; sent.len()];
    (&stream).read_exact(&mut received).expect("all of it comes");
    writing.join().expect("it has written");
    assert!(received == sent, "the same bytes");
}

/// `proxy_half_close`: the end of one direction leaves the other open; otherwise it ends both.
#[test]
fn an_end_is_passed_on() {
    // Says how much it got when that has ended.
    let backend = Backend::start(|mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(format!("{} bytes", all.len()).as_bytes());
    });
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; proxy_half_close on; proxy_pass {0}; }}
         server {{ listen 127.0.0.1:{{port2}}; proxy_pass {0}; }}",
        backend.address
    ));
    let mut client = server.connect();
    client.send("12345").half_close();
    assert_eq!(client.read_to_close(), b"5 bytes");
    let mut client = Client::connect(server.address_of(1));
    client.send("12345").half_close();
    assert_eq!(client.read_to_close(), b"", "without it, the end of one side is the end of both");
}

/// C5: a server that resets its connection is not taken for one that has ended it.
#[test]
fn a_reset_is_no_ordinary_end() {
    let backend = Backend::start(|mut stream| {
        let mut byte = [0];
        let _ = stream.write_all(b"part");
        let _ = stream.read(&mut byte);
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
    });
    let server =
        serve(&format!("server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; }}", backend.address));
    let mut client = server.connect();
    assert_eq!(client.read_bytes(4), b"part");
    client.send("x");
    let (_, end) = client.read_to_end();
    assert_eq!(format!("{end:?}"), "Reset");
}

/// `proxy_timeout`: nothing passes for so long; what passes in either direction begins it anew.
#[test]
fn a_silent_session_ends_at_its_deadline() {
    let backend = Backend::echo("");
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; proxy_timeout 600ms; }}",
        backend.address
    ));
    let mut client = server.connect();
    let begun = Stopwatch::start();
    for _ in 0..4 {
        client.send("x");
        assert_eq!(client.read_bytes(1), b"x");
        client.expect_open_for(Duration::from_millis(300));
    }
    assert_eq!(client.read_to_close(), b"");
    assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
    eventually("its word in the log", LONG, || {
        server.log("error.log").contains("connection timed out (110: Connection timed out)")
    });
}

/// `proxy_download_rate`, `proxy_upload_rate`
#[test]
fn rates_hold_bytes_back() {
    let backend = Backend::start(|mut stream| {
        let _ = stream.write_all(&[7; 3000]);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0]);
    });
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}}; proxy_pass {}; proxy_download_rate 1000; }}",
        backend.address
    ));
    let begun = Stopwatch::start();
    let mut client = server.connect();
    assert_eq!(client.read_bytes(3000).len(), 3000);
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(1900),
        "the last thousand comes after two seconds: {took:?}"
    );
}

/// `return`, with variables and a `map`; `set` before it.
#[test]
fn a_server_may_answer_itself() {
    let server = serve(
        "map $server_port $kind { default other; }
         server { listen 127.0.0.1:{port}; set $what \"$protocol-$kind\"; return \"$remote_addr $what\\n\"; }",
    );
    let mut client = server.connect();
    assert_eq!(client.read_to_close(), b"127.0.0.1 TCP-other\n");
}

/// `deny`, `limit_conn`: who may not come in is told nothing; the log says why.
#[test]
fn clients_may_be_kept_out() {
    let backend = Backend::echo("in\n");
    let server = serve(&format!(
        "limit_conn_zone $binary_remote_addr zone=one:1m;
         server {{ listen 127.0.0.1:{{port}}; deny 127.0.0.1; proxy_pass {0}; }}
         server {{ listen 127.0.0.1:{{port2}}; limit_conn one 1; proxy_pass {0}; }}",
        backend.address
    ));
    assert_eq!(server.connect().read_to_close(), b"");
    let mut first = Client::connect(server.address_of(1));
    assert_eq!(first.read_bytes(3), b"in\n");
    assert_eq!(Client::connect(server.address_of(1)).read_to_close(), b"");
    drop(first);
    eventually("a place", LONG, || {
        let mut next = TcpStream::connect(server.address_of(1)).expect("it listens");
        next.set_read_timeout(Some(LONG)).expect("it can be set");
        next.read(&mut [0; 8]).is_ok_and(|count| count > 0)
    });
    let log = server.log("error.log");
    assert!(log.contains("access forbidden by rule"), "{log}");
    assert!(log.contains("limiting connections by zone \"one\""), "{log}");
    eventually("their lines", LONG, || {
        let lines = server.log("access.log");
        lines.contains("TCP 403 0 0") && lines.contains("TCP 503 0 0")
    });
}

/// The PROXY protocol, taken from a balancer and given to a server.
#[test]
fn who_the_client_is_may_be_said_and_heard() {
    // Sends back the first line that it gets.
    let backend = Backend::start(|mut stream| {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte).is_ok_and(|count| count > 0) && byte != *b"\n" {
            line.push(byte[0]);
        }
        let _ = stream.write_all(&line);
    });
    let server = serve(&format!(
        "server {{ listen 127.0.0.1:{{port}} proxy_protocol; set_real_ip_from 127.0.0.0/8;
           proxy_protocol on; proxy_pass {0}; }}
         server {{ listen 127.0.0.1:{{port2}} proxy_protocol; return \"$proxy_protocol_addr $remote_addr\"; }}",
        backend.address
    ));
    let mut client = server.connect();
    client.send("PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n");
    let port = server.address().port();
    let expected = format!("PROXY TCP4 192.0.2.7 127.0.0.1 1234 {port}\r");
    assert_eq!(String::from_utf8(client.read_to_close()).expect("text"), expected);
    let mut client = Client::connect(server.address_of(1));
    client.send("PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n");
    assert_eq!(client.read_to_close(), b"192.0.2.7 127.0.0.1");
    let mut client = Client::connect(server.address_of(1));
    client.send("PROXY NONSENSE");
    assert_eq!(client.read_to_end().0, b"");
    assert!(server.log("error.log").contains("no PROXY header"));
}
